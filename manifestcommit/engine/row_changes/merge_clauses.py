"""The whole MERGE, in this process: clauses in order, with conditions and expressions over the rows
of both sides. [RC9] [RC3] [RC4]
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.filter.arrow_expression import columns_in, spark_order
from ...core.filter.merge_keys import key_columns, may_hold, partitions_of_keys
from ...core.filter.sql_expression import Resolve, Session, compile_value
from ...core.filter.sql_syntax import NotUnderstoodError
from ...core.schema import arrow_schema
from ...core.schema.evolution import find_column, fit
from ...core.schema.fields import Field, Schema, arrow_marks
from ...errors import SchemaMismatchError, UsageError
from ..datafile.row_buffer import record_batches
from ..datafile.writer import check_rows
from ..metadata.table_context import TableContext
from ..operations.row_change import NOTHING, Declared, RowChange, RowOutcome
from ..scan import planning
from .arrow_rows import each_of, rewrite, scan, write_rows
from .assignments import Assignments
from .clauses import (
    Clause,
    Clauses,
    Delete,
    Insert,
    Update,
    both_sides,
    given_values,
    source_values,
)
from .conditions import complete, evaluating, mask_of, session_of, shown
from .merge_source import KeyIndex, Staged, keys_only, staged_rows
from .removal import ChangedFiles, by_sources, finish

LOG = logging.getLogger("manifestcommit.jobs")
_NOTHING = Schema(fields=())


class Merged(NamedTuple):
    """A merge that has looked and written, and has not committed. files: None: an earlier run did
    it."""

    change: RowChange
    files: ChangedFiles | None = None
    counts: dict[str, Any] = {}  # noqa: RUF012  # never changed


def merge_clauses(
    session: TableContext,
    source: Any,
    on: Sequence[str] | str,
    clauses: Clauses,
    declared: Declared = NOTHING,
) -> RowOutcome:
    """Merge the rows of a source of Arrow data by key, clause by clause. [RC9]"""
    change, files, counts = begin_merge_clauses(session, source, on, clauses, declared)
    return finish(change, session, files, executor="arrow", **counts)


def begin_merge_clauses(
    session: TableContext,
    source: Any,
    on: Sequence[str] | str,
    clauses: Clauses,
    declared: Declared = NOTHING,
) -> Merged:
    """Write the source, find the rows that change, and write the files that take the place of
    others. [RC1] [RC4]"""
    names = [on] if isinstance(on, str) else list(on)
    change = RowChange(session, "merge", ["on", *names, *clauses.declared()], declared)
    if change.already_committed:
        return Merged(change)
    schema = change.snapshot.schema
    assert schema is not None
    fields = key_columns(schema, on)
    given, batches = record_batches(source)
    data = arrow_schema.from_arrow(given, session.new_field_id)
    columns = _source_columns(schema, data, fields)
    work = _Merge(session, change, fields, columns, clauses)
    plan = keys_only(change.plan(), fields)
    plan = msgspec.structs.replace(plan, schema=columns)
    order = [find_column(data, field.name).name for field in columns.fields]
    rows = (batch.select(order).rename_columns(work.source_names) for batch in batches)
    attempt = session.env.randomness(8).hex()
    entries, _ = write_rows(session, plan, rows, task=0, attempt=attempt)
    work.use(Staged(plan=plan, files=tuple(entries), marks=arrow_marks(given.metadata)))
    files = work.rewrite()
    work.insert()
    return Merged(change, files, work.counts)


def _source_columns(table: Schema, data: Schema, keys: Sequence[Field]) -> Schema:
    """The source's columns as they are written: those of the table with its types, the keys first,
    which have bounds then."""
    known, extra = [], []
    for field in data.fields:
        try:
            found = find_column(table, field.name)
        except UsageError:
            extra.append(field)
            continue
        fit(Schema(fields=(found,)), Schema(fields=(field,)), merge=False)
        known.append(msgspec.structs.replace(found, nullable=True))
    names = {field.name: field for field in known}
    missing = [key.name for key in keys if key.name not in names]
    if missing:
        raise SchemaMismatchError(
            f"the source has no column {missing[0]!r}: a merge compares. Nothing was done."
        )
    first = [names[key.name] for key in keys]
    ids = {field.id for field in first}
    return Schema(fields=(*first, *(field for field in known if field.id not in ids), *extra))


class _Rule:
    """One clause, compiled for rows with some columns."""

    def __init__(
        self,
        clause: Clause,
        table: Schema,
        source: Schema,
        resolve: Resolve,
        inputs: pa.Schema,
        session: Session,
    ) -> None:
        self.deletes = isinstance(clause, Delete)
        self._where = clause.where
        self._form = None if clause.where is None else _condition(clause.where, resolve, inputs)
        self._assignments: Assignments | None = None
        if not self.deletes:
            given = given_values(clause)
            values = source_values(table, source) if given is None else given
            prefix = "target." if isinstance(clause, Update) else None
            self._assignments = Assignments(values, table, resolve, inputs, session, stays=prefix)

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns that its condition names; None: unknown."""
        if self._form is None:
            return frozenset()
        named = columns_in(self._form)
        return None if named is None else frozenset(path[0] for path in named)

    def selected(self, rows: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For each row whether the condition is true."""
        if self._form is None:
            return np.ones(rows.num_rows, dtype=bool)
        with evaluating(self._where):
            mask = pc.fill_null(mask_of(rows, self._form), False)
        return np.asarray(mask.to_numpy())

    def changed(self, rows: pa.Table) -> pa.Table:
        assert self._assignments is not None
        return self._assignments.changed(rows)


class _Merge:
    """One merge. Of the source, the rows are in memory; of the table, one batch."""

    def __init__(
        self,
        session: TableContext,
        change: RowChange,
        keys: Sequence[Field],
        source: Schema,
        clauses: Clauses,
    ) -> None:
        self._session, self._change, self._fields = session, change, keys
        table = change.snapshot.schema
        assert table is not None
        self._table, self._source_schema = table, source
        self.source_names = [field.name for field in source.fields]
        both, ours = _inputs(table, source), _inputs(table, _NOTHING)
        sides, resolve_ours = both_sides(table, source), both_sides(table, _NOTHING)
        now = session_of(now_us=session.env.now_us())
        self._matched = [_Rule(each, table, source, sides, both, now) for each in clauses.matched]
        self._by_source = [
            _Rule(each, table, _NOTHING, resolve_ours, ours, now) for each in clauses.by_source
        ]
        theirs, resolve_theirs = _inputs(_NOTHING, source), both_sides(_NOTHING, source)
        self._unmatched = [
            _Rule(each, table, source, resolve_theirs, theirs, now) for each in clauses.unmatched
        ]
        for each in clauses.unmatched:
            _check_partitions(each, table, source, change.snapshot.partition_by)
        self.counts = {"rows_deleted": 0, "rows_updated": 0, "rows_inserted": 0}

    def use(self, staged: Staged) -> None:
        """Read the source back, and say what of the table is looked at. [RC4] [CF16]"""
        batches = list(staged_rows(self._session, staged, self._source_schema.fields))
        empty = arrow_schema.arrow_schema(self._source_schema, physical=False, ids=False)
        source = pa.Table.from_batches(batches, None if batches else empty).combine_chunks()
        LOG.info(
            "merge: %d rows of the source take %.1f MB of memory",
            source.num_rows,
            source.nbytes / 1e6,
        )
        self._staged = staged
        self._keys = KeyIndex(self._fields, source) if source.num_rows else None
        self._source = source.rename_columns([f"source.{name}" for name in self.source_names])
        self._times = np.zeros(source.num_rows, dtype=np.int64)
        by = self._change.snapshot.partition_by
        partitions = partitions_of_keys(self._fields, staged.files, staged.plan.partition_by, by)
        self._change.rest_on(staged.marks)
        self._change.read(({},) if self._by_source else partitions)

    def rewrite(self) -> ChangedFiles:
        """Find the rows of the table that change, and rewrite the files that hold some."""
        change = self._change
        if self._keys is None and not self._by_source:
            entries = planning.entries_of(self._session, change.snapshot, [])
            return ChangedFiles(entries, entries, 0)
        bounds = may_hold(self._fields, self._staged.files, self._staged.plan.partition_by)
        entries = planning.entries_table(
            self._session, change.snapshot, None if self._by_source else bounds
        )
        touched, partly, kept = [], [], 0
        for at, entry in enumerate(each_of(entries)):
            updated, deleted = self._look(entry)
            rows = entry.column("rows")[0].as_py()
            self.counts["rows_updated"] += updated
            self.counts["rows_deleted"] += deleted
            if updated or deleted:
                touched.append(at)
            if (updated or deleted) and deleted < rows:
                partly.append(at)
                kept += rows - deleted
        files = entries.take(pa.array(touched, pa.int64()))
        some = entries.take(pa.array(partly, pa.int64()))
        written = sum(
            rewrite(self._session, change, each, self._rewritten) for each in by_sources(some)
        )
        check_rows(some, kept, written, what="a condition")
        change.remove(files)
        return ChangedFiles(files, some, kept - self.counts["rows_updated"])

    def insert(self) -> None:
        """Add the rows of the source whose key no row of the table has. [RC3]"""
        if not self._unmatched or not self._source.num_rows:
            return
        rows = self._source.filter(pa.array(self._times == 0))
        pieces = [piece for _, piece in self._decided(rows, self._unmatched)[0]]
        self.counts["rows_inserted"] = sum(piece.num_rows for piece in pieces)
        if self.counts["rows_inserted"]:
            plan = self._change.plan(sources=self._change.sources)
            attempt = self._session.env.randomness(8).hex()
            batches = (batch for piece in pieces for batch in piece.to_batches())
            made, intake = write_rows(self._session, plan, batches, task=0, attempt=attempt)
            self._change.take(made, intake=intake)

    def _look(self, entry: pa.Table) -> tuple[int, int]:
        """How many rows of a file are updated and deleted."""
        named = [rule.columns for rule in (*self._matched, *self._by_source)]
        columns = None
        if all(names is not None for names in named):
            names = {name for some in named if some is not None for name in some}
            keys = {field.name for field in self._fields}
            columns = [
                field.name
                for field in self._table.fields
                if field.name in keys or f"target.{field.name}" in names
            ]
        filter = None
        if not self._by_source and self._keys is not None:
            keys_of = self._keys.values
            filter = reduce(and_, (pc.field(f.name).isin(keys_of(f.name)) for f in self._fields))
        updated = deleted = 0
        for batch in scan(self._session, self._change.snapshot, entry, columns, filter):
            matched, others, found = self._sides(batch)
            np.add.at(self._times, found, 1)
            for rows, rules in ((matched, self._matched), (others, self._by_source)):
                for rule, chosen in self._chosen(rows, rules):
                    count = int(chosen.sum())
                    updated += 0 if rule.deletes else count
                    deleted += count if rule.deletes else 0
        return updated, deleted

    def _rewritten(self, entries: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows of these files as they are to be, in their order."""
        for batch in scan(self._session, self._change.snapshot, entries):
            if not batch.num_rows:
                continue
            rows = pa.Table.from_batches([batch])
            matched, others, _ = self._sides(batch)
            is_matched = self._is_matched(batch)
            changed = np.zeros(batch.num_rows, dtype=bool)
            pieces = []
            for joined, rules, places in (
                (matched, self._matched, np.flatnonzero(is_matched)),
                (others, self._by_source, np.flatnonzero(~is_matched)),
            ):
                made, gone = self._decided(joined, rules)
                changed[places[gone]] = True
                for chosen, piece in made:
                    changed[places[chosen]] = True
                    pieces.append((places[chosen], piece.cast(rows.schema)))
            stays = np.flatnonzero(~changed)
            pieces.append((stays, rows.take(pa.array(stays))))
            order = np.argsort(np.concatenate([place for place, _ in pieces]), kind="stable")
            both = pa.concat_tables([piece for _, piece in pieces])
            yield from both.take(pa.array(order)).to_batches()

    def _is_matched(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if self._keys is None:
            return np.zeros(batch.num_rows, dtype=bool)
        return np.asarray(self._keys.find(batch).is_valid().to_numpy(zero_copy_only=False))

    def _sides(
        self, batch: pa.RecordBatch
    ) -> tuple[pa.Table, pa.Table, np.ndarray[Any, np.dtype[np.int64]]]:
        """The rows with a key of the source beside its rows, the others, and the source's rows."""
        rows = pa.Table.from_batches([batch])
        rows = rows.rename_columns([f"target.{name}" for name in rows.column_names])
        mask = self._is_matched(batch)
        found = np.zeros(0, dtype=np.int64)
        if self._keys is not None:
            found = self._keys.find(batch).drop_null().to_numpy(zero_copy_only=False)
        matched, theirs = rows.filter(pa.array(mask)), self._source.take(pa.array(found))
        names = [*matched.column_names, *theirs.column_names]
        matched = pa.Table.from_arrays([*matched.columns, *theirs.columns], names)
        return matched, rows.filter(pa.array(~mask)), found

    def _chosen(
        self, rows: pa.Table, rules: Sequence[_Rule]
    ) -> Iterator[tuple[_Rule, np.ndarray[Any, np.dtype[np.bool_]]]]:
        """For each rule the rows for which it is the first that applies."""
        open_rows = np.ones(rows.num_rows, dtype=bool)
        for rule in rules:
            left = np.flatnonzero(open_rows)
            chosen = np.zeros(rows.num_rows, dtype=bool)
            # a condition is evaluated for the rows that no earlier clause has taken
            chosen[left[rule.selected(rows.take(pa.array(left)))]] = True
            open_rows &= ~chosen
            yield rule, chosen

    def _decided(
        self, rows: pa.Table, rules: Sequence[_Rule]
    ) -> tuple[
        list[tuple[np.ndarray[Any, np.dtype[np.intp]], pa.Table]],
        np.ndarray[Any, np.dtype[np.intp]],
    ]:
        """The rows with new values and where they are, and where those are that are deleted."""
        made, gone = [], np.zeros(rows.num_rows, dtype=bool)
        for rule, chosen in self._chosen(rows, rules):
            if rule.deletes:
                gone |= chosen
            elif chosen.any():
                places = np.flatnonzero(chosen)
                made.append((places, rule.changed(rows.take(pa.array(places)))))
        return made, np.flatnonzero(gone)


def _check_partitions(
    clause: Clause, table: Schema, source: Schema, partition_by: Sequence[int]
) -> None:
    """SchemaMismatchError where inserted rows would lack a partition column, as for an append.
    [SC8] [RC9]"""
    values = given_values(clause)
    names = source_values(table, source) if values is None else values
    given = {find_column(table, name).id for name in names}
    lacking = [field.name for field in table.fields if field.id in {*partition_by} - given]
    if lacking:
        raise SchemaMismatchError(
            f"Column {lacking[0]!r} partitions the table and Insert gives it no value: all new "
            "rows would go to the partition of null. Nothing was done. Add it to the source, or "
            f"give it in values; where they are to go there, as {{{lacking[0]!r}: None}}."
        )


def _inputs(table: Schema, source: Schema) -> pa.Schema:
    """The columns of a row that clauses see."""
    return pa.schema(
        [
            field.with_name(f"{side}.{field.name}")
            for side, columns in (("target", table), ("source", source))
            for field in arrow_schema.arrow_schema(columns, physical=False, ids=False)
        ]
    )


def _condition(condition: Any, resolve: Resolve, inputs: pa.Schema) -> pc.Expression:
    form = condition
    try:
        if isinstance(condition, str):
            with complete(condition, "where"):
                found = compile_value(condition, resolve, session_of())
            if found.type != "boolean":
                raise NotUnderstoodError("it is neither true nor false")
            form = found.expression
        elif not isinstance(condition, pc.Expression):
            raise NotUnderstoodError("it is neither SQL nor a pyarrow expression")
    except NotUnderstoodError as error:
        raise UsageError(
            f"invalid where {shown(condition)}: {error}, and clauses are evaluated without Spark; "
            "nothing was done"
        ) from error
    form = spark_order(form, inputs)
    with evaluating(condition):
        mask_of(inputs.empty_table(), form)
    return form


__all__ = ["Clauses", "Delete", "Insert", "Update", "begin_merge_clauses", "merge_clauses"]

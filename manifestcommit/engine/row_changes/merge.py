"""Merges rows of a source into a table by key (upsert) in this process: matching rows are updated
or deleted, the others inserted, in one commit. [RC3] [RC4]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.filter.merge_keys import key_columns, may_hold, partitions_of_keys
from ...core.filter.predicate import And, IsIn, Predicate
from ...core.schema.fields import Field
from ..datafile.writer import check_rows
from ..metadata.table_context import TableContext
from ..operations.row_change import NOTHING, Declared, RowChange, RowOutcome
from ..scan import planning
from .arrow_rows import each_of, rewrite, scan, write_rows
from .merge_source import KeyIndex, Staged, check_actions, keys_only, stage, staged_rows
from .removal import RowsToDelete, by_sources, finish

Matched = Literal["update", "delete"] | None
Unmatched = Literal["insert"] | None
_FEW_KEYS = 10_000  # by whose values, besides their bounds, files are skipped


class Actions(NamedTuple):
    """What becomes of rows whose key the source and the table have, and of the source's others."""

    matched: Matched = "update"
    unmatched: Unmatched = "insert"

    @property
    def only_keys(self) -> bool:
        """Nothing but the source's keys is needed."""
        return self.matched != "update" and self.unmatched is None


class Merged(NamedTuple):
    """A merge that has looked and written, and has not committed. going: None: an earlier run did
    it; keys: how many keys of the source the table has."""

    change: RowChange
    going: RowsToDelete | None = None
    staged: Staged | None = None
    keys: int = 0


def merge(
    session: TableContext,
    source: Any,
    on: Sequence[str] | str,
    actions: Actions,
    declared: Declared = NOTHING,
) -> RowOutcome:
    """Merge the rows of a source of Arrow data by key. [RC3]"""
    change, going, staged, keys = begin_merge(session, source, on, actions, declared)
    if going is None or staged is None:
        return finish(change, session)
    return finish(
        change, session, going, executor="arrow", **counts(actions, going, staged.rows, keys)
    )


def counts(actions: Actions, going: RowsToDelete, rows: int, keys: int) -> dict[str, Any]:
    """How many rows were deleted, updated and inserted. rows: of the source."""
    return {
        "rows_deleted": going.rows if actions.matched == "delete" else 0,
        "rows_updated": going.rows if actions.matched == "update" else 0,
        "rows_inserted": rows - keys if actions.unmatched else 0,
    }


def begin_change(
    session: TableContext,
    on: Sequence[str] | str,
    actions: Actions,
    declared: Declared,
) -> RowChange:
    """The change, as it is declared with a key by all executors. [RC6]"""
    check_actions(actions.matched, actions.unmatched)
    names = [on] if isinstance(on, str) else list(on)
    texts = ["matched", str(actions.matched), "not matched", str(actions.unmatched)]
    return RowChange(session, "merge", ["on", *names, *texts], declared)


def begin_merge(
    session: TableContext,
    source: Any,
    on: Sequence[str] | str,
    actions: Actions,
    declared: Declared = NOTHING,
) -> Merged:
    """Write the source, compare its keys with the table, and write the files that take the place of
    others. [RC1] [RC4]"""
    change = begin_change(session, on, actions, declared)
    if change.already_committed:
        return Merged(change)
    assert change.snapshot.schema is not None
    fields = key_columns(change.snapshot.schema, on)
    plan = change.plan(sources=change.sources)
    if actions.only_keys:
        plan = keys_only(plan, fields)
    staged = stage(session, plan, source, only_keys=actions.only_keys)
    table_by = change.snapshot.partition_by
    change.rest_on(staged.marks)
    change.read(partitions_of_keys(fields, staged.files, plan.partition_by, table_by))
    work = _Merge(session, change, fields, staged)
    going = work.take_out(remove=actions.matched is not None)
    work.add(actions)
    return Merged(change, going, staged, work.keys_found)


class _Merge:
    """One merge, with its source written and its keys in memory."""

    def __init__(
        self, session: TableContext, change: RowChange, fields: Sequence[Field], staged: Staged
    ) -> None:
        self._session, self._change, self._fields, self._staged = session, change, fields, staged
        self._names = [field.name for field in fields]
        batches = list(staged_rows(session, staged, fields))
        # no rows: no files, and nothing is asked of the keys
        self._keys = KeyIndex(fields, pa.Table.from_batches(batches)) if batches else None
        # how many rows of the table have the key of each row of the source
        self._times = np.zeros(staged.rows, dtype=np.int64)

    @property
    def keys_found(self) -> int:
        """How many keys of the source the table has."""
        return int(np.count_nonzero(self._times))

    def take_out(self, *, remove: bool) -> RowsToDelete:
        """Find the rows with a key of the source and, if they do not stay, rewrite the files that
        hold some."""
        change, keys = self._change, self._keys
        if keys is None:
            none = planning.entries_of(self._session, change.snapshot, [])
            return RowsToDelete(none, {})
        entries = planning.entries_table(self._session, change.snapshot, self._predicate(keys))
        has_key = reduce(and_, (pc.field(name).isin(keys.values(name)) for name in self._names))
        rows: dict[str, int] = {}
        for entry in each_of(entries):
            found = self._count(keys, entry, has_key)
            rows[entry.column("path")[0].as_py()] = found
        going = RowsToDelete(entries, rows if remove else {})
        survivors = self._survivors(keys, has_key)
        written = sum(
            rewrite(self._session, change, some, survivors) for some in by_sources(going.partly)
        )
        check_rows(going.partly, going.rows_kept, written, what="the key")
        change.remove(going.entries)
        return going

    def add(self, actions: Actions) -> None:
        """Register the source's rows to add: each as often as rows of the table had its key, once
        if none had. [RC3]"""
        staged, times = self._staged, self._times
        updates, inserts = actions.matched == "update", actions.unmatched == "insert"
        if not staged.rows or not (updates or inserts):
            return
        if inserts and (updates or not self.keys_found):
            self._change.take(staged.files, intake=staged.intake)
            self._write(np.maximum(times - 1, 0) if updates else np.zeros_like(times))
        elif updates:
            self._write(times)
        else:
            self._write((times == 0).astype(np.int64))

    def _predicate(self, keys: KeyIndex) -> Predicate:
        bounds = may_hold(self._fields, self._staged.files, self._staged.plan.partition_by)
        if self._staged.rows > _FEW_KEYS:
            return bounds
        members = ((name, keys.python_values(name)) for name in self._names)
        known = (IsIn(column=(name,), values=tuple(each)) for name, each in members if each)
        return And(args=(bounds, *known))

    def _count(self, keys: KeyIndex, entry: pa.Table, has_key: pc.Expression) -> int:
        count = 0
        for batch in scan(self._session, self._change.snapshot, entry, self._names, has_key):
            found = keys.find(batch).drop_null()
            count += len(found)
            np.add.at(self._times, found.to_numpy(zero_copy_only=False), 1)
        return count

    def _survivors(
        self, keys: KeyIndex, has_key: pc.Expression
    ) -> Callable[[pa.Table], Iterator[pa.RecordBatch]]:
        """The rows without a key of the source."""
        snapshot = self._change.snapshot

        def rows(some: pa.Table) -> Iterator[pa.RecordBatch]:
            if len(self._names) == 1:  # is_in is never null
                yield from scan(self._session, snapshot, some, filter=pc.invert(has_key))
                return
            for batch in scan(self._session, snapshot, some):
                yield batch.filter(pc.is_null(keys.find(batch)))

        return rows

    def _write(self, times: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Write each row of the source as often as this says."""
        if not times.any():
            return
        rows = staged_rows(self._session, self._staged, self._staged.plan.schema.fields)
        start = 0

        def repeated() -> Iterator[pa.RecordBatch]:
            nonlocal start
            for batch in rows:
                often = times[start : start + batch.num_rows]
                start += batch.num_rows
                yield batch.take(pa.array(np.repeat(np.arange(batch.num_rows), often)))

        plan = self._change.plan(sources=self._change.sources)
        attempt = self._session.env.randomness(8).hex()
        files, intake = write_rows(self._session, plan, repeated(), task=0, attempt=attempt)
        self._change.take(files, intake=intake)

"""Merges rows of a source into a table by key: clause by clause, rows of the table are updated or
deleted, and rows of the source inserted, in one commit. [RC3] [RC4] [RC9]

The source is written first, once: the compared keys and the committed rows cannot differ, even if
it would return other rows a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from ...core.filter.merge_keys import key_columns, may_hold, partitions_of_keys
from ...core.filter.predicate import And
from ...core.schema.evolution import find_column, fit
from ...core.schema.fields import Field, Schema
from ...errors import SchemaMismatchError, UsageError
from ..datafile.writer import WritePlan
from ..metadata.table_context import TableContext
from ..operations.row_change import NOTHING, Declared, RowChange, RowOutcome, until_committed
from ..scan import planning
from .clauses import Clauses, Compiled, Rule, Update, compile_clauses
from .find import Choice, Match, Staged, apply, finish
from .rewrite import NewRows, entries_of, for_each_try


def merge(
    session: TableContext,
    source: NewRows,
    on: Sequence[str] | str,
    clauses: Clauses,
    choice: Choice,
    declared: Declared = NOTHING,
    *,
    whole: bool = False,
) -> RowOutcome:
    """Write the source, compare its keys with the table, write the files that take the place of
    others, and commit. whole: rows are the source's as a whole; `clauses` have no conditions and no
    values then. [RC1] [RC4]"""
    source = for_each_try(session, source)
    once = partial(_merge_once, session, source, on, clauses, choice, declared, whole)
    return until_committed(session, once)


def _merge_once(
    session: TableContext,
    source: NewRows,
    on: Sequence[str] | str,
    clauses: Clauses,
    choice: Choice,
    declared: Declared,
    whole: bool,
) -> RowOutcome:
    names = [on] if isinstance(on, str) else list(on)
    change = RowChange(session, "merge", ["on", *names, *clauses.declared()], declared)
    if change.already_committed:
        return finish(change)
    snapshot = change.snapshot
    assert snapshot.schema is not None
    keys, by = key_columns(snapshot.schema, on), snapshot.partition_by
    executor = choice.of_merge(snapshot.totals.bytes)
    staged = (_whole_rows if whole else _some_columns)(change, source, keys, clauses)
    change.rest_on(source.marks)
    partitions = partitions_of_keys(keys, staged.files, staged.plan.partition_by, by)
    change.read(({},) if clauses.by_source else partitions)
    with executor.match(change, staged) as match:
        entries = planning.entries_of(session, snapshot, [])
        if clauses.by_source:
            entries = planning.entries_table(session, snapshot)
        elif staged.rows:
            bounds, members = (
                may_hold(keys, staged.files, staged.plan.partition_by),
                match.members(),
            )
            wanted = bounds if members is None else And(args=(bounds, members))
            entries = planning.entries_table(session, snapshot, wanted)
        found = apply(change, executor, match.rule, entries, what="a key or a condition")
        if not whole:
            inserted = match.insert().register(change) if clauses.unmatched and staged.rows else 0
        else:
            inserted = _add(change, match, staged, clauses)
            if _updates(clauses):  # their place is taken by rows of the source
                found = found._replace(updated=found.deleted, deleted=0)
        return finish(change, found, executor.name, rows_inserted=inserted)


def _updates(clauses: Clauses) -> bool:
    return any(isinstance(each, Update) for each in clauses.matched)


def _add(change: RowChange, match: Match, staged: Staged, clauses: Clauses) -> int:
    """Register the source's rows to add: each as often as rows of the table had its key, once if
    none had; returns how many are inserted. [RC3]"""
    updates, inserts = _updates(clauses), bool(clauses.unmatched)
    if not staged.rows or not (updates or inserts):
        return 0
    if inserts and (updates or not match.keys):
        staged.new.register(change)
        if updates and match.most > 1:
            match.write(2).register(change)
    elif match.keys:
        match.write(1 if updates else 0).register(change)
    return staged.rows - match.keys if inserts else 0


def _whole_rows(
    change: RowChange, source: NewRows, keys: Sequence[Field], clauses: Clauses
) -> Staged:
    """Write the source's rows as the table has them, or their keys where nothing else is needed;
    SchemaMismatchError before any of it is read. [RC4]"""
    plan, only_keys = change.plan(sources=change.sources), False
    if not _updates(clauses) and not clauses.unmatched:
        fields = tuple(msgspec.structs.replace(field, nullable=True) for field in keys)
        plan, only_keys = _of_keys(plan, keys, Schema(fields=fields)), True
    new = source.write(plan, _check_columns(plan.schema, source.schema, only_keys))
    rules = Compiled([Rule()] if clauses.matched else [], [], [])
    return Staged(plan, new, entries_of(change.session, plan, new), keys, rules, whole=True)


def _some_columns(
    change: RowChange, source: NewRows, keys: Sequence[Field], clauses: Clauses
) -> Staged:
    """Write the columns that the source has, and compile the clauses for them. [RC4] [RC9]"""
    session, snapshot = change.session, change.snapshot
    assert snapshot.schema is not None
    columns = _source_columns(snapshot.schema, source.schema, keys)
    rules = compile_clauses(
        clauses, snapshot.schema, columns, snapshot.partition_by, session.env.now_us()
    )
    plan = _of_keys(change.plan(), keys, columns)
    names = [find_column(source.schema, field.name).name for field in columns.fields]
    new = source.write(plan, names)
    return Staged(plan, new, entries_of(session, plan, new), keys, rules)


def _of_keys(plan: WritePlan, keys: Sequence[Field], schema: Schema) -> WritePlan:
    """The plan of a source with these columns, partitioned by those of the keys that partition the
    table."""
    ids = {field.id for field in keys}
    by = tuple(field_id for field_id in plan.partition_by if field_id in ids)
    return msgspec.structs.replace(plan, schema=schema, partition_by=by)


def _check_columns(table: Schema, data: Schema, only_keys: bool) -> list[str]:
    """The source's columns that are needed, by name: all of the table's and no others, so that an
    update loses none. [RC3]"""
    chosen = []
    for field in table.fields:
        try:
            chosen.append(find_column(data, field.name))
        except UsageError:
            what = (
                "a merge compares. Nothing was done."
                if only_keys
                else "a merge replaces whole rows. Nothing was done. Add the column, or merge the "
                "source's columns only: when_matched=mc.Update(), when_not_matched=mc.Insert()"
            )
            raise SchemaMismatchError(f"the source has no column {field.name!r}: {what}") from None
    extra = [field.name for field in data.fields if field not in chosen]
    if extra and not only_keys:
        raise SchemaMismatchError(
            "the source has columns that the table does not have: "
            f"{', '.join(map(repr, extra[:10]))}. Drop them, or add them to the table "
            "(add_column). Nothing was done."
        )
    fit(table, Schema(fields=tuple(chosen)), merge=False)
    return [field.name for field in chosen]


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

"""Deletes, updates and overwrites the rows for which a condition is true. Files with such rows are
rewritten (copy-on-write); the rest of the table stays. [RC2] [RC7] [RC10]"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SchemaMismatchError, UsageError
from ..files.writer import check_rows
from ..filter.predicate import columns_of as predicate_columns
from ..filter.predicate import is_understood
from ..filter.sql_expression import columns_of
from ..filter.sql_syntax import NotUnderstoodError
from ..filter.transforms import partitions_read
from ..format import manifest_table
from ..format.evolution import Editing
from ..format.fields import MAX_FIELD_ID, Field, Schema, hidden, type_text, walk
from ..format.snapshot import Snapshot
from ..format.transforms import partition_fields
from ..format.values import arrow_schema, converted, group_numbers
from ..log.table_context import TableContext
from ..protocol.apply import Layout, check_missing, lay_out
from ..scan import planning
from . import clauses, row_change
from .clauses import Assignments, Condition, Rule, Rules
from .find import ArrowRows, Counts, ExecutorChoice, Found, Selecting, apply, finish, found_in
from .row_change import NOTHING, Batches, Declared, NewRows, RowChange, RowOutcome


@row_change.until_committed
def delete_where(
    ctx: TableContext,
    condition: Any,
    choice: ExecutorChoice,
    declared: Declared = NOTHING,
    *,
    dry_run: bool = False,
) -> RowOutcome:
    """Delete the rows for which the condition is true; null ones stay. [RC2]"""
    change = RowChange(ctx, "delete", ["where", clauses.text_of(condition)], declared)
    if change.already_committed:
        return finish(change)
    selecting = choice.by_language(condition, change.snapshot.schema)
    entries = _examined(change, selecting.condition)
    (executor, wanted), counts = _decided(change, selecting, entries, choice, "delete")
    found = apply(change, executor, executor.deleting(wanted), entries, counts, dry_run=dry_run)
    return finish(change, found, executor.name, planned=dry_run)


def _decided(
    change: RowChange, selecting: Selecting, entries: pa.Table, choice: ExecutorChoice, what: str
) -> tuple[Selecting, Counts | None]:
    """Who finds and rewrites, and how many rows of each file match, if partitions decide that."""
    counts = _by_partition(change, selecting, entries)
    return choice.by_size(entries, what, selecting) if counts is None else selecting, counts


@row_change.until_committed
def update_where(
    ctx: TableContext,
    values: Mapping[str, Any],
    condition: Any,
    declared: Declared = NOTHING,
    *,
    dry_run: bool = False,
) -> RowOutcome:
    """Set columns of exactly the rows for which the condition is true; None: of all rows. [RC7]"""
    condition = pc.scalar(True) if condition is None else condition
    texts = ["where", clauses.text_of(condition), "set", *clauses.declared_set(values)]
    change = RowChange(ctx, "update", texts, declared)
    if change.already_committed:
        return finish(change)
    schema, session = change.snapshot.schema, clauses.session_of(now_us=ctx.env.now_us())
    inputs = arrow_schema(schema, physical=False, ids=False)
    new = Assignments(values, schema, columns_of(schema), inputs, session)
    wanted = understood_here(condition, schema, "where")
    entries, executor = _examined(change, wanted), ArrowRows(ctx)
    counts = _by_partition(change, Selecting(executor, wanted), entries)
    if counts is not None:
        counts = {path: (rows, 0) for path, (_, rows) in counts.items()}
    rule = Rules([Rule(wanted.given, wanted.form, new)])
    found = apply(change, executor, rule, entries, counts, dry_run=dry_run)
    return finish(change, found, executor.name, planned=dry_run)


@row_change.until_committed
def rewrite_all(
    ctx: TableContext,
    edit: Editing | None = None,
    default: Any = None,
    *,
    partition_by: Callable[[Snapshot], tuple[int, ...]] | None = None,
    dry_run: bool = False,
) -> RowOutcome:
    """Change the table's columns or its partitioning and rewrite all of its files, in one commit.
    default: of the column that is added, in all rows; without, no row changes. [SC11]-[SC13]"""
    change = RowChange(ctx, "replace" if default is None else "update", [])
    before = change.snapshot
    edits = () if edit is None else edit(before.schema, before.partition_by)
    by = before.partition_by if partition_by is None else partition_by(before)
    entries = planning.entries_table(ctx, before)
    if not edits and by == before.partition_by:  # others were faster
        return finish(change, found_in(entries, {}), planned=dry_run)
    change.evolve(edits, by)
    change.read(({},))
    there = {field.id: field for field in before.schema.fields}
    added = () if default is None else [each.field for each in edits if each.field is not None]

    values = {field.name: _default(field, default) for field in added}

    def rewritten(some: pa.Table) -> Batches:
        for batch in row_change.scan(ctx, before, some):
            rows = row_change.as_columns(batch, there, change.snapshot.schema.fields)
            for name, value in values.items():
                column = pa.repeat(value, rows.num_rows)
                rows = rows.set_column(rows.schema.get_field_index(name), name, column)
            yield rows

    count = _rows(entries)
    if not dry_run:
        parts = [part for some in row_change.by_sources(entries) for part in _by_ranges(some)]
        written = sum(row_change.rewrite(change, each, rewritten) for each in parts)
        check_rows(entries, count, written)
        change.remove(entries)
    kept, updated = (count, 0) if default is None else (0, count)
    found = Found(entries, entries, entries, updated, 0, kept)
    return finish(change, found, "arrow", planned=dry_run)


def _by_ranges(entries: pa.Table) -> list[pa.Table]:
    """The files in parts that record the source ranges of all of theirs. [GC11]"""
    half = entries.num_rows // 2
    if not half or entries.column("sources")[0].as_py() is None or row_change.ranges_of(entries):
        return [entries]
    return [*_by_ranges(entries.slice(0, half)), *_by_ranges(entries.slice(half))]


def _default(field: Field, value: Any) -> pa.Scalar:
    """The value in the type of a new column; UsageError where it is none of that type. [SC11]"""
    try:
        return converted(pa.array([value]), field)[0]
    except (SchemaMismatchError, pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise UsageError(
            f"it is no value of the type {type_text(field.type)} ({hidden(str(error))}); "
            "nothing was done",
            argument="default",
            given=clauses.shown(value),
        ) from error


def overwrite_where(
    ctx: TableContext,
    data: NewRows,
    condition: Any,
    choice: ExecutorChoice,
    declared: Declared = NOTHING,
    *,
    merge_schema: bool = False,
    dry_run: bool = False,
) -> RowOutcome:
    """Replace exactly the rows for which the condition is true; a row for which it is null stays.
    Refused if it is not true for a row of the data (Delta's `replaceWhere`). [RC10] [RC1]"""
    data = row_change.for_each_try(ctx, data)

    @row_change.until_committed
    def once(ctx: TableContext) -> RowOutcome:
        change = RowChange(ctx, "overwrite", ["where", clauses.text_of(condition)], declared)
        if change.already_committed:
            return finish(change)
        missing = _fit_columns(change, data, merge_schema)
        selecting = choice.by_language(condition, change.snapshot.schema)
        change.marks += data.marks
        entries = _examined(change, selecting.condition)
        with change.trial() if dry_run else nullcontext():
            new = _stage(change, data)
            _check_inside(change, selecting, new)
            (executor, wanted), counts = _decided(change, selecting, entries, choice, "overwrite")
            rule = executor.deleting(wanted)
            if counts is None:
                counts = executor.find(change, entries, rule, keep=not dry_run)
            gone = sum(rows for _, rows in counts.values())
            if missing and 0 < gone == _rows(planning.entries_table(ctx, change.snapshot)):
                check_missing(missing, change.snapshot.properties, whole=True)
            found = apply(change, executor, rule, entries, counts, dry_run=dry_run)
        return finish(change, found, executor.name, planned=dry_run, rows_inserted=_rows(new))

    return once(ctx)


def _examined(change: RowChange, wanted: Condition) -> pa.Table:
    """The files that may hold such rows. That they were looked at is recorded. [CF16]"""
    snapshot = change.snapshot
    change.read(partitions_read(wanted.predicate, change.snapshot.schema, snapshot.partition_by))
    return planning.entries_table(change.ctx, snapshot, wanted.predicate)


def _by_partition(change: RowChange, selecting: Selecting, entries: pa.Table) -> Counts | None:
    """How many rows of each file match, as if they were deleted, if no file has to be read for
    that: partition values alone decide, or there is no file; else None. [RC2]"""
    if not entries.num_rows:
        return {}
    wanted = selecting.condition
    # a transform says nothing of single values of its column
    every = partition_fields(change.snapshot.schema, change.snapshot.partition_by)
    fields = {f"partition.{each.id}": each.name for each in every if each.id <= MAX_FIELD_ID}
    known = {(name,) for name in fields.values()}
    if not is_understood(wanted.predicate) or not predicate_columns(wanted.predicate) <= known:
        return None
    groups = group_numbers(entries.select(list(fields)).columns, entries.num_rows)
    distinct = pc.unique(groups)
    partitions = entries.select(list(fields)).take(pc.index_in(distinct, groups))
    partitions = partitions.rename_columns(list(fields.values()))
    if not fields:  # some column, to have rows
        partitions = pa.table({"nothing": pa.nulls(1)})
    chosen = pa.array(selecting.executor.chosen(partitions, wanted), pa.bool_())
    goes = entries.filter(pc.is_in(groups, value_set=distinct.filter(chosen)))
    paths, counts = (goes.column(name).to_pylist() for name in ("path", "rows"))
    return {path: (0, count) for path, count in zip(paths, counts, strict=True)}


def understood_here(condition: Any, schema: Schema, argument: str) -> Condition:
    """A condition that this process evaluates; UsageError for any other. [RC8]"""
    try:
        return clauses.understand(condition, schema, argument, clauses.session_of())
    except NotUnderstoodError as error:
        raise UsageError(
            f"{error}, and this is done without Spark; nothing "
            "was done. Give other SQL, or a pyarrow expression, such as "
            "pyarrow.compute.field('flight') == 1545",
            argument=argument,
            given=clauses.shown(condition),
        ) from error


def _fit_columns(change: RowChange, data: NewRows, merge_schema: bool) -> tuple[str, ...]:
    """Give the table the columns that the data needs, as any write does; SchemaMismatchError where
    it does not fit. Returns the table's columns that it lacks. [SC3] [SC5] [SC8] [RC12]"""
    ids = cycle([field.id for _, field in walk(data.schema.fields)])
    layout = lay_out(
        Layout(),
        change.snapshot,
        data.schema,
        None,
        merge=merge_schema,
        new_id=partial(next, ids),
        url=change.ctx.store.url,
    )
    check_missing(layout.missing, change.snapshot.properties, whole=False)
    change.evolve(layout.edits)
    return layout.missing


def _stage(change: RowChange, data: NewRows) -> pa.Table:
    """Write the data once, as any write does; its entries."""
    ctx, plan = change.ctx, change.plan(sources=change.sources)
    names = {field.name: field.name for field in data.schema.fields}
    new = change.new(plan, data.write, plan, names)
    new.register(change)
    entries = row_change.entries_of(ctx, plan, new)
    return manifest_table.align(manifest_table.to_table(entries, plan), plan)


def _rows(entries: pa.Table) -> int:
    return pc.sum(entries.column("rows")).as_py() or 0


def _check_inside(change: RowChange, selecting: Selecting, new: pa.Table) -> None:
    """UsageError unless the condition is true for all rows: a rerun would double others. [RC10]"""
    inside, (executor, wanted) = _by_partition(change, selecting, new), selecting
    if inside is None:
        inside = executor.find(change, new, executor.deleting(wanted))
    rows = _rows(new)
    outside = rows - sum(count for _, count in inside.values())
    if outside:
        raise UsageError(
            f"{outside:,} of the {rows:,} rows of the data do not match where "
            f"{clauses.shown(wanted.given)}, or it is null for them; nothing was committed. Filter "
            "the data by the same condition, or name a condition that is true for all of it."
        )

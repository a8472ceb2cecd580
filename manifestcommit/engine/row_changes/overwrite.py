"""Overwrites the rows that match a condition: the data takes their place, and every row of it
matches, too (Delta's `replaceWhere`). [RC10] [RC1]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...core.commit.write_layout import Layout, check_missing, lay_out
from ...core.filter.partitions_read import partitions_of
from ...core.format import manifest_table
from ...core.schema import arrow_schema
from ...core.schema.fields import Schema, arrow_marks
from ...core.table.entries import Entry
from ...errors import UsageError
from ..datafile.row_buffer import record_batches
from ..datafile.writer import WritePlan, check_rows
from ..metadata.table_context import TableContext
from ..operations.row_change import NOTHING, Declared, Executor, RowChange, RowOutcome
from ..scan import planning
from .arrow_rows import write_rows
from .conditions import Condition, shown, text_of
from .executor import Choice, RowExecutor
from .removal import RowsToDelete, by_sources, finish, rows_by_partition


class NewRows(NamedTuple):
    """The data. schema: its columns; marks: the versions that its rows say they were read from;
    write: writes all rows, registers the files with the change, and returns their entries."""

    schema: Schema
    marks: Iterable[str]
    write: Callable[[RowChange, WritePlan], Sequence[Entry]]


class Overwriting(NamedTuple):
    """An overwrite that has looked and written, and has not committed. going: None: an earlier run
    did it; rows: of the data."""

    change: RowChange
    going: RowsToDelete | None = None
    executor: Executor | None = None
    rows: int = 0


def arrow_data(session: TableContext, data: Any) -> NewRows:
    """Data with an Arrow stream, which this process writes."""
    schema, batches = record_batches(data)

    def write(change: RowChange, plan: WritePlan) -> Sequence[Entry]:
        attempt = session.env.randomness(8).hex()
        files, intake = write_rows(session, plan, batches, task=0, attempt=attempt)
        change.take(files, intake=intake)
        return files

    columns = arrow_schema.from_arrow(schema, session.new_field_id)
    return NewRows(schema=columns, marks=arrow_marks(schema.metadata), write=write)


def overwrite_where(
    session: TableContext,
    data: NewRows,
    condition: Any,
    choice: Choice,
    declared: Declared = NOTHING,
) -> RowOutcome:
    """Replace exactly the rows for which the condition is true; a row for which it is null stays.
    [RC10]"""
    change, going, executor, rows = begin_overwrite(session, data, condition, choice, declared)
    gone = going.rows if going is not None else 0
    return finish(change, session, going, executor=executor, rows_deleted=gone, rows_inserted=rows)


def begin_overwrite(
    session: TableContext,
    data: NewRows,
    condition: Any,
    choice: Choice,
    declared: Declared = NOTHING,
) -> Overwriting:
    """Write the data, refuse it if a row is outside of the condition, and write the files that take
    the place of others. [RC1]"""
    change = RowChange(session, "overwrite", ["where", text_of(condition)], declared)
    if change.already_committed:
        return Overwriting(change)
    snapshot = change.snapshot
    assert snapshot.schema is not None
    executor, wanted = choice.by_language(condition, snapshot.schema, "where")
    change.rest_on(data.marks)
    change.read(partitions_of(wanted.predicate, snapshot.schema, snapshot.partition_by))
    new, missing = _stage(session, change, data)
    _check_inside(change, executor, wanted, new)
    entries = planning.entries_table(session, snapshot, wanted.predicate)
    rows = _by_partition(change, executor, wanted, entries)
    if rows is None and entries.num_rows:
        executor, wanted = choice.by_size(entries, "overwrite", executor, wanted, snapshot.schema)
        rows = executor.count(change, entries, wanted, keep=True)
    going = RowsToDelete(entries, rows or {})
    if missing and 0 < going.rows == _rows(planning.entries_table(session, snapshot)):
        check_missing(missing, snapshot.properties, whole=True)
    if going.rows:
        written = sum(
            executor.rewrite_without(change, some, wanted) for some in by_sources(going.partly)
        )
        check_rows(going.partly, going.rows_kept, written, what="the condition")
        change.remove(going.entries)
    return Overwriting(change, going, executor.name, _rows(new))


def _stage(
    session: TableContext, change: RowChange, data: NewRows
) -> tuple[pa.Table, tuple[str, ...]]:
    """Write the data once, as any write does; SchemaMismatchError before any of it is read. Its
    entries, and the table's columns that it lacks. [SC3] [SC8]"""
    snapshot = change.snapshot
    layout = lay_out(
        Layout(),
        snapshot,
        data.schema,
        None,
        merge=False,
        new_id=session.new_field_id,
        url=session.store.url,
    )
    check_missing(layout.missing, snapshot.properties, whole=False)
    files = data.write(change, change.plan(sources=change.sources))
    assert snapshot.schema is not None
    entries = manifest_table.to_table(
        files, schema=snapshot.schema, partition_by=snapshot.partition_by
    )
    aligned = manifest_table.align(
        entries, schema=snapshot.schema, partition_by=snapshot.partition_by
    )
    return aligned, layout.missing


def _rows(entries: pa.Table) -> int:
    return pc.sum(entries.column("rows")).as_py() or 0


def _check_inside(
    change: RowChange, executor: RowExecutor, wanted: Condition, new: pa.Table
) -> None:
    """UsageError unless the condition is true for every row of the data, as it is stored: a rerun
    would duplicate the others. [RC10]"""
    inside = _by_partition(change, executor, wanted, new)
    if inside is None and new.num_rows:
        inside = executor.count(change, new, wanted)
    rows = _rows(new)
    outside = rows - sum((inside or {}).values())
    if outside:
        raise UsageError(
            f"{outside:,} of the {rows:,} rows of the data do not match where "
            f"{shown(wanted.given)}, or it is null for them; nothing was committed. Filter the "
            "data by the same condition, or name a condition that is true for all of it."
        )


def _by_partition(
    change: RowChange, executor: RowExecutor, wanted: Condition, entries: pa.Table
) -> dict[str, int] | None:
    return rows_by_partition(
        entries,
        change,
        wanted.predicate,
        lambda partitions, columns: executor.chosen(partitions, columns, wanted),
    )

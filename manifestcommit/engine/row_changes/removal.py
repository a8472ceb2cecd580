"""Which files a row change removes and rewrites, and the outcome that says so. [RC1] [RC2]"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...core.filter.partitions_read import partitions_of
from ...core.filter.predicate import Predicate, Unknown, columns_of, is_understood
from ...core.schema import evolution, values
from ...core.schema.fields import Schema
from ...errors import UsageError
from ..datafile.writer import check_rows
from ..metadata.table_context import TableContext
from ..operations.row_change import NOTHING, Declared, Executor, RowChange, RowOutcome
from ..runtime.outcome import Kind, committed_or_raise
from ..scan import planning
from .conditions import text_of
from .executor import Choice


class RowsToDelete:
    """The files with rows to delete. rows: path -> how many of its rows to delete."""

    def __init__(self, entries: pa.Table, rows: Mapping[str, int]) -> None:
        paths = pa.array([path for path, count in rows.items() if count], pa.string())
        self.entries = entries.filter(pc.is_in(entries.column("path"), value_set=paths))
        gone = pa.array(
            [rows[path] for path in self.entries.column("path").to_pylist()], pa.int64()
        )
        partly = pc.less(gone, self.entries.column("rows"))
        self.partly = self.entries.filter(partly)
        self.rows = pc.sum(gone).as_py() or 0
        self.rows_kept = (pc.sum(self.partly.column("rows")).as_py() or 0) - (
            pc.sum(pc.filter(gone, partly)).as_py() or 0
        )


class TouchedFiles(NamedTuple):
    """Files that are rewritten as a whole. rows: how many of their rows change."""

    entries: pa.Table
    rows: int
    rows_kept: int

    @property
    def partly(self) -> pa.Table:
        """All of them have rows left."""
        return self.entries


class ChangedFiles(NamedTuple):
    """Files that a change removes; partly: those of which rows are in new files then. rows_kept:
    rows of these that are as they were."""

    entries: pa.Table
    partly: pa.Table
    rows_kept: int


def touched_files(entries: pa.Table, rows: Mapping[str, int]) -> TouchedFiles:
    """The files with rows that change. rows: path -> how many of its rows."""
    paths = pa.array([path for path, count in rows.items() if count], pa.string())
    touched = entries.filter(pc.is_in(entries.column("path"), value_set=paths))
    changed = sum(rows.values())
    return TouchedFiles(touched, changed, (pc.sum(touched.column("rows")).as_py() or 0) - changed)


def by_sources(entries: pa.Table) -> tuple[pa.Table, ...]:
    """The files that record their source ranges, and those that do not: rows of both are not mixed
    in one file. [RC5]"""
    silent = pc.is_null(entries.column("sources"))
    both = (entries.filter(pc.invert(silent)), entries.filter(silent))
    return tuple(some for some in both if some.num_rows)


def rows_by_partition(
    entries: pa.Table,
    change: RowChange,
    predicate: Predicate,
    chosen: Callable[[pa.Table, Schema], list[bool]],
) -> dict[str, int] | None:
    """How many rows of each file to delete, if partition values alone decide, so that no file is
    read; None if they do not. [RC2]

    chosen: evaluates the condition for partitions, one row each.
    """
    schema, partition_by = change.snapshot.schema, change.snapshot.partition_by
    assert schema is not None
    by_id = {field.id: field for field in schema.fields}
    fields = [by_id[field_id] for field_id in partition_by]
    if (
        not is_understood(predicate)
        or not columns_of(predicate) <= {(field.name,) for field in fields}
        or not entries.num_rows
    ):
        return None
    columns = [
        values.from_array(entries.column(f"partition.{field.id}"), field.type) for field in fields
    ]
    partitions = list(zip(*columns, strict=True)) if fields else [()] * entries.num_rows
    distinct = list(dict.fromkeys(partitions))
    arrays = [
        values.to_array([row[index] for row in distinct], field.type)
        for index, field in enumerate(fields)
    ]
    names = [field.name for field in fields]
    if not fields:  # some column, to have rows
        arrays, names = [pa.nulls(1)], ["nothing"]
    is_chosen = chosen(pa.table(arrays, names), Schema(fields=tuple(fields)))
    goes = {partition for partition, is_so in zip(distinct, is_chosen, strict=True) if is_so}
    paths, counts = entries.column("path").to_pylist(), entries.column("rows").to_pylist()
    return {
        path: count
        for path, count, values_of in zip(paths, counts, partitions, strict=True)
        if values_of in goes
    }


def needed_columns(schema: Schema, predicate: Predicate) -> list[str]:
    """The columns that the condition names, in the table's order; all if that is unknown."""
    everything = [field.name for field in schema.fields]
    if not is_understood(predicate) or isinstance(predicate, Unknown):
        return everything
    try:
        names = {evolution.find_column(schema, path[0]).name for path in columns_of(predicate)}
    except UsageError:
        return everything
    return [name for name in everything if name in names] or everything[:1]


def finish(
    change: RowChange,
    session: TableContext,
    going: RowsToDelete | TouchedFiles | ChangedFiles | None = None,
    *,
    executor: Executor | None = None,
    planned: bool = False,
    rows_deleted: int = 0,
    rows_updated: int = 0,
    rows_inserted: int = 0,
) -> RowOutcome:
    """Commit, unless there is nothing to commit or a transaction does; returns the outcome, or
    raises its error. going: None: done before. [RC6] [CM10] [MT3]"""
    told: dict[str, Any] = {}
    if going is not None:
        told = {
            "rows_deleted": rows_deleted,
            "rows_updated": rows_updated,
            "rows_inserted": rows_inserted,
            "rows_rewritten": going.rows_kept,
            "files_removed": going.entries.num_rows - going.partly.num_rows,
            "files_rewritten": going.partly.num_rows,
            "executor": executor,
        }
    if change.hold is not None and not planned:
        change.hold(change)
        done = change.record
        return RowOutcome(
            kind="pending" if done is None else "already_committed",
            job_id=change.id,
            version=None if done is None else done.version,
            metrics=change.metrics,
            **told,
        )
    if planned or (going is not None and not change.changes):
        kind: Kind = "planned" if planned else "unchanged"
        return RowOutcome(
            kind=kind, job_id=change.id, version=change.head.version, metrics=change.metrics, **told
        )
    outcome = committed_or_raise(change.commit(), session.store.url)
    told = told if outcome.kind == "committed" else {}
    return RowOutcome(
        **{name: getattr(outcome, name) for name in outcome.__struct_fields__}, **told
    )


# Deletes rows: files with rows to delete are rewritten without them (copy-on-write); the rest of
# the table stays.


class Deletion(NamedTuple):
    """A deletion that has looked and written, and has not committed. going: None: an earlier run
    did it."""

    change: RowChange
    going: RowsToDelete | None = None
    executor: Executor | None = None


def delete_where(
    session: TableContext,
    condition: Any,
    choice: Choice,
    declared: Declared = NOTHING,
    *,
    dry_run: bool = False,
) -> RowOutcome:
    """Delete exactly the rows for which the condition is true; a row for which it is null stays.
    [RC2]"""
    change, going, executor = begin_delete(session, condition, choice, declared, dry_run=dry_run)
    rows = going.rows if going is not None else 0
    return finish(change, session, going, executor=executor, planned=dry_run, rows_deleted=rows)


def begin_delete(
    session: TableContext,
    condition: Any,
    choice: Choice,
    declared: Declared = NOTHING,
    *,
    dry_run: bool = False,
) -> Deletion:
    """Find the rows and, unless it is a dry run, write the files that take the place of others.
    [RC1]"""
    change = RowChange(session, "delete", ["where", text_of(condition)], declared)
    if change.already_committed:
        return Deletion(change)
    snapshot = change.snapshot
    assert snapshot.schema is not None
    executor, wanted = choice.by_language(condition, snapshot.schema, "where")
    change.read(partitions_of(wanted.predicate, snapshot.schema, snapshot.partition_by))
    entries = planning.entries_table(session, snapshot, wanted.predicate)
    rows = rows_by_partition(
        entries,
        change,
        wanted.predicate,
        lambda partitions, columns: executor.chosen(partitions, columns, wanted),
    )
    if rows is None and entries.num_rows:
        executor, wanted = choice.by_size(entries, "delete", executor, wanted, snapshot.schema)
        rows = executor.count(change, entries, wanted, keep=not dry_run)
    going = RowsToDelete(entries, rows or {})
    if not dry_run and going.rows:
        written = sum(
            executor.rewrite_without(change, some, wanted) for some in by_sources(going.partly)
        )
        check_rows(going.partly, going.rows_kept, written, what="the condition")
        change.remove(going.entries)
    return Deletion(change, going, executor.name)

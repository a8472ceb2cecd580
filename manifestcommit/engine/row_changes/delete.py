"""Deletes rows: files with rows to delete are rewritten without them (copy-on-write); the rest of
the table stays. [RC1] [RC2]

One set of rules for all executors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.filter.partitions_read import partitions_of
from ..datafile.rewrite_plan import check_rows
from ..metadata.table_context import TableContext
from ..operations.row_change import NOTHING, Declared, Executor, RowChange, RowOutcome
from ..scan import planning
from .conditions import text_of
from .executor import Choice
from .removal import RowsToDelete, by_sources, finish, rows_by_partition


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

"""Deletions and upserts that have looked and written, and have not committed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.faults.tables import session

from manifestcommit.core.filter.merge_keys import key_columns, may_hold, partitions_of_keys
from manifestcommit.engine.datafile.rewrite_plan import check_rows
from manifestcommit.engine.datafile.writer import DataFileWriter
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.operations.row_change import RowChange, ranges_of
from manifestcommit.engine.row_changes.arrow_rows import ArrowRows
from manifestcommit.engine.row_changes.delete import begin_delete as begin
from manifestcommit.engine.row_changes.executor import Choice, RowExecutor
from manifestcommit.engine.runtime.outcome import Outcome, committed_or_raise
from manifestcommit.engine.scan import planning
from manifestcommit.errors import UsageError
from manifestcommit.store import Store


def no_spark() -> RowExecutor:
    raise UsageError("there is no Spark here")


def here(each: TableContext) -> Choice:
    """This process, and no other."""
    return Choice(ArrowRows(each), no_spark, is_given=False, is_active=False)


def rows_of(each: TableContext, path: str) -> pa.Table:
    with each.store.open_input(path) as source:
        return pq.ParquetFile(source).read()


def put(change: RowChange, each: TableContext, table: pa.Table, sources: Any = ()) -> Any:
    with DataFileWriter(each.store, change.plan(sources=sources), task=0, attempt=each.env.randomness(8).hex()) as writer:
        for batch in table.to_batches():
            writer.write(batch)
        entries = writer.close()
    change.take(entries, intake=writer.intake)
    return entries


def take_out(change: RowChange, each: TableContext, entries: pa.Table, wanted: pc.Expression) -> int:
    """The matching rows out of these files; how many they are."""
    gone = 0
    for index in range(entries.num_rows):
        entry = entries.slice(index, 1)
        table = rows_of(each, entry.column("path")[0].as_py())
        kept = table.filter(~pc.coalesce(wanted, pc.scalar(False)))
        if kept.num_rows < table.num_rows:
            gone += table.num_rows - kept.num_rows
            if kept.num_rows:
                written = sum(made.rows for made in put(change, each, kept, ranges_of(entry)))
                check_rows(entry, kept.num_rows, written, what="the condition")
            change.remove(entry)
    return gone


def begin_delete(store: Store, wanted: pc.Expression, key: str | None = None) -> RowChange:
    """A deletion, as the library makes it without Spark."""
    each = session(store)
    return begin(each, wanted, here(each), key=key).change


def begin_upsert(store: Store, source: pa.Table, on: list[str], key: str | None = None) -> RowChange:
    """An upsert by one integer column, maybe beside partition columns, that has looked and written."""
    each = session(store)
    change = RowChange(each, "merge", ["on", *on], key=key)
    if change.already_committed:
        return change
    snapshot = change.snapshot
    assert snapshot.schema is not None
    keys = key_columns(snapshot.schema, on)
    files = put(change, each, source)
    change.read(partitions_of_keys(keys, files, snapshot.partition_by, snapshot.partition_by))
    entries = planning.entries_table(each, snapshot, may_hold(keys, files, snapshot.partition_by))
    wanted = pc.scalar(False)
    for row in source.to_pylist():
        one = pc.scalar(True)
        for name in on:
            one = one & (pc.field(name) == row[name])
        wanted = wanted | one
    take_out(change, each, entries, wanted)
    return change


def commit(change: RowChange) -> Outcome:
    """Committed, or the error that tells why not."""
    return committed_or_raise(change.commit(), "the table")

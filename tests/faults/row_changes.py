"""Deletions and upserts as the library makes them, without Spark: pyarrow reads the files and the project's own writer writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.faults.tables import session

from manifestcommit.core.filter.arrow_expression import parse_expression, spell
from manifestcommit.core.filter.merge_keys import key_columns, may_hold, partitions_of_keys
from manifestcommit.core.filter.partitions_read import partitions_of
from manifestcommit.core.schema import arrow_schema
from manifestcommit.engine.datafile.rewrite_plan import check_rows
from manifestcommit.engine.datafile.writer import DataFileWriter
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.operations.row_change import RowChange, ranges_of
from manifestcommit.engine.runtime.outcome import Outcome, committed_or_raise
from manifestcommit.engine.scan import planning
from manifestcommit.store import Store


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
        kept = table.filter(pc.invert(pc.fill_null(_mask(table, wanted), False)))
        if kept.num_rows < table.num_rows:
            gone += table.num_rows - kept.num_rows
            if kept.num_rows:
                written = sum(made.rows for made in put(change, each, kept, ranges_of(entry)))
                check_rows(entry, kept.num_rows, written, what="the condition")
            change.remove(entry)
    return gone


def _mask(table: pa.Table, wanted: pc.Expression) -> pa.Array:
    import pyarrow.dataset as ds

    found = ds.dataset(table).to_table(columns={"mask": wanted}).column("mask")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def begin_delete(store: Store, wanted: pc.Expression, key: str | None = None) -> RowChange:
    """A deletion that has looked and written, and has not committed."""
    each = session(store)
    change = RowChange(each, "delete", ["where", spell(wanted)], key=key)
    if change.already_committed:
        return change
    snapshot = change.snapshot
    assert snapshot.schema is not None
    predicate = parse_expression(wanted, arrow_schema.arrow_schema(snapshot.schema, physical=False, ids=False))
    change.read(partitions_of(predicate, snapshot.schema, snapshot.partition_by))
    take_out(change, each, planning.entries_table(each, snapshot, predicate), wanted)
    return change


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

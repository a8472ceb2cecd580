"""Deletions and upserts that have looked and written, and have not committed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.faults.tables import session

from manifestcommit.engine.datafile.writer import DataFileWriter
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.operations.row_change import Declared, RowChange
from manifestcommit.engine.row_changes.arrow_rows import ArrowRows
from manifestcommit.engine.row_changes.executor import Choice, RowExecutor
from manifestcommit.engine.row_changes.merge import Actions, begin_merge
from manifestcommit.engine.row_changes.overwrite import arrow_data, begin_overwrite
from manifestcommit.engine.row_changes.removal import begin_delete as begin
from manifestcommit.engine.row_changes.update import begin_update
from manifestcommit.engine.runtime.outcome import Outcome, committed_or_raise
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


def begin_delete(store: Store, wanted: pc.Expression, key: str | None = None) -> RowChange:
    """A deletion, as the library makes it without Spark."""
    each = session(store)
    return begin(each, wanted, here(each), Declared(key=key)).change


def begin_upsert(store: Store, source: pa.Table, on: list[str], key: str | None = None) -> RowChange:
    """An upsert, as the library makes it without Spark."""
    return begin_merge(session(store), source, on, Actions(), Declared(key=key)).change


def begin_id_update(store: Store, wanted: pc.Expression, key: str | None = None) -> RowChange:
    """An update, which adds 1000 to the ids of these rows."""
    return begin_update(session(store), {"id": "id + 1000"}, wanted, Declared(key=key)).change


def begin_replacement(store: Store, data: pa.Table, wanted: pc.Expression, key: str | None = None) -> RowChange:
    """An overwrite by a condition, as the library makes it without Spark."""
    each = session(store)
    return begin_overwrite(each, arrow_data(each, data), wanted, here(each), Declared(key=key)).change


def commit(change: RowChange) -> Outcome:
    """Committed, or the error that tells why not."""
    return committed_or_raise(change.commit(), "the table")

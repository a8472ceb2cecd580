"""Deletions and upserts that have looked and written, and have not committed."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.kit.tables import session

from manifestcommit.errors import UsageError
from manifestcommit.files.writer import DataFileWriter
from manifestcommit.log.table_context import TableContext
from manifestcommit.rows.clauses import Clauses, Insert, Update
from manifestcommit.rows.find import ArrowRows, ExecutorChoice, RowExecutor, merge
from manifestcommit.rows.row_change import Declared, RowChange, arrow_data
from manifestcommit.rows.where import delete_where, overwrite_where, update_where
from manifestcommit.runtime.outcome import Outcome, committed_or_raise
from manifestcommit.store import Store


def no_spark() -> RowExecutor:
    raise UsageError("there is no Spark here")


def here(each: TableContext) -> ExecutorChoice:
    """This process, and no other."""
    return ExecutorChoice(ArrowRows(each), no_spark, is_given=False)


def put(change: RowChange, each: TableContext, table: pa.Table, sources: Any = ()) -> Any:
    with DataFileWriter(each.store, change.plan(sources=sources), task=0, attempt=each.env.randomness(8).hex()) as writer:
        for batch in table.to_batches():
            writer.write(batch)
        entries = writer.close()
    change.add_written(entries, intake=writer.intake)
    return entries


def held(work: Callable[..., Any], *given: Any, key: str | None = None, based_on: int | None = None, **named: Any) -> RowChange:
    """The change that this makes, as a transaction takes it."""
    changes: list[RowChange] = []
    work(*given, declared=Declared(key=key, based_on=based_on, hold=changes.append), **named)
    return changes[0]


def begin_delete(store: Store, wanted: pc.Expression, key: str | None = None) -> RowChange:
    """A deletion, as the library makes it without Spark."""
    each = session(store)
    return held(delete_where, each, wanted, here(each), key=key)


def begin_merge(store: Store, source: pa.Table, on: Any, clauses: Clauses, key: str | None = None, **named: Any) -> RowChange:
    """A merge, as the library makes it without Spark."""
    each = session(store)
    return held(merge, each, arrow_data(each, source), on, clauses, here(each), key=key, **named)


def begin_upsert(store: Store, source: pa.Table, on: list[str], key: str) -> RowChange:
    """An upsert of whole rows."""
    return begin_merge(store, source, on, Clauses((Update(),), (Insert(),)), key, whole=True)


def begin_update(store: Store, values: dict[str, Any], wanted: Any, key: str | None) -> RowChange:
    """An update."""
    return held(update_where, session(store), values, wanted, key=key)


def begin_id_update(store: Store, wanted: pc.Expression, key: str | None = None) -> RowChange:
    """An update, which adds 1000 to the ids of these rows."""
    return begin_update(store, {"id": "id + 1000"}, wanted, key)


def begin_replacement(store: Store, data: pa.Table, wanted: Any, key: str) -> RowChange:
    """An overwrite by a condition, as the library makes it without Spark."""
    each = session(store)
    return held(overwrite_where, each, arrow_data(each, data), wanted, here(each), key=key)


def commit(change: RowChange) -> Outcome:
    """Committed, or the error that tells why not."""
    return committed_or_raise(change.commit(), "the table")

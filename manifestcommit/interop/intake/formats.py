"""Which format a table is adopted from. [AF4]"""

from __future__ import annotations

from collections.abc import Callable

from ...core.schema.fields import Schema
from ...engine.maintenance.adopt import ListedTable
from ...engine.metadata.table_context import TableContext
from ...engine.runtime.validation import wrong
from . import delta, iceberg


def listing(session: TableContext, source: str) -> Callable[[Schema | None], ListedTable]:
    """What reads the list of files of the table at this path. UsageError: no such format."""
    if source == "delta":
        return lambda known: delta.listed(session, known)
    if source == "iceberg":
        return lambda _: iceberg.listed(session, None)
    if source.endswith(".metadata.json"):
        return lambda _: iceberg.listed(session, source)
    raise wrong("from_", source, "'iceberg', 'delta', or the path of an Iceberg document")

"""Which format a table is adopted from. [AF4]"""

from __future__ import annotations

from functools import partial

from ..log.table_context import TableContext
from ..operations.adopt import Source
from ..runtime.validation import wrong
from . import delta, iceberg


def source_of(ctx: TableContext, given: str, rewrite: bool) -> Source:
    """What reads the table of another format at this path. rewrite: files that name columns
    otherwise than the table are to be rewritten. UsageError: no such format."""
    if given == "delta":
        return Source(
            listed=partial(delta.listed, ctx),
            current=partial(delta.current_version, ctx.store),
        )
    if given == "iceberg" or given.endswith(".metadata.json"):
        document = None if given == "iceberg" else given
        return Source(
            listed=lambda _: iceberg.listed(ctx, document, rewrite),
            current=lambda _: iceberg.current_version(ctx.store, document),
        )
    raise wrong("from_", given, "'iceberg', 'delta', or the path of an Iceberg document")

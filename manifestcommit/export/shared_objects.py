"""Objects that several exporters may create at once, and the error of others. [EX2] [EX9]"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SnapshotExpiredError, UsageError, VersionNotFoundError
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..log.version_chain import Head, read_version
from ..runtime.environment import create
from ..scan.planning import differing_entries
from ..store import Store


def not_ours(store: Store, folder: str) -> UsageError:
    """The error for metadata of the format that this table's exports have not put. [EX9]"""
    return UsageError(
        f"{store.url}/{folder.partition('/')[0]} is of another table or program: an export would "
        "mix the two. Nothing was changed. Move the folder away, or delete it if nobody reads it, "
        "and export again"
    )


def entries_since(
    ctx: TableContext, head: Head, shown: int, snapshot: Snapshot, entries: pa.Table
) -> pa.Table:
    """Those of a version's entries that the exported version `shown` does not have, also files that
    a rollback brought back; all of them where it is not readable any more, or 0."""
    if not shown:
        return entries
    try:
        before = read_version(ctx.store, head, shown).snapshot
        since = differing_entries(ctx, before, snapshot)[1]
    except (SnapshotExpiredError, VersionNotFoundError):
        return entries
    return entries.filter(pc.is_in(entries.column("path"), since.column("path").combine_chunks()))


def put_shared(ctx: TableContext, name: str, data: bytes) -> int:
    """Create an object, or find the one of another exporter; returns the length that is there."""
    return len(data if create(ctx.store, name, data, ctx.env) else ctx.store.get(name))

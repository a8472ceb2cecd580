"""The marker of a table: an object named by the table's id, which disappears when the table path is
deleted. [LY14]

A version's name does not identify its table, so a job of a removed table could create one in a
table that was created at the same path later. The marker distinguishes the two, and every open and
every commit lists it anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Set

from ...core.table import object_names
from ...core.table.snapshot import Snapshot
from ...errors import CorruptMetadataError, StoreError
from ...store import Store
from ..runtime.environment import Env
from .manifests import create_own


def put_marker(store: Store, table_id: str, env: Env) -> None:
    """Create the marker of a table that has no version yet. One request. [LY14] [CM13]"""
    create_own(store, object_names.marker_name(table_id), table_id.encode("ascii"), env)


def drop_marker(store: Store, table_id: str) -> None:
    """Delete the marker of a table if another creator was faster: no job has ever had its id. Best
    effort. [CM13]"""
    with contextlib.suppress(StoreError):
        store.delete([object_names.marker_name(table_id)])


def misplaced(url: str, snapshot: Snapshot, tables: Set[str]) -> CorruptMetadataError | None:
    """Why this snapshot is not a version of the table at this path; None: it is one. tables: the
    ids of markers in a later listing. [LY14]"""
    name, own = (
        object_names.version_name(snapshot.version),
        object_names.marker_name(snapshot.table_id),
    )
    if snapshot.table_id in tables:
        return None
    by_hand = f"delete {name} by hand while no job runs"
    if tables:
        others = ", ".join(object_names.marker_name(table) for table in sorted(tables))
        what = (
            f"belongs to table {snapshot.table_id}, whose marker {own} is missing, and {others} "
            "is there"
        )
        return _error(url, name, what, f"A job of a removed table left it: {by_hand}")
    remedy = (
        f"If only this object was lost, create it again with the text {snapshot.table_id} as its "
        f"content. If the table was removed, a job of it left {name}: {by_hand}"
    )
    return _error(url, own, f"is missing, and {name} belongs to its table", remedy)


def _error(url: str, name: str, what: str, remedy: str) -> CorruptMetadataError:
    text = (
        f"{name} at {url} {what}, so no table can be read or written here. Nothing was changed. "
        f"{remedy}."
    )
    return CorruptMetadataError(text, object_name=name)

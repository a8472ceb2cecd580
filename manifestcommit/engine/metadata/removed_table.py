"""Detects that the table path was deleted while a job ran, and that another table may have been
created there. [CM5] [LY10]
"""

from __future__ import annotations

from ...core.table import object_names
from ...errors import StoreError, TableNotFoundError
from .table_context import TableContext
from .table_marker import misplaced
from .version_chain import Head, VersionListing, list_above, read_object


def check_same_root(session: TableContext, base: Head, mine: Head, above: VersionListing) -> None:
    """Check that what a job created belongs to its own table, and not to another one that was
    created at the same path. above: a listing made since. [CM5] [LY10]

    If only the table's own marker exists, that is enough. Otherwise the base version must be
    unchanged, unless it may have expired since.
    """
    if above.tables == {mine.snapshot.table_id}:
        return
    wrong = misplaced(session.store.url, mine.snapshot, above.tables)
    stored = read_object(session.store, base.version)
    if stored is None and (wrong is not None or above.versions[-1] <= mine.version):
        raise removed(session, base, mine)
    if stored is not None and stored.digest != base.digest:
        raise removed(session, base, mine)
    if wrong is not None:
        raise wrong


def is_removed(session: TableContext, base: Head) -> bool:
    """Whether both the marker of the base version's table and the base version itself are gone, so
    that a problem concerns another table. [LY14]"""
    if (
        misplaced(session.store.url, base.snapshot, list_above(session.store, base.version).tables)
        is None
    ):
        return False
    stored = read_object(session.store, base.version)
    return stored is None or stored.digest != base.digest


def removed(session: TableContext, base: Head, mine: Head | None) -> Exception:
    """Raise the error of a removed table, but only if the table is removed: a wrong listing must
    not lead anyone to delete a table in use. [CM5]

    mine: what this job has created, if anything. The error names it only if it exists and is not a
    version of another table.
    """
    url = session.store.url
    stored = read_object(session.store, base.version)
    if stored is not None and stored.digest == base.digest:
        return StoreError(
            f"{url}: the store's list does not show version {base.version}, which is there"
        )
    left = read_object(session.store, mine.version) if mine is not None else None
    if mine is None or left is None or left.digest != mine.digest:
        return TableNotFoundError(
            f"the table at {url} was removed while this job committed; nothing of it counts. "
            "Run it again."
        )
    name = object_names.version_name(mine.version)
    return TableNotFoundError(
        f"the table at {url} was removed while this job committed. Nothing of the job counts, but "
        f"{name}, which it created, is there, and as long as it is, nothing can be read or "
        "written: delete that object by hand while no other job runs, and run the job again."
    )

"""The tables that took part in joint commits with this one: which of them still ask it what became
of their newest versions, and with which it is at odds. [MT1] [MT10]
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ManifestCommitError, TableNotFoundError
from ..format.snapshot import JointRecord, Snapshot
from ..log.version_chain import open_object
from ..protocol.joint_outcome import attempt_of
from ..store import Store
from ..store.base import store_beside


def unsettled_partners(store: Store, snapshot: Snapshot) -> dict[str, str]:
    """Root of a table that took part in a joint commit that this one decided -> why it depends on
    this one, or may; without those that are settled or gone. Three requests for each. [MT10]"""
    opened = _members(store, snapshot)
    return {root: why for root, _, newest in opened if (why := _dependence(snapshot, newest))}


def check_partners(store: Store, snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
    """What the tables of joint commits say of this one and this one of them: the root, why it
    depends on this one, as in `unsettled_partners`, and why a joint commit is in one of the two
    only; empty where there is nothing of the kind. Three requests for each. [MT1] [MT10]"""
    for root, record, newest in _members(store, snapshot):
        torn = "" if isinstance(newest, str) else _contradiction(root, record, newest)
        yield root, _dependence(snapshot, newest), torn
    for table_id, decided in snapshot.homes.items():
        home = _opened(store, decided.root, table_id)
        if isinstance(home, Snapshot):
            known = home.joint.get(snapshot.table_id)
            if known is None or known.version < decided.version:
                yield (
                    decided.root,
                    "",
                    (
                        f"version {decided.version} counts here as part of a joint commit that "
                        f"{decided.root} decided, which does not list it"
                    ),
                )


def _members(store: Store, snapshot: Snapshot) -> Iterator[tuple[str, JointRecord, Snapshot | str]]:
    """Root, record and newest version of each table for which this one decided, without those that
    are gone; a text: why it cannot be read."""
    for table_id, record in snapshot.joint.items():
        newest = _opened(store, record.root, table_id)
        if newest is not None:
            yield record.root, record, newest


def _opened(store: Store, root: str, table_id: str) -> Snapshot | str | None:
    """The newest version of a table; a text: why it cannot be read; None: it is gone."""
    at = store_beside(store, root)
    if at is None:
        return "it is in another store"
    try:
        newest = open_object(at).snapshot
    except TableNotFoundError:
        return None
    except ManifestCommitError as error:
        return f"it cannot be read: {error}"
    return newest if newest.table_id == table_id else None


def _dependence(snapshot: Snapshot, newest: Snapshot | str) -> str:
    if isinstance(newest, str):
        return newest
    if newest.pending is None or newest.pending.table_id != snapshot.table_id:
        return ""
    return f"its version {newest.version} is what this table decided"


def _contradiction(root: str, record: JointRecord, newest: Snapshot) -> str:
    """Why the member that this table has committed is none there. [MT1]"""
    what = f"this table committed version {record.version} of {root} with its own, and"
    if newest.version < record.version:
        return f"{what} the newest version there is {newest.version}"
    if record.version in newest.void:
        return f"{what} there it is void: its work is here only"
    is_newest = newest.version == record.version
    if is_newest and (newest.pending is None or attempt_of(newest.pending) != record.attempt):
        return f"{what} there is another version of that number"
    return ""

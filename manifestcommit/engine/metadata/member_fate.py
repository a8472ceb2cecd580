"""Asks the home of a joint commit what became of one of its members. [MT6] [MT7]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from ...core.format.codec import Hint
from ...core.joint.fate import attempt_of, fate_of
from ...core.joint.participants import Participant
from ...core.table import object_names
from ...core.table.snapshot import Pending, Snapshot
from ...errors import CorruptMetadataError, TableNotFoundError, UndecidedError
from ...store import Store
from ...store.base import store_beside
from .manifests import ManifestReader


class _Opened(Protocol):
    @property
    def snapshot(self) -> Snapshot: ...


def ask_fate(
    store: Store, member: Snapshot, hint: Hint | None, open_object: Callable[[Store], _Opened]
) -> Literal["committed", "aborted", "undecided", "newer"]:
    """What became of a member that is the newest object of its table. [MT6]

    hint: that of its table, which may say it without a request. open_object: gets the newest object
    of the home, after the member was got. An error where the answer is not known. Three requests,
    and one for each run that may record the attempt or its job.
    """
    assert member.pending is not None
    if (
        hint is not None
        and hint.version == member.version
        and hint.attempt == attempt_of(member.pending)
    ):
        return "committed" if hint.is_committed else "aborted"
    at = home_of(store, member.pending)
    try:
        home = open_object(at).snapshot
    except TableNotFoundError:
        raise _unknown(store, member, "there is no table there") from None
    if home.table_id != member.pending.table_id:
        raise _unknown(store, member, f"another table is there, {home.table_id}")
    if _place(home) >= _place(member):
        # no writer makes it; followed, homes might name each other without end
        raise CorruptMetadataError(
            f"{object_names.version_name(member.version)} at {store.url} names {at.url} as its "
            "home, which does not come before it in the order of tables; nothing was changed.",
            object_name=object_names.version_name(member.version),
        )
    reader = ManifestReader(at)

    def is_over(job: str) -> bool:
        state, version = reader.job(home, job)
        is_undecided = home.pending is not None and version == home.version
        return state is not None and not is_undecided

    fate = fate_of(member, home, is_over)
    if fate == "diverged":
        raise diverged(store, member)
    return fate


def home_of(store: Store, pending: Pending) -> Store:
    """The store of the home; an error where it is not in the store of this table. [MT6] [SE2]"""
    at = store_beside(store, pending.home)
    if at is None:
        raise UndecidedError(
            f"{store.url}: its newest version is a member of a joint commit that the table at "
            f"{pending.home} decides, which is not in the same store; what became of it is not "
            "known. Nothing was changed. Read an earlier version, or ask where both are reachable."
        )
    return at


def diverged(store: Store, member: Snapshot) -> CorruptMetadataError:
    """The error for a member that its home knows as one of another table with the same id. [MT6]"""
    assert member.pending is not None
    name = object_names.version_name(member.version)
    return CorruptMetadataError(
        f"{name} at {store.url} is a member of a joint commit of another table with the same id, "
        f"as {member.pending.home} says: this table is a copy, or was put back. Nothing was "
        f"changed. Read version {member.pending.base}, which does not depend on it.",
        object_name=name,
    )


def _unknown(store: Store, member: Snapshot, why: str) -> UndecidedError:
    assert member.pending is not None
    return UndecidedError(
        f"{store.url}: its newest version is a member of a joint commit that the table at "
        f"{member.pending.home} decides, and {why}; what became of it is not known. Nothing was "
        f"changed. Restore that table, or read version {member.pending.base}; where it is lost for "
        "good, settle this one with an outcome (`manifestcommit settle`)."
    )


def _place(snapshot: Snapshot) -> Participant:
    return Participant(rank=snapshot.rank, table_id=snapshot.table_id)

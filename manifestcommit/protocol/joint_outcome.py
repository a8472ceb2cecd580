"""Joint commits: what became of a member and the state that follows from it, the order of the
tables, and which of their versions belong together. [MT2] [MT4] [MT5] [MT6] [MT12] Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from ..format.object_names import attempt_id, parse_job_id
from ..format.snapshot import (
    FORMAT_VERSION,
    MOST_TABLES,
    PENDING_FORMAT_VERSION,
    HomeRecord,
    JointRecord,
    Pending,
    Snapshot,
)

# "newer": the member's table has gone on since it was read; "diverged": the home knows another
# table with this id
MemberOutcome = Literal["committed", "aborted", "undecided", "newer", "diverged"]
_MOST_ATTEMPTS = 4096  # at one joint commit that are looked for


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a version says of the joint commit that it is part of. home: the root of the table that
    decides, None: this one; attempt: the id; members: root of each member's table -> the member's
    version, which only the home names."""

    home: str | None
    attempt: str
    members: dict[str, int] = {}


def attempt_of(pending: Pending) -> str:
    """The id of the attempt that a member belongs to. [MT9]"""
    return attempt_id(pending.job, pending.attempt)


def member_outcome(
    member: Snapshot, home: Snapshot, is_over: Callable[[str], bool]
) -> MemberOutcome:
    """What the latest version of the home, read after `member`, says of a pending version. is_over:
    whether the home records this attempt as aborted, or this job as aborted or committed, runs
    included. A job commits once: if not with this member, then never with it. [MT6]"""
    assert member.pending is not None
    attempt, known = attempt_of(member.pending), home.joint.get(member.table_id)
    if known is not None and known.version >= member.version:
        if known.version > member.version:
            return "newer"
        return "committed" if known.attempt == attempt else "diverged"
    job = member.pending.job
    if parse_job_id(job).birth < home.fence or is_over(attempt) or is_over(job):
        return "aborted"
    return "undecided"


def state_before(member: Snapshot, base: Snapshot) -> Snapshot:
    """The state to build the next version on above a member that was aborted: that of its `base`,
    with the member's version void, and its times, so that the chain's never go back. [MT5] [CM14]
    [CM27]"""
    assert member.pending is not None and member.pending.base == base.version
    return msgspec.structs.replace(
        base,
        format_version=FORMAT_VERSION,
        pending=None,
        version=member.version,
        committed_at=member.committed_at,
        disputed_times=member.disputed_times,
        void=(*member.void, member.version),
    )


def last_state(snapshot: Snapshot) -> int:
    """The version whose state this one has: below the void ones that it ends with. [MT5]"""
    version = snapshot.version
    for void in reversed(snapshot.void):
        if void != version:
            break
        version -= 1
    return version


def is_part(snapshot: Snapshot, before: Snapshot) -> bool:
    """Whether a version is a member or a decision. before: the version below. [MT3] [MT4]"""
    return snapshot.pending is not None or snapshot.joint != before.joint


def share_of(snapshot: Snapshot) -> Share | None:
    """The joint commit that a version says to be part of; None: of none. [MT3] [MT4]"""
    if snapshot.pending is not None:
        return Share(home=snapshot.pending.home, attempt=attempt_of(snapshot.pending))
    decided = (_decided_attempt(snapshot, each.job) for each in snapshot.commits)
    attempt = next(filter(None, decided), None)
    if attempt is None:
        return None
    ordered = sorted(snapshot.joint.values(), key=lambda record: record.root)
    members = {each.root: each.version for each in ordered if each.attempt == attempt}
    return Share(home=None, attempt=attempt, members=members)


def _decided_attempt(snapshot: Snapshot, job: str) -> str | None:
    """The attempt that a job of this version decided: `joint` keeps those of earlier versions."""
    prefix = job.rpartition("-")[0]
    known = {each.attempt for each in snapshot.joint.values()}
    if not any(each.rpartition("-")[0] == prefix for each in known):
        return None  # of no job with this base version
    tried = (attempt_id(job, number) for number in range(1, _MOST_ATTEMPTS + 1))
    return next((each for each in tried if each in known), None)


def as_member(made: Snapshot, *, home: str, job: str, attempt: int, base: int) -> Snapshot:
    """The next version as a member. base: the `last_state` that the change was applied to. [MT3]"""
    home_id = parse_job_id(job).table_id
    pending = Pending(home=home, table_id=home_id, job=job, attempt=attempt, base=base)
    homes = {**made.homes, home_id: HomeRecord(version=made.version, root=home)}
    return msgspec.structs.replace(
        made, format_version=PENDING_FORMAT_VERSION, pending=pending, homes=homes
    )


def as_decision(made: Snapshot, members: dict[str, JointRecord]) -> Snapshot:
    """The next version of the home as the decision: it commits these members. [MT4]"""
    return msgspec.structs.replace(made, joint={**made.joint, **members})


# --- The order of the tables ---


# A table that takes part, in the order in which tables decide: its rank, and its id. [MT2]
Participant: TypeAlias = tuple[int, str]


def in_order(participants: Iterable[Participant]) -> list[Participant]:
    """The tables of a joint commit, its home first; ValueError where they cannot form one. The
    order follows from the tables alone: so no two coordinators that died can block each other's
    tables. [MT2]"""
    ordered = sorted(participants)
    ids = [table_id for _, table_id in ordered]
    if not 2 <= len(ids) <= MOST_TABLES:
        raise ValueError(f"a joint commit has 2 to {MOST_TABLES} tables, not {len(ids)}")
    for table_id in ids:
        if ids.count(table_id) > 1:
            raise ValueError(f"table {table_id} takes part twice")
    return ordered


# --- Versions that belong together ---


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose version does not fit the others. home: the one that decided; version: the
    member's; move: "up": to be read at `version`, which the home has decided; "down": below it, at
    its base, since the home was read before that was decided."""

    table_id: str
    home: str
    version: int
    move: Literal["up", "down"]


def find_mismatch(chosen: Mapping[str, Snapshot]) -> Mismatch | None:
    """The first table, in the order of ids, whose version does not fit; None: the versions are
    consistent. chosen: id of a table -> the version that is read of it, homes included. [MT12]"""
    pairs = [(home, table_id) for home in sorted(chosen) for table_id in sorted(chosen)]
    for home, table_id in pairs:
        if (decided := _decided(chosen, home, table_id)) > chosen[table_id].version:
            return Mismatch(table_id=table_id, home=home, version=decided, move="up")
    for home, table_id in pairs:
        record = chosen[table_id].homes.get(home)
        if record is not None and record.version > _decided(chosen, home, table_id):
            return Mismatch(table_id=table_id, home=home, version=record.version, move="down")
    return None


def lowest_allowed(chosen: Mapping[str, Snapshot], table_id: str) -> int:
    """The lowest version at which a table fits what its homes, as they are read, have decided."""
    return max((_decided(chosen, home, table_id) for home in chosen), default=0)


def partners_since(head: Snapshot, target: Snapshot) -> dict[str, str]:
    """The tables with which this one took part in a joint commit after `target`, which has an
    earlier state: id -> root. Of a member only its home, which knows the others. [MT14]"""
    found = {each: now.root for each, now in head.joint.items() if target.joint.get(each) != now}
    homes = head.homes.items()
    return found | {each: now.root for each, now in homes if target.homes.get(each) != now}


def _decided(chosen: Mapping[str, Snapshot], home: str, table_id: str) -> int:
    """The last member of a table that a home, as it is read, has committed; 0: none."""
    record = chosen[home].joint.get(table_id)
    return 0 if record is None else record.version

"""What became of a member of a joint commit, and the state that follows from it. [MT5] [MT6]

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from ..format.object_names import attempt_id, parse_job_id
from ..format.snapshot import (
    FORMAT_VERSION,
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
    """What the latest version of the home says of a pending version. [MT6]

    home: read after `member`; it may be pending itself, since no member changes what this reads.
    is_over: whether the home records this attempt as aborted, or this job as aborted or committed,
    runs included; it is not asked where the member is committed. A job commits once: if not with
    this member, then never with it.
    """
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
    and the member's version is void. [MT5]

    Times come from the member, so that those of the chain never go back, and what its writer saw of
    the clocks stays known. [CM14] [CM27]
    """
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
    """Whether a version is part of a joint commit: a member or a decision. before: the version
    below it. [MT3] [MT4]"""
    return snapshot.pending is not None or snapshot.joint != before.joint


def share_of(snapshot: Snapshot) -> Share | None:
    """The joint commit that a version is part of, by what it says itself; None: of none. [MT3]
    [MT4]"""
    if snapshot.pending is not None:
        return Share(home=snapshot.pending.home, attempt=attempt_of(snapshot.pending))
    attempt = next(
        filter(None, (_decided_attempt(snapshot, each.job) for each in snapshot.commits)), None
    )
    if attempt is None:
        return None
    members = {
        record.root: record.version
        for record in sorted(snapshot.joint.values(), key=lambda record: record.root)
        if record.attempt == attempt
    }
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
    """The next version as a member of a joint commit. home: the root that decides; job: the job
    there; base: the `last_state` of what the change was applied to. [MT3]"""
    home_id = parse_job_id(job).table_id
    pending = Pending(home=home, table_id=home_id, job=job, attempt=attempt, base=base)
    homes = {**made.homes, home_id: HomeRecord(version=made.version, root=home)}
    return msgspec.structs.replace(
        made, format_version=PENDING_FORMAT_VERSION, pending=pending, homes=homes
    )


def as_decision(made: Snapshot, members: dict[str, JointRecord]) -> Snapshot:
    """The next version of the home as the decision: it commits these members. [MT4]"""
    return msgspec.structs.replace(made, joint={**made.joint, **members})

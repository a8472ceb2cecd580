"""The object of a prepared job: all that its commit needs, in any process. [AB3]"""

from __future__ import annotations

import msgspec

from ..format import codec, object_names
from ..format.change import Prepared, Write
from ..format.object_names import attempt_id
from ..format.snapshot import FORMAT_VERSION, JointRecord, KeyRecord, Snapshot
from ..log.manifests import create_own
from ..log.table_context import TableContext
from ..log.time_travel import find_job
from ..log.version_chain import Head, newest_above
from ..protocol.joint_outcome import as_decision, as_member, attempt_of, last_state
from ..runtime.outcome import fenced_error
from .create_version import is_fenced
from .spilling import Spiller

# What one table's commit does as a part of a joint commit.


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The commit makes a version that is pending until the home decides. home: its root; job: the
    job there; attempt: the attempt's number; is_recoverable: other runs make the same attempts, and
    may have written other rows. [MT3] [AB6]"""

    home: str
    job: str
    attempt: int
    is_recoverable: bool = False

    @property
    def id(self) -> str:
        """The id of the attempt. [MT9]"""
        return attempt_id(self.job, self.attempt)

    def made(self, head: Snapshot, snapshot: Snapshot) -> Snapshot:
        """The next version after `head`, as this member."""
        return as_member(
            snapshot, home=self.home, job=self.job, attempt=self.attempt, base=last_state(head)
        )

    def is_placed(self, newest: Snapshot) -> bool:
        """Whether this object is this very member already, by any process. [MT3]"""
        return self._is_of(newest) and not self.is_recoverable

    def is_over(self, newest: Snapshot, settled: Snapshot) -> bool:
        """Whether this object was a member of this attempt, and was aborted with it. settled: a
        state above it. [MT9]"""
        return self._is_of(newest) and newest.version in settled.void

    def is_behind(self, newest: Snapshot) -> bool:
        """Whether this object is a member of a later attempt of the same jobs, which begins only
        once this one was aborted. [MT9] [MT11]"""
        pending = newest.pending
        return pending is not None and pending.job == self.job and pending.attempt > self.attempt

    def _is_of(self, newest: Snapshot) -> bool:
        return newest.pending is not None and attempt_of(newest.pending) == self.id


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The commit decides for these members. attempt: its id; members: table id -> the member that
    was placed. [MT4]"""

    attempt: str
    members: dict[str, JointRecord]

    def made(self, head: Snapshot, snapshot: Snapshot) -> Snapshot:
        """The next version of the home, as this decision."""
        return as_decision(snapshot, self.members)

    def is_over(self, ctx: TableContext, head: Snapshot) -> bool:
        """Whether the home records the attempt as aborted: it must not be decided. [MT4]"""
        return find_job(ctx, head, self.attempt)[0] == "given_up"


class Settlement(msgspec.Struct, frozen=True):
    """The commit follows a member whose home decides no more: what became of it is decided here.
    home: the id of that table. [MT10]"""

    home: str

    def made(self, head: Snapshot, snapshot: Snapshot) -> Snapshot:
        """The next version, which no reader compares with that home."""
        homes = {each: record for each, record in snapshot.homes.items() if each != self.home}
        return msgspec.structs.replace(snapshot, homes=homes)


Part = Member | Decision | Settlement


def seal(
    ctx: TableContext,
    head: Head,
    change: Write,
    done: KeyRecord | None,
    *,
    held: bool = False,
) -> bytes:
    """All that the change's commit needs, as the one object that `put_prepared` makes durable.
    JobFencedError where it cannot commit any more. [AB3] [CM2]

    head: the version at which the job began, or a later one; held: `recover` leaves it
    alone [CK5]. A list, and one request for every
    65,536 files of more than some hundred.
    """
    began_us = ctx.env.now_us()
    newest = newest_above(ctx.store, head.version, head)
    if newest is not None and is_fenced(newest.snapshot, change):
        raise fenced_error(ctx.store.url, change.job)
    signed = ctx.signed(change, head.snapshot.properties)
    staged = Spiller(ctx, change.job).stage(signed)
    summary = msgspec.structs.replace(
        staged.summary, prepare_s=max(0, ctx.env.now_us() - began_us) / 1e6
    )
    staged = msgspec.structs.replace(staged, summary=summary)
    prepared = Prepared(
        format_version=FORMAT_VERSION,
        change=staged,
        done=done,
        held=held,
        prepared_at=ctx.env.now_us(),
        writer=ctx.writer,
    )
    return codec.encode_prepared(prepared)


def put_prepared(ctx: TableContext, job: str, sealed: bytes) -> None:
    """The job is durable, and any process can commit it or abort it; the same bytes may be put
    again. One request. [AB3]"""
    create_own(ctx.store, object_names.prepared_name(job), sealed, ctx.env)


def read_prepared(ctx: TableContext, job: str) -> Prepared | None:
    """The prepared job; None where there is none, or it has been collected. One request. [AB3]"""
    name = object_names.prepared_name(job)
    try:
        data = ctx.store.get(name, 0, codec.MAX_OBJECT_BYTES + 1)
    except FileNotFoundError:
        return None
    return codec.decode_prepared(data, name=name)

"""Two phases: a job made durable in one object, which any process can then commit or abort. [AB3]
[AB4]

Not here: how a job gathers its change (engine.job.job), the commit loop
(engine.commit.commit_loop).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from ...core.commit.change import Prepared, Write
from ...core.commit.conflict import FINAL
from ...core.format import codec
from ...core.table import object_names
from ...core.table.snapshot import FORMAT_VERSION, KeyRecord, Snapshot
from ...core.table.watermark import Advance, in_order_of_advances, predecessors
from ...errors import (
    CommitConflictError,
    ManifestCommitError,
    TableNotFoundError,
    UsageError,
    WatermarkGapError,
)
from ...store import ObjectInfo
from ...terminal.notebook import Shown, line
from ..commit.commit_loop import commit, measured, record_abort
from ..commit.group_commit import Committers, read_intent
from ..commit.settled import fenced_outcome, found_outcome
from ..commit.spilling import Spiller
from ..metadata.job_and_key_lookup import find_job, find_job_at
from ..metadata.manifests import create_own
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head
from ..runtime.outcome import JobResult, Outcome, committed_or_raise
from .commit_order import check_turn
from .task_recovery import is_recoverable

State = Literal["prepared", "published", "running", "committed", "aborted", "fenced"]


class JobInfo(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """A job that has left objects for others.

    Attributes:
        job: the job's id.
        state: "prepared": any process can commit or abort it; "published": as well, and other
            writers commit it for its process, which runs or has died; "running": it is not prepared
            yet, or its process has died; "fenced": it began so long ago that it cannot commit any
            more; "committed"; "aborted".
        version: the version that holds it, where it is committed; None: elsewhere.
        since: when the oldest of its objects was written, by the store's clock, in Unix seconds.
        size_bytes: the size of all its objects.

    Spec: AB3.
    """

    job: str
    state: State
    version: int | None = None
    since: float
    size_bytes: int

    def __repr__(self) -> str:
        names = (
            "job",
            "state",
            "version",
            "size_bytes",
            "since",
        )  # what is typed again comes first
        return line("JobInfo", [(name, getattr(self, name)) for name in names])


def seal(session: TableContext, change: Write, done: KeyRecord | None) -> bytes:
    """All that the change's commit needs, as the one object that `put_prepared` makes durable.
    [AB3]

    No request for up to some hundred files, one for every 65,536 of more.
    """
    began_us = session.env.now_us()
    staged = Spiller(session, change.job).stage(change)
    summary = msgspec.structs.replace(
        staged.summary, prepare_s=max(0, session.env.now_us() - began_us) / 1e6
    )
    staged = msgspec.structs.replace(staged, summary=summary)
    prepared = Prepared(
        format_version=FORMAT_VERSION,
        change=staged,
        done=done,
        prepared_at=session.env.now_us(),
        writer=session.writer,
    )
    return codec.encode_prepared(prepared)


def put_prepared(session: TableContext, job: str, sealed: bytes) -> None:
    """The job is durable, and any process can commit it or abort it; the same bytes may be put
    again. One request. [AB3]"""
    create_own(session.store, object_names.prepared_name(job), sealed, session.env)


def commit_prepared(session: TableContext, job: str) -> Outcome:
    """Commit a prepared job, from any process, any number of times, at the same time as others do
    or abort it. [AB3] [AB4]

    A conflict leaves it prepared: it may be tried again, when a gap has closed, or aborted. A job
    that has published its change, such as one whose outcome is unknown to its process,
    is committed or aborted for good. [CM21]
    """
    meter = session.meter(job, phase="second")
    head = _open(session, job)
    if (settled := _settled(session, head, job)) is not None:
        return measured(settled, meter)
    prepared = read_prepared(session, job)
    if prepared is None:
        published = read_intent(session.store, job)
        if published is None:
            return measured(_missing(session, job), meter)
        meter.learn(published.change.operation, published.change.summary)
        return commit(
            session,
            head,
            published.change,
            committers=Committers.ANY_WRITER,
            meter=meter,
            is_signed=True,
        )
    if prepared.done is not None:
        return measured(found_outcome(session, head, prepared.change), meter)
    meter.learn(prepared.change.operation, prepared.change.summary)
    return commit(
        session,
        head,
        prepared.change,
        committers=Committers.ANY_PROCESS,
        meter=meter,
        is_signed=True,
    )


def give_up(session: TableContext, job: str) -> Outcome:
    """Commit that a prepared, published or recoverable job never commits, or learn that it has.
    Nothing is deleted. [AB1] [AB4] [CM21]

    The outcome is of the job: aborted, or committed at a version; fenced, where it never committed
    and cannot any more.
    """
    head = _open(session, job)
    if (settled := _settled(session, head, job)) is not None:
        return settled
    if object_names.parse_job_id(job).birth < head.snapshot.fence:
        return fenced_outcome(session, head, job)
    if (
        read_prepared(session, job) is None
        and not is_recoverable(session, job)
        and not is_published(session, job)
    ):
        return _missing(session, job)
    return record_abort(session, job)


def settle_prepared(session: TableContext, *, abort: bool = False) -> Iterator[JobResult]:
    """Commit every job that is prepared and undecided, oldest birth first, or abort each; one
    that fails holds up no other. [AB3] [AB4]

    For a coordinator that comes back after a crash. Of each source the lower range is committed
    first, and none becomes the source's first while an earlier one of them is uncommitted [WM7].
    What cannot be decided now stays prepared; what waits for another of them is tried again after
    it. One whose key another job has committed is aborted: if a rewind drops the key, this is not
    what is to be done again. So is one whose conflict no later commit takes away; its result has
    the conflict, too.
    """
    found = [each.job for each in list_jobs(session) if each.state == "prepared"]
    advances: dict[str, tuple[Advance, ...]] = {}
    unread = 0
    for job in found:
        try:
            advances[job] = () if abort else _advances_of(session, job)
        except ManifestCommitError as error:  # its commit would not know its place
            unread += 1
            yield JobResult(url=session.store.url, job_id=job, error=error)
    found = list(advances)
    before = predecessors(list(advances.values()))
    earlier = {
        job: [found[index] for index in indices] for job, indices in zip(found, before, strict=True)
    }
    waiting = [found[index] for index in in_order_of_advances(before)]
    failed: set[str] = set()
    while waiting:
        gaps = []
        for job in waiting:
            lower = [advances[each] for each in earlier[job] if each in failed]
            lower += [advances[job]] if unread else []  # it may be the lower range of any source
            result = _settle(session, job, abort=abort, turn=(advances[job], lower))
            (failed.discard if result.error is None else failed.add)(job)
            if isinstance(result.error, WatermarkGapError):
                gaps.append(result)
            else:
                yield result
        if len(gaps) == len(waiting):
            yield from gaps
            return
        waiting = [result.job_id for result in gaps]


def _advances_of(session: TableContext, job: str) -> tuple[Advance, ...]:
    """What a prepared job advances; nothing where it holds no work, or has been collected."""
    prepared = read_prepared(session, job)
    return () if prepared is None or prepared.done is not None else prepared.change.advances


def _settle(
    session: TableContext,
    job: str,
    *,
    abort: bool,
    turn: tuple[Sequence[Advance], Sequence[Sequence[Advance]]],
) -> JobResult:
    result = JobResult(url=session.store.url, job_id=job)
    try:
        check_turn(session, *turn)
        outcome = give_up(session, job) if abort else commit_prepared(session, job)
        decided = (
            outcome
            if abort and outcome.kind in ("aborted", "fenced")
            else committed_or_raise(outcome, session.store.url)
        )
        if outcome.kind == "already_committed":
            give_up(session, job)
        return msgspec.structs.replace(result, outcome=decided)
    except ManifestCommitError as error:
        if isinstance(error, CommitConflictError) and error.rule in FINAL:
            return _end(session, result, error, turn[0])
        return msgspec.structs.replace(result, error=error)


def _end(
    session: TableContext,
    result: JobResult,
    error: CommitConflictError,
    advances: Sequence[Advance],
) -> JobResult:
    """Abort a prepared job that can never commit: waiting, it would hold the fence, and every call
    would report it again. [AB4] [AB5]

    But for one that advances a source which the table does not know: no later range may become the
    first while it is there. [WM7]
    """

    def failed(more: str) -> CommitConflictError:
        return CommitConflictError(
            f"{error} {more}", rule=error.rule, mine=error.mine, winner=error.winner
        )

    job, snapshot = result.job_id, session.open().snapshot
    if not {each.source for each in advances} <= snapshot.origins.keys():
        left = (
            "It can never commit and stays prepared, since later ranges of its source wait "
            "for this job. Run its work "
            f"again in a new job, and abort this one: abort({result.url!r}, {job!r}), or "
            "`manifestcommit abort`."
        )
        return msgspec.structs.replace(result, error=failed(left))
    try:
        outcome = give_up(session, job)
    except ManifestCommitError as failure:
        return msgspec.structs.replace(
            result, error=failed(f"It can never commit, and could not be aborted: {failure}")
        )
    if outcome.committed:
        return msgspec.structs.replace(result, outcome=outcome)
    if outcome.kind not in ("aborted", "fenced"):
        return msgspec.structs.replace(
            result, error=failed("It can never commit; the next recover aborts it.")
        )
    return msgspec.structs.replace(
        result,
        outcome=outcome,
        error=failed("It can never commit and was aborted: do its work in a new job."),
    )


def read_prepared(session: TableContext, job: str) -> Prepared | None:
    """The prepared job; None where there is none, or it has been collected. One request. [AB3]"""
    name = object_names.prepared_name(job)
    try:
        data = session.store.get(name, 0, codec.MAX_OBJECT_BYTES + 1)
    except FileNotFoundError:
        return None
    return codec.decode_prepared(data, name=name)


def is_published(session: TableContext, job: str) -> bool:
    """Whether the job's intent is there, so that others may commit it. One list. [CM19]"""
    return any(
        info.name == object_names.intent_name(job)
        for info in session.store.list(object_names.intent_name(job))
    )


def list_jobs(session: TableContext) -> Iterator[JobInfo]:
    """Every job that has left objects for others, and what became of it, oldest birth first. Two
    lists and the head. [AB3] [CM19]"""
    head = session.open()
    found: dict[str, list[ObjectInfo]] = {}
    for info in session.store.list(object_names.JOBS):
        found.setdefault(object_names.job_of_handed(info.name), []).append(info)
    for info in session.store.list(object_names.INTENTS):
        found.setdefault(info.name.removeprefix(object_names.INTENTS), []).append(info)
    known = []
    for job, objects in found.items():
        try:
            name = object_names.parse_job_id(job)
        except ValueError:
            continue  # not one of ours
        if name.table_id == head.snapshot.table_id:
            known.append((name.birth, job, objects))
    for birth, job, objects in sorted(known, key=lambda each: (each[0], each[1])):
        state, version = _state(session, head.snapshot, job, birth, {info.name for info in objects})
        yield JobInfo(
            job=job,
            state=state,
            version=version,
            since=min(info.modified for info in objects),
            size_bytes=sum(info.size_bytes for info in objects),
        )


def _state(
    session: TableContext, snapshot: Snapshot, job: str, birth: int, names: set[str]
) -> tuple[State, int | None]:
    state, version = find_job(session, snapshot, job)
    if state is not None:
        return ("aborted" if state == "given_up" else state), version
    if birth < snapshot.fence:
        return "fenced", None
    if object_names.prepared_name(job) in names:
        return "prepared", None
    return ("published" if object_names.intent_name(job) in names else "running"), None


def _open(session: TableContext, job: str) -> Head:
    try:
        name = object_names.parse_job_id(job)
    except ValueError as error:
        raise UsageError(str(error)) from None
    head = session.open()
    if name.table_id != head.snapshot.table_id:
        raise TableNotFoundError(
            f"job {job} belongs to another table than the one at {session.store.url}; "
            "nothing was done"
        )
    return head


def _settled(session: TableContext, head: Head, job: str) -> Outcome | None:
    """What the head records of the job: it needs no object any more, which gc may have taken."""
    _, (state, version) = find_job_at(session, head, job)
    if state is None:
        return None
    return Outcome(
        kind="committed" if state == "committed" else "aborted", job_id=job, version=version
    )


def _missing(session: TableContext, job: str) -> Outcome:
    """Neither prepared nor published: it may have been settled, and its object removed, since
    the head was read. [AB4] [CM22]"""
    head = session.open()
    if (settled := _settled(session, head, job)) is not None:
        return settled
    if object_names.parse_job_id(job).birth < head.snapshot.fence:
        return fenced_outcome(session, head, job)
    raise UsageError(
        f"{session.store.url} holds no prepared job {job}; nothing was done. "
        "Another process can only commit or abort a prepared job. A job that was not prepared "
        "commits when its own `with` block ends, or never."
    )

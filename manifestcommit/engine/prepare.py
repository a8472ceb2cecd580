"""Two phases: a job made durable in one object, which any process can then commit or give up. [AB3] [AB4]

Not here: how a job gathers its change (engine.job), the commit loop (engine.commit).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from ..core import format
from ..core.change import Change, Prepared
from ..core.snapshot import FORMAT_VERSION, KeyRecord, Snapshot
from ..errors import ManifestCommitError, TableNotFoundError, UsageError, WatermarkGapError
from ..store import ObjectInfo
from .commit import commit, enter_given_up, fenced_outcome, key_outcome, measured
from .head import Head
from .intents import read_intent
from .lookup import find_job, find_job_at, find_key_at
from .manifests import create_own
from .outcome import JobResult, Outcome, committed_or_raise
from .recovery import is_recoverable
from .session import Session
from .spilling import Spiller

State = Literal["prepared", "published", "running", "committed", "given_up", "fenced"]


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has left objects for others. version: where it committed; since: when the oldest of them was written, by the store's
    clock, Unix seconds; size_bytes: of all of them.

    prepared: it can be committed or given up from anywhere; published: likewise, and other writers commit it for its process, which
    runs or has died; running: it has not been prepared yet, or its process has died; fenced: it began so long ago that it can not commit
    any more.
    """

    job: str
    state: State
    version: int | None = None
    since: float
    size_bytes: int


def seal(session: Session, change: Change, done: KeyRecord | None) -> bytes:
    """All that the change's commit needs, as the one object that `put_prepared` makes durable. [AB3]

    No request for up to some hundred files, one for every 65,536 of more.
    """
    began_us = session.env.now_us()
    staged = Spiller(session, change.job).stage(change)
    summary = msgspec.structs.replace(staged.summary, prepare_s=max(0, session.env.now_us() - began_us) / 1e6)
    staged = msgspec.structs.replace(staged, summary=summary)
    prepared = Prepared(format_version=FORMAT_VERSION, change=staged, done=done, prepared_at=session.env.now_us(), writer=session.writer)
    return format.encode_prepared(prepared)


def put_prepared(session: Session, job: str, sealed: bytes) -> None:
    """The job is durable, and any process can commit it or give it up; the same bytes may be put again. One request. [AB3]"""
    create_own(session.store, format.prepared_name(job), sealed, session.env)


def commit_prepared(session: Session, job: str) -> Outcome:
    """Commit a prepared job, from any process, any number of times, at the same time as others do or give it up. [AB3] [AB4]

    A conflict leaves it prepared: it may be tried again, when a gap has closed, or given up. A job that has published its change, such as
    one whose process was told that its outcome is unknown, is committed or given up for good. [CM21]
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
        return commit(session, head, published.change, shared=True, published=True, meter=meter)
    if prepared.done is not None:
        # It holds no work. Before the fence has reached its record a key is not forgotten but dropped: then that work is to be done anew.
        head, record = find_key_at(session, head, str(prepared.change.key))
        kept = prepared.done.version < head.snapshot.fence or record is not None
        return measured(key_outcome(prepared.change, prepared.done) if kept else Outcome(kind="aborted", job_id=job), meter)
    meter.learn(prepared.change.operation, prepared.change.summary)
    return commit(session, head, prepared.change, shared=True, meter=meter)


def give_up(session: Session, job: str) -> Outcome:
    """Commit that a prepared, published or recoverable job never commits, or learn that it has. Nothing is deleted. [AB1] [AB4] [CM21]

    The outcome is of the job: aborted, or committed at a version; fenced, where it never committed and cannot any more.
    """
    head = _open(session, job)
    if (settled := _settled(session, head, job)) is not None:
        return settled
    if format.parse_job_id(job).birth < head.snapshot.fence:
        return fenced_outcome(session, head, job)
    if read_prepared(session, job) is None and not is_recoverable(session, job) and not is_published(session, job):
        return _missing(session, job)
    return enter_given_up(session, job)


def settle_prepared(session: Session, *, abort: bool = False) -> Iterator[JobResult]:
    """Commit every job that is prepared and undecided, oldest birth first, or give each up; one that fails holds up no other. [AB3] [AB4]

    For a coordinator that comes back after a crash. What cannot be decided now stays prepared; what waits for another of them is tried
    again after it. One whose key another job has committed is given up: if a rewind drops the key, this is not what is to be done again.
    """
    waiting = [each.job for each in list_jobs(session) if each.state == "prepared"]
    while waiting:
        gaps = []
        for job in waiting:
            result = _settle(session, job, abort=abort)
            if isinstance(result.error, WatermarkGapError):
                gaps.append(result)
            else:
                yield result
        if len(gaps) == len(waiting):
            yield from gaps
            return
        waiting = [result.job_id for result in gaps]


def _settle(session: Session, job: str, *, abort: bool) -> JobResult:
    result = JobResult(url=session.store.url, job_id=job)
    try:
        outcome = give_up(session, job) if abort else commit_prepared(session, job)
        decided = outcome if abort and outcome.kind in ("aborted", "fenced") else committed_or_raise(outcome, session.store.url)
        if outcome.kind == "already_committed":
            give_up(session, job)
        return msgspec.structs.replace(result, outcome=decided)
    except ManifestCommitError as error:
        return msgspec.structs.replace(result, error=error)


def read_prepared(session: Session, job: str) -> Prepared | None:
    """The prepared job; None where there is none, or it has been collected. One request. [AB3]"""
    name = format.prepared_name(job)
    try:
        data = session.store.get(name, 0, format.MAX_OBJECT_BYTES + 1)
    except FileNotFoundError:
        return None
    return format.decode_prepared(data, name=name)


def is_published(session: Session, job: str) -> bool:
    """Whether the job's intent is there, so that others may commit it. One list. [CM19]"""
    return any(info.name == format.intent_name(job) for info in session.store.list(format.intent_name(job)))


def list_jobs(session: Session) -> Iterator[JobInfo]:
    """Every job that has left objects for others, and what became of it, oldest birth first. Two lists and the head. [AB3] [CM19]"""
    head = session.open()
    found: dict[str, list[ObjectInfo]] = {}
    for info in session.store.list(format.JOBS):
        found.setdefault(format.job_of_handed(info.name), []).append(info)
    for info in session.store.list(format.INTENTS):
        found.setdefault(info.name.removeprefix(format.INTENTS), []).append(info)
    known = []
    for job, objects in found.items():
        try:
            name = format.parse_job_id(job)
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


def _state(session: Session, snapshot: Snapshot, job: str, birth: int, names: set[str]) -> tuple[State, int | None]:
    state, version = find_job(session, snapshot, job)
    if state is not None:
        return state, version
    if birth < snapshot.fence:
        return "fenced", None
    if format.prepared_name(job) in names:
        return "prepared", None
    return ("published" if format.intent_name(job) in names else "running"), None


def _open(session: Session, job: str) -> Head:
    try:
        name = format.parse_job_id(job)
    except ValueError as error:
        raise UsageError(str(error)) from None
    head = session.open()
    if name.table_id != head.snapshot.table_id:
        raise TableNotFoundError(f"job {job} belongs to another table than the one at {session.store.url}; nothing was done")
    return head


def _settled(session: Session, head: Head, job: str) -> Outcome | None:
    """What the head records of the job: it needs no object any more, which gc may have taken."""
    _, (state, version) = find_job_at(session, head, job)
    if state is None:
        return None
    return Outcome(kind="committed" if state == "committed" else "aborted", job_id=job, version=version)


def _missing(session: Session, job: str) -> Outcome:
    """Neither prepared nor published: it may have been settled, and its object taken away, since the head was read. [AB4] [CM22]"""
    head = session.open()
    if (settled := _settled(session, head, job)) is not None:
        return settled
    if format.parse_job_id(job).birth < head.snapshot.fence:
        return fenced_outcome(session, head, job)
    raise UsageError(
        f"{session.store.url} holds no prepared job {job}; nothing was done. Only what `prepare` has made durable can be committed or "
        "given up by another process. A job that was not prepared commits when its own block is left, or never."
    )

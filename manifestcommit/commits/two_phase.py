"""Two phases: a job made durable in one object, which any process can then commit or abort. [AB3]
[AB4]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..errors import (
    CommitConflictError,
    ManifestCommitError,
    TableNotFoundError,
    UsageError,
    WatermarkGapError,
)
from ..format import object_names
from ..format.snapshot import Snapshot
from ..format.watermark import Advance, in_order_of_advances, predecessors
from ..log.table_context import TableContext
from ..log.time_travel import find_job_at
from ..log.version_chain import Head
from ..protocol.conflict import FINAL
from ..runtime.outcome import JobResult, Outcome, committed_or_raise
from .commit_loop import commit, measured, record_abort
from .create_version import fenced_outcome, found_outcome
from .group_commit import Committers, read_intent
from .joint_two_phase import abort_prepared_together, commit_prepared_together, partners
from .prepared_job import read_prepared
from .resolve import find_jobs, is_published
from .task_recovery import is_recoverable

# Several jobs that advance the same sources: a range never becomes a source's first one while an
# earlier range is uncommitted.


def check_turn(
    ctx: TableContext, advances: Sequence[Advance], earlier: Iterable[Sequence[Advance]]
) -> None:
    """Raise WatermarkGapError where the table does not know a source that one of `earlier`, which
    did not commit, advances first. [WM7]

    A source that the table knows needs no check here: its watermark decides. One open of the table
    where `earlier` is not empty.
    """
    sources = {each.source for other in earlier for each in other}
    if not any(each.source in sources for each in advances):
        return
    head = ctx.open().snapshot
    known = head.origins.keys() | head.watermarks.keys()
    for each in advances:
        if each.source in sources and each.source not in known:
            raise WatermarkGapError(
                f"{ctx.store.url}: the table does not know source {each.source!r} yet, "
                "and the job that advances it before "
                f"{each.start!r} has not committed: committing this job now would lose that "
                "range. Nothing of this job was committed. "
                "Commit the other job first, or declare where the source begins: "
                "create_table(…, sources={…}).",
                source=each.source,
                have=None,
                want=each.start,
            )


def check_turn_beside(ctx: TableContext, job: str) -> None:
    """As `check_turn`, for a job that is prepared with others: in each of their tables, as to the
    jobs that are prepared there. Two lists and a get for each of these more, where a source is not
    known. [WM7] [MT11]"""
    prepared = read_prepared(ctx, job)
    if prepared is None:
        return
    for at, head, other in partners(ctx, prepared):
        mine = other.change.advances
        if not begins_a_source(head.snapshot, mine):
            continue
        theirs = [
            each.advances
            for each in find_jobs(at)
            if each.is_waiting and each.info.job != other.change.job
        ]
        check_turn(at, mine, [theirs[index - 1] for index in predecessors([mine, *theirs])[0]])


def begins_a_source(snapshot: Snapshot, advances: Iterable[Advance]) -> bool:
    """Whether the table does not know a source that these advance: later ranges wait for them.
    [WM7]"""
    return any(each.source not in snapshot.origins for each in advances)


def begins_a_source_beside(ctx: TableContext, job: str) -> bool:
    """As `begins_a_source`, in the other tables of a job that is prepared with others. [AB4]
    [MT11]"""
    prepared = read_prepared(ctx, job)
    return prepared is not None and any(
        begins_a_source(head.snapshot, other.change.advances)
        for _, head, other in partners(ctx, prepared)
    )


def commit_prepared(
    ctx: TableContext,
    job: str,
    *,
    audited: int | None = None,
    checks: Mapping[str, bool] | None = None,
) -> Outcome:
    """Commit a prepared job, from any process, any number of times, at the same time as others do
    or abort it. [AB3] [AB4]

    A conflict leaves it prepared: it may be tried again, when a gap has closed, or aborted. A job
    that has published its change, such as one whose outcome is unknown to its process,
    is committed or aborted for good. [CM21]

    audited: it commits only as long as nobody has changed rows since this version; checks: what was
    checked of it, for its record. [CK6]
    """
    meter = ctx.meter(job, phase="second")
    head = _open(ctx, job)
    if (settled := _settled(ctx, head, job)) is not None:
        return measured(settled, meter)
    prepared = read_prepared(ctx, job)
    if prepared is None:
        published = read_intent(ctx.store, job)
        if published is None:
            return measured(_missing(ctx, job), meter)
        meter.learn(published.change.operation, published.change.summary)
        return commit(
            ctx,
            head,
            published.change,
            committers=Committers.ANY_WRITER,
            meter=meter,
            is_signed=True,
        )
    if prepared.change.together:
        if audited is not None:
            raise UsageError(
                f"{ctx.store.url}: job {job} is committed together with others, and checks "
                "that read the table hold for one table only; nothing was committed. Check its own "
                "rows instead."
            )
        outcome = commit_prepared_together(ctx, head, prepared)
        return outcome if outcome.metrics is not None else measured(outcome, meter)
    if prepared.done is not None:
        return measured(found_outcome(ctx, head, prepared.change), meter)
    summary = msgspec.structs.replace(prepared.change.summary, checks=dict(checks or {}))
    change = msgspec.structs.replace(prepared.change, audited=audited, summary=summary)
    meter.learn(change.operation, change.summary)
    return commit(
        ctx,
        head,
        change,
        committers=Committers.ANY_PROCESS,
        meter=meter,
        is_signed=True,
    )


def give_up(ctx: TableContext, job: str) -> Outcome:
    """Commit that a prepared, published or recoverable job never commits, or learn that it has.
    Nothing is deleted. [AB1] [AB4] [CM21]

    The outcome is of the job: aborted, or committed at a version; fenced, where it never committed
    and cannot any more.
    """
    head = _open(ctx, job)
    if (settled := _settled(ctx, head, job)) is not None:
        return settled
    prepared = read_prepared(ctx, job)
    if prepared is not None and prepared.change.together:
        return abort_prepared_together(ctx, prepared)
    if object_names.parse_job_id(job).birth < head.snapshot.fence:
        return fenced_outcome(ctx, head, job)
    if prepared is None and not is_recoverable(ctx, job) and not is_published(ctx, job):
        return _missing(ctx, job)
    return record_abort(ctx, job)


def settle_prepared(ctx: TableContext, *, abort: bool = False) -> Iterator[JobResult]:
    """Commit every job that is prepared and undecided, oldest birth first, or abort each; one
    that fails holds up no other. [AB3] [AB4]

    For a coordinator that comes back after a crash. Of each source the lower range is committed
    first, and none becomes the source's first while an earlier one of them is uncommitted [WM7].
    What cannot be decided now stays prepared, what is fenced is reported, and what waits for
    another of them is tried again after it. One whose key another job has committed is aborted: if
    a rewind drops the key, this is not what is to be done again. So is one whose conflict no later
    commit takes away; its result has the conflict, too. One that is held is
    left alone, and later ranges of a source wait for it. [CK5]
    """
    waits = [each for each in find_jobs(ctx) if each.is_waiting]
    unread = [each for each in waits if each.error is not None and not abort]
    for each in unread:  # its commit would not know its place
        yield JobResult(url=ctx.store.url, job_id=each.info.job, error=each.error)
    known = {each.info.job: each for each in waits if each.error is None or abort}
    advances = {job: () if abort else each.advances for job, each in known.items()}
    found = list(advances)
    before = predecessors(list(advances.values()))
    earlier = {
        job: [found[index] for index in indices] for job, indices in zip(found, before, strict=True)
    }
    held = {each.info.job for each in waits if each.is_held}  # they are published by their ids
    waiting = [job for index in in_order_of_advances(before) if (job := found[index]) not in held]
    failed = set(held)
    while waiting:
        gaps = []
        for job in waiting:
            lower = [advances[each] for each in earlier[job] if each in failed]
            lower += [advances[job]] if unread else []  # it may be the lower range of any source
            turn = Turn(advances[job], lower, is_joint=bool(known[job].info.together))
            result = _settle(ctx, job, abort=abort, turn=turn)
            (failed.discard if result.error is None else failed.add)(job)
            if isinstance(result.error, WatermarkGapError):
                gaps.append(result)
            else:
                yield result
        if len(gaps) == len(waiting):
            yield from gaps
            return
        waiting = [result.job_id for result in gaps]


class Turn(NamedTuple):
    """When a job may be committed. earlier: what jobs advance that did not commit, and come before
    it; is_joint: it advances sources of other tables, too. [WM7] [MT11]"""

    advances: Sequence[Advance]
    earlier: Sequence[Sequence[Advance]]
    is_joint: bool


def _settle(
    ctx: TableContext,
    job: str,
    *,
    abort: bool,
    turn: Turn,
) -> JobResult:
    result = JobResult(url=ctx.store.url, job_id=job)
    try:
        check_turn(ctx, turn.advances, turn.earlier)
        if turn.is_joint and not abort:
            check_turn_beside(ctx, job)
        outcome = give_up(ctx, job) if abort else commit_prepared(ctx, job)
        decided = (
            outcome
            if abort and outcome.kind in ("aborted", "fenced")
            else committed_or_raise(outcome, ctx.store.url)
        )
        if outcome.kind == "already_committed":
            give_up(ctx, job)
        return msgspec.structs.replace(result, outcome=decided)
    except ManifestCommitError as error:
        if isinstance(error, CommitConflictError) and error.rule in FINAL:
            return _end(ctx, result, error, turn)
        return msgspec.structs.replace(result, error=error)


def _end(
    ctx: TableContext,
    result: JobResult,
    error: CommitConflictError,
    turn: Turn,
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

    job, snapshot = result.job_id, ctx.open().snapshot
    begins = begins_a_source(snapshot, turn.advances)
    if begins or (turn.is_joint and begins_a_source_beside(ctx, job)):
        left = (
            "It can never commit and stays prepared, since later ranges of its source wait "
            "for this job. Run its work "
            f"again in a new job, and abort this one: abort({result.url!r}, {job!r}), or "
            "`manifestcommit abort`."
        )
        return msgspec.structs.replace(result, error=failed(left))
    try:
        outcome = give_up(ctx, job)
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


def _open(ctx: TableContext, job: str) -> Head:
    try:
        name = object_names.parse_job_id(job)
    except ValueError as error:
        raise UsageError(str(error)) from None
    head = ctx.open()
    if name.table_id != head.snapshot.table_id:
        raise TableNotFoundError(
            f"job {job} belongs to another table than the one at {ctx.store.url}; nothing was done"
        )
    return head


def _settled(ctx: TableContext, head: Head, job: str) -> Outcome | None:
    """What the head records of the job: it needs no object any more, which gc may have taken."""
    _, (state, version) = find_job_at(ctx, head, job)
    if state is None:
        return None
    return Outcome(
        kind="committed" if state == "committed" else "aborted", job_id=job, version=version
    )


def _missing(ctx: TableContext, job: str) -> Outcome:
    """Neither prepared nor published: it may have been settled, and its object removed, since
    the head was read. [AB4] [CM22]"""
    head = ctx.open()
    if (settled := _settled(ctx, head, job)) is not None:
        return settled
    if object_names.parse_job_id(job).birth < head.snapshot.fence:
        return fenced_outcome(ctx, head, job)
    raise UsageError(
        f"{ctx.store.url} holds no prepared job {job}; nothing was done. "
        "Another process can only commit or abort a prepared job. A job that was not prepared "
        "commits when its own `with` block ends, or never."
    )

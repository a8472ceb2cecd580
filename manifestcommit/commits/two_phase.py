"""Two phases: a job, or the jobs of several tables, made durable in one object each, which any
process can then commit or abort. [AB3] [AB4] [MT11]
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from ..display import ReprMixin, line
from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    TableNotFoundError,
    UndecidedError,
    UnsupportedFormatError,
    UsageError,
)
from ..format import object_names
from ..format.change import Prepared
from ..format.snapshot import Snapshot, TogetherJob
from ..log.table_context import TableContext, find_job_at
from ..log.version_chain import Head, newest_above, read_object
from ..protocol.conflict import is_readable
from ..protocol.joint_outcome import share_of
from ..runtime.outcome import Meter, Outcome, committed_or_raise
from ..store import ObjectInfo
from ..store.base import store_beside
from .commit_loop import Committers, commit, measured, read_intent, record_abort
from .joint_commit import commit_declared, ordered_parts
from .prepared_job import TablePart, birth_of, done_at, fenced_outcome, found_outcome, read_prepared
from .task_recovery import is_recoverable

# What became of a job, asked from any process at any later time, and the jobs that have left
# objects for others. [CM23]

Decided = Literal["committed", "aborted", "fenced", "forgotten"]
State = Literal["prepared", "published", "running"] | Decided


class JobInfo(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """A job that has left objects for others.

    Attributes:
        job: the job's id.
        state: "prepared": any process can commit or abort it; "published": as well, and other
            writers commit it for its process, which runs or has died; "running": it is not prepared
            yet, or its process has died; "fenced": it began so long ago that it cannot commit any
            more, and never did; "forgotten": as well, and whether it did is not known any more;
            "committed"; "aborted".
        version: the version that holds it, where it is committed, or its work where another job
            has committed its key while it was prepared; None: elsewhere.
        together: the paths of the tables that are committed or aborted with it, this one among
            them, where it was prepared by `Transaction.prepare` and is not decided here; else none.
        since: when the oldest of its objects was written, by the store's clock, in Unix seconds.
        size_bytes: the size of all its objects.

    Spec: AB3.
    """

    job: str
    state: State
    version: int | None = None
    size_bytes: int
    since: float
    together: tuple[str, ...] = ()

    def __repr__(self) -> str:  # what is typed again comes first, however long it is
        return line("JobInfo", msgspec.structs.asdict(self).items())


def is_published(ctx: TableContext, job: str) -> bool:
    """Whether the job's intent is there, so that others may commit it. One list. [CM19]"""
    name = object_names.intent_name(job)
    return any(info.name == name for info in ctx.store.list(name))


def list_jobs(ctx: TableContext, *, is_read: bool = True) -> Iterator[JobInfo]:
    """Every job that has left objects for others, and what became of it, oldest birth first. Two
    lists and the head, and a get for each job that is prepared, or was when it was fenced; three
    requests more where it is prepared together with others, and one for each version since its
    birth where it is fenced. Without is_read, only the head tells of each. [AB3] [CM19] [CM23]
    [MT11]"""
    head = ctx.open()
    found: dict[str, list[ObjectInfo]] = {}
    for info in ctx.store.list(object_names.JOBS):
        found.setdefault(object_names.job_of_handed(info.name), []).append(info)
    for info in ctx.store.list(object_names.INTENTS):
        found.setdefault(info.name.removeprefix(object_names.INTENTS), []).append(info)
    known = [(object_names.parse_job_id(job), job) for job in found if object_names.is_job_id(job)]
    for name, job in sorted(known, key=lambda each: (each[0].birth, each[1])):
        if name.table_id == head.snapshot.table_id:
            yield _info(ctx, head, job, found[job], is_read)


def _info(
    ctx: TableContext, head: Head, job: str, objects: Sequence[ObjectInfo], is_read: bool
) -> JobInfo:
    names = {info.name for info in objects}
    state: State | None
    state, version = ctx.manifests.job(head.snapshot, job)
    prepared, is_prepared = None, object_names.prepared_name(job) in names
    if state is None and birth_of(job) < head.snapshot.fence:
        state = "fenced"
    elif state is None and is_prepared:
        state = "prepared"
    elif state is None:
        state = "published" if object_names.intent_name(job) in names else "running"
    if is_read and state in ("prepared", "fenced"):
        with contextlib.suppress(ManifestCommitError):  # as far as that can be asked
            if is_prepared:
                prepared = read_prepared(ctx, job)
            state, version = decision_of(ctx, head, job, prepared) or (state, version)
    return JobInfo(
        job=job,
        state=state,
        version=version,
        since=min(info.modified for info in objects),
        size_bytes=sum(info.size_bytes for info in objects),
        together=() if prepared is None else _roots(prepared),
    )


def decision_of(
    ctx: TableContext, head: Head, job: str, prepared: Prepared | None
) -> tuple[Decided, int | None] | None:
    """What became of a job that the head does not record: what the home of those that were prepared
    with it says, or the history since its birth where it is fenced, or the version that has its
    work, where it is staged and another one has committed that. None: nobody has decided. [CM23]
    [MT11] [CK5]"""
    home = _home_of(ctx, prepared) if prepared is not None and prepared.change.together else None
    said = None if home is None or prepared is None else _decided_by(ctx, home, prepared)
    if said is not None and said.kind in ("committed", "aborted", "fenced"):
        return said.kind, said.version
    if birth_of(job) < head.snapshot.fence:
        found = fenced_outcome(ctx, head, job)
        if found.kind == "unknown":
            return "forgotten", None
        return ("committed" if found.committed else "fenced"), found.version
    if prepared is None:
        return None
    version = done_at(ctx, head, prepared)
    return None if version is None else ("committed", version)


class Resolution(str):
    """The answer of `resolve` and `abort`: a text that also has a version.

    Attributes:
        version: the version that holds the job, where the text is "committed", or its work where
            another job has committed its key while it was prepared; None: elsewhere.
        together: of a job that is committed or aborted with those of other tables, the paths of
            the tables that are known here, this one among them; none for any other.

    Spec: CM23, MT1.
    """

    version: int | None
    together: tuple[str, ...]

    def __new__(
        cls, status: str, version: int | None = None, together: Iterable[str] = ()
    ) -> Resolution:
        made = super().__new__(cls, status)
        made.version, made.together = version, tuple(together)
        return made


def resolve_job(ctx: TableContext, job_id: str) -> Resolution:
    """What the table knows of a job as of this call. UsageError for an id of no job here. [CM23]"""
    head = ctx.open()
    if object_names.parse_job_id(job_id).table_id != head.snapshot.table_id:
        raise UsageError(f"job {job_id} belongs to another table than the one at {ctx.store.url}")
    if (known := _resolved(ctx, head, job_id)) is not None:
        return known
    # The writer that carried it since the head was read has removed its intent.
    newest = newest_above(ctx.store, head.version, head) or ctx.open()
    return _resolved(ctx, newest, job_id) or Resolution("not_committed")


def _resolved(ctx: TableContext, head: Head, job_id: str) -> Resolution | None:
    """What the head, the history and the objects of a job tell of it; None: nothing."""
    head, (state, version) = find_job_at(ctx, head, job_id)
    if state == "committed":
        assert version is not None
        return Resolution("committed", version, _together(ctx, head, version))
    if state == "aborted":
        return Resolution("aborted")
    top = None if head.is_void else head.top  # with a member that no home has decided [MT8]
    if top is not None and any(each.job == job_id for each in top.snapshot.commits):
        return Resolution("pending", together=_tables(ctx, top.snapshot))
    prepared = read_prepared(ctx, job_id)
    decided = decision_of(ctx, head, job_id, prepared)
    if decided is None and prepared is None and not is_published(ctx, job_id):
        return None
    status, version = decided or ("pending", None)
    return Resolution(status, version, () if prepared is None else _roots(prepared))


def tables_beside(ctx: TableContext, job_id: str) -> tuple[str, ...]:
    """The tables whose jobs were prepared together with this one, its own among them; none where it
    was prepared alone or not at all, or its object cannot be read: what became of it is known
    without. One request. [MT11]"""
    try:
        prepared = read_prepared(ctx, job_id)
    except (CorruptMetadataError, UnsupportedFormatError):
        return ()
    return _roots(prepared) if prepared is not None else ()


def _roots(prepared: Prepared) -> tuple[str, ...]:
    return tuple(each.root for each in prepared.change.together)


def _together(ctx: TableContext, head: Head, version: int) -> list[str]:
    """The tables with which a version was committed, as it says itself. No request where the table
    takes part in no joint commit, or the version is the newest. [MT1]"""
    snapshot = head.snapshot
    if version != head.version:
        if not (snapshot.joint or snapshot.homes) or not is_readable(snapshot, version):
            return []
        found = read_object(ctx.store, version)
        if found is None:
            return []  # gc has passed it
        snapshot = found.snapshot
    return _tables(ctx, snapshot)


def _tables(ctx: TableContext, snapshot: Snapshot) -> list[str]:
    share, own = share_of(snapshot), ctx.store.url
    if share is None:
        return []
    return [own, *share.members] if share.home is None else [share.home, own]


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
    meter = Meter(ctx.tally, job, phase="second")
    head = _open(ctx, job)
    if (settled := _settled(ctx, head, job)) is not None:
        return measured(settled, meter)
    prepared = read_prepared(ctx, job)
    if prepared is None:
        published = read_intent(ctx.store, job)
        if published is None:
            return measured(_missing(ctx, job), meter)
        change, committers = published.change, Committers.ANY_WRITER
    elif prepared.change.together:
        if audited is not None:
            raise UsageError(
                f"{ctx.store.url}: job {job} is committed together with others, and checks "
                "that read the table hold for one table only; nothing was committed. Check its own "
                "rows instead."
            )
        outcome = commit_prepared_together(ctx, head, prepared)
        return outcome if outcome.metrics is not None else measured(outcome, meter)
    elif prepared.done is not None:
        return measured(found_outcome(ctx, head, prepared.change), meter)
    else:
        summary = msgspec.structs.replace(prepared.change.summary, checks=dict(checks or {}))
        change = msgspec.structs.replace(prepared.change, audited=audited, summary=summary)
        committers = Committers.ANY_PROCESS
    meter.learn(change.operation, change.summary)
    return commit(ctx, head, change, committers=committers, meter=meter, is_signed=True)


def give_up(ctx: TableContext, job: str) -> Outcome:
    """Commit that a prepared, published or recoverable job never commits, or learn that it has.
    Nothing is deleted. [AB1] [AB4] [CM21] The outcome is of the job: aborted, or committed at a
    version; fenced, where it never committed and cannot any more."""
    head = _open(ctx, job)
    if (settled := _settled(ctx, head, job)) is not None:
        return settled
    prepared = read_prepared(ctx, job)
    if prepared is not None and prepared.change.together:
        return abort_prepared_together(ctx, prepared)
    if birth_of(job) < head.snapshot.fence:
        return fenced_outcome(ctx, head, job)
    if prepared is None and not is_recoverable(ctx, job) and not is_published(ctx, job):
        return _missing(ctx, job)
    return record_abort(ctx, job)


def _open(ctx: TableContext, job: str) -> Head:
    head = ctx.open()
    if object_names.parse_job_id(job).table_id != head.snapshot.table_id:
        raise TableNotFoundError(
            f"job {job} belongs to another table than the one at {ctx.store.url}; nothing was done"
        )
    return head


def _settled(ctx: TableContext, head: Head, job: str) -> Outcome | None:
    """What the head records of the job: it needs no object any more, which gc may have taken."""
    _, (state, version) = find_job_at(ctx, head, job)
    return None if state is None else Outcome(kind=state, job_id=job, version=version)


def _recorded(ctx: TableContext, head: Head, job: str) -> Outcome | None:
    """What the head records of the job, or the history where it is fenced; None: it is neither."""
    if (settled := _settled(ctx, head, job)) is not None:
        return settled
    is_fenced = birth_of(job) < head.snapshot.fence
    return fenced_outcome(ctx, head, job) if is_fenced else None


def _missing(ctx: TableContext, job: str) -> Outcome:
    """Not prepared nor published: perhaps settled and removed since the head. [AB4] [CM22]"""
    if (found := _recorded(ctx, ctx.open(), job)) is not None:
        return found
    raise UsageError(
        f"{ctx.store.url} holds no prepared job {job}; nothing was done. "
        "Another process can only commit or abort a prepared job. A job that was not prepared "
        "commits when its own `with` block ends, or never."
    )


# Jobs of several tables, prepared together: any process commits or aborts all. [MT11]

_Opened: TypeAlias = tuple[TableContext, Head]


def together_of(parts: Sequence[TablePart]) -> tuple[TogetherJob, ...]:
    """What each of these jobs says when they are prepared, the home's first; UsageError where they
    cannot be committed together. [MT2] [MT11]"""
    jobs = [(part.url, part.table_id, part.change.job) for part in ordered_parts(parts)]
    return tuple(TogetherJob(root=url, table_id=id, job=job) for url, id, job in jobs)


def commit_prepared_together(ctx: TableContext, head: Head, prepared: Prepared) -> Outcome:
    """Commit a prepared job with all that it was prepared with; its own outcome. [MT11] A conflict
    leaves all of them prepared: where it is that of another table, it is raised as that table's
    error. Where one of them is missing or fenced, all are aborted."""
    job = prepared.change.job
    home = _home_of(ctx, prepared, head)
    if home is None:
        at = prepared.change.together[0].root
        raise TableNotFoundError(
            f"{ctx.store.url}: job {job} is committed together with others by the table at "
            f"{at}, which was removed; nothing was committed. Abort the job."
        )
    decided = _decided_by(ctx, home, prepared)
    if decided is not None:
        return decided
    parts = _gathered(ctx, head, home, prepared)
    outcomes = {} if parts is None else commit_declared(parts)
    if parts is None or any(each.kind == "fenced" for each in outcomes.values()):
        ended = record_abort(home[0], prepared.change.together[0].job)
        mine = outcomes.get(head.snapshot.table_id)
        if mine is not None and mine.kind == "fenced" and not ended.committed:
            return mine
        return _own_outcome(ctx, prepared, ended)
    return _own_or_error(parts, outcomes, head.snapshot.table_id)


def abort_prepared_together(ctx: TableContext, prepared: Prepared) -> Outcome:
    """Commit that a prepared job, and all that it was prepared with, never commit, or learn that
    they have: the home decides. [MT11] [AB4] Where the home is gone, it decides no more: this table
    records that its own job was aborted, without which no other commits."""
    home = _home_of(ctx, prepared)
    if home is None:
        return record_abort(ctx, prepared.change.job)
    return _decided_by(ctx, home, prepared) or _own_outcome(
        ctx, prepared, record_abort(home[0], prepared.change.together[0].job)
    )


def _decided_by(ctx: TableContext, home: _Opened, prepared: Prepared) -> Outcome | None:
    """The outcome of a job as the home has decided; None: it has not."""
    at, head = home
    found = _recorded(at, head, prepared.change.together[0].job)
    if found is None:
        return None
    if found.kind != "unknown" or at is ctx:
        return _own_outcome(ctx, prepared, found)
    # It can decide nothing any more, and has forgotten what it decided: what the job's own table
    # records counts, as long as the job is not behind the fence there, too.
    job = prepared.change.job
    own = _recorded(ctx, ctx.open(), job)
    return Outcome(kind="fenced", job_id=job) if own is None or own.kind == "aborted" else own


def _own_outcome(ctx: TableContext, prepared: Prepared, decided: Outcome) -> Outcome:
    """The outcome of this table's job, after what the home says of its own."""
    job = prepared.change.job
    version = None
    if decided.committed:
        head, (_, version) = find_job_at(ctx, ctx.open(), job)
        if version is None:
            version = fenced_outcome(ctx, head, job).version
    return msgspec.structs.replace(decided, job_id=job, version=version, metrics=None)


def _own_or_error(
    parts: Sequence[TablePart], outcomes: dict[str, Outcome], table_id: str
) -> Outcome:
    """The outcome of one table, where it is not only that another table did not commit."""
    own = outcomes[table_id]
    for part in parts if own.kind == "aborted" else ():
        if outcomes[part.table_id].kind != "aborted":
            committed_or_raise(outcomes[part.table_id], part.url)
    return own


def _home_of(ctx: TableContext, prepared: Prepared, head: Head | None = None) -> _Opened | None:
    """The table that decides. head: that of this one, where it was opened just now."""
    home = prepared.change.together[0]
    if head is not None and home.job == prepared.change.job:
        return ctx, head
    return _partner(ctx, prepared, home)


def _partner(ctx: TableContext, prepared: Prepared, table: TogetherJob) -> _Opened | None:
    """One of the tables, as of now; None: it was removed. Three requests. [SE2]"""
    store = store_beside(ctx.store, table.root)
    if store is None:
        raise UndecidedError(
            f"{ctx.store.url}: job {prepared.change.job} is committed together with "
            f"{table.job} of {table.root}, which is not in the same store; nothing was done. Do it "
            "where both are reachable."
        )
    at = ctx.at(store)
    at.note = ctx.note
    try:
        head = at.open()
    except TableNotFoundError:
        return None
    return (at, head) if head.snapshot.table_id == table.table_id else None


def _gathered(
    ctx: TableContext, head: Head, home: _Opened, prepared: Prepared
) -> list[TablePart] | None:
    """The parts of all tables, the home's first; None: one of them is not prepared, or not any
    more. A get for each, and three requests for each that is not open yet."""
    together = prepared.change.together
    opened = {together[0].job: home, prepared.change.job: (ctx, head)}
    parts = []
    for each in together:
        found = opened.get(each.job) or _partner(ctx, prepared, each)
        if found is None:
            return None
        (at, base), is_own = found, each.job == prepared.change.job
        other = prepared if is_own else read_prepared(at, each.job)
        if other is None:
            return None
        if (change := other.change).together != together:
            _refuse_partners(each, prepared)
        is_done = other.done is not None
        part = TablePart(ctx=at, head=base, change=change, found=is_done, is_prepared=True)
        parts.append(part)
    if ordered_parts(parts)[0] is not parts[0]:
        _refuse_partners(together[0], prepared)
    return parts


def _refuse_partners(table: TogetherJob, prepared: Prepared) -> None:
    name = object_names.prepared_name(table.job)
    raise CorruptMetadataError(
        f"{name} at {table.root} and job {prepared.change.job}, which were prepared together, do "
        "not name the same tables, or not the one first that decides; nothing was changed.",
        object_name=name,
    )

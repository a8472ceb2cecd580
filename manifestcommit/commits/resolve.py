"""What became of a job, asked from any process at any later time. [CM23]"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from ..display import ReprMixin, line
from ..errors import CorruptMetadataError, ManifestCommitError, UnsupportedFormatError, UsageError
from ..format import object_names
from ..format.change import Prepared
from ..format.snapshot import Snapshot
from ..format.watermark import Advance
from ..log.table_context import TableContext
from ..log.time_travel import find_job, find_job_at
from ..log.version_chain import Head, newest_above, read_object
from ..protocol.conflict import is_readable
from ..protocol.joint_outcome import share_of
from ..store import ObjectInfo
from .joint_two_phase import home_says
from .prepared_job import read_prepared

# The jobs that have left objects for others, and what became of each.

State = Literal["prepared", "staged", "published", "running", "committed", "aborted", "fenced"]


class JobInfo(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """A job that has left objects for others.

    Attributes:
        job: the job's id.
        state: "prepared": any process can commit or abort it; "staged": as well, and `recover`
            leaves it to a process that looks at it; "published": as well, and other
            writers commit it for its process, which runs or has died; "running": it is not prepared
            yet, or its process has died; "fenced": it began so long ago that it cannot commit any
            more; "committed"; "aborted".
        version: the version that holds it, where it is committed; None: elsewhere.
        together: the paths of the tables that are committed or aborted with it, this one among
            them, where it was prepared by `Transaction.prepare` and is not decided here; else none.
        since: when the oldest of its objects was written, by the store's clock, in Unix seconds.
        size_bytes: the size of all its objects.

    Spec: AB3.
    """

    job: str
    state: State
    version: int | None = None
    since: float
    size_bytes: int
    together: tuple[str, ...] = ()

    def __repr__(self) -> str:
        names = (
            "job",
            "state",
            "version",
            "size_bytes",
            "since",
            "together",
        )  # what is typed again comes first
        return line("JobInfo", [(name, getattr(self, name)) for name in names])


class FoundJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job and what its prepared object says. is_waiting: it is prepared, and nobody has decided
    it, or it is fenced; is_held: `recover` leaves it alone [CK5]; advances: what it would advance,
    nothing where it holds no work; error: why the object cannot be read."""

    info: JobInfo
    is_waiting: bool = False
    is_held: bool = False
    advances: tuple[Advance, ...] = ()
    error: ManifestCommitError | None = None


def is_published(ctx: TableContext, job: str) -> bool:
    """Whether the job's intent is there, so that others may commit it. One list. [CM19]"""
    return any(
        info.name == object_names.intent_name(job)
        for info in ctx.store.list(object_names.intent_name(job))
    )


def list_jobs(ctx: TableContext, *, is_read: bool = True) -> Iterator[JobInfo]:
    """Every job that has left objects for others, and what became of it, oldest birth first. Two
    lists and the head, and a get for each job that is prepared, or was when it was fenced; three
    requests more where it is prepared together with others. Without is_read, no prepared job is
    read: as far as this table knows. [AB3] [CM19] [MT11]"""
    return (each.info for each in find_jobs(ctx, is_read=is_read))


def find_jobs(ctx: TableContext, *, is_read: bool = True) -> Iterator[FoundJob]:
    """As `list_jobs`, with what waits in prepared objects. [AB3]"""
    head = ctx.open()
    found: dict[str, list[ObjectInfo]] = {}
    for info in ctx.store.list(object_names.JOBS):
        found.setdefault(object_names.job_of_handed(info.name), []).append(info)
    for info in ctx.store.list(object_names.INTENTS):
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
        yield _found(ctx, head.snapshot, job, birth, objects, is_read)


def _found(
    ctx: TableContext,
    snapshot: Snapshot,
    job: str,
    birth: int,
    objects: Sequence[ObjectInfo],
    is_read: bool,
) -> FoundJob:
    names = {info.name for info in objects}
    state, version = _state(ctx, snapshot, job, birth, names)
    info = JobInfo(
        job=job,
        state=state,
        version=version,
        since=min(info.modified for info in objects),
        size_bytes=sum(info.size_bytes for info in objects),
    )
    is_open = is_read and state in ("prepared", "fenced")
    if not is_open or object_names.prepared_name(job) not in names:
        return FoundJob(info=info)
    try:
        prepared = read_prepared(ctx, job)
    except ManifestCommitError as error:
        return FoundJob(info=info, is_waiting=True, error=error)
    if prepared is None:
        return FoundJob(info=info, is_waiting=True)
    if prepared.change.together:
        info = _jointly(ctx, info, prepared)
    is_held = prepared.held and info.state == "prepared"
    return FoundJob(
        info=msgspec.structs.replace(info, state="staged") if is_held else info,
        is_waiting=info.state in ("prepared", "fenced"),
        is_held=is_held,
        advances=() if prepared.done is not None else prepared.change.advances,
    )


def _jointly(ctx: TableContext, info: JobInfo, prepared: Prepared) -> JobInfo:
    """The same with the tables that it was prepared with, and as their home has decided, as far as
    that can be asked. [MT11]"""
    roots = tuple(each.root for each in prepared.change.together)
    try:
        said = home_says(ctx, prepared)
    except ManifestCommitError:
        said = None
    info = msgspec.structs.replace(info, together=roots)
    if said is None or said.kind not in ("committed", "aborted", "fenced"):
        return info
    return msgspec.structs.replace(info, state=said.kind, version=said.version)


def _state(
    ctx: TableContext, snapshot: Snapshot, job: str, birth: int, names: set[str]
) -> tuple[State, int | None]:
    state, version = find_job(ctx, snapshot, job)
    if state is not None:
        return ("aborted" if state == "given_up" else state), version
    if birth < snapshot.fence:
        return "fenced", None
    if object_names.prepared_name(job) in names:
        return "prepared", None
    return ("published" if object_names.intent_name(job) in names else "running"), None


class Resolution(str):
    """The answer of `resolve` and `abort`: a text that also has a version.

    Attributes:
        version: the version that holds the job, where the text is "committed"; None: elsewhere.
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
    """What the table knows of a job as of this call. UsageError where the id is none of a job of
    this table. [CM23]"""
    head = ctx.open()
    try:
        name = object_names.parse_job_id(job_id)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if name.table_id != head.snapshot.table_id:
        raise UsageError(f"job {job_id} belongs to another table than the one at {ctx.store.url}")
    recorded = _recorded(ctx, head, job_id)
    if recorded is not None:
        return recorded
    if (undecided := _undecided(ctx, head, job_id)) is not None:
        return undecided
    prepared = read_prepared(ctx, job_id)
    if prepared is not None and prepared.change.together:
        roots = _roots(prepared)
        said = home_says(ctx, prepared)
        if said is None or said.kind == "unknown":
            return Resolution("pending", together=roots)
        return Resolution("committed" if said.committed else "aborted", said.version, roots)
    if prepared is not None or is_published(ctx, job_id):
        return Resolution("pending")
    # The writer that carried it since the head was read has removed its intent.
    newest = newest_above(ctx.store, head.version, head) or ctx.open()
    return (
        _undecided(ctx, newest, job_id)
        or _recorded(ctx, newest, job_id)
        or Resolution("not_committed")
    )


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


def _undecided(ctx: TableContext, head: Head, job_id: str) -> Resolution | None:
    """The answer for a job that has made a member of a joint commit which its home has not decided;
    None: it has not. [MT8]"""
    top = None if head.is_void else head.top
    if top is None or not any(each.job == job_id for each in top.snapshot.commits):
        return None
    return Resolution("pending", together=_tables(ctx, top.snapshot))


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


def _recorded(ctx: TableContext, head: Head, job_id: str) -> Resolution | None:
    head, (state, version) = find_job_at(ctx, head, job_id)
    if state == "committed":
        assert version is not None
        return Resolution("committed", version, _together(ctx, head, version))
    if state == "given_up":
        return Resolution("aborted")
    return (
        Resolution("forgotten")
        if object_names.parse_job_id(job_id).birth < head.snapshot.fence
        else None
    )

"""The jobs that have left objects for others, and what became of each. [AB3] [CM19] [MT11]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from ...core.commit.change import Prepared
from ...core.table import object_names
from ...core.table.snapshot import Snapshot
from ...core.table.watermark import Advance
from ...errors import ManifestCommitError
from ...store import ObjectInfo
from ...terminal.notebook import Shown, line
from ..commit.prepared_job import read_prepared
from ..joint.joint_two_phase import home_says
from ..metadata.job_and_key_lookup import find_job
from ..metadata.table_context import TableContext

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
    it, or it is fenced; advances: what it would advance, nothing where it holds no work; error: why
    the object cannot be read."""

    info: JobInfo
    is_waiting: bool = False
    advances: tuple[Advance, ...] = ()
    error: ManifestCommitError | None = None


def is_published(session: TableContext, job: str) -> bool:
    """Whether the job's intent is there, so that others may commit it. One list. [CM19]"""
    return any(
        info.name == object_names.intent_name(job)
        for info in session.store.list(object_names.intent_name(job))
    )


def list_jobs(session: TableContext, *, is_read: bool = True) -> Iterator[JobInfo]:
    """Every job that has left objects for others, and what became of it, oldest birth first. Two
    lists and the head, and a get for each job that is prepared, or was when it was fenced; three
    requests more where it is prepared together with others. Without is_read, no prepared job is
    read: as far as this table knows. [AB3] [CM19] [MT11]"""
    return (each.info for each in find_jobs(session, is_read=is_read))


def find_jobs(session: TableContext, *, is_read: bool = True) -> Iterator[FoundJob]:
    """As `list_jobs`, with what waits in prepared objects. [AB3]"""
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
        yield _found(session, head.snapshot, job, birth, objects, is_read)


def _found(
    session: TableContext,
    snapshot: Snapshot,
    job: str,
    birth: int,
    objects: Sequence[ObjectInfo],
    is_read: bool,
) -> FoundJob:
    names = {info.name for info in objects}
    state, version = _state(session, snapshot, job, birth, names)
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
        prepared = read_prepared(session, job)
    except ManifestCommitError as error:
        return FoundJob(info=info, is_waiting=True, error=error)
    if prepared is None:
        return FoundJob(info=info, is_waiting=True)
    if prepared.change.together:
        info = _jointly(session, info, prepared)
    return FoundJob(
        info=info,
        is_waiting=info.state in ("prepared", "fenced"),
        advances=() if prepared.done is not None else prepared.change.advances,
    )


def _jointly(session: TableContext, info: JobInfo, prepared: Prepared) -> JobInfo:
    """The same with the tables that it was prepared with, and as their home has decided, as far as
    that can be asked. [MT11]"""
    roots = tuple(each.root for each in prepared.change.together)
    try:
        said = home_says(session, prepared)
    except ManifestCommitError:
        said = None
    info = msgspec.structs.replace(info, together=roots)
    if said is None or said.kind not in ("committed", "aborted", "fenced"):
        return info
    return msgspec.structs.replace(info, state=said.kind, version=said.version)


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

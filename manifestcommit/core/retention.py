"""What gc keeps and what it deletes: the fence and the oldest readable version by policy, and a verdict on each name. [GC1] [GC5]

Pure. Not here: the commit of that choice (core.change), which files the readable versions list (engine.reach), requests (engine.gc).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from . import format
from .paths import UnsafePathError, check_path
from .snapshot import Snapshot

Action = Literal["keep", "delete", "leave"]
DAY_S = 86_400.0
MAX_CONDEMNED = 10_000  # foreign files that one run condemns by name: they stand in the head until it is known that they are gone
_AT_HAND = 4096  # folders and jobs of which is known what follows for a file
_METADATA = f"{format.ROOM}/"
_CUT_COMPONENT_BYTES = 190  # a folder so long may have lost its `=` when its name was cut


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller wants kept, in versions, seconds and keys. No value makes gc delete what is still needed. [GC1] [KY4] [AB5]"""

    grace_s: float = DAY_S
    keep_versions: int = 1
    keep_for_s: float = 7 * DAY_S
    keep_keys: int = 10_000
    prepared_grace_s: float = 7 * DAY_S


class Horizon(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where a committed decision lets gc go. version: the last one to be read; condemned: foreign files to be deleted. [GC3] [GC5]"""

    table_id: str
    version: int
    fence: int
    expired: int
    tagged: frozenset[int] = frozenset()
    condemned: frozenset[str] = frozenset()

    @property
    def readable(self) -> tuple[int, ...]:
        """Every version that readers may ask for, ascending."""
        older = sorted(version for version in self.tagged if version < self.expired)
        return (*older, *range(self.expired, self.version + 1))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of an object. kind: under which it is counted; reason: for people."""

    action: Action
    kind: str
    reason: str = ""


def horizon_of(snapshot: Snapshot) -> Horizon:
    """The horizon that a snapshot has committed. [GC3]"""
    return Horizon(
        table_id=snapshot.table_id,
        version=snapshot.version,
        fence=snapshot.fence,
        expired=snapshot.expired,
        tagged=frozenset(tag.version for tag in snapshot.tags.values()),
        condemned=frozenset(name for name, seen in snapshot.condemned.items() if seen is None),
    )


def newest_by(times: Iterable[tuple[int, float]], moment_s: float) -> int:
    """The highest version that was there at that moment; 0: none was. times: (version, when it was created). [GC1]"""
    return max((version for version, created_s in times if created_s <= moment_s), default=0)


def choose(head: Snapshot, policy: Policy, *, at_grace: int, at_keep_for: int, prepared: Sequence[int] = ()) -> tuple[int, int]:
    """(fence, expired): never below the head's own, `expired` never above the fence, the fence never above a birth in `prepared`.

    at_grace, at_keep_for: the head as it was so long ago, 0 where there was none; prepared: births of young undecided prepared jobs.
    [GC1] [GC2] [AB5]
    """
    fence = max(head.fence, min(at_grace, head.version, *prepared))
    last = head.version - policy.keep_versions + 1
    return fence, max(head.expired, min(last, at_keep_for, fence))


def oldest_key_kept(versions: Iterable[int], keep_keys: int) -> int:
    """The version below which keys are forgotten, so that at least the last `keep_keys` stay; 0: none is. [KY4]"""
    ordered = sorted(versions, reverse=True)
    if len(ordered) <= keep_keys:
        return 0
    return ordered[keep_keys - 1] if keep_keys else ordered[0] + 1


def writer_of(path: str, table_id: str) -> str | None:
    """The job of this table that wrote a data file where it lies; None: something else did, or has moved it. [DF1] [GC5]

    A file in any other folder than those of partitions is a copy that someone made, such as of the whole table.
    """
    job = format.job_of_data_file(path)
    if job is None or format.parse_job_id(job).table_id != table_id:
        return None
    return job if _is_of_partitions(path.rpartition("/")[0]) else None


@lru_cache(_AT_HAND)  # a list has the files of a folder together
def _is_of_partitions(folder: str) -> bool:
    parts = folder.split("/") if folder else []
    return all("=" in part or len(part.encode("utf-8", "surrogatepass")) >= _CUT_COMPONENT_BYTES for part in parts)


def classify(name: str, horizon: Horizon, is_reached: Callable[[str], bool], *, is_old: bool) -> Verdict:
    """What becomes of one object below the root. Only what carries this table's id and a birth below the fence is ever deleted. [GC5]

    is_reached: whether a readable version lists that name; is_old: whether it surely is older than the grace period, which only
    probes ask: they carry no id, and anyone may delete them.
    """
    if not name.startswith(_METADATA):
        return _data_file(name, horizon, is_reached)
    if name == format.HINT:
        return _KEPT_METADATA
    if name.startswith(format.VERSIONS):
        return _version(name, horizon)
    if name.startswith(format.MANIFESTS):
        return _of_job(format.job_of_manifest(name), "manifest", horizon, is_reached=is_reached(name))
    if name.startswith(format.JOBS):
        return _of_job(format.job_of_handed(name), "job object", horizon, is_reached=False)
    if name.startswith(format.PROBES):
        return Verdict(action="delete", kind="probe", reason="a probe of doctor that a crash left") if is_old else _KEPT_METADATA
    return _unknown("nothing that this release knows")


def is_condemnable(name: str) -> bool:
    """Whether gc may be asked to delete a foreign file of this name: no metadata of any table, and nothing hidden. [GC6]

    A name with a component that begins with `_` or `.` is some program's own state (`_delta_log/`, `_spark_metadata/`, `.git/`): it is
    told, and left.
    """
    try:
        check_path(name)
    except UnsafePathError:
        return False
    return not any(part.startswith(("_", ".")) for part in name.split("/"))


def inner_root(name: str) -> str | None:
    """The folder of another table, or of a copy, that this object of it shows; None: it shows none. [GC6] [LY6]"""
    head, marker, _ = name.partition(f"/{format.ROOM}/")
    return f"{head}/" if marker else None


def job_in(name: str) -> str | None:
    """The job that a name carries, of whatever table and wherever it lies; None: it carries none. [LY3] [LY5] [LY11] [DF1]"""
    if name.startswith(format.MANIFESTS):
        job: str | None = format.job_of_manifest(name)
    elif name.startswith(format.JOBS):
        job = format.job_of_handed(name)
    else:
        job = format.parse_intent(name) if name.startswith(f"{format.ROOM}/") else format.job_of_data_file(name)
    return job if job is not None and format.is_job_id(job) else None


def is_of_another_table(name: str, table_id: str) -> bool:
    """Whether a name shows another table: it lies in the folder of one, or carries an id of one. It is never this one's. [GC5] [LY6]"""
    if not name.startswith(f"{format.ROOM}/") and inner_root(name) is not None:
        return True
    job = job_in(name)
    return job is not None and format.parse_job_id(job).table_id != table_id


def classify_unfinished(name: str, horizon: Horizon, *, is_temporary: bool, is_old: bool) -> Verdict:
    """What becomes of an output that was never finished: an upload, or a temporary file. [GC9]

    name: the one that it would take, or a temporary file's own where that is not known. The job in it says whether anyone can finish it;
    a temporary file without one goes by its age.
    """
    is_manifest = name.startswith(format.MANIFESTS)
    job = format.job_of_manifest(name) if is_manifest else format.job_of_data_file(name)
    if job is not None and format.is_job_id(job):
        own = _own_job(job, horizon) if is_manifest else writer_of(name, horizon.table_id)
        if own is None or (birth := format.parse_job_id(own).birth) >= horizon.fence:
            return _UNFINISHED
        why = f"never finished; job {own} was born at version {birth}, below the fence {horizon.fence}"
        return Verdict(action="delete", kind="unfinished output", reason=why)
    folders = name.split("/")[:-1]
    if is_temporary and is_old and (folders[:1] == [format.ROOM] or all("=" in folder for folder in folders)):
        return Verdict(action="delete", kind="temporary file", reason="never finished, and older than the grace period")
    return _UNFINISHED


_KEPT = Verdict(action="keep", kind="data file")
_KEPT_METADATA = Verdict(action="keep", kind="metadata")
_UNFINISHED = Verdict(action="leave", kind="unfinished output")
_FOREIGN = Verdict(action="leave", kind="foreign", reason="not written by this table's jobs")
_NEVER = Verdict(action="leave", kind="foreign", reason="not written by this table's jobs; hidden (_ or .), so gc never deletes it")


def _data_file(name: str, horizon: Horizon, is_reached: Callable[[str], bool]) -> Verdict:
    if is_reached(name):  # as most files are, whoever wrote them
        return _KEPT
    own = writer_of(name, horizon.table_id)
    if own is not None:
        return _of_own_job(own, "data file", horizon, is_reached=False)
    if name in horizon.condemned:
        return Verdict(action="delete", kind="foreign file", reason="not written by this table's jobs, listed by no readable version")
    return _FOREIGN if is_condemnable(name) else _NEVER


def _of_job(job: str, kind: str, horizon: Horizon, *, is_reached: bool) -> Verdict:
    own = _own_job(job, horizon)
    if own is None:
        return _unknown("it is named for another table" if format.is_job_id(job) else "it is named for no job")
    return _of_own_job(own, kind, horizon, is_reached=is_reached)


def _of_own_job(own: str, kind: str, horizon: Horizon, *, is_reached: bool) -> Verdict:
    birth = format.parse_job_id(own).birth
    if birth >= horizon.fence or is_reached:
        return _KEPT if kind == "data file" else _KEPT_METADATA
    return _dead(kind, own, birth, horizon.fence)


@lru_cache(_AT_HAND)  # all files that a job has left share it
def _dead(kind: str, job: str, birth: int, fence: int) -> Verdict:
    why = "that job is settled" if kind in ("job object", "intent") else "no readable version lists it"
    return Verdict(action="delete", kind=kind, reason=f"{why}; job {job} was born at version {birth}, below the fence {fence}")


def _own_job(job: str, horizon: Horizon) -> str | None:
    return job if format.is_job_id(job) and format.parse_job_id(job).table_id == horizon.table_id else None


def _version(name: str, horizon: Horizon) -> Verdict:
    version = format.parse_version(name)
    if version is None:
        job = format.parse_intent(name)
        return _unknown("no name of a version") if job is None else _of_job(job, "intent", horizon, is_reached=False)
    if version >= horizon.expired or version in horizon.tagged:
        return _KEPT_METADATA
    return Verdict(action="delete", kind="version", reason=f"version {version} is below {horizon.expired}, the oldest readable one")


def _unknown(reason: str) -> Verdict:
    return Verdict(action="leave", kind="unknown", reason=reason)

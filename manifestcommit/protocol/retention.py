"""The rules of garbage collection: the fence and the oldest readable version by policy, and a
verdict on every object. [GC1] [GC5] Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from ..format import object_names, partitioning
from ..format.object_names import UnsafePathError, check_path
from ..format.partitioning import PartitionColumn
from ..format.snapshot import Snapshot

Action = Literal["keep", "delete", "leave"]
DAY_S = 86_400.0
_AT_HAND = 4096  # folders and jobs whose consequence for a file is cached
_METADATA = f"{object_names.ROOM}/"
# What marks the folder of a table: ours, Delta Lake's, Hudi's, Spark's streaming sink's, Iceberg's.
_OF_A_TABLE = re.compile(
    r"(.+?)/(?:(?:_manifest|_delta_log|\.hoodie|_spark_metadata)/|metadata/[^/]*\.metadata\.json)",
    re.DOTALL,
)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The retention that the caller asks for, in versions, seconds and keys. No value makes gc
    delete anything that is still needed. [GC1] [KY4] [AB5]"""

    grace_s: float = DAY_S
    keep_versions: int = 1
    keep_for_s: float = 7 * DAY_S
    keep_keys: int = 10_000
    keep_keys_for_s: float = 0.0
    prepared_grace_s: float = 7 * DAY_S


class Horizon(msgspec.Struct, frozen=True, kw_only=True):
    """How far a committed decision lets gc go. version: the version that made it; condemned:
    untracked files to delete; void: versions that were never a state; layouts: the columns that
    the table's folders are made of, and those that they were made of before; own: the ids of tables
    whose jobs are this table's: with its own those that it was cloned from. [GC3] [GC5] [CN4]"""

    table_id: str
    version: int
    fence: int
    expired: int
    tagged: frozenset[int] = frozenset()
    condemned: frozenset[str] = frozenset()
    void: frozenset[int] = frozenset()
    layouts: tuple[tuple[PartitionColumn, ...], ...] = ((),)
    own: frozenset[str] = frozenset()

    @property
    def readable(self) -> tuple[list[int], range]:
        """The versions that readers may ask for, ascending: those that tags keep, and all from the
        oldest other one on. A snapshot may claim more than memory has room for. [OB4]"""
        older = sorted(version for version in self.tagged if version < self.expired)
        return older, range(self.expired, self.version + 1)

    def is_readable_at(self, head: Snapshot) -> bool:
        """Whether all of these are readable at `head`, without walking the range. [GC4]"""
        tagged = {tag.version for tag in head.tags.values()}
        end = min(head.expired, self.version + 1)
        kept = sum(self.expired <= version < end for version in tagged)
        return kept >= end - self.expired and tagged.issuperset(
            version for version in self.tagged if version < self.expired
        )


class Verdict(msgspec.Struct, frozen=True):
    """What happens to an object. kind: a class for counts; reason: for people."""

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
        void=frozenset(snapshot.void),
        layouts=(
            partitioning.folder_columns(snapshot.schema, snapshot.partition_by),
            *snapshot.former_folders,
        ),
        own=frozenset((snapshot.table_id, *snapshot.cloned)),
    )


def newest_by(times: Iterable[tuple[int, float]], moment_s: float, now_s: float) -> int:
    """The highest version that certainly existed at that moment; 0: none did. times: (version,
    creation time) in order: one in the future, or below an earlier one, is of a wrong clock.
    [GC1]"""
    newest, latest_s = 0, -math.inf
    for version, created_s in times:
        if latest_s <= created_s <= now_s:
            latest_s = created_s
            newest = version if created_s <= moment_s else newest
    return newest


def choose(
    head: Snapshot, policy: Policy, *, at_grace: int, at_keep_for: int, prepared: Sequence[int] = ()
) -> tuple[int, int]:
    """Choose (fence, expired), neither below that of `head`. at_grace, at_keep_for: the latest
    version that long ago, 0: none; prepared: base versions of recent undecided prepared jobs, which
    the fence does not pass. [GC1] [GC2] [AB5]"""
    fence = max(head.fence, min(at_grace, head.version, *prepared))
    last = head.version - policy.keep_versions + 1
    for void in reversed(head.void):  # is no version that anyone reads [MT8]
        last -= void >= last
    return fence, max(head.expired, min(last, at_keep_for, fence))


def oldest_key_kept(versions: Iterable[int], keep_keys: int) -> int:
    """The version below which keys are forgotten, so that so many stay; 0: none. [KY4]"""
    ordered = sorted(versions, reverse=True)
    if len(ordered) <= keep_keys:
        return 0
    return ordered[keep_keys - 1] if keep_keys else ordered[0] + 1


def old_enough(head: Snapshot, at_age: int, now_s: float, policy: Policy) -> int:
    """The version below which all keys are older than `keep_keys_for_s`; 0: none certainly are.
    at_age: the latest readable version that long ago, 0: none. [KY4] [OB18]"""
    cut_us = (now_s - policy.keep_keys_for_s) * 1e6
    known = max((version for version, time in head.dated if time <= cut_us), default=0)
    newest = max(at_age, known)
    return newest + 1 if newest else 0


def own_job(path: str, horizon: Horizon) -> str | None:
    """The job of this table that wrote a data file under exactly this name; None: none did, or it
    is a copy. Each folder must be one that this table makes, or made, for its columns. [GC5]"""
    job = object_names.job_of_own_name(path)
    if job is None or object_names.parse_job_id(job).table_id not in horizon.own:
        return None
    return job if _is_own_folder(horizon.layouts, path.rpartition("/")[0]) else None


@lru_cache(_AT_HAND)
def _is_own_folder(layouts: tuple[tuple[PartitionColumn, ...], ...], folder: str) -> bool:
    return any(partitioning.is_folder(columns, folder) for columns in layouts)


def classify(
    name: str,
    horizon: Horizon,
    is_reached: Callable[[str], bool],
    is_copy: Callable[[str], bool] = lambda _: False,
    *,
    is_old: bool,
) -> Verdict:
    """Decide what happens to one object below the table path. Only objects with this table's id and
    a base version below the fence are ever deleted, and probes by age. is_reached: whether a
    readable version lists that name; is_copy: or a file of that name in another folder; is_old:
    whether it is certainly older than the grace period. [GC5]"""
    if not name.startswith(_METADATA):
        return _data_file(name, horizon, is_reached, is_copy)
    if name == object_names.HINT:
        return _KEPT_METADATA
    if name.startswith(object_names.VERSIONS):
        return _version(name, horizon)
    if name.startswith(object_names.MANIFESTS):
        job, reached = object_names.job_of_manifest(name), is_reached(name)
        return _of_job(job, "manifest", horizon, is_reached=reached)
    if name.startswith(object_names.JOBS):
        return _of_job(object_names.job_of_handed(name), "job object", horizon, is_reached=False)
    if name.startswith(object_names.PROBES):
        return _OLD_PROBE if is_old else _KEPT_METADATA
    return _unknown("nothing that this release knows")


def is_condemnable(name: str) -> bool:
    """Whether gc may be asked to delete an untracked file of this name: nothing hidden, which is
    some program's own state (`_delta_log/`, `.git/`), and is reported. [GC6]"""
    try:
        check_path(name)
    except UnsafePathError:
        return False
    return not any(part.startswith(("_", ".")) for part in name.split("/"))


def inner_root(name: str) -> str | None:
    """The folder of another table, of any format, around this object; None. [GC6] [LY6]"""
    match = _OF_A_TABLE.match(name)
    return f"{match[1]}/" if match else None


def job_in(name: str) -> str | None:
    """The job id in a name, of any table and folder; None: none. [LY3] [LY5] [LY11] [DF1]"""
    if name.startswith(object_names.MANIFESTS):
        job: str | None = object_names.job_of_manifest(name)
    elif name.startswith(object_names.JOBS):
        job = object_names.job_of_handed(name)
    elif name.startswith(_METADATA):
        job = object_names.parse_intent(name)
    else:
        job = object_names.job_of_data_file(name)
    return job if job is not None and object_names.is_job_id(job) else None


def is_of_another_table(name: str, own: Collection[str]) -> bool:
    """Whether a name is in another table's folder, or carries its id. [GC5] [LY6]"""
    if not name.startswith(_METADATA) and inner_root(name) is not None:
        return True
    job = job_in(name)
    return job is not None and object_names.parse_job_id(job).table_id not in own


def classify_unfinished(
    name: str, horizon: Horizon, *, is_temporary: bool, is_old: bool
) -> Verdict:
    """Decide what happens to a multipart upload, or a temporary file. name: what it would be
    called, or is. The job id in it says whether a job can still finish it; a temporary file without
    one is judged by its age. [GC9]"""
    is_manifest = name.startswith(object_names.MANIFESTS)
    job = object_names.job_of_manifest(name) if is_manifest else object_names.job_of_data_file(name)
    if job is not None and object_names.is_job_id(job):
        own = _own_job(job, horizon) if is_manifest else own_job(name, horizon)
        if own is None or (birth := object_names.parse_job_id(own).birth) >= horizon.fence:
            return _UNFINISHED
        why = f"never finished; job {own} began at version {birth}, below the fence {horizon.fence}"
        return Verdict("delete", "unfinished output", why)
    is_here = name.startswith(_METADATA) or _is_own_folder(horizon.layouts, name.rpartition("/")[0])
    if is_temporary and is_old and is_here:
        why = "never finished, and older than the grace period"
        return Verdict("delete", "temporary file", why)
    return _UNFINISHED


_KEPT = Verdict("keep", "data file")
_KEPT_METADATA = Verdict("keep", "metadata")
_OLD_PROBE = Verdict("delete", "probe", "a probe of doctor that a crash left")
_UNFINISHED = Verdict("leave", "unfinished output")
_NOT_OURS = "not written by this table's jobs"
_FOREIGN = Verdict("leave", "foreign", _NOT_OURS)
_NEVER = Verdict("leave", "foreign", f"{_NOT_OURS}; hidden (_ or .), so gc never deletes it")
_ELSEWHERE = "a copy: a readable version lists the file of that name in another folder"
_COPY = Verdict("leave", "foreign", _ELSEWHERE)
_UNLISTED = Verdict("delete", "foreign file", f"{_NOT_OURS}, listed by no readable version")


def _data_file(
    name: str, horizon: Horizon, is_reached: Callable[[str], bool], is_copy: Callable[[str], bool]
) -> Verdict:
    if is_reached(name):  # the common case, for files of any writer
        return _KEPT
    own = own_job(name, horizon)
    copied = own is not None and is_copy(name)
    if own is not None and not copied:
        return _of_own_job(own, "data file", horizon, is_reached=False)
    if name in horizon.condemned:
        return _UNLISTED
    if not is_condemnable(name):
        return _NEVER
    return _COPY if copied else _FOREIGN


def _of_job(job: str, kind: str, horizon: Horizon, *, is_reached: bool) -> Verdict:
    own = _own_job(job, horizon)
    if own is None:
        other = "another table" if object_names.is_job_id(job) else "no job"
        return _unknown(f"it is named for {other}")
    return _of_own_job(own, kind, horizon, is_reached=is_reached)


def _of_own_job(own: str, kind: str, horizon: Horizon, *, is_reached: bool) -> Verdict:
    birth = object_names.parse_job_id(own).birth
    if birth >= horizon.fence or is_reached:
        return _KEPT if kind == "data file" else _KEPT_METADATA
    return _dead(kind, own, birth, horizon.fence)


@lru_cache(_AT_HAND)  # all files that a job has left share the answer
def _dead(kind: str, job: str, birth: int, fence: int) -> Verdict:
    is_of_job = kind in ("job object", "intent")
    why = "that job is settled" if is_of_job else "no readable version lists it"
    why = f"{why}; job {job} began at version {birth}, below the fence {fence}"
    return Verdict("delete", kind, why)


def _own_job(job: str, horizon: Horizon) -> str | None:
    is_job = object_names.is_job_id(job)
    return job if is_job and object_names.parse_job_id(job).table_id in horizon.own else None


def _version(name: str, horizon: Horizon) -> Verdict:
    version = object_names.parse_version(name)
    if version is None:
        table_id, job = object_names.parse_marker(name), object_names.parse_intent(name)
        if job is not None:
            return _of_job(job, "intent", horizon, is_reached=False)
        if table_id in (None, horizon.table_id):
            return _KEPT_METADATA if table_id else _unknown("no name of a version")
        return _unknown(f"it is the marker of another table, {table_id}")
    if version >= horizon.expired or version in horizon.tagged:
        return _KEPT_METADATA
    why = f"version {version} is below {horizon.expired}, the oldest readable one"
    return Verdict("delete", "version", why)


def _unknown(reason: str) -> Verdict:
    return Verdict("leave", "unknown", reason)

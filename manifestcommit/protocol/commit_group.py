"""Group commit: which changes may be published, which of them apply, and what the combined version
is. [CM19]-[CM24] Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

import msgspec

from ..format import object_names
from ..format.change import Change, Inputs, Write
from ..format.snapshot import Commit, KeyRecord, Snapshot
from .apply import apply
from .conflict import find_conflict

MAX_CARRIED = 64  # changes of others in one version, at most
MAX_CARRIED_BYTES = 1 << 20  # bytes of their documents together, at most
# In versions. A waiting job is carried within the next few. One with an older base version may be
# dead, and probably conflicts with what has been committed.
_YOUNG = 8
# All members of a change that a plain append may have, beside its operation.
_PLAIN = (
    *("job", "birth", "message", "metadata", "author", "key", "declared", "schema", "partition_by"),
    *("add", "add_manifests", "touched", "advances", "checked", "summary"),
)


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A change that its job has published; size_bytes: length of its document."""

    change: Write
    size_bytes: int


class CombinedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A latest version with other jobs' changes on top, which become one version. [CM24]"""

    snapshot: Snapshot
    commits: tuple[Commit, ...] = ()


def is_plain(change: Change) -> TypeGuard[Write]:
    """Whether the change is an append that can be judged by the latest version alone, and adds only
    files of its own. It lists every member that such a change may have: one that a later release
    adds does not pass by being unknown here. [CM19]"""
    if not isinstance(change, Write):
        return False
    members: dict[str, Any] = {name: getattr(change, name) for name in _PLAIN}
    known = Write(operation="append", **members)
    lists = bool(change.add or change.add_manifests)
    if change != known or (lists and (change.schema is None or change.partition_by is None)):
        return False
    paths = [ref.path for ref in change.add_manifests]
    jobs: list[str | None] = [object_names.job_of_manifest(path) for path in paths]
    jobs += [object_names.job_of_data_file(entry.path) for entry in change.add]
    jobs += [entry.job for entry in change.add]
    return len(set(paths)) == len(paths) and all(job == change.job for job in jobs)


def carries_others(change: Change) -> TypeGuard[Write]:
    """Whether changes of others may come first in its version: it conflicts with none. [CM20]"""
    if not isinstance(change, Write) or change.operation != "append":
        return False
    alone = change.remove or change.reads or change.first
    return not alone and change.overwrite is None and change.audited is None


def may_wait(snapshot: Snapshot, job: str) -> bool:
    """Whether a job with this name can be carried on top of this snapshot: it is of this table,
    between fence and snapshot, and not recorded as committed or aborted. [CM20] [CM22]"""
    name, known = object_names.parse_job_id(job), snapshot.recent_jobs
    is_between = snapshot.fence <= name.birth <= snapshot.version
    return is_between and name.table_id == snapshot.table_id and job not in known


def crowds(snapshot: Snapshot, job: str) -> bool:
    """Whether the job shows that many are writing now: it may wait, and began lately. [CM19]"""
    age = snapshot.version - object_names.parse_job_id(job).birth
    return age <= _YOUNG and may_wait(snapshot, job)


def in_order(jobs: Iterable[str]) -> list[str]:
    """Sort by base version, lowest first: the job that began first has waited longest. [CM20]"""
    return sorted(jobs, key=lambda job: (object_names.parse_job_id(job).birth, job))


def applies(snapshot: Snapshot, change: Write, record: KeyRecord | None = None) -> bool:
    """Whether the change of an intent can come next in this state, which includes every commit
    since its base version. record: the newest one of its key there. [CM20] [KY7]"""
    if not is_plain(change) or not may_wait(snapshot, change.job):
        return False
    if record is not None and record.digest:
        return False
    inputs = Inputs(dropped=0 if record is None else record.version)
    return find_conflict(snapshot, change, inputs) is None


def carry(
    carried: CombinedCommit, change: Write, *, commit_id: str, now_us: int, writer: str
) -> CombinedCommit:
    """Add one more change, which `applies` has passed against this state. [CM24]"""
    head = carried.snapshot
    made = apply(
        head, change, Inputs(), parent_digest="", commit_id=commit_id, now_us=now_us, writer=writer
    )
    # The next change becomes part of the same version, so this state keeps the number of the head.
    same = msgspec.structs.replace(made, version=head.version)
    return CombinedCommit(snapshot=same, commits=(*carried.commits, *made.commits))


def complete(carried: CombinedCommit, made: Snapshot) -> Snapshot:
    """The version `made`, the carrier's own, with the records of all that it carries. [CM24]"""
    return msgspec.structs.replace(made, commits=(*carried.commits, *made.commits))

"""What one create carries for others: which changes may be published, which of them apply, and the version with all of them. [CM19]-[CM24]

Pure. Not here: the objects that changes are published in (core.format), reading them (engine.intents), the rules of section 8
(core.conflict).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from . import format
from .change import Change, Found, apply
from .conflict import find_conflict
from .snapshot import Commit, Snapshot
from .watermark import Position

MAX_CARRIED = 64  # changes of others in one version
MAX_CARRIED_BYTES = 1 << 20  # of their documents together
# Versions. Who waits is carried by one of the next few; whoever was born earlier may be dead, and in conflict with what is there.
_YOUNG = 8


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A change that its job has published; size_bytes: of its document."""

    change: Change
    size_bytes: int


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A head with changes of others on top of it, all of which become one version, and their records. [CM24]"""

    snapshot: Snapshot
    commits: tuple[Commit, ...] = ()


def is_plain(change: Change) -> bool:
    """Whether it is an append that anyone can judge by a head alone: no change of columns, nothing removed, only files of its own. [CM19]

    Spelled out of what such a change may hold, so that what a later release adds to changes does not pass by being unknown here.
    """
    known = Change(
        job=change.job, birth=change.birth, operation="append", key=change.key, declared=change.declared, schema=change.schema,
        partition_by=change.partition_by, add=change.add, add_manifests=change.add_manifests, touched=change.touched,
        advances=change.advances, summary=change.summary,
    )  # fmt: skip
    lists = bool(change.add or change.add_manifests)
    if change != known or (lists and (change.schema is None or change.partition_by is None)):
        return False
    own = all(entry.job == change.job == format.job_of_data_file(entry.path) for entry in change.add)
    paths = [ref.path for ref in change.add_manifests]
    return own and len(set(paths)) == len(paths) and all(format.job_of_manifest(path) == change.job for path in paths)


def carries_others(change: Change) -> bool:
    """Whether changes of others may come before this one in its version: they must not be what it conflicts with by itself. [CM20]"""
    return change.operation == "append" and change.overwrite is None and not change.remove


def may_ever_be_carried(snapshot: Snapshot, job: str) -> bool:
    """Whether a job with that name can be carried on top of this head or a later one: it is of this table, was not born below the fence,
    and has neither committed nor been given up, as far as the head itself says. [CM20] [CM22]"""
    name = format.parse_job_id(job)
    return name.table_id == snapshot.table_id and snapshot.fence <= name.birth and job not in snapshot.recent_jobs


def may_wait(snapshot: Snapshot, job: str) -> bool:
    """Whether a job with that name can be carried on top of this very head: it was not born after it either. [CM20] [CM22]"""
    return may_ever_be_carried(snapshot, job) and format.parse_job_id(job).birth <= snapshot.version


def crowds(snapshot: Snapshot, job: str) -> bool:
    """Whether that job tells that many write just now: it may wait, and was born a few versions before this head at most. [CM19]"""
    return may_wait(snapshot, job) and snapshot.version - format.parse_job_id(job).birth <= _YOUNG


def in_order(jobs: Iterable[str]) -> list[str]:
    """Lowest birth first: who began first has waited longest. [CM20]"""
    return sorted(jobs, key=lambda job: (format.parse_job_id(job).birth, job))


def applies(snapshot: Snapshot, change: Change) -> bool:
    """Whether the change of an intent may come next on this state, as far as no run has to be asked for its job and key. [CM20]

    Section 8 needs only the state of a plain append: whatever was committed since its birth is in it, also what this create carries.
    """
    if not is_plain(change) or not may_wait(snapshot, change.job):
        return False
    record = snapshot.keys.get(change.key) if change.key is not None else None
    return (record is None or not record.digest) and find_conflict(snapshot, change, (), Found()) is None


def carry(carried: Carried, change: Change, *, commit_id: str, now_us: int, writer: str) -> Carried:
    """The same with one more change, which `applies` has passed against this very state. [CM24]"""
    head = carried.snapshot
    made = apply(head, change, Found(), parent_digest="", commit_id=commit_id, now_us=now_us, writer=writer)
    record = msgspec.structs.replace(made.commits[0], advanced=advanced_of(change))
    # What comes next becomes the same version, so this state has the head's number still.
    return Carried(snapshot=msgspec.structs.replace(made, version=head.version), commits=(*carried.commits, record))


def complete(carried: Carried, made: Snapshot, change: Change) -> Snapshot:
    """The version `made` by applying the carrier's own change last, with the records of all that it carries. [CM24]"""
    if not carried.commits:
        return made
    own = msgspec.structs.replace(made.commits[0], advanced=advanced_of(change))
    return msgspec.structs.replace(made, commits=(*carried.commits, own))


def advanced_of(change: Change) -> dict[str, tuple[Position, int | str]]:
    """Source -> where this change takes it up, and where it leaves it. [CM24]"""
    found: dict[str, tuple[Position, int | str]] = {}
    for each in change.advances:
        start, _ = found.get(each.source, (each.start, each.end))
        found[each.source] = (start, each.end)
    return found

"""Looks up the record of an idempotency key or a job, in the latest version or in the runs that it
spilled. [KY1] [CM1]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

from ...core.table.snapshot import KeyRecord, Snapshot
from ...errors import SnapshotExpiredError
from .manifests import KEY_RUN
from .table_context import TableContext
from .version_chain import Head, raise_if_expired

JobState: TypeAlias = Literal["committed", "given_up"]
_Found = TypeVar("_Found")


def find_key(session: TableContext, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The record of a key, inlined or spilled; None: never committed, invalidated or forgotten. A
    run that lacks the key is read only once. [KY1] [WM5]"""
    record = find_record(session, snapshot, key)
    return record if record is not None and record.digest else None


def find_record(session: TableContext, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The newest record of a key, inlined or spilled, including one that invalidates the key.
    [KY7]"""
    return snapshot.keys[key] if key in snapshot.keys else _spilled_key(session, snapshot, key)


def dropped_at(session: TableContext, snapshot: Snapshot, key: str | None) -> int:
    """The version at which a rewind or a rollback invalidated this key; 0: it is recorded, or
    unknown. [KY7]"""
    record = find_record(session, snapshot, key) if key is not None else None
    return record.version if record is not None and not record.digest else 0


def find_key_at(session: TableContext, head: Head, key: str) -> tuple[Head, KeyRecord | None]:
    """The record of a key at this head; at a newer one if gc has run twice since and deleted its
    runs. [KY1] [RD3]"""
    return _at(session, head, lambda snapshot: find_key(session, snapshot, key))


def _spilled_key(session: TableContext, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The newest record in the runs. A key that was invalidated, and perhaps committed again, is in
    several runs. [OB11]"""
    absent = session.absent_keys.setdefault(key, set())
    newest: KeyRecord | None = None
    for run in snapshot.key_runs:
        if run.path in absent:
            continue
        row = session.manifests.lookup((run,), key, KEY_RUN)
        if row is None:
            absent.add(run.path)
        elif newest is None or int(str(row["version"])) > newest.version:
            newest = KeyRecord(version=int(str(row["version"])), digest=str(row["digest"]))
    return newest


def find_job(
    session: TableContext, snapshot: Snapshot, job: str, *, runs: bool = True
) -> tuple[JobState | None, int | None]:
    """The record of a job, inlined or (with `runs`) spilled: its state and the version that carries
    it. [CM1]"""
    return session.manifests.job(snapshot, job, runs=runs)


def find_job_at(
    session: TableContext, head: Head, job: str
) -> tuple[Head, tuple[JobState | None, int | None]]:
    """The record of a job at this head; at a newer one if its runs are gone, as for a key. [CM1]
    [RD3]"""
    return _at(session, head, lambda snapshot: find_job(session, snapshot, job))


def _at(
    session: TableContext, head: Head, look: Callable[[Snapshot], _Found]
) -> tuple[Head, _Found]:
    while True:
        try:
            with raise_if_expired(session.store, head.version):
                return head, look(head.snapshot)
        except SnapshotExpiredError:
            head = session.open()

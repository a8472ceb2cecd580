"""What the chain records of a key and of a job, in the head or in the runs that it spilled. [KY1] [CM1]

Not here: what follows from it (engine.commit).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

from ..core.snapshot import KeyRecord, Snapshot, job_state
from ..errors import SnapshotExpiredError
from .head import Head, while_readable
from .manifests import JOB_RUN, KEY_RUN
from .session import Session

JobState: TypeAlias = Literal["committed", "given_up"]
_Found = TypeVar("_Found")


def find_key(session: Session, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The record of a key, inlined or spilled; None: never committed, dropped or forgotten. Asks no run twice that lacks it. [KY1] [WM5]"""
    record = snapshot.keys[key] if key in snapshot.keys else _spilled_key(session, snapshot, key)
    return record if record is not None and record.digest else None


def find_key_at(session: Session, head: Head, key: str) -> tuple[Head, KeyRecord | None]:
    """The record of a key at this head, or at a newer one where its runs are gone because two gcs went by since it was read. [KY1] [RD3]"""
    return _at(session, head, lambda snapshot: find_key(session, snapshot, key))


def _spilled_key(session: Session, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The newest record in the runs: one that was dropped, and perhaps committed again, stands in several. [OB11]"""
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


def find_job(session: Session, snapshot: Snapshot, job: str, *, runs: bool = True) -> tuple[JobState | None, int | None]:
    """What the chain records of a job, inlined or (with `runs`) spilled: its state and the version that carries it. [CM1]"""
    if (state := job_state(snapshot, job)) is not None:
        return state, snapshot.recent_jobs[job]
    row = session.manifests.lookup(snapshot.job_runs, job, JOB_RUN) if runs else None
    if row is None:
        return None, None
    return ("given_up", None) if row["version"] is None else ("committed", int(str(row["version"])))


def find_job_at(session: Session, head: Head, job: str) -> tuple[Head, tuple[JobState | None, int | None]]:
    """What the chain records of a job at this head, or at a newer one where its runs are gone, as for a key. [CM1] [RD3]"""
    return _at(session, head, lambda snapshot: find_job(session, snapshot, job))


def _at(session: Session, head: Head, look: Callable[[Snapshot], _Found]) -> tuple[Head, _Found]:
    while True:
        try:
            with while_readable(session.store, head.version):
                return head, look(head.snapshot)
        except SnapshotExpiredError:
            head = session.open()

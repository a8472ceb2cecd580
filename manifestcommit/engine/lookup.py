"""What the chain records of a key and of a job, in the head or in the runs that it spilled. [KY1] [CM1]

Not here: what follows from it (engine.commit).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..core.snapshot import KeyRecord, Snapshot, job_state
from .manifests import JOB_RUN, KEY_RUN
from .session import Session

JobState: TypeAlias = Literal["committed", "given_up"]


def find_key(session: Session, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The record of a key, inlined or spilled; None: never committed, or forgotten. Asks no run twice for the same key. [KY1]"""
    if key in snapshot.keys:
        return snapshot.keys[key]
    asked = session.absent_keys.setdefault(key, set())
    runs = [run for run in snapshot.key_runs if run.path not in asked]
    row = session.manifests.lookup(runs, key, KEY_RUN)
    if row is None:
        asked.update(run.path for run in runs)
        return None
    return KeyRecord(version=int(str(row["version"])), digest=str(row["digest"]))


def find_job(session: Session, snapshot: Snapshot, job: str, *, runs: bool = True) -> tuple[JobState | None, int | None]:
    """What the chain records of a job, inlined or (with `runs`) spilled: its state and the version that carries it. [CM1]"""
    if (state := job_state(snapshot, job)) is not None:
        return state, snapshot.recent_jobs[job]
    row = session.manifests.lookup(snapshot.job_runs, job, JOB_RUN) if runs else None
    if row is None:
        return None, None
    return ("given_up", None) if row["version"] is None else ("committed", int(str(row["version"])))

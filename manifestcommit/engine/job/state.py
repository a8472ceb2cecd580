"""The states of a job in its own process and the acts that lead from one to another, as data.
[CM10] [AB1] [AB3]

Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class JobState(enum.Enum):
    """Where a job is; the value continues the sentence "this job …"."""

    OPEN = "is open"
    CHANGING = "changes rows of its table in a transaction, which allows one change"
    ENDED = "was committed or refused"
    SEALED = "may have been prepared, and others may finish it: prepare it again to be sure"
    PREPARED = "was prepared: commit it or abort it by its id"
    ABORTED = "was aborted"


class Act(enum.Enum):
    """What is done with a job."""

    WORK = "declare or write"
    CHANGE = "change rows in place of what it would write"
    COMMIT = "commit"
    RETRY = "commit again"
    SEAL = "begin to prepare"
    PREPARE = "prepare"
    ABORT = "abort"


NEXT: Mapping[tuple[JobState, Act], JobState] = {
    (JobState.OPEN, Act.WORK): JobState.OPEN,
    (JobState.OPEN, Act.COMMIT): JobState.ENDED,
    (JobState.OPEN, Act.SEAL): JobState.SEALED,
    (JobState.OPEN, Act.ABORT): JobState.ABORTED,
    # A change of rows takes the job's place, and its transaction says how that ends.
    (JobState.OPEN, Act.CHANGE): JobState.CHANGING,
    (JobState.CHANGING, Act.ABORT): JobState.ABORTED,
    # A failed commit may be repeated; whatever of it landed counts.
    (JobState.ENDED, Act.RETRY): JobState.ENDED,
    (JobState.ENDED, Act.ABORT): JobState.ENDED,
    # From the first request on, the same bytes only.
    (JobState.SEALED, Act.SEAL): JobState.SEALED,
    (JobState.SEALED, Act.PREPARE): JobState.PREPARED,
    (JobState.PREPARED, Act.SEAL): JobState.SEALED,
    (JobState.ABORTED, Act.ABORT): JobState.ABORTED,
}


def after(state: JobState, act: Act) -> JobState | None:
    """The state that the act leads to; None where the job does not allow it."""
    return NEXT.get((state, act))

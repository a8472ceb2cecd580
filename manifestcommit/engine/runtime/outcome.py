"""Outcomes of a commit as values, and the exceptions that the public API raises for them. [CM10]"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...core.commit.conflict import Conflict
from ...errors import (
    CommitConflictError,
    JobAbortedError,
    JobFencedError,
    KeyReusedError,
    ManifestCommitError,
    OutcomeUnknownError,
    WatermarkError,
    WatermarkGapError,
    WatermarkMismatchError,
    WatermarkOverlapError,
)
from ...terminal.notebook import Shown, line
from .job_metrics import JobMetrics

Kind = Literal[
    "committed",
    "already_committed",
    "conflict",
    "key_reused",
    "fenced",
    "aborted",
    "unknown",
    "unchanged",
    "planned",
    "pending",
]


class Outcome(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job.

    Attributes:
        kind: "committed", "already_committed", or why it is not committed: "conflict",
            "key_reused", "fenced", "aborted" or "unknown"; public calls raise an error for these.
            "unchanged" where mode="ignore" found a table. `RowOutcome` also has "planned" and
            "pending".
        job_id: the job's id.
        version: the version that holds the job; None: none does, or the table has forgotten which.
            Of a job that was prepared with others, the table that decides may remember longer.
        attempts: how many creates of a version were tried; 0 is possible where a group commit
            included the job.
        conflict: the conflict; None: there was none.
        reason: why it is not committed, a text; empty where it is.
        dropped_keys: the idempotency keys that a rewind or a rollback invalidated.
        metrics: this call in numbers; None: they were not measured.

    Spec: CM10.
    """

    kind: Kind
    job_id: str
    version: int | None = None
    attempts: int = 0
    conflict: Conflict | None = None
    reason: str = ""
    dropped_keys: tuple[str, ...] = ()
    metrics: JobMetrics | None = None

    def __repr__(self) -> str:
        metrics, conflict = self.metrics, self.conflict
        members = {
            "kind": self.kind,
            "version": self.version,
            "conflict": conflict.rule if conflict else None,
            "reason": self.reason,
            "rows": metrics.rows_committed or None if metrics else None,
            "files": metrics.files_committed or None if metrics else None,
            "dropped_keys": self.dropped_keys,
            "attempts": self.attempts,
            "seconds": metrics.seconds if metrics else None,
        }
        return line("Outcome", members.items())

    @property
    def committed(self) -> bool:
        """Return whether the table holds the job's work, by this call or an earlier one."""
        return self.kind in ("committed", "already_committed")

    @property
    def already_committed(self) -> bool:
        """Return whether an earlier run committed the same work; then this one did nothing."""
        return self.kind == "already_committed"


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one of several jobs.

    Attributes:
        url: the table path.
        job_id: the job's id; empty: it has none yet.
        key: its idempotency key; None: it has none.
        outcome: its outcome; None: it is not decided.
        error: why it is not committed and must run again; None: it is committed.
        tries: how often it was tried.
    """

    url: str
    job_id: str
    key: str | None = None
    outcome: Outcome | None = None
    error: ManifestCommitError | None = None
    tries: int = 1


class JobResults(tuple[JobResult, ...]):
    """One result for each of several jobs, in their order, as a tuple; no job delayed another."""

    @property
    def committed(self) -> tuple[JobResult, ...]:
        """Return the results of the jobs that need not run again."""
        return tuple(
            result for result in self if result.outcome is not None and result.outcome.committed
        )

    @property
    def failed(self) -> tuple[JobResult, ...]:
        """Return the results of the jobs that must run again, with the same keys."""
        return tuple(result for result in self if result.error is not None)


_WATERMARK_ERRORS: dict[str, type[WatermarkError]] = {
    "gap": WatermarkGapError,
    "overlap": WatermarkOverlapError,
    "mismatch": WatermarkMismatchError,
}


def error_of(outcome: Outcome, url: str) -> ManifestCommitError | None:
    """The exception for this outcome; None: it is committed. [CM10] [CF1]"""
    if outcome.committed:
        return None
    if outcome.conflict is not None:
        return _conflict_error(outcome.conflict, url)
    if outcome.kind == "key_reused":
        return KeyReusedError(f"{url}: {outcome.reason}")
    if outcome.kind == "fenced":
        return fenced_error(url, outcome.job_id)
    if outcome.kind == "aborted":
        return JobAbortedError(
            f"{url}: job {outcome.job_id} was aborted and cannot commit; nothing of it is "
            "visible. Run it again."
        )
    return OutcomeUnknownError(
        f"{url}: it is not known whether job {outcome.job_id} was committed: {outcome.reason}. "
        f"Nothing was deleted. Ask resolve({url!r}, {outcome.job_id!r}) before you run it again; a "
        "rerun with the same key is always safe.",
        job_id=outcome.job_id,
    )


def fenced_error(url: str, job: str) -> JobFencedError:
    """The error of a job whose base version is below the fence. [CM2]"""
    return JobFencedError(
        f"{url}: job {job} began before the table's fence and was not committed; nothing of it is "
        "visible. Run it again: a new job reads the table afresh. A longer grace period in gc lets "
        "longer jobs finish."
    )


def committed_or_raise(outcome: Outcome, url: str) -> Outcome:
    """Return the outcome of a commit; raise the exception for any other. [CM10]"""
    error = error_of(outcome, url)
    if error is not None:
        raise error
    return outcome


def _conflict_error(conflict: Conflict, url: str) -> ManifestCommitError:
    misfit = conflict.misfit
    if misfit is None:
        rerun = " Read the table again and run the job again if its result still holds."
        if conflict.rule == "undoes_a_joint_commit":  # no rerun helps, and `winner` says what does
            rerun = ""
        return CommitConflictError(
            f"{url}: this job {conflict.mine}, but {conflict.winner} (rule {conflict.rule}). "
            f"Nothing of it was committed.{rerun}",
            rule=conflict.rule,
            mine=conflict.mine,
            winner=conflict.winner,
        )
    what, remedy = {
        "gap": ("committing would skip the rows between", ", or commit the rows between first"),
        "overlap": (
            "committing would duplicate rows",
            "; to read rows again, rewind the source and overwrite them",
        ),
        "mismatch": ("opaque positions must be equal", ""),
    }[misfit.kind]
    done = f"Begin at {misfit.have!r}{remedy}."
    if misfit.all_covered:
        done = "Every range of this job is in the table already, so a rerun may treat it as done."
    return _WATERMARK_ERRORS[misfit.kind](
        f"{url}: source {misfit.source!r} is at {misfit.have!r}, this job starts at "
        f"{misfit.want!r}: {what}. Nothing was committed. {done}",
        source=misfit.source,
        have=misfit.have,
        want=misfit.want,
        all_covered=misfit.all_covered,
    )

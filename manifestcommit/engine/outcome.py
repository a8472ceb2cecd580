"""Outcomes of a commit as values, and the exceptions that they become at the library's surface. [CM10]

Not here: how an outcome is reached (engine.commit).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..core.conflict import Conflict
from ..errors import (
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
from .figures import Figures

Kind = Literal["committed", "already_committed", "conflict", "key_reused", "fenced", "aborted", "unknown", "unchanged", "planned"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job. version: the one that carries it; attempts: creates tried, perhaps none where others carried it; conflict:
    where there was one; dropped_keys: those whose work a rewind has made undone; figures: this call in numbers. [CM10]"""

    kind: Kind
    job_id: str
    version: int | None = None
    attempts: int = 0
    conflict: Conflict | None = None
    reason: str = ""
    dropped_keys: tuple[str, ...] = ()
    figures: Figures | None = None

    @property
    def committed(self) -> bool:
        """Whether the table holds the job's work, by this call or an earlier one."""
        return self.kind in ("committed", "already_committed")

    @property
    def already_committed(self) -> bool:
        """Whether an earlier run had committed the same work, so that this one did nothing."""
        return self.kind == "already_committed"


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one of several jobs: outcome where it is decided, error where it is not. tries: how often it was tried."""

    url: str
    job_id: str
    key: str | None = None
    outcome: Outcome | None = None
    error: ManifestCommitError | None = None
    tries: int = 1


class JobResults(tuple[JobResult, ...]):
    """One result for each of several jobs, none of which has held up another."""

    @property
    def committed(self) -> tuple[JobResult, ...]:
        """Those that need not be done again."""
        return tuple(result for result in self if result.outcome is not None and result.outcome.committed)

    @property
    def failed(self) -> tuple[JobResult, ...]:
        """Those that are to be done again, with the same keys."""
        return tuple(result for result in self if result.error is not None)


_WATERMARK_ERRORS: dict[str, type[WatermarkError]] = {
    "gap": WatermarkGapError,
    "overlap": WatermarkOverlapError,
    "mismatch": WatermarkMismatchError,
}


def error_of(outcome: Outcome, url: str) -> ManifestCommitError | None:
    """The exception that tells this outcome, or None for a commit. [CM10] [CF1]"""
    if outcome.committed:
        return None
    if outcome.conflict is not None:
        return _conflict_error(outcome.conflict, url)
    if outcome.kind == "key_reused":
        return KeyReusedError(f"{url}: {outcome.reason}")
    if outcome.kind == "fenced":
        return JobFencedError(
            f"{url}: job {outcome.job_id} began before the table's fence and was not committed; nothing of it is visible. "
            "Run it again: a new job reads the table afresh. A longer grace period in gc lets longer jobs finish."
        )
    if outcome.kind == "aborted":
        return JobAbortedError(f"{url}: job {outcome.job_id} was given up and cannot commit; nothing of it is visible. Run it again.")
    return OutcomeUnknownError(
        f"{url}: it is not known whether job {outcome.job_id} was committed: {outcome.reason}. Nothing was deleted. "
        f"Ask resolve({url!r}, {outcome.job_id!r}) before you run it again; a rerun with the same key is always safe.",
        job_id=outcome.job_id,
    )


def committed_or_raise(outcome: Outcome, url: str) -> Outcome:
    """The outcome of a commit; any other as the exception that tells it. [CM10]"""
    error = error_of(outcome, url)
    if error is not None:
        raise error
    return outcome


def _conflict_error(conflict: Conflict, url: str) -> ManifestCommitError:
    misfit = conflict.misfit
    if misfit is None:
        return CommitConflictError(
            f"{url}: this job {conflict.mine}, but {conflict.winner} (rule {conflict.rule}). Nothing of it was committed. "
            "Read the table again and run the job anew if its result still holds.",
            rule=conflict.rule,
            mine=conflict.mine,
            winner=conflict.winner,
        )
    what, way_out = {
        "gap": ("committing would lose what lies between", ", or commit what lies between first"),
        "overlap": ("committing would double what lies between", "; what is to be read again needs a rewind first, and an overwrite"),
        "mismatch": ("opaque positions must be equal", ""),
    }[misfit.kind]
    done = f"Begin at {misfit.have!r}{way_out}."
    if misfit.all_covered:
        done = "Every range of this job is in the table already, so a rerun may treat it as done."
    return _WATERMARK_ERRORS[misfit.kind](
        f"{url}: source {misfit.source!r} stands at {misfit.have!r}, this job starts at {misfit.want!r}: {what}. "
        f"Nothing was committed. {done}",
        source=misfit.source,
        have=misfit.have,
        want=misfit.want,
        all_covered=misfit.all_covered,
    )

"""Outcomes of a commit as values, and the exceptions that the public API raises for them. [CM10]"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from .. import errors
from ..display import ReprMixin, line
from ..format.entries import Entry, ManifestRef
from ..format.snapshot import Summary, totals_of
from ..protocol.conflict import Conflict, Violation
from ..store import Store

# Metrics of a job: what it read, wrote, committed and cost.

Phase = Literal["both", "first", "second"]
_NO_SUMMARY = Summary()
_Held = Literal["committed", "already_committed", "unchanged", "planned", "pending"]
_Refused = Literal["conflict", "key_reused", "fenced", "aborted", "unknown"]
Kind = Literal[_Held, _Refused]
# the error of each kind of mismatch, what a commit would do, and what else helps
_WATERMARK_ERRORS: dict[str, tuple[type[errors.WatermarkError], str, str]] = {
    "gap": (
        errors.WatermarkGapError,
        "committing would skip the rows between",
        ", or commit the rows between first",
    ),
    "overlap": (
        errors.WatermarkOverlapError,
        "committing would duplicate rows",
        "; to read rows again, rewind the source and overwrite them",
    ),
    "mismatch": (errors.WatermarkMismatchError, "positions that are texts must be equal", ""),
}


class InputTotals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task attempt's input: rows and their Arrow bytes; retries: of its requests."""

    rows: int = 0
    bytes: int = 0
    retries: int = 0

    def __add__(self, other: InputTotals) -> InputTotals:
        return InputTotals(
            rows=self.rows + other.rows,
            bytes=self.bytes + other.bytes,
            retries=self.retries + other.retries,
        )


class JobMetrics(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """A job in numbers; if all is well, the rows read, written and committed are equal.

    Attributes:
        table: the table path.
        job: the job's id.
        kind: as in `Outcome`, but "already_committed" whenever this call changed nothing; also
            "running", "prepared", "aborted", "left" (for its rerun), and "failed" for a commit that
            raised an error.
        phase: which part of the job this call was: "both", or of two phases the "first" or the
            "second".
        operation: what the job does, such as "append"; empty: it was not looked up.
        rule: the name of the conflict rule; empty: there was no conflict.
        version: the version that holds the job; None: none does.
        rows_read: the rows of the job's input; None: its tasks did not report them.
        bytes_read: the bytes of the input, in Arrow's form or as files; None: as for `rows_read`.
        files_written: the files of the committed task attempts.
        rows_written: the rows in these files.
        bytes_written: the bytes of these files.
        files_committed: the files that this call made visible.
        rows_committed: the rows that this call made visible.
        bytes_committed: the bytes that this call made visible.
        tasks: how many tasks wrote.
        attempts: how many creates of a version were tried.
        conflicts: how many of these versions other writers created.
        retries: how many requests were repeated.
        unknowns: how many creates of a version had an ambiguous response.
        seconds: the time since the job began; of a second phase, since that began.
        commit_s: the seconds that the commit took.
        prepare_s: the seconds that the first of two phases took.

    Spec: OB10.
    """

    table: str
    job: str
    kind: str
    phase: Phase = "both"
    operation: str = ""
    rule: str = ""
    version: int | None = None
    rows_read: int | None = None
    bytes_read: int | None = None
    files_written: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    files_committed: int = 0
    rows_committed: int = 0
    bytes_committed: int = 0
    tasks: int = 0
    attempts: int = 0
    conflicts: int = 0
    retries: int = 0
    unknowns: int = 0
    seconds: float = 0.0
    commit_s: float = 0.0
    prepare_s: float = 0.0


class StoreCounters:
    """Counts a session's requests, and tells the time."""

    def __init__(self, store: Store, now_us: Callable[[], int]) -> None:
        self.store, self.now_us = store, now_us
        self.attempts = self.conflicts = self.unknowns = 0
        self.resent = 0  # creates, which the store does not repeat by itself

    def since(self, start: Summary = _NO_SUMMARY) -> Summary:
        """The counts since `start`."""
        return Summary(
            attempts=self.attempts - start.attempts,
            conflicts=self.conflicts - start.conflicts,
            retries=self.resent + self.store.retries - start.retries,
            unknowns=self.unknowns - start.unknowns,
        )


class WriteTotals:
    """What a job was handed, and what it has cost since it began."""

    def __init__(self, tally: StoreCounters, began_us: int | None = None) -> None:
        """began_us: when the job began, if that was in another process."""
        self._tally, self._start = tally, tally.since()
        self._began_us = tally.now_us() if began_us is None else began_us
        self._intake: InputTotals | None = InputTotals()

    def take(self, intake: InputTotals | None) -> None:
        """Add what tasks were handed; None: unknown, which makes the job's total unknown."""
        self._intake = None if intake is None or self._intake is None else self._intake + intake

    def summary(
        self, tasks: int, entries: Sequence[Entry], manifests: Sequence[ManifestRef] = ()
    ) -> Summary:
        """What is known before the commit. entries, manifests: all that was written. [OB10]"""
        spent, written = self._tally.since(self._start), totals_of(entries, manifests)
        intake = self._intake
        return Summary(
            rows_read=intake.rows if intake else None,
            bytes_read=intake.bytes if intake else None,
            files_written=written.files,
            rows_written=written.rows,
            bytes_written=written.bytes,
            tasks=tasks,
            seconds=round(max(0, self._tally.now_us() - self._began_us) / 1e6, 6),
            retries=spent.retries + (intake.retries if intake else 0),
            unknowns=spent.unknowns,
        )


class Meter:
    """Measures one commit from here on. summary: what the job has done before."""

    def __init__(
        self,
        tally: StoreCounters,
        job: str,
        operation: str = "",
        summary: Summary = _NO_SUMMARY,
        phase: Phase = "both",
    ) -> None:
        self._tally, self._phase = tally, phase
        self._job, self._operation, self._given = job, operation, summary
        self._start, self._began_us = tally.since(), tally.now_us()
        self._tried: Summary | None = None
        self._is_mine = False
        self.ended: JobMetrics | None = None

    def learn(self, operation: str, summary: Summary) -> None:
        """Set the operation and the earlier work of the job, if they had to be read first."""
        self._operation, self._given = operation, summary

    @property
    def elapsed_s(self) -> float:
        """Seconds so far, by a clock that may have been set meanwhile."""
        return max(0, self._tally.now_us() - self._began_us) / 1e6

    def summary(self) -> Summary:
        """The summary of the job for the next create. [OB10]"""
        spent = self._tally.since(self._start)
        return msgspec.structs.replace(
            self._given,
            attempts=spent.attempts,
            conflicts=spent.conflicts,
            retries=self._given.retries + spent.retries,
            unknowns=self._given.unknowns + spent.unknowns,
            seconds=round(self._given.seconds + self.elapsed_s, 6),
        )

    def tried(self, summary: Summary, *, is_mine: bool) -> None:
        """Record that a create was sent; is_mine: this call is known to have created it."""
        self._tried = summary
        self._is_mine |= is_mine

    def end(
        self, kind: str, *, version: int | None = None, rule: str = "", shared: bool = False
    ) -> JobMetrics:
        """Return the metrics and report them. shared: others may have committed the job as well."""
        done = self._tried if kind == "committed" and (self._is_mine or not shared) else None
        told = "already_committed" if kind == "committed" and done is None else kind
        self.ended = self.metrics(told, version=version, rule=rule, committed=done)
        report(self.ended)
        return self.ended

    def metrics(
        self,
        kind: str,
        *,
        version: int | None = None,
        rule: str = "",
        committed: Summary | None = None,
    ) -> JobMetrics:
        """The metrics so far."""
        given, spent, elapsed_s = self._given, self._tally.since(self._start), self.elapsed_s
        # the first phase has been reported
        before = Summary() if self._phase == "second" else given
        done = committed or Summary()
        stopped = kind in ("running", "left") or (kind == "aborted" and not spent.attempts)
        commits = self._phase != "first" and not stopped
        return JobMetrics(
            table=self._tally.store.url,
            job=self._job,
            kind=kind,
            phase=self._phase,
            operation=self._operation,
            rule=rule,
            version=version,
            rows_read=given.rows_read,
            bytes_read=given.bytes_read,
            files_written=given.files_written or 0,
            rows_written=given.rows_written or 0,
            bytes_written=given.bytes_written or 0,
            files_committed=done.files,
            rows_committed=done.rows,
            bytes_committed=done.bytes,
            tasks=given.tasks,
            attempts=spent.attempts,
            conflicts=spent.conflicts,
            retries=before.retries + spent.retries,
            unknowns=before.unknowns + spent.unknowns,
            seconds=round(before.seconds + elapsed_s, 6),
            commit_s=round(elapsed_s, 6) if commits else 0.0,
            prepare_s=round(elapsed_s, 6) if self._phase == "first" else given.prepare_s,
        )


Observer = Callable[[JobMetrics], None]
# called for every job that ends in this process
observers: list[Observer] = []


def report(metrics: JobMetrics) -> None:
    """Call all observers; an error in one cannot make a commit that took place look failed."""
    for observer in tuple(observers):
        with contextlib.suppress(Exception):
            observer(metrics)


class Outcome(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
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
        members = {
            "kind": self.kind,
            "version": self.version,
            "conflict": self.conflict.rule if self.conflict else None,
            "reason": self.reason,
            **self._counts(),
            "dropped_keys": self.dropped_keys,
            "attempts": self.attempts,
            "seconds": self.metrics.seconds if self.metrics else None,
        }
        return line(type(self).__name__, members.items())

    def _counts(self) -> dict[str, int | None]:
        """What the job did, in numbers that are worth a look."""
        if (metrics := self.metrics) is None:
            return {}
        return {"rows": metrics.rows_committed or None, "files": metrics.files_committed or None}

    @property
    def committed(self) -> bool:
        """Return whether the table holds the job's work, by this call or an earlier one."""
        return self.kind in ("committed", "already_committed")

    @property
    def already_committed(self) -> bool:
        """Return whether an earlier run committed the same work; then this one did nothing."""
        return self.kind == "already_committed"


def error_of(outcome: Outcome, url: str) -> errors.ManifestCommitError | None:
    """The exception for this outcome; None: it is committed. [CM10] [CF1]"""
    if outcome.committed:
        return None
    if outcome.conflict is not None:
        return _conflict_error(outcome.conflict, url)
    if outcome.kind == "key_reused":
        return errors.KeyReusedError(f"{url}: {outcome.reason}")
    if outcome.kind == "fenced":
        return fenced_error(url, outcome.job_id)
    if outcome.kind == "aborted":
        return errors.JobAbortedError(
            f"{url}: job {outcome.job_id} was aborted and cannot commit; nothing of it is "
            "visible. Run it again."
        )
    return errors.OutcomeUnknownError(
        f"{url}: it is not known whether job {outcome.job_id} was committed: {outcome.reason}. "
        f"Nothing was deleted. Ask resolve({url!r}, {outcome.job_id!r}) before you run it again; a "
        "rerun with the same key is always safe.",
        job_id=outcome.job_id,
    )


def fenced_error(url: str, job: str) -> errors.JobFencedError:
    """The error of a job whose base version is below the fence. [CM2]"""
    return errors.JobFencedError(
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


def constraint_error(url: str, found: Violation, *, is_new: bool = False) -> errors.ConstraintError:
    """The error of rows that violate a constraint. is_new: it was to be added. [CK2] [CK3]"""
    files = f", in {', '.join(found.files)}" if found.files else ""
    remedy = (
        "Nothing was committed. Correct or leave out these rows; if they are right, "
        f"Table.drop_constraint({found.constraint!r}) drops the constraint."
    )
    if is_new:
        remedy = (
            "The table has these rows, and the constraint was not added. Correct them (Table.update"
            ") or delete them (Table.delete) first."
        )
    such = f", such as {'; '.join(found.examples)}" if found.examples else ""
    return errors.ConstraintError(
        f"{url}: {found.count} the constraint {found.constraint!r} ({found.condition}){such}{files}"
        f". {remedy}",
        constraint=found.constraint,
        violations=found.rows,
        examples=found.examples,
    )


def _conflict_error(conflict: Conflict, url: str) -> errors.ManifestCommitError:
    if conflict.violation is not None:
        return constraint_error(url, conflict.violation)
    mismatch = conflict.mismatch
    if mismatch is None:
        rerun = " Read the table again and run the job again if its result still holds."
        if conflict.rule in ("undoes_a_joint_commit", "constrained_column_is_gone"):
            rerun = ""  # no rerun helps, and `winner` says what does
        elif conflict.rule == "table_exists":
            rerun = " Give mode='append' to add to it."
        return errors.CommitConflictError(
            f"{url}: this job {conflict.mine}, but {conflict.winner} (rule {conflict.rule}). "
            f"Nothing of it was committed.{rerun}",
            rule=conflict.rule,
            mine=conflict.mine,
            winner=conflict.winner,
        )
    kind, what, remedy = _WATERMARK_ERRORS[mismatch.kind]
    done = f"Begin at {mismatch.have!r}{remedy}."
    if mismatch.all_covered:
        done = "Every range of this job is in the table already, so a rerun may treat it as done."
    return kind(
        f"{url}: source {mismatch.source!r} is at {mismatch.have!r}, this job starts at "
        f"{mismatch.want!r}: {what}. Nothing was committed. {done}",
        source=mismatch.source,
        have=mismatch.have,
        want=mismatch.want,
        all_covered=mismatch.all_covered,
    )

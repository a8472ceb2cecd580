"""What a job took in, wrote, committed and cost, in numbers. For people and monitoring: no rule reads any of it. [OB10]

Not here: how figures leave the process (telemetry), how a table stands (engine.standing), whether all counts match (engine.counts).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ..core.manifest import Entry, ManifestRef
from ..core.snapshot import Summary
from ..store import Store, retries_of

Phase = Literal["both", "first", "second"]


class Intake(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task attempt was handed: rows and their Arrow bytes; retries: how often its requests had to be sent again."""

    rows: int = 0
    bytes: int = 0
    retries: int = 0

    def __add__(self, other: Intake) -> Intake:
        return Intake(rows=self.rows + other.rows, bytes=self.bytes + other.bytes, retries=self.retries + other.retries)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A job in numbers. Read, written and committed are equal, rows for rows, where all is well. [OB10]

    kind: as in `Outcome`, but "already_committed" wherever this call changed nothing; besides "running", "prepared", "abandoned", "left"
    (for its rerun), and "failed" for a commit that raised; phase: "both", or which of two this call was; operation: empty where it was
    not looked up; rule: of a conflict; table: the root's URL.
    *_read: what the job was handed, as rows (bytes as Arrow holds them) or as files; None where its tasks did not say; *_written: the
    files of the task attempts that count; *_committed: what this very call made visible.
    attempts: versions contended for; conflicts: those that others won; unknowns: creates of versions without a clear answer; retries:
    requests that were sent again; seconds: from begin on, the second phase from its own start on; commit_s, prepare_s: of these calls.
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


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What has been counted between two moments."""

    attempts: int = 0
    conflicts: int = 0
    retries: int = 0
    unknowns: int = 0


class Tally:
    """Counts what goes on in one session; it only ever grows, and whoever wants the counts of one piece of work takes a difference."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.attempts = self.conflicts = self.unknowns = 0
        self.resent = 0  # creates, which the store does not repeat by itself

    def since(self, start: Counts = Counts()) -> Counts:  # noqa: B008  # it is frozen
        """What was counted after `start`."""
        return Counts(
            attempts=self.attempts - start.attempts,
            conflicts=self.conflicts - start.conflicts,
            retries=self.resent + retries_of(self._store) - start.retries,
            unknowns=self.unknowns - start.unknowns,
        )


class Ledger:
    """What a job has taken in and written since it began."""

    def __init__(self, tally: Tally, now_us: Callable[[], int], *, began_us: int | None = None) -> None:
        """began_us: when the job began, if that was in another process."""
        self._tally, self._now_us = tally, now_us
        self._start, self._began_us = tally.since(), now_us() if began_us is None else began_us
        self._intake: Intake | None = Intake()
        self._files = self._rows = self._bytes = 0

    def take(self, entries: Sequence[Entry], manifests: Sequence[ManifestRef], intake: Intake | None) -> None:
        """These files are the job's. intake: of the tasks that wrote them; None where they did not say, and then the job cannot either."""
        self._intake = None if intake is None or self._intake is None else self._intake + intake
        self._files += len(entries) + sum(ref.files for ref in manifests)
        self._rows += sum(entry.rows for entry in entries) + sum(ref.rows for ref in manifests)
        self._bytes += sum(entry.bytes for entry in entries) + sum(ref.data_bytes for ref in manifests)

    def summary(self, tasks: int) -> Summary:
        """What is known before the commit. [OB10]"""
        spent = self._tally.since(self._start)
        intake = self._intake
        return Summary(
            rows_read=intake.rows if intake else None,
            bytes_read=intake.bytes if intake else None,
            files_written=self._files,
            rows_written=self._rows,
            bytes_written=self._bytes,
            tasks=tasks,
            seconds=round(max(0, self._now_us() - self._began_us) / 1e6, 6),
            retries=spent.retries + (intake.retries if intake else 0),
            unknowns=spent.unknowns,
        )


class Meter:
    """Measures one commit from here on. summary: what the job has done before."""

    def __init__(
        self, tally: Tally, now_us: Callable[[], int], *, table: str, job: str, operation: str, summary: Summary, phase: Phase
    ) -> None:
        self._tally, self._now_us = tally, now_us
        self._table, self._job, self._operation, self._given, self._phase = table, job, operation, summary, phase
        self._start, self._began_us = tally.since(), now_us()
        self._tried: Summary | None = None
        self._is_mine = False
        self.ended: Figures | None = None

    def learn(self, operation: str, summary: Summary) -> None:
        """What the job is and has done before, where that had to be read first."""
        self._operation, self._given = operation, summary

    @property
    def elapsed_s(self) -> float:
        """Seconds so far, by a clock that may have been set meanwhile."""
        return max(0, self._now_us() - self._began_us) / 1e6

    def summary(self) -> Summary:
        """What the next create can say of the job. [OB10]"""
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
        """A create with this summary has been sent; is_mine: the version is known to be this call's."""
        self._tried = summary
        self._is_mine |= is_mine

    def end(self, kind: str, *, version: int | None = None, rule: str = "", shared: bool = False) -> Figures:
        """The figures, which are also reported. shared: others may have committed the job as well."""
        done = self._tried if kind == "committed" and (self._is_mine or not shared) else None
        told = "already_committed" if kind == "committed" and done is None else kind
        self.ended = self.figures(told, version=version, rule=rule, committed=done)
        report(self.ended)
        return self.ended

    def figures(self, kind: str, *, version: int | None = None, rule: str = "", committed: Summary | None = None) -> Figures:
        """As of now."""
        given, spent, elapsed_s = self._given, self._tally.since(self._start), self.elapsed_s
        before = Summary() if self._phase == "second" else given  # the first phase has been reported
        done = committed or Summary()
        commits = self._phase != "first" and kind not in ("running", "abandoned", "left")
        return Figures(
            table=self._table,
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


Observer = Callable[[Figures], None]
observers: list[Observer] = []  # told of every job that ended in this process; each figure stands for itself


def report(figures: Figures) -> None:
    """Tell all observers; none of them can make a commit that took place look like one that failed."""
    for each in tuple(observers):
        with contextlib.suppress(Exception):
            each(figures)

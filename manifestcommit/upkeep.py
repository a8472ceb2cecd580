"""`maintain`: does for tables what is due, by their own figures, and says why. [UK1]-[UK5]

Internal: import from `manifestcommit`. It keeps no state and only calls the operations of `Table`,
so that a run may be killed, overlap another one, or be missed for a month.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from . import errors
from .catalog.lake import Lake, marker_at
from .commits.prepared_job import read_prepared
from .commits.two_phase import JobInfo
from .display import counted
from .errors import ManifestCommitError
from .format.object_names import parse_job_id
from .format.snapshot import Snapshot, is_standby
from .job import Path
from .log.table_context import EXPORT_FORMATS
from .operations.upkeep_properties import MAINTAIN_STEPS, STEPS, retention_of, sorting_of, steps_of
from .protocol.compaction_plan import DEFAULT_MAX_BYTES
from .protocol.retention import DAY_S
from .runtime.environment import Env
from .runtime.validation import checked, parse_age, roots, wrong
from .store import StorageOptions, open_store
from .table.table import Table

LOG = logging.getLogger("manifestcommit.jobs")
MIN_FILES = 8  # small files, or manifests, that are worth a rewrite
_GC_EVERY_S, _IDLE_GC_EVERY_S = DAY_S, 7 * DAY_S
ROWS = pa.schema(
    [
        ("table", pa.string()),
        ("step", pa.string()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("result", pa.string()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
Progress = Callable[[str], None]


def some_tables(name: str, value: Any) -> list[Any]:
    """Tables and lakes: one, or several, each by its path or as an object."""
    found = roots(name, value)
    several = found if isinstance(found, list) else [found]
    if not all(isinstance(each, str | os.PathLike | Table | Lake) for each in several):
        raise wrong(name, value, "a path, a Table, a Lake, or several of them", "'s3://lake'")
    return several


def _found(given: Path | Table | Lake, options: StorageOptions) -> list[Table]:
    """The table, or the tables below a lake or a path that is no table. [LK1] [UK1]"""
    if isinstance(given, Table):
        return [given]
    if isinstance(given, Lake):
        path, options = given.url, StorageOptions(given._options)
    else:
        path = os.fspath(given)
    store, urls = open_store(path, options), []
    with contextlib.suppress(errors.StoreError):  # the path's own row has the error
        if not marker_at(store):
            urls = Lake(store, options).tables().column("url").to_pylist()
    # a path without any table may be a mistake, and its row says so; a lake may be empty
    return [Table(url, options) for url in urls or ([] if isinstance(given, Lake) else [path])]


@checked(tables=some_tables)
def maintain(
    tables: Path | Table | Lake | Iterable[Path | Table | Lake],
    *,
    max_time: str | dt.timedelta | None = None,
    max_bytes: int | str = DEFAULT_MAX_BYTES,
    dry_run: bool = False,
    progress: Progress | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Run what is due for each table: exports, compaction, manifests, verification and gc.

    What is due follows from the table alone: its small files, its manifests, the age of the
    versions above the fence, its exports, and its properties `gc.*` and `maintain.steps`. Nothing
    is kept elsewhere, so that calls may overlap, be killed, or be missed for a month. Appends are
    never in its way, nor it in theirs; it compacts nothing that a prepared job would replace. gc
    runs once a day, after a verification that found no damage.

    Args:
        tables: a table path, a `Table`, a prefix of tables such as `lake` takes, a `Lake`, or
            several of these. The order of tables is another one in each call, so that none waits
            for ever behind the others.
        max_time: begin no step, and end one between two of its commits, after this time: a
            timedelta or a text such as "30m"; by default there is no limit.
        max_bytes: how many bytes compaction may rewrite in all tables together, or a text such as
            "10GB"; by default 64 GiB. What is left is due in the next call.
        dry_run: only say what is due, and why; by default False.
        progress: called with what is done next; by default nothing is.
        message: as for `write`, for each commit; by default why the step is due.
        metadata: as for `write`, likewise; by default none.
        storage_options: what reaches the object store of the tables; by default the environment.

    Returns:
        A row for each table and step: `table`, `step`, `state`, `reason`, `result`, `bytes` (that
        are rewritten or deleted) and `seconds`. `state` is "done", "not due", "due" (in a dry run),
        "left" (time or bytes are used up), "waits" (for a job, or others were faster: the next call
        does it) or "failed" (`result` says why; other tables and steps go on). A table that cannot
        be opened has one row, whose step is "open".

    Raises:
        UsageError: an argument is wrong.
        UnsafeStoreError: a store has no put-if-absent.

    Example:
        `mc.maintain("s3://lake", max_time="30m", dry_run=True)`

    Spec: UK1, UK2, UK3, UK4, UK5.
    """
    assert isinstance(max_bytes, int)  # `checked` has made bytes of it
    budget = _Budget(None if max_time is None else parse_age(max_time, "max_time"), max_bytes)
    note = {"message": message, "metadata": metadata}
    run = _Run(budget, progress or (lambda _: None), note, is_dry=dry_run)
    assert isinstance(tables, list)  # `checked` has made one of them
    options = StorageOptions(storage_options)
    by_url = {table.url: table for given in tables for table in _found(given, options)}
    urls = list(by_url)
    order = random.sample(urls, len(urls))  # two calls at once begin with other tables
    found = {url: run.table(by_url.pop(url)) for url in order}
    rows = [row for url in urls for row in found[url]]
    return pa.Table.from_pylist(rows, ROWS)


_RACES = (errors.CommitConflictError, errors.JobFencedError, errors.OutcomeUnknownError)


class _OutOfTimeError(Exception):
    """Ends a step between two of its commits; it never leaves `maintain`."""


class _Budget:
    """Time and bytes that a call may use."""

    def __init__(self, seconds: float | None, left_bytes: int) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self.left_bytes = left_bytes

    def check(self) -> None:
        """_OutOfTimeError once the time is used up. [UK4]"""
        if self._end is not None and time.monotonic() >= self._end:
            raise _OutOfTimeError


class _Due(NamedTuple):
    """Whether a step is due, and why. state: "due", "not due", "waits" or "left"."""

    state: str
    reason: str
    bytes: int = 0


class _Done(NamedTuple):
    """What a step did. bytes: that were rewritten or deleted."""

    result: str
    bytes: int = 0
    failed: bool = False


class _Run:
    """One call."""

    def __init__(
        self, budget: _Budget, progress: Progress, note: Mapping[str, Any], *, is_dry: bool
    ) -> None:
        self.budget, self._progress, self._note, self.is_dry = budget, progress, note, is_dry

    def table(self, table: Table) -> list[dict[str, Any]]:
        """The rows of one table. An error of one step or table holds up no other. [UK5]"""
        try:
            upkeep = _Upkeep(table, self)
        except ManifestCommitError as error:
            failed = _Due("failed", "it cannot be opened"), _Done(str(error), failed=True)
            return [_row(table.url, "open", *failed, seconds=0.0)]
        rows = []
        for step in STEPS:
            began = time.monotonic()
            due, done = self._step(upkeep, step)
            row = _row(table.url, step, due, done, seconds=time.monotonic() - began)
            upkeep.states[step] = row["state"]
            rows.append(row)
            if done is not None:
                LOG.info("%r: %s: %s: %s", table.url, step, row["state"], done.result)
        return rows

    def _step(self, upkeep: _Upkeep, step: str) -> tuple[_Due, _Done | None]:
        due = _Due("left", "the time is used up")
        try:
            self.budget.check()
            due = _Due("failed", "it is not known whether it is due")
            due = upkeep.due(step)
            if due.state != "due" or self.is_dry:
                return due, None
            done = upkeep.do(step, self.note(due.reason))
        except _OutOfTimeError:
            return _Due("left", due.reason), _Done("the time is used up; the next call goes on")
        except _RACES as error:
            return _Due("waits", due.reason), _Done(f"others were faster; the next call: {error}")
        except ManifestCommitError as error:
            return _Due("failed", due.reason), _Done(str(error), failed=True)
        return _Due("done", due.reason), done

    def note(self, reason: str) -> dict[str, Any]:
        """What the commits of a step say."""
        return {**self._note, "message": self._note["message"] or f"upkeep: {reason}"}

    def progress(self, url: str) -> Progress:
        """A function that says what is done next, or ends the step: the time is used up. [UK4]"""

        def tell(text: str) -> None:
            self.budget.check()
            self._progress(f"{url}: {text}")

        return tell


def _row(url: str, step: str, due: _Due, done: _Done | None, *, seconds: float) -> dict[str, Any]:
    return {
        "table": url,
        "step": step,
        "state": "failed" if done is not None and done.failed else due.state,
        "reason": due.reason,
        "result": "" if done is None else done.result,
        "bytes": due.bytes if done is None else done.bytes,
        "seconds": round(seconds, 3),
    }


class _Upkeep:
    """What is due for one table, and the calls that do it."""

    def __init__(self, table: Table, run: _Run) -> None:
        self._table, self._run, self._snapshot = table, run, table.snapshot()
        self.states: dict[str, str] = {}
        self._read: dict[int, Snapshot] = {}
        self._planned = 0  # bytes that compaction is to rewrite
        self._say = run.progress(table.url)

    def due(self, step: str) -> _Due:
        """Whether a step is due, by what the table is since its last step. [UK2]"""
        if step not in steps_of(self._snapshot.properties):
            return _Due("not due", f"the property {MAINTAIN_STEPS} leaves it out")
        if step in ("compact", "manifests", "gc") and is_standby(self._snapshot):
            return _Due("not due", "it is a clone, which `clone` keeps as its source is")
        due: _Due = getattr(self, f"_due_{step}")(self._snapshot)
        return due

    def do(self, step: str, note: Mapping[str, Any]) -> _Done:
        """Take a step, by the operation that the table has for it. [UK1]"""
        done: _Done = getattr(self, f"_do_{step}")(note)
        self._snapshot = self._table.snapshot()
        return done

    # exports

    def _behind(self) -> dict[str, int | None]:
        lags = self._table.metrics().export_lag
        return {format: lag for format, lag in lags.items() if lag != 0}

    def _due_export(self, snapshot: Snapshot) -> _Due:
        if EXPORT_FORMATS not in snapshot.properties:
            return _Due("not due", f"the table has no property {EXPORT_FORMATS}")
        behind = self._behind()
        if not behind:
            return _Due("not due", "each export shows the newest version")
        parts = [
            f"{format} has none" if lag is None else f"{format} is {counted(lag, 'version')} behind"
            for format, lag in behind.items()
        ]
        return _Due("due", ", ".join(parts))

    def _do_export(self, note: Mapping[str, Any]) -> _Done:
        made, failed = [], []
        for format in self._behind():
            try:
                made.append(f"{format} shows version {self._table.export(format).version}")
            except ManifestCommitError as error:
                failed.append(f"{format}: {error}")
        return _Done("; ".join([*made, *failed]), failed=bool(failed))

    # compaction

    def _due_compact(self, snapshot: Snapshot) -> _Due:
        left = self._run.budget.left_bytes
        plan = self._table.plan_compaction(min_files=MIN_FILES, max_bytes=max(1, left))
        rows = plan.select(["action", "files", "bytes"]).to_pylist()
        groups = [row for row in rows if row["action"] != "merge"]
        fields, passed_over = sorting_of(snapshot)
        by, unsorted = ",".join(field.name for field in fields), passed_over and f"; {passed_over}"
        if not groups:
            why = f"no partition has {MIN_FILES} small files that are worth one"
            why += f", nor as many that are not sorted by {by}" if by else ""
            why += f", of {counted(snapshot.totals.files, 'file')}{unsorted}"
            return _Due("not due", why)
        files, size = sum(row["files"] for row in groups), sum(row["bytes"] for row in groups)
        reason = f"{counted(files, 'small file')} can become {len(groups):,}{unsorted}"
        if by:
            reason = f"{counted(files, 'file')}, small or not sorted by {by}, can be sorted"
        if job := self._replaces_files():
            return _Due("waits", f"{reason}, and job {job} is prepared to replace files", size)
        if all(row["action"] == "left" for row in groups):
            least = min(row["bytes"] for row in groups)
            why = f"the smallest group has {least:,} bytes, and {left:,} are left"
            return _Due("left", f"{reason}; {why}", size)
        self._planned = sum(row["bytes"] for row in groups if row["action"] == "rewrite")
        return _Due("due", reason, size)

    def _replaces_files(self) -> str | None:
        """A prepared job that could not commit where compaction was faster. [UK3]"""
        for job in self._waiting():
            prepared = read_prepared(self._table._ctx, job.job)
            if prepared and (prepared.change.remove or prepared.change.overwrite is not None):
                return job.job
        return None

    def _waiting(self) -> list[JobInfo]:
        return [job for job in self._table.jobs() if job.state == "prepared"]

    def _do_compact(self, note: Mapping[str, Any]) -> _Done:
        budget = self._run.budget
        most = budget.left_bytes
        budget.left_bytes -= self._planned  # an error may come after some commits
        made = self._table.noting(**note).compact(
            min_files=MIN_FILES, max_bytes=most, progress=self._say
        )
        budget.left_bytes = most - made.bytes_before
        parts = [f"{counted(made.files_before, 'file')} became {made.files_after:,}"]
        if made.lost_groups:
            parts.append(f"others changed {counted(made.lost_groups, 'group')} meanwhile")
        if made.left_groups:
            parts.append(f"{counted(made.left_groups, 'group')} left for the next call")
        return _Done("; ".join(parts), made.bytes_before)

    def _due_manifests(self, snapshot: Snapshot) -> _Due:
        if self.states.get("compact") == "done":
            return _Due("not due", "compaction has merged them")
        merges = self._table.plan_compaction(only_manifests=True).column("files").to_pylist()
        if sum(merges) >= MIN_FILES or 1 in merges:
            return _Due("due", f"{counted(sum(merges), 'manifest')} can become {len(merges):,}")
        what = counted(len(snapshot.manifests), "manifest")
        return _Due("not due", f"no {MIN_FILES} small manifests can become fewer, of {what}")

    def _do_manifests(self, note: Mapping[str, Any]) -> _Done:
        made = self._table.noting(**note).compact(only_manifests=True, progress=self._say)
        before = counted(made.manifests_before, "manifest")
        return _Done(f"{before} became {made.manifests_after:,}")

    # verification and gc

    def _due_gc(self, snapshot: Snapshot) -> _Due:
        due, verified = self._gc(snapshot), self.states["verify"]
        if due.state == "due" and self._run.is_dry:
            dead = self._table.plan_gc().filter(pc.field("action") == "delete")
            size = pc.sum(dead.column("bytes")).as_py() or 0
            what = f"{due.reason}; {counted(len(dead), 'object')} would be deleted"
            return _Due("due", what, size)
        if "verify" not in steps_of(snapshot.properties):
            verified = "done"  # as far as the table's owner is concerned
        if due.state != "due" or verified == "done":
            return due
        if verified == "failed":
            return _Due("waits", "verify failed: nothing is deleted from a damaged table")
        return _Due(verified, f"{due.reason}; verify comes first")

    def _due_verify(self, snapshot: Snapshot) -> _Due:
        due = self._gc(snapshot)
        return due._replace(reason=f"before gc: {due.reason}") if due.state == "due" else due

    def _gc(self, snapshot: Snapshot) -> _Due:
        """gc is due once the oldest version that no gc has judged is a day older than the grace
        period; a week, where only gc has committed since. [UK2]"""
        policy, first = retention_of(snapshot), _first_above_fence(snapshot)
        oldest = self._version(snapshot, first)
        is_idle = first == snapshot.version and _is_of_gc(snapshot)
        now_s = Env().now_us() / 1e6
        age_s = now_s - oldest.committed_at / 1e6
        due_s = policy.grace_s + (_IDLE_GC_EVERY_S if is_idle else _GC_EVERY_S)
        if snapshot.version < first or age_s < due_s:
            most = f"younger than {due_s / DAY_S:g} days"
            return _Due("not due", f"the versions after the fence, {snapshot.fence}, are {most}")
        for job in self._waiting():
            is_young = job.since > now_s - policy.prepared_grace_s
            if is_young and parse_job_id(job.job).birth <= snapshot.fence:
                return _Due("waits", f"job {job.job} is prepared, and holds the fence")
        what = counted(snapshot.version - snapshot.fence, "version")
        return _Due("due", f"{what} after version {snapshot.fence}, {age_s / DAY_S:.1f} days old")

    def _version(self, snapshot: Snapshot, version: int) -> Snapshot:
        """A version, or the newest where that one is no state of the table."""
        if version >= snapshot.version:
            return snapshot
        if version not in self._read:  # verification and gc ask for the same one
            try:
                self._read[version] = self._table.snapshot(version=version)
            except errors.VersionNotFoundError:
                return snapshot
        return self._read[version]

    def _do_verify(self, note: Mapping[str, Any]) -> _Done:
        found = self._table.verify(progress=self._say)
        looked = f"{counted(found.versions, 'version')}, {counted(found.files, 'file')}"
        if found.is_sound:
            return _Done(f"whole: {looked}")
        worst = found.findings[0]
        damage = f"{counted(found.damages, 'finding')}, such as {worst.object}: {worst.problem}"
        return _Done(f"damaged: {damage}", failed=True)

    def _do_gc(self, note: Mapping[str, Any]) -> _Done:
        report = self._table.noting(**note).gc(progress=self._say)
        count = sum(each.count for each in report.deleted.values())
        size = sum(each.bytes for each in report.deleted.values())
        kept = f"readable from version {report.expired} on"
        return _Done(f"deleted {counted(count, 'object')}; {kept}", size)


def _first_above_fence(snapshot: Snapshot) -> int:
    """The number of the first version above the fence; some are of no version. [MT8]"""
    void = {*snapshot.void}
    return next(each for each in itertools.count(snapshot.fence + 1) if each not in void)


def _is_of_gc(snapshot: Snapshot) -> bool:
    return bool(snapshot.commits) and all(each.operation == "gc" for each in snapshot.commits)

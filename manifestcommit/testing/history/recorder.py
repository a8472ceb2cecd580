"""Records what a process does to a table, and its results, for a later check of the history.
[IV1]-[IV8]

    recorder = Recorder(folder / "writer-1.jsonl", process="writer 1")
    with recorder.commit("append", adds={"row 7": "day=1"}, key="batch 7") as operation:
        operation.told(mc.write(rows, url, key="batch 7"))
    with recorder.read() as operation:
        snapshot = table.snapshot()
        operation.saw(snapshot.version, items=rows_of(snapshot), watermarks=snapshot.watermarks)

Every operation is written before it begins, and again with its outcome: a process that is killed
leaves one that never returned.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ... import errors
from .operation import ANY_FENCE, EVERYTHING, UNDONE, Operation

REFUSALS: tuple[tuple[type[Exception], str], ...] = (  # error -> the rule that it reports
    (errors.CommitConflictError, "conflict"),
    (errors.ConstraintError, "constraint"),
    (errors.JobFencedError, "fenced"),
    (errors.JobAbortedError, "aborted"),
    (errors.KeyReusedError, "key_reused"),
    (errors.WatermarkGapError, "gap"),
    (errors.WatermarkOverlapError, "overlap"),
    (errors.WatermarkMismatchError, "mismatch"),
    (errors.SchemaMismatchError, "schema"),
)


class Told(Protocol):
    """Results of `mc.write`, `mc.commit` and `job.outcome`."""

    @property
    def version(self) -> int: ...
    @property
    def already_committed(self) -> bool: ...


class Running:
    """An operation in progress, as the blocks of a `Recorder` yield it."""

    def __init__(self, operation: Operation, keep: Callable[[Operation], None]) -> None:
        self.operation = operation
        self._keep = keep

    def note(self, **what: Any) -> None:
        """Record more about it while it runs: its `job`, its `birth`, what it `adds`. This survives
        if the process is killed."""
        self.operation = msgspec.structs.replace(self.operation, **what)
        self._keep(self.operation)

    def told(self, outcome: Told) -> None:
        """Record that it was committed, by this call or by an earlier one of its key."""
        self.committed(outcome.version, already=outcome.already_committed)

    def committed(self, version: int, *, already: bool = False) -> None:
        """The same, without an outcome object."""
        self.note(outcome="already" if already else "committed", version=version)

    def refused(self, error: Exception | str) -> None:
        """Record that it changed nothing and never will, by the error's rule, or by the given one.
        Any other error leaves the outcome unknown."""
        rule = (
            error
            if isinstance(error, str)
            else next((rule for kind, rule in REFUSALS if isinstance(error, kind)), None)
        )
        if isinstance(error, errors.CommitConflictError) and error.rule in UNDONE:
            rule = error.rule
        if rule is not None:
            self.note(outcome="refused", version=None, rule=rule)

    def saw(
        self,
        version: int,
        *,
        items: Iterable[str] | None = None,
        watermarks: Mapping[str, int | str] | None = None,
        constraints: Mapping[str, str] | None = None,
    ) -> None:
        """Record what a read returned."""
        shown = None if items is None else tuple(items)
        self.note(
            outcome="read",
            version=version,
            items=shown,
            watermarks=None if watermarks is None else dict(watermarks),
            constraints=None if constraints is None else dict(constraints),
        )

    def collected(self, version: int, fence: int) -> None:
        """Record what a gc reports: a version with its fence."""
        self.note(outcome="read", version=version, fence=fence)


class Recorder:
    """One process's part of a history, written to a file of JSON lines.

    Every operation is in the file, begun or ended, at whatever moment the process dies. A process
    that restarts continues the file of the dead one; a partial line at its end is dropped.

    Args:
        path: the file; its folder is created.
        process: the name of this process; by default "process" and its number.

    Raises:
        OSError: the file cannot be written.

    Example:
        `with recorder.commit("append", adds={"row 7": "day=1"}) as operation: operation.told(…)`
    """

    def __init__(self, path: Path | str, *, process: str | None = None) -> None:
        self._process = process or f"process {os.getpid()}"
        self._path = os.fspath(path)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        _drop_torn_line(self._file)
        self._mark = secrets.token_hex(4)
        self._count = itertools.count(1)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    @contextlib.contextmanager
    def commit(self, name: str, **what: Any) -> Iterator[Running]:
        """Record a commit, which lasts until the block ends.

        An error that leaves the block records its outcome, and propagates. An error that no commit
        rule raises, or a block that records nothing, leaves the outcome unknown.

        Args:
            name: what it does, for people.
            **what: fields of `Operation`, such as `adds` and `key`.

        Yields:
            The operation: `told(outcome)`, `committed(version)` or `refused(error)` record its
            result, and `note(job=…)` records more about it.

        Raises:
            msgspec.ValidationError: there is no such field, or it has another type.
        """
        with self._recording(name, "unknown", what) as running:
            try:
                yield running
            except Exception as error:
                running.refused(error)
                raise

    @contextlib.contextmanager
    def read(
        self, name: str = "read", *, at: int | None = None, joint: str = ""
    ) -> Iterator[Running]:
        """Record a read, which lasts until the block ends.

        Args:
            name: what it does, for people; by default "read".
            at: the version that is requested; by default the latest.
            joint: the same in every table that is read together with this one; by default "".

        Yields:
            The operation: `saw(version, items=…, watermarks=…)` records what was read.

        Raises:
            msgspec.ValidationError: `at` is no whole number, or `joint` no text.
        """
        with self._recording(name, "failed", {"at": at, "joint": joint}) as running:
            yield running

    @contextlib.contextmanager
    def gc(self, *, forgets: bool = True) -> Iterator[Running]:
        """Record a gc, which lasts until the block ends.

        Until it reports, its fence may be anywhere.

        Args:
            forgets: whether the gc may forget keys; by default True.

        Yields:
            The operation: `collected(version, fence)` records what the gc reports.

        Raises:
            OSError: the file cannot be written.
        """
        what = {"fence": ANY_FENCE, "forgets": (EVERYTHING,) if forgets else ()}
        with self._recording("gc", "failed", what) as running:
            yield running

    @contextlib.contextmanager
    def _recording(self, name: str, outcome: str, what: Mapping[str, Any]) -> Iterator[Running]:
        fields = {
            "id": f"{self._process}/{self._mark}-{next(self._count)}",
            "process": self._process,
            "name": name,
            "outcome": outcome,
        }
        operation = msgspec.convert({**what, **fields, "begin": time.monotonic()}, Operation)
        self._write(operation)
        running = Running(operation, self._write)
        try:
            yield running
        finally:
            running.note(end=time.monotonic())

    def _write(self, operation: Operation) -> None:
        os.write(self._file, msgspec.json.encode(operation) + b"\n")


def _drop_torn_line(file: int) -> None:
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.ftruncate(file, os.pread(file, size, 0).rfind(b"\n") + 1)

"""One operation of a run: when it began and ended, what it attempted, and its result. The input of
the history checker. [IV1]-[IV8]

A history is a list of operations, in any order, of any number of processes: a file of JSON lines,
one each. Times are seconds by one clock that all processes share, such as `time.monotonic()` on one
machine, or a simulator's steps. Not here: the checker (testing.history.checker).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ...errors import UsageError

Position: TypeAlias = int | str | None
Outcome: TypeAlias = Literal["committed", "already", "refused", "unknown", "read", "failed"]

EVERYTHING = "*"  # instead of partitions: the whole table; of keys or a job: any
ANY_FENCE = 1 << 62
# rules that only an undoing operation explains
UNDONE = ("source_was_set_back", "key_was_set_back", "stream_was_set_back", "key_is_gone")


class Operation(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A commit or a read. end: absent if it never returned: its process was killed, or is still
    running.

    outcome, with the reported version: `committed`; `already`, by an earlier run of the key, or by
    this one without a response; `refused`, by `rule`, so that nothing of it may ever be seen;
    `unknown`, which is either; `read`; `failed`, a read without a result.

    Of a commit. adds: item -> its partition, an item being whatever reads show (a row, a file), no
    two jobs adding the same; removes: items that it removes, which must exist; compacts: it adds
    the rows that it removes, so readers need not notice; empties: partitions that it empties first,
    or "*"; scope: partitions that nobody may have touched since `birth`, or "*"; advances: source
    -> [start, end], twice the same if it declares that the source begins there; rewinds: source ->
    position; restores: the version that it goes back to; gives_up: the job that it aborts, or "*":
    any. All operations of one `job` are one commit, in any process: one states its effect, all
    state their results. shared: others can finish the job, so a process with a conflict may yet see
    it committed.

    Of a read. at: the requested version, absent: the latest; items, watermarks, origins: what it
    showed, absent if it did not look. A gc is a read of the version that it reports: another gc may
    have decided the same.

    Of either. table: the id of its table, if several existed at the path one after another; fence:
    that of the reported version, ANY_FENCE if there was no response; forgets: keys that may be
    forgotten, or "*": any; keeps: with any, how many of the last keys are not among them.
    """

    id: str
    process: str
    name: str
    begin: float
    end: float | None = None
    outcome: Outcome = "unknown"
    version: int | None = None
    rule: str = ""
    job: str = ""
    shared: bool = False
    birth: int | None = None
    key: str | None = None
    adds: dict[str, str] = {}
    removes: tuple[str, ...] = ()
    compacts: bool = False
    empties: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    advances: dict[str, tuple[Position, int | str]] = {}
    rewinds: dict[str, Position] = {}
    restores: int | None = None
    forgets: tuple[str, ...] = ()
    fence: int | None = None
    gives_up: str = ""
    at: int | None = None
    items: tuple[str, ...] | None = None
    watermarks: dict[str, int | str] | None = None
    origins: dict[str, Position] | None = None
    table: str = ""
    keeps: int = 0

    @property
    def is_read(self) -> bool:
        """Whether it only reads."""
        return self.outcome in ("read", "failed")

    @property
    def is_plain(self) -> bool:
        """Whether it only adds, so that a group commit may carry it together with others. [CM20]"""
        return not (
            self.removes
            or self.empties
            or self.scope
            or self.rewinds
            or self.gives_up
            or self.restores
            or self.fence
        )

    @property
    def is_idle(self) -> bool:
        """Whether its commit is invisible to readers."""
        does = self.adds or self.removes or self.empties or self.advances or self.rewinds
        return not does and self.key is None and self.restores is None

    @property
    def until(self) -> float:
        """The latest time at which it could have had an effect."""
        return (
            float("inf") if self.end is None or self.outcome in ("unknown", "failed") else self.end
        )

    def __str__(self) -> str:
        """One line for people."""
        told = (
            self.outcome
            + (f" at version {self.version}" if self.version is not None else "")
            + (f" ({self.rule})" if self.rule else "")
        )
        ended = "never returned" if self.end is None else f"{self.end:g}"
        return f"{self.begin:g} to {ended}: {self.process}: {self.name} {self.id}: {told}"


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that no order explains, and the operations that show it, in the order in which they
    began."""

    problem: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        """The problem, then a line for each operation."""
        return "\n".join([self.problem, *(f"  {operation}" for operation in self.operations)])


def contradiction(problem: str, *operations: Operation) -> Contradiction:
    """The contradiction that these operations show together, in the order in which they began."""
    return Contradiction(
        problem=problem, operations=tuple(sorted(operations, key=lambda operation: operation.begin))
    )


def read_history(*paths: Path | str) -> list[Operation]:
    """All operations in files of JSON lines; if one occurs more than once, its last record counts.

    An incomplete last line, of a process that was killed while it wrote, is ignored. UsageError if
    no file is given, or a line is not an operation.
    """
    if not paths:
        raise UsageError(
            "no file of a history was given: a pattern may have found none, and of nothing "
            "there is nothing to judge"
        )
    found: dict[str, Operation] = {}
    for path in paths:
        lines = Path(path).read_bytes().splitlines(keepends=True)
        for number, line in enumerate(
            lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines, start=1
        ):
            try:
                operation = msgspec.json.decode(line, type=Operation)
            except msgspec.DecodeError as error:
                raise UsageError(
                    f"{path}, line {number}, is no operation as a Recorder writes it: {error}"
                ) from error
            found[operation.id] = operation
    return list(found.values())


def write_history(path: Path, history: Iterable[Operation]) -> None:
    """The operations as JSON lines."""
    path.write_bytes(b"".join(msgspec.json.encode(operation) + b"\n" for operation in history))

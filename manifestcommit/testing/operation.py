"""One operation of a run: when it began and ended, what it tried, what it was told. The history checker's input. [IV1]-[IV8]

A history is a list of these, in any order, of any number of processes: a file of JSON lines, one each. Times are seconds by one clock
that all of them share, such as `time.monotonic()` on one machine, or a simulator's steps. Not here: the checker (testing.checker).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ..errors import UsageError

Position: TypeAlias = int | str | None
Outcome: TypeAlias = Literal["committed", "already", "refused", "unknown", "read", "failed"]

EVERYTHING = "*"  # in place of partitions: the whole table; of keys or a job: any
ANY_FENCE = 1 << 62


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A commit or a read. end: absent where it never returned: its process was killed, or still runs.

    outcome, with the version that it told: `committed`; `already`, by an earlier run of the key, or by this one, unheard; `refused`, by
    `rule`, so that nothing of it may ever be seen; `unknown`, which is either; `read`; `failed`, a read that told nothing.

    Of a commit. adds: item -> its partition, an item being whatever reads show (a row, a file), no two jobs adding the same;
    removes: items that it takes out, which must be there; compacts: the same rows are in what it adds, so that nobody need have seen it;
    empties: partitions that it empties first, or "*"; scope: partitions that nobody may have touched since `birth`, or "*"; advances:
    source -> [start, end]; rewinds: source -> position; restores: the version that it goes back to; gives_up: the job that it gives up,
    or "*": any. All operations of one `job` are one commit, by whomever: one says what it does, all of them what they were told. shared:
    others can finish the job, so that one who was told of a conflict may yet see it committed.

    Of a read. at: the version that was asked for, the newest where absent; items, watermarks: what it showed, absent where it did
    not look. A gc is a read of the version that it reports: another gc may have decided the same.

    Of either. fence: that of the version told, ANY_FENCE where it went unheard; forgets: keys that nobody need know any more, or "*": any.
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

    @property
    def is_read(self) -> bool:
        """Whether it only looked."""
        return self.outcome in ("read", "failed")

    @property
    def is_plain(self) -> bool:
        """Whether it only adds, so that one version may carry it together with others. [CM20]"""
        return not (self.removes or self.empties or self.scope or self.rewinds or self.gives_up or self.restores or self.fence)

    @property
    def is_idle(self) -> bool:
        """Whether no reader could see that it was committed."""
        does = self.adds or self.removes or self.empties or self.advances or self.rewinds
        return not does and self.key is None and self.restores is None

    @property
    def until(self) -> float:
        """When it could have had an effect at the latest."""
        return float("inf") if self.end is None or self.outcome in ("unknown", "failed") else self.end

    def __str__(self) -> str:
        """One line for people."""
        told = self.outcome + (f" at version {self.version}" if self.version is not None else "") + (f" ({self.rule})" if self.rule else "")
        ended = "never returned" if self.end is None else f"{self.end:g}"
        return f"{self.begin:g} to {ended}: {self.process}: {self.name} {self.id}: {told}"


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """What no order explains, and the operations that show it, in the order in which they began."""

    problem: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        """The problem, then a line for each operation."""
        return "\n".join([self.problem, *(f"  {each}" for each in self.operations)])


def contradiction(problem: str, *operations: Operation) -> Contradiction:
    """What these operations show together, in the order in which they began."""
    return Contradiction(problem=problem, operations=tuple(sorted(operations, key=lambda each: each.begin)))


def read_history(*paths: Path | str) -> list[Operation]:
    """All operations of files of JSON lines; of one that stands there more than once, what was said of it last.

    An incomplete last line, of a process that was killed while it wrote, is passed over. UsageError where no file is given, or a line of
    one is no operation.
    """
    if not paths:
        raise UsageError("no file of a history was given: a pattern may have found none, and of nothing there is nothing to judge")
    found: dict[str, Operation] = {}
    for path in paths:
        lines = Path(path).read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines, start=1):
            try:
                each = msgspec.json.decode(line, type=Operation)
            except msgspec.DecodeError as error:
                raise UsageError(f"{path}, line {number}, is no operation as a Recorder writes it: {error}") from error
            found[each.id] = each
    return list(found.values())


def write_history(path: Path, history: Iterable[Operation]) -> None:
    """The operations as JSON lines."""
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in history))

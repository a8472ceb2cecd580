"""One operation of a run: when it began and ended, what it attempted, and its result. The input of
the history checker. [IV1]-[IV8]

A history is a list of operations, in any order, of any number of processes: a file of JSON lines,
one each. Times are seconds by one clock that all processes share, such as `time.monotonic()` on one
machine, or a simulator's steps.
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
    """One operation of a run: a commit or a read, when it began and ended, and its result.

    All operations of one `job` are one commit, in any process: one states its effect, all state
    their results. A gc is a read of the version that it reports. Items are whatever reads show,
    such as rows or files; no two jobs add the same.

    Attributes:
        id: a text that no other operation of the history has.
        process: the name of its process.
        name: what it did, for people.
        begin: when it began, in seconds by a clock that all processes share.
        end: when it ended; None: it never returned, because its process was killed or still runs.
        outcome: "committed"; "already", by an earlier run of the key, or by this one without a
            response; "refused": nothing of it may ever be seen; "unknown", which is either; "read";
            "failed", a read without a result.
        version: the version that it reported; None: it reported none.
        rule: why it was refused.
        job: the job of a commit; empty: it is a commit of its own.
        shared: whether others can finish the job, so that a process with a conflict may yet see it
            committed.
        birth: the base version of the job; None: unknown.
        key: its idempotency key; None: it has none.
        adds: item -> its partition.
        removes: the items that it removes, which must exist.
        compacts: whether it adds the rows that it removes, so that readers need not notice.
        empties: the partitions that it empties first, or "*" for the whole table.
        scope: the partitions that nobody may have changed since `birth`, or "*".
        advances: source -> its start and end; twice the same: the source begins there.
        rewinds: source -> the position to which it is set back.
        restores: the version to which it rolls back; None: it is no rollback.
        constrains: constraint -> the partition of which it refuses all items; empty: it is
            dropped.
        forgets: the keys that may be forgotten, or "*" for any.
        fence: the fence of the reported version; None: it moves none.
        gives_up: the job that it aborts, or "*" for any.
        at: of a read, the version that was requested; None: the latest.
        items: of a read, what it showed; None: it did not look.
        watermarks: of a read, source -> position; None: it did not look.
        origins: of a read, source -> where it began; None: it did not look.
        constraints: of a read, constraint -> the partition that it refuses; None: it did not
            look.
        keys: of a read, key -> the version that it says recorded it, None: none did; only these
            were looked up.
        table: the id of the table, if several were at the path one after another.
        keeps: how many of the last keys are not forgotten, where `forgets` is "*".
        joint: the same text in the operations, one for each table, that are one joint commit or one
            joint read; empty: it is of one table.
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
    constrains: dict[str, str] = {}
    forgets: tuple[str, ...] = ()
    fence: int | None = None
    gives_up: str = ""
    at: int | None = None
    items: tuple[str, ...] | None = None
    watermarks: dict[str, int | str] | None = None
    origins: dict[str, Position] | None = None
    constraints: dict[str, str] | None = None
    keys: dict[str, int | None] = {}
    table: str = ""
    keeps: int = 0
    joint: str = ""

    @property
    def is_read(self) -> bool:
        """Return whether it only reads."""
        return self.outcome in ("read", "failed")

    @property
    def is_plain(self) -> bool:
        """Return whether it only adds, so that a group commit may include it with others.

        Spec: CM20.
        """
        does = self.removes, self.empties, self.scope, self.rewinds, self.constrains
        return not (any(does) or self.gives_up or self.restores or self.fence)

    @property
    def is_idle(self) -> bool:
        """Return whether its commit is invisible to readers."""
        does = self.adds or self.removes or self.empties or self.advances or self.rewinds
        return not (does or self.constrains) and self.key is None and self.restores is None

    @property
    def is_unclaimed(self) -> bool:
        """Return whether only a reader of the table's history reported its commit.

        It may be any operation whose process died before it learned its job.
        """
        return self.is_idle and self.is_plain and self.birth is None

    @property
    def until(self) -> float:
        """Return the latest time at which it could have had an effect."""
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
    """A problem that no serial order explains; as a text, one line for each operation.

    Attributes:
        problem: what is wrong.
        operations: the operations that show it, in the order in which they began.
    """

    problem: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        """The problem, then a line for each operation."""
        return "\n".join([self.problem, *(f"  {operation}" for operation in self.operations)])


def takes_out(operation: Operation, item: str, partition: str) -> bool:
    """Whether it removes an item of that partition."""
    return item in operation.removes or not {EVERYTHING, partition}.isdisjoint(operation.empties)


def contradiction(problem: str, *operations: Operation) -> Contradiction:
    """The contradiction that these show together, each once, in their order."""
    once = {operation.id: operation for operation in operations}.values()
    return Contradiction(problem=problem, operations=tuple(sorted(once, key=lambda one: one.begin)))


def read_history(*paths: Path | str) -> list[Operation]:
    """Read all operations from files of JSON lines.

    If an operation occurs more than once, its last record counts. An incomplete last line, of a
    process that was killed while it wrote, is ignored.

    Args:
        *paths: the files, as a `Recorder` writes them.

    Returns:
        The operations, in no particular order.

    Raises:
        UsageError: no file is given, or a line is not an operation.
        FileNotFoundError: there is no such file.
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

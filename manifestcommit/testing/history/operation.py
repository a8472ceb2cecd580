from __future__ import annotations

import itertools
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ... import errors
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
        constrains: constraint -> the partition of which it refuses all items; empty: it is dropped.
        forgets: the keys that may be forgotten, or "*" for any.
        fence: the fence of the reported version; None: it moves none.
        gives_up: the job that it aborts, or "*" for any.
        at: of a read, the version that was requested; None: the latest.
        items: of a read, what it showed; None: it did not look.
        watermarks: of a read, source -> position; None: it did not look.
        origins: of a read, source -> where it began; None: it did not look.
        constraints: of a read, constraint -> the partition that it refuses; None: it did not look.
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
        is_open = self.end is None or self.outcome in ("unknown", "failed")
        return float("inf") if is_open or self.end is None else self.end

    def __str__(self) -> str:
        """One line for people."""
        told = self.outcome + (f" at version {self.version}" if self.version is not None else "")
        told += f" ({self.rule})" if self.rule else ""
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
        return "\n".join([self.problem, *(f"  {op}" for op in self.operations)])


def takes_out(op: Operation, item: str, partition: str) -> bool:
    """Whether it removes an item of that partition."""
    return item in op.removes or not {EVERYTHING, partition}.isdisjoint(op.empties)


def contradiction(problem: str, *operations: Operation) -> Contradiction:
    """The contradiction that these show together, each once, in their order."""
    once = {op.id: op for op in operations}.values()
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
        *lines, _ = Path(path).read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                op = msgspec.json.decode(line, type=Operation)
            except msgspec.DecodeError as error:
                what = f"is no operation as a Recorder writes it: {error}"
                raise UsageError(f"{path}, line {number}, {what}") from error
            found[op.id] = op
    return list(found.values())


def write_history(path: Path, history: Iterable[Operation]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(op) + b"\n" for op in history))


# an operation with this outcome, of a job that others can finish, knows of all of them
FOR_EVER = ("aborted", "fenced", *UNDONE)


def unite(
    operations: Sequence[Operation],
) -> tuple[list[Operation], list[Operation], list[Contradiction]]:
    """Of operations in the order in which they began: one commit for each job, and the reads; every
    operation with its own result and its job's effect; jobs with contradictory results. [CM10]"""
    groups: dict[str, list[Operation]] = defaultdict(list)
    for op in operations:
        if op.job and not op.is_read:
            groups[op.job].append(op)
    for op in operations:
        if op.gives_up in groups and op.job != op.gives_up:
            groups[op.gives_up] += _aborting(op)
    commits, told, wrong = list[Operation](), list[Operation](), list[Contradiction]()
    forgets = any(op.forgets for op in operations)
    for op in operations:
        group = groups.get(op.job, [op]) if not op.is_read else [op]
        # The first of the best: an operation that slept until gc had removed what others finished
        # reports other items than were committed.
        does = max(group, key=_says)
        told.append(op if op is does else _with(op, does))
        if op is group[0]:
            wrong += _at_odds(group)
            is_one = len(group) == 1 and op.outcome != "already"
            commits.append(op if is_one else _as_one(group, does, forgets=forgets))
    return commits, told, wrong


def _says(op: Operation) -> tuple[bool, bool, bool]:
    """How much it says of what its job does."""
    return bool(op.adds), not op.is_idle, op.outcome == "committed"


_WHICH = ("id", "process", "name", "begin", "end")  # it was, and when


def _with(op: Operation, does: Operation) -> Operation:
    """This operation's result, with the effect that the other operation states."""
    own = ("outcome", "version", "rule", "shared", "gives_up")
    return msgspec.structs.replace(does, **_of(op, (*_WHICH, *own)))


def _of(op: Operation, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(op, name) for name in names}


def _aborting(op: Operation) -> Iterator[Operation]:
    """What a commit that aborts a job, as one of its own, tells of that job. [AB4]"""
    if op.outcome == "committed":
        yield Operation(
            **_of(op, _WHICH), outcome="refused", rule="aborted", job=op.gives_up, shared=True
        )


def _as_one(group: Sequence[Operation], does: Operation, *, forgets: bool) -> Operation:
    """It began with the operation that says its effect, and ended with the first to know it."""
    told = [op for op in group if op.outcome == "committed"]
    told = told or [op for op in group if is_final(op, group)]
    # once keys may be forgotten, it may be committed at another version than the reported one
    if not told and not forgets:
        told = [op for op in group if op.outcome == "already"]
    begin = min(op.begin for op in group if op is does or op.adds)
    if not told:
        return msgspec.structs.replace(does, begin=begin, outcome="unknown", version=None, rule="")
    first = min(told, key=lambda op: float("inf") if op.end is None else op.end)
    return msgspec.structs.replace(
        does,
        begin=begin,
        end=first.end,
        outcome=first.outcome,
        version=first.version,
        rule=first.rule,
        gives_up="",
    )


def is_final(op: Operation, group: Sequence[Operation]) -> bool:
    """Whether its result says that the job never commits."""
    return op.outcome == "refused" and (op.rule in FOR_EVER or not any(one.shared for one in group))


def _at_odds(group: Sequence[Operation]) -> Iterator[Contradiction]:
    first = next((op for op in group if op.outcome == "committed"), None)
    for op in group if first is not None else ():
        assert first is not None
        known = f"job {op.job} was reported as committed at version {first.version}"
        if op.outcome == "committed" and op.version != first.version:
            yield contradiction(f"{known}, and at version {op.version}", first, op)
        if is_final(op, group):
            yield contradiction(f"{known}, and never to be ({op.rule})", first, op)


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

    def __init__(self, op: Operation, keep: Callable[[Operation], None]) -> None:
        self.operation = op
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
        known = (rule for kind, rule in REFUSALS if isinstance(error, kind))
        rule = error if isinstance(error, str) else next(known, None)
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
        self.note(
            outcome="read",
            version=version,
            items=None if items is None else tuple(items),
            watermarks=None if watermarks is None else dict(watermarks),
            constraints=None if constraints is None else dict(constraints),
        )

    def collected(self, version: int, fence: int) -> None:
        """Record what a gc reports: a version with its fence."""
        self.note(outcome="read", version=version, fence=fence)


class Recorder(AbstractContextManager["Recorder"]):
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

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def commit(self, name: str, **what: Any) -> AbstractContextManager[Running]:
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
        return self._recording(name, "unknown", what)

    def read(
        self, name: str = "read", *, at: int | None = None, joint: str = ""
    ) -> AbstractContextManager[Running]:
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
        return self._recording(name, "failed", {"at": at, "joint": joint})

    def gc(self, *, forgets: bool = True) -> AbstractContextManager[Running]:
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
        return self._recording("gc", "failed", what)

    @contextmanager
    def _recording(self, name: str, outcome: str, what: Mapping[str, Any]) -> Iterator[Running]:
        number = f"{self._process}/{self._mark}-{next(self._count)}"
        fields = {"id": number, "process": self._process, "name": name, "outcome": outcome}
        op = msgspec.convert({**what, **fields, "begin": time.monotonic()}, Operation)
        self._write(op)
        running = Running(op, self._write)
        try:
            yield running
        except Exception as error:
            if outcome == "unknown":  # a commit
                running.refused(error)
            raise
        finally:
            running.note(end=time.monotonic())

    def _write(self, op: Operation) -> None:
        os.write(self._file, msgspec.json.encode(op) + b"\n")


def _drop_torn_line(file: int) -> None:
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.ftruncate(file, os.pread(file, size, 0).rfind(b"\n") + 1)

"""Checks a history: is there a serial order, consistent with real time, that explains every result?
If not, it returns the shortest contradiction. [IV1]-[IV8]

    found = check(read_history(*folder.glob("*.jsonl")))
    assert found is None, found

All operations of one job are one commit (testing.history.commit_groups). Commits are ordered by the
versions that they reported. Those with unknown outcome are tried wherever a version has room for
them, or as never committed. An operation spans its beginning to its end; an operation that ended
before another began comes first. Versions that no operation reports count as commits that changed
nothing (of tags, of gc).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from .commit_groups import United, unite
from .operation import Contradiction, Operation, contradiction
from .refusals import unexplained_refusals
from .serial_order import Search


def check(history: Iterable[Operation]) -> Contradiction | None:
    """Find the shortest contradiction of the history of one table path.

    There is none if a serial order explains every outcome and every read. If several tables were at
    the path one after another, each is explained by itself.

    Args:
        history: the operations of all processes, in any order, as `read_history` returns them.

    Returns:
        The contradiction; None: a serial order explains the history.

    Raises:
        ValueError: the history itself is wrong: an id occurs twice, an operation ends before it
            begins, or two jobs add the same item.
        UndecidedError: too many outcomes are unknown.

    Spec: IV1, IV2, IV3, IV4, IV5, IV6, IV7, IV8.
    """
    operations = sorted(history, key=lambda operation: operation.begin)
    _check_form(operations)
    tables = sorted({operation.table for operation in operations if operation.table})
    found = [
        _shortest([operation for operation in operations if operation.table in ("", table)])
        for table in tables or [""]
    ]
    return min(
        (shown for shown in found if shown is not None),
        key=lambda shown: len(shown.operations),
        default=None,
    )


def _shortest(operations: Sequence[Operation]) -> Contradiction | None:
    united = unite(operations)
    commits = united.commits
    # Contradictions between two or three operations; they hold whatever the order of the others is.
    found = [
        *united.wrong,
        *_against_real_time(commits),
        *_unlike_reads(commits),
        *_never_written(commits),
        *_twice_seen(commits),
    ]
    search = Search(united)
    found = found or list(search.told_alone())
    if not found:
        order = search.run()
        found = [order] if isinstance(order, Contradiction) else list(_refused(united, order))
    return min(found, key=lambda shown: len(shown.operations)) if found else None


def _check_form(operations: Sequence[Operation]) -> None:
    ids = Counter(operation.id for operation in operations)
    items = Counter(
        item
        for item, _ in {
            (item, operation.job or operation.id)
            for operation in operations
            for item in operation.adds
        }
    )
    for what, times in (("the id", ids), ("the item", items)):
        repeated = [name for name, count in times.items() if count > 1]
        if repeated:
            raise ValueError(f"{what} {repeated[0]!r} belongs to two operations")
    for operation in operations:
        if operation.end is not None and operation.end < operation.begin:
            raise ValueError(f"operation {operation.id!r} ends before it begins")
        if (operation.version is None) == (operation.outcome in ("committed", "already", "read")):
            raise ValueError(
                f"operation {operation.id!r}: {operation.outcome} "
                f"{'without a' if operation.version is None else 'with a'} version"
            )


def _against_real_time(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """A version that an operation reported exists from then on: later reads are not older, later
    commits come after it."""
    told = sorted(
        (
            operation
            for operation in operations
            if operation.version is not None and operation.end is not None
        ),
        key=lambda operation: operation.end or 0,
    )
    ends = [operation.end or 0.0 for operation in told]
    highest: list[Operation] = []
    for operation in told:
        highest.append(
            max(highest[-1], operation, key=lambda one: one.version or 0) if highest else operation
        )
    for operation in operations:
        before = bisect_left(ends, operation.begin)
        if before == 0 or operation.version is None:
            continue
        last = highest[before - 1]
        assert last.version is not None
        if (
            operation.outcome == "read"
            and operation.at is None
            and operation.version < last.version
        ):
            problem = (
                f"a stale read: version {operation.version}, when version {last.version} was known "
                "before it began"
            )
            yield contradiction(problem, last, operation)
        if operation.outcome == "committed" and operation.version <= last.version:
            problem = (
                f"version {operation.version} was reported to {operation.id} as its own, and "
                f"version {last.version} was known before it began"
            )
            yield contradiction(problem, last, operation)


def _unlike_reads(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """A version never changes its content."""
    first: dict[int, Operation] = {}
    for operation in operations:
        if operation.outcome != "read" or operation.items is None:
            continue
        other = first.setdefault(operation.version or 0, operation)
        if Counter(other.items) != Counter(operation.items):
            yield contradiction(
                f"two reads of version {operation.version} show different rows", other, operation
            )
        if (
            None not in (other.watermarks, operation.watermarks)
            and other.watermarks != operation.watermarks
        ):
            yield contradiction(
                f"two reads of version {operation.version} show different watermarks",
                other,
                operation,
            )


def _never_written(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """Nobody sees anything that was not committed, or sees it before its writer began, or from a
    writer that learned that nothing was committed."""
    writers = {item: operation for operation in operations for item in operation.adds}
    for operation in operations:
        for item in dict.fromkeys(operation.items or ()):
            writer = writers.get(item)
            if writer is None:
                yield contradiction(
                    f"a read of version {operation.version} shows {item!r}, which nobody wrote",
                    operation,
                )
            elif writer.outcome == "refused":
                yield contradiction(
                    (
                        f"a dirty read: version {operation.version} shows {item!r}, whose writer "
                        "committed nothing"
                    ),
                    writer,
                    operation,
                )
            elif operation.end is not None and operation.end < writer.begin:
                yield contradiction(
                    f"a read of version {operation.version} shows {item!r} before its writer began",
                    writer,
                    operation,
                )


def _twice_seen(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    writers = {item: operation for operation in operations for item in operation.adds}
    for operation in operations:
        if operation.items is not None and len(operation.items) != len(set(operation.items)):
            item = next(item for item, count in Counter(operation.items).items() if count > 1)
            known = [writers[item]] if item in writers else []
            yield contradiction(
                f"doubled: a read of version {operation.version} shows {item!r} more than once",
                *known,
                operation,
            )


def _refused(united: United, order: list[tuple[int, Operation]]) -> Iterator[Contradiction]:
    for problem, operation in unexplained_refusals(united, order):
        yield contradiction(problem, operation)

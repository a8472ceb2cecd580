from __future__ import annotations

import graphlib
import itertools
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .operation import (
    EVERYTHING,
    FOR_EVER,
    UNDONE,
    Contradiction,
    Operation,
    United,
    contradiction,
    unite,
)
from .serial_order import Search

# source -> which operations moved it, and to where
Steps: TypeAlias = dict[str, list[tuple[Operation, object]]]

_ADVANCES = ("gap", "overlap", "mismatch")


def _unexplained_refusals(
    united: United, order: Sequence[tuple[int, Operation]]
) -> Iterator[Contradiction]:
    """Each refusal whose reported reason no commit, certain or possible, explains.

    Refusals by unknown rules need no reason. order: the commits with their versions.
    """
    placed = {operation.id for _, operation in order}
    unplaced = [
        (sys.maxsize, operation)
        for operation in united.commits
        if operation.outcome == "unknown" and operation.id not in placed
    ]
    order = [*order, *unplaced]
    steps = _positions(order)
    commits = sorted(order, key=lambda pair: pair[1].begin)
    begins = [operation.begin for _, operation in commits]
    others = [
        operation
        for operation in united.told
        if operation.fence is not None
        or operation.forgets
        or operation.gives_up
        or operation.rewinds
        or operation.restores
    ]
    for operation in united.told:
        if operation.outcome == "refused":
            # The nearest first: an existing reason is found at once.
            before = reversed(commits[: bisect_left(begins, operation.until)])
            problem = _without_reason(
                operation,
                before,
                [other for other in others if other.begin < operation.until],
                steps,
                order,
            )
            if problem is not None:
                yield contradiction(f"{operation.id} learned {problem}", operation)


def _without_reason(
    operation: Operation,
    before: Iterator[tuple[int, Operation]],
    others: Sequence[Operation],
    steps: Steps,
    order: Sequence[tuple[int, Operation]],
) -> str | None:
    by_gc = any(
        _may_hinder(other, operation) and not _is_before(other, operation) for other in others
    )
    rule = operation.rule
    if (
        rule in ("conflict", "contention")
        and not by_gc
        and all(_is_older(version, other, operation) for version, other in before)
    ):
        return "of a conflict, and nobody committed beside it"
    if rule == "fenced" and not any(_may_fence(other, operation.birth) for other in others):
        return f"that it is fenced, and no gc had put the fence above its birth {operation.birth}"
    # A prepared job that found its key committed holds no work, even once that commit was undone.
    # [AB3]
    if (
        rule == "aborted"
        and not (operation.key and any(other.key == operation.key for _, other in before))
        and not any(_may_give_up(other, operation.job) for other in others)
    ):
        return "that it was aborted, and nobody aborted it"
    if rule == "key_reused" and not any(other.key == operation.key for _, other in before):
        return "that its key is used, and nobody had committed it"
    if rule == "constraint" and not _may_violate(list(before), operation):
        return "that rows violate a constraint, and nobody had added these rows, or that constraint"
    if rule in UNDONE and not any(_may_undo(other, operation) for other in others):
        return f"that what it does was undone since it began ({rule}), and nobody had undone it"
    if rule in _ADVANCES and operation.advances and not _could_misfit(operation, steps, order):
        return f"of a watermark that does not fit ({rule}), and all of its advances did"
    return None


def _may_hinder(gc: Operation, operation: Operation) -> bool:
    """A gc commits nothing readable. But it may remove what a tag names, no rollback goes over its
    version (nor over one in which a job was aborted), and it may forget keys that a rewind
    invalidates. [CF12] [CF13] [WM5]"""
    stops_rollback = operation.restores is not None and (gc.fence is not None or bool(gc.gives_up))
    return (
        stops_rollback
        or (gc.fence is not None and operation.is_idle)
        or bool(gc.forgets and operation.rewinds)
    )


def _may_undo(other: Operation, operation: Operation) -> bool:
    """A rollback may undo anything, a rewind an advance, and gc forgets keys. [WM6] [KY7] [KY8]"""
    if other.outcome == "refused" or _is_older(other.version or sys.maxsize, other, operation):
        return False
    if operation.rule == "source_was_set_back":
        return other.restores is not None or bool(other.rewinds.keys() & operation.advances.keys())
    return (
        other.restores is not None
        or bool(other.rewinds)
        or (operation.rule == "key_is_gone" and bool(other.forgets))
    )


def _may_violate(before: Sequence[tuple[int, Operation]], operation: Operation) -> bool:
    """Whether it adds a constraint and another one the items that this refuses, or the other way
    round, or may have: what a refused one was to add is not known. A constraint that was dropped
    before it began is none any more, unless a rollback may have brought it back. [CK2] [CK3]"""
    gone: dict[str, int] = {}
    if all(other.restores is None for _, other in before):
        for version, other in before:
            if version < sys.maxsize and _is_older(version, other, operation):
                dropped = (name for name, refused in other.constrains.items() if not refused)
                gone |= {name: max(version, gone.get(name, 0)) for name in dropped}
    for version, other in before:
        for adds, writes, at in ((other, operation, version), (operation, other, sys.maxsize)):
            held = {
                each for name, each in adds.constrains.items() if each and at > gone.get(name, 0)
            }
            if held and (not writes.adds or held & {*writes.adds.values()}):
                return True
    return False


def _may_fence(other: Operation, birth: int | None) -> bool:
    return other.fence is not None and (birth is None or other.fence > birth)


def _may_give_up(other: Operation, job: str) -> bool:
    """A rewind or a rollback also aborts the published jobs whose work it undoes. [CM21]"""
    return other.gives_up in (job, EVERYTHING) or bool(other.rewinds) or other.restores is not None


def _is_older(version: int, other: Operation, operation: Operation) -> bool:
    if operation.birth is not None:
        return version <= operation.birth
    return _is_before(other, operation)


def _is_before(other: Operation, operation: Operation) -> bool:
    return other.end is not None and other.end < operation.begin


def _is_settled(other: Operation, operation: Operation) -> bool:
    return other.outcome == "committed" and _is_before(other, operation)


def _positions(order: Sequence[tuple[int, Operation]]) -> Steps:
    """Each source's commits and resulting positions: after a rollback, any position."""
    steps: Steps = {}
    for _, operation in order:
        for source, (_, end) in operation.advances.items():
            steps.setdefault(source, []).append((operation, end))
        for source, to in operation.rewinds.items():
            steps.setdefault(source, []).append((operation, to))
    return steps


def _could_misfit(
    operation: Operation, steps: Steps, order: Sequence[tuple[int, Operation]]
) -> bool:
    """Whether some source was at another position between its beginning and its end."""
    if any(other.restores is not None and other.begin < operation.until for _, other in order):
        return True
    for source, (start, _) in operation.advances.items():
        moved = [
            (other, end) for other, end in steps.get(source, []) if other.begin < operation.until
        ]
        settled = [end for other, end in moved if _is_settled(other, operation)]
        beside = [end for other, end in moved if not _is_settled(other, operation)]
        stood = [*settled[-1:], *beside]
        if any(position != start for position in stood):
            return True
    return False


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
    if not found:
        order = Search(united).run()
        if isinstance(order, Contradiction):
            return order
        found = list(_unexplained_refusals(united, order))
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


class _Commit(NamedTuple):
    """A commit of one table, or a table's part of a joint one."""

    table: str
    job: str


_Part: TypeAlias = tuple[str, Operation]  # table, its operation
# of a serial order: a table and a version, the same for all versions of a joint commit; or a moment
_Place: TypeAlias = tuple[str, float]


def check_joint(histories: Mapping[str, Iterable[Operation]]) -> Contradiction | None:
    """Find a contradiction between the histories of several tables.

    There is none if each joint commit is in all of its tables or in none, each joint read shows it
    in all of the tables that it reads or in none, and one serial order of all commits, consistent
    with real time, has the order of versions of every table. A joint read need not show the same
    moment of all tables. `check_history` judges each of the tables by itself.

    Args:
        histories: name of a table -> its operations, by a clock that all tables share. The
            operations of one joint commit, or of one joint read, have the same `joint`.

    Returns:
        The contradiction; None: there is none.

    Raises:
        ValueError: one `joint` names two commits or two reads of a table, or a job was committed
            together with two jobs of a table.

    Spec: MT1, MT11, MT12.
    """
    operations = {
        table: sorted(each, key=lambda one: one.begin) for table, each in histories.items()
    }
    commits = {
        _Commit(table, one.job or one.id): one
        for table, each in operations.items()
        for one in unite(each).commits
        if not one.is_read
    }
    joint = _joint_commits(operations)
    found = [*_halves(commits, joint), *_torn(commits, joint, operations)]
    found = found or [*_no_serial_order(commits, joint)]
    return min(found, key=lambda shown: len(shown.operations), default=None)


def _joint_commits(operations: Mapping[str, Sequence[Operation]]) -> list[dict[str, _Commit]]:
    """Table -> its part, of each joint commit: what one operation did in several tables, and
    whatever else was done with one of these jobs. [MT11]"""
    named: dict[str, dict[str, _Commit]] = defaultdict(dict)
    for table, each in operations.items():
        for one in each:
            if one.joint and not one.is_read:
                part = _Commit(table, one.job or one.id)
                if named[one.joint].setdefault(table, part) != part:
                    raise ValueError(
                        f"joint={one.joint!r} names two commits of table {table!r}: give each "
                        "joint commit a `joint` of its own"
                    )
    merged: dict[_Commit, dict[str, _Commit]] = {}
    for parts in named.values():
        whole = dict(parts)
        for known in [merged[part] for part in parts.values() if part in merged]:
            for table, part in known.items():
                if whole.setdefault(table, part) != part:
                    raise ValueError(
                        f"job {part.job!r} is recorded as committed together with two jobs of "
                        f"table {table!r}"
                    )
        merged |= dict.fromkeys(whole.values(), whole)
    return list({id(whole): whole for whole in merged.values()}.values())


def _halves(
    commits: Mapping[_Commit, Operation], joint: Sequence[dict[str, _Commit]]
) -> Iterator[Contradiction]:
    for whole in joint:
        parts = [commits[part] for part in whole.values()]
        there = [one for one in parts if one.outcome == "committed"]
        never = [one for one in parts if one.outcome == "refused" and _is_final(one)]
        if there and never:
            yield contradiction(
                "half of a joint commit: it was committed in one of its tables, and never in "
                "another one",
                there[0],
                never[0],
            )


def _is_final(refused: Operation) -> bool:
    return not refused.shared or refused.rule in FOR_EVER


def _torn(
    commits: Mapping[_Commit, Operation],
    joint: Sequence[dict[str, _Commit]],
    operations: Mapping[str, Sequence[Operation]],
) -> Iterator[Contradiction]:
    reads: dict[str, dict[str, Operation]] = defaultdict(dict)
    for table, each in operations.items():
        for one in each:
            if (
                one.joint
                and one.outcome == "read"
                and reads[one.joint].setdefault(table, one) != one
            ):
                raise ValueError(
                    f"joint={one.joint!r} names two reads of table {table!r}: give each joint read "
                    "a `joint` of its own"
                )
    for shown in reads.values():
        for whole in joint:
            there: list[_Part] = []
            lacking: list[_Part] = []
            for table in whole.keys() & shown.keys():
                one, seen = commits[whole[table]], shown[table]
                if one.outcome == "committed":
                    has = (one.version or 0) <= (seen.version or 0)
                elif seen.items is not None and one.adds.keys() & set(seen.items):
                    has = True
                else:
                    continue  # neither version nor items say whether the read shows it
                (there if has else lacking).append((table, one))
            if there and lacking:
                (has_it, one), (lacks_it, other) = min(there), min(lacking)
                yield contradiction(
                    f"a torn read: of a joint commit it shows the part of {has_it!r}, and not "
                    f"that of {lacks_it!r}",
                    one,
                    other,
                    shown[has_it],
                    shown[lacks_it],
                )


def _no_serial_order(
    commits: Mapping[_Commit, Operation], joint: Sequence[dict[str, _Commit]]
) -> Iterator[Contradiction]:
    """No serial order of all commits has the versions of every table in their order, and every
    commit between its beginning and its end."""
    told = {part: one for part, one in commits.items() if one.outcome == "committed"}
    place = {part: (part.table, float(one.version or 0)) for part, one in told.items()}
    one_place = {
        place[part]: place[known[0]]
        for whole in joint
        if (known := [each for each in whole.values() if each in told])
        for part in known
    }
    at = {part: one_place.get(each, each) for part, each in place.items()}
    after: dict[_Place, set[_Place]] = defaultdict(set)
    for table in {part.table for part in told}:
        versions = sorted({each for each in place.values() if each[0] == table})
        for lower, higher in itertools.pairwise(versions):
            after[one_place.get(lower, lower)].add(one_place.get(higher, higher))
    _add_moments(after, [(at[part], one) for part, one in told.items()])
    circle = _circle(after)
    if circle:
        involved = [one for part, one in told.items() if at[part] in circle]
        yield contradiction(
            "no serial order of all tables: the order of versions of one contradicts that of "
            "another, or that in which operations ended and began",
            *involved,
        )


def _add_moments(
    after: dict[_Place, set[_Place]], placed: Sequence[tuple[_Place, Operation]]
) -> None:
    """What began after another operation ended comes after it. Moments are beginnings."""
    begins = sorted({one.begin for _, one in placed})
    for lower, higher in itertools.pairwise(begins):
        after["", lower].add(("", higher))
    for where, one in placed:
        after["", one.begin].add(where)
        later = len(begins) if one.end is None else bisect_right(begins, one.end)
        if later < len(begins):
            after[where].add(("", begins[later]))


def _circle(after: Mapping[_Place, set[_Place]]) -> set[_Place]:
    """Places of which each comes after the next one; empty: there are none."""
    others = {each: following - {each} for each, following in after.items()}
    try:
        graphlib.TopologicalSorter(others).prepare()
    except graphlib.CycleError as error:
        return set(error.args[1])
    return set()

from __future__ import annotations

import graphlib
import itertools
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .operation import EVERYTHING, UNDONE, Contradiction, Operation, contradiction, is_final, unite
from .serial_order import Search

# source -> which operations moved it, and to where
Steps: TypeAlias = dict[str, list[tuple[Operation, object]]]
Order: TypeAlias = Sequence[tuple[int, Operation]]  # commits, with their versions

_ADVANCES = ("gap", "overlap", "mismatch")


def _unexplained_refusals(
    commits: Sequence[Operation], told: Sequence[Operation], order: Order
) -> Iterator[Contradiction]:
    """Each refusal whose reported reason no commit, certain or possible, explains. Refusals by
    unknown rules need no reason."""
    placed = {op.id for _, op in order}
    left = [op for op in commits if op.outcome == "unknown" and op.id not in placed]
    order = [*order, *((sys.maxsize, op) for op in left)]
    steps = _positions(order)
    order = sorted(order, key=lambda pair: pair[1].begin)
    begins = [op.begin for _, op in order]
    others = [op for op in told if op.fence is not None or op.forgets or _undoes(op)]
    for op in told:
        if op.outcome == "refused":
            # The nearest first: an existing reason is found at once.
            before = reversed(order[: bisect_left(begins, op.until)])
            earlier = [other for other in others if other.begin < op.until]
            problem = _without_reason(op, before, earlier, steps, order)
            if problem is not None:
                yield contradiction(f"{op.id} learned {problem}", op)


def _undoes(op: Operation) -> bool:
    return bool(op.gives_up or op.rewinds or op.restores)


def _without_reason(
    op: Operation,
    before: Iterator[tuple[int, Operation]],
    others: Sequence[Operation],
    steps: Steps,
    order: Order,
) -> str | None:
    by_gc = any(_may_hinder(other, op) and not _is_before(other, op) for other in others)
    rule = op.rule
    is_alone = rule in ("conflict", "contention") and not by_gc
    if is_alone and all(_is_older(version, other, op) for version, other in before):
        return "of a conflict, and nobody committed beside it"
    if rule == "fenced" and not any(_may_fence(other, op.birth) for other in others):
        return f"that it is fenced, and no gc had put the fence above its birth {op.birth}"
    # A prepared job that found its key committed holds no work, even once that commit was undone.
    # [AB3]
    has_key = rule in ("aborted", "key_reused") and any(other.key == op.key for _, other in before)
    is_given_up = any(_may_give_up(other, op.job) for other in others)
    if rule == "aborted" and not is_given_up and not (op.key and has_key):
        return "that it was aborted, and nobody aborted it"
    if rule == "key_reused" and not has_key:
        return "that its key is used, and nobody had committed it"
    if rule == "constraint" and not _may_violate(list(before), op):
        return "that rows violate a constraint, and nobody had added these rows, or that constraint"
    if rule in UNDONE and not any(_may_undo(other, op) for other in others):
        return f"that what it does was undone since it began ({rule}), and nobody had undone it"
    if rule in _ADVANCES and op.advances and not _could_misfit(op, steps, order):
        return f"of a watermark that does not fit ({rule}), and all of its advances did"
    return None


def _may_hinder(gc: Operation, op: Operation) -> bool:
    """A gc commits nothing readable. But it may remove what a tag names, no rollback goes over its
    version (nor over one in which a job was aborted), and it may forget keys that a rewind
    invalidates. [CF12] [CF13] [WM5]"""
    if op.restores is not None and (gc.fence is not None or gc.gives_up):
        return True
    return (gc.fence is not None and op.is_idle) or bool(gc.forgets and op.rewinds)


def _may_undo(other: Operation, op: Operation) -> bool:
    """A rollback may undo anything, a rewind an advance, and gc forgets keys. [WM6] [KY7] [KY8]"""
    if other.outcome == "refused" or _is_older(other.version or sys.maxsize, other, op):
        return False
    if op.rule == "source_was_set_back":
        return other.restores is not None or bool(other.rewinds.keys() & op.advances.keys())
    forgot = op.rule == "key_is_gone" and bool(other.forgets)
    return other.restores is not None or bool(other.rewinds) or forgot


def _may_violate(before: Order, op: Operation) -> bool:
    """Whether it adds a constraint and another one the items that this refuses, or the other way
    round, or may have: what a refused one was to add is not known. A constraint that was dropped
    before it began is none any more, unless a rollback may have brought it back. [CK2] [CK3]"""
    gone: dict[str, int] = {}
    if all(other.restores is None for _, other in before):
        for version, other in before:
            if version < sys.maxsize and _is_older(version, other, op):
                dropped = (name for name, refused in other.constrains.items() if not refused)
                gone |= {name: max(version, gone.get(name, 0)) for name in dropped}
    for version, other in before:
        for adds, writes, at in ((other, op, version), (op, other, sys.maxsize)):
            made = adds.constrains.items()
            held = {each for name, each in made if each and at > gone.get(name, 0)}
            if held and (not writes.adds or held & {*writes.adds.values()}):
                return True
    return False


def _may_fence(other: Operation, birth: int | None) -> bool:
    return other.fence is not None and (birth is None or other.fence > birth)


def _may_give_up(other: Operation, job: str) -> bool:
    """A rewind or a rollback also aborts the published jobs whose work it undoes. [CM21]"""
    return other.gives_up in (job, EVERYTHING) or bool(other.rewinds) or other.restores is not None


def _is_older(version: int, other: Operation, op: Operation) -> bool:
    return _is_before(other, op) if op.birth is None else version <= op.birth


def _is_before(other: Operation, op: Operation) -> bool:
    return other.end is not None and other.end < op.begin


def _is_settled(other: Operation, op: Operation) -> bool:
    return other.outcome == "committed" and _is_before(other, op)


def _positions(order: Order) -> Steps:
    """Each source's commits and resulting positions: after a rollback, any position."""
    steps: Steps = {}
    for _, op in order:
        ends = [(source, end) for source, (_, end) in op.advances.items()]
        for source, to in [*ends, *op.rewinds.items()]:
            steps.setdefault(source, []).append((op, to))
    return steps


def _could_misfit(op: Operation, steps: Steps, order: Order) -> bool:
    """Whether some source was at another position between its beginning and its end."""
    if any(other.restores is not None and other.begin < op.until for _, other in order):
        return True
    for source, (start, _) in op.advances.items():
        moved = [(other, end) for other, end in steps.get(source, []) if other.begin < op.until]
        settled = [end for other, end in moved if _is_settled(other, op)]
        beside = [end for other, end in moved if not _is_settled(other, op)]
        if any(position != start for position in [*settled[-1:], *beside]):
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
    operations = sorted(history, key=lambda op: op.begin)
    _check_form(operations)
    tables = sorted({op.table for op in operations if op.table})
    parts = [[op for op in operations if op.table in ("", table)] for table in tables or [""]]
    return _shortest([shown for shown in map(_contradiction_in, parts) if shown is not None])


def _shortest(found: Iterable[Contradiction]) -> Contradiction | None:
    return min(found, key=lambda shown: len(shown.operations), default=None)


def _contradiction_in(operations: Sequence[Operation]) -> Contradiction | None:
    commits, told, wrong = unite(operations)
    # Contradictions between two or three operations; they hold whatever the order of the others is.
    found = [*wrong, *_against_real_time(commits), *_unlike_reads(commits)]
    found += _wrongly_shown(commits)
    if not found:
        order = Search(commits, told).run()
        if isinstance(order, Contradiction):
            return order
        found += _unexplained_refusals(commits, told, order)
    return _shortest(found)


def _check_form(operations: Sequence[Operation]) -> None:
    ids = Counter(op.id for op in operations)
    added = {(item, op.job or op.id) for op in operations for item in op.adds}
    items = Counter(item for item, _ in added)
    for what, times in (("the id", ids), ("the item", items)):
        repeated = [name for name, count in times.items() if count > 1]
        if repeated:
            raise ValueError(f"{what} {repeated[0]!r} belongs to two operations")
    for op in operations:
        if op.end is not None and op.end < op.begin:
            raise ValueError(f"operation {op.id!r} ends before it begins")
        if (op.version is None) == (op.outcome in ("committed", "already", "read")):
            how = "without a" if op.version is None else "with a"
            raise ValueError(f"operation {op.id!r}: {op.outcome} {how} version")


def _against_real_time(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """A version that an operation reported exists from then on: later reads are not older, later
    commits come after it."""
    told = [op for op in operations if op.version is not None and op.end is not None]
    told.sort(key=lambda op: op.end or 0)
    ends = [op.end or 0.0 for op in told]
    highest: list[Operation] = []
    for op in told:
        highest.append(max(highest[-1], op, key=lambda one: one.version or 0) if highest else op)
    for op in operations:
        before = bisect_left(ends, op.begin)
        if before == 0 or op.version is None:
            continue
        last = highest[before - 1]
        assert last.version is not None
        known = f"version {last.version} was known before it began"
        if op.outcome == "read" and op.at is None and op.version < last.version:
            yield contradiction(f"a stale read: version {op.version}, when {known}", last, op)
        if op.outcome == "committed" and op.version <= last.version:
            problem = f"version {op.version} was reported to {op.id} as its own, and {known}"
            yield contradiction(problem, last, op)


def _unlike_reads(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """A version never changes its content."""
    first: dict[int, Operation] = {}
    for op in operations:
        if op.outcome != "read" or op.items is None:
            continue
        other = first.setdefault(op.version or 0, op)
        show = f"two reads of version {op.version} show different"
        if Counter(other.items) != Counter(op.items):
            yield contradiction(f"{show} rows", other, op)
        if None not in (other.watermarks, op.watermarks) and other.watermarks != op.watermarks:
            yield contradiction(f"{show} watermarks", other, op)


def _wrongly_shown(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """Nobody sees anything that was not committed, or sees it before its writer began, or from a
    writer that learned that nothing was committed; and nobody sees it twice."""
    writers = {item: op for op in operations for item in op.adds}
    for op in operations:
        for item, count in Counter(op.items or ()).items():
            writer, shows = writers.get(item), f"version {op.version} shows {item!r}"
            if writer is None:
                yield contradiction(f"a read of {shows}, which nobody wrote", op)
            elif writer.outcome == "refused":
                problem = f"a dirty read: {shows}, whose writer committed nothing"
                yield contradiction(problem, writer, op)
            elif op.end is not None and op.end < writer.begin:
                yield contradiction(f"a read of {shows} before its writer began", writer, op)
            if count > 1:
                doubled = f"doubled: a read of {shows} more than once"
                yield contradiction(doubled, *([writer] if writer else []), op)


class _Commit(NamedTuple):
    """A commit of one table, or a table's part of a joint one."""

    table: str
    job: str


_Commits: TypeAlias = Mapping[_Commit, Operation]
_Joint: TypeAlias = Sequence[dict[str, _Commit]]  # table -> its part, of each joint commit
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
    named = histories.items()
    operations = {table: sorted(each, key=lambda one: one.begin) for table, each in named}
    united = [(table, one) for table, each in operations.items() for one in unite(each)[0]]
    commits = {_Commit(table, one.job or one.id): one for table, one in united if not one.is_read}
    joint = _joint_commits(operations)
    found = [*_halves(commits, joint), *_torn(commits, joint, operations)]
    return _shortest(found or _no_serial_order(commits, joint))


def _joint_commits(operations: Mapping[str, Sequence[Operation]]) -> _Joint:
    """What one operation did in several tables, and whatever else was done with one of these jobs.
    [MT11]"""
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
                    two = f"committed together with two jobs of table {table!r}"
                    raise ValueError(f"job {part.job!r} is recorded as {two}")
        merged |= dict.fromkeys(whole.values(), whole)
    return list({id(whole): whole for whole in merged.values()}.values())


def _halves(commits: _Commits, joint: _Joint) -> Iterator[Contradiction]:
    for whole in joint:
        parts = [commits[part] for part in whole.values()]
        there = [one for one in parts if one.outcome == "committed"]
        never = [one for one in parts if is_final(one, [one])]
        if there and never:
            problem = "it was committed in one of its tables, and never in another one"
            yield contradiction(f"half of a joint commit: {problem}", there[0], never[0])


def _torn(
    commits: _Commits, joint: _Joint, operations: Mapping[str, Sequence[Operation]]
) -> Iterator[Contradiction]:
    reads: dict[str, dict[str, Operation]] = defaultdict(dict)
    for table, each in operations.items():
        for one in each:
            is_joint = one.joint and one.outcome == "read"
            if is_joint and reads[one.joint].setdefault(table, one) != one:
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
                parts = f"the part of {has_it!r}, and not that of {lacks_it!r}"
                problem = f"a torn read: of a joint commit it shows {parts}"
                yield contradiction(problem, one, other, shown[has_it], shown[lacks_it])


def _no_serial_order(commits: _Commits, joint: _Joint) -> Iterator[Contradiction]:
    """No serial order of all commits has the versions of every table in their order, and every
    commit between its beginning and its end."""
    told = {part: one for part, one in commits.items() if one.outcome == "committed"}
    place = {part: (part.table, float(one.version or 0)) for part, one in told.items()}
    one_place: dict[_Place, _Place] = {}
    for whole in joint:
        known = [place[each] for each in whole.values() if each in told]
        one_place |= dict.fromkeys(known, known[0]) if known else {}
    at = {part: one_place.get(each, each) for part, each in place.items()}
    after: dict[_Place, set[_Place]] = defaultdict(set)
    for table in {part.table for part in told}:
        versions = sorted({each for each in place.values() if each[0] == table})
        for lower, higher in itertools.pairwise(versions):
            after[one_place.get(lower, lower)].add(one_place.get(higher, higher))
    _add_moments(after, [(at[part], one) for part, one in told.items()])
    if circle := _circle(after):
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

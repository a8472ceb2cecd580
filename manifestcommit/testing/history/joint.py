"""Checks the histories of several tables together: joint commits are in all of their tables or in
none, joint reads show each of them in all or in none, and one serial order holds for all tables.
[MT1] [MT12]

Each table has a history of its own, by one clock for all. A joint commit, or a joint read, is an
operation in each of its tables, with the same `joint`. Commits take their place by the versions
that they report: one whose version nobody reports is not judged.
"""

from __future__ import annotations

import graphlib
import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .commit_groups import FOR_EVER, unite
from .operation import Contradiction, Operation, contradiction


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

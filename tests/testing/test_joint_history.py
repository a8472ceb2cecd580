"""The checker of several tables together: right histories have no contradiction, and each kind of wrong one has. [MT1] [MT11] [MT12]"""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.kit.histories import op

from manifestcommit.testing import Contradiction, Operation, check_history, check_joint_history

A, B, C = "orders %é", "rejects", "sums"
History = dict[str, list[Operation]]


def joint(
    begin: float, end: float | None, versions: dict[str, int | None], *, outcome: str = "committed", name: str = "", **more: Any
) -> History:
    """One joint commit: table -> its version. name: of its jobs, where it is not its beginning."""
    what = name or f"{begin:g}"
    return {
        table: [
            op("joint", begin, end, outcome, version, id=f"{table} {begin} {outcome}", job=f"{what} {table}", joint=f"{what} at {begin}",
               adds={f"{what} {table}": ""}, **more)
        ]
        for table, version in versions.items()
    }  # fmt: skip


def alone(table: str, begin: float, end: float, version: int) -> History:
    return {table: [op("append", begin, end, "committed", version, id=f"{table} {begin!r}", adds={f"{begin!r} {table}": ""})]}


def read(begin: float, versions: dict[str, int], **items: Sequence[str]) -> History:
    return {
        table: [op("read", begin, begin + 0.5, "read", version, id=f"read {begin!r} {table}", joint=f"read {begin!r}")]
        for table, version in versions.items()
    }


def merged(*histories: History) -> History:
    tables = dict.fromkeys(table for each in histories for table in each)
    return {table: [one for each in histories for one in each.get(table, [])] for table in tables}


def found(*histories: History) -> Contradiction:
    wrong = check_joint_history(merged(*histories))
    assert wrong is not None
    return wrong


def test_what_is_right_has_no_contradiction() -> None:
    """Joint commits beside each other and beside single ones, read between them and by some tables. [MT1] [MT12]"""
    right = merged(
        joint(0, 10, {A: 2, B: 2}), joint(1, 9, {B: 3, C: 2}), alone(A, 2, 8, 3), joint(3, None, {A: None, C: None}, outcome="unknown"),
        joint(11, 12, {C: None, A: None}, outcome="refused", rule="another table"), read(4, {A: 1, B: 1, C: 1}),
        read(5, {A: 3, B: 2, C: 1}), read(6, {A: 1, C: 2}), read(13, {A: 3, B: 3, C: 2}),
    )  # fmt: skip
    assert check_joint_history(right) is None and check_joint_history({}) is None
    assert all(check_history([each for each in own if not each.is_read]) is None for own in right.values())


def test_half_of_a_joint_commit_is_found() -> None:
    """[MT1]"""
    half = joint(0, 1, {A: 2}) | joint(0, 1, {B: None}, outcome="refused", rule="conflict")
    assert "half of a joint commit" in found(half).problem and len(found(half).operations) == 2


def test_prepared_jobs_are_one_commit_whoever_ends_them() -> None:
    """Each knows one of the tables only; what is not final leaves it open. [MT11]"""
    begun = joint(0, 1, {A: None, B: None}, outcome="unknown", name="p", shared=True)
    committed = joint(2, 3, {A: 2}, name="p", shared=True)
    refused = joint(4, 5, {B: None}, outcome="refused", name="p", shared=True, rule="another table")
    aborted = joint(6, 7, {B: None}, outcome="refused", name="p", shared=True, rule="aborted")
    assert check_joint_history(merged(begun, committed, refused)) is None
    once = joint(2, 3, {A: 2}, name="p", shared=True) | joint(
        2, 3, {B: None}, outcome="refused", name="p", shared=True, rule="another table"
    )
    assert check_joint_history(once) is None, "others may have committed it in the other table"
    assert "half of a joint commit" in found(begun, committed, aborted).problem


@pytest.mark.parametrize("versions", [{A: 2, B: 1}, {A: 1, B: 2}, {C: 9, B: 2, A: 1}])
def test_a_torn_read_is_found(versions: dict[str, int]) -> None:
    """[MT12]"""
    wrong = found(joint(0, 1, {A: 2, B: 2}), read(2, versions))
    assert "a torn read" in wrong.problem and len(wrong.operations) == 4


def test_a_read_that_shows_what_nobody_was_told_of_is_torn_too() -> None:
    """Its coordinator died; one table shows its item, and the history of the other has its version. [MT12]"""
    died = joint(0, None, {A: None, B: None}, outcome="unknown", name="d")
    shown = read(2, {A: 5, B: 4})
    shown[A][0] = op("read", 2, 3, "read", 5, joint="read 2", items=(f"d {A}",))
    told = {B: [op("history", 0, 9, "committed", 5, id="told", job=f"d {B}")]}
    assert "a torn read" in found(died, shown, told).problem
    told[B] = [op("history", 0, 9, "committed", 4, id="told", job=f"d {B}")]
    assert check_joint_history(merged(died, shown, told)) is None


def test_two_orders_of_two_tables_are_a_cycle() -> None:
    """[MT1]"""
    wrong = found(joint(0, 9, {A: 2, B: 3}), joint(1, 8, {A: 3, B: 2}))
    assert "no serial order of all tables" in wrong.problem and len(wrong.operations) == 4


def test_a_cycle_through_three_tables_is_found() -> None:
    """[MT1]"""
    three = joint(0, 9, {A: 2, C: 3}), joint(1, 9, {A: 3, B: 2}), joint(2, 9, {B: 3, C: 2})
    assert "no serial order of all tables" in found(*three).problem
    assert check_joint_history(merged(*three[:2])) is None


def test_an_order_that_contradicts_time_is_found_across_tables() -> None:
    """A single commit of one table had ended before that of the other began, and the joint commit is after this and before that. [MT1]"""
    both = joint(0, 20, {A: 2, B: 3})
    assert "no serial order of all tables" in found(both, alone(A, 1, 2, 3), alone(B, 5, 6, 2)).problem
    assert check_joint_history(merged(both, alone(A, 5, 6, 3), alone(B, 1, 2, 2))) is None
    assert check_joint_history(merged(both, alone(A, 1, 5.5, 3), alone(B, 5, 6, 2))) is None, "they may be one beside the other"


def test_what_is_recorded_twice_is_no_history() -> None:
    """[MT1]"""
    twice = joint(0, 1, {A: 2, B: 2})
    twice[A].append(op("joint", 0, 1, "committed", 3, id="again", job="another", joint=twice[A][0].joint))
    with pytest.raises(ValueError, match="names two commits of table"):
        check_joint_history(twice)

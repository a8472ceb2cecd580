"""Every kind of change against every kind of winner, judged by brute force over a small world of partitions. [CF1]-[CF6]"""

import pytest
from tests.kit.conflicts import BASE, OPS, WINNERS, Op, Partition, State, after, attempt, fill
from tests.kit.conflicts import base as base
from tests.kit.sizes import PROOF, SetBudgets
from tests.kit.tables import begin, check_head, clone, read_ids

from manifestcommit.errors import CommitConflictError
from manifestcommit.store.local import MemoryStore

MODES: list[tuple[str, str]] = [
    (name, mode) for name, op in OPS.items() for mode in ("serializable", "blind", "fail") if op.overwrite != "no"
]
MODES += [(name, "serializable") for name, op in OPS.items() if op.overwrite == "no"]


@pytest.mark.thorough
@pytest.mark.parametrize(("mine", "mode"), MODES, ids=lambda text: text.replace(" ", "_"))
def test_a_change_meets_a_winner(base: tuple[MemoryStore, bool], mine: str, mode: str, set_budgets: SetBudgets) -> None:
    """Serializable: nobody touched it; fail: nothing is there; blind and append: whatever is there. [CF2] [CF3] [CF4] [CF5] [CF6]"""
    if base[1]:
        set_budgets(inline_entry_bytes=0, inline_removed_bytes=0)
    op = OPS[mine]
    for their_name in WINNERS if PROOF else WINNERS[base[1] :: 2]:  # usually in one of the two tables
        theirs = OPS[their_name]
        store = clone(base[0])
        before: State = frozenset(enumerate(BASE))
        raced = after(before, theirs, 200)
        scope = op.scope()
        touched = {*theirs.scope(), *theirs.writes}
        clash = op.overwrite != "no" and judge(mode, scope, touched, raced)
        job = begin(store)
        raised = attempt(lambda job=job: fill(job, op, 100, mode))  # type: ignore[misc]
        if raised is not None:
            # Refused before it wrote: only what no winner can make right.
            assert mode == "fail" and any(where in scope for _, where in before), (mine, mode, their_name)
            assert read_ids(store) == [0, 1, 2, 3, 4]
            continue
        with begin(store) as winner:
            fill(winner, theirs, 200, "blind")
        raised = attempt(job.commit)
        where = f"{mine} ({mode}) against {their_name}: {raised}"
        assert (raised is not None) == clash, where
        expected = raced if clash else after(raced, op, 100)
        assert read_ids(store) == sorted(each for each, _ in expected), where
        check_head(store)


def judge(mode: str, scope: list[Partition], touched: set[Partition], raced: State) -> bool:
    if mode == "serializable":
        return any(each in touched for each in scope)
    return mode == "fail" and any(where in scope for _, where in raced)


def test_two_winners_are_both_looked_at(base: tuple[MemoryStore, bool]) -> None:
    """The clash lies in the first of three, and the version that the job contends for was lost twice. [CF3]"""
    store = clone(base[0])
    job = begin(store)
    fill(job, OPS["day a"], 100, "serializable")
    for number, name in enumerate(("append a1", "append c1", "append c1")):
        with begin(store) as winner:
            fill(winner, OPS[name], 200 + number, "blind")
    with pytest.raises(CommitConflictError, check=lambda error: error.rule == "partition_was_touched" and "day=a" in error.mine):
        job.commit()
    assert read_ids(store) == [0, 1, 2, 3, 4, 200, 201, 202]


def test_a_conflict_that_a_later_winner_undid_is_none(base: tuple[MemoryStore, bool]) -> None:
    """What is judged is the head, not what the job remembers of it: the partition is empty by now. [CF5] [CM1]"""
    store = clone(base[0])
    job = begin(store)
    fill(job, Op(overwrite="dynamic", writes=(("b", 1),)), 100, "fail")
    with begin(store) as winner:
        winner.overwrite({"day": "b"})
    assert job.commit().committed
    assert read_ids(store) == [0, 1, 3, 4, 100]

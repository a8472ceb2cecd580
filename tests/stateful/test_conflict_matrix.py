"""Every kind of change against every kind of winner, judged by brute force over a small world of partitions. [CF1]-[CF6]"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pytest
from tests.kit.sizes import PROOF, SetBudgets, budgets
from tests.kit.tables import begin, check_head, clone, memory, read_ids, rows, write

from manifestcommit.errors import CommitConflictError
from manifestcommit.job import Job
from manifestcommit.log.version_chain import open_head
from manifestcommit.store.local import MemoryStore

Partition: TypeAlias = tuple[str | None, int]
State: TypeAlias = frozenset[tuple[int, Partition]]  # (id, where it lies)

BASE: list[Partition] = [("a", 1), ("a", 2), ("b", 1), (None, 1), ("", 1)]
WORLD: list[Partition] = [(day, hour) for day in ("a", "b", "c", None, "") for hour in (1, 2)]


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """overwrite: as the user gives it, "no" for an append; writes: one row each."""

    overwrite: Any = "no"
    writes: tuple[Partition, ...] = ()

    def scope(self) -> list[Partition]:
        """The partitions that it empties, by enumeration."""
        if self.overwrite == "no":
            return []
        if self.overwrite is None:
            return WORLD
        if self.overwrite == "dynamic":
            return list(self.writes)
        named = self.overwrite
        return [each for each in WORLD if named.get("day", each[0]) == each[0] and named.get("hour", each[1]) == each[1]]


OPS: dict[str, Op] = {
    "append a1": Op(writes=(("a", 1),)), "append c1": Op(writes=(("c", 1),)), "day a": Op(overwrite={"day": "a"}, writes=(("a", 1),)),
    "day a hour 2": Op(overwrite={"day": "a", "hour": 2}, writes=(("a", 2),)),
    "hour 1": Op(overwrite={"hour": 1}, writes=(("c", 1), ("a", 1))), "day null": Op(overwrite={"day": None}, writes=((None, 1),)),
    "day empty text, no rows": Op(overwrite={"day": ""}), "day c, was empty": Op(overwrite={"day": "c"}, writes=(("c", 1),)),
    "dynamic a1 c1": Op(overwrite="dynamic", writes=(("a", 1), ("c", 1))), "dynamic empty text": Op(overwrite="dynamic", writes=(("", 1),)),
    "dynamic, no rows": Op(overwrite="dynamic"), "all": Op(overwrite=None, writes=(("b", 1),)),
}  # fmt: skip
WINNERS = ["append a1", "append c1", "day a", "hour 1", "day null", "day c, was empty", "dynamic empty text", "all"]


def fill(job: Job, op: Op, first_id: int, mode: str) -> None:
    if op.overwrite != "no":
        job.overwrite(op.overwrite, conflict=mode)  # type: ignore[arg-type]
    tables = [rows([first_id + number], day=day, hour=hour) for number, (day, hour) in enumerate(op.writes)]
    job.write(pa.concat_tables(tables) if tables else rows([], day="", hour=1))


def after(state: State, op: Op, first_id: int) -> State:
    emptied = op.scope()
    kept = {(each, where) for each, where in state if where not in emptied}
    return frozenset(kept | {(first_id + number, where) for number, where in enumerate(op.writes)})


@pytest.fixture(scope="module", params=["inlined", "in manifests"])
def base(request: pytest.FixtureRequest) -> tuple[MemoryStore, bool]:
    spilled = request.param == "in manifests"
    with budgets(**{"inline_entry_bytes": 0, "fan_in": 3} if spilled else {}):
        store = memory()
        for number, (day, hour) in enumerate(BASE):
            write(store, rows([number], day=day, hour=hour), partition_by=["day", "hour"])
    assert bool(open_head(store).snapshot.manifests) == spilled
    return store, spilled


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


def attempt(action: Callable[[], object]) -> CommitConflictError | None:
    try:
        action()
    except CommitConflictError as error:
        return error
    return None


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

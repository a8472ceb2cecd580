"""Constraints that come and go beside jobs of all kinds, in any order: no version holds a row that violates one of its own. [CK1]-[CK5]"""

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.sizes import rounds

import manifestcommit as mc
from manifestcommit.gate import constraints

CONDITIONS = {"positive": "n > 0", "small": "n < 50", "odd": "n % 2 = 1 OR n > 100"}
HOLDS: dict[str, Callable[[int], bool]] = {
    "n > 0": lambda n: n > 0,
    "n < 50": lambda n: n < 50,
    "n % 2 = 1 OR n > 100": lambda n: n % 2 == 1 or n > 100,
}
NUMBERS = st.sampled_from([-4, 1, 7, 8, 60, 101])
ACTS = st.one_of(
    st.tuples(st.sampled_from(["begin", "write", "stage", "merge", "beside"]), NUMBERS),
    st.tuples(st.sampled_from(["commit", "publish"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["add", "drop"]), st.sampled_from(sorted(CONDITIONS))),
    st.tuples(st.sampled_from(["update", "rollback", "compact", "delete"]), NUMBERS),
)
_count = itertools.count()


class World:
    """A table, its open jobs, and those that are staged."""

    def __init__(self) -> None:
        self.path = f"memory://interleavings/{next(_count)}"
        mc.write(pa.table({"n": [1]}), self.path)
        self.table = mc.Table(self.path)
        self.open: list[mc.Job] = []
        self.staged: list[mc.Staged] = []
        self.refused = 0
        self.beside: list[mc.Job] = []  # committed while a constraint is proven

    def rows(self, number: int) -> pa.Table:
        return pa.table({"n": [number]})

    def do(self, act: str, what: Any) -> None:
        try:
            getattr(self, f"_{act}")(what)
        except (mc.errors.ConstraintError, mc.errors.CommitConflictError):
            self.refused += 1

    def _job(self, number: int) -> mc.Job:
        job = mc.begin(self.path)
        job.write(self.rows(number))
        return job

    def _begin(self, number: int) -> None:
        self.open.append(self._job(number))

    def _beside(self, number: int) -> None:
        self.beside.append(self._job(number))

    def _write(self, number: int) -> None:
        mc.write(self.rows(number), self.path)

    def _stage(self, number: int) -> None:
        self.staged.append(mc.write(self.rows(number), self.path, publish=False))

    def _merge(self, number: int) -> None:
        self.table.merge(self.rows(number), on="n")

    def _commit(self, index: int) -> None:
        if self.open:
            self.open.pop(index % len(self.open)).commit()

    def _publish(self, index: int) -> None:
        if self.staged:
            self.staged.pop(index % len(self.staged)).publish()

    def _add(self, name: str) -> None:
        self.table.add_constraint(name, CONDITIONS[name])

    def _drop(self, name: str) -> None:
        if name in self.table.constraints():
            self.table.drop_constraint(name)

    def _update(self, number: int) -> None:
        self.table.update({"n": "n - 3"}, f"n = {number}")

    def _delete(self, number: int) -> None:
        self.table.delete(f"n = {number}")

    def _compact(self, number: int) -> None:
        self.table.compact()

    def _rollback(self, number: int) -> None:
        to = 1 + abs(number) % self.table.version
        if to > 1 and to < self.table.version:
            self.table.rollback(to, reason="a mistake")

    def check(self) -> None:
        for version in range(1, self.table.version + 1):
            held = self.table.snapshot(version).constraints
            numbers = self.table.to_arrow(version=version).column("n").to_pylist() if version > 1 else []
            for name, each in held.items():
                wrong = [n for n in numbers if not HOLDS[each.condition](n)]
                assert not wrong, f"version {version} has {wrong} beside {name}: {each.condition}"


@pytest.mark.thorough
@given(st.lists(ACTS, max_size=12))
@settings(max_examples=rounds(20, 300), deadline=None)
def test_no_version_holds_a_row_that_violates_one_of_its_constraints(acts: list[tuple[str, Any]]) -> None:
    world, found = World(), constraints.first_violation

    def proven(*given: Any) -> Any:
        told = found(*given)
        while world.beside:
            job = world.beside.pop()
            try:
                job.commit()
            except (mc.errors.ConstraintError, mc.errors.CommitConflictError):
                world.refused += 1
        return told

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constraints, "first_violation", proven)
        for act, what in acts:
            world.do(act, what)
    world.check()


def test_the_acts_meet_each_other() -> None:
    """Each of these orders would let a row through without one of the rules."""
    world = World()
    for act in [("begin", -4), ("begin", 7), ("stage", -4), ("add", "positive"), ("commit", 0), ("commit", 0), ("publish", 0)]:
        world.do(*act)
    assert world.refused == 2 and world.table.to_arrow().num_rows == 2
    world.check()

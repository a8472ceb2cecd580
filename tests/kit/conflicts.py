"""Every operation beside every winner of its race, on one small table."""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pytest
from tests.kit.sizes import budgets
from tests.kit.tables import memory, rows, write

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


def attempt(action: Callable[[], object]) -> CommitConflictError | None:
    try:
        action()
    except CommitConflictError as error:
        return error
    return None

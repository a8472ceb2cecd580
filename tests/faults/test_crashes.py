"""A process that dies, or a store that fails, at every single call: the old state or the new one, and a rerun converges. [IV3]"""

import gc
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kit.faults import KEY, every_fault, full, small, state
from tests.kit.sizes import rest_thorough, rounds
from tests.kit.tables import Service, clone, memory, read_ids, rows, write

import manifestcommit as mc
from manifestcommit.errors import StoreError, UsageError
from manifestcommit.store import LocalStore, Store, open_store
from manifestcommit.testing.faults import Died, Fault, FaultStore

append = partial(write, data=rows(range(10, 15), day="c"), partition_by=["day"], key=KEY, watermarks={"s": (5, 9), "new": (None, "x")})
overwrite_dynamic = partial(write, data=rows(range(10, 12), day="a"), key=KEY, overwrite="dynamic", watermarks={"s": (5, 9)})

Scenario = tuple[Callable[[Store], Any], Callable[[Store], mc.Outcome]]
SCENARIOS: dict[str, Scenario] = {
    "first write": (lambda store: None, partial(append, watermarks={"s": (5, 9)})),
    "append": (small, append),
    "empty job": (small, partial(write, data=rows([], day="c"), key=KEY, watermarks={"s": (5, 9)})),
    "dynamic overwrite": (small, overwrite_dynamic),
    "whole overwrite": (small, partial(write, data=rows(range(10, 12), day="a"), key=KEY, overwrite=None)),
    "merged schema": (small, partial(write, data=rows(range(10, 12), day="a", more="x"), key=KEY, merge_schema=True)),
    "append that spills": (full, append),
    "overwrite that spills": (full, overwrite_dynamic),
}
QUICK = [("append", 4), ("dynamic overwrite", 4)]  # at every fourth call


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize(("name", "step"), rest_thorough([*QUICK, *((name, 1) for name in SCENARIOS)], *QUICK))
def test_after_a_fault_at_any_call_there_is_the_old_state_or_the_new_and_a_rerun_converges(name: str, step: int) -> None:
    """What was acknowledged is there; what failed for sure is not; the same key again gives the new state once. [IV3] [IV4] [CM6] [KY3]"""
    every_fault(*SCENARIOS[name], memory, step)


@pytest.mark.thorough
@pytest.mark.usefixtures("tight")
def test_a_fault_at_any_call_of_a_proof_leaves_no_table_or_the_table() -> None:
    """A first write through a service races it first: a crash in between leaves probes and no table. [IV3] [ST12]"""
    every_fault(*SCENARIOS["first write"], lambda: Service(secrets.token_hex(8)), step=7)


@pytest.mark.thorough
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("name", rest_thorough(["append", "dynamic overwrite"], "append"))
def test_it_is_the_same_on_a_real_object_store(name: str, rgw: Any) -> None:
    """[IV3] [IV4] [CM6] [KY3]"""
    bucket = rgw.bucket()
    every_fault(*SCENARIOS[name], lambda: open_store(f"s3://{bucket}/{secrets.token_hex(8)}", rgw.storage_options), step=rounds(4, 1))


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("prepare", [small, full])
def test_a_fault_at_any_call_of_a_read_shows_the_table_or_an_error(prepare: Callable[[Store], Any]) -> None:
    """[RD2] [IV3]"""
    base = memory()
    prepare(base)
    expected = state(base)
    healthy = FaultStore(base)
    assert state(healthy) == expected
    for number in range(1, healthy.count + 1):
        faulty = FaultStore(base, {number: "refused"})
        try:
            assert state(faulty) == expected
        except StoreError:
            continue
        assert faulty.count < number, "a call that failed was not told"


def test_late_files_of_a_dead_attempt_are_never_visible() -> None:
    """The files that a dead process left are in the store, and in no snapshot. [IV5]"""
    base = memory()
    small(base)
    healthy = FaultStore(clone(base))
    append(healthy)
    create = next(call.number for call in healthy.calls if call.kind == "put_if_absent")
    with pytest.raises(Died):
        append(FaultStore(base, {create: "dies_before"}))
    left = [info.name for info in base.list("day=c/")]
    assert len(left) == 1 and read_ids(base) == list(range(8))
    assert append(base).committed
    assert read_ids(base) == [*range(8), *range(10, 15)] and len(list(base.list("day=c/"))) == 2


def test_a_misspelt_fault_is_refused() -> None:
    """A store without any fault would prove a pipeline that nothing happened to."""
    with pytest.raises(UsageError, match=r"'die_after' is no fault; there are refused, .*dies_after"):
        FaultStore(memory(), {3: "die_after"})  # type: ignore[dict-item]


@pytest.mark.parametrize("fault", ["answer_lost", "dies_after"])
def test_what_is_opened_for_nobody_is_closed_and_never_appears(fault: Fault, tmp_path: Path) -> None:
    """Neither an output nor an input of a process that never got hold of it stays open, which whoever tests with faults would be told."""
    inner = LocalStore(tmp_path)
    inner.put("there", b"x")
    with pytest.raises((StoreError, Died)):
        FaultStore(inner, {1: fault}).create_output("a/late")
    with pytest.raises((StoreError, Died)):
        FaultStore(inner, {1: fault}).open_input("there")
    gc.collect()  # complains here of what is open
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["there"]

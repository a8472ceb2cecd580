"""Real processes on one local table: racing, overwriting, killed at any moment, read from all the while. [IV1]-[IV4] [IV9] [KY5]"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.sizes import rest_thorough, rounds
from tests.kit.tables import all_snapshots, check_table, key_version, positions, read_ids

import manifestcommit as mc
from manifestcommit.log.version_chain import open_head
from manifestcommit.store import LocalStore

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["manifestcommit", "pyarrow.dataset", "tests.kit.tables"])

Told = list[tuple[str, Any]]


def rows(*ids: int, day: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())})


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "a table%20")


@contextlib.contextmanager
def running(work: Callable[..., None], arguments: list[tuple[Any, ...]]) -> Iterator[list[BaseProcess]]:
    """The processes, started; whatever happens, none outlives the block."""
    started = [processes.Process(target=work, args=each) for each in arguments]
    try:
        for process in started:
            process.start()
        yield started
        for process in started:
            process.join(120)
        assert [process.exitcode for process in started] == [0] * len(started)
    finally:
        for process in started:
            process.kill()
            process.join()


def told(work: Callable[..., None], arguments: list[tuple[Any, ...]]) -> Told:
    """What the processes put into the queue that each gets as its last argument, one thing each, once all have ended well."""
    answers: multiprocessing.Queue[Any] = processes.Queue()
    with running(work, [(*each, answers) for each in arguments]):
        pass
    return [answers.get(timeout=10) for _ in arguments]


# --- appends ------------------------------------------------------------------------------------------------------------
def append_many(root: str, number: int, commits: int) -> None:
    for each in range(commits):
        outcome = mc.write(rows(number * 1000 + each), root, key=f"{number}:{each}", watermarks={f"source {number}": (each, each + 1)})
        assert outcome.kind == "committed"


@pytest.mark.thorough
def test_sixteen_processes_append_four_hundred_times(root: str) -> None:
    """No gap, no loss, no duplicate, and everyone gets through. [IV1] [IV2] [IV9] [ST1] [CM8]"""
    mc.create_table(root, rows().schema)
    with running(append_many, [(root, number, 25) for number in range(16)]):
        pass
    store = LocalStore(root)
    head = open_head(store).version
    assert head <= 401, "a version may carry several"
    expected = sorted(number * 1000 + each for number in range(16) for each in range(25))
    assert read_ids(store) == expected
    assert positions(store) == {f"source {number}": 25 for number in range(16)}
    versions = {key_version(store, f"{number}:{each}") for number in range(16) for each in range(25)}
    assert versions == set(range(2, head + 1))
    check_table(store)
    assert mc.write(rows(7007), root, key="7:7", watermarks={"source 7": (7, 8)}).already_committed


# --- overwrites ---------------------------------------------------------------------------------------------------------
def overwrite_day(root: str, number: int, day: str, conflict: str, barrier: Any, answers: multiprocessing.Queue[Any]) -> None:
    job = mc.begin(root)
    barrier.wait(60)  # all are born at the same version
    try:
        job.overwrite({"day": day}, conflict=conflict)  # type: ignore[arg-type]
        job.write(rows(number, day=day))
        answers.put((job.commit().kind, number))
    except mc.errors.CommitConflictError as error:
        answers.put((error.rule, number))


def overwrite_at_once(root: str, days: list[str], conflict: str) -> Told:
    barrier = processes.Barrier(len(days))
    return told(overwrite_day, [(root, 100 + number, day, conflict, barrier) for number, day in enumerate(days)])


@pytest.mark.parametrize("conflict", ["serializable", "blind", "fail"])
@pytest.mark.parametrize("filled", rest_thorough([True, False], True))
def test_overwrites_of_one_partition_go_as_the_mode_says(root: str, conflict: str, filled: bool) -> None:
    """[CF3] [CF4] [CF5]"""
    mc.write(rows(0, day="other"), root, partition_by=["day"])
    if filled:
        mc.write(rows(1, day="a"), root)
    answers = overwrite_at_once(root, ["a"] * 6, conflict)
    committed = [number for kind, number in answers if kind == "committed"]
    refused = {kind for kind, _ in answers} - {"committed"}
    assert len(committed) == {"serializable": 1, "blind": 6, "fail": 0 if filled else 1}[conflict], answers
    assert refused == {"serializable": {"partition_was_touched"}, "blind": set(), "fail": {"partition_is_filled"}}[conflict]
    found = read_ids(LocalStore(root))
    if committed:
        assert found[0] == 0 and len(found) == 2 and found[1] in committed, "one overwrite whole, nothing of the others"
    else:
        assert found == [0, 1]
    check_table(LocalStore(root))


# --- keys ---------------------------------------------------------------------------------------------------------------
# --- kill -9 --------------------------------------------------------------------------------------------------------------
def write_until_killed(root: str, first: int, begun: Any) -> None:
    for each in range(first, first + 100):
        begun.value = each
        mc.write(rows(each, -each, day=str(each % 3)), root, key=str(each), watermarks={"s": (each, each + 1)}, partition_by=["day"])


def test_a_process_that_is_killed_at_any_moment_and_run_again_writes_exactly_once(root: str) -> None:
    """Whatever it was doing, a rerun with the same keys ends in the same table. [IV3] [KY3] [ST9]"""
    dice = random.Random(20130101)
    store, at, kills = LocalStore(root), 1, 0
    done: list[int] = []
    until = time.monotonic() + rounds(4, 12)
    while time.monotonic() < until or kills < 5 or not done:
        begun = processes.Value("q", 0, lock=False)  # a killed process would take a lock with it
        process = processes.Process(target=write_until_killed, args=(root, at, begun))
        process.start()
        deadline = time.monotonic() + 60
        while begun.value == 0 and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(dice.uniform(0.0, 0.12 if done else 0.12 * (kills + 1)))  # a loaded machine takes longer for the first commit
        assert process.exitcode in (None, 0)
        process.kill()
        process.join()
        kills += 1
        found = read_ids(store)
        done = found[len(found) // 2 :]
        assert found == sorted([*done, *(-each for each in done)]), "half a commit"
        assert done == list(range(1, len(done) + 1)), "a hole, or a row twice"
        assert positions(store) == ({"s": done[-1] + 1} if done else {})
        assert len(done) >= begun.value - 1, "acknowledged, and not there"
        at = max(1, begun.value)  # the one that it was at, again: committed or not, its key tells
    check_table(store)


# --- reading while writing --------------------------------------------------------------------------------------------------
def move_money(root: str, number: int, seen_enough: Any) -> None:
    """Commits whose rows add up to nothing, each of a different number of files; now and then one that replaces a day."""
    each = 0
    while not seen_enough.is_set():
        each += 1
        amount = (number + 1) * 100_000 + each
        halves = pa.table({"id": [amount, -amount], "day": ["plus", "minus"]})
        if each % 7 == 0:
            mc.write(pa.table({"id": [amount, -amount], "day": [f"own {number}"] * 2}), root, mode="overwrite",
                     overwrite={"day": f"own {number}"}, conflict="blind")  # fmt: skip
        else:
            mc.write(halves, root)


@pytest.mark.thorough
def test_each_read_while_others_commit_is_exactly_one_snapshot(root: str) -> None:
    """Every committed state adds up to nothing: a read of half a commit, or of two states, would not. [IV3] [RD2] [RD1] [ST3]"""
    mc.write(pa.table({"id": [1, -1], "day": ["plus", "minus"]}), root, partition_by=["day"])
    at_least, seen_enough = time.monotonic() + 7, processes.Event()
    table, reads, last = mc.Table(root), 0, 0
    with running(move_money, [(root, number, seen_enough) for number in range(4)]) as writers:
        while time.monotonic() < at_least or reads < 10 or last <= 20:  # counted, since a busy machine does little in seven seconds
            assert all(writer.exitcode is None for writer in writers), "a writer has ended early"
            snapshot = table.snapshot()
            assert snapshot.version >= last, "the head went back"
            last = snapshot.version
            ids = table.dataset(version=snapshot.version).to_table().column("id").to_pylist()
            assert sum(ids) == 0 and len(ids) == snapshot.totals.rows, f"version {snapshot.version} is not one snapshot"
            head = table.dataset().to_table().column("id").to_pylist()
            assert sum(head) == 0 and len(head) == len(set(head))
            reads += 1
        seen_enough.set()
    check_table(LocalStore(root))
    for head in list(all_snapshots(LocalStore(root)))[2::25]:
        assert sum(read_ids(LocalStore(root), head.version)) == 0

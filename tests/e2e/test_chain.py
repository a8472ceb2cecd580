"""Three tables in a chain: B follows the changes of A, and C those of B, while their processes are killed. [CH1] [CH4] [WM2] [IV3]"""

from __future__ import annotations

import functools
import multiprocessing
import random
import time
from collections.abc import Callable
from decimal import Decimal
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.change_tables import KIND, bag, rows
from tests.kit.sizes import rounds
from tests.kit.tables import check_table

import manifestcommit as mc
from manifestcommit.store import LocalStore

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["manifestcommit", "pyarrow.dataset", "tests.kit.change_tables"])

IDS = 24
SEED = 20130101


def operation(number: int, ids: dict[int, Any]) -> tuple[str, Any]:
    """What the source does next, always the same after the same ids."""
    dice = random.Random(SEED + number)
    free = [each for each in range(IDS) if each not in ids]
    kind = dice.choice(["append", "append", "delete", "update", "merge", "overwrite", "compact"])
    if kind == "append":
        return kind, dice.sample(free, min(len(free), 4))
    if kind in ("merge", "overwrite"):
        return kind, dice.sample(range(IDS), 6)
    return kind, dice.randrange(IDS)


def merged(ids: list[int], number: int) -> pa.Table:
    data = rows(*ids)
    return data.set_column(3, "dec", pa.array([Decimal(number).scaleb(-2)] * len(data), pa.decimal128(9, 2)))


def listed(value: int, step: int) -> str:
    """Each id that leaves the same rest."""
    return ", ".join(map(str, range(value % step, IDS, step)))


@functools.cache
def model(count: int) -> dict[int, Any]:
    """The rows of the source after its first operations, without any table."""
    if not count:
        return {}
    held = model(count - 1)
    kind, value = operation(count - 1, held)
    if kind in ("append", "merge", "overwrite"):
        data = rows(*value) if kind == "append" else merged(value, count - 1)
        return ({} if kind == "overwrite" else held) | {row["id"]: row for row in data.to_pylist()}
    if kind == "delete":
        return {each: row for each, row in held.items() if each % 5 != value % 5}
    if kind == "update":
        return {each: row | ({"x": 2.5, "day": "moved"} if each % 3 == value % 3 else {}) for each, row in held.items()}
    return held


def write_source(root: str, count: int) -> None:
    """Each operation once, by its key: a process that takes over finds those that are done."""
    table = mc.Table(root)
    for number in range(count):
        key = f"operation {number}"
        kind, value = operation(number, model(number))
        if kind == "append":
            mc.write(rows(*value), root, key=key)
        elif kind == "merge":
            table.merge(merged(value, number), on="id", key=key)
        elif kind == "overwrite":
            mc.write(merged(value, number), root, mode="overwrite", key=key)
        elif kind == "delete":
            table.delete(f"id IN ({listed(value, 5)})", key=key)
        elif kind == "update":
            table.update({"x": "2.5", "day": "'moved'"}, f"id IN ({listed(value, 3)})", key=key)
        else:
            table.compact()
    if "done" not in table.snapshot().tags:
        table.tag("done")


def last_of_each(changes: pa.Table) -> pa.Table:
    """The last change of each id; the image of a row before an update is none."""
    last: dict[int, tuple[tuple[int, bool], int]] = {}
    names = ("id", "_commit_version", "_change_type")
    for row, (each, version, kind) in enumerate(zip(*(changes.column(name).to_pylist() for name in names), strict=True)):
        order = (version, kind in ("insert", "update_postimage"))  # of one version, what came is after what went
        if each not in last or order > last[each][0]:
            last[each] = order, row
    return changes.take(pa.array([row for _, row in last.values()], pa.int64()))


def follow(source: str, target: str, name: str) -> None:
    """Until the source is done: its changes since the target's watermark, in one commit with the watermark."""
    above, below = mc.Table(source), mc.Table(target)
    while True:
        snapshot = above.snapshot()
        start, end = int(below.watermarks().get(name, 0)), snapshot.version
        if start == end:
            if "done" in snapshot.tags:
                if "done" not in below.snapshot().tags:
                    below.tag("done")
                return
            time.sleep(0.01)
            continue
        changes = last_of_each(above.changed_rows(start, end, on="id").read_all())
        try:
            below.merge(
                changes,
                on="id",
                when_matched=[mc.Delete(where="_change_type IN ('delete', 'update_preimage')"), mc.Update()],
                when_not_matched=mc.Insert(where="_change_type IN ('insert', 'update_postimage')"),
                key=f"{name}:{start}-{end}",
                watermarks={name: (start, end)},
            )
        except (mc.errors.CommitConflictError, mc.errors.WatermarkError):
            continue  # a process that was taken for dead has committed


def run_under_kills(steps: list[tuple[Callable[..., None], tuple[Any, ...]]], dice: random.Random, kills: int) -> int:
    """Start each step again whenever it was killed, until all end by themselves. How many were killed."""
    running: dict[int, BaseProcess] = {}
    killed, done = 0, set[int]()
    deadline = time.monotonic() + 240
    try:
        while len(done) < len(steps):
            assert time.monotonic() < deadline, f"not done: {set(range(len(steps))) - done}"
            for number, (work, arguments) in enumerate(steps):
                process = running.get(number)
                if number not in done and (process is None or not process.is_alive()):
                    if process is not None and process.exitcode == 0:
                        done.add(number)
                        continue
                    assert process is None or process.exitcode == -9, process.exitcode
                    running[number] = processes.Process(target=work, args=arguments)
                    running[number].start()
            time.sleep(dice.uniform(0.05, 0.3))
            living = [process for process in running.values() if process.is_alive()]
            if killed < kills and living:
                dice.choice(living).kill()
                killed += 1
        return killed
    finally:
        for process in running.values():
            process.kill()
            process.join()


@pytest.mark.parametrize(("operations", "kills"), [(14, 8), pytest.param(rounds(60, 300), rounds(40, 200), marks=pytest.mark.thorough)])
def test_a_chain_of_three_tables_is_exact_whoever_is_killed(tmp_path: Path, operations: int, kills: int) -> None:
    """[CH1] [CH3] [CH4] [WM2] [IV3] [KY3]"""
    roots = [str(tmp_path / f"{name} a%20b+=#'é") for name in "ABC"]
    for root, by in zip(roots, (["day"], None, ["day"]), strict=True):
        mc.create_table(root, KIND, partition_by=by)
    steps = [(write_source, (roots[0], operations)), (follow, (roots[0], roots[1], "A")), (follow, (roots[1], roots[2], "B"))]
    assert run_under_kills(steps, random.Random(SEED), kills) >= 5
    expected = bag(pa.Table.from_pylist(list(model(operations).values()), schema=KIND))
    tables = [mc.Table(root) for root in roots]
    assert [bag(table.to_arrow()) for table in tables] == [expected] * 3
    assert tables[1].watermarks() == {"A": tables[0].version}
    assert tables[2].watermarks()["B"] <= tables[1].version
    for root in roots:
        check_table(LocalStore(root))

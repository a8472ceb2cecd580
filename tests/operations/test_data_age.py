"""When a table got rows last, and when each of its sources moved: upkeep does not hide that nothing arrives. [OB17]"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.clocks import DAY_S, Clock

import manifestcommit as mc
from manifestcommit.log.version_chain import open_head
from manifestcommit.store import open_store


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([number % 2 for number in ids], pa.int64())})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    """Rows of two sources; the second moved at last."""
    path = tmp_path / "t"
    for number in range(3):
        mc.write(rows(number, number + 3), path, partition_by="day", watermarks={"a": (number, number + 1)}, key=f"k{number}")
    mc.write(rows(7), path, watermarks={"b": (0, 9)})
    return mc.Table(path)


def compact_and_gc(table: mc.Table) -> None:
    """All history goes."""
    table.compact()
    for _ in range(2):
        table.gc(grace="0s", keep_versions=1, keep_for="0s")


def joint(table: mc.Table) -> None:
    """As a table that takes part and gets nothing."""
    with mc.transaction([table.url, f"{table.url}-other"]) as tx:
        tx[f"{table.url}-other"].write(rows(1))


UPKEEP: dict[str, Callable[[mc.Table], object]] = {
    "gc and compaction": compact_and_gc,
    "delete": lambda table: table.delete("id = 0"),
    "update": lambda table: table.update({"day": 5}, "id = 1"),
    "tag": lambda table: table.tag("kept"),
    "properties": lambda table: table.set_properties({"owner": "us"}),
    "columns": lambda table: table.add_column("more", "int"),
    "no rows": lambda table: mc.write(rows(), table.url, key="nothing came"),
    "rerun": lambda table: mc.write(rows(0, 3), table.url, watermarks={"a": (0, 1)}, key="k0"),
    "emptied": lambda table: mc.write(rows(), table.url, mode="overwrite"),
    "rollback": lambda table: table.rollback(2, reason="wrong"),
    "joint": joint,
}
BRINGS: dict[str, Callable[[mc.Table], object]] = {
    "append": lambda table: mc.write(rows(8), table.url),
    "overwrite": lambda table: mc.write(rows(8), table.url, mode="overwrite"),
    "merge": lambda table: table.merge(rows(8), on="id"),
    "overwrite_where": lambda table: table.overwrite_where(rows(8), "id >= 7"),
}


def ages(found: Any) -> dict[str, int]:
    """In days, as metrics have them."""
    assert found.data_age_s is not None
    return {"": int(found.data_age_s // DAY_S), **{source: int((age or -1) // DAY_S) for source, age in found.source_age_s.items()}}


@pytest.mark.parametrize("work", UPKEEP)
def test_what_brings_nothing_leaves_the_age_as_it_is(table: mc.Table, clock: Clock, work: str) -> None:
    """[OB17]"""
    clock.days(8)
    UPKEEP[work](table)
    assert ages(table.metrics()) == {"": 8, "a": 8, "b": 8}
    if work != "rerun":
        assert table.metrics().head_age_s < 60


@pytest.mark.parametrize("work", BRINGS)
def test_rows_make_the_table_young_and_no_source(table: mc.Table, clock: Clock, work: str) -> None:
    """[OB17]"""
    clock.days(8)
    BRINGS[work](table)
    assert ages(table.metrics()) == {"": 0, "a": 8, "b": 8}


def test_each_source_has_an_age_of_its_own(table: mc.Table, clock: Clock) -> None:
    """Also where it brings no row; a rewind is none, and a source that is forgotten has none. [OB17] [WM5]"""
    clock.days(2)
    mc.write(rows(), table.url, watermarks={"b": (9, 12)})
    clock.days(3)
    assert ages(table.metrics()) == {"": 3, "a": 5, "b": 3}
    with mc.transaction([table.url, f"{table.url}-other"]) as tx:
        tx[table.url].advance("a", 3, 4)
        tx[f"{table.url}-other"].write(rows(1))
    clock.days(1)
    table.rewind("b", 9, reason="wrong")
    assert ages(table.metrics()) == {"": 1, "a": 1, "b": 4}
    table.rewind("b", None, reason="wrong")
    assert ages(table.metrics()) == {"": 1, "a": 1}
    assert open_head(open_store(table.url)).snapshot.advanced_at.keys() == {"a"}


def test_a_table_that_never_got_anything_has_no_age(tmp_path: Path) -> None:
    """[OB17] [WM7]"""
    table = mc.create_table(tmp_path / "t", rows().schema, sources={"a": 0})
    table.set_properties({"owner": "us"})
    found = table.metrics()
    assert (found.data_age_s, found.source_age_s) == (None, {"a": None})


def test_a_group_commit_counts_for_every_job_that_it_carries(tmp_path: Path) -> None:
    """[OB17] [CM24]"""
    from manifestcommit.commits.group_commit import CombinedCommit, carry

    mc.write(rows(1), tmp_path / "t")
    jobs = [mc.begin(tmp_path / "t") for _ in range(2)]
    for number, job in enumerate(jobs):
        job.advance(f"s{number}", 0, 1)
    head = open_head(open_store(str(tmp_path / "t"))).snapshot
    carried = CombinedCommit(snapshot=head)
    for number, job in enumerate(jobs):
        now_us = head.committed_at + number + 1
        carried = carry(carried, job.change(), commit_id="c", now_us=now_us, writer="w")
    made = carried.snapshot
    assert made.advanced_at == {f"s{number}": head.committed_at + number + 1 for number in range(2)}
    assert made.data_at == head.committed_at + 2

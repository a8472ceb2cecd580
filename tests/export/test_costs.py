"""What an export costs in requests and bytes, and which files others plan, on a table of 20,000 files. [EX2] [EX5] [EX8]"""

import datetime as dt
import gc
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks.made_up import make_table

import manifestcommit as mc
from manifestcommit.export import delta_export, exporter
from manifestcommit.log.table_context import TableContext
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore
from manifestcommit.testing.faults import Call

FILES, PARTITIONS = 20_000, 100


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("large") / "t")
    make_table(open_store(root), FILES, partitions=PARTITIONS, manifest_files=5_000)
    for format in ("iceberg", "delta"):
        mc.Table(root).export(format)
    return root


def row() -> pa.Table:
    moment = pa.array([dt.datetime(2013, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    numbers = pa.array([1], pa.int32())
    return pa.table({"day": numbers, "id": [1], "price": [1.0], "at": moment, "name": ["a"], "code": numbers})


@pytest.mark.parametrize("commits", [3, pytest.param(60, marks=pytest.mark.thorough)])
def test_exporting_a_commit_to_iceberg_is_bounded(path: str, commits: int) -> None:
    """[EX2] [EX5]"""
    for number in range(commits):
        mc.write(row(), path, key=f"{commits} {number}", watermarks={f"topic {commits}": (number, number + 1)})
        calls = calls_of(path, "iceberg")
        assert sum(call.sent for call in calls) <= 25_000
        assert Counter(call.kind for call in calls) <= Counter({"put_if_absent": 3, "put": 1, "get": 3, "list": 1})


def test_exporting_a_commit_to_delta_is_bounded(path: str) -> None:
    """[EX2] [EX5]"""
    mc.Table(path).export("delta")
    for _ in range(3):
        mc.write(row(), path)
        calls = calls_of(path, "delta")
        assert sum(call.sent for call in calls) <= 5_000
        assert Counter(call.kind for call in calls) <= Counter({"put_if_absent": 1, "get": 2, "list": 1})


def calls_of(path: str, format: str) -> list[Call]:
    store = CountingStore(open_store(path))
    session = TableContext(store)
    head = session.open()
    store.calls.clear()
    exporter.export_format(session, head, format)
    return store.calls


@pytest.mark.thorough
@pytest.mark.parametrize("format", ["iceberg", "delta"])
def test_a_first_export_holds_one_manifest_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    """Not those that it has read, nor, for a Delta log, all files of a version at once. [EX2]"""
    path, loaded = str(tmp_path / "t"), list[int]()
    make_table(open_store(path), FILES, partitions=PARTITIONS, manifest_files=1_000)
    monkeypatch.setattr(delta_export, "MOST_ACTIONS", 1_000)
    monkeypatch.setattr(delta_export, "differing_entries", lambda *_: loaded.append(1))
    session = TableContext(open_store(path))
    head = session.open()
    before = pa.total_allocated_bytes()
    exporter.export_format(session, head, format)
    gc.collect()
    one = session.manifests.live(head.snapshot.manifests[0], head.snapshot, 0).nbytes
    assert pa.total_allocated_bytes() - before <= 2 * one and not loaded


@pytest.mark.thorough
def test_others_plan_the_files_that_this_library_plans(path: str) -> None:
    """[EX1] [EX8]"""
    from pyiceberg.table import StaticTable

    table = mc.Table(path)
    for format in ("iceberg", "delta"):
        table.export(format)
    days = table.files().column("day")
    for day in (pc.min(days).as_py(), pc.max(days).as_py()):
        wanted = set(table.files(pc.field("day") == day).column("path").to_pylist())
        planned = StaticTable.from_metadata(f"{path}/_iceberg").scan(row_filter=f"day = {day}").plan_files()
        assert {each.file.file_path.removeprefix(f"{table.url}/") for each in planned} == wanted and wanted
        skipped = deltalake.DeltaTable(path).file_uris(file_pruning_predicate=f"day = {day}")
        assert {unquote(each.removeprefix("file://")).removeprefix(f"{path}/") for each in skipped} == wanted
    found = pa.table(deltalake.DeltaTable(path).get_add_actions(flatten=True))
    assert set(found.column("path").to_pylist()) == set(table.files().column("path").to_pylist())

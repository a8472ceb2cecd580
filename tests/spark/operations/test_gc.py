"""gc by Spark's tasks: what one process would delete and nothing else, and no names on the driver. [GC13] [IV7]"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.budgets import SetBudgets
from tests.faults.collected import check_readable, needed
from tests.faults.tables import rows
from tests.spark.clusters import Driver, set_trap

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.core.commit.retention import Policy
from manifestcommit.core.table import object_names
from manifestcommit.engine.maintenance import gc as gc_engine
from manifestcommit.engine.maintenance.gc import GcReport, ObjectTotals
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.metadata.version_chain import open_head
from manifestcommit.errors import CorruptMetadataError, StoreError, UsageError
from manifestcommit.spark.operations import distributed_listing
from manifestcommit.spark.operations.distributed_listing import Manifest, Range, Sources, Version, cut
from manifestcommit.spark.operations.gc import OnSpark
from manifestcommit.store import LocalStore, StorageOptions, open_store

DAYS = ["a b%2F+=#'é🦆\"", None, "x", "漢 =&?", "a b"]
HARSH = Policy(grace_s=0, keep_for_s=0, prepared_grace_s=0)
NO_OPTIONS = StorageOptions()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch, set_budgets: SetBudgets) -> None:
    """A table of a few dozen files has inlined entries, manifests, merged ones, removals, runs; and is listed in many ranges."""
    set_budgets(inline_entry_bytes=3000, inline_keys=4, fan_in=3)
    monkeypatch.setattr(distributed_listing, "NAMES_PER_TASK", 4)


def make_table(root: str, **options: Any) -> None:
    """Hostile partitions, replaced and removed files, keys, a tag far back, a prepared job, and all that gc finds beside it."""
    place = {"storage_options": options} if options else {}
    for number in range(14):
        mc.write(rows([number], day=DAYS[number % 5]), root, partition_by=["day"], key=f"k {number}%", **place)
    table = mc.Table(root, **place)
    table.tag("first é", 4)
    mc.write(rows([100], day=DAYS[0]), root, mode="overwrite", overwrite={"day": DAYS[0]}, **place)
    mc.write(rows([101], day="x"), root, mode="overwrite", overwrite="dynamic", **place)
    mc.write(rows([], day="x"), root, **place)
    store = open_store(root, options)
    head = open_head(store)
    dead, young = (object_names.job_id(birth, head.snapshot.table_id, bytes(16)) for birth in (2, head.version + 9))
    other = object_names.job_id(2, "f" * 16, bytes(16))
    for job in (dead, young, other):
        for folder in ("day=a b", "day=%2E%2E/x=1", "day=x/copy", "copy of/day=x", "old-day=x"):
            store.put(f"{folder}/00001-{'0' * 16}-0-{job}.parquet", b"?")
        store.put(object_names.manifest_name(job, b"1234"), b"?")
        store.put(object_names.prepared_name(job), b"?")
    live = sorted(mc.Table(root, **place).dataset().files)[-2:]
    for name in (info.name for info in list(store.list("day=")) if any(path.endswith(info.name) for path in live)):
        folder, _, own = name.rpartition("/")
        for copy in (f"{folder}.bak/{own}", f"old-{name}", f"{folder}/copy-{own}", f"day=copied/{own}"):
            store.put(copy, store.get(name))
    for name in ("notes é.csv", "_SUCCESS", "day=x/strange\nname 'x\".csv", "zz/ü/ü.bin", "inner/_manifest/hint", "inner/x.csv", "+", "~"):
        store.put(name, b"12")


def files(root: str) -> set[str]:
    return {os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names}


def by_spark(spark: Any, root: str, options: StorageOptions = NO_OPTIONS) -> OnSpark:
    return OnSpark(spark, f"file://{root}" if "://" not in root else root, options)


def session(root: str) -> TableContext:
    return TableContext(open_store(root))


def told(plan: Any) -> list[tuple[Any, ...]]:
    """A plan's rows, in the order of their names."""
    if hasattr(plan, "collect"):
        return sorted(tuple(row) for row in plan.collect())
    return sorted(tuple(row.values()) for row in plan.to_pylist())


def counted(report: GcReport) -> GcReport:
    """Without what differs between two tables that are alike: where they are, and how large the snapshots of their gcs are."""
    kept, deleted = ObjectTotals(count=report.kept.count), {**report.deleted}
    if "version" in deleted:
        deleted["version"] = ObjectTotals(count=deleted["version"].count)
    return msgspec.structs.replace(report, url="", kept=kept, deleted=deleted)


@pytest.mark.versions
def test_spark_deletes_what_one_process_deletes(spark: Any, root: str, tmp_path: Path, small_parts: None) -> None:
    """[GC13] [GC5] [GC6] [GC7] The same plan, the same report, the same files left, on hostile names; then foreign files as well."""
    make_table(root)
    Path(os.fsdecode(os.fsencode(root) + b"/no \xff unicode")).write_bytes(b"123")
    (Path(root) / "day=x" / ".mc-tmp-left").write_bytes(b"1")
    twin = str(tmp_path / "twin of it")
    shutil.copytree(root, twin, copy_function=shutil.copy2)
    by = by_spark(spark, root)
    for foreign in (False, True):
        before = files(root)
        if foreign:
            mine_plan = gc_engine.plan(session(root), HARSH, foreign=True, executor=by)
            his_plan = gc_engine.plan(session(twin), HARSH, foreign=True)
            assert told(mine_plan) == told(his_plan)
            assert files(root) == before
        mine = gc_engine.run(session(root), HARSH, foreign=foreign, executor=by)
        his = gc_engine.run(session(twin), HARSH, foreign=foreign)
        assert counted(mine) == counted(his)
        random = {name for name in files(root) ^ files(twin) if not name.startswith(object_names.MANIFESTS)}
        assert random == set(), "what a run rewrites has names of its own"
        if not foreign:
            assert {"data file", "manifest", "job object", "version", "temporary file"} <= mine.deleted.keys()
            assert mine.foreign.count > 10 and mine.kept.count > 20 and mine.unknown.count == 2
            copies = {name for name in before if name.startswith(("old-day=", "day=copied/")) or ".bak/" in name or "/copy-" in name}
            assert len(copies) == 11 and copies <= files(root)
    store = open_store(root)
    check_readable(store)
    left = {info.name for info in store.list("")} - needed(store)
    assert {"notes é.csv", "zz/ü/ü.bin", "+"}.isdisjoint(left) and {"inner/x.csv", "_SUCCESS"} <= left


@pytest.mark.versions
def test_the_command_and_the_call_run_on_the_active_session(spark: Any, root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[GC13] [GC5]"""
    for number in range(3):
        mc.write(rows([number], day=DAYS[0]), root, partition_by=["day"], mode="overwrite")
    Path(root, "notes é.csv").write_bytes(b"1,2")
    before = files(root)
    harsh = ["gc", root, "--spark", "--json", "--grace", "0s", "--keep-for", "0s"]
    assert main([*harsh, "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["delete"]["count"] == 5 and plan["leave"] == {"count": 1, "bytes": 3} and files(root) == before
    assert [each["name"] for each in plan["first"] if each["action"] == "leave"] == ["notes é.csv"] and len(plan["first"]) == 6
    report = mc.gc(root, spark=spark, grace="0s", keep_for="0s")
    assert isinstance(report, mc.GcReport) and {kind: tally.count for kind, tally in report.deleted.items()} == {
        "data file": 2,
        "version": 3,
    }
    assert report.foreign_names == ("notes é.csv",) and mc.Table(root).dataset().to_table()["id"].to_pylist() == [2]
    for wrong, said in ((object(), "SparkSession"), ("yes", "SparkSession")):
        with pytest.raises(UsageError, match=said):
            mc.gc(root, spark=wrong)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(UsageError, match="memory of one process"):
        mc.gc("memory://x/y", spark=spark)


# --- damage, races, kills -------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_damage_that_tasks_find_stops_gc_before_it_deletes_anything(spark: Any, root: str, small_parts: None) -> None:
    """[GC4] [GC13] A manifest that is gone, and one that another gc took meanwhile."""
    make_table(root)
    manifest = open_head(open_store(root)).snapshot.manifests[0].path
    data = Path(root, manifest).read_bytes()
    Path(root, manifest).write_bytes(data[:-1] + b"?")
    before = {name for name in files(root) if not name.startswith(object_names.VERSIONS)}
    with pytest.raises(CorruptMetadataError, match="is damaged") as error:
        gc_engine.run(session(root), HARSH, executor=by_spark(spark, root))
    assert error.value.object_name == manifest
    assert before == {name for name in files(root) if not name.startswith(object_names.VERSIONS)}
    Path(root, manifest).write_bytes(data)

    class Slow(OnSpark):
        """Between its reading and its deleting, another gc goes further."""

        def delete(self, *arguments: Any) -> None:
            mc.write(rows([7], day=None), root, mode="overwrite")
            for _ in range(2):
                gc_engine.run(session(root), HARSH)
            super().delete(*arguments)

    with pytest.raises(StoreError, match="another gc decided meanwhile"):
        gc_engine.run(session(root), HARSH, executor=Slow(spark, f"file://{root}", NO_OPTIONS))
    check_readable(open_store(root))


def test_tasks_that_read_less_than_the_versions_list_stop_gc(spark: Any, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they have not read would be taken for dead. [GC13] [IV7]"""
    mc.write(rows([1], day="x"), root)
    mc.write(rows([2], day="x"), root)
    before = files(root)
    real = Sources.work
    monkeypatch.setattr(Sources, "work", lambda self: real(self)[:-1])
    with pytest.raises(StoreError, match=r"entries of .*deleted nothing"):
        gc_engine.run(session(root), HARSH, executor=by_spark(spark, root))
    assert before <= files(root)


@pytest.mark.thorough
def test_an_executor_that_dies_while_it_deletes_costs_nothing(driver: Driver, root: str) -> None:
    """[GC7] [GC13] [IV3] Killed behind its first delete; Spark repeats the tasks, and the next gc finds nothing left to do."""
    make_table(root)
    dead = object_names.job_id(1, open_head(open_store(root)).snapshot.table_id, b"killed while del")
    folder = next(path.parent for path in Path(root).rglob("*.parquet") if "_manifest" not in path.parts)
    for number in range(2_500):
        (folder / f"{number:05d}-{'0' * 16}-0-{dead}.parquet").touch()
    trap = set_trap(driver.scratch, "deleted", "kill")
    report = driver.run("gc", path=root)
    assert trap.with_name(trap.name + ".pids").exists()
    assert report["deleted"]["data file"]["count"] > 1_000
    store = open_store(root)
    check_readable(store)
    assert not any(dead in name for name in files(root))
    again = mc.gc(root, grace="0s", keep_for="0s")
    assert isinstance(again, mc.GcReport) and again.deleted.keys() <= {"version"}


# --- what the driver sees; the parts --------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_driver_is_told_counts_and_no_names(spark: Any, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 names that take half a megabyte, a hundred from each task, and some that cut the list in ranges. [GC13]"""
    monkeypatch.setattr(distributed_listing, "_SAMPLED", 4)
    mc.write(pa.table({"id": [1]}), root)
    dead = object_names.job_id(1, open_head(open_store(root)).snapshot.table_id, bytes(16))
    mc.write(pa.table({"id": [2]}), root)
    for each in range(2_000):
        for name in (f"{each:05d}-{'0' * 16}-0-{dead}.parquet", f"{each:05d}-{'x' * 80}.csv"):
            Path(root, name).touch()
    by = by_spark(spark, root)
    report = gc_engine.run(session(root), HARSH, executor=by)
    assert report.deleted["data file"].count == report.foreign.count == 2_000
    assert report.foreign_names == tuple(f"{each:05d}-{'x' * 80}.csv" for each in range(100))
    names_bytes, tasks = 100 * 4 / 3 * 90, 4  # as base64
    assert 0 < by.told_bytes < tasks * (names_bytes + 1_000)


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 100])
def test_ranges_hold_every_name_once(tasks: int, tmp_path: Path) -> None:
    """[GC13]"""
    names = sorted({*(f"day={n % 5}/é {n}" for n in range(40)), "_manifest/hint", "a", "day=1", "day=1/", "ü/🦆", "~"})
    store = LocalStore(str(tmp_path))
    for ranges in (cut(store, names, tasks), cut(open_store("s3://b/t", {"key": "k", "secret": "s"}), names, tasks)):
        assert 1 <= len(ranges) <= tasks and (ranges[0].start, ranges[-1].end) == ("", "")
        assert all(one.end == other.start and one.start < one.end for one, other in itertools.pairwise(ranges))
    assert {each.end for each in cut(store, names, 100)} <= {"", "_manifest/", *(f"day={n}/" for n in range(5)), "ü/"}


def test_a_version_that_came_back_from_the_dead_is_not_read_by_tasks(tmp_path: Path) -> None:
    """They read the very bytes that the driver has checked, or fail. [GC4] [GC13]"""
    mc.write(rows([1], day="x"), tmp_path / "t")
    each = session(str(tmp_path / "t"))
    head = each.open()
    paths = list(distributed_listing.paths_of(each, Version(version=head.version, digest=head.digest)))
    assert paths == [entry.path for entry in head.snapshot.added]
    for version, digest in ((head.version, "sha256:of others"), (9, head.digest)):
        with pytest.raises(CorruptMetadataError):
            list(distributed_listing.paths_of(each, Version(version=version, digest=digest)))


def test_what_every_readable_version_took_away_is_not_read(root: str, small_parts: None) -> None:
    """And the count that the tasks must reach knows it. [OB9] [GC13]"""
    make_table(root)
    found = Sources()
    each = session(root)
    head = each.open()
    found.take(each, head)
    read = sum(isinstance(item, Manifest) for item in found.work())
    assert read == len(head.snapshot.manifests) >= 1
    assert found.count() == head.snapshot.totals.files < sum(ref.files for ref in head.snapshot.manifests) + len(head.snapshot.added)
    assert Range(start="", end="") in cut(each.store, [], 10)

"""When a table is exported, what stops it, and what gc leaves. [EX2] [EX4] [EX5] [EX7] [EX9]"""

import contextlib
import datetime as dt
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from tests.export.clients import DELTA, ICEBERG, Reader, deltalake_query, duckdb_iceberg, expected, local, pyiceberg_scan, rows
from tests.export.kinds import KINDS, foreign, numbered
from tests.kit.footers import changed
from tests.kit.sizes import budgets
from tests.kit.tables import table_with

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.export import exporter
from manifestcommit.format.fields import Field, Schema
from manifestcommit.log import registry
from manifestcommit.log.table_context import TableContext, export_after_commit, export_before_deletion, export_lags, is_export
from manifestcommit.log.table_context import exporter as registered_exporter
from manifestcommit.operations import alter, gc
from manifestcommit.operations.compaction import drop_removed
from manifestcommit.protocol.retention import Policy
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore, Died, FaultStore

BOTH = {"export.formats": "iceberg,delta"}


def exported(path: str, **properties: str) -> mc.Table:
    """A table with two rows whose commits are exported."""
    mc.create_table(path, numbered(0).schema, properties={**BOTH, **properties})
    mc.write(numbered(2), path)
    return mc.Table(path)


@pytest.fixture
def table(path: str) -> mc.Table:
    return exported(path)


def check(table: mc.Table, version: int | None = None, reads: Sequence[Reader] = (duckdb_iceberg, deltalake_query)) -> None:
    """Readers, by default of both formats, get the version, by default the newest."""
    wanted, schema = expected(table, version)
    for read in reads:
        assert rows(read(local(table)), schema) == wanted


def export_both(table: mc.Table) -> None:
    for format in ("iceberg", "delta"):
        table.export(format)


def names(path: str) -> set[str]:
    return {info.name for info in open_store(path).list("") if is_export(info.name)}


# --- after a commit -----------------------------------------------------------------------------------------------------
def test_each_commit_is_followed_by_its_export(path: str) -> None:
    """[EX2]"""
    table = exported(path)
    check(table)
    table.add_column("more", "string")
    mc.write(numbered(1, more=["a"]), path, key="k", watermarks={"s": (0, 1)})
    check(table)
    table.rollback(2, reason="a test")
    check(table)
    assert table.metrics().export_lag == {"iceberg": 0, "delta": 0}


ENGINE = """
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations import alter
from manifestcommit.store import open_store
alter.set_properties(TableContext(open_store(path)), {"a": "b"})
import sys
assert "manifestcommit.table" not in sys.modules
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [
        "from manifestcommit import write\nimport pyarrow as pa\nwrite(pa.table({'n': pa.array([7], pa.int64())}), path)",
        ENGINE,
        f"import manifestcommit.spark.datasource\n{ENGINE}",
    ],
    ids=["write", "engine", "data source of Spark"],
)
def test_a_fresh_process_exports_what_it_commits(program: str, path: str) -> None:
    """Whatever module it imports first. [EX2]"""
    mc.create_table(path, pa.schema([("n", pa.int64())]), properties=BOTH)
    mc.write(pa.table({"n": [1]}), path)
    subprocess.run([sys.executable, "-c", f"path = {path!r}\n{program}"], check=True)
    table = mc.Table(path)
    assert table.version == 3 and table.metrics().export_lag == {"iceberg": 0, "delta": 0}
    check(table)


def test_without_an_exporter_a_commit_and_gc_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: mc.Table) -> None:
    """Neither is an export left behind silently, nor are its files deleted. [EX2] [EX4]"""
    mc.write(numbered(3), table.url, mode="overwrite")
    plain = str(tmp_path / "plain")
    files = {*(tmp_path / "t").rglob("*.parquet")}
    monkeypatch.setattr(registry, "_registered", [])
    with pytest.raises(RuntimeError, match="no exporter is registered"):
        table.gc(grace="0s", keep_for="0s")
    assert {*(tmp_path / "t").rglob("*.parquet")} == files
    with pytest.raises(RuntimeError, match="no exporter is registered"):
        mc.write(numbered(1), table.url)
    assert mc.write(numbered(1), plain).committed  # a table without exports needs none


def test_each_request_for_exports_raises_without_an_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[EX2] [EX4] [EX9]"""
    session = TableContext(open_store(exported(str(tmp_path / "t")).url))
    snapshot = session.open().snapshot
    monkeypatch.setattr(registry, "_registered", [])
    for request in (
        lambda: export_after_commit(session),
        lambda: registered_exporter().check_formats(session, snapshot, snapshot.schema, "delta"),
        lambda: export_lags(session, snapshot),
        lambda: export_before_deletion(session, snapshot),
        lambda: list(registered_exporter().unreached(session, snapshot, 0.0)),
    ):
        with pytest.raises(RuntimeError, match="no exporter is registered"):
            request()


def test_without_the_property_nothing_is_asked(path: str) -> None:
    """[EX2]"""
    mc.write(numbered(1), path)
    store = CountingStore(open_store(path))
    assert alter.set_properties(TableContext(store), {"a": "b"}).committed
    assert not [call for call in store.calls if call.name.startswith(("_iceberg", "_delta_log"))] and not names(path)


def test_a_failed_export_fails_no_commit_and_the_next_one_catches_up(tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str) -> None:
    """[EX2]"""
    table = exported(path)
    for folder in ("_iceberg/metadata", "_delta_log"):
        (tmp_path / "t" / folder).rename(tmp_path / folder.replace("/", "-"))
        (tmp_path / "t" / folder).write_text("in the way")
    with caplog.at_level(logging.WARNING, "manifestcommit.jobs"):
        assert mc.write(numbered(3), path).committed
    assert "version 3 is committed, and its export failed" in caplog.text
    for folder in ("_iceberg/metadata", "_delta_log"):
        (tmp_path / "t" / folder).unlink()
        (tmp_path / folder.replace("/", "-")).rename(tmp_path / "t" / folder)
    assert table.metrics().export_lag == {"iceberg": 1, "delta": 1}
    check(table, 2, reads=[duckdb_iceberg])
    mc.write(numbered(3), path)
    check(table)


def test_a_reader_finds_a_whole_version_wherever_an_exporter_dies(table: mc.Table) -> None:
    """[EX2]"""
    table.set_properties({"export.formats": None})
    mc.write(numbered(3), table.url, key="a")
    mc.write(numbered(4), table.url, key="b")
    versions = {version: expected(table, version)[0] for version in range(2, table.version + 1)}
    schema = expected(table)[1]
    for fault in ("dies_before", "dies_after"):
        for number in range(1, 40):
            store = FaultStore(open_store(table.url), {number: fault})
            session = TableContext(store)
            with contextlib.suppress(Died):
                for format in ("iceberg", "delta"):
                    exporter.export_format(session, session.open(), format)
            for read in (duckdb_iceberg, deltalake_query):
                assert rows(read(local(table)), schema) in versions.values(), (fault, number)
            if len(store.calls) < number:
                break
        else:
            pytest.fail("the exporter never came to its end")
    check(table)


def test_an_exporter_that_lags_shows_nothing_older(tmp_path: Path, table: mc.Table) -> None:
    """[EX2]"""
    session = TableContext(open_store(table.url))
    old = session.open()
    mc.write(numbered(3), table.url)
    for format in ("iceberg", "delta"):
        assert exporter.export_format(session, old, format).version == 3
    check(table)
    # the hint went back, as by an exporter that put it late
    hint = tmp_path / "t" / "_iceberg" / "metadata" / "version-hint.text"
    hint.write_text("1")
    assert exporter.export_format(session, old, "iceberg").version == 3
    assert hint.read_text() == "3"


def test_versions_that_were_passed_over_are_exported_later(path: str) -> None:
    """[EX1] [EX2] [EX4]"""
    table = table_with(numbered(1), path)
    table.export("delta")
    for number in range(5):
        mc.write(numbered(number + 2), path)
    table.export("delta")
    table.export("iceberg")
    for version in range(3, table.version + 1):
        wanted, schema = expected(table, version)
        for read in (ICEBERG["pyiceberg"], ICEBERG["DuckDB iceberg_scan"], DELTA["deltalake"], DELTA["DuckDB delta_scan"]):
            assert rows(read(local(table), version), schema) == wanted


def test_a_version_that_only_a_tag_keeps_is_exported(path: str) -> None:
    """[EX2] [EX4]"""
    table = table_with(numbered(1), path)
    for number in range(4):
        mc.write(numbered(number + 2), path, mode="overwrite")
    table.tag("kept", 3)
    table.gc(grace="0s", keep_for="0s")
    export_both(table)
    check(table)
    shown = StaticTable.from_metadata(f"{path}/_iceberg").metadata
    ids = {each.snapshot_id for each in shown.snapshots}
    assert set(shown.refs) == {"kept", "main"} and {3, table.version} <= ids and 2 not in ids


def stop(table: mc.Table) -> None:
    """Add a column that no format can express, by a write."""
    mc.write(pa.table({"n": pa.array([], pa.int64()), "odd": pa.array([], pa.duration("us"))}), table.url, merge_schema=True)


def test_how_far_an_export_is_behind_is_told(capsys: pytest.CaptureFixture[str], path: str) -> None:
    """In versions, and since when. [EX2]"""
    table = exported(path)
    told = table.metrics()
    assert (told.export_lag, told.export_age_s) == ({"iceberg": 0, "delta": 0}, {"iceberg": 0.0, "delta": 0.0})
    assert "export_is_behind" not in {each.kind for each in table.verify().findings}
    stop(table)
    lacking = time.time()
    mc.write(numbered(1), path)
    time.sleep(0.05)
    told = table.metrics()
    assert told.export_lag == {"iceberg": 2, "delta": 2}
    assert all(0.05 <= age <= time.time() - lacking + 1 for age in told.export_age_s.values()), told
    found = [each for each in table.verify().findings if each.kind == "export_is_behind"]
    assert [each.severity for each in found] == ["note", "note"] and table.verify().is_sound
    assert "the export to iceberg shows version 2, 2 behind the newest, for" in found[0].problem
    assert main(["metrics", path]) == 0 and '"delta": 2' in capsys.readouterr().out
    page = table.report().html
    assert '<section id="exports">' in page and ">delta<" in page
    open_store(path).delete(names(path))
    told = table.metrics()
    assert told.export_lag == told.export_age_s == {"iceberg": None, "delta": None}
    assert {each.problem for each in table.verify().findings} >= {"nothing is exported to delta yet, or others have removed what was"}
    assert main(["metrics", path]) == 0 and '"delta": null' in capsys.readouterr().out
    assert '<td class="n">none</td>' in table.report().html


# --- what is put --------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_the_same_versions_make_the_same_objects(tmp_path: Path) -> None:
    """[EX5]"""
    found = []
    table = KINDS["removed from manifests"](str(tmp_path / "t"))
    for _ in range(2):
        export_both(table)
        store = open_store(table.url)
        found.append({name: store.get(name) for name in sorted(names(table.url))})
        store.delete(found[0])
    assert found[0] == found[1] and len(found[0]) > 5


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["part", "a b", "1st"], ["part", "a_x20b", "_1st"]),
        (["ü", "𝄞", "a.b"], ["_xFC", "_x1D11E", "a_x2Eb"]),
        (["a b", "a_x20b"], ["p0", "p1"]),
    ],
)
def test_partition_values_have_the_names_of_their_columns(tmp_path: Path, columns: list[str], names: list[str]) -> None:
    """By which some readers find them, and else read nulls; as far as Avro can have them. [EX1] [EX6]"""
    table = mc.write(pa.table({"n": [1], **{name: ["x"] for name in columns}}), str(tmp_path / "t"), partition_by=columns)
    mc.Table(str(tmp_path / "t")).export("iceberg")
    (manifest,) = (tmp_path / "t" / "_iceberg" / "metadata").glob("m-*.avro")
    (entry,) = fastavro.reader(io.BytesIO(manifest.read_bytes()))
    assert table.committed and entry["data_file"]["partition"] == dict.fromkeys(names, "x")
    check(mc.Table(str(tmp_path / "t")), reads=[duckdb_iceberg])


def test_keys_and_watermarks_are_in_the_summary(path: str) -> None:
    """[EX7]"""
    table = table_with(numbered(2), path, key="ü key", watermarks={"topic": (0, 17)})
    export_both(table)
    summary = StaticTable.from_metadata(f"{local(table)}/_iceberg").current_snapshot().summary.additional_properties
    assert summary["added-data-files"] == "1" and summary["total-data-files"] == "1" and "deleted-data-files" not in summary
    assert json.loads(summary["manifestcommit.keys"]) == ["ü key"] and json.loads(summary["manifestcommit.watermarks"]) == {"topic": 17}
    last = json.loads(open_store(path).get("_delta_log/00000000000000000002.json").splitlines()[0])["commitInfo"]
    assert last["manifestcommit.keys"] == ["ü key"] and last["manifestcommit.watermarks"] == {"topic": 17}


@pytest.mark.thorough
def test_a_damaged_document_is_made_again(tmp_path: Path, table: mc.Table) -> None:
    """Whoever can write below the root can damage it, and no export then fails for long. [EX2]"""
    file = tmp_path / "t" / "_iceberg" / "metadata" / "v2.metadata.json"
    sound = json.loads(file.read_text())
    damages: list[Any] = [{}, [], None, "x", {**sound, "snapshots": [{}]}, {**sound, "schemas": []}, {**sound, "properties": {}}]
    damages += [{**sound, "schemas": [{**sound["schemas"][0], "fields": fields}]} for fields in (None, [{}], [1])]
    damages += [
        {**sound, "snapshots": [{**sound["snapshots"][-1], name: value}]} for name, value in (("manifest-list", 7), ("schema-id", []))
    ]
    damages += [{**sound, "last-column-id": "x"}, {**sound, "partition-specs": [{"spec-id": 0}]}]
    for number, damage in enumerate(damages):
        file.write_text(json.dumps(damage))
        mc.write(numbered(1), table.url)
        check(table)
        newest = tmp_path / "t" / "_iceberg" / "metadata" / f"v{table.version}.metadata.json"
        assert number + 3 == table.version
        file = newest


def test_gc_asks_nothing_of_exports_where_there_are_none(path: str) -> None:
    """Its own listing tells. [EX2] [EX4]"""
    mc.write(numbered(1), path)
    for exports in (False, True):
        store = CountingStore(open_store(path))
        gc.run(TableContext(store), Policy(grace_s=0.0, keep_for_s=0.0, keep_versions=1, keep_keys=1))
        asked = {call.name for call in store.calls if call.kind == "list" and call.name.startswith(("_iceberg", "_delta_log", "_spark"))}
        assert bool(asked) == exports
        mc.Table(path).export("delta")


def test_files_that_a_rollback_brings_back_are_looked_at(path: str) -> None:
    """Those with field ids of their own, which readers of Iceberg would read as nulls. [EX6] [EX9]"""
    ids = pa.schema([pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "77"})])
    foreign(path, "a.parquet", pa.table({"n": [1, 2]}, schema=ids))
    with_it = mc.Table(path).adopt().version
    table = mc.Table(path)
    mc.write(numbered(1), path, mode="overwrite")
    table.export("iceberg")
    table.rollback(with_it, reason="a test")
    for _ in range(2):
        with pytest.raises(mc.errors.UsageError, match="has other field ids than the table"):
            table.export("iceberg")
        mc.write(numbered(1), path)


def test_members_without_ids_are_refused(path: str) -> None:
    """Readers of Iceberg find no member of an array there. [EX6] [EX9]"""
    mc.create_table(path, pa.schema({"n": pa.int64(), "list": pa.list_(pa.int64())}))
    ids = {field.name: str(field.id) for field in mc.Table(path).snapshot().schema.fields}
    file = pa.schema(
        [
            pa.field("n", pa.int64(), metadata={"PARQUET:field_id": ids["n"]}),
            pa.field("list", pa.list_(pa.int64()), metadata={"PARQUET:field_id": ids["list"]}),
        ]
    )
    foreign(path, "a.parquet", pa.table({"n": [1], "list": [[1, None]]}, schema=file))
    with mc.begin(path) as job:
        job.add_files(["a.parquet"])
    with pytest.raises(mc.errors.UsageError, match="readers of Iceberg do not find column 'list'"):
        mc.Table(path).export("iceberg")


def test_tags_are_references(table: mc.Table) -> None:
    """[EX4]"""
    table.tag("release ü", 2)
    found = StaticTable.from_metadata(f"{local(table)}/_iceberg")
    assert found.metadata.refs["release ü"].snapshot_id == 2 and found.metadata.refs["main"].snapshot_id == table.version


@pytest.mark.thorough
def test_a_document_has_a_bounded_number_of_versions(tmp_path: Path, table: mc.Table) -> None:
    """[EX4]"""
    table.tag("old", 2)
    for _ in range(40):
        table.set_properties({"x": "y"})
    document = json.loads((tmp_path / "t" / "_iceberg" / "metadata" / f"v{table.version}.metadata.json").read_text())
    newest = range(table.version - 19, table.version + 1)
    assert [each["snapshot-id"] for each in document["snapshots"]] == [2, *newest]


def test_writers_of_delta_refuse_to_write(table: mc.Table) -> None:
    """[EX3]"""
    mc.write(numbered(3), table.url, mode="overwrite")  # something to vacuum
    found = deltalake.DeltaTable(local(table))
    with pytest.raises(Exception, match="manifestcommit"):
        deltalake.write_deltalake(found, numbered(1), mode="append")
    with pytest.raises(Exception, match="manifestcommit"):
        found.delete()
    with pytest.raises(Exception, match="manifestcommit"):
        found.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    check(table)


# --- gc and verify ------------------------------------------------------------------------------------------------------
def test_gc_leaves_what_readers_of_an_export_need_and_sweeps_the_rest(table: mc.Table) -> None:
    """[EX4]"""
    for number in range(4):
        mc.write(numbered(number + 3), table.url, mode="overwrite")
    before = names(table.url)
    for _ in range(2):
        report = table.gc(grace="0s", keep_for="0s")
    check(table)
    assert report.foreign.count == 0 and report.unknown.count == 0
    assert len(names(table.url)) < len(before)
    mc.write(numbered(1), table.url)
    check(table)
    assert not [each for each in table.verify().findings if each.kind in ("foreign_files", "foreign_name")]


def test_gc_deletes_nothing_that_the_newest_export_shows(table: mc.Table) -> None:
    """[EX4]"""
    wanted, schema = expected(table)
    stop(table)
    mc.write(numbered(4), table.url)
    table.gc(grace="0s", keep_for="0s", keep_versions=10)
    with pytest.raises(mc.errors.StoreError, match="gc deleted nothing"):
        table.gc(grace="0s", keep_for="0s")
    for read in (duckdb_iceberg, deltalake_query):
        assert rows(read(local(table)), schema) == wanted
    table.drop_column("odd")
    table.gc(grace="0s", keep_for="0s")
    check(table)


def test_gc_leaves_what_was_shown_within_the_grace_period(tmp_path: Path, table: mc.Table) -> None:
    """[EX4]"""
    mc.write(numbered(3), table.url)
    before = names(table.url)
    for info in (tmp_path / "t" / "_iceberg" / "metadata").iterdir():
        os.utime(info, (1, 1))  # old, and the newest document until the next commit
    mc.write(numbered(4), table.url)
    table.gc(grace="1h", keep_for="0s")
    kept = {name for name in before & names(table.url) if name.startswith("_iceberg/")}
    document = json.loads(open_store(table.url).get("_iceberg/metadata/v3.metadata.json"))
    needed = {each["manifest-list"].removeprefix(f"{table.url}/") for each in document["snapshots"]}
    assert needed | {"_iceberg/metadata/v3.metadata.json"} <= kept
    assert "_iceberg/metadata/v2.metadata.json" not in kept


def test_a_manifest_that_was_forgotten_gets_another_name(path: str) -> None:
    """[EX4]"""
    with budgets(inline_entry_bytes=100):
        mc.create_table(path, numbered(0).schema, properties=BOTH)
        for _ in range(3):
            mc.write(numbered(2), path)
        table = mc.Table(path)
        full = table.version
        before = {name for name in names(path) if "/m-" in name}
        mc.write(numbered(0), path, mode="overwrite")
        table.rollback(full, reason="a test")
    new = {name for name in names(path) if "/m-" in name} - before
    assert new and {name.partition("-")[2][:40] for name in new} & {name.partition("-")[2][:40] for name in before}
    check(table)


def test_plan_gc_lists_objects_of_exports(table: mc.Table) -> None:
    """[EX4]"""
    for number in range(3):
        mc.write(numbered(number + 3), table.url, mode="overwrite")
    table.gc(grace="0s", keep_for="0s")
    mc.write(numbered(1), table.url, mode="overwrite")
    plan = table.plan_gc(grace="0s", keep_for="0s").to_pylist()
    assert any(each["name"].startswith("_iceberg/") and each["action"] == "delete" for each in plan)
    assert not [each for each in plan if each["action"] == "leave"]


def test_gc_sweeps_what_exports_by_hand_have_left(path: str) -> None:
    """What the newest one shows stays as long as it is readable; then all of it goes. [EX4]"""
    table = table_with(numbered(1), path)
    for _ in range(3):
        export_both(table)
        mc.write(numbered(2), path, mode="overwrite")
    shown = table.version - 1
    table.tag("shown to others", shown)
    for _ in range(3):
        planned = {each["name"] for each in table.plan_gc(grace="0s", keep_for="0s").to_pylist()}
        before = names(path)
        table.gc(grace="0s", keep_for="0s")
        gone = before - names(path)
        assert gone == {name for name in planned if is_export(name)}
        check(table, shown)
    assert "_iceberg/metadata/v2.metadata.json" not in names(path)
    table.untag("shown to others")
    table.gc(grace="1h", keep_for="0s")
    assert names(path)
    table.gc(grace="0s", keep_for="0s")
    assert not names(path)
    export_both(table)
    mc.write(numbered(1), path)
    mc.write(numbered(1), path)
    table.gc(grace="0s", keep_for="0s")
    assert names(path), "an exporter that began when the version was readable may build on it"
    mc.write(numbered(1), path)
    table.gc(grace="0s", keep_for="0s")
    assert not names(path)
    export_both(table)
    check(table)


def test_a_log_or_metadata_of_another_table_is_left_alone(tmp_path: Path) -> None:
    """As after a table was removed and made again in its place, or adopted from Delta. [EX1] [EX4] [EX9]"""
    path, other, third = (str(tmp_path / name) for name in ("t", "other", "third"))
    for url, rows_of in ((other, 3), (path, 1), (third, 2)):
        mc.write(numbered(rows_of), url)
    mc.Table(other).export("iceberg")
    deltalake.write_deltalake(other, numbered(7))
    mc.Table(third).export("delta")  # a log that is a checkpoint alone
    table = mc.Table(path)
    for folder in ("other/_iceberg", "other/_delta_log", "third/_delta_log"):
        place = tmp_path / "t" / folder.partition("/")[2]
        (tmp_path / folder).rename(place)
        before = {each: each.read_bytes() for each in place.rglob("*.*")}
        format = place.name.removeprefix("_").removesuffix("_log")
        with pytest.raises(mc.errors.UsageError, match=f"t/{place.name} is of another table or program"):
            table.export(format)
        with pytest.raises(mc.errors.UsageError, match=f"t/{place.name} is of another table or program"):
            table.set_properties({"export.formats": format})
        for _ in range(3):
            mc.write(numbered(1), path, mode="overwrite")
            table.gc(grace="0s", keep_for="0s")
        assert before and before == {each: each.read_bytes() for each in place.rglob("*.*")}
        shutil.rmtree(place)


# --- what cannot be expressed -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("type", ["interval day to second", "void", "variant"])
@pytest.mark.parametrize("format", ["iceberg", "delta"])
def test_types_that_a_format_lacks_are_refused(tmp_path: Path, type: str, format: str) -> None:
    """[EX9]"""
    table = table_with(numbered(1), str(tmp_path / "t"))
    table.add_column("odd", type)
    with pytest.raises(mc.errors.UnsupportedTypeError, match=f"column 'odd' has the type {type}"):
        table.export(format)
    with pytest.raises(mc.errors.UnsupportedTypeError, match="column 'odd'"):
        table.set_properties({"export.formats": format})
    assert not names(table.url) and "export.formats" not in table.snapshot().properties


def test_a_column_that_cannot_be_expressed_stops_exports_and_no_commit_of_rows(table: mc.Table) -> None:
    """What would stop them is refused as a change of columns; once they are stopped, no change of columns is. [EX2] [EX9]"""
    version = table.version
    with pytest.raises(mc.errors.UnsupportedTypeError, match="column 'odd' has the type interval"):
        table.add_column("odd", "interval day to second")
    assert table.version == version
    odd = pa.array([dt.timedelta(days=1)], pa.duration("us"))
    mc.write(numbered(1).append_column("odd", odd), table.url, merge_schema=True)
    assert table.metrics().export_lag == {"iceberg": 1, "delta": 1}
    assert table.add_column("other", "long").committed and table.drop_column("odd").committed
    check(table)


@pytest.mark.parametrize("name", ["s.x", "S.X", "s.in.y", "l.element", "l.element.k", "m.key", "m.value.k"])
def test_names_that_are_one_to_readers_of_iceberg_are_refused(tmp_path: Path, name: str) -> None:
    """Those of columns, and of members of structs, lists and maps. [EX9]"""
    maps = pa.array([[("a", {"k": 1})]], pa.map_(pa.string(), pa.struct([("k", pa.int64())])))
    data = pa.table({"id": [1], "s": [{"x": 1, "in": {"y": 2}}], "l": [[{"k": 1}]], "m": maps})
    table = mc.Table(str(tmp_path / "t"))
    mc.write(data.append_column("o.k", pa.array([2])), table.url)
    assert StaticTable.from_metadata(table.export("iceberg").location).scan().to_arrow().num_rows == 1
    table.set_properties({"export.formats": "iceberg"})
    version = table.version
    with pytest.raises(mc.errors.UsageError, match=f"(?i)'{name}'.*cannot distinguish them"):
        table.rename_column("o.k", name)
    assert table.version == version and table.metrics().export_lag == {"iceberg": 0}
    table.set_properties({"export.formats": None})
    table.rename_column("o.k", name)
    for act in (lambda: table.export("iceberg"), lambda: table.set_properties({"export.formats": "iceberg"})):
        with pytest.raises(mc.errors.UsageError, match=f"(?i)'{name}'.*cannot distinguish them"):
            act()
    table.rename_column(name, "o.k")
    table.export("iceberg")


def test_a_member_that_has_the_path_of_another_is_refused_too(tmp_path: Path) -> None:
    """[EX9]"""
    mc.write(pa.table({"l": [[{"x.y": 1, "x": {"y": 2}}]]}), str(tmp_path / "t"))
    with pytest.raises(mc.errors.UsageError, match=r"'l\.element\.x\.y'.*cannot distinguish them"):
        mc.Table(str(tmp_path / "t")).export("iceberg")


@pytest.mark.parametrize("name", ["a#b", "a%41", "a?b"])
def test_a_path_that_readers_of_iceberg_misread_is_refused(tmp_path: Path, name: str) -> None:
    """[EX9]"""
    mc.write(numbered(1), str(tmp_path / name))
    with pytest.raises(mc.errors.UsageError, match="the table's path"):
        mc.Table(str(tmp_path / name)).export("iceberg")


def test_ids_that_iceberg_reserves_are_refused() -> None:
    """[EX9]"""
    from manifestcommit.export.iceberg_export import check_schema

    check_schema(Schema(fields=(Field(id=2_147_483_446, name="a", type="long"),)))
    with pytest.raises(mc.errors.UsageError, match="reserves"):
        check_schema(Schema(fields=(Field(id=2_147_483_447, name="a", type="long"),)))


def test_the_property_is_refused_where_files_have_ids_of_their_own(tmp_path: Path) -> None:
    """[EX9]"""
    table = KINDS["adopted with ids"](str(tmp_path / "t"))
    with pytest.raises(mc.errors.UsageError, match="other field ids than the table"):
        table.set_properties({"export.formats": "delta,iceberg"})
    assert "export.formats" not in table.snapshot().properties


@pytest.mark.parametrize("value", ["", "hudi", "iceberg,iceberg", "iceberg delta"])
def test_a_property_that_names_no_formats_is_refused(tmp_path: Path, value: str) -> None:
    """[EX9]"""
    mc.write(numbered(1), str(tmp_path / "t"))
    with pytest.raises(mc.errors.UsageError, match="split by commas"):
        mc.Table(str(tmp_path / "t")).set_properties({"export.formats": value})
    with pytest.raises(mc.errors.UsageError, match="there is no property"):
        mc.Table(str(tmp_path / "t")).set_properties({"export.others": value})


def test_a_name_that_means_another_column_ends_what_is_shown(path: str) -> None:
    """[EX6]"""
    foreign(path, "a.parquet", numbered(2))
    table = mc.Table(path)
    table.adopt()
    start = table.version
    table.add_column("b", "string")
    mc.write(numbered(1, b=["first"]), path)
    table.rollback(start, reason="a test")
    table.add_column("b", "string")
    mc.write(numbered(1, b=["second"]), path)
    table.export("iceberg")
    check(table, reads=[duckdb_iceberg])
    document = json.loads(open_store(path).get(f"_iceberg/metadata/v{table.version}.metadata.json"))
    shown = [each["snapshot-id"] for each in document["snapshots"]]
    assert start in shown and start + 2 not in shown


def test_regular_gcs_leave_nothing_of_rows_that_are_gone_for_good(path: str, tmp_path: Path) -> None:
    """Each gc that expires a version puts a young checkpoint: the older one before it is what the log begins with. [EX4] [GC5]"""
    people = pa.table({"name": ["Ada Lovelace", "Grace"]})
    mc.create_table(path, people.schema, properties=BOTH)
    table = table_with(people, path)
    table.delete("name = 'Ada Lovelace'")
    drop_removed(table._ctx)
    for _ in range(4):
        planned = table.plan_gc(grace="0s", keep_for="0s").num_rows
        deleted = table.gc(grace="0s", keep_for="0s").deleted
        assert sum(each.count for each in deleted.values()) >= planned > 0
    log = [each for each in (tmp_path / "t").rglob("*") if each.is_file() and "_manifest" not in each.parts]
    assert len(log) > 4 and not [each.name for each in log if b"Lovelace" in each.read_bytes()]


def test_files_of_before_a_column_was_added_have_no_bounds_of_it(path: str) -> None:
    """Not even where none of a struct's members has one in some of the files. [EX1] [EX8]"""
    table = exported(path)
    struct = pa.array([{"x": 1, "y": "a"}, {"x": None, "y": None}], pa.struct([("x", pa.int64()), ("y", pa.string())]))
    mc.write(numbered(2).append_column("s", struct), path, merge_schema=True)
    table.delete("s.x = 1 OR s IS NULL", key="mixed")
    mc.write(numbered(2), path)
    table.compact()
    assert table.metrics().export_lag == {"iceberg": 0, "delta": 0}
    check(table)


def folder_that_lacks_its_column(root: str) -> None:
    for value in ("a", "b"):
        Path(root, f"part={value}").mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2]}), f"{root}/part={value}/x.parquet")


@pytest.mark.parametrize("format", ["delta", "spark-catalog"])
@pytest.mark.parametrize("later", [0, 30])
def test_a_refused_export_leaves_nothing_and_its_remedy_works(path: str, format: str, later: int) -> None:
    """A log that ends before the version that was refused is an empty table to every reader of Delta. [EX9]"""
    folder_that_lacks_its_column(path)
    mc.Table(path).adopt()
    for number in range(later):
        mc.write(pa.table({"n": [number], "part": ["c"]}), path)
    table = mc.Table(path)
    before = sorted(Path(path).rglob("*"))
    with pytest.raises(mc.errors.UsageError, match=r"does not hold its partition column 'part'.*mode=\"overwrite\""):
        table.export(format)
    with pytest.raises(mc.errors.UsageError, match="does not hold its partition column"):
        table.set_properties({"export.formats": format})
    assert sorted(Path(path).rglob("*")) == before
    table = table_with(table.to_arrow(), path, mode="overwrite")
    table.set_properties({"export.formats": format})
    mc.write(pa.table({"n": [9], "part": ["z"]}), path)
    assert table.export(format).version == mc.Table(path).version
    if format == "delta":
        check(mc.Table(path), reads=[deltalake_query])


def test_a_log_goes_on_behind_a_version_that_delta_cannot_read(path: str) -> None:
    """Files that came and went since the last export are no reason to refuse, and not in the log. [EX3] [EX9]"""
    folder_that_lacks_its_column(path)
    refused = mc.Table(path).adopt().version
    table = mc.Table(path)
    mc.write(table.to_arrow(), path, mode="overwrite")
    shown = table.export("delta").version
    table.rollback(refused, reason="a test")
    with pytest.raises(mc.errors.UsageError, match="does not hold its partition column"):
        table.export("delta")
    assert deltalake.DeltaTable(path).version() == shown
    mc.write(pa.table({"n": [2], "part": ["b"]}), path, mode="overwrite")
    assert table.export("delta").version == mc.Table(path).version
    check(mc.Table(path), reads=[deltalake_query])


def test_a_refused_export_to_iceberg_puts_no_object(path: str) -> None:
    """Also where manifests before the one that is refused could be put. [EX9]"""
    ids = pa.schema([pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "77"})])
    with budgets(inline_entry_bytes=100, adopted_entries=1):
        foreign(path, "a.parquet", pa.table({"n": [1, 2]}))
        foreign(path, "b.parquet", pa.table({"n": [1, 2]}, schema=ids))
        mc.Table(path).adopt()
    before = names(path)
    with pytest.raises(mc.errors.UsageError, match="has other field ids than the table"):
        mc.Table(path).export("iceberg")
    assert names(path) == before == set()


MISREAD = [pa.array([1, 2], pa.uint64()), pa.array([b"ab", b"cd"], pa.binary(2)), pa.array([[b"ab"], []], pa.list_(pa.binary(2)))]


@pytest.mark.parametrize("values", MISREAD, ids=lambda each: str(each.type))
def test_types_of_files_that_readers_of_iceberg_refuse_are_refused(values: pa.Array, path: str) -> None:
    """Until they are rewritten in the table's type. [EX9]"""
    foreign(path, "a.parquet", pa.table({"n": values}))
    table = mc.Table(path)
    table.adopt()
    with pytest.raises(mc.errors.UsageError, match=r"a\.parquet has column 'n' with the type .*, which readers of Iceberg refuse"):
        table.export("iceberg")
    assert names(path) == set()
    mc.write(table.to_arrow(), path, mode="overwrite")
    table.export("iceberg")
    check(table, reads=[pyiceberg_scan])


FAR = [dt.datetime(1, 1, 1), dt.datetime(1677, 9, 21), dt.datetime(2262, 4, 12), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]
NEAR = [dt.datetime(1677, 9, 22), None, dt.datetime(2262, 4, 11)]


def put_int96(path: str, instants: list[dt.datetime | None], nested: bool) -> None:
    """A file with these instants as INT96, in lists if they are nested: pyarrow writes none so far, so days after 2000 are replaced."""
    known = [dt.datetime(2000, 1, 1) + dt.timedelta(days=at) for at in range(len(instants))]
    given = [at if each is not None else None for each, at in zip(instants, known, strict=True)]
    values = pa.array(given, pa.timestamp("us", "UTC"))
    column = pa.array([[each] for each in given], pa.list_(values.type)) if nested else values
    sink, how = io.BytesIO(), {"use_deprecated_int96_timestamps": True, "use_dictionary": False, "compression": "none"}
    pq.write_table(pa.table({"n": list(range(len(given))), "t": column}), sink, **how)
    data = sink.getvalue()
    for at, each in zip(known, instants, strict=True):
        if each is not None:
            assert data.count(_int96(at)) == 1
            data = data.replace(_int96(at), _int96(each))
    Path(path).mkdir(parents=True)
    Path(path, "a.parquet").write_bytes(data)


def _int96(at: dt.datetime) -> bytes:
    since = at - dt.datetime(1970, 1, 1)
    nanos = (since.seconds * 1_000_000 + since.microseconds) * 1_000
    return nanos.to_bytes(8, "little") + (since.days + 2_440_588).to_bytes(4, "little")


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("format", ["iceberg", "delta"])
@pytest.mark.parametrize("instant", [*FAR, None], ids=str)
def test_instants_of_int96_are_exported_where_every_reader_takes_them(
    instant: dt.datetime | None, format: str, nested: bool, path: str
) -> None:
    """Others take INT96 for nanoseconds in 64 bits: 0001-01-01 is 1754 to them. [EX9]"""
    put_int96(path, NEAR if instant is None else [NEAR[0], instant], nested)
    table = mc.Table(path)
    table.adopt()
    if instant is not None:
        with pytest.raises(mc.errors.UsageError, match=r"a\.parquet stores an instant of column 't' as INT96 that is before the year 1678"):
            table.export(format)
        assert not {name.split("/")[0] for name in os.listdir(path)} & {"_iceberg", "_delta_log"}
        mc.write(table.to_arrow(), path, mode="overwrite")
    table.export(format)
    check(table, reads=[pyiceberg_scan if format == "iceberg" else deltalake_query])


# `lists` has what parquetjs 0.11.2 writes as l: [1, 2], [] and [3]; and what Spark 4 writes with spark.sql.parquet.writeLegacyFormat:
# [1, 2], null and [] as l.array, and [1, null], null and [] as l.bag.array.
OLD_LISTS = {"": [[1, 2], [], [3]], "array": [[1, 2], None, []], "bag.array": [[1, None], None, []]}


@pytest.mark.parametrize("format", ["iceberg", "delta"])
@pytest.mark.parametrize("form", list(OLD_LISTS))
def test_lists_in_the_forms_of_old_writers_are_refused_until_they_are_rewritten(root: Path, form: str, format: str) -> None:
    """DuckDB reads their elements as nulls. [EX9]"""
    root.mkdir()
    name = ".".join(filter(None, ("l", form)))
    shutil.copy(Path(__file__).with_name("lists") / f"{name}.parquet", root / "a.parquet")
    table = mc.Table(str(root))
    table.adopt()
    assert table.to_arrow()["l"].to_pylist() == OLD_LISTS[form]
    with pytest.raises(
        mc.errors.UsageError, match=rf"a\.parquet stores the elements of a list as '{name}', .* which DuckDB reads as nulls"
    ):
        table.export(format)
    assert not {name.split("/")[0] for name in os.listdir(root)} & {"_iceberg", "_delta_log"}
    mc.write(table.to_arrow(), str(root), mode="overwrite")
    assert table.export(format).version == table.version


@pytest.mark.parametrize("format", ["iceberg", "delta"])
@pytest.mark.parametrize("release", ["1.8.2", "1.10.0"])
def test_bounds_of_decimals_that_spark_2_wrote_are_refused_until_they_are_rewritten(tmp_path: Path, release: str, format: str) -> None:
    """DuckDB prunes by the bounds in a file's footer. [EX9]"""
    path, sink = tmp_path / "t", io.BytesIO()
    path.mkdir()
    pq.write_table(pa.table({"c": pa.array([1, 24], pa.decimal128(25, 2))}), sink, store_schema=False)
    (path / "a.parquet").write_bytes(changed(sink.getvalue(), 6, to=f"parquet-mr version {release} (build c65)".encode()))
    table = mc.Table(str(path))
    table.adopt()
    if release == "1.8.2":
        with pytest.raises(
            mc.errors.UsageError, match=r"a\.parquet has bounds of column 'c' that parquet-mr before 1\.10 compared as bytes"
        ):
            table.export(format)
        mc.write(table.to_arrow(), str(path), mode="overwrite")
    assert table.export(format).version == table.version


@pytest.mark.parametrize("name", ["l", "l.list", "s"])
def test_lists_with_two_levels_are_exported_whatever_pyarrow_calls_them(name: str, path: str) -> None:
    """`item` is pyarrow's former name of an element. [EX9]"""
    inner = pa.array([[[1, None]], None, []], pa.list_(pa.list_(pa.int64())))
    values = pa.StructArray.from_arrays([inner], ["a.b"]) if name == "s" else inner
    Path(path).mkdir()
    pq.write_table(
        pa.table({name: values, "m": pa.array([[("k", [1])], None, []], pa.map_(pa.string(), pa.list_(pa.int64())))}),
        f"{path}/a.parquet",
        use_compliant_nested_type=False,
    )
    mc.Table(path).adopt()
    mc.Table(path).export("delta")
    check(mc.Table(path), reads=[deltalake_query])


def test_a_file_of_nan_alone_has_no_count_of_nan_in_iceberg(tmp_path: Path) -> None:
    """Daft leaves out such a file for any filter, since it takes the count for that of nulls. [EX8]"""
    path, nan = str(tmp_path / "t"), float("nan")
    for values in ([nan, nan], [nan, 1.0], [1.0, 2.0]):
        mc.write(pa.table({"x": values}), path)
    mc.Table(path).export("iceberg")
    tasks = StaticTable.from_metadata(newest_document(path)).scan().plan_files()
    counts = sorted(list((task.file.nan_value_counts or {}).values()) for task in tasks)
    assert counts == [[], [0], [1]]
    assert StaticTable.from_metadata(newest_document(path)).scan(row_filter="x is NaN").to_arrow().num_rows == 3


def newest_document(path: str) -> str:
    return str(max(Path(path, "_iceberg", "metadata").glob("v*.metadata.json"), key=os.path.getmtime))

"""Tables that earlier releases wrote are read as those releases read them, and written on. [CP1]

The fixtures are never edited: a failure here means that this release would misread tables which are out there.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from tests.compat import freeze

import manifestcommit as mc
from manifestcommit.cli.main import main

FIXTURES = Path(__file__).with_name("fixtures")
EXPECTED: dict[str, Any] = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(FIXTURES.glob("*/expected.json"))}
TABLES = [(release, name) for release, each in EXPECTED.items() for name in each["tables"]]
VERSIONS = [(release, name, int(version)) for release, name in TABLES for version in EXPECTED[release]["tables"][name]["versions"]]
EVOLVED = [(release, "evolved") for release in EXPECTED]


def by_duckdb(dataset: ds.Dataset) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("dataset", dataset)
        found = connection.sql("select * from dataset").to_arrow_table()
    return found.cast(dataset.schema) if not _has_interval(dataset.schema) else found


def by_polars(dataset: ds.Dataset) -> pa.Table:
    return pl.scan_pyarrow_dataset(dataset).collect().to_arrow()


READERS: dict[str, Callable[[ds.Dataset], pa.Table]] = {
    "pyarrow": ds.Dataset.to_table,
    "duckdb": by_duckdb,
    "polars": by_polars,
}


def _has_interval(schema: pa.Schema) -> bool:
    return any(pa.types.is_duration(field.type) for field in schema)


def expected(release: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = EXPECTED[release]["tables"][name]
    return found


def table_of(release: str, name: str) -> mc.Table:
    return mc.Table(FIXTURES / release / name)


def rows_of(table: pa.Table) -> Any:
    """Rows as the expectations spell them. DuckDB shows durations as intervals of months, days and nanoseconds."""
    found = []
    for row in table.sort_by("id").to_pylist():
        found.append({name: _duration(value) if isinstance(value, pa.MonthDayNano) else value for name, value in row.items()})
    return freeze.shown(found)


def _duration(value: Any) -> dt.timedelta:
    assert value.months == 0
    return dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)


def test_there_are_frozen_tables() -> None:
    """[CP1]"""
    assert TABLES and all({"evolved", "types"} <= set(each["tables"]) for each in EXPECTED.values())


@pytest.mark.parametrize(("release", "name"), TABLES)
def test_nobody_edited_the_frozen_bytes(release: str, name: str) -> None:
    """[CP1]"""
    assert freeze.digests(FIXTURES / release / name) == expected(release, name)["objects"]


@pytest.mark.parametrize(("release", "name", "version"), VERSIONS)
def test_every_version_says_what_it_said(release: str, name: str, version: int) -> None:
    """Rows, columns, files with their bounds, watermarks, properties, totals, commits. [CP1] [RD2]"""
    whole = expected(release, name)
    wanted = dict(whole["versions"][str(version)])
    found = freeze.describe(table_of(release, name), version)
    for shared in ("rows", "files"):
        wanted[shared] = [whole[shared][at] for at in wanted[shared]]
    assert json.loads(json.dumps(found)) == wanted


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("release", "name", "version"), VERSIONS)
def test_every_reader_reads_every_version(release: str, name: str, version: int, reader: str) -> None:
    """[CP1] [RD7]"""
    whole = expected(release, name)
    described = whole["versions"][str(version)]
    found = READERS[reader](table_of(release, name).dataset(version=version))
    assert [field for field, _ in described["columns"]] == found.column_names
    wanted = [whole["rows"][at] for at in described["rows"]]
    if reader != "pyarrow":  # maps are lists of structs elsewhere
        found, wanted = _without_maps(found), [{k: v for k, v in row.items() if k != "map"} for row in wanted]
    assert rows_of(found) == wanted


def _without_maps(table: pa.Table) -> pa.Table:
    return table.drop_columns(["map"]) if "map" in table.column_names else table


@pytest.mark.parametrize(("release", "name"), EVOLVED)
def test_filters_prune_and_find_what_they_did(release: str, name: str) -> None:
    """By partition, by bounds, on renamed and widened columns, inlined and spilled. [RD6] [RD7]"""
    table, whole = table_of(release, name), expected(release, name)
    head = whole["versions"][str(max(map(int, whole["versions"])))]
    rows = [whole["rows"][at] for at in head["rows"]]
    part, count = pc.field("part of 'it'"), len(whole["versions"])
    for value in freeze.HOSTILE:
        condition = part == value if value is not None else part.is_null()
        ids = [row["id"] for row in rows if row["part of 'it'"] == value]
        assert sorted(table.dataset().to_table(filter=condition)["id"].to_pylist()) == ids
        assert sum(table.files(filter=condition)["rows"].to_pylist()) == len(ids)
    for row in rows:
        assert table.dataset().to_table(filter=pc.field("id") == row["id"]).num_rows == 1
        assert table.files(filter=pc.field("id") == row["id"]).num_rows == 1
    assert table.files(filter=pc.field("v") == 2**40, version=12).num_rows == 1
    assert table.snapshot(as_of=table.history()[0]["committed_at"]).version == count


@pytest.mark.parametrize(("release", "name"), TABLES)
def test_history_jobs_and_keys_are_remembered(release: str, name: str) -> None:
    """Inlined or in runs: a job is found, a rerun is a no-op. [CM1] [KY1] [OB11]"""
    table, whole = table_of(release, name), expected(release, name)
    assert [row["version"] for row in table.history()] == sorted(map(int, whole["versions"]), reverse=True)
    for job, version in whole["jobs"].items():
        found = table.resolve(job)
        assert (str(found), found.version) == ("committed", version)


@pytest.fixture
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    release, name = request.param
    return Path(shutil.copytree(FIXTURES / release / name, tmp_path / "copy"))


@pytest.mark.parametrize("copied", EVOLVED, indirect=True)
def test_reruns_of_frozen_keys_do_nothing_and_other_work_is_refused(copied: Path) -> None:
    """What a key stands for is told apart as the release did that recorded it. [KY2] [KY3]"""
    head = mc.Table(copied).snapshot().version
    data = pa.table({"id": pa.array([], pa.int64())})
    first = mc.write(data, copied, key="load:1", watermarks={"MyTopic:0": (0, 50), "MyTopic:1": (7, 7)})
    assert (first.version, first.already_committed) == (2, True)
    assert mc.write(data, copied, key="load:3", fingerprint="f").already_committed
    assert mc.write(data, copied, mode="overwrite", overwrite={"part of 'it'": "a/b"}, key="replace:1").version == 12
    assert mc.write(data, copied, key="adopted").version == 15
    for declared in ({"watermarks": {"MyTopic:0": (0, 51)}}, {"fingerprint": "g"}, {"mode": "overwrite"}):
        with pytest.raises(mc.KeyReusedError, match="'load:1'"):
            mc.write(data, copied, key="load:1", **declared)  # type: ignore[arg-type]
    assert mc.Table(copied).snapshot().version == head


@pytest.mark.parametrize("copied", EVOLVED, indirect=True)
def test_a_frozen_table_is_written_on(copied: Path) -> None:
    """Appends, overwrites of spilled partitions, watermarks, new columns: on top of what an earlier release left. [CP1] [OB9] [WM2]"""
    table = mc.Table(copied)
    before = {row["id"]: row for row in table.dataset().to_table().to_pylist()}
    marks = table.watermarks()
    with pytest.raises(mc.WatermarkOverlapError):
        mc.write(pa.table({"id": [100]}), copied, watermarks={"MyTopic:0": (0, 50)})
    new = pa.table({"id": [100], "new": ["x"], "part of 'it'": pa.nulls(1), "n": pa.nulls(1)})
    mc.write(new, copied, watermarks={"MyTopic:0": (marks["MyTopic:0"], 2**62 + 9)}, merge_schema=True)
    mc.write(
        pa.table({"id": [101], "part of 'it'": ["a b"], "n": pa.nulls(1)}), copied, mode="overwrite", overwrite={"part of 'it'": "a b"}
    )
    found = {row["id"]: row for row in table.dataset().to_table().to_pylist()}
    kept = {at for at, row in before.items() if row["part of 'it'"] != "a b"}
    assert set(found) == kept | {100, 101} and found[100]["new"] == "x" and table.watermarks()["MyTopic:0"] == 2**62 + 9
    assert all(freeze.shown({**before[at], "new": None}) == freeze.shown(found[at]) for at in kept)
    assert table.snapshot().totals.rows == len(found)
    table.set_properties({"write.missing-columns": "null"})
    mc.write(pa.table({"id": [102], "part of 'it'": pa.nulls(1), "n": pa.nulls(1)}), copied, mode="overwrite")
    assert table.dataset().to_table()["id"].to_pylist() == [102]


@pytest.mark.parametrize(("release", "name"), TABLES)
@pytest.mark.parametrize("command", ["history", "describe", "files", "watermarks", "changes"])
def test_the_command_line_shows_frozen_tables(release: str, name: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[CP1]"""
    arguments = [command, str(FIXTURES / release / name), *(["1"] if command == "changes" else [])]
    assert main(arguments) == 0
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) is not None

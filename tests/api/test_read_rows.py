"""Rows, columns and partitions of a table in one call each: `to_arrow`, `to_pandas`, `to_polars`, `schema`, `version`, `partitions`."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import manifestcommit as mc

HOSTILE = ["a b", "100%", "%41", "a+b", "it's", '"', "`", "a=b", "a/b", "\\", "été", "日本", "🦆", "", " ", None]


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    """One partition for each hostile value, null among them, and one file more of the first."""
    mc.write(pa.table({"place": HOSTILE, "flight": range(len(HOSTILE))}), tmp_path / "t", partition_by="place")
    mc.write(pa.table({"place": HOSTILE[:1], "flight": [99]}), tmp_path / "t")
    return mc.Table(tmp_path / "t")


def test_rows_are_those_of_the_dataset(table: mc.Table) -> None:
    """[RD2] [RD7]"""
    found = table.to_arrow()
    assert found.sort_by("flight") == table.dataset().to_table().sort_by("flight")
    assert found.num_rows == len(HOSTILE) + 1 and found.schema.metadata, "it carries its version [CF17]"
    assert found.sort_by("flight").to_pandas().equals(table.to_pandas().sort_values("flight", ignore_index=True))
    assert table.to_polars().sort("flight").collect().equals(pl.from_arrow(found.sort_by("flight")))


def test_columns_are_those_asked_for_in_that_order(table: mc.Table) -> None:
    """[RD7]"""
    assert table.to_arrow(["flight", "place"]).column_names == ["flight", "place"]
    assert table.to_arrow("flight").column_names == ["flight"]
    assert table.to_arrow([]).shape == (len(HOSTILE) + 1, 0)
    assert list(table.to_pandas("flight").columns) == table.to_polars("flight").collect().columns == ["flight"]
    with pytest.raises(mc.errors.UsageError, match="nowhere"):
        table.to_arrow(["nowhere"])
    with pytest.raises(mc.errors.UsageError, match="nowhere"):
        table.to_arrow(filter=pc.field("nowhere") == 1)


def test_versions_tags_and_renamed_columns(table: mc.Table) -> None:
    """[RD4] [RD5] [SC6]"""
    table.tag("both", 3)
    table.rename_column("flight", "number")
    assert table.to_arrow(version=2).num_rows == len(HOSTILE) and table.to_polars(tag="both").collect().columns == ["place", "flight"]
    assert table.to_pandas(columns="number", filter=pc.field("number") == 99)["number"].tolist() == [99]
    with pytest.raises(mc.errors.VersionNotFoundError):
        table.to_arrow(version=77)


def test_the_schema_and_the_version_are_the_newest_ones(table: mc.Table, tmp_path: Path) -> None:
    """[RD1] [SC1]"""
    before = table.version
    assert table.schema == pa.schema([("place", pa.string()), ("flight", pa.int64())]) and not table.schema.metadata
    table.add_column("late", pa.bool_())
    assert table.version == before + 1 == table.snapshot().version and table.schema.names == ["place", "flight", "late"]
    with pytest.raises(mc.errors.TableNotFoundError):
        _ = mc.Table(tmp_path / "none").version
    with pytest.raises(mc.errors.TableNotFoundError):
        _ = mc.Table(tmp_path / "none").schema


def test_partitions_count_files_and_rows_of_any_value(table: mc.Table) -> None:
    """[PT1]"""
    found = table.partitions()
    assert found.column_names == ["place", "files", "rows", "bytes"]
    assert {row["place"]: (row["files"], row["rows"]) for row in found.to_pylist()} == {
        value: (1 + (value == HOSTILE[0]),) * 2 for value in HOSTILE
    }
    assert pc.sum(found["bytes"]) == pc.sum(table.files()["bytes"])
    assert table.partitions(version=2).num_rows == len(HOSTILE)


def test_partitions_of_several_columns_one_named_like_a_count(tmp_path: Path) -> None:
    """[PT1]"""
    rows = pa.table({"files": [1, 1, None], "day": ["a", "b", "b"], "x": [1, 2, 3]})
    mc.write(rows, tmp_path / "t", partition_by=["files", "day"])
    found = mc.Table(tmp_path / "t").partitions()
    assert found.column_names == ["partition.files", "day", "files", "rows", "bytes"]
    assert {(row["partition.files"], row["day"], row["rows"]) for row in found.to_pylist()} == {(1, "a", 1), (1, "b", 1), (None, "b", 1)}


def test_a_table_that_is_not_partitioned_is_one_partition(tmp_path: Path) -> None:
    """[PT1]"""
    for number in (1, 2):
        mc.write(pa.table({"x": [number]}), tmp_path / "t")
    found = mc.Table(tmp_path / "t").partitions()
    assert found.select(["files", "rows"]).to_pylist() == [{"files": 2, "rows": 2}] and found.column_names == ["files", "rows", "bytes"]


def test_tables_without_rows_columns_or_files(tmp_path: Path) -> None:
    """[RD2]"""
    schema = pa.schema([("day", pa.string()), ("x", pa.int64())])
    empty = mc.create_table(tmp_path / "empty", schema, partition_by="day")
    assert empty.to_arrow().schema.equals(schema) and empty.to_pandas().shape == (0, 2) and empty.to_polars().collect().shape == (0, 2)
    assert empty.to_arrow("x", pc.field("x") > 1).num_rows == 0
    assert empty.partitions().num_rows == 0 and empty.partitions().column_names == ["day", "files", "rows", "bytes"]
    with mc.begin(tmp_path / "bare", key="k") as job:
        job.advance("s", 0, 1)
    bare = mc.Table(tmp_path / "bare")
    assert bare.schema.names == [] and bare.to_arrow().num_rows == 0 and bare.partitions().num_rows == 0
    assert bare.snapshot().schema.fields == () and bare.to_arrow(filter="1 = 1").num_rows == 0
    for filter in ("x > 1", pc.field("x") > 1):
        with pytest.raises(mc.errors.UsageError, match="'x'"):
            bare.to_arrow(filter=filter)


WITHOUT = """
import sys
class Without:
    def find_spec(name, *_):
        if name.partition(".")[0] in {libraries!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without)
import manifestcommit as mc
t = mc.Table({path!r})
for call in {calls!r}:
    try:
        exec(call)
    except mc.errors.UsageError as error:
        print(error)
    if "pyspark.sql" in sys.modules:
        print("Spark is loaded")
    print(end="\\0")
"""


def without(*libraries: str, calls: Sequence[str], table: mc.Table) -> list[str]:
    """What each call prints, or says, in a process that has not these libraries."""
    script = WITHOUT.format(libraries=libraries, path=table.url, calls=calls)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")[:-1]


@pytest.mark.thorough
def test_a_library_that_is_missing_is_named_with_the_way_out(table: mc.Table) -> None:
    """[SE3]"""
    names = ("pandas", "polars")
    for name, told in zip(names, without(*names, calls=[f"t.to_{name}()" for name in names], table=table), strict=True):
        assert told == f"to_{name}() needs {name}, which is not installed; nothing was read. pip install {name}, or use to_arrow()\n"


@pytest.mark.thorough
def test_sql_is_evaluated_here_with_sparks_meaning(table: mc.Table) -> None:
    """No row is added by a null, and files are chosen by the same condition. [RC8] [RD7]"""
    everything, calls, expected = table.to_arrow(), list[str](), list[str]()
    for sql in ("flight = 1 OR flight > 3", "NOT (flight > 2)", "place IS NULL", "place LIKE '%''%' AND flight IS NOT NULL"):
        model = duckdb.from_arrow(everything).filter(sql).select("flight", "place").fetchall()
        rows = sorted(repr({"flight": flight, "place": place}) for flight, place in model)
        call = f"print(repr(sorted(map(repr, t.to_arrow(['flight', 'place'], filter={sql!r}).to_pylist()))), t.files({sql!r}).num_rows > 0)"
        calls.append(call)
        expected.append(f"{rows!r} True\n")
        assert model
    assert without("pyspark", calls=calls, table=table) == expected


@pytest.mark.thorough
def test_sql_without_spark_is_refused_by_the_name_of_the_argument(table: mc.Table) -> None:
    """SQL that only Spark can evaluate: the part that is not understood is named. [SE3]"""
    calls = ["t.files('pmod(flight, 2) = 1')", "t.to_arrow(filter='pmod(flight, 2) = 1')", "t.plan_compaction(where='hash(place) = 1')"]
    for libraries in (["pyspark"], []):  # where it is installed, none is started for that
        found = without(*libraries, calls=calls, table=table)
        for told in found:
            assert told.startswith("invalid ") and "is not understood" in told and "pyarrow.compute.field" in told
            assert "No Spark session is active" in told and "Spark is loaded" not in told
        assert len(found) == len(calls)


def test_pandas_frames_are_frames(table: mc.Table) -> None:
    assert isinstance(table.to_pandas(), pd.DataFrame) and isinstance(table.to_polars(), pl.LazyFrame)

"""`Table.duckdb` and `Table.to_polars`: the rows of `dataset()`, by the engines' own readers wherever those show them."""

import datetime as dt
import gc
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.tables import table_with

import manifestcommit as mc
from manifestcommit.scan import engine_readers

UTC = dt.UTC
NAMES = ("a b", "50%", "c+d=e", "#", "ü/x", "it's", 'q"', "`", "", None)


def day(names: Any = NAMES, **more: Any) -> pa.Table:
    return pa.table({"place": list(names), "flight": pa.array(range(len(names)), pa.int32()), **more})


def hostile_partitions(path: str) -> None:
    mc.write(day(), path, partition_by="place")
    mc.write(day().slice(0, 0), path)


def evolved(path: str) -> None:
    """A column is renamed, one is dropped and added again in another type, one widened, one added."""
    table = table_with(day(delay=[1.5] * len(NAMES), note=["old"] * len(NAMES)), path, partition_by="place")
    table.rename_column("delay", "late \"%` it's")
    table.rename_column("place", "filename")
    table.drop_column("note")
    table.add_column("note", "long")
    wide = pa.table({"filename": ["new"], "flight": [2**40], "note": [7], "late \"%` it's": [2.5]})
    mc.write(wide, path, merge_schema=True)
    table.rename_column("flight", "FLIGHT")


def swapped(path: str) -> None:
    """Two columns of one type take each other's name; later files have them in the other order."""
    table = table_with(pa.table({"a": [1, 2], "b": [10, 20]}), path)
    for before, after in (("a", "c"), ("b", "a"), ("c", "b")):
        table.rename_column(before, after)
    mc.write(pa.table({"a": [30], "b": [3]}), path)
    mc.write(pa.table({"b": [4], "a": [40]}), path)


def nested(path: str) -> None:
    """Structs in everything, which get a member later."""

    def rows(member: dict[str, Any]) -> pa.Table:
        return pa.table(
            {
                "one": [member, None],
                "many": [[member, None], []],
                "by name": pa.array([[("k'", member)], None], pa.map_(pa.string(), pa.infer_type([member]))),
            }
        )

    mc.write(rows({"x'y": 1, 'q"': "a"}), path)
    mc.write(rows({"x'y": 2**40, 'q"': "b", "new one": True}), path, merge_schema=True)


def every_type(path: str) -> None:
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)

    def rows(whole: pa.DataType, real: pa.DataType, digits: int) -> pa.Table:
        return pa.table(
            {
                "whole": pa.array([127, -128, None], whole),
                "real": pa.array([float("nan"), -0.0, None], real),
                "price": pa.array([Decimal("-1.20"), Decimal("999.99"), None], pa.decimal128(digits, 2)),
                "text": ["\0\n", "\U0001f6eb", None],
                "bytes": [b"\xff'\\x41", b"", None],
                "true": [True, False, None],
                "date": [dt.date.min, dt.date.max, None],
                "utc": pa.array([dt.datetime(1, 1, 1, tzinfo=UTC), last.replace(hour=12, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
                "local": pa.array([dt.datetime(1582, 10, 10), last, None], pa.timestamp("us")),
            }
        )

    mc.write(rows(pa.int8(), pa.float32(), 5), path)
    mc.write(rows(pa.int16(), pa.float64(), 12), path, merge_schema=True)
    mc.write(rows(pa.int64(), pa.float64(), 38), path, merge_schema=True)


def changed(path: str) -> None:
    """Files were removed from manifests, some by a rollback."""
    for each in range(4):
        mc.write(day([f"d{each % 2}"] * 3), path, partition_by="place")
    mc.write(day(["d1"]), path, mode="overwrite", overwrite="dynamic")
    mc.write(day(["d9"]), path, mode="overwrite")
    mc.Table(path).rollback(6, reason="a test")


def adopted(path: str) -> None:
    """Files of others, which lack the partition column and the ids, beside those of this library."""
    folder = Path(path, "place=x%20y")
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"flight": [7], "delay": [float("nan")]}), folder / "a b.parquet")
    mc.Table(path).adopt()
    mc.write(pa.table({"place": ["z"], "flight": [8], "delay": [0.5]}), path)


def unusual(path: str) -> None:
    mc.write(pa.table({"nothing": pa.nulls(2), "wait": pa.array([1, None], pa.duration("us"))}), path)


def empty(path: str) -> None:
    mc.create_table(path, day().schema)


# Tables of every kind, and whether the engines' own readers read them.
KINDS: dict[Callable[[str], None], bool] = {
    hostile_partitions: True, evolved: True, swapped: True, nested: True, every_type: True, changed: True, adopted: True, unusual: False,
    empty: False,
}  # fmt: skip


def connected() -> duckdb.DuckDBPyConnection:
    """The session's time zone is nobody's favourite: nothing may depend on it."""
    connection = duckdb.connect()
    connection.sql("SET TimeZone = 'Asia/Kathmandu'")
    return connection


def rows(found: Any) -> list[str]:
    return sorted(map(repr, found.to_arrow_table().to_pylist()))


def check_duckdb(table: mc.Table, **version: Any) -> str:
    """The relation's rows, names and types are the dataset's; returns its plan."""
    connection = connected()
    found, wanted = table.duckdb(connection, **version), connection.from_arrow(table.dataset(**version))
    assert found.columns == wanted.columns == table.dataset(**version).schema.names
    assert [str(each) for each in found.types] == [str(each) for each in wanted.types]
    if found.columns:
        assert rows(found) == rows(wanted)
    return found.explain()


def check_polars(table: mc.Table, **version: Any) -> str:
    found, wanted = table.to_polars(**version), polars.scan_pyarrow_dataset(table.dataset(**version))
    assert found.collect_schema() == wanted.collect_schema()
    assert sorted(map(repr, found.collect().rows())) == sorted(map(repr, wanted.collect().rows()))
    return found.explain()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_both_engines_show_the_rows_of_the_dataset(kind: Callable[[str], None], tmp_path: Path) -> None:
    """[RD42] [SC4] [SC6]"""
    path = str(tmp_path / "it's ü %20+=#")
    kind(path)
    table = mc.Table(path)
    assert ("READ_PARQUET" in check_duckdb(table).upper()) is KINDS[kind]
    assert ("Parquet SCAN" in check_polars(table)) is KINDS[kind]


def test_a_table_without_columns(tmp_path: Path) -> None:
    """DuckDB knows no such relation. [RD42]"""
    with mc.begin(tmp_path) as job:
        job.advance("source", None, 1)
    with pytest.raises(mc.errors.UsageError, match="has no columns yet"):
        mc.Table(tmp_path).duckdb(connected())
    assert "Parquet SCAN" not in check_polars(mc.Table(tmp_path))


@pytest.mark.thorough
def test_versions_and_columns(tmp_path: Path) -> None:
    path = str(tmp_path)
    evolved(path)
    table = mc.Table(path)
    table.tag("first", 2)
    for version in ({}, {"version": 2}, {"tag": "first"}):
        check_duckdb(table, **version)
        check_polars(table, **version)
    assert table.to_polars(["FLIGHT", "filename"]).collect().columns == ["FLIGHT", "filename"]
    assert table.to_polars("FLIGHT").filter(polars.col("FLIGHT") > 2**32).collect().rows() == [(2**40,)]
    assert table.duckdb(connected()).filter("FLIGHT > 4294967296").project('FLIGHT, "late ""%` it\'s"').fetchall() == [(2**40, 2.5)]


def test_duckdb_expects_the_rows_that_there_are(tmp_path: Path) -> None:
    """It joins in an order by these numbers, and knows none of its own where columns are given."""
    path = str(tmp_path)
    mc.write(day(), path)
    mc.write(day(["x"] * 1_234), path)
    (row,) = (line for line in mc.Table(path).duckdb(connected()).explain().splitlines() if "~" in line)
    assert f"~{len(NAMES) + 1_234:,} rows" in row


def test_polars_looks_at_a_file_that_has_every_column(tmp_path: Path) -> None:
    """It joins in an order by that file's rows, and looks at none where columns are given. [SC4]"""
    path, more = str(tmp_path), {"delay": [1.5] * len(NAMES)}
    mc.write(day(), path)
    table = table_with(day(**more), path, merge_schema=True)
    before = polars.scan_parquet
    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(polars, "scan_parquet", lambda *words, **given: (asked.append(given["schema"]), before(*words, **given))[1])
        check_polars(table)
        assert asked == [None]
        table.add_column("note", "string")
        check_polars(table)
    first, second = asked[1:]
    assert first is None and list(second) == ["place", "flight", "delay", "note"]


@pytest.mark.parametrize("name", ["a*b", "[x]", "a?", "{a,b}", "back\\slash", "**"])
def test_a_root_that_duckdb_takes_for_a_pattern_goes_by_the_dataset(name: str, tmp_path: Path) -> None:
    """Its pattern would match the files beside it, too. [RD42]"""
    path = f"{tmp_path}/{name}"
    mc.write(day(), path)
    mc.write(day(), str(tmp_path / "ab"))
    assert "READ_PARQUET" not in check_duckdb(mc.Table(path)).upper()
    assert "Parquet SCAN" in check_polars(mc.Table(path))


def test_only_own_files_are_read_by_the_engines(tmp_path: Path) -> None:
    """Those of others go by the dataset, which checks their footers. [AF3] [RD42]"""
    adopted(str(tmp_path))
    plan = check_duckdb(mc.Table(tmp_path))
    assert "READ_PARQUET" in plan.upper() and "UNION" in plan.upper()
    (foreign,) = tmp_path.glob("place=x*/*.parquet")
    body = foreign.read_bytes()
    foreign.write_bytes(body[:-12] + b"\xff" * 4 + body[-8:])
    with pytest.raises(Exception, match=r"corrupt|footer|Parquet"):
        mc.Table(tmp_path).duckdb(connected()).fetchall()


def test_a_version_stays_what_it_is_and_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """[RD2] [RD42]"""
    path = str(tmp_path)
    table, connection = table_with(day(), path), connected()
    relation, frame = table.duckdb(connection), table.to_polars()
    before = rows(relation)
    mc.write(day(["other"]), path, mode="overwrite")
    assert rows(relation) == before and frame.collect().height == len(NAMES)
    old = table.files(version=2)["path"].to_pylist()
    for _ in range(2):
        mc.gc(path, grace="0s", keep_for="0s")
    assert not any((tmp_path / name).exists() for name in old)
    with pytest.raises(duckdb.Error, match=r"No files found|No such file|Cannot open", check=lambda error: old[0] in str(error)):
        relation.fetchall()
    with pytest.raises((OSError, polars.exceptions.PolarsError)):
        frame.collect()
    assert rows(table.duckdb(connection)) == rows(connection.from_arrow(table.dataset()))


def test_a_link_is_refused(tmp_path: Path) -> None:
    """[SE2]"""
    mc.write(day(), str(tmp_path / "table"))
    table = mc.Table(tmp_path / "table")
    file = tmp_path / "table" / table.files()["path"][0].as_py()
    file.rename(tmp_path / "elsewhere.parquet")
    file.symlink_to(tmp_path / "elsewhere.parquet")
    for opened in (lambda: table.duckdb(connected()), lambda: table.to_polars()):
        with pytest.raises(mc.errors.StoreError, match="link"):
            opened()


def test_a_connection_that_may_not_open_files_gets_the_dataset(tmp_path: Path) -> None:
    """[RD42]"""
    mc.write(day(), str(tmp_path))
    connection = duckdb.connect(config={"enable_external_access": "false"})
    assert len(mc.Table(tmp_path).duckdb(connection).fetchall()) == len(NAMES)


@pytest.mark.thorough
def test_many_files_go_by_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine would get all their names with each query, and open each file to learn its partition. [RD42]"""
    mc.write(day(), str(tmp_path / "by place"), partition_by="place")
    for each in range(3):
        mc.write(day([str(each)]), str(tmp_path / "plain"))
    files = mc.Table(tmp_path / "by place").files().num_rows
    for name, constant, most in (("by place", "MOST_PARTITIONED_FILES", files), ("plain", "MOST_FILES", 3)):
        table = mc.Table(tmp_path / name)
        for limit, own in ((most, True), (most - 1, False)):
            monkeypatch.setattr(engine_readers, constant, limit)
            assert ("READ_PARQUET" in check_duckdb(table).upper()) is own
            assert ("Parquet SCAN" in check_polars(table)) is own


@pytest.mark.parametrize(
    ("constant", "engine"), [("STRUCTS_IN_DUCKDB", check_duckdb), ("OLDEST_POLARS", check_polars)], ids=["duckdb", "polars"]
)
def test_an_older_engine_gets_the_dataset(
    constant: str, engine: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[RD42]"""
    nested(str(tmp_path))
    assert "parquet" in engine(mc.Table(tmp_path)).lower()
    monkeypatch.setattr(engine_readers, constant, (99, 0))
    assert "parquet" not in engine(mc.Table(tmp_path)).lower()


def test_other_stores_go_by_the_dataset() -> None:
    """[RD42]"""
    table = table_with(day(), "memory://engine-readers/table", partition_by="place")
    assert "READ_PARQUET" not in check_duckdb(table).upper() and "Parquet SCAN" not in check_polars(table)


def test_a_view_outlives_the_relation(tmp_path: Path) -> None:
    adopted(str(tmp_path))
    connection = connected()
    mc.Table(tmp_path).duckdb(connection).create_view("flights")
    gc.collect()
    assert connection.sql("SELECT flight FROM flights ORDER BY flight").fetchall() == [(7,), (8,)]


def test_without_a_connection_the_relation_is_of_the_module(tmp_path: Path) -> None:
    mc.write(day(), str(tmp_path))
    found = mc.Table(tmp_path).duckdb()
    assert sorted(duckdb.sql("SELECT 1").union(found.count("*")).fetchall()) == [(1,), (len(NAMES),)]


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    """[SE3]"""
    mc.write(day(), str(tmp_path))
    table = mc.Table(tmp_path)
    with pytest.raises(mc.errors.UsageError, match=r"invalid connection.*duckdb\.connect"):
        table.duckdb("memory")  # type: ignore[arg-type]
    with pytest.raises(mc.errors.UsageError, match="'nowhere'"):
        table.to_polars("nowhere")


@pytest.mark.thorough
def test_without_duckdb_the_error_says_so(tmp_path: Path) -> None:
    mc.write(day(), str(tmp_path))
    code = f"import sys; sys.modules['duckdb'] = None\nimport manifestcommit as mc\nmc.Table({str(tmp_path)!r}).duckdb()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "UsageError: duckdb() needs duckdb, which is not installed" in done.stderr

"""Every way to read gives the same rows for a filter, those that Spark gives: whoever wrote the files, wherever they are. [RD7] [DF6]"""

import datetime as dt
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.kit.filter_kinds import CASES, KINDS, NAN, Case, adopted, foreign_file, own
from tests.kit.sizes import in_turn
from tests.kit.tables import table_with

import manifestcommit as mc


def _in_duckdb(case: Case) -> str:
    return case.sql.replace("timestamp '", "timestamptz '")


def _counted(table: mc.Table, case: Case) -> list[Any]:
    assert table.dataset().count_rows(filter=case.arrow) == len(case.found)
    return table.dataset().scanner(["n"], filter=case.arrow).to_table()["n"].to_pylist()


def _from_dataset(table: mc.Table, case: Case) -> list[Any]:
    dataset = table.dataset()
    found = duckdb.sql(f"SELECT n FROM dataset WHERE {_in_duckdb(case)}").fetchall()
    del dataset
    return [n for (n,) in found]


READS: dict[str, Callable[[mc.Table, Case], list[Any]]] = {
    "to_arrow of SQL": lambda table, case: table.to_arrow(["n"], filter=case.sql)["n"].to_pylist(),
    "to_arrow": lambda table, case: table.to_arrow(filter=case.arrow)["n"].to_pylist(),
    "to_pandas": lambda table, case: table.to_pandas(["n"], filter=case.arrow)["n"].tolist(),
    "to_polars": lambda table, case: table.to_polars().filter(case.frame).collect()["n"].to_list(),
    "duckdb": lambda table, case: [row[0] for row in table.duckdb().filter(_in_duckdb(case)).select("n").fetchall()],
    "dataset": lambda table, case: table.dataset().to_table(filter=case.arrow)["n"].to_pylist(),
    "dataset, counted": _counted,
    "dataset in DuckDB": _from_dataset,
    "dataset in Polars": lambda table, case: pl.scan_pyarrow_dataset(table.dataset()).filter(case.frame).collect()["n"].to_list(),
}


def _differing(table: mc.Table, each: int) -> list[str]:
    """each: how many of the cases every reader is given, in turn."""
    found = []
    for number, (name, read) in enumerate(READS.items()):
        for case in in_turn(CASES, number, each):
            rows = read(table, case)
            if set(rows) != case.found or len(rows) != len(case.found):
                found.append(f"{name}: {case.sql[:60]} gives {sorted(rows)}, not {sorted(case.found)}")
    return found


EACH = pytest.mark.parametrize("each", [13, pytest.param(len(CASES), marks=pytest.mark.thorough)])


@pytest.mark.thorough
@EACH
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_reader_gives_the_rows_of_spark(tmp_path: Path, kind: str, each: int) -> None:
    """[RD7] [DF6] [OB7] [RD42]"""
    assert _differing(KINDS[kind](str(tmp_path / "t")), each) == []


@pytest.mark.thorough
@EACH
@pytest.mark.parametrize("make", [own, adopted])
def test_a_store_behind_a_network_gives_the_same_rows(make: Callable[[str], mc.Table], tmp_path: Path, each: int) -> None:
    """[RD7] [RD42]"""
    assert _differing(make(f"memory://filters/{tmp_path.name}"), each) == []


@pytest.mark.thorough
@pytest.mark.parametrize("case", [case for case in CASES if case.sql[0] in "xd"], ids=lambda case: case.sql[:40])
def test_what_a_filter_finds_is_what_a_delete_removes(tmp_path: Path, case: Case) -> None:
    """[RC2] [RD7]"""
    table = adopted(str(tmp_path / "t"))
    table.delete(case.arrow)
    assert set(table.to_arrow()["n"].to_pylist()) == set(range(8)) - case.found


WHOLE = [1, 5, 20, 2**53 + 1, 2**63 - 1, -(2**63)]  # Arrow does not use bounds beside a null
# what Spark finds: the whole number becomes the nearest double
BESIDE_DOUBLES = {
    "{} < 13.0D": {0, 1, 5}, "{} = 5.0D": {1}, "NOT ({} < 13.5D)": {2, 3, 4}, "{} IN (1.0D, 20)": {0, 2},
    "{} BETWEEN 0.5D AND 20": {0, 1, 2}, "{} > 1e30": set(), "{} > -1e30D": {0, 1, 2, 3, 4, 5}, "{} = 9007199254740992D": {3},
    "{} != 9223372036854775807D": {0, 1, 2, 3, 5}, "{} <=> 9223372036854775807D": {4}, "CAST({} AS DOUBLE) <= 5": {0, 1, 5},
    "CAST({} AS FLOAT) <= 5": {0, 1, 5}, "{} + 0.5D < 13": {0, 1, 5}, "{} < 13.5": {0, 1, 5},
}  # fmt: skip


@pytest.mark.parametrize("partition", [None, "l", "d"])
def test_whole_numbers_beside_doubles_are_found_whatever_the_bounds_of_files(tmp_path: Path, partition: str | None) -> None:
    """Of reads as of a delete: a bound without an exact double is none the less compared. [RD7] [RC2]"""
    decimals = pa.array([Decimal(n) for n in WHOLE], pa.decimal128(25, 0))
    rows = pa.table({"n": range(6), "l": WHOLE, "d": decimals, "s": [{"m": n} for n in WHOLE]})
    table = table_with(rows, tmp_path / "t", partition_by=partition)
    for condition, expected in BESIDE_DOUBLES.items():
        for column in ("l", "d", "s.m"):
            text = condition.format(column)
            assert {*table.to_arrow(["n"], filter=text)["n"].to_pylist()} == expected, text
            assert table.delete(text, dry_run=True).rows_deleted == len(expected), text


def test_columns_are_compared_in_sparks_order(tmp_path: Path) -> None:
    """[RD7] NaN equals NaN and is above infinity; nothing compares with null."""
    rows = pa.table({"a": [NAN, NAN, 1.0, NAN], "b": [NAN, 1.0, NAN, None]})
    dataset, a, b = table_with(rows, str(tmp_path / "t")).dataset(), pc.field("a"), pc.field("b")
    expected = [
        *((a == b, 1), (a != b, 2), (a > b, 1), (a >= b, 2), (a < b, 1), (a <= b, 2), (~(a > b), 2)),
        *((pc.abs(a) > 5, 3), (a.cast("float") > b, 1)),
    ]
    assert [dataset.count_rows(filter=each) for each, _ in expected] == [count for _, count in expected]


def test_other_doors_of_an_adopted_dataset_lose_no_row(tmp_path: Path) -> None:
    """[DF6] What they cannot evaluate after reading, they refuse."""
    dataset = adopted(str(tmp_path / "t")).dataset()
    assert dataset.filter(pc.field("x") > 5).to_table(["n"]).num_rows == 3
    assert dataset.filter(pc.field("x") > 5).filter(pc.field("n") > 1).count_rows() == 2
    assert ds.Scanner.from_dataset(dataset, filter=pc.field("n") > 1).count_rows() == 6
    with pytest.raises(NotImplementedError, match="evaluated after reading"):
        ds.Scanner.from_dataset(dataset, filter=pc.field("x") > 5)
    assert dataset.to_table(columns={"twice": pc.field("n") * 2}, filter=pc.field("x") > 5)["twice"].to_pylist() == [2, 8, 14]


@pytest.mark.parametrize(
    ("program", "is_trusted"),
    [
        ("parquet-mr version 1.8.2 (build c65)", False), ("parquet-mr version 1.9.0 (build 384)", False),
        ("parquet-mr version 1.10.1 (build a89)", True), ("parquet-mr version 2.0.0", True), ("parquet-mr", False), ("some program", False),
        ("", False), ("DuckDB version v1.5.0 (build abc)", True),
    ],
)  # fmt: skip
def test_bounds_of_decimals_count_by_their_program(tmp_path: Path, program: str, is_trusted: bool) -> None:
    """[OB7] Old releases of parquet-mr compared decimals that are stored as bytes as signed bytes."""
    from tests.kit.footers import changed

    rows = pa.table({"d": pa.array([Decimal("1.00"), Decimal("24.00")], pa.decimal128(25, 2)), "n": [1, 2]})
    pq.write_table(rows, tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes(changed((tmp_path / "a.parquet").read_bytes(), 6, to=program.encode()))
    mc.Table(str(tmp_path)).adopt()
    bounds = mc.Table(str(tmp_path)).files().column("bounds")[0].as_py()
    assert (bounds.get("d", {}).get("min") is not None) == is_trusted
    assert bounds["n"]["min"] == 1


def test_the_made_file_shows_wrong_bounds(tmp_path: Path) -> None:
    """The tests above would prove nothing with a file that pyarrow reads right by itself."""
    (tmp_path / "a.parquet").write_bytes(foreign_file())
    plain = ds.dataset(tmp_path / "a.parquet")
    assert plain.count_rows(filter=pc.field("d") == Decimal("1.00")) == 0
    assert plain.count_rows(filter=pc.is_nan(pc.field("x"))) == 0


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """No Spark session is active, and the machine is in a zone."""
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)

    def moved(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    moved("UTC")
    yield moved
    monkeypatch.undo()
    time.tzset()


def test_functions_of_sql_select_and_change_rows(tmp_path: Path, alone: Callable[[str], None]) -> None:
    """[RC8] [RD7]"""
    days = [dt.date(2013, 1, 1), dt.date(2999, 1, 1), None]
    table = table_with(pa.table({"n": [1, 2, 3], "day": days, "s": ["  é ", "CAFÉ", "x"], "d": [2.5, -2.5, 0.4]}), tmp_path / "t")
    for text, found in {
        "day < current_date": [1],
        "day + INTERVAL 1 DAY > current_timestamp()": [2],
        "upper(trim(s)) = 'É' OR s ILIKE 'café'": [1, 2],
        "n % 2 = 1 AND round(d) <> 0": [1],
        "substring(s, -1) = 'É'": [2],
        "year(day) = 2013 AND date_trunc('month', day) = DATE '2013-01-01'": [1],
    }.items():
        assert table.to_arrow("n", filter=text)["n"].to_pylist() == found, text
    table.update({"s": "lower(trim(s))", "day": "coalesce(day, current_date())", "d": "round(d)"}, where="n % 2 = 1")
    assert table.to_arrow(["s", "d"]).sort_by("d").to_pylist() == [{"s": "CAFÉ", "d": -2.5}, {"s": "x", "d": 0.0}, {"s": "é", "d": 3.0}]
    assert table.to_arrow()["day"].null_count == 0
    with pytest.raises(mc.errors.UsageError, match="time of the evaluation"):
        table.delete("day < current_date")
    mc.write(pa.table({"n": [4], "s": ["straße"]}), tmp_path / "t")
    with pytest.raises(mc.errors.UsageError, match=r'filter: "upper\(s\) = .* upper of a letter such as ß or İ is not done without Spark'):
        table.to_arrow(filter="upper(s) = 'X'")


def test_a_time_without_a_zone_means_utc_only_where_that_is_the_zone(tmp_path: Path, alone: Callable[[str], None]) -> None:
    """[RC8]"""
    mc.write(pa.table({"at": [dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)]}), tmp_path / "t")
    table, texts = mc.Table(tmp_path / "t"), ("at = '2013-01-01 05:00:00'", "at >= TIMESTAMP '2013-01-01'", "hour(at) = 5")
    for text in texts:
        assert table.to_arrow(filter=text).num_rows == 1
    alone("Europe/Berlin")
    for text in texts:
        with pytest.raises(mc.errors.UsageError, match=r"depends on the session's time zone.*in TIMESTAMP '2013-01-01 00:00:00Z'"):
            table.to_arrow(filter=text)
    assert table.to_arrow(filter="at = '2013-01-01 05:00:00Z'").num_rows == 1

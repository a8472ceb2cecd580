"""Filters and aggregates of other engines, which use an export's statistics, give what the rows say. [EX8]"""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pytest
from tests.export.clients import duck, local, quoted
from tests.kit.filter_kinds import table_of_bounds

import manifestcommit as mc

FILTERS = [
    "f > 2.5", "f >= 0", "f < 0.0", "f = 0.0", "f = 'NaN'::DOUBLE", "f IS NULL", "f > 1e300", "f <= 0",
    "t = 'b'", "t > 'zz'", "t = repeat('z', 2000)", "t = ''", "t IS NULL", "t >= '~'", "t < 'A'",
    "d = DATE '2013-06-01'", "d < DATE '1970-01-01'", "d IS NULL", "d > DATE '9000-01-01'",
    "m = 123456789012345678901234.56", "m > 1", "m < 0", "s = 1.20", "s < 0", "s >= 99.99",
    "moment > TIMESTAMPTZ '2013-01-01 00:00:00.000123+00'", "moment = TIMESTAMPTZ '2013-01-01 00:00:00.000124+00'",
    "l = 9223372036854775807", "l < -9223372036854775807", "b = true", "n = 7",
]  # fmt: skip
AGGREGATES = [
    "count(*)", "min(t)", "max(t)", "min(d)", "max(d)", "min(l)", "max(l)", "max(m)", "min(m)", "max(moment)", "min(moment)", "count(f)",
]  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mc.Table:
    return table_of_bounds(str(tmp_path_factory.mktemp("pruned") / "t"))


@pytest.fixture(scope="module")
def truth(table: mc.Table) -> duckdb.DuckDBPyConnection:
    """The rows in memory, without any statistics of ours."""
    session = duckdb.connect()
    session.execute("SET TimeZone = 'UTC'")
    session.register("arrow", table.dataset().to_table())
    session.execute("CREATE TABLE rows AS FROM arrow")  # by which DuckDB filters itself: pyarrow orders NaN otherwise
    return session


@pytest.mark.parametrize("scan", ["iceberg_scan('{}/_iceberg')", "delta_scan('{}')"])
@pytest.mark.parametrize("condition", FILTERS)
def test_a_filter_finds_what_the_rows_say(table: mc.Table, truth: duckdb.DuckDBPyConnection, scan: str, condition: str) -> None:
    """[EX8]"""
    query = "SELECT count(*), count(n), sum(n) FROM {} WHERE " + condition
    wanted = truth.execute(query.format("rows")).fetchall()
    assert duck().execute(query.format(scan.format(local(table)))).fetchall() == wanted


@pytest.mark.parametrize("what", AGGREGATES)
def test_an_aggregate_is_that_of_the_rows(table: mc.Table, truth: duckdb.DuckDBPyConnection, what: str) -> None:
    """[EX8]"""
    wanted = truth.execute(f"SELECT {what} AS x FROM rows").to_arrow_table().to_pylist()
    for scan in (f"iceberg_scan({quoted(local(table) + '/_iceberg')})", f"delta_scan({quoted(local(table))})"):
        assert duck().execute(f"SELECT {what} AS x FROM {scan}").to_arrow_table().to_pylist() == wanted
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(local(table))).execute(f"SELECT {what} AS x FROM t").read_all()
    assert pa.table(found).to_pylist() == wanted


def test_deltas_bounds_are_values_of_the_file(table: mc.Table) -> None:
    """[EX8]"""
    own, found = table.dataset(), deltalake.DeltaTable(local(table)).get_add_actions(flatten=True)
    for action in pa.table(found).to_pylist():
        (fragment,) = (each for each in own.get_fragments() if each.path.endswith(action["path"]))
        rows = fragment.to_table()
        for name in rows.column_names:
            values = rows.column(name).to_pylist()
            bounds = {action.get(f"{end}.{name}") for end in ("min", "max")} - {None}
            assert bounds <= {*values, *(float(value) for value in values if isinstance(value, Decimal))}, (name, bounds)


@pytest.mark.parametrize("condition", ["f > 2.5", "f >= 0", "t = 'b'", "t > 'zz'", "d < DATE '1970-01-01'", "l < 0", "m > 1", "m < 0"])
def test_deltalake_prunes_rightly(table: mc.Table, truth: duckdb.DuckDBPyConnection, condition: str) -> None:
    """[EX8]"""
    query = f"SELECT count(*) AS x FROM {{}} WHERE {condition}"
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(local(table))).execute(query.format("t")).read_all()
    assert pa.table(found).to_pylist()[0]["x"] == truth.execute(query.format("rows")).fetchall()[0][0]


@pytest.mark.parametrize(
    "condition", ["f > 2.5", "f >= 0", "f < 0", "t = 'b'", "t > 'zz'", "t IS NULL", "d < '1970-01-01'", "l < 0", "b = true", "f IS NULL"]
)
def test_pyiceberg_prunes_rightly(table: mc.Table, truth: duckdb.DuckDBPyConnection, condition: str) -> None:
    """[EX8]"""
    from pyiceberg.table import StaticTable

    found = StaticTable.from_metadata(f"{local(table)}/_iceberg").scan(row_filter=condition)
    # pyiceberg filters with pyarrow, for which NaN is not above other numbers
    rest = " AND NOT isnan(f)" if condition.startswith("f >") else ""
    query = f"SELECT count(*) FROM rows WHERE ({condition}){rest}"
    assert found.to_arrow().num_rows == truth.execute(query).fetchall()[0][0]


def test_a_partition_column_has_its_value_as_bounds_in_delta(tmp_path: Path) -> None:
    """Also where its values were not counted, or are too long for a bound. [EX8]"""
    path, texts, days = str(tmp_path / "t"), [None, "", "a", "z" * 300], [dt.date(2013, 1, 1), None] * 2
    columns = pa.schema([("n", pa.int64()), ("text", pa.string()), ("day", pa.date32())])
    mc.create_table(path, columns, partition_by=["text", "day"], properties={"write.bounds-columns": "1"})
    for text, day in zip(texts, days, strict=True):
        part = pa.table({"n": [1, 2], "text": pa.array([text] * 2, pa.string()), "day": pa.array([day] * 2, pa.date32())})
        mc.write(part, path)
    mc.Table(path).export("delta")
    delta = deltalake.DeltaTable(path)
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    for name, values in (("text", texts), ("day", days)):
        bounds = [(each[f"min.{name}"], each[f"max.{name}"], each[f"null_count.{name}"]) for each in actions]
        assert sorted(bounds, key=repr) == sorted([(value, value, 2 if value is None else 0) for value in values], key=repr)
    for condition in ("text = 'a'", "day IS NULL AND text < 'b'"):
        assert len(delta.file_uris(file_pruning_predicate=condition)) == 1

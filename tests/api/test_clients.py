"""The same rows, whoever wrote them and whoever reads them: pyarrow, pandas, polars and DuckDB, every type, hostile values."""

import datetime as dt
import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.kit.tables import table_with

import manifestcommit as mc

HOSTILE = [
    "", " ", "a b", "%41", "%", "a+b", "a=b", "#", "'", '"', "`", "\\", "a/b", "..", "../..", ".", "null", "NULL", "NaN",
    "__HIVE_DEFAULT_PARTITION__", "été", "日本", "🦆", "\u202e", "\x1b[31m", "a\nb", "\x00", "x" * 300, "_x", ".x", "--",
]  # fmt: skip

_DAY = dt.datetime(2013, 1, 31, 23, 59, 59, 999_999)


def _zoo() -> pa.Table:
    """Every type that a table holds, each column with its extremes and nulls."""
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "boolean": (pa.bool_(), [True, False]),
        "byte": (pa.int8(), [-(2**7), 2**7 - 1]),
        "short": (pa.int16(), [-(2**15), 2**15 - 1]),
        "integer": (pa.int32(), [-(2**31), 2**31 - 1]),
        "long": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
        "ubyte": (pa.uint8(), [0, 2**8 - 1]),
        "ushort": (pa.uint16(), [0, 2**16 - 1]),
        "uinteger": (pa.uint32(), [0, 2**32 - 1]),
        "ulong": (pa.uint64(), [0, 2**64 - 1, 2**63]),
        "float": (pa.float32(), [math.nan, math.inf, -math.inf, -0.0, 0.0, 2.0**-149]),
        "double": (pa.float64(), [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7976931348623157e308]),
        "small_decimal": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("0.01")]),
        "decimal": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1E-10")]),
        "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(9999, 12, 31)]),
        "timestamp": (pa.timestamp("us", "UTC"), [_DAY.replace(tzinfo=dt.UTC), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)]),
        "timestamp_ntz": (pa.timestamp("us"), [_DAY, dt.datetime(1582, 10, 4, 12)]),
        "interval": (pa.duration("us"), [dt.timedelta(days=-3, microseconds=1), dt.timedelta(0)]),
        "string": (pa.string(), HOSTILE),
        "binary": (pa.binary(), [b"", b"\x00\xff", bytes(range(256))]),
        "list": (pa.list_(pa.int32()), [[], [1, None, -1], [None]]),
        "struct": (pa.struct([("a", pa.int64()), ("b c", pa.string())]), [{"a": 1, "b c": "x"}, {"a": None, "b c": None}]),
        "map": (pa.map_(pa.string(), pa.float64()), [[], [("", 1.0), ("k", None)]]),
        "nested": (
            pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.string())))])),
            [[{"m": [(1, ["x", None]), (2, [])]}, None], []],
        ),
    }
    rows = max(len(values) for _, values in columns.values()) + 1
    arrays = {name: pa.array([*values, *[None] * (rows - len(values))], kind) for name, (kind, values) in columns.items()}
    return pa.table({"id": pa.array(range(rows), pa.int32()), **arrays})


ZOO = _zoo()


def plain(value: Any) -> Any:
    """A value in the one form in which all readers' values are compared: floats by their bits, maps and structs as pairs."""
    if isinstance(value, float):
        return f"float {value!r}"
    if isinstance(value, pa.MonthDayNano):
        assert value.months == 0 and value.nanoseconds % 1000 == 0
        return dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    if isinstance(value, dict):
        return tuple((key, plain(each)) for key, each in value.items())
    if isinstance(value, tuple):  # an entry of a map, which polars has as a struct of key and value
        return tuple(zip(("key", "value"), map(plain, value), strict=True))
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    return value


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Its rows in the order of `id`, comparable."""
    table = table.cast(pa.schema([_without_zone(field) for field in table.schema]))
    return [{name: plain(value) for name, value in row.items()} for row in table.sort_by("id").to_pylist()]


def _without_zone(field: pa.Field) -> pa.Field:
    """DuckDB shows an instant in the session's zone: the same instant in UTC."""
    return field.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(field.type) and field.type.tz else field


def by_duckdb(dataset: ds.Dataset) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("dataset", dataset)
        return connection.sql("select * from dataset").to_arrow_table()


READERS: dict[str, Callable[[ds.Dataset], pa.Table]] = {
    "pyarrow": lambda dataset: dataset.to_table(),
    "duckdb": by_duckdb,
    "polars": lambda dataset: pl.scan_pyarrow_dataset(dataset).collect().to_arrow(),
    "pandas": lambda dataset: pa.Table.from_pandas(dataset.to_table().to_pandas(types_mapper=pd.ArrowDtype), preserve_index=False),
}


class OnlyStream:
    """Whatever hands out Arrow's C stream and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


WRITERS: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow table": lambda table: table,
    "sliced chunks": lambda table: pa.concat_tables([table.slice(0, 1), table.slice(1)]),
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(max_chunksize=3),
    "dataset": ds.dataset,
    "scanner": lambda table: ds.dataset(table).scanner(),
    "stream": OnlyStream,
    "polars": pl.from_arrow,
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "duckdb": lambda table: duckdb.connect().from_arrow(table),
}


@pytest.fixture(scope="module")
def zoo_dataset(tmp_path_factory: pytest.TempPathFactory) -> ds.Dataset:
    root = tmp_path_factory.mktemp("zoo") / "t"
    mc.write(ZOO, root)
    return mc.Table(root).dataset()


@pytest.mark.parametrize("reader", READERS)
def test_every_type_reads_back_as_it_was_written(zoo_dataset: ds.Dataset, reader: str) -> None:
    """All widths, unsigned ones included, NaN, -0.0, extremes, hostile texts, nesting and nulls, for each client. [RD2] [SC2] [DF5]"""
    assert rows_of(READERS[reader](zoo_dataset)) == rows_of(ZOO)


@pytest.mark.parametrize("writer", WRITERS)
def test_every_source_of_rows_is_taken_whole(tmp_path: Path, writer: str) -> None:
    """What each client hands in is what pyarrow reads back. [SC3] [DF3]"""
    names = [name for name in ZOO.column_names if name != "interval" or writer != "duckdb"]  # DuckDB's intervals have months
    if writer == "polars":
        names.remove("map")  # polars has no maps: it would hand in a list of structs, which is another type
        names.remove("nested")
    given = ZOO.select(names)
    mc.write(WRITERS[writer](given), tmp_path / "t")
    assert rows_of(mc.Table(tmp_path / "t").dataset().to_table()) == rows_of(given)


def test_a_pandas_index_without_a_name_is_dropped_and_a_named_one_is_a_column(tmp_path: Path) -> None:
    """[SC3]"""
    frame = pd.DataFrame({"a": [1, 2]}, index=[10, 20])
    mc.write(frame, tmp_path / "plain")
    assert mc.Table(tmp_path / "plain").dataset().schema.names == ["a"]
    frame.index.name = "id"
    mc.write(frame, tmp_path / "named")
    assert mc.Table(tmp_path / "named").dataset().to_table().to_pydict() == {"id": [10, 20], "a": [1, 2]}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array([dt.datetime(2013, 7, 1, 12, tzinfo=ZoneInfo("Europe/Vienna"))], pa.timestamp("s", "Europe/Vienna")), "2013-07-01T10:00"),
        (pa.array([1_372_672_800_000_000_000], pa.timestamp("ns", "UTC")), "2013-07-01T10:00"),
        (pa.array([1_372_672_800_000], pa.timestamp("ms", "-05:00")), "2013-07-01T10:00"),
    ],
)
def test_an_instant_keeps_its_moment_whatever_its_zone_and_unit(tmp_path: Path, given: pa.Array, wanted: str) -> None:
    """[SC2]"""
    dataset = table_with(pa.table({"at": given}), tmp_path / "t").dataset()
    assert dataset.schema.field("at").type == pa.timestamp("us", "UTC")
    assert dataset.to_table()["at"].to_pylist() == [dt.datetime.fromisoformat(wanted).replace(tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time64("us"), pa.month_day_nano_interval(), pa.struct([]), pa.decimal256(60, 2)], ids=str
)
def test_a_type_that_some_reader_would_get_wrong_is_refused_before_anything_is_made(tmp_path: Path, kind: pa.DataType) -> None:
    """The error names the column; there is no table afterwards, not even an empty one. [SC2]"""
    with pytest.raises(mc.errors.UnsupportedTypeError, match="'odd'"):
        mc.write(pa.table({"a": [1], "odd": pa.nulls(1, kind)}), tmp_path / "t")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("array", "what"), [(pa.array([1_000_000_001], pa.timestamp("ns")), "timestamp"), (pa.array([1_001], pa.duration("ns")), "duration")]
)
def test_nanoseconds_are_never_cut_off(tmp_path: Path, array: pa.Array, what: str) -> None:
    """A value that is no whole number of microseconds fails the write; nothing of it is visible. [SC3]"""
    with pytest.raises(mc.errors.SchemaMismatchError, match=rf"'at'.*{what}"):
        mc.write(pa.table({"at": array}), tmp_path / "t")
    assert mc.Table(tmp_path / "t").files().num_rows == 0


@pytest.mark.parametrize("reader", READERS)
def test_a_table_without_rows_has_its_columns_for_every_reader(tmp_path: Path, reader: str) -> None:
    """A write of no rows is a version with a schema and without files. [CM16] [RD2]"""
    outcome = mc.write(ZOO.slice(0, 0).drop_columns(["interval"]), tmp_path / "t", partition_by=["date"])
    table = mc.Table(tmp_path / "t")
    assert table.snapshot().version == outcome.version and table.files().num_rows == 0
    found = READERS[reader](table.dataset())
    assert found.num_rows == 0 and found.column_names == [n for n in ZOO.column_names if n != "interval"]


@pytest.mark.parametrize("reader", READERS)
def test_a_file_without_rows_among_others_changes_nothing(tmp_path: Path, reader: str) -> None:
    """[CM16]"""
    mc.write(pa.table({"id": [1], "p": ["x"]}), tmp_path / "t", partition_by="p")
    mc.write(pa.table({"id": pa.array([], pa.int64()), "p": pa.array([], pa.string())}), tmp_path / "t")
    mc.write(pa.table({"id": [2], "p": [None]}), tmp_path / "t")
    assert rows_of(READERS[reader](mc.Table(tmp_path / "t").dataset())) == [{"id": 1, "p": "x"}, {"id": 2, "p": None}]


@pytest.mark.parametrize("reader", READERS)
def test_hostile_partition_values_stay_apart_and_come_back(tmp_path: Path, reader: str) -> None:
    """Null, the empty text, text that looks like null's folder, escapes, slashes: each is its own partition. [PT2] [DF4]"""
    values = [*HOSTILE, None]
    table = pa.table({"id": range(len(values)), "p q=%/": values, "n": [None if i % 2 else i for i in range(len(values))]})
    found = table_with(table, tmp_path / "t e%41=ü", partition_by=["p q=%/", "n"])
    assert rows_of(READERS[reader](found.dataset())) == rows_of(table)
    files = found.files()
    assert sorted(files["p q=%/"].to_pylist(), key=str) == sorted(values, key=str)
    for path in files["path"].to_pylist():
        assert (tmp_path / "t e%41=ü" / path).is_file(), "the listed path is the file's name, character by character"


def test_a_partition_column_called_like_one_of_the_listing_keeps_both(tmp_path: Path) -> None:
    """`files` shows a partition column named rows or path beside its own. [PT2]"""
    row = table_with(pa.table({"path": ["x"], "rows": [7], "v": [1]}), tmp_path / "t", partition_by=["path", "rows"]).files().to_pylist()[0]
    assert (row["partition.path"], row["partition.rows"], row["rows"]) == ("x", 7, 1)
    assert row["path"].endswith(".parquet")


def test_data_files_are_plain_parquet(tmp_path: Path) -> None:
    """Readable without this library, one by one, partition columns included. [CP3] [DF4]"""
    paths = table_with(pa.table({"p": ["x", "y"], "v": [1, 2]}), tmp_path / "t", partition_by="p").files()["path"].to_pylist()
    found = [pq.ParquetFile(tmp_path / "t" / path).read().to_pylist() for path in paths]
    assert sorted(itertools.chain(*found), key=str) == [{"p": "x", "v": 1}, {"p": "y", "v": 2}]


# --- without numpy ------------------------------------------------------------------------------------------------------
PROGRAM = Path(__file__).parents[2] / "integrations" / "aws_lambda" / "tests" / "everything.py"
BLOCKED = "import runpy, sys; sys.modules.update(numpy=None, pandas=None); runpy.run_path(sys.argv[2])"  # None: there is no such module


@pytest.mark.thorough
def test_everything_runs_without_numpy(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", BLOCKED, str(tmp_path / "t"), str(PROGRAM)], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")

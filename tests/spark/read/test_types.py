"""Every type that Spark has comes back as it was, for every reader, or is refused. [SC2] [DF5] [RD7]"""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T
from tests.export.kinds import whole_numbers
from tests.kit.sizes import rest_thorough
from tests.spark.settings import setting

import manifestcommit as mc
from manifestcommit.format.fields import kept_metadata

UTC = dt.UTC
ANY = object()

# Column -> (a Spark expression, the value as pyarrow shows it). The expressions are the hard cases of each type.
VALUES: dict[str, tuple[str, Any]] = {
    "boolean": ("true", True), "byte": ("-128y", -128), "short": ("-32768s", -32768), "integer": ("int(-2147483648)", -(2**31)),
    "long": ("-9223372036854775807L", -(2**63) + 1), "float": ("float('-1.5')", -1.5), "double": ("double('-Infinity')", float("-inf")),
    "decimal_9": ("-1.20BD", Decimal("-1.20")),
    "decimal_18": ("cast('-123456789012345.678' as decimal(18,3))", Decimal("-123456789012345.678")),
    "decimal_38": ("cast('-99999999999999999999999999999999999.999' as decimal(38,3))", Decimal("-" + "9" * 35 + ".999")),
    "string": ("concat('é漢🎉 ', char(0))", "é漢🎉 \0"), "empty": ("''", ""), "char": ("cast('ab' as char(5))", ANY),
    "varchar": ("cast('ab' as varchar(5))", "ab"), "collated": ("'Ab' collate UTF8_LCASE", "Ab"), "binary": ("x'00ff'", b"\x00\xff"),
    "date": ("date'0001-01-01'", dt.date(1, 1, 1)),
    "timestamp": ("timestamp'0001-01-02 00:00:00.000001 UTC'", dt.datetime(1, 1, 2, 0, 0, 0, 1, UTC)),
    "timestamp_late": ("timestamp'2013-07-01 12:00:00 America/New_York'", dt.datetime(2013, 7, 1, 16, tzinfo=UTC)),
    "timestamp_ntz": ("timestamp_ntz'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    "interval_day": ("interval '3' day", dt.timedelta(3)), "interval_hour": ("interval '5' hour", dt.timedelta(hours=5)),
    "interval_all": ("interval '-1 02:03:04.000005' day to second", -dt.timedelta(1, 7384, 5)), "void": ("null", None),
    "variant": ('parse_json(\'{"a": [1, null, "x"]}\')', ANY),
    "struct": (
        "named_struct('a', 1, 'b', named_struct('c', array(1.5d, null)), 'd', cast(null as int))",
        {"a": 1, "b": {"c": [1.5, None]}, "d": None},
    ),
    "array": ("array(1, null, 3)", [1, None, 3]), "array_empty": ("cast(array() as array<string>)", []),
    "map": ("map('k', array(named_struct('x', 1)), 'n', null)", [("k", [{"x": 1}]), ("n", None)]),
    "map_empty": ("cast(map() as map<int, string>)", []), "variants": ("array(parse_json('1'), null, parse_json('null'))", ANY),
    "deep": (
        "map(named_struct('k', 1), array(map('x', timestamp'2020-01-01 00:00:00 UTC')))",
        [({"k": 1}, [[("x", dt.datetime(2020, 1, 1, tzinfo=UTC))]])],
    ),
}  # fmt: skip
READ_BY_DUCKDB = [
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal_9", "decimal_18", "decimal_38", "string", "empty",
    "varchar", "collated", "binary", "date", "timestamp_ntz", "struct", "array", "array_empty",
]  # fmt: skip


def frame(spark: Any) -> Any:
    """One row of values, one where every column is null."""
    whole = spark.sql("select 1 as row, " + ", ".join(f"{text} as {name}" for name, (text, _) in VALUES.items()))
    nulls = ", ".join(f"if(id < 0, {text}, null) as {name}" for name, (text, _) in VALUES.items())
    return whole.unionAll(spark.sql(f"select 2 as row, {nulls} from range(1)"))


def as_text(df: Any) -> list[tuple[str, ...]]:
    """Spark's own rendering: year 1 in a zone east of Greenwich is no Python datetime."""

    def render(field: Any) -> Any:
        if isinstance(field.dataType, T.BinaryType):
            return F.hex(field.name)
        return F.to_json(field.name) if "variant" in field.dataType.simpleString() else F.col(field.name).cast("string")

    return sorted(tuple(row) for row in df.select(*(render(field).alias(field.name) for field in df.schema)).collect())


def relaxed(type: Any) -> Any:
    """The type with everything nullable, as any file source shows it."""
    if isinstance(type, T.StructType):
        return T.StructType([T.StructField(f.name, relaxed(f.dataType), True, f.metadata) for f in type])
    if isinstance(type, T.ArrayType):
        return T.ArrayType(relaxed(type.elementType), True)
    if isinstance(type, T.MapType):
        return T.MapType(relaxed(type.keyType), relaxed(type.valueType), True)
    return type


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("types") / "t")
    mc.write(frame(spark), path)
    return path


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format", "variant")
def test_spark_reads_back_what_it_wrote(spark, table: str) -> None:
    """[SC2] Values, types, and metadata such as char lengths and collations; by its own scan and by the data source."""
    written = frame(spark)
    native = mc.read_committed(table, spark=spark)
    assert native.schema == relaxed(written.schema)
    assert as_text(native) == as_text(written)
    through_source = spark.read.format("manifestcommit").load(table)
    shown = [T.StructField(each.name, each.dataType, each.nullable, kept_metadata(each.metadata)) for each in through_source.schema]
    assert T.StructType(shown) == native.schema
    assert as_text(through_source) == as_text(written)
    assert native.filter("collated = 'aB'").count() == 1


ODD_SETTINGS = {
    "spark.sql.parquet.enableVectorizedReader": "false", "spark.sql.parquet.enableNestedColumnVectorizedReader": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false", "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.int96AsTimestamp": "false", "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.legacy.charVarcharAsString": "true", "spark.sql.sources.useV1SourceList": "",
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", rest_thorough(ODD_SETTINGS, *list(ODD_SETTINGS)[:3]))
def test_a_sessions_settings_change_no_value(spark, table: str, name: str) -> None:
    """[SP4] Settings that change how Spark guesses the types of plain Parquet files, or which of its readers it takes."""
    # Under binaryAsString Spark fails, aloud, on any variant in any Parquet file; nobody else is the worse for it.
    columns = [each for each in ["row", *VALUES] if not (name.endswith("binaryAsString") and each.startswith("variant"))]
    expected = as_text(mc.read_committed(table, spark=spark, columns=columns))
    with setting(spark, name, ODD_SETTINGS[name]):
        df = mc.read_committed(table, spark=spark, columns=columns)
        assert df.schema == relaxed(frame(spark).select(*columns).schema) or name == "spark.sql.legacy.charVarcharAsString"
        assert as_text(df) == expected


@pytest.mark.thorough
def test_spark_needs_no_help_of_ours_to_read_a_file(spark, table: str) -> None:
    """[DF5] The footer says Spark's types, so that intervals, variants and void are not taken for what they are stored as."""
    files = [f"{table}/{path}" for path in mc.Table(table).files().column("path").to_pylist()]
    plain = spark.read.parquet(*files)
    assert plain.schema == relaxed(frame(spark).schema)
    assert as_text(plain) == as_text(frame(spark))


def test_pyarrow_reads_the_values(table: str) -> None:
    """[RD7] Through the dataset, and straight from the files."""
    for read in (mc.Table(table).dataset().to_table(), pa.concat_tables(pq.read_table(f) for f in sorted(Path(table).glob("*.parquet")))):
        rows = {row.pop("row"): row for row in read.to_pylist()}
        assert {name: rows[1][name] for name, (_, value) in VALUES.items() if value is not ANY} == {
            name: value for name, (_, value) in VALUES.items() if value is not ANY
        }
        assert set(map(repr, rows[2].values())) == {"None"}
        assert rows[1]["char"].rstrip() == "ab"
        assert rows[1]["variant"].keys() == {"value", "metadata"}


@pytest.mark.versions
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_whole_numbers_from_their_differences(spark, tmp_path: Path, vectorized: str) -> None:
    """[DF12] Extremes of every type, by both of its readers, as it reads the plain numbers."""
    mc.write(whole_numbers(), tmp_path / "t")
    pq.write_table(whole_numbers(), tmp_path / "plain.parquet", use_dictionary=False)
    with setting(spark, "spark.sql.parquet.enableVectorizedReader", vectorized):
        found = mc.read_committed(str(tmp_path / "t"), spark=spark)
        plain = spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(tmp_path / "plain.parquet"))
        assert found.count() == 200 and not found.exceptAll(plain).count() and not plain.exceptAll(found).count()


@pytest.mark.versions
@pytest.mark.needs("variant")
def test_duckdb_reads_the_values(table: str) -> None:
    """[RD7] DuckDB knows nothing of us: its own Parquet reader on our files, and on the dataset."""
    dataset = mc.Table(table).dataset()  # noqa: F841  # DuckDB finds it by its name
    names = ", ".join(f'"{name}"' for name in READ_BY_DUCKDB)
    for source in (f"read_parquet('{table}/*.parquet', hive_partitioning = false)", "dataset"):
        with duckdb.connect() as connection:
            (row,) = connection.execute(f"select {names} from {source} where row = 1").fetchall()
            assert dict(zip(READ_BY_DUCKDB, row, strict=True)) == {name: VALUES[name][1] for name in READ_BY_DUCKDB}
            micros = f'select epoch_us(timestamp_late), cardinality(deep), cardinality("map") from {source} where row = 1'
            moment = dt.datetime(2013, 7, 1, 16, tzinfo=UTC)
            assert connection.execute(micros).fetchall() == [(int(moment.timestamp() * 1e6), 1, 2)]


def test_a_median_of_prices_is_not_a_tenth_of_it(spark, tmp_path: Path) -> None:
    """[DF5] Within an expression Spark holds the decimals of some functions at another scale than their type says: 12.5 for 12.50."""
    prices = spark.sql("select cast(value as decimal(10,2)) as price from values (12.5), (12.5), (99.99) as t(value)")
    mc.write(prices.agg(F.percentile_approx("price", 0.5).alias("median")), tmp_path / "t")
    assert mc.Table(tmp_path / "t").dataset().to_table().column("median").to_pylist() == [Decimal("12.50")]


def test_a_nan_is_a_nan(spark, tmp_path: Path) -> None:
    path = str(tmp_path / "nan")
    mc.write(spark.sql("select double('NaN') as d, float('NaN') as f, double('-0.0') as z"), path)
    row = mc.read_committed(path, spark=spark).first()
    assert row.d != row.d and row.f != row.f and str(row.z) == "-0.0"


REFUSED = {
    "interval year": "interval '1' year", "interval month": "interval '1-2' year to month", "calendar interval": "make_interval(1, 2)",
    "time": "time'12:00:00'", "empty struct": "struct()", "inside": "array(named_struct('a', interval '1' year))",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_reader_would_get_back_is_refused(spark, tmp_path: Path, name: str) -> None:
    """[SC2] By a typed error, before anything is there."""
    with pytest.raises(mc.errors.UnsupportedTypeError, match="'c"):
        mc.write(spark.sql(f"select 1 as ok, {REFUSED[name]} as c"), tmp_path / "t")
    assert not (tmp_path / "t").exists()

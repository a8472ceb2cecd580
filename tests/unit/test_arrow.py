"""Arrow types of a table, and batches that take the shape of its data files or are refused. [SC1] [SC2] [SC3]"""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.core.arrow import FIELD_ID, arrow_schema, arrow_type, footer_metadata, from_arrow
from manifestcommit.core.conform import Conformer, conform
from manifestcommit.core.schema import INTERVALS, ArrayType, Field, FieldType, MapType, Schema, StructType, check_schema, walk
from manifestcommit.core.spark_types import to_spark
from manifestcommit.errors import SchemaMismatchError, UnsupportedTypeError
from tests.unit.schemas import counter, schemas, single_value_types, values

DAY_TIME = "interval day to second"


def column(type: FieldType, *, nullable: bool = True, name: str = "c") -> Schema:
    return Schema(fields=(Field(id=1, name=name, type=type, nullable=nullable),))


def batch(**arrays: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def struct_of(*fields: Field) -> StructType:
    return StructType(fields=fields)


# --- schemas --------------------------------------------------------------------------------------------------------------


@given(schemas(single_value_types.map(lambda name: DAY_TIME if name in INTERVALS else name) | st.just("variant")))
def test_a_schema_survives_arrow(schema: Schema) -> None:
    """[SC1] [SC2] Arrow knows one kind of day-time interval; everything else comes back as it was."""
    exact = arrow_schema(schema, physical=False, ids=False, relaxed=False)
    assert from_arrow(exact, counter()) == schema


@given(schemas())
def test_every_field_of_a_data_file_has_its_id_and_may_be_null(schema: Schema) -> None:
    """[SC1] [DF5] Read back from a real file's footer."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, arrow_schema(schema, physical=True)) as writer:
        writer.write_table(arrow_schema(schema, physical=True).empty_table())
    found = pq.read_schema(io.BytesIO(sink.getvalue()))
    assert found.types == arrow_schema(schema, physical=True).types

    def ids(field: pa.Field, is_key: bool = False) -> list[int]:
        type = field.type
        assert field.nullable is not is_key
        inside: list[int] = []
        if pa.types.is_map(type):
            inside = ids(type.key_field, True) + ids(type.item_field)
        elif pa.types.is_list(type):
            inside = ids(type.value_field)
        elif pa.types.is_struct(type) and type.get_field_index("metadata") < 0:
            inside = [id for member in type for id in ids(member)]
        return [int(field.metadata[FIELD_ID]), *inside]

    if not any(field.name == "metadata" for _, field in walk(schema.fields)):
        assert [id for field in found for id in ids(field)] == [field.id for _, field in walk(schema.fields)]


def test_the_names_of_files_and_of_users() -> None:
    """[SC6]"""
    schema = Schema(fields=(Field(id=7, name="new", physical="old", type="long", nullable=False),))
    assert arrow_schema(schema, physical=True).names == ["old"]
    assert arrow_schema(schema, physical=False).names == ["new"]
    assert arrow_schema(schema, physical=True).field(0).nullable
    assert not arrow_schema(schema, physical=True, relaxed=False).field(0).nullable
    assert arrow_schema(schema, physical=True).field(0).metadata == {FIELD_ID: b"7"}
    assert arrow_schema(schema, physical=True, ids=False).field(0).metadata is None


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.binary(16), "binary"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"),
        (pa.date64(), "date"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", tz="Asia/Tokyo"), "timestamp"),
        (pa.duration("ns"), DAY_TIME),
        (pa.decimal256(38, 3), "decimal(38,3)"),
        (pa.null(), "void"),
        (pa.uuid(), "binary"),
        (pa.json_(), "string"),
        (pa.bool8(), "boolean"),
    ],
)
def test_arrow_types_become_the_type_that_holds_their_values(arrow: pa.DataType, expected: str) -> None:
    """[SC2]"""
    assert from_arrow(pa.schema([("c", arrow)]), counter()) == column(expected)
    assert conform(batch(c=pa.nulls(2, arrow)), column(expected)).schema == arrow_schema(column(expected), physical=True)


@pytest.mark.parametrize("nested", [pa.large_list, pa.list_view, pa.large_list_view, lambda type: pa.list_(type, 2)])
def test_every_kind_of_list_becomes_an_array(nested: Any) -> None:
    """[SC2]"""
    schema = from_arrow(pa.schema([("c", nested(pa.int32()))]), counter())
    assert schema.fields[0].type == ArrayType(element=Field(id=2, name="element", type="integer"))
    found = conform(batch(c=pa.array([None, [1, None]], nested(pa.int32()))), schema)
    assert found.column(0).to_pylist() == [None, [1, None]]
    assert conform(batch(c=pa.array([[5, 6]], nested(pa.int32()))), schema).column(0).to_pylist() == [[5, 6]]


@pytest.mark.parametrize(
    "arrow",
    [
        pa.time32("s"),
        pa.time64("ns"),
        pa.month_day_nano_interval(),
        pa.struct([]),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.decimal128(2, 5),
        pa.sparse_union([pa.field("a", pa.int32())]),
        pa.list_(pa.struct([pa.field("x", pa.time64("us"))])),
        pa.opaque(pa.int32(), "a", "b"),
    ],
    ids=str,
)
def test_what_no_reader_gets_back_is_refused_by_name(arrow: pa.DataType) -> None:
    """[SC2]"""
    with pytest.raises(UnsupportedTypeError, match="bad"):
        from_arrow(pa.schema([("bad", arrow)]), counter())


def test_spark_metadata_of_arrow_fields_is_kept_but_defaults_are_not() -> None:
    """[SC4] A default kept would be read into rows of files that lack the column."""
    metadata = {"SPARK::metadata::json": json.dumps({"comment": "c", "EXISTS_DEFAULT": "5", "CURRENT_DEFAULT": "5"})}
    assert from_arrow(pa.schema([pa.field("c", pa.int8(), metadata=metadata)]), counter()).fields[0].metadata == {"comment": "c"}
    hostile = {"SPARK::metadata::json": "[1"}
    assert from_arrow(pa.schema([pa.field("c", pa.int8(), metadata=hostile)]), counter()).fields[0].metadata == {}


@given(schemas())
def test_the_footer_says_in_spark_s_words_what_the_file_holds(schema: Schema) -> None:
    """[SC2]"""
    footer = footer_metadata(schema)
    assert json.loads(footer[b"org.apache.spark.sql.parquet.row.metadata"]) == to_spark(schema, physical=True, relaxed=True)
    assert b'"nullable":false' not in footer[b"org.apache.spark.sql.parquet.row.metadata"]
    assert int(footer[b"org.apache.spark.version"].split(b".")[0]) >= 3  # before 3.0 dates were Julian


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ((), SchemaMismatchError),
        ((Field(id=1, name="a", type="long"), Field(id=2, name="A", type="long")), SchemaMismatchError),
        ((Field(id=1, name="a", type="long"), Field(id=1, name="b", type="long")), SchemaMismatchError),
        ((Field(id=1, name="a", type="long"), Field(id=2, name="b", physical="a", type="long")), SchemaMismatchError),
        ((Field(id=1, name="a", type=struct_of(Field(id=1, name="b", type="long"))),), SchemaMismatchError),
        ((Field(id=1, name="a", type=struct_of(Field(id=2, name="b", physical="x", type="long"))),), SchemaMismatchError),
        ((Field(id=1, name="", type="long"),), SchemaMismatchError),
        ((Field(id=1, name="\ud800", type="long"),), SchemaMismatchError),
        ((Field(id=0, name="a", type="long"),), SchemaMismatchError),
        ((Field(id=2**31, name="a", type="long"),), SchemaMismatchError),
        ((Field(id=1, name="a", type=ArrayType(element=Field(id=2, name="item", type="long"))),), SchemaMismatchError),
        ((Field(id=1, name="a", type=struct_of()),), UnsupportedTypeError),
        ((Field(id=1, name="a", type="decimal(39,0)"),), UnsupportedTypeError),
        ((Field(id=1, name="a", type="decimal(0,0)"),), UnsupportedTypeError),
        ((Field(id=1, name="a", type="decimal(2,3)"),), UnsupportedTypeError),
        ((Field(id=1, name="a", type="interval year to month"),), UnsupportedTypeError),
        ((Field(id=1, name="a", type="interval second to day"),), UnsupportedTypeError),
        ((Field(id=1, name="a", type="calendar_interval"),), UnsupportedTypeError),
    ],
)
def test_an_impossible_schema_is_refused(fields: tuple[Field, ...], error: type[Exception]) -> None:
    """[SC1] [SC2]"""
    with pytest.raises(error):
        check_schema(Schema(fields=fields))


@given(schemas())
def test_a_possible_schema_passes(schema: Schema) -> None:
    """[SC1] [SC2]"""
    check_schema(schema)


def test_ids_that_repeat_by_chance_are_replaced() -> None:
    """[SC1] 10,000 random ids of 31 bits repeat in one schema of forty."""
    found = from_arrow(pa.schema([("a", pa.int8()), ("b", pa.list_(pa.int8()))]), lambda: 2**31 - 1)
    assert [field.id for _, field in walk(found.fields)] == [2**31 - 1, 1, 2]


# --- batches --------------------------------------------------------------------------------------------------------------


def data(type: FieldType) -> st.SearchStrategy[Any]:
    """Values of a column as `pa.array` takes them."""
    match type:
        case StructType(fields=fields):
            members = {field.name: data(field.type) if not field.nullable else st.none() | data(field.type) for field in fields}
            return st.fixed_dictionaries(members)
        case ArrayType(element=element):
            return st.lists(data(element.type) if not element.nullable else st.none() | data(element.type), max_size=3)
        case MapType(key=key, value=value):
            return st.lists(st.tuples(data(key.type), data(value.type)), max_size=3)
    assert isinstance(type, str)
    if type == "void":
        return st.none()
    if type == "date":
        return st.dates()
    if type in ("timestamp", "timestamp_ntz"):
        return st.integers(-(2**55), 2**57)  # the years that Python can hold, so that they can be compared
    return values(type)


SAMPLED = st.sampled_from(["integer", "string", "timestamp", "decimal(7,3)", "boolean", DAY_TIME])


@st.composite
def batches(draw: st.DrawFn) -> tuple[Schema, pa.RecordBatch]:
    schema = draw(schemas(SAMPLED))
    exact = arrow_schema(schema, physical=False, ids=False, relaxed=False)
    rows = draw(st.integers(0, 5))
    arrays = []
    for field, target in zip(schema.fields, exact, strict=True):
        value = st.none() | data(field.type) if field.nullable else data(field.type)
        arrays.append(pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), target.type))
    return schema, pa.RecordBatch.from_arrays(arrays, schema=exact)


@given(batches(), st.randoms(use_true_random=False), st.integers(0, 5))
def test_a_batch_keeps_its_values(made: tuple[Schema, pa.RecordBatch], random: Any, start: int) -> None:
    """[SC3] Whatever the order of its columns, whatever slice of a larger batch it is."""
    schema, given_batch = made
    order = list(range(given_batch.num_columns))
    random.shuffle(order)
    shuffled = given_batch.select(order).slice(start)
    found = conform(shuffled, schema)
    found.validate(full=True)
    assert found.schema.equals(arrow_schema(schema, physical=True), check_metadata=True)
    for field in schema.fields:
        assert found.column(field.name).to_pylist() == given_batch.slice(start).column(field.name).to_pylist()


def buffers(array: pa.Array) -> set[int]:
    return {buffer.address for buffer in array.buffers() if buffer is not None}


def test_a_batch_that_matches_is_not_copied() -> None:
    """[SC3] Neither leaves nor what nested columns hold."""
    schema = from_arrow(
        pa.schema([("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))]),
        counter(),
    )
    strict = pa.list_(pa.field("x", pa.int32(), nullable=False))
    given_batch = batch(
        a=pa.array([1, 2]), s=pa.array(["x", "y"]), l=pa.array([[1], [2]], strict), m=pa.array([[("k", 1)], []], schema_type(schema, 3))
    )
    found = conform(given_batch, schema)
    for before, after in zip(given_batch.columns, found.columns, strict=True):
        assert buffers(after) <= buffers(before)


def schema_type(schema: Schema, at: int) -> pa.DataType:
    return arrow_type(schema.fields[at].type)


def test_spark_s_batches_become_what_files_hold() -> None:
    """[SC3] As measured on PySpark 4.3: session time zone, durations, marked variants, nothing nullable, nulls as null type."""
    variant = pa.struct(
        [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})]
    )
    incoming = pa.schema(
        [
            pa.field("ts", pa.timestamp("us", tz="America/New_York"), nullable=False),
            pa.field("iv", pa.duration("us"), nullable=False),
            pa.field("va", variant, nullable=False),
            pa.field("vo", pa.null()),
            pa.field("av", pa.list_(pa.field("element", variant, nullable=False)), nullable=False),
        ]
    )
    assert [field.type for field in from_arrow(incoming, counter()).fields[:4]] == ["timestamp", DAY_TIME, "variant", "void"]
    row = {"ts": 5, "iv": dt.timedelta(1), "va": {"value": b"v", "metadata": b"m"}, "vo": None, "av": [{"value": b"v", "metadata": b"m"}]}
    schema = from_arrow(incoming, counter())
    found = conform(pa.RecordBatch.from_pylist([row], schema=incoming), schema)
    assert found.schema.equals(arrow_schema(schema, physical=True), check_metadata=True)
    assert found.column("ts").cast(pa.int64()).to_pylist() == [5]
    assert found.column("av").to_pylist() == [[{"value": b"v", "metadata": b"m"}]]


def test_a_data_file_s_own_variant_can_be_written_again() -> None:
    """[SC2] A file's reader sees an unmarked struct."""
    plain = pa.struct([("metadata", pa.large_binary()), ("value", pa.large_binary())])
    found = conform(batch(c=pa.array([{"metadata": b"m", "value": b"v"}, None], plain)), column("variant"))
    assert found.column(0).to_pylist() == [{"value": b"v", "metadata": b"m"}, None]
    with pytest.raises(SchemaMismatchError, match="'c'"):
        conform(batch(c=pa.array([{"metadata": b"m", "value": None}], plain)), column("variant"))


def test_tables_of_other_libraries() -> None:
    """[SC3] pandas, polars and duckdb hand over large, view, dictionary and nanosecond types."""
    frame = pd.DataFrame(
        {"s": pd.Series(["a", None], dtype="category"), "t": pd.to_datetime(["2020-01-01", None]), "u": pd.Series([1, 2], dtype="uint8")}
    )
    polars = pl.DataFrame(
        {"s": ["a", None], "t": [dt.datetime(2020, 1, 1), None], "l": [[1], None], "u": pl.Series([1, 2], dtype=pl.UInt8)}
    )
    duck = duckdb.sql("select 'a' s, timestamp_ns '2020-01-01' t, [1::bigint] l, 1::utinyint u union all select null, null, null, 2")
    schema = from_arrow(
        pa.schema([("s", pa.string()), ("t", pa.timestamp("us")), ("l", pa.list_(pa.int64())), ("u", pa.int16())]), counter()
    )
    tables = [pa.Table.from_pandas(frame, preserve_index=False), polars.to_arrow(), duck.to_arrow_table()]
    for table in tables:
        conformer = Conformer(schema)
        rows = [row for part in table.to_batches() for row in conformer.conform(part).to_pylist()]
        assert sorted(row["u"] for row in rows) == [1, 2]
        assert {row["s"] for row in rows} == {"a", None}
        assert {row["t"] for row in rows} == {dt.datetime(2020, 1, 1), None}
        assert [row["l"] for row in rows] in ([None, None], [[1], None], [None, [1]])


def test_a_conformer_meets_batches_of_changing_schemas() -> None:
    schema = from_arrow(pa.schema([("a", pa.int64()), ("b", pa.string())]), counter())
    conformer = Conformer(schema)
    first = conformer.conform(batch(a=pa.array([1]), b=pa.array(["x"])))
    second = conformer.conform(batch(b=pa.array(["x"]), a=pa.array([1], pa.int8())))
    assert first.equals(second)


@pytest.mark.parametrize(
    ("array", "type"),
    [
        (pa.array([2**40]), "integer"),
        (pa.array([-1]), "boolean"),
        (pa.array([1.0]), "long"),
        (pa.array([1.5]), "float"),
        (pa.array([1]), "double"),
        (pa.array([1]), "string"),
        (pa.array(["1"]), "long"),
        (pa.array(["x"]), "binary"),
        (pa.array([b"x"]), "string"),
        (pa.array([1], pa.timestamp("ns")), "timestamp_ntz"),
        (pa.array([2**62], pa.timestamp("s")), "timestamp_ntz"),
        (pa.array([0], pa.timestamp("us")), "timestamp"),
        (pa.array([0], pa.timestamp("us", tz="UTC")), "timestamp_ntz"),
        (pa.array([0], pa.timestamp("us")), "date"),
        (pa.array([1], pa.date64()), "date"),
        (pa.array([1], pa.duration("ns")), DAY_TIME),
        (pa.array([5], pa.int64()), DAY_TIME),
        (pa.array([1], pa.duration("us")), "interval day"),
        (pa.array([3_600_000_000], pa.duration("us")), "interval day"),
        (pa.array([Decimal("1.234")]), "decimal(5,2)"),
        (pa.array([Decimal("1000.00")]), "decimal(5,2)"),
        (pa.array([1]), "void"),
        (pa.array([{"a": 1}]), "variant"),
        (pa.array([{"a": 1}]), "string"),
        (pa.array([[1]]), "long"),
        (pa.array([1], pa.time64("us")), "long"),
    ],
    ids=str,
)
def test_a_lossy_value_is_refused_by_name(array: pa.Array, type: str) -> None:
    """[SC3] Never rounded, never truncated, never read as something similar."""
    with pytest.raises(SchemaMismatchError, match=r"'lossy'.*" + str(array.type)[:4]):
        conform(batch(lossy=array), column(type, name="lossy"))


@pytest.mark.parametrize(
    ("array", "type"),
    [
        (pa.array([1, None], pa.int8()), "long"),
        (pa.array([1], pa.uint64()), "byte"),
        (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)"),
        (pa.array([1.5], pa.float16()), "double"),
        (pa.array([1.5], pa.float32()), "double"),
        (pa.array([Decimal("1.20")]), "decimal(10,4)"),
        (pa.array([Decimal("1.2000")]), "decimal(3,1)"),
        (pa.array([86_400_000], pa.date64()), "date"),
        (pa.array([1_000], pa.timestamp("ns")), "timestamp_ntz"),
        (pa.array([86_400], pa.duration("s")), "interval day"),
        (pa.array([None, None], pa.int32()), "void"),
        (pa.nulls(2), "long"),
    ],
    ids=str,
)
def test_a_checked_cast_keeps_the_value(array: pa.Array, type: str) -> None:
    """[SC3]"""
    assert conform(batch(c=array), column(type)).column(0).to_pylist() == array.to_pylist()


NUMBER = Field(id=9, name="x", type="long", nullable=False)
LONGS = pa.array([1, None])


@pytest.mark.parametrize(
    ("array", "type", "path"),
    [
        (LONGS, "long", "'c'"),
        (LONGS.dictionary_encode(), "long", "'c'"),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1]), LONGS), "long", "'c'"),
        (pc.run_end_encode(LONGS), "long", "'c'"),
        (pa.nulls(2), "long", "'c'"),
        (pa.array([{"x": None}]), struct_of(NUMBER), "'c.x'"),
        (pa.array([{"x": None}, {"x": 1}, None]), struct_of(NUMBER), r"'c\.x' may not be null, but 1 of 3"),
        (pa.array([[1, None]]), ArrayType(element=Field(id=9, name="element", type="long", nullable=False)), "'c.element'"),
        (
            pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())),
            MapType(
                key=Field(id=8, name="key", type="string", nullable=False),
                value=Field(id=9, name="value", type="long", nullable=False),
            ),
            "'c.value'",
        ),
    ],
    ids=str,
)
def test_a_null_where_none_may_be_is_refused(array: pa.Array, type: FieldType, path: str) -> None:
    """[SC3] Nested as well."""
    with pytest.raises(SchemaMismatchError, match=path):
        conform(batch(c=array), column(type, nullable=False))


def test_a_null_parent_is_no_null_member() -> None:
    """[SC3]"""
    found = conform(batch(c=pa.array([None, {"x": 1}])), column(struct_of(NUMBER)))
    assert found.column(0).to_pylist() == [None, {"x": 1}]


def test_what_a_null_hides_is_no_value() -> None:
    """[SC3] Garbage below a null struct, list or map, or outside a slice, is neither checked nor kept."""
    bad = pa.array([2**40, 5])
    hidden = pa.array([True, False])
    struct = pa.StructArray.from_arrays([bad], ["x"], mask=hidden)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), bad, mask=hidden)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"]), bad, mask=hidden)
    small = Field(id=2, name="x", type="integer", nullable=False)
    element = Field(id=2, name="element", type="integer", nullable=False)
    key = Field(id=2, name="key", type="string", nullable=False)
    value = Field(id=3, name="value", type="integer", nullable=False)
    for array, type, expected in [
        (struct, struct_of(small), [None, {"x": 5}]),
        (lists, ArrayType(element=element), [None, [5]]),
        (maps, MapType(key=key, value=value), [None, [("b", 5)]]),
    ]:
        found = conform(batch(c=array), column(type))
        found.validate(full=True)
        assert found.column(0).to_pylist() == expected
        assert conform(batch(c=array).slice(1), column(type)).column(0).to_pylist() == expected[1:]


def test_columns_are_found_by_name() -> None:
    """[SC3] [SC4]"""
    schema = Schema(
        fields=(
            Field(id=1, name="Day", type="long", nullable=False),
            Field(id=2, name="x", type=struct_of(NUMBER)),
            Field(id=3, name="gone", type="string"),
        )
    )
    found = conform(batch(x=pa.array([{"X": 1}]), day=pa.array([5])), schema)
    assert found.to_pylist() == [{"Day": 5, "x": {"x": 1}, "gone": None}]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["day", "other"], "does not have.*'other'"),
        (["DAY", "Day"], "could be any of 'DAY', 'Day'"),
        (["day", "DAY"], "does not have.*'DAY'"),
        (["day", "day"], "'day' twice"),
        ([], "'day' is missing"),
    ],
)
def test_columns_that_cannot_be_told_are_refused(names: list[str], message: str) -> None:
    """[SC3]"""
    given_batch = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names)
    with pytest.raises(SchemaMismatchError, match=message):
        conform(given_batch, column("long", nullable=False, name="day"))


def test_ten_thousand_columns_take_no_time() -> None:
    """A second and more would mean that the work grows with the square of the columns."""
    wide = Schema(fields=tuple(Field(id=n + 1, name=f"c{n}", type="long") for n in range(10_000)))
    arrow = arrow_schema(wide, physical=True)
    rows = pa.RecordBatch.from_arrays([pa.array([1])] * 10_000, names=[f"C{n}" for n in reversed(range(10_000))])
    started = time.process_time()
    assert from_arrow(arrow, counter()) == wide
    assert conform(rows, wide).schema == arrow
    assert len(footer_metadata(wide)) == 2
    assert time.process_time() - started < 2

"""Batches from anywhere take exactly the shape of data files, or are refused by name. [SC3]"""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.schemas import batch, column, conform, counter, schemas, struct_of, values

from manifestcommit.errors import SchemaMismatchError
from manifestcommit.format.fields import ArrayType, Field, FieldType, MapType, Schema, StructType
from manifestcommit.format.values import Conformer, arrow_schema, arrow_type, from_arrow

DAY_TIME = "interval day to second"


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
    exact = arrow_schema(schema, physical=False, ids=False)
    rows = draw(st.integers(0, 5))
    arrays = []
    for field, target in zip(schema.fields, exact, strict=True):
        value = st.none() | data(field.type) if field.nullable else data(field.type)
        arrays.append(pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), target.type))
    return schema, pa.RecordBatch.from_arrays(arrays, schema=exact)


@pytest.mark.thorough
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
        pa.schema([("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))]), counter()
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


def test_a_conformer_meets_batches_of_changing_schemas() -> None:
    conformer = Conformer(from_arrow(pa.schema([("a", pa.int64()), ("b", pa.string())]), counter()))
    first = conformer.conform(batch(a=pa.array([1]), b=pa.array(["x"])))
    assert first.equals(conformer.conform(batch(b=pa.array(["x"]), a=pa.array([1], pa.int8()))))


@pytest.mark.parametrize(
    ("array", "type"),
    [
        (pa.array([2**40]), "integer"),
        (pa.array([-1]), "boolean"),
        (pa.array([1.5]), "long"),
        (pa.array([float("nan")]), "long"),
        (pa.array([2.0**53]), "long"),  # may have been 2**53 + 1
        (pa.array([2.0**24], pa.float32()), "long"),
        (pa.array([2.0**31]), "integer"),
        (pa.array([0.1]), "float"),
        (pa.array([1e300]), "float"),
        (pa.array([2**53 + 1]), "double"),
        (pa.array([2**24 + 1]), "float"),
        (pa.array([0.005]), "decimal(6,2)"),
        (pa.array([float("inf")]), "decimal(6,2)"),
        (pa.array([10_000]), "decimal(6,2)"),
        (pa.array([2**63 - 1]), "decimal(38,30)"),  # Arrow's own cast overflows silently
        (pa.array([Decimal("1e20")]), "decimal(38,30)"),
        (pa.array([Decimal("12345678901234567.89")]), "double"),
        (pa.array([Decimal("1.5")]), "long"),
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


VIEWS = (pa.array(["a", "b"], pa.string_view()), pa.array([b"a", b"b"], pa.binary_view()))


@pytest.mark.parametrize("values", VIEWS, ids=["text", "binary"])
def test_dictionaries_of_views_are_decoded(values: pa.Array) -> None:
    """Categorical and Enum columns of Polars, at the top and nested, without any row, too. [SC3]"""
    kind = "string" if pa.types.is_string_view(values.type) else "binary"
    array = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), values)
    plain = [values[1].as_py(), None, values[0].as_py()]
    assert conform(batch(c=array), column(kind)).column(0).to_pylist() == plain
    assert conform(batch(c=array.slice(0, 0)), column(kind)).num_rows == 0
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), array)
    of_them = column(ArrayType(element=Field(id=2, name="element", type=kind)))
    assert conform(batch(c=lists), of_them).column(0).to_pylist() == [plain[:2], plain[2:]]
    structs = pa.StructArray.from_arrays([array], names=["s"])
    member = column(StructType(fields=(Field(id=2, name="s", type=kind),)))
    assert conform(batch(c=structs), member).column(0).to_pylist() == [{"s": each} for each in plain]


@pytest.mark.parametrize(
    ("array", "type"),
    [
        (pa.array([1, None], pa.int8()), "long"), (pa.array([1], pa.uint64()), "byte"),
        (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)"), (pa.array([np.float16(1.5)], pa.float16()), "double"),
        (pa.array([1.5], pa.float32()), "double"), (pa.array([Decimal("1.20")]), "decimal(10,4)"),
        (pa.array([Decimal("1.2000")]), "decimal(3,1)"), (pa.array([86_400_000], pa.date64()), "date"),
        (pa.array([1_000], pa.timestamp("ns")), "timestamp_ntz"), (pa.array([86_400], pa.duration("s")), "interval day"),
        (pa.array([None, None], pa.int32()), "void"), (pa.nulls(2), "long"),
    ],
    ids=str,
)  # fmt: skip
def test_a_checked_cast_keeps_the_value(array: pa.Array, type: str) -> None:
    """[SC3]"""
    assert conform(batch(c=array), column(type)).column(0).to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    ("array", "type"),
    [
        (pa.array([3.0, None, -(2.0**53) + 1]), "long"), (pa.array([3.0, None], pa.float32()), "byte"),
        (pa.array([3.0], pa.float16()), "byte"), (pa.array([2**53, None, -1]), "double"), (pa.array([2**24], pa.uint32()), "float"),
        (pa.array([0.1, 1e-2, None]), "decimal(6,2)"), (pa.array([0.1, 1e-10, 1e7]), "decimal(38,30)"),
        (pa.array([9_999, -9_999, None]), "decimal(6,2)"), (pa.array([Decimal("0.10"), Decimal("12345678901234.56"), None]), "double"),
        (pa.array([1.5, float("nan"), float("-inf"), None]), "float"), (pa.nulls(2, pa.float64()), "decimal(6,2)"),
        (pa.array([], pa.decimal128(6, 2)), "float"),
    ],
    ids=str,
)  # fmt: skip
def test_a_number_is_the_same_in_another_type(array: pa.Array, type: str) -> None:
    """A float is the decimal with its shortest digits. [SC3]"""
    made = conform(batch(c=array), column(type)).column(0)
    same = [[None if each is None else repr(float(str(each))) for each in some.to_pylist()] for some in (made, array)]
    assert same[0] == same[1]


def test_texts_that_are_not_utf8_are_refused_wherever_they_are() -> None:
    """Not those below a null, or outside of a slice, which are not written. [SC3]"""
    broken = pa.array([b"x", b"\xff", b"y"]).view(pa.string())
    nested = pa.StructArray.from_arrays([broken], names=["s"])
    hidden = pa.StructArray.from_arrays([broken], names=["s"], mask=pa.array([False, True, False]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), broken)
    member = StructType(fields=(Field(id=2, name="s", type="string"),))
    of_text = ArrayType(element=Field(id=2, name="element", type="string"))
    for array, type, path in ((broken, "string", "c"), (nested, member, r"c\.s"), (lists, of_text, r"c\.element")):
        with pytest.raises(SchemaMismatchError, match=rf"'{path}' has a text that is not UTF-8.*binary column"):
            conform(batch(c=array), column(type))
        with pytest.raises(SchemaMismatchError, match="not UTF-8"):
            conform(batch(c=array.dictionary_encode() if type == "string" else array), column(type))
        assert len(conform(batch(c=array.slice(2)), column(type))) == 1
    assert conform(batch(c=hidden), column(member)).column(0).to_pylist() == [{"s": "x"}, None, {"s": "y"}]
    for plain, view in ((pa.large_binary(), pa.large_string()), (pa.binary_view(), pa.string_view())):
        with pytest.raises(SchemaMismatchError, match="not UTF-8"):
            conform(batch(c=pa.array([b"\xff"], plain).view(view)), column("string"))


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
                key=Field(id=8, name="key", type="string", nullable=False), value=Field(id=9, name="value", type="long", nullable=False)
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
        (["day", "other"], "does not have.*'other'"), (["DAY", "Day"], "could be any of 'DAY', 'Day'"),
        (["day", "DAY"], "does not have.*'DAY'"), (["day", "day"], "'day' twice"), ([], "'day' is missing"),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_told_are_refused(names: list[str], message: str) -> None:
    """[SC3]"""
    given_batch = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names)
    with pytest.raises(SchemaMismatchError, match=message):
        conform(given_batch, column("long", nullable=False, name="day"))

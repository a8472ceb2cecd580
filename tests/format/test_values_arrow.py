"""Arrow types of a table and of its data files. [SC1] [SC2]"""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.schemas import batch, column, conform, counter, schemas, single_value_types, struct_of

import manifestcommit as mc
from manifestcommit.errors import SchemaMismatchError, UnsupportedTypeError
from manifestcommit.format.fields import INTERVALS, MAX_LEVELS, ArrayType, Field, Schema, check_schema, relaxed, to_spark, walk
from manifestcommit.format.values import FIELD_ID, arrow_schema, footer_metadata, from_arrow

DAY_TIME = "interval day to second"


@given(schemas(single_value_types.map(lambda name: DAY_TIME if name in INTERVALS else name) | st.just("variant")))
def test_a_schema_survives_arrow(schema: Schema) -> None:
    """[SC1] [SC2] Arrow knows one kind of day-time interval; everything else comes back as it was."""
    assert from_arrow(arrow_schema(schema, physical=False, ids=False), counter()) == relaxed(schema)


@given(schemas())
def test_every_field_of_a_data_file_has_its_id_and_may_be_null(schema: Schema) -> None:
    """[SC1] [DF5] Read back from a real file's footer."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, arrow_schema(schema, physical=True)) as writer:
        writer.write_table(arrow_schema(schema, physical=True).empty_table())
    found = pq.read_schema(io.BytesIO(sink.getvalue()))
    wanted = arrow_schema(schema, physical=True).types
    # From the footers of pyarrow before 24 durations in maps come back as whole numbers; readers cast them to the table's type.
    assert found.types == wanted or (int(pa.__version__.partition(".")[0]) < 24 and "duration" in str(wanted))

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
    assert arrow_schema(schema, physical=True).field(0).metadata == {FIELD_ID: b"7"}
    assert arrow_schema(schema, physical=True, ids=False).field(0).metadata is None


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), "short"), (pa.uint16(), "integer"), (pa.uint32(), "long"), (pa.uint64(), "decimal(20,0)"), (pa.float16(), "float"),
        (pa.large_string(), "string"), (pa.string_view(), "string"), (pa.binary(16), "binary"), (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"), (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"), (pa.date64(), "date"), (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", tz="Asia/Tokyo"), "timestamp"), (pa.duration("ns"), DAY_TIME), (pa.decimal256(38, 3), "decimal(38,3)"),
        (pa.null(), "void"), (pa.uuid(), "binary"), (pa.json_(), "string"), (pa.bool8(), "boolean"),
    ],
)  # fmt: skip
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
        pa.time32("s"), pa.time64("ns"), pa.month_day_nano_interval(), pa.struct([]), pa.decimal256(39, 0), pa.decimal128(5, -2),
        pa.decimal128(2, 5), pa.sparse_union([pa.field("a", pa.int32())]), pa.list_(pa.struct([pa.field("x", pa.time64("us"))])),
        pa.opaque(pa.int32(), "a", "b"),
    ],
    ids=str,
)  # fmt: skip
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
    assert json.loads(footer[b"org.apache.spark.sql.parquet.row.metadata"]) == to_spark(schema, physical=True)
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


@pytest.mark.parametrize("nest", [pa.list_, lambda inner: pa.map_(pa.string(), inner), lambda inner: pa.struct([("x", inner)])])
def test_columns_are_no_deeper_than_readers_go(nest: Any, tmp_path: Path) -> None:
    """A table with one deeper column could not be read at all. [SC2]"""
    kind = pa.int64()
    for _ in range(MAX_LEVELS - 1):
        kind = nest(kind)
    mc.write(pa.table({"id": [1], "deep": pa.nulls(1, kind)}), tmp_path / "t")
    assert mc.Table(tmp_path / "t").to_arrow().num_rows == 1
    with pytest.raises(UnsupportedTypeError, match=r"'deep' is nested more than \d+ levels deep"):
        mc.write(pa.table({"id": [1], "deep": pa.nulls(1, nest(kind))}), tmp_path / "u")

"""Spark's schema JSON, to and from a table's schema. [SC2]"""

import copy
import json
import time
from typing import Any

import msgspec
import pyspark
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql.types import StructType as SparkStruct
from tests.kit.schemas import counter, schemas

from manifestcommit.errors import SchemaMismatchError, UnsupportedTypeError
from manifestcommit.format.evolution import apply_edits, rename_column
from manifestcommit.format.fields import _DROPPED_METADATA, Field, Schema, StructType, from_spark, has_collation, relaxed, to_spark, walk

SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=3,
)


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def field(name: str, type: Any, nullable: bool = True, /, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "nullable": nullable, "metadata": metadata}


@given(schemas())
def test_a_schema_survives_spark_s_json(schema: Schema) -> None:
    """But that all is nullable. [SC1] [SC2]"""
    spark = json.loads(json.dumps(to_spark(schema, physical=False)))
    assert from_spark(spark, counter()) == relaxed(schema)
    assert to_spark(from_spark(spark, counter()), physical=False) == spark


@given(schemas())
def test_pyspark_reads_the_json_and_writes_it_back(schema: Schema) -> None:
    """[SC2] Every type name is one of Spark's, `interval hour to second` as much as `decimal(38,38)`."""
    spark = to_spark(schema, physical=False)
    assume(SPARK >= (4, 0) or "variant" not in str(spark))  # a type of Spark 4.0
    assert SparkStruct.fromJson(copy.deepcopy(spark)).jsonValue() == spark


@given(st.dictionaries(st.text(min_size=1), json_values, max_size=3))
def test_metadata_is_kept_as_it_is(metadata: dict[str, Any]) -> None:
    """[SC2] Comments, char and varchar lengths, whatever a library attached."""
    for name in ("__COLLATIONS", *_DROPPED_METADATA):
        metadata.pop(name, None)
    spark = struct(field("c", "string", **metadata))
    assert to_spark(from_spark(spark, counter()), physical=False) == spark


@pytest.mark.skipif(SPARK < (4, 0), reason="collations are of Spark 4.0")
def test_pyspark_cannot_change_a_schema_by_reading_its_json() -> None:
    """[SC2] pyspark 4.3 takes the collations out of the mapping that it is given."""
    schema = from_spark(struct(field("c", "string", __COLLATIONS={"c": "icu.UNICODE"})), counter())
    before = msgspec.json.encode(schema)
    for _ in range(2):
        given_json = to_spark(schema, physical=False)
        assert SparkStruct.fromJson(given_json)["c"].dataType.simpleString() == "string collate UNICODE"
    assert msgspec.json.encode(schema) == before


def test_what_only_spark_s_catalog_may_act_on_is_dropped() -> None:
    """[SC4] With EXISTS_DEFAULT in a read schema Spark fills columns that a file lacks with it."""
    spark = struct(field("c", "integer", CURRENT_DEFAULT="5", EXISTS_DEFAULT="5", comment="kept", **{"parquet.field.id": 3}))
    assert from_spark(spark, counter()).fields[0].metadata == {"comment": "kept"}


def test_char_and_varchar_are_strings_that_remember() -> None:
    """[SC2]"""
    found = from_spark(struct(field("c", "char(5)"), field("v", "varchar(3)")), counter())
    assert [each.type for each in found.fields] == ["string", "string"]
    assert [each.metadata for each in found.fields] == [
        {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"},
        {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"},
    ]


def test_a_collation_follows_its_column_to_its_new_name() -> None:
    """[SC6] Spark's metadata names the column; under another name Spark would refuse the schema."""
    collated = {"c": "spark.UTF8_LCASE", "c.element": "icu.UNICODE", "cx": "kept"}
    schema = from_spark(struct(field("c", "string", __COLLATIONS=collated)), counter())
    renamed = apply_edits(schema, rename_column(schema, "c", "d"))
    assert has_collation(renamed.fields[0])
    user = to_spark(renamed, physical=False)["fields"][0]
    assert user["name"] == "d"
    assert user["metadata"]["__COLLATIONS"] == {"d": "spark.UTF8_LCASE", "d.element": "icu.UNICODE", "cx": "kept"}
    inside = to_spark(renamed, physical=True)["fields"][0]
    assert inside["name"] == "c"
    assert inside["metadata"]["__COLLATIONS"] == collated


def test_what_may_not_be_null_is_read_and_nullable_in_what_is_written() -> None:
    """At every depth. [SC2] [SC3]"""
    nested = struct(field("x", {"type": "array", "elementType": "long", "containsNull": False}, False))
    mapped = {"type": "map", "keyType": "string", "valueType": nested, "valueContainsNull": False}
    schema = from_spark(struct(field("m", mapped, False)), counter())
    assert len([each for _, each in walk(schema.fields) if not each.nullable]) == 5  # and the key
    assert "false" not in json.dumps(to_spark(schema, physical=True))


@pytest.mark.parametrize(
    "type",
    [
        "interval year to month", "interval month", "interval", "calendar_interval", "time(6)", "object", "geometry(4326)", "decimal(39,0)",
        "decimal", "char", struct(), {"type": "udt", "class": "c", "pyClass": "p", "sqlType": "long"},
        {"type": "map", "keyType": "void", "valueType": "void", "valueContainsNull": True}, None, 5,
    ],
    ids=str,
)  # fmt: skip
def test_what_no_reader_gets_back_is_refused_by_name(type: Any) -> None:
    """[SC2] Wherever in the schema it stands."""
    with pytest.raises(UnsupportedTypeError, match=r"bad"):
        from_spark(struct(field("bad", type)), counter())
    with pytest.raises(UnsupportedTypeError, match=r"a\.element\.bad"):
        from_spark(struct(field("a", {"type": "array", "elementType": struct(field("bad", type)), "containsNull": True})), counter())


@pytest.mark.parametrize("spark", [struct(field("a", "long"), field("A", "long")), struct(field("", "long")), struct(), "long"])
def test_an_impossible_struct_is_refused(spark: Any) -> None:
    """[SC1]"""
    with pytest.raises(SchemaMismatchError):
        from_spark(spark, counter())


def test_every_field_gets_an_id_of_its_own() -> None:
    """[SC1]"""
    spark = struct(field("a", {"type": "map", "keyType": "long", "valueType": struct(field("x", "long")), "valueContainsNull": True}))
    assert [each.id for _, each in walk(from_spark(spark, counter()).fields)] == [1, 2, 3, 4]
    assert len({each.id for _, each in walk(from_spark(spark, lambda: 5).fields)}) == 4


def test_the_old_name_of_void_is_known() -> None:
    assert from_spark(struct(field("a", "null")), counter()).fields[0].type == "void"


def test_nested_structs_stay_structs() -> None:
    found = from_spark(struct(field("s", struct(field("x", "long")))), counter())
    assert found.fields[0].type == StructType(fields=(Field(id=2, name="x", type="long"),))


def test_ten_thousand_columns_take_no_time() -> None:
    spark = struct(*(field(f"c{n}", "string", comment="c") for n in range(10_000)))
    started = time.process_time()
    assert to_spark(from_spark(spark, counter()), physical=False) == spark
    assert time.process_time() - started < 2

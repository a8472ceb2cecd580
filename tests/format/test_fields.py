"""Names of types, as callers, SQL and the command line give them. [SC2]"""

import pytest
from hypothesis import given
from tests.kit.schemas import primitives

from manifestcommit.errors import UsageError
from manifestcommit.format.fields import ArrayType, Field, FieldType, MapType, StructType, parse_type, type_text

NAMES = {
    "boolean": ["bool", "BOOLEAN"], "byte": ["tinyint"], "short": ["smallint", "int2"], "integer": ["int", " INT ", "int4", "Integer"],
    "long": ["bigint", "LONG"], "float": ["real", "float4"], "double": ["double precision", "float8", "DOUBLE  PRECISION"],
    "decimal(10,0)": ["decimal", "dec", "numeric"], "decimal(7,0)": ["decimal(7)", "numeric ( 7 )"],
    "decimal(10,2)": ["numeric(10,2)", "DEC(10, 2)"], "string": ["text"], "binary": ["bytea", "blob", "varbinary"],
    "timestamp": ["timestamp_ltz", "timestamptz", "timestamp with time zone"], "timestamp_ntz": ["timestamp without time zone"],
    "interval day to second": ["INTERVAL DAY TO SECOND"], "interval day": ["interval day"],
}  # fmt: skip


@pytest.mark.parametrize(("type", "text"), [(type, text) for type, texts in NAMES.items() for text in texts])
def test_the_names_of_spark_and_sql_are_types(type: str, text: str) -> None:
    """[SC2]"""
    assert parse_type(text) == type
    assert type_text(parse_type(f"array<{text}>")) == f"array<{type}>"


@given(primitives)
def test_every_type_has_its_own_name(name: str) -> None:
    """[SC2]"""
    assert parse_type(name) == parse_type(name.upper()) == name


def field(name: str, type: FieldType, **more: object) -> Field:
    return Field(id=1, name=name, type=type, **more)  # type: ignore[arg-type]


def test_nested_types_are_read_whole() -> None:
    """Members with and without a colon, names in backquotes, comments. [SC2]"""
    text = "struct<a: array<int>, `b ``c>` map<string,struct<d:numeric(10,2)>> NOT NULL COMMENT 'it''s', e timestamp not null>"
    inner = StructType(fields=(field("d", "decimal(10,2)"),))
    map_type = MapType(key=field("key", "string", nullable=False), value=field("value", inner))
    assert parse_type(text) == StructType(
        fields=(
            field("a", ArrayType(element=field("element", "integer"))),
            field("b `c>", map_type, nullable=False, metadata={"comment": "it's"}),
            field("e", "timestamp", nullable=False),
        )
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "ends too early"), ("inet", "'inet' is the name of no type"), ("int8", "no type"),
        ("int int", "goes on after a type, at 'int'"), ("array<int", "'>' is missing"), ("array<>", "no type"),
        ("map<int>", "',' is missing"), ("struct<>", "no name of a member"), ("struct<a>", "no type"), ("decimal(39,0)", "1 to 38 digits"),
        ("decimal(5,6)", "1 to 38 digits"), ("decimal(a)", "1 to 38 digits"), ("decimal(5", "'\\)' is missing"),
        ("interval year to month", "no type"), ("varchar(10)", "give 'string'"), ("struct<a: array<CHAR(2)>>", "give 'string'"),
        ("array<" * 5_000 + "int" + ">" * 5_000, "nested too deeply"), ("'", "no type"), ("x" * 10_000, "no type"),
        ("int " + "x" * 10_000, "goes on"), (f"decimal({'9' * 10_000})", "1 to 38 digits"),
    ],
)  # fmt: skip
def test_what_is_no_type_is_refused_with_the_part_that_is_none(text: str, says: str) -> None:
    """[SE3]"""
    with pytest.raises(UsageError, match=f"^invalid type .*{says}.*such as 'bigint'") as found:
        parse_type(text)
    assert found.value.argument == "type" and len(str(found.value)) < 500

"""Partition columns, hive-style folders, static partitions. [PT1] [PT2] [PT3]"""

import datetime as dt
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.schemas import names, single_value_types, values

from manifestcommit.errors import UsageError
from manifestcommit.format.fields import ArrayType, Field, FieldType, Schema, StructType
from manifestcommit.format.partitioning import (
    MAX_COMPONENT_BYTES,
    NULL_FOLDER,
    check_partition_by,
    folder,
    folder_columns,
    is_folder,
    parse_static,
)
from manifestcommit.format.values import encode

ALLOWED = ["boolean", "byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz", "decimal(20,0)", "decimal(5,5)"]

hostile_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=300) | st.text("./\\%=\0\n :", max_size=10)
allowed_types = single_value_types.filter(lambda type: type in ALLOWED or type.startswith("decimal("))


def table(*types: FieldType, names: tuple[str, ...] = ("a", "b", "c", "d")) -> Schema:
    return Schema(fields=tuple(Field(id=at + 1, name=names[at], type=type) for at, type in enumerate(types)))


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Schema, tuple[Any, ...]]:
    columns = draw(st.lists(st.tuples(names, allowed_types), min_size=1, max_size=3, unique_by=lambda pair: pair[0].lower()))
    schema = table(*(type for _, type in columns), names=tuple(name for name, _ in columns))
    plain = [draw(st.none() | (hostile_text if type == "string" else values(type))) for _, type in columns]
    return schema, tuple(encode(value, type) for value, (_, type) in zip(plain, columns, strict=True))


# --- folders --------------------------------------------------------------------------------------------------------------
@given(partitions())
def test_a_folder_is_a_safe_relative_path(made: tuple[Schema, tuple[Any, ...]]) -> None:
    """[PT2] One component per column, none of them empty, hidden, a way up, or longer than stores and file systems take."""
    schema, wires = made
    path = folder(schema, check_partition_by(schema, [field.name for field in schema.fields]), wires)
    assert path.endswith("/") and not path.startswith("/")
    components = path[:-1].split("/")
    assert len(components) == len(schema.fields)
    for component in components:
        assert component and not component.startswith(".")
        assert len(component.encode()) <= MAX_COMPONENT_BYTES
        assert not set(component) & {*map(chr, range(32)), "\x7f", "\\", ":", "*", "?", '"', "'", "#", "[", "]", "{", "^"}


@given(partitions())
def test_a_folder_is_known_for_what_it_is(made: tuple[Schema, tuple[Any, ...]]) -> None:
    """gc leaves what it does not know for a file of the table. [PT2] [GC5]"""
    schema, wires = made
    partition_by = check_partition_by(schema, [field.name for field in schema.fields])
    columns = folder_columns(schema, partition_by)
    path = folder(schema, partition_by, wires)[:-1]
    assert is_folder(columns, path)
    assert not is_folder(columns[1:], path) and not is_folder(columns, f"{path}/x=1") and not is_folder(columns, f"a copy/{path}")
    assert not is_folder(columns, "") and not is_folder(columns, f"old {path}")


@pytest.mark.parametrize("type", ["boolean", "byte", "long", "date", "timestamp", "timestamp_ntz", "decimal(5,2)"])
@pytest.mark.parametrize("text", ["1.bak", "copy of 1", "-", "01", "-0", "1 ", "%31", "2013-01-01T00", "+1", "1e3", ""])
def test_a_folder_of_no_value_is_none_of_the_table(type: str, text: str) -> None:
    """[PT2] [GC5]"""
    assert not is_folder(folder_columns(table(type), (1,)), f"a={text}")


@given(names, st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_a_renamed_column_keeps_its_folders(name: str, renamed: str) -> None:
    """[PT2] [SC6] [GC5]"""
    schema = Schema(fields=(Field(id=1, name=f"new {renamed}", physical=name, type="string"),))
    assert is_folder(folder_columns(schema, (1,)), folder(table("string", names=(name,)), (1,), ("x/é",))[:-1])


def test_a_wider_column_knows_the_folders_of_before() -> None:
    """[SC5] [GC5]"""
    for before, after, value in (("byte", "long", -5), ("decimal(3,2)", "decimal(9,2)", Decimal("1.2"))):
        path = folder(table(before), (1,), (encode(value, before),))
        assert is_folder(folder_columns(table(after), (1,)), path[:-1])


@given(partitions())
def test_a_short_folder_tells_name_and_value(made: tuple[Schema, tuple[Any, ...]]) -> None:
    """[PT2] Unescaped, it is the column's name and the value's text."""
    schema, wires = made
    for field, wire in zip(schema.fields, wires, strict=True):
        component = folder(schema, (field.id,), (wire,))[:-1]
        name, _, text = component.partition("=")
        if len(component.encode()) < MAX_COMPONENT_BYTES:
            assert unquote(name) == field.name
            if field.type == "string":
                assert unquote(text) == (wire or NULL_FOLDER)


@given(allowed_types.flatmap(lambda type: st.tuples(st.just(type), values(type), values(type))), st.booleans())
def test_different_values_have_different_folders(pair: tuple[str, Any, Any], long: bool) -> None:
    """[PT2] But for the empty string, null, and the text of the null folder."""
    type, left, right = pair
    if long and type == "string":
        left, right = "x" * 300 + left, "x" * 300 + right
    one, other = (encode(value, type) for value in (left, right))
    alike = {None, "", NULL_FOLDER}
    same = one == other or (one in alike and other in alike)
    assert (folder(table(type), (1,), (one,)) == folder(table(type), (1,), (other,))) == same


@pytest.mark.parametrize(
    ("type", "value", "expected"),
    [
        ("string", "a b", "a=a b/"), ("string", None, f"a={NULL_FOLDER}/"), ("string", "", f"a={NULL_FOLDER}/"),
        ("string", "a/b=c:d%e", "a=a%2Fb%3Dc%3Ad%25e/"), ("string", "\"#'*?\\{[]^", "a=%22%23%27%2A%3F%5C%7B%5B%5D%5E/"),
        ("string", "}<>|é", "a=}<>|é/"), ("string", "\n\x7f\0", "a=%0A%7F%00/"), ("string", "..", "a=../"), ("boolean", True, "a=true/"),
        ("boolean", False, "a=false/"), ("long", -5, "a=-5/"), ("date", dt.date(2013, 1, 1), "a=2013-01-01/"),
        ("decimal(5,2)", Decimal("1.2"), "a=1.20/"), ("timestamp", dt.datetime(2013, 1, 1, tzinfo=dt.UTC), "a=2013-01-01 00%3A00%3A00/"),
        ("timestamp_ntz", dt.datetime(2013, 1, 1, 2, 3, 4, 100_000), "a=2013-01-01 02%3A03%3A04.1/"), ("timestamp", 2**62, f"a=@{2**62}/"),
    ],
)  # fmt: skip
def test_the_folders_that_spark_and_hive_would_write(type: str, value: Any, expected: str) -> None:
    """[PT2]"""
    assert folder(table(type), (1,), (encode(value, type),)) == expected


def test_a_column_that_begins_with_a_dot_has_no_hidden_folder() -> None:
    """[PT2]"""
    assert folder(table("long", names=("..",)), (1,), (1,)) == "%2E.=1/"


@given(st.integers(0, 240), st.sampled_from(["é", "/", "🦆", "x"]))
def test_a_long_folder_is_cut_between_characters_and_escapes(length: int, tail: str) -> None:
    """[PT2]"""
    path = folder(table("string"), (1,), ("x" * length + tail * 60,))
    assert len(path[:-1].encode()) <= MAX_COMPONENT_BYTES
    unquote(path, errors="strict")
    cut, _, digest = path[:-1].rpartition("-")
    if len(f"a={'x' * length}{tail.replace('/', '%2F') * 60}".encode()) > MAX_COMPONENT_BYTES:
        assert len(digest) == 16 and not cut.endswith(("%", "%2"))


# --- partition columns ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("type", ALLOWED)
def test_the_types_that_partition(type: str) -> None:
    """[PT1]"""
    assert check_partition_by(table("double", type), ["B"]) == (2,)


@pytest.mark.parametrize(
    "type",
    ["double", "float", "binary", "void", "variant", "interval day", ArrayType(element=Field(id=9, name="element", type="long")),
     StructType(fields=(Field(id=9, name="x", type="long"),))],
    ids=str,
)  # fmt: skip
def test_the_types_that_do_not(type: FieldType) -> None:
    """[PT1]"""
    with pytest.raises(UsageError, match="'a'"):
        check_partition_by(table(type), ["a"])


def test_a_wrong_partitioning_is_refused() -> None:
    """[PT1]"""
    schema = table("long", StructType(fields=(Field(id=9, name="x", type="long"),)))
    for wrong in (["a", "A"], ["nope"], ["b.x"], "a", [5]):
        with pytest.raises(UsageError):
            check_partition_by(schema, wrong)
    collated = Schema(fields=(Field(id=1, name="a", type="string", metadata={"__COLLATIONS": {"a": "spark.UTF8_LCASE"}}),))
    with pytest.raises(UsageError, match="collation"):
        check_partition_by(collated, ["a"])


def test_the_exact_name_wins_and_the_order_is_the_callers() -> None:
    """[PT1]"""
    assert check_partition_by(table("long", "string"), ["b", "a"]) == (2, 1)
    assert check_partition_by(table("long"), []) == ()


# --- static partitions ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("type", "given_value", "wire"),
    [
        ("date", "2013-01-01", "2013-01-01"), ("date", dt.date(2013, 1, 1), "2013-01-01"), ("date", None, None), ("integer", "7", 7),
        ("integer", " -7 ", -7), ("integer", 7, 7), ("boolean", "True", True), ("string", " 7 ", " 7 "), ("string", "", ""),
        ("string", NULL_FOLDER, NULL_FOLDER), ("decimal(5,2)", "1.2", "1.20"), ("decimal(5,2)", 3, "3.00"),
        ("timestamp", "2013-01-01T00:00:00Z", 1_356_998_400_000_000), ("timestamp", "2013-01-01 01:00:00+01:00", 1_356_998_400_000_000),
        ("timestamp_ntz", "2013-01-01", 1_356_998_400_000_000),
    ],
)  # fmt: skip
def test_what_a_static_partition_may_be(type: str, given_value: Any, wire: Any) -> None:
    """[PT3]"""
    found = parse_static(table(type), (1,), {"A": given_value})
    assert found == {1: wire} and found[1].__class__ is wire.__class__


@pytest.mark.parametrize(
    ("type", "given_value"),
    [
        ("date", "2013-13-01"), ("date", dt.datetime(2013, 1, 1)), ("date", ""), ("integer", "7.0"), ("integer", 7.0), ("integer", True),
        ("integer", "2147483648"), ("integer", "1_000"), ("integer", "٧"), ("boolean", "yes"), ("boolean", 1), ("string", 7),
        ("decimal(5,2)", "1.234"), ("decimal(5,2)", "NaN"), ("decimal(5,2)", "x"), ("timestamp", "2013-01-01"),
        ("timestamp_ntz", "2013-01-01T00:00:00Z"),
    ],
)  # fmt: skip
def test_a_static_partition_is_never_guessed(type: str, given_value: Any) -> None:
    """[PT3] A wrong guess overwrites another partition."""
    with pytest.raises(UsageError, match="'a'"):
        parse_static(table(type), (1,), {"a": given_value})


def test_only_partition_columns_can_be_named_and_only_once() -> None:
    """[PT3]"""
    schema = table("long", "long")
    for wrong in ({"b": 1}, {"a": 1, "A": 1}, {"nope": 1}):
        with pytest.raises(UsageError):
            parse_static(schema, (1,), wrong)
    assert parse_static(schema, (1, 2), {}) == {}

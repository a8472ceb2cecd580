"""Single values in JSON: exact in both directions, or refused. [SC7]"""

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.schemas import single_value_types, typed_values, values

from manifestcommit.errors import UsageError
from manifestcommit.format.values import arrow_type, decode, encode, from_array, python_rows, to_array


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return repr(left) == repr(right)  # NaN is itself, -0.0 is not 0.0
    return type(left) is type(right) and left == right


@given(typed_values)
def test_a_value_survives_json_unchanged(typed: tuple[str, Any]) -> None:
    """[SC7]"""
    type, value = typed
    assert same(decode(json.loads(json.dumps(encode(value, type), allow_nan=False)), type), value)


@given(single_value_types.flatmap(lambda type: st.tuples(st.just(type), st.lists(st.none() | values(type), max_size=5))))
def test_wire_values_survive_arrow_unchanged(column: tuple[str, list[Any]]) -> None:
    """[SC7]"""
    type, plain = column
    wires = [encode(value, type) for value in plain]
    array = to_array(wires, type)
    assert array.type == arrow_type(type) and array.null_count == plain.count(None)
    back = from_array(pa.chunked_array([array.slice(0, 1), array.slice(1)]), type)
    assert len(back) == len(wires) and all(map(same, back, wires))


@pytest.mark.parametrize(
    ("type", "value", "wire"),
    [
        ("boolean", True, True), ("byte", -128, -128), ("long", 2**63 - 1, 2**63 - 1), ("float", 0.1, 0.10000000149011612),
        ("double", 0.1, 0.1), ("double", math.nan, "NaN"), ("double", math.inf, "Infinity"), ("float", -math.inf, "-Infinity"),
        ("decimal(5,2)", Decimal("1.2"), "1.20"), ("decimal(5,2)", 7, "7.00"), ("decimal(5,2)", Decimal("-0.00"), "0.00"),
        ("decimal(38,0)", Decimal("9" * 38), "9" * 38), ("decimal(38,38)", Decimal("1E-38"), "0." + "0" * 37 + "1"), ("string", "", ""),
        ("binary", b"\x00\xff", "AP8="), ("binary", b"", ""), ("date", dt.date(1, 1, 1), "0001-01-01"),
        ("date", dt.date(9999, 12, 31), "9999-12-31"), ("date", 2_932_897, "@2932897"), ("date", -719_163, "@-719163"),
        ("timestamp", dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
        ("timestamp", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC), -1),
        ("timestamp_ntz", dt.datetime(1970, 1, 1, 0, 0, 1), 1_000_000), ("interval day to second", dt.timedelta(days=-1), -86_400_000_000),
        ("interval hour", dt.timedelta(hours=2), 7_200_000_000), ("long", np.int64(5), 5), ("boolean", np.bool_(False), False),
        ("timestamp_ntz", pd.Timestamp("1970-01-01 00:00:00.000001"), 1),
    ],
)  # fmt: skip
def test_the_spelling_of_each_type(type: str, value: Any, wire: Any) -> None:
    """[SC7]"""
    assert same(encode(value, type), wire)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("byte", 128), ("byte", True), ("long", 2**63), ("long", 1.0), ("long", "1"), ("boolean", 1), ("float", 1e300),
        ("double", 2**53 + 1), ("double", 10**400), ("decimal(5,2)", Decimal("1.234")), ("decimal(5,2)", Decimal("1000")),
        ("decimal(5,2)", 0.5), ("decimal(5,2)", Decimal("NaN")), ("decimal(5,2)", Decimal("Infinity")), ("decimal(5,2)", True),
        ("string", b"x"), ("string", "\ud800"), ("binary", "x"), ("date", dt.datetime(2020, 1, 1)), ("date", "2020-01-01"),
        ("timestamp", dt.datetime(2020, 1, 1)), ("timestamp_ntz", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("timestamp_ntz", pd.Timestamp("1970-01-01 00:00:00.000000001")), ("interval day to second", dt.timedelta(days=106_751_992)),
        ("interval day to second", pd.Timedelta(1, "ns")), ("void", 1), ("variant", b"x"),
    ],
)  # fmt: skip
def test_a_value_that_the_type_does_not_hold_exactly_is_refused(type: str, value: Any) -> None:
    """[SC7] Rounding a partition value or a bound would name other rows."""
    with pytest.raises(UsageError):
        encode(value, type)


@pytest.mark.parametrize(
    ("type", "wire"),
    [
        ("boolean", 1), ("integer", True), ("integer", 1.5), ("integer", 2**31), ("double", "1.5"), ("double", "nan"), ("double", True),
        ("decimal(5,2)", "1.234"), ("decimal(5,2)", "x"), ("decimal(5,2)", "NaN"), ("decimal(5,2)", 1), ("string", 1), ("binary", "A"),
        ("binary", "A*=="), ("date", "2020-13-01"), ("date", "20200101"), ("date", "@0"), ("date", "@99999999999"), ("date", 5),
        ("timestamp", "2020-01-01"), ("timestamp", 2**63), ("interval day", "1"), ("void", 1),
    ],
)  # fmt: skip
def test_a_damaged_wire_value_is_refused(type: str, wire: Any) -> None:
    """[SC7] A wire value of another shape is damage, never a guess."""
    with pytest.raises(UsageError):
        decode(wire, type)
    with pytest.raises(UsageError):
        to_array([wire], type)


def test_an_array_of_another_encoding_gives_the_same_values() -> None:
    assert from_array(pa.array(["a", None]).dictionary_encode(), "string") == ["a", None]
    assert from_array(pa.array([0], pa.timestamp("us", tz="America/New_York")), "timestamp") == [0]
    assert from_array(pa.nulls(2), "void") == [None, None]


def test_nested_columns_have_no_single_values() -> None:
    with pytest.raises(UsageError):
        from_array(pa.array([{"value": b"", "metadata": b""}]), "variant")


def test_rows_with_days_that_python_cannot_hold_are_numbers() -> None:
    """As `decode` has them; nested ones are text. [SC7]"""
    days = pa.array([2**31 - 1, None, 0], pa.int32()).view(pa.date32())
    moments = pa.array([2**63 - 1, None, 0], pa.int64()).view(pa.timestamp("us", "UTC"))
    epoch = dt.date(1970, 1, 1)
    assert python_rows(pa.table({"d": days, "m": moments, "n": [1, 2, 3]})) == [
        {"d": 2**31 - 1, "m": 2**63 - 1, "n": 1},
        {"d": None, "m": None, "n": 2},
        {"d": epoch, "m": dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "n": 3},
    ]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), days)
    first, second = python_rows(pa.table({"l": lists}))
    assert isinstance(first["l"], str) and second["l"] == [None, epoch]

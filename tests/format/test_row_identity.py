"""When two rows are equal: by the bytes that stand for each. [CH3]"""

import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.sizes import rounds

from manifestcommit.rows.read_changes import _keys, row_bytes

INNER = pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))])
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), [None]), (pa.bool_(), [None, True, False]), (pa.int8(), [None, 0, 1, -1]), (pa.int64(), [None, 0, 1, -1, 2**63 - 1]),
    (pa.float32(), [None, 0.0, -0.0, math.nan, math.inf, -math.inf]), (pa.float64(), [None, 0.0, -0.0, math.nan, 1.5, 5e-324]),
    (pa.decimal128(38, 2), [None, Decimal("0.00"), Decimal("-1.00"), Decimal(10**35)]),
    (pa.string(), [None, "", "a", "a\0", "\0", "é", "e\u0301", "null"]), (pa.binary(), [None, b"", b"\0", b"\1", b"\0\0"]),
    (pa.date32(), [None, 0, 1]), (pa.timestamp("us", "UTC"), [None, 0, -1]), (pa.duration("us"), [None, 0, 7]),
    (pa.list_(pa.int32()), [None, [], [None], [0], [0, 0], [0, None]]),
    (pa.list_(pa.list_(pa.string())), [None, [], [[]], [None], [["a"], []], [[], ["a"]], [["a", ""]], [["", "a"]]]),
    (INNER, [None, {"a": None, "b": None}, {"a": None, "b": []}, {"a": 1, "b": [None]}, {"a": 1, "b": [""]}]),
    (pa.map_(pa.string(), pa.int64()), [None, [], [("a", None)], [("a", 1)], [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=[str(kind) for kind, _ in KINDS])
def test_values_that_differ_have_other_bytes_and_equal_ones_the_same(kind: pa.DataType, values: list[Any]) -> None:
    """[CH3]"""
    found = row_bytes(pa.record_batch({"v": pa.array([*values, *values], kind)})).to_pylist()
    assert found[: len(values)] == found[len(values) :]
    assert len(set(found)) == len(values)
    sliced = pa.record_batch({"v": pa.array([*values, *values], kind).slice(len(values))})
    assert row_bytes(sliced).to_pylist() == found[: len(values)], "the bytes do not depend on where a row lies"
    assert row_bytes(sliced.slice(0, 0)).to_pylist() == []


def test_every_nan_is_the_same_value() -> None:
    """Readers do not tell them apart, and an engine that rewrites one may make another of it. [CH3]"""
    payloads = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1)]
    assert len(set(row_bytes(pa.record_batch({"v": pa.array(payloads, pa.float64())})).to_pylist())) == 1


def test_a_null_struct_has_the_same_bytes_whatever_its_members_hold() -> None:
    members = [pa.array([1, 2]), pa.array(["x", "y"])]
    hidden = pa.StructArray.from_arrays(members, names=["a", "b"], mask=pa.array([True, True]))
    assert len(set(row_bytes(pa.record_batch({"v": hidden})).to_pylist())) == 1


def canonical(value: Any) -> Any:
    """What two values have in common exactly if they are equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, list | tuple):
        return tuple(map(canonical, value))
    return tuple((name, canonical(each)) for name, each in value.items()) if isinstance(value, dict) else value


TEXTS = st.none() | st.text("a\0\1", max_size=2)
ROWS = st.tuples(TEXTS, TEXTS, st.none() | st.lists(st.none() | st.floats(width=32) | st.just(-0.0), max_size=2))


@pytest.mark.thorough
@given(st.lists(ROWS, max_size=8))
@settings(max_examples=rounds(60, 1000), deadline=None)
def test_rows_are_equal_exactly_if_their_bytes_are(rows: list[tuple[Any, ...]]) -> None:
    """No value's end is another one's beginning. [CH3]"""
    kinds = [pa.string(), pa.binary(), pa.list_(pa.float32())]
    columns = [
        pa.array([each[0] for each in rows], kinds[0]),
        pa.array([each[1] and each[1].encode() if each[1] is not None else None for each in rows], kinds[1]),
        pa.array([each[2] for each in rows], kinds[2]),
    ]
    batch = pa.record_batch(columns, names=["a", "b", "c"])
    found = row_bytes(batch).to_pylist()
    for row, one in enumerate(rows):
        for other, two in enumerate(rows):
            assert (found[row] == found[other]) == (canonical(one) == canonical(two)), (one, two)


def test_only_the_named_columns_count() -> None:
    batch = pa.record_batch({"a": [1, 1, None], "b": [1, 2, 3]})
    one, two, _ = row_bytes(batch, ["a"]).to_pylist()
    assert one == two
    assert [key is None for key in _keys(batch, ["a", "b"])] == [False, False, True]
    assert _keys(batch, []) == [None] * 3
    assert row_bytes(batch, []).to_pylist() == [b""] * 3


def test_a_text_that_holds_the_next_ones_beginning_is_another_row() -> None:
    """[CH3]"""
    texts = pa.record_batch({"a": ["a", "a\1"], "b": ["\1", ""]})
    lists = pa.record_batch({"v": pa.array([["a", "\1"], ["a\1", ""]])})
    for batch in (texts, lists):
        one, two = row_bytes(batch).to_pylist()
        assert one != two

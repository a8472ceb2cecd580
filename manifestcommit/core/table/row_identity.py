"""A row as bytes, which are equal exactly if two rows are equal. [CH3]

Pure. All rows have the same columns, in the same order and with the same types.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_BYTES = pa.large_binary()
_EMPTY = pa.scalar(b"", _BYTES)
_NULL, _VALUE = pa.scalar(b"\0", _BYTES), pa.scalar(b"\1", _BYTES)


def row_bytes(rows: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.LargeBinaryArray:
    """The bytes of each row in these columns, by default in all: as many as there are rows, none of
    them null. [CH3]

    A null is a value of its own and equal to another null, all NaN are equal, 0.0 and -0.0 differ.
    Arrays and maps are equal if they have the same members in the same order.
    """
    columns = rows.columns if names is None else [rows.column(name) for name in names]
    return _joined([_bytes_of(column) for column in columns], rows.num_rows)


def has_null(rows: pa.RecordBatch, names: Sequence[str]) -> pa.BooleanArray:
    """Whether a row has a null in one of these columns."""
    found = pa.repeat(False, rows.num_rows)
    for name in names:
        found = pc.or_(found, pc.is_null(rows.column(name)))
    return found


def _joined(parts: Sequence[pa.Array], count: int) -> pa.Array:
    """The parts of each row one after another; none is the beginning of another that differs."""
    if not parts:
        return pa.repeat(_EMPTY, count)
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _EMPTY)


def _bytes_of(array: pa.Array) -> pa.Array:
    """Each value with a byte before it that tells whether there is one; values of one type have one
    width, or tell their length first."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind, count = array.type, len(array)
    if pa.types.is_null(kind):
        return pa.repeat(_NULL, count)
    if pa.types.is_struct(kind):
        members = [_bytes_of(array.field(index)) for index in range(kind.num_fields)]
        known = _joined(members, count)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        known = _of_members(array)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        known = _joined([_of_numbers(pc.binary_length(array)), array.cast(_BYTES)], count)
    elif pa.types.is_boolean(kind):
        known = _of_width(array.cast(pa.uint8()))
    elif pa.types.is_floating(kind):
        nan = pa.scalar(float("nan"), kind)
        known = _of_width(pc.if_else(pc.is_nan(array), nan, array))
    else:
        known = _of_width(array)
    valued = pc.binary_join_element_wise(_VALUE, pc.fill_null(known, _EMPTY), _EMPTY)
    return pc.if_else(array.is_valid(), valued, _NULL)


def _of_members(array: pa.Array) -> pa.Array:
    """How many members an array or a map has, and their bytes."""
    offsets = array.offsets.cast(pa.int64())
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if pa.types.is_map(array.type):
        keys, items = (part.slice(first, last - first) for part in (array.keys, array.items))
        members = _joined([_bytes_of(keys), _bytes_of(items)], last - first)
    else:
        members = _bytes_of(array.values.slice(first, last - first))
    lists = pa.LargeListArray.from_arrays(pc.subtract(offsets, first), members)
    counts = pc.subtract(offsets.slice(1), offsets.slice(0, len(array)))
    return _joined([_of_numbers(counts), pc.binary_join(lists, _EMPTY)], len(array))


def _of_numbers(numbers: pa.Array) -> pa.Array:
    return _of_width(numbers.cast(pa.int64()))


def _of_width(array: pa.Array) -> pa.Array:
    """The bytes of values of one width, as they lie in memory; null where there is none."""
    return array.view(pa.binary(array.type.bit_width // 8)).cast(pa.binary()).cast(_BYTES)

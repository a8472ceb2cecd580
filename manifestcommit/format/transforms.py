"""Partition transforms: what `day(ts)`, `bucket(16, user)` or `truncate(3, name)` are, and their
values, which are Iceberg's. [PT4] [PT5]

Pure. A transform is known by one number, its id, which is listed in `partition_by` beside the ids
of columns: `source + 2^31 * code + 2^34 * width`. Everything else follows from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from .fields import (
    DAY_US,
    INTEGERS,
    MAX_FIELD_ID,
    MOMENTS,
    WIDE,
    Field,
    FieldType,
    Schema,
    decimal_parts,
    has_collation,
    shown,
    type_text,
)

FUNCTIONS = ("year", "month", "day", "hour", "bucket", "truncate")
CALENDAR = ("year", "month", "hour")  # their values are numbers that folders write as dates
_SUFFIXES = {"truncate": "trunc"}
_WITH_WIDTH = ("bucket", "truncate")
_CODE_BITS, _ID_BITS = 3, 31
MAX_WIDTH = 2**28 - 1
_TIMES = ("date", *MOMENTS)
_CUT = (*INTEGERS, "string", "binary")  # and decimals
_SOURCES: dict[str, tuple[str, ...]] = {
    "year": _TIMES,
    "month": _TIMES,
    "day": _TIMES,
    "hour": MOMENTS,
    "bucket": (*_CUT, *_TIMES),
    "truncate": _CUT,
}
_CALL = re.compile(r"\s*([A-Za-z]+)\s*\((.*)\)\s*", re.DOTALL)
_NAME = re.compile(r"\w+")


class Transform(NamedTuple):
    """A function of one column. source: the column's field id; function: one of FUNCTIONS; width:
    the number of buckets, or the length or step of a truncation; 0: none. [PT4]"""

    source: int
    function: str
    width: int = 0

    @property
    def id(self) -> int:
        """Its number in `partition_by`, above every field id."""
        code = FUNCTIONS.index(self.function) + 1
        return self.source | code << _ID_BITS | self.width << (_ID_BITS + _CODE_BITS)

    @property
    def iceberg(self) -> str:
        """What Iceberg calls it: `day`, `bucket[16]`."""
        return f"{self.function}[{self.width}]" if self.width else self.function

    def call(self, name: str) -> str:
        """As callers write it for a column of this name: `bucket(16, user)`."""
        quoted = name if _NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
        return f"{self.function}({f'{self.width}, ' if self.width else ''}{quoted})"


def transform_of(id: int) -> Transform | None:
    """The transform with this id; None: a column's id. ValueError if it is neither. [PT4]"""
    if id <= MAX_FIELD_ID:
        return None
    code = id >> _ID_BITS & (1 << _CODE_BITS) - 1
    width = id >> (_ID_BITS + _CODE_BITS)
    if not 1 <= code <= len(FUNCTIONS) or width > MAX_WIDTH:
        raise ValueError(f"{id} is the id of no column and of no transform")
    function = FUNCTIONS[code - 1]
    if (function in _WITH_WIDTH) != (width > 0):
        raise ValueError(f"{id} is the id of a {function} with the width {width}")
    return Transform(id & MAX_FIELD_ID, function, width)


def source_ids(partition_by: Iterable[int]) -> frozenset[int]:
    """The ids of the columns that partition, by themselves or through a transform."""
    return frozenset(id & MAX_FIELD_ID for id in partition_by)


def partition_fields(schema: Schema, partition_by: Sequence[int]) -> tuple[Field, ...]:
    """The partition columns, in order: columns of the schema, and for a transform a field with its
    id, the name of its folders and the type of its values. ValueError if one is none. [PT1] [PT4]
    """
    wanted = source_ids(partition_by)
    by_id = {field.id: field for field in schema.fields if field.id in wanted}
    return tuple(_partition_field(by_id, id) for id in partition_by)


def _partition_field(by_id: dict[int, Field], id: int) -> Field:
    transform = transform_of(id)
    source = by_id.get(id if transform is None else transform.source)
    if source is None:
        raise ValueError(f"it is partitioned by field {id & MAX_FIELD_ID}, no column's id")
    if transform is None:
        return source
    kind = result_type(transform.function, source.type)
    if kind is None:
        raise ValueError(f"it is partitioned by {transform.call(source.name)}, of another type")
    suffix = _SUFFIXES.get(transform.function, transform.function)
    return Field(id=id, name=f"{source.file_name}_{suffix}", type=kind)


def spelled(schema: Schema, partition_by: Sequence[int]) -> list[str]:
    """The partition columns as callers of `partition_by` write them: `day(ts)`, `country`."""
    by_id = {field.id: field.name for field in schema.fields}
    texts = []
    for id in partition_by:
        transform, name = transform_of(id), by_id.get(id & MAX_FIELD_ID)
        name = "a column that the table lacks" if name is None else name
        texts.append(name if transform is None else transform.call(name))
    return texts


def result_type(function: str, type: FieldType) -> FieldType | None:
    """The type of the function's values for this type; None if it takes no such column. [PT4]"""
    is_decimal = isinstance(type, str) and decimal_parts(type) is not None
    if type not in _SOURCES[function] and not (is_decimal and function in _WITH_WIDTH):
        return None
    if function == "truncate":
        return "integer" if type in ("byte", "short") else type
    return "date" if function == "day" else "integer"


def parse_call(text: str) -> tuple[str, int, str] | None:
    """(function, width, name of the column) of a text like `bucket(16, user)`; None if it is no
    call. UsageError for an unknown function, or a width that is none. [PT4]

    Spark's names (`days`, `months`) are known, too. A name in backquotes may hold any character.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    function, inner, width = match[1].lower().removesuffix("s"), match[2].strip(), 0
    if function not in FUNCTIONS:
        raise UsageError(
            f"partition_by: {shown(text)} calls no transform. There are year(c), month(c), "
            "day(c), hour(c), bucket(16, c) and truncate(3, c)."
        )
    if function in _WITH_WIDTH:
        number, _, inner = (part.strip() for part in inner.partition(","))
        is_number = number.isascii() and number.isdigit() and len(number) < 12
        if not is_number or not inner or not 1 <= (width := int(number)) <= MAX_WIDTH:
            raise UsageError(
                f"partition_by: {shown(text)}: write {function}(16, c), with a whole number from 1 "
                f"to {MAX_WIDTH} before the column."
            )
    if len(inner) > 2 and inner.startswith("`") and inner.endswith("`"):
        inner = inner[1:-1].replace("``", "`")
    return function, width, inner


def split_calls(text: str) -> list[str]:
    """The parts of a text that commas separate, those inside brackets or backquotes excepted:
    `day(ts), bucket(16, user)` has two. [PT4]"""
    parts, depth, quoted = [""], 0, False
    for char in text:
        quoted ^= char == "`"
        depth += 0 if quoted else (char == "(") - (char == ")")
        if char == "," and depth <= 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def of_column(field: Field, function: str, width: int) -> Transform:
    """The transform of this column; UsageError if it takes no such column. [PT4]"""
    if result_type(function, field.type) is None:
        takes = {"hour": "timestamps", "truncate": "integers, decimals, strings and binary"}
        takes["bucket"] = "integers, decimals, dates, timestamps, strings and binary"
        raise UsageError(
            f"partition_by: {function} takes {takes.get(function, 'dates and timestamps')}, and "
            f"the column {field.name!r} has the type {type_text(field.type)}."
        )
    if has_collation(field):
        raise UsageError(
            f"partition_by: the column {field.name!r} has a collation, so that different "
            "values may be equal; partitions are distinguished by their bytes."
        )
    return Transform(field.id, function, width)


# --- Values ---

_HOUR = 3_600_000_000
_CYCLE = 146_097  # days of 400 years, after which the calendar repeats


def apply(transform: Transform, field: Field, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The transform of each value of its source column, null for null. UsageError if a value has
    none that Iceberg can hold. [PT5]

    field: the column; its values in the column's own type.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # without chunks, or too large for one
        array = pa.concat_arrays(array.chunks) if array.chunks else pa.array([], array.type)
    try:
        return _VALUES[transform.function](array, field.type, transform.width)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise UsageError(
            f"A value of the column {field.name!r} is too far from zero for "
            f"{transform.call(field.name)}, whose values are whole numbers of 32 bits or of the "
            "column's own type. Nothing was written; leave such rows out, or partition otherwise."
        ) from error


def source_of(schema: Schema, id: int) -> Field:
    """The column that this partition column or transform is made of."""
    return next(field for field in schema.fields if field.id == id & MAX_FIELD_ID)


def maker(schema: Schema, id: int) -> Callable[[Any], Any]:
    """The function that makes the values of a partition column or transform of its column's."""
    transform = transform_of(id)
    if transform is None:
        return lambda column: column
    return partial(apply, transform, source_of(schema, id))


def _floor(array: pa.Array, width: int) -> pa.Array:
    """Each number divided by the width, rounded down."""
    by = pa.scalar(width, pa.int64())
    quotient = pc.divide(array, by)
    below = pc.less(pc.subtract(array, pc.multiply(quotient, by)), 0)
    return pc.subtract(quotient, below.cast(pa.int64()))


def _days(array: pa.Array, type: FieldType) -> pa.Array:
    if type == "date":
        return array.cast(pa.int32()).cast(pa.int64())
    return _floor(array.cast(pa.int64()), DAY_US)


def _month(array: pa.Array, type: FieldType, _: int) -> pa.Array:
    years, months = _calendar(array, type)
    return pc.add(pc.multiply(years, 12), months).cast(pa.int32())


def _calendar(array: pa.Array, type: FieldType) -> tuple[pa.Array, pa.Array]:
    """Years since 1970, and months from 0 on, of days however far."""
    days = _days(array, type)
    cycles = _floor(days, _CYCLE)
    inside = pc.subtract(days, pc.multiply(cycles, _CYCLE)).cast(pa.int32()).cast(pa.date32())
    years = pc.add(pc.subtract(pc.year(inside), 1970), pc.multiply(cycles, 400))
    return years, pc.subtract(pc.month(inside), 1)


def _truncate(array: pa.Array, type: FieldType, width: int) -> pa.Array:
    if type == "string":
        return pc.utf8_slice_codeunits(array, 0, width)
    if type == "binary":
        return pc.binary_slice(array, 0, width)
    if type not in INTEGERS:

        def cut(value: Any) -> Any:
            number = _unscaled(value, array.type)
            return WIDE.scaleb(WIDE.create_decimal(number - number % width), -array.type.scale)

        return _of_distinct(array, cut, array.type)
    numbers = array.cast(pa.int64())
    whole = pc.multiply_checked(_floor(numbers, width), pa.scalar(width, pa.int64()))
    return whole if type == "long" else whole.cast(pa.int32())


def _unscaled(value: Any, type: pa.DataType) -> int:
    return int(WIDE.scaleb(value, type.scale))


def _of_distinct(array: pa.Array, value: Callable[[Any], Any], type: pa.DataType) -> pa.Array:
    """A function in Python of each distinct value."""
    encoded = array.dictionary_encode()
    values = pa.array([value(each) for each in encoded.dictionary.to_pylist()], type)
    return values.take(encoded.indices)


def _bucket(array: pa.Array, type: FieldType, width: int) -> pa.Array:
    if type in ("string", "binary"):
        hashes = _hash_bytes(array)
    elif type in (*INTEGERS, *_TIMES):
        days = array.cast(pa.int32()) if type == "date" else array
        hashes = _hash_longs(days.cast(pa.int64()))
    else:
        hashes = _of_distinct(
            array, lambda value: murmur3(_shortest(_unscaled(value, array.type))), pa.uint32()
        )
    positive = pc.bit_wise_and(hashes, _u32(0x7FFFFFFF)).cast(pa.int64())
    whole = pc.multiply(pc.divide(positive, width), width)
    return pc.subtract(positive, whole).cast(pa.int32())


def _shortest(number: int) -> bytes:
    """Two's complement in as few bytes as hold it, the highest first."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


# Murmur3, x86, 32 bits, seed 0: of one value in Python, of many by Arrow's kernels.

_C1, _C2, _ROUND, _MIX1, _MIX2 = 0xCC9E2D51, 0x1B873593, 0xE6546B64, 0x85EBCA6B, 0xC2B2AE35
_MASK = 2**32 - 1
_LONG_TEXT = 256  # bytes: longer values are hashed one by one


def murmur3(data: bytes) -> int:
    """The hash of these bytes, as an unsigned number."""
    state, whole = 0, len(data) & ~3
    for at in range(0, whole, 4):
        state ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        state = ((state << 13 | state >> 19) * 5 + _ROUND) & _MASK
    state ^= _mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    state = (state ^ state >> 16) * _MIX1 & _MASK
    state = (state ^ state >> 13) * _MIX2 & _MASK
    return state ^ state >> 16


def _mixed(block: int) -> int:
    block = block * _C1 & _MASK
    return (block << 15 | block >> 17) * _C2 & _MASK


def _u32(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint32())


def _rotated(array: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(array, _u32(by)), pc.shift_right(array, _u32(32 - by)))


def _with_block(state: pa.Array, block: pa.Array) -> pa.Array:
    return pc.bit_wise_xor(
        state, pc.multiply(_rotated(pc.multiply(block, _u32(_C1)), 15), _u32(_C2))
    )


def _round(state: pa.Array, block: pa.Array) -> pa.Array:
    turned = _rotated(_with_block(state, block), 13)
    return pc.add(pc.multiply(turned, _u32(5)), _u32(_ROUND))


def _finished(state: pa.Array, lengths: pa.Array | pa.Scalar) -> pa.Array:
    state = pc.bit_wise_xor(state, lengths)
    for shift, factor in ((16, _MIX1), (13, _MIX2)):
        turned = pc.bit_wise_xor(state, pc.shift_right(state, _u32(shift)))
        state = pc.multiply(turned, _u32(factor))
    return pc.bit_wise_xor(state, pc.shift_right(state, _u32(16)))


def _hash_longs(array: pa.Array) -> pa.Array:
    bits = array.view(pa.uint64())
    low = pc.bit_wise_and(bits, pa.scalar(_MASK, pa.uint64())).cast(pa.uint32())
    high = pc.shift_right(bits, pa.scalar(32, pa.uint64())).cast(pa.uint32())
    state = _round(_round(pc.multiply(low, _u32(0)), low), high)
    return _finished(state, _u32(8))


def _hash_bytes(array: pa.Array) -> pa.Array:
    """The hash of each text or binary value; values of like lengths together, block by block."""
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    encoded = array.cast(pa.large_binary() if is_large else pa.binary())
    distinct = encoded.dictionary_encode()
    data = distinct.dictionary
    sizes = pc.binary_length(data).cast(pa.uint32())
    rows = pc.sort_indices(sizes)
    data, sizes = data.take(rows), sizes.take(rows)
    state = pc.multiply(sizes, _u32(0))
    finished: list[pa.Array] = []
    at = 0
    while len(data) and at <= _LONG_TEXT:
        done = pc.sum(pc.less(sizes, _u32(at + 4))).as_py()  # the first of them, as they are sorted
        if done:
            zeros, nothing = (pa.scalar(value, data.type) for value in (b"\0\0\0\0", b""))
            padded = pc.binary_join_element_wise(data.slice(0, done), zeros, nothing)
            tails = _with_block(state.slice(0, done), _block(padded, at))
            finished.append(_finished(tails, sizes.slice(0, done)))
            data, sizes, state = data.slice(done), sizes.slice(done), state.slice(done)
        state = _round(state, _block(data, at))
        at += 4
    finished.append(pa.array([murmur3(value) for value in data.to_pylist()], pa.uint32()))
    # where each value went in the order of lengths
    return pa.concat_arrays(finished).take(pc.sort_indices(rows)).take(distinct.indices)


def _block(data: pa.Array, at: int) -> pa.Array:
    """The four bytes of each value at this place, as numbers."""
    if not len(data):  # of no values Arrow says that their widths differ
        return pa.array([], pa.uint32())
    return pc.binary_slice(data, at, at + 4).cast(pa.binary(4)).view(pa.uint32())


_VALUES: dict[str, Callable[[pa.Array, FieldType, int], pa.Array]] = {
    "year": lambda array, type, _: _calendar(array, type)[0].cast(pa.int32()),
    "month": _month,
    "day": lambda array, type, _: _days(array, type).cast(pa.int32()).cast(pa.date32()),
    "hour": lambda array, *_: _floor(array.cast(pa.int64()), _HOUR).cast(pa.int32()),
    "bucket": _bucket,
    "truncate": _truncate,
}


# --- Texts of years, months and hours, for folders and messages ---

_YEAR = r"(?:-\d{3,}|\d{4,})"
TEXTS = {
    "year": re.compile(_YEAR, re.ASCII),
    "month": re.compile(rf"{_YEAR}-(?:0[1-9]|1[0-2])", re.ASCII),
    "hour": re.compile(rf"{_YEAR}-(?:0[1-9]|1[0-2])-\d\d-(?:[01]\d|2[0-3])", re.ASCII),
}


def text_type(field: Field) -> FieldType:
    """What decides how a partition value is written in folders: the type of a partition column, or
    the function of a transform whose numbers are written as dates. [PT5]"""
    transform = transform_of(field.id)
    is_calendar = transform is not None and transform.function in CALENDAR
    return transform.function if transform is not None and is_calendar else field.type


def calendar_text(value: int, function: str) -> str:
    """The text of a year, month or hour since 1970: `2026`, `2026-11`, `2026-11-29-13`. [PT5]"""
    if function == "year":
        return f"{1970 + value:04d}"
    if function == "month":
        return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
    days, hour = divmod(value, 24)
    cycles, inside = divmod(days, _CYCLE)
    day = pa.scalar(inside, pa.int32()).cast(pa.date32()).as_py()
    return f"{day.year + 400 * cycles:04d}-{day.month:02d}-{day.day:02d}-{hour:02d}"


def calendar_value(text: str, function: str) -> int | None:
    """The number of which this is the text; None if it is none of the function. [PT5]"""
    if not TEXTS[function].fullmatch(text):
        return None
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    year, *rest = (int(part) for part in digits.split("-"))
    year *= sign
    if function == "year":
        value = year - 1970
    elif function == "month":
        value = (year - 1970) * 12 + rest[0] - 1
    else:
        value = _hours(year, rest)
    in_range = -(2**31) <= value < 2**31
    return value if in_range and calendar_text(value, function) == text else None


def _hours(year: int, rest: Sequence[int]) -> int:
    """Hours since 1970 of a month, a day and an hour; of a day that is none some other hour."""
    cycles, inside = divmod(year - 1970, 400)
    month, day, hour = rest
    first = pa.scalar(f"{1970 + inside:04d}-{month:02d}-01").cast(pa.date32())
    days = int(first.cast(pa.int32()).as_py()) + day - 1 + cycles * _CYCLE
    return days * 24 + hour

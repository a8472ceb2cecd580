"""Converts single values of a column to and from their JSON form: partition values and bounds.
[SC7]

Pure. A wire value is a bool, an int, a float, a str or None (null or unknown); the column's type
determines which.
"""

from __future__ import annotations

import base64
import math
import struct
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from manifestcommit.errors import UsageError
from manifestcommit.format.arrow_schema import arrow_type
from manifestcommit.format.fields import (
    INTERVALS,
    FieldType,
    WireValue,
    decimal_parts,
    is_unicode,
    shown,
    type_text,
)

from .fields import INTEGERS, MOMENTS, WIDE

_EPOCH = datetime(1970, 1, 1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DATE_RANGE = range(
    date.min.toordinal() - _EPOCH_ORDINAL, date.max.toordinal() - _EPOCH_ORDINAL + 1
)
_MICROSECOND = timedelta(microseconds=1)
_BITS = dict(zip(INTEGERS, (8, 16, 32, 64), strict=True))
# How JSON spells the types that Arrow converts from it directly.
_KINDS: dict[str, type[bool] | type[int] | type[str]] = {
    "boolean": bool,
    "string": str,
    **dict.fromkeys((*INTEGERS, *MOMENTS, "interval"), int),
}


def encode(value: Any, type: FieldType) -> WireValue:
    """The wire value of a Python value; UsageError if the type cannot hold exactly that value.
    [SC7]

    None becomes None. A date or timestamp that Python cannot hold (years outside 1..9999) may be
    given as an int: days or microseconds since 1970. A float column rounds to its own precision, as
    writing the value would.
    """
    if value is None:
        return None
    value = _unboxed(value)
    if type == "boolean" and isinstance(value, bool):
        return value
    if isinstance(type, str) and not isinstance(value, bool):
        wire = _encode(value, type)
        if wire is not None:
            return wire
    raise _refusal(value, type)


def decode(wire: WireValue, type: FieldType) -> Any:
    """The Python value of a wire value; UsageError (a ValueError) if the type has no such wire
    value. [SC7]

    timestamp: aware, in UTC; timestamp_ntz: naive; interval: timedelta. Dates and timestamps
    outside the years 1..9999, which Python cannot hold, are ints: days or microseconds since 1970.
    """
    if wire is None:
        return None
    try:
        return _decode(wire, type)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(
            f"{shown(wire)} is no stored value of the type {type_text(type)}."
        ) from error


def to_array(wires: Sequence[WireValue], type: FieldType) -> pa.Array:
    """The wire values as an Arrow array of the column's type in data files. [SC7]"""
    target = arrow_type(type)
    name = type if isinstance(type, str) else ""
    kind = _KINDS.get("interval" if name in INTERVALS else name)
    try:
        if kind is not None:
            if not {wire.__class__ for wire in wires} <= {kind, None.__class__}:
                raise ValueError(f"not all are {kind.__name__}")
            return (
                pa.array(wires, pa.int64()).cast(target) if kind is int else pa.array(wires, target)
            )
        if name == "date":
            return pa.array(
                [None if wire is None else _days(wire) for wire in wires], pa.int32()
            ).cast(target)
        return pa.array([decode(wire, type) for wire in wires], target)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"A stored value is not of the type {type_text(type)}: {error}") from error


def from_array(array: pa.Array | pa.ChunkedArray, type: FieldType) -> list[WireValue]:
    """The wire values of an Arrow array of this column type. [SC7]"""
    if not isinstance(type, str) or type == "variant":
        raise _refusal("a nested value", type)
    if array.type != arrow_type(type):
        array = array.cast(arrow_type(type))
    if type in MOMENTS or type in INTERVALS:
        return list(array.cast(pa.int64()).to_pylist())
    if type == "date":
        return [
            None if days is None else _date_text(days)
            for days in array.cast(pa.int32()).to_pylist()
        ]
    plain = array.to_pylist()
    if type in _BITS or type in ("boolean", "string", "void"):
        return list(plain)
    return [encode(value, type) for value in plain]


def python_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as values of Python. A day or moment outside the years 1..9999, which Python cannot
    hold, is an int, as in `decode`; inside of nested values it is text."""
    try:
        return list(table.to_pylist())
    except (OverflowError, ValueError):
        columns = [_each(column) for column in table.columns]
        names = table.schema.names
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _each(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    values: list[Any] = []
    for at in range(len(column)):
        try:
            values.append(column[at].as_py())
        except (OverflowError, ValueError):
            number = getattr(column[at], "value", None)
            values.append(number if isinstance(number, int) else str(column.slice(at, 1)))
    return values


def integer_range(type: FieldType) -> tuple[int, int] | None:
    """The smallest and largest value of an integer type; None for any other type."""
    bits = _BITS.get(type) if isinstance(type, str) else None
    return None if bits is None else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _unboxed(value: Any) -> Any:
    """A numpy scalar as a Python value; not datetime64, whose item() may be a number."""
    if (
        type(value).__module__ == "numpy"
        and type(value).__name__ not in ("datetime64", "timedelta64")
        and hasattr(value, "item")
    ):
        return value.item()
    return value


def _encode(value: Any, type: str) -> WireValue:
    if type in _BITS:
        return value if isinstance(value, int) and _fits(value, _BITS[type]) else None
    if type == "string":
        return value if isinstance(value, str) and is_unicode(value) else None
    if (parts := decimal_parts(type)) is not None:
        return _decimal_text(value, *parts)
    encoder = _ENCODERS.get("interval" if type in INTERVALS else type)
    return None if encoder is None else encoder(value)


def _decode(wire: bool | int | float | str, type: FieldType) -> Any:
    if type == "float" or type == "double":
        return _float(wire)
    if type == "binary":
        return base64.b64decode(_of(str, wire), validate=True)
    if type == "date":
        days = _days(wire)
        return date.fromordinal(days + _EPOCH_ORDINAL) if days in _DATE_RANGE else days
    if type in MOMENTS:
        moment = _moment(_of(int, wire), 64)
        return (
            moment.replace(tzinfo=UTC)
            if type == "timestamp" and isinstance(moment, datetime)
            else moment
        )
    if type in INTERVALS:
        return timedelta(microseconds=_of(int, wire))
    if isinstance(type, str) and (parts := decimal_parts(type)) is not None:
        text = _decimal_text(Decimal(_of(str, wire)), *parts)
        if text is None:
            raise ValueError(wire)
        return Decimal(text)
    if _encode_plain(wire, type) is None:
        raise ValueError(wire)
    return wire


def _encode_plain(wire: bool | int | float | str, type: FieldType) -> WireValue:
    """The wire value itself of a boolean, string or integer that fits; else None."""
    if type == "boolean":
        return wire if isinstance(wire, bool) else None
    if isinstance(type, str) and (type in _BITS or type == "string") and not isinstance(wire, bool):
        return _encode(wire, type)
    return None


def order_key(wire: WireValue, type: FieldType) -> Any:
    """A key that sorts one type's wire values as the column's are; null has none. [SC7]"""
    if type == "date":
        return _days(wire)
    return Decimal(str(wire)) if decimal_parts(str(type)) is not None else wire


def after_prefix(prefix: str) -> str | None:
    """The smallest text above every text with this prefix; None if there is none."""
    for at in reversed(range(len(prefix))):
        code = ord(prefix[at])
        if code < sys.maxunicode:
            # skip the surrogates, which are not text
            return prefix[:at] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None


def _of(kind: type[Any], wire: Any) -> Any:
    if not isinstance(wire, kind) or isinstance(wire, bool):
        raise ValueError(wire)
    return wire


def _fits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _float_wire(value: Any) -> WireValue:
    if not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if isinstance(value, int) and int(number) != value:
        return None
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _float32_wire(value: Any) -> WireValue:
    wire = _float_wire(value)
    if not isinstance(wire, float):
        return wire
    try:
        return float(struct.unpack("<f", struct.pack("<f", wire))[0])
    except OverflowError:
        return None


def _float(wire: Any) -> float:
    if isinstance(wire, str):
        if wire not in ("NaN", "Infinity", "-Infinity"):
            raise ValueError(wire)
        return float(wire)
    if isinstance(wire, bool) or not isinstance(wire, (int, float)):
        raise ValueError(wire)
    return float(wire)


def _decimal_text(value: Any, precision: int, scale: int) -> str | None:
    """The number in plain notation with `scale` digits; None if that needs rounding."""
    if not isinstance(value, (int, Decimal)):
        return None
    try:
        number = Decimal(value).quantize(Decimal(1).scaleb(-scale), context=WIDE)
    except InvalidOperation:  # NaN, infinity, or far more digits than any column holds
        return None
    size = number.copy_abs()  # abs() would round to the default context
    if number != value or size >= Decimal(10) ** (precision - scale):
        return None
    return format(size if number == 0 else number, "f")


def _binary_wire(value: Any) -> str | None:
    return (
        base64.b64encode(bytes(value)).decode("ascii")
        if isinstance(value, (bytes, bytearray, memoryview))
        else None
    )


def _date_wire(value: Any) -> str | None:
    # for Python a datetime is a date, but as a day it would lose its time
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return _date_text(value) if isinstance(value, int) and _fits(value, 32) else None


def _date_text(days: int) -> str:
    return (
        date.fromordinal(days + _EPOCH_ORDINAL).isoformat() if days in _DATE_RANGE else f"@{days}"
    )


def _days(wire: Any) -> int:
    text = _of(str, wire)
    days = (
        int(text[1:])
        if text.startswith("@")
        else date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    )
    if not _fits(days, 32) or _date_text(days) != text:
        raise ValueError(f"{shown(wire)} is no date")
    return days


def _moment(micros: int, bits: int) -> datetime | int:
    if not _fits(micros, bits):
        raise ValueError(micros)
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros


def _timestamp_wire(value: Any) -> int | None:
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            return None
        return _whole_micros(value, value.astimezone(UTC).replace(tzinfo=None) - _EPOCH)
    return value if isinstance(value, int) and _fits(value, 64) else None


def _timestamp_ntz_wire(value: Any) -> int | None:
    if isinstance(value, datetime):
        return None if value.tzinfo is not None else _whole_micros(value, value - _EPOCH)
    return value if isinstance(value, int) and _fits(value, 64) else None


def _interval_wire(value: Any) -> int | None:
    micros = _whole_micros(value, value) if isinstance(value, timedelta) else value
    return micros if isinstance(micros, int) and _fits(micros, 64) else None


def _whole_micros(value: Any, span: timedelta) -> int | None:
    """The span in microseconds; None if a pandas value has nanoseconds beyond them."""
    return (
        None
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
        else span // _MICROSECOND
    )


_ENCODERS: dict[str, Callable[[Any], WireValue]] = {
    "float": _float32_wire,
    "double": _float_wire,
    "binary": _binary_wire,
    "date": _date_wire,
    "timestamp": _timestamp_wire,
    "timestamp_ntz": _timestamp_ntz_wire,
    "interval": _interval_wire,
}


def _refusal(value: Any, type: FieldType) -> UsageError:
    advice = ""
    if isinstance(value, datetime) and type == "timestamp" and value.tzinfo is None:
        advice = " Give it a time zone, for example tzinfo=datetime.UTC."
    if isinstance(value, datetime) and type == "timestamp_ntz" and value.tzinfo is not None:
        advice = " The column has no time zone; give a naive datetime."
    return UsageError(
        f"{shown(value)} is no value that a column of the type {type_text(type)} holds "
        f"exactly.{advice}"
    )

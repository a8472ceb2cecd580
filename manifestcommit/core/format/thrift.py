"""Reads Thrift's compact protocol strictly and in bounds, for the few structs of Parquet that are
checked before use. [AF3] [OB4]

Pure. ValueError if members do not ascend, if a length exceeds the data, or if values are nested too
deeply. Members that no layout names, or that have another type than the layout's, are skipped, as
by the readers that Thrift generates: some writers used a number before Parquet gave it a meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

BOOL, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = (
    1,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
)
MAX_DEPTH = 32  # levels of nested values; Parquet's own reach 6

_FALSE = 2  # a false member has a type of its own
_BYTES = {BOOL: 1, _FALSE: 1, BYTE: 1, DOUBLE: 8}
_INTEGERS = (I16, I32, I64)
_BITS = {I16: 15, I32: 31, I64: 63}


class Kind(NamedTuple):
    """The expected type of a value. layout: of a struct; element: of a list; keep: maps the number
    and value of a list's element to what is kept of it."""

    type: int
    layout: Mapping[int, Kind] | None = None
    element: Kind | None = None
    keep: Callable[[int, Any], Any] | None = None


Layout: TypeAlias = Mapping[int, Kind]
Struct: TypeAlias = dict[int, Any]


def listed(element: Kind, keep: Callable[[int, Any], Any] | None = None) -> Kind:
    """A list of such values."""
    return Kind(LIST, element=element, keep=keep)


def struct(layout: Layout) -> Kind:
    """A struct with these members; others are skipped."""
    return Kind(STRUCT, layout)


def read_struct(data: bytes, at: int, layout: Layout) -> tuple[Struct, int]:
    """The members that the layout names, by number, and the end of the struct; ValueError if it is
    not a struct."""
    try:
        return _struct(data, at, layout, MAX_DEPTH)
    except IndexError:
        raise ValueError("it ends too early") from None


def _struct(data: bytes, at: int, layout: Layout, depth: int) -> tuple[Struct, int]:
    if depth <= 0:
        raise ValueError("it is nested too deeply")
    members: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        type = head & 15
        if head > 15:
            number += head >> 4
        else:
            before = number
            number, at = _integer(data, at, I16)
            if number <= before:
                raise ValueError("its members are not in order")
        kind = layout.get(number)
        if kind is not None and type == kind.type:
            if type in _INTEGERS:
                raw = data[at]  # most numbers take one byte: no call for these
                if raw < 128:
                    members[number], at = raw >> 1 ^ -(raw & 1), at + 1
                else:
                    members[number], at = _integer(data, at, type)
            elif type == BINARY and (size := data[at]) < 128:
                at += 1 + size
                members[number] = data[at - size : at]
                if at > len(data):
                    raise ValueError(f"{size} bytes are said to follow and do not")
            elif type == BOOL:
                members[number] = True
            else:
                members[number], at = _value(data, at, kind, depth)
        elif kind is not None and type == _FALSE and kind.type == BOOL:
            members[number] = False
        else:
            at = at if type in (BOOL, _FALSE) else _pass_over(data, at, type, depth)
    return members, at + 1


def _value(data: bytes, at: int, kind: Kind, depth: int) -> tuple[Any, int]:
    """A value that is neither a number nor a bool."""
    if kind.type == BINARY:
        size, at = _natural(data, at)
        if size > len(data) - at:
            raise ValueError(f"{size} bytes are said to follow and do not")
        return data[at : at + size], at + size
    if kind.type == STRUCT:
        return _struct(data, at, kind.layout or {}, depth - 1)
    assert kind.type == LIST and kind.element is not None
    size, of, at = _list_head(data, at)
    element, keep = kind.element, kind.keep
    values: list[Any] = []
    if size and of != element.type:
        raise ValueError("a list of it is of another type")
    if of in _INTEGERS:
        for _ in range(size):
            number, at = _integer(data, at, of)
            values.append(number)
    else:
        layout = element.layout or {}
        for index in range(size):
            value, at = (
                _struct(data, at, layout, depth - 1)
                if of == STRUCT
                else _value(data, at, element, depth - 1)
            )
            values.append(value if keep is None else keep(index, value))
    return values, at


def _integer(data: bytes, at: int, type: int) -> tuple[int, int]:
    """A zigzag-encoded integer, and where it ends."""
    raw = data[at]
    at += 1
    if raw > 127:
        raw, at = _natural(data, at - 1)
        if raw >> _BITS[type] + 1:
            raise ValueError(f"a number of {raw.bit_length()} bits does not fit its type")
    return raw >> 1 ^ -(raw & 1), at


def _natural(data: bytes, at: int) -> tuple[int, int]:
    """A number of at most ten bytes, and where it ends."""
    number = shift = 0
    while (byte := data[at]) > 127:
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("a number does not end")
    return number | byte << shift, at + 1


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """The number of values that follow, their type, and where they begin. Each value takes at least
    one byte."""
    head = data[at]
    size, at = (head >> 4, at + 1) if head < 0xF0 else _natural(data, at + 1)
    if size > len(data) - at:
        raise ValueError(f"{size} values are said to follow and do not")
    return size, head & 15, at


def _pass_over(data: bytes, at: int, type: int, depth: int) -> int:
    """The end of a value that is skipped."""
    if type in _INTEGERS:
        return _natural(data, at)[1]
    if type in _BYTES:
        return at + _BYTES[type]  # a later read fails if the data ends before
    if type == BINARY:
        size, at = _natural(data, at)
        return at + size
    if type == STRUCT:
        return _struct(data, at, {}, depth - 1)[1]
    if depth <= 1:
        raise ValueError("it is nested too deeply")
    types: tuple[int, ...]
    if type in (LIST, SET):
        size, of, at = _list_head(data, at)
        types = (of,)
    elif type == MAP:
        size, at = _natural(data, at)
        if size > len(data) - at:
            raise ValueError(f"{size} values are said to follow and do not")
        types = divmod(data[at], 16) if size else ()
        at += bool(size)
    else:
        raise ValueError(f"there is no type {type}")
    for _ in range(size):
        for kind in types:
            at = _pass_over(data, at, kind, depth - 1)
    return at

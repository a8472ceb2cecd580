"""Parquet footers as trees, to be changed at will and put back: what no writer writes, and a reader must stand.

A struct is a list of [number, type, value]; a list is [type, values]; a map is left as [key and value types, pairs].
"""

import io
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Tree = list[Any]

BOOLS = (1, 2)
INTEGERS = (4, 5, 6)
BINARY, LIST, SET, MAP, STRUCT = 8, 9, 10, 11, 12


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """A file of these rows. options: of pyarrow's writer."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def split(data: bytes) -> tuple[bytes, bytes]:
    """What stands before the footer, and the footer itself."""
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length], data[-8 - length : -8]


def joined(body: bytes, footer: bytes) -> bytes:
    """A file again."""
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def tree_of(footer: bytes) -> Tree:
    """The footer as a struct's tree."""
    return _struct(footer, 0)[0]


def bytes_of(tree: Tree) -> bytes:
    """The tree as a footer."""
    return b"".join(_encode_struct(tree))


def changed(data: bytes, *path: int, to: Any, type: int | None = None) -> bytes:
    """The file with one member of its footer replaced, put in or (to=None) taken out.

    path: the numbers of members, and the indices of lists' elements between them; type: of a member that is not there yet.
    """
    body, footer = split(data)
    tree = tree_of(footer)
    at: Any = tree
    for step, number in enumerate(path[:-1]):
        at = next(each[2] for each in at if each[0] == number) if _is_struct(path, step) else at[1][number]
    if _is_struct(path, len(path) - 1):
        members = [each for each in at if each[0] != path[-1]]
        if to is not None:
            known = next((each[1] for each in at if each[0] == path[-1]), type)
            members.append([path[-1], type or known, to])
        at[:] = sorted(members, key=lambda each: each[0])
    elif to is None:
        del at[1][path[-1]]
    else:
        at[1][path[-1]] = to
    return joined(body, bytes_of(tree))


def _is_struct(path: tuple[int, ...], step: int) -> bool:
    """Whether this step names a member: below a list (2: schema, 4: row groups, and in these 1: columns) stands an index."""
    before = path[:step]
    return before not in ((2,), (4,)) and not (len(before) == 3 and before[0] == 4 and before[2] == 1)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        each = data[at]
        at += 1
        number |= (each & 127) << shift
        shift += 7
        if each < 128:
            return number, at


def _struct(data: bytes, at: int) -> tuple[Tree, int]:
    found, number = [], 0
    while data[at]:
        head = data[at]
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            raw, at = _varint(data, at)
            number = raw >> 1 ^ -(raw & 1)
        value: Any = None
        if head & 15 not in BOOLS:
            value, at = _value(data, at, head & 15)
        found.append([number, head & 15, value])
    return found, at + 1


def _value(data: bytes, at: int, type: int) -> tuple[Any, int]:
    if type in INTEGERS:
        raw, at = _varint(data, at)
        return raw >> 1 ^ -(raw & 1), at
    if type in (*BOOLS, 3):
        return data[at], at + 1
    if type == 7:
        return struct.unpack("<d", data[at : at + 8])[0], at + 8
    if type == BINARY:
        size, at = _varint(data, at)
        return data[at : at + size], at + size
    if type == STRUCT:
        return _struct(data, at)
    assert type in (LIST, SET), type
    size, of, at = data[at] >> 4, data[at] & 15, at + 1
    if size == 15:
        size, at = _varint(data, at)
    values = []
    for _ in range(size):
        value, at = _value(data, at, of)
        values.append(value)
    return [of, values], at


def _natural(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _zigzag(number: int) -> bytes:
    return _natural(number << 1 if number >= 0 else (-number << 1) - 1)


def _encode_struct(tree: Tree) -> Iterator[bytes]:
    last = 0
    for number, type, value in tree:
        delta = number - last
        yield bytes([delta << 4 | type]) if 0 < delta < 16 else bytes([type]) + _zigzag(number)
        last = number
        if type not in BOOLS:
            yield from _encode(value, type)
    yield b"\0"


def _encode(value: Any, type: int) -> Iterator[bytes]:
    if type in INTEGERS:
        yield _zigzag(value)
    elif type in (*BOOLS, 3):
        yield bytes([value])
    elif type == 7:
        yield struct.pack("<d", value)
    elif type == BINARY:
        yield _natural(len(value)) + value
    elif type == STRUCT:
        yield from _encode_struct(value)
    else:
        of, values = value
        yield bytes([len(values) << 4 | of]) if len(values) < 15 else bytes([0xF0 | of]) + _natural(len(values))
        for each in values:
            yield from _encode(each, of)

"""Checks a Parquet footer and page headers before a library reads them: their contents must be
possible in this file. [AF3] [OB4]

Libraries that read Parquet partly trust a footer: a forged one crashes the process, or makes a
reader allocate more than the file holds. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from .thrift import BINARY, BOOL, I16, I32, I64, STRUCT, Kind, Struct, listed, read_struct, struct

MAGIC = b"PAR1"
TAIL_BYTES = 8  # after the footer: its length and the magic
MAX_COLUMN_DEPTH = 100
MAX_PAGE_VALUES = 2**31 - 1
_PAGE_HEADER_BYTES = 8  # a lower bound for the header of a data page

# Physical types: the bytes of a value, if all values take the same.
_BYTE_ARRAY, _FIXED = 6, 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_OFFSET_BYTES = 4  # of a text, plus the length before it
_DELTA_BYTE_ARRAY = 7

_COUNT, _SMALL, _TEXT = Kind(I64), Kind(I32), Kind(BINARY)
_KEY_VALUES = listed(struct({1: _TEXT, 2: _TEXT}))
_STATISTICS = {
    1: _TEXT,
    2: _TEXT,
    3: _COUNT,
    4: _COUNT,
    5: _TEXT,
    6: _TEXT,
    7: Kind(BOOL),
    8: Kind(BOOL),
}
_SIZES = {1: _COUNT, 2: listed(_COUNT), 3: listed(_COUNT)}
_ENCODING_STATS = listed(struct({1: _SMALL, 2: _SMALL, 3: _SMALL}))
_CHUNK_DATA = {
    1: _SMALL,
    2: listed(_SMALL),
    3: listed(_TEXT),
    4: _SMALL,
    5: _COUNT,
    6: _COUNT,
    7: _COUNT,
    8: _KEY_VALUES,
    9: _COUNT,
    10: _COUNT,
    11: _COUNT,
    12: struct(_STATISTICS),
    13: _ENCODING_STATS,
    14: _COUNT,
    15: _SMALL,
    16: struct(_SIZES),
}
_CHUNK = {
    1: _TEXT,
    2: _COUNT,
    3: struct(_CHUNK_DATA),
    4: _COUNT,
    5: _SMALL,
    6: _COUNT,
    7: _SMALL,
    8: Kind(STRUCT, {}),
    9: _TEXT,
}
_ELEMENT = {
    1: _SMALL,
    2: _SMALL,
    3: _SMALL,
    4: _TEXT,
    5: _SMALL,
    6: _SMALL,
    7: _SMALL,
    8: _SMALL,
    9: _SMALL,
    10: Kind(STRUCT, {}),
}
_DATA_HEADER = {1: _SMALL, 2: _SMALL, 3: _SMALL, 4: _SMALL, 5: struct(_STATISTICS)}
_DATA_HEADER_V2 = {
    1: _SMALL,
    2: _SMALL,
    3: _SMALL,
    4: _SMALL,
    5: _SMALL,
    6: _SMALL,
    7: Kind(BOOL),
    8: struct(_STATISTICS),
}
_DICTIONARY_HEADER = {1: _SMALL, 2: _SMALL, 3: Kind(BOOL)}
_PAGE = {
    1: _SMALL,
    2: _SMALL,
    3: _SMALL,
    4: _SMALL,
    5: struct(_DATA_HEADER),
    6: Kind(STRUCT, {}),
    7: struct(_DICTIONARY_HEADER),
    8: struct(_DATA_HEADER_V2),
}


class Leaf(NamedTuple):
    """A column of values. type: Parquet's physical type; width: bytes of a value, None if they
    differ; repetition, definition: the highest levels."""

    name: str
    type: int
    width: int | None
    repetition: int
    definition: int


class Chunk(NamedTuple):
    """The values of one leaf in one row group. raw_bytes: size of its pages once decompressed;
    start, end: its position in the file; codec: by Parquet's number."""

    values: int
    raw_bytes: int
    start: int
    end: int
    codec: int


class Footer(NamedTuple):
    """The contents of a checked footer. groups: the chunks of each row group, in the order of the
    leaves; sizes: rows of each row group."""

    rows: int
    leaves: tuple[Leaf, ...]
    sizes: tuple[int, ...]
    groups: tuple[tuple[Chunk, ...], ...]


def footer_length(tail: bytes, file_bytes: int) -> int:
    """The length of the footer, from the last eight bytes of the file; ValueError if the file is
    too short for it."""
    if len(tail) != TAIL_BYTES or tail[4:] != MAGIC:
        raise ValueError("it does not end as a Parquet file does")
    length = int.from_bytes(tail[:4], "little")
    if not 0 < length <= file_bytes - TAIL_BYTES - len(MAGIC):
        raise ValueError(f"it claims a footer of {length} bytes, and has {file_bytes} bytes itself")
    return length


def check_footer(footer: bytes, file_bytes: int) -> Footer:
    """Decode the footer of a file of this size; ValueError if its contents are impossible. [AF3]
    [OB4]

    footer: without its length and the magic after it.
    """
    return _Footer(footer, file_bytes - TAIL_BYTES - len(footer)).checked()


class _Footer:
    """A footer while it is read: only the requested members of each column chunk are kept. until:
    where the footer begins."""

    def __init__(self, data: bytes, until: int) -> None:
        self._data, self._until = data, until
        self._elements: list[Struct] = []
        self._leaves: tuple[Leaf, ...] | None = None  # before the first row group

    def checked(self) -> Footer:
        group = {
            1: listed(struct(_CHUNK), self._chunk),
            2: _COUNT,
            3: _COUNT,
            5: _COUNT,
            6: _COUNT,
            7: Kind(I16),
        }
        layout = {
            1: _SMALL,
            2: listed(struct(_ELEMENT), self._element),
            3: _COUNT,
            4: listed(struct(group), self._group),
            5: _KEY_VALUES,
            6: _TEXT,
            7: listed(struct({})),
            8: Kind(STRUCT),
            9: _TEXT,
        }
        members, end = read_struct(self._data, 0, layout)
        if end != len(self._data):
            raise ValueError("its footer ends before its last byte")
        _have(members, (1, 2, 3, 4), "footer")
        leaves = self._known()
        if 8 in members or 9 in members:
            raise ValueError("it is encrypted")
        if 7 in members and len(members[7]) != len(leaves):
            raise ValueError("its footer has another number of column orders than of columns")
        sizes = tuple(rows for rows, _ in members[4])
        if members[3] != sum(sizes):
            raise ValueError(
                f"its row groups have {sum(sizes)} rows together, its footer says {members[3]}"
            )
        return Footer(members[3], leaves, sizes, tuple(chunks for _, chunks in members[4]))

    def _element(self, _: int, element: Struct) -> None:
        self._elements.append(element)

    def _known(self) -> tuple[Leaf, ...]:
        """The columns. Members are sorted by number, so the schema is read completely before the
        first row group."""
        if self._leaves is None:
            self._leaves, self._elements = _leaves(self._elements), []
        return self._leaves

    def _chunk(self, number: int, chunk: Struct) -> Chunk:
        leaves = self._known()
        if number >= len(leaves):
            raise ValueError(f"a row group has more columns than the file, which has {len(leaves)}")
        return _chunk(chunk, leaves[number], self._until)

    def _group(self, _: int, group: Struct) -> tuple[int, tuple[Chunk, ...]]:
        _have(group, (1, 2, 3), "row group")
        rows, chunks, leaves = group[3], tuple(group[1]), self._known()
        if len(chunks) != len(leaves):
            raise ValueError(
                f"a row group has {len(chunks)} columns where the file has {len(leaves)}"
            )
        if rows < 0 or group[2] < 0:
            raise ValueError("a row group has a negative size")
        for chunk, leaf in zip(chunks, leaves, strict=True):
            if chunk.values < rows if leaf.repetition else chunk.values != rows:
                raise ValueError(
                    f"column {leaf.name!r} has {chunk.values} values in a row group of {rows} rows"
                )
        return rows, chunks


def _have(struct: Struct, members: Sequence[int], what: str) -> None:
    for member in members:
        if member not in struct:
            raise ValueError(f"a {what} lacks its member {member}")


def _leaves(elements: Sequence[Struct]) -> tuple[Leaf, ...]:
    """The columns of a schema, which lists the nodes of a tree, each group before its members."""
    leaves: list[Leaf] = []
    if not elements or 1 in elements[0]:
        raise ValueError("its schema does not begin with a group")
    open_groups = [(_children(elements[0]), 0, 0)]  # members still to come, and levels
    for element in elements[1:]:
        while open_groups and not open_groups[-1][0]:
            open_groups.pop()
        if not open_groups:
            raise ValueError("its schema has more columns than its groups")
        left, repetition, definition = open_groups.pop()
        open_groups.append((left - 1, repetition, definition))
        kind = element.get(3, 0)
        if kind not in (0, 1, 2) or 4 not in element:
            raise ValueError("a column of its schema has no name or cannot be repeated like that")
        repetition, definition = repetition + (kind == 2), definition + (kind != 0)
        name = element[4].decode("utf-8")
        if 1 in element:
            leaves.append(Leaf(name, element[1], _width(element), repetition, definition))
        elif not (children := _children(element)) or len(open_groups) >= MAX_COLUMN_DEPTH:
            raise ValueError("a group of its schema is empty or too deep")
        else:
            open_groups.append((children, repetition, definition))
    if any(left for left, _, _ in open_groups):
        raise ValueError("its schema has fewer columns than its groups say")
    return tuple(leaves)


def _children(element: Struct) -> int:
    children: int = element.get(5, 0)
    if children < 0:
        raise ValueError("a group of its schema has a negative number of columns")
    return children


def _width(element: Struct) -> int | None:
    type = element[1]
    if element.get(5) or type not in (*_WIDTHS, _BYTE_ARRAY, _FIXED):
        raise ValueError("a column of its schema has members, or a type that there is not")
    if type != _FIXED:
        return _WIDTHS.get(type)
    width: int = element.get(2, 0)
    if width <= 0:
        raise ValueError("a column of fixed length has no length")
    return width


def _chunk(chunk: Struct, leaf: Leaf, until: int) -> Chunk:
    """Decode a column chunk and check it: it has the column's type and lies in the file, before
    `until`, where the footer begins."""
    _have(chunk, (2, 3), "column chunk")
    if chunk.get(1) or 8 in chunk or 9 in chunk:
        raise ValueError(f"column {leaf.name!r} is in another file or is encrypted")
    data = chunk[3]
    _have(data, (1, 2, 3, 4, 5, 6, 7, 9), "column chunk")
    if data[1] != leaf.type:
        raise ValueError(f"column {leaf.name!r} has another type in a row group than in the schema")
    values, raw, stored, start = data[5], data[6], data[7], data[9]
    if 0 < data.get(11, 0) < start:  # start of the dictionary
        start = data[11]
    # pyarrow's own chunks begin at 0 if they have no values
    if raw < 0 or stored < 0 or not 0 <= start <= until - stored or data[9] > until:
        raise ValueError(
            f"column {leaf.name!r} is outside of the file: {stored} bytes from {start}"
        )
    if not 0 <= values <= stored // _PAGE_HEADER_BYTES * MAX_PAGE_VALUES:
        raise ValueError(f"column {leaf.name!r} has {values} values in {stored} bytes")
    if 12 in data:
        _check_statistics(data[12], leaf, values)
    if 16 in data:
        _check_sizes(data[16], leaf)
    return Chunk(values, raw, start, start + stored, data[4])


def _check_statistics(statistics: Struct, leaf: Leaf, values: int) -> None:
    for member in (1, 2, 5, 6):
        if (
            leaf.width is not None
            and member in statistics
            and len(statistics[member]) != leaf.width
        ):
            raise ValueError(f"column {leaf.name!r} has a bound of {len(statistics[member])} bytes")
    if not 0 <= statistics.get(3, 0) <= values:
        raise ValueError(f"column {leaf.name!r} has {statistics[3]} nulls among {values} values")


def _check_sizes(sizes: Struct, leaf: Leaf) -> None:
    if 1 in sizes and leaf.type != _BYTE_ARRAY:
        raise ValueError(f"column {leaf.name!r} counts bytes of texts and has none")
    for member, highest in ((2, leaf.repetition), (3, leaf.definition)):
        if sizes.get(member) and len(sizes[member]) != highest + 1:
            raise ValueError(f"column {leaf.name!r} counts levels that it does not have")


def decoded_bytes(data: Any, chunk: Chunk, leaf: Leaf) -> int:
    """The maximal size of the values of a chunk once decoded; ValueError if its pages contradict
    the footer. [OB4]

    data: the file, or the part of it that holds the chunk, at its position. Values that share
    prefixes with others are refused: a few bytes of these may expand to any amount.
    """
    if not chunk.values:
        return 0
    values = raw = longest = 0
    pages = bytes(data[chunk.start : chunk.end])
    for header, start, size in _page_headers(pages):
        raw += size + header[2]
        if raw > chunk.raw_bytes:
            break
        kind, inner = header[1], header.get(5) or header.get(8) or header.get(7) or {}
        if kind == _DICTIONARY_PAGE and leaf.type == _BYTE_ARRAY:
            longest = max(
                longest,
                _longest(_content(pages[start : start + header[3]], header[2], chunk.codec)),
            )
        elif kind in (_DATA_PAGE, _DATA_PAGE_V2):
            if (
                inner.get(4 if kind == _DATA_PAGE_V2 else 2) == _DELTA_BYTE_ARRAY
                or inner.get(1, -1) < 0
            ):
                raise ValueError(
                    f"column {leaf.name!r} has a page of a negative size, or values that "
                    "share their beginnings"
                )
            values += inner[1]
    if values != chunk.values or raw > chunk.raw_bytes:
        actual, said = f"{values} values and {raw} bytes", f"{chunk.values} and {chunk.raw_bytes}"
        raise ValueError(f"column {leaf.name!r} has pages of {actual}, its footer says {said}")
    return chunk.raw_bytes + values * (
        _OFFSET_BYTES + longest if leaf.width is None else max(leaf.width, _OFFSET_BYTES)
    )


def _content(page: bytes, raw_bytes: int, codec: int) -> bytes:
    if codec == 0:
        return page
    if codec not in _CODECS:
        raise ValueError(f"its pages are compressed in a way that has the number {codec}")
    try:
        content: bytes = pa.decompress(page, raw_bytes, _CODECS[codec], asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"a dictionary cannot be decompressed: {error}") from None
    return content


def _longest(dictionary: bytes) -> int:
    """The length of the longest value."""
    at = longest = 0
    while at + _OFFSET_BYTES <= len(dictionary):
        size = int.from_bytes(dictionary[at : at + _OFFSET_BYTES], "little")
        longest = max(longest, size)
        at += _OFFSET_BYTES + size
    return longest


def _page_headers(data: bytes) -> Iterator[tuple[Struct, int, int]]:
    """The header of each page, where its content begins, and the length of the header."""
    at = 0
    while at < len(data):
        header, body = read_struct(data, at, _PAGE)
        _have(header, (1, 2, 3), "page header")
        if header[2] < 0 or not 0 <= header[3] <= len(data) - body:
            raise ValueError("a page ends behind its column chunk")
        yield header, body, body - at
        at = body + header[3]

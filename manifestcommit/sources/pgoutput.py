"""What PostgreSQL's plugin `pgoutput` says of transactions, and rows of it in a file. [LD10]"""

from __future__ import annotations

import bisect
import struct
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

_BATCH_BYTES, _BATCH_ROWS = 4_000_000, 10_000
KEPT: Any = object()  # a value that is stored aside at the server, and did not change

Values = list[Any]  # bytes, None or KEPT, a column each


class NewShapeError(Exception):
    """A table has other columns from here on."""


class Shape(msgspec.Struct, frozen=True):
    """A table as its changes have it. columns: name, oid of the type, its modifier; key: which
    columns identify a row, by their places."""

    schema: str
    name: str
    columns: tuple[tuple[str, int, int], ...]
    key: tuple[int, ...]


class Change(msgspec.Struct, frozen=True):
    """kind: insert, update, delete, truncate; new, old: rows; whole: old is more than its key."""

    kind: str
    tables: tuple[int, ...]
    new: Any = None
    old: Any = None
    whole: bool = False


class Begin(msgspec.Struct, frozen=True):
    """lsn: where the record of the commit begins; moment: microseconds since 2000."""

    lsn: int
    moment: int


class Commit(msgspec.Struct, frozen=True):
    """end: where the record of the commit ends."""

    end: int


def decoded(data: bytes) -> Begin | Commit | Change | tuple[int, Shape] | None:
    """What a message says; None: nothing that matters."""
    kind = data[:1]
    if kind == b"I":
        return Change("insert", struct.unpack_from(">I", data, 1), _values(data, 6)[0])
    if kind == b"U":
        old, at, whole = None, 5, data[5:6] == b"O"
        if data[5:6] != b"N":
            old, at = _values(data, 6)
        new = _values(data, at + 1)[0]
        return Change("update", struct.unpack_from(">I", data, 1), new, old, whole)
    if kind == b"D":
        old = _values(data, 6)[0]
        whole = data[5:6] == b"O"
        return Change("delete", struct.unpack_from(">I", data, 1), None, old, whole)
    if kind == b"B":
        return Begin(*struct.unpack_from(">QQ", data, 1))
    if kind == b"C":
        return Commit(struct.unpack_from(">Q", data, 10)[0])
    if kind == b"T":
        (count,) = struct.unpack_from(">I", data, 1)
        return Change("truncate", struct.unpack_from(f">{count}I", data, 6))
    return _shape(data) if kind == b"R" else None


def _values(data: bytes, at: int) -> tuple[Values, int]:
    """The values of a row, and where what follows it begins."""
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    values: Values = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t: a text
            length = int.from_bytes(data[at : at + 4], "big")
            at += 4 + length
            values.append(data[at - length : at])
        else:  # n: null; u: kept
            values.append(None if kind == 0x6E else KEPT)
    return values, at


def _shape(data: bytes) -> tuple[int, Shape]:
    """The id of a table, and what it is."""
    (table,) = struct.unpack_from(">I", data, 1)
    schema, name, rest = data[5:].split(b"\0", 2)
    (count,) = struct.unpack_from(">H", rest, 1)
    columns, key, at = [], [], 3
    for place in range(count):
        end = rest.index(b"\0", at + 1)
        if rest[at] & 1:
            key.append(place)
        columns.append((rest[at + 1 : end].decode(), *struct.unpack_from(">Ii", rest, end + 1)))
        at = end + 9
    is_full = rest[:1] == b"f"  # then all columns are marked
    shape = Shape(
        schema.decode() or "pg_catalog",
        name.decode(),
        tuple(columns),
        () if is_full else tuple(key),
    )
    return table, shape


class Row(msgspec.Struct, frozen=True):
    """A change as it is kept. kept: the places of values that did not change."""

    values: Values
    kind: str
    lsn: int
    moment: int
    number: int
    kept: tuple[int, ...] = ()


class Spool:
    """Changes of one table in a file, so that a transaction may be larger than the memory.

    key: the places of the columns of a key, of which the last change counts; None: each change
    does. emptied: the table was truncated, and the rows are those since then.
    """

    def __init__(self, shape: Shape, key: tuple[int, ...] | None) -> None:
        self.shape, self.key = shape, key
        self.kept: set[tuple[int, ...]] = set()
        self.emptied = False
        self.count = 0
        self._waiting: list[Row] = []
        self._bytes = 0
        self._starts: list[int] = []  # the number of each batch's first row
        self._places: list[int] = []  # and where the batch is in the file
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this is
        weakref.finalize(self, self._file.close)
        self._last: dict[tuple[Any, ...], int] = {}
        self._cached: tuple[int, pa.RecordBatch] | None = None

    def add(self, row: Row) -> None:
        kept = tuple(place for place, value in enumerate(row.values) if value is KEPT)
        if self.key is not None:
            key = tuple(row.values[place] for place in self.key)
            if kept and (earlier := self._last.get(key)) is not None:
                before = self._row(earlier)
                for place in kept:
                    if place not in before.kept:
                        row.values[place] = before.values[place]
                kept = tuple(place for place in kept if place in before.kept)
            self._last[key] = self.count
        if kept:
            row = msgspec.structs.replace(row, kept=kept)
            self.kept.add(kept)
        self._waiting.append(row)
        self.count += 1
        self._bytes += sum(map(len, filter(None, (v for v in row.values if v is not KEPT))))
        if len(self._waiting) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._flush()

    @property
    def has_changes(self) -> bool:
        return bool(self.count or self.emptied)

    def empty(self) -> None:
        """The table was truncated: what was before does not count."""
        self._last.clear()
        self.emptied = True

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows, self._waiting, self._bytes = self._waiting, [], 0
        values = zip(*(row.values for row in rows), strict=True)
        arrays = [
            pa.array([None if v is KEPT else v for v in each], pa.binary()) for each in values
        ]
        names = [f"{place}" for place in range(len(arrays))]
        known = ("kind", "lsn", "moment", "number")
        rest = {name: [getattr(row, name) for row in rows] for name in known}
        rest["kept"] = [",".join(map(str, row.kept)) for row in rows]
        batch = pa.RecordBatch.from_arrays(
            [*arrays, *map(pa.array, rest.values())], names=[*names, *rest]
        )
        self._starts.append(self.count - len(rows))
        self._places.append(self._file.seek(0, 2))
        with pa.ipc.new_stream(self._file, batch.schema) as stream:
            stream.write_batch(batch)

    def _batch(self, index: int) -> pa.RecordBatch:
        if self._cached is None or self._cached[0] != index:
            self._file.seek(self._places[index])
            self._cached = index, pa.ipc.open_stream(self._file).read_next_batch()
        return self._cached[1]

    def _row(self, number: int) -> Row:
        first = self.count - len(self._waiting)
        if number >= first:
            return self._waiting[number - first]
        index = bisect.bisect_right(self._starts, number) - 1
        found = self._batch(index).slice(number - self._starts[index], 1).to_pylist()[0]
        values = [found[f"{place}"] for place in range(len(self.shape.columns))]
        kept = tuple(int(place) for place in found["kept"].split(",") if place)
        return Row(values, found["kind"], found["lsn"], found["moment"], found["number"], kept)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The changes that count, in their order: a column of texts for each of the table's, by its
        place, and what is known of the change."""
        self._flush()
        wanted = None if self.key is None else sorted(self._last.values())
        for index, start in enumerate(self._starts):
            batch = self._batch(index)
            if wanted is not None:
                first = bisect.bisect_left(wanted, start)
                last = bisect.bisect_left(wanted, start + batch.num_rows)
                batch = batch.take(
                    pa.array([each - start for each in wanted[first:last]], pa.int64())
                )
            yield batch

"""What differs between two bags of rows, in bounded memory: rows that one has more often than the
other. [CH3] [CH5]
"""

from __future__ import annotations

import contextlib
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.change_feed import DELETE, INSERT, POSTIMAGE, PREIMAGE, ChangeType

# A row as bytes, which are equal exactly if two rows are equal.

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


LIMIT_BYTES = 64 << 20  # of different rows that are held
_FILES = 32  # into which more of them are split
_DEPTH = 6  # splits of a split, by five other bits of a checksum each time
_ROW_BYTES = 200  # of Python's objects for a row that is held
_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 8 << 20
_PREFIX = "manifestcommit-changes-"

Change = tuple[ChangeType, pa.RecordBatch]


class Counted(NamedTuple):
    """Rows, and how often each was added, less than nothing where it was removed."""

    rows: pa.RecordBatch
    times: Sequence[int]


def bag_difference(
    removed: Iterable[pa.RecordBatch],
    added: Iterable[pa.RecordBatch],
    on: Sequence[str] = (),
    *,
    limit_bytes: int = LIMIT_BYTES,
) -> Iterator[Change]:
    """The rows that only `removed` has, as often as it has them more often, and those that only
    `added` has. [CH3]

    on: the columns of a key; where one row with a key goes and one comes, they are the images of an
    update. Memory: `limit_bytes`, or all different rows with one key, and a batch; more is kept in
    temporary files without a name, as much as the rows take. [CH5]
    """
    counted = (
        Counted(batch, [sign] * batch.num_rows)
        for sign, batches in ((-1, removed), (1, added))
        for batch in batches
    )
    return _difference(counted, on, limit_bytes, 0)


def _difference(
    counted: Iterable[Counted], on: Sequence[str], limit: int, depth: int
) -> Iterator[Change]:
    rows = iter(counted)
    held = _Held()
    for part in rows:
        held.take(part)
        if held.bytes > limit and depth < _DEPTH:
            break
    else:
        yield from _changes(held, on)
        return
    with contextlib.ExitStack() as stack:
        files = _Files(stack, on, depth)
        for part in held.counted():
            files.take(part)
        del held
        for part in rows:
            files.take(part)
        for kept in files.counted():
            yield from _difference(kept, on, limit, depth + 1)


class _Held:
    """Different rows in memory, and how often each was added in all."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._times: list[int] = []
        self._batches: list[pa.RecordBatch] = []
        self.bytes = 0

    def take(self, part: Counted) -> None:
        places, times, fresh = self._places, self._times, list[int]()
        for row, (key, often) in enumerate(
            zip(row_bytes(part.rows).to_pylist(), part.times, strict=True)
        ):
            at = places.setdefault(key, len(times))
            if at == len(times):
                times.append(often)
                fresh.append(row)
                self.bytes += len(key) + _ROW_BYTES
            else:
                times[at] += often
        if fresh:
            first_seen = part.rows.take(pa.array(fresh, pa.int64()))
            self._batches.append(first_seen)
            self.bytes += first_seen.nbytes

    def counted(self) -> Iterator[Counted]:
        """The rows of which one bag has more."""
        start = 0
        for batch in self._batches:
            times = self._times[start : start + batch.num_rows]
            start += batch.num_rows
            differing = [row for row, often in enumerate(times) if often]
            if differing:
                rows = batch.take(pa.array(differing, pa.int64()))
                yield Counted(rows, [times[row] for row in differing])


class _Files:
    """Counted rows in temporary files: equal rows, and those with one key, in the same one."""

    def __init__(self, stack: contextlib.ExitStack, on: Sequence[str], depth: int) -> None:
        self._on = on
        self._shift = 5 * depth
        self._files: list[IO[bytes]] = [
            stack.enter_context(tempfile.TemporaryFile(prefix=_PREFIX))  # noqa: SIM115  # by the stack
            for _ in range(_FILES)
        ]
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}

    def take(self, part: Counted) -> None:
        keys = _keys(part.rows, self._on)
        whole = row_bytes(part.rows) if None in keys else pa.nulls(0)
        wanted = np.array(
            [
                (zlib.crc32(whole[row].as_py() if key is None else key) >> self._shift) % _FILES
                for row, key in enumerate(keys)
            ]
        )
        rows = pa.RecordBatch.from_arrays(
            [pa.array(part.times, pa.int64()), *part.rows.columns],
            schema=pa.schema([pa.field("", pa.int64()), *part.rows.schema]),
        )
        for number in np.unique(wanted).tolist():
            some = rows.take(pa.array(np.flatnonzero(wanted == number)))
            if number not in self._writers:
                self._writers[number] = pa.ipc.new_stream(self._files[number], rows.schema)
            self._writers[number].write_batch(some)

    def counted(self) -> Iterator[Iterator[Counted]]:
        for number, writer in self._writers.items():
            writer.close()
            yield self._read(self._files[number])

    def _read(self, file: IO[bytes]) -> Iterator[Counted]:
        file.seek(0)
        for batch in pa.ipc.open_stream(file):
            rows = pa.RecordBatch.from_arrays(
                batch.columns[1:], schema=pa.schema(list(batch.schema)[1:])
            )
            yield Counted(rows, batch.column(0).to_pylist())


def _changes(held: _Held, on: Sequence[str]) -> Iterator[Change]:
    """The changes, and which of them are the images of an update. [CH4]"""
    differing = list(held.counted())
    keys = [_keys(part.rows, on) if on else [None] * len(part.times) for part in differing]
    gone, come = Counter[bytes](), Counter[bytes]()
    for part, of_rows in zip(differing, keys, strict=True):
        for key, often in zip(of_rows, part.times, strict=True):
            if key is not None:
                (come if often > 0 else gone)[key] += abs(often)
    for part, of_rows in zip(differing, keys, strict=True):
        rows: dict[ChangeType, list[int]] = {}
        for row, (key, often) in enumerate(zip(of_rows, part.times, strict=True)):
            is_update = key is not None and gone[key] == come[key] == 1
            if often > 0:
                rows.setdefault(POSTIMAGE if is_update else INSERT, []).append(row)
            else:
                rows.setdefault(PREIMAGE if is_update else DELETE, []).append(row)
        for kind, chosen in rows.items():
            for batch in _repeated(part, chosen):
                yield kind, batch


def _repeated(part: Counted, chosen: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """These rows, each as often as it was added or removed, in batches."""
    each = part.rows.nbytes // part.rows.num_rows
    most = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, each)))
    pending, count = [], 0
    for row in chosen:
        left = abs(part.times[row])
        while left:
            some = min(left, most - count)
            pending.append(np.full(some, row))
            left, count = left - some, count + some
            if count == most:
                yield part.rows.take(pa.array(np.concatenate(pending)))
                pending, count = [], 0
    if pending:
        yield part.rows.take(pa.array(np.concatenate(pending)))


def _keys(rows: pa.RecordBatch, on: Sequence[str]) -> list[bytes | None]:
    """The bytes of each row's key; None: there is none, since a null equals nothing."""
    if not on:
        return [None] * rows.num_rows
    keys: list[bytes | None] = row_bytes(rows, on).to_pylist()
    nulls = has_null(rows, on).to_pylist()
    return [None if missing else key for key, missing in zip(keys, nulls, strict=True)]

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

from ...core.commit.change_feed import DELETE, INSERT, POSTIMAGE, PREIMAGE, ChangeType
from ...core.table.row_identity import has_null, row_bytes

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

"""Decodes portions of data files in threads, ahead of the consumer, in order and in bounded memory.
[RD40]

pyarrow decodes without Python's lock: while the caller processes one batch, threads decode the next
ones.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptMetadataError
from ..format import codec
from ..format.arrow_schema import marked_schemas
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..runtime.concurrency import map_in_batches
from ..store.base import is_remote

# Decodes a data file from one read of all its bytes, which are compared with its digest.

_REQUEST_BYTES = 8 << 20


def checked_bytes(ctx: TableContext, entry: pa.Table) -> bytes | None:
    """All bytes of one file; None if another program wrote it: only its footer is known [AF3].
    CorruptMetadataError where they are not what was written: a file with the same rows would have a
    digest that hides the damage. [RC1]"""
    digest = entry.column("digest")[0].as_py()
    if digest is None:
        return None
    data = b"".join(_parts(ctx, entry, together=not is_remote(ctx.store)))
    if codec.digest(data) != digest:
        raise _damaged(ctx.store.url, entry)
    return data


def check_digest(ctx: TableContext, entry: pa.Table) -> None:
    """CorruptMetadataError where the file is not what was written; its parts are not held."""
    digest, found = entry.column("digest")[0].as_py(), hashlib.sha256()
    if digest is not None:
        for part in _parts(ctx, entry):
            found.update(part)
        if codec.digest_of(found) != digest:
            raise _damaged(ctx.store.url, entry)


def batches_of(
    ctx: TableContext,
    snapshot: Snapshot,
    entry: pa.Table,
    data: bytes,
    columns: list[str] | None,
    batch_rows: int,
    *,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of one file with these bytes, with user-visible names of columns. use_threads:
    decode columns in parallel."""
    logical, physical = marked_schemas(
        snapshot.schema, snapshot.table_id, ctx.store.url, snapshot.version
    )
    names = logical.names if columns is None else columns
    places = [logical.get_field_index(name) for name in names]
    file = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
    stored = [physical.field(place) for place in places]
    held_columns = file.schema_arrow  # pyarrow makes it anew each time
    if not all(_has(held_columns, field) for field in stored):
        # a column is younger than the file, or has another type by now
        from .arrow_dataset import open_dataset  # late: pyarrow.dataset takes long to load

        held = open_dataset(ctx, snapshot, entry, data)
        yield from held.to_batches(columns=names, batch_size=batch_rows, use_threads=use_threads)
        return
    shown = pa.schema([logical.field(place) for place in places], logical.metadata)
    chosen = [field.name for field in stored]
    for batch in file.iter_batches(batch_rows, columns=chosen, use_threads=use_threads):
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in chosen], schema=shown)


def _parts(ctx: TableContext, entry: pa.Table, *, together: bool = False) -> Iterator[bytes]:
    """The bytes of a file in order: from a store behind a network by concurrent requests, since one
    connection does not use its bandwidth. together: in one part."""
    path, size = (entry.column(name)[0].as_py() for name in ("path", "bytes"))
    store = ctx.store
    step = max(1, size) if together else _REQUEST_BYTES

    def part(start: int) -> bytes:
        return store.get(path, start, min(size, start + step))

    return map_in_batches(store, part, range(0, size, step))


def _damaged(url: str, entry: pa.Table) -> CorruptMetadataError:
    path = entry.column("path")[0].as_py()
    return CorruptMetadataError(
        f"{url}: data file {path} is damaged: its digest is not that of what was written. Nothing "
        "was committed. Restore the file from a copy, or remove it from the table: overwrite its "
        "partition, or roll back to a version that does not list it.",
        object_name=path,
    )


def _has(file: pa.Schema, column: pa.Field) -> bool:
    """Whether the file has exactly one such column, of the same type."""
    found = file.get_all_field_indices(column.name)
    return len(found) == 1 and file.field(found[0]).type.equals(column.type)


# bytes of decoded batches that wait before another one is started; one step decodes no more than
# this, or one batch
DECODED_BYTES = 32 << 20
_AT_ONCE = 2  # the portion that is being consumed, and the next one

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Decoded:
    """The decoded batches of one portion so far."""

    batches: deque[pa.RecordBatch] = field(default_factory=deque)
    error: BaseException | None = None
    is_complete: bool = False


def decode_ahead(
    portions: Generator[T], decode: Callable[[T], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield every batch of every portion, in order; an error is raised in its turn. [RD40]

    While `DECODED_BYTES` of batches wait, only the next batch in order is started. Two portions are
    decoded at the same time.
    """
    ahead = _Ahead(portions, decode)
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="manifestcommit-decode")
    try:
        for _ in range(_AT_ONCE):
            pool.submit(ahead.work)
        yield from ahead.taken()
    finally:
        ahead.stop()
        pool.shutdown(wait=True)
        portions.close()  # its consumer, which waited for the next one, is gone


class _Ahead(Generic[T]):
    def __init__(
        self, portions: Iterator[T], decode: Callable[[T], Iterator[pa.RecordBatch]]
    ) -> None:
        self._portions, self._decode = portions, decode
        self._turn = threading.Lock()  # held by the thread that asks for a portion
        self._changed = threading.Condition()
        self._decoded: deque[_Decoded] = deque()  # in order
        self._waiting_bytes = 0
        self._is_over = False  # no more portions will be asked for
        self._is_stopped = False

    def work(self) -> None:
        """Decode portions until there are none left."""
        while (mine := self._next()) is not None:
            portion, decoded = mine
            try:
                for batch in self._decode(portion):
                    if not self._put(decoded, batch):
                        return
            except BaseException as error:  # raised when its batches are consumed
                decoded.error = error
            with self._changed:
                decoded.is_complete = True
                self._changed.notify_all()

    def taken(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._decoded or self._is_over)
                if not self._decoded:
                    return
                first = self._decoded[0]
            while (batch := self._take(first)) is not None:
                yield batch
            with self._changed:
                self._decoded.popleft()
                self._changed.notify_all()
            if first.error is not None:
                raise first.error

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = self._is_over = True
            self._changed.notify_all()

    def _next(self) -> tuple[T, _Decoded] | None:
        with self._turn:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_stopped or self._waiting_bytes < DECODED_BYTES
                )
                if self._is_over:
                    return None
            decoded, portion = _Decoded(), None
            try:
                portion = next(self._portions, None)
            except BaseException as error:  # raised in its turn
                decoded.error, decoded.is_complete = error, True
            with self._changed:
                self._is_over = self._is_over or portion is None
                if portion is not None or decoded.error is not None:
                    self._decoded.append(decoded)
                self._changed.notify_all()
            return None if portion is None else (portion, decoded)

    def _put(self, decoded: _Decoded, batch: pa.RecordBatch) -> bool:
        """Wait for room, then return whether the next batch is wanted."""
        with self._changed:
            decoded.batches.append(batch)
            self._waiting_bytes += batch.nbytes
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_stopped or self._has_room(decoded))
            return not self._is_stopped

    def _has_room(self, decoded: _Decoded) -> bool:
        is_awaited = decoded is self._decoded[0] and not decoded.batches
        return is_awaited or self._waiting_bytes < DECODED_BYTES

    def _take(self, decoded: _Decoded) -> pa.RecordBatch | None:
        with self._changed:
            self._changed.wait_for(lambda: decoded.batches or decoded.is_complete)
            if not decoded.batches:
                return None
            batch = decoded.batches.popleft()
            self._waiting_bytes -= batch.nbytes
            self._changed.notify_all()
            return batch

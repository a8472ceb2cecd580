"""Decodes portions of data files in threads, ahead of the consumer, in order and in bounded memory.
[RD40]

pyarrow decodes without Python's lock: while the caller processes one batch, threads decode the next
ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

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

"""Fetches and decodes portions of data files ahead of the consumer, in order and in bounded memory:
pyarrow decodes without Python's lock. A small file takes one request; of a larger one the footer is
fetched, and then the wanted columns of the wanted row groups, as concurrent ranges. [RD14] [RD40]
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ..files.footer_stats import parquet_columns
from ..files.foreign_file import MAX_FOOTER_BYTES, damaged_file, same_footer
from ..format.entries import FooterRef, pack_bins
from ..log.manifests import GAP_BYTES
from ..runtime.footer_child import chunk_span, metadata_of
from ..store import Store
from ..store.arrow_filesystem import TAIL_BYTES, RangedInput

_REQUEST_BYTES = 8 << 20
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
    """Yield every batch of every portion, in order; an error is raised in its turn. Two portions
    are decoded at once; while `DECODED_BYTES` wait, only the next batch in order. [RD40]"""
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
                self._changed.wait_for(self._may_ask)
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

    def _may_ask(self) -> bool:
        return self._is_stopped or self._waiting_bytes < DECODED_BYTES

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


# a file up to this size is fetched whole if all of its columns are wanted
SMALL_FILE_BYTES = 4 << 20
# bytes that are held or being fetched beyond the portion that is being decoded
AHEAD_BYTES = 48 << 20
FILES_AHEAD = 8  # files whose footers are fetched ahead
# decompressed bytes of row groups that are decoded together: pyarrow keeps everything that one call
# reads in memory
PORTION_BYTES = 16 << 20
_FETCHES_AT_ONCE = 8

# The row groups of a file that are wanted, and their top-level columns.
ChooseChunks: TypeAlias = Callable[[pq.ParquetFile], tuple[Sequence[int], Sequence[str]]]
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Portion:
    """Row groups of a file, bytes held or on their way. file: reads them; columns: as chosen."""

    path: str
    file: pq.ParquetFile
    groups: Sequence[int]
    columns: Sequence[str]
    held: _Held | None  # set if only a part of the file is held
    size_bytes: int


def read_ahead(
    store: Store,
    files: Iterable[tuple[str, int]],
    choose: ChooseChunks,
    *,
    all_columns: bool,
    footers: Mapping[str, FooterRef],
) -> Generator[Portion]:
    """Yield every portion of every (path, size in bytes), in order; beyond the caller's, it holds
    at most `AHEAD_BYTES` or one portion, and the next files' footers or small files. all_columns:
    whether all are wanted, as far as is known; footers: of other programs' files. [RD14] [AF3]"""
    pool = ThreadPoolExecutor(_FETCHES_AT_ONCE, thread_name_prefix="manifestcommit-read")
    ahead = _FetchedAhead(store, files, choose, all_columns, footers, pool)
    try:
        yield from iter(ahead.first, None)
    # nobody wants the rest; otherwise another thread may still decode what is being fetched
    except GeneratorExit:
        ahead.stop()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    finally:
        ahead.stop()
        pool.shutdown(wait=True)


class _FetchedAhead:
    def __init__(
        self,
        store: Store,
        files: Iterable[tuple[str, int]],
        choose: ChooseChunks,
        all_columns: bool,
        footers: Mapping[str, FooterRef],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._store, self._choose, self._all_columns, self._pool = store, choose, all_columns, pool
        self._footers = footers
        self._files = iter(files)
        self._opening: deque[Future[list[Portion]]] = deque()
        self._known: deque[Portion] = deque()  # not yet requested
        self._due: deque[Portion] = deque()
        self._due_bytes = 0
        self._turn = threading.Lock()  # held by the thread that requests more
        self._is_stopped = False

    def stop(self) -> None:
        """Make no further requests."""
        with self._turn:
            self._is_stopped = True

    def first(self) -> Portion | None:
        """The next portion, whose bytes are held or on their way; None: there is none."""
        with self._turn:
            if not self._fill(wait=True):
                return None
            portion = self._due.popleft()
            self._due_bytes -= portion.size_bytes
            self._fill(wait=False)  # so that other portions are fetched while this one is decoded
            return portion

    def _go_on(self, _: Future[list[Portion]]) -> None:
        """Request more once a footer has arrived, before the consumer asks. [RD14]"""
        # otherwise a thread, perhaps this one, is already requesting more
        if self._turn.acquire(blocking=False):
            try:
                if not self._is_stopped:
                    self._fill(wait=False)
            finally:
                self._turn.release()

    def _fill(self, *, wait: bool) -> bool:
        """Request what may be held; wait only if idle. Return whether a portion is due."""
        while (portion := self._next(wait=wait and not self._due)) is not None:
            if portion.held is not None:
                portion.held.fetch(self._pool)
            self._due.append(portion)
            self._due_bytes += portion.size_bytes
        return bool(self._due)

    def _next(self, *, wait: bool) -> Portion | None:
        while True:
            for file in islice(self._files, FILES_AHEAD - len(self._opening)):
                self._opening.append(self._pool.submit(self._open, *file))
                self._opening[-1].add_done_callback(self._go_on)
            if self._known:
                fits = not self._due or self._due_bytes + self._known[0].size_bytes <= AHEAD_BYTES
                return self._known.popleft() if fits else None
            if not self._opening or not (wait or _is_there(self._opening[0])):
                return None
            self._known.extend(self._opening.popleft().result())

    def _open(self, path: str, size_bytes: int) -> list[Portion]:
        """The portions of one file: one request if it is small, else one or two for a footer."""
        if TAIL_BYTES < size_bytes <= SMALL_FILE_BYTES and self._all_columns:
            kept = self._store.get(path, 0, size_bytes)
            return list(self._portions(path, kept, len(kept)))
        footer = self._footers.get(path)
        with self._store.open_input(path) as source:
            size = source.seek(0, io.SEEK_END)
            length = min(footer.bytes, MAX_FOOTER_BYTES) if footer is not None else 0
            source.seek(max(0, size - max(TAIL_BYTES, length)))
            kept = source.read()
        return list(self._portions(path, kept, size))

    def _portions(self, path: str, kept: bytes, size: int) -> Iterator[Portion]:
        """kept: the last bytes of the file, perhaps all."""

        def parquet(runs: Sequence[Span], metadata: Any) -> tuple[pq.ParquetFile, _Held | None]:
            held = _Held(self._store, path, (kept, size), runs) if len(kept) < size else None
            source = pa.BufferReader(kept) if held is None else held
            # Without pre_buffer, which would request several ranges as one after they were fetched.
            options = {"coerce_int96_timestamp_unit": "us", "pre_buffer": False}
            return pq.ParquetFile(source, metadata=metadata, **options), held

        footer = self._footers.get(path)
        try:
            known = None if footer is None else same_footer(kept[-footer.bytes :], footer)
        except pa.ArrowInvalid as error:
            raise damaged_file(self._store.url, path, error) from None
        first, _ = parquet((), None if known is None else metadata_of(known))
        groups, columns = self._choose(first)
        # each has a reader of its own, because they are decoded at the same time
        for some in bounded(first.metadata, groups):
            spans = _spans(first, some, columns) if len(kept) < size else []
            runs = _runs(spans, size - len(kept))
            file, held = parquet(runs, first.metadata)
            taken = len(kept) + sum(end - start for start, end in runs)
            yield Portion(path, file, some, columns, held, taken)


class _Held(RangedInput):
    """An object with its tail and some ranges held; any other read is a request."""

    def __init__(
        self, store: Store, path: str, tail: tuple[bytes, int], runs: Sequence[Span]
    ) -> None:
        super().__init__(self._range, tail)
        self._store, self._path = store, path
        self._runs = runs
        self._starts = [start for start, _ in runs]
        self._coming: list[Future[bytes]] = []

    def fetch(self, pool: ThreadPoolExecutor) -> None:
        self._coming = [
            pool.submit(self._store.get, self._path, start, end) for start, end in self._runs
        ]

    def _range(self, start: int, end: int) -> Any:
        at = bisect_right(self._starts, start) - 1
        if at < 0 or end > self._runs[at][1] or not self._coming:
            return self._store.get(self._path, start, end)
        first = self._starts[at]
        return memoryview(self._coming[at].result())[start - first : end - first]


def _is_there(opening: Future[list[Portion]]) -> bool:
    """Whether the result is there. An error is not: it is raised after all before it."""
    return opening.done() and opening.exception() is None


def bounded(metadata: Any, wanted: Iterable[int]) -> Iterator[list[int]]:
    """Group the wanted row groups: neighbours up to a bounded size together. [RD14]"""
    sized = ((group, metadata.row_group(group).total_byte_size) for group in wanted)
    return pack_bins(sized, PORTION_BYTES)


def _spans(file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> list[Span]:
    """Where the chunks of these columns are, in the order of the file."""
    found, row_groups = parquet_columns(file.schema_arrow), map(file.metadata.row_group, groups)
    positions = [column.position for column in found if column.path[0] in {*columns}]
    return sorted(chunk_span(group.column(at)) for group in row_groups for at in positions)


def _runs(spans: Sequence[Span], until: int) -> list[Span]:
    """The ranges to request: neighbours together, large ones split, none held already."""
    runs: list[Span] = []
    for start, end in spans:
        if end > until and start >= until:
            continue
        if runs and start - runs[-1][1] <= GAP_BYTES and end - runs[-1][0] <= _REQUEST_BYTES:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs

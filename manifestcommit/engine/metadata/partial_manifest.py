"""Reads a manifest by parts: its footer, then only the row groups and columns that a filter needs,
with a digest check of each part. [RD11] [OB14]
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import mmap
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...core.format import codec
from ...core.table.entries import FooterRef, ManifestRef
from ...errors import CorruptMetadataError
from ...store import Store
from ..runtime.checked_parquet import check_decoded, open_checked
from ..runtime.concurrency import map_concurrently

MAX_FOOTER_BYTES = 64 << 20
CHUNKS = b"manifestcommit.chunks"
_HELD_PER_BYTE = 8  # of a footer, approximately: the size of pyarrow's object
_DIGEST_BYTES = 16  # of each column chunk's SHA-256
# a gap between two chunks up to this length is fetched along with them
GAP_BYTES = 128 << 10


class ManifestParts:
    """The fetched parts of one manifest, in a buffer of its length: chunks are at their positions
    in the object. [RD11]

    metadata: the Parquet footer; sizes: rows of each row group; schema: of its columns; positions:
    column name -> number in Parquet's order; held_bytes: its size in memory. CorruptMetadataError
    if anything differs from the reference.
    """

    def __init__(
        self,
        store: Store,
        ref: ManifestRef,
        footer: FooterRef,
        *,
        most_bytes: int,
        most_raw_bytes: int,
    ) -> None:
        """Fetch the footer: one request. [OB14]"""
        self._store, self._path, self._most_raw_bytes = store, ref.path, most_raw_bytes
        if not 12 <= footer.bytes <= min(ref.bytes, MAX_FOOTER_BYTES) or ref.bytes > most_bytes:
            raise self._damaged(
                f"the head says that it has {ref.bytes} bytes and a footer of {footer.bytes}"
            )
        self._end = ref.bytes - footer.bytes
        data = self._get(self._end, ref.bytes + 1)
        if codec.digest(data) != footer.digest:
            raise self._damaged("its footer is not the one that the head lists")
        # The system allocates memory only for filled pages; an allocator may zero memory that was
        # used before.
        self._bytes = np.frombuffer(mmap.mmap(-1, ref.bytes), np.uint8)
        self._bytes[self._end :] = np.frombuffer(data, np.uint8)
        try:
            self._file, self._footer = open_checked(pa.BufferReader(pa.py_buffer(self._bytes)))
            self.metadata: Any = self._file.metadata
            self.schema: pa.Schema = self._file.schema_arrow
            self._digests = _digests_in(self.metadata)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(str(error)) from None
        groups = [self.metadata.row_group(index) for index in range(self.metadata.num_row_groups)]
        self.sizes = [group.num_rows for group in groups]
        if (raw := sum(group.total_byte_size for group in groups)) > most_raw_bytes:
            raise self._damaged(f"it claims {raw} bytes once decompressed")
        if min(self.sizes, default=0) < 0 or sum(self.sizes) != self.metadata.num_rows:
            raise self._damaged("its row groups have not as many rows together as it says")
        columns = self.metadata.schema
        self.positions = {
            columns.column(index).path: index for index in range(self.metadata.num_columns)
        }
        self._fetched: set[tuple[int, int]] = set()
        self.held_bytes = _HELD_PER_BYTE * footer.bytes

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """These columns of these row groups. One request for each run of adjacent chunks that has
        not been fetched yet. [RD11]"""
        missing = [chunk for chunk in self._chunks(groups, columns) if chunk not in self._fetched]
        runs = list(self._runs(missing))
        for run, data in zip(runs, map_concurrently(self._store, self._fetch, runs), strict=True):
            self._take(run, data)
        self._fetched.update(missing)
        try:
            self._check_decoded(groups, columns)
            table = self._file.read_row_groups(list(groups), columns=list(columns))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(str(error)) from None
        if table.num_rows != sum(self.sizes[group] for group in groups):
            raise self._damaged("its row groups have not as many rows as its footer says")
        return table

    def _check_decoded(self, groups: Sequence[int], columns: Sequence[str]) -> None:
        footer = self._footer
        wanted = (
            (footer.groups[group][column], footer.leaves[column])
            for group, column in self._chunks(groups, columns)
        )
        check_decoded(
            self._bytes, wanted, stored_bytes=len(self._bytes), limit=self._most_raw_bytes
        )

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        spans = chunk_spans(self.metadata)
        if len(self._digests) != _DIGEST_BYTES * len(spans):
            raise self._damaged("its footer has not one digest for each of its chunks")
        if any(not 4 <= start < end <= self._end for start, end in spans):
            raise self._damaged("its footer names chunks outside of it")
        return spans

    def _chunks(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, int]]:
        whole, members = set(columns), tuple(f"{column}." for column in columns)
        wanted = [
            at for name, at in self.positions.items() if name in whole or name.startswith(members)
        ]
        return ((group, column) for group in groups for column in wanted)

    def _runs(self, chunks: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
        """Group the numbers of the chunks: one request fetches each group, in the order of the
        object."""
        numbers = sorted(
            (group * self.metadata.num_columns + column for group, column in chunks),
            key=self._spans.__getitem__,
        )
        run: list[int] = []
        for number in numbers:
            if run and self._spans[number][0] - self._spans[run[-1]][1] > GAP_BYTES:
                yield run
                run = []
            run.append(number)
        if run:
            yield run

    def _fetch(self, run: Sequence[int]) -> bytes:
        return self._get(self._spans[run[0]][0], max(self._spans[number][1] for number in run))

    def _take(self, run: Sequence[int], data: bytes) -> None:
        view, first = memoryview(data), self._spans[run[0]][0]
        for number in run:
            start, end = self._spans[number]
            chunk = view[start - first : end - first]
            known = self._digests[number * _DIGEST_BYTES : (number + 1) * _DIGEST_BYTES]
            if len(chunk) != end - start or _digest(chunk) != known:
                raise self._damaged("its bytes are not those that its footer lists")
            self._bytes[start:end] = np.frombuffer(chunk, np.uint8)
            self.held_bytes += end - start

    def _get(self, start: int, end: int) -> bytes:
        try:
            return self._store.get(self._path, start, end)
        except FileNotFoundError:
            raise self._damaged("it is missing") from None

    def _damaged(self, reason: str) -> CorruptMetadataError:
        return CorruptMetadataError(codec.damaged(self._path, reason), object_name=self._path)


def with_chunk_digests(data: bytes) -> tuple[bytes, FooterRef]:
    """A Parquet object with the digest of each chunk in its footer, and the reference to that
    footer. [OB14]"""
    file = pq.ParquetFile(pa.BufferReader(data))
    view = memoryview(data)
    digests = b"".join(_digest(view[start:end]) for start, end in chunk_spans(file.metadata))
    known = file.schema_arrow.metadata or {}
    empty = io.BytesIO()
    pq.ParquetWriter(
        empty, file.schema_arrow.with_metadata({**known, CHUNKS: base64.b64encode(digests)})
    ).close()
    metadata = pq.read_metadata(pa.BufferReader(empty.getvalue()))
    metadata.append_row_groups(file.metadata)
    written = io.BytesIO()
    metadata.write_metadata_file(written)
    footer = written.getvalue()[4:]  # without the magic at its beginning
    ref = FooterRef(bytes=len(footer), digest=codec.digest(footer))
    return data[: len(data) - 8 - int.from_bytes(data[-8:-4], "little")] + footer, ref


def chunk_spans(metadata: Any) -> list[tuple[int, int]]:
    """Where each column chunk begins and ends: by row group, and within it by column."""
    spans = []
    for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
        for chunk in (group.column(index) for index in range(metadata.num_columns)):
            spans.append(chunk_span(chunk))
    return spans


def chunk_span(chunk: Any) -> tuple[int, int]:
    """Where a column chunk begins and ends."""
    start: int = chunk.data_page_offset
    if chunk.dictionary_page_offset:  # 0: there is none
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _digests_in(metadata: Any) -> bytes:
    try:
        return base64.b64decode((metadata.metadata or {}).get(CHUNKS, b""), validate=True)
    except binascii.Error as error:
        raise ValueError(f"the digests of its chunks are not base64: {error}") from None


def _digest(chunk: memoryview) -> bytes:
    return hashlib.sha256(chunk).digest()[:_DIGEST_BYTES]

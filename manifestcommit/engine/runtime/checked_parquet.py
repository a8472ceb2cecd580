"""Opens Parquet that other programs may have written: checks the footer before pyarrow reads it.
[AF3] [OB4]

With a forged footer, pyarrow's `column(i)` crashes the process, and no `except` helps.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...core.format.parquet_footer import (
    MAGIC,
    TAIL_BYTES,
    Chunk,
    Footer,
    Leaf,
    check_footer,
    decoded_bytes,
    footer_length,
)
from ...store.backends.arrow_filesystem import TAIL_BYTES as READ_BYTES

ROOM_BYTES = 256 << 20  # bytes that any manifest may take once decoded
GROWTH = 1024  # and how many for each stored byte
MAX_FOOTER_BYTES = 128 << 20  # pyarrow's object takes about eight times as much as the footer


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """Open the file in this seekable stream if its footer is sound; `pa.ArrowInvalid` otherwise, as
    for other damage. [AF3]

    One read of its last bytes, and another one if the footer is longer. options: as for pyarrow's
    `ParquetFile`.
    """
    return open_checked(source, **options)[0]


def open_checked(source: Any, **options: Any) -> tuple[pq.ParquetFile, Footer]:
    """Like `open_parquet`; also returns the contents of the footer."""
    footer, size = _footer_of(source)
    contents = checked(footer, size)
    return pq.ParquetFile(source, metadata=metadata_of(footer), **options), contents


def check_file(source: Any) -> Footer:
    """The contents of the footer of the file in this seekable stream; `pa.ArrowInvalid` if they are
    impossible. [AF3]"""
    return checked(*_footer_of(source))


def check_decoded(
    data: Any, chunks: Iterable[tuple[Chunk, Leaf]], *, stored_bytes: int, limit: int
) -> None:
    """ValueError if these chunks of a manifest or run may take more memory than its length allows.
    [OB4]"""
    room = min(limit, ROOM_BYTES + GROWTH * stored_bytes)
    for chunk, leaf in chunks:
        room -= chunk.raw_bytes
        if room < 0 or (room := room + chunk.raw_bytes - decoded_bytes(data, chunk, leaf)) < 0:
            raise ValueError(
                f"it takes more than {min(limit, ROOM_BYTES + GROWTH * stored_bytes)} bytes "
                "once decoded"
            )


def checked(footer: bytes, file_bytes: int) -> Footer:
    """The contents of the footer of a file of this size; `pa.ArrowInvalid` if they are impossible.
    [AF3] [OB4]"""
    try:
        return check_footer(footer, file_bytes)
    except ValueError as error:
        raise pa.ArrowInvalid(f"its Parquet footer is damaged: {error}") from None


def metadata_of(footer: bytes) -> Any:
    """pyarrow's object for a footer that has been checked."""
    whole = b"".join((MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC))
    return pq.read_metadata(pa.BufferReader(whole))


def _footer_of(source: Any) -> tuple[bytes, int]:
    """The footer, and the length of the file."""
    size = source.seek(0, os.SEEK_END)
    source.seek(max(0, size - READ_BYTES))
    tail = bytes(source.read(READ_BYTES))
    try:
        length = footer_length(tail[-TAIL_BYTES:], size)
        if length > MAX_FOOTER_BYTES:
            raise ValueError(
                f"its footer has {length} bytes, more than the {MAX_FOOTER_BYTES} that are read"
            )
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from None
    if length + TAIL_BYTES <= len(tail):
        return tail[-TAIL_BYTES - length : -TAIL_BYTES], size
    source.seek(size - TAIL_BYTES - length)
    return bytes(source.read(length)), size

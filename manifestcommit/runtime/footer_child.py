"""Reads footers of Parquet files that other programs wrote: a child process,
which may die of one. [AF3]

It imports no more than it needs: each child has to load it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

MAGIC = b"PAR1"
SIZE_BYTES = 8  # of a number between the two processes
IDLE_S = 60.0


def answer(questions: BinaryIO, answers: BinaryIO) -> None:
    """Judge footers until there are no more, or none for a while: what the child does."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # of POSIX only

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (asked := _next(questions)) is not None:
        file_bytes, footer = asked
        try:
            reason = what_is_wrong(footer, file_bytes)
        except Exception as error:
            reason = str(error) or type(error).__name__
        put(answers, b"", reason.encode("utf-8", "replace"))


def _next(questions: BinaryIO) -> tuple[int, bytes] | None:
    idle = threading.Timer(IDLE_S, os._exit, (0,))
    idle.daemon = True
    idle.start()
    try:
        size = questions.read(SIZE_BYTES)
        footer = take(questions) if size else None
    finally:
        idle.cancel()
    return None if footer is None else (int.from_bytes(size, "big"), footer)


def put(stream: BinaryIO, head: bytes, body: bytes) -> None:
    stream.write(head + len(body).to_bytes(SIZE_BYTES, "big") + body)
    stream.flush()


def take(stream: BinaryIO) -> bytes | None:
    size = stream.read(SIZE_BYTES)
    if len(size) < SIZE_BYTES:
        return None
    body = stream.read(int.from_bytes(size, "big"))
    return body if len(body) == int.from_bytes(size, "big") else None


def what_is_wrong(footer: bytes, file_bytes: int) -> str:
    """Read all of a footer; what is impossible in a file of this size, or nothing. [AF3]"""
    metadata = metadata_of(footer)
    # each decodes texts
    metadata.schema.to_arrow_schema()
    str(metadata.created_by)
    until, rows = file_bytes - len(footer), 0
    for group in (metadata.row_group(at) for at in range(metadata.num_row_groups)):
        rows += group.num_rows
        if group.num_rows < 0 or group.total_byte_size < 0:
            return "a row group has a negative size"
        if group.num_columns != metadata.num_columns:
            return f"a row group has {group.num_columns} columns, the file {metadata.num_columns}"
        for at in range(metadata.num_columns):
            column, leaf = group.column(at), metadata.schema.column(at)
            if reason := _wrong_chunk(column, leaf, group.num_rows, until):
                return f"column {leaf.path!r} {reason}"
    if rows != metadata.num_rows:
        return f"its row groups have {rows} rows together, its footer says {metadata.num_rows}"
    return ""


def _wrong_chunk(chunk: Any, leaf: Any, rows: int, until: int) -> str:
    start, end = chunk_span(chunk)
    stored, values = end - start, chunk.num_values
    if chunk.physical_type != leaf.physical_type or chunk.path_in_schema != leaf.path:
        return "has another type or name in a row group than in the schema"
    if chunk.file_path:
        return "is in another file"
    # pyarrow's own chunks begin at 0 if they have no values
    is_inside = 0 <= start <= until - stored and chunk.data_page_offset <= until
    if not is_inside or stored < 0 or chunk.total_uncompressed_size < 0:
        return f"is outside of the file: {stored} bytes from {start}"
    if values < rows if leaf.max_repetition_level else values != rows:
        return f"has {values} values in a row group of {rows} rows"
    statistics = chunk.statistics
    if statistics is None:
        return ""
    if statistics.has_min_max:
        statistics.to_dict()  # decodes the bounds
    if statistics.has_null_count and not 0 <= statistics.null_count <= values:
        return f"has {statistics.null_count} nulls among {values} values"
    return ""


def metadata_of(footer: bytes) -> Any:
    """pyarrow's object for a footer, with its length and magic."""
    return pq.read_metadata(pa.BufferReader(MAGIC + footer))


def chunk_span(chunk: Any) -> tuple[int, int]:
    """Where a column chunk begins and ends: with its dictionary, if it has one."""
    start: int = chunk.data_page_offset
    if chunk.dictionary_page_offset:  # 0: there is none
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size

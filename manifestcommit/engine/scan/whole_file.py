"""Decodes a data file from one read of all its bytes, which are compared with its digest. [RC1]
[RD2]

A scan of pyarrow costs more than a small file: it starts threads, each with memory of its own, and
its module takes long to load. Not here: files that are scanned (engine.scan.arrow_dataset).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ...core.format import codec
from ...core.schema import arrow_schema
from ...core.schema.fields import Schema
from ...core.schema.read_mark import arrow_metadata, mark_of
from ...core.table.snapshot import Snapshot
from ...errors import CorruptMetadataError
from ...store.base import Store, is_remote
from ..metadata.table_context import TableContext
from ..runtime.checked_parquet import open_parquet
from ..runtime.concurrency import map_concurrently

_REQUEST_BYTES = 8 << 20


def table_schemas(session: TableContext, snapshot: Snapshot) -> tuple[pa.Schema, pa.Schema]:
    """The columns as users see them, and as files have them; of both, rows carry the version that
    they were read from. [CF17]"""
    schema = snapshot.schema or Schema(fields=())
    mark = arrow_metadata(mark_of(snapshot.table_id, session.store.url, snapshot.version))
    logical, physical = (
        arrow_schema.arrow_schema(schema, physical=is_physical, ids=False).with_metadata(mark)
        for is_physical in (False, True)
    )
    return logical, physical


def batches_of(
    session: TableContext,
    snapshot: Snapshot,
    entry: pa.Table,
    columns: list[str] | None,
    batch_rows: int,
    *,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch] | None:
    """The rows of one file, with user-visible names of columns; None if it has to be scanned:
    another program wrote it, or a column is not stored in the type that the table has now.
    CorruptMetadataError where it is not what was written: a file that is rewritten from it would
    have a digest that hides the damage. use_threads: decode its columns in several."""
    digest = entry.column("digest")[0].as_py()
    if digest is None:
        return None  # its footer is checked first [AF3]
    logical, physical = table_schemas(session, snapshot)
    names = logical.names if columns is None else columns
    places = [logical.get_field_index(name) for name in names]
    path, size = (entry.column(name)[0].as_py() for name in ("path", "bytes"))
    data = _bytes(session.store, path, size)
    if codec.digest(data) != digest:
        raise _damaged(session.store.url, path)
    file = open_parquet(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
    stored = [physical.field(place) for place in places]
    if not all(_has(file.schema_arrow, field) for field in stored):
        return None
    shown = pa.schema([logical.field(place) for place in places], logical.metadata)
    chosen = [field.name for field in stored]
    return (
        pa.RecordBatch.from_arrays([batch.column(name) for name in chosen], schema=shown)
        for batch in file.iter_batches(batch_rows, columns=chosen, use_threads=use_threads)
    )


def _bytes(store: Store, path: str, size: int) -> bytes:
    """All bytes of a file; a connection to a store behind a network brings a part of what several
    bring together."""
    if not is_remote(store) or size <= _REQUEST_BYTES:
        return store.get(path, 0, size)

    def part(start: int) -> bytes:
        return store.get(path, start, min(size, start + _REQUEST_BYTES))

    return b"".join(map_concurrently(store, part, range(0, size, _REQUEST_BYTES)))


def _damaged(url: str, path: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"{url}: data file {path} is damaged: its digest is not that of what was written. No row "
        "of it was read, and nothing was committed. Restore the file, or remove it from the table: "
        "overwrite its partition, or roll back to a version that does not list it.",
        object_name=path,
    )


def _has(file: pa.Schema, column: pa.Field) -> bool:
    """Whether the file has exactly one such column, of the same type."""
    found = file.get_all_field_indices(column.name)
    return len(found) == 1 and file.field(found[0]).type.equals(column.type)

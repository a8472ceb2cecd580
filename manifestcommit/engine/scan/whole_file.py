"""Decodes a data file from one read of all its bytes, which are compared with its digest. [RC1]
[RD2]

A scan of pyarrow costs more than a small file: it starts threads, each with memory of its own, and
its module takes long to load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa

from ...core.format import codec
from ...core.schema.arrow_schema import marked_schemas
from ...core.table.snapshot import Snapshot
from ...errors import CorruptMetadataError
from ...store.base import is_remote
from ..metadata.table_context import TableContext
from ..runtime.checked_parquet import open_parquet
from ..runtime.concurrency import map_in_batches

_REQUEST_BYTES = 8 << 20


def checked_bytes(session: TableContext, entry: pa.Table) -> bytes | None:
    """All bytes of one file; None if another program wrote it: its footer is checked first [AF3].
    CorruptMetadataError where they are not what was written: a file with the same rows would have a
    digest that hides the damage. [RC1]"""
    digest = entry.column("digest")[0].as_py()
    if digest is None:
        return None
    data = b"".join(_parts(session, entry, together=not is_remote(session.store)))
    if codec.digest(data) != digest:
        raise _damaged(session.store.url, entry)
    return data


def check_digest(session: TableContext, entry: pa.Table) -> None:
    """CorruptMetadataError where the file is not what was written; its parts are not held."""
    digest, found = entry.column("digest")[0].as_py(), hashlib.sha256()
    if digest is not None:
        for part in _parts(session, entry):
            found.update(part)
        if codec.digest_of(found) != digest:
            raise _damaged(session.store.url, entry)


def batches_of(
    session: TableContext,
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
        snapshot.schema, snapshot.table_id, session.store.url, snapshot.version
    )
    names = logical.names if columns is None else columns
    places = [logical.get_field_index(name) for name in names]
    file = open_parquet(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
    stored = [physical.field(place) for place in places]
    if not all(_has(file.schema_arrow, field) for field in stored):
        # a column is younger than the file, or has another type by now
        from .arrow_dataset import open_dataset  # late: pyarrow.dataset takes long to load

        held = open_dataset(session, snapshot, entry, data)
        yield from held.to_batches(columns=names, batch_size=batch_rows, use_threads=use_threads)
        return
    shown = pa.schema([logical.field(place) for place in places], logical.metadata)
    chosen = [field.name for field in stored]
    for batch in file.iter_batches(batch_rows, columns=chosen, use_threads=use_threads):
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in chosen], schema=shown)


def _parts(session: TableContext, entry: pa.Table, *, together: bool = False) -> Iterator[bytes]:
    """The bytes of a file in order: from a store behind a network by concurrent requests, since one
    connection does not use its bandwidth. together: in one part."""
    path, size = (entry.column(name)[0].as_py() for name in ("path", "bytes"))
    store = session.store
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

"""Manifests and runs as objects: Parquet bytes, bounded and verified on the way in, cached because they never change. [OB6] [OB11]

Not here: what stands in their rows (core.manifest_table), when they are written (core.spill, engine.spilling).
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core import bitmap, format, manifest_table
from ..core.manifest import Entry, FooterRef, ManifestRef
from ..core.schema import Schema
from ..core.snapshot import RunRef, Snapshot
from ..core.touch import Touch, once
from ..errors import CorruptMetadataError, StoreUnclearError
from ..store import Store
from .env import Env
from .parts import ManifestParts, with_chunk_digests

MAX_MANIFEST_BYTES = 1 << 30  # of a manifest or run object
MAX_MANIFEST_RAW_BYTES = 4 << 30  # of its pages once decompressed
ROW_GROUP_ENTRIES = 16_384
PART_BYTES = 1 << 20  # a manifest up to this size is always read whole: it takes no longer than its footer
_CACHED = 64
_CACHED_BYTES = 512 << 20  # of their tables, and as much of those that are read by parts
_TRIES = 8  # at a create that gets no clear answer
_PAUSE_S = 0.05
KEY_RUN = pa.schema([pa.field("key", pa.string(), False), pa.field("version", pa.int64(), False), pa.field("digest", pa.string(), False)])
JOB_RUN = pa.schema([pa.field("job", pa.string(), False), pa.field("version", pa.int64())])  # null: given up
REMOVED_RUN = pa.schema([pa.field("path", pa.string(), False), pa.field("bitmap", pa.string(), False)])


class ManifestReader:
    """Manifests and runs of one table, each fetched once and checked against the digest in its reference. [OB4] [OB6]

    May be used by several threads at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[Hashable, pa.Table] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}  # of what is in there
        self._parts: OrderedDict[Hashable, ManifestParts] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ManifestReader], tuple[Store]]:
        return ManifestReader, (self._store,)  # in another process it begins with nothing in memory

    def manifest(self, ref: ManifestRef, partition_by: Sequence[int]) -> pa.Table:
        """The manifest's table, all rows as written. One request. [OB6]"""
        key = (ref.path, ref.digest, ref.files, tuple(partition_by))
        if (known := self._known(key)) is not None:
            return known
        table = _parse(self._fetch(ref.path, ref.bytes, ref.digest), ref.path)
        try:
            manifest_table.check_table(table, ref, partition_by)
        except (ValueError, msgspec.DecodeError) as error:
            raise CorruptMetadataError(format.damaged(ref.path, str(error)), object_name=ref.path) from None
        return self._keep(key, table)

    def parts(self, ref: ManifestRef, partition_by: Sequence[int]) -> ManifestParts | None:
        """The manifest to be read by parts; None where it is read whole: it is small, in memory, or has no footer that is known. [RD11]"""
        if ref.footer is None or ref.bytes <= PART_BYTES or self._known((ref.path, ref.digest, ref.files, tuple(partition_by))) is not None:
            return None
        key = (ref.path, ref.bytes, ref.files, ref.footer.bytes, ref.footer.digest, tuple(partition_by))
        with self._lock:
            found = self._parts.get(key)
        if found is None:
            found = ManifestParts(self._store, ref, ref.footer, most_bytes=MAX_MANIFEST_BYTES, most_raw_bytes=MAX_MANIFEST_RAW_BYTES)
            try:
                manifest_table.check_columns(found.schema, found.metadata.num_rows, ref, partition_by)
            except ValueError as error:
                raise CorruptMetadataError(format.damaged(ref.path, str(error)), object_name=ref.path) from None
        with self._lock:
            self._parts[key] = found
            self._parts.move_to_end(key)
            held = sum(each.held_bytes for each in self._parts.values())  # they grow while they are in use
            while len(self._parts) > _CACHED or (len(self._parts) > 1 and held > _CACHED_BYTES):
                held -= self._parts.popitem(last=False)[1].held_bytes
        return found

    def live(self, ref: ManifestRef, snapshot: Snapshot, removed: int) -> pa.Table:
        """The live rows of one manifest, in the types of the snapshot's schema, each with its version. [OB9] [OB13]"""
        check_removed(ref, removed)
        return aligned(manifest_table.live(self.manifest(ref, snapshot.partition_by), removed), ref, snapshot)

    def entries(self, ref: ManifestRef, snapshot: Snapshot) -> list[Entry]:
        """The live entries of one manifest. [OB9]"""
        assert snapshot.schema is not None
        table = self.live(ref, snapshot, self.removed(snapshot).get(ref.path, 0))
        return manifest_table.from_table(table, schema=snapshot.schema, partition_by=snapshot.partition_by, inherited=ref.added)

    def inlined(self, snapshot: Snapshot) -> pa.Table:
        """The entries that the snapshot itself carries, in the form of a manifest's table. No request. [OB5]"""
        assert snapshot.schema is not None
        try:
            return manifest_table.to_table(snapshot.added, schema=snapshot.schema, partition_by=snapshot.partition_by)
        except (pa.ArrowException, ValueError) as error:  # a partition value or a bound that its column's type does not have
            name = format.version_name(snapshot.version)
            raise CorruptMetadataError(format.damaged(name, str(error)), object_name=name) from None

    def removed(self, snapshot: Snapshot) -> dict[str, int]:
        """Manifest path -> rows taken away, inlined and spilled together. [OB9]"""
        united = {path: bitmap.decode(text) for path, text in snapshot.removed.items()}
        for run in snapshot.removed_runs:
            table = self.run(run, REMOVED_RUN)
            for path, text in zip(table.column("path").to_pylist(), table.column("bitmap").to_pylist(), strict=True):
                try:
                    united[path] = united.get(path, 0) | bitmap.decode(text)
                except ValueError as error:
                    raise CorruptMetadataError(format.damaged(run.path, str(error)), object_name=run.path) from None
        return united

    def run(self, ref: RunRef, kind: pa.Schema) -> pa.Table:
        """A run's table, with exactly these columns. One request. [OB11]"""
        key = (ref.path, ref.digest)
        table = self._known(key)
        if table is None:
            table = self._keep(key, _parse(self._fetch(ref.path, ref.bytes, ref.digest), ref.path))
        fits = [(field.name, field.type) for field in table.schema] == [(field.name, field.type) for field in kind]
        if not fits or table.num_rows != ref.rows or any(table.column(f.name).null_count for f in kind if not f.nullable):
            reason = "its columns or its rows are not what the head says"
            raise CorruptMetadataError(format.damaged(ref.path, reason), object_name=ref.path)
        return table

    def lookup(self, runs: Sequence[RunRef], wanted: str, kind: pa.Schema) -> dict[str, object] | None:
        """The row of a spilled key or job, or None. One request per run whose bounds contain it. [OB11]"""
        for run in reversed(runs):
            if run.first <= wanted <= run.last:
                table = self.run(run, kind)
                at = pc.index(table.column(0), wanted).as_py()
                if at >= 0:
                    row: dict[str, object] = table.slice(at, 1).to_pylist()[0]
                    return row
        return None

    def columns(self, ref: ManifestRef, snapshot: Snapshot, removed: int, names: Sequence[str]) -> pa.Table:
        """These columns of the live rows of one manifest, as `live` has them, but no path is looked at. One request. [OB9]

        What is not in memory is not cached.
        """
        if self._known((ref.path, ref.digest, ref.files, tuple(snapshot.partition_by))) is not None:
            return self.live(ref, snapshot, removed).select(names)
        check_removed(ref, removed)
        table = _parse(self._fetch(ref.path, ref.bytes, ref.digest), ref.path, list(names))
        are_whole = not any(table.column(name).null_count for name in ("path", "rows", "bytes") if name in table.column_names)
        if set(table.column_names) != set(names) or table.num_rows != ref.files or not are_whole:
            raise CorruptMetadataError(format.damaged(ref.path, "its rows are not what the head says"), object_name=ref.path)
        return aligned(manifest_table.live(table, removed), ref, snapshot).select(names)

    def paths(self, ref: ManifestRef) -> list[str]:
        """The paths of all rows as written, in their order, and nothing else of them in memory; not cached. One request. [OB6]"""
        table = _parse(self._fetch(ref.path, ref.bytes, ref.digest), ref.path, ["path"])
        paths: list[str] = table.column(0).to_pylist() if table.column_names == ["path"] else []
        if len(paths) != ref.files or None in paths:
            raise CorruptMetadataError(format.damaged(ref.path, "its rows are not what the head says"), object_name=ref.path)
        return paths

    def touched(self, refs: Sequence[ManifestRef], *, schema: Schema, partition_by: Sequence[int]) -> tuple[Touch, ...]:
        """The partitions of all rows as written, each once; nothing else of them is in memory or cached. A request each, if any. [OB6]"""
        if not partition_by:
            return ({},) if refs else ()
        names = [f"partition.{each}" for each in partition_by]

        def partitions() -> Iterator[Touch]:
            for ref in refs:
                table = _parse(self._fetch(ref.path, ref.bytes, ref.digest), ref.path, names)
                if set(table.column_names) != set(names) or table.num_rows != ref.files:
                    raise CorruptMetadataError(format.damaged(ref.path, "its rows are not what the head says"), object_name=ref.path)
                yield from manifest_table.partitions(table, schema, partition_by)

        return once(partitions())

    def _known(self, key: Hashable) -> pa.Table | None:
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
            return self._cache.get(key)

    def _keep(self, key: Hashable, table: pa.Table) -> pa.Table:
        size_bytes = table.nbytes
        with self._lock:
            self._cache[key], self._sizes[key] = table, size_bytes
            while len(self._cache) > _CACHED or (len(self._cache) > 1 and sum(self._sizes.values()) > _CACHED_BYTES):
                del self._sizes[self._cache.popitem(last=False)[0]]
        return table

    def _fetch(self, path: str, size_bytes: int, digest: str) -> bytes:
        if not 0 < size_bytes <= MAX_MANIFEST_BYTES:
            raise CorruptMetadataError(format.damaged(path, f"the head says that it has {size_bytes} bytes"), object_name=path)
        try:
            data = self._store.get(path, 0, size_bytes + 1)
        except FileNotFoundError:
            raise CorruptMetadataError(format.damaged(path, "it is missing"), object_name=path) from None
        if format.digest(data) != digest:
            raise CorruptMetadataError(format.damaged(path, "its bytes are not those that the head lists"), object_name=path)
        return data


def aligned(table: pa.Table, ref: ManifestRef, snapshot: Snapshot) -> pa.Table:
    """Columns of a manifest in the types of the snapshot's schema, and each entry's version where it is among them. [OB6] [OB13]"""
    assert snapshot.schema is not None  # a table without a schema has no files
    try:
        table = manifest_table.align(table, schema=snapshot.schema, partition_by=snapshot.partition_by)
    except (pa.ArrowException, ValueError) as error:  # a column that is none of the table's type
        raise CorruptMetadataError(format.damaged(ref.path, str(error)), object_name=ref.path) from None
    return manifest_table.with_versions(table, ref.added)


def check_removed(ref: ManifestRef, removed: int) -> None:
    """CorruptMetadataError where more rows were taken out of a manifest than it has. [OB9]"""
    if removed >> ref.files:
        raise CorruptMetadataError(format.damaged(ref.path, "more rows were taken out of it than it has"), object_name=ref.path)


def write_manifest(
    store: Store,
    entries: Sequence[Entry],
    *,
    schema: Schema,
    partition_by: Sequence[int],
    job: str,
    env: Env,
) -> ManifestRef:
    """Put the entries as one manifest of `job` and return its reference; entries without a version inherit. One request. [OB6] [DF2]"""
    return put_manifest(
        store,
        manifest_table.to_table(entries, schema=schema, partition_by=partition_by),
        schema=schema,
        partition_by=partition_by,
        job=job,
        env=env,
    )


def put_manifest(store: Store, table: pa.Table, *, schema: Schema, partition_by: Sequence[int], job: str, env: Env) -> ManifestRef:
    """Put a manifest's table and return its reference. One request. [OB6]"""
    data, footer = manifest_bytes(table)
    path = format.manifest_name(job, env.randomness(16))
    create_own(store, path, data, env)
    described = manifest_table.describe(table, schema=schema, partition_by=partition_by)
    return ManifestRef(path=path, bytes=len(data), digest=format.digest(data), footer=footer, **described)


def put_run(store: Store, columns: Mapping[str, pa.Array], *, job: str, env: Env) -> RunRef:
    """Put a run, sorted by its first column, and return its reference. One request. [OB11]"""
    first = next(iter(columns))
    table = pa.table(dict(columns)).sort_by(first)
    path, data = format.manifest_name(job, env.randomness(16)), to_parquet(table)
    create_own(store, path, data, env)
    names = table.column(first)
    return RunRef(
        path=path,
        rows=table.num_rows,
        bytes=len(data),
        digest=format.digest(data),
        first=names[0].as_py(),
        last=names[-1].as_py(),
    )


def create_own(store: Store, path: str, data: bytes, env: Env) -> None:
    """Put an object under a name that no one else can have: after an unclear answer the same bytes again, taken by them is done. [LY8]"""
    for tried in range(1, _TRIES + 1):
        try:
            created = store.put_if_absent(path, data)
        except StoreUnclearError:
            if tried == _TRIES:
                raise
            env.sleep(_PAUSE_S * 2.0**tried * env.jitter())
            continue
        if not created and format.digest(store.get(path, 0, len(data) + 1)) != format.digest(data):
            raise CorruptMetadataError(f"{path} holds other bytes than its job wrote; run the job again", object_name=path)
        return


def manifest_bytes(table: pa.Table) -> tuple[bytes, FooterRef | None]:
    """A manifest as Parquet, and what is to be known of its footer where it is large enough to be read by parts. [OB13] [OB14]

    What filters ask stands together, before paths, digests and jobs, so that one request brings it.
    """
    small = [name for name in table.column_names if name in _COUNTS or "." in name]
    repeated = [name for name in table.column_names if name in _REPEATED or name.partition(".")[0] in _REPEATED]
    packed = [name for name in small if name not in repeated and _is_whole(table.schema.field(name).type)]
    data = to_parquet(
        table.select([*small, *(name for name in table.column_names if name not in small)]),
        use_dictionary=[*repeated, *(f"sources.list.element.{name}" for name in ("source", "start", "end"))],
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED") or None,
        write_statistics=[*small, "path"],
    )
    if len(data) <= PART_BYTES or manifest_table.has_nan_bounds(table):
        return data, None
    return with_chunk_digests(data)


_COUNTS = ("rows", "bytes", "added")
_REPEATED = ("added", "job", "extra", "partition", "nulls", "nans", "cuts")


def _is_whole(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(kind) or t.is_date32(kind) or t.is_timestamp(kind) or t.is_duration(kind))


def to_parquet(table: pa.Table, **options: Any) -> bytes:
    """The table as Parquet: zstd, row groups that prune, statistics and page indexes. [OB13]"""
    sink = io.BytesIO()
    tagged = table.replace_schema_metadata({"manifestcommit.format_version": "1"})
    pq.write_table(tagged, sink, compression="zstd", row_group_size=ROW_GROUP_ENTRIES, write_page_index=True, **options)
    return sink.getvalue()


def _parse(data: bytes, path: str, columns: list[str] | None = None) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        raw = sum(file.metadata.row_group(index).total_byte_size for index in range(file.metadata.num_row_groups))
        if raw > MAX_MANIFEST_RAW_BYTES:
            raise CorruptMetadataError(format.damaged(path, f"it claims {raw} bytes once decompressed"), object_name=path)
        return file.read(columns, use_threads=columns is None)  # a few columns take one thread no longer, and less memory
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptMetadataError(format.damaged(path, str(error)), object_name=path) from None

"""Manifests and runs as objects: Parquet bytes, bounded and verified on the way in, cached because they never change. [OB6] [OB11]

Not here: what stands in their rows (core.manifest_table), when they are written (core.spill, engine.spilling).
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core import bitmap, format, manifest_table
from ..core.manifest import Entry, ManifestRef
from ..core.schema import Schema
from ..core.snapshot import RunRef, Snapshot
from ..core.touch import Touch, once
from ..errors import CorruptMetadataError, StoreUnclearError
from ..store import Store
from .env import Env

MAX_MANIFEST_BYTES = 1 << 30  # of a manifest or run object
MAX_MANIFEST_RAW_BYTES = 4 << 30  # of its pages once decompressed
ROW_GROUP_ENTRIES = 16_384
_CACHED = 64
_TRIES = 8  # at a create that gets no clear answer
_PAUSE_S = 0.05
KEY_RUN = pa.schema([pa.field("key", pa.string(), False), pa.field("version", pa.int64(), False), pa.field("digest", pa.string(), False)])
JOB_RUN = pa.schema([pa.field("job", pa.string(), False), pa.field("version", pa.int64())])  # null: given up
REMOVED_RUN = pa.schema([pa.field("path", pa.string(), False), pa.field("bitmap", pa.string(), False)])


class ManifestReader:
    """Manifests and runs of one table, each fetched once and checked against the digest in its reference. [OB4] [OB6]"""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[str, pa.Table] = OrderedDict()

    def manifest(self, ref: ManifestRef, partition_by: Sequence[int]) -> pa.Table:
        """The manifest's table, all rows as written. One request. [OB6]"""
        table = self._read(ref.path, ref.bytes, ref.digest)
        try:
            manifest_table.check_table(table, ref, partition_by)
        except (ValueError, msgspec.DecodeError) as error:
            raise CorruptMetadataError(format.damaged(ref.path, str(error)), object_name=ref.path) from None
        return table

    def live(self, ref: ManifestRef, snapshot: Snapshot, removed: int) -> pa.Table:
        """The live rows of one manifest, in the types of the snapshot's schema, each with its version. [OB9] [OB13]"""
        assert snapshot.schema is not None  # a table without a schema has no files
        if removed >> ref.files:
            raise CorruptMetadataError(format.damaged(ref.path, "more rows were taken out of it than it has"), object_name=ref.path)
        table = manifest_table.live(self.manifest(ref, snapshot.partition_by), removed)
        try:
            aligned = manifest_table.align(table, schema=snapshot.schema, partition_by=snapshot.partition_by)
        except (pa.ArrowException, ValueError) as error:  # a column that is none of the table's type
            raise CorruptMetadataError(format.damaged(ref.path, str(error)), object_name=ref.path) from None
        return manifest_table.with_versions(aligned, ref.added)

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
        table = self._read(ref.path, ref.bytes, ref.digest)
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
        found: tuple[Touch, ...] = ()
        for ref in refs:
            table = _parse(self._fetch(ref.path, ref.bytes, ref.digest), ref.path, names)
            if set(table.column_names) != set(names) or table.num_rows != ref.files:
                raise CorruptMetadataError(format.damaged(ref.path, "its rows are not what the head says"), object_name=ref.path)
            found = once((*found, *manifest_table.partitions(table, schema, partition_by)))
        return found

    def _read(self, path: str, size_bytes: int, digest: str) -> pa.Table:
        if path in self._cache:
            self._cache.move_to_end(path)
            return self._cache[path]
        table = _parse(self._fetch(path, size_bytes, digest), path)
        self._cache[path] = table
        while len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
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
    path, data = format.manifest_name(job, env.randomness(16)), to_parquet(table)
    create_own(store, path, data, env)
    described = manifest_table.describe(table, schema=schema, partition_by=partition_by)
    return ManifestRef(path=path, bytes=len(data), digest=format.digest(data), **described)


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


def to_parquet(table: pa.Table) -> bytes:
    """The table as Parquet: zstd, row groups that prune, statistics and page indexes. [OB13]"""
    sink = io.BytesIO()
    tagged = table.replace_schema_metadata({"manifestcommit.format_version": "1"})
    pq.write_table(tagged, sink, compression="zstd", row_group_size=ROW_GROUP_ENTRIES, write_page_index=True)
    return sink.getvalue()


def _parse(data: bytes, path: str, columns: list[str] | None = None) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        raw = sum(file.metadata.row_group(index).total_byte_size for index in range(file.metadata.num_row_groups))
        if raw > MAX_MANIFEST_RAW_BYTES:
            raise CorruptMetadataError(format.damaged(path, f"it claims {raw} bytes once decompressed"), object_name=path)
        return file.read(columns)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptMetadataError(format.damaged(path, str(error)), object_name=path) from None

"""Reads and writes manifests and runs: Parquet objects, bounded and verified on read, and cached
because they never change. [OB6] [OB11]
"""

from __future__ import annotations

import base64
import hashlib
import io
import mmap
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import CorruptMetadataError, UsageError
from ..format import codec, manifest_table, object_names
from ..format.entries import Entry, FooterRef, ManifestRef, decode
from ..format.fields import Shape
from ..format.partitioning import PartitionPattern, dedupe
from ..format.snapshot import RunRef, Snapshot
from ..runtime.environment import Env, create, map_concurrently
from ..runtime.footer_child import chunk_span
from ..store import Store

# Reads a manifest by parts: its footer, then only the row groups and columns that a filter needs,
# with a digest check of each part.

MAX_FOOTER_BYTES = 64 << 20
CHUNKS = b"manifestcommit.chunks"
_HELD_PER_BYTE = 8  # of a footer, approximately: the size of pyarrow's object
_DIGEST_BYTES = 16  # of each column chunk's SHA-256
# a gap between two chunks up to this length is fetched along with them
GAP_BYTES = 128 << 10


class ManifestParts:
    """The fetched parts of one manifest, in a buffer of its length: chunks are at their positions
    in the object. [RD11] metadata: the Parquet footer; sizes: rows of each row group; schema: of
    its columns; positions: column name -> number in Parquet's order; nbytes: its size in memory.
    CorruptMetadataError if anything differs from the reference."""

    def __init__(self, store: Store, ref: ManifestRef, footer: FooterRef) -> None:
        """Fetch the footer: one request. [OB14]"""
        self._store, self._path = store, ref.path
        is_sound = 12 <= footer.bytes <= min(ref.bytes, MAX_FOOTER_BYTES)
        if not is_sound or ref.bytes > MAX_MANIFEST_BYTES:
            said = f"{ref.bytes} bytes and a footer of {footer.bytes}"
            raise self._damaged(f"the head says that it has {said}")
        self._end = ref.bytes - footer.bytes
        data = self._get(self._end, ref.bytes + 1)
        if codec.digest(data) != footer.digest:
            raise self._damaged("its footer is not the one that the head lists")
        # The system allocates memory only for filled pages; an allocator may zero memory that was
        # used before.
        self._bytes = mmap.mmap(-1, ref.bytes)
        self._bytes[self._end :] = data
        try:
            self._file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._bytes)))
            self.metadata: Any = self._file.metadata
            self.schema: pa.Schema = self._file.schema_arrow
            known = (self.metadata.metadata or {}).get(CHUNKS, b"")
            self._digests = base64.b64decode(known, validate=True)
        except (pa.ArrowException, OSError, ValueError) as error:  # of base64, too
            raise self._damaged(str(error)) from None
        groups = [self.metadata.row_group(index) for index in range(self.metadata.num_row_groups)]
        self.sizes = [group.num_rows for group in groups]
        if (raw := sum(group.total_byte_size for group in groups)) > MAX_MANIFEST_RAW_BYTES:
            raise self._damaged(f"it claims {raw} bytes once decompressed")
        if min(self.sizes, default=0) < 0 or sum(self.sizes) != self.metadata.num_rows:
            raise self._damaged("its row groups have not as many rows together as it says")
        schema = self.metadata.schema
        self.positions = {schema.column(at).path: at for at in range(self.metadata.num_columns)}
        self._fetched: set[tuple[int, int]] = set()
        self.nbytes = _HELD_PER_BYTE * footer.bytes

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """These columns of these row groups. One request per run of new chunks. [RD11]"""
        missing = [chunk for chunk in self._chunks(groups, columns) if chunk not in self._fetched]
        runs = list(self._runs(missing))
        for run, data in zip(runs, map_concurrently(self._store, self._fetch, runs), strict=True):
            self._take(run, data)
        self._fetched.update(missing)
        try:
            check_decoded(self._file, self._bytes, self._chunks(groups, columns))
            table = self._file.read_row_groups(list(groups), columns=list(columns))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(str(error)) from None
        if table.num_rows != sum(self.sizes[group] for group in groups):
            raise self._damaged("its row groups have not as many rows as its footer says")
        return table

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        spans = chunk_spans(self.metadata)
        if len(self._digests) != _DIGEST_BYTES * len(spans):
            raise self._damaged("its footer has not one digest for each of its chunks")
        if any(not 4 <= start < end <= self._end for start, end in spans):
            raise self._damaged("its footer names chunks outside of it")
        return spans

    def _chunks(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, int]]:
        wanted = positions_of(self.metadata, columns)
        return ((group, column) for group in groups for column in wanted)

    def _runs(self, chunks: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
        """Group the numbers of chunks: one request fetches each group, in their order."""
        width, start_of = self.metadata.num_columns, self._spans.__getitem__
        numbers = sorted((group * width + column for group, column in chunks), key=start_of)
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
            self._bytes[start:end] = chunk
            self.nbytes += end - start

    def _get(self, start: int, end: int) -> bytes:
        try:
            return self._store.get(self._path, start, end)
        except FileNotFoundError:
            raise self._damaged("it is missing") from None

    def _damaged(self, reason: str) -> CorruptMetadataError:
        return codec.damaged(self._path, reason)


def positions_of(metadata: Any, columns: Sequence[str] | None) -> list[int]:
    """The leaf columns of a Parquet file that make up these columns; None: all."""
    if columns is None:
        return list(range(metadata.num_columns))
    whole, members = set(columns), tuple(f"{column}." for column in columns)
    names = (metadata.schema.column(at).path for at in range(metadata.num_columns))
    return [at for at, name in enumerate(names) if name in whole or name.startswith(members)]


def check_decoded(file: pq.ParquetFile, data: Any, chunks: Iterable[tuple[int, int]]) -> None:
    """ValueError if these chunks (row group, column) of a manifest or run with these bytes may take
    more memory than its length allows. [OB4] Values that share beginnings with others are refused:
    a few bytes of these may expand to any amount. Those of a dictionary may each be its longest;
    others are as long as they are stored."""
    room = limit = min(MAX_MANIFEST_RAW_BYTES, ROOM_BYTES + GROWTH * len(data))
    for group, at in chunks:
        chunk, leaf = file.metadata.row_group(group).column(at), file.metadata.schema.column(at)
        if "DELTA_BYTE_ARRAY" in chunk.encodings:
            raise ValueError(f"column {leaf.path!r} has values that share their beginnings")
        raw, values = chunk.total_uncompressed_size, chunk.num_values
        room -= raw + values * max(leaf.length, _VALUE_BYTES)
        is_coded = leaf.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
        if is_coded and min(raw, values) >= 0 and values * raw > room >= 0:
            room -= values * _longest(data, file.metadata, group, at)
        if min(raw, values, room) < 0:
            raise ValueError(f"it takes more than {limit} bytes once decoded")


def _longest(data: Any, metadata: Any, group: int, at: int) -> int:
    """The length of the longest value of a column chunk; what is in a dictionary stays there."""
    path = metadata.schema.column(at).path
    source = pa.BufferReader(pa.py_buffer(data))
    file = pq.ParquetFile(source, metadata=metadata, read_dictionary=[path])
    longest = 0
    for values in file.read_row_group(group, columns=[path], use_threads=False).column(0).chunks:
        while pa.types.is_nested(values.type):  # of one leaf
            values = values.flatten()[0] if pa.types.is_struct(values.type) else values.values
        texts = values.dictionary if pa.types.is_dictionary(values.type) else values
        longest = max(longest, pc.max(pc.binary_length(texts)).as_py() or 0)
    return longest


def with_chunk_digests(data: bytes) -> tuple[bytes, FooterRef]:
    """A Parquet object with its chunks' digests in its footer, and its reference. [OB14]"""
    file = pq.ParquetFile(pa.BufferReader(data))
    view = memoryview(data)
    digests = b"".join(_digest(view[start:end]) for start, end in chunk_spans(file.metadata))
    known, empty = file.schema_arrow.metadata or {}, io.BytesIO()
    marked = file.schema_arrow.with_metadata({**known, CHUNKS: base64.b64encode(digests)})
    pq.ParquetWriter(empty, marked).close()
    metadata = pq.read_metadata(pa.BufferReader(empty.getvalue()))
    metadata.append_row_groups(file.metadata)
    written = io.BytesIO()
    metadata.write_metadata_file(written)
    footer = written.getvalue()[4:]  # without the magic at its beginning
    ref = FooterRef(bytes=len(footer), digest=codec.digest(footer))
    return data[: len(data) - 8 - int.from_bytes(data[-8:-4], "little")] + footer, ref


def chunk_spans(metadata: Any) -> list[tuple[int, int]]:
    """Where each column chunk begins and ends: by row group, and within it by column."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return [chunk_span(each.column(at)) for each in groups for at in range(metadata.num_columns)]


def _digest(chunk: memoryview) -> bytes:
    return hashlib.sha256(chunk).digest()[:_DIGEST_BYTES]


MAX_MANIFEST_BYTES = 1 << 30  # size of a manifest or run object
MAX_MANIFEST_RAW_BYTES = 4 << 30  # size of its pages once decompressed
ROOM_BYTES = 256 << 20  # bytes that any manifest may take once decoded
GROWTH = 1024  # and how many for each stored byte
_VALUE_BYTES = 8  # of a value that has no length of its own, at most
ROW_GROUP_ENTRIES = 16_384
# a manifest up to this size is always read whole, which takes no longer than its footer
PART_BYTES = 1 << 20
_NEVER_NULL = {"path", "rows", "bytes"}
_CACHED = 64
# bytes of cached tables; the same again for manifests that are read by parts
_CACHED_BYTES = 512 << 20
_PATH, _VERSION = pa.field("path", pa.string(), False), pa.field("version", pa.int64(), False)
_KEY, _DIGEST = pa.field("key", pa.string(), False), pa.field("digest", pa.string(), False)
KEY_RUN = pa.schema([_KEY, _VERSION, _DIGEST])
# null: aborted
JOB_RUN = pa.schema([pa.field("job", pa.string(), False), _VERSION.with_nullable(True)])
REMOVED_RUN = pa.schema([_PATH, pa.field("bitmap", pa.string(), False)])


_Kept = TypeVar("_Kept", pa.Table, ManifestParts)


class _Cache(Generic[_Kept]):
    """What was used last, up to a number and a size. Safe for several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> _Kept | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Hashable, value: _Kept) -> _Kept:
        """Keep it, as the last that was used; parts grow while they are in use."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            held = sum(each.nbytes for each in self._kept.values())
            while len(self._kept) > _CACHED or (len(self._kept) > 1 and held > _CACHED_BYTES):
                held -= self._kept.popitem(last=False)[1].nbytes
        return value


class ManifestReader:
    """Manifests and runs of one table. It fetches each object once and checks it against the digest
    in its reference. [OB4] [OB6] Safe for several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables: _Cache[pa.Table] = _Cache()
        self._parts: _Cache[ManifestParts] = _Cache()

    def __reduce__(self) -> tuple[type[ManifestReader], tuple[Store]]:
        return ManifestReader, (self._store,)  # in another process it starts with an empty cache

    def manifest(
        self, ref: ManifestRef, partition_by: Sequence[int], *, keep: bool = True
    ) -> pa.Table:
        """The manifest's table, all rows. keep: in memory, for the next call. One request. [OB6]"""
        key = _key(ref, partition_by)
        if (known := self._tables.get(key)) is not None:
            return known
        table = self._read(ref)
        try:
            manifest_table.check_table(table, ref, partition_by)
        except (ValueError, pa.ArrowException) as error:
            raise codec.damaged(ref.path, error) from None
        return self._tables.put(key, table) if keep else table

    def parts(self, ref: ManifestRef, partition_by: Sequence[int]) -> ManifestParts | None:
        """The manifest by parts; None if small, cached, or without a known footer. [RD11]"""
        footer, known = ref.footer, self._tables.get(_key(ref, partition_by))
        if footer is None or ref.bytes <= PART_BYTES or known is not None:
            return None
        key = (ref.bytes, footer.bytes, footer.digest, *_key(ref, partition_by))
        parts = self._parts.get(key)
        if parts is None:
            parts = ManifestParts(self._store, ref, footer)
            rows = parts.metadata.num_rows
            try:
                manifest_table.check_columns(parts.schema, rows, ref, partition_by)
            except ValueError as error:
                raise codec.damaged(ref.path, error) from None
        return self._parts.put(key, parts)

    def live(
        self, ref: ManifestRef, snapshot: Snapshot, removed: int, *, keep: bool = True
    ) -> pa.Table:
        """The live rows of one manifest, in the types of the snapshot's schema, each with its
        version. keep: as for `manifest`. [OB9] [OB13]"""
        check_removed(ref, removed)
        table = self.manifest(ref, snapshot.partition_by, keep=keep)
        return aligned(manifest_table.live(table, removed), ref, snapshot)

    def inlined(self, snapshot: Snapshot) -> pa.Table:
        """The entries inlined in the snapshot, as a manifest's table. No request. [OB5]"""
        try:
            return manifest_table.to_table(snapshot.added, snapshot)
        # a partition value or a bound that is not of its column's type
        except (pa.ArrowException, ValueError) as error:
            raise codec.damaged(object_names.version_name(snapshot.version), error) from None

    def removed(self, snapshot: Snapshot) -> dict[str, int]:
        """Manifest path -> removed rows, inlined and spilled combined. [OB9]"""
        united = {path: decode(text) for path, text in snapshot.removed.items()}
        for run in snapshot.removed_runs:
            table = self.run(run, REMOVED_RUN)
            for row in table.to_pylist():
                path, text = row["path"], row["bitmap"]
                try:
                    united[path] = united.get(path, 0) | decode(text)
                except ValueError as error:
                    raise codec.damaged(run.path, error) from None
        return united

    def run(self, ref: RunRef, kind: pa.Schema) -> pa.Table:
        """A run's table, with exactly these columns. One request. [OB11]"""
        key = (ref.path, ref.digest)
        table = self._tables.get(key)
        if table is None:
            data = self._fetch(ref.path, ref.bytes, ref.digest)
            table = self._tables.put(key, _parse(data, ref.path, ref.rows))
        fits = (table.schema.names, table.schema.types) == (kind.names, kind.types)
        full = (field.name for field in kind if not field.nullable)
        if not fits or table.num_rows != ref.rows or any(table.column(n).null_count for n in full):
            raise codec.damaged(ref.path, "its columns or its rows are not what the head says")
        return table

    def lookup(self, runs: Sequence[RunRef], wanted: str, kind: pa.Schema) -> dict[str, Any] | None:
        """The row of a spilled key or job; None: none. A request per fitting run. [OB11]"""
        for run in reversed(runs):
            if run.first <= wanted <= run.last:
                table = self.run(run, kind)
                at = pc.index(table.column(0), wanted).as_py()
                if at >= 0:
                    return dict(table.slice(at, 1).to_pylist()[0])
        return None

    def job(
        self, snapshot: Snapshot, job: str, *, runs: bool = True
    ) -> tuple[Literal["committed", "aborted"] | None, int | None]:
        """A job's record, inlined or (with `runs`) spilled: state and version. [CM1] [OB11]"""
        if job in snapshot.recent_jobs:
            version = snapshot.recent_jobs[job]
        elif runs and (row := self.lookup(snapshot.job_runs, job, JOB_RUN)) is not None:
            version = row["version"]
        else:
            return None, None
        return ("aborted", None) if version is None else ("committed", version)

    def columns(
        self, ref: ManifestRef, snapshot: Snapshot, removed: int, names: Sequence[str]
    ) -> pa.Table:
        """These columns of the live rows of one manifest, as in `live`, but without a check of
        paths. One request. [OB9] A manifest that is not cached already stays so."""
        if self._tables.get(_key(ref, snapshot.partition_by)) is not None:
            return self.live(ref, snapshot, removed).select(names)
        check_removed(ref, removed)
        table = self._read(ref, names)
        return aligned(manifest_table.live(table, removed), ref, snapshot).select(names)

    def paths(self, ref: ManifestRef) -> list[str]:
        """The paths of all rows, in order. Loads and caches nothing else. One request. [OB6]"""
        paths: list[str] = self._read(ref, ["path"]).column(0).to_pylist()
        return paths

    def touched(self, refs: Sequence[ManifestRef], of: Shape) -> tuple[PartitionPattern, ...]:
        """The distinct partitions of all rows. Caches nothing. At most one request each. [OB6]"""
        if not of.partition_by:
            return ({},) if refs else ()
        names = [f"partition.{field_id}" for field_id in of.partition_by]

        def partitions() -> Iterator[PartitionPattern]:
            for ref in refs:
                table = self._read(ref, names)
                try:
                    yield from manifest_table.partitions(table, of)
                # values that are not of the column's type
                except (pa.ArrowException, UsageError) as error:
                    raise codec.damaged(ref.path, error) from None

        return dedupe(partitions())

    def _read(self, ref: ManifestRef, names: Sequence[str] | None = None) -> pa.Table:
        """All rows of a manifest: every column, still unchecked, or these. One request."""
        columns = None if names is None else list(names)
        table = _parse(self._fetch(ref.path, ref.bytes, ref.digest), ref.path, ref.files, columns)
        if columns is not None:
            fits = {*table.column_names} == {*columns} and table.num_rows == ref.files
            full = _NEVER_NULL & {*columns}
            if not fits or any(table.column(each).null_count for each in full):
                raise codec.damaged(ref.path, "its rows are not what the head says")
        return table

    def _fetch(self, path: str, size_bytes: int, digest: str) -> bytes:
        if not 0 < size_bytes <= MAX_MANIFEST_BYTES:
            raise codec.damaged(path, f"the head says that it has {size_bytes} bytes")
        try:
            data = self._store.get(path, 0, size_bytes + 1)
        except FileNotFoundError:
            raise codec.damaged(path, "it is missing") from None
        if codec.digest(data) != digest:
            raise codec.damaged(path, "its bytes are not those that the head lists")
        return data


def _key(ref: ManifestRef, partition_by: Sequence[int]) -> tuple[Hashable, ...]:
    return ref.path, ref.digest, ref.files, tuple(partition_by)


def aligned(table: pa.Table, ref: ManifestRef, snapshot: Snapshot) -> pa.Table:
    """Columns of a manifest in the snapshot's types, with each entry's version. [OB6] [OB13]"""
    try:
        table = manifest_table.align(table, snapshot)
    except (pa.ArrowException, ValueError) as error:  # a column that is not of the table's type
        raise codec.damaged(ref.path, error) from None
    return manifest_table.with_versions(table, ref.added)


def check_removed(ref: ManifestRef, removed: int) -> None:
    """CorruptMetadataError if more rows were removed from a manifest than it has. [OB9]"""
    if removed >> ref.files:
        raise codec.damaged(ref.path, "more rows were taken out of it than it has")


def put_manifest(
    store: Store, entries: Sequence[Entry] | pa.Table, of: Shape, *, job: str, env: Env
) -> ManifestRef:
    """Write the entries, or a manifest's table, as one manifest of `job` and return its reference;
    entries without a version inherit one. One request. [OB6] [DF2]"""
    table = entries
    if not isinstance(entries, pa.Table):
        table = manifest_table.to_table(entries, of)
    data, footer = manifest_bytes(table)
    path = object_names.manifest_name(job, env.randomness(16))
    create_own(store, path, data, env)
    said, digest = manifest_table.describe(table, of), codec.digest(data)
    return ManifestRef(path=path, bytes=len(data), digest=digest, footer=footer, **said)


def put_run(store: Store, columns: Mapping[str, pa.Array], *, job: str, env: Env) -> RunRef:
    """Write a run, sorted by its first column, and return its reference. One request. [OB11]"""
    first = next(iter(columns))
    table = pa.table(dict(columns)).sort_by(first)
    path, data = object_names.manifest_name(job, env.randomness(16)), to_parquet(table)
    create_own(store, path, data, env)
    names = table.column(first)
    return RunRef(
        path=path,
        rows=table.num_rows,
        bytes=len(data),
        digest=codec.digest(data),
        first=names[0].as_py(),
        last=names[-1].as_py(),
    )


def create_own(store: Store, path: str, data: bytes, env: Env) -> None:
    """Put an object under a name of this writer's: one that is there is this one. [LY8]"""
    if create(store, path, data, env):
        return
    if codec.digest(store.get(path, 0, len(data) + 1)) != codec.digest(data):
        text = f"{path} holds other bytes than its job wrote; run the job again"
        raise CorruptMetadataError(text, object_name=path)


def manifest_bytes(table: pa.Table) -> tuple[bytes, FooterRef | None]:
    """A manifest as Parquet, and the reference to its footer if it is large enough to be read by
    parts. [OB13] [OB14] The columns that filters read lie together, before paths, digests and jobs,
    so that one request fetches them."""
    names = table.column_names
    small = [name for name in names if name in _COUNTS or "." in name]
    repeated = [name for name in names if name.partition(".")[0] in _REPEATED]
    kinds = {name: table.schema.field(name).type for name in small if name not in repeated}
    packed = [name for name, kind in kinds.items() if any(is_kind(kind) for is_kind in _WHOLE)]
    data = to_parquet(
        table.select([*small, *(name for name in names if name not in small)]),
        use_dictionary=[*repeated, *_SOURCES],
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED") or None,
        write_statistics=[*small, "path"],
    )
    if len(data) <= PART_BYTES or manifest_table.has_nan_bounds(table):
        return data, None
    return with_chunk_digests(data)


_COUNTS = ("rows", "bytes", "added")
_SOURCES = [f"sources.list.element.{name}" for name in ("source", "start", "end")]
_REPEATED = ("added", "job", "extra", "partition", "nulls", "nans", "cuts")
_WHOLE = (pa.types.is_integer, pa.types.is_date32, pa.types.is_timestamp, pa.types.is_duration)


def to_parquet(table: pa.Table, **options: Any) -> bytes:
    """The table as Parquet: zstd, row groups for pruning, statistics and page indexes. [OB13]"""
    sink, options = io.BytesIO(), {**options, "row_group_size": ROW_GROUP_ENTRIES}
    tagged = table.replace_schema_metadata({"manifestcommit.format_version": "1"})
    pq.write_table(tagged, sink, compression="zstd", write_page_index=True, **options)
    return sink.getvalue()


def _parse(data: bytes, path: str, rows: int, columns: list[str] | None = None) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        metadata = file.metadata
        if metadata.num_rows != rows:
            raise ValueError(f"it has {metadata.num_rows} rows, the head says {rows}")
        chosen = positions_of(metadata, columns)
        chunks = ((group, at) for group in range(metadata.num_row_groups) for at in chosen)
        check_decoded(file, data, chunks)
        # for a few columns one thread is as fast, and takes less memory
        table = file.read(columns, use_threads=columns is None)
        if columns is not None:
            manifest_table.check_kinds(table.schema)
        return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise codec.damaged(path, error) from None

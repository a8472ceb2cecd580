"""The one path by which rows become Parquet files: inside Spark's tasks and without Spark alike. [DF1]-[DF5]

Not here: what is kept of a footer (engine.footer), buffering and splitting by partition (engine.rows), files that something else
wrote (engine.inspect), where rows come from (engine.streams).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import format, partition
from ..core.arrow import arrow_schema, footer_metadata
from ..core.conform import Conformer
from ..core.manifest import Entry, SourceRange
from ..core.paths import check_path
from ..core.schema import Field, Schema
from ..core.snapshot import Snapshot
from ..core.spark_types import has_own_order
from ..errors import ManifestCommitError, StoreError, UsageError
from ..store.base import Output, Store
from . import rows
from .encoding import SAMPLE_ROWS, dictionary_columns
from .figures import Intake
from .footer import FloatStats, TrackedLeaf, column_stats, float_stats, parquet_columns, tracked_leaves
from .inspect import inspect_file
from .streams import stream_batches

DEFAULT_TARGET_FILE_SIZE = 512 * 1024 * 1024  # as Iceberg's write.target-file-size-bytes
DEFAULT_BOUNDS_COLUMNS = 32
TARGET_FILE_SIZE = "write.target-file-size-bytes"  # names of table properties
BOUNDS_COLUMNS = "write.bounds-columns"
BLOOM_COLUMNS = "write.bloom-filter-columns"
_BLOOM_FPP = 0.01  # as Spark's own writer; 1.2 to 2.4 bytes for each row
MAX_OPEN_FILES = 32
# Measured on TPC-H lineitem: 3 % smaller than level 1 for 7 % more time; level 6 takes 75 % more for another 2 %.
_ZSTD_LEVEL = 3
_WRITER_OPTIONS: dict[str, Any] = {
    "version": "2.6",
    "compression": "zstd",
    "compression_level": _ZSTD_LEVEL,
    "write_page_index": True,
    "store_decimal_as_integer": True,  # as Spark stores them: smaller, and what its vectorised reader is fastest with
}
_MIN_ROW_GROUP_BYTES = 16 * 1024
_BLOOM_TYPES = frozenset({"byte", "short", "integer", "long", "string", "binary", "date", "timestamp", "timestamp_ntz"})


class WritePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What every task must know to write its share of a job. It travels to tasks: no secret is ever in it. [DF1]

    url: the root; job: the job's id; partition_by: field ids; target_file_size: bytes of a file, more or less;
    bounds_columns: how many leaf columns get statistics in the entries; bloom_columns: field ids of those that get Bloom filters;
    sources: the ranges that the rows come from.
    """

    url: str
    job: str
    schema: Schema
    partition_by: tuple[int, ...] = ()
    target_file_size: int = DEFAULT_TARGET_FILE_SIZE
    bounds_columns: int = DEFAULT_BOUNDS_COLUMNS
    bloom_columns: tuple[int, ...] = ()
    sources: tuple[SourceRange, ...] = ()

    def __post_init__(self) -> None:
        if self.target_file_size < 1:
            raise UsageError(f"target_file_size is a number of bytes above 0, not {self.target_file_size}")


def plan_for(
    snapshot: Snapshot,
    *,
    url: str,
    job: str,
    schema: Schema,
    partition_by: tuple[int, ...],
    target_file_size: int | None = None,
    sources: tuple[SourceRange, ...] = (),
) -> WritePlan:
    """How a job writes rows of these columns and this partitioning, in all else as the table's properties say. [DF1]"""
    return WritePlan(
        url=url,
        job=job,
        schema=schema,
        partition_by=partition_by,
        target_file_size=target_file_size or target_file_size_of(snapshot),
        bounds_columns=bounds_columns_of(snapshot),
        bloom_columns=bloom_columns_of(snapshot.properties, schema),
        sources=sources,
    )


def target_file_size_of(snapshot: Snapshot) -> int:
    """The size in bytes at which writers of this table begin a new file, unless they are told another."""
    return int(snapshot.properties.get(TARGET_FILE_SIZE, DEFAULT_TARGET_FILE_SIZE))


def bounds_columns_of(snapshot: Snapshot) -> int:
    """How many leaf columns of this table's files get statistics in their entries. [OB7]"""
    return int(snapshot.properties.get(BOUNDS_COLUMNS, DEFAULT_BOUNDS_COLUMNS))


def bloom_columns_of(properties: Mapping[str, str], schema: Schema) -> tuple[int, ...]:
    """The field ids of the columns whose files get Bloom filters; a name that no column has any more is passed over. [DF11]"""
    names = bloom_names(properties.get(BLOOM_COLUMNS, ""))
    return tuple(field.id for field in schema.fields if field.name in names and takes_bloom_filter(field))


def bloom_names(text: str) -> list[str]:
    """The columns that the property names, split at commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def takes_bloom_filter(field: Field) -> bool:
    """Whether equal values of the column are equal bytes in a file, to every reader: floats have two zeros, collations many. [DF11]"""
    return isinstance(field.type, str) and field.type in _BLOOM_TYPES and not has_own_order(field)


class DataFileWriter:
    """One attempt at one task: rows in, files of its own out; nothing counts until a commit lists their entries. [DF1] [DF2]

    A call that fails gives the whole attempt up; what it has put by then stays behind unlisted, for gc. Leaving a `with` block
    by an exception discards; leaving it otherwise closes.
    """

    def __init__(self, store: Store, plan: WritePlan, *, task: int, attempt: str) -> None:
        """task: its number, for people; attempt: randomness that no other attempt has."""
        self._files = _FileSet(store, plan, task=task, attempt=attempt)
        self._conformer = Conformer(plan.schema)
        self._sources = plan.sources
        self._row_group_bytes = max(min(rows.ROW_GROUP_BYTES, plan.target_file_size), _MIN_ROW_GROUP_BYTES)
        by_id = {field.id: field for field in plan.schema.fields}
        columns = tuple((by_id[id].file_name, by_id[id].type) for id in plan.partition_by)
        self._buffer = rows.RowBuffer(columns, row_group_bytes=self._row_group_bytes)
        self._rows = self._bytes = 0
        self._entries: tuple[Entry, ...] | None = None
        self._given_up = False

    @property
    def intake(self) -> Intake:
        """What was handed to `write` so far. [OB10]"""
        return Intake(rows=self._rows, bytes=self._bytes)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take in rows under the table's column names; a null where the schema allows none is refused. [DF3]"""
        self._check_open("write")
        self._bytes += batch.nbytes
        try:
            for piece in rows.pieces(batch, self._row_group_bytes):
                self._rows += piece.num_rows
                for values, table in self._buffer.add(self._conformer.conform(piece)):
                    self._write_groups(values, table)
        except BaseException:
            self.discard()
            raise

    def close(self) -> tuple[Entry, ...]:
        """The entries of all files, each whole and durable; () if there were no rows. [DF2] [DF3]"""
        if self._entries is None:
            self._check_open("close")
            try:
                for values, table in self._buffer.drain(first=self._files.open_partitions()):
                    self._write_groups(values, table)
                    self._files.finish(values)
                self._entries = tuple(
                    msgspec.structs.replace(entry, sources=self._sources) if self._sources else entry for entry in self._files.finish_all()
                )
                self._check_rows(sum(entry.rows for entry in self._entries))
            except BaseException:
                self.discard()
                raise
        return self._entries

    def discard(self) -> None:
        """Give up, as far as that is possible: files that are open never appear. Deletes nothing. [AB2]"""
        self._given_up, self._entries = True, None
        self._files.discard()

    def __enter__(self) -> DataFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.discard()
        elif not self._given_up:
            self.close()

    def _write_groups(self, values: rows.Partition, table: pa.Table) -> None:
        for group in rows.row_groups(table, self._row_group_bytes):
            self._files.write(values, group)

    def _check_open(self, what: str) -> None:
        if self._given_up or self._entries is not None:
            state = "discarded" if self._given_up else "closed"
            raise ManifestCommitError(f"Cannot {what}: this writer was {state} before. Run the task again with a new one.")

    def _check_rows(self, written: int) -> None:
        if written != self._rows:
            raise ManifestCommitError(
                f"{self._rows} rows were handed in and {written} were written. Nothing is committed; this is a defect of "
                "manifestcommit, please report it."
            )


class _FileSet:
    """The files of one attempt: few of them open at a time, each finished when it is full or the longest unused. [DF2]"""

    def __init__(self, store: Store, plan: WritePlan, *, task: int, attempt: str) -> None:
        self._store, self._plan, self._task, self._attempt = store, plan, task, attempt
        schema = arrow_schema(plan.schema, physical=True)
        self._leaves = tracked_leaves(plan.schema, schema, plan.bounds_columns)
        self._schema = schema.with_metadata(footer_metadata(plan.schema))
        self._dictionaries: list[str] | None = None  # chosen by the rows of this task, for all its files
        self._sampled = False
        names = Counter(".".join(each.path) for each in parquet_columns(schema))
        # pyarrow knows columns by names alone: where a member `b` of `a` stands beside a column `a.b`, both would have one.
        self._blooms = [field.file_name for field in plan.schema.fields if field.id in plan.bloom_columns and names[field.file_name] == 1]
        self._open: OrderedDict[rows.Partition, _DataFile] = OrderedDict()
        self._count = 0
        self._entries: list[Entry] = []

    def open_partitions(self) -> frozenset[rows.Partition]:
        return frozenset(self._open)

    def write(self, values: rows.Partition, group: pa.Table) -> None:
        """Append a row group to the partition's open file, or to a new one."""
        file = self._open.get(values) or self._create(values, group)
        self._open.move_to_end(values)
        file.write(group)
        if file.bytes + file.last_group_bytes // 2 >= self._plan.target_file_size:
            self.finish(values)

    def finish(self, values: rows.Partition) -> None:
        """Make the partition's open file durable, if it has one. [DF2]"""
        file = self._open.get(values)
        if file is not None:
            self._entries.append(file.finish())
            del self._open[values]

    def finish_all(self) -> tuple[Entry, ...]:
        for values in list(self._open):
            self.finish(values)
        return tuple(sorted(self._entries, key=lambda entry: entry.path))

    def discard(self) -> None:
        for file in self._open.values():
            file.discard()
        self._open.clear()
        self._entries.clear()

    def _create(self, values: rows.Partition, group: pa.Table) -> _DataFile:
        """A new file of the partition. group: the first that it will hold, by which its encoding is chosen."""
        if len(self._open) >= MAX_OPEN_FILES:
            self.finish(next(iter(self._open)))
        folder = partition.folder(self._plan.schema, self._plan.partition_by, values)
        path = folder + format.data_file_name(self._task, self._attempt, self._count, self._plan.job)
        check_path(path)
        self._count += 1
        if self._dictionaries is None or (not self._sampled and group.num_rows >= SAMPLE_ROWS):
            self._dictionaries, self._sampled = dictionary_columns(group), group.num_rows >= SAMPLE_ROWS
        # As many values as rows: those of a group are known before they are written, how many differ is not.
        blooms = {name: {"ndv": group.num_rows, "fpp": _BLOOM_FPP} for name in self._blooms}
        options = {"use_dictionary": self._dictionaries, "bloom_filter_options": blooms or None}
        self._open[values] = file = _DataFile(self._store, path, values, self._plan.job, self._schema, self._leaves, options)
        return file


class _DataFile:
    """One Parquet file while it is written, and its entry once it is durable. [DF3]"""

    def __init__(
        self,
        store: Store,
        path: str,
        values: rows.Partition,
        job: str,
        schema: pa.Schema,
        leaves: tuple[TrackedLeaf, ...],
        options: Mapping[str, Any],
    ) -> None:
        self._path, self._values, self._job, self._leaves = path, values, job, leaves
        self._name = f"{store.url}/{path}"
        self._rows = 0
        self._floats: list[dict[int, FloatStats]] = []
        self._footers: list[Any] = []
        self.last_group_bytes = 0
        self._sink = _HashingSink(store.create_output(path), self._name)
        # Statistics leave NaN out, and pyarrow as well as Spark skip row groups by them: a filter would lose the rows of NaN.
        columns = list(parquet_columns(schema))
        floats = {".".join(each.path) for each in columns if pa.types.is_floating(each.type)}  # `a.b` is a member's name, too
        ordered = [name for each in columns if each.is_single and (name := ".".join(each.path)) not in floats]
        given = {**_WRITER_OPTIONS, **options, "write_statistics": ordered}
        self._writer = pq.ParquetWriter(self._sink, schema, metadata_collector=self._footers, **given)

    @property
    def bytes(self) -> int:
        return self._sink.bytes

    def write(self, group: pa.Table) -> None:
        """Append exactly one row group."""
        before = self._sink.bytes
        try:
            self._writer.write_table(group, row_group_size=group.num_rows)
        except pa.ArrowException as error:
            raise ManifestCommitError(f"{self._name} could not be written: {error}. Nothing is committed.") from error
        self._floats.append(float_stats(group, self._leaves))
        self._rows += group.num_rows
        self.last_group_bytes = self._sink.bytes - before

    def finish(self) -> Entry:
        """Write the footer, make the file durable, and say exactly what it is. [DF2] [DF3]"""
        self._writer.close()
        footer = self._footers[0]
        if footer.num_rows != self._rows or footer.num_row_groups != len(self._floats):
            raise ManifestCommitError(
                f"{self._name}: {self._rows} rows were written, its footer says {footer.num_rows}. The file is not listed and "
                "nothing is committed; run the task again."
            )
        self._sink.close()
        return Entry(
            path=self._path,
            partition=self._values,
            rows=self._rows,
            bytes=self._sink.bytes,
            digest=self._sink.digest,
            job=self._job,
            columns=column_stats(footer, self._leaves, self._floats),
        )

    def discard(self) -> None:
        """Close everything without completing the object; a failure here changes nothing that counts."""
        self._sink.discard()
        with contextlib.suppress(Exception):
            self._writer.close()  # else its destructor would


class _HashingSink:
    """A stream into the store that counts and hashes what passes. [DF3]"""

    def __init__(self, stream: Output, name: str) -> None:
        self._stream, self._name = stream, name
        self._hash = hashlib.sha256()
        self._discarded = False
        self.bytes = 0
        self.closed = False

    @property
    def digest(self) -> str:
        return format.digest_of(self._hash)

    def write(self, data: bytes) -> int:
        if self._discarded:
            return len(data)
        with self._told():
            written = self._stream.write(data)
        if written != len(data):
            raise StoreError(f"{self._name}: the store took {written} of {len(data)} bytes. Run the task again.")
        self._hash.update(data)
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Nothing to do: only `close` promises anything."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The object is whole and durable when this returns. [DF2]"""
        if not self.closed:
            with self._told():
                self._stream.close()
            self.closed = True

    def discard(self) -> None:
        if not self.closed and not self._discarded:
            self._discarded = True
            with contextlib.suppress(Exception):
                self._stream.discard()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"{self._name} could not be written: {error}. Nothing is committed; run the task again.") from error


__all__ = ["DEFAULT_TARGET_FILE_SIZE", "DataFileWriter", "WritePlan", "inspect_file", "stream_batches"]

"""Writes rows to Parquet files, inside Spark's tasks and without Spark alike. [DF1]-[DF5]"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    OutputGoneError,
    SchemaMismatchError,
    StoreError,
    StoreFullError,
    TableNotFoundError,
    UnsupportedFormatError,
    UsageError,
)
from ..format import codec, object_names, partitioning
from ..format.entries import Entry, SourceRange
from ..format.fields import EXACT, Field, FieldType, Leaf, Schema, WireValue, has_own_order, walk
from ..format.object_names import check_path
from ..format.snapshot import Constraint, Snapshot
from ..format.transforms import maker, partition_fields, source_of
from ..format.values import Conformer, footer_metadata, from_array, group_numbers
from ..log.table_context import gate
from ..log.version_chain import open_head
from ..runtime.outcome import InputTotals, fenced_error
from ..store.base import Output, Store
from .footer_stats import (
    FloatStats,
    ParquetColumn,
    column_stats,
    float_stats,
    parquet_columns,
    tracked_leaves,
)

# Chooses how the columns of a file are encoded.

SAMPLE_ROWS = 20_000
_FEW_ROWS = 16  # a dictionary of so few values is larger than they are
# Of 20,000 rows drawn from 200,000 or more distinct values, fewer than 5 in 100 repeat a value; a
# dictionary of that size is too large.
_MOST_DISTINCT = 0.95
_INTEGER_DIGITS = 18  # decimals of more are bytes


def encodings(
    group: pa.Table, columns: Sequence[ParquetColumn], whole: Collection[str]
) -> dict[str, Any]:
    """How files of groups like this are encoded, as options of pyarrow's writer: with a dictionary
    but for columns with hardly a repeated value, in a sample of 20,000; of these, whole numbers by
    their differences. [DF12] whole: their names, which no other column has."""
    if group.num_rows < _FEW_ROWS:
        return {"use_dictionary": []}
    step = max(1, group.num_rows // SAMPLE_ROWS)
    rows = pc.multiply(pc.indices_nonzero(pa.repeat(True, SAMPLE_ROWS)), step) if step > 1 else None
    distinct = {name for name in group.column_names if _is_distinct(group.column(name), rows)}
    return {
        "use_dictionary": [column.name for column in columns if column.path[0] not in distinct],
        "column_encoding": dict.fromkeys(distinct.intersection(whole), "DELTA_BINARY_PACKED"),
    }


def _is_whole(type: pa.DataType) -> bool:
    """Whether Parquet stores the values as integers of 32 or 64 bits."""
    if pa.types.is_decimal(type):
        return bool(type.precision <= _INTEGER_DIGITS)
    return bool(pa.types.is_integer(type) or pa.types.is_temporal(type))


def _is_distinct(column: pa.ChunkedArray, rows: pa.Array | None) -> bool:
    """Whether hardly a value of these rows repeats; nested columns are not examined."""
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return False
    sample = column if rows is None else column.take(rows)
    distinct = pc.count_distinct(sample, mode="only_valid").as_py()
    return bool(distinct > _MOST_DISTINCT * max(1, len(sample) - sample.null_count))


DEFAULT_TARGET_FILE_SIZE = 512 * 1024 * 1024  # like Iceberg's write.target-file-size-bytes
DEFAULT_BOUNDS_COLUMNS = 32
TARGET_FILE_SIZE = "write.target-file-size-bytes"  # names of table properties
BOUNDS_COLUMNS = "write.bounds-columns"
BLOOM_COLUMNS = "write.bloom-filter-columns"
_BLOOM_FPP = 0.01  # like Spark's own writer; 1.2 to 2.4 bytes for each row
MAX_OPEN_FILES = 32
_COMPLETED_AT_ONCE = 16  # files that are complete and wait for the disk or the network
_SLOW_S = 0.002  # to make a file durable
# Measured on TPC-H lineitem: 3 % smaller than level 1 for 7 % more time; level 6 takes 75 % more
# time for another 2 %.
_ZSTD_LEVEL = 3
_WRITER_OPTIONS: dict[str, Any] = {
    "version": "2.6",
    "compression": "zstd",
    "compression_level": _ZSTD_LEVEL,
    "write_page_index": True,
    # the form in which Spark stores them: it is smaller, and Spark's vectorised reader is fastest
    # with it
    "store_decimal_as_integer": True,
}
_MIN_ROW_GROUP_BYTES = 16 * 1024
_PIECE_BYTES = 256 * 1024
# Older ones write the same files without Bloom filters. [DF11]
WRITES_BLOOM_FILTERS = int(pa.__version__.partition(".")[0]) >= 24
_BLOOM_TYPES = EXACT - {"boolean"}


class WritePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What every task needs to write its share of a job. It is sent to tasks, and contains no
    secret. [DF1]

    url: the table path; job: the job's id; partition_by: field ids; target_file_size: approximate
    bytes of a file; bounds_columns: how many leaf columns get statistics in the entries;
    bloom_columns: field ids of those that get Bloom filters; sources: the ranges that the rows come
    from; shared: whether other processes may write and commit this job, too; constraints: those of
    the table, which no row may violate. [CK2]
    """

    url: str
    job: str
    schema: Schema
    partition_by: tuple[int, ...] = ()
    target_file_size: int = DEFAULT_TARGET_FILE_SIZE
    bounds_columns: int = DEFAULT_BOUNDS_COLUMNS
    bloom_columns: tuple[int, ...] = ()
    sources: tuple[SourceRange, ...] = ()
    shared: bool = False
    constraints: dict[str, Constraint] = {}

    def __post_init__(self) -> None:
        if (size := self.target_file_size) < 1:
            raise UsageError(f"target_file_size is a number of bytes above 0, not {size}")


def plan_for(
    snapshot: Snapshot,
    *,
    url: str,
    job: str,
    schema: Schema | None = None,
    partition_by: tuple[int, ...] | None = None,
    target_file_size: int | None = None,
    sources: tuple[SourceRange, ...] = (),
    shared: bool = False,
    is_new: bool = True,
) -> WritePlan:
    """Plan how a job writes rows with these columns and this partitioning, by default the table's;
    everything else follows from the table's properties. [DF1] [DF3] [DF5] [CK2]

    target_file_size: bytes, by default the table's own; sources: the ranges that the rows come
    from, recorded with every file [OB8]; is_new: the rows may be others than the table's, whose
    constraints they must keep.
    """
    schema, constraints = schema or snapshot.schema, dict[str, Constraint]()
    if is_new and snapshot.constraints:
        # those that can be checked in these columns; the commit checks the others
        known, every = {field.id for _, field in walk(schema.fields)}, snapshot.constraints.items()
        constraints = {name: one for name, one in every if known.issuperset(one.columns.values())}
    return WritePlan(
        url=url,
        job=job,
        schema=schema,
        partition_by=snapshot.partition_by if partition_by is None else partition_by,
        target_file_size=target_file_size or target_file_size_of(snapshot),
        bounds_columns=bounds_columns_of(snapshot),
        bloom_columns=bloom_columns_of(snapshot.properties, schema),
        sources=sources,
        shared=shared,
        constraints=constraints,
    )


def target_file_size_of(snapshot: Snapshot) -> int:
    """The size in bytes at which writers of this table start a new file, by default."""
    return int(snapshot.properties.get(TARGET_FILE_SIZE, DEFAULT_TARGET_FILE_SIZE))


def bounds_columns_of(snapshot: Snapshot) -> int:
    """How many leaf columns of this table's files have statistics in their entries. [OB7]"""
    return int(snapshot.properties.get(BOUNDS_COLUMNS, DEFAULT_BOUNDS_COLUMNS))


def bloom_columns_of(properties: Mapping[str, str], schema: Schema) -> tuple[int, ...]:
    """The field ids of columns that get Bloom filters; dropped columns are ignored. [DF11]"""
    names = bloom_names(properties.get(BLOOM_COLUMNS, ""))
    return tuple(f.id for f in schema.fields if f.name in names and takes_bloom_filter(f))


def bloom_names(text: str) -> list[str]:
    """The columns that the property names, separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def takes_bloom_filter(field: Field) -> bool:
    """Whether equal values of the column have equal bytes in a file, for every reader: floats have
    two zeros, and collations many equal texts. [DF11]"""
    return isinstance(field.type, str) and field.type in _BLOOM_TYPES and not has_own_order(field)


class DataFileWriter(contextlib.AbstractContextManager["DataFileWriter"]):
    """One attempt at one task: writes rows to files of its own. Files that no snapshot lists are
    invisible, so nothing counts until a commit lists their entries. [DF1] [DF2] A failed call
    aborts the whole attempt; gc removes the orphan files that it leaves. Leaving a `with` block by
    an exception discards; leaving it normally closes."""

    def __init__(
        self, store: Store, plan: WritePlan, *, task: int, attempt: str, in_background: bool = False
    ) -> None:
        """task: its number, for people; attempt: random digits that no other attempt has;
        in_background: encode row groups in a thread, while the caller makes the next rows."""
        self._conformer = Conformer(plan.schema)
        self._files = _FileSet(store, plan, self._conformer.target, task=task, attempt=attempt)
        # while it is at work, nothing else may use the files: `wait` or `end` comes first
        self._encoding = BackgroundWorker(int(in_background))
        self._check = gate().RowChecks(plan, store.url) if plan.constraints else None
        most = min(ROW_GROUP_BYTES, plan.target_file_size)
        self._row_group_bytes = max(most, _MIN_ROW_GROUP_BYTES)
        self._buffer = RowBuffer(_partition_sources(plan), row_group_bytes=self._row_group_bytes)
        self.intake = InputTotals()  # of all input to `write` so far [OB10]
        self._entries: tuple[Entry, ...] | None = None
        self._given_up = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, with the table's column names; a null in a column that is not nullable is
        refused. [DF3] Of rows that violate a constraint, `close` says how many there are. [CK2]"""
        self._check_open("write")
        self.intake += InputTotals(rows=batch.num_rows, bytes=bytes_of(batch))
        try:
            for piece in pieces(batch, self._row_group_bytes):
                rows = self._conformer.conform(piece)
                if self._check is not None and not self._check.take(rows):
                    continue  # nothing of this attempt counts: the violations are counted only
                for values, table in self._buffer.add(rows):
                    self._write_groups(values, table)
        except BaseException:
            self.discard()
            raise

    def close(self) -> tuple[Entry, ...]:
        """Return the entries of all files, durable and complete; () without rows. [DF2] [DF3]"""
        if self._entries is None:
            self._check_open("close")
            try:
                if self._check is not None:
                    self._check.end()
                self._encoding.wait()
                open_before = self._files.open_partitions()
                for values, table in self._buffer.drain(first=open_before):
                    self._write_groups(values, table)
                    self._encoding.do(self._files.finish, values)
                self._encoding.wait()
                entries = self._files.finish_all()
                self._check_rows(sum(entry.rows for entry in entries))
                self._entries = entries
            except BaseException:
                self.discard()
                raise
            self._encoding.end()
        return self._entries

    def discard(self) -> None:
        """Abort, as far as possible: open files never become visible. Deletes nothing. [AB2]"""
        self._given_up, self._entries = True, None
        self._encoding.end()
        self._files.discard()

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is not None:
            self.discard()
        elif not self._given_up:
            self.close()

    def _write_groups(self, values: Partition, table: pa.Table) -> None:
        for group in row_groups(table, self._row_group_bytes):
            floats = float_stats(group, self._files.leaves)  # a thread that encodes has more to do
            self._encoding.do(self._files.write, values, group, floats)

    def _check_open(self, what: str) -> None:
        if self._given_up or self._entries is not None:
            state = "discarded" if self._given_up else "closed"
            raise ManifestCommitError(
                f"Cannot {what}: this writer was {state} before. Run the task again with a new one."
            )

    def _check_rows(self, written: int) -> None:
        if written != self.intake.rows:
            raise ManifestCommitError(
                f"{self.intake.rows} rows were handed in and {written} were written. Nothing is "
                "committed; this is a defect of manifestcommit, please report it."
            )


def write_files(
    store: Store,
    plan: WritePlan,
    batches: Iterable[pa.RecordBatch],
    *,
    attempt: str,
    task: int,
    in_background: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Entry, ...], InputTotals]:
    """Write all rows in one attempt at a task: the entries of its files, and the totals of its
    input. task, attempt, in_background: as for `DataFileWriter`; progress: is called with the rows
    and bytes so far. [DF1] [OB10]"""
    with DataFileWriter(
        store, plan, task=task, attempt=attempt, in_background=in_background
    ) as writer:
        for batch in batches:
            writer.write(batch)
            if progress is not None:
                progress(writer.intake.rows, writer.intake.bytes)
        return writer.close(), writer.intake


def _partition_sources(plan: WritePlan) -> tuple[PartitionSource, ...]:
    schema = plan.schema
    fields = partition_fields(schema, plan.partition_by) if plan.partition_by else ()
    return tuple(
        PartitionSource(source_of(schema, field.id).file_name, field.type, maker(schema, field.id))
        for field in fields
    )


def by_partition(plan: WritePlan, rows: pa.Table) -> list[_Group]:
    """The rows of each partition in their order. rows: as files have them."""
    buffer, found = RowBuffer(_partition_sources(plan)), list[_Group]()
    for batch in rows.combine_chunks().to_batches():
        found += buffer.add(batch)
    return [*found, *buffer.drain()]


class _FileSet:
    """The files of one attempt. Few are open: a full or long unused one is finished. [DF2]"""

    def __init__(
        self, store: Store, plan: WritePlan, schema: pa.Schema, *, task: int, attempt: str
    ) -> None:
        self._store, self._plan, self._task, self._attempt = store, plan, task, attempt
        self._schema = schema.with_metadata(footer_metadata(plan.schema))
        self._columns = columns = parquet_columns(schema)
        self.leaves = tracked_leaves(plan.schema, columns, plan.bounds_columns)
        names = Counter(column.name for column in columns)
        # Statistics omit NaN, and both pyarrow and Spark skip row groups by them: a filter would
        # lose the rows with NaN. `a.b` may also be the name of a member.
        floats = {column.name for column in columns if pa.types.is_floating(column.type)}
        single = [column.name for column in columns if column.is_single]
        self._ordered = [name for name in single if name not in floats]
        # pyarrow identifies columns by names alone: a member `b` of `a` and a column `a.b` would
        # share an encoding.
        chosen = [each.file_name for each in plan.schema.fields if each.id in plan.bloom_columns]
        self._blooms = [name for name in chosen if names[name] == 1]
        whole = [column.name for column in columns if _is_whole(column.type)]
        self._whole = [name for name in whole if names[name] == 1]
        # about how many rows -> how columns are encoded, by the first file with so many
        self._encodings: dict[int, dict[str, Any]] = {}
        self._open: OrderedDict[Partition, _DataFile] = OrderedDict()
        self._count = 0
        self._entries: list[Entry] = []
        # by the last file: a thread that waits for it costs more than a file in memory
        self._is_slow = False
        self._completing = BackgroundWorker(_COMPLETED_AT_ONCE)

    def open_partitions(self) -> frozenset[Partition]:
        return frozenset(self._open)

    def write(self, values: Partition, group: pa.Table, floats: dict[int, FloatStats]) -> None:
        """Append a row group to the partition's open file, or to a new one."""
        file = self._open.get(values) or self._create(values, group)
        self._open.move_to_end(values)
        file.write(group, floats)
        if file.bytes + file.last_group_bytes // 2 >= self._plan.target_file_size:
            self.finish(values)

    def finish(self, values: Partition) -> None:
        """Write the rest of the partition's open file; it is durable after `finish_all`. [DF2]"""
        file = self._open.get(values)
        if file is None:
            return
        file.finish()
        if self._is_slow:
            self._completing.do(self._complete, file)
        else:
            self._complete(file)
        del self._open[values]

    def _complete(self, file: _DataFile) -> None:
        start = time.perf_counter()
        try:
            self._entries.append(file.complete())
        except BaseException as error:
            file.discard()
            if isinstance(error, OutputGoneError):
                self._check_fence(error)
            raise
        self._is_slow = time.perf_counter() - start > _SLOW_S

    def finish_all(self) -> tuple[Entry, ...]:
        for values in list(self._open):
            self.finish(values)
        self._completing.wait()
        self._completing.end()
        return tuple(sorted(self._entries, key=lambda entry: entry.path))

    def discard(self) -> None:
        self._completing.end()
        for file in self._open.values():
            file.discard()
        self._open.clear()
        self._entries.clear()

    def _check_fence(self, gone: OutputGoneError) -> None:
        """JobFencedError if gc has deleted the file: gc deletes files of jobs that can never
        commit, or have. That a job has not is known only where nobody else could. [CM2] [GC9]"""
        if self._plan.shared:
            return
        job = object_names.parse_job_id(self._plan.job)
        with contextlib.suppress(
            StoreError, TableNotFoundError, CorruptMetadataError, UnsupportedFormatError
        ):
            head = open_head(self._store).snapshot
            if head.table_id == job.table_id and job.birth < head.fence:
                raise fenced_error(self._store.url, self._plan.job) from gone

    def _create(self, values: Partition, group: pa.Table) -> _DataFile:
        """Start a new file of the partition. group: its first row group."""
        if len(self._open) >= MAX_OPEN_FILES:
            self.finish(next(iter(self._open)))
        path, options = self._choose(values, group)
        file = _DataFile(self._store, path, values, self._plan, self._schema, self.leaves, options)
        self._open[values] = file
        return file

    def _choose(self, values: Partition, group: pa.Table) -> tuple[str, dict[str, Any]]:
        """The path and encoding of a partition's new file. group: the first, which decides."""
        plan = self._plan
        folder = partitioning.folder(plan.schema, plan.partition_by, values) if values else ""
        name = object_names.data_file_name(self._task, self._attempt, self._count, plan.job)
        path = folder + name
        check_path(path)
        self._count += 1
        size = group.num_rows.bit_length()
        if size not in self._encodings:
            self._encodings[size] = encodings(group, self._columns, self._whole)
        # As many values as rows: the rows of a group are known before they are written, the number
        # of distinct values is not.
        blooms = {name: {"ndv": group.num_rows, "fpp": _BLOOM_FPP} for name in self._blooms}
        options = _WRITER_OPTIONS | self._encodings[size]
        options["write_statistics"] = self._ordered
        if blooms and WRITES_BLOOM_FILTERS:
            options["bloom_filter_options"] = blooms
        return path, options


class _DataFile:
    """A Parquet file that is being written, and its entry once it is durable. [DF3]"""

    def __init__(
        self,
        store: Store,
        path: str,
        values: Partition,
        plan: WritePlan,
        schema: pa.Schema,
        leaves: list[Leaf],
        options: Mapping[str, Any],
    ) -> None:
        self._path, self._values, self._plan, self._leaves = path, values, plan, leaves
        self._name = f"{store.url}/{path}"
        self._rows = 0
        self._floats: list[dict[int, FloatStats]] = []
        self._footers: list[Any] = []
        self.last_group_bytes = 0
        self._sink = _HashingSink(store.create_output(path), self._name)
        # pyarrow makes a Python call, which waits for the GIL, for each page and for each header of
        # a page: some 500 for a row group of a million rows
        self._pieces = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _PIECE_BYTES)
        options = {**options, "metadata_collector": self._footers}
        self._writer = pq.ParquetWriter(self._pieces, schema, **options)

    @property
    def bytes(self) -> int:
        """Those that are written, or wait in memory."""
        return int(self._pieces.tell())

    def write(self, group: pa.Table, floats: dict[int, FloatStats]) -> None:
        """Append exactly one row group."""
        before = self.bytes
        try:
            self._writer.write_table(group, row_group_size=group.num_rows)
        except pa.ArrowException as error:
            text = f"{self._name} could not be written: {error}. Nothing is committed."
            raise ManifestCommitError(text) from error
        self._floats.append(floats)
        self._rows += group.num_rows
        self.last_group_bytes = self.bytes - before

    def finish(self) -> None:
        """Write the footer, which has the statistics. [DF3] [OB7]"""
        self._writer.close()
        self._pieces.flush()
        footer = self._footers[0]
        if footer.num_rows != self._rows or footer.num_row_groups != len(self._floats):
            raise ManifestCommitError(
                f"{self._name}: {self._rows} rows were written, its footer says {footer.num_rows}. "
                "The file is not listed and nothing is committed; run the task again."
            )
        self._stats = column_stats(footer, self._leaves, self._floats)

    def complete(self) -> Entry:
        """Make the file durable, and return its exact entry. [DF2] [DF3]"""
        self._sink.complete()
        return Entry(
            path=self._path,
            partition=self._values,
            rows=self._rows,
            bytes=self._sink.bytes,
            digest=self._sink.digest,
            job=self._plan.job,
            columns=self._stats,
            sources=self._plan.sources,
        )

    def discard(self) -> None:
        """Close everything without completing the object; a failure here has no effect."""
        self._sink.discard()
        with contextlib.suppress(Exception):
            self._writer.close()  # otherwise its destructor would close it


class _HashingSink(io.RawIOBase):
    """A stream into the store that counts and hashes its bytes. [DF3]"""

    def __init__(self, stream: Output, name: str) -> None:
        self._stream, self._name = stream, name
        self._hash = hashlib.sha256()
        self._is_over = self._is_discarded = False
        self.bytes = 0

    @property
    def digest(self) -> str:
        return codec.digest_of(self._hash)

    def write(self, data: Any) -> int:
        if self._is_discarded:
            return len(data)
        try:
            written = self._stream.write(data)
        except OSError as error:
            raise self._failed(error) from error
        if written != len(data):
            took = f"{written} of {len(data)} bytes"
            raise StoreError(f"{self._name}: the store took {took}. Run the task again.")
        self._hash.update(data)
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.bytes

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: pyarrow's destructor calls it, also for a file that was discarded."""

    def complete(self) -> None:
        """Close the stream; the object is whole and durable when this returns. [DF2]"""
        if not self._is_over:
            try:
                self._stream.close()
            except OSError as error:
                raise self._failed(error) from error
            self._is_over = True

    def discard(self) -> None:
        if not self._is_over and not self._is_discarded:
            self._is_discarded = True
            with contextlib.suppress(Exception):
                self._stream.discard()

    def _failed(self, error: OSError) -> StoreError:
        kind = StoreFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        text = f"{self._name} could not be written: {error}"
        return kind(f"{text}. Nothing is committed; run the task again.")


def check_rows(old: pa.Table, rows: int, written: int, *, what: str | None = None) -> None:
    """Raise an error unless the number of written rows equals the number that remains of the
    replaced files. [GC11] [RC1] old: the entries of these files; what: how the rows to remove were
    chosen, None: all rows remain."""
    if written == rows:
        return
    why = "A file is not what its entry says: `manifestcommit verify --deep` names it."
    if what is not None:
        why = (
            f"Either {what} does not say the same of a row each time it is asked (random numbers, "
            "the clock, a table that changes), or a file is not what its entry says: "
            "`manifestcommit verify --deep` shows which."
        )
    raise ManifestCommitError(
        f"{old.num_rows} files, {old.column('path')[0]} among them, keep {rows:,} rows by the "
        f"first look and {written:,} by the second; they stay as they are, and nothing was "
        f"committed in their place. {why}"
    )


# Threads beside the caller, which encode and upload.


class BackgroundWorker:
    """Does work in threads beside the caller, in the order of its calls. The caller may prepare one
    piece of work while those before are done."""

    def __init__(self, threads: int) -> None:
        """threads: 0: the caller does the work itself, before `do` returns."""
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: deque[Future[Any]] = deque()

    def do(self, work: Callable[..., Any], *args: Any) -> None:
        """Begin this work once a thread is free; raises the error of the work that it waits for."""
        if not self._threads:
            work(*args)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "manifestcommit-background")
        while len(self._under_way) >= self._threads:
            self._take()
        self._under_way.append(self._pool.submit(work, *args))

    def wait(self) -> None:
        """Return when all work is done, or raise its first error, once."""
        while self._under_way:
            self._take()

    def end(self) -> None:
        """Return when no work is under way any more. An error that was not raised yet is lost."""
        while self._under_way:
            self._finish()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _take(self) -> None:
        first = self._under_way[0]
        try:
            self._finish()
            first.result()
        finally:
            del first  # its error refers to this frame: both would keep rows and files

    def _finish(self) -> None:
        """Wait for the first work. An interrupt here leaves it to be waited for: of a join that one
        interrupts, Python 3.11 takes the thread for stopped."""
        self._under_way[0].exception()
        self._under_way.popleft()


# Rows on their way into files: a schema and a stream of batches of any object that holds Arrow
# data, gathered by partition and size. No Spark.

_ACCEPTED = (
    "a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas (2.2 or later) "
    "or polars DataFrame, a DuckDB relation, or anything else with __arrow_c_stream__ that yields "
    "columns (pyarrow.Table.from_pylist makes a Table of a list of dictionaries)"
)


def record_batches(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of `data`, read once and in order; UsageError names the
    accepted types. [SC3] Named levels of a pandas index become columns, an unnamed index is
    dropped. The iterator passes on errors of the source unchanged."""
    reader = _reader(data)
    schema, marks = reader.schema, dict(reader.schema.metadata or {})
    if marks.pop(b"pandas", None) is not None:
        schema = schema.with_metadata(marks or None)
    return schema, iter(reader)


def _reader(data: Any) -> pa.RecordBatchReader:
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    if type(data).__module__.startswith("polars") and hasattr(data, "collect"):
        raise UsageError(f"data is a {kind}, which holds no rows yet: call .collect() on it first.")
    if type(data).__qualname__ == "DuckDBPyConnection":  # the type that its execute() returns
        advice = "give the relation that its .sql(…) returns"
        raise UsageError(f"data is a {kind}, which is no rows by itself: {advice}.")
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data
    # detected without an import
    if any(base.__module__.startswith("pyarrow._dataset") for base in type(data).__mro__):
        scanner = data.scanner() if hasattr(data, "scanner") else data
        return scanner.to_reader()
    is_pandas = type(data).__module__.startswith("pandas") and hasattr(data, "reset_index")
    is_pandas = is_pandas and hasattr(data, "columns")
    if is_pandas:
        data = _without_index(data)
    if not hasattr(data, "__arrow_c_stream__") or (kind.startswith("pandas") and not is_pandas):
        raise UsageError(f"data is a {kind}. Accepted: {_ACCEPTED}.")
    _check_names(data)
    try:
        if is_pandas:  # as its stream does, whose names end at a NUL
            return pa.Table.from_pandas(data).to_reader()
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(
            f"data is a {kind}, whose Arrow stream could not be opened: {error}. Accepted: "
            f"{_ACCEPTED}."
        ) from error


def _check_names(data: Any) -> None:
    """SchemaMismatchError for a NUL in a name: Arrow's C interface would cut the name there."""
    names = [name for name in getattr(data, "columns", ()) if isinstance(name, str)]
    kinds = list(getattr(data, "dtypes", ()))
    while kinds:  # of Polars, nested
        kind = kinds.pop()
        for member in getattr(kind, "fields", None) or ():
            names.append(getattr(member, "name", ""))
            kinds.append(getattr(member, "dtype", None))
        if (inner := getattr(kind, "inner", None)) is not None:
            kinds.append(inner)
    for name in names:
        if "\0" in name:
            raise SchemaMismatchError(
                f"The column name {name!r} has the character NUL, at which other programs end a "
                "name. Rename the column."
            )


def _without_index(frame: Any) -> Any:
    """The frame with the named levels of its index as columns. pandas itself would also write
    unnamed levels, and would omit a named range."""
    named = [name for name in frame.index.names if name is not None]
    try:
        return (frame.reset_index(level=named) if named else frame).reset_index(drop=True)
    except ValueError as error:
        text = f"data has an index that cannot become columns: {error}"
        raise UsageError(f"{text}. Rename or reset the index first.") from error


# The size of a row group: large enough for encoders and readers to be efficient, small enough for a
# task's memory.
ROW_GROUP_BYTES = 64 * 1024 * 1024
ROW_GROUP_ROWS = 1_000_000
# Bytes that wait for more rows of their partition. While a full buffer is sorted, it exists twice
# for a moment.
BUFFER_BYTES = 128 * 1024 * 1024
# Many small batches take more memory than their sizes say: more than this many are joined.
_MAX_BATCHES = 1024
_MAX_JOINED_APART = 64
_INT32_MAX = 2**31 - 1

Partition: TypeAlias = tuple[WireValue, ...]
_Group: TypeAlias = tuple[Partition, pa.Table]  # rows of one partition


class PartitionSource(NamedTuple):
    """What a partition column is made of: the name of a column of the batches, the type of the
    partition's values, and the function that makes them of that column's."""

    name: str
    type: FieldType
    values: Callable[[Any], Any] = lambda column: column


class _Waiting:
    """Batches in the order of their arrival."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.bytes = 0
        self.rows = 0

    def append(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.bytes += batch.nbytes
        self.rows += batch.num_rows

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)

    def join(self) -> None:
        """Copy all batches into one."""
        self.batches = self.table().combine_chunks().to_batches()


class RowBuffer:
    """Buffers rows in the order of their arrival until a row group of their partition is full or
    the budget is spent. No row is lost or duplicated. [DF3]

    Batches with rows of a single partition wait per partition. From the first mixed batch on, all
    rows wait in one line and are sorted when the budget is spent: thousands of partitions in random
    order cost one sort per buffer, not a slice per batch and partition, and no slice keeps the
    memory of released rows.
    """

    def __init__(
        self,
        partition_columns: tuple[PartitionSource, ...],
        *,
        row_group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        """partition_columns: in the order of the table's partition_by."""
        self._columns = partition_columns
        self._row_group_bytes = row_group_bytes
        self._apart: dict[Partition, _Waiting] = {}
        self._line: _Waiting | None = None  # while it is set, no rows wait per partition
        self._batches = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[_Group]:
        """Add rows; yield the row groups that are due, in the order of arrival. Exhaust it."""
        partition = self._only_partition(batch)
        self._append(partition, batch)
        if partition is not None and self._line is None:
            waiting = self._apart[partition]
            if waiting.bytes >= self._row_group_bytes or waiting.rows >= ROW_GROUP_ROWS:
                yield partition, self._take(partition)
        if self.bytes >= BUFFER_BYTES:
            yield from self._release(BUFFER_BYTES // 2, frozenset())
        elif self._batches > _MAX_BATCHES:
            self._join()

    def drain(self, first: Container[Partition] = frozenset()) -> Iterator[_Group]:
        """Yield all waiting rows, each partition once, those in `first` before the others."""
        yield from self._release(0, first)

    def _append(self, partition: Partition | None, batch: pa.RecordBatch) -> None:
        if partition is None and self._line is None:
            self._line_up()
        waiting = self._line
        if waiting is None:
            assert partition is not None
            waiting = self._apart.setdefault(partition, _Waiting())
        before = waiting.bytes
        waiting.append(batch)
        self.bytes += waiting.bytes - before
        self._batches += 1

    def _line_up(self) -> None:
        """Move all partitions into one line, in which the rows of each keep their order."""
        self._line = _Waiting()
        for waiting in self._apart.values():
            for batch in waiting.batches:
                self._line.append(batch)
        self._apart = {}

    def _join(self) -> None:
        if self._line is None and len(self._apart) > _MAX_JOINED_APART:
            self._line_up()
        joined = list(self._apart.values()) if self._line is None else [self._line]
        for waiting in joined:
            waiting.join()
        self._batches = sum(len(waiting.batches) for waiting in joined)

    def _release(self, keep: int, first: Container[Partition]) -> Iterator[_Group]:
        """Yield the largest partitions until at most `keep` bytes wait."""
        if self._line is not None:
            yield from self._release_line(keep, first)
            return
        for partition in sorted(self._apart, key=lambda p: (p not in first, -self._apart[p].bytes)):
            if keep and self.bytes <= keep:
                break
            yield partition, self._take(partition)

    def _release_line(self, keep: int, first: Container[Partition]) -> Iterator[_Group]:
        table, runs = self._sorted()
        row_bytes = table.nbytes / table.num_rows
        runs.sort(key=lambda run: (run[0] not in first, -run[2]))
        waiting = float(table.nbytes)
        released = 0
        for partition, start, rows in runs:
            if keep and waiting <= keep:
                break
            yield partition, table.slice(start, rows)
            waiting -= rows * row_bytes
            released += 1
        if kept := runs[released:]:
            # A copy: slices would keep the memory of the released rows.
            rest = pa.concat_tables([table.slice(start, rows) for _, start, rows in kept])
            for batch in rest.combine_chunks().to_batches():
                self._append(kept[0][0] if len(kept) == 1 else None, batch)

    def _take(self, partition: Partition) -> pa.Table:
        waiting = self._apart.pop(partition)
        self.bytes -= waiting.bytes
        self._batches -= len(waiting.batches)
        return waiting.table()

    def _only_partition(self, batch: pa.RecordBatch) -> Partition | None:
        """The partition of all rows; None if there are several."""
        partition: list[WireValue] = []
        for name, type, values_of in self._columns:
            column = values_of(batch.column(name))
            if column[0] != column[-1]:
                return None
            if len(column.dictionary_encode(null_encoding="encode").dictionary) > 1:
                return None
            partition += from_array(column.slice(0, 1), type)
        return tuple(partition)

    def _sorted(self) -> tuple[pa.Table, list[tuple[Partition, int, int]]]:
        """Empty the buffer: return its rows, stably sorted by partition, and where those of each
        begin and how many they are."""
        assert self._line is not None
        table = self._line.table().combine_chunks()
        self._line, self.bytes, self._batches = None, 0, 0
        sources = [
            pa.chunked_array([values_of(pa.concat_arrays(table.column(name).chunks))])
            for name, _, values_of in self._columns
        ]
        codes = group_numbers(sources, table.num_rows)
        order = pc.sort_indices(codes)
        ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
        starts = [0, *ends[:-1]]
        firsts = order.take(pa.array(starts, pa.int64()))
        wires = [
            from_array(values_of(table.column(name).take(firsts)), type)
            for name, type, values_of in self._columns
        ]
        rows = map(int.__sub__, ends, starts)
        runs = list(zip(zip(*wires, strict=True), starts, rows, strict=True))
        return table.take(order), runs


def row_groups(table: pa.Table, row_group_bytes: int = ROW_GROUP_BYTES) -> Iterator[pa.Table]:
    """Split the table into parts of about one row group each, as even as possible."""
    parts = max(1, round(table.num_rows / ROW_GROUP_ROWS), round(table.nbytes / row_group_bytes))
    size = math.ceil(table.num_rows / parts)
    for start in range(0, table.num_rows, max(size, 1)):
        yield table.slice(start, size)


def bytes_of(batch: pa.RecordBatch) -> int:
    """The bytes of the rows in memory; of the buffers where pyarrow (before 24) has no other."""
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())


def pieces(batch: pa.RecordBatch, most_bytes: int = ROW_GROUP_BYTES) -> Iterator[pa.RecordBatch]:
    """Slices of the batch, none larger than a row group, nor is its copy; none if it is empty."""
    rows, size, size_bytes = batch.num_rows, ROW_GROUP_ROWS, bytes_of(batch)
    if size_bytes:
        size = max(1, min(ROW_GROUP_ROWS, rows * most_bytes // size_bytes))
    # Arrow cannot cast a large_string that lies beyond 2 GiB in its buffer to string, however short
    # the slice is: copy such slices.
    is_far = batch.get_total_buffer_size() > _INT32_MAX
    for start in range(0, rows, size):
        piece = batch.slice(start, size)
        yield piece.take(pa.array(range(piece.num_rows), pa.int64())) if is_far else piece

"""Reads the rows of files, and rewrites files, in this process, with Arrow, in bounded memory.
[RC1] [RC8]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import DataFileMissingError
from ..files.row_buffer import record_batches
from ..files.writer import DataFileWriter, WritePlan
from ..format import manifest_table
from ..format.arrow_schema import from_arrow, marked_schemas
from ..format.entries import Entry, ManifestRef, pack_bins
from ..format.evolution import assign_new_ids
from ..format.fields import Schema, arrow_marks
from ..format.partitioning import PartitionPattern
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..protocol.conflict import Conflict
from ..runtime.concurrency import MUCH_BYTES, map_concurrently, parallel_writers
from ..runtime.environment import tuning
from ..runtime.outcome import InputTotals, Outcome, committed_or_raise
from ..scan.parallel_decode import batches_of, check_digest, checked_bytes
from .conditions import mask_of
from .row_change import RowChange, ranges_of

_BATCH_ROWS = 1 << 17
_BATCH_BYTES = 8 << 20  # of a file, which become several times as many in memory
_PACK_BYTES = 8 << 20  # of files that are opened together
_WHOLE_BYTES = 64 << 20  # of the largest file that is held, so that its digest is compared
_READ_AHEAD = 4  # batches
_MOST_SHARES = 4
_LEAST_MEMORY = 50 << 20
_MEMORY_OF_ONE = 256 << 20  # of a writer
# what rows of a source are written and checked by
_SAME_IN_TRIES = ("schema", "partition_by", "constraints")
_UNPACKED = 8  # times as many bytes as the file has

Batches = Iterator[pa.RecordBatch]


class NewFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Rows in new files, which no snapshot lists yet. touched: the partitions of the manifests;
    empty: unknown; intake: None: unknown."""

    entries: Sequence[Entry] = ()
    manifests: Sequence[ManifestRef] = ()
    touched: Sequence[PartitionPattern] = ()
    tasks: int = 1
    intake: InputTotals | None = None

    @property
    def rows(self) -> int:
        """How many rows they have."""
        files = sum(entry.rows for entry in self.entries)
        return files + sum(ref.rows for ref in self.manifests)

    def register(self, change: RowChange) -> int:
        """Make them part of the change; returns how many rows they have."""
        change.take(
            self.entries,
            self.manifests,
            touched=self.touched,
            tasks=self.tasks,
            intake=self.intake,
        )
        return self.rows


class NewRows(NamedTuple):
    """Rows that a caller gives. schema: their columns; marks: the versions that they say they were
    read from; write: writes these columns of all rows, once, under these names of the plan's;
    latest: the rows with the highest value of a column among those with the same key. [CF17]"""

    schema: Schema
    marks: Iterable[str]
    write: Callable[[WritePlan, Mapping[str, str]], NewFiles]
    latest: Callable[[Latest], NewRows]


class Latest(NamedTuple):
    """keys, null_safe: columns, of each whether two nulls are one key; by: a column."""

    keys: Sequence[str]
    null_safe: Sequence[bool]
    by: str


def arrow_data(ctx: TableContext, data: Any) -> NewRows:
    """Rows with an Arrow stream, which this process writes."""
    schema, batches = record_batches(data)

    def write(plan: WritePlan, columns: Mapping[str, str]) -> NewFiles:
        given, names = list(columns), list(columns.values())
        if given == names == schema.names:
            return write_rows(ctx, plan, batches)
        chosen = (batch.select(given).rename_columns(names) for batch in batches)
        return write_rows(ctx, plan, chosen)

    def latest(wanted: Latest) -> NewRows:
        return arrow_data(ctx, _latest(pa.Table.from_batches(batches, schema), wanted))

    columns = from_arrow(schema, ctx.new_field_id)
    marks = arrow_marks(schema.metadata)
    return NewRows(schema=columns, marks=marks, write=write, latest=latest)


def _latest(rows: pa.Table, wanted: Latest) -> pa.Table:
    """The rows with the highest value among those with the same key; several, where several have
    it. A null is the lowest; rows with a null in their key have no equals. [RC3]"""
    if not rows.num_rows:
        return rows
    codes, alone = [], np.zeros(rows.num_rows, dtype=bool)
    for name, is_safe in zip(wanted.keys, wanted.null_safe, strict=True):
        column = rows.column(name).combine_chunks()
        encoded = column.dictionary_encode(null_encoding="encode").indices
        codes.append(encoded.to_numpy(zero_copy_only=False))
        if not is_safe:
            alone |= column.is_null().to_numpy(zero_copy_only=False)
    _, groups = np.unique(np.stack(codes), axis=1, return_inverse=True)
    groups, by = groups.reshape(-1), rows.column(wanted.by).combine_chunks()
    places = pc.rank(by, "ascending", tiebreaker="min").to_numpy()
    places = np.where(by.is_null().to_numpy(zero_copy_only=False), 0, places)
    highest = np.zeros(rows.num_rows, dtype=places.dtype)
    np.maximum.at(highest, groups, places)
    return rows.filter(pa.array((places == highest[groups]) | alone))


def for_each_try(ctx: TableContext, rows: NewRows) -> NewRows:
    """The same rows for each try of a change. They are evaluated once: each later try copies the
    files of the one before it into files of its own job. [RC4] [RC11]"""
    written: list[tuple[WritePlan, NewFiles]] = []
    schema = assign_new_ids(rows.schema, ctx.new_field_id)  # the same columns in each try

    def write(plan: WritePlan, columns: Mapping[str, str]) -> NewFiles:
        new = _copied(ctx, *written[-1], plan) if written else rows.write(plan, columns)
        written.append((plan, new))
        return new

    return rows._replace(schema=schema, write=write)


def _copied(ctx: TableContext, before: WritePlan, new: NewFiles, plan: WritePlan) -> NewFiles:
    """Copies of files of a job that lost, named as another job's. A conflict, if the table's
    columns, its partitioning or its constraints have changed since."""
    store = ctx.store
    if any(getattr(before, name) != getattr(plan, name) for name in _SAME_IN_TRIES):
        others = Conflict(
            rule="schema",
            mine="has written rows by the columns, partitions and constraints of a version",
            winner="the table has others by now",
        )
        committed_or_raise(Outcome(kind="conflict", job_id=plan.job, conflict=others), store.url)

    def one(entry: Entry) -> Entry:
        folder, _, end = entry.path.rpartition(before.job)
        copy = msgspec.structs.replace(entry, path=f"{folder}{plan.job}{end}", job=plan.job)
        try:
            with store.open_input(entry.path) as source:
                output = store.create_output(copy.path)
                try:
                    while part := source.read(_PACK_BYTES):
                        output.write(part)
                except BaseException:
                    output.discard()
                    raise
                output.close()
        except FileNotFoundError as error:
            raise DataFileMissingError(
                f"{store.url}: {entry.path}, which an earlier try of this change has written, is "
                "gone; nothing was committed. Run it again, and gc with a `grace` that is longer "
                "than operations take.",
                path=entry.path,
            ) from error
        return copy

    copies = map_concurrently(store, one, entries_of(ctx, before, new), is_much=True)
    return NewFiles(entries=copies, touched=new.touched, tasks=new.tasks, intake=new.intake)


def entries_of(ctx: TableContext, plan: WritePlan, new: NewFiles) -> list[Entry]:
    """The entry of every file that was written, those in manifests, too."""
    files = list(new.entries)
    for ref in new.manifests:
        table = ctx.manifests.manifest(ref, plan.partition_by)
        files += manifest_table.from_table(
            table, schema=plan.schema, partition_by=plan.partition_by, inherited=0
        )
    return files


def rewrite(
    ctx: TableContext,
    change: RowChange,
    entries: pa.Table,
    rows: Callable[[pa.Table], Iterable[pa.RecordBatch]],
) -> int:
    """Write what `rows` makes of some of the entries, for all of them, and register the new files;
    returns how many rows they have. Large files are shared among threads. [RC5]"""
    plan = change.plan(sources=ranges_of(entries))
    parts = _shares(entries)
    attempts = [ctx.env.randomness(8).hex() for _ in parts]

    def one(number: int) -> NewFiles:
        batches, size = rows(parts[number]), size_of(parts[number])
        return write_rows(ctx, plan, batches, task=number, attempt=attempts[number], size=size)

    done = map_concurrently(ctx.store, one, range(len(parts)), is_much=True)
    return sum(new.register(change) for new in done)


def write_rows(
    ctx: TableContext,
    plan: WritePlan,
    batches: Iterable[pa.RecordBatch],
    *,
    task: int = 0,
    attempt: str | None = None,
    size: int = 0,
) -> NewFiles:
    """Write all rows to new files. attempt: by default a random one; size: bytes of the files that
    are read for them meanwhile: where these are many, a second thread encodes."""
    attempt = ctx.env.randomness(8).hex() if attempt is None else attempt
    is_much = size > MUCH_BYTES
    with DataFileWriter(
        ctx.store, plan, task=task, attempt=attempt, in_background=is_much
    ) as writer:
        for batch in batches:
            writer.write(batch)
        return NewFiles(entries=writer.close(), intake=writer.intake)


def scan(
    ctx: TableContext,
    snapshot: Snapshot,
    entries: pa.Table,
    columns: list[str] | None = None,
    filter: pc.Expression | None = None,
) -> Batches:
    """The rows of these files, file by file and in their order, with the table's names. columns:
    with all that the filter names. Files are read whole, and compared with their digests, but for
    large ones and where some columns of many bytes are wanted."""
    is_part = columns is not None and size_of(entries) > _most_projected()
    sized = enumerate(entries.column("bytes").to_pylist())
    for places in pack_bins(sized, _PACK_BYTES):
        some = entries.slice(places[0], len(places))
        with naming_files(ctx, snapshot, some):
            if is_part or size_of(some) > _WHOLE_BYTES:
                yield from scanner_of(ctx, snapshot, some, columns, filter).to_batches()
                continue
            files = each_of(some)
            held = map_concurrently(ctx.store, partial(checked_bytes, ctx), files)
            for entry in files:  # the bytes of a file go before others are read
                for batch in _batches_of(ctx, snapshot, entry, held.pop(0), columns):
                    yield from _chosen(batch, filter)


def read_once(
    ctx: TableContext,
    snapshot: Snapshot,
    entries: pa.Table,
    columns: list[str] | None = None,
) -> dict[str, pa.Table] | None:
    """All rows of these files by path, each file read once; None where the files, or their rows in
    memory, are too large to be held. [RC8]"""
    most = tuning().read_once_bytes if columns is None else _most_projected()
    if not entries.num_rows or size_of(entries) > most:
        return None
    room, lock = _UNPACKED * most, Lock()

    def one(entry: pa.Table) -> list[pa.RecordBatch] | None:
        nonlocal room
        held: list[pa.RecordBatch] = []
        is_large = size_of(entry) > _PACK_BYTES
        with naming_files(ctx, snapshot, entry):
            data = checked_bytes(ctx, entry)
            for batch in _batches_of(ctx, snapshot, entry, data, columns, use_threads=is_large):
                size = batch.nbytes
                with lock:
                    room -= size
                if room < 0:
                    return None
                held.append(batch)
        return held

    schema, _ = marked_schemas(snapshot.schema, snapshot.table_id, ctx.store.url, snapshot.version)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
    files: dict[str, pa.Table] = {}
    found = map_concurrently(ctx.store, one, each_of(entries))
    for path, batches in zip(entries.column("path").to_pylist(), found, strict=True):
        if batches is None:
            return None
        files[path] = pa.Table.from_batches(batches, schema)
    return files


def _most_projected() -> int:
    """Bytes of files that are read whole though only some columns are wanted."""
    return min(_PACK_BYTES, tuning().read_once_bytes)


def _chosen(batch: pa.RecordBatch, filter: pc.Expression | None) -> list[pa.RecordBatch]:
    """The rows for which the filter is true."""
    if filter is None:
        return [batch]
    rows = pa.Table.from_batches([batch])
    batches: list[pa.RecordBatch] = rows.filter(mask_of(rows, filter).combine_chunks()).to_batches()
    return batches


def each_of(entries: pa.Table) -> list[pa.Table]:
    """One table for each entry."""
    return [entries.slice(index, 1) for index in range(entries.num_rows)]


def size_of(entries: pa.Table) -> int:
    """The bytes of the files."""
    return int(pc.sum(entries.column("bytes")).as_py() or 0)


def _batches_of(
    ctx: TableContext,
    snapshot: Snapshot,
    entry: pa.Table,
    data: bytes | None,
    columns: list[str] | None,
    *,
    use_threads: bool = False,
) -> Iterable[pa.RecordBatch]:
    """The rows of one file. data: its bytes; None: another program wrote it."""
    if data is None:
        batches: Iterable[pa.RecordBatch] = scanner_of(
            ctx, snapshot, entry, columns, None
        ).to_batches()
        return batches
    rows = _batch_rows(entry)
    return batches_of(ctx, snapshot, entry, data, columns, rows, use_threads=use_threads)


def _batch_rows(entries: pa.Table) -> int:
    rows = int(pc.sum(entries.column("rows")).as_py() or 0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, size_of(entries))))


def scanner_of(
    ctx: TableContext,
    snapshot: Snapshot,
    entries: pa.Table,
    columns: list[str] | None,
    filter: pc.Expression | None,
) -> Any:
    from ..scan.arrow_dataset import open_dataset  # late: pyarrow.dataset takes long to load

    dataset = open_dataset(ctx, snapshot, entries)
    return dataset.scanner(
        columns=columns,
        filter=filter,
        batch_size=_batch_rows(entries),
        batch_readahead=_READ_AHEAD,
        fragment_readahead=1,
    )


@contextmanager
def naming_files(ctx: TableContext, snapshot: Snapshot, entries: pa.Table) -> Iterator[None]:
    """Inside this block, the files of the entries are read: DataFileMissingError if one is gone,
    CorruptMetadataError if one cannot be read because it is damaged. [RD2]"""
    try:
        yield
    except (FileNotFoundError, DataFileMissingError) as error:
        paths = entries.column("path").to_pylist()
        path = next((each for each in paths if each in str(error)), paths[0])
        raise DataFileMissingError(
            f"{ctx.store.url}: data file {path} of version {snapshot.version}, whose rows are "
            "read, is gone; nothing was committed. If gc expired that version meanwhile, run the "
            "operation again, and gc with a `grace` that is longer than operations take. Otherwise "
            "something else removed the file: `manifestcommit verify` names all files that are "
            "missing.",
            path=path,
        ) from error
    except (pa.ArrowException, OSError):
        for entry in each_of(entries):
            check_digest(ctx, entry)
        from ..scan.arrow_dataset import open_dataset  # late: pyarrow.dataset takes long to load

        with open_dataset(ctx, snapshot, entries).naming_damage():
            raise


def by_sources(entries: pa.Table) -> tuple[pa.Table, ...]:
    """The files that record their source ranges, and those that do not: rows of both are not mixed
    in one file. [RC5]"""
    silent = pc.is_null(entries.column("sources"))
    both = (entries.filter(pc.invert(silent)), entries.filter(silent))
    return tuple(some for some in both if some.num_rows)


def memory_of(entries: pa.Table) -> int:
    """About how many bytes it takes at most to rewrite these files. Of each writer: a file's bytes,
    a row group that is filled, one that is encoded, and what encoding takes."""
    return _LEAST_MEMORY + min(_UNPACKED * size_of(entries), _MEMORY_OF_ONE * len(_shares(entries)))


def _shares(entries: pa.Table) -> list[pa.Table]:
    """The entries in order, in as many parts of about the same size as threads are worth it."""
    total = size_of(entries)
    count = max(
        1, min(_MOST_SHARES, parallel_writers(total), entries.num_rows, total // MUCH_BYTES)
    )
    parts: list[list[pa.Table]] = [[] for _ in range(count)]
    before = 0
    for entry in each_of(entries):
        parts[min(count - 1, before * count // max(1, total))].append(entry)
        before += size_of(entry)
    return [pa.concat_tables(part) for part in parts if part]

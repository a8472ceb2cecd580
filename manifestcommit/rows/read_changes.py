"""The rows that were inserted, deleted and updated from one version to another, as Arrow's batches.
[CH1]-[CH6]"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import IO, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import (
    CorruptMetadataError,
    DataFileMissingError,
    SchemaMismatchError,
    SnapshotExpiredError,
    TableNotFoundError,
    UsageError,
)
from ..filter.predicate import key_columns
from ..format.evolution import find_column
from ..format.fields import NO_COLUMNS, Field, Schema, arrow_metadata, mark_of
from ..format.snapshot import REPLACE, Snapshot
from ..format.values import arrow_schema
from ..log.table_context import TableContext
from ..log.version_chain import (
    Head,
    missing_version,
    newest_above,
    open_head,
    read_object,
    read_version,
)
from ..protocol.change_feed import (
    CHANGE_COLUMNS,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    ChangeType,
    Offset,
    changes_every_row,
    check_change_columns,
    unreadable_columns,
)
from ..protocol.conflict import first_expired
from ..scan.change_feed import Given, VersionFeed
from ..scan.planning import differing_entries, entries_table
from .row_change import as_columns, scan

_BYTES = pa.large_binary()
_EMPTY = pa.scalar(b"", _BYTES)
_NULL, _VALUE = pa.scalar(b"\0", _BYTES), pa.scalar(b"\1", _BYTES)


def row_bytes(rows: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.LargeBinaryArray:
    """The bytes of each row in these columns, by default in all, equal exactly if the rows are: a
    null to another null, all NaN, arrays and maps with the same members in the same order; 0.0 and
    -0.0 differ. [CH3]"""
    columns = rows.columns if names is None else [rows.column(name) for name in names]
    return _joined([_bytes_of(column) for column in columns], rows.num_rows)


def _joined(parts: Sequence[pa.Array], count: int) -> pa.Array:
    """The parts of each row one after another; none is the beginning of another that differs."""
    if not parts:
        return pa.repeat(_EMPTY, count)
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _EMPTY)


def _bytes_of(array: pa.Array) -> pa.Array:
    """Each value with a byte before it that tells whether there is one; values of one type have one
    width, or tell their length first."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind, count = array.type, len(array)
    if pa.types.is_null(kind):
        return pa.repeat(_NULL, count)
    if pa.types.is_struct(kind):
        members = [_bytes_of(array.field(index)) for index in range(kind.num_fields)]
        known = _joined(members, count)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        known = _of_members(array)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        known = _joined([_of_numbers(pc.binary_length(array)), array.cast(_BYTES)], count)
    elif pa.types.is_boolean(kind):
        known = _of_width(array.cast(pa.uint8()))
    elif pa.types.is_floating(kind):
        nan = pa.scalar(float("nan"), kind)
        known = _of_width(pc.if_else(pc.is_nan(array), nan, array))
    else:
        known = _of_width(array)
    valued = pc.binary_join_element_wise(_VALUE, pc.fill_null(known, _EMPTY), _EMPTY)
    return pc.if_else(array.is_valid(), valued, _NULL)


def _of_members(array: pa.Array) -> pa.Array:
    """How many members an array or a map has, and their bytes."""
    offsets = array.offsets.cast(pa.int64())
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if pa.types.is_map(array.type):
        keys, items = (part.slice(first, last - first) for part in (array.keys, array.items))
        members = _joined([_bytes_of(keys), _bytes_of(items)], last - first)
    else:
        members = _bytes_of(array.values.slice(first, last - first))
    lists = pa.LargeListArray.from_arrays(pc.subtract(offsets, first), members)
    counts = pc.subtract(offsets.slice(1), offsets.slice(0, len(array)))
    return _joined([_of_numbers(counts), pc.binary_join(lists, _EMPTY)], len(array))


def _of_numbers(numbers: pa.Array) -> pa.Array:
    return _of_width(numbers.cast(pa.int64()))


def _of_width(array: pa.Array) -> pa.Array:
    """The bytes of values of one width, as they lie in memory; null where there is none."""
    return array.view(pa.binary(array.type.bit_width // 8)).cast(pa.binary()).cast(_BYTES)


LIMIT_BYTES = 64 << 20  # of different rows that are held
_FILES = 32  # into which more of them are split
_DEPTH = 6  # splits of a split, by five other bits of a checksum each time
_ROW_BYTES = 200  # of Python's objects for a row that is held
_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 8 << 20
_PREFIX = "manifestcommit-changes-"

Change = tuple[ChangeType, pa.RecordBatch]


class Counted(NamedTuple):
    """Rows, and how often each was added, less than nothing where it was removed."""

    rows: pa.RecordBatch
    times: Sequence[int]


def bag_difference(
    removed: Iterable[pa.RecordBatch],
    added: Iterable[pa.RecordBatch],
    on: Sequence[str] = (),
    *,
    limit_bytes: int = LIMIT_BYTES,
) -> Iterator[Change]:
    """The rows that only `removed` has, as often as it has them more often, and those that only
    `added` has. on: the columns of a key; where one row with a key goes and one comes, they are the
    images of an update. Memory: `limit_bytes`, or all different rows with one key, and a batch;
    more is kept in temporary files without a name. [CH3] [CH5]"""
    counted = (
        Counted(batch, [sign] * batch.num_rows)
        for sign, batches in ((-1, removed), (1, added))
        for batch in batches
    )
    return _difference(counted, on, limit_bytes, 0)


def _difference(
    counted: Iterable[Counted], on: Sequence[str], limit: int, depth: int
) -> Iterator[Change]:
    rows = iter(counted)
    held = _Held()
    for part in rows:
        held.take(part)
        if held.bytes > limit and depth < _DEPTH:
            break
    else:
        yield from _changes(held, on)
        return
    with contextlib.ExitStack() as stack:
        files = _Files(stack, on, depth)
        for part in held.counted():
            files.take(part)
        del held
        for part in rows:
            files.take(part)
        for kept in files.counted():
            yield from _difference(kept, on, limit, depth + 1)


class _Held:
    """Different rows in memory, and how often each was added in all."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._times: list[int] = []
        self._batches: list[pa.RecordBatch] = []
        self.bytes = 0

    def take(self, part: Counted) -> None:
        places, times, fresh = self._places, self._times, list[int]()
        keys = zip(row_bytes(part.rows).to_pylist(), part.times, strict=True)
        for row, (key, often) in enumerate(keys):
            at = places.setdefault(key, len(times))
            if at == len(times):
                times.append(often)
                fresh.append(row)
                self.bytes += len(key) + _ROW_BYTES
            else:
                times[at] += often
        if fresh:
            first_seen = part.rows.take(pa.array(fresh, pa.int64()))
            self._batches.append(first_seen)
            self.bytes += first_seen.nbytes

    def counted(self) -> Iterator[Counted]:
        """The rows of which one bag has more."""
        start = 0
        for batch in self._batches:
            times = self._times[start : start + batch.num_rows]
            start += batch.num_rows
            differing = [row for row, often in enumerate(times) if often]
            if differing:
                rows = batch.take(pa.array(differing, pa.int64()))
                yield Counted(rows, [times[row] for row in differing])


class _Files:
    """Counted rows in temporary files: equal rows, and those with one key, in the same one."""

    def __init__(self, stack: contextlib.ExitStack, on: Sequence[str], depth: int) -> None:
        self._on, self._shift = on, 5 * depth
        self._files: list[IO[bytes]] = [
            stack.enter_context(tempfile.TemporaryFile(prefix=_PREFIX))  # noqa: SIM115  # by the stack
            for _ in range(_FILES)
        ]
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}

    def take(self, part: Counted) -> None:
        keys = _keys(part.rows, self._on)
        whole = row_bytes(part.rows) if None in keys else pa.nulls(0)
        wanted: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            number = zlib.crc32(whole[row].as_py() if key is None else key) >> self._shift
            wanted.setdefault(number % _FILES, []).append(row)
        columns = [pa.array(part.times, pa.int64()), *part.rows.columns]
        schema = pa.schema([pa.field("", pa.int64()), *part.rows.schema])
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        for number, chosen in wanted.items():
            some = rows.take(pa.array(chosen, pa.int64()))
            if number not in self._writers:
                self._writers[number] = pa.ipc.new_stream(self._files[number], rows.schema)
            self._writers[number].write_batch(some)

    def counted(self) -> Iterator[Iterator[Counted]]:
        for number, writer in self._writers.items():
            writer.close()
            yield self._read(self._files[number])

    def _read(self, file: IO[bytes]) -> Iterator[Counted]:
        file.seek(0)
        for batch in pa.ipc.open_stream(file):
            schema = pa.schema(list(batch.schema)[1:])
            rows = pa.RecordBatch.from_arrays(batch.columns[1:], schema=schema)
            yield Counted(rows, batch.column(0).to_pylist())


def _changes(held: _Held, on: Sequence[str]) -> Iterator[Change]:
    """The changes, and which of them are the images of an update. [CH4]"""
    differing = list(held.counted())
    keys = [_keys(part.rows, on) if on else [None] * len(part.times) for part in differing]
    gone, come = Counter[bytes](), Counter[bytes]()
    for part, of_rows in zip(differing, keys, strict=True):
        for key, often in zip(of_rows, part.times, strict=True):
            if key is not None:
                (come if often > 0 else gone)[key] += abs(often)
    for part, of_rows in zip(differing, keys, strict=True):
        rows: dict[ChangeType, list[int]] = {}
        for row, (key, often) in enumerate(zip(of_rows, part.times, strict=True)):
            is_update = key is not None and gone[key] == come[key] == 1
            kinds = (POSTIMAGE, INSERT) if often > 0 else (PREIMAGE, DELETE)
            rows.setdefault(kinds[0] if is_update else kinds[1], []).append(row)
        for kind, chosen in rows.items():
            for batch in _repeated(part, chosen):
                yield kind, batch


def _repeated(part: Counted, chosen: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """These rows, each as often as it was added or removed, in batches."""
    each = part.rows.nbytes // part.rows.num_rows
    most = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, each)))
    rows = itertools.chain.from_iterable(itertools.repeat(at, abs(part.times[at])) for at in chosen)
    while some := list(itertools.islice(rows, most)):
        yield part.rows.take(pa.array(some, pa.int64()))


def _keys(rows: pa.RecordBatch, on: Sequence[str]) -> list[bytes | None]:
    """The bytes of each row's key; None: there is none, since a null equals nothing."""
    if not on:
        return [None] * rows.num_rows
    keys: list[bytes | None] = row_bytes(rows, on).to_pylist()
    nulls = reduce(pc.or_, (rows.column(name).is_null() for name in on)).to_pylist()
    return [None if missing else key for key, missing in zip(keys, nulls, strict=True)]


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Entries as a manifest's table, without bounds, and the version by which they are read."""

    snapshot: Snapshot
    entries: pa.Table


class VersionChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the files at the version of `added`."""

    removed: Files
    added: Files


def open_range(ctx: TableContext, start: int, end: int | None) -> tuple[Head, Head]:
    """The newest version, and the version `end` (None: the newest), where changes from `start` up
    to it can be read; SnapshotExpiredError if a version between has expired. [CH1] [RD3]"""
    head = ctx.open()
    last = head if end is None else read_version(ctx.store, head, end)
    if start > last.version:
        raise UsageError(
            f"changes lead from an older version to a newer one, and version {start} is newer than "
            f"{last.version}"
        )
    if start in head.snapshot.void:  # was never a state of the table [MT8]
        read_version(ctx.store, head, start)  # its error
    check_all_readable(ctx.store.url, head.snapshot, start, last.version)
    return head, last


def version_changes(
    ctx: TableContext, head: Head, last: Head, start: int, columns: Sequence[Field]
) -> list[VersionChange]:
    """What became of the files at each version above `start`, up to the last one; versions that
    changed none are left out. start: 0: before the first version. One request for each version, and
    those for manifests that only one of two neighbours lists. [CH1] [RD3]"""
    try:
        found = [
            change
            for before, snapshot in itertools.pairwise(_snapshots(ctx, last, start))
            for change in change_between(ctx, before, snapshot, columns)
        ]
    except CorruptMetadataError:
        confirm(ctx, head, start, last.version)  # what is missing may have expired
        raise
    confirm(ctx, head, start, last.version)
    return found


def change_between(
    ctx: TableContext, before: Snapshot, snapshot: Snapshot, columns: Sequence[Field]
) -> list[VersionChange]:
    """What became of the files from one version to the next one, if anything did: all of them
    change where these columns do without any file. [CH6] Replacing files changes no row [GC11],
    but where it drops a member of these columns. [SC12]"""
    if changes_every_row(columns, before.schema.fields, snapshot.schema.fields, snapshot.commits):
        removed, added = (entries_table(ctx, each) for each in (before, snapshot))
    elif all(commit.operation == REPLACE for commit in snapshot.commits):
        return []
    else:
        removed, added = differing_entries(ctx, before, snapshot)
    if not (removed.num_rows or added.num_rows):
        return []
    return [VersionChange(removed=files_of(before, removed), added=files_of(snapshot, added))]


def files_of(snapshot: Snapshot, entries: pa.Table) -> Files:
    """The entries, with no more than is needed to read their files."""
    needed = {"path", "rows", "bytes", "digest", "footer"}
    names = entries.column_names
    wanted = [name for name in names if name in needed or name.startswith("partition.")]
    return Files(snapshot=_without_contents(snapshot), entries=entries.select(wanted))


def empty_before(first: Snapshot) -> Snapshot:
    """The state before a table's first version."""
    return msgspec.structs.replace(_without_contents(first), schema=NO_COLUMNS, partition_by=())


def check_all_readable(url: str, head: Snapshot, start: int, end: int) -> None:
    """SnapshotExpiredError unless each version from `start` to `end` may be read. [CH1] [RD3]"""
    version = first_expired(head, range(max(start, 1), min(end, head.expired - 1) + 1))
    if version is not None:
        raise SnapshotExpiredError(
            f"the changes of rows from version {start} to {end} of {url} need all versions "
            f"from {max(start, 1)} on, and version {version} was expired; changes can be read "
            f"from version {head.expired} on. Nothing was read. Begin again from a whole copy of "
            f"one of those versions, in one commit: mc.write(table.dataset(version={head.version})"
            f', target, mode="overwrite", watermarks={{source: (position, {head.version})}}), and '
            "follow the changes from it."
        )


def check_columns(
    url: str, columns: Sequence[Field], end: int, changes: Sequence[VersionChange]
) -> None:
    """SchemaMismatchError if files between cannot be read as the columns of `end`. [CH6]"""
    for each in changes:
        for files in (each.removed, each.added):
            there = files.snapshot.schema.fields
            reasons = unreadable_columns(columns, there, later=False, void=True)
            if reasons and files.entries.num_rows:
                raise SchemaMismatchError(
                    f"version {files.snapshot.version} of {url} has files that cannot be read as "
                    f"the columns of version {end}: {'; '.join(reasons)}. Nothing was read. A "
                    "rollback took back what a column had become: copy the rows of version "
                    f"{end}, and follow the changes from it."
                )


def confirm(ctx: TableContext, head: Head, start: int, end: int) -> None:
    """Check that what was read was readable, by the latest version read afterwards. [RD3]"""
    newest = newest_above(ctx.store, head.version, head)
    if newest is None or newest.snapshot.table_id != head.snapshot.table_id:
        raise TableNotFoundError(
            f"the table at {ctx.store.url} was removed while its changes were read"
        )
    check_all_readable(ctx.store.url, newest.snapshot, start, end)


def _snapshots(ctx: TableContext, last: Head, start: int) -> Iterator[Snapshot]:
    """Each version from `start` to the last one, one after the other."""
    for version in range(max(start, 1), last.version + 1):
        if version in last.snapshot.void:
            continue
        stored = last if version == last.version else read_object(ctx.store, version)
        if stored is None:
            raise missing_version(version)
        if start == 0 and version == 1:
            yield empty_before(stored.snapshot)
        yield stored.snapshot


def _without_contents(snapshot: Snapshot) -> Snapshot:
    """What says how the files of a version are read; the rest may be large."""
    return Snapshot(
        format_version=snapshot.format_version,
        table_id=snapshot.table_id,
        version=snapshot.version,
        committed_at=snapshot.committed_at,
        writer=snapshot.writer,
        commits=(),
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
    )


Batches = Iterator[pa.RecordBatch]
_TYPES = (pa.string(), pa.int64(), pa.timestamp("us", "UTC"))


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that are to be read. end: the version whose columns they have; columns: those that
    are compared and shown; on: those of the key."""

    start: int
    end: Snapshot
    columns: tuple[Field, ...]
    on: tuple[str, ...]
    versions: tuple[VersionChange, ...]


def plan_changes(
    ctx: TableContext,
    start: int,
    end: int | None,
    *,
    on: Sequence[str] | str | None,
    columns: Sequence[str] | str | None,
) -> Plan:
    """What is to be read, or the error that says why not; no data file was opened. [CH1] [CH6]"""
    head, newest = open_range(ctx, start, end)
    last = newest.snapshot
    shown, keys = chosen_columns(last.schema, on, columns)
    versions = version_changes(ctx, head, newest, start, shown)
    if not shown and versions:
        raise UsageError(
            f"version {last.version} of {ctx.store.url} has no columns; nothing was read. Read "
            "the changes up to another version"
        )
    check_columns(ctx.store.url, shown, last.version, versions)
    return Plan(start=start, end=last, columns=shown, on=keys, versions=tuple(versions))


def chosen_columns(
    schema: Schema, on: Sequence[str] | str | None, columns: Sequence[str] | str | None
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """The columns to compare and to show, and the names of the key's columns. [CH2] [CH4]"""
    names = [columns] if isinstance(columns, str) else columns
    if names is not None and (not names or len({*names}) < len(names)):
        raise UsageError(
            f"columns: expected names of columns, each once, got {list(names)}; nothing was read. "
            "Leave columns out for all of them"
        )
    shown = tuple(schema.fields if names is None else [find_column(schema, name) for name in names])
    check_change_columns(shown)
    keys = () if on is None else key_columns(schema, on)
    for key in keys:
        if all(column.id != key.id for column in shown):
            raise UsageError(
                f"on: the column {key.name!r} is not among the columns that are read; nothing was "
                "read. Name it in columns, too"
            )
    return shown, tuple(key.name for key in keys)


def read_changes(ctx: TableContext, plan: Plan) -> pa.RecordBatchReader:
    """The rows, version by version, and within a version in no particular order. [CH2]"""
    mark = arrow_metadata(mark_of(plan.end.table_id, ctx.store.url, plan.end.version))
    schema = changes_schema(plan.columns).with_metadata(mark)
    return pa.RecordBatchReader.from_batches(schema, _rows(ctx, plan, schema))


def _rows(ctx: TableContext, plan: Plan, schema: pa.Schema) -> Batches:
    try:
        for each in plan.versions:
            for batch in rows_of_change(ctx, each, plan.columns, plan.on):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except DataFileMissingError:
        head = open_head(ctx.store).snapshot
        check_all_readable(ctx.store.url, head, plan.start, plan.end.version)
        raise


def changes_schema(columns: Sequence[Field]) -> pa.Schema:
    """These columns of a table, and behind them those that only changed rows have. [CH2]"""
    shown = arrow_schema(Schema(fields=tuple(columns)), physical=False, ids=False)
    for name, kind in zip(CHANGE_COLUMNS, _TYPES, strict=True):
        shown = shown.append(pa.field(name, kind))
    return shown


def rows_of_change(
    ctx: TableContext, change: VersionChange, columns: Sequence[Field], on: Sequence[str]
) -> Batches:
    """The changed rows of one version, or of a part of it that is read by itself. [CH3] [CH4]"""
    removed, added = (
        _rows_of(ctx, files, columns) if files.entries.num_rows else None
        for files in (change.removed, change.added)
    )
    differing: Iterator[Change]
    if removed is None or added is None:  # all of them differ
        kind, rows = (INSERT, added) if removed is None else (DELETE, removed)
        differing = ((kind, batch) for batch in rows or ())
    else:
        differing = bag_difference(removed, added, on)
    schema, at = changes_schema(columns), change.added.snapshot
    for kind, batch in differing:
        if batch.num_rows:
            values = zip((kind, at.version, at.committed_at), _TYPES, strict=True)
            more = [pa.repeat(pa.scalar(value, type), batch.num_rows) for value, type in values]
            yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema)


def _rows_of(ctx: TableContext, files: Files, columns: Sequence[Field]) -> Batches:
    """The rows of files as the version that lists them has them, in these columns. [CH6]"""
    there = {field.id: field for field in files.snapshot.schema.fields}
    names = [there[field.id].name for field in columns if field.id in there]
    rows = scan(ctx, files.snapshot, files.entries, names)
    return (as_columns(batch, there, columns) for batch in rows)


class RowFeed(VersionFeed[VersionChange]):
    """The changes that a stream gets, in parts that tasks read by themselves. [CH7]"""

    _back = 1
    _gives = "changed"

    def _whole(self, snapshot: Snapshot) -> Given[VersionChange]:
        """All live rows are inserted at the version with which the stream begins."""
        entries = entries_table(self._ctx, snapshot)
        removed, added = (files_of(snapshot, each) for each in (entries.slice(0, 0), entries))
        return self._checked(VersionChange(removed=removed, added=added))

    def _added(self, snapshot: Snapshot, at: Offset) -> Given[VersionChange]:
        if snapshot.version == 1:
            before = empty_before(snapshot)
        else:
            before = self._snapshot(self._version_before(snapshot.version), at)
        found = change_between(self._ctx, before, snapshot, self._columns)
        return self._checked(found[0]) if found else Given()

    def _checked(self, change: VersionChange) -> Given[VersionChange]:
        for files in (change.removed, change.added):
            if files.entries.num_rows and (refusal := self._unreadable(files.snapshot)):
                return Given(refusal=refusal)
        return Given(files=tuple(parts_of(change)))


def parts_of(change: VersionChange) -> Iterator[VersionChange]:
    """Parts that can be read apart from each other, always in the same order: each file where a
    version only added files, or only removed some. [CH7]"""
    removed, added = (_by_path(files) for files in (change.removed, change.added))
    if removed.entries.num_rows and added.entries.num_rows:
        yield msgspec.structs.replace(change, removed=removed, added=added)
        return
    for name, files in (("removed", removed), ("added", added)):
        for row in range(files.entries.num_rows):
            one = msgspec.structs.replace(files, entries=files.entries.take([row]))
            sides = {"removed": removed, "added": added, name: one}
            yield msgspec.structs.replace(change, **sides)


def bytes_of(change: VersionChange) -> int:
    """The bytes of its files."""
    sides = (change.removed.entries, change.added.entries)
    return sum(sum(each.column("bytes").to_pylist()) for each in sides)


def _by_path(files: Files) -> Files:
    entries = files.entries.combine_chunks().sort_by("path")
    return msgspec.structs.replace(files, entries=entries)

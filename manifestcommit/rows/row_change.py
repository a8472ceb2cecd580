"""One attempt to delete, update, merge or overwrite rows: from a base version it names the files to
remove and those to add, in one commit. [RC1] [CF16]"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial, wraps
from itertools import chain
from threading import Lock
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..commits.commit_loop import check_based_on, commit, measured
from ..commits.prepared_job import JointUnit, Pinned, TablePart, below, found_outcome
from ..errors import CorruptMetadataError, DataFileMissingError, ManifestCommitError
from ..files.writer import (
    WritePlan,
    by_partition,
    bytes_of,
    pieces,
    plan_for,
    record_batches,
    write_files,
)
from ..format import codec, manifest_table
from ..format.change import Write, as_begun, declaration
from ..format.entries import MAX_SOURCES, Entry, ManifestRef, SourceRange, pack_bins
from ..format.evolution import SchemaEdit, apply_edits
from ..format.fields import (
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    arrow_marks,
    assign_new_ids,
    check_has_columns,
)
from ..format.partitioning import PartitionPattern, bounded
from ..format.snapshot import DEFAULT_ROW_TRIES, ROW_TRIES_PROPERTY, Snapshot, totals_of
from ..format.transforms import partition_fields
from ..format.values import (
    Conformer,
    arrow_schema,
    from_array,
    from_arrow,
    group_numbers,
    marked_schemas,
    refit,
)
from ..log.table_context import TableContext, find_key_at
from ..log.version_chain import Head
from ..protocol.compaction_plan import unite_ranges
from ..protocol.conflict import Conflict
from ..runtime.environment import (
    MUCH_BYTES,
    map_concurrently,
    map_in_batches,
    parallel_writers,
    pause,
    tuning,
)
from ..runtime.outcome import InputTotals, Meter, Outcome, committed_or_raise
from ..runtime.validation import Ranges, advances_of

LOG = logging.getLogger("manifestcommit.jobs")

Operation = Literal["delete", "merge", "overwrite", "replace", "update"]
Executor = Literal["arrow", "spark"]
_LOST = ("read_partition_was_touched", "replaced_file_is_gone")


class RowOutcome(Outcome, frozen=True, kw_only=True):
    """The result of a row change: an `Outcome` with the number of rows.

    `kind` may also be "unchanged" if no row had to change, so that nothing was committed, and
    "planned" for a dry run; then `version` is the one that was examined. In a transaction, and with
    publish=False, it is "pending": the transaction commits it, or `Staged` opens it by `job_id`.
    All numbers are None where an earlier run did the work.

    Attributes:
        rows_deleted: how many rows were deleted.
        rows_updated: how many rows got new values.
        rows_inserted: how many rows were added.
        rows_rewritten: how many unchanged rows are in new files now.
        files_removed: how many files had no row left.
        files_rewritten: how many files had rows left, which are in new files now.
        executor: what read and rewrote the files: "arrow", in this process, or "spark".
        reads: of a dry run, the paths of the files that may hold such rows, below the table path;
            they are read unless partition values alone decide.
        rewrites: of a dry run, those that hold such rows, and would be rewritten or removed.
        tries: how often it was done: once, and again each time that others were faster.

    Spec: RC1, RC8, RC11.
    """

    rows_deleted: int | None = None
    rows_updated: int | None = None
    rows_inserted: int | None = None
    rows_rewritten: int | None = None
    files_removed: int | None = None
    files_rewritten: int | None = None
    executor: Executor | None = None
    reads: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    tries: int = 1

    def _counts(self) -> dict[str, int | None]:
        names = ("rows_deleted", "rows_updated", "rows_inserted", "files_rewritten")
        return {name: getattr(self, name) or None for name in names}


class Declared(msgspec.Struct, frozen=True):
    """What callers declare with any row change. watermarks: ranges of sources whose rows it writes;
    they advance with the commit [RC6] [WM2]; based_on: the version that the rows, or the condition
    and the values, come from, in place of what the rows say [CF17]; hold: takes the change when it
    is complete, for a commit of several tables, in place of its own commit [MT3]; pinned: what this
    commit has read of the table [MT16]."""

    key: str | None = None
    fingerprint: str | None = None
    reason: str | None = None
    watermarks: Ranges | None = None
    based_on: int | None = None
    hold: Callable[[RowChange], object] | None = None
    pinned: Pinned | None = None


NOTHING = Declared()


class LostRaceError(Exception):
    """A row change was overtaken, and may be done again. most: how often in all. [RC11]"""

    def __init__(self, outcome: Outcome, most: int) -> None:
        super().__init__(outcome.reason)
        self.outcome, self.most = outcome, most


def is_lost(outcome: Outcome) -> bool:
    """Whether others were faster, which a look at a newer version resolves."""
    return outcome.conflict is not None and outcome.conflict.rule in _LOST


_Given = ParamSpec("_Given")
_Change = Callable[Concatenate[TableContext, _Given], RowOutcome]


def until_committed(once: _Change[_Given]) -> _Change[_Given]:
    """A change of rows that is done again where others were faster, as a new job at the newest
    version. once: looks at the rows, rewrites files and commits. [RC11]"""

    @wraps(once)
    def change(ctx: TableContext, /, *given: _Given.args, **named: _Given.kwargs) -> RowOutcome:
        tries, limits = 1, ctx.tuning.limits
        while True:
            try:
                return msgspec.structs.replace(once(ctx, *given, **named), tries=tries)
            except LostRaceError as lost:
                if tries >= lost.most:
                    committed_or_raise(lost.outcome, ctx.store.url)
                conflict = lost.outcome.conflict
                LOG.info("%r: try %d lost to others: %s", ctx.store.url, tries, conflict)
            pause(ctx.env, tries, limits.first_pause_s, limits.longest_pause_s)
            tries += 1

    return change


class RowChange(JointUnit):
    """A row change in progress, of which nothing is visible before its commit. texts: declared with
    the key, besides the ranges and the fingerprint. [RC1] [CM10] [RC6]"""

    def __init__(
        self,
        ctx: TableContext,
        operation: Operation,
        texts: Sequence[str],
        declared: Declared = NOTHING,
    ) -> None:
        key, fingerprint, reason = declared.key, declared.fingerprint, declared.reason
        super().__init__(ctx, declared.based_on)
        self._advances, self.hold = advances_of(declared.watermarks), declared.hold
        self.operation, self._key, self._reason = operation, key, reason
        self.head, self.key_record = ctx.open(), None
        if key is not None:
            self.head, self.key_record = find_key_at(ctx, self.head, key)
        self._state, self._edits = self.head.snapshot, tuple[SchemaEdit, ...]()
        check_has_columns(self.snapshot.schema, self.url)
        self._declared = declaration(
            mode=operation, scope=list(texts), advances=self._advances, fingerprint=fingerprint
        )
        self.job_id = ctx.new_job(self.head)
        self._reads: tuple[PartitionPattern, ...] = ()
        self._pinned = declared.pinned
        self._based_on: int | None = None
        if self.key_record is None:
            self.read_at(self.head)
        self._removed: dict[str, int] = {}
        self.is_checked = True  # whether all its files are written by `plan`
        self._written: list[tuple[WritePlan, NewFiles]] = []
        self._is_writing = False

    @property
    def snapshot(self) -> Snapshot:
        """The state whose rows are examined, with the columns that it is to have."""
        return self._state

    @property
    def changes(self) -> bool:
        """Whether a commit would change a row or a column, or record a key or a position."""
        files = self._removed or self.entries or self.manifests
        is_declared = bool(self._advances) or self._key is not None
        return bool(files or self._edits) or self._repartitions or is_declared

    @property
    def sources(self) -> tuple[SourceRange, ...]:
        """The source ranges of the rows that it adds, as its files record them. [OB8]"""
        ranges = (
            SourceRange(source=each.source, start=each.start, end=each.end)
            for each in self._advances
        )
        return union_of([tuple(ranges)])

    def evolve(
        self, edits: tuple[SchemaEdit, ...], partition_by: tuple[int, ...] | None = None
    ) -> None:
        """Change the table's columns together with the rows, which are read and written with these
        from here on. partition_by: of all files from here on. [RC12] [SC5] [SC13]"""
        schema = apply_edits(self._state.schema, edits)
        by = self._state.partition_by if partition_by is None else partition_by
        self._edits = edits
        self._state = msgspec.structs.replace(self._state, schema=schema, partition_by=by)

    @property
    def _repartitions(self) -> bool:
        return self._state.partition_by != self.head.snapshot.partition_by

    def read(self, partitions: Iterable[PartitionPattern]) -> None:
        """Record that rows of these partitions decide what changes: writes to them by others since
        the version that the change is based on conflict, and those that are there do so now. [CF16]
        [CF17]"""
        pinned, read = self._pinned or (None, ())
        self._reads = bounded((*self._reads, *partitions, *read))
        versions = (self.read_at(self.head), pinned)
        version = min((each for each in versions if each is not None), default=None)
        self._based_on = below(version, self.head.version, None, self._reads)
        check_based_on(self.ctx, self.head, self.change())

    def pin(self, pinned: Pinned) -> None:
        """Record what the commit has read of the table. [MT16]"""
        self._pinned = pinned
        if self.key_record is None:
            self.read(())

    def plan(self, *, sources: tuple[SourceRange, ...] = ()) -> WritePlan:
        """How its files are written: as the snapshot is. Proves the store first. [DF3] [ST12]"""
        self.ctx.prove(self.snapshot.proven)
        return plan_for(self.snapshot, url=self.url, job=self.job_id, sources=sources)

    def remove(self, entries: pa.Table) -> None:
        """Remove these files. entries: of this snapshot, by `scan.planning`. [CF7]"""
        columns = (entries.column(name).to_pylist() for name in ("path", "rows"))
        self._removed |= dict(zip(*columns, strict=True))

    def new(self, plan: WritePlan, write: Callable[..., NewFiles], *given: Any) -> NewFiles:
        """Write new rows by this plan; a dry run deletes them again."""
        self._is_writing = True
        new = write(*given)
        self._is_writing = False
        self._written.append((plan, new))
        return new

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Inside this block is a dry run: what `new` has written is deleted at the end. [RC13]"""
        try:
            yield
        except BaseException:
            with suppress(ManifestCommitError):  # the first error is the one to know of
                self._discard()
            raise
        self._discard()

    def _discard(self) -> None:
        store, names = self.ctx.store, set[str]()
        for plan, new in self._written:
            names |= {entry.path for entry in entries_of(self.ctx, plan, new)}
            names |= {ref.path for ref in new.manifests}
        if self._is_writing:  # it failed, and has not said what it had written
            names |= {info.name for info in store.list("") if self.job_id in info.name}
        store.delete(sorted(names))

    def takes(self) -> tuple[Schema, tuple[int, ...]]:
        return self.snapshot.schema, self.snapshot.partition_by

    def change(self) -> Write:
        """The change that would be committed now."""
        writes = bool(self.entries or self.manifests)
        checked = self.snapshot.constraints.values() if writes and self.is_checked else ()
        return Write(
            job=self.job_id,
            birth=self.head.version,
            operation=self.operation,
            key=self._key,
            declared=self._said(),
            # a change that writes no file fits any columns
            schema=self.snapshot.schema if writes else None,
            partition_by=self.snapshot.partition_by if writes or self._repartitions else None,
            repartitions=self._repartitions,
            edits=self._edits,
            add=tuple(self.entries),
            add_manifests=tuple(self.manifests),
            touched=self.touches(self.snapshot.partition_by) if writes else (),
            remove=frozenset(self._removed),
            reads=self._reads,
            based_on=self._based_on,
            advances=self._advances,
            reason=self._reason,
            checked=tuple(sorted(each.id for each in checked)),
            summary=self.ledger.summary(self.tasks, self.entries, self.manifests),
        )

    def _said(self) -> str | None:
        if self._key is None:
            return None
        is_as_begun = self.key_record is not None and not self.is_declared
        return as_begun(self._declared) if is_as_begun else self._declared

    def commit_or_lose(self) -> Outcome:
        """Commit everything atomically, or raise the outcome's error; LostRaceError where it may be
        done again: not where rows were read from a version before. [RC11] [CF17]"""
        outcome, url = self.commit(), self.url
        if is_lost(outcome) and self.read_at(self.head) is None:
            most = int(self.snapshot.properties.get(ROW_TRIES_PROPERTY, DEFAULT_ROW_TRIES))
            raise LostRaceError(outcome, most)
        return committed_or_raise(outcome, url)

    def base_head(self) -> Head:
        return self.head

    def part(self) -> TablePart:
        change, found = self.change(), self.already_committed
        return TablePart(ctx=self.ctx, head=self.head, change=change, found=found)

    def commit(self) -> Outcome:
        """Commit everything atomically. [CM1]-[CM8]"""
        change = self.change()
        meter = Meter(self.ctx.tally, change.job, change.operation, change.summary)
        if self.key_record is not None:
            return measured(found_outcome(self.ctx, self.head, change), meter)
        return commit(self.ctx, self.head, change, meter=meter)


def union_of(files: Iterable[tuple[SourceRange, ...]]) -> tuple[SourceRange, ...]:
    """The ranges that cover the rows of these files; none: unknown, or too many. [RC5] [OB8]"""
    ranges: list[SourceRange] = []
    for of_file in files:
        if not of_file:
            return ()
        ranges += of_file
    together = unite_ranges(ranges)
    return together if len(together) <= MAX_SOURCES else ()


def ranges_of(entries: pa.Table) -> tuple[SourceRange, ...]:
    """The source ranges of all these files; none if a file does not record them. [OB8]"""
    return union_of(
        manifest_table.source_ranges(row) for row in entries.column("sources").to_pylist()
    )


_BATCH_ROWS = 1 << 17
_BATCH_BYTES = 8 << 20  # of a file, which become several times as many in memory
_PACK_BYTES = 8 << 20  # of files that are opened together
_REQUEST_BYTES = 8 << 20
_WHOLE_BYTES = 64 << 20  # of the largest file that is held, so that its digest is compared
_READ_AHEAD = 4  # batches
_MOST_SHARES = 4
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
        return totals_of(self.entries, self.manifests).rows

    def register(self, unit: JointUnit) -> int:
        """Make them part of a job or change; returns how many rows they have. [SP2]"""
        unit.add_written(
            self.entries, self.manifests, touched=self.touched, tasks=self.tasks, intake=self.intake
        )
        return self.rows


class NewRows(NamedTuple):
    """Rows that a caller gives. schema: their columns; marks: the versions that they say they were
    read from; write: writes these columns of all rows, once, under these names of the plan's;
    latest: of a key's columns, each with whether two nulls in it are one key, and a last column:
    the rows with its highest value among those with the same key, several where several have it; a
    null is the lowest, and rows with a null in their key have no equals [RC3]; held: all rows, the
    same in each try, if they are few enough to be held in memory. [CF17]"""

    schema: Schema
    marks: Iterable[str]
    write: Callable[[WritePlan, Mapping[str, str]], NewFiles]
    latest: Callable[[Sequence[tuple[str, bool]], str], NewRows]
    held: Callable[[], pa.Table | None] = lambda: None


def arrow_data(ctx: TableContext, data: Any) -> NewRows:
    """Rows with an Arrow stream, which this process writes."""
    schema, batches = record_batches(data)
    first: list[pa.RecordBatch] = []  # of the batches, which are read once

    @cache
    def held() -> pa.Table | None:
        room = _UNPACKED * tuning().read_once_bytes
        for batch in batches:
            first.append(batch)
            room -= bytes_of(batch)
            if room < 0:
                return None
        return pa.Table.from_batches(first, schema)

    def write(plan: WritePlan, columns: Mapping[str, str]) -> NewFiles:
        given, names = list(columns), list(columns.values())
        every = chain(first, batches)
        if given == names == schema.names:
            return write_rows(ctx, plan, every)
        chosen = (batch.select(given).rename_columns(names) for batch in every)
        return write_rows(ctx, plan, chosen)

    def latest(key: Sequence[tuple[str, bool]], by: str) -> NewRows:
        return arrow_data(ctx, _latest(pa.Table.from_batches(batches, schema), key, by))

    columns = from_arrow(schema, ctx.new_field_id)
    marks = arrow_marks(schema.metadata)
    return NewRows(schema=columns, marks=marks, write=write, latest=latest, held=held)


def _latest(rows: pa.Table, key: Sequence[tuple[str, bool]], by: str) -> pa.Table:
    if not rows.num_rows:
        return rows
    keys = [rows.column(name) for name, _ in key]
    groups, last = group_numbers(keys, rows.num_rows), rows.column(by).combine_chunks()
    places = pc.rank(last, "ascending", tiebreaker="min")
    places = pc.if_else(last.is_null(), pa.scalar(0, places.type), places)
    found = pa.table({"group": groups, "place": places}).group_by("group")
    highest = found.aggregate([("place", "max")]).sort_by("group").column("place_max")
    chosen = pc.equal(places, highest.take(groups).combine_chunks())
    for name, is_safe in key:
        if not is_safe:
            chosen = pc.or_(chosen, rows.column(name).is_null().combine_chunks())
    return rows.filter(chosen)


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
        mine = "has written rows by the columns, partitions and constraints of a version"
        others = Conflict(rule="schema", mine=mine, winner="the table has others by now")
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
        files += manifest_table.from_table(table, plan, inherited=0)
    return files


def rewrite(
    change: RowChange,
    entries: pa.Table,
    rows: Callable[[pa.Table], Batches],
    added: Iterable[pa.RecordBatch] = (),
) -> int:
    """Write what `rows` makes of some of the entries, for all of them, and register the new files;
    returns how many rows they have. Large files are shared among threads. added: rows that come
    besides; those of a partition go where its files are rewritten. [RC5]"""
    ctx, parts = change.ctx, _shares(entries)
    plan = change.plan(sources=ranges_of(entries))
    attempts = [ctx.env.randomness(8).hex() for _ in parts]
    more = _divided(plan, parts, added)

    def one(number: int) -> NewFiles:
        batches, size = chain(rows(parts[number]), more[number]), size_of(parts[number])
        return write_rows(ctx, plan, batches, task=number, attempt=attempts[number], size=size)

    done = map_concurrently(ctx.store, one, range(len(parts)), is_much=True)
    return sum(new.register(change) for new in done)


def _divided(
    plan: WritePlan, parts: Sequence[pa.Table], added: Iterable[pa.RecordBatch]
) -> list[Iterable[pa.RecordBatch]]:
    """The rows that go beside each part: those of its partitions."""
    if len(parts) == 1:
        return [added]
    fields, owners = partition_fields(plan.schema, plan.partition_by), dict[Any, int]()
    for number, part in enumerate(parts):
        found = (from_array(part.column(f"partition.{each.id}"), each.type) for each in fields)
        owners |= dict.fromkeys(zip(*found, strict=True), number)
    more: list[list[pa.RecordBatch]] = [[] for _ in parts]
    for values, rows in by_partition(plan, conformed(added, plan.schema)):
        more[owners.get(values, -1)] += rows.to_batches()
    return list(more)


def conformed(batches: Iterable[pa.RecordBatch], schema: Schema) -> pa.Table:
    """Rows as a file of these columns has them; SchemaMismatchError where they do not fit. [SC3]"""
    conformer = Conformer(schema)
    rows = [conformer.conform(piece) for batch in batches for piece in pieces(batch)]
    return pa.Table.from_batches(rows, arrow_schema(schema, physical=True))


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
    entries, intake = write_files(
        ctx.store, plan, batches, task=task, attempt=attempt, in_background=is_much
    )
    return NewFiles(entries=entries, intake=intake)


def scan(
    ctx: TableContext, snapshot: Snapshot, entries: pa.Table, columns: list[str] | None = None
) -> Batches:
    """The rows of these files, file by file and in their order, with the table's names. Files are
    read whole, and compared with their digests, but for large ones and where some columns of many
    bytes are wanted."""
    is_part = columns is not None and size_of(entries) > _most_projected()
    wanted = wanted_columns(ctx, snapshot, columns)
    sized = enumerate(entries.column("bytes").to_pylist())
    for places in pack_bins(sized, _PACK_BYTES):
        some = entries.slice(places[0], len(places))
        with naming_files(ctx, snapshot, some):
            if is_part or size_of(some) > _WHOLE_BYTES:
                yield from scanner_of(ctx, snapshot, some, columns, None).to_batches()
                continue
            files = each_of(some)
            held = map_concurrently(ctx.store, partial(checked_bytes, ctx), files)
            for entry in files:  # the bytes of a file go before others are read
                yield from batches_of(ctx, snapshot, entry, held.pop(0), wanted)


def read_once(
    ctx: TableContext, snapshot: Snapshot, entries: pa.Table, columns: list[str] | None = None
) -> dict[str, pa.Table] | None:
    """All rows of these files by path; None where files or rows are too large to be held. [RC8]"""
    most = tuning().read_once_bytes if columns is None else _most_projected()
    if not entries.num_rows or size_of(entries) > most:
        return None
    room, lock, wanted = _UNPACKED * most, Lock(), wanted_columns(ctx, snapshot, columns)

    def one(entry: pa.Table) -> pa.Table | None:
        nonlocal room
        held: list[pa.RecordBatch] = []
        for batch in batches_of(ctx, snapshot, entry, checked_bytes(ctx, entry), wanted):
            size = batch.nbytes
            with lock:
                room -= size
            if room < 0:
                return None
            held.append(batch)
        return pa.Table.from_batches(held, wanted.shown)

    with naming_files(ctx, snapshot, entries):
        found = map_concurrently(ctx.store, one, each_of(entries))
    files = dict(zip(entries.column("path").to_pylist(), found, strict=True))
    return None if any(rows is None for rows in found) else files


def _most_projected() -> int:
    """Bytes of files that are read whole though only some columns are wanted."""
    return min(_PACK_BYTES, tuning().read_once_bytes)


def each_of(entries: pa.Table) -> list[pa.Table]:
    """One table for each entry."""
    return [entries.slice(index, 1) for index in range(entries.num_rows)]


def size_of(entries: pa.Table) -> int:
    """The bytes of the files."""
    return int(sum(entries.column("bytes").to_pylist()))


def checked_bytes(ctx: TableContext, entry: pa.Table) -> bytes | None:
    """All bytes of one file; None if another program wrote it: only its footer is known [AF3].
    CorruptMetadataError where they are not what was written: a file with the same rows would have a
    digest that hides the damage. [RC1]"""
    digest = entry.column("digest")[0].as_py()
    if digest is None:
        return None
    data = b"".join(_parts(ctx, entry, together=not ctx.store.is_remote))
    if codec.digest(data) != digest:
        raise _damaged(ctx.store.url, entry)
    return data


def check_digest(ctx: TableContext, entry: pa.Table) -> None:
    """CorruptMetadataError where the file is not what was written; its parts are not held."""
    digest, found = entry.column("digest")[0].as_py(), hashlib.sha256()
    if digest is not None:
        for part in _parts(ctx, entry):
            found.update(part)
        if codec.digest_of(found) != digest:
            raise _damaged(ctx.store.url, entry)


class Wanted(NamedTuple):
    """Columns of a version: as users see them, and as files have them."""

    shown: pa.Schema
    stored: pa.Schema


def wanted_columns(ctx: TableContext, snapshot: Snapshot, columns: list[str] | None) -> Wanted:
    """These columns, or all."""
    both = marked_schemas(snapshot.schema, snapshot.table_id, ctx.store.url, snapshot.version)
    if columns is None:
        return Wanted(*both)
    places = [both[0].get_field_index(name) for name in columns]
    some = (pa.schema([each.field(at) for at in places], each.metadata) for each in both)
    return Wanted(*some)


def batches_of(
    ctx: TableContext, snapshot: Snapshot, entry: pa.Table, data: bytes | None, wanted: Wanted
) -> Batches:
    """The rows of one file, by visible names. data: its bytes; None: another program wrote it."""
    names, rows = wanted.shown.names, _batch_rows(entry)
    if data is None:
        yield from scanner_of(ctx, snapshot, entry, names, None).to_batches()
        return
    file = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
    is_large = size_of(entry) > _PACK_BYTES  # others are decoded beside it
    there = file.schema_arrow  # pyarrow makes it anew each time
    types = dict(zip(there.names, there.types, strict=True))
    is_same = all(types.get(column.name) == column.type for column in wanted.stored)
    if not is_same or len(types) < len(there):
        # a column is younger than the file, or has another type by now
        from ..scan.arrow_dataset import open_dataset  # late: pyarrow.dataset takes long to load

        held = open_dataset(ctx, snapshot, entry, data)
        yield from held.to_batches(columns=names, batch_size=rows, use_threads=is_large)
        return
    chosen = wanted.stored.names
    for batch in file.iter_batches(rows, columns=chosen, use_threads=is_large):
        yield pa.RecordBatch.from_arrays(list(map(batch.column, chosen)), schema=wanted.shown)


def _parts(ctx: TableContext, entry: pa.Table, *, together: bool = False) -> Iterator[bytes]:
    """The bytes of a file in order: from a store behind a network by concurrent requests, since one
    connection does not use its bandwidth. together: in one part."""
    path, size = (entry.column(name)[0].as_py() for name in ("path", "bytes"))
    store = ctx.store
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


def _batch_rows(entries: pa.Table) -> int:
    rows = sum(entries.column("rows").to_pylist())
    fitting: int = _BATCH_BYTES * rows // max(1, size_of(entries))
    return max(1, min(_BATCH_ROWS, fitting))


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
    """The files that record source ranges, and others: their rows are not mixed. [RC5]"""
    silent = pc.is_null(entries.column("sources"))
    both = (entries.filter(pc.invert(silent)), entries.filter(silent))
    return tuple(some for some in both if some.num_rows)


def _shares(entries: pa.Table) -> list[pa.Table]:
    """The entries in order, in as many parts of about the same size as threads are worth it."""
    total, before = size_of(entries), 0
    most = min(_MOST_SHARES, parallel_writers(total), entries.num_rows, total // MUCH_BYTES)
    count = max(1, most)
    parts: list[list[pa.Table]] = [[] for _ in range(count)]
    for entry in each_of(entries):
        parts[min(count - 1, before * count // max(1, total))].append(entry)
        before += size_of(entry)
    return [pa.concat_tables(part) for part in parts if part]


def as_columns(
    rows: pa.RecordBatch, there: Mapping[int, Field], columns: Sequence[Field]
) -> pa.RecordBatch:
    """The rows in these columns, null where they lack one or a member. there: theirs, by id."""
    schema = arrow_schema(Schema(fields=tuple(columns)), physical=False, ids=False)
    arrays = [
        _as_type(rows.column(there[field.id].name), there[field.id].type, field.type, target.type)
        if field.id in there
        else pa.nulls(rows.num_rows, target.type)
        for field, target in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_type(array: pa.Array, have: FieldType, want: FieldType, target: pa.DataType) -> pa.Array:
    if have == want and array.type.equals(target):
        return array

    def as_member(old: Field, new: Field, to: pa.DataType, values: pa.Array) -> pa.Array:
        return _as_type(values, old.type, new.type, to)

    match have, want:
        case StructType(fields=old), StructType(fields=new):
            there = {field.id: (at, field) for at, field in enumerate(old)}
            members = [
                as_member(there[field.id][1], field, to.type, array.field(there[field.id][0]))
                if field.id in there
                else pa.nulls(len(array), to.type)
                for field, to in zip(new, target, strict=True)
            ]
            return pa.StructArray.from_arrays(members, fields=list(target), mask=array.is_null())
        case ArrayType(element=old_element), ArrayType(element=new_element):
            to = target.value_type
            return refit(array, target, partial(as_member, old_element, new_element, to))
        case ((MapType() as old_map), (MapType() as new_map)):
            keys = partial(as_member, old_map.key, new_map.key, target.key_type)
            items = partial(as_member, old_map.value, new_map.value, target.item_type)
            return refit(array, target, keys, items)
        case _:
            return array.cast(target)

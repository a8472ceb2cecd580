"""A change of rows in two steps. FIND: which files hold rows to change, and how many. REWRITE: the
new files that take their place. Each is done by an executor: this process, or Spark. [RC1] [RC8]

A merge finds by key. The source is held in memory or written first, once: the compared keys and the
committed rows cannot differ, even if it would return others a second time. [RC3] [RC4] [RC9]
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, reduce
from itertools import chain
from operator import and_
from threading import Lock
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import SchemaMismatchError, UsageError
from ..files.writer import WritePlan, by_partition, check_rows
from ..filter import predicate
from ..filter.predicate import MAX_FILES, And, IsIn, IsNull, MergeKeys, On, Or, Predicate, Unknown
from ..filter.sql_syntax import NotUnderstoodError
from ..format.entries import ColumnStats, Entry
from ..format.evolution import find_column, fit
from ..format.fields import MAX_FIELD_ID, Field, Schema, WireValue, is_ordered, type_text
from ..format.values import arrow_schema, from_array, python_value
from ..log.table_context import TableContext
from ..runtime.environment import MUCH_BYTES, map_concurrently
from ..runtime.outcome import Kind
from ..scan import planning
from . import row_change
from .clauses import (
    Clauses,
    Compiled,
    Condition,
    Delete,
    Rule,
    Rules,
    Update,
    compile_clauses,
    evaluating,
    given_values,
    inserted,
    mask_of,
    needs_spark,
    places_of,
    running_session,
    text_of,
    understand,
)
from .row_change import (
    NOTHING,
    Batches,
    Declared,
    Executor,
    NewFiles,
    NewRows,
    RowChange,
    RowOutcome,
)

LOG = logging.getLogger("manifestcommit.jobs")
SPARK_FROM_BYTES = 1 << 30  # of the files that may be rewritten; with less, one machine does well
_MOST_FOUND = 32 << 20  # rows of files of which it is kept, in 4 bytes each, what was found
_MOST_CODES = 1 << 63  # what a whole number of Arrow holds
_SPARSE = 8  # codes of keys for each that there is, of which a table is made
_FEW_KEYS = 10_000  # by whose values, besides their bounds, files are skipped
_WHOLE = (
    "replaces whole rows. Nothing was done. Add the column, or merge the source's columns only: "
    "when_matched=mc.Update(), when_not_matched=mc.Insert() (or None, which adds no rows)"
)

# path -> how many of its rows are updated, and how many are deleted
Counts = Mapping[str, tuple[int, int]]


class Staged(NamedTuple):
    """The source of a merge, whose rows are read once: held in memory, or in files of this job,
    which nothing lists yet. whole: rows of the source take the place of others as they are; held:
    its rows, by the names of its columns; new: its files; files: their entries, or what these would
    be of the rows that are held, by the columns in `files_by`."""

    plan: WritePlan
    keys: MergeKeys
    clauses: Clauses
    rules: Compiled
    whole: bool
    held: pa.Table | None
    new: NewFiles
    files: Sequence[Entry]
    files_by: Sequence[int]

    @property
    def rows(self) -> int:
        return self.new.rows if self.held is None else self.held.num_rows

    @property
    def key_names(self) -> list[str]:
        """The names of the keys in the source: those of the table's columns in whole rows."""
        return [field.name for field in self.keys.fields] if self.whole else list(self.keys.names)

    @property
    def updates(self) -> bool:
        """Whether rows of the table become rows of the source."""
        return any(isinstance(each, Update) for each in self.clauses.matched)

    @property
    def inserts(self) -> bool:
        """Whether rows of the source whose key the table lacks are added."""
        return bool(self.clauses.unmatched)


class Match(Protocol):
    """The rows of a source beside those of the table, by key. rule: what becomes of the table's
    rows; it is applied once, before the rest is asked. [RC3]"""

    rule: Any

    def members(self) -> Predicate | None:
        """What is true of every row with a key of the source, if these are few."""
        ...

    def add(self, *, dry_run: bool) -> int:
        """Write the source's rows that come into the table, but for those that are written with the
        files that are rewritten, and register them; returns how many are inserted: of those whose
        key the table lacks. dry_run: they need not be written. [RC3]"""
        ...


class RowExecutor(Protocol):
    """Finds rows in files, and rewrites files. What a rule is, only the executor knows."""

    @property
    def name(self) -> Executor: ...

    def understand(self, where: Any, schema: Schema) -> Condition:
        """The condition; UsageError, with the name of the argument, if it is not one."""
        ...

    def chosen(self, partitions: pa.Table, condition: Condition) -> list[bool]:
        """For each partition, a row each, whether it is true."""
        ...

    def deleting(self, condition: Condition) -> Any:
        """The rule by which rows are deleted for which the condition is true."""
        ...

    def match(self, change: RowChange, staged: Staged) -> AbstractContextManager[Match]:
        """The source of a merge beside the table."""
        ...

    def find(
        self, change: RowChange, entries: pa.Table, rule: Any, *, keep: bool = False
    ) -> Counts:
        """How many rows of each file change; 0 may be left out. keep: files are rewritten next."""
        ...

    def rewrite(self, change: RowChange, entries: pa.Table, rule: Any) -> tuple[int, int | None]:
        """Write the rows of these files that the rule leaves, with their new values, and register
        the new files. Returns how many rows they have, and how many have new values, if that is
        known. [RC1]"""
        ...


class Found(NamedTuple):
    """examined: the files that may hold rows that change; entries: those that do; partly: those of
    which rows remain; kept: how many rows of these stay as they were."""

    examined: pa.Table
    entries: pa.Table
    partly: pa.Table
    updated: int
    deleted: int
    kept: int


def found_in(entries: pa.Table, counts: Counts) -> Found:
    """What these counts mean for the files."""
    rows = zip(entries.column("path").to_pylist(), entries.column("rows").to_pylist(), strict=True)
    touched, partly, updated, deleted, kept = [], [], 0, 0, 0
    for at, (path, count) in enumerate(rows):
        new, gone = counts.get(path, (0, 0))
        updated, deleted = updated + new, deleted + gone
        if new or gone:
            touched.append(at)
            if gone < count:
                partly.append(at)
                kept += count - new - gone
    files, some = (entries.take(pa.array(at, pa.int64())) for at in (touched, partly))
    return Found(entries, files, some, updated, deleted, kept)


def apply(
    change: RowChange,
    executor: RowExecutor,
    rule: Any,
    entries: pa.Table,
    counts: Counts | None = None,
    *,
    what: str = "the condition",
    dry_run: bool = False,
) -> Found:
    """Find the rows of these files that change and, unless it is a dry run, rewrite the files.
    counts: what was found already; what: chooses rows, for an error. [RC1]"""
    if counts is None:
        counts = executor.find(change, entries, rule, keep=not dry_run) if len(entries) else {}
    found = found_in(entries, counts)
    if not dry_run and found.entries.num_rows:
        parts = row_change.by_sources(found.partly)
        done = [executor.rewrite(change, some, rule) for some in parts]
        written = sum(rows for rows, _ in done)
        check_rows(found.partly, found.kept + found.updated, written, what=what)
        updated = [new for _, new in done if new is not None]
        if len(updated) == len(done):
            check_rows(found.partly, found.updated, sum(updated), what=what)
        change.remove(found.entries)
    return found


def finish(
    change: RowChange,
    found: Found | None = None,
    executor: Executor | None = None,
    *,
    planned: bool = False,
    rows_inserted: int = 0,
) -> RowOutcome:
    """Commit, unless there is nothing to commit or a transaction does; returns the outcome, or
    raises its error; LostRaceError where it may be done again. found: None: done before. [RC6]
    [CM10] [MT3] [RC11]"""
    told: dict[str, Any] = {}
    if found is not None:
        told = {
            "rows_deleted": found.deleted,
            "rows_updated": found.updated,
            "rows_inserted": rows_inserted,
            "rows_rewritten": found.kept,
            "files_removed": found.entries.num_rows - found.partly.num_rows,
            "files_rewritten": found.partly.num_rows,
            "executor": executor,
        }
    kind: Kind | None = None
    version: int | None = change.head.snapshot.version
    if change.hold is not None and not planned:
        change.hold(change)
        kind, version = "pending", None
        if change.key_record is not None:
            kind, version = "already_committed", change.key_record.version
    elif planned and found is not None:
        kind = "planned"
        told["reads"] = tuple(found.examined.column("path").to_pylist())
        told["rewrites"] = tuple(found.entries.column("path").to_pylist())
    elif found is not None and not change.changes:
        kind = "unchanged"
    if kind is not None:
        return RowOutcome(
            kind=kind, job_id=change.job_id, version=version, metrics=change.metrics, **told
        )
    outcome = change.commit_or_lose()
    told = told if outcome.kind == "committed" else {}
    return RowOutcome(**msgspec.structs.asdict(outcome), **told)


def is_for_spark(size: int) -> bool:
    """Whether these are left to Spark: a session is active, and they are many bytes. [RC8]"""
    return size > SPARK_FROM_BYTES and running_session() is not None


class Selecting(NamedTuple):
    """A condition, and who evaluates it."""

    executor: RowExecutor
    condition: Condition


class ExecutorChoice:
    """Who does the work. spark: makes Spark's executor; is_given: the caller chose Spark. [RC8]"""

    def __init__(
        self, here: RowExecutor, spark: Callable[[], RowExecutor], *, is_given: bool
    ) -> None:
        self._here, self._make_spark, self._is_given = here, spark, is_given

    def by_language(self, where: Any, schema: Schema) -> Selecting:
        """This process, unless Spark was chosen or is needed to understand the condition."""
        if not self._is_given:
            try:
                return Selecting(self._here, self._here.understand(where, schema))
            except NotUnderstoodError as error:
                if running_session() is None:
                    raise needs_spark(where, "where", error) from error
        spark = self._make_spark()
        return Selecting(spark, spark.understand(where, schema))

    def by_size(self, entries: pa.Table, what: str, selecting: Selecting) -> Selecting:
        """Who reads and rewrites these files: what is large is left to an active session."""
        size, (executor, condition) = row_change.size_of(entries), selecting
        if executor is self._here and is_for_spark(size):
            spark = self._make_spark()
            selecting = Selecting(spark, spark.understand(condition.given, condition.schema))
        text = "%s: %d files of %.1f MB may hold such rows; they are read and rewritten by %s"
        LOG.info(text, what, entries.num_rows, size / 1e6, selecting.executor.name)
        return selecting

    def of_merge(self, size: int) -> RowExecutor:
        """Spark, if chosen, or if active and the table is large. size: its bytes."""
        return self._make_spark() if self._is_given or is_for_spark(size) else self._here


def needed_columns(schema: Schema, wanted: Predicate) -> list[str]:
    """The columns that the condition names, in the table's order; all if that is unknown."""
    everything = [field.name for field in schema.fields]
    if not predicate.is_understood(wanted) or isinstance(wanted, Unknown):
        return everything
    try:
        names = {find_column(schema, path[0]).name for path in predicate.columns_of(wanted)}
    except UsageError:
        return everything
    return [name for name in everything if name in names] or everything[:1]


class ArrowRows:
    """This process, as the executor of row changes, in bounded memory. Its rules are `Rules`."""

    name: Executor = "arrow"
    _match: ArrowMatch | None

    def __init__(self, ctx: TableContext) -> None:
        self._ctx, self._match = ctx, None
        self._kept: dict[str, tuple[pa.Table, int]] = {}  # path -> its new rows, how many updated
        self._found: dict[str, pa.Array] = {}  # path -> the source's row for each of its rows
        self._room, self._lock = _MOST_FOUND, Lock()

    def understand(self, where: Any, schema: Schema) -> Condition:
        return understand(where, schema, "where")

    def chosen(self, partitions: pa.Table, condition: Condition) -> list[bool]:
        with evaluating(condition.given):
            return [each is True for each in mask_of(partitions, condition.form).to_pylist()]

    def deleting(self, condition: Condition) -> Rules:
        return Rules([Rule(condition.given, condition.form)])

    def match(self, change: RowChange, staged: Staged) -> AbstractContextManager[Match]:
        self._match = ArrowMatch(self._ctx, change, staged)
        return nullcontext(self._match)

    def find(
        self, change: RowChange, entries: pa.Table, rule: Rules, *, keep: bool = False
    ) -> Counts:
        """One pass over the columns that the rule needs; over all of small files that are rewritten
        next, so that nothing is read again."""
        self._kept, snapshot = {}, change.snapshot
        columns = rule.columns(snapshot.schema)

        def one(entry: pa.Table) -> tuple[int, int]:
            with row_change.naming_files(self._ctx, snapshot, entry):
                if (only := rule.only) is not None:
                    scanner = row_change.scanner_of(self._ctx, snapshot, entry, [], only.form)
                    count = int(scanner.count_rows())
                    return (0, count) if only.set is None else (count, 0)
                updated = deleted = 0
                scanner = row_change.scanner_of(self._ctx, snapshot, entry, columns, rule.filter)
                found: list[pa.Array] = []
                for rows in _grouped(scanner.to_batches(), rule.at_once):
                    decided = rule.decide(rows, new=False)
                    rule.count(decided)
                    updated += decided.updated.true_count
                    deleted += decided.deleted.true_count
                    found += [] if decided.found is None else [decided.found.cast(pa.int32())]
                if keep and rule.filter is None and (updated or deleted):
                    self._hold(entry, found)
                return updated, deleted

        with nullcontext() if rule.only is None else evaluating(rule.only.where):
            files = row_change.read_once(self._ctx, snapshot, entries, None if keep else columns)
            if files is not None:
                return self._divide(files, rule, keep=keep)
            each, is_much = row_change.each_of(entries), row_change.size_of(entries) > MUCH_BYTES
            counts = map_concurrently(self._ctx.store, one, each, is_much=is_much)
        return dict(zip(entries.column("path").to_pylist(), counts, strict=True))

    def rewrite(self, change: RowChange, entries: pa.Table, rule: Rules) -> tuple[int, int]:
        updated: list[int] = []  # of each batch, from several threads

        def rows(some: pa.Table) -> Batches:
            paths = some.column("path").to_pylist()
            if all(path in self._kept for path in paths):
                kept, counts = zip(*(self._kept.pop(path) for path in paths), strict=True)
                updated.extend(counts)
                left = pa.concat_tables(kept)
                yield from (left.combine_chunks() if len(paths) > 1 else left).to_batches()
                return
            found, start = self._held(paths), 0
            for batch in row_change.scan(self._ctx, change.snapshot, some):
                own = None if found is None else found.slice(start, batch.num_rows)
                start += batch.num_rows
                decided = rule.decide(pa.Table.from_batches([batch]), found=own)
                updated.append(decided.updated.true_count)
                yield from decided.remaining().to_batches()

        added = [] if self._match is None else self._match.beside(entries)
        written = row_change.rewrite(change, entries, rows, added)
        return written - sum(batch.num_rows for batch in added), sum(updated)

    def _hold(self, entry: pa.Table, found: Sequence[pa.Array]) -> None:
        """Keep which rows of the source the file's rows belong to: its digest says that they are
        the same when it is rewritten."""
        rows = sum(map(len, found))
        with self._lock:
            if found and self._room >= rows and entry.column("digest")[0].is_valid:
                self._room -= rows
                self._found[entry.column("path")[0].as_py()] = pa.concat_arrays(found)

    def _held(self, paths: Sequence[str]) -> pa.Array | None:
        """What was kept of these files, one after another."""
        if any(path not in self._found for path in paths):
            return None
        return pa.concat_arrays([self._found.pop(path) for path in paths])

    def _divide(self, files: Mapping[str, pa.Table], rule: Rules, *, keep: bool) -> Counts:
        """How many rows of each file change. keep: hold the new rows of files that keep some."""
        decided = rule.decide(pa.concat_tables(files.values()), new=keep)
        rule.count(decided)
        left = decided.remaining() if keep else None
        counts, start, kept = dict[str, tuple[int, int]](), 0, 0
        for path, rows in files.items():
            count = rows.num_rows
            updated, deleted = counts[path] = decided.changed(start, count)
            if left is not None and (updated or deleted) and deleted < count:
                self._kept[path] = (left.slice(kept, count - deleted), updated)
            start, kept = start + count, kept + count - deleted
        return counts


class ArrowMatch:
    """A source whose keys are in memory. rule: what becomes of the table's rows."""

    def __init__(self, ctx: TableContext, change: RowChange, staged: Staged) -> None:
        self._ctx, self._change, self._staged = ctx, change, staged
        rules, schema = staged.rules, staged.plan.schema
        fields = staged.keys.fields if staged.whole else schema.fields
        empty = arrow_schema(schema, physical=False, ids=False)
        batches = list(self._rows(fields))
        self._source = pa.Table.from_batches(batches, None if batches else empty).combine_chunks()
        # no rows: no files, and nothing is asked of the keys
        names = [field.name for field in staged.keys.fields]
        keys = self._source.select(staged.key_names).rename_columns(names)
        self._keys = KeyIndex(staged.keys, keys) if batches else None
        rows = None if staged.whole else self._source
        prefix = "" if staged.whole else "target."
        self.rule = Rules(rules.by_source, rules.matched, self._keys, rows, prefix, rules.paired)
        self._is_added = False

    def members(self) -> Predicate | None:
        if self._keys is None or self._staged.rows > _FEW_KEYS:
            return None
        return self._keys.members()

    def beside(self, entries: pa.Table) -> list[pa.RecordBatch]:
        """The rows that are written with those of these files, if none has source ranges. [RC5]"""
        is_silent = not self._change.sources and not entries.column("sources")[0].is_valid
        if self._is_added or self._staged.held is None or not is_silent:
            return []
        self._is_added = True
        return list(self._added())

    def add(self, *, dry_run: bool) -> int:
        if not (dry_run or self._is_added):
            change, source = self._change, self._added()
            plan = change.plan(sources=change.sources)
            if (first := next(source, None)) is not None:
                rows = chain([first], source)
                change.new(plan, row_change.write_rows, self._ctx, plan, rows).register(change)
        if not self._staged.inserts:
            return 0
        if self._staged.whole:
            return pc.sum(self._is_new()).as_py() or 0
        return sum(batch.num_rows for batch in self._inserted)

    def _rows(self, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        """These columns of the source, in its order."""
        if self._staged.held is None:
            return staged_rows(self._ctx, self._staged.files, fields)
        held = self._staged.held.select([field.name for field in fields])
        return (batch for batch in held.to_batches() if batch.num_rows)

    def _is_new(self) -> pa.Array:
        """Of each row of the source, whether the table lacks its key."""
        return pc.equal(self.rule.times, 0)

    @cached_property
    def _inserted(self) -> list[pa.RecordBatch]:
        """What the clauses make of the source's rows whose key the table lacks."""
        rows = self._source.filter(self._is_new())
        pieces = inserted(rows, self._staged.rules.unmatched)
        return [batch for piece in pieces for batch in piece.to_batches()]

    def _added(self) -> Iterator[pa.RecordBatch]:
        """What comes into the table: a whole row as often as the table had its key, or once."""
        if not self._staged.whole:
            yield from self._inserted
            return
        none = pa.repeat(pa.scalar(0, pa.int64()), self._staged.rows)
        often = self.rule.times if self._staged.updates else none
        often = pc.add(often, self._is_new().cast(pa.int64())) if self._staged.inserts else often
        start = 0
        for batch in self._rows(self._staged.plan.schema.fields):
            some = often.slice(start, batch.num_rows)
            start += batch.num_rows
            if rows := _repeated(batch, some):
                yield rows


def _repeated(batch: pa.RecordBatch, often: pa.Array) -> pa.RecordBatch:
    """Each row so many times."""
    ends = pc.min_max(often).as_py()
    if ends == {"min": 1, "max": 1}:
        return batch
    if ends["max"] <= 1:
        return batch.filter(often.cast(pa.bool_()))
    rows = [row for row, count in enumerate(often.to_pylist()) for _ in range(count)]
    return batch.take(pa.array(rows, pa.int64()))


def staged_rows(
    ctx: TableContext, files: Sequence[Entry], fields: Sequence[Field]
) -> Iterator[pa.RecordBatch]:
    """These columns of the source, each value as it was stored, in the order of the files."""
    names, columns = [field.name for field in fields], [field.file_name for field in fields]
    for entry in files:
        with ctx.store.open_input(entry.path) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(columns=columns):
                yield batch.select(columns).rename_columns(names)


def _grouped(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The batches, as many together as have so many rows."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(each.num_rows for each in some) >= rows:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)


class KeyIndex:
    """The keys of the source, numbered as its rows are; a key with a null is equal to nothing, or
    to a null where that is said. A key becomes one whole number, its code: of a column of numbers
    or moments the distance from the least value, of another column the place of its value among the
    different ones; of several columns the codes together. [RC3]"""

    def __init__(self, keys: MergeKeys, rows: pa.Table) -> None:
        """rows: the source's key columns, by the table's names. UsageError if one comes twice."""
        self.names, self.rows = [field.name for field in keys.fields], rows.num_rows
        self._is_null_safe = keys.is_null_safe
        self._columns = [rows.column(name).combine_chunks() for name in self.names]
        self._spans = [_span(column) for column in self._columns]
        self._values: dict[int, pa.Array] = {}  # column -> its different values
        self._known: dict[int, pa.Array] = {}  # column -> the codes of those before it
        codes, size = self._codes(rows)
        self._given = codes.drop_null()
        self._places = pc.indices_nonzero(codes.is_valid()).cast(pa.int64())
        self._table: pa.Array | None = None  # code -> row
        if size <= _SPARSE * len(self._given):
            at = places_of(self._given, size)
            self._table = self._places.take(at)
            is_twice = pc.not_equal(self._table.take(self._given), self._places)
            twice = self._given.filter(is_twice)
        else:
            found, counts = pc.value_counts(self._given).flatten()
            twice = found.filter(pc.greater(counts, 1))
        if len(twice):
            self._refuse(rows, twice[0])

    @property
    def filter(self) -> pc.Expression | None:
        """True for every row with one of these keys, if they are few."""
        if self.rows > _FEW_KEYS:
            return None
        conditions = []
        for name, some, has_null in self._different():
            is_one = pc.field(name).isin(some)
            conditions.append(is_one | pc.field(name).is_null() if has_null else is_one)
        return reduce(and_, conditions)

    def members(self) -> Predicate:
        """True of every row with one of these keys, but for days that Python cannot hold."""
        known: list[Predicate] = []
        for name, different, has_null in self._different():
            with suppress(OverflowError, ValueError):
                held = tuple(different.to_pylist())
                each: list[Predicate] = [IsIn(column=(name,), values=held)] if held else []
                each += [IsNull(column=(name,))] if has_null else []
                known += [Or(args=tuple(each))] if len(each) > 1 else each
        return And(args=tuple(known))

    def find(self, rows: pa.Table) -> pa.Array:
        """For each row the number of the source's row that has its key; null: none has."""
        codes, _ = self._codes(rows)
        if self._table is not None:
            return self._table.take(codes)
        return self._places.take(_index_in(codes, self._given))

    def _codes(self, rows: pa.Table) -> tuple[pa.Array, int]:
        """The code of each row, null where no row of the source has it for sure, and how many codes
        there can be. The first rows are the source's."""
        code, size = pa.scalar(0, pa.int64()), 1
        for at, name in enumerate(self.names):
            column = rows.column(name).combine_chunks()
            part, parts = self._part(at, column)
            if at in self._known or size * parts >= _MOST_CODES:
                known = self._known.setdefault(at, code.unique().drop_null())
                code, size = _index_in(code, known), len(known)
            if size * parts >= _MOST_CODES:  # the span of this column alone is too wide
                self._spans[at] = None
                part, parts = self._part(at, column)
            code, size = pc.add(pc.multiply(code, parts), part), size * parts
        return code, size

    def _part(self, at: int, column: pa.Array) -> tuple[pa.Array, int]:
        """The code of each value of a column, a null's the last where it is equal to nulls."""
        codes, count = self._codes_of(at, column)
        if not self._is_null_safe[at]:
            return codes, count
        return pc.if_else(column.is_null(), pa.scalar(count, pa.int64()), codes), count + 1

    def _codes_of(self, at: int, column: pa.Array) -> tuple[pa.Array, int]:
        span = self._spans[at]
        if span is None and at not in self._values:
            encoded = column.dictionary_encode()
            self._values[at] = encoded.dictionary
            return encoded.indices.cast(pa.int64()), len(encoded.dictionary)
        if span is None:
            return _index_in(column, self._values[at]), len(self._values[at])
        numbers, (least, greatest) = _numbers_of(column), span
        inside = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, greatest))
        distance = pc.subtract(numbers, least)
        return pc.if_else(inside, distance, pa.scalar(None, pa.int64())), greatest - least + 1

    def _different(self) -> Iterator[tuple[str, pa.Array, bool]]:
        """The different values of each key column, and whether a null is one of them."""
        columns = zip(self.names, self._columns, self._is_null_safe, strict=True)
        for name, column, is_safe in columns:
            yield name, column.unique().drop_null(), is_safe and column.null_count > 0

    def _refuse(self, rows: pa.Table, code: pa.Scalar) -> None:
        places = pc.indices_nonzero(pc.equal(self._codes(rows)[0], code))
        key = [python_value(column[places[0].as_py()]) for column in self._columns]
        raise repeated(self.names, key, len(places))


def repeated(names: Sequence[str], key: Sequence[Any], rows: int) -> UsageError:
    """The error of a source that has so many rows with this key. [RC3]"""
    shown = ", ".join(f"{name}={value!r}" for name, value in zip(names, key, strict=True))
    return UsageError(
        f"the source has {rows} rows with the key {shown}; nothing was committed. Give it one row "
        'for each key, or say which counts: keep="last", by=a column of it.'
    )


def _span(column: pa.Array) -> tuple[int, int] | None:
    """The least and greatest whole number, day or moment of a column, if close enough."""
    if not (pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)):
        return None
    ends = pc.min_max(_numbers_of(column))
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    return (least, greatest) if least is not None and greatest - least < 1 << 62 else None


def _numbers_of(column: pa.Array) -> pa.Array:
    """Whole numbers, days or moments as whole numbers."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column.cast(pa.int64())


def _index_in(values: pa.Array, known: pa.Array) -> pa.Array:
    return pc.index_in(values, value_set=known, skip_nulls=True).cast(pa.int64())


class MergeOn(NamedTuple):
    """How rows of the source and of the table are compared. columns: of the table, or column of the
    table -> that of the source; null_safe: see `merge_keys`; by: of rows of the source with one
    key, that with the highest value counts; where: is true of a row of the table and one of the
    source with its key, where they belong together. [RC3] [RC12]"""

    columns: On
    null_safe: bool | Sequence[str] = False
    by: str | None = None
    merge_schema: bool = False
    where: Any = None

    def declared(self) -> list[str]:
        """The same texts for the same keys. [RC6]"""
        names, theirs = predicate.names_of(self.columns)
        texts = ["on", *names]
        texts += [] if theirs == names else ["source", *theirs]
        safe = [] if isinstance(self.null_safe, bool) else list(self.null_safe)
        texts += ["null safe", *safe] if self.null_safe else []
        texts += [] if self.by is None else ["last by", self.by]
        return texts if self.where is None else [*texts, "where", text_of(self.where)]


def merge(
    ctx: TableContext,
    source: NewRows,
    on: MergeOn | Sequence[str] | str,
    clauses: Clauses,
    choice: ExecutorChoice,
    declared: Declared = NOTHING,
    *,
    whole: bool = False,
    dry_run: bool = False,
) -> RowOutcome:
    """Write the source, compare its keys with the table, write the files that take the place of
    others, and commit. whole: rows are the source's as a whole; `clauses` have no conditions and no
    values then. [RC1] [RC4]"""
    on = on if isinstance(on, MergeOn) else MergeOn(on)
    source = row_change.for_each_try(ctx, source if on.by is None else _latest(source, on))

    @row_change.until_committed
    def once(ctx: TableContext) -> RowOutcome:
        change = RowChange(ctx, "merge", [*on.declared(), *clauses.declared()], declared)
        if change.already_committed:
            return finish(change)
        if on.merge_schema:
            _evolve(change, source.schema, on, clauses, whole)
        snapshot = change.snapshot
        by = snapshot.partition_by
        keys = predicate.merge_keys(snapshot.schema, on.columns, on.null_safe)
        keys = _named_in(keys, source.schema, clauses, whole)
        executor = choice.of_merge(snapshot.totals.bytes)
        holds = executor.name == "arrow"
        with change.trial() if dry_run else nullcontext():
            staged = _staged(change, source, keys, clauses, on, whole, holds=holds)
            change.marks += source.marks
            partitions = predicate.partitions_of_keys(keys, staged.files, staged.files_by, by)
            change.read(({},) if clauses.by_source else partitions)
            with executor.match(change, staged) as match:
                entries, what = _examined(change, staged, match), "a key or a condition"
                found = apply(change, executor, match.rule, entries, what=what, dry_run=dry_run)
                inserted = match.add(dry_run=dry_run) if staged.rows else 0
                if whole and staged.updates:  # their place is taken by rows of the source
                    found = found._replace(updated=found.deleted, deleted=0)
        return finish(change, found, executor.name, planned=dry_run, rows_inserted=inserted)

    return once(ctx)


def _examined(change: RowChange, staged: Staged, match: Match) -> pa.Table:
    """The files that may hold rows with a key of the source; all, if clauses are about others."""
    if staged.clauses.by_source:
        return planning.entries_table(change.ctx, change.snapshot)
    if not staged.rows:
        return planning.entries_of(change.ctx, change.snapshot, [])
    wanted = predicate.may_hold(staged.keys, staged.files, staged.files_by)
    members = match.members()
    wanted = wanted if members is None else And(args=(wanted, members))
    return planning.entries_table(change.ctx, change.snapshot, wanted)


def _latest(source: NewRows, on: MergeOn) -> NewRows:
    """One row for each key, unless several have the highest value. [RC3]"""
    names, theirs = predicate.names_of(on.columns)
    found = [source_column(source.schema, name) for name in (*theirs, on.by or "")]
    if not is_ordered(found[-1]):
        raise UsageError(
            f"by: the column {on.by!r} has the type {type_text(found[-1].type)}, whose values have "
            "no order that all engines share; give a number that is no float, a date, a timestamp "
            "or a text"
        )
    safe = [on.null_safe is True or name in (on.null_safe or ()) for name in names]
    key = [field.name for field in found[:-1]]
    return source.latest(list(zip(key, safe, strict=True)), found[-1].name)


def _evolve(change: RowChange, data: Schema, on: MergeOn, clauses: Clauses, whole: bool) -> None:
    """Give the table the columns and types of the source that the clauses write. [RC12] [SC5]"""
    schema = change.snapshot.schema
    writing = [each for some in clauses[:2] for each in some if not isinstance(each, Delete)]
    given = [given_values(each) for each in writing]
    named = {name.lower() for values in given for name in values or ()}
    ours, theirs = predicate.names_of(on.columns)
    keys = {name.lower(): mine for name, mine in zip(theirs, ours, strict=True)}
    chosen = []
    for field in data.fields:
        key = keys.get(field.name.lower())
        if key is not None:
            chosen.append(msgspec.structs.replace(field, name=key))
        elif None in given or field.name.lower() in named:
            chosen.append(field)
    have = {field.name.lower() for field in chosen}

    def needed(field: Field) -> Field:
        if whole or field.name.lower() in have:
            return field
        return msgspec.structs.replace(field, nullable=True)  # no row gets it: it may be lacking

    if writing:
        table = msgspec.structs.replace(schema, fields=tuple(map(needed, schema.fields)))
        change.evolve(fit(table, Schema(fields=tuple(chosen)), merge=True))


def _named_in(keys: MergeKeys, data: Schema, clauses: Clauses, whole: bool) -> MergeKeys:
    """The keys by the names that the source's columns have. UsageError where it has another column
    of a key's name, too, and clauses say of neither which is meant."""
    named = keys._replace(names=tuple(source_column(data, name).name for name in keys.names))
    unclear = whole or any(
        not isinstance(each, Delete) and given_values(each) is None
        for each in (*clauses.matched, *clauses.unmatched)
    )
    there = {field.name.lower() for field in data.fields}
    for field, name in zip(named.fields, named.names, strict=True):
        if unclear and field.name.lower() != name.lower() and field.name.lower() in there:
            raise UsageError(
                f"on: the source has the column {field.name!r} besides {name!r}, which is compared "
                f"with it; nothing was done. Drop one of them, or give {field.name!r} its value: "
                "mc.Insert(values=…)"
            )
    return named


def source_column(data: Schema, name: str) -> Field:
    """The column of a source; SchemaMismatchError if it has none with that name."""
    try:
        return find_column(data, name)
    except UsageError:
        raise SchemaMismatchError(
            f"the source has no column {name!r}, which the merge compares. Nothing was done."
        ) from None


def _staged(
    change: RowChange,
    source: NewRows,
    keys: MergeKeys,
    clauses: Clauses,
    on: MergeOn,
    whole: bool,
    *,
    holds: bool,
) -> Staged:
    """Hold the source's rows, or write them, as clauses need them, once they fit. [RC4] [RC9]"""
    ctx = change.ctx
    prepare = _whole_rows if whole else _some_columns
    plan, names, rules = prepare(change, source, keys, clauses, on)
    staged = Staged(plan, keys, clauses, rules, whole, None, NewFiles(), (), plan.partition_by)
    held = source.held() if holds else None
    if held is None:
        new = change.new(plan, source.write, plan, names)
        return staged._replace(new=new, files=row_change.entries_of(ctx, plan, new))
    given = held.select(list(names)).rename_columns(list(names.values()))
    rows = row_change.conformed(given.to_batches(), plan.schema)
    by = _of_keys(plan, keys, plan.schema)
    files = _as_files(by, staged, rows)
    rows = rows.rename_columns([field.name for field in plan.schema.fields])
    return staged._replace(held=rows, files=files, files_by=by.partition_by)


def _as_files(plan: WritePlan, staged: Staged, rows: pa.Table) -> list[Entry]:
    """What says of rows that are in no file where rows with their keys may lie: for each partition
    the bounds of its keys, or of all where only these count."""
    names = [find_column(plan.schema, name).file_name for name in staged.key_names]

    def bounds(some: pa.Table) -> dict[int, ColumnStats]:
        stats = {}
        for key, name in zip(staged.keys.fields, names, strict=True):
            column = some.column(name)
            ends = pa.array(pc.min_max(column).values(), column.type)
            least, greatest = from_array(ends, key.type)
            stats[key.id] = ColumnStats(nulls=column.null_count, min=least, max=greatest)
        return stats

    parts = by_partition(plan, rows)
    common = bounds(rows) if len(parts) > MAX_FILES else None

    def entry(values: tuple[WireValue, ...], some: pa.Table) -> Entry:
        stats, rows, job = common or bounds(some), some.num_rows, plan.job
        return Entry(path="", partition=values, rows=rows, bytes=0, job=job, columns=stats)

    return [entry(values, some) for values, some in parts]


def _whole_rows(
    change: RowChange, source: NewRows, keys: MergeKeys, clauses: Clauses, on: MergeOn
) -> tuple[WritePlan, Mapping[str, str], Compiled]:
    """The source's rows as the table has them, or their keys where nothing else is needed: how they
    are written, their columns -> those of the plan, and the rules."""
    plan, only_keys = change.plan(sources=change.sources), False
    updates = any(isinstance(each, Update) for each in clauses.matched)
    if not updates and not clauses.unmatched:
        fields = tuple(msgspec.structs.replace(field, nullable=True) for field in keys.fields)
        plan, only_keys = _of_keys(plan, keys, Schema(fields=fields)), True
    if not (updates and clauses.unmatched):  # not every row comes into the table
        plan = msgspec.structs.replace(plan, constraints={})
    names = _check_columns(plan.schema, source.schema, keys, only_keys, on.by)
    return plan, names, Compiled([Rule()] if clauses.matched else [], [], [])


def _some_columns(
    change: RowChange, source: NewRows, keys: MergeKeys, clauses: Clauses, on: MergeOn
) -> tuple[WritePlan, Mapping[str, str], Compiled]:
    """The same of the columns that the source has, with the clauses compiled for them."""
    table, by, now = change.snapshot.schema, change.snapshot.partition_by, change.ctx.env.now_us()
    columns = _source_columns(table, source.schema, keys, evolves=on.merge_schema)
    rules = compile_clauses(clauses, table, columns, by, now, keys, on.where)
    plan = _of_keys(change.plan(), keys, columns)
    names = {find_column(source.schema, field.name).name: field.name for field in columns.fields}
    return plan, names, rules


def _of_keys(plan: WritePlan, keys: MergeKeys, schema: Schema) -> WritePlan:
    """The plan of a source with these columns, partitioned by those of the keys that partition the
    table, themselves or by a transform."""
    ids = {field.id for field in keys.fields}
    by = tuple(each for each in plan.partition_by if each & MAX_FIELD_ID in ids)
    return msgspec.structs.replace(plan, schema=schema, partition_by=by, constraints={})


def _check_columns(
    table: Schema, data: Schema, keys: MergeKeys, only_keys: bool, by: str | None
) -> dict[str, str]:
    """The source's columns that are needed, and the table's that they become: all of the table's
    and no others, but for one that only says which row of a key is the last, so that an update
    loses none. [RC3]"""
    theirs = {field.id: name for field, name in zip(keys.fields, keys.names, strict=True)}
    chosen = []
    for field in table.fields:
        try:
            chosen.append(find_column(data, theirs.get(field.id, field.name)))
        except UsageError:
            what = f"the source has no column {field.name!r}: a merge "
            what += "compares. Nothing was done." if only_keys else _WHOLE
            raise SchemaMismatchError(what) from None
    taken = {field.id for field in chosen}
    if by is not None:
        taken.add(find_column(data, by).id)
    extra = [field.name for field in data.fields if field.id not in taken]
    if extra and not only_keys:
        raise SchemaMismatchError(
            "the source has columns that the table does not have: "
            f"{', '.join(map(repr, extra[:10]))}. Drop them, or add them to the table "
            "(merge_schema=True, or add_column). Nothing was done."
        )
    pairs = list(zip(chosen, table.fields, strict=True))
    named = (msgspec.structs.replace(mine, name=field.name) for mine, field in pairs)
    fit(table, Schema(fields=tuple(named)), merge=False)
    return {mine.name: field.name for mine, field in pairs}


def _source_columns(table: Schema, data: Schema, keys: MergeKeys, *, evolves: bool) -> Schema:
    """The source's columns as they are written: those of the table with its types, the keys first,
    which have bounds then. evolves: the table got what it lacked of them."""
    compared = dict(zip(keys.names, keys.fields, strict=True))
    ids = {field.id for field in keys.fields}
    made, extra = dict[str, Field](), []
    for field in data.fields:
        found = compared.get(field.name)
        if found is None:
            with suppress(UsageError):
                found = find_column(table, field.name)
            if found is None or found.id in ids:  # a key is compared with another column
                extra.append(field)
                continue
        same = msgspec.structs.replace(field, name=found.name)
        try:
            fit(Schema(fields=(found,)), Schema(fields=(same,)), merge=False)
        except SchemaMismatchError:
            if not evolves:
                raise
            extra.append(field)  # no clause writes it, or the table's column would fit by now
            continue
        made[field.name] = msgspec.structs.replace(found, nullable=True)
        if field.name in compared and found.name != field.name:
            given = msgspec.structs.replace(made[field.name], name=field.name, physical=None)
            made[field.name] = given
    first = [made.pop(name) for name in keys.names]
    return Schema(fields=(*first, *made.values(), *extra))

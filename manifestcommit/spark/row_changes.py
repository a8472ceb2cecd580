"""Row changes and compaction with Spark: its tasks find the rows, and rewrite files. [RC1] [RC2]
[RC3] [GC11]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType

from ..files.writer import WritePlan
from ..format.fields import Schema, from_spark, unpadded
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..operations.compaction import Rewrite, Rewriting
from ..rows.clauses import Compiled, Condition, Decided, Rules, inserted
from ..rows.find import Counts, Staged, needed_columns, repeated
from ..rows.row_change import Batches, Executor, NewFiles, NewRows, RowChange, ranges_of
from ..scan.arrow_dataset import constants_in
from .conditions import arrow_of, check_repeatable, evaluating, side_of, understand
from .dataframe import read_snapshot
from .features import frame_of, is_connect, sound
from .scan import check_running, files_in, marks_of, nullable, quoted, read_files, spark_schema
from .tasks import check_reachable, mapped, raising_ours
from .writing import write_dataframe

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MOST_AT_ONCE = 64  # concurrent Spark jobs of one task each
_AT_ONCE = 8  # if the session does not say how many tasks it runs


Options = Mapping[str, Any] | None


def read_entries(
    spark: SparkSession, url: str, snapshot: Snapshot, entries: pa.Table, options: Options
) -> DataFrame:
    """Every row of exactly these entries in the snapshot's columns, each value as stored, or an
    error; never fewer rows. [SP4] [DF4] entries: rows of `scan.planning.entries_table` of this
    snapshot, or of an older one whose files are still live."""
    # values are rewritten as they are read
    snapshot = msgspec.structs.replace(snapshot, schema=unpadded(snapshot.schema))
    return read_snapshot(spark, url, snapshot, entries, storage_options=options)


def rewriter(spark: SparkSession, *, sort_by: Sequence[str], storage_options: Options) -> Rewrite:
    """A function that rewrites groups of files, each in a Spark job of one task, as many
    concurrently as the session has room for. [GC11] sort_by: columns by which the rows of each new
    file are sorted, in Spark's order: nulls first."""
    has_room = _AT_ONCE if is_connect(spark) else spark.sparkContext.defaultParallelism
    at_once = min(has_room, _MOST_AT_ONCE)

    def rewrite(snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
        def one(group: Rewriting) -> NewFiles:
            df = read_entries(spark, group.plan.url, snapshot, group.entries, storage_options)
            df = df.coalesce(1)
            if sort_by:
                df = df.sortWithinPartitions(*(quoted(name) for name in sort_by))
            return write_dataframe(df, group.plan, storage_options=storage_options)

        with ThreadPoolExecutor(at_once, thread_name_prefix="manifestcommit-rewrite") as pool:
            yield from pool.map(one, groups)

    return rewrite


def spark_data(ctx: TableContext, df: DataFrame, *, storage_options: Options) -> NewRows:
    """The rows of a DataFrame, which Spark's tasks write and evaluate once. [SP1]"""
    check_running(df.sparkSession)
    check_reachable(ctx.store.url)

    def write(plan: WritePlan, columns: Mapping[str, str]) -> NewFiles:
        chosen = df
        if not list(columns) == list(columns.values()) == df.columns:
            chosen = df.select(*(_alias(name, other) for name, other in columns.items()))
        return write_dataframe(chosen, plan, storage_options=storage_options)

    def latest(key: Sequence[tuple[str, bool]], by: str) -> NewRows:
        rows = _latest(df, key, by)
        return spark_data(ctx, rows, storage_options=storage_options)._replace(marks=marks)

    schema, marks = from_spark(df.schema.jsonValue()), marks_of(df)
    return NewRows(schema=schema, marks=marks, write=write, latest=latest)


def _latest(df: DataFrame, key: Sequence[tuple[str, bool]], by: str) -> DataFrame:
    place = "place"
    while place in (name.lower() for name in df.columns):
        place += "_"
    window = Window.partitionBy(*(F.col(quoted(name)) for name, _ in key))
    order = window.orderBy(F.col(quoted(by)).desc_nulls_last())
    ranked = df.withColumn(place, F.rank().over(order))
    alone = [F.col(quoted(name)).isNull() for name, is_safe in key if not is_safe]
    return ranked.filter(reduce(or_, alone, F.col(place) == 1)).drop(place)


class Deleting(NamedTuple):
    """A rule: rows go for which a condition is true. columns: those that it names."""

    condition: Condition
    columns: Sequence[str]

    def counts(self, df: DataFrame, path: str) -> Counts:
        """How many rows of each file change."""
        with evaluating(self.condition.given):
            found = self.condition.form.matching(df).groupBy(F.col(path)).count().collect()
        return {row[0]: (0, row[1]) for row in found}

    def remaining(self, df: DataFrame) -> DataFrame:
        """The rows that are left of files, with their new values."""
        left: DataFrame = self.condition.form.matching(df, others=True)
        return left


class SparkRows:
    """Spark, as the executor of row changes."""

    name: Executor = "spark"

    def __init__(self, spark: SparkSession, ctx: TableContext, storage_options: Options) -> None:
        check_running(spark)
        check_reachable(ctx.store.url)
        self._spark, self._ctx, self._options = spark, ctx, storage_options

    def understand(self, where: Any, schema: Schema) -> Condition:
        wanted = understand(self._spark, where, schema, "where")
        check_repeatable(self._spark, where, wanted.given, schema, "where")
        return Condition(schema=schema, given=where, predicate=wanted.predicate, form=wanted)

    def chosen(self, partitions: pa.Table, condition: Condition) -> list[bool]:
        """Spark itself evaluates it for partitions: it is not interpreted twice."""
        there = {*partitions.column_names}
        schema = Schema(fields=tuple(f for f in condition.schema.fields if f.name in there))
        number = free_name("number", schema)
        numbers = pa.array(range(partitions.num_rows), pa.int64())
        struct = StructType([StructField(number, LongType()), *spark_schema(schema)])
        columns = partitions.select([field.name for field in schema.fields])
        rows = columns.add_column(0, number, numbers)
        with evaluating(condition.given):
            df = condition.form.matching(frame_of(self._spark, rows, struct))
            hits = {row[0] for row in df.select(F.col(number)).collect()}
        return [row in hits for row in range(partitions.num_rows)]

    def deleting(self, condition: Condition) -> Deleting:
        return Deleting(condition, needed_columns(condition.schema, condition.predicate))

    def find(
        self, change: RowChange, entries: pa.Table, rule: Any, *, keep: bool = False
    ) -> Counts:
        """One pass over the rule's columns. keep: changes nothing, files are read again."""
        schema, url = change.snapshot.schema, self._ctx.store.url
        path = free_name("path", schema)
        if isinstance(rule, SparkMatch):  # compares values as they are stored
            schema = unpadded(schema)
        constants = constants_in(entries, schema, change.snapshot.partition_by, url)
        df = read_files(
            self._spark,
            url,
            files_in(entries),
            schema,
            columns=list(rule.columns),
            name_column=path,
            constants=constants,
            storage_options=self._options,
        )
        return rule.counts(df, path)  # type: ignore[no-any-return]  # a rule of this class

    def rewrite(self, change: RowChange, entries: pa.Table, rule: Any) -> tuple[int, None]:
        url, plan = self._ctx.store.url, change.plan(sources=ranges_of(entries))
        df = read_entries(self._spark, url, change.snapshot, entries, self._options)
        new = write_dataframe(rule.remaining(df), plan, storage_options=self._options)
        return new.register(change), None

    @contextmanager
    def match(self, change: RowChange, staged: Staged) -> Iterator[SparkMatch]:
        found = SparkMatch(self._spark, change, staged, self._options)
        try:
            yield found
        finally:
            if found.matches is not None:
                found.matches.unpersist()


class SparkMatch:
    """A staged source beside the table, by joins; it says itself which rows change."""

    def __init__(
        self, spark: SparkSession, change: RowChange, staged: Staged, storage_options: Options
    ) -> None:
        self._spark, self._change, self._staged = spark, change, staged
        self._options, self.rule = storage_options, self
        table = change.snapshot.schema
        self._keys = [field.name for field in staged.keys.fields]
        self._theirs, self._safe = staged.key_names, staged.keys.is_null_safe
        # names besides the table's own
        self._names = [free_name(f"key {at}", table) for at in range(len(self._keys))]
        both = Schema(fields=(*table.fields, *staged.plan.schema.fields))
        self._times, self._is_found = free_name("times", table), free_name("is found", both)
        self._work = _Work(
            staged.rules,
            arrow_of(table),
            arrow_of(staged.plan.schema),
            self._keys,
            self._theirs,
            self._names,
            self._is_found,
        )
        self.columns = self._keys if staged.whole else self._work.columns(table)
        self._source_keys = self._source(self._theirs).select(
            *(_alias(key, name) for key, name in zip(self._theirs, self._names, strict=True))
        )
        self.matches: DataFrame | None = None
        self.keys = self.most = 0
        self._check_keys()

    def _check_keys(self) -> None:
        """UsageError that names a key which the source has twice: either might count. [RC3]"""
        unsafe = [name for name, safe in zip(self._names, self._safe, strict=True) if not safe]
        named = self._source_keys.dropna(how="any", subset=unsafe) if unsafe else self._source_keys
        counted = named.groupBy(*map(quoted, self._names)).count()
        twice = counted.filter("`count` > 1").limit(1).collect()
        if twice:
            *key, rows = twice[0]
            raise repeated(self._keys, key, rows)

    def members(self) -> None:
        """The source's keys stay where they are."""

    def counts(self, df: DataFrame, path: str) -> Counts:
        """How many rows of each file change; how often the table has which key is known then."""
        rules = self._staged.rules
        names = [path, self._is_found, "updated", "deleted", *self._names]
        if self._staged.whole:
            same = self._same(self._keys, self._names)
            found = df.join(self._source_keys, same, "inner").select(
                F.col(quoted(path)),
                F.lit(True).alias(self._is_found),
                F.lit(0).alias("updated"),
                F.lit(1 if rules.matched else 0).alias("deleted"),
                *map(quoted, self._names),
            )
        else:
            joined = self._joined(df, "left" if rules.by_source else "inner", path)
            keys = [joined.schema["source." + key] for key in self._theirs]
            types: list[DataType] = [StringType(), BooleanType(), LongType(), LongType()]
            types += [key.dataType for key in keys]
            struct = StructType([StructField(*each) for each in zip(names, types, strict=True)])
            found = mapped(joined, partial(_changes, self._work, path), struct)
        with raising_ours():
            self.matches = found.persist()
            sums = (F.sum(name).alias(name) for name in ("updated", "deleted"))
            by_file = self.matches.groupBy(quoted(path)).agg(*sums).collect()
            by_key = self._by_key().agg(F.count(F.lit(1)), F.max(self._times)).collect()
        self.keys, self.most = by_key[0][0], by_key[0][1] or 0
        return {row[0]: (row[1], row[2]) for row in by_file}

    def remaining(self, df: DataFrame) -> DataFrame:
        """The rows that are left of files, with their new values."""
        if self._staged.whole:
            return df.join(self._source_keys, self._same(self._keys, self._names), "left_anti")
        return mapped(self._joined(df, "left"), partial(_remaining, self._work), df.schema)

    def add(self, *, dry_run: bool) -> int:
        inserts = self._staged.inserts
        if not self._staged.whole:
            return self._write(self._inserted()) if inserts else 0
        if not dry_run and (inserts or self._staged.updates):
            self._add_whole()
        return self._staged.rows - self.keys if inserts else 0

    def _add_whole(self) -> None:
        """Register the source's files where all of their rows come into the table, else write those
        that do."""
        staged, change = self._staged, self._change
        if staged.inserts and (staged.updates or not self.keys):
            change.is_checked &= staged.updates  # else `_whole_rows` left that to the commit
            staged.new.register(change)
            if staged.updates and self.most > 1:
                self._write(self._repeated(2))
        elif self.keys:
            self._write(self._repeated(1) if staged.updates else self._unmatched())

    def _write(self, df: DataFrame) -> int:
        """Write and register rows; returns how many they are."""
        plan = self._change.plan(sources=self._change.sources)
        write = partial(write_dataframe, storage_options=self._options)
        return self._change.new(plan, write, df, plan).register(self._change)

    def _repeated(self, first: int) -> DataFrame:
        """Each row of the source from that time on that the table has its key."""
        rows, same = self._source(), self._same(self._theirs, self._names)
        since = F.sequence(F.lit(first).cast("long"), F.col(self._times))
        by_key = self._by_key().filter(F.col(self._times) >= first)
        names = [quoted(name) for name in self._names]
        repeated = by_key.select(*names, F.explode(since)).select(*names)
        return rows.join(repeated, same, "inner").select(*map(quoted, rows.columns))

    def _unmatched(self) -> DataFrame:
        """The rows of the source whose key the table lacks."""
        rows = self._source()
        if self.matches is None:
            return rows
        return rows.join(self._by_key(), self._same(self._theirs, self._names), "left_anti")

    def _inserted(self) -> DataFrame:
        """What the clauses make of them."""
        struct = spark_schema(self._change.snapshot.schema)
        return mapped(self._unmatched(), partial(_inserted, self._work), struct)

    def _by_key(self) -> DataFrame:
        """How many rows of the table have each key of the source that one has."""
        assert self.matches is not None
        names = [quoted(name) for name in self._names]
        counted = self.matches.filter(quoted(self._is_found)).select(*names).groupBy(*names)
        return counted.agg(F.count(F.lit(1)).alias(self._times))

    def _joined(self, df: DataFrame, how: str, *others: str) -> DataFrame:
        """Rows of the table beside those of the source with their key, if there is one. others:
        columns that are none of the table's."""
        source = self._source().withColumn(self._is_found, F.lit(True))
        ours = (_alias(name, name if name in others else f"target.{name}") for name in df.columns)
        theirs = (_alias(name, f"source.{name}") for name in source.columns)
        mine = [f"target.{key}" for key in self._keys]
        same = self._same(mine, [f"source.{key}" for key in self._theirs])
        return df.select(*ours).join(source.select(*theirs), same, how)

    def _same(self, names: Sequence[str], others: Sequence[str]) -> Column:
        """Columns with these names are equal; a null is equal to nothing, or to a null. [RC3]"""
        columns = (map(F.col, map(quoted, side)) for side in (names, others))
        pairs = zip(*columns, self._safe, strict=True)
        found: Column = reduce(
            and_,
            (
                mine.eqNullSafe(other) if is_safe else mine == other
                for mine, other, is_safe in pairs
            ),
        )
        return found

    def _source(self, columns: Sequence[str] = ()) -> DataFrame:
        """The source as it was written: these columns of it, or all, each value as stored."""
        files = [(entry.path, entry.bytes) for entry in self._staged.files if entry.rows]
        url, schema = self._change.ctx.store.url, unpadded(self._staged.plan.schema)
        return read_files(
            self._spark, url, files, schema, columns=columns, storage_options=self._options
        )


def _alias(name: str, other: str) -> Column:
    return F.col(quoted(name)).alias(other)


def free_name(name: str, schema: Schema) -> str:
    """A name for one more column besides those of the table."""
    taken = {field.name.lower() for field in schema.fields}
    while name in taken:
        name += "_"
    return name


# --- In tasks: clauses, by the same rules as without Spark ----------------------------------------


class _Work(NamedTuple):
    """What tasks need. table, source: columns with their types; keys, names: of the key in the
    table, and in what is found; theirs: in the source; is_found: a flag of the source's rows."""

    rules: Compiled
    table: pa.Schema
    source: pa.Schema
    keys: Sequence[str]
    theirs: Sequence[str]
    names: Sequence[str]
    is_found: str

    def columns(self, table: Schema) -> list[str]:
        """The columns of the table by which it is known which rows change."""
        none = _Joined(self.keys, pa.array([], pa.bool_()))
        return self._rules(none, None).columns(table)

    def found(self, batch: pa.RecordBatch) -> pa.Array:
        """Of each row of a join whether it has a row of the source."""
        return batch.column(f"source.{self.is_found}").is_valid()

    def decided(self, batch: pa.RecordBatch, *, new: bool) -> Decided:
        """What becomes of rows of a join."""
        source = side_of(batch, "source.", self.source)
        rules = self._rules(_Joined(self.keys, self.found(batch)), source)
        return rules.decide(side_of(batch, "target.", self.table), new=new)

    def _rules(self, keys: _Joined, source: pa.Table | None) -> Rules:
        matched, _, others, paired = self.rules
        return Rules(others, matched, keys, source, "target.", paired)


class _Joined:
    """The keys of rows that a join has put beside the table's rows."""

    filter = None

    def __init__(self, names: Sequence[str], found: pa.Array) -> None:
        self.names, self.rows, self._found = names, len(found), found

    def find(self, rows: pa.Table) -> pa.Array:
        numbers = pa.array(range(rows.num_rows), pa.int64())
        return pc.if_else(self._found, numbers, pa.scalar(None, pa.int64()))


def _changes(work: _Work, path: str, batches: Batches) -> Iterator[pa.RecordBatch]:
    """The file of each row that changes or has a key of the source, what becomes of it, the key."""
    for batch in map(sound, batches):
        decided = work.decided(batch, new=False)
        flags = [each.cast(pa.int64()) for each in (decided.updated, decided.deleted)]
        keys = [batch.column("source." + key) for key in work.theirs]
        assert decided.found is not None
        found = decided.found.is_valid()
        names = [path, work.is_found, "updated", "deleted", *work.names]
        rows = pa.table([batch.column(path), found, *flags, *keys], names)
        matters = pc.or_(pc.or_(decided.updated, decided.deleted), found)
        yield from rows.filter(matters).to_batches()


def _remaining(work: _Work, batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in map(sound, batches):
        left = work.decided(batch, new=True).remaining()
        types = (nullable(batch.schema.field(f"target.{name}").type) for name in left.column_names)
        schema = pa.schema(list(zip(left.column_names, types, strict=True)))
        yield from left.cast(schema).to_batches()


def _inserted(work: _Work, batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in map(sound, batches):
        rows = side_of(batch, "", work.source)
        for piece in inserted(rows, work.rules.unmatched):
            yield from piece.cast(work.table).to_batches()

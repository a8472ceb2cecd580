"""Merges rows of a source into a table by key (upsert): matching rows are updated or deleted, the
others inserted, in one commit. [RC3] [RC4]

The source is written first, once, in the same way as any other data: the compared keys and the
committed rows cannot differ, even if the source would return other rows a second time.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from manifestcommit.spark.runtime.task_errors import check_reachable
from manifestcommit.spark.write.arrow_writer import Written

from ...core.filter.merge_keys import key_columns, may_hold, partitions_of_keys
from ...core.schema.fields import Field
from ...core.schema.spark_json import from_spark, unpadded
from ...engine.datafile.writer import WritePlan, check_rows
from ...engine.metadata.table_context import TableContext
from ...engine.operations.row_change import NOTHING, Declared, RowChange, RowOutcome
from ...engine.row_changes.merge import Actions, Matched, Unmatched, begin_change, counts
from ...engine.row_changes.merge_source import Staged, check_columns, keys_only, stage
from ...engine.row_changes.removal import RowsToDelete, by_sources, finish
from ...engine.scan import planning
from ...errors import UsageError
from ..read.provenance import check_running, marks_of
from ..read.scan import quoted, read_files
from .delete import Options, files_of, free_name, named_rows, rewrite_with, take
from .rewrite import write_entries

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def merge(
    spark: SparkSession,
    session: TableContext,
    source: Any,
    on: Sequence[str] | str,
    *,
    when_matched: Matched = "update",
    when_not_matched: Unmatched = "insert",
    declared: Declared = NOTHING,
    is_spark: bool,
    storage_options: Options = None,
) -> RowOutcome:
    """Merge the source's rows by key. is_spark: the source is a Spark DataFrame, else any object
    with an Arrow stream. [RC3]"""
    check_running(spark)
    check_reachable(session.store.url)
    actions = Actions(when_matched, when_not_matched)
    change = begin_change(session, on, actions, declared)
    if change.already_committed:
        return finish(change, session)
    assert change.snapshot.schema is not None
    keys = key_columns(change.snapshot.schema, on)
    plan = change.plan(sources=change.sources)
    plan = keys_only(plan, keys) if actions.only_keys else plan
    staged = (
        _stage(session, plan, source, actions.only_keys, storage_options)
        if is_spark
        else _staged_here(session, plan, source, actions.only_keys)
    )
    work = _Merge(spark, session, change, keys, staged, storage_options)
    work.check_keys()
    change.rest_on(staged.marks)
    change.read(
        partitions_of_keys(
            keys, staged.files, staged.plan.partition_by, change.snapshot.partition_by
        )
    )
    return work.run(when_matched, when_not_matched)


class SparkStaged(Staged, frozen=True, kw_only=True):
    """written: the files as the tasks reported them."""

    written: Written


class _Merge:
    """One merge, with its source written."""

    def __init__(
        self,
        spark: SparkSession,
        session: TableContext,
        change: RowChange,
        keys: tuple[Field, ...],
        staged: SparkStaged,
        storage_options: Options,
    ) -> None:
        self._spark, self._session, self._change, self._keys, self._staged = (
            spark,
            session,
            change,
            keys,
            staged,
        )
        self._options = storage_options
        assert change.snapshot.schema is not None
        # Names besides the table's own.
        self._names = [
            free_name(f"key {index}", change.snapshot.schema) for index in range(len(keys))
        ]
        self._times = free_name("times", change.snapshot.schema)
        wanted = (
            F.col(quoted(field.name)).alias(name)
            for field, name in zip(keys, self._names, strict=True)
        )
        self._source_keys = self._source(keys).select(*wanted).dropna(how="any")

    def check_keys(self) -> None:
        """UsageError that names a key which the source has twice: which of the two rows counts is
        undefined. [RC3]"""
        twice = (
            self._source_keys.groupBy(*map(quoted, self._names))
            .count()
            .filter("`count` > 1")
            .limit(1)
            .collect()
        )
        if twice:
            row = twice[0]
            shown = ", ".join(
                f"{field.name}={row[index]!r}" for index, field in enumerate(self._keys)
            )
            raise UsageError(
                f"the source has {row[len(self._keys)]} rows with the key {shown}; nothing "
                "was committed. Give it one row for each key."
            )

    def run(self, when_matched: Matched, when_not_matched: Unmatched) -> RowOutcome:
        """Find the matching rows, rewrite the files that hold some, add the new rows, commit.
        [RC3]"""
        change, staged = self._change, self._staged
        predicate = may_hold(self._keys, staged.files, staged.plan.partition_by)
        entries = planning.entries_table(self._session, change.snapshot, predicate)
        fields = [field.name for field in self._keys]
        df, path = named_rows(
            self._spark, self._session, change, entries, fields, storage_options=self._options
        )
        matches = (
            df.join(self._source_keys, self._equal(), "inner")
            .select(quoted(path), *map(quoted, self._names))
            .persist()
        )
        try:
            by_file = {row[0]: row[1] for row in matches.groupBy(quoted(path)).count().collect()}
            by_key = matches.groupBy(*map(quoted, self._names)).agg(
                F.count(F.lit(1)).alias(self._times)
            )
            keys, most = by_key.agg(F.count(F.lit(1)), F.max(self._times)).collect()[0]
            going = RowsToDelete(entries, by_file if when_matched else {})
            survivors = lambda df: df.join(self._source_keys, self._equal(), "left_anti")  # noqa: E731
            written = sum(
                rewrite_with(
                    self._spark,
                    change,
                    self._session,
                    some,
                    survivors,
                    storage_options=self._options,
                )
                for some in by_sources(going.partly)
            )
            check_rows(going.partly, going.rows_kept, written, what="the key")
            change.remove(going.entries)
            self._add(by_key, keys, most or 0, when_matched, when_not_matched)
        finally:
            matches.unpersist()
        return finish(
            change,
            self._session,
            going,
            executor="spark",
            **counts(Actions(when_matched, when_not_matched), going, staged.rows, keys),
        )

    def _add(
        self,
        by_key: DataFrame,
        keys: int,
        most: int,
        when_matched: Matched,
        when_not_matched: Unmatched,
    ) -> None:
        """Register the source's rows to add: each as often as rows of the table had its key, once
        if none had. [RC3]"""
        staged = self._staged
        if not staged.rows:
            return
        if when_matched == "update" and when_not_matched == "insert":
            take(self._change, staged.written)
            if most > 1:
                self._write(self._repeated(by_key.filter(F.col(self._times) > 1), 2))
        elif when_matched == "update":
            if keys:
                self._write(self._repeated(by_key, 1))
        elif when_not_matched == "insert" and keys:
            self._write(self._source(None).join(by_key, self._equal(), "left_anti"))
        elif when_not_matched == "insert":
            take(self._change, staged.written)

    def _repeated(self, by_key: DataFrame, first: int) -> DataFrame:
        """The source's rows with these keys, each from the `first` time on that the table has its
        key."""
        rows = self._source(None)
        names = [quoted(name) for name in self._names]
        repeated = by_key.select(
            *names, F.explode(F.sequence(F.lit(first).cast("long"), F.col(self._times)))
        ).select(*names)
        return rows.join(repeated, self._equal(), "inner").select(*map(quoted, rows.columns))

    def _write(self, df: DataFrame) -> None:
        change = self._change
        take(
            change,
            write_entries(df, change.plan(sources=change.sources), storage_options=self._options),
        )

    def _source(self, fields: Sequence[Field] | None) -> DataFrame:
        """The source as it was written: these columns of it, or all, each value as stored."""
        files = [(entry.path, entry.bytes) for entry in self._staged.files if entry.rows]
        columns = None if fields is None else [field.name for field in fields]
        schema = unpadded(self._staged.plan.schema)
        return read_files(
            self._spark,
            self._session.store.url,
            files,
            schema,
            columns=columns,
            storage_options=self._options,
        )

    def _equal(self) -> Column:
        pairs = zip(self._keys, self._names, strict=True)
        return functools.reduce(
            operator.and_,
            (F.col(quoted(field.name)) == F.col(quoted(name)) for field, name in pairs),
        )


def _stage(
    session: TableContext, plan: WritePlan, source: Any, only_keys: bool, storage_options: Options
) -> SparkStaged:
    """Write a DataFrame, evaluating it once; SchemaMismatchError before any of it runs. [RC4]"""
    chosen = check_columns(plan.schema, from_spark(source.schema.jsonValue()), only_keys)
    written = write_entries(
        source.select(*map(quoted, chosen)), plan, storage_options=storage_options
    )
    files = tuple(files_of(session, plan, written))
    marks = tuple(marks_of(source))
    return SparkStaged(plan=plan, files=files, marks=marks, written=written)


def _staged_here(
    session: TableContext, plan: WritePlan, source: Any, only_keys: bool
) -> SparkStaged:
    staged = stage(session, plan, source, only_keys=only_keys)
    written = Written(entries=staged.files, tasks=1, intake=staged.intake)
    return SparkStaged(
        plan=plan, files=staged.files, intake=staged.intake, marks=staged.marks, written=written
    )

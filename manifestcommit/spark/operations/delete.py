"""Deletes rows with Spark: its tasks evaluate the condition, and rewrite files without the rows.
[RC1] [RC2]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from ...core.format import manifest_table
from ...core.schema.fields import Schema
from ...core.table.entries import Entry
from ...engine.datafile.writer import WritePlan
from ...engine.metadata.table_context import TableContext
from ...engine.operations.row_change import Executor, RowChange, ranges_of
from ...engine.row_changes.conditions import Condition
from ...engine.row_changes.removal import needed_columns
from ...engine.scan.arrow_dataset import constants_in
from ..filter.condition import check_repeatable, evaluating, understand
from ..read.provenance import check_running
from ..read.scan import read_named, spark_schema
from ..runtime.versions import frame_of
from ..write.arrow_writer import Written
from .rewrite import read_entries, write_entries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = Mapping[str, Any] | None


class SparkRows:
    """Spark, as the executor of row changes."""

    name: Executor = "spark"

    def __init__(
        self, spark: SparkSession, session: TableContext, storage_options: Options
    ) -> None:
        check_running(spark)
        self._spark, self._session, self._options = spark, session, storage_options

    def understand(self, condition: Any, schema: Schema, argument: str) -> Condition:
        wanted = understand(self._spark, condition, schema, argument)
        check_repeatable(self._spark, condition, wanted.column, schema, argument)
        return Condition(given=condition, predicate=wanted.predicate, form=wanted)

    def chosen(self, partitions: pa.Table, schema: Schema, condition: Condition) -> list[bool]:
        """Spark itself evaluates it for partitions: the condition is not interpreted a second
        time."""
        number = free_name("number", schema)
        numbers = pa.array(range(partitions.num_rows), pa.int64())
        struct = StructType([StructField(number, LongType()), *spark_schema(schema)])
        columns = partitions.select([field.name for field in schema.fields])
        rows = columns.add_column(0, number, numbers)
        with evaluating(condition.given):
            df = frame_of(self._spark, rows, struct).filter(condition.form.column)
            hits = {row[0] for row in df.select(F.col(number)).collect()}
        return [row in hits for row in range(partitions.num_rows)]

    def count(
        self, change: RowChange, entries: pa.Table, condition: Condition, *, keep: bool = False
    ) -> dict[str, int]:
        """One pass over the condition's columns. keep: changes nothing, the files are read
        again."""
        assert change.snapshot.schema is not None
        columns = needed_columns(change.snapshot.schema, condition.predicate)
        df, name = named_rows(
            self._spark, self._session, change, entries, columns, storage_options=self._options
        )
        with evaluating(condition.given):
            counted = df.filter(condition.form.column).groupBy(F.col(name)).count().collect()
        return {row[0]: row[1] for row in counted}

    def rewrite_without(self, change: RowChange, entries: pa.Table, condition: Condition) -> int:
        return rewrite_with(
            self._spark,
            change,
            self._session,
            entries,
            lambda df: df.filter(condition.form.is_not_true),
            storage_options=self._options,
        )


def rewrite_with(
    spark: SparkSession,
    change: RowChange,
    session: TableContext,
    entries: pa.Table,
    survivors: Callable[[DataFrame], DataFrame],
    *,
    storage_options: Options,
) -> int:
    """Write the rows of these files that remain, and register the new files; returns how many rows
    they have. [RC1] [RC5]"""
    df = read_entries(
        spark, session.store.url, change.snapshot, entries, storage_options=storage_options
    )
    plan = change.plan(sources=ranges_of(entries))
    return take(change, write_entries(survivors(df), plan, storage_options=storage_options))


def take(change: RowChange, written: Written) -> int:
    """Register what was written; returns its number of rows."""
    change.take(
        written.entries,
        written.manifests,
        touched=written.touched,
        tasks=written.tasks,
        intake=written.intake,
    )
    return sum(entry.rows for entry in written.entries) + sum(ref.rows for ref in written.manifests)


def files_of(session: TableContext, plan: WritePlan, written: Written) -> list[Entry]:
    """Every file that was written, those in manifests, too."""
    files = list(written.entries)
    for ref in written.manifests:
        table = session.manifests.manifest(ref, plan.partition_by)
        files += manifest_table.from_table(
            table, schema=plan.schema, partition_by=plan.partition_by, inherited=0
        )
    return files


def named_rows(
    spark: SparkSession,
    session: TableContext,
    change: RowChange,
    entries: pa.Table,
    columns: Iterable[str],
    *,
    storage_options: Options,
) -> tuple[DataFrame, str]:
    """These columns of the entries' rows with their file's path, and the name of the column that
    has it."""
    schema, snapshot = change.snapshot.schema, change.snapshot
    assert schema is not None
    name = free_name("path", schema)
    df = read_named(
        spark,
        session.store.url,
        list(
            zip(
                entries.column("path").to_pylist(), entries.column("bytes").to_pylist(), strict=True
            )
        ),
        schema,
        columns=list(columns),
        name_column=name,
        constants=constants_in(entries, schema, snapshot.partition_by, session.store.url),
        storage_options=storage_options,
    )
    return df, name


def free_name(name: str, schema: Schema) -> str:
    """A name for one more column besides those of the table."""
    taken = {field.name.lower() for field in schema.fields}
    while name in taken:
        name += "_"
    return name

"""Deletes rows: files with rows to delete are rewritten without them (copy-on-write); the rest of
the table stays. [RC1] [RC2]

Not here: the commit (engine.operations.row_change), which rows a merge changes
(spark.operations.merge).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from ...core.filter.partitions_read import partitions_of
from ...core.filter.predicate import Predicate, Unknown, columns_of
from ...core.schema import evolution, values
from ...core.schema.fields import Schema
from ...engine.datafile.rewrite_plan import check_rows
from ...engine.metadata.table_context import TableContext
from ...engine.operations.row_change import RowChange, RowOutcome, ranges_of
from ...engine.runtime.outcome import Kind, committed_or_raise
from ...engine.scan import planning
from ...engine.scan.constant_columns import constants_in
from ...errors import UsageError
from ..dataframe import is_understood
from ..filter.condition import Condition, evaluating, text_of, understand
from ..read.provenance import check_running
from ..read.scan import read_named, spark_schema
from ..write.arrow_writer import Written
from .rewrite import read_entries, write_entries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = Mapping[str, Any] | None


def delete_where(
    spark: SparkSession,
    session: TableContext,
    condition: Any,
    *,
    key: str | None = None,
    fingerprint: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    storage_options: Options = None,
) -> RowOutcome:
    """Delete exactly the rows for which the condition is true; a row for which it is null stays.
    [RC2]"""
    check_running(spark)
    change = RowChange(
        session,
        "delete",
        ["where", text_of(condition)],
        key=key,
        fingerprint=fingerprint,
        reason=reason,
    )
    if change.already_committed:
        return finish(change, session)
    snapshot = change.snapshot
    assert snapshot.schema is not None
    wanted = understand(spark, condition, snapshot.schema, "where")
    change.read(partitions_of(wanted.predicate, snapshot.schema, snapshot.partition_by))
    entries = planning.entries_table(session, snapshot, wanted.predicate)
    with evaluating(condition):
        rows = _by_partition(spark, entries, wanted, change)
        if rows is None:
            rows = _by_file(spark, entries, wanted, change, session, storage_options)
    going = RowsToDelete(entries, rows)
    if dry_run:
        return finish(change, session, going, planned=True, rows_deleted=going.rows)
    rewrite_without(
        spark,
        change,
        session,
        going,
        lambda df: df.filter(wanted.is_not_true),
        what="the condition",
        storage_options=storage_options,
    )
    return finish(change, session, going, rows_deleted=going.rows)


class RowsToDelete:
    """The files with rows to delete. rows: path -> how many of its rows to delete."""

    def __init__(self, entries: pa.Table, rows: Mapping[str, int]) -> None:
        paths = pa.array([path for path, count in rows.items() if count], pa.string())
        self.entries = entries.filter(pc.is_in(entries.column("path"), value_set=paths))
        gone = pa.array(
            [rows[path] for path in self.entries.column("path").to_pylist()], pa.int64()
        )
        partly = pc.less(gone, self.entries.column("rows"))
        self.partly = self.entries.filter(partly)
        self.rows = pc.sum(gone).as_py() or 0
        self.rows_kept = (pc.sum(self.partly.column("rows")).as_py() or 0) - (
            pc.sum(pc.filter(gone, partly)).as_py() or 0
        )


def rewrite_without(
    spark: SparkSession,
    change: RowChange,
    session: TableContext,
    going: RowsToDelete,
    survivors: Callable[[DataFrame], DataFrame],
    *,
    what: str,
    storage_options: Options,
) -> None:
    """Rewrite the files of which some rows remain, and check the number of rows; remove all files
    in `going`. [RC1] [RC5]

    Files with source ranges are not mixed with files without.
    """
    silent = pc.is_null(going.partly.column("sources"))
    written = 0
    for entries in (going.partly.filter(pc.invert(silent)), going.partly.filter(silent)):
        if entries.num_rows:
            df = survivors(
                read_entries(
                    spark,
                    session.store.url,
                    change.snapshot,
                    entries,
                    storage_options=storage_options,
                )
            )
            written += take(
                change,
                write_entries(
                    df, change.plan(sources=ranges_of(entries)), storage_options=storage_options
                ),
            )
    check_rows(going.partly, going.rows_kept, written, what=what)
    change.remove(going.entries)


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


def finish(
    change: RowChange,
    session: TableContext,
    going: RowsToDelete | None = None,
    *,
    planned: bool = False,
    rows_deleted: int = 0,
    rows_updated: int = 0,
    rows_inserted: int = 0,
) -> RowOutcome:
    """Commit, unless there is nothing to commit; returns the outcome, or raises its error. going:
    None: done before. [RC6] [CM10]"""
    told: dict[str, Any] = {}
    if going is not None:
        told = {
            "rows_deleted": rows_deleted,
            "rows_updated": rows_updated,
            "rows_inserted": rows_inserted,
            "rows_rewritten": going.rows_kept,
            "files_removed": going.entries.num_rows - going.partly.num_rows,
            "files_rewritten": going.partly.num_rows,
        }
    if planned or (going is not None and not change.changes):
        kind: Kind = "planned" if planned else "unchanged"
        return RowOutcome(
            kind=kind, job_id=change.id, version=change.head.version, metrics=change.metrics, **told
        )
    outcome = committed_or_raise(change.commit(), session.store.url)
    told = told if outcome.kind == "committed" else {}
    return RowOutcome(
        **{name: getattr(outcome, name) for name in outcome.__struct_fields__}, **told
    )


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
        constants=constants_in(entries, schema, snapshot.partition_by),
        storage_options=storage_options,
    )
    return df, name


def free_name(name: str, schema: Schema) -> str:
    """A name for one more column besides those of the table."""
    taken = {field.name.lower() for field in schema.fields}
    while name in taken:
        name += "_"
    return name


def _by_partition(
    spark: SparkSession, entries: pa.Table, wanted: Condition, change: RowChange
) -> dict[str, int] | None:
    """How many rows of each file to delete, if partition values alone decide, so that no file is
    read; None if they do not. [RC2]"""
    schema, partition_by = change.snapshot.schema, change.snapshot.partition_by
    assert schema is not None
    by_id = {field.id: field for field in schema.fields}
    fields = [by_id[field_id] for field_id in partition_by]
    named = columns_of(wanted.predicate)
    if (
        not is_understood(wanted.predicate)
        or not named <= {(field.name,) for field in fields}
        or not entries.num_rows
    ):
        return None
    columns = [
        values.from_array(entries.column(f"partition.{field.id}"), field.type) for field in fields
    ]
    partitions = list(zip(*columns, strict=True)) if fields else [()] * entries.num_rows
    distinct = list(dict.fromkeys(partitions))
    number = free_name("number", Schema(fields=tuple(fields)))
    arrays = {number: pa.array(range(len(distinct)), pa.int64())}
    arrays |= {
        field.name: values.to_array([row[index] for row in distinct], field.type)
        for index, field in enumerate(fields)
    }
    struct = StructType(
        [StructField(number, LongType()), *spark_schema(Schema(fields=tuple(fields)))]
    )
    # Spark itself evaluates it for partitions: the condition is not interpreted a second time.
    df = spark.createDataFrame(pa.table(arrays), struct).filter(wanted.column).select(F.col(number))
    goes = {distinct[row[0]] for row in df.collect()}
    paths, counts = entries.column("path").to_pylist(), entries.column("rows").to_pylist()
    return {
        path: count
        for path, count, values_of in zip(paths, counts, partitions, strict=True)
        if values_of in goes
    }


def _by_file(
    spark: SparkSession,
    entries: pa.Table,
    wanted: Condition,
    change: RowChange,
    session: TableContext,
    storage_options: Options,
) -> dict[str, int]:
    """How many rows of each file to delete: one pass over the condition's columns in files that may
    hold such rows. [RC2]"""
    if not entries.num_rows:
        return {}
    assert change.snapshot.schema is not None
    columns = _columns(change.snapshot.schema, wanted.predicate)
    df, name = named_rows(spark, session, change, entries, columns, storage_options=storage_options)
    counted = df.filter(wanted.column).groupBy(F.col(name)).count().collect()
    return {row[0]: row[1] for row in counted}


def _columns(schema: Schema, predicate: Predicate) -> list[str]:
    """The columns that the condition names, in the table's order; all if that is unknown."""
    everything = [field.name for field in schema.fields]
    if not is_understood(predicate) or isinstance(predicate, Unknown):
        return everything
    try:
        names = {evolution.find_column(schema, path[0]).name for path in columns_of(predicate)}
    except UsageError:
        return everything
    return [name for name in everything if name in names] or everything[:1]

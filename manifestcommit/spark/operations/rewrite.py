"""Rewrites rows of chosen files with Spark: reads them as the table shows them and writes them to
new files, without losing or duplicating any. [GC11] [SP1]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ...errors import UsageError
from ...files.writer import WritePlan
from ...format.snapshot import Snapshot
from ...format.spark_json import unpadded
from ...operations.compaction import Choose, Rewrite, Rewriting, misplaced
from ...rows.row_change import NewFiles
from ..dataframe import read_snapshot
from ..filter.condition import told_once
from ..read.scan import quoted
from ..runtime.registered_options import is_connect
from ..runtime.versions import frame_of
from ..write.arrow_writer import write_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_AT_ONCE = 64  # concurrent Spark jobs of one task each
_AT_ONCE = 8  # if the session does not say how many tasks it runs


def read_entries(
    spark: SparkSession,
    url: str,
    snapshot: Snapshot,
    entries: pa.Table,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Every row of exactly these entries in the snapshot's columns, each value as stored, or an
    error; never fewer rows. [SP4] [DF4]

    entries: rows of `scan.planning.entries_table` of this snapshot, or of an older one whose
    files are still live.
    """
    if snapshot.schema is not None:  # values are rewritten as they are read
        snapshot = msgspec.structs.replace(snapshot, schema=unpadded(snapshot.schema))
    return read_snapshot(
        spark,
        url,
        snapshot,
        entries,
        columns=None,
        filter=None,
        predicate=None,
        storage_options=storage_options,
    )


def write_entries(
    df: DataFrame, plan: WritePlan, *, storage_options: Mapping[str, Any] | None = None
) -> NewFiles:
    """Write every row of `df` into exactly one of the returned files, which no snapshot lists yet.
    plan: from `files.writer`. [SP2]"""
    written = write_dataframe(df, plan, storage_options=storage_options)
    return NewFiles(
        entries=written.entries,
        manifests=written.manifests,
        touched=written.touched,
        tasks=written.tasks,
        intake=written.intake,
    )


def rewriter(
    spark: SparkSession,
    *,
    sort_by: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Rewrite:
    """A function that rewrites groups of files, each in a Spark job of one task, as many
    concurrently as the session has room for. [GC11]

    sort_by: columns by which the rows of each new file are sorted, in Spark's order: nulls first.
    """
    at_once = (
        _AT_ONCE if is_connect(spark) else min(spark.sparkContext.defaultParallelism, _MOST_AT_ONCE)
    )

    def rewrite(snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
        def one(group: Rewriting) -> NewFiles:
            df = read_entries(
                spark, group.plan.url, snapshot, group.entries, storage_options=storage_options
            ).coalesce(1)
            if sort_by:
                df = df.sortWithinPartitions(*(quoted(name) for name in sort_by))
            return write_entries(df, group.plan, storage_options=storage_options)

        with ThreadPoolExecutor(at_once, thread_name_prefix="manifestcommit-rewrite") as pool:
            yield from pool.map(one, groups)

    return rewrite


def choose_with(spark: SparkSession, condition: Any) -> Choose:
    """The partitions for which a condition, a Spark Column or SQL, is true. [GC16]"""

    def choose(partitions: pa.Table) -> list[bool]:
        number = max(partitions.column_names, key=len) + "#"  # a name that no column has
        numbered = partitions.append_column(
            number, pa.array(range(partitions.num_rows), pa.int64())
        )
        try:
            with told_once():
                rows = (
                    frame_of(spark, numbered)
                    .filter(condition)
                    .select(F.col(quoted(number)))
                    .collect()
                )
        except PySparkException as error:
            raise UsageError(misplaced(partitions, str(error).partition("\n")[0])) from None
        hits = {row[0] for row in rows}
        return [row in hits for row in range(partitions.num_rows)]

    return choose

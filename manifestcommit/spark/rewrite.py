"""Rows of chosen files into new files, by Spark: read them as the table shows them, write them anew, lose and double none. [GC11] [SP1]

Not here: which files are rewritten and what is committed (engine.compact), one task's files (spark.writer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.snapshot import Snapshot
from ..engine.files import WritePlan
from .read import read_snapshot
from .writer import Written, write_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_entries(
    spark: SparkSession, url: str, snapshot: Snapshot, entries: pa.Table, *, storage_options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Every row of exactly these entries in the snapshot's columns, or an error; never fewer. [SP4] [DF4]

    entries: rows of `engine.plan.entries_table` of this snapshot, or of an older one whose files are still live.
    """
    return read_snapshot(spark, url, snapshot, entries, columns=None, filter=None, predicate=None, storage_options=storage_options)


def write_entries(df: DataFrame, plan: WritePlan, *, storage_options: Mapping[str, Any] | None = None) -> Written:
    """Every row of `df` is in exactly one of the returned files, which no snapshot lists yet. plan: as `engine.replace` makes it. [SP2]"""
    return write_dataframe(df, plan, storage_options=storage_options)


def rewrite(
    spark: SparkSession,
    snapshot: Snapshot,
    entries: pa.Table,
    plan: WritePlan,
    *,
    sort_by: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Written:
    """The rows of these entries, all of them and no other, in new files that one task writes; sort_by: sorted by these columns. [GC11]"""
    df = read_entries(spark, plan.url, snapshot, entries, storage_options=storage_options).coalesce(1)
    if sort_by:
        df = df.sortWithinPartitions(*(f"`{name.replace('`', '``')}`" for name in sort_by))
    return write_entries(df, plan, storage_options=storage_options)

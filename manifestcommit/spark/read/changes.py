"""Changes of rows in Spark's tasks: each compares the files of one version, or reads some files
where nothing needs a comparison. [CH1] [CH7]
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from manifestcommit.format.entries import pack_bins
from manifestcommit.format.fields import Field, Schema
from manifestcommit.log.table_context import TableContext
from manifestcommit.protocol.change_feed import CHANGE_COLUMNS
from manifestcommit.rows.read_changes import Plan, VersionChange, bytes_of, parts_of, rows_of_change
from manifestcommit.spark.read.scan import spark_schema
from manifestcommit.spark.read.task_reader import fitted
from manifestcommit.spark.runtime import without_sources
from manifestcommit.spark.runtime.task_errors import check_reachable
from manifestcommit.spark.runtime.versions import InputPartition, arrow_schema_of
from manifestcommit.store import StorageOptions, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASK_BYTES = 128 << 20
_OPEN_COST_BYTES = 4 << 20
_KINDS = (StringType(), LongType(), TimestampType())


@dataclass
class ChangesOfTask(InputPartition):
    """What one task reads."""

    changes: tuple[VersionChange, ...]


@dataclass
class ChangesReader:
    """Reads changed rows in tasks, as columns of a table and those that say what happened. [CH2]

    on: the names of a key's columns.
    """

    url: str
    columns: tuple[Field, ...]
    on: tuple[str, ...]
    storage_options: StorageOptions

    @property
    def struct(self) -> StructType:
        return with_change_columns(spark_schema(Schema(fields=self.columns)))

    def read(self, changes: Sequence[VersionChange]) -> Iterator[pa.RecordBatch]:
        ctx = TableContext(open_store(self.url, self.storage_options))
        target = arrow_schema_of(self.struct)
        for change in changes:
            for batch in rows_of_change(ctx, change, self.columns, self.on):
                yield fitted(batch, target, target.names, {})


def with_change_columns(struct: StructType) -> StructType:
    """The columns, and behind them those that only changed rows have. [CH2]"""
    more = [StructField(name, kind) for name, kind in zip(CHANGE_COLUMNS, _KINDS, strict=True)]
    return StructType([*struct.fields, *more])


def pack_changes(changes: Sequence[VersionChange]) -> list[tuple[VersionChange, ...]]:
    """About one task's work each, in their order. [CH7]"""
    costs = ((change, bytes_of(change) + _OPEN_COST_BYTES) for change in changes)
    return [tuple(group) for group in pack_bins(costs, _TASK_BYTES)]


def changes_frame(
    spark: SparkSession, url: str, plan: Plan, storage_options: StorageOptions
) -> DataFrame:
    """A DataFrame of exactly the changed rows, or an error; never fewer. [CH1] [SP4]"""
    check_reachable(url)
    reader = ChangesReader(url, plan.columns, plan.on, storage_options)
    parts = [part for change in plan.versions for part in parts_of(change)]
    items = [pickle.dumps(group) for group in pack_changes(parts)]
    read = functools.partial(_read_item, reader)
    return without_sources.rows_of(spark, items, read, reader.struct, storage_options)


def _read_item(reader: ChangesReader, item: bytes) -> Iterator[pa.RecordBatch]:
    """In a task: the changed rows of what the driver packed."""
    return reader.read(pickle.loads(item))  # by this driver

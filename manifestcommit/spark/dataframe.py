"""A snapshot, or the changes of rows between two, as a Spark DataFrame. [SP4] [RD7] [CH1]"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ..errors import UsageError
from ..filter.predicate import Predicate, columns_of, is_understood
from ..format import evolution
from ..format.fields import Field, Schema, mark_of
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..protocol.change_feed import CHANGE_COLUMNS
from ..rows.read_changes import Plan, VersionChange, bytes_of, parts_of, rows_of_change
from ..scan.arrow_dataset import constants_in
from ..scan.engine_readers import folders_in
from ..store import StorageOptions, open_store
from .features import InputPartition, arrow_schema_of
from .scan import check_running, files_in, fitted, marked, pack, quoted, read_files, spark_schema
from .spark_internals import has_stopped_a_session
from .tasks import check_reachable, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = logging.getLogger("manifestcommit.spark")


def active_session() -> SparkSession:
    """The active Spark session, classic or Connect, or a new one where there is none, with this
    interpreter for its tasks. UsageError where the one that
    there was has been stopped: a new one lacks what that was given."""
    from pyspark.sql import SparkSession

    if (found := SparkSession.getActiveSession()) is not None:
        return found
    if has_stopped_a_session():
        raise UsageError(
            "this process has stopped its Spark session (spark.stop()); nothing was done. Start a "
            "session again, with the configuration that it needs, or give one with spark=…"
        )
    choose = "to choose it, start it before, or give it with spark=…"
    LOG.warning("no Spark session is active, so one is started; %s", choose)
    if "SPARK_REMOTE" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.getOrCreate()


def read_snapshot(
    spark: SparkSession,
    url: str,
    snapshot: Snapshot,
    entries: pa.Table,
    *,
    columns: list[str] | None = None,
    filter: Any = None,
    predicate: Predicate | None = None,
    storage_options: Mapping[str, Any] | None,
) -> DataFrame:
    """Exactly the rows of these entries that match, or an error; never fewer. [SP4] [RD7]"""
    check_running(spark)
    schema = snapshot.schema
    df = read_files(
        spark,
        url,
        files_in(entries),
        schema,
        columns=None if columns is None else _looked_at(schema, columns, predicate),
        # what a job of ours wrote has no float statistics in its footers
        trust_footers=entries.column("digest").null_count == 0,
        constants=constants_in(entries, schema, snapshot.partition_by, url),
        folders=folders_in(entries, schema, snapshot.partition_by),
        storage_options=storage_options,
    )
    df = marked(df, mark_of(snapshot.table_id, url, snapshot.version))
    if predicate is not None:
        from .conditions import Condition  # late: most reads have no filter

        df = Condition(predicate=predicate, given=filter, schema=schema).matching(df)
    return df if columns is None else df.select(*map(quoted, columns))


def _looked_at(schema: Schema, wanted: list[str], predicate: Predicate | None) -> list[str] | None:
    """The columns that such a read needs, in order; None, for all, where it is unknown."""
    names = set(wanted)
    if predicate is not None:
        if not is_understood(predicate):
            return None
        try:
            names |= {evolution.find_column(schema, path[0]).name for path in columns_of(predicate)}
        except UsageError:  # Spark will say so, or knows better
            return None
    return [field.name for field in schema.fields if field.name in names] or None


_KINDS = (StringType(), LongType(), TimestampType())


@dataclass
class ChangesOfTask(InputPartition):
    """What one task reads."""

    changes: tuple[VersionChange, ...]


@dataclass
class ChangesReader:
    """Reads changed rows in tasks, as columns of a table and those that say what happened. [CH2]
    on: the names of a key's columns."""

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


def changes_frame(
    spark: SparkSession, url: str, plan: Plan, storage_options: StorageOptions
) -> DataFrame:
    """A DataFrame of exactly the changed rows, or an error; never fewer. [CH1] [SP4]"""
    check_reachable(url)
    reader = ChangesReader(url, plan.columns, plan.on, storage_options)
    parts = [part for change in plan.versions for part in parts_of(change)]
    return rows_of(spark, pack(parts, bytes_of), reader.read, reader.struct, storage_options)

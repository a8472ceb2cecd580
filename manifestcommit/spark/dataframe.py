"""A snapshot into a Spark DataFrame: the planned files, the columns asked for, the rows that match.
[SP4] [RD7]
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import UsageError
from ..filter.predicate import Predicate, columns_of, is_understood
from ..format import evolution
from ..format.fields import FLOATS, Schema, mark_of, walk
from ..format.snapshot import Snapshot
from ..scan.arrow_dataset import constants_in
from ..scan.engine_readers import folders_in
from ..store import StorageOptions
from .read.provenance import check_running, marked
from .read.scan import quoted, read_files
from .runtime.spark_internals import has_stopped_a_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


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
            "this process has stopped its Spark session (spark.stop()); nothing was done. "
            "Start a session again, with the configuration "
            "that it needs, or give one with spark=…"
        )
    LOG.warning(
        "no Spark session is active, so one is started; to choose it, start it before, or "
        "give it with spark=…"
    )
    if "SPARK_REMOTE" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.getOrCreate()


def register(spark: SparkSession, storage_options: Mapping[str, Any] | None) -> None:
    """Make `format("manifestcommit")` known to this session, with these options and no others; they
    are shown nowhere. [SE1]

    Calling it again replaces what was registered; Spark says so in its log.
    """
    from ..runtime.environment import SystemEnv
    from .datasource.source import ManifestCommitDataSource as Source
    from .runtime.registered_options import register_with
    from .runtime.versions import check_feature

    check_feature("format")
    options, author = StorageOptions(storage_options), SystemEnv().author()
    register_with(spark, Source, options, Source.format_name, author)


def read_snapshot(
    spark: SparkSession,
    url: str,
    snapshot: Snapshot,
    entries: pa.Table,
    *,
    columns: list[str] | str | None,
    filter: Any,
    predicate: Predicate | None,
    storage_options: Mapping[str, Any] | None,
) -> DataFrame:
    """Exactly the rows of these entries that match, or an error; never fewer. [SP4] [RD7]"""
    check_running(spark)
    schema = snapshot.schema or Schema(fields=())
    columns = [columns] if isinstance(columns, str) else columns
    wanted = (
        None if columns is None else [evolution.find_column(schema, name).name for name in columns]
    )
    files = list(
        zip(entries.column("path").to_pylist(), entries.column("bytes").to_pylist(), strict=True)
    )
    # what a job of ours wrote has no float statistics in its footers
    only_own = entries.column("digest").null_count == 0
    has_floats = any(field.type in FLOATS for _, field in walk(schema.fields))
    df = read_files(
        spark,
        url,
        files,
        schema,
        columns=None if wanted is None else _looked_at(schema, wanted, predicate),
        trust_footers=only_own or not has_floats,
        constants=constants_in(entries, schema, snapshot.partition_by, url),
        folders=folders_in(entries, schema, snapshot.partition_by),
        predicate=predicate,
        storage_options=storage_options,
    )
    df = marked(df, mark_of(snapshot.table_id, url, snapshot.version))
    if predicate is not None:
        is_sparks = isinstance(filter, str) or type(filter).__module__.startswith("pyspark.")
        df = df.filter(filter if is_sparks else _column(predicate, schema))
    return df if wanted is None else df.select(*(quoted(name) for name in wanted))


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


def _column(predicate: Predicate, schema: Schema) -> Column:
    from .filter.columns import to_column  # late: most reads have no filter

    return to_column(predicate, schema)

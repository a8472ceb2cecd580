"""A snapshot into a Spark DataFrame: the planned files, the columns asked for, the rows that match. [SP4] [RD7]

Not here: how Spark is made to read exactly these files (spark.reader), which files (engine.plan).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core import evolution
from ..core.predicate import And, Not, Or, Predicate, Unknown, columns_of
from ..core.schema import Schema, walk
from ..core.snapshot import Snapshot
from ..engine.constants import constants_in
from ..errors import UsageError
from .reader import quoted, read_files
from .session import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def active_session() -> SparkSession:
    """The active Spark session, classic or Connect, or a new one where there is none: on a Java that it can start on, and with this
    interpreter for its tasks."""
    from pyspark.sql import SparkSession

    if (found := SparkSession.getActiveSession()) is not None:
        return found
    if "SPARK_REMOTE" not in os.environ:
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.getOrCreate()


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
    """Exactly the rows of these entries that match the filter, or an error; never fewer. [SP4] [RD7]"""
    schema = snapshot.schema or Schema(fields=())
    columns = [columns] if isinstance(columns, str) else columns
    wanted = None if columns is None else [evolution.find_column(schema, name).name for name in columns]
    files = list(zip(entries.column("path").to_pylist(), entries.column("bytes").to_pylist(), strict=True))
    only_own = entries.column("digest").null_count == 0  # what a job of ours wrote has no float statistics in its footers
    has_floats = any(field.type in ("float", "double") for _, field in walk(schema.fields))
    df = read_files(
        spark,
        url,
        files,
        schema,
        columns=None if wanted is None else _looked_at(schema, wanted, predicate),
        trust_footers=only_own or not has_floats,
        constants=constants_in(entries, schema, snapshot.partition_by),
        predicate=predicate,
        storage_options=storage_options,
    )
    if predicate is not None:
        df = df.filter(filter if _is_column(filter) else _column(predicate, schema))
    return df if wanted is None else df.select(*(quoted(name) for name in wanted))


def _looked_at(schema: Schema, wanted: list[str], predicate: Predicate | None) -> list[str] | None:
    """The columns that such a read needs, in the table's order; None, for all, where the filter does not tell its own."""
    names = set(wanted)
    if predicate is not None:
        if not is_understood(predicate):
            return None
        try:
            names |= {evolution.find_column(schema, path[0]).name for path in columns_of(predicate)}
        except UsageError:  # Spark will say so, or knows better
            return None
    return [field.name for field in schema.fields if field.name in names] or None


def is_understood(predicate: Predicate) -> bool:
    match predicate:
        case And(args=args) | Or(args=args):
            return all(is_understood(arg) for arg in args)
        case Not(arg=arg):
            return is_understood(arg)
        case _:
            return not isinstance(predicate, Unknown)


def _column(predicate: Predicate, schema: Schema) -> Column:
    from .columns import to_column  # late: most reads have no filter

    return to_column(predicate, schema)


def _is_column(value: Any) -> bool:
    return type(value).__module__.startswith("pyspark.")

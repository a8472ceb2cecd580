"""`Table.compact` with Spark, and `Table.plan_compaction`. [GC11] [GC16]

Internal: import from `manifestcommit`. Not here: which files and what is committed
(engine.maintenance.compaction), the rewriting itself (spark.operations.rewrite).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.schema import evolution
from ..core.schema.fields import Schema
from ..engine.maintenance import compaction as engine
from ..engine.maintenance.compaction import Choose, Compaction, CompactionOptions
from ..engine.metadata.table_context import TableContext
from ..store import StorageOptions
from .conditions import check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    session: TableContext,
    aim: CompactionOptions,
    *,
    where: Any,
    sort_by: list[str] | str | None,
    spark: SparkSession | None,
    storage_options: StorageOptions,
    progress: Callable[[str], None],
) -> Compaction:
    """Rewrite small files through Spark, then merge small manifests. [GC11]"""
    from ..spark.operations.rewrite import rewriter  # late: pyspark is an extra

    names = [sort_by] if isinstance(sort_by, str) else sort_by or []
    schema = session.open().snapshot.schema or Schema(fields=())
    columns = [evolution.find_column(schema, name).name for name in names]
    spark = _session(spark)
    rewrite = rewriter(spark, sort_by=columns, storage_options=storage_options)
    return engine.compact(session, aim, rewrite, choose=chosen(where, spark), progress=progress)


def plan_compaction(
    session: TableContext,
    aim: CompactionOptions,
    *,
    where: Any,
    spark: SparkSession | None,
    only_manifests: bool,
) -> pa.Table:
    """What a compaction would do now, group by group; nothing is changed. [GC16]"""
    snapshot = session.open().snapshot
    groups = (
        () if only_manifests else engine.find_groups(session, snapshot, aim, chosen(where, spark))
    )
    return engine.describe_plan(session, snapshot, groups)


def chosen(where: Any, spark: SparkSession | None) -> Choose | None:
    """Which partitions a condition chooses; a pyarrow expression needs no Spark."""
    if where is None:
        return None
    if isinstance(where, pc.Expression):
        return engine.choose_by(where)
    check_spark("where", where)
    from ..spark.operations.rewrite import choose_with  # these two are Spark's to understand

    return choose_with(_session(spark), where)


def _session(spark: SparkSession | None) -> SparkSession:
    """The one given, the active one, or a new one."""
    from ..spark.dataframe import active_session

    return spark or active_session()

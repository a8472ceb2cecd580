"""`Table.compact` and `Table.plan_compaction`. [GC11] [GC16]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..files.writer import target_file_size_of
from ..format import evolution
from ..format.fields import Schema
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..operations import compaction as engine
from ..operations.compaction import (
    Choose,
    Compaction,
    CompactionOptions,
    choose_by_sql,
    rewriter,
    sorts_here,
)
from ..protocol.compaction_plan import Group
from ..rows.conditions import needs_spark, running_session
from ..rows.find import is_for_spark
from ..store import StorageOptions
from .conditions import check_meaning, check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("manifestcommit.jobs")


def compact(
    ctx: TableContext,
    aim: CompactionOptions,
    *,
    where: Any,
    sort_by: list[str] | str | None,
    spark: SparkSession | None,
    storage_options: StorageOptions,
    progress: Callable[[str], None],
) -> Compaction:
    """Rewrite small files together, then merge small manifests. [GC11] [RC8]"""
    names = [sort_by] if isinstance(sort_by, str) else sort_by or []
    snapshot = ctx.open().snapshot
    schema = snapshot.schema or Schema(fields=())
    columns = [evolution.find_column(schema, name).name for name in names]
    target = target_file_size_of(snapshot) if aim.target is None else aim.target
    sorted_bytes = min(target, snapshot.totals.bytes)
    is_large = is_for_spark(snapshot.totals.bytes)
    if spark is None and not is_large and sorts_here(schema, columns, sorted_bytes):
        LOG.info("compact: files are read and rewritten by this process")
        rewrite = rewriter(ctx, sort_by=columns)
    else:
        from ..spark.operations.rewrite import rewriter as with_spark  # late: an extra

        spark = _session(spark)
        rewrite = with_spark(spark, sort_by=columns, storage_options=storage_options)
    choose = chosen(where, spark, snapshot)
    return engine.compact(ctx, aim, rewrite, choose=choose, progress=progress)


def plan_compaction(
    ctx: TableContext,
    aim: CompactionOptions,
    *,
    where: Any,
    spark: SparkSession | None,
    only_manifests: bool,
) -> pa.Table:
    """What a compaction would do now, group by group; nothing is changed. [GC16]"""
    snapshot = ctx.open().snapshot
    groups: Iterable[Group] = ()
    if not only_manifests:
        groups = engine.find_groups(ctx, snapshot, aim, chosen(where, spark, snapshot))
    return engine.describe_plan(ctx, snapshot, groups)


def chosen(where: Any, spark: SparkSession | None, snapshot: Snapshot) -> Choose | None:
    """Which partitions a condition chooses; Spark evaluates it if it was given or is needed."""
    if where is None:
        return None
    if isinstance(where, pc.Expression):
        return engine.choose_by(where)
    check_meaning("where", [where], spark)

    def with_spark(why: Exception | None = None) -> Choose:
        if why is not None and running_session() is None:
            raise needs_spark(where, "where", why) from why
        check_spark("where", where)
        from ..spark.operations.rewrite import choose_with

        return choose_with(_session(spark), where)

    if spark is None and isinstance(where, str):
        return choose_by_sql(where, snapshot, with_spark)
    return with_spark()


def _session(spark: SparkSession | None) -> SparkSession:
    """The one given, the active one, or a new one."""
    from ..spark.dataframe import active_session

    return spark or active_session()

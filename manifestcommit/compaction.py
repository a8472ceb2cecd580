"""`Table.compact`: the plan, or Spark at its work. [GC11] [GC16]

Not here: which files and what is committed (engine.compact), the rewriting itself (spark.rewrite).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from .core import evolution
from .core.schema import Schema
from .engine import compact as engine
from .engine.compact import Aim, Choose, Compaction
from .engine.session import Session
from .errors import UsageError
from .job import is_spark_column
from .store import StorageOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    session: Session,
    aim: Aim,
    *,
    where: Any,
    sort_by: list[str] | str | None,
    spark: SparkSession | None,
    storage_options: StorageOptions,
    tell: Callable[[str], None],
) -> Compaction:
    """Rewrite small files through Spark, then merge small manifests. [GC11]"""
    from .spark.rewrite import rewriter  # late: pyspark is an extra

    names = [sort_by] if isinstance(sort_by, str) else sort_by or []
    schema = session.open().snapshot.schema or Schema(fields=())
    columns = [evolution.find_column(schema, name).name for name in names]
    spark = _session(spark)
    rewrite = rewriter(spark, sort_by=columns, storage_options=storage_options)
    return engine.compact(session, aim, rewrite, choose=chosen(where, spark), tell=tell)


def planned(session: Session, aim: Aim, *, where: Any, spark: SparkSession | None, only_manifests: bool) -> pa.Table:
    """What a compaction would do now, group by group; nothing is changed. [GC16]"""
    snapshot = session.open().snapshot
    groups = () if only_manifests else engine.find_groups(session, snapshot, aim, chosen(where, spark))
    return engine.describe_plan(session, snapshot, groups)


def chosen(where: Any, spark: SparkSession | None) -> Choose | None:
    """Which partitions a condition chooses; a pyarrow expression needs no Spark."""
    if where is None:
        return None
    if isinstance(where, pc.Expression):
        return engine.choose_by(where)
    from .spark.rewrite import choose_with  # these two are Spark's to understand

    if not (isinstance(where, str) or is_spark_column(where)):
        raise UsageError(f"where is a pyarrow expression, a Spark Column or Spark SQL on partition columns, not a {type(where).__name__}")
    return choose_with(_session(spark), where)


def _session(spark: SparkSession | None) -> SparkSession:
    """The one given, the active one, or a new one."""
    from .spark.read import active_session

    return spark or active_session()

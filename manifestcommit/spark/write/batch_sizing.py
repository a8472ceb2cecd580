"""Bounds the batches that Spark sends to its Python tasks in bytes, without Spark's own bound,
which costs as much as everything else. [SP40]

After each row Spark asks every column for its size so far: a third of the CPU of a write. Here a
long row is followed by as many empty rows as its length would hold, so Spark's bound in rows, which
costs nothing, also bounds the bytes.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from manifestcommit.spark.runtime.registered_options import is_connect
from manifestcommit.spark.runtime.spark_internals import (
    has_thread_of_its_own,
    java_frame,
    jvm,
    settings_of,
)
from manifestcommit.spark.runtime.versions import NEWER_PATTERNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_BYTES = 64 << 20  # Spark's own bound of a batch
BOUND = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNBOUNDED = str(2**31 - 1)  # a value that makes Spark skip the check
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LEAST_LONG_BYTES = 1024  # shorter rows would be followed by empty ones too often
# Of each value in Arrow, its validity and offset count as one byte and four. Arrays, maps and
# structs are not in this table and are not measured.
_FIXED_BYTES = {
    "NullType": 0,
    "BooleanType": 2,
    "ByteType": 2,
    "ShortType": 3,
    "IntegerType": 5,
    "LongType": 9,
    "FloatType": 5,
    "DoubleType": 9,
    "DecimalType": 17,
    "DateType": 5,
    "TimestampType": 9,
    "TimestampNTZType": 9,
    "DayTimeIntervalType": 9,
}
_LONG = frozenset({"StringType", "CharType", "VarcharType", "BinaryType"})
_LONG_FIXED_BYTES = 5
# Spark overflows its stack in a sum of a few hundred lengths, and compiles no wider rows anyway
_MOST_COLUMNS = 100
# The bound is disabled for the write alone, but this applies to everything in its Spark job: so the
# job may contain no other Python, nor anything that may hide some (a cache, an RDD).
_OPERATORS = frozenset(
    {
        "Aggregate",
        "CollectMetrics",
        "DataSourceV2Relation",
        "Deduplicate",
        "Distinct",
        "Filter",
        "GlobalLimit",
        "HiveTableRelation",
        "Join",
        "LocalLimit",
        "LocalRelation",
        "LogicalRelation",
        "OneRowRelation",
        "Project",
        "Range",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Union",
        "View",
        "Window",
    }
)
_HIDING = ("PYTHON_UDF", "EVAL_PYTHON_UDF", "PLAN_EXPRESSION", *NEWER_PATTERNS)


@contextlib.contextmanager
def paced(df: DataFrame, filler: str) -> Iterator[DataFrame]:
    """The rows of `df` and, after long ones, empty rows, which the last column marks; inside the
    block this thread's jobs batch by rows. [SP40]

    filler: that column's name, which no column of `df` has. If Spark's own bound must stay, it is
    `df` itself.
    """
    # in a thread of the JVM that others use, too, the setting might stay for their jobs
    has_own = not is_connect(df) and has_thread_of_its_own(df.sparkSession.sparkContext)
    share = _share(df) if has_own and _is_plain(df) else None
    if share is None:
        yield df
        return
    context = df.sparkSession.sparkContext
    before = context.getLocalProperty(BOUND)
    context.setLocalProperty(BOUND, _UNBOUNDED)
    try:
        yield _spread(df, filler, share)
    finally:
        context.setLocalProperty(BOUND, before)  # type: ignore[arg-type]  # None is how it is taken away


def without_fillers(batches: Iterable[pa.RecordBatch], filler: str) -> Iterator[pa.RecordBatch]:
    """The rows alone, in their order. Runs in a task. [SP40]"""
    for batch in batches:
        if batch.schema.names[-1:] != [filler]:
            yield batch
            continue
        number = batch.column(batch.num_columns - 1)
        rows = batch.select(range(batch.num_columns - 1))
        yield (
            rows
            if number.null_count == len(number)
            else rows.filter(pc.fill_null(pc.equal(number, 0), True))
        )


def _share(df: DataFrame) -> int | None:
    """The bytes of long values that one row of a batch may hold; None if they cannot be measured,
    or the setting is not ours to change."""
    given = settings_of(df.sparkSession)
    try:
        rows = int(df.sparkSession.conf.get(_ROWS) or "")
    except ValueError:
        return None
    kinds = [type(field.dataType).__name__ for field in df.schema.fields]
    is_measured = len(kinds) <= _MOST_COLUMNS and all(
        kind in _FIXED_BYTES or kind in _LONG for kind in kinds
    )
    if BOUND in given or rows <= 0 or not is_measured:
        return None
    share = BATCH_BYTES // rows - sum(_FIXED_BYTES.get(kind, _LONG_FIXED_BYTES) for kind in kinds)
    return share if share >= _LEAST_LONG_BYTES else None


def _is_plain(df: DataFrame) -> bool:
    """Whether nothing else in the query sends batches to Python, as far as visible; False if this
    Spark has other internals."""
    from py4j.protocol import Py4JError

    try:
        return _has_no_python(df)
    except (Py4JError, TypeError):  # either error is raised for a missing name
        return False


def _has_no_python(df: DataFrame) -> bool:
    patterns = jvm(df.sparkSession).org.apache.spark.sql.catalyst.trees.TreePattern
    # A new plan: that of `df` itself may be older than a cache of something in it.
    plan = java_frame(df.select("*")).queryExecution().withCachedData()
    if any(plan.containsPattern(getattr(patterns, name)()) for name in _HIDING):
        return False
    plans = [plan]
    while plans:
        plan = plans.pop()
        if plan.getClass().getSimpleName() not in _OPERATORS:
            return False
        children = plan.children()
        plans += [children.apply(at) for at in range(children.size())]
    return True


def _spread(df: DataFrame, filler: str, share: int) -> DataFrame:
    """Every row once, with number 0; after a row of n times `share` bytes n empty rows, numbered
    from 1. Other rows have no number."""
    fields = df.schema.fields
    # Spark takes a dot in a column's name for a member access
    names = [f"c{at}" for at in range(len(fields))]
    long = {
        name
        for name, field in zip(names, fields, strict=True)
        if type(field.dataType).__name__ in _LONG
    }
    if not long:
        return df
    size = functools.reduce(
        operator.add,
        (F.coalesce(F.octet_length(name).cast("long"), F.lit(0)) for name in sorted(long)),
    )
    numbers = F.when(size >= share, F.sequence(F.lit(0), (size / share).cast("int")))
    numbered = df.toDF(*names).select("*", F.explode_outer(numbers).alias("n"))
    columns = [
        F.when(F.col("n") > 0, F.lit(None)).otherwise(F.col(name)) if name in long else F.col(name)
        for name in names
    ]
    return numbered.select(
        *(column.alias(field.name) for column, field in zip(columns, fields, strict=True)),
        F.col("n").alias(filler),
    )

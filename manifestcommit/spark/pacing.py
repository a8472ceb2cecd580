"""Rows on their way to Spark's Python tasks: batches bounded in bytes without Spark's own bound, which costs as much as the rest. [SP40]

After each row Spark asks every column how large it has become: a third of the CPU of a write. Here a long row is followed by as many
empty ones as its length takes the place of, so that Spark's bound in rows, which costs nothing, is one in bytes too.
Not here: the write itself (writer).
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from manifestcommit.spark.registered import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_BYTES = 64 << 20  # as many as Spark bounds a batch by
BOUND = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNBOUNDED = str(2**31 - 1)  # what Spark takes for: do not ask
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LEAST_LONG_BYTES = 1024  # shorter rows would be followed by empty ones too often
# Of each value in Arrow, its validity and offset counted as a byte and four. What is in no table is not measured: arrays, maps, structs.
_FIXED_BYTES = {
    "NullType": 0, "BooleanType": 2, "ByteType": 2, "ShortType": 3, "IntegerType": 5, "LongType": 9, "FloatType": 5, "DoubleType": 9,
    "DecimalType": 17, "DateType": 5, "TimestampType": 9, "TimestampNTZType": 9, "DayTimeIntervalType": 9,
}  # fmt: skip
_LONG = frozenset({"StringType", "CharType", "VarcharType", "BinaryType"})
_LONG_FIXED_BYTES = 5
_MOST_COLUMNS = 100  # Spark goes down a sum of a few hundred lengths until its stack ends, and compiles no wider rows anyway
# Setting the bound aside is meant for the write alone, and holds for all that runs in its Spark job: so there may be no Python in that, nor
# what may hide some (what is cached, an RDD).
_OPERATORS = frozenset(
    {
        "Aggregate", "CollectMetrics", "DataSourceV2Relation", "Deduplicate", "Distinct", "Filter", "GlobalLimit", "HiveTableRelation",
        "Join", "LocalLimit", "LocalRelation", "LogicalRelation", "OneRowRelation", "Project", "Range", "Repartition",
        "RepartitionByExpression", "Sample", "Sort", "SubqueryAlias", "Union", "View", "Window",
    }
)  # fmt: skip
_HIDING = ("PYTHON_UDF", "TRANSPILED_PYTHON_UDF", "EVAL_PYTHON_UDF", "EVAL_PYTHON_UDTF", "PLAN_EXPRESSION")


@contextlib.contextmanager
def paced(df: DataFrame, filler: str) -> Iterator[DataFrame]:
    """The rows of `df` and, after long ones, empty ones, told by the last column; in the block this thread's jobs batch by rows. [SP40]

    filler: that column's name, which no column of `df` has. Where the bound in bytes has to stay Spark's, it is `df` itself.
    """
    share = None if is_connect(df) or not _has_own_thread(df) or not _is_plain(df) else _share(df)
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
    """The rows alone, in their order. In a task. [SP40]"""
    for batch in batches:
        if batch.schema.names[-1:] != [filler]:
            yield batch
            continue
        number = batch.column(batch.num_columns - 1)
        rows = batch.select(range(batch.num_columns - 1))
        yield rows if number.null_count == len(number) else rows.filter(pc.fill_null(pc.equal(number, 0), True))


def _share(df: DataFrame) -> int | None:
    """How many bytes of long values a row may have for its place in a batch; None where that cannot be measured or is not ours to say."""
    given = df.sparkSession.conf.getAll
    try:
        rows = int(df.sparkSession.conf.get(_ROWS) or "")
    except ValueError:
        return None
    kinds = [type(field.dataType).__name__ for field in df.schema.fields]
    is_measured = len(kinds) <= _MOST_COLUMNS and all(kind in _FIXED_BYTES or kind in _LONG for kind in kinds)
    if BOUND in given or rows <= 0 or not is_measured:
        return None
    share = BATCH_BYTES // rows - sum(_FIXED_BYTES.get(kind, _LONG_FIXED_BYTES) for kind in kinds)
    return share if share >= _LEAST_LONG_BYTES else None


def _has_own_thread(df: DataFrame) -> bool:
    """Whether this thread's jobs are its own in the JVM: what is set aside for them might stay so for another thread's."""
    from py4j.clientserver import ClientServer  # late: clients of Spark Connect have none

    return isinstance(df.sparkSession.sparkContext._gateway, ClientServer)


def _is_plain(df: DataFrame) -> bool:
    """Whether nothing else in the query hands batches to Python, as far as one can see; False where this Spark has other insides."""
    from py4j.protocol import Py4JError

    try:
        return _has_no_python(df)
    except (Py4JError, TypeError):  # a name that is not there is told by either
        return False


def _has_no_python(df: DataFrame) -> bool:
    jvm: Any = df.sparkSession._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    # A plan of its own: that of `df` itself may have been made before something in it was cached, or no longer is.
    plan = df.select("*")._jdf.queryExecution().withCachedData()
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
    """Each row once; after one of n times `share` bytes n empty ones, numbered from 1, it being 0. Other rows have no number."""
    fields = df.schema.fields
    names = [f"c{at}" for at in range(len(fields))]  # Spark takes a dot in a column's name for a member's
    long = {name for name, field in zip(names, fields, strict=True) if type(field.dataType).__name__ in _LONG}
    if not long:
        return df
    size = functools.reduce(operator.add, (F.coalesce(F.octet_length(name).cast("long"), F.lit(0)) for name in sorted(long)))
    numbers = F.when(size >= share, F.sequence(F.lit(0), (size / share).cast("int")))
    numbered = df.toDF(*names).select("*", F.explode_outer(numbers).alias("n"))
    columns = [F.when(F.col("n") > 0, F.lit(None)).otherwise(F.col(name)) if name in long else F.col(name) for name in names]
    return numbered.select(*(column.alias(field.name) for column, field in zip(columns, fields, strict=True)), F.col("n").alias(filler))

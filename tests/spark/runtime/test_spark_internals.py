"""The private parts of PySpark that the library uses are where it looks for them, and do what it relies on. [SP12]

`make test-newest` runs these with the newest release.
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql import functions as F

from manifestcommit.spark import spark_internals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Within, a part that is not there any more, or does something else, is one clear failure."""
    try:
        yield
    except (AttributeError, TypeError, AssertionError) as error:
        pytest.fail(f"pyspark {pyspark.__version__} has moved {name}; mend manifestcommit/spark/spark_internals.py: {error!r}")


def jvm(spark: SparkSession) -> None:
    with part("SparkSession._jvm"):
        assert spark_internals.jvm(spark).java.lang.Integer.parseInt("5") == 5


def java_session(spark: SparkSession) -> None:
    with part("SparkSession._jsparkSession"):
        assert spark_internals.java_session(spark).version() == spark.version


def has_java_session(spark: SparkSession) -> None:
    with part("SparkSession._jsparkSession"):
        assert spark_internals.has_java_session(spark) and not spark_internals.has_java_session(object())


def java_frame(spark: SparkSession) -> None:
    with part("DataFrame._jdf"):
        assert spark_internals.java_frame(spark.range(3)).queryExecution().logical().nodeName() == "Range"


def file_index(spark: SparkSession) -> None:
    with part("LogicalRelation.location"), tempfile.TemporaryDirectory() as parent:
        folder = f"{parent}/days"
        spark.range(3).selectExpr("id", "id as day").write.partitionBy("day").parquet(folder)
        spec = spark_internals.file_index(spark.read.parquet(folder)).partitionSpec()
        assert spec.partitions().length() == 3 and "day" in spec.partitionColumns().json()


def session_of(spark: SparkSession) -> None:
    with part("JavaSparkSession.sessionUUID"):
        holder, mine = spark_internals.session_of(spark)
        assert holder is spark.sparkContext and mine != spark_internals.session_of(spark.newSession())[1]
        assert spark_internals.session_of(object())[1] == ""


def java_rdd(spark: SparkSession) -> None:
    with part("RDD._jrdd"):
        assert spark_internals.java_rdd(spark.sparkContext.parallelize([1, 2, 3], 2)).getNumPartitions() == 2


def settings_of(spark: SparkSession) -> None:
    with part("RuntimeConfig.getAll"):
        assert spark_internals.settings_of(spark)["spark.app.name"] == spark.conf.get("spark.app.name")


def is_stopped(spark: SparkSession) -> None:
    """Of a context that was stopped, its `_jsc` is None: that is what `SparkContext.stop` leaves."""
    with part("SparkContext._jsc"):
        assert spark_internals.is_stopped(spark.sparkContext) is False
        assert "self._jsc = None" in inspect.getsource(type(spark.sparkContext).stop)


def broadcast_threshold_bytes(spark: SparkSession) -> None:
    with part("PythonUtils.getBroadcastThreshold"):
        assert spark_internals.broadcast_threshold_bytes() == 1 << 20


def has_stopped_a_session(spark: SparkSession) -> None:
    with part("SparkContext._gateway or SparkContext._active_spark_context"):
        assert spark_internals.has_stopped_a_session() is False
        context = type(spark.sparkContext)
        active, context._active_spark_context = context._active_spark_context, None
        try:
            assert active is spark.sparkContext and spark_internals.has_stopped_a_session() is True
        finally:
            context._active_spark_context = active


def has_thread_of_its_own(spark: SparkSession) -> None:
    with part("SparkContext._gateway"):
        assert spark_internals.has_thread_of_its_own(spark.sparkContext) is True


def text_of_filter(spark: SparkSession) -> None:
    with part("Dataset.queryExecution.logical"):
        assert "'it\\'s'" in spark_internals.text_of_filter(spark.range(1).filter(F.lit("it's") == "a"))


def has_same_meaning(spark: SparkSession) -> None:
    with part("LogicalPlan.sameResult"):
        rows = spark.range(3)
        assert spark_internals.has_same_meaning(rows.filter(F.col("id") == 1), rows.filter("id = 1"))
        assert not spark_internals.has_same_meaning(rows.filter(F.col("id") == 1), rows.filter("id = 1.0"))


CHECKS: dict[str, Callable[[Any], None]] = {
    each.__name__: each
    for each in (
        jvm, java_session, has_java_session, java_frame, file_index, session_of, java_rdd, settings_of, is_stopped,
        broadcast_threshold_bytes, has_stopped_a_session, has_thread_of_its_own, text_of_filter, has_same_meaning,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_a_private_part_is_where_it_was(spark: SparkSession, name: str) -> None:
    CHECKS[name](spark)


def test_every_private_part_is_tested() -> None:
    parts = {name for name, each in vars(spark_internals).items() if inspect.isfunction(each)}
    assert parts == CHECKS.keys()


def test_a_part_that_has_moved_is_one_clear_failure() -> None:
    told = r"pyspark [\d.]+ has moved x; mend .*spark_internals\.py: AttributeError"
    with pytest.raises(pytest.fail.Exception, match=told), part("x"):
        object().gone  # type: ignore[attr-defined]  # noqa: B018

"""Everything of PySpark that the library uses although it is private, in one place: a release that
moves one of these is mended here. [SP12]

A classic session has them, a Spark Connect session has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession


def jvm(spark: SparkSession) -> Any:
    return spark._jvm


def java_session(spark: SparkSession) -> Any:
    return spark._jsparkSession


def has_java_session(spark: Any) -> bool:
    """Whether the session is a classic one, with a JVM beside this process."""
    return hasattr(spark, "_jsparkSession")


def settings_of(spark: SparkSession) -> dict[str, str]:
    """All settings of the session that were given; those of Spark 3.5 only its JVM shows."""
    found = getattr(spark.conf, "getAll", None)
    if found is not None:
        return dict(found)
    settings, entries = {}, java_session(spark).conf().getAll().iterator()
    while entries.hasNext():
        entry = entries.next()
        settings[entry._1()] = entry._2()
    return settings


def java_frame(df: DataFrame) -> Any:
    return df._jdf


def file_index(df: DataFrame) -> Any:
    """What a DataFrame of `spark.read` knows of its files, in the JVM."""
    return java_frame(df).queryExecution().analyzed().relation().location()


def java_rdd(rdd: RDD[Any]) -> Any:
    return rdd._jrdd.rdd()


def is_stopped(context: SparkContext) -> bool:
    return context._jsc is None


def broadcast_threshold_bytes() -> int:
    """From how many bytes on Spark sends a task's function through files; as it is by default
    where there is no JVM beside this process."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return 1 << 20
    utils: Any = context._jvm.PythonUtils  # type: ignore[union-attr]  # private: without types
    return int(utils.getBroadcastThreshold(context._jsc))


def has_stopped_a_session() -> bool:
    from pyspark import SparkContext

    return SparkContext._gateway is not None and SparkContext._active_spark_context is None


def has_thread_of_its_own(context: SparkContext) -> bool:
    """Whether each Python thread has one of its own in the JVM."""
    from py4j.clientserver import ClientServer

    return isinstance(context._gateway, ClientServer)


def text_of_filter(filtered: DataFrame) -> str:
    """The condition of a DataFrame that `filter` made, as SQL, before it is analysed."""
    return str(java_frame(filtered).queryExecution().logical().condition().sql())


def has_same_meaning(one: DataFrame, other: DataFrame) -> bool:
    """Whether Spark sees that both give the same rows, of the same input, once it has analysed
    them: types, casts and literals included."""
    plans = [java_frame(each).queryExecution().analyzed() for each in (one, other)]
    return bool(plans[0].sameResult(plans[1]))


def session_of(spark: Any) -> tuple[Any, str]:
    """What lives as long as the session, and which of its sessions this is: Python may have
    several objects for one session of the JVM."""
    if has_java_session(spark):
        return spark.sparkContext, str(java_session(spark).sessionUUID())
    return spark, ""

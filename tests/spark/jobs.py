"""What a test's driver process runs: `python -m tests.spark.jobs <answers' descriptor> <master> <conf as JSON>`."""

import json
import os
import sys
import traceback
from typing import Any


def numbers(spark: Any, *, tasks: int, rows: int, start: int = 0, key: str = "k") -> Any:
    """`rows` rows in each of `tasks` partitions: n counts from `start`, day has the partition's parity, who names the run."""
    from pyspark.sql import functions as F

    frame = spark.range(start, start + tasks * rows, 1, tasks)
    return frame.select(
        F.col("id").alias("n"), F.concat(F.lit("2013-01-0"), (F.col("id") % 2 + 1).cast("string")).alias("day"), F.lit(key).alias("who")
    )


def write(spark: Any, path: str, tasks: int = 4, rows: int = 250, start: int = 0, key: str = "k", **options: Any) -> Any:
    """The library call at job end: what it says, as the caller sees it."""
    import manifestcommit as mc

    outcome = mc.write(numbers(spark, tasks=tasks, rows=rows, start=start, key=key), path, key=key, **options)
    return {"version": outcome.version, "already": outcome.already_committed}


def write_and_fail(spark: Any, path: str, task: int, tasks: int = 4, rows: int = 250, key: str = "k") -> None:
    """A write of which one task fails at its last row, in every attempt, when the others are done."""
    from pyspark.sql import functions as F

    import manifestcommit as mc

    last = (task + 1) * rows - 1
    frame = numbers(spark, tasks=tasks, rows=rows, key=key)
    broken = F.when(F.col("n") == last, F.raise_error(F.lit("the job of this test"))).otherwise(F.col("n"))
    mc.write(frame.withColumn("n", broken.cast("long")), path, key=key)


def save(spark: Any, path: str, tasks: int = 4, rows: int = 250, start: int = 0, key: str = "k", mode: str = "append") -> None:
    """The same rows through `format("manifestcommit")`."""
    find_format(spark)
    numbers(spark, tasks=tasks, rows=rows, start=start, key=key).write.format("manifestcommit").option("key", key).mode(mode).save(path)


def write_rows(spark: Any, path: str, rows: list[list[Any]], schema: str, **options: Any) -> int:
    """The library call with rows of one's own; the version."""
    import manifestcommit as mc

    version = mc.write(spark.createDataFrame([tuple(row) for row in rows], schema), path, **options).version
    assert version is not None
    return version


def statements(spark: Any, path: str) -> list[Any]:
    """Names and statements in SQL: a view, a DataFrame of the newest version and its rows after a commit, each kind of change."""
    import manifestcommit as mc

    name = "fl`i gh{t}s ;--"
    mc.attach(spark, {"t": path, name: path})
    before = mc.sql(spark, "SELECT count(*) FROM t JOIN `fl``i gh{t}s ;--` u ON t.n = u.n WHERE '{}' = '{}'")
    first = mc.sql(spark, "INSERT INTO t VALUES (1000, '2013-01-03', 'sql')", key="sql")
    again = mc.sql(spark, "INSERT INTO t VALUES (1000, '2013-01-03', 'sql')", key="sql")
    found: list[Any] = [first.version, again.version, again.already_committed]
    found += [mc.sql(spark, "DELETE FROM t WHERE hash(n) = hash(5L)").rows_deleted]
    found += [mc.sql(spark, "UPDATE t SET who = 'x' WHERE n < 3").rows_updated]
    source = "(SELECT n, day, 'm' AS who FROM `fl``i gh{t}s ;--` VERSION AS OF 2 WHERE n = 7) s"
    spark.sql("SELECT 7L AS n, '2013-01-02' AS day, 'm' AS who").createOrReplaceTempView("source")
    merge = "MERGE INTO t USING source s ON t.n = s.n AND t.day = s.day WHEN MATCHED {} THEN UPDATE SET * "
    found += [mc.sql(spark, merge.format("")).rows_updated, mc.sql(spark, merge.format("AND t.n > 1")).rows_updated]
    try:
        mc.sql(spark, merge.format("").replace("source s", source))
    except mc.errors.UsageError as error:
        found.append("reads the table that it changes" in str(error))
    count = "SELECT count(*) FROM t"
    found += [row[0] for df in (before, spark.sql(count), mc.sql(spark, count)) for row in df.collect()]
    return [*found, mc.attach(spark, {"t": path})["t"], spark.sql(count).collect()[0][0]]


def load_from(spark: Any, code: str, path: str, **how: Any) -> int:
    """Load from the source that the code makes, by tasks; how many rows."""
    import manifestcommit as mc

    return mc.load(eval(code, {"mc": mc}), path, spark=spark, **how).rows


def change_rows(spark: Any, path: str, work: str) -> None:
    """One of the row changes of tests/kit/row_works.py."""
    from tests.kit.row_works import run

    run(work, path, spark)


def register(spark: Any, **options: Any) -> None:
    """Make the format known, with these options."""
    import manifestcommit as mc

    mc.register(spark, storage_options=options)


def find_format(spark: Any) -> None:
    """Spark finds the format by itself, but for 4.0."""
    from manifestcommit.spark.features import has

    if not has("discovery"):
        register(spark)


def read(spark: Any, path: str, **options: Any) -> list[list[Any]]:
    """All rows by the library call, in order."""
    import manifestcommit as mc

    return sorted(list(row) for row in mc.read_committed(path, spark=spark, **options).collect())


def read_where(spark: Any, path: str, column: str, value: str | None, **options: Any) -> list[list[Any]]:
    """The rows, in order, where the column has the value."""
    from pyspark.sql import functions as F

    return read(spark, path, filter=F.col(column).eqNullSafe(F.lit(value)), **options)


def load(spark: Any, path: str, **options: Any) -> list[list[Any]]:
    """All rows by `format("manifestcommit")`, in order."""
    find_format(spark)
    return sorted(list(row) for row in spark.read.format("manifestcommit").options(**options).load(path).collect())


def refused(spark: Any, path: str) -> str:
    """What the caller gets for data that does not fit."""
    import manifestcommit as mc

    try:
        mc.write(spark.sql("select 'x' as n"), path)
    except Exception as error:
        return type(error).__name__
    return "nothing"


def recoverable(spark: Any, path: str) -> str:
    """What the caller gets for a write whose tasks Spark would have to run one by one."""
    import manifestcommit as mc

    try:
        mc.write(spark.range(3), path, key="k", recoverable=True, fingerprint="f")
    except mc.errors.UsageError as error:
        return str(error)
    return "nothing"


def wrong_secret(spark: Any, path: str, storage_options: dict[str, Any]) -> str:
    """What the caller of a read gets for credentials that the store does not accept."""
    import manifestcommit as mc

    try:
        return f"{mc.read_committed(path, spark=spark, storage_options=storage_options).count()} rows"
    except mc.errors.StoreError as error:
        return f"StoreError: {error}"


def reveal(spark: Any, **arguments: Any) -> dict[str, str]:
    """All that a session says of a table on S3."""
    from tests.spark.revealing import reveal as make_it_talk

    return make_it_talk(spark, **arguments)


def stream(spark: Any, call: str, **arguments: Any) -> Any:
    """A function of tests/spark/streams.py, with the format known to the session."""
    from tests.spark import streams

    register(spark)
    return getattr(streams, call)(spark, **arguments)


def stop(spark: Any) -> None:
    """End the session: its event log is complete then."""
    spark.stop()


def ready(spark: Any) -> str:
    """The session runs."""
    return str(spark.version)


def open_session(master: str, conf: dict[str, str]) -> Any:
    """A session that says little and runs on small batches, so that a task passes its traps more than once.

    master: as Spark knows it, or `connect:<n>` for a Spark Connect server of n cores with a client of its own.
    """
    from pyspark.sql import SparkSession

    scheme, _, cores = master.partition(":")
    builder = SparkSession.builder.remote(f"local[{cores}]") if scheme == "connect" else SparkSession.builder.master(master)
    builder = builder.appName("manifestcommit test driver")
    defaults = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100", "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executorEnv.MANIFESTCOMMIT_TEST_TRAPS": os.environ["MANIFESTCOMMIT_TEST_TRAPS"],
    }  # fmt: skip
    for name, value in (defaults | conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    descriptor, master, conf = sys.argv[1:]
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as answers:
        spark = open_session(master, json.loads(conf))
        for line in sys.stdin:
            request = json.loads(line)
            try:
                reply = {"value": globals()[request["function"]](spark, **request["arguments"])}
            except Exception:
                reply = {"error": traceback.format_exc()}
            answers.write(json.dumps(reply) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()

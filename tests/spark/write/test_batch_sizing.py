"""Batches on their way to tasks stay bounded in bytes though Spark's own bound is set aside, and no row is lost or made by it. [SP40]"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.java_gateway import JavaGateway
from pyspark import TaskContext
from pyspark.sql import functions as F
from tests.kit.spark_frames import plan_for

from manifestcommit.spark import writing
from manifestcommit.spark.writing import BATCH_BYTES, BOUND, paced, without_fillers, write_dataframe

SHARE = BATCH_BYTES // 10_000  # bytes for each place in a batch, or a little less


def seen_in_tasks(df: Any) -> list[tuple[int, int, str | None]]:
    """Of each batch on its way to a task: bytes, rows, and the bound in bytes there."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bound = TaskContext.get().getLocalProperty(BOUND)  # type: ignore[union-attr]
        for batch in batches:
            rows = next(without_fillers([batch], "filler"))
            yield pa.RecordBatch.from_pylist([{"bytes": batch.nbytes, "rows": rows.num_rows, "bound": bound}])

    return [tuple(row) for row in df.mapInArrow(look, "bytes long, rows long, bound string").collect()]


@pytest.mark.thorough
def test_a_batch_of_long_rows_does_not_outgrow_memory(spark) -> None:
    """[SP40] 7,000 rows of 20 kB are 140 MB in one batch of 10,000 rows."""
    rows = 7_000
    df = spark.range(0, rows, 1, 1).selectExpr("id", "repeat(cast(id % 10 as string), 20000) as text", "cast('b' as binary) as small")
    with paced(df, "filler") as frame:
        seen = seen_in_tasks(frame)
    assert sum(rows for _, rows, _ in seen) == rows
    assert {bound for _, _, bound in seen} == {str(2**31 - 1)}, "Spark would ask every column of every row for its size"
    assert max(size for size, _, _ in seen) <= BATCH_BYTES + 20_000
    assert seen_in_tasks(spark.range(1))[0][2] is None  # of this thread's next job the bound is Spark's again


def test_every_row_is_written_once_and_in_order_beside_long_ones(spark, root: str) -> None:
    """[SP40] [SP2] Long values in one column or many, nulls, values at the very length from which rows count as long."""
    lengths = [0, 1, SHARE - 60, *range(SHARE - 30, SHARE + 2), SHARE * 2, SHARE * 3 + 1, 5, 300_000, 0]
    at = f"element_at(array({', '.join(map(str, lengths))}), cast(id % {len(lengths)} as int) + 1)"
    df = spark.range(0, 3 * len(lengths), 1, 2).selectExpr(
        "id",
        f"if(id % 7 = 3, null, repeat('é', cast({at} / 2 as int))) as `a.b c`",
        f"if(id % 5 = 4, null, cast(repeat('%', {at}) as binary)) as `quo'te`",
        "if(id % 3 = 0, null, 'x') as X",
        "if(id % 3 = 1, null, cast(id as decimal(20, 3))) as dec",
        "if(id % 2 = 0, null, cast('NaN' as double)) as nan",
    )
    written = write_dataframe(df, plan_for(df, root))
    tables = [pq.read_table(Path(root) / entry.path) for entry in sorted(written.entries, key=lambda entry: entry.path)]
    found = pa.concat_tables(tables).to_pylist()
    assert found[0].keys() == set(df.columns)
    assert list(map(repr, found)) == [repr(row.asDict()) for row in df.collect()]
    assert written.intake is not None and written.intake.rows == len(found) == sum(entry.rows for entry in written.entries)


def test_a_column_that_looks_like_ours_is_the_users(spark, root: str) -> None:
    """[SP40] Only the name that this write has drawn tells empty rows."""
    df = spark.range(0, 10, 1, 1).selectExpr("id as n", "id as filler", "id as `filler-`")
    (entry,) = write_dataframe(df, plan_for(df, root)).entries
    assert pq.read_table(Path(root) / entry.path).to_pylist() == [{"n": n, "filler": n, "filler-": n} for n in range(10)]


@pytest.mark.thorough
@pytest.mark.parametrize("columns", [100, 500])
def test_rows_of_many_texts_are_written(spark, root: str, columns: int) -> None:
    """[SP40] To add up hundreds of lengths ends the stack of Spark's planner."""
    df = spark.range(0, 10, 1, 1).select(*(F.concat(F.lit(at), F.lit("-"), "id").alias(f"c{at}") for at in range(columns)))
    (entry,) = write_dataframe(df, plan_for(df, root)).entries
    assert pq.read_table(Path(root) / entry.path).to_pylist()[7] == {f"c{at}": f"{at}-7" for at in range(columns)}


def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@pytest.mark.parametrize("kind", ["nested", "wide", "python before", "cached", "of an RDD", "a subquery", "rows unbounded", "bound given"])
def test_sparks_bound_stays_where_ours_would_not_do(spark, kind: str) -> None:
    """[SP40] It holds for a whole job, in which other Python may need it; and some rows cannot be measured."""
    df = spark.range(3).selectExpr("id", "'text' as text")
    settings = {"rows unbounded": ("spark.sql.execution.arrow.maxRecordsPerBatch", "0"), "bound given": (BOUND, "1000000")}
    name, value = settings.get(kind, ("spark.sql.session.timeZone", spark.conf.get("spark.sql.session.timeZone")))
    given = spark.conf.getAll.get(name)
    with paced(df, "filler") as frame:
        assert frame is not df
    try:
        spark.conf.set(name, value)
        match kind:
            case "nested":
                df = df.select(F.array("text").alias("texts"))
            case "wide":
                df = df.select(*(F.col("text").alias(f"c{at}") for at in range(101)))
            case "python before":
                df = df.mapInArrow(same, df.schema).filter("id > 0")
            case "cached":
                df = df.cache()
            case "of an RDD":
                df = spark.createDataFrame(df.rdd, df.schema)
            case "a subquery":
                df.createOrReplaceTempView("three")
                df = spark.sql("select * from three where id < (select max(id) from three)")
        with paced(df, "filler") as frame:
            assert frame is df
            assert spark.sparkContext.getLocalProperty(BOUND) is None
    finally:
        df.unpersist()
        if given is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, given)


def test_the_bound_stays_where_threads_share_those_of_the_jvm(spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP40] With PYSPARK_PIN_THREAD=false another thread's jobs would go on without any bound, for as long as the driver runs."""
    monkeypatch.setattr(spark.sparkContext, "_gateway", JavaGateway())
    df = spark.range(3)
    with paced(df, "filler") as frame:
        assert frame is df
        assert spark.sparkContext.getLocalProperty(BOUND) is None


def test_a_spark_of_other_insides_is_written_from_with_its_own_bound(spark, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP40] What is looked at in the plan has names of no public interface."""
    monkeypatch.setattr(writing, "_HIDING", ("NO_SUCH_PATTERN",))
    df = spark.range(0, 3, 1, 1)
    with paced(df, "filler") as frame:
        assert frame is df
    (entry,) = write_dataframe(df, plan_for(df, root)).entries
    assert entry.rows == 3


def test_the_bound_is_sparks_again_after_a_write_that_failed(spark) -> None:
    context = spark.sparkContext
    context.setLocalProperty(BOUND, "12345678")  # somebody's own
    try:
        with contextlib.suppress(ZeroDivisionError), paced(spark.range(3), "filler"):
            assert context.getLocalProperty(BOUND) == str(2**31 - 1)
            raise ZeroDivisionError
        assert context.getLocalProperty(BOUND) == "12345678"
    finally:
        context.setLocalProperty(BOUND, None)  # type: ignore[arg-type]

"""Rows that Spark's tasks split: good ones into the table, refused ones beside it, in one commit. [CK7]"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from tests.kit.spark_frames import attempts, data_files, listed_files
from tests.spark.clusters import Driver, release, set_trap, sprung, trapped_attempt

import manifestcommit as mc

COLUMNS = pa.schema([("n", pa.int64()), ("day", pa.string()), ("who", pa.string())])


def table(path: Path | str, columns: pa.Schema = COLUMNS, **options: Any) -> str:
    mc.create_table(path, columns, partition_by="day", constraints={"odd": "n % 10 <> 0", "small": "n < 900"}, **options)
    return str(path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return table(f"file://{tmp_path}/t")


def numbers(path: str) -> list[int]:
    return sorted(mc.Table(path).to_arrow().column("n").to_pylist())


def frame(spark: SparkSession, rows: int = 1000) -> DataFrame:
    return spark.range(0, rows, 1, 4).selectExpr("id AS n", "concat('d', id % 3) AS day", "'me' AS who")


def is_good(n: int) -> bool:
    return n % 10 != 0 and n < 900


GOOD, BAD = [n for n in range(1000) if is_good(n)], [n for n in range(1000) if not is_good(n)]


@pytest.mark.thorough
def test_one_job_writes_both_tables_in_one_commit_once(spark: SparkSession, path: str) -> None:
    """[CK7] [MT1] [KY3] [SP1]"""
    jobs = []
    for time in range(2):
        outcome = mc.write(
            frame(spark), path, key="k", on_violation="quarantine", watermarks={"s": (0, 1000)}, message="a day", max_violations=0.5
        )
        assert outcome.already_committed == bool(time) and outcome.version == 2
        jobs.append(outcome.job_id)
    assert numbers(path) == GOOD and numbers(f"{path}.refused") == BAD
    kept = mc.Table(f"{path}.refused").to_arrow().to_pylist()
    assert {row["n"]: row["refused_by"] for row in kept} == {
        n: [name for name, holds in (("odd", n % 10 != 0), ("small", n < 900)) if not holds] for n in BAD
    }
    assert {row["refused_job"] for row in kept} == {jobs[0]} and len({row["refused_at"] for row in kept}) == 1
    (entry,) = mc.Table(path).history(1)
    assert entry["joint"] is not None and entry["message"] == "a day"
    sources = [each.sources for each in mc.Table(path).snapshot().added]
    assert sources and all(said[0].source == "s" for said in sources) and mc.Table(path).watermarks() == {"s": 1000}


def once_failing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.attemptNumber() == 0:
        raise OSError("the disk of this task is full")


@pytest.mark.thorough
def test_an_attempt_that_fails_leaves_nothing_in_either(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """Its files are there, in both tables, and no version lists them. [CK7] [SP1] [SP2]"""
    rows = frame(spark)
    mc.write(rows.mapInArrow(once_failing, rows.schema), path, on_violation="quarantine")
    assert numbers(path) == GOOD and numbers(f"{path}.refused") == BAD


@pytest.mark.thorough
def test_a_stream_writes_its_batches_so(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """By foreachBatch, once each; the format's own writer says so. [CK7] [SP5]"""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"n": 5, "day": "a"}\n{"n": 10, "day": "a"}\n')
    source = spark.readStream.schema("n LONG, day STRING").json(str(tmp_path / "in"))

    def write(batch: DataFrame, number: int) -> None:
        for _ in range(2):
            mc.write(batch, path, key=f"query {number}", on_violation="quarantine")

    query = source.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert numbers(path) == [5] and numbers(f"{path}.refused") == [10]
    mc.register(spark)
    refused = source.writeStream.format("manifestcommit").option("path", path).option("onViolation", "quarantine")
    with pytest.raises(Exception, match="foreachBatch"):
        refused.option("checkpointLocation", str(tmp_path / "d")).trigger(availableNow=True).start().awaitTermination(120)
    with pytest.raises(Exception, match=r"argument of manifestcommit\.write"):
        frame(spark).write.format("manifestcommit").option("onViolation", "quarantine").mode("append").save(path)
    assert numbers(path) == [5]


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_executor_loses_and_doubles_no_row(driver: Driver, tmp_path: Path, moment: str) -> None:
    """[CK7] [SP1] [SP2]"""
    path = table(tmp_path / "t")
    trap = set_trap(driver.scratch, f"task-1-{moment}-put", "kill")
    driver.run("write", path=path, on_violation="quarantine")
    assert sprung(trap)["executor"]
    assert numbers(path) == GOOD and numbers(f"{path}.refused") == BAD


@pytest.mark.thorough
def test_of_two_attempts_of_a_task_the_same_one_counts_in_both_tables(driver: Driver, tmp_path: Path) -> None:
    """One hangs after it has written, and Spark starts another beside it. [CK7] [SP2]"""
    path = table(tmp_path / "t")
    trap = set_trap(driver.scratch, "task-1-after-put", "wait")
    driver.run("write", path=path, on_violation="quarantine")
    release(trap)
    (mine,), (other,) = (attempts(listed_files(each), 1) for each in (path, f"{path}.refused"))
    assert mine == other and trapped_attempt(trap) in attempts(data_files(path) | data_files(f"{path}.refused"), 1) - {mine}
    assert numbers(path) == GOOD and numbers(f"{path}.refused") == BAD

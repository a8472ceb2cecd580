"""Tasks write straight to the destination; the caller learns exactly what, and nothing is committed by it. [SP1] [SP2] [DF1]"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.kit.spark_frames import JOB, plan_for

from manifestcommit import errors
from manifestcommit.errors import SchemaMismatchError, StoreError, UsageError
from manifestcommit.files.writer import WritePlan
from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import Schema
from manifestcommit.rows.row_change import NewFiles
from manifestcommit.spark.datasource import TableWriter
from manifestcommit.spark.scan import read_files
from manifestcommit.spark.tasks import raised_inside
from manifestcommit.spark.writing import TaskMessage, TaskWritten, collect, packed, write_dataframe
from manifestcommit.store import StorageOptions


def on_disk(root: str) -> set[str]:
    return {str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file()}


@pytest.mark.versions
def test_what_was_written_is_what_is_there(spark, root: str) -> None:
    """[SP1] [DF1] Only the tasks' data files remain: no version, no list, no temporary file; names carry task and job."""
    df = spark.range(0, 1000, 1, 3)
    written = write_dataframe(df, plan_for(df, root))
    assert on_disk(root) == {entry.path for entry in written.entries}
    assert written.tasks == 3 and written.manifests == ()
    assert sum(entry.rows for entry in written.entries) == 1000
    assert [entry.path.split("-")[0] for entry in written.entries] == ["00000", "00001", "00002"]
    assert all(entry.path.endswith(f"-0-{JOB}.parquet") and len(entry.path.split("-")[1]) == 16 for entry in written.entries)
    assert all((Path(root) / entry.path).stat().st_size == entry.bytes for entry in written.entries)


@pytest.mark.thorough
@pytest.mark.versions
def test_rows_read_back_are_the_rows_written(spark, root: str) -> None:
    """[SP2] [SP4] [DF4] Partitioned by hostile values; every row once, partition columns from inside the files."""
    values = ["a b", "p%20q", "x+y", "d=1", "h#h", "quo'te\"", "é漢", "", None, "..", "/", "__HIVE_DEFAULT_PARTITION__", "x" * 300]
    rows = [(n, value) for n, value in enumerate(values * 3)]
    df = spark.createDataFrame(rows, "n long, part string").repartition(2)
    plan = plan_for(df, root, partition_by=["part"])
    written = write_dataframe(df, plan)
    assert {entry.partition for entry in written.entries} == {(value,) for value in values}
    files = [(entry.path, entry.bytes) for entry in written.entries]
    assert Counter(map(tuple, read_files(spark, plan.url, files, plan.schema).collect())) == Counter(rows)
    for entry in written.entries:  # one partition per file, and none of the files outside the root
        assert set(pq.read_table(Path(root) / entry.path, partitioning=None).column("part").to_pylist()) == {entry.partition[0]}


@pytest.mark.versions
def test_an_empty_dataframe_writes_nothing_and_succeeds(spark, root: str) -> None:
    for empty in (spark.range(0), spark.range(5).filter("id > 9"), spark.createDataFrame([], "id long")):
        assert write_dataframe(empty, plan_for(empty, root)).entries == ()
    assert on_disk(root) == set()


@pytest.mark.thorough
@pytest.mark.versions
def test_a_task_that_fails_once_counts_once(spark, root: str, tmp_path: Path) -> None:
    """[SP2] The second attempt's rows count, the first's do not."""
    df = spark.createDataFrame(fails_once(spark, tmp_path / "failed"), "n long")
    plan = plan_for(df, root)
    written = write_dataframe(df, plan)
    assert (tmp_path / "failed").exists()
    files = [(entry.path, entry.bytes) for entry in written.entries]
    assert sorted(row.n for row in read_files(spark, plan.url, files, plan.schema).collect()) == list(range(40))


def fails_once(spark: Any, marker: Path) -> Any:
    path = str(marker)

    def rows(partition: int, numbers: Iterator[int]) -> Iterator[tuple[int]]:
        for number in numbers:
            yield (number,)
        if partition == 1 and not os.path.exists(path):
            os.mkdir(path)
            raise OSError("this attempt fails after its last row")

    return spark.sparkContext.parallelize(range(40), 4).mapPartitionsWithIndex(rows)


@pytest.mark.thorough
@pytest.mark.versions
def test_a_refusal_in_a_task_keeps_its_type(spark, root: str) -> None:
    """[SC3] A null in a non-nullable column is found by a task; the caller gets the library's error, not Spark's."""
    df = spark.createDataFrame([(1,), (None,)], "n long")
    plan = plan_for(df, root)
    strict = msgspec.structs.replace(plan.schema.fields[0], nullable=False)
    with pytest.raises(SchemaMismatchError, match="n") as raised:
        write_dataframe(df, msgspec.structs.replace(plan, schema=Schema(fields=(strict,))))
    assert "Traceback" not in str(raised.value)
    assert raised.value.__cause__ is not None


def test_an_error_of_the_job_itself_stays_what_it_is(spark, root: str) -> None:
    df = spark.range(1).selectExpr("raise_error('of the job') as x")
    with pytest.raises(Exception, match="of the job", check=lambda error: not isinstance(error, errors.ManifestCommitError)):
        write_dataframe(df, plan_for(spark.range(1).selectExpr("'' as x"), root))


def test_an_abort_deletes_nothing(spark, root: str) -> None:
    """[SP3] Task 0 wrote its file before task 1 failed for good: the file stays, unlisted."""

    def rows(partition: int, numbers: Iterator[int]) -> Iterator[tuple[int]]:
        yield from ((number,) for number in numbers)
        while partition == 1:
            if os.path.isdir(root) and any(name.startswith("00000-") for name in os.listdir(root)):
                raise OSError("the job fails")
            time.sleep(0.05)

    df = spark.createDataFrame(spark.sparkContext.parallelize(range(2), 2).mapPartitionsWithIndex(rows), "n long")
    plan = plan_for(df, root)
    with pytest.raises(Exception, match="the job fails"):
        write_dataframe(df, plan)
    (kept,) = on_disk(root)
    assert kept.startswith("00000-") and plan.job in kept and pq.read_table(Path(root) / kept).num_rows == 1
    TableWriter(None, plan, takes_all=False, storage_options=StorageOptions()).abort([])  # as Spark calls it where the format is written
    assert on_disk(root) == {kept}


@pytest.mark.thorough
def test_a_task_with_very_many_files_sends_a_manifest(spark, root: str) -> None:
    """[SP9] [OB6] Messages stay small: more than a megabyte of entries travels as a manifest."""
    pads = [f"repeat('{n:02d}', 50) as pad{n}" for n in range(30)]  # long bounds make long entries
    df = spark.range(0, 250, 1, 1).selectExpr("id", "concat(repeat('x', 150), id) as part", *pads)
    written = write_dataframe(df, plan_for(df, root, partition_by=["part"]))
    assert written.entries == ()
    (ref,) = written.manifests
    assert (ref.files, ref.rows) == (250, 250)
    assert (Path(root) / ref.path).stat().st_size == ref.bytes


def test_storage_options_are_refused_before_anything_is_written(spark, root: str) -> None:
    with pytest.raises(UsageError, match=r"given: secret"):
        write_dataframe(spark.range(1), plan_for(spark.range(1), root), storage_options={"secret": "hunter2"})
    assert not Path(root).exists()


# --- what comes back from tasks --------------------------------------------------------------------------------------------
def message(task: int, *paths: str) -> TaskMessage:
    return packed(TaskWritten(task=task, entries=tuple(Entry(path=path, rows=1, bytes=1, job=JOB) for path in paths)))


def plan() -> WritePlan:
    return WritePlan(url="memory://collect", job=JOB, schema=Schema(fields=()))


def test_messages_are_one_per_task() -> None:
    """[SP2] A lost or doubled message is an error, never a commit of less or more than was written."""
    assert collect(plan(), [message(0, "a"), message(1), message(2, "b", "c")], StorageOptions()) == NewFiles(
        entries=tuple(Entry(path=path, rows=1, bytes=1, job=JOB) for path in "abc"), tasks=3
    )
    with pytest.raises(StoreError, match="two messages for task 1"):
        collect(plan(), [message(0, "a"), message(1, "b"), message(1, "c")], StorageOptions())
    with pytest.raises(StoreError, match="lost the message"):
        collect(plan(), [message(0, "a"), None], StorageOptions())


def test_errors_are_found_in_sparks_text() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
        "  File \"x.py\", line 1\nmanifestcommit.errors.SchemaMismatchError: Column 'n' is null.\n"
    )
    assert repr(raised_inside(Exception(text))) == repr(SchemaMismatchError("Column 'n' is null."))
    assert raised_inside(Exception("manifestcommit.errors.NoSuchError: x")) is None
    assert raised_inside(Exception("manifestcommit.errors.CommitConflictError: x")) is None  # needs more than a message
    assert raised_inside(ValueError("of somebody else")) is None


def test_an_error_keeps_its_class_wherever_another_release_has_it() -> None:
    """[SP6] Driver and tasks may run releases that keep their classes in different modules."""
    assert repr(raised_inside(Exception("manifestcommit.faults.of.tasks.SchemaMismatchError: n"))) == repr(SchemaMismatchError("n"))
    assert repr(raised_inside(Exception("manifestcommit.store.of.some.TakenError: s3://b/x"))) == repr(StoreError("s3://b/x"))
    assert raised_inside(Exception("manifestcommit.of.some.TakenError: s3://b/x")) is None

"""A rerun computes what is missing and only that, of the same key and fingerprint; each row once in any case. [AB6] [SP2]"""

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest
from tests.spark import recoverable_job
from tests.spark.clusters import REPO, Driver, end, environment, release, set_trap, wait_for

import manifestcommit as mc
from manifestcommit.format import codec, object_names
from manifestcommit.log.version_chain import open_head
from manifestcommit.spark import writing
from manifestcommit.store import LocalStore

COLUMN = "a `b`.c"
ADOPTED = "adopted {} of {} tasks"


def rows_of(root: str) -> list[dict[str, Any]]:
    return sorted(mc.Table(root).dataset().to_table().to_pylist(), key=str)


def finished(root: str) -> list[str]:
    return [info.name for info in LocalStore(root).list(object_names.JOBS) if "/task-" in info.name]


def listed(root: str) -> set[str]:
    return set(mc.Table(root).files().column("path").to_pylist())


def in_tasks(root: str) -> Counter[str]:
    """The files that finished tasks list."""
    store = LocalStore(root)
    documents = [json.loads(codec.decompress(store.get(name), name=name)) for name in finished(root)]
    return Counter(entry["path"] for document in documents for entry in document.get("entries", ()))


# --- drivers that die -----------------------------------------------------------------------------------------------------
class Run:
    """One run of tests/spark/recoverable_job.py."""

    def __init__(self, scratch: Path, root: str, tasks: int, name: str, second: Sequence[str]) -> None:
        self.folder = scratch / "folder"
        (self.folder / "log").unlink(missing_ok=True)
        self.log = (scratch / f"driver-{name}.log").open("wb")
        command = [sys.executable, "-m", "tests.spark.recoverable_job", root, str(self.folder), str(tasks), *second]
        env = {**environment(scratch, hooks=False), "PYTHONDONTWRITEBYTECODE": ""}
        self.process = subprocess.Popen(
            command, cwd=REPO, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True, text=True
        )

    def result(self) -> dict[str, Any]:
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, Path(self.log.name).read_text("utf-8", errors="replace")[-3000:]
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def said(self) -> str:
        return (self.folder / "log").read_text("utf-8")

    def close(self) -> None:
        end(self.process)
        self.log.close()
        self.process.stdout.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts runs of one job, and ends them after the test."""
    runs: list[Run] = []

    def begin(root: str, tasks: int, name: str, gate: int, *second: str, second_gate: int = 0) -> Run:
        for folder, number in ((tmp_path / "folder", gate), (tmp_path / "folder" / "second", second_gate)):
            folder.mkdir(exist_ok=True)
            (folder / "gate").write_text(str(number), "utf-8")
            (folder / "run").write_text(name, "utf-8")
        runs.append(Run(tmp_path, root, tasks, name, second))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def computed(folder: Path, run: str) -> Counter[int]:
    """How often each task was computed in a run."""
    return Counter(int(path.name.split("-")[2]) for path in folder.glob(f"computed-{run}-*"))


def waits(run: Run, root: str, tasks: int) -> None:
    """Until so many tasks are finished."""

    def there() -> bool:
        assert run.process.poll() is None, Path(run.log.name).read_text("utf-8", errors="replace")[-3000:]
        return os.path.isdir(root) and len(finished(root)) >= tasks

    wait_for(there, seconds=120, what=f"{tasks} tasks to be finished")


@pytest.mark.versions
@pytest.mark.needs("recoverable")
def test_a_killed_driver_and_its_rerun_computes_the_rest(spark, start: Any, root: str, said: Any) -> None:
    """6 of 8 tasks are finished when the driver is killed with its executors; 2 are computed by the rerun, on another session.
    [AB6] [IV3] [SP2]"""
    first = start(root, 8, "first", 6)
    waits(first, root, 6)
    first.close()
    assert len(finished(root)) == 6 and open_head(LocalStore(root)).version == 1
    (first.folder / "gate").write_text("8", "utf-8")
    (first.folder / "run").write_text("rerun", "utf-8")
    (result,) = recoverable_job.run(spark, root, str(first.folder), 8)
    assert computed(first.folder, "rerun") == Counter(range(6, 8))
    assert (result["kind"], result["version"]) == ("committed", 2)
    assert any(ADOPTED.format(6, 8) in text for text in said())
    assert mc.Table(root).history(limit=1)[0]["summary"]["rows_read"] == 80, "of adopted tasks too"
    assert rows_of(root) == sorted(({COLUMN: n} for n in range(80)), key=str)
    assert Counter(listed(root)) == in_tasks(root)


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("recoverable")
def test_of_several_tables_the_rerun_computes_the_rest_and_commits_all(start: Callable[..., Run], root: str) -> None:
    """The driver is killed once the first table's tasks are finished, and half of the second's. [AB6] [MT1] [IV3]"""
    # The rerun is also the first to find the driver's script in Python's bytecode cache.
    Path(cache_from_source(str(REPO / "tests" / "spark" / "recoverable_job.py"))).unlink(missing_ok=True)
    second = f"{root}-second"
    first = start(root, 6, "first", 6, second, second_gate=3)
    waits(first, second, 3)
    first.close()
    assert (len(finished(root)), len(finished(second))) == (6, 3)
    assert [table.version for table in mc.read_together([root, second])] == [1, 1]
    rerun = start(root, 6, "rerun", 6, second, second_gate=6)
    result = rerun.result()
    assert computed(rerun.folder, "rerun") == Counter(), rerun.said()
    assert computed(rerun.folder / "second", "rerun") == Counter(range(3, 6)), rerun.said()
    assert (result["kind"], result["version"]) == ("committed", 2)
    for each in (root, second):
        assert rows_of(each) == sorted(({COLUMN: n} for n in range(60)), key=str)
        assert Counter(listed(each)) == in_tasks(each) and mc.Table(each).version == 2
    assert mc.Table(root).history(1)[0]["joint"]["attempt"] == mc.Table(second).history(1)[0]["joint"]["attempt"]


@pytest.mark.thorough
def test_killed_executors_and_late_attempts_yield_one_output_for_each_task(driver: Driver, root: str) -> None:
    """One executor dies when a task's files are durable, and an attempt that fell silent writes after the commit. [AB6] [SP2] [IV5]"""
    scratch = driver.scratch
    kill = set_trap(scratch, "task-1-after-put", "kill")
    wait = set_trap(scratch, "task-2-before-put", "wait")
    assert driver.run("write", path=root, recoverable=True, fingerprint="f", partition_by=["day"]) == {"version": 2, "already": False}
    assert driver.reaches(kill) and driver.reaches(wait)
    before = len(list(Path(root).rglob("*.parquet")))
    release(wait)
    wait_for(lambda: len(list(Path(root).rglob("*.parquet"))) > before, what="the late attempt to write")
    assert sorted(row["n"] for row in rows_of(root)) == list(range(1000))
    assert Counter(listed(root)) == in_tasks(root)


# --- in one session ---------------------------------------------------------------------------------------------------------
def attempt(df: Any, root: str, **options: Any) -> mc.Job:
    """A recoverable job that wrote the DataFrame and whose process ended then."""
    job = mc.begin(root, key="k", recoverable=True, fingerprint=options.pop("fingerprint", "the same"))
    job.write(df, **options)
    return job


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged since it was asked last."""
    caplog.set_level(logging.INFO, "manifestcommit.spark")

    def messages() -> list[str]:
        texts = [record.getMessage() for record in caplog.records if record.name == "manifestcommit.spark"]
        caplog.clear()
        return texts

    return messages


def exact(df: Any, root: str) -> None:
    got, expected = (
        sorted(str(sorted(row.items())) for row in table.to_pylist()) for table in (mc.Table(root).dataset().to_table(), df.toArrow())
    )
    assert got == expected


@pytest.mark.thorough
def test_a_job_that_reads_our_tables_is_taken_over(spark, root: str, said: Callable[[], list[str]]) -> None:
    """Each run reads the version anew, through another scratch folder of Spark's. [AB6] [SP4]"""
    source = f"{root}-source"
    mc.write(spark.range(0, 40, 1, 2), source)
    attempt(mc.read_committed(source, spark=spark), root)
    df = mc.read_committed(source, spark=spark)
    attempt(df, root).commit()
    tasks = len(finished(root))
    assert tasks and ADOPTED.format(tasks, tasks) in said()[-1]
    exact(df, root)


@pytest.mark.thorough
def test_the_fingerprint_alone_tells_the_work(spark, root: str, said: Callable[[], list[str]]) -> None:
    """Of an RDD, whose code Spark hides, of a plan of newer software; not where partitions come about in another way. [AB6]"""
    df = spark.createDataFrame(spark.sparkContext.parallelize([(n,) for n in range(10)], 3), "n long")
    attempt(df, root)
    job = attempt(df, root)
    assert [ADOPTED.format(n, 3) in text for n, text in zip((0, 3), said(), strict=True)] == [True, True]
    job.commit()
    exact(df, root)
    second = f"{root}2"
    attempt(spark.range(0, 10, 1, 3), second)
    attempt(spark.range(0, 10, 1, 3).where("id >= 0"), second)
    assert ADOPTED.format(3, 3) in said()[-1]
    derived = spark.range(0, 10, 1, 6).coalesce(3)
    attempt(derived, second).commit()
    assert ADOPTED.format(0, 3) in said()[-1]
    exact(derived, second)


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["sorted", "sorted and cached", "dealt out"])
def test_what_spark_decides_anew_in_each_run_is_refused(spark, root: str, how: str) -> None:
    """Ranges are cut by samples; rows that are dealt out as they come arrive elsewhere. [AB6] [SP5]"""
    spark.conf.set("spark.sql.execution.sortBeforeRepartition", "false")
    df = spark.range(0, 90, 1, 3)
    try:
        if how == "dealt out":
            df = df.groupBy((df.id % 7).alias("k")).count().repartition(3)
        else:
            df = df.orderBy(df.id % 7)
            df = df.cache() if how == "sorted and cached" else df
        with pytest.raises(mc.errors.UsageError, match=r"cannot be kept: .*; nothing was committed\. Leave recoverable out"):
            attempt(df, root)
        assert not os.path.exists(root) or finished(root) == []
    finally:
        df.unpersist()
        spark.conf.unset("spark.sql.execution.sortBeforeRepartition")


@pytest.mark.thorough
def test_every_type_and_name_comes_through(spark, root: str) -> None:
    """By this way into Spark's tasks as by the other one. [DF5] [AB6]"""
    df = spark.range(0, 6, 1, 3).selectExpr(
        "id as `a.b`", "cast(id as string) as `c ``d`", "cast(id as decimal(20, 3)) as d", "date'2013-01-01' as e",
        "timestamp'2013-01-01 00:00:00' as t", "timestamp_ntz'2013-01-01 00:00:00' as u", "array(id, null) as l",
        "map('k', id) as m", "named_struct('x y', id, 'z', array(named_struct('q', 1.5D))) as s", "cast('x' as binary) as bin",
        "interval '1 02:03:04' day to second as i", "cast(null as void) as n", "cast(id as tinyint) as y", "id > 2 as flag",
    )  # fmt: skip
    written = attempt(df, root, partition_by=["a.b"])
    plain = f"{root}2"
    mc.write(df, plain, partition_by=["a.b"])
    written.commit()
    got, expected = (mc.Table(each).dataset().to_table().sort_by("a.b") for each in (root, plain))
    assert got.schema == expected.schema and got.to_pylist() == expected.to_pylist()
    assert got.column("d").to_pylist()[5] == Decimal("5.000")


@pytest.mark.thorough
def test_partitions_without_rows_are_finished_too(spark, root: str, said: Callable[[], list[str]]) -> None:
    """A task that wrote nothing is not one that was lost. [AB6]"""
    df = spark.range(0, 40, 1, 4).where("id < 10")
    attempt(df, root)
    attempt(df, root).commit()
    assert ADOPTED.format(4, 4) in said()[-1] and len(finished(root)) == 4
    exact(df, root)
    for number, empty in enumerate((spark.range(0), spark.sql("select * from values (1) as t(id) where id > 1"))):
        job = attempt(empty, f"{root}-{number}")
        assert job.commit().committed and mc.Table(f"{root}-{number}").dataset().count_rows() == 0


@pytest.mark.thorough
def test_a_part_of_a_task_is_never_taken_for_all_of_it(spark, root: str, tmp_path: Path) -> None:
    """Where what feeds a task fails, what follows in it sees its input end, and would be done. [AB6] [SP2] [AB2]"""
    folder = str(tmp_path)

    def fails_once(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        marker = os.path.join(folder, f"failed-{context.partitionId()}")
        if context.partitionId() and not os.path.exists(marker):
            os.mkdir(marker)
            raise OSError("this attempt fails when its rows are on their way")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        job = attempt(spark.range(0, 4000, 1, 4).mapInArrow(fails_once, "id long"), root)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(list(tmp_path.glob("failed-*"))) == 3
    assert len(in_tasks(root)) == len(finished(root)) == 4
    job.commit()
    exact(spark.range(4000), root)


@pytest.mark.thorough
def test_the_session_is_left_as_it_was(spark, root: str) -> None:
    """Adaptive execution is off for this plan only. [SP5]"""
    name = "spark.sql.adaptive.enabled"
    assert name not in spark.conf.getAll
    attempt(spark.range(3), root)
    assert name not in spark.conf.getAll
    spark.conf.set(name, "true")
    try:
        attempt(spark.range(3), root)
        assert spark.conf.getAll[name] == "true"
        with contextlib.suppress(ZeroDivisionError), writing._planned_alike(spark):
            assert spark.conf.get(name) == "false"
            raise ZeroDivisionError
        assert spark.conf.getAll[name] == "true"
    finally:
        spark.conf.unset(name)


@pytest.mark.thorough
def test_what_cannot_be_recoverable_is_refused_before_any_task_starts(spark, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP5] [AB6] Of Spark Connect see test_connect."""
    with pytest.raises(mc.errors.UsageError, match="needs a key"):
        mc.write(spark.range(3), root, recoverable=True)
    with pytest.raises(mc.errors.UsageError, match="needs a fingerprint"):
        mc.write(spark.range(3), root, key="k", recoverable=True)
    monkeypatch.setattr("pandas.__version__", "2.1.4")
    with pytest.raises(mc.errors.UsageError, match=r"needs pandas 2\.2"):
        attempt(spark.range(3), root)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(mc.errors.UsageError, match=r"needs pandas 2\.2"):
        attempt(spark.range(3), root)
    monkeypatch.undo()
    assert writing._PIPELINED == "spark.python.udf.pipelined.enabled"
    monkeypatch.setattr(writing, "_PIPELINED", "spark.sql.of.this.test")  # Spark's own is set before the session begins
    spark.conf.set("spark.sql.of.this.test", "true")
    try:
        with pytest.raises(mc.errors.UsageError, match="may look finished"):
            attempt(spark.range(3), root)
    finally:
        spark.conf.unset("spark.sql.of.this.test")
    assert not os.path.exists(root)

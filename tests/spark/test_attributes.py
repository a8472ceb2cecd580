"""The correctness attributes of a committer, shown on a real cluster whose tasks, executors and drivers fail.

The names are those of the table of attributes in Loughran, Blue, Sanz Marco, "A Zero-Rename Committer" (2018): speculative
tasks, abortable task, abortable job, uncommitted and committed task output not observable, atomic task commit, atomic job commit,
and resilience against executors that were partitioned off.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.sizes import rest_thorough
from tests.kit.spark_frames import attempts, data_files, listed_files
from tests.spark.clusters import Driver, release, set_trap, sprung, trapped_attempt, wait_for

import manifestcommit as mc

pytestmark = pytest.mark.versions
OLD = [(n, f"2013-01-0{n % 2 + 1}", "old") for n in range(5000, 5010)]
TASKS, ROWS = 4, 250


def rows_of(spark: Any, path: str) -> list[tuple[int, str, str]]:
    return sorted(tuple(row) for row in mc.read_committed(path, spark=spark).collect())


def new_rows(key: str) -> list[tuple[int, str, str]]:
    return [(n, f"2013-01-0{n % 2 + 1}", key) for n in range(TASKS * ROWS)]


@pytest.fixture
def table(spark, root: str) -> str:
    """A table with ten rows of an earlier run, partitioned by day; [PT1] hostile root."""
    mc.write(spark.createDataFrame(OLD, "n long, day string, who string"), root, partition_by=["day"], key="old")
    return root


@pytest.fixture
def before(table: str) -> set[str]:
    """The files of the earlier run."""
    return data_files(table)


def assert_whole(spark: Any, driver: Driver, table: str, key: str) -> None:
    """Old rows and new rows, each exactly once; running the same work again changes nothing. [SP2] [KY2]"""
    assert rows_of(spark, table) == sorted(OLD + new_rows(key))
    version = mc.Table(table).snapshot().version
    assert driver.run("write", path=table, key=key) == {"version": version, "already": True}
    assert rows_of(spark, table) == sorted(OLD + new_rows(key))


def assert_one_attempt_listed(table: str, before: set[str], task: int) -> None:
    assert len(attempts(listed_files(table) - before, task)) == 1


def assert_attempts_left_files(table: str, before: set[str], trap: Path, task: int, *, left: bool) -> None:
    """Another attempt did the task's work; the one in the trap left files or none. Spark may have speculated on one more."""
    found, trapped = attempts(data_files(table) - before, task), trapped_attempt(trap)
    assert (trapped in found) == left and found - {trapped}


@pytest.mark.thorough
def test_speculative_tasks(spark, driver: Driver, table: str, before: set[str]) -> None:
    """[SP2] A task hangs after it wrote its files; Spark starts a second attempt, which writes its own; one of the two counts."""
    trap = set_trap(driver.scratch, "task-1-after-put", "wait")
    assert driver.run("write", path=table, key="speculation")["already"] is False
    release(trap)
    assert_attempts_left_files(table, before, trap, task=1, left=True)
    assert_one_attempt_listed(table, before, task=1)
    assert_whole(spark, driver, table, "speculation")


@pytest.mark.thorough
def test_abortable_task(spark, driver: Driver, table: str, before: set[str]) -> None:
    """[SP2] [AB2] An attempt fails before it finished; it makes no file appear and the next attempt does the work."""
    trap = set_trap(driver.scratch, "task-2-before-put", "fail")
    assert driver.run("write", path=table, key="abortable task")["already"] is False
    assert_attempts_left_files(table, before, trap, task=2, left=False)
    assert_whole(spark, driver, table, "abortable task")


@pytest.mark.thorough
def test_abortable_job(spark, driver: Driver, table: str, before: set[str]) -> None:
    """[SP3] [AB1] A job fails for good: the old state stays, nothing is deleted, and the same work can be done afterwards."""
    with pytest.raises(RuntimeError, match="the job of this test"):
        driver.run("write_and_fail", path=table, key="abortable job", task=3)
    assert rows_of(spark, table) == sorted(OLD)
    assert listed_files(table) == before
    unlisted = data_files(table) - before
    assert any(attempts(unlisted, task) for task in range(3)), "other tasks' files are still there, whichever of them had ended"
    assert driver.run("write", path=table, key="abortable job")["already"] is False
    assert_whole(spark, driver, table, "abortable job")


@pytest.mark.thorough
def test_uncommitted_task_output_is_not_observable(spark, driver: Driver, table: str, before: set[str]) -> None:
    """[SP1] While a task runs and files of others are there, readers see the old state."""
    trap = set_trap(driver.scratch, "task-3-writing", "wait")
    driver.send("write", path=table, key="running")
    driver.reaches(trap)
    wait_for(lambda: data_files(table) > before, what="files of other tasks")
    assert rows_of(spark, table) == sorted(OLD)
    assert listed_files(table) == before
    release(trap)
    driver.answer()
    assert_whole(spark, driver, table, "running")


@pytest.mark.thorough
def test_committed_task_output_is_not_observable_before_the_job_commits(spark, driver: Driver, table: str) -> None:
    """[SP1] [SP6] All tasks are done and their files there; readers see the old state until the one create."""
    trap = set_trap(driver.scratch, "commit-before-create", "wait")
    driver.send("write", path=table, key="done but for the commit")
    assert driver.reaches(trap)["worker"] == driver.process.pid  # the caller's own process commits
    assert all(attempts(data_files(table), task) for task in range(TASKS))
    assert rows_of(spark, table) == sorted(OLD)
    release(trap)
    driver.answer()
    assert_whole(spark, driver, table, "done but for the commit")


@pytest.mark.parametrize("point", rest_thorough(["writing", "before-put", "after-put"], "after-put"))
def test_atomic_task_commit(spark, driver: Driver, table: str, before: set[str], point: str) -> None:
    """[SP2] [DF2] An executor is killed with a task at some point of its work: all of its rows count once, by another attempt."""
    trap = set_trap(driver.scratch, f"task-1-{point}", "kill")
    assert driver.run("write", path=table, key=point)["already"] is False
    assert_attempts_left_files(table, before, trap, task=1, left=point == "after-put")
    assert_one_attempt_listed(table, before, task=1)
    assert_whole(spark, driver, table, point)


@pytest.mark.thorough
@pytest.mark.parametrize("point", rest_thorough(["before-put", "after-put"], "after-put"))
def test_partitioned_executor(spark, driver: Driver, table: str, before: set[str], point: str) -> None:
    """[SP2] An executor falls silent in mid-task and wakes after the commit: what it still writes is never visible."""
    trap = set_trap(driver.scratch, f"task-0-{point}", "stop")
    with woken_at_the_end(trap) as pids:
        assert driver.run("write", path=table, key=point)["already"] is False
        committed = listed_files(table)
        assert_one_attempt_listed(table, before, task=0)
        os.kill(pids()["worker"], signal.SIGCONT)  # the zombie task goes on, its JVM still sleeps
        late = wait_for(lambda: len(attempts(data_files(table) - before, task=0)) == 2, what="the zombie's files")
        assert late and listed_files(table) == committed
        assert rows_of(spark, table) == sorted(OLD + new_rows(point))
    assert_whole(spark, driver, table, point)


@contextlib.contextmanager
def woken_at_the_end(trap: Path) -> Iterator[Any]:
    try:
        yield lambda: sprung(trap)
    finally:
        for pid in sprung(trap).values() if trap.with_name(trap.name + ".pids").exists() else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.thorough
@pytest.mark.needs("format")
@pytest.mark.parametrize(("point", "committed"), [("commit-before-create", False), ("commit-after-create", True)])
def test_atomic_commit_of_the_data_source(spark, driver: Driver, table: str, point: str, committed: bool) -> None:
    """[SP3] The process in which Spark runs the data source's commit is killed: Spark fails the write and calls abort, which must not
    undo a commit that landed; a rerun with the same key converges."""
    trap = set_trap(driver.scratch, point, "kill self")
    with pytest.raises(RuntimeError):
        driver.run("save", path=table, key="killed")
    assert sprung(trap)["worker"] != driver.process.pid
    assert rows_of(spark, table) == sorted(OLD + (new_rows("killed") if committed else []))
    driver.run("save", path=table, key="killed")
    assert_whole(spark, driver, table, "killed")


# --- the driver -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("point", "committed"),
    [
        pytest.param("task-1-after-put", False, marks=pytest.mark.proof),  # test_recoverable kills a driver amid its tasks, too
        pytest.param("commit-before-create", False, marks=pytest.mark.thorough),
        ("commit-after-create", True),
    ],
)
def test_atomic_job_commit(spark, driver: Driver, table: str, point: str, committed: bool) -> None:
    """[SP1] [CM1] The driver is killed before, right before and right after the create: the old state or the new one, and a rerun
    with the same key makes it the new one, once."""
    trap = set_trap(driver.scratch, point, "wait")
    driver.send("write", path=table, key="atomic", tasks=TASKS, rows=ROWS)
    driver.reaches(trap)
    driver.close()
    assert rows_of(spark, table) == sorted(OLD + (new_rows("atomic") if committed else []))
    rerun = mc.write(spark.createDataFrame(new_rows("atomic"), "n long, day string, who string"), table, key="atomic")
    assert rerun.already_committed is committed
    assert rows_of(spark, table) == sorted(OLD + new_rows("atomic"))

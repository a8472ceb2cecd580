"""Row changes and compactions with Spark that are killed around their commit or in their tasks, or lose to others. [CM1] [KY3] [RC1]

The same as without: tests/rows/test_killed.py. An update and a merge by clauses are statements in SQL of a driver, which
evaluates them itself. [RC8]
"""

from pathlib import Path
from typing import Any

import pytest
from tests.kit.row_works import OLD, WORKS, check_repeated, check_rerun, found, make, run
from tests.spark.clusters import Driver, set_trap, sprung

pytestmark = pytest.mark.thorough
BY_TASKS = [work for work in WORKS if work != "update"]  # which needs no task
# The statement of SQL names the inserted columns, which the call leaves to its default: it declares another thing, so that neither is a
# rerun of the other.
RERUN_HERE = [work for work in BY_TASKS if work != "merge by clauses"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("work", WORKS)
def test_a_driver_that_is_killed_around_its_commit_has_done_all_or_nothing(
    spark: Any, new_driver: Any, root: str, work: str, moment: str
) -> None:
    """And a rerun with its key completes it, once."""
    make(root)
    doomed = new_driver()
    trap = set_trap(doomed.scratch, f"commit-{moment}-create", "wait")
    doomed.send("change_rows", path=root, work=work)
    assert doomed.reaches(trap)["worker"] == doomed.process.pid
    doomed.close()
    check_rerun(work, root, spark, committed=moment == "after")


@pytest.mark.parametrize("work", RERUN_HERE)
def test_an_executor_that_is_killed_behind_its_files_loses_and_doubles_no_row(driver: Driver, root: str, work: str) -> None:
    """Another attempt does the task, and one of the two counts. [SP2] [RC1]"""
    make(root)
    trap = set_trap(driver.scratch, "task-0-after-put", "kill")
    driver.run("change_rows", path=root, work=work)
    assert sprung(trap)["executor"]
    assert found(root) == sorted(WORKS[work].after(OLD))
    check_rerun(work, root, None, committed=True)


@pytest.mark.parametrize("work", ["merge", "merge by clauses", "overwrite"])
def test_a_row_change_that_lost_to_others_is_done_again_at_their_version(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """[RC11]"""
    check_repeated(monkeypatch, work, "deletes a row of its files", tmp_path / "t", spark)


def test_each_way_is_the_way_that_it_is_said_to_be(spark: Any, tmp_path: Path) -> None:
    """Where a session is given its tasks do the work; else, and by SQL that this process evaluates, none does. [RC8]"""
    for number, work in enumerate(work for work in WORKS if work != "compact"):
        for session in (None, spark):
            path = tmp_path / f"{number}{session is None}"
            make(path)
            assert run(work, path, session).executor == ("spark" if session is not None and work in BY_TASKS else "arrow")

"""The Airflow section of spec/recipes.md is run as it stands; the only stand-in is the dictionary that Airflow calls its context.

[KY3] [KY5] [WM2] [WM5] [AB3] [AB4] [CF2] [CF6]
"""

from __future__ import annotations

import datetime as dt
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc

PAGE = Path(__file__).resolve().parents[2] / "spec" / "recipes.md"
ZONE = dt.timezone(dt.timedelta(hours=-5))  # a logical date is a moment, however it is spelled


def section() -> str:
    """What stands between the heading and the next one."""
    found = re.search(r"^## Airflow.*?(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, "spec/recipes.md has no section on Airflow"
    return found[0]


@pytest.fixture
def recipe() -> SimpleNamespace:
    """What the section's Python blocks define, run one after another."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", section(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    return SimpleNamespace(**names)


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "a table%20")


class Source:
    """Two flights per day. fetched: the days, in the order in which they were fetched."""

    def __init__(self, value: int = 1) -> None:
        self.value = value
        self.fetched: list[str] = []

    def __call__(self, day: str) -> pa.Table:
        self.fetched.append(day)
        return pa.table({"day": [day] * 2, "flight": [1545, 1714], "value": [self.value] * 2})


def run_of(
    day: int | None, task_id: str = "load", *, map_index: int = -1, xcom: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Airflow's context of one task of the run of a day in January 2013."""
    ti = SimpleNamespace(dag_id="flights %=#", task_id=task_id, map_index=map_index, xcom_pull=lambda task_ids: (xcom or {})[task_ids])
    when = None if day is None else dt.datetime(2013, 1, day, tzinfo=dt.UTC)
    return {"ti": ti, "logical_date": when, "run_id": f"scheduled__{when}", **more}


def days(table: str) -> list[tuple[str, int]]:
    """The day and the value of every row."""
    rows = mc.Table(table).dataset().to_table()
    return sorted(zip(rows["day"].to_pylist(), rows["value"].to_pylist(), strict=True))


def twice(*each: tuple[int, int]) -> list[tuple[str, int]]:
    return sorted((f"2013-01-{day:02}", value) for day, value in each for _ in range(2))


def test_the_key_tells_dag_task_and_date_and_nothing_else(recipe: SimpleNamespace) -> None:
    key = recipe.key_of(run_of(1))
    assert key == "flights %=#/load/2013-01-01T00:00:00+00:00"
    elsewhere = run_of(1) | {"logical_date": dt.datetime(2012, 12, 31, 19, tzinfo=ZONE), "run_id": "backfill__1"}
    assert recipe.key_of(elsewhere) == key, "the same moment, in a run of another name"
    others = [run_of(2), run_of(1, "other"), run_of(1, map_index=0), run_of(1, map_index=1), run_of(None, run_id="manual__1")]
    assert len({key, *(recipe.key_of(each) for each in others)}) == 6


def test_a_retry_and_a_clear_do_nothing_and_return_the_first_version(recipe: SimpleNamespace, table: str) -> None:
    source = Source()

    def breaks(day: str) -> pa.Table:
        raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        recipe.load_day(table, breaks, **run_of(1))
    versions = [recipe.load_day(table, source, **run_of(1)) for _ in range(3)]
    assert len(set(versions)) == 1 and source.fetched == ["2013-01-01"]
    assert days(table) == twice((1, 1))


def test_a_backfill_runs_in_any_order_and_at_once(recipe: SimpleNamespace, table: str) -> None:
    recipe.load_day(table, Source(), **run_of(3))
    failed: list[BaseException] = []

    def load(day: int) -> None:
        try:
            recipe.load_day(table, Source(), **run_of(day))
        except BaseException as error:
            failed.append(error)

    crew = [threading.Thread(target=load, args=(day,)) for day in (5, 1, 3, 4, 2)]
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    assert not failed and days(table) == twice(*((day, 1) for day in range(1, 6)))


def test_a_corrected_day_replaces_the_old_one_once(recipe: SimpleNamespace, table: str) -> None:
    for day in (1, 2):
        recipe.load_day(table, Source(), **run_of(day))
    corrected = Source(7)
    for _ in range(2):
        recipe.load_day_again(table, corrected, **run_of(1, params={"again": "ticket 8"}))
    assert corrected.fetched == ["2013-01-01"] and days(table) == twice((1, 7), (2, 1))
    recipe.load_day_again(table, Source(9), **run_of(1, params={"again": "ticket 9"}))
    recipe.load_day(table, Source(), **run_of(1))  # cleared: its key is still known
    assert days(table) == twice((1, 9), (2, 1))


def test_days_of_a_source_come_in_order(recipe: SimpleNamespace, table: str) -> None:
    recipe.load_range(table, Source(), **run_of(1))
    with pytest.raises(mc.WatermarkGapError):
        recipe.load_range(table, Source(), **run_of(3))
    recipe.load_range(table, Source(), **run_of(2))
    recipe.load_range(table, Source(), **run_of(3))
    assert days(table) == twice((1, 1), (2, 1), (3, 1))


def test_after_a_rewind_the_cleared_days_are_read_again_and_no_other(recipe: SimpleNamespace, table: str) -> None:
    for day in (1, 2, 3):
        recipe.load_range(table, Source(), **run_of(day))
    cleared = recipe.read_again_from(table, dt.date(2013, 1, 2), "the airport's clock was wrong")
    assert cleared == tuple(recipe.key_of(run_of(day)) for day in (2, 3))
    source = Source(7)
    for day in (1, 2, 3, 2):
        recipe.load_range(table, source, **run_of(day))
    assert source.fetched == ["2013-01-02", "2013-01-03"] and days(table) == twice((1, 1), (2, 7), (3, 7))
    assert "the airport's clock was wrong" in [each["reason"] for each in mc.Table(table).history()]


def test_one_task_prepares_and_another_commits(recipe: SimpleNamespace, table: str) -> None:
    recipe.load_day(table, Source(), **run_of(1))
    xcom = {"extract": recipe.extract(table, Source(), **run_of(2, "extract"))}
    assert days(table) == twice((1, 1)), "nothing is visible"
    context = run_of(2, "publish", xcom=xcom)
    versions = [recipe.publish(table, **context) for _ in range(2)]
    assert len(set(versions)) == 1 and days(table) == twice((1, 1), (2, 1))
    assert recipe.give_up(table, **context) == "committed"


def test_a_lost_try_of_the_first_task_leaves_a_job_that_doubles_nothing(recipe: SimpleNamespace, table: str) -> None:
    recipe.load_day(table, Source(), **run_of(1))
    lost = recipe.extract(table, Source(5), **run_of(2, "extract"))
    kept = recipe.extract(table, Source(6), **run_of(2, "extract"))
    version = recipe.publish(table, **run_of(2, "publish", xcom={"extract": kept}))
    assert recipe.publish(table, **run_of(2, "publish", xcom={"extract": lost})) == version
    assert days(table) == twice((1, 1), (2, 6))
    cleared = Source()
    again = recipe.extract(table, cleared, **run_of(2, "extract"))
    assert not cleared.fetched and recipe.publish(table, **run_of(2, "publish", xcom={"extract": again})) == version


def test_what_was_given_up_is_done_anew(recipe: SimpleNamespace, table: str) -> None:
    recipe.load_day(table, Source(), **run_of(1))
    context = run_of(2, "publish", xcom={"extract": recipe.extract(table, Source(), **run_of(2, "extract"))})
    assert [recipe.give_up(table, **context) for _ in range(2)] == ["aborted", "aborted"]
    with pytest.raises(mc.JobAbortedError):
        recipe.publish(table, **context)
    context = run_of(2, "publish", xcom={"extract": recipe.extract(table, Source(2), **run_of(2, "extract"))})
    recipe.publish(table, **context)
    assert days(table) == twice((1, 1), (2, 2))

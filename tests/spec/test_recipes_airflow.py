"""The page on Airflow is run as it stands; the only stand-in is the dictionary that Airflow calls its context.

[KY3] [KY5] [WM2] [WM5] [AB3] [AB4] [CF2] [CF6]
"""

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from tests.docs.blocks import REPO, run
from tests.kit.recipes import Source, days, run_of, twice

import manifestcommit as mc

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def recipe() -> SimpleNamespace:
    """What the page's blocks define, run one after another."""
    return SimpleNamespace(**run(REPO / "docs" / "how-to" / "airflow.md", {}))


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "a table%20")


def test_the_key_tells_dag_task_and_unit_and_nothing_else(recipe: SimpleNamespace) -> None:
    key = recipe.key_of(run_of(1), "2013-01-01")
    assert key == "flights %=#/load/2013-01-01"
    assert recipe.key_of(run_of(1, run_id="backfill__1"), "2013-01-01") == key
    others = [recipe.key_of(run_of(1), "2013-01-02"), recipe.key_of(run_of(1, "other"), "2013-01-01")]
    assert len({key, *others, recipe.key_of(run_of(1), "2013-01-01", "a")}) == 4


def test_the_day_is_over_whatever_the_schedule(recipe: SimpleNamespace) -> None:
    day = dt.date(2013, 1, 1)
    assert recipe.day_of(run_of(1)) == day
    assert recipe.day_of(run_of(1, at=dt.time(10, 15, 30, 123456, dt.UTC))) == day, "a manual run where intervals are empty"
    assert recipe.day_of(run_of(1, at=dt.time(tzinfo=BERLIN), clock=BERLIN)) == day
    assert recipe.day_of(run_of(1, at=dt.time(23, 30, tzinfo=dt.UTC), clock=BERLIN)) == day + dt.timedelta(days=1), "Airflow hands on UTC"


def test_a_run_without_a_date_is_refused(recipe: SimpleNamespace, table: str) -> None:
    for context in (run_of(None, run_id="asset__7"), run_of(None, run_id="asset__7", data_interval_end=None)):
        with pytest.raises(ValueError, match="asset__7 has no logical date"):
            recipe.load_day(table, Source(), **context)
    with pytest.raises(mc.errors.TableNotFoundError):
        mc.Table(table).watermarks()


def test_each_day_is_loaded_once_when_the_clocks_change(recipe: SimpleNamespace, table: str) -> None:
    """A DAG at half past one in Berlin: UTC's day is another one in summer. Airflow hands on UTC."""
    source = Source()
    for first in (dt.date(2013, 3, 28), dt.date(2013, 10, 24)):
        for after in range(1, 8):
            end = dt.datetime.combine(first + dt.timedelta(days=after), dt.time(1, 30), BERLIN).astimezone(dt.UTC)
            recipe.load_day(table, source, **run_of(1, clock=BERLIN, data_interval_end=end))
    expected = [str(first + dt.timedelta(days=each)) for first in (dt.date(2013, 3, 28), dt.date(2013, 10, 24)) for each in range(7)]
    assert source.fetched == expected and days(table) == sorted((day, 1) for day in expected for _ in range(2))


def test_a_retry_and_a_clear_do_nothing_and_return_the_first_version(recipe: SimpleNamespace, table: str) -> None:
    source = Source()

    def breaks(day: str) -> pa.Table:
        raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        recipe.load_day(table, breaks, **run_of(1))
    versions = [recipe.load_day(table, source, **run_of(1)) for _ in range(3)]
    assert len(set(versions)) == 1 and source.fetched == ["2013-01-01"]
    assert days(table) == twice((1, 1))


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


def test_rows_of_another_day_than_the_key_says_are_refused(recipe: SimpleNamespace, table: str) -> None:
    with pytest.raises(mc.errors.ManifestCommitError, match="day"):
        recipe.load_day(table, lambda _: Source()("2013-01-02"), **run_of(1))


def test_a_mapped_task_is_known_by_its_element_not_by_its_index(recipe: SimpleNamespace, table: str) -> None:
    """Two elements, one of which failed; a third has come first in the list when the tasks are cleared."""
    fetched: list[str] = []

    def fetch(day: str, part: str) -> pa.Table:
        fetched.append(part)
        return pa.table({"day": [day], "part": [part]})

    recipe.load_part(table, fetch, "b %=/", **run_of(1))
    for part in ("a", "b %=/", "c"):
        recipe.load_part(table, fetch, part, **run_of(1))
    recipe.load_part(table, fetch, "a", **run_of(2))
    assert fetched == ["b %=/", "a", "c", "a"]
    rows = mc.Table(table).dataset().to_table().to_pylist()
    assert sorted((row["day"], row["part"]) for row in rows) == sorted(
        [("2013-01-01", "a"), ("2013-01-01", "b %=/"), ("2013-01-01", "c"), ("2013-01-02", "a")]
    )


def test_after_a_rewind_the_cleared_days_are_read_again_and_no_other(recipe: SimpleNamespace, table: str) -> None:
    for day in (1, 2, 3):
        recipe.load_range(table, Source(), **run_of(day))
    cleared = recipe.read_again_from(table, dt.date(2013, 1, 2), "the airport's clock was wrong")
    keys = [f"flights %=#/load/2013-01-{day:02}" for day in (1, 2, 3)]
    assert cleared == tuple(keys[1:])
    history = mc.Table(table).history()
    assert [each["key"] for each in history[1:4]] == keys[::-1], "what it dropped can be told from there"
    assert history[0]["reason"] == "the airport's clock was wrong"
    with pytest.raises(mc.errors.UsageError, match="is not before that"):
        recipe.read_again_from(table, dt.date(2013, 1, 2), "the airport's clock was wrong")
    source = Source(7)
    for day in (1, 2, 3, 2):
        recipe.load_range(table, source, **run_of(day))
    assert source.fetched == ["2013-01-02", "2013-01-03"] and days(table) == twice((1, 1), (2, 7), (3, 7))
    assert recipe.read_again_from(table, dt.date(2013, 1, 2), "again") == tuple(keys[1:]), "a rewind of its own"


def test_one_task_writes_one_audits_and_one_publishes(recipe: SimpleNamespace, table: str) -> None:
    recipe.load_day(table, Source(), **run_of(1))
    xcom = {"extract": recipe.extract(table, Source(), **run_of(2, "extract"))}
    assert days(table) == twice((1, 1)), "nothing is visible"
    context = run_of(2, "publish", xcom=xcom)
    versions = [recipe.audit(table, **context) or recipe.publish(table, **context) for _ in range(2)]
    assert len(set(versions)) == 1 and days(table) == twice((1, 1), (2, 1))
    assert recipe.give_up(table, **context) == "committed"

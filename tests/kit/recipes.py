"""The recipes of dbt and Airflow, made ready to run."""

import datetime as dt
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from tests.clients.environments import python_of

import manifestcommit as mc

PROJECT = Path(__file__).resolve().parents[2] / "docs" / "examples" / "dbt"
DAYS = {"2013-01-01": [("AA", 1.0), ("B6", 4.0), ("it's", 2.0)], "2013-01-02": [("AA", 9.0), ("it's", 0.0)]}


class Project:
    """A copy of the project, and the lake that it works on."""

    def __init__(self, folder: Path, name: str = "the lake") -> None:
        self.lake = folder / name
        self._folder = folder / "dbt"
        shutil.copytree(PROJECT, self._folder)
        self._dbt = Path(python_of("dbt")).with_name("dbt")
        for day, rows in DAYS.items():
            carriers, delays = zip(*rows, strict=True)
            mc.write(pa.table({"day": [day] * len(rows), "carrier": carriers, "dep_delay": delays}), self.lake / "flights", key=day)

    def run(self, day: str, *more: str, command: str = "run") -> subprocess.CompletedProcess[str]:
        """`dbt run`, or another command, for a day."""
        called = [self._dbt, command, "--profiles-dir", ".", "--vars", f"{{lake: '{self.lake}', day: '{day}'}}", *more]
        env = {**os.environ, "PYTHONPATH": str(PROJECT.parents[2]), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
        return subprocess.run(called, cwd=self._folder, env=env, capture_output=True, text=True, check=False)

    def rows(self, model: str) -> list[tuple[object, ...]]:
        return sorted(tuple(row.values()) for row in mc.Table(self.lake / model).to_arrow().to_pylist())


MIDNIGHT = dt.time(tzinfo=dt.UTC)


class Source:
    """Two flights per day. fetched: the days, in the order in which they were fetched."""

    def __init__(self, value: int = 1) -> None:
        self.value = value
        self.fetched: list[str] = []

    def __call__(self, day: str) -> pa.Table:
        self.fetched.append(day)
        return pa.table({"day": [day] * 2, "flight": [1545, 1714], "value": [self.value] * 2})


def run_of(
    day: int | None,
    task_id: str = "load",
    *,
    at: dt.time = MIDNIGHT,
    clock: dt.tzinfo = dt.UTC,
    xcom: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Airflow's context of one task of the run for a day in January 2013, which begins the day after; None: a run without a date.

    at: the time at which its data interval ends; clock: the DAG's.
    """
    ti = SimpleNamespace(dag_id="flights %=#", task_id=task_id, xcom_pull=lambda task_ids: (xcom or {})[task_ids])
    context = {"ti": ti, "dag": SimpleNamespace(timezone=clock), "run_id": f"scheduled__{day}"}
    return context | ({} if day is None else {"data_interval_end": dt.datetime.combine(dt.date(2013, 1, day + 1), at)}) | more


def days(table: str) -> list[tuple[str, int]]:
    """The day and the value of every row."""
    rows = mc.Table(table).dataset().to_table()
    return sorted(zip(rows["day"].to_pylist(), rows["value"].to_pylist(), strict=True))


def twice(*each: tuple[int, int]) -> list[tuple[str, int]]:
    return sorted((f"2013-01-{day:02}", value) for day, value in each for _ in range(2))

"""The dbt project of the docs, by dbt itself, in an environment of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
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


@pytest.mark.thorough  # installs dbt
@pytest.mark.timeout(600)
@pytest.mark.parametrize("lake", ["the lake %20", "a lake [1]"], ids=["by its files", "copied"])  # DuckDB would expand the brackets
def test_a_model_is_built_once_for_each_key(lake: str, tmp_path: Path) -> None:
    """[KY3] [RD42]"""
    project = Project(tmp_path, lake)
    for day in (*DAYS, *DAYS):  # the second time, all keys are committed
        done = project.run(day)
        assert done.returncode == 0, done.stdout
    assert project.rows("daily_delays") == sorted((day, name, 1, delay) for day, rows in DAYS.items() for name, delay in rows)
    assert project.rows("worst_carriers") == [("AA", 9.0, "2013-01-02"), ("B6", 4.0, "2013-01-01"), ("it's", 2.0, "2013-01-01")]
    assert len(mc.Table(project.lake / "daily_delays").history()) == len(mc.Table(project.lake / "worst_carriers").history()) == 3

    mc.Table(project.lake / "daily_delays").delete("carrier = 'B6'")
    assert project.run("2013-01-02", "--select", "worst_carriers").returncode == 0, "a model by itself, from what another run has shown"


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_model_without_a_key_is_refused(tmp_path: Path) -> None:
    """A rerun of it would commit its rows again. [KY3]"""
    project = Project(tmp_path)
    model = tmp_path / "dbt" / "models" / "daily_delays.sql"
    model.write_text("\n".join(line for line in model.read_text().splitlines() if "key=" not in line))
    done = project.run("2013-01-01")
    assert done.returncode != 0 and "key" in done.stdout
    assert not (project.lake / "daily_delays").exists()

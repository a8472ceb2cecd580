"""The dbt project of the docs, by dbt itself, in an environment of its own."""

from pathlib import Path

import pytest
from tests.kit.recipes import DAYS, Project

import manifestcommit as mc


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

"""The pages' tasks where a check fails: nothing is published, and the job waits. [CK6]"""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.clients.environments import python_of
from tests.docs.blocks import REPO, run
from tests.kit.recipes import Project, Source, days, run_of, twice

import manifestcommit as mc


def test_airflows_audit_fails_and_gives_up(tmp_path: Path) -> None:
    recipe = SimpleNamespace(**run(REPO / "docs" / "how-to" / "airflow.md", {}))
    table = str(tmp_path / "t")
    recipe.load_day(table, Source(), **run_of(1))
    for fetch, why in ((lambda day: Source()(day).slice(0, 0), "expect_rows"), (negative, "flight > 0")):
        context = run_of(2, "audit", xcom={"extract": recipe.extract(table, fetch, **run_of(2, "extract"))})
        with pytest.raises(mc.errors.CheckFailedError, match=why):
            recipe.audit(table, **context)
        assert days(table) == twice((1, 1)) and "prepared" in [each.state for each in mc.Table(table).jobs()]
        assert recipe.give_up(table, **context) == "aborted"
    context = run_of(2, "audit", xcom={"extract": recipe.extract(table, Source(), **run_of(2, "extract"))})
    recipe.audit(table, **context)
    recipe.publish(table, **context)
    assert days(table) == twice((1, 1), (2, 1))


@pytest.mark.thorough  # installs dbt
@pytest.mark.timeout(600)
def test_dbts_tests_see_what_is_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project = Project(tmp_path)
    mc.write(pa.table({"day": ["2013-01-03"], "carrier": pa.array([None], pa.string()), "dep_delay": [0.0]}), project.lake / "flights")
    publish = run(REPO / "docs" / "how-to" / "dbt.md", {})["publish"]
    for day, passes in (("2013-01-01", True), ("2013-01-01", True), ("2013-01-03", False)):
        done = project.run(day, "--select", "audited_delays")
        assert done.returncode == 0, done.stdout
        done = project.run(day, "--select", "audited_delays", command="test")
        assert (done.returncode == 0) == passes, done.stdout
        if passes:
            publish(project.lake / "staged.jsonl")
    assert project.rows("audited_delays") == [("2013-01-01", name, 1) for name in ("AA", "B6", "it's")]
    assert "prepared" in [each.state for each in mc.Table(project.lake / "audited_delays").jobs()]


@pytest.mark.thorough  # installs pandera and Great Expectations
@pytest.mark.timeout(600)
def test_suites_of_other_libraries_are_checks(tmp_path: Path) -> None:
    program = REPO / "docs" / "examples" / "validators" / "suites.py"
    page = (REPO / "docs" / "how-to" / "gate.md").read_text("utf-8")
    assert page[page.index("orders = pandera") : page.index("```\n\nThe whole program")] in program.read_text("utf-8")
    command = [python_of("validators"), program, tmp_path / "t"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(REPO)}, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["2", "by_pandera", "by_great_expectations"], done.stderr[-2000:]


def negative(day: str) -> pa.Table:
    return pa.table({"day": [day], "flight": [-1], "value": [1]})

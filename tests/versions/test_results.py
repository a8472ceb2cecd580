"""The tables of docs/reference/supported.md are those of the code and of the last runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.versions import results
from tests.versions.environments import REPO, environments, interpreter

from manifestcommit.spark.runtime.versions import FEATURES


def test_the_page_shows_the_tables_as_they_are() -> None:
    """[SP45]"""
    text = results.PAGE.read_text("utf-8")
    assert results.replaced(text) == text, "python -m tests.versions --page rewrites them"


def test_a_feature_is_ticked_from_its_first_version_on() -> None:
    """[SP45]"""
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in results.features().splitlines()[2:]}
    assert rows.keys() == {feature.what for feature in FEATURES.values()}
    for feature in FEATURES.values():
        ticks = rows[feature.what].split(" | ")[1 : 1 + len(results.SPARKS)]
        assert ticks == ["✓" if version >= feature.since else "–" for version in results.SPARKS]


def test_every_recorded_run_is_of_an_environment_and_has_passed() -> None:
    names = {each.name for each in environments()}
    recorded = results.recorded()
    assert recorded.keys() <= names
    assert not {name: each["failed"] for name, each in recorded.items() if each["failed"]}
    assert all(each["passed"] or each["not_run"] for each in recorded.values())


def test_a_failure_and_a_missing_interpreter_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| with Spark |\n|---|\n\n| environment |\n|---|\n", "utf-8")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", page)
    none = results.Result(date="2026-01-02", passed=0, failed=0, left_out=0, seconds=0, versions={}, not_run="no Python 3.14")
    results.record("py3.14", none)
    ran = results.Result(date="2026-01-02", passed=5, failed=1, left_out=2, seconds=9, versions={"pyspark": "4.0.9"}, not_run="")
    results.record("4.0", ran)
    text = page.read_text("utf-8")
    assert "no Python 3.14" in text and re.search(r"\| 4\.0\.9 \|.*\| 5 passed, 1 failed \| 2 \|", text)


def test_an_interpreter_is_of_the_version_that_was_asked_for() -> None:
    assert interpreter("2.1") is None
    found = interpreter("3.11")
    assert found is None or Path(found).exists()


def test_there_is_an_environment_for_each_spark_and_the_lowest_of_everything() -> None:
    names = [each.name for each in environments()]
    assert names[: len(results.SPARKS)] == [f"{major}.{minor}" for major, minor in results.SPARKS] and "lowest" in names
    assert (REPO / "Makefile").read_text("utf-8").count("-m tests.versions") == 3  # all of them in `make proof`, some by name, one in turn

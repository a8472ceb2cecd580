"""The tables of docs/reference/supported.md are those of the code and of the last runs."""

from tests.versions import results
from tests.versions.environments import REPO, environments

from manifestcommit.spark.features import FEATURES


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


def test_there_is_an_environment_for_each_spark_and_the_lowest_of_everything() -> None:
    names = [each.name for each in environments()]
    assert names[: len(results.SPARKS)] == [f"{major}.{minor}" for major, minor in results.SPARKS] and "lowest" in names
    assert (REPO / "Makefile").read_text("utf-8").count("-m tests.versions") == 3  # all of them in `make proof`, some by name, one in turn

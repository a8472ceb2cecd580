"""A table that lives long: what a commit asks for and carries does not follow its history, and what is left without a gc is as computed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.long_life import KEEP, Life, expected
from tests.kit.sizes import SetBudgets

from manifestcommit.log.table_context import TableContext
from manifestcommit.protocol.spill_policy import Budgets

ROUND = 40
STORES = Path(__file__).parents[2] / "spec" / "stores.md"


@pytest.fixture
def small_budgets(set_budgets: SetBudgets) -> None:
    """Budgets that a few dozen commits outgrow, so that a test sees many spills and merges."""
    set_budgets(inline_entry_bytes=16_384, inline_keys=10, inline_jobs=12, max_merged_files=4000)


@pytest.mark.thorough
@pytest.mark.usefixtures("small_budgets")
def test_a_table_that_is_maintained_costs_the_same_after_hundreds_of_commits(tmp_path: Path) -> None:
    """Requests of a commit, bytes of the head and objects: a table must not become slower because it is used. [CM11] [CM12] [IV10]"""
    life = Life(str(tmp_path / "t"), None, maintained=True)
    spend = life.spend(ROUND)
    rounds = [spend(number) for number in range(10)]
    assert [one["requests"] for one in rounds] == [3] * 10, "a create, a look above it and the hint"
    assert all(one["files"] <= 2 for one in rounds), "the small files of the day, as one"
    assert max(one["head_bytes"] for one in rounds[5:]) <= 1.25 * max(one["head_bytes"] for one in rounds[:5])
    # Versions, the marker, the hint, and what the versions have spilled between them.
    most = KEEP.keep_versions + 2 + 60
    assert rounds[-1]["commits"] == 400 and max(one["objects"] for one in rounds) <= most
    assert max(one["objects"] for one in rounds[5:]) <= 1.25 * max(one["objects"] for one in rounds[3:5])


@pytest.mark.thorough
@pytest.mark.usefixtures("small_budgets")
def test_a_table_without_maintenance_grows_as_computed(tmp_path: Path) -> None:
    """Whoever never runs gc knows what it costs: nothing grows but the number of versions and, with its logarithm, the head. [CM12]"""
    life = Life(str(tmp_path / "t"), None, maintained=False)
    spend = life.spend(ROUND)
    rounds = [spend(number) for number in range(10)]
    assert [one["requests"] for one in rounds] == [3] * 10
    like = TableContext(life.store).open().snapshot
    for one in rounds:
        objects, metadata_bytes = expected(int(one["commits"]), like)
        assert abs(one["objects"] - objects) <= 3, "where an entry's size differs by a digit, a spill comes a commit earlier or later"
    # With budgets so small, the references that are taken from the last head weigh as much as what is inlined.
    assert 0.7 < 1e6 * rounds[-1]["metadata_mb"] / metadata_bytes < 1.25
    assert rounds[-1]["manifests"] <= 2 * Budgets().fan_in and rounds[-1]["runs"] <= 4 * Budgets().fan_in


def test_the_page_for_operators_computes_with_the_codes_constants() -> None:
    """[CM12]"""
    text = " ".join(STORES.read_text("utf-8").split())
    usual = Budgets()
    for said in (
        f"{usual.inline_entry_bytes // 1024} KiB of entries",
        f"{usual.inline_entry_bytes // 4096} KiB of earlier ones",
        f"{usual.inline_keys} keys",
        f"{usual.inline_jobs} jobs",
        f"{usual.fan_in} objects of one size",
        f"{usual.max_merged_files:,} rows",
    ):
        assert said in text


def test_the_page_for_operators_says_what_is_computed(tmp_path: Path) -> None:
    """[CM12]"""
    like = Life(str(tmp_path / "t"), None, maintained=False).session.open().snapshot
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d.,]+) \|$", STORES.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 3
    for row in rows:
        commits, objects, gigabytes = (float(text.replace(",", "")) for text in row)
        computed_objects, computed_bytes = expected(int(commits), like)
        assert objects == pytest.approx(computed_objects, rel=0.001), "field ids are drawn, and have more digits or fewer"
        assert gigabytes == pytest.approx(computed_bytes / 1e9, rel=0.1)

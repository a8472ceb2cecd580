"""A table that lives long: what a commit asks for and carries does not follow its history, and what is left without a gc is as computed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.long_life import Life, expected

from manifestcommit.protocol.apply import Budgets

STORES = Path(__file__).parents[2] / "spec" / "stores.md"


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


@pytest.mark.thorough
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

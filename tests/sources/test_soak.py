"""Loaders that are killed at random, two at once, while the source's writers work. [LD1] [LD2]"""

from pathlib import Path

import pytest
from tests.sources.soak import ORIGINS, soak

BRIEF = [pytest.param(kind, 20, marks=pytest.mark.thorough) for kind in ORIGINS if kind != "dlt"]  # whose interpreter starts for seconds


@pytest.mark.parametrize(("kind", "seconds"), [*BRIEF, *(pytest.param(kind, 300, marks=pytest.mark.proof) for kind in ORIGINS)])
def test_each_row_is_loaded_once_whatever_is_killed(kind: str, seconds: int, tmp_path: Path) -> None:
    report = soak(kind, tmp_path, seconds=seconds, seed=11)
    assert (report.missing, report.doubled, report.damages) == ({}, {}, 0)
    assert report.kills > 3 and report.loads > 2 and report.rows > 100

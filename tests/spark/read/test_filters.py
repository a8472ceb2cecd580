"""Spark finds the rows that every other reader finds: the expected ones are its own. [RD7]"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.kit.filter_kinds import CASES, KINDS

import manifestcommit as mc


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["own", "adopted"])
def test_filters_at_the_extremes(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """[RD7] [DF6]"""
    table = KINDS[kind](str(tmp_path / "t"))
    cases = [case for case in CASES if case.sql[0] in "xd"]
    asked = [(case.sql, case.found) for case in cases] + [(case.arrow, case.found) for case in cases[::8]]
    for condition, expected in asked:
        found = mc.read_committed(table.url, filter=condition).select("n").collect()
        assert {row.n for row in found} == expected, str(condition)

"""Rows of NaN, which is equal to itself and greater than everything in Spark, are not pruned away. [SP4] [RD7]"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manifestcommit as mc

ROWS = pa.table({"id": [1, 2, 3], "x": [1.0, float("nan"), 3.0]})
WANTED = {"x > 5": [2], "x = double('NaN')": [2], "NOT (x <= 5)": [2], "x <=> double('NaN')": [2], "x >= 3": [2, 3]}


@pytest.mark.thorough
@pytest.mark.parametrize("writer", ["arrow", "spark", "another"])
def test_a_filter_keeps_the_rows_of_nan(spark: Any, tmp_path: Path, writer: str) -> None:
    """As in memory, whoever wrote the file: a job of ours from Arrow or Spark, or something else. [SP4] [RD7] [DF6]"""
    root = tmp_path / "t"
    if writer == "another":
        mc.create_table(root, ROWS.schema)
        pq.write_table(ROWS, root / "other.parquet")
        with mc.begin(root) as job:
            job.add_files(["other.parquet"])
    else:
        mc.write(ROWS if writer == "arrow" else spark.createDataFrame(ROWS.to_pylist(), "id long, x double"), root)
    df = mc.read_committed(root, spark=spark)
    for condition, ids in WANTED.items():
        assert sorted(row.id for row in df.where(condition).collect()) == ids, condition

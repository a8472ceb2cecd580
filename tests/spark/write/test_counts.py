"""Spark's tasks say what they were handed, so that read, written and committed can be compared for every kind of write. [OB10]"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import manifestcommit as mc
from manifestcommit.runtime.outcome import JobMetrics, observers


@pytest.mark.thorough
def test_only_the_attempts_that_count_are_counted(spark: Any, root: str, tmp_path: Path) -> None:
    """A task that fails after its last row has read it, and that is in no figure. [SP2] [OB10]"""
    marker = str(tmp_path / "failed")

    def rows(partition: int, numbers: Iterator[int]) -> Iterator[tuple[int, str]]:
        for number in numbers:
            yield number, "abc"
        if partition == 1 and not os.path.exists(marker):
            os.mkdir(marker)
            raise OSError("this attempt fails after its last row")

    df = spark.createDataFrame(spark.sparkContext.parallelize(range(40), 4).mapPartitionsWithIndex(rows), "n long, s string")
    told: list[JobMetrics] = []
    observers.append(told.append)
    try:
        outcome = mc.write(df, root)
    finally:
        observers.remove(told.append)
    found = outcome.metrics
    assert os.path.exists(marker) and found is not None
    assert (found.rows_read, found.rows_written, found.rows_committed) == (40, 40, 40)
    assert (found.tasks, found.files_written, found.files_committed) == (4, 4, 4)
    assert found.bytes_read is not None and found.bytes_read >= 40 * (8 + 3)
    assert found.bytes_written == found.bytes_committed == sum(mc.Table(root).files()["bytes"].to_pylist())
    assert told == [found]

"""Spark's ways of writing data that lacks columns of the table: nulls only where they are meant. [SC8]"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark import streams

import manifestcommit as mc
from manifestcommit.table import Table

FORMAT = "manifestcommit"
WAYS: dict[str, Callable[[Any, str], Any]] = {
    "write": lambda df, root: mc.write(df, root, merge_schema=True),
    "recoverable": lambda df, root: mc.write(df, root, key="k", recoverable=True, fingerprint="the same"),
    "static": lambda df, root: mc.write(df, root, mode="overwrite", overwrite={"day": "2013-01-01"}),
    "format": lambda df, root: df.write.format(FORMAT).option("mergeSchema", "true").mode("append").save(root),
    "format overwrite": lambda df, root: df.write.format(FORMAT).option("overwrite", "all").mode("overwrite").save(root),
    "merge": lambda df, root: Table(root).merge(df, "n"),
}


@pytest.fixture
def table(spark, root: str) -> str:
    mc.register(spark)
    mc.write(spark.createDataFrame([(1, "2013-01-01", 5)], "n long, day string, v long"), root, partition_by=["day"])
    return root


def rows(root: str) -> list[tuple[Any, ...]]:
    return sorted((row["n"], row["day"], row["v"]) for row in Table(root).dataset().to_table().to_pylist())


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_data_without_the_partition_column_is_refused_before_any_task(spark, table: str, way: str) -> None:
    """[SC8]"""
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(None))
    with pytest.raises(Exception, match=r"day.*partitions the table|source has no column 'day'"):
        WAYS[way](spark.createDataFrame([(2, 6)], "n long, v long"), table)
    assert rows(table) == [(1, "2013-01-01", 5)] and len(tracker.getJobIdsForGroup(None)) == before


@pytest.mark.thorough
def test_a_streaming_query_ends_where_its_rows_have_no_partition(spark, table: str, tmp_path: Path) -> None:
    """Also one that ran until the column was renamed. [SC8]"""
    source, checkpoint = str(tmp_path / "input"), str(tmp_path / "checkpoint")
    streams.feed(Path(source), 0)
    assert streams.drain(spark, source, table, checkpoint) == ""
    Table(table).rename_column("day", "date")
    streams.feed(Path(source), 1)
    assert "'date' partitions the table and is missing" in streams.drain(spark, source, table, checkpoint, mergeSchema="true")
    found = Table(table).dataset().to_table()
    assert found.num_rows == 11 and found["date"].null_count == 0

"""Exports of what Spark has written, deleted, merged and compacted, read by other engines. [EX1] [EX2] [EX6]"""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.export.clients import DELTA, ICEBERG, expected, local, rows

import manifestcommit as mc

FLAT = ["id AS n", "cast(id % 3 AS string) AS part", "cast(id AS float) AS f", "timestamp_micros(id) AS moment"]
MEMBERS = [
    "named_struct('x', id, 'y', 'a') AS s",
    "array(id, null) AS list",
    "map('k', id) AS map",
]


def check(table: mc.Table) -> None:
    wanted, schema = expected(table)
    for client, read in {**ICEBERG, **DELTA}.items():
        assert rows(read(local(table)), schema) == wanted, (client, table.version)


@pytest.mark.thorough
def test_what_spark_writes_is_exported_and_read_by_others(spark: SparkSession, tmp_path: Path) -> None:
    """[EX1] [EX2]"""
    path = str(tmp_path / "t")
    data = spark.range(20).selectExpr(*FLAT)
    mc.write(data, path, partition_by=["part"])
    table = mc.Table(path)
    table.set_properties({"export.formats": "iceberg,delta"})
    mc.write(spark.range(20, 30).selectExpr(*FLAT, *MEMBERS), path, merge_schema=True)
    check(table)
    table.delete(pc.field("n") < 3, spark=spark)
    table.merge(spark.range(5, 25).selectExpr(*FLAT, *MEMBERS), on=["n", "part"], spark=spark)
    check(table)
    table.compact()
    assert table.metrics().export_lag == {"iceberg": 0, "delta": 0}
    check(table)
    spark.range(40, 45).selectExpr(*FLAT, *MEMBERS).write.format("manifestcommit").mode("append").save(path)
    check(table)

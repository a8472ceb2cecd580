"""Exports of what Spark has written, deleted, merged and compacted, read by other engines. [EX1] [EX2] [EX6]"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.interop.clients import DELTA, ICEBERG, expected, local, rows

import manifestcommit as mc
from manifestcommit.engine.metadata.exports import is_export
from manifestcommit.store import open_store

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


@pytest.mark.parametrize("properties", [{"export.formats": "iceberg,delta"}, {}], ids=["each commit", "by hand"])
def test_gc_on_spark_leaves_what_readers_of_exports_need(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    """And sweeps, plans and reports the same as in one process. [EX4] [GC13]"""
    url = str(tmp_path / "t")
    mc.create_table(url, pa.schema([("n", pa.int64())]), properties=properties)
    table = mc.Table(url)
    for number in range(4):
        mc.write(pa.table({"n": [number] * 3}), url, mode="overwrite")
        for format in ("iceberg", "delta"):
            table.export(format)
    for _ in range(2):
        planned = sorted(map(repr, table.plan_gc(grace="0s", keep_for="0s").to_pylist()))
        on_spark = sorted(repr(row.asDict()) for row in table.plan_gc(grace="0s", keep_for="0s", spark=spark).collect())
        assert planned == on_spark
        before = exported_names(url)
        report = table.gc(grace="0s", keep_for="0s", spark=spark)
        assert report.foreign.count == report.unknown.count == 0
        swept = before - exported_names(url)
        assert swept and report.deleted["export"].count == len(swept)
        check(table)
        mc.write(pa.table({"n": [7]}), url, mode="overwrite")
        for format in ("iceberg", "delta"):
            table.export(format)


def exported_names(url: str) -> set[str]:
    return {info.name for info in open_store(url).list("") if is_export(info.name)}

"""Folders that Spark wrote, adopted where they are: Spark reads the same rows of them by every way. [AF2] [DF4] [RD7]"""

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F
from tests.kit.sizes import rest_thorough

import manifestcommit as mc
from manifestcommit.errors import SchemaMismatchError

pytestmark = pytest.mark.usefixtures("registered")

FORMAT = "manifestcommit"
TEXTS = ["a b%20", "k=v#x?", "'\"ü漢/:", None]


def rows_of(df: Any) -> list[Any]:
    """All rows as values that can be sorted and compared."""
    return sorted((row.asDict(recursive=True) for row in df.collect()), key=lambda row: row["id"])


def spark_folder(spark: Any, root: str) -> None:
    """Every type that Spark writes, in three levels of folders."""
    base = spark.range(12).select(
        "id",
        F.expr("cast(id as byte)").alias("tiny"),
        F.expr("cast(id as decimal(12,2))").alias("money"),
        F.expr("timestamp'2013-01-01 00:30:00' + make_dt_interval(0, id)").alias("at"),
        F.expr("timestamp_ntz'2013-01-01 00:30:00'").alias("local"),
        F.expr("named_struct('a b', id, 'm', map('k', array(id, null)))").alias("nested"),
        F.expr("interval '1 02:03' day to minute * id").alias("wait"),
        F.expr("parse_json('{\"x\": 1}')").alias("v"),
        F.expr("cast('nan' as double)").alias("nan"),
        F.expr("date'2013-01-01' + cast(id % 3 as int)").alias("day"),
        F.expr("cast(id % 2 as int)").alias("n"),
        F.element_at(F.array(*(F.lit(text) for text in TEXTS)), (F.col("id") % 4 + 1).cast("int")).alias("t x"),
    )
    base.write.partitionBy("day", "n", "t x").parquet(root)


@pytest.mark.parametrize("instants", rest_thorough(["INT96", "TIMESTAMP_MICROS"], "INT96"))
def test_a_folder_that_spark_wrote_reads_as_before(spark, tmp_path: Path, instants: str) -> None:
    """Natively, as a format, filtered, pruned, after appends and renames. [AF2] [DF4] [RD7] [SP4]"""
    root = str(tmp_path / "a b%+=é")
    settings = {"spark.sql.parquet.outputTimestampType": instants, "spark.sql.variant.inferShreddingSchema": "false"}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        spark_folder(spark, root)
    finally:
        for name in settings:
            spark.conf.unset(name)
    folder = spark.read.parquet(root)
    shown = [column for column in folder.columns if column != "v"]
    expected = rows_of(folder.select(*shown))
    found = mc.Table(root).adopt()
    assert found.rows == 12 and found.partition_by == ("day", "n", "t x")
    df = mc.read_committed(root, spark=spark)
    assert [(f.name, f.dataType) for f in df.schema] == [(f.name, f.dataType) for f in folder.schema]
    # NaN differs from itself
    for row in expected:
        assert row.pop("nan") != 0
    plain = [column for column in shown if column != "nan"]
    assert rows_of(df.select(*plain)) == expected == rows_of(spark.read.format(FORMAT).load(root).select(*plain))
    assert df.select(F.to_json("v").alias("j")).distinct().collect()[0].j == '{"x":1}'
    if instants == "INT96":
        return
    for condition in ("n = 1 and id > 3", "day > '2013-01-01' or `t x` is null", "not (n = 1)", "nan > 1"):
        wanted = sorted(row.id for row in folder.where(condition).select("id").collect())
        got = mc.read_committed(root, filter=F.expr(condition), spark=spark)
        assert sorted(row.id for row in got.select("id").collect()) == wanted, condition
        assert sorted(row.id for row in df.where(condition).select("id").collect()) == wanted, condition
    assert mc.read_committed(root, columns="n", spark=spark).groupBy("n").count().count() == 2
    mc.write(folder.where("id = 5").withColumn("id", F.lit(99).cast("long")), root)
    mc.Table(root).rename_column("n", "the n")
    renamed = mc.read_committed(root, spark=spark)
    assert sorted((r.id, r["the n"]) for r in renamed.select("id", "the n").collect()) == [*((i, i % 2) for i in range(12)), (99, 1)]
    one = mc.read_committed(root, columns=["the n", "id"], filter=F.col("the n") == 1, spark=spark)
    assert sorted(r.id for r in one.collect()) == [1, 3, 5, 7, 9, 11, 99]


def test_a_shredded_variant_is_refused_and_never_taken_for_a_struct(spark, tmp_path: Path) -> None:
    """[AF2] [SC2]"""
    spark.range(3).select("id", F.expr("parse_json('{\"x\": 1}')").alias("v")).coalesce(1).write.parquet(str(tmp_path / "t"))
    with pytest.raises(SchemaMismatchError, match=r"part-.*'v'.*variant"):
        mc.Table(tmp_path / "t").adopt()


@pytest.mark.thorough
def test_a_stream_gives_adopted_rows_with_their_partition_values(spark, root: str, tmp_path: Path) -> None:
    """[DF4] [SP8]"""
    spark.range(4).select("id", F.expr("cast(id % 2 as int)").alias("n")).write.partitionBy("n").parquet(root)
    mc.Table(root).adopt()
    seen: list[tuple[int, int]] = []
    for starting in ({}, {"startingVersion": 1}):
        stream = spark.readStream.format(FORMAT).options(**starting).load(root)
        query = stream.writeStream.foreachBatch(lambda df, _: seen.extend((r.id, r.n) for r in df.collect()))
        query.option("checkpointLocation", str(tmp_path / f"c{len(starting)}")).trigger(availableNow=True).start().awaitTermination()
        assert sorted(seen) == [(0, 0), (1, 1), (2, 0), (3, 1)]
        seen.clear()


@pytest.mark.thorough
def test_the_folder_of_a_streaming_sink(spark, tmp_path: Path) -> None:
    """Exactly the files of Spark's own log, whose paths are as Spark escapes them. [AF2]"""
    root, source = str(tmp_path / "a b%20é"), str(tmp_path / "source")
    data = spark.range(6).select("id", F.element_at(F.array(*(F.lit(t) for t in TEXTS)), (F.col("id") % 4 + 1).cast("int")).alias("t x"))
    data.write.parquet(source)
    stream = spark.readStream.schema(data.schema).parquet(source)
    query = stream.writeStream.format("parquet").partitionBy("t x").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start(root).awaitTermination()
    listed = next(path for path in Path(root).rglob("*.parquet"))
    (listed.parent / "lost.parquet").write_bytes(listed.read_bytes())
    found = mc.Table(root).adopt()
    assert found.rows == 6 and [each.name.rpartition("/")[2] for each in found.skipped if "log" in each.reason] == ["lost.parquet"]
    assert rows_of(mc.read_committed(root, spark=spark)) == rows_of(data)


def test_folder_values_are_typed_as_spark_types_them(spark, tmp_path: Path) -> None:
    """But for floating-point numbers, which partition no table, instants, whose zone no folder tells, and names that Spark loses. [AF2]"""
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = {
        "i": ["7", "-3"], "l": ["3000000000", "1"], "d": ["9" * 20, "1"], "day": ["2013-01-01", "2013-12-31"], "m": ["2013-01", "x"],
        "s": ["1", "a"], "none": ["x", "__HIVE_DEFAULT_PARTITION__"], "f": ["1.5", "2.5"], "zero": ["007", "8"],
        "at": ["2013-01-01 00%3A30%3A00"] * 2,
    }  # fmt: skip
    for number in range(2):
        folder = tmp_path / "t" / "/".join(f"{name}={texts[number]}" for name, texts in values.items())
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), folder / "0.parquet")
    spark_types = {f.name: f.dataType.simpleString() for f in spark.read.parquet(str(tmp_path / "t")).schema}
    mc.Table(tmp_path / "t").adopt()
    df = mc.read_committed(tmp_path / "t", spark=spark)
    assert {f.name: f.dataType.simpleString() for f in df.schema} == {**spark_types, "f": "string", "zero": "string", "at": "timestamp_ntz"}
    first = rows_of(df)[0]
    assert first["d"] == Decimal("9" * 20) and first["i"] == 7 and first["at"] == dt.datetime(2013, 1, 1, 0, 30) and first["m"] == "2013-01"


@pytest.mark.parametrize("by", ["n", pytest.param(None, marks=pytest.mark.thorough)])
def test_no_task_reads_an_adopted_file_that_was_replaced(spark, root: str, tmp_path: Path, by: str | None) -> None:
    """[AF3] [RD2] By another sound one, of as many rows: the entry says nothing of it. Batches and streams alike."""
    writer = spark.range(4).select("id", F.expr("cast(id % 2 as int)").alias("n")).coalesce(1).write
    (writer.partitionBy(by) if by else writer).parquet(root)
    mc.Table(root).adopt()
    path = mc.Table(root).files()["path"][0].as_py()
    spark.range(7, 11).select("id").coalesce(1).write.parquet(str(tmp_path / "other"))
    (Path(root) / path).write_bytes(next((tmp_path / "other").glob("*.parquet")).read_bytes())
    for crc in Path(root).rglob(".*.crc"):
        crc.unlink()
    match = re.escape(f"data file {path} is damaged: its Parquet footer is not the one")
    with pytest.raises(Exception, match=match):
        spark.read.format(FORMAT).load(root).collect()
    if by:  # read by tasks, as Spark itself would not find the partition's values
        with pytest.raises(Exception, match=match):
            mc.read_committed(root, spark=spark).collect()
    stream = spark.readStream.format(FORMAT).load(root).writeStream.foreachBatch(lambda df, _: df.collect())
    query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=match):
        query.awaitTermination()

"""`writer="jvm"`: Spark's own Parquet writer writes, and what is committed is what it was given, once. [SP13] [DF10]"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

import manifestcommit as mc
from manifestcommit.core.commit.retention import writer_of
from manifestcommit.core.schema.fields import Field, Schema
from manifestcommit.core.table import object_names
from manifestcommit.core.table.entries import Entry
from manifestcommit.engine.datafile.writer import WritePlan
from manifestcommit.errors import SchemaMismatchError, StoreError, UsageError
from manifestcommit.spark.write import jvm_writer
from manifestcommit.spark.write.arrow_writer import TaskMessage, Written, unpacked
from manifestcommit.spark.write.jvm_writer import _entry, _take_in, check_rows
from manifestcommit.store.local.local import LocalStore

PARTS = ["a b", "p%20q", "x+y", "d=1", "h#h", "quo'te\"", "é漢", "", None, "..", "/", "__HIVE_DEFAULT_PARTITION__", "x" * 300, "x" * 301]
COLUMNS = (
    "id",
    "element_at(parts, int(id % {parts}) + 1) as `part`",
    "if(id % 5 = 0, double('NaN'), id / 3) as `b c`",
    "named_struct('f', float(id), 'deep', named_struct('t', timestamp_micros(id * 1000003))) as inside",
    "if(id % 4 = 0, null, array(id, null)) as many",
    "map(string(id), double(id)) as pairs",
    "cast(id - 20 as decimal(15,2)) as price",
    "cast(id as decimal(30,4)) as wide",
    "timestamp_micros(3600000000 * (id div {parts} % 2)) as hour",
    "date_add(date'0001-01-01', int(id)) as day",
    "timestamp_ntz'1600-01-01 00:00:00.000001' as ntz",
    "cast(string(id) as binary) as bytes",
)


def everything(spark: Any, rows: int = 56) -> Any:
    listed = spark.range(0, rows, 1, 2).withColumn("parts", F.array(*map(F.lit, PARTS)))
    return listed.selectExpr(*(each.format(parts=len(PARTS)) for each in COLUMNS))


# Column by column, in another order and case than the table's.
GIVEN = {
    "ntz": "timestamp_ntz'1500-01-01 00:00:00.000001' as ntz",
    "far": "if(id = 0, double('NaN'), id / 3) as `far out`",
    "id": "id as ID",
    "s": "named_struct('b', float(id)) as s",
    "dot": "id as `s.b`",
    "day": "date'0001-01-01' as day",
    "ts": "timestamp'1500-01-01 00:00:00' as ts",
    "price": "cast(id as decimal(15,2)) as price",
    "many": "array(id) as many",
}
PHYSICAL = [
    ("Id", "INT64"),
    ("s.b", "INT64"),  # a column with a dot in its name
    ("Far Out", "DOUBLE"),
    ("day", "INT32"),
    ("ts", "INT64"),
    ("ntz", "INT64"),
    ("price", "INT64"),
    ("s.b", "FLOAT"),  # a member
    ("many.list.element", "INT64"),
]
THEIRS = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.sources.useV1SourceList": "",
    "parquet.bloom.filter.enabled": "true",
    "parquet.bloom.filter.enabled#Far Out": "true",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def given_schema() -> pa.Schema:
    return pa.schema(
        {
            "Id": pa.int64(),
            "s.b": pa.int64(),
            "Far Out": pa.float64(),
            "day": pa.date32(),
            "ts": pa.timestamp("us", "UTC"),
            "ntz": pa.timestamp("us"),
            "price": pa.decimal128(15, 2),
            "s": pa.struct({"b": pa.float32()}),
            "many": pa.list_(pa.int64()),
        }
    )


@contextlib.contextmanager
def settings(spark: Any, some: dict[str, str]) -> Iterator[None]:
    """The session's settings for a while."""
    for name, value in some.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in some:
            spark.conf.unset(name)


def files_of(root: str) -> set[str]:
    return {str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file() and "_manifest/versions" not in str(path)}


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("own writer")
def test_every_row_is_committed_once_in_its_own_partition(spark: Any, root: str) -> None:
    """[SP13] [DF1] [DF3] [PT2] Hostile partitions, two columns deep, every kind of type; nothing but the data files remains."""
    data = everything(spark)
    mc.write(data, root, partition_by=["part", "hour"], writer="jvm", watermarks={"s": (0, 56)})
    table = mc.Table(root)
    read = mc.read_committed(root, spark=spark)
    assert Counter(map(str, read.collect())) == Counter(map(str, data.collect()))
    listed = table.files().to_pylist()
    assert len({(each["part"], each["hour"]) for each in listed}) == len(PARTS) * 2
    snapshot = table.snapshot()
    entries = snapshot.added
    assert len(entries) == len(listed)
    assert files_of(root) - {"_manifest/hint"} == {entry.path for entry in entries}
    assert all(writer_of(entry.path, snapshot.table_id) == entry.job for entry in entries)
    assert all(re.fullmatch(r"\d{5}-[0-9a-f]{16}-\d+-" + entry.job + r"\.parquet", entry.path.split("/")[-1]) for entry in entries)
    assert all(entry.digest and entry.sources for entry in entries)
    assert table.verify(deep=True).is_sound
    for entry in entries[:3]:
        footer = pq.read_metadata(f"{root}/{entry.path}")
        chunks = {footer.schema.column(at).path: footer.row_group(0).column(at) for at in range(footer.num_columns)}
        assert {chunk.compression for chunk in chunks.values()} == {"ZSTD"}
        kinds = {path: (chunk.physical_type in ("FLOAT", "DOUBLE"), chunk.is_stats_set) for path, chunk in chunks.items()}
        assert [path for path, kind in kinds.items() if kind == (True, False)] == ["b c", "inside.f", "pairs.key_value.value"]
        assert not [path for path, kind in kinds.items() if kind == (True, True)] and kinds["price"] == (False, True)
    more = data.selectExpr("id", "part", "hour")
    mc.write(more, root, writer="jvm")  # columns that are missing are null
    assert mc.read_committed(root, spark=spark).filter("price is null").count() == 56
    mc.write(data.filter("id < 0"), root, mode="overwrite", writer="jvm")
    assert mc.Table(root).snapshot().totals.files == 0


def test_an_attempt_that_fails_is_not_in_it_and_a_job_that_fails_is_none(spark: Any, root: str, tmp_path: Path) -> None:
    """[SP13] [SP2] The rows of the attempt that counts, once; what a failed job leaves says whose it is."""
    marker = str(tmp_path / "failed")

    def rows(partition: int, numbers: Iterator[int]) -> Iterator[tuple[int]]:
        yield from ((number,) for number in numbers)
        if partition == 1 and not os.path.exists(marker):
            os.mkdir(marker)
            raise OSError("this attempt fails after its last row")

    source = spark.sparkContext.parallelize(range(40), 4)
    mc.write(spark.createDataFrame(source.mapPartitionsWithIndex(rows), "n long"), root, writer="jvm")
    assert os.path.exists(marker)
    assert os.listdir(f"{root}/{object_names.JOBS}") == [], "a folder for each job, for ever: gc deletes files only"
    assert sorted(row.n for row in mc.read_committed(root, spark=spark).collect()) == list(range(40))
    before = files_of(root)
    with pytest.raises(Exception, match="of the job"):
        mc.write(spark.range(9).selectExpr("if(id = 8, raise_error('of the job'), id) as n"), root, writer="jvm")
    assert mc.Table(root).snapshot().totals.rows == 40
    assert files_of(root) == before


def test_each_attempt_to_take_files_in_has_names_of_its_own(spark: Any, root: str) -> None:
    """[SP13] [DF1] An attempt that died after its links has taken no name from the next one, and gc can tell its files."""
    mc.write(spark.range(2), root)
    schema = mc.Table(root).snapshot().schema
    job = object_names.job_id(1, mc.Table(root).snapshot().table_id, bytes(16))
    scratch = f"{root}/{object_names.JOBS}{job}/rows-0"
    os.makedirs(scratch)
    pq.write_table(pq.read_table(next(Path(root).glob("*.parquet"))), f"{scratch}/part.parquet")
    plan = WritePlan(url=f"file://{root}", job=job, schema=schema)

    def twice(parts: Iterator[str]) -> Iterator[str]:
        for _ in range(2):
            for told in _take_in(plan, scratch, ["part.parquet"]):
                yield unpacked(TaskMessage(told)).entries[0].path

    first, second = spark.sparkContext.parallelize([0], 1).mapPartitions(twice).collect()
    assert first != second and {first, second} < files_of(root)
    assert writer_of(first, object_names.parse_job_id(job).table_id) == job
    assert object_names.job_of_handed(f"{object_names.JOBS}{job}/rows-0/part.parquet") == job


def test_what_the_session_says_of_files_is_meant_for_others(spark: Any, tmp_path: Path) -> None:
    """[SP13] [DF5] [DF6] [DF11] INT96, another calendar, another committer, filters on floats; names in any case and order, with dots."""
    root = str(tmp_path / "table")
    mc.create_table(root, given_schema(), properties={"write.bloom-filter-columns": "Id,s.b"})
    data = spark.range(4).selectExpr(*GIVEN.values())
    with settings(spark, THEIRS):
        mc.write(data, root, writer="jvm")
    table = mc.Table(root)
    read = mc.read_committed(root, spark=spark).select(*(f"`{name}`" for name in data.columns))
    assert Counter(map(str, read.collect())) == Counter(map(str, data.collect()))
    fields = table.snapshot().schema.fields
    ids, member = {field.name: field.id for field in fields}, fields[7].type.fields[0].id
    for entry in table.snapshot().added:
        footer = pq.read_metadata(f"{root}/{entry.path}")
        chunks = [footer.row_group(0).column(at) for at in range(footer.num_columns)]
        assert [(chunk.path_in_schema, chunk.physical_type) for chunk in chunks] == PHYSICAL
        assert {chunk.compression for chunk in chunks} == {"ZSTD"}
        assert [chunk.path_in_schema for chunk in chunks if chunk.bloom_filter_offset is not None] == ["Id"]
        assert not [chunk for chunk in chunks if chunk.physical_type in ("FLOAT", "DOUBLE") and chunk.is_stats_set] and entry.digest
        assert not [each for each in footer.metadata if b"legacy" in each.lower()]
        inside = pq.read_schema(f"{root}/{entry.path}")
        assert {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in inside} == ids
        assert int(inside.field("s").type.field("b").metadata[b"PARQUET:field_id"]) == member
    assert {entry.columns[ids["day"]].min for entry in table.snapshot().added} == {"0001-01-01"}
    assert mc.Table(root).dataset().to_table().column("day").to_pylist() == [dt.date(1, 1, 1)] * 4


def test_who_observes_the_data_does_not_wait_for_ever(spark: Any, root: str) -> None:
    """[SP13] The write runs in a session of its own, which knew nothing of the caller's observations; two, one below a join."""
    first, second = Observation(), Observation("na me")
    some = spark.range(7).observe(first, F.count(F.lit(1)).alias("c"), F.max("id").alias("m"))
    mc.write(some.join(spark.range(5), "id").observe(second, F.sum("id").alias("s")), root, writer="jvm")
    assert all(each._jo.future().isCompleted() for each in (first, second))  # else the next line would not end
    assert (first.get, second.get) == ({"c": 7, "m": 6}, {"s": 10})
    third = Observation()
    kept = spark.range(3).observe(third, F.count(F.lit(1)).alias("c")).cache()
    assert kept.count() == 3
    mc.write(kept.union(kept), root, writer="jvm")  # what was told before is not told otherwise
    assert third.get == {"c": 3} and mc.Table(root).snapshot().totals.rows == 5 + 6
    kept.unpersist()


def test_what_a_killed_driver_leaves_is_seen_by_no_one_and_goes_with_gc(spark: Any, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP13] [LY5] [GC5] Killed when Spark's writer has ended and no file is linked yet."""

    class Killed(BaseException):
        pass

    def kill(_: str) -> list[str]:
        raise Killed

    mc.write(spark.range(3), root)
    with monkeypatch.context() as patch:
        patch.setattr(jvm_writer, "_parts", kill)
        patch.setattr(jvm_writer.shutil, "rmtree", lambda *_, **__: None)  # who is killed removes nothing
        with pytest.raises(Killed):
            mc.write(spark.range(5), root, writer="jvm", key="k")
    left = {path for path in files_of(root) if path.startswith(object_names.JOBS)}
    assert len([path for path in left if path.endswith(".parquet")]) == 2
    assert mc.Table(root).verify(deep=True).is_sound
    mc.gc(root)
    assert left <= files_of(root)
    mc.write(spark.range(5), root, writer="jvm", key="k")
    assert mc.read_committed(root, spark=spark).count() == 8
    for _ in range(2):
        mc.gc(root, grace="0s")
    assert not {path for path in files_of(root) if path.startswith(object_names.JOBS)}
    assert mc.read_committed(root, spark=spark).count() == 8


def test_a_file_that_gets_lost_on_the_way_is_no_commit(spark: Any, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP13] One that Spark's writer wrote and no task took in."""
    parts = jvm_writer._parts
    monkeypatch.setattr(jvm_writer, "_parts", lambda scratch: parts(scratch)[1:])
    with pytest.raises(StoreError, match="5 rows"):
        mc.write(spark.range(5), root, writer="jvm")
    assert mc.Table(root).snapshot().totals.rows == 0


def test_no_rows_are_a_commit_and_a_null_where_none_may_be_is_none(spark: Any, tmp_path: Path) -> None:
    """[SP13] [CM16] [SC3] Spark may plan a write of no rows without a task; the watermark moves all the same, once."""
    root = str(tmp_path / "table")
    mc.create_table(root, pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    for at, nothing in enumerate(("where false", "limit 0", "where id > 3")):
        for _ in range(2):
            mc.write(spark.sql(f"select id from range(3) {nothing}"), root, writer="jvm", key=nothing, watermarks={"s": (at, at + 1)})
    assert mc.Table(root).snapshot().watermarks == {"s": 3}
    assert mc.Table(root).snapshot().totals.files == 0
    with pytest.raises(SchemaMismatchError, match="null"):
        mc.write(spark.range(4).selectExpr("nullif(id, 3) as id"), root, writer="jvm")
    assert mc.Table(root).snapshot().totals.rows == 0


def test_what_is_taken_in_is_durable_and_takes_no_one_elses_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP13] [DF2] [ST2] The bytes that another process wrote, and the name; no copy of a file of another file system."""
    store = LocalStore(str(tmp_path))
    synced = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.fstat(file).st_ino), sync(file)))
    (tmp_path / "part").write_bytes(b"rows")
    store.take_in(str(tmp_path / "part"), "day=1/c.parquet")
    places = ("part", "day=1", ".")
    assert {(tmp_path / name).stat().st_ino for name in places} <= set(synced)
    assert synced.index((tmp_path / "part").stat().st_ino) < len(synced) - 1 and synced[-1] == (tmp_path / "day=1").stat().st_ino
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as other, pytest.raises(StoreError, match="device"):
        store.take_in(other.name, "day=1/a.parquet")
    (tmp_path / "b").write_bytes(b"new")
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        store.take_in(str(tmp_path / "b"), "a")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_file_whose_statistics_leave_nan_out_is_one_of_others(tmp_path: Path) -> None:
    """[DF10] [DF6] Spark cannot be told to leave them out of a column with a dot in its name; by its missing digest readers know."""
    schema = Schema(fields=(Field(id=1, name="a.b", type="double"),))
    plan = WritePlan(url=f"file://{tmp_path}", job=object_names.job_id(1, "0" * 16, bytes(16)), schema=schema)
    table = pa.table({"a.b": [1.0, float("nan")]})
    pq.write_table(table, tmp_path / "told.parquet", write_statistics=False)
    pq.write_table(table, tmp_path / "left out.parquet")
    assert _entry(plan, str(tmp_path), "told.parquet").digest is not None
    assert _entry(plan, str(tmp_path), "left out.parquet").digest is None


def test_files_that_hold_other_rows_than_spark_had_are_never_committed() -> None:
    """[SP13] Of a file that a late attempt took away, nothing else would tell."""
    entries = (
        Entry(path="a.parquet", partition=(), rows=3, bytes=1, job="j"),
        Entry(path="b.parquet", partition=(), rows=4, bytes=1, job="j"),
    )
    check_rows(7, Written(entries=entries), "file:///t")
    for rows in (6, 8):
        with pytest.raises(StoreError, match=f"{rows} rows"):
            check_rows(rows, Written(entries=entries), "file:///t")


def test_files_of_a_write_that_did_not_end_are_not_taken_for_all(tmp_path: Path) -> None:
    """[SP13] Without Spark's mark nobody knows whether more was to come."""
    (tmp_path / "part-0.parquet").write_bytes(b"rows")
    with pytest.raises(StoreError, match="did not say so"):
        jvm_writer._parts(str(tmp_path))
    (tmp_path / "_SUCCESS").touch()
    assert jvm_writer._parts(str(tmp_path)) == ["part-0.parquet"]


def test_what_it_cannot_do_is_refused_before_anything_is_done(spark: Any, tmp_path: Path) -> None:
    """[SP13] [SP5]"""
    root = str(tmp_path / "table")
    data = spark.range(3)
    for match, refused in {
        "recoverable": lambda: mc.write(data, root, key="k", recoverable=True, writer="jvm"),
        "target_file_size": lambda: mc.write(data, root, target_file_size=1 << 20, writer="jvm"),
        "mounted": lambda: mc.write(data, "memory://elsewhere/table", writer="jvm"),
        "Spark DataFrames": lambda: mc.write(pa.table({"id": [1]}), root, writer="jvm"),
        '"arrow" or "jvm"': lambda: mc.write(data, root, writer="native"),  # type: ignore[arg-type]  # it is refused
        "void": lambda: mc.write(data.selectExpr("null as n"), root, writer="jvm"),
        "variant": lambda: mc.write(data.selectExpr("array(parse_json('1')) as v"), root, writer="jvm"),
        "interval": lambda: mc.write(data.selectExpr("interval '3' day as i"), root, writer="jvm"),
        "order of its own": lambda: mc.write(data.selectExpr("'a' collate UTF8_LCASE as c"), root, writer="jvm"),
    }.items():
        with pytest.raises(UsageError, match=match):
            refused()
    with settings(spark, {"parquet.crypto.factory.class": "a.Factory"}), pytest.raises(UsageError, match="encrypted"):
        mc.write(data, root, writer="jvm")
    core, name = spark.sparkContext._conf, "spark.hadoop.outputCommitCoordination.enabled"
    core.set(name, "false")
    try:
        with pytest.raises(UsageError, match="two attempts"):
            mc.write(data, root, writer="jvm")
    finally:
        core.set(name, "true")
    assert not os.path.exists(root)
    mc.write(data, str(tmp_path / "other"))
    with pytest.raises(UsageError, match="int"):
        mc.write(data.selectExpr("int(id) as id"), str(tmp_path / "other"), writer="jvm")
    with pytest.raises(SchemaMismatchError):
        mc.write(data.selectExpr("id", "id as more"), str(tmp_path / "other"), writer="jvm")

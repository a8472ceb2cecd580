"""`format("manifestcommit")`: what it does, and what it refuses before any task starts. [SP4] [SP5]"""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import manifestcommit as mc
from manifestcommit.spark.datasource import ManifestCommitDataSource

pytestmark = pytest.mark.usefixtures("registered")

FORMAT = "manifestcommit"


def rows(start: int, stop: int) -> list[tuple[int, str]]:
    return [(n, f"2013-01-0{n % 2 + 1}") for n in range(start, stop)]


def frame(spark: Any, start: int, stop: int) -> Any:
    return spark.createDataFrame(rows(start, stop), "n long, day string").repartition(2)


def load(spark: Any, path: str, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format(FORMAT).options(**options).load(path).collect())


@pytest.fixture
def table(spark, root: str) -> str:
    """Ten rows, partitioned by day, written through the format itself."""
    frame(spark, 0, 10).write.format(FORMAT).option("partitionBy", "day").option("key", "first").mode("append").save(root)
    return root


@pytest.fixture
def tasks_started(spark) -> Callable[[], int]:
    """How many tasks Spark started since the fixture was set up; asks the driver's own bookkeeping."""
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))

    def count() -> int:
        jobs = set(tracker.getJobIdsForGroup(None)) - before
        stages = [stage for job in jobs if (info := tracker.getJobInfo(job)) for stage in info.stageIds]
        infos = [tracker.getStageInfo(stage) for stage in stages]
        return sum(info.numActiveTasks + info.numCompletedTasks + info.numFailedTasks for info in infos if info)

    return count


# --- writing --------------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_append_commits_once_per_key(spark, table: str) -> None:
    """[SP1] [KY2] [OB15] One version per write; the same key again changes nothing, whatever rows come with it."""
    assert load(spark, table) == rows(0, 10)
    version = mc.Table(table).snapshot().version
    writer = frame(spark, 10, 20).write.format(FORMAT).mode("append")
    writer = writer.option("message", "ten more").option("metadata", json.dumps({"Git": "4d6b4d9"}))
    writer.option("key", "second").option("watermarks", json.dumps({"numbers": [10, 20]})).save(table)
    assert load(spark, table) == rows(0, 20)
    assert mc.Table(table).snapshot().version == version + 1
    said = mc.Table(table).history(1)[0]
    assert (said["message"], said["metadata"]) == ("ten more", {"Git": "4d6b4d9"}) and said["author"]["program"]
    assert mc.Table(table).watermarks() == {"numbers": 20}
    writer.option("key", "second").option("watermarks", json.dumps({"numbers": [10, 20]})).save(table)
    assert mc.Table(table).snapshot().version == version + 1
    assert load(spark, table) == rows(0, 20)


@pytest.mark.thorough
def test_the_partitioning_option_is_the_tables(spark, table: str, tmp_path: Path) -> None:
    paths = mc.Table(table).files().column("path").to_pylist()
    assert {path.split("/")[0] for path in paths} == {"day=2013-01-01", "day=2013-01-02"}
    other = str(tmp_path / "commas")
    df = spark.createDataFrame([(1, "x")], "`a,b` long, c string")
    df.write.format(FORMAT).option("partitionBy", json.dumps(["a,b", "c"])).mode("append").save(other)
    assert mc.Table(other).files().column("path").to_pylist()[0].startswith("a,b=1/c=x/")


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_overwrite_replaces_what_is_said(spark, table: str) -> None:
    """[CF3] [CF4] [CF5] The partitions written, those named, or everything."""
    one_day = spark.createDataFrame([(100, "2013-01-01")], "n long, day string")
    one_day.write.format(FORMAT).option("overwrite", "dynamic").mode("overwrite").save(table)
    second_day = [row for row in rows(0, 10) if row[1] == "2013-01-02"]
    assert load(spark, table) == sorted([*second_day, (100, "2013-01-01")])
    one_day.write.format(FORMAT).option("overwrite", '{"day": "2013-01-01"}').mode("overwrite").save(table)
    assert load(spark, table) == sorted([*second_day, (100, "2013-01-01")])
    one_day.write.format(FORMAT).mode("overwrite").save(table)
    assert load(spark, table) == [(100, "2013-01-01")]
    assert load(spark, table, version=mc.Table(table).snapshot().version - 1) != load(spark, table)


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_a_gap_is_told_and_nothing_is_committed(spark, table: str) -> None:
    """[WM2] The commit runs in a process of Spark's; its refusal reaches the user with our words."""
    version = mc.Table(table).snapshot().version
    writer = frame(spark, 10, 11).write.format(FORMAT).mode("append")
    writer.option("watermarks", '{"s": [0, 5]}').save(table)
    with pytest.raises(Exception, match="WatermarkGapError"):
        writer.option("watermarks", '{"s": [6, 7]}').save(table)
    assert mc.Table(table).snapshot().version == version + 1


REFUSED: dict[str, tuple[dict[str, str], str, str]] = {
    "replaceWhere": ({"replaceWhere": "day = '2013-01-01'"}, "overwrite", "takes no option replaceWhere"),
    "partitionOverwriteMode": ({"partitionOverwriteMode": "dynamic"}, "overwrite", "takes no option partitionOverwriteMode"),
    "unknown option": ({"compresion": "zstd"}, "append", "compresion"),
    "overwrite of an append": ({"overwrite": "dynamic"}, "append", "overwrite"),
    "conflict of an append": ({"conflict": "blind"}, "append", "conflict"),
    "not JSON": ({"watermarks": "{"}, "append", "watermarks"),
    "not ranges": ({"watermarks": '{"s": 5}'}, "append", "watermarks"),
    "not a partition": ({"overwrite": '"day"'}, "overwrite", "overwrite"),
    "not a number": ({"targetFileSize": "large"}, "append", "targetFileSize"),
    "not a flag": ({"mergeSchema": "yes"}, "append", "mergeSchema"),
    "another partitioning": ({"partitionBy": "n"}, "append", "partitioned by day"),
    "wrong conflict": ({"conflict": "maybe"}, "overwrite", "serializable"),
}


def test_refused_where_spark_plans(spark, table: str) -> None:
    """[SP5] A message of ours, no version, no file."""
    before, struct = everything_below(table), spark.range(10, 12).selectExpr("id as n", "'2013-01-01' as day").schema
    for options, mode, said in REFUSED.values():
        with pytest.raises(mc.errors.ManifestCommitError, match=said):
            ManifestCommitDataSource({"path": table, **options}).writer(struct, mode == "overwrite")
    assert everything_below(table) == before


def everything_below(path: str) -> set[str]:
    return {str(file) for file in Path(path).rglob("*")}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select id as n, id as day from range(2)", "day"),
        ("select 'x' as n, '2013-01-01' as day", "n"),
        ("select id as n, '2013-01-01' as day, interval '1' month as m from range(2)", "interval"),
        ("select id as n, '2013-01-01' as day, time'12:00:00' as t from range(2)", "time"),
        ("select id as n, '2013-01-01' as day, id as N from range(2)", "N"),
    ],
)
def test_data_that_does_not_fit_is_refused_before_any_task_starts(spark, table: str, tasks_started, query: str, said: str) -> None:
    """[SP5] [SC2] [SC3]"""
    before = everything_below(table)
    with pytest.raises(Exception, match=said):
        spark.sql(query).write.format(FORMAT).option("mergeSchema", "true").mode("append").save(table)
    assert tasks_started() == 0
    assert everything_below(table) == before


@pytest.mark.thorough
def test_a_sessions_dynamic_overwrite_is_refused_before_the_commit(spark, table: str) -> None:
    """[SP5] [CF5] Spark would hand it on as an overwrite of everything; with the option that says what is meant it goes, and the library's
    own call says it by its arguments."""
    one_day = spark.createDataFrame([(100, "2013-01-01")], "n long, day string")
    version = mc.Table(table).snapshot().version
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        with pytest.raises(Exception, match="partitionOverwriteMode is dynamic"):
            one_day.write.format(FORMAT).mode("overwrite").save(table)
        assert mc.Table(table).snapshot().version == version
        one_day.write.format(FORMAT).option("overwrite", "dynamic").mode("overwrite").save(table)
        assert len(load(spark, table)) == 6
        one_day.write.format(FORMAT).option("overwrite", "all").mode("overwrite").save(table)
        assert load(spark, table) == [(100, "2013-01-01")]
        frame(spark, 0, 10).write.format(FORMAT).mode("append").save(table)
        mc.write(one_day, table, mode="overwrite")
        assert load(spark, table) == [(100, "2013-01-01")]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["error", "ignore", None])
def test_other_save_modes_are_refused(spark, table: str, mode: str | None) -> None:
    """[SP5]"""
    writer = frame(spark, 10, 20).write.format(FORMAT)
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        (writer.mode(mode) if mode else writer).save(table)
    assert load(spark, table) == rows(0, 10)


@pytest.mark.thorough
def test_tables_of_a_catalog_or_in_memory_and_spark_s_own_partitioning_are_refused(spark, table: str) -> None:
    """[SP5] Those of a catalog arrive without a path."""
    with pytest.raises(Exception, match="memory of one process"):
        frame(spark, 0, 1).write.format(FORMAT).mode("append").save("memory://x")
    with pytest.raises(Exception, match=r"partition"):
        frame(spark, 0, 1).write.format(FORMAT).partitionBy("day").mode("append").save(table)
    with pytest.raises(Exception, match="needs a path"):
        frame(spark, 0, 1).write.format(FORMAT).mode("append").saveAsTable("somewhere")
    with pytest.raises(Exception, match="path"):
        spark.sql(f"create table elsewhere using {FORMAT} as select 1 as n")
    with pytest.raises(Exception, match="needs a path"):
        spark.read.format(FORMAT).load()


# --- reading --------------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_a_cached_version_is_not_taken_for_another(spark, table: str) -> None:
    """[SP4] [RD2] Spark caches by plan; two versions of one table are two plans. What commits after load() is in no frame derived later."""
    old = mc.read_committed(table, spark=spark).cache()
    old_too = spark.read.format(FORMAT).load(table).cache()
    try:
        assert (old.count(), old_too.count()) == (10, 10)
        frame(spark, 10, 20).write.format(FORMAT).mode("append").save(table)
        assert mc.read_committed(table, spark=spark).count() == 20
        assert spark.read.format(FORMAT).load(table).count() == 20
        assert (old.count(), old_too.count()) == (10, 10)
        assert old.join(mc.read_committed(table, spark=spark), "n").count() == 10
        assert old_too.filter("n >= 0").union(spark.read.format(FORMAT).load(table)).count() == 30
    finally:
        old.unpersist()
        old_too.unpersist()


@pytest.mark.thorough
def test_time_travel(spark, table: str) -> None:
    """[RD4]"""
    version = mc.Table(table).snapshot().version
    frame(spark, 10, 20).write.format(FORMAT).mode("append").save(table)
    between = dt.datetime.fromtimestamp(mc.Table(table).snapshot().committed_at / 1e6, dt.UTC) - dt.timedelta(microseconds=1)
    assert load(spark, table, version=version) == rows(0, 10)
    assert load(spark, table, asOf=between.isoformat()) == rows(0, 10)
    assert load(spark, table, version=version + 1) == rows(0, 20)
    with pytest.raises(Exception, match="VersionNotFoundError"):
        load(spark, table, version=99)
    with pytest.raises(Exception, match="no tag"):
        load(spark, table, tag="none")
    with pytest.raises(Exception, match="give one of"):
        load(spark, table, version=1, tag="x")
    with pytest.raises(Exception, match="TableNotFoundError"):
        load(spark, table + "-not")


@pytest.mark.thorough
def test_chosen_columns_are_all_that_is_read(spark, table: str) -> None:
    df = spark.read.format(FORMAT).option("columns", "day").load(table)
    assert df.columns == ["day"] and df.count() == 10
    swapped = spark.read.format(FORMAT).option("columns", '["day", "n"]').load(table)
    assert sorted(map(tuple, swapped.collect())) == sorted((day, n) for n, day in rows(0, 10))
    with pytest.raises(Exception, match=r"no column .x."):
        spark.read.format(FORMAT).option("columns", "x").load(table)


@pytest.mark.thorough
def test_no_row_is_missing_after_a_filter_where_the_session_pushes_filters(spark, table: str) -> None:
    """[SP12] Spark plans the files of a DataFrame once, with the filter of whichever query came before."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        df = spark.read.format(FORMAT).load(table)
        one, other = df.filter("day = '2013-01-01'"), df.filter("day = '2013-01-02'")
        assert (one.count(), df.count(), one.union(other).count(), df.count()) == (5, 10, 10, 10)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.thorough
def test_an_unknown_read_option_and_a_schema_of_ones_own_are_refused(spark, table: str) -> None:
    """[SP5] With such a schema Spark would not pin a version, and the columns would be anyone's guess."""
    with pytest.raises(Exception, match="takes no schema of your own"):
        spark.read.format(FORMAT).schema("n int").load(table).collect()
    with pytest.raises(Exception, match="does not know the option"):
        load(spark, table, mergeSchema="true")
    with pytest.raises(Exception, match=r"does not know the option versionasof; it knows .*version"):
        load(spark, table, versionAsOf="1")


@pytest.mark.versions
@pytest.mark.needs("discovery")
@pytest.mark.thorough
def test_the_format_is_found_without_registering(spark, table: str) -> None:
    """A new session knows the format by the module `pyspark_manifestcommit` on its path."""
    fresh = spark.newSession()
    assert fresh.read.format(FORMAT).load(table).count() == 10


@pytest.mark.thorough
def test_an_overwrite_replaces_the_columns_and_the_partitioning(spark: Any, root: str) -> None:
    """[SC10] [SP5]"""
    spark.range(3).selectExpr("id", "'a' AS day").write.format(FORMAT).option("partitionBy", "day").mode("append").save(root)
    df = spark.range(2).selectExpr("CAST(id AS string) AS id", "id AS number")
    replacing = df.write.format(FORMAT).option("replaceSchema", "true").option("partitionBy", "number")
    replacing.mode("overwrite").save(root)
    assert sorted(map(tuple, mc.read_committed(root).select("id", "number").collect())) == [("0", 0), ("1", 1)]
    assert mc.read_committed(root, version=mc.Table(root).version - 1).columns == ["id", "day"]

"""A later filter or join on partition columns prunes files, and each value is the one that the entry holds. [RD43]"""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from tests.spark.clusters import HOSTILE
from tests.spark.settings import setting

import manifestcommit as mc
from manifestcommit.spark import dataframe

DAYS = [dt.date(2013, 1, 1) + dt.timedelta(n) for n in range(40)]
STRINGS = [
    "01", "1", "1.0", "-0", "a b", " ", "%2F", "%", "a/b", "x=y", "#", "?", "+", "quo'te\"", "é漢🎉", "e\u0301", "\\", "{1}[2]*",
    "a:b", "new\nline",
    "\x7f", "2013-01-01", "true", "NULL", "NaN", ".", "..", "_x", "~", "tab\t", None,
]  # fmt: skip
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "strings": (pa.string(), STRINGS),
    "integers": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), None]),
    "longs": (pa.int64(), [0, 2**53 + 1, 2**63 - 1, -(2**63), None]),
    "dates": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1970, 1, 1), dt.date(9999, 12, 31), None]),
}
# Each of these is read from the files, as before.
DOUBTFUL: dict[str, tuple[pa.DataType, list[Any]]] = {
    "empty text": (pa.string(), ["", "a"]), "empty text and null": (pa.string(), ["", None, "a"]),
    "null's name": (pa.string(), ["__HIVE_DEFAULT_PARTITION__", None]),
    "null's name alone": (pa.string(), ["__HIVE_DEFAULT_PARTITION__", "a"]), "the text null": (pa.string(), ["null", None, "a"]),
    "long texts": (pa.string(), ["x" * 300 + "1", "x" * 300 + "2", "é" * 150]), "booleans": (pa.bool_(), [True, False, None]),
    "shorts": (pa.int16(), [1, -1, None]), "decimals": (pa.decimal128(5, 2), ["1.20", "-0.10", None]),
    "times": (pa.timestamp("us", "UTC"), [dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC), None]),
    "local times": (pa.timestamp("us"), [dt.datetime(2013, 1, 1, 12), None]), "far dates": (pa.date32(), [2932897, -719163]),
}  # fmt: skip


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a file for each of 40 days."""
    root = tmp_path_factory.mktemp("days") / "a b=c" / "é t%20"
    mc.write(pa.table({"n": list(range(40)), "day": DAYS}), root, partition_by="day")
    assert mc.Table(root).files().num_rows == 40
    return root


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Below a folder with a hostile name; the last one must not look like a partition."""
    return str(tmp_path / HOSTILE / "é t%20#")


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Any], Any]:
    """Reads a table's values from its files, none from paths."""

    def read(root: Path, spark: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(dataframe, "folders_in", lambda *_: None)
            return mc.read_committed(root, spark=spark)

    return read


def scans_of(df: Any) -> list[Any]:
    """The nodes of the plan that was run which read files."""
    found, waiting = [], [df._jdf.queryExecution().executedPlan()]
    while waiting:
        node = waiting.pop()
        name = node.getClass().getSimpleName()
        found += [node] if name == "FileSourceScanExec" else []
        if name == "AdaptiveSparkPlanExec":
            waiting.append(node.executedPlan())
        elif name.endswith("QueryStageExec"):
            waiting.append(node.plan())
        children = node.children()
        waiting += [children.apply(index) for index in range(children.size())]
    return found


def files_read(df: Any) -> list[int]:
    return sorted(node.metrics().apply("numFiles").value() for node in scans_of(df))


def prunes(df: Any) -> bool:
    """Whether Spark knows partition columns of the DataFrame."""
    (node,) = scans_of(df)
    return bool(node.relation().partitionSchema().size())


def tasks_of(spark: Any, run: Callable[[], Any]) -> tuple[Any, int]:
    """What it returns, and how many tasks Spark started for it."""
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    result = run()
    jobs = set(tracker.getJobIdsForGroup(None)) - before
    stages = [stage for job in jobs if (info := tracker.getJobInfo(job)) for stage in info.stageIds]
    return result, sum(info.numTasks for stage in stages if (info := tracker.getStageInfo(stage)))


def rows_of(df: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.selectExpr("n", "hex(cast(p as string)) p").collect()))


@pytest.mark.versions
def test_a_later_filter_reads_one_file_in_one_task(spark: Any, days: Path) -> None:
    """[RD43] Forty days, one file each: Spark gets the filter on partitions, and opens one file."""
    df = mc.read_committed(days, spark=spark).where("day = '2013-01-05'")
    rows, tasks = tasks_of(spark, df.collect)
    assert [tuple(row) for row in rows] == [(4, dt.date(2013, 1, 5))]
    assert tasks == 1 and files_read(df) == [1]
    assert "(day" in scans_of(df)[0].partitionFilters().toString()


@pytest.mark.versions
def test_a_join_prunes_by_the_other_side(spark: Any, days: Path, root: str) -> None:
    """[RD43] Dynamic partition pruning: the days of a small table that a filter has left."""
    mc.write(pa.table({"d": [DAYS[3], DAYS[5]], "what": ["wanted", "not"]}), root)
    small, df = mc.read_committed(root, spark=spark), mc.read_committed(days, spark=spark)
    joined = df.join(small.where("what = 'wanted'"), df.day == small.d).select("n")
    assert [row.n for row in joined.collect()] == [3]
    assert files_read(joined) == [1, 1]


@pytest.mark.versions
@pytest.mark.parametrize("name", [*VALUES, *DOUBTFUL])
def test_every_value_is_that_of_the_entry(spark: Any, root: str, as_before: Any, name: str) -> None:
    """[RD43] [DF4] Row by row as when values are read from the files; plain values prune, of doubtful ones none does."""
    type, values = (VALUES | DOUBTFUL)[name]
    column = pa.array(values, pa.string() if pa.types.is_decimal(type) else pa.int32() if name == "far dates" else type).cast(type)
    mc.write(pa.table({"n": range(len(values)), "p": column}), root, partition_by="p")
    df, before = mc.read_committed(root, spark=spark), as_before(root, spark)
    assert (df.schema, rows_of(df)) == (before.schema, rows_of(before))
    assert len(rows_of(df)) == len(values)
    assert (prunes(df), prunes(before)) == (name in VALUES, False)
    if name in VALUES:
        for row in before.collect():
            value = F.lit(row.p.isoformat()).cast("date") if isinstance(row.p, dt.date) else row.p  # py4j takes no year 1
            some = df.where(df.p.eqNullSafe(value))
            assert some.collect() == [row] and files_read(some) == [1], row


def test_several_columns_keep_their_order_and_names(spark: Any, root: str, as_before: Any) -> None:
    """[RD43] Columns between others, one renamed, with characters that paths escape, in a partition of two files."""
    table = pa.table({"a/b é": ["x", "y", None], "n": [1, 2, 3], "Day": DAYS[:3], "p": [7, None, 7]})
    for _ in range(2):
        mc.write(table, root, partition_by=["Day", "a/b é", "p"])
    mc.Table(root).rename_column("a/b é", "new.`name`")
    df, before = mc.read_committed(root, spark=spark), as_before(root, spark)
    assert prunes(df) and df.schema == before.schema
    assert sorted(df.collect(), key=str) == sorted(before.collect(), key=str)
    some = df.where("`new.``name```= 'y' AND day > '2013-01-01'")
    assert [row.n for row in some.collect()] == [2, 2] and files_read(some) == [2]


@pytest.mark.parametrize("folder", ["p=1", "=x", "day=2013-01-01", "x=1/y=2"])
def test_a_table_in_a_folder_that_looks_like_a_partition(spark: Any, tmp_path: Path, as_before: Any, folder: str) -> None:
    """[RD43] Spark takes the folder above for a partition column, too: then all values are read from the files."""
    root = tmp_path / folder
    mc.write(pa.table({"n": [1, 2], "day": DAYS[:2]}), root, partition_by="day")
    df = mc.read_committed(root, spark=spark)
    assert not prunes(df)
    assert sorted(map(tuple, df.collect())) == [(1, DAYS[0]), (2, DAYS[1])] and df.columns == ["n", "day"]


SETTINGS = {
    "spark.sql.caseSensitive": "true", "spark.sql.sources.validatePartitionColumns": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false", "spark.sql.optimizer.metadataOnly": "true",
    "spark.sql.sources.useV1SourceList": "", "spark.sql.streaming.fileStreamSink.ignoreMetadata": "true",
    "spark.sql.parquet.enableVectorizedReader": "false", "spark.sql.files.ignoreMissingFiles": "true", "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "America/Los_Angeles",
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_of_the_session_changes_a_row(spark: Any, days: Path, name: str) -> None:
    """[RD43] [SP4]"""
    with setting(spark, name, SETTINGS[name]):
        df = mc.read_committed(days, spark=spark)
        assert sorted(map(tuple, df.collect())) == list(zip(range(40), DAYS, strict=True))
        assert sorted(row.day for row in df.select("day").distinct().collect()) == DAYS


@pytest.mark.thorough
def test_files_of_others_are_read_beside(spark: Any, root: str) -> None:
    """[RD43] [DF4] One that was added has its values from its entry, wherever it lies; our own are pruned all the same."""
    mc.write(pa.table({"n": [1, 2], "p": ["a", "b"]}), root, partition_by="p")
    pq.write_table(pa.table({"n": [3], "p": ["b"]}), Path(root) / "p=a-other.parquet")
    with mc.begin(root) as job:
        job.add_files(["p=a-other.parquet"])
    df = mc.read_committed(root, spark=spark)
    assert sorted(map(tuple, df.collect())) == [(1, "a"), (2, "b"), (3, "b")]
    some = df.where("p = 'b'")
    assert sorted(row.n for row in some.collect()) == [2, 3] and files_read(some) == [1]


@pytest.mark.thorough
@pytest.mark.versions
def test_what_spark_has_read_is_compared_with_the_entries(spark: Any, days: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[RD43] A value, a folder or a column that differs: the values are read from the files."""
    usual = dataframe.folders_in

    def changed(**changes: Any) -> Callable[..., Any]:
        def found(*arguments: Any) -> Any:
            folders = usual(*arguments)
            return type(folders)(**{"columns": folders.columns, "values": folders.values, **{k: v(folders) for k, v in changes.items()}})

        return found

    lies = [
        {"values": lambda each: {**each.values, "day=2013-01-01": ("2013-01-02",)}},
        {"values": lambda each: {**each.values, "day=2014-01-01": ("2014-01-01",)}},
        {"values": lambda each: {name: value for name, value in each.values.items() if name != "day=2013-01-01"}},
        {"columns": lambda _: (("Day", "date"),)},
        {"columns": lambda _: (("day", "string"),)},
    ]
    assert prunes(mc.read_committed(days, spark=spark))
    for lie in lies:
        monkeypatch.setattr(dataframe, "folders_in", changed(**lie))
        df = mc.read_committed(days, spark=spark)
        assert not prunes(df) and df.count() == 40

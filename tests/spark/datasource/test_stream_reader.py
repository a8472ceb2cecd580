"""`readStream.format("manifestcommit")` under Spark itself: each file in one batch, in order, whatever stops the query. [SP8]"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.kit.tables import change_of, job_with, session
from tests.spark.clusters import REPO, end, environment, wait_for

import manifestcommit as mc
from manifestcommit.commits.commit_loop import commit, create_table
from manifestcommit.errors import UsageError
from manifestcommit.format.change import Write
from manifestcommit.format.fields import NO_COLUMNS
from manifestcommit.log.version_chain import open_head
from manifestcommit.spark.datasource import ManifestCommitDataSource
from manifestcommit.store import open_store

pytestmark = pytest.mark.usefixtures("registered")

FORMAT = "manifestcommit"
DAYS = ["a b%20", "k=v#x?", "'\"ü漢", ""]  # in this order of their folders, but for the last, which Hive names
Batches = list[tuple[int, list[int]]]


def add(root: str, first: int, files: int = 1, **columns: Any) -> int:
    """Commit one row per file, with the ids from `first` on, in the order in which a stream gives them. The version."""
    days = sorted(DAYS[:files], key=lambda day: day or "__HIVE")
    data = {"id": list(range(first, first + files)), "the `day`, %": days} | {name: [value] * files for name, value in columns.items()}
    return mc.write(pa.table(data), root, partition_by=["the `day`, %"], merge_schema=True).version


def replace_all(root: str, operation: str = "replace") -> int:
    """What a compaction will do: every live file goes, and files with the same rows come."""
    store = open_store(root)
    job = job_with(store, mc.Table(root).dataset().to_table())
    made: Write = msgspec.structs.replace(
        change_of(job), operation=operation, remove=frozenset(mc.Table(root).files().column("path").to_pylist())
    )
    outcome = commit(session(store), open_head(store), made)
    assert outcome.kind == "committed" and outcome.version is not None
    return outcome.version


class Query:
    """A streaming query that remembers the ids of every batch."""

    def __init__(
        self, spark: Any, root: str, checkpoint: Path, *, trigger: dict[str, Any] | None = None, df: Any = None, **options: Any
    ) -> None:
        self.rows: list[tuple[int, list[Any]]] = []
        loaded = spark.readStream.format(FORMAT).options(**options).load(root) if df is None else df
        writer = loaded.writeStream.foreachBatch(lambda batch, number: self.rows.append((number, batch.collect())))
        self.query = writer.option("checkpointLocation", str(checkpoint)).trigger(**(trigger or {"availableNow": True})).start()

    def finish(self) -> Batches:
        """The ids of each batch, when the query came to its end by itself."""
        assert self.query.awaitTermination(60), "the query did not end"
        return self.batches

    @property
    def batches(self) -> Batches:
        return [(number, sorted(row.id for row in rows)) for number, rows in self.rows]

    @property
    def ids(self) -> list[int]:
        return [each for _, ids in self.batches for each in ids]


def offsets(checkpoint: Path) -> list[str]:
    files = sorted((path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return [path.read_text("utf-8").splitlines()[-1] for path in files]


# --- each file once -----------------------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_a_running_query_is_given_each_file_once_as_versions_come(spark, root: str, tmp_path: Path) -> None:
    """Stopped and started again, too: it goes on where the checkpoint says. [SP8]"""
    for first in (0, 10, 20):
        add(root, first, 3)
    running = Query(spark, root, tmp_path / "c", trigger={"processingTime": "0 seconds"})
    try:
        running.query.processAllAvailable()
        assert running.ids == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        for first in (30, 40, 50):
            add(root, first, 4)
            if first != 40:
                running.query.processAllAvailable()
        mc.Table(root).set_properties({"owner": "someone"})
        running.query.processAllAvailable()
    finally:
        running.query.stop()
    expected = [*running.ids]
    assert expected == [n + k for n, count in ((0, 3), (10, 3), (20, 3), (30, 4), (40, 4), (50, 4)) for k in range(count)]
    add(root, 60, 2)
    again = Query(spark, root, tmp_path / "c")
    assert [ids for _, ids in again.finish() if ids] == [[60, 61]]
    assert all(len(text) < 120 for text in offsets(tmp_path / "c"))
    assert all(isinstance(row[1], str | None) for _, rows in running.rows for row in rows)


@pytest.mark.thorough
def test_available_now_ends_and_honours_the_limit_within_versions(spark, root: str, tmp_path: Path) -> None:
    """The first snapshot is cut too; a commit that comes meanwhile is for the next time. [SP8]"""
    add(root, 0, 4)
    add(root, 10, 3)
    late: list[int] = []
    query = Query(spark, root, tmp_path / "c", maxFilesPerTrigger=3)
    assert query.finish() == [(0, [0, 1, 2]), (1, [3, 10, 11]), (2, [12])]
    add(root, 20, 4)
    mc.Table(root).set_properties({"a": "b"})
    late = [add(root, 30, 2), add(root, 40, 4)]
    again = Query(spark, root, tmp_path / "c", maxFilesPerTrigger=3)
    assert again.finish() == [(3, [20, 21, 22]), (4, [23, 30, 31]), (5, [40, 41, 42]), (6, [43])]
    told = [json.loads(text) for text in offsets(tmp_path / "c")]
    assert told[0]["files"] == 3 and told[-1]["version"] == late[-1] + 1 and len({offset["table"] for offset in told}) == 1


@pytest.mark.thorough
def test_a_stream_can_start_at_a_version(spark, root: str, tmp_path: Path) -> None:
    """Inclusive; the next one may still have to come; columns are chosen as in a batch read. [SP8]"""
    add(root, 0, 2)
    third = add(root, 10, 2)
    add(root, 20)
    assert Query(spark, root, tmp_path / "a", startingVersion=third, columns="id").finish() == [(0, [10, 11, 20])]
    waiting = Query(spark, root, tmp_path / "b", startingVersion=third + 2)
    assert [ids for _, ids in waiting.finish() if ids] == []
    add(root, 30)
    assert [ids for _, ids in Query(spark, root, tmp_path / "b").finish() if ids] == [[30]]


DRIVER = """
import json, pathlib, sys, time
from examples.flights.java import ensure_java
ensure_java()
import manifestcommit as mc
from pyspark.sql import SparkSession
source, checkpoint, sign = json.loads(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
mc.register(spark)

def give(df, number):
    pathlib.Path(sign).touch()
    time.sleep(600)

loaded = spark.readStream.format("manifestcommit").option("maxFilesPerTrigger", 2).load(source)
query = loaded.writeStream.foreachBatch(give).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
"""


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("limit")
def test_a_driver_that_is_killed_in_its_first_batch_loses_and_doubles_nothing(spark, root: str, tmp_path: Path) -> None:
    """kill -9 of the driver and its JVM when Spark has planned the batch; then the table gets other files. [SP8]"""
    for first in (0, 10):
        add(root, first, 3)
    target, sign = str(tmp_path / "target"), tmp_path / "sign"
    given = json.dumps([root, str(tmp_path / "c"), str(sign)])
    env = environment(tmp_path, hooks=False)
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, given], cwd=REPO, env=env, start_new_session=True)
    try:
        wait_for(lambda: sign.exists() or driver.poll() is not None, seconds=120, what="the batch")
        assert driver.poll() is None
    finally:
        end(driver)
    add(root, 20, 3)
    replace_all(root)
    loaded = spark.readStream.format(FORMAT).option("maxFilesPerTrigger", 2).load(root)
    outcomes = []
    writer = loaded.writeStream.foreachBatch(lambda df, number: outcomes.append(mc.write(df, target, key=f"copy:{number}")))
    assert writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination(60)
    assert len(outcomes) == 5
    copied = mc.Table(target).dataset().to_table().column("id").to_pylist()
    assert sorted(copied) == [n + k for n in (0, 10, 20) for k in range(3)]


# --- what is no data, and what stops a stream ---------------------------------------------------------------------------
@contextlib.contextmanager
def refused(spark: Any, *said: str) -> Iterator[None]:
    with pytest.raises(Exception, match=r"manifestcommit\.errors") as raised:
        yield
    for each in said:
        assert each in str(raised.value), str(raised.value)


@pytest.mark.thorough
def test_replacements_are_no_data_and_overwrites_are_as_the_option_says(spark, root: str, tmp_path: Path) -> None:
    """[SP8]"""
    add(root, 0, 2)
    start = add(root, 10, 2)
    assert replace_all(root) == start + 1
    version = mc.write(pa.table({"id": [100], "the `day`, %": ["new"]}), root, mode="overwrite").version
    add(root, 20)
    for choice, expected in (("files", [(0, [10, 11]), (1, [20, 100])]), ("SKIP", [(0, [10, 11]), (1, [20])])):
        assert Query(spark, root, tmp_path / choice, startingVersion=start, onOverwrite=choice, maxFilesPerTrigger=2).finish() == expected
    failing = Query(spark, root, tmp_path / "fail", startingVersion=start)
    with refused(spark, f"version {version} of", "overwrite by job v", 'option("onOverwrite", "files")', '"skip"'):
        failing.finish()
    assert failing.batches == [(0, [10, 11])], "what comes before it is given first"
    assert Query(spark, root, tmp_path / "fail", onOverwrite="files").finish() == [(1, [20, 100])]


@pytest.mark.thorough
def test_columns_change_under_a_running_stream(spark, root: str, tmp_path: Path) -> None:
    """A stream has the columns with which it was loaded, by their ids; one that is gone stops it, and the next load goes on. [SP8] [SC6]"""
    add(root, 0, v="old")
    loaded = spark.readStream.format(FORMAT).load(root)
    table = mc.Table(root)
    assert Query(spark, root, tmp_path / "c", df=loaded).finish() == [(0, [0])]
    table.rename_column("v", "w")
    add(root, 10, w="renamed", more=1.5)
    again = Query(spark, root, tmp_path / "c", df=loaded)
    again.finish()
    assert [row.asDict() for row in again.rows[-1][1]] == [{"id": 10, "the `day`, %": "a b%20", "v": "renamed"}]
    table.drop_column("w")
    add(root, 20, w="another column")
    with refused(spark, "SchemaMismatchError", "the column 'v' was dropped"):
        Query(spark, root, tmp_path / "c", df=loaded).finish()
    newer = Query(spark, root, tmp_path / "c")
    newer.finish()
    assert [row.asDict() for row in newer.rows[-1][1]] == [{"id": 20, "the `day`, %": "a b%20", "more": None, "w": "another column"}]
    from_the_start = Query(spark, root, tmp_path / "d", startingVersion=1)
    from_the_start.finish()
    assert sorted((row.id, row.more, row.w) for row in from_the_start.rows[0][1]) == [
        (0, None, None),
        (10, 1.5, None),
        (20, None, "another column"),
    ]


def options_of(given: dict[str, str]) -> Any:
    """As Spark hands them to a source."""
    from pyspark.sql.datasource import CaseInsensitiveDict  # not in Spark 3.5

    return CaseInsensitiveDict(given)


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "version": ({"version": "2"}, ("no version", "startingVersion")),
    "tag and time": ({"asOf": "2113-01-01"}, ("no asOf", "startingVersion")),
    "no number": ({"startingVersion": "latest"}, ("startingVersion", "whole number")),
    "no files": ({"maxFilesPerTrigger": "0"}, ("maxFilesPerTrigger", "above 0")),
    "no choice": ({"onOverwrite": "maybe"}, ("fail, files, skip, changes", "maybe")),
    "no key": ({"onOverwrite": "changes", "on": "none"}, ("no column 'none'",)),
    "a key of files": ({"on": "id"}, ("onOverwrite", "changes")),
    "a key that is not read": ({"onOverwrite": "changes", "on": "id", "columns": '["the `day`, %"]'}, ("'id'", "columns")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_stream_does_not_take_is_refused(root: str, name: str) -> None:
    """By the call with which Spark begins to plan a query. [SP5]"""
    add(root, 0)
    options, said = REFUSED[name]
    source = ManifestCommitDataSource(options_of({"path": root, **options}))
    with pytest.raises(UsageError, check=lambda error: all(each in str(error) for each in said)):
        source.streamReader(source.schema())


def test_a_table_without_columns_cannot_be_streamed_yet(root: str) -> None:
    """Its stream would never show any. [SP5]"""
    create_table(session(open_store(root)), schema=NO_COLUMNS, partition_by=(), properties={})
    source = ManifestCommitDataSource(options_of({"path": root}))
    with pytest.raises(UsageError, match="has no columns yet"):
        source.streamReader(source.schema())


@pytest.mark.thorough
def test_what_is_refused_reaches_the_user(spark, root: str, tmp_path: Path) -> None:
    """[SP5] [RD1]"""
    with refused(spark, "TableNotFoundError"):
        spark.readStream.format(FORMAT).load(root)
    add(root, 0)
    with refused(spark, "does not know the option startingversion_"):
        spark.readStream.format(FORMAT).option("startingVersion_", 1).load(root)
    own = spark.readStream.format(FORMAT).schema("id long").load(root)
    with refused(spark, "takes no schema of your own"):
        Query(spark, root, tmp_path / "c", df=own).finish()
    with refused(spark, "takes no version", "startingVersion"):
        Query(spark, root, tmp_path / "c", version=2).finish()
    with refused(spark, "does not know the option startingversion"):
        spark.read.format(FORMAT).option("startingVersion", 1).load(root).count()

"""`writeStream.format("manifestcommit")`: every batch once, whatever is killed, replayed or runs twice. [SP7] [KY6]"""

import contextlib
import json
import os
import pickle
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.kit.sizes import rounds
from tests.spark import streams
from tests.spark.clusters import Driver, DriverDiedError, clear_traps, set_trap, sprung
from tests.spark.streams import drain, feed, read_input

import manifestcommit as mc
from manifestcommit.errors import StoreError, UsageError
from manifestcommit.format.codec import decompress
from manifestcommit.spark.datasource import BatchMessage, ManifestCommitDataSource, StreamWriter
from manifestcommit.spark.tasks import with_options
from manifestcommit.spark.writing import TaskMessage, TaskWritten, packed
from manifestcommit.store import StorageOptions, open_store
from manifestcommit.table import Table

pytestmark = pytest.mark.usefixtures("registered")

STRUCT = StructType([StructField("n", LongType()), StructField("day", StringType())])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "input"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def numbers(path: str) -> list[int]:
    return sorted(Table(path).dataset().to_table(columns=["n"]).column("n").to_pylist())


def below(path: str) -> set[str]:
    return {str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()}


def data_files(path: str) -> set[str]:
    return {name for name in below(path) if name.endswith(".parquet")}


def records(path: str) -> dict[str, tuple[str, int, int]]:
    return records_of(Table(path))


def records_of(table: Table) -> dict[str, tuple[str, int, int]]:
    return {name: (each.query, each.batch, each.version) for name, each in table.snapshot().streams.items()}


def query_id(checkpoint: str) -> str:
    return str(json.loads((Path(checkpoint) / "metadata").read_text("utf-8"))["id"])


def forget_the_commit_of(checkpoint: str, batch: int) -> None:
    """As if the driver had died after the table's commit and before Spark's own log said so."""
    for name in (f"{batch}", f".{batch}.crc"):
        (Path(checkpoint) / "commits" / name).unlink(missing_ok=True)


# --- one batch, one commit ------------------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_each_batch_is_one_commit_of_one_object(spark, root: str, source: Path, checkpoint: str) -> None:
    """[SP7] [KY6] [CM11] Besides its data files a batch leaves one version: no manifest, no object of its job."""
    feed(source, 0, 1)
    assert drain(spark, str(source), root, checkpoint, partitionBy="day") == ""
    feed(source, 2)
    before = below(root)
    assert drain(spark, str(source), root, checkpoint, queryName="any name") == ""
    added = sorted(below(root) - before)
    assert added[0] == "_manifest/versions/00000000000000000004.json.zst"
    assert [name.split("/")[0] for name in added[1:]] == ["day=2013-01-01", "day=2013-01-02"]
    assert numbers(root) == list(range(30))
    assert records(root) == {query_id(checkpoint): (query_id(checkpoint), 2, 4)}
    history = Table(root).history()
    assert [each["operation"] for each in history] == ["append", "append", "append", "create"]
    assert len({each["job"] for each in history}) == 4 and all(each["summary"]["rows"] == 10 for each in history[:3])
    assert Table(root).watermarks() == {}


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_a_replayed_batch_is_recognised(spark, root: str, source: Path, checkpoint: str) -> None:
    """[KY6] [SP7] Spark runs a batch again that the table holds: no version, and what its tasks write stays invisible."""
    feed(source, 0, 1)
    drain(spark, str(source), root, checkpoint)
    forget_the_commit_of(checkpoint, 1)
    version = Table(root).version
    assert drain(spark, str(source), root, checkpoint) == ""
    assert Table(root).version == version and numbers(root) == list(range(20))
    assert (Path(checkpoint) / "commits" / "1").exists()
    feed(source, 2)
    assert drain(spark, str(source), root, checkpoint) == ""
    assert numbers(root) == list(range(30))


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_a_checkpoint_that_was_deleted_is_an_error_where_there_is_a_key(spark, root: str, source: Path, checkpoint: str) -> None:
    """[KY6] A new query under the key of an old one would read its input again: nothing is written, both are named."""
    feed(source, 0, 1)
    key = "flights %=+#'é🦆"
    assert drain(spark, str(source), root, checkpoint, key=key) == ""
    old, before = query_id(checkpoint), numbers(root)
    assert records(root) == {key: (old, 1, 3)}
    shutil.rmtree(checkpoint)
    said = drain(spark, str(source), root, checkpoint, key=key)
    assert "KeyReusedError" in said and old in said and query_id(checkpoint) in said and "up to 1" in said and key in said
    assert numbers(root) == before
    assert drain(spark, str(source), root, f"{checkpoint}-2", key="another") == ""
    assert numbers(root) == sorted([*range(20), *range(20)])  # what was asked for


@pytest.mark.thorough
def test_batches_that_the_table_does_not_hold_are_a_gap(spark, root: str, source: Path, checkpoint: str, tmp_path: Path) -> None:
    """[KY6] A batch that Spark's checkpoint has as done went elsewhere."""
    other = str(tmp_path / "other")
    feed(source, 0)
    drain(spark, str(source), root, checkpoint)
    feed(source, 1)
    assert drain(spark, str(source), other, checkpoint) == ""  # a table without a record of the query takes any batch
    assert records(other) == {query_id(checkpoint): (query_id(checkpoint), 1, 2)}
    feed(source, 2)
    version = Table(root).snapshot().version
    said = drain(spark, str(source), root, checkpoint)
    assert "WatermarkGapError" in said and "is at 1" in said and "starts at 2" in said
    assert Table(root).snapshot().version == version


@pytest.mark.thorough
def test_complete_mode_replaces_the_table_with_every_batch(spark, root: str, source: Path, checkpoint: str) -> None:
    """[SP7] [CF3]"""
    for number in range(2):
        feed(source, number)
        frame = read_input(spark, str(source)).groupBy("day").count()
        streams.start(frame, root, checkpoint, mode="complete", conflict="blind").awaitTermination()
        rows = Table(root).dataset().to_table().sort_by("day").to_pylist()
        assert rows == [{"day": "2013-01-01", "count": 5 * (number + 1)}, {"day": "2013-01-02", "count": 5 * (number + 1)}]
    assert records(root) == {query_id(checkpoint): (query_id(checkpoint), 1, 3)}


@pytest.mark.thorough
def test_a_column_that_appears_is_added_where_that_is_asked_for(spark, root: str, source: Path, checkpoint: str) -> None:
    """[SC5]"""
    feed(source, 0)
    drain(spark, str(source), root, checkpoint)
    feed(source, 1, more="x")
    wider = read_input(spark, str(source), schema=f"{streams.SCHEMA}, more string")
    with pytest.raises(Exception, match=r"SchemaMismatchError.*more"):
        streams.start(wider, root, checkpoint).awaitTermination()
    streams.start(wider, root, checkpoint, mergeSchema="true").awaitTermination()
    assert numbers(root) == list(range(20))
    assert Counter(Table(root).dataset().to_table().column("more").to_pylist()) == {None: 10, "x": 10}


@pytest.mark.thorough
def test_a_failing_batch_deletes_nothing(spark, root: str, source: Path, checkpoint: str) -> None:
    """[SP3] What tasks had written when another one failed stays, unlisted; the next start commits the batch once."""
    from pyspark.sql import functions as F

    feed(source, 0)
    frame = read_input(spark, str(source)).repartition(2)
    folder = root

    def number(n, task):  # type: ignore[no-untyped-def]  # Spark would make something of hints
        while task == 1 and not any(name.endswith(".parquet") for name in os.listdir(folder)):
            time.sleep(0.05)
        if task == 1:
            raise OSError("the batch fails")
        return n

    broken = frame.select(F.udf(number, "long", useArrow=False)("n", F.spark_partition_id()).alias("n"), "day")
    with pytest.raises(Exception, match="the batch fails"):
        streams.start(broken, root, checkpoint).awaitTermination()
    (kept,) = data_files(root)
    streams.start(frame, root, checkpoint).awaitTermination()
    assert numbers(root) == list(range(10))
    assert kept in data_files(root) and kept not in Table(root).files().column("path").to_pylist()


# --- what is refused ------------------------------------------------------------------------------------------------------
REFUSED: dict[str, tuple[dict[str, str], bool, str]] = {
    "watermarks": ({"watermarks": "{}"}, False, "checkpoint"),
    "fingerprint": ({"fingerprint": "x"}, False, "its query and its number"),
    "overwrite": ({"overwrite": "dynamic"}, False, "outputMode"),
    "partitionOverwriteMode": ({"partitionOverwriteMode": "dynamic"}, True, "outputMode"),
    "replaceWhere": ({"replaceWhere": "n = 1"}, False, "outputMode"),
    "version": ({"version": "3"}, False, "next version"),
    "asOf": ({"asOf": "2013-01-01"}, False, "next version"),
    "columns": ({"columns": "n"}, False, "select"),
    "conflict of an append": ({"conflict": "blind"}, False, "outputMode"),
    "conflict that ends it": ({"conflict": "fail"}, True, "second batch"),
    "no conflict": ({"conflict": "maybe"}, True, "serializable"),
    "empty key": ({"key": ""}, False, "non-empty"),
    "unknown": ({"asyncProgressTrackingEnabled": "true"}, False, "does not know the option asyncProgressTrackingEnabled"),
    "storage options": ({"secret": "x"}, False, "storage_options"),
    "not a number": ({"targetFileSize": "large"}, False, "targetFileSize"),
    "not a flag": ({"mergeSchema": "yes"}, False, "mergeSchema"),
    "no such column": ({"partitionBy": "month"}, False, "month"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_where_spark_plans(root: str, name: str) -> None:
    """[SP5] Before any task, and before there is a table."""
    options, overwrite, said = REFUSED[name]
    with pytest.raises(UsageError, match=re.escape(said)):
        ManifestCommitDataSource({"path": root, "checkpointlocation": "c", **options}).streamWriter(STRUCT, overwrite)
    assert not Path(root).exists()


@pytest.mark.thorough
def test_what_is_refused_ends_the_query_before_any_task(spark, root: str, source: Path, checkpoint: str) -> None:
    """[SP5] Through Spark: an option, and the update mode, which Spark offers no Python sink."""
    feed(source, 0)
    said = drain(spark, str(source), root, checkpoint, watermarks="{}")
    assert "manifestcommit.errors.UsageError: this write takes no option watermarks" in said
    said = drain(spark, str(source), root, f"{checkpoint}-2", mode="update")
    assert "does not support Update mode" in said
    assert not Path(root).exists()
    with pytest.raises(Exception, match="needs a path"):
        streams.start(read_input(spark, str(source)), None, f"{checkpoint}-3").awaitTermination()  # type: ignore[arg-type]


# --- how Spark calls it ---------------------------------------------------------------------------------------------------
def test_a_source_that_came_by_pickle_plans_nothing(root: str) -> None:
    """[SP7] [LY4] Spark plans each batch with a source of its own and commits it with a pickled one, which asks nothing of the store."""
    fresh = ManifestCommitDataSource({"path": root})
    committing = pickle.loads(cloudpickle.dumps(fresh)).streamWriter(STRUCT, False)
    assert committing.planned is None and not Path(root).exists()
    plans = [fresh.streamWriter(STRUCT, False).planned for _ in range(2)]
    assert plans[0] != plans[1]  # two batches, two jobs
    assert [name for name in below(root) if "versions/0" in name] == ["_manifest/versions/00000000000000000001.json.zst"]


@pytest.fixture
def batch_messages(root: str) -> Any:
    """Messages of the tasks of one batch that wrote nothing."""
    planned = ManifestCommitDataSource({"path": root}).streamWriter(STRUCT, False).planned
    assert planned is not None

    def make(*tasks: int, batch: int = 0, planned: bytes = planned) -> list[BatchMessage]:
        said = json.dumps({"name": "q", "query": "q", "batch": batch}).encode()
        return [BatchMessage(data=packed(TaskWritten(task=task)).data, batch=said, planned=planned) for task in tasks]

    return make


def committer() -> StreamWriter:
    return StreamWriter(None, storage_options=StorageOptions())


def test_messages_that_do_not_agree_commit_nothing(root: str, batch_messages: Any) -> None:
    """[SP2] [SP7] One lost, one of another batch, one of another plan, another number than Spark commits, one twice."""
    version = Table(root).snapshot().version
    other = ManifestCommitDataSource({"path": root}).streamWriter(STRUCT, False).planned
    for messages, said in [
        ([*batch_messages(0), None], "lost the message"),
        ([*batch_messages(0), TaskMessage(b"{}")], "lost the message"),
        ([*batch_messages(0), *batch_messages(1, batch=1)], "2 different plans"),
        ([*batch_messages(0), *batch_messages(1, planned=other)], "2 different plans"),
        ([], "without any task"),
        (batch_messages(0, 1, batch=7), "batch 7, but it commits batch 0"),
        (batch_messages(0, 0), "two messages for task 0"),
    ]:
        with pytest.raises(StoreError, match=said):
            committer().commit(messages, 0)
    assert Table(root).snapshot().version == version
    committer().commit(batch_messages(0, 1), 0)
    assert Table(root).snapshot().version == version + 1


def test_a_batch_of_a_removed_table_is_an_error(root: str, batch_messages: Any) -> None:
    messages = batch_messages(0)
    shutil.rmtree(root)
    with pytest.raises(mc.errors.TableNotFoundError, match="removed"):
        committer().commit(messages, 0)
    assert not Path(root).exists()


# --- kill -9 --------------------------------------------------------------------------------------------------------------
@pytest.mark.versions
@pytest.mark.needs("limit")
@pytest.mark.thorough
def test_every_row_once_whatever_is_killed(new_driver: Any, root: str, source: Path, checkpoint: str) -> None:
    """[SP7] [SP8] [KY6] [IV3] One query fills a table, another one reads that into a second table, while what runs them is killed.

    Drivers die in the tasks, and between a table's commit and Spark's own; the processes that plan and commit die alone; a driver that
    fell silent after it had planned a batch wakes up when all is done.
    """
    second = f"{root} 2"
    pipe = {
        "call": "pipe", "source": str(source), "first": root, "second": second, "checkpoints": checkpoint, "key": "k", "partitionBy": "day",
    }  # fmt: skip
    first_log, second_log = Path(checkpoint, "first", "commits"), Path(checkpoint, "second", "commits")

    def versions() -> tuple[int, int]:
        return Table(root).snapshot().version, Table(second).snapshot().version

    def kill_the_process_at(point: str, driver: Driver) -> None:
        trap = set_trap(driver.scratch, point, "kill self")
        assert "STREAM_FAILED" in driver.run("stream", **pipe)
        assert sprung(trap)
        clear_traps(driver.scratch)

    def stop_at(point: str, driver: Driver, action: str = "wait") -> dict[str, int]:
        trap = set_trap(driver.scratch, point, action)
        driver.send("stream", **pipe)
        return driver.reaches(trap)

    feed(source, 0, 1)
    zombie, next_one = new_driver(), new_driver()  # the next one starts while this one works
    assert zombie.run("stream", **pipe) == ""
    assert versions() == (3, 3)
    feed(source, 2)
    asleep = stop_at("planned", zombie, "stop")

    killed, next_one = next_one, new_driver()
    kill_the_process_at("planned", killed)
    stop_at("task-0-writing", killed)
    killed.close()  # kill -9 of the driver and of all that it started
    assert versions() == (3, 3) and not (first_log / "2").exists()

    killed, next_one = next_one, new_driver()
    kill_the_process_at("commit-after-create", killed)
    assert versions() == (4, 3) and not (first_log / "2").exists()
    stop_at("commit-after-create", killed)  # the first table's batch is replayed without a create: this is the second table's
    killed.close()
    assert versions() == (4, 4) and (first_log / "2").exists() and not (second_log / "2").exists()
    assert records(root) == {"k": (query_id(f"{checkpoint}/first"), 2, 4)}

    feed(source, 3, 4)
    assert next_one.run("stream", **pipe) == ""
    for pid in asleep.values():
        os.kill(pid, signal.SIGCONT)
    with contextlib.suppress(RuntimeError, DriverDiedError):  # Spark may notice that two have used its checkpoint
        zombie.answer()
    id = query_id(f"{checkpoint}/second")
    assert records(root) == {"k": (query_id(f"{checkpoint}/first"), 4, 6)} and records(second) == {id: (id, 4, 6)}
    assert numbers(root) == numbers(second) == list(range(50))
    assert versions() == (6, 6)

    again = {"call": "drain", "source": str(source), "path": second, "checkpoint": f"{checkpoint}/other"}
    assert next_one.run("stream", **again) == ""
    (warning,) = next_one.says("is new to this table")
    assert id in warning and query_id(f"{checkpoint}/other") in warning and "up to 4" in warning and "(version 6)" in warning
    assert len(numbers(second)) == 100


# --- many batches, and object stores --------------------------------------------------------------------------------------
BATCHES = rounds(25, 100)


@pytest.mark.thorough
def test_many_batches_beside_sparks_own_sink(spark, root: str, source: Path, checkpoint: str, tmp_path: Path) -> None:
    """[KY6] [IV10] What the table knows of itself stays small, and a reader needs one object of it, not a log."""
    feed(source, *range(BATCHES), rows=1)
    plain = str(tmp_path / "plain")
    frame = read_input(spark, str(source))
    ours = streams.start(frame, root, checkpoint)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{checkpoint}-plain").trigger(availableNow=True)
    theirs = writer.start(plain)
    ours.awaitTermination()
    theirs.awaitTermination()
    assert numbers(root) == list(range(BATCHES))
    versions = sorted((Path(root) / "_manifest" / "versions").glob("*.json.zst"))
    log = [file for file in (Path(plain) / "_spark_metadata").iterdir() if not file.name.startswith(".")]
    newest = max((file for file in log if file.name.endswith(".compact")), key=lambda file: int(file.stem))
    print(
        f"{BATCHES} batches: head {versions[-1].stat().st_size} bytes, all versions {sum(file.stat().st_size for file in versions)}; "
        f"Spark's newest compacted log {newest.stat().st_size} bytes, all of it {sum(file.stat().st_size for file in log)}"
    )
    assert len(versions) == BATCHES + 1 and not (Path(root) / "_manifest" / "manifests").exists()
    assert versions[-1].stat().st_size < 12 * 1024
    assert len(Table(root).snapshot().streams) == 1


@pytest.mark.thorough
def test_a_stream_into_a_bucket(spark, rgw: Any, source: Path, checkpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    """[SP7] [SE1] What the session was given reaches planning, tasks and commit; the secret is in no object, checkpoint, plan or log."""
    root = f"s3://{rgw.bucket()}/a b%20c+d=e#fü漢"
    options = rgw.storage_options
    feed(source, 0, 1)
    mc.register(spark, storage_options=options)
    try:
        query = streams.start(read_input(spark, str(source)), root, checkpoint, key="k")
        query.awaitTermination()
        forget_the_commit_of(checkpoint, 1)
        feed(source, 2)
        query = streams.start(read_input(spark, str(source)), root, checkpoint, key="k")
        query.awaitTermination()
        said = [query._jsq.explainInternal(True), str(query.recentProgress), str(query.lastProgress)]
        said.append(drain(spark, str(source), root, f"{checkpoint}-2", key="k"))
    finally:
        mc.register(spark)
    table = Table(root, options)
    assert sorted(table.dataset().to_table().column("n").to_pylist()) == list(range(30))
    assert "KeyReusedError" in said[-1] and records_of(table) == {"k": (query_id(checkpoint), 2, 4)}
    store = open_store(root, options)
    objects = [info.name for info in store.list("")]
    assert [name for name in objects if "/manifests/" in name or "/jobs/" in name] == []
    said += objects + [decompress(store.get(name), name=name).decode() for name in objects if name.endswith(".zst")]
    said += [file.read_text("utf-8", errors="replace") for file in Path(checkpoint).rglob("*") if file.is_file()]
    said += [capfd.readouterr().err, capfd.readouterr().out]
    assert len(options["secret"]) > 8 and not any(options["secret"] in text for text in said)
    writer = with_options(ManifestCommitDataSource, StorageOptions(options), "any")({"path": root}).streamWriter(STRUCT, False)
    assert writer.planned is not None and options["secret"].encode() not in decompress(writer.planned, name="what messages carry")
    assert options["secret"].encode() in cloudpickle.dumps(writer)  # what tasks get, as one binary that nobody prints

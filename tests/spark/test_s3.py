"""Spark and a table on S3 that its JVM cannot reach: pip packages alone, and credentials that nobody sees. [SP1] [SP4] [SE1]"""

import base64
import json
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard
from tests.kit.proxy import FaultProxy
from tests.servers.servers import free_port
from tests.spark import jobs
from tests.spark.clusters import Driver, set_trap, sprung, standalone_cluster

import manifestcommit as mc
from manifestcommit.errors import StoreDeniedError, StoreError, UsageError
from manifestcommit.spark import tasks
from manifestcommit.spark.datasource import ManifestCommitDataSource
from manifestcommit.spark.scan import PlannedRead
from manifestcommit.spark.tasks import raised_inside, registered_name, with_options
from manifestcommit.store import StorageOptions, open_store
from manifestcommit.store.object_store import TakenError

FORMAT = "manifestcommit"
FOLDER = "a b%20c+d=e#fü漢"
HOSTILE_VALUES = ["a b", "100%", "a+b", "k=v", "x#y", "q?r", "ü漢", "%20", "../up", "'\"", "", None]
Run = Callable[..., Any]


@pytest.fixture
def root(rgw: Any) -> str:
    """A table's root in a bucket of its own, with what breaks paths that are glued or decoded once too often."""
    return f"s3://{rgw.bucket()}/{FOLDER}"


@pytest.fixture
def local(spark: Any) -> Run:
    """The functions of jobs.py in this process's session."""
    return lambda function, **arguments: getattr(jobs, function)(spark, **arguments)


# --- the whole circle -----------------------------------------------------------------------------------------------------
def rows(start: int, stop: int, key: str) -> list[list[Any]]:
    return [[n, f"2013-01-0{n % 2 + 1}", key] for n in range(start, stop)]


def go_round(run: Run, root: str, options: dict[str, Any]) -> None:
    """Append, rerun, overwrite what is written, read columns and rows, write and read by the format, an empty DataFrame."""
    given = {"path": root, "storage_options": options}
    assert run("write", **given, key="a", tasks=2, rows=50, partition_by=["day"])["already"] is False
    assert run("write", **given, key="a", tasks=2, rows=50, partition_by=["day"])["already"] is True
    assert run("read", **given) == rows(0, 100, "a")
    assert run("read", **given, columns=["n"]) == [[n] for n in range(100)]
    assert run("read_where", **given, column="day", value="2013-01-02", columns=["who", "n"]) == [["a", n] for n in range(1, 100, 2)]

    assert run("write", **given, key="none", tasks=1, rows=0)["already"] is False
    assert run("read", **given) == rows(0, 100, "a")

    overwrite = {"mode": "overwrite", "overwrite": "dynamic"}
    run("write_rows", **given, rows=[[7, "2013-01-02", "b"]], schema="n long, day string, who string", key="b", **overwrite)
    left = sorted([*(row for row in rows(0, 100, "a") if row[1] == "2013-01-01"), [7, "2013-01-02", "b"]])
    assert run("read", **given) == left

    run("register", **options)
    run("save", path=root, key="c", start=100, tasks=2, rows=5)
    run("save", path=root, key="c", start=100, tasks=2, rows=5)
    assert run("load", path=root) == sorted(left + rows(100, 110, "c"))
    assert run("load", path=root, columns="who,n") == sorted([row[2], row[0]] for row in left + rows(100, 110, "c"))
    assert "StoreError" in run("wrong_secret", path=root, storage_options={**options, "secret": "another"})


def test_the_whole_circle_in_one_process(local: Run, root: str, rgw: Any) -> None:
    """[SP1] [SP4] [SP5] [SP6] A local session, whose JVM knows nothing of S3."""
    go_round(local, root, rgw.storage_options)


@pytest.mark.thorough
def test_the_whole_circle_on_a_cluster(driver: Driver, root: str, rgw: Any) -> None:
    """[SP1] [SP2] [SP4] Executors in other JVMs; a worker that dies between its upload and its message is retried."""
    trap = set_trap(driver.scratch, "task-1-after-put", "kill self")
    go_round(driver.run, root, rgw.storage_options)
    assert sprung(trap)
    listed = mc.Table(root, rgw.storage_options).files().column("path").to_pylist()
    there = [info.name for info in open_store(root, rgw.storage_options).list("") if info.name.endswith(".parquet")]
    assert len(there) > len(listed)  # the killed attempt's file is there, and in no snapshot


@pytest.mark.proof  # a server's JVM of its own; the way through Connect is in the usual run, on a disk: test_connect
def test_the_whole_circle_through_connect(root: str, rgw: Any, tmp_path: Path) -> None:
    """[SP1] [SP4] [SP6] A client without a JVM."""
    client = Driver(tmp_path, "connect:2")
    try:
        go_round(client.run, root, rgw.storage_options)
    finally:
        client.close()


@pytest.mark.thorough
def test_hostile_partition_values_and_a_new_column(local: Run, root: str, rgw: Any) -> None:
    """[SP1] [SC6] Each value is written, pruned by and read as it is, and what was there before is null in the merged column."""
    given = {"path": root, "storage_options": rgw.storage_options}
    first = [[n, value] for n, value in enumerate(HOSTILE_VALUES)]
    local("write_rows", **given, rows=first, schema="n long, part string", partition_by=["part"])
    more = [[100 + n, value, "new"] for n, value in enumerate(HOSTILE_VALUES)]
    local("write_rows", **given, rows=more, schema="n long, part string, extra string", merge_schema=True)
    assert local("read", **given) == [[*row, None] for row in first] + more
    table = mc.Table(root, rgw.storage_options)
    for n, value in enumerate(HOSTILE_VALUES):
        assert local("read_where", **given, column="part", value=value, columns=["n"]) == [[n], [100 + n]]
        matching = pc.field("part").is_null() if value is None else pc.field("part") == value
        assert table.files(filter=matching).num_rows == 2


# --- what is fetched ------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_files_are_compacted_by_tasks_that_alone_reach_the_store(spark, root: str, rgw: Any) -> None:
    """[GC11] [SE1] In threads of their own, with options that only the caller gives, and partitions that need care."""
    days = ["a b%20", "k=v#x", None]
    for number in range(3):
        given = pa.table({"day": days, "n": [number * 10 + at for at in range(3)]})
        mc.write(given, root, partition_by="day", storage_options=rgw.storage_options)
    table = mc.Table(root, rgw.storage_options)
    before = sorted(table.dataset().to_table().to_pylist(), key=lambda row: row["n"])
    done = table.compact(spark=spark)
    assert (done.groups, done.files_before, done.files_after, done.rows, done.lost_groups) == (3, 9, 3, 9, 0)
    assert sorted(table.dataset().to_table().to_pylist(), key=lambda row: row["n"]) == before
    assert rgw.secret not in repr(done)


def received(proxy: FaultProxy) -> int:
    """Bytes since the last call."""
    found = sum(each.answer_bytes for each in proxy.requests)
    proxy.reset()
    return found


@pytest.mark.thorough
def test_columns_that_nobody_asked_for_are_not_fetched(spark, rgw: Any, root: str) -> None:
    """[SP4] Neither by the library call, with a filter on a third column, nor by the format."""
    wide = pa.array([secrets.token_bytes(1000) for _ in range(4000)])
    data = pa.table({"n": range(4000), "wide": wide, "third": [n % 2 for n in range(4000)]})
    mc.write(data, root, storage_options=rgw.storage_options)
    condition = pc.field("third") == 1
    with FaultProxy(rgw.endpoint) as proxy:
        options = {**rgw.storage_options, "endpoint_url": proxy.url}
        mc.register(spark, storage_options=options)
        try:
            assert len(mc.read_committed(root, columns=["n"], filter=condition, spark=spark, storage_options=options).collect()) == 2000
            assert 0 < received(proxy) < 400_000
            assert spark.read.format(FORMAT).option("columns", "third").load(root).groupBy("third").count().count() == 2
            assert 0 < received(proxy) < 400_000
            assert mc.read_committed(root, columns=["n", "wide"], spark=spark, storage_options=options).distinct().count() == 4000
            assert received(proxy) > data.nbytes * 0.9
        finally:
            mc.register(spark)


# --- Spark's own scan where its JVM really reaches the files ----------------------------------------------------------------
@pytest.fixture
def mounted(spark, root: str, tmp_path: Path) -> Iterator[Path]:
    """A Hadoop that has a file system for s3a://: it shows a local folder as the bucket."""
    bucket = root.split("/")[2]
    folder = tmp_path / "mounted"
    folder.mkdir()
    set_by_us = {
        "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.viewfs.overload.scheme.target.s3a.impl": "org.apache.hadoop.fs.LocalFileSystem",
        f"fs.viewfs.mounttable.{bucket}.linkFallback": f"file://{folder}",
    }
    configuration = spark._jsc.hadoopConfiguration()
    for name, value in set_by_us.items():
        configuration.set(name, value)
    yield folder
    for name in set_by_us:
        configuration.unset(name)


@pytest.mark.thorough
def test_spark_scans_by_itself_what_its_jvm_reaches(spark, rgw: Any, root: str, mounted: Path) -> None:
    """[SP4] A Hadoop file system for the scheme is no proof that it leads to these files: one of them, with its size, is."""
    options = rgw.storage_options
    jobs.write(spark, root, tasks=2, rows=20, storage_options=options)

    def plan() -> str:
        return str(mc.read_committed(root, spark=spark, storage_options=options)._jdf.queryExecution().toString())

    assert "manifestcommit_files" in plan()  # nothing is there
    files = mc.Table(root, options).files().column("path").to_pylist()
    for path in files:
        copy = mounted / FOLDER / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(open_store(root, options).get(path))
    assert "manifestcommit_files" not in plan() and "parquet" in plan().lower()
    assert jobs.read(spark, root, storage_options=options) == rows(0, 40, "k")
    for path in files:
        (mounted / FOLDER / path).write_bytes(b"another file")
    assert "manifestcommit_files" in plan()  # another store, with a file of that name
    assert jobs.read(spark, root, storage_options=options) == rows(0, 40, "k")


# --- the way of the options ------------------------------------------------------------------------------------------------
def test_one_name_per_session_and_options(spark) -> None:
    """[SE1] Equal options are registered once; others elsewhere; the name is drawn, not derived."""
    options = StorageOptions({"key": "k", "secret": "hunter2"})
    name = registered_name(spark, PlannedRead, options)
    assert registered_name(spark, PlannedRead, StorageOptions(dict(options))) == name
    other = spark.newSession()
    names = {name, registered_name(spark, PlannedRead, StorageOptions({"key": "k"})), registered_name(other, PlannedRead, options)}
    assert len(names) == 3
    assert registered_name(spark, PlannedRead, StorageOptions()) == PlannedRead.format_name


def test_threads_that_need_a_source_together_register_it_once(spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SE1] Registered twice, Spark may refuse the second with DATA_SOURCE_ALREADY_EXISTS: a compaction's threads met that."""
    session, registered, together = spark.newSession(), [], threading.Barrier(8)
    real = tasks.register_with

    def slowly(*given: Any) -> None:
        registered.append(given[-1])
        time.sleep(0.2)
        real(*given)

    def name(_: int) -> str:
        together.wait(30)
        return registered_name(session, PlannedRead, StorageOptions())

    monkeypatch.setattr(tasks, "register_with", slowly)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(name, range(8))) == {PlannedRead.format_name}
    assert registered == [PlannedRead.format_name]


def test_options_that_cannot_travel_are_refused_by_name() -> None:
    """[SE1] Nor does the refusal show them."""
    for value in (threading.Lock(), "hunter2" * 100_000):
        with pytest.raises(UsageError, match="storage option session cannot be sent", check=lambda error: "hunter2" not in str(error)):
            with_options(ManifestCommitDataSource, StorageOptions({"key": "k", "session": value}), FORMAT)


@pytest.mark.thorough
def test_a_session_with_options_still_has_local_tables(spark, tmp_path: Path, rgw: Any) -> None:
    mc.register(spark, storage_options=rgw.storage_options)
    try:
        jobs.save(spark, str(tmp_path / "table"), tasks=1, rows=3)
        assert jobs.load(spark, str(tmp_path / "table")) == rows(0, 3, "k")
    finally:
        mc.register(spark)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["secret", "storage_options", "fs.s3a.secret.key"])
def test_options_of_the_format_are_no_way_in(spark, root: str, name: str) -> None:
    """[SP5] [SE1] Refused with the way out, without their values."""
    for act in (
        lambda: spark.range(1).write.format(FORMAT).option(name, "hunter2").mode("append").save(root),
        lambda: spark.read.format(FORMAT).option(name, "hunter2").load(root),
    ):
        with pytest.raises(Exception, match=r"register\(spark, storage_options=", check=lambda error: "hunter2" not in str(error)):
            act()


@pytest.mark.thorough
def test_workers_that_spark_uses_again_see_what_others_commit(spark, rgw: Any, root: str) -> None:
    """Spark keeps its Python workers: a cache of lists would outlive the task that filled it. [ST13] [SP4]"""
    mc.register(spark, storage_options=rgw.storage_options)
    try:
        for count in range(1, 4):
            mc.write(pa.table({"id": [count]}), root, storage_options=rgw.storage_options)
            assert spark.read.format(FORMAT).load(root).count() == count
            spark.range(0).selectExpr("id").write.format(FORMAT).mode("append").save(root)
            assert mc.read_committed(root, spark=spark, storage_options=rgw.storage_options).count() == count
    finally:
        mc.register(spark)


def test_a_backends_own_errors_are_store_errors() -> None:
    text = f"Traceback:\n{TakenError.__module__}.{TakenError.__qualname__}: s3://b/x: refused\n"
    assert repr(raised_inside(Exception(text))) == repr(StoreError("s3://b/x: refused"))
    assert raised_inside(Exception("manifestcommit.errors.NoSuchError: x")) is None


@pytest.mark.thorough
def test_a_denial_in_a_task_keeps_its_type(spark, rgw: Any, root: str) -> None:
    """[SP6] [ST5] The store refuses the tasks only."""
    mc.write(spark.range(1), root, storage_options=rgw.storage_options)
    job = mc.begin(root, storage_options=rgw.storage_options)
    rgw.make_read_only(root.split("/")[2])
    with pytest.raises(StoreDeniedError, match="denied"):
        job.write(spark.range(4))


# --- nobody sees them ------------------------------------------------------------------------------------------------------
def guises(secret: str) -> list[bytes]:
    """What a secret may look like where bytes are printed, quoted or packed."""
    raw = secret.encode()
    shifted = []
    for shift in range(3):
        packed = base64.b64encode(b"\0" * shift + raw)
        shifted.append(packed[(0, 2, 3)[shift] : -4])  # without the characters that its neighbours decide
    texts = [quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], secret.replace("/", "\\/"), raw.hex(), raw.hex(" ")]
    texts += [", ".join(map(str, raw)), ",".join(map(str, raw)), " ".join(map(str, raw))]
    return [raw, secret.encode("utf-16-le"), secret.encode("utf-16-be"), *shifted, *(text.encode() for text in texts)]


def revealed(sources: Mapping[str, bytes], hidden: Mapping[str, str]) -> list[str]:
    """Where which of the secrets was found."""
    return [
        f"{name} in {where}: …{data[max(0, data.find(guise) - 200) : data.find(guise) + 20]!r}"
        for name, secret in hidden.items()
        for guise in set(guises(secret))
        for where, data in sources.items()
        if guise in data
    ]


def inflated(data: bytes) -> bytes:
    """The bytes, and what they hold where they are zstd."""
    if not data.startswith(b"\x28\xb5\x2f\xfd"):
        return data
    return data + zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(data)


def test_guises_are_found() -> None:
    """The search itself."""
    secret = "mc/test+secret=with more"
    for data in (
        secret.encode(),
        base64.b64encode(b"x" + secret.encode() + b"yz"),
        f"List({', '.join(map(str, secret.encode()))})".encode(),
    ):
        assert revealed({"here": b"..." + data + b"..."}, {"it": secret})
    assert inflated(zstandard.compress(b"secret")).endswith(b"secret")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["cluster", pytest.param("connect", marks=pytest.mark.proof)])
def test_credentials_are_seen_nowhere(kind: str, tmp_path: Path, rgw: Any, root: str) -> None:
    """[SE1] Not in plans, UI, event log, logs at their most talkative, work folders, errors with their chains, reprs, the table."""
    hidden = {"secret": rgw.secret, "wrong secret": f"wrong/{secrets.token_hex(16)}+="}
    options = rgw.storage_options
    wrong = {**options, "secret": hidden["wrong secret"]}
    misplaced = f"misplaced/{secrets.token_hex(16)}+="
    port = free_port()
    (tmp_path / "events").mkdir()
    conf = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{tmp_path}/events", "spark.eventLog.compress": "false",
        "spark.eventLog.logStageExecutorMetrics": "true", "spark.ui.enabled": "true", "spark.ui.port": str(port),
        "spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.task.maxFailures": "1",
        "spark.shuffle.compress": "false", "spark.broadcast.compress": "false", "spark.sql.maxPlanStringLength": "10000000",
        "spark.sql.debug.maxToStringFields": "10000",
    }  # fmt: skip
    arguments = {
        "root": root, "options": options, "wrong": wrong, "misplaced": misplaced, "ui": f"http://127.0.0.1:{port}",
        "read_only": f"s3://{rgw.bucket()}/t",
    }  # fmt: skip
    with standalone_cluster(tmp_path, log_level="debug") if kind == "cluster" else nullcontext("connect:2") as master:
        driver = Driver(tmp_path, master, conf, log_level="debug")
        try:
            driver.send("reveal", **arguments)
            said = driver.answer(seconds=300)
            processes = of_processes(tmp_path)
            driver.run("stop")
            on_disk = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        finally:
            driver.close()
    store = open_store(root, rgw.storage_options)
    objects = {info.name: store.get(info.name) for info in store.list("")}
    everything = {topic: text.encode() for topic, text in said.items()} | processes | on_disk | objects
    everything = {where: inflated(data) for where, data in everything.items()}
    assert revealed(everything, hidden) == []
    assert revealed({"the refusal": said["an unknown option"].encode()}, {"misplaced": misplaced}) == []

    # That nothing is found must not be because nothing was looked at: Spark shows what was given as an option.
    assert revealed({"the pages": said["pages"].encode()} | on_disk, {"misplaced": misplaced})
    bucket = root.split("/")[2].encode()
    assert any("/events/" in where and bucket in data for where, data in on_disk.items())
    assert any("driver-" in where and bucket in data and b"DEBUG" in data for where, data in on_disk.items())
    assert kind == "connect" or any("/worker" in where and where.endswith("stderr") and b"DEBUG" in data for where, data in on_disk.items())
    assert processes and len(said) > 15 and len(objects) > 5
    assert "SignatureDoesNotMatch" in said["wrong secret, format"]
    assert "StoreDeniedError" in said["a denied task"]
    shutil.rmtree(tmp_path, ignore_errors=True)  # logs at that level are large


def of_processes(scratch: Path) -> dict[str, bytes]:
    """Command lines and environments of the processes that this session started, as any user's `ps e` shows them."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                environment, command = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if str(scratch).encode() in environment:
                found[f"process {folder.name}"] = command + environment
    return found

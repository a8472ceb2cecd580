"""Makes a session say all that it can say of a table on S3: plans, pages, reprs, warnings, logs and errors. Runs in a driver process."""

import contextlib
import io
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any
from urllib.request import urlopen

from pyspark.sql import functions as F
from tests.servers.servers import S3Server

import manifestcommit as mc
from manifestcommit import register
from manifestcommit.spark.datasource import ManifestCommitDataSource
from manifestcommit.spark.tasks import with_options
from manifestcommit.store import StorageOptions, open_store

FORMAT = "manifestcommit"
PAGES = ("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "api/v1/applications")
OF_APPLICATION = ("jobs", "stages?details=true", "sql?details=true&length=1000", "environment", "allexecutors")


def reveal(
    spark: Any, root: str, options: dict[str, Any], wrong: dict[str, Any], misplaced: str, ui: str, read_only: str
) -> dict[str, str]:
    """What was said, by topic. wrong: options with another secret; misplaced: one that is given as an option of the format, which Spark
    shows; read_only: a table's root in a bucket that becomes read-only.
    """
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, force=True)
    said = _Said()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _succeed(spark, root, options, said)
        _fail(spark, root, options, wrong, misplaced, said)
        said.fails("a denied task", lambda: _denied(spark, read_only, options))
        said.note("pages", *_pages(spark, ui))
    said.note("warnings", *(warning.message for warning in warned))
    return {topic: "\n".join(texts) for topic, texts in said.texts.items()}


class _Said:
    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}

    def note(self, topic: str, *values: Any) -> None:
        self.texts.setdefault(topic, []).extend(text for value in values for text in (str(value), repr(value)))

    def fails(self, topic: str, action: Callable[[], Any]) -> None:
        """The error with its chain and the values that its frames hold of this package's own objects."""
        try:
            action()
        except Exception as error:
            self.note(topic, type(error), "".join(traceback.format_exception(error)))
            link: BaseException | None = error
            while link is not None:
                self.note(topic, link, vars(link), link.args)
                link = link.__cause__ or link.__context__
        else:
            raise AssertionError(f"{topic} did not fail")


def _succeed(spark: Any, root: str, options: dict[str, Any], said: _Said) -> None:
    frame = spark.range(0, 40, 1, 2).select("id", (F.col("id") % 2).alias("part"))
    with mc.begin(root, "first", storage_options=options) as job:
        job.write(frame, partition_by=["part"])
        said.note("job", job, vars(job))
    table = mc.Table(root, options)
    said.note("table", table, table._ctx, vars(table._ctx), table._ctx.store, vars(table._ctx.store))
    said.note("outcome", mc.write(frame, root, key="second", storage_options=options))

    _explain("read_committed", mc.read_committed(root, columns=["id"], filter=F.col("part") == 1, storage_options=options), said)
    register(spark, options)
    register(spark, options)  # Spark warns that it replaces the first
    made = with_options(ManifestCommitDataSource, StorageOptions(options), FORMAT)
    said.note("class", made, vars(made), made({"path": root}), made.storage_options)
    frame.write.format(FORMAT).option("key", "third").mode("append").save(root)
    _explain("format", spark.read.format(FORMAT).load(root), said)
    said.note("session", spark, spark.conf, vars(spark))


def _explain(topic: str, frame: Any, said: _Said) -> None:
    said.note(topic, frame, frame.count(), frame.schema)
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            frame.explain(mode=mode)
        said.note(topic, out.getvalue())
    if hasattr(frame, "_jdf"):
        execution = frame._jdf.queryExecution()
        said.note(topic, execution.toString(), execution.executedPlan().treeString())
        for plan in (execution.logical(), execution.analyzed(), execution.optimizedPlan(), execution.executedPlan()):
            with contextlib.suppress(Exception):
                said.note(topic, plan.toJSON())
            said.note(topic, plan.argString(100_000))


def _fail(spark: Any, root: str, options: dict[str, Any], wrong: dict[str, Any], misplaced: str, said: _Said) -> None:
    frame = spark.range(0, 40, 1, 2).select("id", (F.col("id") % 2).alias("part"))
    nowhere = f"{root.rpartition('/')[0]}-is-not-there/table"
    broken = frame.withColumn("id", F.when(F.col("id") == 39, F.raise_error(F.lit("of this test"))).otherwise(F.col("id")).cast("long"))
    said.fails("no bucket", lambda: mc.write(frame, nowhere, storage_options=options))
    said.fails("no bucket, format", lambda: frame.write.format(FORMAT).mode("append").save(nowhere))
    said.fails("no table", lambda: mc.read_committed(root + "-none", storage_options=options))
    said.fails("wrong secret", lambda: mc.write(frame, root, storage_options=wrong))
    said.fails("a failing task", lambda: mc.write(broken, root, storage_options=options))
    said.fails("a failing task, format", lambda: broken.write.format(FORMAT).mode("append").save(root))
    said.fails("not an s3fs option", lambda: mc.write(frame, root, storage_options={**options, "not_an_option": 1}))

    lost = mc.read_committed(root, storage_options=options)
    lost_too = spark.read.format(FORMAT).load(root)
    paths = mc.Table(root, options).files().column("path").to_pylist()
    open_store(root, options).delete(paths[:1])
    said.fails("a file that is gone", lost.collect)
    said.fails("a file that is gone, format", lost_too.collect)

    register(spark, wrong)
    said.fails("wrong secret, format", lambda: frame.write.format(FORMAT).mode("append").save(root))
    said.fails("wrong secret, format, read", lambda: spark.read.format(FORMAT).load(root).collect())
    said.fails("an unknown option", lambda: frame.write.format(FORMAT).option("credential", misplaced).mode("append").save(root))


def _denied(spark: Any, root: str, options: Mapping[str, Any]) -> None:
    """Tasks are refused by the store, nobody before them: the bucket becomes read-only when the table is there and the job has begun."""
    frame = spark.range(0, 4, 1, 2)
    mc.write(frame, root, storage_options=options)
    with mc.begin(root, storage_options=options) as job:
        server = S3Server(endpoint=options["endpoint_url"], key=options["key"], secret=options["secret"])
        server.make_read_only(root.split("/")[2])
        job.write(frame)


def _pages(spark: Any, ui: str) -> list[str]:
    """What the pages of Spark's UI show, those of every query too."""
    texts = [_get(f"{ui}/{page}") for page in PAGES]
    application = texts[-1].partition('"id" : "')[2].partition('"')[0]
    assert application
    texts += [_get(f"{ui}/api/v1/applications/{application}/{part}") for part in OF_APPLICATION]
    queries = [_get(f"{ui}/SQL/execution/?id={number}") for number in range(4)]
    assert any("manifestcommit" in query for query in queries)
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        queries.append(_get(f"{ui}/connect/"))
    return texts + queries


def _get(url: str) -> str:
    with urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
        return text

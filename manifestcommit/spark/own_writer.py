"""Spark's own Parquet writer writes the rows, and tasks take its files in: no row goes through Python. [SP13] [DF10]

It writes into a folder of the job's below `_manifest/jobs/`, where gc finds by the name what a crash leaves. Once it has ended, that folder
holds what one attempt of each task has written, and nothing else. Each file is checked as one of others is, and gets its name among the
data files by a link. So this is for file systems that link, and that Spark's writer reaches by path: `file:`.
Not here: the way through Arrow, which leads to every store (writer), what is checked of a file (engine.inspect).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Observation, types
from pyspark.sql import functions as F

from manifestcommit.core import format, partition
from manifestcommit.core.manifest import Entry
from manifestcommit.core.paths import check_path
from manifestcommit.core.schema import (
    INTERVALS,
    ArrayType,
    Field,
    MapType,
    Schema,
    StructType,
    map_fields,
    match_names,
    members,
    show_path,
    type_text,
    walk,
)
from manifestcommit.core.spark_types import from_spark, has_own_order, to_spark
from manifestcommit.engine.files import WritePlan
from manifestcommit.engine.footer import parquet_columns
from manifestcommit.engine.inspect import inspect_file
from manifestcommit.errors import StoreError, UsageError
from manifestcommit.spark.registered import is_connect
from manifestcommit.spark.writer import TaskMessage, TaskWritten, Written, collect, raising_ours, task_context, task_message
from manifestcommit.store import StorageOptions, open_store
from manifestcommit.store.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What Spark's own files hold in another form than ours, so that not every reader would get the value back.
_UNLIKE = frozenset({"void", "variant"}) | frozenset(INTERVALS)
_FIELD_ID = "parquet.field.id"
# Of a session of our own: what the caller's says of these is meant for the caller's own files.
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.sql.sources.useV1SourceList": "parquet",
}
_OPTIONS = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "3",
    "parquet.bloom.filter.enabled": "false",  # but for the table's own columns of them [DF11]
    "parquet.bloom.filter.adaptive.enabled": "true",  # as large as the values need, where there are any
    # Of the two algorithms of its committer the one whose result is that of one attempt of each task, whichever of them die when.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
_COORDINATED = "spark.hadoop.outputCommitCoordination.enabled"
_ENCRYPTION = "parquet.crypto.factory.class"
_DONE = "_SUCCESS"
_WAITS, _WAIT_S = 6000, 0.01


def check_own_writer(job_url: str, df: DataFrame, *, target_file_size: int | None, recoverable: bool) -> None:
    """UsageError where Spark's own writer cannot do what is asked; nothing was done then. [SP13] [SP5]"""
    way_out = "Nothing was done; leave writer out."
    if not job_url.startswith("file:"):
        raise UsageError(f'writer="jvm" writes to a file system that this machine has mounted, and {job_url} is none. {way_out}')
    if is_connect(df):
        raise UsageError(f'writer="jvm" is not available in Spark Connect sessions. {way_out}')
    if recoverable:
        raise UsageError(f'writer="jvm" keeps nothing of a task for a rerun, which recoverable=True asks for. {way_out}')
    if target_file_size is not None:
        raise UsageError(
            f'writer="jvm" makes one file of each task and partition, however large; target_file_size is not for it. {way_out}'
        )
    for field in from_spark(df.schema.jsonValue()).fields:
        _check_writable(field)
    if df.sparkSession.sparkContext.getConf().get(_COORDINATED, "true") != "true":
        raise UsageError(f'writer="jvm" needs {_COORDINATED}=true: without it two attempts of a task may both count. {way_out}')
    if df.sparkSession._jsparkSession.sessionState().newHadoopConf().get(_ENCRYPTION) is not None:
        raise UsageError(f'writer="jvm" writes no encrypted files, and this session sets {_ENCRYPTION}. {way_out}')


@raising_ours()
def write_with_own_writer(df: DataFrame, plan: WritePlan) -> Written:
    """Every row of `df` is in exactly one of the returned files, which Spark's own writer wrote, and none is visible yet. [SP13] [SP2]

    Two Spark jobs: one writes, one takes the files in. A crash or a failure anywhere leaves files that no snapshot lists, and whose
    place or name tells the job.
    """
    frame, by = _shaped(df, plan)
    _, _, root = plan.url.partition("://")
    scratch = f"{root}/{format.rows_folder(plan.job, secrets.token_hex(16))}"
    options = {**_OPTIONS}
    for field in plan.schema.fields:
        for path in _floats(field, field.file_name):  # by either of them readers would skip values that a filter wants
            options |= {f"parquet.column.statistics.enabled#{path}": "false", f"parquet.bloom.filter.enabled#{path}": "false"}
        if field.id in plan.bloom_columns and "." not in field.file_name:  # Parquet would take it for a member's name
            options[f"parquet.bloom.filter.enabled#{field.file_name}"] = "true"
    try:
        seen, observers = Observation(), _observers(df, frame)
        counted = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
        counted.write.format("parquet").mode("error").options(**options).partitionBy(*by).save(f"file://{scratch}")
        for here, theirs in observers:
            theirs.setMetricsAndNotify(_told(here))
        parts = _parts(scratch)
        context = df.sparkSession.sparkContext
        slices = max(1, min(len(parts), context.defaultParallelism))
        taken = context.parallelize(parts, slices).mapPartitions(functools.partial(_take_in, plan, scratch)).collect()
        written = collect(plan, [TaskMessage(data) for data in taken], StorageOptions())
        if written.tasks != slices:
            raise StoreError(f"Spark ran {written.tasks} of {slices} tasks; nothing was committed. Run the job again.")
        check_rows(_rows(seen), written, plan.url)
        return written
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # else gc
        with contextlib.suppress(OSError):  # the job's own folder, if it holds nothing else: gc deletes files only
            os.rmdir(os.path.dirname(scratch))


def check_rows(rows: int, written: Written, url: str) -> None:
    """StoreError where files hold other rows than were handed to Spark's writer, as a late attempt could bring about. [SP13]"""
    held = sum(entry.rows for entry in written.entries) + sum(ref.rows for ref in written.manifests)
    if held != rows:
        raise StoreError(f"{url}: {rows} rows were handed to Spark's writer, its files hold {held}. Nothing is committed; run it again.")


# --- in the caller's process ----------------------------------------------------------------------------------------------


def _shaped(df: DataFrame, plan: WritePlan) -> tuple[DataFrame, list[str]]:
    """The rows under the names and types that they have in files, in a session of our own; and the columns that split them. [DF5]

    What splits them is a copy for each partition column, since Spark leaves out of its files what it partitions by; a copy that differs
    wherever the values do, since two values in one folder would share a file, as null and the empty string would.
    """
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    given = from_spark(df.schema.jsonValue())
    found, _ = match_names([field.name for field in given.fields], plan.schema.fields)
    struct = types.StructType.fromJson(_with_ids(to_spark(plan.schema, physical=True, relaxed=True), plan.schema.fields))
    numbered = df.toDF(*(f"c{at}" for at in range(len(df.columns))))  # Spark takes a dot in a column's name for a member's
    drawn, columns, copies = secrets.token_hex(8), [], {}
    for field, at, spark in zip(plan.schema.fields, found, struct.fields, strict=True):
        _check_writable(field)
        if at is not None:
            _check_same(field, given.fields[at])
        column = F.lit(None) if at is None else numbered[f"c{at}"]
        if at is None or not isinstance(field.type, str):
            column = column.cast(spark.dataType)
        columns.append(column.alias(spark.name, metadata=spark.metadata))
        if field.id in plan.partition_by:
            copies[field.id] = _telling(column, field).alias(f"p{field.id}-{drawn}")
    by = [f"p{id}-{drawn}" for id in plan.partition_by]
    shaped = numbered.select(*columns, *(copies[id] for id in plan.partition_by))
    session = df.sparkSession._jsparkSession.cloneSession()
    for name, value in _SETTINGS.items():
        session.conf().set(name, value)
    jvm: Any = df.sparkSession._jvm
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, shaped._jdf.queryExecution().analyzed())
    return Classic(dataset, df.sparkSession), by


def _telling(column: Column, field: Field) -> Column:
    """A value for a folder that is null where the column is, and otherwise differs wherever the column does."""
    if field.type == "timestamp":
        return F.unix_micros(column)  # as a text, two instants of one night of the year are one
    if field.type in ("string", "binary", "float", "double", "timestamp_ntz"):
        return F.sha2(column.cast("string").cast("binary") if field.type != "binary" else column, 256)
    return column


def _check_writable(field: Field) -> None:
    """UsageError for a type that Spark's own files hold in another form than ours, at any depth."""
    for path, each in walk((field,)):
        kind = each.type if isinstance(each.type, str) else ""
        if kind in _UNLIKE or has_own_order(each):
            shown = kind if kind in _UNLIKE else "text with an order of its own"
            raise UsageError(
                f'writer="jvm" does not write column {show_path(path)}, which is {shown}. Nothing was written; leave writer out.'
            )


def _check_same(field: Field, given: Field) -> None:
    """UsageError where the data's column is not of the table's type, but for what may be null and comments."""

    def bare(each: Field) -> Any:
        plain = map_fields(Schema(fields=(each,)), lambda inside: msgspec.structs.replace(inside, metadata={}))
        return to_spark(plain, physical=False, relaxed=True)["fields"][0]["type"]

    if bare(field) != bare(given):
        raise UsageError(
            f'writer="jvm" changes no types, and column {field.name!r} is {type_text(given.type)} where the table has '
            f"{type_text(field.type)}. Nothing was written; cast it, or leave writer out."
        )


def _with_ids(struct: dict[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """Spark's schema with the field ids of what has a place for them: columns and members of structs. [DF10]"""
    for each, field in zip(struct["fields"], fields, strict=True):
        each["metadata"] = {**each["metadata"], _FIELD_ID: field.id}
        _with_inner_ids(each["type"], field)
    return struct


def _with_inner_ids(spark: Any, field: Field) -> None:
    if isinstance(field.type, str):
        return
    inside = members(field.type)
    match spark["type"]:
        case "struct":
            _with_ids(spark, inside)
        case "array":
            _with_inner_ids(spark["elementType"], inside[0])
        case "map":
            _with_inner_ids(spark["keyType"], inside[0])
            _with_inner_ids(spark["valueType"], inside[1])


def _floats(field: Field, path: str) -> Iterator[str]:
    """The Parquet columns below this one that hold floats or doubles, as Parquet's own options name them."""
    match field.type:
        case StructType():
            for each in field.type.fields:
                yield from _floats(each, f"{path}.{each.file_name}")
        case ArrayType():
            yield from _floats(field.type.element, f"{path}.list.element")
        case MapType():
            yield from _floats(field.type.key, f"{path}.key_value.key")
            yield from _floats(field.type.value, f"{path}.key_value.value")
        case "float" | "double":
            yield path


def _rows(seen: Observation) -> int:
    """How many rows Spark handed to its writer, each task once."""
    _told(seen._jo)
    return int(seen.get["rows"])


def _told(observation: Any) -> Any:
    """What the JVM's observation was told of a write; Spark tells it a moment after the write has ended."""
    for _ in range(_WAITS):
        if observation is not None and observation.future().isCompleted():
            return observation.future().value().get()
        time.sleep(_WAIT_S)
    raise StoreError("Spark did not tell what it observed of its write; nothing was committed. Run the job again, or leave writer out.")


def _observers(df: DataFrame, frame: DataFrame) -> list[tuple[Any, Any]]:
    """The caller's own observations of the data, each as the session that writes has it and as the caller waits for it in another."""
    here, theirs = (each._jdf.sparkSession().observationManager() for each in (frame, df))
    jvm: Any = df.sparkSession._jvm
    observing = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.COLLECT_METRICS()
    found, plans = [], [frame._jdf.queryExecution().analyzed()]
    while plans:
        plan = plans.pop()
        if not plan.containsPattern(observing):
            continue
        if plan.nodeName() == "CollectMetrics":
            known = plan.name(), plan.dataframeId()
            found.append((here.getOrNewObservation(*known), theirs.getOrNewObservation(*known)))
        children = plan.children()
        plans += [children.apply(at) for at in range(children.size())]
    return found


def _parts(scratch: str) -> list[str]:
    """The files of a write that has ended, relative to its folder. [SP2]"""
    if not os.path.exists(f"{scratch}/{_DONE}"):
        raise StoreError(f"{scratch}: Spark's writer ended and did not say so there; nothing was committed. Run the job again.")
    found = []
    for folder, folders, names in os.walk(scratch):
        folders[:] = [each for each in folders if not each.startswith(("_", "."))]
        found += [os.path.relpath(f"{folder}/{name}", scratch) for name in names if not name.startswith(("_", "."))]
    return sorted(found)


# --- in tasks -------------------------------------------------------------------------------------------------------------


def _take_in(plan: WritePlan, scratch: str, parts: Iterable[str]) -> Iterator[bytes]:
    """These files are data files of the job under names of this attempt, durable, and each is as its entry says. [SP13] [DF2] [DF3]"""
    task = task_context().partitionId()
    store = open_store(plan.url)
    assert isinstance(store, LocalStore)
    attempt = secrets.token_hex(8)
    entries: list[Entry] = []
    for part in parts:
        entry = _entry(plan, scratch, part)
        if not entry.rows:
            continue
        folder = partition.folder(plan.schema, plan.partition_by, entry.partition)
        path = folder + format.data_file_name(task, attempt, len(entries), plan.job)
        check_path(path)
        store.take_in(f"{scratch}/{part}", path)
        entries.append(msgspec.structs.replace(entry, path=path, sources=plan.sources))
    yield task_message(store, plan, TaskWritten(task=task, entries=tuple(entries))).data


def _entry(plan: WritePlan, scratch: str, part: str) -> Entry:
    entry = inspect_file(
        LocalStore(scratch),
        part,
        schema=plan.schema,
        partition_by=plan.partition_by,
        job=plan.job,
        bounds_columns=plan.bounds_columns,
    )
    if _has_float_statistics(f"{scratch}/{part}"):
        return entry  # what has no digest, readers take for a file of others, whose statistics of floats leave NaN out [DF6]
    with open(f"{scratch}/{part}", "rb") as file:
        return msgspec.structs.replace(entry, digest=format.digest_of(hashlib.file_digest(file, "sha256")))


def _has_float_statistics(path: str) -> bool:
    footer = pq.read_metadata(path)
    floats = [each.position for each in parquet_columns(footer.schema.to_arrow_schema()) if pa.types.is_floating(each.type)]
    groups = range(footer.num_row_groups)
    return any(footer.row_group(group).column(at).is_stats_set for group in groups for at in floats)

"""Writes rows with Spark's own Parquet writer, and registers its files in tasks: no row passes
through Python. [SP13] [DF10]

It writes into a folder of the job below `_manifest/jobs/`, where gc finds orphan files of a crash
by their names. When it has finished, at most one attempt of each task is committed in that folder,
and nothing else is. Every file is checked like an untracked one, and gets its name among the data
files by a link. So this needs a file system with links that Spark's writer reaches by path:
`file:`. Not here: the path through Arrow, which supports every store (spark.write.arrow_writer),
the checks of a file (engine.datafile.foreign_file).
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

from manifestcommit.core.format import codec
from manifestcommit.core.schema import partitioning
from manifestcommit.core.schema.fields import (
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
from manifestcommit.core.schema.spark_json import from_spark, has_own_order, to_spark
from manifestcommit.core.table import object_names
from manifestcommit.core.table.entries import Entry
from manifestcommit.core.table.paths import check_path
from manifestcommit.engine.datafile.footer_stats import parquet_columns
from manifestcommit.engine.datafile.foreign_file import inspect_file
from manifestcommit.engine.datafile.writer import WritePlan
from manifestcommit.errors import StoreError, UsageError
from manifestcommit.spark.runtime.registered_options import is_connect
from manifestcommit.spark.runtime.spark_internals import (
    java_frame,
    java_observation,
    java_session,
    jvm,
)
from manifestcommit.spark.runtime.task_errors import raising_ours
from manifestcommit.spark.runtime.versions import check_feature
from manifestcommit.spark.write.arrow_writer import (
    TaskMessage,
    TaskWritten,
    Written,
    collect,
    task_context,
    task_message,
)
from manifestcommit.store import StorageOptions, open_store
from manifestcommit.store.base import check_files
from manifestcommit.store.local.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Types that Spark's own files store in another form than ours, so that not every reader would get
# the value back.
_UNLIKE = frozenset({"void", "variant"}) | frozenset(INTERVALS)
_FIELD_ID = "parquet.field.id"
# For a session of our own: the caller's settings of these are meant for the caller's own files.
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.sql.sources.useV1SourceList": "parquet",
}
_OPTIONS = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "3",
    "parquet.bloom.filter.enabled": "false",  # except for the table's own columns of them [DF11]
    # as large as the values need, if there are any
    "parquet.bloom.filter.adaptive.enabled": "true",
    # Of the two algorithms of its committer, the one that commits at most one attempt of each task,
    # whichever of them die at any time.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
_COORDINATED = "spark.hadoop.outputCommitCoordination.enabled"
_ENCRYPTION = "parquet.crypto.factory.class"
_DONE = "_SUCCESS"
_WAITS, _WAIT_S = 6000, 0.01


def check_own_writer(
    job_url: str, df: DataFrame, *, target_file_size: int | None, recoverable: bool
) -> None:
    """UsageError if Spark's own writer does not support the request; nothing has been done then.
    [SP13] [SP5]"""
    check_feature("own writer")
    remedy = "Nothing was done; leave writer out."
    if not job_url.startswith("file:"):
        raise UsageError(
            'writer="jvm" writes to a file system that this machine has mounted, and '
            f"{job_url} is not on one. {remedy}"
        )
    if is_connect(df):
        raise UsageError(f'writer="jvm" is not available in Spark Connect sessions. {remedy}')
    if recoverable:
        raise UsageError(
            'writer="jvm" keeps nothing of a task for a rerun, which recoverable=True asks '
            f"for. {remedy}"
        )
    if target_file_size is not None:
        raise UsageError(
            'writer="jvm" makes one file of each task and partition, however large; '
            f"target_file_size is not for it. {remedy}"
        )
    for field in from_spark(df.schema.jsonValue()).fields:
        _check_writable(field)
    if next(_observing(java_frame(df)), None) is not None:
        check_feature("observed")
    if df.sparkSession.sparkContext.getConf().get(_COORDINATED, "true") != "true":
        raise UsageError(
            f'writer="jvm" needs {_COORDINATED}=true: without it two attempts of a task may '
            f"both count. {remedy}"
        )
    if java_session(df.sparkSession).sessionState().newHadoopConf().get(_ENCRYPTION) is not None:
        raise UsageError(
            f'writer="jvm" writes no encrypted files, and this session sets {_ENCRYPTION}. {remedy}'
        )


@raising_ours()
def write_with_own_writer(df: DataFrame, plan: WritePlan) -> Written:
    """Write every row of `df` into exactly one of the returned files, with Spark's own writer; none
    is visible yet. [SP13] [SP2]

    Two Spark jobs: one writes, one registers the files. A crash or a failure anywhere leaves files
    that no snapshot lists, and whose place or name identifies the job.
    """
    frame, by = _shaped(df, plan)
    _, _, root = plan.url.partition("://")
    folder = object_names.rows_folder(plan.job, secrets.token_hex(16))
    # Spark would follow a link on the way there [SE2]
    check_files(open_store(plan.url), [f"{folder}/_SUCCESS"])
    scratch = f"{root}/{folder}"
    options = {**_OPTIONS}
    for field in plan.schema.fields:
        # with either of them readers would skip values that match a filter
        for path in _floats(field, field.file_name):
            options |= {
                f"parquet.column.statistics.enabled#{path}": "false",
                f"parquet.bloom.filter.enabled#{path}": "false",
            }
        # Parquet would take it for a member's name
        if field.id in plan.bloom_columns and "." not in field.file_name:
            options[f"parquet.bloom.filter.enabled#{field.file_name}"] = "true"
    try:
        seen, observers = Observation(), _observers(df, frame)
        counted = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
        counted.write.format("parquet").mode("error").options(**options).partitionBy(*by).save(
            f"file://{scratch}"
        )
        for here, theirs in observers:
            theirs.setMetricsAndNotify(_told(here))
        parts = _parts(scratch)
        context = df.sparkSession.sparkContext
        slices = max(1, min(len(parts), context.defaultParallelism))
        taken = (
            context.parallelize(parts, slices)
            .mapPartitions(functools.partial(_take_in, plan, scratch))
            .collect()
        )
        written = collect(plan, [TaskMessage(data) for data in taken], StorageOptions())
        if written.tasks != slices:
            raise StoreError(
                f"Spark ran {written.tasks} of {slices} tasks; nothing was committed. Run "
                "the job again."
            )
        check_rows(_rows(seen), written, plan.url)
        return written
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # otherwise gc removes it
        # the job's own folder, if it is empty: gc deletes files only
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(scratch))


def check_rows(rows: int, written: Written, url: str) -> None:
    """StoreError if the files hold another number of rows than Spark's writer was given, which a
    late attempt could cause. [SP13]"""
    held = sum(entry.rows for entry in written.entries) + sum(ref.rows for ref in written.manifests)
    if held != rows:
        raise StoreError(
            f"{url}: {rows} rows were handed to Spark's writer, its files hold {held}. "
            "Nothing is committed; run it again."
        )


# --- In the caller's process ----------------------------------------------------------------------


def _shaped(df: DataFrame, plan: WritePlan) -> tuple[DataFrame, list[str]]:
    """The rows with the names and types of files, in a session of our own; and the columns that
    partition them. [DF5]

    These are copies of the partition columns, since Spark omits from its files the columns that it
    partitions by. Copies differ wherever values do: two values in one folder would share a file, as
    null and the empty string would.
    """
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    given = from_spark(df.schema.jsonValue())
    found, _ = match_names([field.name for field in given.fields], plan.schema.fields)
    struct = types.StructType.fromJson(
        _with_ids(to_spark(plan.schema, physical=True, relaxed=True), plan.schema.fields)
    )
    # Spark takes a dot in a column's name for a member access
    numbered = df.toDF(*(f"c{at}" for at in range(len(df.columns))))
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
    session = java_session(df.sparkSession).cloneSession()
    for name, value in _SETTINGS.items():
        session.conf().set(name, value)
    dataset = jvm(df.sparkSession).org.apache.spark.sql.classic.Dataset.ofRows(
        session, java_frame(shaped).queryExecution().analyzed()
    )
    return Classic(dataset, df.sparkSession), by


def _telling(column: Column, field: Field) -> Column:
    """A value for a folder: null if the column is null, and otherwise different for different
    values."""
    if field.type == "timestamp":
        return F.unix_micros(column)  # as texts, two instants of one night of the year are equal
    if field.type in ("string", "binary", "float", "double", "timestamp_ntz"):
        return F.sha2(
            column.cast("string").cast("binary") if field.type != "binary" else column, 256
        )
    return column


def _check_writable(field: Field) -> None:
    """UsageError for a type that Spark's own files store in another form than ours, at any
    depth."""
    for path, inner in walk((field,)):
        kind = inner.type if isinstance(inner.type, str) else ""
        if kind in _UNLIKE or has_own_order(inner):
            shown = kind if kind in _UNLIKE else "text with an order of its own"
            raise UsageError(
                f'writer="jvm" does not write column {show_path(path)}, which is {shown}. '
                "Nothing was written; leave writer out."
            )


def _check_same(field: Field, given: Field) -> None:
    """UsageError if the data's column does not have the table's type, except for nullability and
    comments."""

    def bare(member: Field) -> Any:
        plain = map_fields(
            Schema(fields=(member,)), lambda inside: msgspec.structs.replace(inside, metadata={})
        )
        return to_spark(plain, physical=False, relaxed=True)["fields"][0]["type"]

    if bare(field) != bare(given):
        raise UsageError(
            f'writer="jvm" changes no types, and column {field.name!r} is '
            f"{type_text(given.type)} where the table has "
            f"{type_text(field.type)}. Nothing was written; cast it, or leave writer out."
        )


def _with_ids(struct: dict[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """Spark's schema with field ids where it has a place for them: columns and members of structs.
    [DF10]"""
    for member, field in zip(struct["fields"], fields, strict=True):
        member["metadata"] = {**member["metadata"], _FIELD_ID: field.id}
        _with_inner_ids(member["type"], field)
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
    """The Parquet columns below this one that hold floats or doubles, with the names of Parquet's
    own options."""
    match field.type:
        case StructType():
            for member in field.type.fields:
                yield from _floats(member, f"{path}.{member.file_name}")
        case ArrayType():
            yield from _floats(field.type.element, f"{path}.list.element")
        case MapType():
            yield from _floats(field.type.key, f"{path}.key_value.key")
            yield from _floats(field.type.value, f"{path}.key_value.value")
        case "float" | "double":
            yield path


def _rows(seen: Observation) -> int:
    """The number of rows that Spark gave to its writer, each task once."""
    _told(java_observation(seen))
    return int(seen.get["rows"])


def _told(observation: Any) -> Any:
    """The values of the JVM's observation of a write; Spark reports them a moment after the write
    has finished."""
    for _ in range(_WAITS):
        if observation is not None and observation.future().isCompleted():
            return observation.future().value().get()
        time.sleep(_WAIT_S)
    raise StoreError(
        "Spark did not report what it observed of its write; nothing was committed. Run the "
        "job again, or leave writer out."
    )


def _observers(df: DataFrame, frame: DataFrame) -> list[tuple[Any, Any]]:
    """The caller's own observations of the data: each in the form of the writing session, and in
    that which the caller waits for in another session."""
    here, theirs = (java_frame(data).sparkSession().observationManager() for data in (frame, df))
    known = [(plan.name(), plan.dataframeId()) for plan in _observing(java_frame(frame))]
    return [(here.getOrNewObservation(*one), theirs.getOrNewObservation(*one)) for one in known]


def _observing(frame: Any) -> Iterator[Any]:
    """The nodes of the plan that observe rows."""
    plans = [frame.queryExecution().analyzed()]
    while plans:
        plan = plans.pop()
        if plan.nodeName() == "CollectMetrics":
            yield plan
        children = plan.children()
        plans += [children.apply(at) for at in range(children.size())]


def _parts(scratch: str) -> list[str]:
    """The files of a finished write, relative to its folder. [SP2]"""
    if not os.path.exists(f"{scratch}/{_DONE}"):
        raise StoreError(
            f"{scratch}: Spark's writer ended and did not say so there; nothing was "
            "committed. Run the job again."
        )
    found = []
    for folder, folders, names in os.walk(scratch):
        folders[:] = [folder for folder in folders if not folder.startswith(("_", "."))]
        found += [
            os.path.relpath(f"{folder}/{name}", scratch)
            for name in names
            if not name.startswith(("_", "."))
        ]
    return sorted(found)


# --- In tasks -------------------------------------------------------------------------------------


def _take_in(plan: WritePlan, scratch: str, parts: Iterable[str]) -> Iterator[bytes]:
    """Register these files as data files of the job under names of this attempt, durable, and
    matching their entries. [SP13] [DF2] [DF3]"""
    task = task_context().partitionId()
    store = open_store(plan.url)
    assert isinstance(store, LocalStore)
    attempt = secrets.token_hex(8)
    entries: list[Entry] = []
    for part in parts:
        entry = _entry(plan, scratch, part)
        if not entry.rows:
            continue
        folder = partitioning.folder(plan.schema, plan.partition_by, entry.partition)
        path = folder + object_names.data_file_name(task, attempt, len(entries), plan.job)
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
        # readers take a file without a digest for another program's, whose statistics of floats
        # omit NaN [DF6]
        return entry
    with open(f"{scratch}/{part}", "rb") as file:
        return msgspec.structs.replace(
            entry, digest=codec.digest_of(hashlib.file_digest(file, "sha256"))
        )


def _has_float_statistics(path: str) -> bool:
    """Spark has just written this file here, so that its footer needs no check. [AF3]"""
    footer = pq.read_metadata(path)
    floats = [
        column.position
        for column in parquet_columns(footer.schema.to_arrow_schema())
        if pa.types.is_floating(column.type)
    ]
    groups = range(footer.num_row_groups)
    return any(footer.row_group(group).column(at).is_stats_set for group in groups for at in floats)

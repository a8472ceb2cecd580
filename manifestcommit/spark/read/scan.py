"""A DataFrame over exactly the files of one snapshot: with Spark's own scan if its JVM reaches
them, else with pyarrow in tasks. [SP4]
"""

from __future__ import annotations

import base64
import functools
import json
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import zstandard
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ...errors import StoreError, UsageError
from ...filter.predicate import Predicate, parse_predicate, spell_predicate
from ...format import spark_json
from ...format.fields import FLOATS, Schema, WireValue, walk
from ...format.spark_json import to_spark
from ...scan.arrow_dataset import Constants
from ...scan.partition_folders import PartitionFolders
from ...store import StorageOptions, open_store
from ...store.base import check_files
from ..runtime import without_sources
from ..runtime.registered_options import StoreSource, is_connect, registered_name
from ..runtime.spark_internals import file_index, java_frame, java_session, jvm
from ..runtime.task_errors import check_reachable
from ..runtime.versions import UNREAD_TYPES, check_feature, has
from .task_reader import FileGroup, FilesReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Lets Spark's own scan prune partitions: it reads the values from the folders' names, and what it
# has read is compared with the entries before a row is.

# Spark reads partitions from paths only without this option.
PRUNING_OPTIONS = {"recursiveFileLookup": "false"}
_EPOCH = date(1970, 1, 1).toordinal()


def spark_agrees(df: DataFrame, base: str, folders: PartitionFolders) -> bool:
    """Whether the DataFrame's file index has exactly these partition columns, folders and values.
    [RD43]

    base: the table path in Hadoop's form. Only the index's text is compared: 2,000 partitions take
    one call of the JVM instead of 10,000.
    """
    spec = file_index(df).partitionSpec()
    fields = json.loads(spec.partitionColumns().json())["fields"]
    if [(field["name"], field["type"]) for field in fields] != list(folders.columns):
        return False
    types = [type for _, type in folders.columns]
    root = jvm(df.sparkSession).org.apache.hadoop.fs.Path(base).toString()
    between = uuid.uuid4().hex  # in no value
    found = spec.partitions().mkString(between).split(between)
    expected = {
        f"PartitionPath([{','.join(map(_text, values, types))}],{root}/{name})"
        for name, values in folders.values.items()
    }
    return len(found) == len(expected) and set(found) == expected


def _text(value: WireValue, type: str) -> str:
    """The value as a row of Spark shows it."""
    if type == "date" and isinstance(value, str):
        return str(date.fromisoformat(value).toordinal() - _EPOCH)
    return "null" if value is None else str(value)


LOG = logging.getLogger("manifestcommit.spark")
FORMAT = "manifestcommit_files"
# Spark's first Parquet source, whatever the session prefers: the second one takes max() from
# footers, which omit NaN, and supports fewer types (void).
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
# A Hadoop file system that gets no answer retries for minutes; one attempt shows whether it reaches
# a file.
_ONE_TRY = {
    "fs.s3a.attempts.maximum": "1",
    "fs.s3a.retry.limit": "0",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.timeout": "10s",
    "fs.azure.io.retry.max.retries": "0",
    "fs.gs.http.max.retry": "1",
}


def read_files(
    spark: SparkSession,
    root_url: str,
    files: Sequence[tuple[str, int]],
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    trust_footers: bool = True,
    constants: Constants | None = None,
    folders: PartitionFolders | None = None,
    predicate: Predicate | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A DataFrame of exactly these files' rows, whatever the session's settings, or an error; never
    fewer rows. [SP4]

    files: (path relative to the table path, size in bytes), each once, as committed. Columns have
    the schema's names, types and metadata, and are nullable; one that a file lacks is null there,
    unless `constants` has its value. Files with constants are read in tasks. Nothing is listed:
    10,000 files plan in about half a second. columns: all that the caller will use; others may be
    omitted. folders: those of the files without constants, if Spark may prune by them [RD43].
    predicate: the caller's filter; rows that it excludes may be omitted, too. [RD13]
    trust_footers: False if a file of another writer has float columns, whose footers omit NaN.
    """
    check_reachable(root_url)
    given = StorageOptions(storage_options)
    check_files(open_store(root_url, given), (path for path, _ in files))
    if not files:
        return spark.createDataFrame([], spark_schema(schema))
    plan = _ReadPlan(
        url=root_url,
        files=tuple(files),
        schema=schema,
        columns=tuple(columns) if columns else None,
        constants=constants or Constants(),
        predicate="" if predicate is None else spell_predicate(predicate),
    )
    own = [file for file in files if file[0] not in plan.constants.values]
    base = _native_base(spark, root_url, own, schema)
    if base is None:
        return _read_in_tasks(spark, plan, given)
    scanned = _scan(spark, base, own, schema, _scan_options(schema, trust_footers), folders)
    if len(own) == len(files):
        return scanned
    adopted = tuple(file for file in files if file[0] in plan.constants.values)
    others = _read_in_tasks(spark, msgspec.structs.replace(plan, files=adopted), given)
    return scanned.select(*(quoted(name) for name in others.columns)).union(others)


def read_named(
    spark: SparkSession,
    root_url: str,
    files: Sequence[tuple[str, int]],
    schema: Schema,
    *,
    columns: Sequence[str],
    name_column: str,
    constants: Constants | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """These columns of exactly these files' rows, and each row's file path in the column
    `name_column`. [SP4]

    Read in tasks: the file name that Spark itself reports (a URL, escaped) differs between its
    sources.
    """
    check_reachable(root_url)
    given = StorageOptions(storage_options)
    plan = _ReadPlan(
        url=root_url,
        files=tuple(files),
        schema=schema,
        columns=tuple(columns),
        constants=constants or Constants(),
        name_column=name_column,
    )
    return _read_in_tasks(spark, plan, given)


def spark_schema(schema: Schema, *, physical: bool = False) -> StructType:
    """The table's columns as Spark shows them: all nullable, as in any file source."""
    if any(field.type == "variant" for _, field in walk(schema.fields)):
        check_feature("variant")
    return StructType.fromJson(to_spark(schema, physical=physical, relaxed=True))


# --- Spark's own scan -----------------------------------------------------------------------------


def _native_base(
    spark: SparkSession, root_url: str, files: Sequence[tuple[str, int]], schema: Schema
) -> str | None:
    """The table path in Hadoop's form, if Spark itself can read all of these files; None if it
    cannot, or there are none."""
    if (
        not files
        or is_connect(spark)
        or any(map(spark_json.is_skipped, (path for path, _ in files)))
    ):
        return None
    types = {field.type for _, field in walk(schema.fields) if isinstance(field.type, str)}
    if types & UNREAD_TYPES:
        return None
    return _hadoop_base(spark, root_url, files[0])


def _scan_options(schema: Schema, trust_footers: bool) -> dict[str, str]:
    has_floats = any(field.type in FLOATS for _, field in walk(schema.fields))
    return (
        spark_json.SCAN_OPTIONS
        | (spark_json.TWO_ZEROS if has_floats else {})
        | ({} if trust_footers else spark_json.UNPRUNED)
    )


def _scan(
    spark: SparkSession,
    base: str,
    files: Sequence[tuple[str, int]],
    schema: Schema,
    options: Mapping[str, str],
    folders: PartitionFolders | None,
) -> DataFrame:
    physical = spark_schema(schema, physical=True)
    if folders is not None:
        pruned = _partitioned(spark, base, files, physical, options, folders)
        if pruned is not None:
            return _named(pruned, schema)
    df, planned = _through_sink_log(spark, base, files, physical, options)
    if planned != len(files):
        # spark.sql.streaming.fileStreamSink.ignoreMetadata is set, or this Spark reads the log
        # differently: name the files one by one.
        one_by_one = {**options, "__globPaths__": "false"}
        df = (
            spark.read.format(_PARQUET)
            .schema(physical)
            .options(**one_by_one)
            .load([f"{base}/{path}" for path, _ in files])
        )
        planned = _planned_files(df)
    if planned != len(files):
        raise StoreError(
            f"Spark would read {planned} files of {base} where the snapshot lists "
            f"{len(files)}; nothing was read. Read with "
            'spark.read.format("manifestcommit").load(path) instead.'
        )
    return df if all(field.physical is None for field in schema.fields) else _named(df, schema)


def _named(df: DataFrame, schema: Schema) -> DataFrame:
    """The table's columns, in its order and under its names."""
    named = zip(schema.fields, spark_schema(schema).fields, strict=True)
    return df.select(
        *(
            F.col(quoted(field.file_name)).alias(field.name, metadata=shown.metadata)
            for field, shown in named
        )
    )


def _partitioned(
    spark: SparkSession,
    base: str,
    files: Sequence[tuple[str, int]],
    physical: StructType,
    options: Mapping[str, str],
    folders: PartitionFolders,
) -> DataFrame | None:
    """The scan with partition columns, which prunes folders by later filters and joins; None where
    Spark reads a name otherwise than it was written. [RD43]"""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        df, planned = _through_sink_log(
            spark, base, files, physical, {**options, **PRUNING_OPTIONS}
        )
        if planned == len(files) and spark_agrees(df, base, folders):
            return df
    except (Py4JError, PySparkException) as error:  # such as a folder above called "=x"
        LOG.debug(
            "Spark reads no partitions from the folders of %s: %s", base, type(error).__name__
        )
    return None


def _through_sink_log(
    spark: SparkSession,
    base: str,
    files: Sequence[tuple[str, int]],
    physical: StructType,
    options: Mapping[str, str],
) -> tuple[DataFrame, int]:
    """Let Spark read a folder whose `_spark_metadata` names its files, so that it lists nothing.
    Also returns how many files it will read.

    The folder is temporary, and can be removed as soon as the DataFrame has its file index.
    """
    scratch = tempfile.mkdtemp(prefix="manifestcommit-read-")
    try:
        os.mkdir(os.path.join(scratch, "_spark_metadata"))
        with open(os.path.join(scratch, "_spark_metadata", "0"), "w", encoding="utf-8") as log:
            log.writelines(spark_json.lines(base, files))
        df = (
            spark.read.format(_PARQUET)
            .schema(physical)
            .options(**options)
            .load(f"file://{scratch}")
        )
        return df, _planned_files(df)  # builds the index while the log exists
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _planned_files(df: Any) -> int:
    # DataFrame.inputFiles() copies every name into Python: 17 times slower at 10,000 files.
    return len(java_frame(df).inputFiles())


def _hadoop_base(spark: Any, root_url: str, sample: tuple[str, int]) -> str | None:
    """The table path in Hadoop's form; None if this JVM cannot reach it, which reading the sample
    shows: one of its files, with its size."""
    base = spark_json.hadoop_url(root_url)
    if base is None or base.startswith("file:"):
        return base
    from py4j.protocol import Py4JError

    hadoop_fs = jvm(spark).org.apache.hadoop.fs
    try:
        configuration = java_session(spark).sessionState().newHadoopConf()
        for name, value in _ONE_TRY.items():
            configuration.set(name, value)
        path = hadoop_fs.Path(f"{base}/{sample[0]}")
        file_system = hadoop_fs.FileSystem.newInstance(path.toUri(), configuration)
        try:
            size_bytes = file_system.getFileStatus(path).getLen()
        finally:
            file_system.close()
    # no such file system, other credentials, another endpoint, no network: tasks have their own
    # connection
    except Py4JError as error:
        LOG.debug(
            "Hadoop does not reach %s (%s): tasks read it with pyarrow", base, type(error).__name__
        )
        return None
    return base if size_bytes == sample[1] else None


def quoted(name: str) -> str:
    """A column's name quoted for Spark's expressions, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


# --- in tasks -------------------------------------------------------------------------------------


class PlannedRead(StoreSource):
    """The library's internal source that reads a list of files in tasks; users read with
    `manifestcommit.read_committed`."""

    format_name = FORMAT

    def schema(self) -> StructType:
        plan = self._plan()
        struct = spark_schema(plan.schema)
        chosen = list(struct) if plan.columns is None else [struct[name] for name in plan.columns]
        return StructType(
            chosen
            if plan.name_column is None
            else [*chosen, StructField(plan.name_column, StringType())]
        )

    def reader(self, schema: StructType) -> FilesReader:
        plan = self._plan()
        return FilesReader(
            plan.url,
            plan.files,
            plan.schema,
            schema,
            constants=plan.constants,
            predicate=parse_predicate(plan.predicate) if plan.predicate else None,
            name_column=plan.name_column,
            storage_options=self.storage_options,
        )

    def _plan(self) -> _ReadPlan:
        try:
            packed = base64.b64decode(self.options["plan"], validate=True)
            return msgspec.json.decode(
                zstandard.ZstdDecompressor().decompress(packed), type=_ReadPlan
            )
        # also by msgspec; nothing in an option is ever executed [SE2]
        except (KeyError, ValueError, zstandard.ZstdError) as error:
            raise UsageError(
                f'format("{FORMAT}") is this library\'s own, and its option is not for its '
                "plans. Read with "
                "manifestcommit.read_committed; nothing was read"
            ) from error


class _ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    files: tuple[tuple[str, int], ...]
    schema: Schema
    columns: tuple[str, ...] | None
    constants: Constants = Constants()
    name_column: str | None = None
    predicate: str = ""  # from `spell_predicate`


def _read_in_tasks(
    spark: SparkSession, plan: _ReadPlan, storage_options: StorageOptions
) -> DataFrame:
    packed = base64.b64encode(
        zstandard.ZstdCompressor().compress(msgspec.json.encode(plan))
    ).decode()
    if not has("format"):
        return _read_without_source(spark, packed, storage_options)
    return (
        spark.read.format(registered_name(spark, PlannedRead, storage_options))
        .option("plan", packed)
        .load()
    )


class _Group(msgspec.Struct, frozen=True):
    """What one task reads."""

    files: tuple[tuple[str, int], ...]
    constants: Constants


def _read_without_source(
    spark: SparkSession, packed: str, storage_options: StorageOptions
) -> DataFrame:
    """The same where Spark has no Python data sources. [SP45]"""
    source = PlannedRead(options={"plan": packed})
    struct = source.schema()
    reader = source.reader(struct)
    reader.storage_options = storage_options
    groups = [part for part in reader.partitions() if isinstance(part, FileGroup)]
    items = [msgspec.json.encode(_Group(part.files, part.constants)) for part in groups]
    read = functools.partial(_read_group, reader)
    return without_sources.rows_of(spark, items, read, struct, storage_options)


def _read_group(reader: FilesReader, item: bytes) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of these files."""
    group = msgspec.json.decode(item, type=_Group)
    return reader.read(FileGroup(group.files, group.constants))

"""A DataFrame over exactly the files of one snapshot: Spark's own scan where its JVM reaches them, else pyarrow in tasks. [SP4]

Not here: which files a snapshot lists and what a filter skips (engine), `format("manifestcommit")` (source).
"""

from __future__ import annotations

import base64
import logging
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import zstandard
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from manifestcommit.core.predicate import Predicate
from manifestcommit.core.schema import Schema, walk
from manifestcommit.core.spark_types import to_spark
from manifestcommit.engine.constants import Constants
from manifestcommit.errors import StoreError
from manifestcommit.spark.registered import StoreSource, is_connect, registered_name
from manifestcommit.spark.task_reader import FilesReader
from manifestcommit.spark.writer import check_reachable
from manifestcommit.store import StorageOptions, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = logging.getLogger("manifestcommit.spark")
FORMAT = "manifestcommit_files"
# How Spark names file systems that it can read itself, by our scheme.
_HADOOP_SCHEMES = {"file": "file", "s3": "s3a", "gs": "gs", "abfs": "abfs"}
# Spark's first Parquet source, whatever the session prefers: its second one takes what max() says from footers, which leave NaN out, and
# knows fewer types (void).
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
# A session's own settings must not thin or change a snapshot. Rebasing: files without Spark's mark hold proleptic dates.
_SCAN_OPTIONS = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}

# Footers of other writers bound floats without NaN, which is greater than everything in Spark: pruning by them would lose rows.
_UNPRUNED = {
    "parquet.filter.stats.enabled": "false",
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.bloom.enabled": "false",  # by those of other writers 0.0 and -0.0 are two values, as below
}
# To a filter 0.0 and -0.0 are equal; in a dictionary, and where Parquet itself compares values, they are not, and `x >= 0` misses -0.0.
_TWO_ZEROS = {"parquet.filter.dictionary.enabled": "false", "parquet.filter.record-level.enabled": "false"}

# A Hadoop file system that has no answer tries for minutes; one try proves whether it reaches a file.
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
    predicate: Predicate | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A DataFrame of exactly these files' rows, whatever the session's settings, or an error; never fewer. [SP4]

    files: (path relative to the root, size in bytes), each once, as committed. Columns have the schema's names, types, metadata
    and may be null; one that a file lacks is null there, unless `constants` has its value. Files that have some are read
    in tasks. Nothing is listed: 10,000 files plan in about half a second.
    columns: all that the caller will look at; others may be left out. predicate: what the caller filters the rows by; others may be
    left out, too. [RD13]
    trust_footers: False where a file of another writer has float columns, whose footers hide NaN.
    """
    check_reachable(root_url)
    given = StorageOptions(storage_options)
    open_store(root_url, given)  # refuses options that the store does not take
    if not files:
        return spark.createDataFrame([], spark_schema(schema))
    plan = _ReadPlan(
        url=root_url,
        files=tuple(files),
        schema=schema,
        columns=tuple(columns) if columns else None,
        constants=constants or Constants(),
        predicate=b"" if predicate is None else pickle.dumps(predicate),
    )
    own = [file for file in files if file[0] not in plan.constants.values]
    base = _native_base(spark, root_url, own)
    if base is None:
        return _read_in_tasks(spark, plan, given)
    scanned = _scan(spark, base, own, schema, _scan_options(schema, trust_footers))
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
    """These columns of exactly these files' rows, and beside each row its file's path in the column `name_column`. [SP4]

    Read in tasks: what Spark itself tells of a row's file (a URL, escaped) differs between its sources.
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
    """The table's columns as Spark shows them when it reads: all may be null, as in any file source."""
    return StructType.fromJson(to_spark(schema, physical=physical, relaxed=True))


# --- Spark's own scan ---------------------------------------------------------------------------------------------------


def _native_base(spark: SparkSession, root_url: str, files: Sequence[tuple[str, int]]) -> str | None:
    """The root as Hadoop names it, where Spark itself can read all of these files; None where it cannot, or there are none."""
    if not files or is_connect(spark) or any(_spark_skips(path) for path, _ in files):
        return None
    return _hadoop_base(spark, root_url, files[0])


def _scan_options(schema: Schema, trust_footers: bool) -> dict[str, str]:
    has_floats = any(field.type in ("float", "double") for _, field in walk(schema.fields))
    return _SCAN_OPTIONS | (_TWO_ZEROS if has_floats else {}) | ({} if trust_footers else _UNPRUNED)


def _scan(spark: SparkSession, base: str, files: Sequence[tuple[str, int]], schema: Schema, options: Mapping[str, str]) -> DataFrame:
    physical = spark_schema(schema, physical=True)
    df, planned = _through_sink_log(spark, base, files, physical, options)
    if planned != len(files):
        # spark.sql.streaming.fileStreamSink.ignoreMetadata, or a Spark that reads the log otherwise: name the files one by one.
        one_by_one = {**options, "__globPaths__": "false"}
        df = spark.read.format(_PARQUET).schema(physical).options(**one_by_one).load([f"{base}/{path}" for path, _ in files])
        planned = _planned_files(df)
    if planned != len(files):
        raise StoreError(
            f"Spark would read {planned} files of {base} where the snapshot lists {len(files)}; nothing was read. Read with "
            'spark.read.format("manifestcommit").load(path) instead.'
        )
    if all(field.physical is None for field in schema.fields):
        return df
    named = zip(schema.fields, spark_schema(schema).fields, strict=True)
    return df.select(*(F.col(quoted(field.file_name)).alias(field.name, metadata=shown.metadata) for field, shown in named))


def _through_sink_log(
    spark: SparkSession, base: str, files: Sequence[tuple[str, int]], physical: StructType, options: Mapping[str, str]
) -> tuple[DataFrame, int]:
    """Spark reads a folder whose `_spark_metadata` says which files it consists of without listing anything. How many it will read.

    The folder is a scratch one that may go as soon as the DataFrame has its file index.
    """
    scratch = tempfile.mkdtemp(prefix="manifestcommit-read-")
    try:
        os.mkdir(os.path.join(scratch, "_spark_metadata"))
        with open(os.path.join(scratch, "_spark_metadata", "0"), "w", encoding="utf-8") as log:
            log.write("v1")
            log.writelines(_log_lines(base, files))
        df = spark.read.format(_PARQUET).schema(physical).options(**options).load(f"file://{scratch}")
        return df, _planned_files(df)  # forces the index while the log is there
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _log_lines(base: str, files: Iterable[tuple[str, int]]) -> Iterator[str]:
    """What Spark's own sink would have logged of these files: a line of JSON each, with the path as an escaped URI."""
    scheme, root = base.split("://", 1)
    folders: dict[str, str] = {}  # escaped, each once: escaping takes longer than all the rest
    for path, size_bytes in files:
        folder, slash, name = path.rpartition("/")
        if folder not in folders:
            folders[folder] = f"{scheme}://{quote(f'{root}/{folder}{slash}')}"
        yield (
            f'\n{{"path":"{folders[folder]}{name if _UNRESERVED.fullmatch(name) else quote(name)}","size":{size_bytes},"isDir":false,'
            '"modificationTime":0,"blockReplication":1,"blockSize":134217728,"action":"add"}'
        )


_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*", re.ASCII)  # what `quote` leaves as it is


def _planned_files(df: Any) -> int:
    # DataFrame.inputFiles() copies every name into Python: 17 times slower at 10,000 files.
    return len(df._jdf.inputFiles())


def _hadoop_base(spark: Any, root_url: str, sample: tuple[str, int]) -> str | None:
    """The root as Hadoop names it; None where this JVM cannot reach it, which the sample proves: one of its files, with its size."""
    scheme, rest = root_url.split("://", 1)
    hadoop = _HADOOP_SCHEMES.get(scheme)
    if hadoop == "file":
        return root_url
    if hadoop is None:
        return None
    from py4j.protocol import Py4JError

    base = f"{hadoop}://{rest}"
    hadoop_fs = spark._jvm.org.apache.hadoop.fs
    try:
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        for name, value in _ONE_TRY.items():
            configuration.set(name, value)
        path = hadoop_fs.Path(f"{base}/{sample[0]}")
        file_system = hadoop_fs.FileSystem.newInstance(path.toUri(), configuration)
        try:
            size_bytes = file_system.getFileStatus(path).getLen()
        finally:
            file_system.close()
    except Py4JError as error:  # no such file system, other credentials, another endpoint, no network: tasks have their own way
        LOG.debug("Hadoop does not reach %s (%s): tasks read it with pyarrow", base, type(error).__name__)
        return None
    return base if size_bytes == sample[1] else None


def _spark_skips(path: str) -> bool:
    """Whether Spark's file sources silently leave such a name out, or cannot open it. Only files from outside have one."""
    name = path.rpartition("/")[2]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or ":" in name


def quoted(name: str) -> str:
    """A column's name as Spark's expressions take it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


# --- in tasks -----------------------------------------------------------------------------------------------------------


class PlannedRead(StoreSource):
    """The library's own way to read a list of files in tasks; users read with `manifestcommit.read_committed`."""

    format_name = FORMAT

    def schema(self) -> StructType:
        plan = self._plan()
        struct = spark_schema(plan.schema)
        chosen = list(struct) if plan.columns is None else [struct[name] for name in plan.columns]
        return StructType(chosen if plan.name_column is None else [*chosen, StructField(plan.name_column, StringType())])

    def reader(self, schema: StructType) -> FilesReader:
        plan = self._plan()
        return FilesReader(
            plan.url,
            plan.files,
            plan.schema,
            schema,
            constants=plan.constants,
            predicate=pickle.loads(plan.predicate) if plan.predicate else None,
            name_column=plan.name_column,
            storage_options=self.storage_options,
        )

    def _plan(self) -> _ReadPlan:
        packed = base64.b64decode(self.options["plan"])
        return msgspec.json.decode(zstandard.ZstdDecompressor().decompress(packed), type=_ReadPlan)


class _ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    files: tuple[tuple[str, int], ...]
    schema: Schema
    columns: tuple[str, ...] | None
    constants: Constants = Constants()
    name_column: str | None = None
    predicate: bytes = b""  # pickled: its literals are Python values of many types; whoever may set this option may run Python here


def _read_in_tasks(spark: SparkSession, plan: _ReadPlan, storage_options: StorageOptions) -> DataFrame:
    packed = base64.b64encode(zstandard.ZstdCompressor().compress(msgspec.json.encode(plan))).decode()
    return spark.read.format(registered_name(spark, PlannedRead, storage_options)).option("plan", packed).load()

"""A DataFrame over exactly the files of one snapshot: with Spark's own scan if its JVM reaches
them, else with pyarrow in tasks. [SP4]
"""

from __future__ import annotations

import base64
import json
import logging
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ..errors import UsageError
from ..files.foreign_file import damaged_file
from ..format import sink_log
from ..format.entries import pack_bins
from ..format.fields import FLOATS, MARK, Schema, WireValue, to_spark, walk
from ..format.values import refit, to_array
from ..scan.arrow_dataset import Constants, is_damage
from ..scan.engine_readers import PartitionFolders
from ..scan.parallel_decode import Portion, decode_ahead, read_ahead
from ..store import StorageOptions, open_store
from . import features
from .features import DataSourceReader, InputPartition, arrow_schema_of, is_connect
from .spark_internals import file_index, is_stopped, java_frame, java_session, jvm
from .tasks import StoreSource, check_reachable, registered_name, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LOG = logging.getLogger("manifestcommit.spark")
Work = TypeVar("Work")
Files: TypeAlias = Sequence[tuple[str, int]]  # path, size in bytes

# How Spark packs files into partitions (spark.sql.files.maxPartitionBytes and openCostInBytes).
_PARTITION_BYTES = 128 << 20
_OPEN_COST_BYTES = 4 << 20
_BATCH_ROWS = 64 * 1024
# in place of a name in files: a column with the path of each row's file
_NAME = "\0manifestcommit.path"


@dataclass
class FileGroup(InputPartition):
    """The files that one task reads, as (path, size in bytes), and what only their entries hold."""

    files: tuple[tuple[str, int], ...]
    constants: Constants = Constants()  # noqa: RUF009  # frozen


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks are to read. files: (path, size in bytes); columns: of `schema`, None: all;
    name_column: one more, for the path of each row's file."""

    url: str
    files: tuple[tuple[str, int], ...] = ()
    schema: Schema
    columns: tuple[str, ...] | None = None
    constants: Constants = Constants()
    name_column: str | None = None

    @property
    def struct(self) -> StructType:
        """The columns as Spark shows them."""
        struct = spark_schema(self.schema)
        chosen = list(struct) if self.columns is None else [struct[name] for name in self.columns]
        more = [] if self.name_column is None else [StructField(self.name_column, StringType())]
        return StructType([*chosen, *more])


class FilesReader(DataSourceReader):
    """Reads exactly the given files with pyarrow, as columns of `struct` (a selection of the
    table's columns). [SP4] Filter pushdown is disabled: Spark would read those files again for
    other queries of the same DataFrame. [SP12]"""

    def __init__(self, plan: ReadPlan, struct: StructType, storage_options: StorageOptions) -> None:
        names = {field.name: field.file_name for field in plan.schema.fields}
        if plan.name_column is not None:
            names[plan.name_column] = _NAME
        self.plan, self.struct, self.storage_options = plan, struct, storage_options
        self.file_names = tuple(names[field.name] for field in struct.fields)

    def __getstate__(self) -> dict[str, Any]:
        # otherwise every task would carry the whole list; each gets its group
        plan = msgspec.structs.replace(self.plan, files=(), constants=Constants())
        return {**self.__dict__, "plan": plan}

    def partitions(self) -> Sequence[InputPartition]:
        files, constants = self.plan.files, self.plan.constants
        return [FileGroup(group, constants.of(group)) for group in pack(files, itemgetter(1))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FileGroup):  # Spark's plan if there are no files at all
            return
        url, constants = self.plan.url, partition.constants
        target = arrow_schema_of(self.struct)
        types = {field.file_name: field.type for field in self.plan.schema.fields}

        def choose(file: pq.ParquetFile) -> tuple[Sequence[int], Sequence[str]]:
            present = set(file.schema_arrow.names)
            return range(file.num_row_groups), [n for n in self.file_names if n in present]

        def decode(portion: Portion) -> Iterator[pa.RecordBatch]:
            filled = {_NAME: pa.scalar(portion.path)}
            values = constants.values.get(portion.path, ())
            for name, value in zip(constants.columns, values, strict=False):
                if name in types:
                    filled[name] = to_array([value], types[name])[0]
            try:
                for batch in portion.file.iter_batches(
                    _BATCH_ROWS, row_groups=portion.groups, columns=portion.columns
                ):
                    yield fitted(batch, target, self.file_names, filled)
            except (pa.ArrowInvalid, OSError) as error:
                if is_damage(error):
                    raise damaged_file(url, portion.path, error) from error
                raise

        portions = read_ahead(
            open_store(url, self.storage_options),
            partition.files,
            choose,
            all_columns=types.keys() <= set(self.file_names),
            footers=constants.footers,
        )
        yield from decode_ahead(portions, decode)


def files_in(entries: pa.Table) -> tuple[tuple[str, int], ...]:
    """The path and the size of each."""
    columns = (entries.column(name).to_pylist() for name in ("path", "bytes"))
    return tuple(zip(*columns, strict=True))


def pack(works: Iterable[Work], bytes_of: Callable[[Work], int]) -> list[tuple[Work, ...]]:
    """Group files, or what is read of them, into about one task's work each, in their order."""
    costs = ((work, bytes_of(work) + _OPEN_COST_BYTES) for work in works)
    return [tuple(group) for group in pack_bins(costs, _PARTITION_BYTES)]


def fitted(
    batch: pa.RecordBatch,
    target: pa.Schema,
    file_names: Sequence[str],
    filled: Mapping[str, pa.Scalar],
) -> pa.RecordBatch:
    """The batch as one of exactly `target`; column i is its column `file_names[i]`, null if it has
    none, and so is a member that it lacks. No value changes. filled: the value of a column that the
    file lacks, instead of null. [DF4]"""
    present = set(batch.schema.names)
    columns = []
    for name, kind in zip(file_names, target.types, strict=True):
        value, rows = filled.get(name), batch.num_rows
        there = name in present
        columns.append(_fit(batch.column(name), kind) if there else _repeat(value, rows, kind))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _fit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array as `target`: members by name, missing ones null, no cast that changes a value."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type.equals(target):
        return array
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        names = {array.type.field(i).name: i for i in range(array.type.num_fields)}
        flat = array.flatten()
        n, known = len(array), [(names.get(each.name), each.type) for each in target]
        members = [pa.nulls(n, kind) if at is None else _fit(flat[at], kind) for at, kind in known]
        return pa.StructArray.from_arrays(members, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target) and pa.types.is_list(array.type):
        return refit(array, target, partial(_fit, target=target.value_type))
    if pa.types.is_map(target) and pa.types.is_map(array.type):
        keys = partial(_fit, target=target.key_type)
        return refit(array, target, keys, partial(_fit, target=target.item_type))
    return array.cast(target)


def relaxed(schema: pa.Schema) -> pa.Schema:
    """The columns, whose members may be null: those of a variant that is null are."""
    return pa.schema([field.with_type(nullable(field.type)) for field in schema])


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type with members that may be null."""
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(nullable(each.type)).with_nullable(True) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(nullable(kind.key_type), nullable(kind.item_type))
    return pa.list_(nullable(kind.value_type)) if pa.types.is_list(kind) else kind


def _repeat(value: pa.Scalar | None, rows: int, type: pa.DataType) -> pa.Array:
    return pa.nulls(rows, type) if value is None else pa.repeat(value, rows).cast(type)


# Lets Spark's own scan prune partitions: it reads the values from the folders' names, and what it
# has read is compared with the entries before a row is.

# Spark reads partitions from paths only without this option.
PRUNING_OPTIONS = {"recursiveFileLookup": "false"}
_EPOCH = date(1970, 1, 1).toordinal()


def spark_agrees(df: DataFrame, base: str, folders: PartitionFolders) -> bool:
    """Whether the DataFrame's file index has exactly these partition columns, folders and values.
    [RD43] base: the table path in Hadoop's form. Only the index's text is compared: 2,000
    partitions take one call of the JVM instead of 10,000."""
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
    files: Files,
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    trust_footers: bool = True,
    constants: Constants | None = None,
    folders: PartitionFolders | None = None,
    name_column: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A DataFrame of exactly these files' rows, whatever the session's settings, or an error; never
    fewer rows. [SP4] files: (path relative to the table path, size in bytes), each once, as
    committed. Columns have the schema's names, types and metadata, and are nullable; one that a
    file lacks is null there, unless `constants` has its value. Files with constants are read in
    tasks. Nothing is listed: 10,000 files plan in about half a second. columns: all that the caller
    will use; others may be omitted. folders: those of the files without constants, if Spark may
    prune by them [RD43]. name_column: one more column, with the path of each row's file; then tasks
    read, since the name that Spark itself reports (a URL, escaped) differs between its sources.
    trust_footers: False if a file of another writer has float columns, whose footers omit NaN."""
    check_reachable(root_url)
    given = StorageOptions(storage_options)
    open_store(root_url, given).check_files(path for path, _ in files)
    if not files and name_column is None:
        return spark.createDataFrame([], spark_schema(schema))
    plan = ReadPlan(
        url=root_url,
        files=tuple(files),
        schema=schema,
        columns=tuple(columns) if columns else None,
        constants=constants or Constants(),
        name_column=name_column,
    )
    own = [file for file in files if file[0] not in plan.constants.values]
    base = None if name_column else _native_base(spark, root_url, own, schema)
    options = _scan_options(schema, trust_footers)
    scanned = None if base is None else _scan(spark, base, own, schema, options, folders)
    if scanned is None:
        return _read_in_tasks(spark, plan, given)
    if len(own) == len(files):
        return scanned
    adopted = tuple(file for file in files if file[0] in plan.constants.values)
    others = _read_in_tasks(spark, msgspec.structs.replace(plan, files=adopted), given)
    return scanned.select(*(quoted(name) for name in others.columns)).union(others)


def spark_schema(schema: Schema, *, physical: bool = False) -> StructType:
    """The table's columns as Spark shows them: all nullable, as in any file source."""
    if any(field.type == "variant" for _, field in walk(schema.fields)):
        features.check_feature("variant")
    return StructType.fromJson(to_spark(schema, physical=physical))


# --- Spark's own scan -----------------------------------------------------------------------------


def _native_base(spark: SparkSession, root_url: str, files: Files, schema: Schema) -> str | None:
    """The table path in Hadoop's form, if Spark itself can read all of these files; None if it
    cannot, or there are none."""
    if not files or is_connect(spark) or any(map(sink_log.is_skipped, (path for path, _ in files))):
        return None
    types = {field.type for _, field in walk(schema.fields) if isinstance(field.type, str)}
    if types & features.UNREAD_TYPES:
        return None
    return _hadoop_base(spark, root_url, files[0])


def _scan_options(schema: Schema, trust_footers: bool) -> dict[str, str]:
    if not any(field.type in FLOATS for _, field in walk(schema.fields)):
        return sink_log.SCAN_OPTIONS
    unpruned = {} if trust_footers else sink_log.UNPRUNED
    return sink_log.SCAN_OPTIONS | sink_log.TWO_ZEROS | unpruned


def _scan(
    spark: SparkSession,
    base: str,
    files: Files,
    schema: Schema,
    options: Mapping[str, str],
    folders: PartitionFolders | None,
) -> DataFrame | None:
    """Spark's own scan; None where it would read other files than these. [SP4]"""
    physical = spark_schema(schema, physical=True)
    if folders is not None:
        pruned = _partitioned(spark, base, files, physical, options, folders)
        if pruned is not None:
            return _named(pruned, schema)
    df = _through_sink_log(spark, base, files, physical, options)
    if df is None or all(field.physical is None for field in schema.fields):
        return df
    return _named(df, schema)


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
    files: Files,
    physical: StructType,
    options: Mapping[str, str],
    folders: PartitionFolders,
) -> DataFrame | None:
    """The scan with partition columns, which prunes folders by later filters and joins; None where
    Spark reads a name otherwise than it was written. [RD43]"""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        df = _through_sink_log(spark, base, files, physical, {**options, **PRUNING_OPTIONS})
        if df is not None and spark_agrees(df, base, folders):
            return df
    except (Py4JError, PySparkException) as error:  # such as a folder above called "=x"
        what = "Spark reads no partitions from the folders of %s: %s"
        LOG.debug(what, base, type(error).__name__)
    return None


def _through_sink_log(
    spark: SparkSession, base: str, files: Files, physical: StructType, options: Mapping[str, str]
) -> DataFrame | None:
    """Let Spark read a folder whose `_spark_metadata` names its files, so that it lists nothing;
    None where it would read other files than these. [SP4] The folder is temporary, and can be
    removed as soon as the DataFrame has its file index."""
    prefix = "manifestcommit-read-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as scratch:
        os.mkdir(os.path.join(scratch, "_spark_metadata"))
        with open(os.path.join(scratch, "_spark_metadata", "0"), "w", encoding="utf-8") as log:
            log.writelines(sink_log.lines(base, files))
        reader = spark.read.format(_PARQUET).schema(physical).options(**options)
        df = reader.load(f"file://{scratch}")
        # This builds the index while the log exists. DataFrame.inputFiles() copies every name into
        # Python: 17 times slower at 10,000 files.
        planned = len(java_frame(df).inputFiles())
    # spark.sql.streaming.fileStreamSink.ignoreMetadata is set, or it reads the log otherwise
    return df if planned == len(files) else None


def _hadoop_base(spark: Any, root_url: str, sample: tuple[str, int]) -> str | None:
    """The table path in Hadoop's form; None if this JVM cannot reach it, which reading the sample
    shows: one of its files, with its size."""
    base = sink_log.hadoop_url(root_url)
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
        what = "Hadoop does not reach %s (%s): tasks read it with pyarrow"
        LOG.debug(what, base, type(error).__name__)
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
        return self._plan().struct

    def reader(self, schema: StructType) -> FilesReader:
        return FilesReader(self._plan(), schema, self.storage_options)

    def _plan(self) -> ReadPlan:
        try:
            packed = base64.b64decode(self.options["plan"], validate=True)
            return msgspec.json.decode(
                zstandard.ZstdDecompressor().decompress(packed), type=ReadPlan
            )
        # also by msgspec; nothing in an option is ever executed [SE2]
        except (KeyError, ValueError, zstandard.ZstdError) as error:
            raise UsageError(
                f'format("{FORMAT}") is this library\'s own, and its option is not for its '
                "plans. Read with manifestcommit.read_committed; nothing was read"
            ) from error


def _read_in_tasks(spark: SparkSession, plan: ReadPlan, options: StorageOptions) -> DataFrame:
    if not features.has("format"):  # no Python data sources [SP45]
        reader = FilesReader(plan, plan.struct, options)
        return rows_of(spark, reader.partitions(), reader.read, plan.struct, options)
    packed = zstandard.ZstdCompressor().compress(msgspec.json.encode(plan))
    source = spark.read.format(registered_name(spark, PlannedRead, options))
    return source.option("plan", base64.b64encode(packed).decode()).load()


_ALIAS = f"{MARK}:"


def marked(df: DataFrame, mark: str) -> DataFrame:
    """The same rows, with the mark in their plan, and safe from INSERT. [SP41] [SP42] Spark inserts
    into a view whose plan is only a file source: the rows would go into a folder that no longer
    exists."""
    return df.select(*(quoted(name) for name in df.columns)).alias(f"{_ALIAS}{mark}")


def marks_of(df: DataFrame) -> list[str]:
    """The marks of all that the DataFrame reads, subqueries and views too. Starts no job."""
    if is_connect(df):
        return [*_connect_marks(df), *column_marks(df.schema)]
    found: list[str] = []
    waiting = [java_frame(df).queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        name = node.getClass().getSimpleName()
        if name == "SubqueryAlias":
            alias = node.identifier().name()
            found += [alias.removeprefix(_ALIAS)] if alias.startswith(_ALIAS) else []
        elif name == "DataSourceV2Relation":
            found += _field_marks(json.loads(node.schema().json())["fields"])
        for more in (node.children(), node.innerChildren(), node.subqueries()):
            waiting += [more.apply(index) for index in range(more.size())]
    return found


def column_marks(struct: StructType) -> list[str]:
    """The marks that columns carry: those of a query's result that came through it unchanged."""
    return _field_marks(struct.jsonValue()["fields"])


def with_marks(struct: StructType, mark: str) -> StructType:
    """The columns with the mark in their metadata, all that Spark shows a query's source."""

    def marked(field: StructField) -> StructField:
        known = {**field.metadata, MARK: mark}
        return StructField(field.name, field.dataType, field.nullable, known)

    return StructType([*map(marked, struct)])


def check_running(spark: SparkSession) -> None:
    """UsageError if the session was stopped, also a DataFrame's: Spark's errors do not name it."""
    if not is_connect(spark) and is_stopped(spark.sparkContext):
        raise UsageError(
            "this Spark session was stopped, so that it reads nothing any more, and rows of its "
            "DataFrames can no longer be computed; nothing was done. Start a new session, and "
            "create the DataFrame again in it."
        )


def _field_marks(fields: Iterable[dict[str, Any]]) -> list[str]:
    marks = ((field.get("metadata") or {}).get(MARK) for field in fields)
    return list(dict.fromkeys(mark for mark in marks if isinstance(mark, str)))


def _connect_marks(df: Any) -> Iterator[str]:
    """The same for a Connect session, whose plan is a message: its aliases."""
    waiting = [df._plan.to_proto(df.sparkSession.client)]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            if field.type != field.TYPE_MESSAGE:
                if field.name == "alias" and isinstance(value, str) and value.startswith(_ALIAS):
                    yield value.removeprefix(_ALIAS)
            elif isinstance(value, str | bytes) or not hasattr(value, "ListFields"):
                parts = value.values() if hasattr(value, "values") else value
                waiting += [part for part in parts if hasattr(part, "ListFields")]
            else:
                waiting.append(value)

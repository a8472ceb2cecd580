"""`format("manifestcommit")`: batch writes that commit, and reads of one snapshot, with Spark's own
`save` and `load`. [SP4] [SP5]

Spark plans, writes, commits and reads in processes of its own, so users see errors as the text of
Spark's exceptions; the library calls (`manifestcommit.write`, `manifestcommit.read_committed`)
raise and return values.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from ...errors import UsageError
from ...files.writer import WritePlan
from ...filter.merge_keys import key_columns
from ...format.evolution import find_column
from ...format.fields import Schema, mark_of
from ...format.spark_json import from_spark
from ...format.transforms import split_calls
from ...job import Job
from ...log.table_context import TableContext
from ...log.time_travel import choose_version
from ...log.version_chain import read_version
from ...protocol.change_feed import CHANGE_COLUMNS, ON_OVERWRITE, Offset, OnOverwrite, parse_offset
from ...rows.read_changes import RowFeed, chosen_columns
from ...runtime.validation import check_work, message, metadata, size, whole
from ...scan.arrow_dataset import constants_in
from ...scan.change_feed import Feed
from ...scan.planning import entries_table
from ...store import StorageOptions, open_store
from ...store.options import takes_options
from ..read.changes import ChangesOfTask, ChangesReader, pack_changes, with_change_columns
from ..read.provenance import column_marks, with_marks
from ..read.scan import spark_schema
from ..read.task_reader import FileGroup, FilesReader, pack
from ..runtime.registered_options import StoreSource
from ..runtime.task_errors import check_reachable
from ..runtime.versions import (
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
    WriterCommitMessage,
    check_feature,
)
from ..write.arrow_writer import TaskMessage, TaskWritten, collect, packed, task_context, write_task
from .stream_writer import StreamWriter, plan_batch, refuse_stream_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from ...log.version_chain import Head

# `spark.readStream.format("manifestcommit")`: every committed file once, in the order of
# versions.


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a stream. starting_version: None: all live files first; max_files: per
    trigger; on: the columns of a key, for changes."""

    starting_version: int | None = None
    max_files: int | None = None
    on_overwrite: OnOverwrite = "fail"
    on: tuple[str, ...] = ()


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Every file that the table adds is in exactly one batch, and a repeated batch has the same
    files. [SP8]

    columns: those of `struct`, in the table's version `pinned`.
    """

    def __init__(
        self,
        url: str,
        columns: Schema,
        struct: StructType,
        *,
        pinned: int,
        options: StreamOptions,
        storage_options: StorageOptions,
    ) -> None:
        self.url = url
        self.columns = columns
        self.struct = struct
        self.pinned = pinned
        self.options = options
        self.storage_options = storage_options
        self._feed: Feed | RowFeed | None = None
        self._at: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        self._at = _dict(self.feed.beginning(self.options.starting_version))
        return self._at

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        return (
            ReadMaxFiles(self.options.max_files) if self.options.max_files else ReadAllAvailable()
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        self.feed.stop_at_head()

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        # Before 4.2 Spark does not say where the stream is: there it is where its last batch ended,
        # which Spark plans once more, without any file, when it starts a query again.
        at = start or self._at or self.initialOffset()
        return _dict(
            self.feed.advance(
                _offset(at), limit.max_files if isinstance(limit, ReadMaxFiles) else None
            )
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._at = end
        feed = self.feed
        if isinstance(feed, RowFeed):
            changes = feed.between(_offset(start), _offset(end))
            return [ChangesOfTask(group) for group in pack_changes(changes)]
        files = feed.between(_offset(start), _offset(end))
        constants = feed.constants(files)
        return [FileGroup(group, constants.of(group)) for group in pack(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangesOfTask):
            fields, on = self.columns.fields, self.options.on
            return ChangesReader(self.url, fields, on, self.storage_options).read(partition.changes)
        # A column's name in files never changes, so the stream's own columns fit the files of every
        # version. [SC6]
        return FilesReader(
            self.url, (), self.columns, self.struct, storage_options=self.storage_options
        ).read(partition)

    @property
    def feed(self) -> Feed | RowFeed:
        """Created on first use, in the one process that plans. It is not sent to tasks."""
        if self._feed is None:
            ctx = TableContext(open_store(self.url, self.storage_options))
            columns, chosen = self.columns.fields, self.options.on_overwrite
            self._feed = (
                RowFeed(ctx, columns=columns, pinned=self.pinned)
                if chosen == "changes"
                else Feed(ctx, columns=columns, pinned=self.pinned, on_overwrite=chosen)
            )
        return self._feed


def _dict(offset: Offset) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(offset)
    return found


def _offset(given: dict[str, Any]) -> Offset:
    try:
        return parse_offset(given)
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(
            f"the checkpoint holds an offset that is not of this source ({error}); nothing "
            "was read. Start with a new checkpoint."
        ) from None


LOG = logging.getLogger("manifestcommit.spark")
# From so many bytes on, what Spark does not pass to a Python data source is worth a note.
NOTED_BYTES = 64 << 20

WRITE_OPTIONS = (
    "path",
    "partitionBy",
    "key",
    "fingerprint",
    "watermarks",
    "overwrite",
    "conflict",
    "basedOn",
    "mergeSchema",
    "replaceSchema",
    "targetFileSize",
    "message",
    "metadata",
)
STREAM_WRITE_OPTIONS = (
    "path",
    "checkpointLocation",
    "queryName",
    "partitionBy",
    "key",
    "conflict",
    "mergeSchema",
    "targetFileSize",
    "message",
    "metadata",
)
READ_OPTIONS = ("path", "version", "asOf", "tag", "columns")
STREAM_READ_OPTIONS = (
    "path",
    "startingVersion",
    "maxFilesPerTrigger",
    "onOverwrite",
    "on",
    "columns",
)
_OVERWRITE_MODE = "partitionOverwriteMode"
_SESSION_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


class ManifestCommitDataSource(StoreSource):
    """Tables as a Spark format: a write is one exactly-once commit, a DataFrame is one snapshot.
    [SP4] [SP5]

    Write options: path (from `save`), partitionBy (`a,b` or a JSON list), key, fingerprint,
    watermarks (JSON: source to [start, end]), basedOn (the version of the table that the rows were
    read from, [CF17]), mergeSchema, targetFileSize (bytes, or a text such as 128MB), message and
    metadata (JSON: name to text) for the commit's record ([OB15]); with mode("overwrite") also
    conflict, replaceSchema and overwrite ("all", "dynamic" or JSON: column to value). A streaming
    query's: path (from `start`), partitionBy, key, mergeSchema, targetFileSize, message, metadata;
    with outputMode("complete") also conflict. Read options: version, asOf, tag, columns (`a,b` or a
    JSON list): no others are read from the files. Spark does not tell a Python data source which
    columns
    a query uses, and filters are not taken from it ([SP12]); `manifestcommit.read_committed(path,
    columns=..., filter=...)` skips files by both. A stream's: startingVersion (the first whose
    added files are given; without it all live files come first), maxFilesPerTrigger, columns,
    onOverwrite (at a commit that removed rows "fail"; "files": give those that it added; "skip":
    skip it; "changes": the stream is one of changed rows, [CH7]), on (the columns of their key). At
    a rollback that brings back files from before the stream began, "files" fails, too.
    Object stores are reached as the environment of Spark's processes says (AWS_ACCESS_KEY_ID,
    AWS_ENDPOINT_URL, profiles, instance roles), or with what `manifestcommit.register(spark,
    storage_options={...})` was given. Never by an option here: Spark shows options in plans. [SE1]
    """

    format_name = "manifestcommit"
    _pinned: int | None = None
    _columns = Schema(fields=())  # of the pinned version
    # whether it was pickled: Spark plans with one source object, and commits a batch with an
    # unpickled one
    _travelled = False

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_travelled": True}

    def schema(self) -> StructType:
        """The chosen snapshot's columns; pins the version, so that every later use of the DataFrame
        reads the same one. [SP4]"""
        # Spark does not say here whether this is a batch or a stream; options of the other one are
        # refused when that is known.
        ctx = self._context((*READ_OPTIONS, *STREAM_READ_OPTIONS[1:5]))
        # here, since Spark replaces errors of `streamReader` by its own
        options = _stream_options(self.options)
        snapshot = self._chosen(ctx).snapshot
        self._pinned, self._columns = snapshot.version, snapshot.schema or self._columns
        mark = mark_of(snapshot.table_id, ctx.store.url, snapshot.version)
        names = _names("columns", self.options.get("columns"))
        struct = select_columns(self._columns, names)
        if options.on_overwrite == "changes":
            chosen_columns(self._columns, options.on or None, names)
            struct = with_change_columns(struct)
        return with_marks(struct, mark)

    def reader(self, schema: StructType) -> FilesReader:
        ctx = self._context(READ_OPTIONS)
        snapshot = read_version(ctx.store, ctx.open(), self._pinned_version()).snapshot
        entries = entries_table(ctx, snapshot)
        files = zip(
            entries.column("path").to_pylist(), entries.column("bytes").to_pylist(), strict=True
        )
        url, columns = ctx.store.url, snapshot.schema or Schema(fields=())
        _note_all_columns(url, sum(entries.column("bytes").to_pylist()), schema, columns)
        constants = constants_in(entries, columns, snapshot.partition_by, url)
        return FilesReader(
            url,
            list(files),
            columns,
            schema,
            constants=constants,
            storage_options=self._options_for(url),
        )

    def streamReader(self, schema: StructType) -> TableStreamReader:  # noqa: N802  # Spark's name
        """No request: Spark calls it for each query's plan, and for its tasks. [SP5] [SP8]"""
        if given := [name for name in READ_OPTIONS[1:4] if self.options.get(name) is not None]:
            raise UsageError(
                "a stream does not stay at a version, so it takes no "
                f"{' and no '.join(given)}; nothing was read. "
                'option("startingVersion", n) says with which version\'s files it begins.'
            )
        ctx, pinned = self._context(STREAM_READ_OPTIONS), self._pinned_version()
        if not schema.fields:
            raise UsageError(
                f"{ctx.store.url} has no columns yet; nothing was read. Start the stream "
                "when data was committed."
            )
        options, url = _stream_options(self.options), ctx.store.url
        names = [field.name for field in schema.fields]
        if options.on_overwrite == "changes":
            names = [name for name in names if name not in CHANGE_COLUMNS]
            keys = key_columns(self._columns, options.on) if options.on else ()
            options = msgspec.structs.replace(options, on=tuple(key.name for key in keys))
        shown = Schema(fields=tuple(find_column(self._columns, name) for name in names))
        return TableStreamReader(
            url,
            shown,
            schema,
            pinned=pinned,
            options=options,
            storage_options=self._options_for(url),
        )

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        """Refuse everything that can be refused, before any task starts. [SP5] [SC3]"""
        _refuse_other_overwrites(self.options)
        ctx = self._context(WRITE_OPTIONS)
        return begin_write(
            ctx,
            schema,
            self.options,
            overwrite=overwrite,
            storage_options=self._options_for(ctx.store.url),
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        """Called twice per batch: to plan it, which refuses everything that can be refused, and to
        commit it, which makes no request. [SP5] [SP7]"""
        if self._travelled:
            return StreamWriter(
                None, storage_options=self._options_for(self.options.get("path") or "")
            )
        refuse_stream_options(self.options, overwrite=overwrite)
        ctx = self._context(STREAM_WRITE_OPTIONS)
        planned = plan_batch(
            ctx,
            schema,
            overwrite=overwrite,
            conflict=self.options.get("conflict") or "serializable",
            key=self.options.get("key"),
            partition_by=_names("partitionBy", self.options.get("partitionBy")),
            merge_schema=_flag("mergeSchema", self.options.get("mergeSchema")),
            target_file_size=size("targetFileSize", self.options["targetFileSize"])
            if self.options.get("targetFileSize")
            else None,
        )
        return StreamWriter(planned, storage_options=self._options_for(ctx.store.url))

    def _context(self, known: tuple[str, ...]) -> TableContext:
        path = self.options.get("path")
        if not path:
            raise UsageError(
                'format("manifestcommit") needs a path: use save(path), load(path) or '
                "start(path). Tables of a catalog (saveAsTable, "
                "CREATE TABLE, INSERT) arrive here without one, whatever their LOCATION, and "
                "are not supported. Nothing was done. For SQL, "
                "CREATE TEMPORARY VIEW v USING manifestcommit OPTIONS (path '...'); DROP "
                "TABLE takes the catalog's entry away and no data."
            )
        lowered = {name.lower() for name in known}
        if unknown := sorted(name for name in self.options if name.lower() not in lowered):
            raise UsageError(
                f'format("manifestcommit") does not know the option {", ".join(unknown)}; it '
                f"knows {', '.join(known)}. Nothing was done. "
                "What reaches a store (credentials, endpoint) is no option here, because "
                "Spark shows options in plans: use "
                "manifestcommit.register(spark, storage_options={...}), or the environment. A "
                'quarantine is an argument of manifestcommit.write: on_violation="quarantine".'
            )
        check_reachable(path)
        ctx = TableContext(open_store(path, self._options_for(path)), author=self.author)
        return ctx.noting(*_note(self.options))

    def _pinned_version(self) -> int:
        if self._pinned is None:
            raise UsageError(
                'format("manifestcommit") takes no schema of your own: a table has its '
                "columns. Leave out schema(...) and "
                'choose columns with option("columns", ...) or select.'
            )
        return self._pinned

    def _options_for(self, path: str) -> StorageOptions:
        """A session with options still has local tables, which take none."""
        return self.storage_options if takes_options(path) else StorageOptions()

    def _chosen(self, ctx: TableContext) -> Head:
        given = {
            name: self.options[name]
            for name in READ_OPTIONS[1:4]
            if self.options.get(name) is not None
        }
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} choose a version each; give one of them")
        head = ctx.open()
        name, text = next(iter(given.items()), ("", ""))
        version = choose_version(
            ctx.store,
            head,
            version=_integer(name, text) if name == "version" else None,
            as_of=text if name == "asOf" else None,
            tag=text if name == "tag" else None,
        )
        return head if version is None else read_version(ctx.store, head, version)


# --- Writing --------------------------------------------------------------------------------------


def begin_write(
    ctx: TableContext,
    struct: StructType,
    options: Mapping[str, str],
    *,
    overwrite: bool,
    storage_options: StorageOptions,
) -> TableWriter:
    """The job and its plan, or why not; no task runs, and nothing is visible. [SP5] [SC3]"""
    based_on = (
        whole(1)("basedOn", _integer("basedOn", options["basedOn"]))
        if options.get("basedOn")
        else None
    )
    check_work(key=options.get("key"), fingerprint=options.get("fingerprint"))
    job = Job(
        ctx, key=options.get("key"), fingerprint=options.get("fingerprint"), based_on=based_on
    )
    # for an INSERT through a view, the version that the view shows
    job._based_on.take(column_marks(struct), appends=True)
    chosen = _overwrite_option(options, overwrite)
    if overwrite:
        job.overwrite(
            None if chosen in (None, "all") else chosen,  # type: ignore[arg-type]  # checked there
            conflict=options.get("conflict") or "serializable",  # type: ignore[arg-type]  # so
        )
    for source, (start, end) in _watermarks(options.get("watermarks")).items():
        job.advance(source, start, end)
    if job.already_committed:
        job.commit()
        return TableWriter(None, None, takes_all=False, storage_options=storage_options)
    plan = job._plan_write(
        from_spark(struct.jsonValue()),
        partition_by=_names("partitionBy", options.get("partitionBy")),
        merge_schema=_flag("mergeSchema", options.get("mergeSchema")),
        replace_schema=_flag("replaceSchema", options.get("replaceSchema")),
        target_file_size=size("targetFileSize", options["targetFileSize"])
        if options.get("targetFileSize")
        else None,
    )
    return TableWriter(
        job, plan, takes_all=overwrite and chosen is None, storage_options=storage_options
    )


class TableWriter(DataSourceArrowWriter):
    """Writes in tasks, then makes one commit in a process of Spark's; without a job, the work was
    committed before. [SP1]"""

    def __init__(
        self,
        job: Job | None,
        plan: WritePlan | None,
        *,
        takes_all: bool,
        storage_options: StorageOptions,
    ) -> None:
        self.job = job
        self.plan = plan
        self.takes_all = takes_all
        self.storage_options = storage_options

    def write(self, iterator: Iterator[RecordBatch]) -> TaskMessage:
        if self.takes_all:
            _refuse_dynamic_session()
        if self.plan is None:
            return packed(TaskWritten(task=task_context().partitionId()))
        return write_task(self.plan, iterator, self.storage_options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job's one commit; else it raises, and Spark's exception has the text. [CM1] [CM10]"""
        if self.job is None or self.plan is None:
            return
        written = collect(self.plan, messages, self.storage_options)
        written.add_to(self.job)
        self.job.commit()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete nothing: Spark calls this even after a commit, and tasks may go on. [SP3]"""


def _refuse_dynamic_session() -> None:
    """Spark turns a session's dynamic partition overwrite into an overwrite of everything; only
    tasks see the setting. [SP5]"""
    mode = task_context().getLocalProperty(_SESSION_OVERWRITE_MODE)
    if (mode or "").lower() == "dynamic":
        raise UsageError(
            f"the session's {_SESSION_OVERWRITE_MODE} is dynamic, but this write would "
            "replace the whole table; nothing was "
            'committed. Say which is meant: option("overwrite", "dynamic") or '
            'option("overwrite", "all").'
        )


def _refuse_other_overwrites(options: Mapping[str, str]) -> None:
    """Other formats' options, which Spark would turn into overwriting everything. [SP5]"""
    if options.get("replaceWhere") is not None:
        raise UsageError(
            'replaceWhere is not supported; nothing was written. Use option("overwrite", '
            '\'{"day": "2013-01-01"}\') to replace partitions, or Table.overwrite_where(df, "…"), '
            "which takes any condition."
        )
    if options.get(_OVERWRITE_MODE) is not None:
        raise UsageError(
            f"{_OVERWRITE_MODE} is not supported; nothing was written. Use "
            'option("overwrite", "dynamic") to replace the '
            'partitions that are written, option("overwrite", "all") to replace the table.'
        )


def _overwrite_option(
    options: Mapping[str, str], overwrite: bool
) -> Mapping[str, Any] | Literal["dynamic", "all"] | None:
    text = options.get("overwrite")
    if text is not None and not overwrite:
        raise UsageError(
            'option("overwrite", ...) says what mode("overwrite") replaces; with '
            'mode("append") leave it out'
        )
    if options.get("conflict") is not None and not overwrite:
        raise UsageError(
            'option("conflict", ...) is for mode("overwrite"); an append conflicts with '
            "nothing that was written"
        )
    match text and text.strip().lower():
        case None | "":
            return None
        case "dynamic":
            return "dynamic"
        case "all":
            return "all"
    values = _json(
        "overwrite", text or "", 'all, dynamic or a JSON object such as {"day": "2013-01-01"}'
    )
    if not isinstance(values, dict):
        raise UsageError(
            f'option("overwrite", ...) is all, dynamic or a JSON object such as {{"day": '
            f'"2013-01-01"}}, not {text}'
        )
    return values


def _note(options: Mapping[str, str]) -> tuple[str | None, dict[str, str] | None]:
    said, given = options.get("message"), options.get("metadata")
    try:
        pairs = None if given is None else json.loads(given)
    except (ValueError, RecursionError):  # not repeated: it may be a secret
        raise UsageError(
            'option("metadata", ...) is a JSON object of texts, such as {"git": "4d6b4d9"}'
        ) from None
    return (
        None if said is None else message("message", said),
        None if given is None else metadata("metadata", pairs),
    )


def _watermarks(text: str | None) -> dict[str, tuple[int | str | None, int | str]]:
    form = 'a JSON object such as {"flights:2013-01": [0, 27004]}'
    given = _json("watermarks", text, form) if text else {}
    if not isinstance(given, dict) or not all(
        isinstance(bounds, list) and len(bounds) == 2 for bounds in given.values()
    ):
        raise UsageError(f'option("watermarks", ...) is {form}, not {text}')
    return {source: (start, end) for source, (start, end) in given.items()}


# --- Reading --------------------------------------------------------------------------------------


def select_columns(schema: Schema, names: tuple[str, ...] | None) -> StructType:
    """The schema as Spark shows it, or the named columns of it in that order."""
    struct = spark_schema(schema)
    if names is None:
        return struct
    return StructType([struct[find_column(schema, name).name] for name in names])


def _note_all_columns(url: str, size_bytes: int, struct: StructType, columns: Schema) -> None:
    """Name the other way, on standard error, where a query reads a large table whole. [SP46]"""
    if size_bytes < NOTED_BYTES or len(struct.fields) < len(columns.fields):
        return
    LOG.warning(
        (
            'format("manifestcommit") reads all %d columns of %s (%d MB): Spark passes neither '
            "the columns of a query nor the size of a table through a Python data source. "
            "manifestcommit.read_committed(path) has both; here, name the columns with "
            'option("columns", "a,b").'
        ),
        len(columns.fields),
        url,
        size_bytes >> 20,
    )


def _stream_options(options: Mapping[str, str]) -> StreamOptions:
    on_overwrite = (options.get("onOverwrite") or "fail").lower()
    if on_overwrite not in ON_OVERWRITE:
        raise UsageError(
            f'option("onOverwrite", ...) is one of {", ".join(ON_OVERWRITE)}, not '
            f"{options['onOverwrite']!r}"
        )
    on = _names("on", options.get("on")) or ()
    if on and on_overwrite != "changes":
        raise UsageError(
            'option("on", ...) names the key of changed rows: leave it out, or give '
            'option("onOverwrite", "changes"), too'
        )
    starting, most = (
        _integer(name, text) if (text := options.get(name)) is not None else None
        for name in ("startingVersion", "maxFilesPerTrigger")
    )
    if most is not None and most < 1:
        raise UsageError(f'option("maxFilesPerTrigger", ...) is a number above 0, not {most}')
    if most is not None:
        check_feature("limit")
    chosen = cast(OnOverwrite, on_overwrite)  # one of its words
    return StreamOptions(starting_version=starting, max_files=most, on_overwrite=chosen, on=on)


# --- Options as text ------------------------------------------------------------------------------


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    """`a, bucket(4, b)` or `["a", "b, with a comma"]`."""
    if not text or not text.strip():
        return None
    if not text.lstrip().startswith("["):
        return tuple(split_calls(text))
    names = _json(option, text, "a list of names")
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f'option("{option}", ...) is `a, b` or a JSON list of texts, not {text}')
    return tuple(names)


def _json(option: str, text: str, form: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f'option("{option}", ...) is {form}, not {text!r} ({error})') from None


def _flag(option: str, text: str | None) -> bool:
    if text is None or text.lower() in ("true", "false"):
        return (text or "").lower() == "true"
    raise UsageError(f'option("{option}", ...) is true or false, not {text!r}')


def _integer(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f'option("{option}", ...) is a whole number, not {text!r}') from None

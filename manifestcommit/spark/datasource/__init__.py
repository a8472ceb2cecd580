"""`format("manifestcommit")`: batch writes that commit, reads of one snapshot, and streams, with
Spark's own `save`, `load` and `readStream`. [SP4] [SP5]

Spark plans, writes, commits and reads in processes of its own, so users see errors as the text of
Spark's exceptions; the library calls (`manifestcommit.write`, `manifestcommit.read_committed`)
raise and return values.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from ...errors import StoreError, UsageError
from ...files.writer import WritePlan
from ...filter.predicate import key_columns
from ...format.change import StreamBatch, Write
from ...format.codec import compress, decompress
from ...format.evolution import find_column
from ...format.fields import NO_COLUMNS, Schema, check_has_columns, from_spark, is_text, mark_of
from ...format.snapshot import Snapshot
from ...format.transforms import split_calls
from ...job import Job
from ...log.table_context import TableContext
from ...log.version_chain import choose_version, read_version
from ...protocol.change_feed import CHANGE_COLUMNS, ON_OVERWRITE, Offset, OnOverwrite, parse_offset
from ...rows.read_changes import RowFeed, bytes_of, chosen_columns
from ...runtime.environment import Env
from ...runtime.validation import RULES, message, metadata, optional, size, whole
from ...scan.arrow_dataset import constants_in
from ...scan.change_feed import Feed
from ...scan.planning import entries_table
from ...store import StorageOptions, open_store
from ...store.base import TAKE_NONE, split_url
from .. import features, scan
from ..dataframe import ChangesOfTask, ChangesReader, with_change_columns
from ..scan import FilesReader, ReadPlan, pack, spark_schema
from ..tasks import StoreSource, check_reachable, register_with
from ..writing import TaskMessage, TaskWritten, collect, packed, task_context, write_task

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

    from ...log.version_chain import Head

Messages: TypeAlias = list[features.WriterCommitMessage | None]
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"

_BY_MODE = (
    'outputMode("complete") replaces the whole table with every batch, outputMode("append") nothing'
)
# Options of other uses and of other formats, and why they are refused; whatever else is unknown is
# refused without a reason.
_NOT_OF_STREAMS = {
    "watermarks": "how far its input was read is in its checkpoint",
    "fingerprint": "a batch is identified by its query and its number",
    **dict.fromkeys(("overwrite", "replaceWhere", "partitionOverwriteMode"), _BY_MODE),
    **dict.fromkeys(("version", "asOf", "tag"), "it writes the next version, whichever that is"),
    "columns": "it writes the columns that its DataFrame has: use select",
    "onViolation": (
        "its batch is a commit of one table; use foreachBatch, and write each batch with "
        'manifestcommit.write(df, path, key=f"my-query {batch_id}", on_violation="quarantine")'
    ),
}
_NOT_OF_WRITES = {
    "replaceWhere": (
        'use option("overwrite", \'{"day": "2013-01-01"}\') to replace partitions, or '
        'Table.overwrite_where(df, "…"), which takes any condition'
    ),
    "partitionOverwriteMode": (
        'use option("overwrite", "dynamic") to replace the partitions that are written, '
        'option("overwrite", "all") to replace the table'
    ),
}


class PlannedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch's job before anything is written. It is sent to tasks and back, and contains no
    secret. [SE1] change: what it will do, without files; began_us: when it was planned; key: the
    user's name for the query."""

    plan: WritePlan
    change: Write
    began_us: int
    key: str | None = None


@dataclass(frozen=True)
class BatchMessage(TaskMessage):
    """A task's commit message. batch: the one it wrote; planned: `PlannedBatch` as compressed
    JSON."""

    batch: bytes
    planned: bytes


def plan_batch(
    ctx: TableContext, struct: StructType, options: Mapping[str, str], *, overwrite: bool
) -> PlannedBatch:
    """The batch's job and its plan, or the error that says why not; no task of the batch has
    started. [SP5] [SC3] Only tasks know the query and the number of the batch."""
    conflict = _check_conflict(options, overwrite)
    if conflict.lower() == "fail":
        end = "would end the query at its second batch, since the first filled the table"
        raise UsageError(f'conflict "fail" {end}; leave it out')
    key = options.get("key")
    if key is not None and not is_text(key):
        form = "a non-empty text that is the same whenever this query starts"
        raise _wrong("key", form, repr(key))
    began_us = ctx.env.now_us()
    job = Job(ctx)
    if overwrite:
        job.overwrite(None, conflict=conflict)  # type: ignore[arg-type]  # it is checked there
    plan = job.plan_write(from_spark(struct.jsonValue()), **_layout_options(options))
    assert ctx.known is not None
    change = ctx.signed(job.change(), ctx.known.snapshot.properties)
    return PlannedBatch(plan=plan, change=change, began_us=began_us, key=key)


class StreamWriter(features.DataSourceStreamArrowWriter):
    """Where a batch is planned: pickled to its tasks. Where it is committed: without a plan, which
    comes in the messages. [SP7]"""

    def __init__(self, planned: PlannedBatch | None, *, storage_options: StorageOptions) -> None:
        self.planned = None if planned is None else compress(msgspec.json.encode(planned))
        self.storage_options = storage_options

    def write(self, iterator: Iterator[RecordBatch]) -> BatchMessage:
        """Make this task's rows durable and invisible. [SP1] [KY6]"""
        if self.planned is None:
            what = "this Spark hands tasks a writer that was not planned for their batch"
            raise UsageError(f"{what}; nothing was written")
        planned = _decode(self.planned)
        batch = running_batch(planned.key)
        data = write_task(planned.plan, iterator, self.storage_options).data
        return BatchMessage(data=data, batch=msgspec.json.encode(batch), planned=self.planned)

    def commit(self, messages: Messages, batch_id: int) -> None:
        """The batch's one commit; else it raises, which ends the query. [CM1] [CM10] [KY6]"""
        batch, planned = _agreed(messages, batch_id)
        ctx = TableContext(open_store(planned.plan.url, self.storage_options))
        job = Job(ctx)
        job.resume(planned.change, began_us=planned.began_us)
        job.take_batch(batch)
        assert ctx.known is not None
        is_first = planned.key is None and batch.batch == 0
        if is_first and (text := _stranger(ctx.known.snapshot, batch, job.url)):
            # not by a logger: Spark configures none here, and standard error is the driver's
            warnings.warn(text, stacklevel=2)
        collect(planned.plan, messages, self.storage_options).register(job)
        job.commit()

    def abort(self, messages: Messages, batch_id: int) -> None:
        """Delete nothing: Spark calls this even after a commit, and tasks may go on. [SP3]"""


def running_batch(key: str | None) -> StreamBatch:
    """The query and the batch of the running task: the same whenever the batch runs. [KY6]"""
    context = task_context()
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if not query or batch is None:
        what = "this Spark does not let its tasks know which query and batch they work for"
        raise UsageError(f"{what}; nothing was written")
    return StreamBatch(name=query if key is None else key, query=query, batch=int(batch))


def _agreed(messages: Messages, number: int) -> tuple[StreamBatch, PlannedBatch]:
    """What all tasks report about the batch; an error if they disagree. [SP2]"""
    said: set[tuple[bytes, bytes]] = set()
    for each in messages:
        if not isinstance(each, BatchMessage):
            raise StoreError(
                f"Spark lost the message of a task of batch {number}; nothing was committed. Start "
                "the query again: it runs the batch again. (A continuous trigger hands no rows to "
                "Python sinks: use processingTime or availableNow.)"
            )
        said.add((each.batch, each.planned))
    if len(said) > 1:
        raise _torn(f"Spark's tasks reported {len(said)} different plans of batch {number}")
    if not said:
        raise _torn(f"Spark commits batch {number} without any task")
    ((batch_json, planned),) = said
    batch = msgspec.json.decode(batch_json, type=StreamBatch)
    if batch.batch != number:
        what = f"Spark's tasks wrote batch {batch.batch}, but it commits batch {number}"
        raise StoreError(f"{what}; nothing was committed.")
    return batch, _decode(planned)


def _torn(what: str) -> StoreError:
    return StoreError(f"{what}; nothing was committed. Start the query again.")


def _decode(planned: bytes) -> PlannedBatch:
    return msgspec.json.decode(decompress(planned, name="a batch's plan"), type=PlannedBatch)


def _stranger(snapshot: Snapshot, batch: StreamBatch, url: str) -> str:
    """The message for a query that is new to a table which another query has written: perhaps the
    same one without its checkpoint. [KY6]"""
    others = [last for last in snapshot.streams.values() if last.batch >= 0]
    if batch.name in snapshot.streams or not others:
        return ""
    last = max(others, key=lambda record: record.version)
    return (
        f"{url}: query {batch.query} is new to this table, which holds batches up to "
        f"{last.batch} of query {last.query} (version "
        f"{last.version}). If that is the same query and its checkpoint was deleted, the "
        "rows that it reads again are in the table twice. "
        'With option("key", ...) this would be an error.'
    )


# `spark.readStream.format("manifestcommit")`: every committed file once, in the order of
# versions.


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a stream. starting_version: None: all live files first; max_files: per
    trigger; on: the columns of a key, for changes."""

    starting_version: int | None = None
    max_files: int | None = None
    on_overwrite: OnOverwrite = "fail"
    on: tuple[str, ...] = ()


class TableStreamReader(features.DataSourceStreamReader, features.SupportsTriggerAvailableNow):
    """Every file that the table adds is in exactly one batch, and a repeated batch has the same
    files. [SP8] columns: those of `struct`, in the table's version `pinned`."""

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
        self.url, self.columns, self.struct, self.pinned = url, columns, struct, pinned
        self.options, self.storage_options = options, storage_options
        self._feed: Feed | RowFeed | None = None
        self._at: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        self._at = _dict(self.feed.beginning(self.options.starting_version))
        return self._at

    def getDefaultReadLimit(self) -> features.ReadLimit:  # noqa: N802  # Spark's name
        most = self.options.max_files
        return features.ReadMaxFiles(most) if most else features.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        self.feed.stop_at_head()

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, Any] | None = None, limit: features.ReadLimit | None = None
    ) -> dict[str, Any]:
        # Before 4.2 Spark does not say where the stream is: there it is where its last batch ended,
        # which Spark plans once more, without any file, when it starts a query again.
        at = start or self._at or self.initialOffset()
        most = limit.max_files if isinstance(limit, features.ReadMaxFiles) else None
        return _dict(self.feed.advance(_offset(at), most))

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[features.InputPartition]:
        self._at = end
        feed = self.feed
        if isinstance(feed, RowFeed):
            changes = feed.between(_offset(start), _offset(end))
            return [ChangesOfTask(group) for group in pack(changes, bytes_of)]
        files = feed.between(_offset(start), _offset(end))
        constants = feed.constants(files)
        return [scan.FileGroup(group, constants.of(group)) for group in pack(files, itemgetter(1))]

    def read(self, partition: features.InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangesOfTask):
            fields, on = self.columns.fields, self.options.on
            return ChangesReader(self.url, fields, on, self.storage_options).read(partition.changes)
        # A column's name in files never changes, so the stream's own columns fit the files of every
        # version. [SC6]
        plan = ReadPlan(url=self.url, schema=self.columns)
        return FilesReader(plan, self.struct, self.storage_options).read(partition)

    @property
    def feed(self) -> Feed | RowFeed:
        """Created on first use, in the one process that plans. It is not sent to tasks."""
        if self._feed is None:
            ctx = TableContext(open_store(self.url, self.storage_options))
            columns, chosen = self.columns.fields, self.options.on_overwrite
            if chosen == "changes":
                self._feed = RowFeed(ctx, columns=columns, pinned=self.pinned)
            else:
                self._feed = Feed(ctx, columns=columns, pinned=self.pinned, on_overwrite=chosen)
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


WRITE_OPTIONS = (
    *("path", "partitionBy", "key", "fingerprint", "watermarks", "overwrite", "conflict"),
    *("basedOn", "mergeSchema", "replaceSchema", "targetFileSize", "message", "metadata"),
)
STREAM_WRITE_OPTIONS = (
    *("path", "checkpointLocation", "queryName", "partitionBy", "key", "conflict"),
    *("mergeSchema", "targetFileSize", "message", "metadata"),
)
READ_OPTIONS = ("path", "version", "asOf", "tag", "columns")
STREAM_READ_OPTIONS = (
    *("path", "startingVersion", "maxFilesPerTrigger", "onOverwrite", "on", "columns"),
)
_SESSION_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


class ManifestCommitDataSource(StoreSource):
    """Tables as a Spark format: a write is one exactly-once commit, a DataFrame is one snapshot.
    docs/reference/spark-options.md says what the options mean. [SP4] [SP5] Spark does not tell a
    Python data source which columns a query uses, and filters are not taken from it ([SP12]).
    Options of stores are given to `register`, never here: Spark shows options in plans. [SE1]"""

    format_name = "manifestcommit"
    _pinned: int | None = None
    _columns = NO_COLUMNS  # of the pinned version
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
        self._pinned, self._columns = snapshot.version, snapshot.schema
        mark = mark_of(snapshot.table_id, ctx.store.url, snapshot.version)
        names = _names("columns", self.options.get("columns"))
        struct = select_columns(self._columns, names)
        if options.on_overwrite == "changes":
            chosen_columns(self._columns, options.on or None, names)
            struct = with_change_columns(struct)
        return scan.with_marks(struct, mark)

    def reader(self, schema: StructType) -> FilesReader:
        ctx = self._context(READ_OPTIONS)
        snapshot = read_version(ctx.store, ctx.open(), self._pinned_version()).snapshot
        entries = entries_table(ctx, snapshot)
        url, columns = ctx.store.url, snapshot.schema
        constants = constants_in(entries, columns, snapshot.partition_by, url)
        plan = ReadPlan(url=url, files=scan.files_in(entries), schema=columns, constants=constants)
        return FilesReader(plan, schema, self._options_for(url))

    def streamReader(self, schema: StructType) -> TableStreamReader:  # noqa: N802  # Spark's name
        """No request: Spark calls it for each query's plan, and for its tasks. [SP5] [SP8]"""
        if chosen := " and no ".join(self._choosing()):
            raise UsageError(
                f"a stream does not stay at a version, so it takes no {chosen}; nothing was read. "
                'option("startingVersion", n) says with which version\'s files it begins.'
            )
        ctx, pinned = self._context(STREAM_READ_OPTIONS), self._pinned_version()
        check_has_columns(self._columns, ctx.store.url)
        options, url = _stream_options(self.options), ctx.store.url
        names = [field.name for field in schema.fields]
        if options.on_overwrite == "changes":
            names = [name for name in names if name not in CHANGE_COLUMNS]
            keys = key_columns(self._columns, options.on) if options.on else ()
            options = msgspec.structs.replace(options, on=tuple(key.name for key in keys))
        shown = Schema(fields=tuple(find_column(self._columns, name) for name in names))
        given = self._options_for(url)
        return TableStreamReader(
            url, shown, schema, pinned=pinned, options=options, storage_options=given
        )

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        """Refuse everything that can be refused, before any task starts. [SP5] [SC3]"""
        ctx = self._context(WRITE_OPTIONS, _NOT_OF_WRITES)
        given = self._options_for(ctx.store.url)
        return begin_write(ctx, schema, self.options, overwrite=overwrite, storage_options=given)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        """Called twice per batch: to plan it, which refuses everything that can be refused, and to
        commit it, which makes no request. [SP5] [SP7]"""
        if self._travelled:
            given = self._options_for(self.options.get("path") or "")
            return StreamWriter(None, storage_options=given)
        ctx = self._context(STREAM_WRITE_OPTIONS, _NOT_OF_STREAMS)
        planned = plan_batch(ctx, schema, self.options, overwrite=overwrite)
        return StreamWriter(planned, storage_options=self._options_for(ctx.store.url))

    def _context(self, known: Sequence[str], reasons: Mapping[str, str] = {}) -> TableContext:
        """The table. UsageError for options that are not known, with the reason where there is
        one. [SP5]"""
        path = self.options.get("path")
        if not path:
            raise UsageError(
                'format("manifestcommit") needs a path: use save(path), load(path) or '
                "start(path). Tables of a catalog (saveAsTable, CREATE TABLE, INSERT) arrive here "
                "without one, whatever their LOCATION, and are not supported. Nothing was done. "
                "For SQL, CREATE TEMPORARY VIEW v USING manifestcommit OPTIONS (path '...'); DROP "
                "TABLE takes the catalog's entry away and no data."
            )
        for name, why in reasons.items():
            if self.options.get(name) is not None:
                why = f"{why}. Nothing was written; leave it out."
                raise UsageError(f"this write takes no option {name}: {why}")
        lowered = {name.lower() for name in known}
        if unknown := sorted(name for name in self.options if name.lower() not in lowered):
            raise UsageError(
                f'format("manifestcommit") does not know the option {", ".join(unknown)}; it '
                f"knows {', '.join(known)}. Nothing was done. What reaches a store (credentials, "
                "endpoint) is no option here, because Spark shows options in plans: use "
                "manifestcommit.register(spark, storage_options={...}), or the environment. A "
                'quarantine is an argument of manifestcommit.write: on_violation="quarantine".'
            )
        check_reachable(path)
        ctx = TableContext(open_store(path, self._options_for(path)), author=self.author)
        return ctx.noting(*_note(self.options))

    def _pinned_version(self) -> int:
        if self._pinned is None:
            raise UsageError(
                'format("manifestcommit") takes no schema of your own: a table has its columns. '
                'Leave out schema(...) and choose columns with option("columns", ...) or select.'
            )
        return self._pinned

    def _options_for(self, path: str) -> StorageOptions:
        """A session with options still has local tables, which take none."""
        takes_none = split_url(path)[0] in TAKE_NONE
        return StorageOptions() if takes_none else self.storage_options

    def _chosen(self, ctx: TableContext) -> Head:
        given = self._choosing()
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} choose a version each; give one of them")
        head = ctx.open()
        version = choose_version(
            ctx.store,
            head,
            version=_integer("version", given.get("version")),
            as_of=given.get("asOf"),
            tag=given.get("tag"),
        )
        return head if version is None else read_version(ctx.store, head, version)

    def _choosing(self) -> dict[str, str]:
        """The given options of those that choose a version."""
        given = ((name, self.options.get(name)) for name in READ_OPTIONS[1:4])
        return {name: text for name, text in given if text is not None}


def register(spark: SparkSession, storage_options: Mapping[str, Any] | None) -> None:
    """Make `format("manifestcommit")` known to this session, with these options and no others; they
    are shown nowhere. [SE1] Calling it again replaces what was registered; Spark says so in its
    log."""
    features.check_feature("format")
    options, author = StorageOptions(storage_options), Env().author()
    source = ManifestCommitDataSource
    register_with(spark, source, options, source.format_name, author)


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
    based_on = optional(whole(1))("basedOn", _integer("basedOn", options.get("basedOn") or None))
    key, fingerprint = (RULES[name](name, options.get(name)) for name in ("key", "fingerprint"))
    job = Job(ctx, key=key, fingerprint=fingerprint, based_on=based_on)
    # for an INSERT through a view, the version that the view shows
    job.marks += scan.column_marks(struct)
    job.appends_what_it_read = True
    chosen = _overwrite_option(options, overwrite)
    conflict = _check_conflict(options, overwrite)
    if overwrite:
        job.overwrite(
            None if chosen in (None, "all") else chosen,  # type: ignore[arg-type]  # checked there
            conflict=conflict,  # type: ignore[arg-type]  # so
        )
    for source, (start, end) in _watermarks(options.get("watermarks")).items():
        job.advance(source, start, end)
    if job.already_committed:
        job.commit()
        return TableWriter(None, None, takes_all=False, storage_options=storage_options)
    plan = job.plan_write(
        from_spark(struct.jsonValue()),
        replace_schema=_flag("replaceSchema", options.get("replaceSchema")),
        **_layout_options(options),
    )
    takes_all = overwrite and chosen is None
    return TableWriter(job, plan, takes_all=takes_all, storage_options=storage_options)


class TableWriter(features.DataSourceArrowWriter):
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
        self.job, self.plan, self.takes_all = job, plan, takes_all
        self.storage_options = storage_options

    def write(self, iterator: Iterator[RecordBatch]) -> TaskMessage:
        if self.takes_all:
            _refuse_dynamic_session()
        if self.plan is None:
            return packed(TaskWritten(task=task_context().partitionId()))
        return write_task(self.plan, iterator, self.storage_options)

    def commit(self, messages: Messages) -> None:
        """The job's one commit; else it raises, and Spark's exception has the text. [CM1] [CM10]"""
        if self.job is None or self.plan is None:
            return
        collect(self.plan, messages, self.storage_options).register(self.job)
        self.job.commit()

    def abort(self, messages: Messages) -> None:
        """Delete nothing: Spark calls this even after a commit, and tasks may go on. [SP3]"""


def _refuse_dynamic_session() -> None:
    """Spark turns a session's dynamic partition overwrite into an overwrite of everything; only
    tasks see the setting. [SP5]"""
    if (task_context().getLocalProperty(_SESSION_OVERWRITE_MODE) or "").lower() == "dynamic":
        raise UsageError(
            f"the session's {_SESSION_OVERWRITE_MODE} is dynamic, but this write would replace "
            'the whole table; nothing was committed. Say which is meant: option("overwrite", '
            '"dynamic") or option("overwrite", "all").'
        )


def _check_conflict(options: Mapping[str, str], overwrite: bool) -> str:
    """The option `conflict`, which only an overwrite takes. [SP5]"""
    if options.get("conflict") is not None and not overwrite:
        whose = 'option("conflict", ...) is for mode("overwrite") and outputMode("complete")'
        raise UsageError(f"{whose}; an append conflicts with nothing that was written")
    return options.get("conflict") or "serializable"


def _overwrite_option(
    options: Mapping[str, str], overwrite: bool
) -> Mapping[str, Any] | Literal["dynamic", "all"] | None:
    text = options.get("overwrite")
    if text is not None and not overwrite:
        says = 'option("overwrite", ...) says what mode("overwrite") replaces'
        raise UsageError(f'{says}; with mode("append") leave it out')
    word: Any = (text or "").strip().lower()
    if word in ("", "dynamic", "all"):
        return word or None
    form = 'all, dynamic or a JSON object such as {"day": "2013-01-01"}'
    values = _json("overwrite", text or "", form)
    if not isinstance(values, dict):
        raise _wrong("overwrite", form, text)
    return values


def _note(options: Mapping[str, str]) -> tuple[str | None, dict[str, str] | None]:
    said, given = options.get("message"), options.get("metadata")
    try:
        pairs = None if given is None else json.loads(given)
    except (ValueError, RecursionError):  # not repeated: it may be a secret
        form = 'a JSON object of texts, such as {"git": "4d6b4d9"}'
        raise UsageError(f'option("metadata", ...) is {form}') from None
    noted = None if given is None else metadata("metadata", pairs)
    return optional(message)("message", said), noted


def _watermarks(text: str | None) -> dict[str, tuple[int | str | None, int | str]]:
    form = 'a JSON object such as {"flights:2013-01": [0, 27004]}'
    given = _json("watermarks", text, form) if text else {}
    ranges = given.values() if isinstance(given, dict) else [None]
    if not all(isinstance(bounds, list) and len(bounds) == 2 for bounds in ranges):
        raise _wrong("watermarks", form, text)
    return {source: (start, end) for source, (start, end) in given.items()}


# --- Reading --------------------------------------------------------------------------------------


def select_columns(schema: Schema, names: tuple[str, ...] | None) -> StructType:
    """The schema as Spark shows it, or the named columns of it in that order."""
    struct = spark_schema(schema)
    if names is None:
        return struct
    return StructType([struct[find_column(schema, name).name] for name in names])


def _stream_options(options: Mapping[str, str]) -> StreamOptions:
    on_overwrite = (options.get("onOverwrite") or "fail").lower()
    if on_overwrite not in ON_OVERWRITE:
        form = f"one of {', '.join(ON_OVERWRITE)}"
        raise _wrong("onOverwrite", form, repr(options["onOverwrite"]))
    on = _names("on", options.get("on")) or ()
    if on and on_overwrite != "changes":
        raise UsageError(
            'option("on", ...) names the key of changed rows: leave it out, or give '
            'option("onOverwrite", "changes"), too'
        )
    starting, most = (_integer(name, options.get(name)) for name in STREAM_READ_OPTIONS[1:3])
    if most is not None and most < 1:
        raise _wrong("maxFilesPerTrigger", "a number above 0", most)
    if most is not None:
        features.check_feature("limit")
    chosen = cast(OnOverwrite, on_overwrite)  # one of its words
    return StreamOptions(starting_version=starting, max_files=most, on_overwrite=chosen, on=on)


# --- Options as text ------------------------------------------------------------------------------


def _wrong(option: str, form: str, given: object) -> UsageError:
    return UsageError(f'option("{option}", ...) is {form}, not {given}')


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    """`a, bucket(4, b)` or `["a", "b, with a comma"]`."""
    if not text or not text.strip():
        return None
    if not text.lstrip().startswith("["):
        return tuple(split_calls(text))
    names = _json(option, text, "a list of names")
    if not all(isinstance(name, str) for name in names):
        raise _wrong(option, "`a, b` or a JSON list of texts", text)
    return tuple(names)


def _json(option: str, text: str, form: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(option, form, f"{text!r} ({error})") from None


def _layout_options(options: Mapping[str, str]) -> dict[str, Any]:
    """What batches and streams alike say of the files that they write."""
    target = options.get("targetFileSize")
    return {
        "partition_by": _names("partitionBy", options.get("partitionBy")),
        "merge_schema": _flag("mergeSchema", options.get("mergeSchema")),
        "target_file_size": size("targetFileSize", target) if target else None,
    }


def _flag(option: str, text: str | None) -> bool:
    if text is None or text.lower() in ("true", "false"):
        return (text or "").lower() == "true"
    raise _wrong(option, "true or false", repr(text))


def _integer(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        raise _wrong(option, "a whole number", repr(text)) from None

"""A streaming query writes a table: each batch is one commit, whatever was killed, replayed or run
twice. [SP7] [KY6]

Spark plans every batch in one process (there the batch's job begins), writes in tasks, and commits
in a third process, which knows nothing of the first: the plan travels in the tasks' messages.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from manifestcommit.commits.create_version import settled_outcome
from manifestcommit.errors import StoreError, UsageError
from manifestcommit.files.writer import WritePlan
from manifestcommit.format.change import StreamBatch, Write
from manifestcommit.format.codec import compress, decompress
from manifestcommit.format.fields import is_text
from manifestcommit.format.snapshot import Snapshot, StreamRecord
from manifestcommit.format.spark_json import from_spark
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.protocol.change_feed import judge, record_of
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.spark.runtime.versions import (
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from manifestcommit.spark.write.arrow_writer import (
    TaskMessage,
    TaskWritten,
    collect,
    packed,
    task_context,
    write_task,
)
from manifestcommit.store import StorageOptions, open_store

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

LOG = logging.getLogger("manifestcommit.spark")
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_STREAMS_TOLD = 64  # records of other queries that every task's message carries, at most

# Options of batch writes and reads, and why a streaming query does not support them.
_REFUSED = {
    "watermarks": (
        "how far its input was read is in its checkpoint, and the table keeps its last batch"
    ),
    "fingerprint": "a batch is identified by its query and its number",
    "overwrite": (
        'outputMode("complete") replaces the whole table with every batch, '
        'outputMode("append") nothing'
    ),
    "replaceWhere": (
        'outputMode("complete") replaces the whole table with every batch, '
        'outputMode("append") nothing'
    ),
    "partitionOverwriteMode": (
        'outputMode("complete") replaces the whole table with every batch, '
        'outputMode("append") nothing'
    ),
    "version": "it writes the next version, whichever that is",
    "asOf": "it writes the next version, whichever that is",
    "tag": "it writes the next version, whichever that is",
    "columns": "it writes the columns that its DataFrame has: use select",
    "onViolation": (
        "its batch is a commit of one table; use foreachBatch, and write each batch with "
        'manifestcommit.write(df, path, key=f"my-query {batch_id}", on_violation="quarantine")'
    ),
}


class PlannedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch's job before anything is written. It is sent to tasks and back, and contains no
    secret. [SE1]

    change: what it will do, without files; began_us: when it was planned; key: the user's name for
    the query; streams: the table's records then of the queries that this one may be.
    """

    plan: WritePlan
    change: Write
    began_us: int
    key: str | None = None
    streams: dict[str, StreamRecord] = {}


@dataclass(frozen=True)
class BatchMessage(TaskMessage):
    """A task's commit message. batch: the one it wrote; planned: `PlannedBatch` as compressed JSON;
    settled: it wrote nothing, since the table's record of the query had decided on the batch
    already."""

    batch: bytes
    planned: bytes
    settled: bool


def refuse_stream_options(options: Mapping[str, str], *, overwrite: bool) -> None:
    """Refuse options that a streaming query does not support, with the reason. [SP5]"""
    given = {name.lower() for name in options}
    for name, why in _REFUSED.items():
        if name.lower() in given:
            raise UsageError(
                f"a streaming query takes no option {name}: {why}. Nothing was written; "
                "leave it out."
            )
    if "conflict" in given and not overwrite:
        raise UsageError(
            'option("conflict", ...) is for outputMode("complete"); an append conflicts with '
            "nothing that was written"
        )
    if (options.get("conflict") or "").lower() == "fail":
        raise UsageError(
            'conflict "fail" would end the query at its second batch, since the first filled '
            "the table; leave it out"
        )


def plan_batch(
    ctx: TableContext,
    struct: StructType,
    *,
    overwrite: bool,
    conflict: str,
    key: str | None,
    partition_by: Sequence[str] | None,
    merge_schema: bool,
    target_file_size: int | None,
) -> PlannedBatch:
    """The batch's job and its plan, or the error that says why not; no task of the batch has
    started. [SP5] [SC3]

    Only tasks know the query and the number of the batch.
    """
    if key is not None and not is_text(key):
        raise UsageError(
            'option("key", ...) is a non-empty text that is the same whenever this query '
            f"starts, not {key!r}"
        )
    began_us = ctx.env.now_us()
    job = Job(ctx)
    if overwrite:
        job.overwrite(None, conflict=conflict)  # type: ignore[arg-type]  # it is checked there
    schema = from_spark(struct.jsonValue())
    plan = job._plan_write(
        schema,
        partition_by=partition_by,
        merge_schema=merge_schema,
        target_file_size=target_file_size,
    )
    assert ctx.known is not None
    streams = ctx.known.snapshot.streams
    if key is not None:
        # Only tasks know whether this query wrote under another name.
        streams = {key: streams[key]} if key in streams else streams
    if len(streams) > _STREAMS_TOLD:  # it only saves tasks their work
        streams = dict(sorted(streams.items(), key=lambda item: item[1].version)[-_STREAMS_TOLD:])
    change = ctx.signed(job._change(), ctx.known.snapshot.properties)
    return PlannedBatch(plan=plan, change=change, began_us=began_us, key=key, streams=streams)


class StreamWriter(DataSourceStreamArrowWriter):
    """Where a batch is planned: pickled to its tasks. Where it is committed: without a plan, which
    comes in the messages. [SP7]"""

    def __init__(self, planned: PlannedBatch | None, *, storage_options: StorageOptions) -> None:
        self.planned = None if planned is None else compress(msgspec.json.encode(planned))
        self.storage_options = storage_options

    def write(self, iterator: Iterator[RecordBatch]) -> BatchMessage:
        """Make this task's rows durable and invisible; writes nothing if the table has the batch
        already. [SP1] [KY6]"""
        if self.planned is None:
            raise UsageError(
                "this Spark hands tasks a writer that was not planned for their batch; "
                "nothing was written"
            )
        planned = _decode(self.planned)
        batch = running_batch(planned.key)
        settled = judge(record_of(planned.streams, batch), batch) in ("done", "behind", "reused")
        if settled:
            data = packed(TaskWritten(task=task_context().partitionId())).data
        else:
            data = write_task(planned.plan, iterator, self.storage_options).data
        return BatchMessage(
            data=data, batch=msgspec.json.encode(batch), planned=self.planned, settled=settled
        )

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """The batch's one commit; else it raises, which ends the query. [CM1] [CM10] [KY6]"""
        batch, planned, settled = _agreed(messages, batch_id)
        ctx = TableContext(open_store(planned.plan.url, self.storage_options))
        job = Job(ctx)
        job._resume(planned.change, began_us=planned.began_us)
        job._take_batch(batch)
        assert ctx.known is not None
        if settled:
            outcome = settled_outcome(ctx, ctx.known, job._change(), sent=False)
            if outcome is None:
                raise StoreError(
                    f"{job._url}: the table's record of query {batch.query} was set back "
                    f"while batch {batch.batch} ran; nothing was "
                    "committed. Start the query again: it runs the batch again."
                )
            committed_or_raise(outcome, job._url)
            return
        if (
            planned.key is None
            and batch.batch == 0
            and (text := _stranger(ctx.known.snapshot, batch, job._url))
        ):
            _warn(text)
        collect(planned.plan, messages, self.storage_options).add_to(job)
        job.commit()

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Delete nothing: Spark calls this even after a commit, and tasks may go on. [SP3]"""


def running_batch(key: str | None) -> StreamBatch:
    """The query and the batch of the running task: the same whenever the batch runs. [KY6]"""
    context = task_context()
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if not query or batch is None:
        raise UsageError(
            "this Spark does not let its tasks know which query and batch they work for; nothing "
            "was written"
        )
    return StreamBatch(name=query if key is None else key, query=query, batch=int(batch))


def _agreed(
    messages: Sequence[WriterCommitMessage | None], number: int
) -> tuple[StreamBatch, PlannedBatch, bool]:
    """What all tasks report about the batch, and whether they wrote nothing because it was settled;
    an error if they disagree. [SP2]"""
    said: set[tuple[bytes, bytes, bool]] = set()
    for message in messages:
        if not isinstance(message, BatchMessage):
            raise StoreError(
                f"Spark lost the message of a task of batch {number}; nothing was committed. Start "
                "the query again: it runs the batch again. (A continuous trigger hands no rows to "
                "Python sinks: use processingTime or availableNow.)"
            )
        said.add((message.batch, message.planned, message.settled))
    if not said:
        raise StoreError(
            f"Spark commits batch {number} without any task; nothing was committed. Start the "
            "query again."
        )
    if len(said) > 1:
        raise StoreError(
            f"Spark's tasks reported {len(said)} different plans of batch {number}; nothing was "
            "committed. Start the query again."
        )
    ((batch_json, planned, settled),) = said
    batch = msgspec.json.decode(batch_json, type=StreamBatch)
    if batch.batch != number:
        raise StoreError(
            f"Spark's tasks wrote batch {batch.batch}, but it commits batch {number}; "
            "nothing was committed."
        )
    return batch, _decode(planned), settled


def _decode(planned: bytes) -> PlannedBatch:
    return msgspec.json.decode(decompress(planned, name="a batch's plan"), type=PlannedBatch)


def _stranger(snapshot: Snapshot, batch: StreamBatch, url: str) -> str:
    """The message for a query that is new to a table which another query has written: perhaps the
    same one without its checkpoint. [KY6]"""
    others: Mapping[str, StreamRecord] = {
        name: last_batch
        for name, last_batch in snapshot.streams.items()
        if name != batch.name and last_batch.batch >= 0
    }
    if batch.name in snapshot.streams or not others:
        return ""
    last = max(others.values(), key=lambda record: record.version)
    return (
        f"{url}: query {batch.query} is new to this table, which holds batches up to "
        f"{last.batch} of query {last.query} (version "
        f"{last.version}). If that is the same query and its checkpoint was deleted, the "
        "rows that it reads again are in the table twice. "
        'With option("key", ...) this would be an error.'
    )


def _warn(text: str) -> None:
    """Without configured logging it goes to standard error, which is the driver's."""
    LOG.warning(text)
    logger: logging.Logger | None = LOG
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return
        logger = logger.parent if logger.propagate else None
    if LOG.hasHandlers():  # handlers that print nothing: Python's own last resort is silent then
        print(f"WARN {text}", file=sys.stderr, flush=True)

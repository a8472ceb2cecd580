"""Spark tasks write data files directly to their destination; the description of the files is
returned as a value. [SP1] [SP2] [SP3]

Nothing here commits to a table.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import TaskContext

from manifestcommit.errors import StoreError, UsageError
from manifestcommit.files.writer import DataFileWriter, WritePlan
from manifestcommit.format.codec import (
    compress,
    decompress,
)
from manifestcommit.format.entries import Entry, ManifestRef
from manifestcommit.format.partitioning import PartitionPattern, by_content, dedupe, of_partition
from manifestcommit.log.manifests import ManifestReader, write_manifest
from manifestcommit.runtime.environment import SystemEnv
from manifestcommit.runtime.outcome import InputTotals
from manifestcommit.spark.runtime import without_sources
from manifestcommit.spark.runtime.task_errors import check_reachable, raising_ours
from manifestcommit.spark.runtime.versions import (
    WriterCommitMessage,
    sound,
)
from manifestcommit.spark.write.batch_sizing import paced, without_fillers
from manifestcommit.store import StorageOptions, open_store
from manifestcommit.store.base import retries_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame

    from manifestcommit.commits.prepared_job import JointUnit
    from manifestcommit.store import Store

# A task with more JSON than this sends its entries as a manifest: the driver collects every message
# (spark.driver.maxResultSize).
MESSAGE_LIMIT_BYTES = 1 << 20
# Beyond this much JSON the entries of many tasks become manifests before the caller gets them: as
# objects they take ten times as much memory.
WRITTEN_LIMIT_BYTES = 8 << 20


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one write, every task once; nothing of it is visible before a commit lists it.
    [SP2]

    touched: the partitions of the manifests; intake: the input of its tasks; None: one of them did
    not report it.
    """

    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    touched: tuple[PartitionPattern, ...] = ()
    tasks: int = 0
    intake: InputTotals | None = None

    def add_to(self, job: JointUnit) -> None:
        """Make its files part of what the job commits."""
        job._add_written(
            self.entries,
            self.manifests,
            touched=self.touched,
            tasks=self.tasks,
            intake=self.intake,
        )


class TaskWritten(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of one task. touched: the partitions of the manifests, none: unknown."""

    task: int
    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    touched: tuple[PartitionPattern, ...] = ()
    intake: InputTotals | None = None


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """A task's commit message: `TaskWritten` as compressed JSON, since the driver holds those of
    all tasks at the same time."""

    data: bytes


def packed(written: TaskWritten) -> TaskMessage:
    """The message of a task with this output."""
    return TaskMessage(compress(msgspec.json.encode(written)))


def unpacked(message: TaskMessage) -> TaskWritten:
    """The output of the task with this message."""
    return msgspec.json.decode(decompress(message.data, name="a task's message"), type=TaskWritten)


def write_dataframe(
    df: DataFrame, plan: WritePlan, *, storage_options: Mapping[str, Any] | None = None
) -> Written:
    """Write every row of `df` into exactly one of the returned files; nothing of it is visible yet.
    [SP1] [SP2]

    Runs one Spark job, in classic and Connect sessions. A crash or a failure anywhere leaves only
    files that no snapshot lists. Errors of this package that tasks raised keep their type.
    """
    check_reachable(plan.url)
    given, filler = StorageOptions(storage_options), filler_of(secrets.token_hex(16))
    open_store(plan.url, given)  # refuses options that it does not take
    task = functools.partial(_message_of, plan, given, filler)
    without_sources.check_can_write(task, given)
    with raising_ours(), paced(df, filler) as frame:
        found = without_sources.messages_of(frame, task)
    return collect(plan, [TaskMessage(data) for data in found], given)


def _message_of(
    plan: WritePlan, given: StorageOptions, filler: str, batches: Iterable[RecordBatch]
) -> bytes:
    """In a task: make its rows durable, in files of this attempt."""
    return write_task(plan, without_fillers(batches, filler), given).data


def write_task(
    plan: WritePlan, batches: Iterable[RecordBatch], storage_options: StorageOptions
) -> TaskMessage:
    """Make this attempt's rows durable under names that no other attempt has, or raise an error.
    Runs in a Spark task. [SP1]"""
    task = task_context().partitionId()
    store = open_store(plan.url, storage_options)
    with DataFileWriter(store, plan, task=task, attempt=secrets.token_hex(8)) as writer:
        for batch in batches:
            writer.write(sound(batch))
        entries = writer.close()
    intake = writer.intake + InputTotals(retries=retries_of(store))
    return task_message(store, plan, TaskWritten(task=task, entries=entries, intake=intake))


def task_message(store: Store, plan: WritePlan, written: TaskWritten) -> TaskMessage:
    """A task's message to the driver about its files; as a manifest if they are many. [SP9]"""
    if len(msgspec.json.encode(written.entries)) > MESSAGE_LIMIT_BYTES:
        touched = dedupe(
            of_partition(plan.partition_by, entry.partition) for entry in written.entries
        )
        manifests = (spill_manifest(store, written.entries, plan),)
        written = msgspec.structs.replace(written, entries=(), manifests=manifests, touched=touched)
    return packed(written)


def collect(
    plan: WritePlan, messages: Sequence[WriterCommitMessage | None], storage_options: StorageOptions
) -> Written:
    """The output of all tasks. StoreError if the messages are not one per task. [SP2] [CM26]

    Spark may run several attempts of a task: retries and speculative attempts. It delivers the
    message of one; files of the others are in no message, are not committed, and gc deletes them.

    Entries beyond `WRITTEN_LIMIT_BYTES` are put into manifests, so that the caller's memory stays
    bounded.
    """
    store = open_store(plan.url, storage_options)
    # an earlier attempt finished these tasks: their records do not contain the touched partitions
    reader = ManifestReader(store)
    tasks: set[int] = set()
    entries: list[Entry] = []
    manifests: list[ManifestRef] = []
    touched = by_content(())
    size_bytes = 0
    intake: InputTotals | None = InputTotals()
    for message in messages:
        if not isinstance(message, TaskMessage):
            raise StoreError(
                "Spark lost the message of a task that wrote data; nothing was committed. "
                "Run the write again."
            )
        written = unpacked(message)
        if written.task in tasks:
            raise StoreError(
                f"Spark delivered two messages for task {written.task}; nothing was "
                "committed. Run the write again."
            )
        tasks.add(written.task)
        entries.extend(written.entries)
        manifests.extend(written.manifests)
        touched |= by_content(
            written.touched
            or reader.touched(written.manifests, schema=plan.schema, partition_by=plan.partition_by)
        )
        intake = None if intake is None or written.intake is None else intake + written.intake
        size_bytes += len(msgspec.json.encode(written.entries)) if written.entries else 0
        if size_bytes > WRITTEN_LIMIT_BYTES:
            touched |= by_content(
                of_partition(plan.partition_by, entry.partition) for entry in entries
            )
            manifests.append(spill_manifest(store, entries, plan))
            entries, size_bytes = [], 0
    return Written(
        entries=tuple(entries),
        manifests=tuple(manifests),
        touched=tuple(touched.values()),
        tasks=len(tasks),
        intake=intake,
    )


def spill_manifest(store: Store, entries: Sequence[Entry], plan: WritePlan) -> ManifestRef:
    """The entries as one manifest of the plan's job, if they are too many to be held."""
    return write_manifest(
        store,
        entries,
        schema=plan.schema,
        partition_by=plan.partition_by,
        job=plan.job,
        env=SystemEnv(),
    )


def task_context() -> TaskContext:
    """The running Spark task."""
    context = TaskContext.get()
    if context is None:
        raise UsageError("this runs inside Spark tasks only")
    return context


def filler_of(write_id: str) -> str:
    """The name of the column that marks a write's empty rows, and no other. [SP40]"""
    return f"filler-{write_id}"

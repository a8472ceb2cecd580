"""Spark tasks write data files straight to the destination; what they wrote comes back as a value. [SP1] [SP2] [SP3]

Nothing here commits to a table. Not here: how one file is written (engine.files), the commit (engine.commit), the data source
that users name in `format(...)` (source).
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from manifestcommit import errors
from manifestcommit.core.format import compress, decode_json, decompress, written_name
from manifestcommit.core.manifest import Entry, ManifestRef
from manifestcommit.core.snapshot import FORMAT_VERSION
from manifestcommit.core.touch import Touch, by_content, of_partition, once
from manifestcommit.engine.env import SystemEnv
from manifestcommit.engine.figures import Intake
from manifestcommit.engine.files import DataFileWriter, WritePlan
from manifestcommit.engine.manifests import ManifestReader, write_manifest
from manifestcommit.errors import CorruptMetadataError, ManifestCommitError, StoreError, UsageError
from manifestcommit.spark.pacing import paced, without_fillers
from manifestcommit.spark.registered import StoreSource, registered_name
from manifestcommit.store import StorageOptions, open_store, retries_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from manifestcommit.store import Store

FORMAT = "manifestcommit_write"
# More JSON than this and a task's entries travel as a manifest: the driver collects every message (spark.driver.maxResultSize).
MESSAGE_LIMIT_BYTES = 1 << 20
# More JSON than this and the entries of many tasks become manifests before the caller gets them: as objects they take ten times as much.
WRITTEN_LIMIT_BYTES = 8 << 20

_MISSING = re.compile(r"ModuleNotFoundError: No module named '((?:manifestcommit|msgspec|pyarrow|zstandard)\b[\w.]*)'")
_RAISED = re.compile(r"manifestcommit\.(errors|store\.\w+)\.(\w+): ([^\n]+)")


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What one write put at the destination, every task once; nothing of it is visible before a commit lists it. [SP2]

    touched: the partitions of what is in the manifests; intake: what its tasks were handed; None where one of them did not say.
    """

    format_version: int = FORMAT_VERSION
    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    touched: tuple[Touch, ...] = ()
    tasks: int = 0
    intake: Intake | None = None


class TaskWritten(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one attempt of one task put at the destination. touched: the partitions of what is in the manifests, none: not known."""

    task: int
    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    touched: tuple[Touch, ...] = ()
    intake: Intake | None = None


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """A task's commit message: `TaskWritten` as JSON, compressed, since the driver holds those of all tasks at once."""

    data: bytes


def packed(written: TaskWritten) -> TaskMessage:
    """The message of a task that wrote this."""
    return TaskMessage(compress(msgspec.json.encode(written)))


def unpacked(message: TaskMessage) -> TaskWritten:
    """What the task of this message wrote."""
    return msgspec.json.decode(decompress(message.data, name="a task's message"), type=TaskWritten)


def write_dataframe(df: DataFrame, plan: WritePlan, *, storage_options: Mapping[str, Any] | None = None) -> Written:
    """Every row of `df` is in exactly one of the returned files, and nothing of it is visible yet. [SP1] [SP2]

    Runs one Spark job, in classic and Connect sessions. A crash or a failure anywhere leaves only files that no snapshot lists.
    One put, one get and one delete beside what the tasks write. Errors of this package that tasks raised keep their type.
    """
    check_reachable(plan.url)
    given = StorageOptions(storage_options)
    store = open_store(plan.url, given)
    name = registered_name(df.sparkSession, PlannedWrite, given)
    write_id = secrets.token_hex(16)
    options = {"plan": msgspec.json.encode(plan).decode(), "writeId": write_id}
    with raising_ours(), paced(df, _filler(write_id)) as frame:
        frame.write.format(name).options(**options).mode("append").save()
    return _take_written(store, plan.job, write_id)


def check_reachable(url: str) -> None:
    """Refuse a store that only this process can see: Spark plans, writes, commits and reads in four others."""
    if url.startswith("memory:"):
        raise UsageError(
            f"{url} lives in the memory of one process, which Spark's tasks cannot see; nothing was done. Use a folder or an "
            "object store, or write and read without Spark."
        )


def write_task(plan: WritePlan, batches: Iterable[RecordBatch], storage_options: StorageOptions) -> TaskMessage:
    """This attempt's rows are durable under names that no other attempt has, or it raises. Runs in a Spark task. [SP1]"""
    task = task_context().partitionId()
    store = open_store(plan.url, storage_options)
    with DataFileWriter(store, plan, task=task, attempt=secrets.token_hex(8)) as writer:
        for batch in batches:
            writer.write(batch)
        entries = writer.close()
    intake = writer.intake + Intake(retries=retries_of(store))
    return task_message(store, plan, TaskWritten(task=task, entries=entries, intake=intake))


def task_message(store: Store, plan: WritePlan, written: TaskWritten) -> TaskMessage:
    """What a task tells the driver of the files that it put; as a manifest where they are many. [SP9]"""
    if len(msgspec.json.encode(written.entries)) > MESSAGE_LIMIT_BYTES:
        touched = once(of_partition(plan.partition_by, entry.partition) for entry in written.entries)
        manifests = (spill_manifest(store, written.entries, plan),)
        written = msgspec.structs.replace(written, entries=(), manifests=manifests, touched=touched)
    return packed(written)


def collect(plan: WritePlan, messages: Sequence[WriterCommitMessage | None], storage_options: StorageOptions) -> Written:
    """What all tasks wrote, each exactly once; an error if the engine's messages are not one per task. [SP2] [CM26]

    Entries beyond `WRITTEN_LIMIT_BYTES` are put into manifests, so that the caller's memory stays bounded.
    """
    store = open_store(plan.url, storage_options)
    reader = ManifestReader(store)  # of tasks that an earlier attempt has finished: their record does not say what they touched
    tasks: set[int] = set()
    entries: list[Entry] = []
    manifests: list[ManifestRef] = []
    touched = by_content(())
    size_bytes = 0
    intake: Intake | None = Intake()
    for message in messages:
        if not isinstance(message, TaskMessage):
            raise StoreError("Spark lost the message of a task that wrote data; nothing was committed. Run the write again.")
        written = unpacked(message)
        if written.task in tasks:
            raise StoreError(f"Spark delivered two messages for task {written.task}; nothing was committed. Run the write again.")
        tasks.add(written.task)
        entries.extend(written.entries)
        manifests.extend(written.manifests)
        touched |= by_content(written.touched or reader.touched(written.manifests, schema=plan.schema, partition_by=plan.partition_by))
        intake = None if intake is None or written.intake is None else intake + written.intake
        size_bytes += len(msgspec.json.encode(written.entries)) if written.entries else 0
        if size_bytes > WRITTEN_LIMIT_BYTES:
            touched |= by_content(of_partition(plan.partition_by, entry.partition) for entry in entries)
            manifests.append(spill_manifest(store, entries, plan))
            entries, size_bytes = [], 0
    return Written(entries=tuple(entries), manifests=tuple(manifests), touched=tuple(touched.values()), tasks=len(tasks), intake=intake)


def spill_manifest(store: Store, entries: Sequence[Entry], plan: WritePlan) -> ManifestRef:
    """The entries as one manifest of the plan's job, where messages or the caller's memory would outgrow their limit."""
    return write_manifest(store, entries, schema=plan.schema, partition_by=plan.partition_by, job=plan.job, env=SystemEnv())


def task_context() -> TaskContext:
    """The running Spark task."""
    context = TaskContext.get()
    if context is None:
        raise UsageError("this runs inside Spark tasks only")
    return context


@contextlib.contextmanager
def raising_ours() -> Iterator[None]:
    """What our code raised in Spark's Python processes keeps its type; Spark wraps it in classes of its own, as text."""
    try:
        yield
    except Exception as error:
        if (ours := raised_inside(error)) is not None:
            raise ours from error
        raise


def raised_inside(error: BaseException) -> ManifestCommitError | None:
    """The error of this package that one of Spark's Python processes raised and Spark reported as text, if it was one."""
    if missing := _MISSING.search(str(error)):
        return UsageError(
            f"Spark's Python processes cannot import {missing[1]}; nothing was written. They run $PYSPARK_PYTHON, by default the python3 "
            "of their PATH: set it, before the session starts, to a Python that has manifestcommit installed."
        )
    for module, name, message in _RAISED.findall(str(error)):
        # A backend's own classes are store errors of its own wording.
        kind = getattr(errors, name, None if module == "errors" else StoreError)
        if kind is CorruptMetadataError:
            return CorruptMetadataError(message.strip(), object_name=message.partition(" is damaged")[0])
        if isinstance(kind, type) and issubclass(kind, ManifestCommitError) and "__init__" not in vars(kind):
            try:
                return kind(message.strip())
            except TypeError:  # a class that needs more than a message: its text stays with Spark's error
                continue
    return None


class PlannedWrite(StoreSource):
    """The library's own way into Spark's tasks; users write with `manifestcommit.write` or `format("manifestcommit")`."""

    format_name = FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> PlannedWriter:
        return PlannedWriter(msgspec.json.decode(self.options["plan"], type=WritePlan), self.options["writeId"], self.storage_options)


class PlannedWriter(DataSourceArrowWriter):
    """Runs the plan in tasks; on success puts one object that the caller's process takes. Commits to no table. [SP1]"""

    def __init__(self, plan: WritePlan, write_id: str, storage_options: StorageOptions) -> None:
        self.plan = plan
        self.write_id = write_id
        self.storage_options = storage_options

    def write(self, iterator: Iterator[RecordBatch]) -> TaskMessage:
        return write_task(self.plan, without_fillers(iterator, _filler(self.write_id)), self.storage_options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = collect(self.plan, messages, self.storage_options)
        store = open_store(self.plan.url, self.storage_options)
        store.put(written_name(self.plan.job, self.write_id), compress(msgspec.json.encode(written)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Deletes nothing: Spark calls this even where a commit landed, and attempts may still be writing. [SP3]"""


def _filler(write_id: str) -> str:
    """The name of the column that tells the empty rows of this write; nobody else's column can have it. [SP40]"""
    return f"filler-{write_id}"


def _take_written(store: Store, job: str, write_id: str) -> Written:
    name = written_name(job, write_id)
    written: Written = decode_json(decompress(store.get(name), name=name), Written, name=name)
    with contextlib.suppress(StoreError):  # gc collects it by its name
        store.delete([name])
    return written

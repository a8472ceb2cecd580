"""Spark tasks write data files directly to their destination; the description of the files is
returned as a value. [SP1] [SP2] [SP3]

Nothing here commits to a table.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import operator
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.sql import functions as F

from ..commits.task_recovery import Recovery, TaskCheckpoints, intake_of
from ..errors import StoreError, UsageError
from ..files.writer import WritePlan, write_files
from ..format.codec import compress, decompress
from ..format.entries import Entry, FinishedTask, ManifestRef
from ..format.partitioning import PartitionPattern, by_content, dedupe, of_partition
from ..log.manifests import ManifestReader, put_manifest
from ..rows.row_change import NewFiles
from ..runtime.environment import Env
from ..runtime.outcome import InputTotals
from ..store import StorageOptions, open_store
from . import features, tasks
from .features import WriterCommitMessage, is_connect, sound
from .spark_internals import has_thread_of_its_own, java_frame, java_rdd, jvm, settings_of
from .tasks import check_can_write, check_reachable, raising_ours, unlogged

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark import RDD
    from pyspark.sql import DataFrame

    from ..store import Store

LOG = logging.getLogger("manifestcommit.spark")

BATCH_BYTES = 64 << 20  # Spark's own bound of a batch
BOUND = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNBOUNDED = str(2**31 - 1)  # a value that makes Spark skip the check
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LEAST_LONG_BYTES = 1024  # shorter rows would be followed by empty ones too often
# Of each value in Arrow, its validity and offset count as one byte and four. Arrays, maps and
# structs are not in this table and are not measured.
_FIXED_BYTES = {
    "NullType": 0,
    **dict.fromkeys(("BooleanType", "ByteType"), 2),
    "ShortType": 3,
    **dict.fromkeys(("IntegerType", "FloatType", "DateType"), 5),
    **dict.fromkeys(("LongType", "DoubleType", "TimestampType", "TimestampNTZType"), 9),
    "DayTimeIntervalType": 9,
    "DecimalType": 17,
}
_LONG = frozenset({"StringType", "CharType", "VarcharType", "BinaryType"})
_LONG_FIXED_BYTES = 5
# Spark overflows its stack in a sum of a few hundred lengths, and compiles no wider rows anyway
_MOST_COLUMNS = 100
# The bound is disabled for the write alone, but this applies to everything in its Spark job: so the
# job may contain no other Python, nor anything that may hide some (a cache, an RDD).
_KNOWN = (
    "Aggregate CollectMetrics DataSourceV2Relation Deduplicate Distinct Filter GlobalLimit "
    "HiveTableRelation Join LocalLimit LocalRelation LogicalRelation OneRowRelation Project Range "
    "Repartition RepartitionByExpression Sample Sort SubqueryAlias Union View Window"
)
_OPERATORS = frozenset(_KNOWN.split())
_HIDING = ("PYTHON_UDF", "EVAL_PYTHON_UDF", "PLAN_EXPRESSION", *features.NEWER_PATTERNS)


@contextlib.contextmanager
def paced(df: DataFrame, filler: str) -> Iterator[DataFrame]:
    """The rows of `df` and, after long ones, empty rows, which the last column marks; inside the
    block this thread's jobs batch by rows. [SP40] filler: that column's name, which no column of
    `df` has. If Spark's own bound must stay, it is `df` itself."""
    # in a thread of the JVM that others use, too, the setting might stay for their jobs
    has_own = not is_connect(df) and has_thread_of_its_own(df.sparkSession.sparkContext)
    share = _share(df) if has_own and _is_plain(df) else None
    if share is None:
        yield df
        return
    context = df.sparkSession.sparkContext
    before = context.getLocalProperty(BOUND)
    context.setLocalProperty(BOUND, _UNBOUNDED)
    try:
        yield _spread(df, filler, share)
    finally:
        context.setLocalProperty(BOUND, before)  # type: ignore[arg-type]  # None is how it is taken away


def without_fillers(batches: Iterable[pa.RecordBatch], filler: str) -> Iterator[pa.RecordBatch]:
    """The rows alone, in their order. Runs in a task. [SP40]"""
    for batch in batches:
        if batch.schema.names[-1:] != [filler]:
            yield batch
            continue
        number = batch.column(batch.num_columns - 1)
        rows = batch.select(range(batch.num_columns - 1))
        if number.null_count < len(number):
            rows = rows.filter(pc.fill_null(pc.equal(number, 0), True))
        yield rows


def _share(df: DataFrame) -> int | None:
    """The bytes of long values that one row of a batch may hold; None if they cannot be measured,
    or the setting is not ours to change."""
    given = settings_of(df.sparkSession)
    try:
        rows = int(df.sparkSession.conf.get(_ROWS) or "")
    except ValueError:
        return None
    kinds = [type(field.dataType).__name__ for field in df.schema.fields]
    is_measured = len(kinds) <= _MOST_COLUMNS and {*kinds} <= _FIXED_BYTES.keys() | _LONG
    if BOUND in given or rows <= 0 or not is_measured:
        return None
    share = BATCH_BYTES // rows - sum(_FIXED_BYTES.get(kind, _LONG_FIXED_BYTES) for kind in kinds)
    return share if share >= _LEAST_LONG_BYTES else None


def _is_plain(df: DataFrame) -> bool:
    """Whether nothing else in the query sends batches to Python, as far as visible; False if this
    Spark has other internals."""
    try:
        return _has_no_python(df)
    except (Py4JError, TypeError):  # either error is raised for a missing name
        return False


def _has_no_python(df: DataFrame) -> bool:
    patterns = jvm(df.sparkSession).org.apache.spark.sql.catalyst.trees.TreePattern
    # A new plan: that of `df` itself may be older than a cache of something in it.
    plan = java_frame(df.select("*")).queryExecution().withCachedData()
    if any(plan.containsPattern(getattr(patterns, name)()) for name in _HIDING):
        return False
    plans = [plan]
    while plans:
        plan = plans.pop()
        if plan.getClass().getSimpleName() not in _OPERATORS:
            return False
        children = plan.children()
        plans += [children.apply(at) for at in range(children.size())]
    return True


def _spread(df: DataFrame, filler: str, share: int) -> DataFrame:
    """Every row once, with number 0; after a row of n times `share` bytes n empty rows, numbered
    from 1. Other rows have no number."""
    fields = df.schema.fields
    # Spark takes a dot in a column's name for a member access
    names = [f"c{at}" for at in range(len(fields))]
    kinds = zip(names, (type(field.dataType).__name__ for field in fields), strict=True)
    long = sorted(name for name, kind in kinds if kind in _LONG)
    if not long:
        return df
    lengths = (F.coalesce(F.octet_length(name).cast("long"), F.lit(0)) for name in long)
    size = functools.reduce(operator.add, lengths)
    numbers = F.when(size >= share, F.sequence(F.lit(0), (size / share).cast("int")))
    numbered = df.toDF(*names).select("*", F.explode_outer(numbers).alias("n"))
    is_filler = F.when(F.col("n") > 0, F.lit(None))
    columns = [is_filler.otherwise(F.col(name)) if name in long else F.col(name) for name in names]
    return numbered.select(
        *(column.alias(field.name) for column, field in zip(columns, fields, strict=True)),
        F.col("n").alias(filler),
    )


# A task with more JSON than this sends its entries as a manifest: the driver collects every message
# (spark.driver.maxResultSize).
MESSAGE_LIMIT_BYTES = 1 << 20
# Beyond this much JSON the entries of many tasks become manifests before the caller gets them: as
# objects they take ten times as much memory.
WRITTEN_LIMIT_BYTES = 8 << 20


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
    return TaskMessage(compress(msgspec.json.encode(written)))


def unpacked(message: TaskMessage) -> TaskWritten:
    return msgspec.json.decode(decompress(message.data, name="a task's message"), type=TaskWritten)


def write_dataframe(
    df: DataFrame, plan: WritePlan, *, storage_options: Mapping[str, Any] | None = None
) -> NewFiles:
    """Write every row of `df` into exactly one of the returned files; nothing of it is visible yet.
    [SP1] [SP2] Runs one Spark job, in classic and Connect sessions. A crash or a failure anywhere
    leaves only files that no snapshot lists. Errors of this package that tasks raised keep their
    type."""
    check_reachable(plan.url)
    given, filler = StorageOptions(storage_options), filler_of(secrets.token_hex(16))
    open_store(plan.url, given)  # refuses options that it does not take
    task = functools.partial(_message_of, plan, given, filler)
    check_can_write(task, given)
    with raising_ours(), paced(df, filler) as frame:
        found = map(TaskMessage, tasks.messages_of(frame, task))
    return collect(plan, [*found], given)


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
    rows, attempt = map(sound, batches), secrets.token_hex(8)
    entries, intake = write_files(store, plan, rows, task=task, attempt=attempt)
    intake += InputTotals(retries=store.retries)
    return task_message(store, plan, TaskWritten(task=task, entries=entries, intake=intake))


def task_message(store: Store, plan: WritePlan, written: TaskWritten) -> TaskMessage:
    """A task's message to the driver about its files; as a manifest if they are many. [SP9]"""
    if len(msgspec.json.encode(written.entries)) > MESSAGE_LIMIT_BYTES:
        by = plan.partition_by
        touched = dedupe(of_partition(by, entry.partition) for entry in written.entries)
        manifests = (spill_manifest(store, written.entries, plan),)
        written = msgspec.structs.replace(written, entries=(), manifests=manifests, touched=touched)
    return packed(written)


def collect(
    plan: WritePlan, messages: Sequence[WriterCommitMessage | None], storage_options: StorageOptions
) -> NewFiles:
    """The output of all tasks. StoreError if the messages are not one per task. [SP2] [CM26] Spark
    may run several attempts of a task: retries and speculative attempts. It delivers the message of
    one; files of the others are in no message, are not committed, and gc deletes them. Entries
    beyond `WRITTEN_LIMIT_BYTES` are put into manifests, so that the caller's memory stays
    bounded."""
    store = open_store(plan.url, storage_options)
    # an earlier attempt finished these tasks: their records do not contain the touched partitions
    reader = ManifestReader(store)
    there: set[int] = set()
    entries: list[Entry] = []
    manifests: list[ManifestRef] = []
    touched = by_content(())
    size_bytes = 0
    intake: InputTotals | None = InputTotals()
    for message in messages:
        if not isinstance(message, TaskMessage):
            raise _lost("Spark lost the message of a task that wrote data", "write")
        written = unpacked(message)
        if written.task in there:
            raise _lost(f"Spark delivered two messages for task {written.task}", "write")
        there.add(written.task)
        entries.extend(written.entries)
        manifests.extend(written.manifests)
        touched |= by_content(written.touched or reader.touched(written.manifests, plan))
        intake = None if intake is None or written.intake is None else intake + written.intake
        size_bytes += len(msgspec.json.encode(written.entries)) if written.entries else 0
        if size_bytes > WRITTEN_LIMIT_BYTES:
            by = plan.partition_by
            touched |= by_content(of_partition(by, entry.partition) for entry in entries)
            manifests.append(spill_manifest(store, entries, plan))
            entries, size_bytes = [], 0
    return NewFiles(
        entries=tuple(entries),
        manifests=tuple(manifests),
        touched=tuple(touched.values()),
        tasks=len(there),
        intake=intake,
    )


def _lost(what: str, work: str = "job") -> StoreError:
    return StoreError(f"{what}; nothing was committed. Run the {work} again.")


def spill_manifest(store: Store, entries: Sequence[Entry], plan: WritePlan) -> ManifestRef:
    """The entries as one manifest of the plan's job, if they are too many to be held."""
    return put_manifest(store, entries, plan, job=plan.job, env=Env())


def task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise UsageError("this runs inside Spark tasks only")
    return context


def filler_of(write_id: str) -> str:
    """The name of the column that marks a write's empty rows, and no other. [SP40]"""
    return f"filler-{write_id}"


_AQE = "spark.sql.adaptive.enabled"
_PIPELINED = "spark.python.udf.pipelined.enabled"
_PLANNING = threading.Lock()


def check_recoverable(df: DataFrame) -> None:
    """UsageError if tasks cannot be chosen one by one, or Spark itself computes other partitions in
    each run; nothing has been done then. [AB6] [SP5]"""
    features.check_feature("recoverable", df)
    features.check_pandas("recoverable=True writes through")
    if settings_of(df.sparkSession).get(_PIPELINED, "false").lower() != "false":
        raise _refusal(f"with {_PIPELINED} a task that fails may look finished")
    with _planned_alike(df.sparkSession):
        check_ranges(df)


def write_recoverable(
    df: DataFrame, plan: WritePlan, recovery: Recovery, *, storage_options: Mapping[str, Any] | None
) -> NewFiles:
    """Write every row of `df` into exactly one of the returned files, some of which the tasks of
    earlier attempts may have written; UsageError where Spark itself computes other partitions in
    each run. [AB6] [SP2]"""
    check_reachable(plan.url)
    options, context = StorageOptions(storage_options), df.sparkSession.sparkContext
    rdd, same = _planned(df, plan, recovery, options)
    work = recovery.work(plan, tasks=rdd.getNumPartitions(), same=same)
    done = work.finished(open_store(plan.url, options))
    missing = [task for task in range(work.tasks) if task not in done]
    LOG.info(
        "adopted %d of %d tasks of job %s; computing %d",
        len(done),
        work.tasks,
        plan.job,
        len(missing),
    )
    messages = [_message(finished) for finished in done.values()]
    if missing:
        finish = functools.partial(_finish, work, options)
        tasks.check_sent(finish, options)
        with raising_ours(), unlogged():
            messages += [TaskMessage(data) for data in context.runJob(rdd, finish, missing)]
    written = collect(plan, messages, options)
    if written.tasks != work.tasks:
        raise _lost(f"Spark ran {written.tasks} of {work.tasks} tasks")
    return written


def _planned(
    df: DataFrame, plan: WritePlan, recovery: Recovery, options: StorageOptions
) -> tuple[RDD[Any], str]:
    """The tasks of the write, and what is the same in each run with these rows."""
    task = functools.partial(_message_of, plan, options, filler_of(secrets.token_hex(16)))
    check_can_write(task, options)
    with _planned_alike(df.sparkSession), unlogged():
        rdd = tasks.message_rows(df, task).rdd
        same = [recovery.fingerprint, lineage_digest(java_rdd(rdd))]
    return rdd, msgspec.json.encode(same).decode()


def check_ranges(frame: DataFrame) -> None:
    """UsageError if rows are partitioned by ranges: the samples that determine these differ between
    runs, whatever the caller promises. [AB6] This includes cached data, but not the plan that an
    RDD was made from."""
    waiting = [java_frame(frame).queryExecution().executedPlan()]
    while waiting:
        node = waiting.pop()
        waiting += _all(node.children())
        name = node.getClass().getSimpleName()
        if name == "InMemoryTableScanExec":
            waiting.append(node.relation().cachedPlan())
        elif name == "AdaptiveSparkPlanExec":  # in cached data: it shows no children
            waiting.append(node.initialPlan())
        elif name == "ShuffleExchangeExec":
            by = node.outputPartitioning().getClass().getSimpleName()
            if by == "RangePartitioning":
                what = "a global sort or repartitionByRange cuts its ranges by samples"
                raise _refusal(f"{what} that differ between runs")


def lineage_digest(rdd: Any) -> str:
    """How the RDD's partitions are derived: how many there are at each step, and which were
    combined, for which Spark also looks where they lie. UsageError where that differs in each run.
    [AB6]"""
    try:
        if rdd.outputDeterministicLevel().toString() == "INDETERMINATE":
            what = "Spark's partitions of this DataFrame differ"
            raise _refusal(f"{what} when they are computed again")
        lineage = _lineage(rdd, {})
    except Py4JError as error:
        raise _refusal(f"the lineage could not be read: {str(error).splitlines()[0]}") from None
    return hashlib.sha256(msgspec.json.encode(lineage)).hexdigest()


def _lineage(rdd: Any, seen: dict[int, int]) -> list[Any]:
    if rdd.id() in seen:
        return [seen[rdd.id()]]
    seen[rdd.id()] = len(seen)
    said = [rdd.getClass().getName(), rdd.getNumPartitions()]
    if rdd.getClass().getSimpleName() == "CoalescedRDD":
        said.append([list(partition.parentsIndices()) for partition in rdd.partitions()])
    return [*said, [_lineage(each.rdd(), seen) for each in _all(rdd.dependencies())]]


def _all(values: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [values.apply(index) for index in range(values.size())]


def _refusal(why: str) -> UsageError:
    return UsageError(
        f"recoverable=True cannot be kept: {why}; nothing was committed. Leave recoverable out: a "
        "rerun computes all tasks"
    )


def _finish(work: TaskCheckpoints, options: StorageOptions, rows: Iterable[Any]) -> list[bytes]:
    """In the same task: record what this attempt wrote as its output, unless another attempt was
    first. Spark runs the function that writes and the one that reads its message in one thread, so
    there is a message only if the former has had all its rows. If a task fails before, both see the
    end of their input as if it were complete: then there is no message, the output is partial, and
    nothing may be recorded."""
    task = task_context().partitionId()
    messages = [bytes(row[0]) for row in rows]
    if len(messages) != 1:
        raise _lost(f"Spark delivered {len(messages)} messages of task {task}")
    mine = unpacked(TaskMessage(messages[0]))
    if mine.task != task:
        raise _lost(f"Spark delivered the message of task {mine.task} to task {task}")
    store = open_store(work.plan.url, options)
    winner = work.finish(store, Env(), task, mine.entries, mine.manifests, mine.intake)
    is_mine = (winner.entries, winner.manifests) == (mine.entries, mine.manifests)
    return [messages[0] if is_mine else _message(winner).data]


def _message(finished: FinishedTask) -> TaskMessage:
    return packed(
        TaskWritten(
            task=finished.task,
            entries=finished.entries,
            manifests=finished.manifests,
            intake=intake_of(finished),
        )
    )


@contextlib.contextmanager
def _planned_alike(session: Any) -> Iterator[None]:
    """Plans without adaptive execution, which goes by measured sizes; one at a time."""
    with _PLANNING:  # the setting belongs to the session, which threads share
        given = settings_of(session).get(_AQE)
        session.conf.set(_AQE, "false")
        try:
            yield
        finally:
            if given is None:
                session.conf.unset(_AQE)
            else:
                session.conf.set(_AQE, given)

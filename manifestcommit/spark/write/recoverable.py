"""A recoverable write: its finished tasks survive the driver, and a rerun computes only the missing
ones. [AB6] [SP1] [SP2]

The caller's fingerprint promises that each partition has the same rows in every run. Refused is
what Spark itself decides again in each run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle

from manifestcommit.commits.task_recovery import Recovery, TaskCheckpoints, intake_of
from manifestcommit.errors import StoreError, UsageError
from manifestcommit.files.writer import WritePlan
from manifestcommit.format.entries import FinishedTask
from manifestcommit.runtime.environment import SystemEnv
from manifestcommit.spark.runtime import registered_options
from manifestcommit.spark.runtime.registered_options import is_connect
from manifestcommit.spark.runtime.spark_internals import (
    broadcast_threshold_bytes,
    java_frame,
    java_rdd,
    settings_of,
)
from manifestcommit.spark.runtime.task_errors import check_reachable, raising_ours
from manifestcommit.spark.runtime.versions import check_feature, check_pandas
from manifestcommit.spark.write.arrow_writer import (
    TaskMessage,
    TaskWritten,
    Written,
    collect,
    packed,
    task_context,
    unpacked,
    write_task,
)
from manifestcommit.store import StorageOptions, open_store

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

LOG = logging.getLogger("manifestcommit.spark")
_AQE = "spark.sql.adaptive.enabled"
_PIPELINED = "spark.python.udf.pipelined.enabled"
_PLANNING = threading.Lock()
_ROOM_BYTES = 64 * 1024  # what Spark adds to a pickled function


def check_recoverable(df: DataFrame) -> None:
    """UsageError if tasks cannot be chosen one by one, or Spark itself computes other partitions in
    each run; nothing has been done then. [AB6] [SP5]"""
    check_feature("recoverable")
    if is_connect(df):
        raise UsageError(
            "recoverable=True is not available in Spark Connect sessions, which cannot run chosen "
            "tasks only; nothing was done. Leave it out, or run the job in a classic session."
        )
    check_pandas("recoverable=True writes through")
    if settings_of(df.sparkSession).get(_PIPELINED, "false").lower() != "false":
        raise _refusal(f"with {_PIPELINED} a task that fails may look finished")
    with _planned_alike(df.sparkSession):
        check_ranges(_numbered(df))


def write_recoverable(
    df: DataFrame, plan: WritePlan, recovery: Recovery, *, storage_options: Mapping[str, Any] | None
) -> Written:
    """Write every row of `df` into exactly one of the returned files, some of which the tasks of
    earlier attempts may have written; UsageError where Spark itself computes other partitions in
    each run. [AB6] [SP2]"""
    check_reachable(plan.url)
    carrier = registered_options.with_options(
        registered_options.StoreSource, StorageOptions(storage_options), ""
    )
    options = carrier.storage_options
    context = df.sparkSession.sparkContext
    rdd, same = _planned(df, plan, recovery, carrier)
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
        finish = _checked(context, functools.partial(_finish, work, carrier), options)
        with raising_ours(), registered_options.unlogged():
            messages += [TaskMessage(data) for data in context.runJob(rdd, finish, missing)]
    written = collect(plan, messages, options)
    if written.tasks != work.tasks:
        raise StoreError(
            f"Spark ran {written.tasks} of {work.tasks} tasks; nothing was committed. Run "
            "the job again."
        )
    return written


def _planned(
    df: DataFrame,
    plan: WritePlan,
    recovery: Recovery,
    carrier: type[registered_options.StoreSource],
) -> tuple[RDD[Any], str]:
    """The tasks of the write, and what is the same in each run with these rows."""
    session, context = df.sparkSession, df.sparkSession.sparkContext
    with _planned_alike(session), registered_options.unlogged():
        task = functools.partial(_write, plan, tuple(df.columns), carrier)
        rdd = (
            _numbered(df)
            .mapInArrow(_checked(context, task, carrier.storage_options), "message binary")
            .rdd
        )
        same = [recovery.fingerprint, lineage_digest(java_rdd(rdd))]
    return rdd, msgspec.json.encode(same).decode()


def _numbered(df: DataFrame) -> DataFrame:
    """The same rows: Spark takes a dot in a column's name for a member's."""
    return df.toDF(*(f"c{index}" for index in range(len(df.columns))))


def check_ranges(frame: DataFrame) -> None:
    """UsageError if rows are partitioned by ranges: the samples that determine these differ between
    runs, whatever the caller promises. [AB6]

    This includes cached data, but not the plan that an RDD was made from.
    """
    waiting = [java_frame(frame).queryExecution().executedPlan()]
    while waiting:
        node = waiting.pop()
        waiting += _all(node.children())
        name = node.getClass().getSimpleName()
        if name == "InMemoryTableScanExec":
            waiting.append(node.relation().cachedPlan())
        elif name == "AdaptiveSparkPlanExec":  # in cached data: it shows no children
            waiting.append(node.initialPlan())
        elif (
            name == "ShuffleExchangeExec"
            and node.outputPartitioning().getClass().getSimpleName() == "RangePartitioning"
        ):
            raise _refusal(
                "a global sort or repartitionByRange cuts its ranges by samples that differ "
                "between runs"
            )


def lineage_digest(rdd: Any) -> str:
    """How the RDD's partitions are derived: how many there are at each step, and which were
    combined, for which Spark also looks where they lie. UsageError where that differs in each run.
    [AB6]"""
    try:
        if rdd.outputDeterministicLevel().toString() == "INDETERMINATE":
            raise _refusal(
                "Spark's partitions of this DataFrame differ when they are computed again"
            )
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


def _write(
    plan: WritePlan,
    names: tuple[str, ...],
    carrier: type[registered_options.StoreSource],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a task: make its rows durable, in files of this attempt."""
    message = write_task(
        plan, (batch.rename_columns(list(names)) for batch in batches), carrier.storage_options
    )
    yield pa.RecordBatch.from_arrays([pa.array([message.data], pa.binary())], ["message"])


def _finish(
    work: TaskCheckpoints, carrier: type[registered_options.StoreSource], rows: Iterable[Any]
) -> list[bytes]:
    """In the same task: record what this attempt wrote as its output, unless another attempt was
    first.

    Spark runs the function that writes and the one that reads its message in one thread, so there
    is a message only if the former has had all its rows. If a task fails before, both see the end
    of their input as if it were complete: then there is no message, the output is partial, and
    nothing may be recorded.
    """
    task = task_context().partitionId()
    messages = [bytes(row[0]) for row in rows]
    if len(messages) != 1:
        raise StoreError(
            f"Spark delivered {len(messages)} messages of task {task}; nothing was "
            "committed. Run the job again."
        )
    mine = unpacked(TaskMessage(messages[0]))
    if mine.task != task:
        raise StoreError(
            f"Spark delivered the message of task {mine.task} to task {task}; nothing was "
            "committed. Run the job again."
        )
    store = open_store(work.plan.url, carrier.storage_options)
    winner = work.finish(store, SystemEnv(), task, mine.entries, mine.manifests, mine.intake)
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


def _checked(context: Any, function: Any, options: StorageOptions) -> Any:
    """The function, if it is sent in the task itself: beyond a certain size Spark would write it,
    and the options with it, to files. [SE1]"""
    if options:
        size = len(cloudpickle.dumps(function)) + _ROOM_BYTES  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types
        if size > broadcast_threshold_bytes(context):
            raise UsageError(
                "the table has so many columns that Spark would send the storage options "
                "through files; nothing was written. Leave "
                "recoverable out, or let the environment say how the store is reached."
            )
    return function


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

"""A recoverable write: its finished tasks survive the driver, and a rerun computes only the missing
ones. [AB6] [SP1] [SP2]

Not here: when two plans are the same work (spark.write.plan_fingerprint), which tasks a rerun may
reuse (engine.job.task_recovery), how one task writes (spark.write.arrow_writer).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import cloudpickle

from manifestcommit.core.format.recovery_objects import FinishedTask
from manifestcommit.engine.datafile.writer import WritePlan
from manifestcommit.engine.job.task_recovery import Recovery, TaskCheckpoints, intake_of
from manifestcommit.engine.runtime.environment import SystemEnv
from manifestcommit.errors import StoreError, UsageError
from manifestcommit.spark.runtime import registered_options
from manifestcommit.spark.runtime.python_code_digest import NotUnderstoodError
from manifestcommit.spark.runtime.registered_options import is_connect
from manifestcommit.spark.runtime.spark_internals import (
    broadcast_threshold_bytes,
    java_rdd,
    settings_of,
)
from manifestcommit.spark.runtime.task_errors import check_reachable, raising_ours
from manifestcommit.spark.runtime.versions import check_feature, check_pandas
from manifestcommit.spark.write.arrow_writer import (
    PlannedWrite,
    TaskMessage,
    TaskWritten,
    Written,
    collect,
    packed,
    task_context,
    unpacked,
    write_dataframe,
    write_task,
)
from manifestcommit.spark.write.plan_fingerprint import (
    check_ranges,
    lineage_fingerprint,
    plan_fingerprint,
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
    """UsageError if tasks cannot be chosen one by one; nothing has been done then."""
    check_feature("recoverable")
    if is_connect(df):
        raise UsageError(
            "recoverable=True is not available in Spark Connect sessions, which cannot run chosen "
            "tasks only; nothing was done. Leave it out, or run the job in a classic session."
        )
    check_pandas("recoverable=True writes through")


def write_recoverable(
    df: DataFrame, plan: WritePlan, recovery: Recovery, *, storage_options: Mapping[str, Any] | None
) -> Written:
    """Write every row of `df` into exactly one of the returned files, some of which the tasks of
    earlier attempts may have written. [AB6] [SP2]

    The caller's fingerprint is trusted. Without one, Spark's plan is examined; if its fingerprint
    is unknown, everything is computed.
    """
    check_reachable(plan.url)
    carrier = registered_options.with_options(
        PlannedWrite, StorageOptions(storage_options), PlannedWrite.format_name
    )
    options = carrier.storage_options
    context = df.sparkSession.sparkContext
    try:
        rdd, same = _planned(df, plan, recovery, carrier)
    except NotUnderstoodError as reason:
        LOG.warning(
            "job %s: nothing of an earlier attempt is taken over, and nothing of this one "
            "can be: %s. If you know that each partition has "
            "the same rows in every run, say so with fingerprint=…",
            plan.job,
            reason,
        )
        return write_dataframe(df, plan, storage_options=storage_options)
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
    """The tasks of the write, and what shows that another run's tasks have the same rows;
    NotUnderstoodError where nothing does."""
    session, context = df.sparkSession, df.sparkSession.sparkContext
    with _planned_alike(session), registered_options.unlogged():
        # Spark takes a dot in a column's name for a member's.
        numbered = df.toDF(*(f"c{index}" for index in range(len(df.columns))))
        task = functools.partial(_write, plan, tuple(df.columns), carrier)
        frame = numbered.mapInArrow(
            _checked(context, task, carrier.storage_options), "message binary"
        )
        if settings_of(session).get(_PIPELINED, "false").lower() != "false":
            raise NotUnderstoodError(
                f"with {_PIPELINED} a task that fails may look finished to what follows in it"
            )
        check_ranges(frame)
        said = recovery.fingerprint
        same = (
            ["said", said]
            if said is not None
            else ["plan", plan_fingerprint(frame), df.schema.json()]
        )
        rdd = frame.rdd
        same.append(lineage_fingerprint(java_rdd(rdd)))
    return rdd, msgspec.json.encode(same).decode()


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
    """Plans without adaptive execution, whose partitions depend on measured sizes; one plan at a
    time."""
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

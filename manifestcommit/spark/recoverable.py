"""A write whose finished tasks outlive the driver: a rerun computes the missing ones only. [AB6] [SP1] [SP2]

Not here: when two plans are the same work (fingerprint), who may take over what (engine.recovery), how one task writes (writer).
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

from manifestcommit.core.recovery import FinishedTask
from manifestcommit.engine.env import SystemEnv
from manifestcommit.engine.files import WritePlan
from manifestcommit.engine.recovery import Recovery, Work, intake_of
from manifestcommit.errors import StoreError, UsageError
from manifestcommit.spark import registered
from manifestcommit.spark.fingerprint import check_ranges, lineage_fingerprint, plan_fingerprint
from manifestcommit.spark.python_code import NotUnderstoodError
from manifestcommit.spark.registered import is_connect
from manifestcommit.spark.writer import (
    PlannedWrite,
    TaskMessage,
    TaskWritten,
    Written,
    check_reachable,
    collect,
    packed,
    raising_ours,
    task_context,
    unpacked,
    write_dataframe,
    write_task,
)
from manifestcommit.store import StorageOptions, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG = logging.getLogger("manifestcommit.spark")
_OLDEST_PANDAS = (2, 2)
_AQE = "spark.sql.adaptive.enabled"
_PIPELINED = "spark.python.udf.pipelined.enabled"
_PLANNING = threading.Lock()
_ROOM_BYTES = 64 * 1024  # what Spark adds to a pickled function


def check_recoverable(df: DataFrame) -> None:
    """UsageError where tasks cannot be chosen one by one; nothing was done then."""
    if is_connect(df):
        raise UsageError(
            "recoverable=True is not available in Spark Connect sessions, which cannot run chosen tasks only; nothing was done. Leave it "
            "out, or run the job in a classic session."
        )
    check_pandas("recoverable=True writes through")


def check_pandas(what: str) -> None:
    """UsageError where Spark's tasks cannot be given Arrow batches; nothing was done then. what: needs them, in words."""
    try:
        import pandas

        found = tuple(int(part) for part in pandas.__version__.split(".")[:2])
    except ImportError:
        found = ()
    if found < _OLDEST_PANDAS:
        raise UsageError(f"{what} Spark's mapInArrow, which needs pandas 2.2 or newer; nothing was done: pip install 'pandas>=2.2,<3'")


def write_recoverable(df: DataFrame, plan: WritePlan, recovery: Recovery, *, storage_options: Mapping[str, Any] | None) -> Written:
    """Every row of `df` is in exactly one of the returned files, which the tasks of earlier attempts may have written. [AB6] [SP2]

    The caller's fingerprint is believed; without one Spark's plan is looked into, and where that does not tell, all is computed.
    """
    check_reachable(plan.url)
    carrier = registered.with_options(PlannedWrite, StorageOptions(storage_options), PlannedWrite.format_name)
    options = carrier.storage_options
    session, context = df.sparkSession, df.sparkSession.sparkContext
    try:
        with _planned_alike(session), registered.unlogged():
            # Spark takes a dot in a column's name for a member's.
            numbered = df.toDF(*(f"c{index}" for index in range(len(df.columns))))
            frame = numbered.mapInArrow(
                _checked(context, functools.partial(_write, plan, tuple(df.columns), carrier), options), "message binary"
            )
            if dict(session.conf.getAll).get(_PIPELINED, "false").lower() != "false":
                raise NotUnderstoodError(f"with {_PIPELINED} a task that fails may look finished to what follows in it")
            check_ranges(frame)
            said = recovery.fingerprint
            same = ["said", said] if said is not None else ["plan", plan_fingerprint(frame), df.schema.json()]
            rdd = frame.rdd
            same.append(lineage_fingerprint(rdd._jrdd.rdd()))
    except NotUnderstoodError as reason:
        LOG.warning(
            "job %s: nothing of an earlier attempt is taken over, and nothing of this one can be: %s. If you know that each partition has "
            "the same rows in every run, say so with fingerprint=…",
            plan.job,
            reason,
        )
        return write_dataframe(df, plan, storage_options=storage_options)
    work = recovery.work(plan, tasks=rdd.getNumPartitions(), same=msgspec.json.encode(same).decode())
    done = work.finished(open_store(plan.url, options))
    missing = [task for task in range(work.tasks) if task not in done]
    LOG.info("adopted %d of %d tasks of job %s; computing %d", len(done), work.tasks, plan.job, len(missing))
    messages = [_message(each) for each in done.values()]
    if missing:
        finish = _checked(context, functools.partial(_finish, work, carrier), options)
        with raising_ours(), registered.unlogged():
            messages += [TaskMessage(data) for data in context.runJob(rdd, finish, missing)]
    written = collect(plan, messages, options)
    if written.tasks != work.tasks:
        raise StoreError(f"Spark ran {written.tasks} of {work.tasks} tasks; nothing was committed. Run the job again.")
    return written


def _write(
    plan: WritePlan, names: tuple[str, ...], carrier: type[registered.StoreSource], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: its rows are durable, in files of this attempt."""
    message = write_task(plan, (batch.rename_columns(list(names)) for batch in batches), carrier.storage_options)
    yield pa.RecordBatch.from_arrays([pa.array([message.data], pa.binary())], ["message"])


def _finish(work: Work, carrier: type[registered.StoreSource], rows: Iterable[Any]) -> list[bytes]:
    """In the same task: its output is what this attempt wrote, unless another attempt was first.

    Spark feeds the function that writes and reads its message in one thread, so that there is a message only if that function has had
    all its rows. Where a task fails before, both see their input end as if it were complete: then there is none, and what was written is
    a part, of which nothing may be said.
    """
    task = task_context().partitionId()
    messages = [bytes(row[0]) for row in rows]
    if len(messages) != 1:
        raise StoreError(f"Spark delivered {len(messages)} messages of task {task}; nothing was committed. Run the job again.")
    mine = unpacked(TaskMessage(messages[0]))
    if mine.task != task:
        raise StoreError(f"Spark delivered the message of task {mine.task} to task {task}; nothing was committed. Run the job again.")
    store = open_store(work.plan.url, carrier.storage_options)
    winner = work.finish(store, SystemEnv(), task, mine.entries, mine.manifests, mine.intake)
    is_mine = (winner.entries, winner.manifests) == (mine.entries, mine.manifests)
    return [messages[0] if is_mine else _message(winner).data]


def _message(finished: FinishedTask) -> TaskMessage:
    return packed(TaskWritten(task=finished.task, entries=finished.entries, manifests=finished.manifests, intake=intake_of(finished)))


def _checked(context: Any, function: Any, options: StorageOptions) -> Any:
    """The function, if it travels in the task itself: beyond a size Spark would lay it, and the options with it, into files. [SE1]"""
    if options:
        size = len(cloudpickle.dumps(function)) + _ROOM_BYTES  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types
        if size > context._jvm.PythonUtils.getBroadcastThreshold(context._jsc):
            raise UsageError(
                "the table has so many columns that Spark would send the storage options through files; nothing was written. Leave "
                "recoverable out, or let the environment say how the store is reached."
            )
    return function


@contextlib.contextmanager
def _planned_alike(session: Any) -> Iterator[None]:
    """Plans without adaptive execution, whose partitions depend on how large things turn out; one plan at a time."""
    with _PLANNING:  # the setting is the session's, which threads share
        given = dict(session.conf.getAll).get(_AQE)
        session.conf.set(_AQE, "false")
        try:
            yield
        finally:
            if given is None:
                session.conf.unset(_AQE)
            else:
                session.conf.set(_AQE, given)

"""Parts of a chunk, which Spark's tasks read and write to the destination. [LD11]

The driver commits what tasks report to it; they have no other way to make a row visible.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ..errors import SchemaMismatchError, SourceError, StoreError, UsageError
from ..files.writer import WritePlan
from ..format.fields import arrow_marks
from ..format.values import from_arrow
from ..job import Job
from ..quarantine import SplitPlan, plan_split, register_split, split_in_task
from ..runtime.environment import STARTS
from ..store import StorageOptions
from .chunk import BrokenInputError, ChangedInputError, Chunk, streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_BYTES, _MOST_BYTES = 4 << 20, 128 << 20  # of a part, where the source can be cut so
_CORES = 8  # where a session does not say its own


class _Told(msgspec.Struct, kw_only=True):
    """What a task says of its parts: what it has written, and what belongs beside, or why not.
    columns: of rows not planned for, with what is read; reading: where the error is."""

    parts: list[int] = []
    written: bytes = b""
    beside: list[tuple[str, pa.Table]] = []
    columns: list[tuple[pa.Schema, str]] = []
    reading: str = ""
    error: Exception | None = None


class _UnplannedError(Exception):
    """Rows have columns that are not planned for."""


def check_spark(source: Any, url: str, spark: SparkSession) -> None:
    """UsageError where the source cannot be split, or tasks cannot reach the table."""
    from ..spark.scan import check_running
    from ..spark.tasks import check_reachable

    check_running(spark)
    check_reachable(url)
    if not hasattr(source, "parts"):
        raise UsageError(
            f"spark: a {type(source).__name__} has no `parts`, so that its chunks are read by one "
            "process; nothing was done. Leave spark out, or load from files, Kafka or a table."
        )


def write_parts(
    job: Job,
    refused: Job | None,
    source: Any,
    chunk: Chunk,
    spark: SparkSession,
    options: StorageOptions,
    how: Mapping[str, Any],
) -> dict[str, pa.Table]:
    """Have tasks write the chunk's rows into the job, still invisible, and return what belongs
    beside them. [LD11]

    A task that finds columns that are not planned for says so, and its parts are read again when
    they are. refused: the job of the table of rows that violate a constraint, if they go there
    [LD13]; how: as for `Job.write`.
    """
    from ..spark.writing import TaskMessage, collect

    parts = dict(enumerate(source.parts(chunk, count=_count(chunk, spark))))
    beside: list[tuple[str, pa.Table]] = []
    known: list[pa.Schema] = []
    found = _first_columns(source, parts, beside)
    for _ in range(STARTS):
        for schema, reading in found:
            if reading:
                source.reading = reading  # for errors of this process
            job.marks += arrow_marks(schema.metadata)
            columns = from_arrow(schema, job.ctx.new_field_id)
            plan = (
                job.plan_write(columns, **how)
                if refused is None
                else plan_split(job, refused, columns, how, options)
            )
        if not parts:
            break
        known += [schema for schema, _ in found]
        told = _run(source, parts, plan, known, spark, options)
        _check(told, parts, source)
        found = _different(chain.from_iterable(one.columns for one in told))
        done = [one for one in told if not one.columns]
        written = [one.written for one in done]
        if isinstance(plan, WritePlan):
            collect(plan, [TaskMessage(each) for each in written], options).register(job)
        elif refused is not None:
            register_split(plan, written, job, refused, options)
        for one in done:
            beside += one.beside
            for number in one.parts:
                del parts[number]
    if parts:
        raise SourceError(
            f"{source.name}: the rows of {chunk.what} had other columns each time that they were "
            "read. Nothing of this chunk was committed. A source gives the same rows again."
        )
    rows: dict[str, list[pa.Table]] = {}
    for suffix, data in beside:
        rows.setdefault(suffix, []).append(data)
    return {suffix: pa.concat_tables(tables) for suffix, tables in rows.items()}


def _count(chunk: Chunk, spark: SparkSession) -> int:
    """How many parts: one for each core, unless they were too small or too large."""
    from ..spark.features import is_connect

    cores = _CORES if is_connect(spark) else spark.sparkContext.defaultParallelism
    return max(1, min(cores, chunk.bytes // _LEAST_BYTES), -(-chunk.bytes // _MOST_BYTES))


def _first_columns(
    source: Any, parts: dict[int, Chunk], beside: list[tuple[str, pa.Table]]
) -> list[tuple[pa.Schema, str]]:
    """The columns of the first rows. Parts before them, without any, are taken off."""
    for number, part in list(parts.items()):
        for data in streams(source.rows(part)):
            return [(data.schema, getattr(source, "reading", ""))]
        beside += _beside(source, part)
        del parts[number]
    return []


def _run(
    source: Any,
    parts: Mapping[int, Chunk],
    plan: WritePlan | SplitPlan,
    known: Sequence[pa.Schema],
    spark: SparkSession,
    options: StorageOptions,
) -> list[_Told]:
    """Run one Spark job, with a task for each part; what the one attempt that counts says."""
    from pyspark import cloudpickle

    from ..spark.tasks import check_can_write, messages_of, raising_ours

    task = partial(_read_parts, source, plan, known, options)
    # a source has options of its own, too
    check_can_write(task, options or StorageOptions({"source": source.name}))
    items = [(number, cloudpickle.dumps(part)) for number, part in parts.items()]  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types
    with raising_ours():
        frame = spark.createDataFrame(items, "number int, part binary")
        spread = frame.repartitionByRange(len(items), "number")  # others put two into one task
        return [pickle.loads(each) for each in messages_of(spread, task)]


def _check(told: Sequence[_Told], parts: Mapping[int, Chunk], source: Any) -> None:
    """Raise what a task has found; StoreError where not each part has been read once. [LD11]"""
    for one in told:
        if one.error is not None:
            if one.reading:
                source.reading = one.reading
            raise one.error
    if sorted(number for one in told for number in one.parts) != sorted(parts):
        raise StoreError(
            "Spark lost a part of what was loaded, or gave it twice; nothing of this chunk was "
            "committed. Run the load again."
        )


def _different(found: Iterable[tuple[pa.Schema, str]]) -> list[tuple[pa.Schema, str]]:
    """Each schema once, with where it was seen first."""
    kept: list[tuple[pa.Schema, str]] = []
    for schema, reading in found:
        if not any(schema.equals(other) for other, _ in kept):
            kept.append((schema, reading))
    return kept


def _beside(source: Any, part: Chunk) -> list[tuple[str, pa.Table]]:
    """What belongs beside the part that was read last."""
    return [*source.beside(part).items()] if getattr(source, "companions", None) else []


# --- In tasks -------------------------------------------------------------------------------------


def _read_parts(
    source: Any,
    plan: WritePlan | SplitPlan,
    known: Sequence[pa.Schema],
    options: StorageOptions,
    batches: Iterable[pa.RecordBatch],
) -> bytes:
    """Make these parts' rows durable, in files of this attempt; lasting errors are reported."""
    from pyspark import cloudpickle

    from ..spark.writing import write_task

    given = {
        number: cloudpickle.loads(part)
        for batch in batches
        for number, part in zip(*(each.to_pylist() for each in batch.columns), strict=True)
    }
    told = _Told(parts=[*given])
    rows = _rows(source, given.values(), known, told)
    try:
        if isinstance(plan, WritePlan):
            told.written = write_task(plan, rows, options).data
        else:
            told.written = split_in_task(plan, options, "", rows)
    except _UnplannedError:
        pass
    except (SchemaMismatchError, BrokenInputError, ChangedInputError) as error:
        told.error = error
    told.reading = getattr(source, "reading", "")
    return pickle.dumps(told)


def _rows(
    source: Any, parts: Iterable[Chunk], known: Sequence[pa.Schema], told: _Told
) -> Iterator[pa.RecordBatch]:
    """The rows, up to the first that are not planned for; behind it their columns alone."""
    new: list[tuple[pa.Schema, str]] = []
    for part in parts:
        for data in streams(source.rows(part)):
            if not any(map(data.schema.equals, known)):
                new.append((data.schema, getattr(source, "reading", "")))
            for batch in data:
                if not new:
                    yield batch
        told.beside += _beside(source, part)
    if new:
        told.columns = _different(new)
        raise _UnplannedError

"""Runs a write or a read in tasks without Spark's Python data sources: through mapInArrow. [SP45]

Writes take this way: a data source starts three more Python processes, which plan and commit, and a
session's first write waits for each. Reads take it where Spark has no Python data sources (3.5).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from manifestcommit.errors import UsageError
from manifestcommit.spark.runtime.registered_options import unlogged
from manifestcommit.spark.runtime.versions import check_pandas
from manifestcommit.store import StorageOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Batches = Iterable[pa.RecordBatch]
# of a function: from 1 MiB on Spark writes it, and the options with it, to files
_LARGEST_BYTES = 512 * 1024


def check_sent(function: Any, options: StorageOptions, remedy: str) -> None:
    """UsageError if Spark would write the function, and the options with it, to files. [SE1]"""
    if options and len(cloudpickle.dumps(function)) > _LARGEST_BYTES:  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types
        raise UsageError(
            f"Spark would send the storage options through files; nothing was done. {remedy}"
        )


def check_can_write(write: Callable[[Batches], bytes], options: StorageOptions) -> None:
    """UsageError if `messages_of` cannot run this write. [SP45] [SE1]"""
    check_pandas("a write uses")
    check_sent(write, options, "Let the environment say how the store is reached.")


def messages_of(df: DataFrame, write: Callable[[Batches], bytes]) -> list[bytes]:
    """The message of each task that `write` has given the rows to: one of each task, whatever was
    repeated. It can be sent as it is. [SP2]"""
    rows = mapped(df, partial(_written, write), "message binary").collect()
    return [bytes(row[0]) for row in rows]


def mapped(
    df: DataFrame,
    make: Callable[[Batches], Iterator[pa.RecordBatch]],
    struct: StructType | str,
) -> DataFrame:
    """A DataFrame of what `make` yields for the rows of each task, which have their names there."""
    # Spark takes a dot in a column's name for a member's
    numbered = df.toDF(*(f"c{index}" for index in range(len(df.columns))))
    with unlogged(), _without_doubts_about_pandas():
        return numbered.mapInArrow(partial(_named, tuple(df.columns), make), struct)


def rows_of(
    spark: SparkSession,
    items: Sequence[bytes],
    read: Callable[[bytes], Iterator[pa.RecordBatch]],
    struct: StructType,
    options: StorageOptions,
) -> DataFrame:
    """A DataFrame of the rows that `read` gives for each of the items. [SP4]"""
    check_pandas("on this Spark this read uses")
    check_sent(read, options, "Let the environment say how the store is reached.")
    if not items:
        return spark.createDataFrame([], struct)
    work = spark.createDataFrame([(item,) for item in items], "item binary")
    with unlogged(), _without_doubts_about_pandas():
        return work.repartition(len(items)).mapInArrow(partial(_rows, read), struct)


@contextlib.contextmanager
def _without_doubts_about_pandas() -> Iterator[None]:
    """Spark warns of pandas 3 wherever it asks for pandas; Arrow batches pass it by."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


# --- In tasks -------------------------------------------------------------------------------------


def _named(
    names: tuple[str, ...],
    make: Callable[[Batches], Iterator[pa.RecordBatch]],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    yield from make(batch.rename_columns(list(names)) for batch in batches)


def _written(write: Callable[[Batches], bytes], batches: Batches) -> Iterator[pa.RecordBatch]:
    message = write(batches)
    yield pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], ["message"])


def _rows(
    read: Callable[[bytes], Iterator[pa.RecordBatch]], batches: Batches
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for item in batch.column(0).to_pylist():
            yield from read(item)

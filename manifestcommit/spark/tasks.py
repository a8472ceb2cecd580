"""What is sent to Spark's other processes, and what comes back: storage options, functions for
tasks, errors. [SE1] [SP6] [SP45]

Spark shows the options of a data source in plans, environment variables set after the session began
reach no task, and large broadcasts are files. A class that no module contains is pickled by value:
its bytes carry the options into the processes that plan, write, read and commit, in classic and
Connect sessions alike. Nothing prints those bytes but py4j's own log, from which they are kept.

Writes, and reads on Spark 3.5, go through mapInArrow: a data source starts three more Python
processes, which plan and commit, and a session's first write waits for each.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import re
import secrets
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark import cloudpickle

from manifestcommit import errors

from ..errors import ConstraintError, CorruptMetadataError, ManifestCommitError, UsageError
from ..store import StorageOptions
from .features import DataSource, check_pandas
from .spark_internals import broadcast_threshold_bytes, has_java_session, java_session, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_MISSING = re.compile(
    r"ModuleNotFoundError: No module named '((?:manifestcommit|msgspec|pyarrow|zstandard)\b[\w.]*)'"
)
_VIOLATED = re.compile(r"([\d,]+) rows? violates? the constraint '(\w+)'", re.ASCII)
# A class is looked up by its name, wherever the release that runs in the tasks keeps it.
_RAISED = re.compile(r"\bmanifestcommit\.((?:\w+\.)+)(_?[A-Z]\w*): ([^\n]+)")


def check_reachable(url: str) -> None:
    """Refuse a store that only this process can see: Spark works in other processes."""
    if url.startswith("memory:"):
        raise UsageError(
            f"{url} lives in the memory of one process, which Spark's tasks cannot see; nothing "
            "was done. Use a folder or an object store, or write and read without Spark."
        )


@contextlib.contextmanager
def raising_ours() -> Iterator[None]:
    """Restore the type of our errors from Spark's Python processes, which it wraps as text."""
    try:
        yield
    except Exception as error:
        if (ours := raised_inside(error)) is not None:
            raise ours from error
        raise


def raised_inside(error: BaseException) -> ManifestCommitError | None:
    """The error of this package that Spark reported as text; None: it was another one."""
    text = str(error)
    if missing := _MISSING.search(text):
        return UsageError(
            f"Spark's Python processes cannot import {missing[1]}; nothing was written. They run "
            "$PYSPARK_PYTHON, by default the python3 of their PATH: set it, before the session "
            "starts, to a Python that has manifestcommit installed."
        )
    for module, name, message in _RAISED.findall(text):
        # A store's own error classes become store errors with their text.
        kind = getattr(errors, name, errors.StoreError if module.startswith("store.") else None)
        if kind is CorruptMetadataError:
            damaged = message.partition(" is damaged")[0]
            return CorruptMetadataError(message.strip(), object_name=damaged)
        if kind is ConstraintError and (said := _VIOLATED.search(message)) is not None:
            rows = int(said[1].replace(",", ""))
            return ConstraintError(message.strip(), constraint=said[2], violations=rows)
        if isinstance(kind, type) and issubclass(kind, ManifestCommitError):
            # A class that needs more than a message: its text stays with Spark's error.
            with contextlib.suppress(TypeError):
                return kind(message.strip())
    return None


# no module can have this name, so that the class is pickled by value
_NOWHERE = "manifestcommit.spark.<registered>"
# far below the size (1 MiB) above which Spark broadcasts a class
_LARGEST_BYTES = 256 * 1024

# Two threads that register one name are two sources of that name to Spark, which refuses it then.
_REGISTERING = threading.Lock()
_NAMES: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], str]] = weakref.WeakKeyDictionary()


class _Quiet(threading.local):
    on = False


_QUIET = _Quiet()


def _is_wanted(record: logging.LogRecord) -> bool:
    return not _QUIET.on


# At DEBUG, py4j logs every command that it sends to the JVM, and the bytes of the registered class
# are part of one.
for _logger in ("py4j.java_gateway", "py4j.clientserver"):
    logging.getLogger(_logger).addFilter(_is_wanted)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Keep what this thread sends to the JVM out of py4j's own log: classes and functions whose
    bytes carry options. [SE1]"""
    before = _QUIET.on
    _QUIET.on = True
    try:
        yield
    finally:
        _QUIET.on = before


class StoreSource(DataSource):
    """A data source that opens stores with the options of its class; without any, with the
    environment's. author: who registered it, since Spark commits in processes of its own. [OB15]"""

    format_name: ClassVar[str] = ""
    author: ClassVar[Any] = None
    storage_options: ClassVar[StorageOptions] = StorageOptions()

    @classmethod
    def name(cls) -> str:
        return cls.format_name


def registered_name(spark: Any, source: type[StoreSource], options: StorageOptions) -> str:
    """The format's name in this session for the source with these options; registered once. The
    name is random, and reveals nothing. [SE1]"""
    if has_java_session(spark):
        # Names are looked up in the calling thread's active session; a thread that was just started
        # has none, or another.
        sessions = jvm(spark).org.apache.spark.sql.classic.SparkSession
        sessions.setActiveSession(java_session(spark))
    key = (source.format_name, options.fingerprint())
    with _REGISTERING:
        names = _NAMES.setdefault(spark, {})
        if key not in names:
            # Other options get another name: a DataFrame of a Connect session is analysed by name
            # whenever it is used.
            name = f"{source.format_name}_{secrets.token_hex(8)}" if options else source.format_name
            register_with(spark, source, options, name)
            names[key] = name
        return names[key]


def register_with(
    spark: Any, source: type[StoreSource], options: StorageOptions, name: str, author: Any = None
) -> None:
    """Register the source with these options under a name, which it takes over. [SE1]"""
    made = with_options(source, options, name, author)
    with unlogged():
        spark.dataSource.register(made)


def with_options(
    source: type[StoreSource], options: StorageOptions, name: str, author: Any = None
) -> type[StoreSource]:
    """The source as a class of its own, which carries the options, and who registers it, wherever
    it and its objects are pickled to. [SE1] [OB15]"""
    if not options and author is None:
        return source
    _check_options(options)
    known = {"format_name": name, "storage_options": options, "author": author}
    return type(source.__name__, (source,), {"__module__": _NOWHERE, **known})


Batches = Iterable[pa.RecordBatch]
Make = Callable[[Batches], Iterator[pa.RecordBatch]]
Read = Callable[[Any], Iterator[pa.RecordBatch]]  # of a part


def _check_options(options: StorageOptions) -> None:
    """UsageError, with the name of the option, if one cannot be sent. [SE1]"""
    size = 0
    for option, value in options.items():
        try:
            size += _size_of(value)
        except Exception:  # any error of an object's own pickling: its text may contain its value
            size = _LARGEST_BYTES + 1
        if size > _LARGEST_BYTES:
            raise UsageError(
                f"the storage option {option} cannot be sent to Spark's processes; nothing was "
                "done. Give plain values: texts, numbers, and dicts of them."
            ) from None


def _size_of(value: Any) -> int:
    return len(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types


def check_sent(function: Any, options: StorageOptions) -> None:
    """UsageError if Spark would write the function, and the options with it, to files. [SE1]"""
    _check_options(options)
    if options and _size_of(function) > broadcast_threshold_bytes() // 2:  # Spark adds to it
        raise UsageError(
            "Spark would send the storage options through files; nothing was done. Let the "
            "environment say how the store is reached."
        )


def check_can_write(write: Callable[[Batches], bytes], options: StorageOptions) -> None:
    """UsageError if `messages_of` cannot run this write. [SP45] [SE1]"""
    check_pandas("a write uses")
    check_sent(write, options)


def messages_of(df: DataFrame, write: Callable[[Batches], bytes]) -> list[bytes]:
    """The message of each task that `write` has given the rows to: one of each task, whatever was
    repeated. It can be sent as it is. [SP2]"""
    return [bytes(row[0]) for row in message_rows(df, write).collect()]


def message_rows(df: DataFrame, write: Callable[[Batches], bytes]) -> DataFrame:
    """A DataFrame of these messages, a row each."""
    return mapped(df, partial(_written, write), "message binary")


def mapped(df: DataFrame, make: Make, struct: StructType | str) -> DataFrame:
    """A DataFrame of what `make` yields for the rows of each task, which have their names there."""
    # Spark takes a dot in a column's name for a member's
    numbered = df.toDF(*(f"c{index}" for index in range(len(df.columns))))
    with unlogged(), _without_doubts_about_pandas():
        return numbered.mapInArrow(partial(_named, tuple(df.columns), make), struct)


def rows_of(
    spark: SparkSession,
    parts: Sequence[Any],
    read: Read,
    struct: StructType,
    options: StorageOptions,
) -> DataFrame:
    """A DataFrame of the rows that `read` gives for each of the parts. [SP4]"""
    check_pandas("on this Spark this read uses")
    check_sent(read, options)
    if not parts:
        return spark.createDataFrame([], struct)
    work = spark.createDataFrame([(pickle.dumps(part),) for part in parts], "part binary")
    with unlogged(), _without_doubts_about_pandas():
        return work.repartition(len(parts)).mapInArrow(partial(_rows, read), struct)


@contextlib.contextmanager
def _without_doubts_about_pandas() -> Iterator[None]:
    """Spark warns of pandas 3 wherever it asks for pandas; Arrow batches pass it by."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


# --- In tasks -------------------------------------------------------------------------------------


def _named(names: tuple[str, ...], make: Make, batches: Batches) -> Iterator[pa.RecordBatch]:
    yield from make(batch.rename_columns(list(names)) for batch in batches)


def _written(write: Callable[[Batches], bytes], batches: Batches) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array([write(batches)], pa.binary())], ["message"])


def _rows(read: Read, batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for part in batch.column(0).to_pylist():
            yield from read(pickle.loads(part))  # by this driver

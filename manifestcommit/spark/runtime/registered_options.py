"""Passes storage options into Spark's processes: inside a class that is registered in a session,
and nowhere else. [SE1]

Spark shows the options of a data source in plans, environment variables set after the session began
reach no task, and large broadcasts are files. A class that no module contains is pickled by value:
its bytes carry the options into the processes that plan, write, read and commit, in classic and
Connect sessions alike. Nothing prints those bytes but py4j's own log, from which they are kept.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

from pyspark import cloudpickle

from manifestcommit.errors import UsageError
from manifestcommit.spark.runtime.spark_internals import has_java_session, java_session, jvm
from manifestcommit.spark.runtime.versions import DataSource
from manifestcommit.store import StorageOptions

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


def is_connect(spark: Any) -> bool:
    """Whether the session (or DataFrame, or Column) uses Spark Connect, without a JVM here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


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
    size = 0
    for option, value in options.items():
        try:
            size += len(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types
        except Exception:  # any error of an object's own pickling: its text may contain its value
            size = _LARGEST_BYTES + 1
        if size > _LARGEST_BYTES:
            raise UsageError(
                f"the storage option {option} cannot be sent to Spark's processes; nothing was "
                "done. Give plain values: texts, numbers, and dicts of them."
            ) from None
    return type(
        source.__name__,
        (source,),
        {
            "__module__": _NOWHERE,
            "format_name": name,
            "storage_options": options,
            "author": author,
        },
    )

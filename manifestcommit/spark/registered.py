"""Storage options on their way into Spark's processes: inside a class that is registered in a session, and nowhere else. [SE1]

Options of a data source are shown in plans, environment set after the session began reaches no task, and large broadcasts lie in
files. A class that no module holds is pickled by value: its bytes carry the options into the processes that plan, write, read and
commit, in classic and Connect sessions alike, and nothing prints those bytes but py4j's own log, which does not get to see them.
Not here: what the sources do (writer, reader, source).
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
from pyspark.sql.datasource import DataSource

from manifestcommit.errors import UsageError
from manifestcommit.store import StorageOptions

_NOWHERE = "manifestcommit.spark.<registered>"  # no module can have this name, so that the class is pickled by value
_LARGEST_BYTES = 256 * 1024  # far below the size (1 MiB) from which Spark sends a class by a broadcast

_NAMES: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], str]] = weakref.WeakKeyDictionary()


class _Quiet(threading.local):
    on = False


_QUIET = _Quiet()


def _is_wanted(record: logging.LogRecord) -> bool:
    return not _QUIET.on


# At DEBUG, py4j logs every command that it sends to the JVM, and the bytes of the registered class are part of one.
for _logger in ("py4j.java_gateway", "py4j.clientserver"):
    logging.getLogger(_logger).addFilter(_is_wanted)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """py4j's own log does not see what this thread sends to the JVM: classes and functions whose bytes carry options. [SE1]"""
    before = _QUIET.on
    _QUIET.on = True
    try:
        yield
    finally:
        _QUIET.on = before


def is_connect(spark: Any) -> bool:
    """Whether the session (or DataFrame, or Column) speaks to its driver by Spark Connect: the JVM is out of this process's reach."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class StoreSource(DataSource):
    """A data source that opens stores with the options of its class; none: as the environment says."""

    format_name: ClassVar[str] = ""
    storage_options: ClassVar[StorageOptions] = StorageOptions()

    @classmethod
    def name(cls) -> str:
        return cls.format_name


def registered_name(spark: Any, source: type[StoreSource], options: StorageOptions) -> str:
    """The format's name in this session for the source with these options; registered once. The name is drawn, and tells nothing. [SE1]"""
    if hasattr(spark, "_jsparkSession"):
        # Names are looked up in the active session of the thread that calls; one that someone has started has none, or another.
        spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    names = _NAMES.setdefault(spark, {})
    key = (source.format_name, options.fingerprint())
    if key not in names:
        # Other options get another name: a DataFrame of a Connect session is analysed by name again whenever it is used.
        name = f"{source.format_name}_{secrets.token_hex(8)}" if options else source.format_name
        register_with(spark, source, options, name)
        names[key] = name
    return names[key]


def register_with(spark: Any, source: type[StoreSource], options: StorageOptions, name: str) -> None:
    """Register the source with these options under a name; what has the name already is replaced. [SE1]"""
    made = with_options(source, options, name)
    with unlogged():
        spark.dataSource.register(made)


def with_options(source: type[StoreSource], options: StorageOptions, name: str) -> type[StoreSource]:
    """The source as a class of its own that carries the options wherever it, and what it makes, is pickled to. [SE1]"""
    if not options:
        return source
    size = 0
    for option, value in options.items():
        try:
            size += len(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types
        except Exception:  # whatever an object's own pickling raises, its text may hold its value
            size = _LARGEST_BYTES + 1
        if size > _LARGEST_BYTES:
            raise UsageError(
                f"the storage option {option} cannot be sent to Spark's processes; nothing was done. Give plain values: texts, numbers, "
                "and dicts of them."
            ) from None
    return type(source.__name__, (source,), {"__module__": _NOWHERE, "format_name": name, "storage_options": options})

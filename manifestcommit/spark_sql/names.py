"""The tables that a session has names for. [SP50]

Kept for each session, as long as it lives, and nowhere else: no other session, and no file, learns
of a name, a path or an option.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import UsageError
from ..spark.read.provenance import marks_of
from ..spark.read.scan import quoted
from ..spark.runtime.spark_internals import session_of
from ..store import StorageOptions
from ..table import Table
from .scanner import Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATHS = "manifestcommit"  # before a path, as in manifestcommit.`/lake/flights`
_LOCK = threading.Lock()
_ATTACHED: weakref.WeakKeyDictionary[Any, dict[str, dict[str, Place]]] = weakref.WeakKeyDictionary()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a table is, and how its store is reached. name: in the session, as it was given; empty:
    it has none; mark: of the version that its view shows ([CF17]); empty: it has no view."""

    path: str
    options: StorageOptions
    name: str = ""
    mark: str = ""

    def table(self) -> Table:
        return Table(self.path, self.options)


def attach_all(
    spark: SparkSession,
    tables: Mapping[str, str | os.PathLike[str]],
    options: Mapping[str, Any] | None,
) -> dict[str, int]:
    """Make a temporary view of the newest version of each table, and keep their names. All tables
    are read before any name is known. [SP50]"""
    places = [place_of(name, path, options) for name, path in tables.items()]
    found = [_newest(spark, place) for place in places]
    for place, _, df in found:
        df.createOrReplaceTempView(quoted(place.name))
    with _LOCK:
        known = _known(spark)
        known.update({place.name.lower(): place for place, _, _ in found})
    return {place.name: version for place, version, _ in found}


def place_of(name: str, path: str | os.PathLike[str], options: Mapping[str, Any] | None) -> Place:
    """The table as it is known by a name, whatever this process's folder is later."""
    known = os.fspath(path)
    known = known if "://" in known else os.path.abspath(known)
    return Place(path=known, options=StorageOptions(options), name=name)


class Names:
    """One statement's names: its own, the session's, and paths. marks: of the session's views."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Mapping[str, str | os.PathLike[str]] | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        self._options = options
        with _LOCK:
            self._known = dict(_known(spark))
        self.marks = {place.mark for place in self._known.values() if place.mark}
        self._known |= {
            name.lower(): place_of(name, path, options) for name, path in (tables or {}).items()
        }

    def find(self, name: Name) -> Place | None:
        """The table of that name; None: it is Spark's to know."""
        if len(name) == 1:
            return self._known.get(name[0].lower())
        if len(name) == 2 and name[0].lower() == _PATHS:
            return self.at(name[1])
        return None

    def at(self, path: str) -> Place:
        """The table at a path that the statement names."""
        return Place(path=path, options=StorageOptions(self._options))

    def changed(self, name: Name) -> Place:
        """The table of that name, which a statement changes. UsageError if there is none."""
        place = self.find(name)
        if place is None:
            shown = ".".join(name)
            raise UsageError(
                f"{shown!r} is no table that is attached to this session, and "
                "only such tables are changed; nothing was done. Attach it with "
                f"mc.attach(spark, path, {name[-1]!r}), name it in tables={{…}}, or write "
                "manifestcommit.`path`",
                argument="statement",
            )
        return place


def _known(spark: SparkSession) -> dict[str, Place]:
    owner, session = session_of(spark)
    return _ATTACHED.setdefault(owner, {}).setdefault(session, {})


def _newest(spark: SparkSession, place: Place) -> tuple[Place, int, Any]:
    table = place.table()
    version = table.version
    df = table.read(version=version, spark=spark)
    return msgspec.structs.replace(place, mark=next(iter(marks_of(df)), "")), version, df

"""Queries over tables: each is read at one version for the whole statement. [SP47]"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..core.schema.read_mark import mark_of
from ..errors import UsageError
from ..spark.read.provenance import check_running, marks_of
from ..spark.read.scan import quoted
from ..spark.runtime.registered_options import is_connect
from ..spark.runtime.versions import SPARK
from .names import Names, Place
from .queries import Reference, Travel, references, spliced
from .scanner import refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..core.table.snapshot import Snapshot


class Reads:
    """What one statement has read. The newest version of a table is looked up once, whatever names
    it has in the statement, and however often it is named."""

    def __init__(self, spark: SparkSession, names: Names) -> None:
        check_running(spark)
        self._spark, self._names = spark, names
        self._snapshots: dict[tuple[str, Travel], Snapshot] = {}
        self._frames: dict[tuple[str, int], tuple[str, DataFrame]] = {}
        self._marks: set[str] = set()

    def snapshot(self, place: Place, travel: Travel | None = None) -> Snapshot:
        """The version of the table that the statement reads."""
        table, travel = place.table(), travel or Travel()
        key = (table.url, travel)
        if key not in self._snapshots:
            self._snapshots[key] = table.snapshot(
                version=travel.version, as_of=travel.as_of, tag=travel.tag
            )
        return self._snapshots[key]

    def query(self, text: str) -> DataFrame:
        """The query's DataFrame. Nothing runs yet. UsageError where it reads an attached table at a
        version besides, through a view of the session."""
        places = [
            (each.start, each.end, self._words(each, place))
            for each in references(text)
            if (place := self._names.find(each.name)) is not None
        ]
        if places and is_connect(self._spark) and SPARK < (4, 0):
            raise UsageError(
                "mc.sql reads tables in Spark Connect from Spark 4.0 on; nothing was done. Use a "
                "newer Spark, or spark.sql over the names of mc.attach"
            )
        frames: dict[str, Any] = dict(self._frames.values())
        if places:
            df = self._spark.sql(spliced(text, places, braces=True), **frames)
        else:
            df = self._spark.sql(text)
        self._check(marks_of(df))
        return df

    def reads(self, df: DataFrame, snapshot: Snapshot, url: str) -> bool:
        """Whether the DataFrame reads any version of this table."""
        prefix = _table_of(mark_of(snapshot.table_id, url, 1))
        return any(_table_of(mark) == prefix for mark in marks_of(df))

    def _words(self, reference: Reference, place: Place) -> str:
        """What Spark's text has in place of the table."""
        name = ".".join(reference.name)
        if reference.problem:
            raise refusal(f"{name!r}: {reference.problem}", "a query that says it otherwise")
        table, snapshot = place.table(), self.snapshot(place, reference.travel)
        if snapshot.schema is None:
            raise UsageError(f"{table.url} has no columns yet, and no rows; nothing was done")
        key = (table.url, snapshot.version)
        if key not in self._frames:
            df = table.read(version=snapshot.version, spark=self._spark)
            self._frames[key] = (f"t{len(self._frames)}", df)
            self._marks.add(mark_of(snapshot.table_id, table.url, snapshot.version))
        words = "{" + self._frames[key][0] + "}"
        if reference.has_alias:
            return words
        alias = quoted(reference.name[-1]).replace("{", "{{").replace("}", "}}")
        return f"{words} AS {alias}"

    def _check(self, marks: Iterable[str]) -> None:
        known = {_table_of(mark) for mark in self._marks | self._names.marks}
        others = [mark for mark in marks if _table_of(mark) in known and mark not in self._marks]
        if others:
            versions = ", ".join(sorted({mark.rpartition("-v")[2] for mark in others}))
            raise UsageError(
                "invalid statement: it reads an attached table through a view that was made of its "
                f"version {versions}; nothing was done. Name the table itself, with VERSION AS OF "
                "for a version that is not the newest"
            )


def _table_of(mark: str) -> str:
    return mark.rpartition("-v")[0]

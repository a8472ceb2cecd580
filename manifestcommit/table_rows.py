"""Row changes of a table: `Table.delete_where`, `Table.merge`. [RC1]-[RC6]

Not here: which rows go and come (spark.row_change, spark.merge), the commit (engine.row_change).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .engine.given import Ranges
from .engine.row_change import RowOutcome, drop_removed
from .engine.session import Session
from .job import is_spark_dataframe
from .store import StorageOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RowChanges:
    """The part of a table that changes single rows, by writing files anew without them."""

    _session: Session
    _storage_options: StorageOptions

    def delete_where(
        self,
        condition: Any,
        *,
        spark: SparkSession | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> RowOutcome:
        """Delete exactly the rows of which the condition is true, in one commit; a row of which it is null stays. [RC2]

        condition: SQL (`"flight = 1545 AND day < '2013-01-02'"`), a pyarrow expression or a Spark Column. Files that cannot hold such a
        row are not read, those of which all rows go are only removed, the others are written anew without them. Where no row matches,
        nothing is committed (`kind` "unchanged"), unless there is a key to be recorded. key: a rerun does nothing; condition and
        fingerprint are declared with it. reason: recorded in the history. dry_run: count only.

        The rows stay in older versions until these are expired and collected (`gc`). CommitConflictError where others wrote into a
        partition in which the condition can be true, or replaced a file that holds such rows: run it again.
        """
        from .spark.read import active_session  # late: pyspark is an extra
        from .spark.row_change import delete_where

        return delete_where(
            spark or active_session(),
            self._session,
            condition,
            key=key,
            fingerprint=fingerprint,
            reason=reason,
            dry_run=dry_run,
            storage_options=self._storage_options,
        )

    def merge(
        self,
        source: Any,
        on: Sequence[str] | str,
        *,
        when_matched: Literal["update", "delete"] | None = "update",
        when_not_matched: Literal["insert"] | None = "insert",
        spark: SparkSession | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        reason: str | None = None,
        watermarks: Ranges | None = None,
    ) -> RowOutcome:
        """Merge rows by key in one commit: rows whose key the source has become its row, or go; its other rows are inserted. [RC3] [RC4]

        source: a Spark DataFrame or whatever has `__arrow_c_stream__`, with the table's columns, or with at least `on` where rows are only
        deleted; it is evaluated once. on: the columns of the key; a null in one is equal to nothing. UsageError where the source has a
        key twice. key: a rerun does nothing. watermarks: source -> (start, end), half-open, as for `write`: they advance with the commit.

        CommitConflictError where others wrote into a partition in which such a key can lie (the whole table, unless `on` names the
        partition columns): run it again. Of two merges of one key at once, one gets it.
        """
        from .spark.merge import merge  # late: pyspark is an extra
        from .spark.read import active_session

        is_spark = is_spark_dataframe(source)
        return merge(
            spark or (source.sparkSession if is_spark else active_session()),
            self._session,
            source,
            on,
            when_matched=when_matched,
            when_not_matched=when_not_matched,
            key=key,
            fingerprint=fingerprint,
            reason=reason,
            watermarks=watermarks,
            is_spark=is_spark,
            storage_options=self._storage_options,
        )

    def drop_removed(self) -> int:
        """Write each manifest anew from which files were removed, so that the newest version names none of them; how many were. [GC17]

        For forgetting rows: a manifest goes on to hold the bounds and partitions of files that were taken out of it. Changes no row.
        """
        return drop_removed(self._session)

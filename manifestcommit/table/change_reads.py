"""Reading what changed between versions: `Table.changed_rows`. [CH1]-[CH6]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import pyarrow as pa

from ..argument_checks import checked, part_of
from ..engine.metadata.table_context import TableContext
from ..engine.runtime.validation import names, optional, whole
from ..store import StorageOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@part_of("Table")
class ChangeReads:
    """The method of a table that reads its changes of rows."""

    _session: TableContext
    _storage_options: StorageOptions

    @overload
    def changed_rows(
        self,
        start_version: int,
        end_version: int | None = ...,
        *,
        on: list[str] | str | None = ...,
        columns: list[str] | str | None = ...,
        spark: None = ...,
    ) -> pa.RecordBatchReader: ...

    @overload
    def changed_rows(
        self,
        start_version: int,
        end_version: int | None = ...,
        *,
        on: list[str] | str | None = ...,
        columns: list[str] | str | None = ...,
        spark: SparkSession,
    ) -> DataFrame: ...

    @checked(start_version=whole(0), on=optional(names))
    def changed_rows(
        self,
        start_version: int,
        end_version: int | None = None,
        *,
        on: list[str] | str | None = None,
        columns: list[str] | str | None = None,
        spark: SparkSession | None = None,
    ) -> pa.RecordBatchReader | DataFrame:
        """Read the rows that were inserted, deleted and updated after one version, up to another.

        Applied to the rows of `start_version` they give exactly the rows of `end_version`, in the
        columns of `end_version`. What a version rewrote unchanged is no change, so compaction has
        none; an overwrite has what really differs, and a rollback what it took back and restored.
        Rows come version by version, within a version in no particular order, and are read as they
        are asked for: memory holds a batch, and up to 64 MB of rows of a version that rewrote
        files; more of these, as many as differ, wait in unnamed temporary files. Rows with one key
        are held together.

        Args:
            start_version: the version whose rows are known already: its own changes are not read. 0
                reads from the beginning of the table.
            end_version: the last version whose changes are read; by default the newest.
            on: the columns of a key, as for `merge`. Where a version takes away one row with a key
                and brings one, they are the two images of an update; by default, and for other
                rows, they are a deletion and an insertion.
            columns: the columns to compare and to read, in this order; by default all. A change in
                others is none.
            spark: a session whose tasks read and compare, one version in one task where it rewrote
                files; by default this process does.

        Returns:
            A `pyarrow.RecordBatchReader`, with `spark` a `pyspark.sql.DataFrame`, of the columns,
            and of `_change_type` ("insert", "delete", "update_preimage" or "update_postimage"),
            `_commit_version` and `_commit_timestamp`.

        Raises:
            UsageError: `start_version` is newer than `end_version`; a column is not the table's, or
                has the name of one of those three; rows cannot be distinguished by `on`.
            SnapshotExpiredError: a version from `start_version` on was expired; it names the oldest
                one from which changes can be read.
            VersionNotFoundError: one of the versions does not exist.
            SchemaMismatchError: files of a version between cannot be read as the columns of
                `end_version`, which a rollback brought back.
            TableNotFoundError: there is no table at the path.
            DataFileMissingError: a file of one of the versions is gone.

        Example:
            `table.changed_rows(41, 45, on="id").read_all()`

        Spec: CH1, CH2, CH3, CH4.
        """
        from ..engine.row_feed.read_changes import plan_changes, read_changes  # late: rarely used

        plan = plan_changes(self._session, start_version, end_version, on=on, columns=columns)
        if spark is not None:
            from ..spark.read.changes import changes_frame  # late: pyspark is an extra

            return changes_frame(spark, self._session.store.url, plan, self._storage_options)
        return read_changes(self._session, plan)

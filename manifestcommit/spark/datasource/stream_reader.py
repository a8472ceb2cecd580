"""`spark.readStream.format("manifestcommit")`: every committed file once, in the order of versions.
[SP8]

Spark asks one long-lived process for offsets and for the files between two of them; tasks read
those as in a batch. Only Spark's checkpoint records the position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from manifestcommit.core.commit.change_feed import Offset, OnOverwrite, parse_offset
from manifestcommit.core.schema.fields import Schema
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.row_feed.stream_changes import RowFeed
from manifestcommit.engine.scan.change_feed import Feed
from manifestcommit.errors import UsageError
from manifestcommit.spark.read.changes import ChangesOfTask, ChangesReader, pack_changes
from manifestcommit.spark.read.task_reader import FileGroup, FilesReader, pack
from manifestcommit.spark.runtime.versions import (
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from manifestcommit.store import StorageOptions, open_store


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a stream. starting_version: None: all live files first; max_files: per
    trigger; on: the columns of a key, for changes."""

    starting_version: int | None = None
    max_files: int | None = None
    on_overwrite: OnOverwrite = "fail"
    on: tuple[str, ...] = ()


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Every file that the table adds is in exactly one batch, and a repeated batch has the same
    files. [SP8]

    columns: those of `struct`, in the table's version `pinned`.
    """

    def __init__(
        self,
        url: str,
        columns: Schema,
        struct: StructType,
        *,
        pinned: int,
        options: StreamOptions,
        storage_options: StorageOptions,
    ) -> None:
        self.url = url
        self.columns = columns
        self.struct = struct
        self.pinned = pinned
        self.options = options
        self.storage_options = storage_options
        self._feed: Feed | RowFeed | None = None
        self._at: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        self._at = _dict(self.feed.beginning(self.options.starting_version))
        return self._at

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        return (
            ReadMaxFiles(self.options.max_files) if self.options.max_files else ReadAllAvailable()
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        self.feed.stop_at_head()

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        # Before 4.2 Spark does not say where the stream is: there it is where its last batch ended,
        # which Spark plans once more, without any file, when it starts a query again.
        at = start or self._at or self.initialOffset()
        return _dict(
            self.feed.advance(
                _offset(at), limit.max_files if isinstance(limit, ReadMaxFiles) else None
            )
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._at = end
        feed = self.feed
        if isinstance(feed, RowFeed):
            changes = feed.between(_offset(start), _offset(end))
            return [ChangesOfTask(group) for group in pack_changes(changes)]
        files = feed.between(_offset(start), _offset(end))
        constants = feed.constants(files)
        return [FileGroup(group, constants.of(group)) for group in pack(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangesOfTask):
            fields, on = self.columns.fields, self.options.on
            return ChangesReader(self.url, fields, on, self.storage_options).read(partition.changes)
        # A column's name in files never changes, so the stream's own columns fit the files of every
        # version. [SC6]
        return FilesReader(
            self.url, (), self.columns, self.struct, storage_options=self.storage_options
        ).read(partition)

    @property
    def feed(self) -> Feed | RowFeed:
        """Created on first use, in the one process that plans. It is not sent to tasks."""
        if self._feed is None:
            session = TableContext(open_store(self.url, self.storage_options))
            columns, chosen = self.columns.fields, self.options.on_overwrite
            self._feed = (
                RowFeed(session, columns=columns, pinned=self.pinned)
                if chosen == "changes"
                else Feed(session, columns=columns, pinned=self.pinned, on_overwrite=chosen)
            )
        return self._feed


def _dict(offset: Offset) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(offset)
    return found


def _offset(given: dict[str, Any]) -> Offset:
    try:
        return parse_offset(given)
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(
            f"the checkpoint holds an offset that is not of this source ({error}); nothing "
            "was read. Start with a new checkpoint."
        ) from None

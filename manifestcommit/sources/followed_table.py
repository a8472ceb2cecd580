"""Another table of this library as a source: its versions are positions. [LD5]"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ..arguments import checked
from ..errors import SnapshotExpiredError, SourceError, TableNotFoundError, VersionNotFoundError
from ..runtime.validation import names, optional
from ..store import StorageOptions
from ..table.table import Table
from .chunk import Chunk, Position

_MOST_VERSIONS = 100  # of one commit


class FollowedTable:
    """The changes of a table; made by `table`.

    Attributes:
        name: what the position of this source is called in the loaded table.

    Spec: LD5.
    """

    def __init__(self, followed: Table, on: list[str] | str | None) -> None:
        self._followed, self._on = followed, on
        self.name = f"table:{followed.url}"

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        """Yield the versions that followed the position, some at a time."""
        del max_bytes  # a version is read in batches, whatever its size
        given = positions.get(self.name)
        start = given if isinstance(given, int) else 0
        try:
            newest = self._followed.version
        except TableNotFoundError:
            return
        if start > newest:
            raise SourceError(
                f"{self.name}: the loaded table is at version {start}, and this one ends at "
                f"{newest}: it was made again, or restored. Load it into a new table."
            )
        while start < newest:
            end = min(start + _MOST_VERSIONS, newest)
            first = start if given is not None or start else None
            yield Chunk(ranges={self.name: (first, end)}, what=f"versions {start + 1} to {end}")
            start = end

    def rows(self, chunk: Chunk) -> pa.RecordBatchReader:
        """Read the changes of the chunk's versions, as `Table.changed_rows` has them."""
        start, end = chunk.ranges[self.name]
        if chunk.plan == "copy":
            return self._whole(int(end))
        try:
            return self._followed.changed_rows(int(start or 0), int(end), on=self._on)
        except (SnapshotExpiredError, VersionNotFoundError) as error:
            raise SourceError(
                f"{self.name}: the changes after version {start or 0} can no longer be read "
                f"({error}). Nothing was loaded. Give restart=True to replace the loaded table by "
                "the whole of this one and to go on from there."
            ) from error

    def copy(self, positions: Mapping[str, Position]) -> Chunk:
        """Return the whole table as one chunk, as of its newest version."""
        given = positions.get(self.name)
        newest = self._followed.version
        return Chunk(
            ranges={self.name: (given, newest)}, what=f"all of version {newest}", plan="copy"
        )

    def _whole(self, version: int) -> pa.RecordBatchReader:
        """All rows as insertions."""
        dataset = self._followed.dataset(version)
        when = self._followed.snapshot(version).committed_at
        added: list[tuple[str, Any, Any]] = [
            ("_change_type", pa.string(), "insert"),
            ("_commit_version", pa.int64(), version),
            ("_commit_timestamp", pa.timestamp("us", "UTC"), when),
        ]
        schema = dataset.schema.remove_metadata()
        for name, kind, _ in added:
            schema = schema.append(pa.field(name, kind))

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in dataset.to_batches():
                more = [pa.array([value] * batch.num_rows, kind) for _, kind, value in added]
                yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


@checked(on=optional(names))
def table(
    path: str | os.PathLike[str],
    *,
    on: list[str] | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FollowedTable:
    """Name the changes of a table, as a source of `load`: each is loaded as a row, once.

    Rows are those of `Table.changed_rows`, with `_change_type`, `_commit_version` and
    `_commit_timestamp`: inserts, updates and deletes, also those of merges, overwrites and
    rollbacks; compaction has none.

    Args:
        path: the table that is followed: a local path or a URL.
        on: the columns of a key, by which an update's two images belong together; by default an
            update is a deletion and an insertion.
        storage_options: what reaches its object store; by default the environment.

    Returns:
        The source.

    Raises:
        UsageError: an argument is wrong.

    Example:
        `load(table("/lake/orders", on="id"), "/lake/order_changes")`

    Spec: LD5.
    """
    return FollowedTable(Table(path, StorageOptions(storage_options)), on)

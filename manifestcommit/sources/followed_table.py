"""Another table of this library as a source: its versions are positions. [LD5]"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ..errors import SnapshotExpiredError, SourceError, TableNotFoundError, VersionNotFoundError
from ..format.snapshot import Snapshot
from ..runtime.validation import checked, names, optional
from ..store import StorageOptions
from ..table.table import Table
from .chunk import Chunk, Position

_MOST_VERSIONS = 100  # of one commit


class FollowedTable:
    """The changes of a table; made by `table`.

    Attributes:
        name: how the position of this source in the loaded table begins; the table's id follows.

    Spec: LD5.
    """

    def __init__(self, followed: Table, on: list[str] | str | None) -> None:
        self._followed, self._on = followed, on
        self.name = f"table:{followed.url}"

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        """Yield the versions that followed the position, some at a time."""
        del max_bytes  # a version is read in batches, whatever its size
        name, snapshot = self._now(positions)
        start, newest = positions.get(name), snapshot.version
        if start is None and (before := self._before(snapshot, positions)):
            start = max(at for _, at, _ in before)
            for other, _, shared in before:
                yield from _steps(other, start, shared)
                start = max(start, shared)
        if isinstance(start, int) and start > newest:
            raise self._made_again()
        yield from _steps(name, start if isinstance(start, int) else None, newest)

    def _before(
        self, snapshot: Snapshot, positions: Mapping[str, Position]
    ) -> list[tuple[str, int, int]]:
        """The tables that this one was cloned from, by the last versions that both have, if one was
        followed: its position's name, the position, that version. [LD5] [CN3]"""
        known = {
            name.rpartition("#")[2]: (name, at)
            for name, at in positions.items()
            if name.startswith("table:") and isinstance(at, int)
        }
        if not known.keys() & snapshot.cloned.keys():
            return []
        found = []
        for table_id, origin in snapshot.cloned.items():
            name, at = known.get(table_id, (f"table:{origin.root}#{table_id}", 0))
            if at > origin.version:
                raise SourceError(
                    f"{self.name}: it is a clone that has {name} up to version {origin.version}, "
                    f"which was followed up to version {at}: what it lacks is loaded already. "
                    "Nothing was loaded. Load it into a new table."
                )
            found.append((name, at, origin.version))
        return sorted(found, key=lambda each: each[2])

    def _now(self, positions: Mapping[str, Position]) -> tuple[str, Snapshot]:
        """What the position is called, which holds the table's id, and the newest version. A table
        that was removed and made again is another one, whatever its versions are."""
        try:
            snapshot = self._followed.snapshot()
        except TableNotFoundError as error:
            raise SourceError(
                f"{self.name}: there is no table; nothing was loaded. Look at its path, or create "
                "it first."
            ) from error
        if self._on is not None:  # refuses a column that it has not, also where nothing is new
            self._followed.changed_rows(snapshot.version, snapshot.version, on=self._on)
        name = f"{self.name}#{snapshot.table_id}"
        if any(each.startswith(f"{self.name}#") and each != name for each in positions):
            raise self._made_again()
        return name, snapshot

    def _made_again(self) -> SourceError:
        return SourceError(
            f"{self.name}: the table was made again, or restored, since it was followed; nothing "
            "was loaded. Load it into a new table."
        )

    def rows(self, chunk: Chunk) -> pa.RecordBatchReader:
        """Read the changes of the chunk's versions, as `Table.changed_rows` has them."""
        start, end = next(iter(chunk.ranges.values()))
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

    def parts(self, chunk: Chunk, *, count: int) -> Iterator[Chunk]:
        """Yield the chunk's versions as up to so many chunks; a whole table is one."""
        if chunk.plan == "copy":
            yield chunk
            return
        ((name, (start, end)),) = chunk.ranges.items()
        first, last = int(start or 0), int(end)
        step = (last - first) // count + 1
        for at in range(first, last, step):
            yield Chunk(ranges={name: (at, min(at + step, last))})

    def copy(self, positions: Mapping[str, Position]) -> Chunk:
        """Return the whole table as one chunk, as of its newest version."""
        name, snapshot = self._now(positions)
        return Chunk(
            ranges={name: (positions.get(name), snapshot.version)},
            what=f"all of version {snapshot.version}",
            plan="copy",
        )

    def _whole(self, version: int) -> pa.RecordBatchReader:
        """All rows as insertions."""
        dataset = self._followed.dataset(version)
        when = self._followed.snapshot(version).committed_at
        added = {
            "_change_type": pa.scalar("insert"),
            "_commit_version": pa.scalar(version, pa.int64()),
            "_commit_timestamp": pa.scalar(when, pa.timestamp("us", "UTC")),
        }
        schema = pa.schema([*dataset.schema, *((name, each.type) for name, each in added.items())])

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in dataset.to_batches():
                more = [pa.repeat(each, batch.num_rows) for each in added.values()]
                yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


def _steps(name: str, start: int | None, newest: int) -> Iterator[Chunk]:
    at = start or 0
    while at < newest:
        end = min(at + _MOST_VERSIONS, newest)
        yield Chunk(ranges={name: (start, end)}, what=f"versions {at + 1} to {end}")
        start = at = end


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
    rollbacks; compaction has none. A loader goes on in a clone, as after a failover, where it ended
    in the table that this was cloned from.

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

"""A table as a stream of changed rows: the files whose rows a task compares, each version once and
in order. [CH7]
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..errors import ManifestCommitError
from ..format.snapshot import Snapshot
from ..protocol.change_feed import Offset
from ..scan.change_feed import Given, VersionFeed
from ..scan.planning import entries_table
from .version_changes import (
    Files,
    VersionChange,
    change_between,
    empty_before,
    files_of,
    is_unchanged,
)


class RowFeed(VersionFeed[VersionChange]):
    """The changes that a stream gets, in parts that tasks read by themselves. [CH7]"""

    _back = 1
    _gives = "changed"

    def _whole(self, snapshot: Snapshot) -> Given[VersionChange]:
        """All live rows are inserted at the version with which the stream begins."""
        entries = entries_table(self._ctx, snapshot)
        return self._checked(
            VersionChange(
                version=snapshot.version,
                committed_at=snapshot.committed_at,
                removed=files_of(snapshot, entries.slice(0, 0)),
                added=files_of(snapshot, entries),
            )
        )

    def _added(self, snapshot: Snapshot, at: Offset) -> Given[VersionChange]:
        if is_unchanged(snapshot):
            return Given()
        before = (
            empty_before(snapshot)
            if snapshot.version == 1
            else self._snapshot(self._version_before(snapshot.version), at)
        )
        return self._checked(change_between(self._ctx, before, snapshot, self._columns))

    def _checked(self, change: VersionChange) -> Given[VersionChange]:
        refusal: ManifestCommitError | None = None
        for files in (change.removed, change.added):
            if files.entries.num_rows and refusal is None:
                refusal = self._unreadable(files.snapshot)
        return Given(refusal=refusal) if refusal else Given(files=tuple(parts_of(change)))


def parts_of(change: VersionChange) -> Iterator[VersionChange]:
    """Parts that can be read apart from each other, always in the same order: each file where a
    version only added files, or only removed some. [CH7]"""
    removed, added = (_by_path(files) for files in (change.removed, change.added))
    if removed.entries.num_rows and added.entries.num_rows:
        yield msgspec.structs.replace(change, removed=removed, added=added)
        return
    for row in range(removed.entries.num_rows):
        one = msgspec.structs.replace(removed, entries=removed.entries.take([row]))
        yield msgspec.structs.replace(change, removed=one, added=added)
    for row in range(added.entries.num_rows):
        one = msgspec.structs.replace(added, entries=added.entries.take([row]))
        yield msgspec.structs.replace(change, removed=removed, added=one)


def bytes_of(change: VersionChange) -> int:
    """The bytes of its files."""
    sides = (change.removed.entries, change.added.entries)
    return sum(sum(each.column("bytes").to_pylist()) for each in sides)


def _by_path(files: Files) -> Files:
    entries = files.entries.combine_chunks().sort_by("path")
    return msgspec.structs.replace(files, entries=entries)

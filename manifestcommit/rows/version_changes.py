"""Which files each version took away and brought, from one version to another. [CH1]"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from ..errors import (
    CorruptMetadataError,
    SchemaMismatchError,
    SnapshotExpiredError,
    TableNotFoundError,
    UsageError,
)
from ..format.fields import Field
from ..format.snapshot import REPLACE, Snapshot
from ..log.table_context import TableContext
from ..log.version_chain import Head, missing_version, newest_above, read_object, read_version
from ..protocol.change_feed import changes_every_row, unreadable_columns
from ..protocol.conflict import first_expired
from ..scan.planning import differing_entries, entries_table


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Entries as a manifest's table, without bounds, and the part of the version that lists them
    by which their files are read."""

    snapshot: Snapshot
    entries: pa.Table


class VersionChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the files at one version. committed_at: in microseconds since the epoch."""

    version: int
    committed_at: int
    removed: Files
    added: Files


def open_range(ctx: TableContext, start: int, end: int | None) -> tuple[Head, Head]:
    """The newest version, and the version `end`, where changes from `start` up to it can be read.
    end: None: the newest version. [CH1]

    SnapshotExpiredError if a version between them may not be read any more. [RD3]
    """
    head = ctx.open()
    last = head if end is None else read_version(ctx.store, head, end)
    if start > last.version:
        raise UsageError(
            f"changes lead from an older version to a newer one, and version {start} is newer than "
            f"{last.version}"
        )
    if start in head.snapshot.void:  # was never a state of the table [MT8]
        read_version(ctx.store, head, start)  # its error
    check_all_readable(ctx.store.url, head.snapshot, start, last.version)
    return head, last


def version_changes(
    ctx: TableContext, head: Head, last: Head, start: int, columns: Sequence[Field]
) -> list[VersionChange]:
    """What became of the files at each version above `start`, up to the last one; versions that
    changed none are left out. start: 0: before the first version. One request for each version, and
    those for manifests that only one of two neighbours lists. [CH1] [RD3]"""
    try:
        found = [
            change_between(ctx, before, snapshot, columns)
            for before, snapshot in itertools.pairwise(_snapshots(ctx, last, start))
            if not is_unchanged(snapshot)
        ]
    except CorruptMetadataError:
        confirm(ctx, head, start, last.version)  # what is missing may have expired
        raise
    confirm(ctx, head, start, last.version)
    return [each for each in found if each.removed.entries.num_rows or each.added.entries.num_rows]


def is_unchanged(snapshot: Snapshot) -> bool:
    """Whether a version changes no row, whatever files it has: compaction made it. [GC11]"""
    return all(commit.operation == REPLACE for commit in snapshot.commits)


def change_between(
    ctx: TableContext, before: Snapshot, snapshot: Snapshot, columns: Sequence[Field]
) -> VersionChange:
    """What became of the files from one version to the next one: all of them change where these
    columns do without any file. [CH6]"""
    if changes_every_row(columns, _fields(before), _fields(snapshot), snapshot.commits):
        removed, added = (entries_table(ctx, each) for each in (before, snapshot))
    else:
        removed, added = differing_entries(ctx, before, snapshot)
    return VersionChange(
        version=snapshot.version,
        committed_at=snapshot.committed_at,
        removed=files_of(before, removed),
        added=files_of(snapshot, added),
    )


def files_of(snapshot: Snapshot, entries: pa.Table) -> Files:
    """The entries, with no more than is needed to read their files."""
    wanted = ["path", "rows", "bytes", "digest"]
    wanted += [
        name for name in entries.column_names if name == "footer" or name.startswith("partition.")
    ]
    return Files(snapshot=_without_contents(snapshot), entries=entries.select(wanted))


def empty_before(first: Snapshot) -> Snapshot:
    """The state before a table's first version."""
    return msgspec.structs.replace(
        first, manifests=(), added=(), removed={}, removed_runs=(), schema=None, partition_by=()
    )


def check_all_readable(url: str, head: Snapshot, start: int, end: int) -> None:
    """SnapshotExpiredError unless each version from `start` to `end` may be read. [CH1] [RD3]"""
    version = first_expired(head, range(max(start, 1), min(end, head.expired - 1) + 1))
    if version is not None:
        raise SnapshotExpiredError(
            f"the changes of rows from version {start} to {end} of {url} need all versions "
            f"from {max(start, 1)} on, and version {version} was expired; changes can be read "
            f"from version {head.expired} on. Nothing was read. Begin again from a whole copy of "
            f"one of those versions, in one commit: mc.write(table.dataset(version={head.version})"
            f', target, mode="overwrite", watermarks={{source: (position, {head.version})}}), and '
            "follow the changes from it."
        )


def check_columns(
    url: str, columns: Sequence[Field], end: int, changes: Sequence[VersionChange]
) -> None:
    """SchemaMismatchError if files of one of the versions cannot be read as these columns of the
    version `end`. [CH6]"""
    for each in changes:
        for files in (each.removed, each.added):
            reasons = unreadable_columns(columns, _fields(files.snapshot), later=False)
            if reasons and files.entries.num_rows:
                raise SchemaMismatchError(
                    f"version {files.snapshot.version} of {url} has files that cannot be read as "
                    f"the columns of version {end}: {'; '.join(reasons)}. Nothing was read. A "
                    "rollback took back what a column had become: copy the rows of version "
                    f"{end}, and follow the changes from it."
                )


def confirm(ctx: TableContext, head: Head, start: int, end: int) -> None:
    """Check that what was read was readable, according to the latest version read afterwards.
    [RD3]"""
    newest = newest_above(ctx.store, head.version, head)
    if newest is None or newest.snapshot.table_id != head.snapshot.table_id:
        raise TableNotFoundError(
            f"the table at {ctx.store.url} was removed while its changes were read"
        )
    check_all_readable(ctx.store.url, newest.snapshot, start, end)


def _snapshots(ctx: TableContext, last: Head, start: int) -> Iterator[Snapshot]:
    """Each version from `start` to the last one, one after the other."""
    for version in range(max(start, 1), last.version + 1):
        if version in last.snapshot.void:
            continue
        stored = last if version == last.version else read_object(ctx.store, version)
        if stored is None:
            raise missing_version(version)
        if start == 0 and version == 1:
            yield empty_before(stored.snapshot)
        yield stored.snapshot


def _without_contents(snapshot: Snapshot) -> Snapshot:
    """What says how the files of a version are read; the rest may be large."""
    return Snapshot(
        format_version=snapshot.format_version,
        table_id=snapshot.table_id,
        version=snapshot.version,
        committed_at=snapshot.committed_at,
        writer=snapshot.writer,
        commits=(),
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
    )


def _fields(snapshot: Snapshot) -> tuple[Field, ...]:
    return snapshot.schema.fields if snapshot.schema is not None else ()

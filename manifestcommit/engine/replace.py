"""Files of a table that others take the place of: how the new ones are laid out. [CF7]

Not here: which files, and the commit (engine.compact, engine.row_change), reading and writing their rows with Spark (spark.rewrite).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.manifest import Entry, ManifestRef, SourceRange
from ..core.snapshot import Snapshot
from ..errors import CorruptMetadataError, UsageError
from . import files


def plan_rewrite(
    url: str, snapshot: Snapshot, job: str, *, target_file_size: int | None = None, sources: tuple[SourceRange, ...] = ()
) -> files.WritePlan:
    """How `job` writes rows of this very snapshot anew: in its columns and partitioning, without a change of either. [DF3] [DF5]

    target_file_size: bytes, by default the table's own; sources: the ranges that the rows come from, kept with every file. [OB8]
    """
    if snapshot.schema is None:
        raise UsageError(f"{url} has no columns yet, and no files")
    return files.WritePlan(
        url=url,
        job=job,
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
        target_file_size=target_file_size or files.target_file_size_of(snapshot),
        bounds_columns=files.bounds_columns_of(snapshot),
        sources=sources,
    )


def check_rows(old: Sequence[str], rows: int, entries: Sequence[Entry], manifests: Sequence[ManifestRef] = ()) -> None:
    """An error unless the new files hold as many rows as those whose place they take. old: their paths, with so many rows. [GC11]"""
    found = sum(entry.rows for entry in entries) + sum(ref.rows for ref in manifests)
    if found != rows:
        raise CorruptMetadataError(
            f"{len(old)} files that the table lists with {rows} rows, {old[0]} among them, were read as {found} rows; they stay as they "
            "are. `manifestcommit verify --deep` names the file that is not what its entry says.",
            object_name=old[0],
        )

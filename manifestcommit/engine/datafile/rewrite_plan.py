"""Plans the new files of a rewrite (copy-on-write): their layout, and the check of their rows.
[CF7]
"""

from __future__ import annotations

import pyarrow as pa

from ...core.table.entries import SourceRange
from ...core.table.snapshot import Snapshot
from ...errors import ManifestCommitError, UsageError
from . import writer


def plan_rewrite(
    url: str,
    snapshot: Snapshot,
    job: str,
    *,
    target_file_size: int | None = None,
    sources: tuple[SourceRange, ...] = (),
) -> writer.WritePlan:
    """Plan how `job` rewrites rows of this snapshot, with its columns and partitioning unchanged.
    [DF3] [DF5]

    target_file_size: bytes, by default the table's own; sources: the ranges that the rows come
    from, recorded with every file. [OB8]
    """
    if snapshot.schema is None:
        raise UsageError(f"{url} has no columns yet, and no files")
    return writer.plan_for(
        snapshot,
        url=url,
        job=job,
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
        target_file_size=target_file_size,
        sources=sources,
    )


def check_rows(old: pa.Table, rows: int, written: int, *, what: str | None = None) -> None:
    """Raise an error unless the number of written rows equals the number that remains of the
    replaced files. [GC11] [RC1]

    old: the entries of these files; what: how the rows to remove were chosen, None: all rows
    remain.
    """
    if written == rows:
        return
    why = "A file is not what its entry says: `manifestcommit verify --deep` names it."
    if what is not None:
        why = (
            f"Either {what} does not say the same of a row each time it is asked (random "
            "numbers, the clock, a table that changes), or a "
            "file is not what its entry says: `manifestcommit verify --deep` shows which."
        )
    raise ManifestCommitError(
        f"{old.num_rows} files, {old.column('path')[0]} among them, keep {rows:,} rows by "
        f"the first look and {written:,} by the second; "
        f"they stay as they are, and nothing was committed in their place. {why}"
    )

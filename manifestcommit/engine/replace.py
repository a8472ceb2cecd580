"""Files of a table that others take the place of: how the new ones are laid out. [CF7]

Not here: which files, and the commit (engine.compact, engine.row_change), reading and writing their rows with Spark (spark.rewrite).
"""

from __future__ import annotations

import pyarrow as pa

from ..core.manifest import SourceRange
from ..core.snapshot import Snapshot
from ..errors import ManifestCommitError, UsageError
from . import files


def plan_rewrite(
    url: str, snapshot: Snapshot, job: str, *, target_file_size: int | None = None, sources: tuple[SourceRange, ...] = ()
) -> files.WritePlan:
    """How `job` writes rows of this very snapshot anew: in its columns and partitioning, without a change of either. [DF3] [DF5]

    target_file_size: bytes, by default the table's own; sources: the ranges that the rows come from, kept with every file. [OB8]
    """
    if snapshot.schema is None:
        raise UsageError(f"{url} has no columns yet, and no files")
    return files.plan_for(
        snapshot,
        url=url,
        job=job,
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
        target_file_size=target_file_size,
        sources=sources,
    )


def check_rows(old: pa.Table, rows: int, written: int, *, what: str | None = None) -> None:
    """An error unless as many rows were written as stay of the files whose place they take. [GC11] [RC1]

    old: the entries of these files; what: how the rows that go were chosen, None where all stay.
    """
    if written == rows:
        return
    why = "A file is not what its entry says: `manifestcommit verify --deep` names it."
    if what is not None:
        why = (
            f"Either {what} does not say the same of a row each time it is asked (random numbers, the clock, a table that changes), or a "
            "file is not what its entry says: `manifestcommit verify --deep` tells."
        )
    raise ManifestCommitError(
        f"{old.num_rows} files, {old.column('path')[0]} among them, keep {rows:,} rows by the first look and {written:,} by the second; "
        f"they stay as they are, and nothing was committed in their place. {why}"
    )

"""Publish files to an object store exactly once: one conditional create commits data and watermarks together.

    import manifestcommit as mc

    outcome = mc.write(df, "file:///lake/flights", partition_by=["month"], key="flights:2013-01", watermarks={"flights": (0, 27004)})
    df = mc.read_committed("file:///lake/flights")

The guarantees are spelled out in spec/v1.md; docstrings cite its clauses. Importing this module imports no Spark.
"""

from typing import TYPE_CHECKING

from .engine.adopt import Adoption
from .engine.compact import Compaction
from .engine.gc import GcReport
from .engine.outcome import JobResult, JobResults, Outcome
from .engine.row_change import RowOutcome
from .errors import (
    CommitConflictError,
    CorruptMetadataError,
    JobAbortedError,
    JobFencedError,
    KeyReusedError,
    ManifestCommitError,
    NotATableError,
    OutcomeUnknownError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StoreDeniedError,
    StoreError,
    StoreUnclearError,
    TableNotFoundError,
    UnsafeStoreError,
    UnsupportedFormatError,
    UnsupportedTypeError,
    UsageError,
    VersionNotFoundError,
    WatermarkError,
    WatermarkGapError,
    WatermarkMismatchError,
    WatermarkOverlapError,
)
from .job import Job, begin, commit, commit_all, write
from .table import Table, abort, adopt, create_table, gc, read_committed, resolve
from .version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pyspark.sql import SparkSession


def register(spark: "SparkSession", storage_options: "Mapping[str, Any] | None" = None) -> None:
    """Make `format("manifestcommit")` known to this session; an installed package makes it known by itself. [SE1]

    storage_options: what reaches the object stores of this session's tables, credentials included; Spark's processes get it and no plan,
    log or page of Spark shows it. Calling it again replaces what was given before, with none by the environment.
    """
    from .spark.session import register as register_in  # late: pyspark is an extra

    register_in(spark, storage_options)


__all__ = [
    "Adoption",
    "CommitConflictError",
    "Compaction",
    "CorruptMetadataError",
    "GcReport",
    "Job",
    "JobAbortedError",
    "JobFencedError",
    "JobResult",
    "JobResults",
    "KeyReusedError",
    "ManifestCommitError",
    "NotATableError",
    "Outcome",
    "OutcomeUnknownError",
    "RowOutcome",
    "SchemaMismatchError",
    "SnapshotExpiredError",
    "StoreDeniedError",
    "StoreError",
    "StoreUnclearError",
    "Table",
    "TableNotFoundError",
    "UnsafeStoreError",
    "UnsupportedFormatError",
    "UnsupportedTypeError",
    "UsageError",
    "VersionNotFoundError",
    "WatermarkError",
    "WatermarkGapError",
    "WatermarkMismatchError",
    "WatermarkOverlapError",
    "__version__",
    "abort",
    "adopt",
    "begin",
    "commit",
    "commit_all",
    "create_table",
    "gc",
    "read_committed",
    "register",
    "resolve",
    "write",
]

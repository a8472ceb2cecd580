"""Publish files to an object store exactly once: one conditional create commits data and watermarks together.

    import manifestcommit as mc

    outcome = mc.write(df, "file:///lake/flights", partition_by=["month"], key="flights:2013-01", watermarks={"flights": (0, 27004)})
    df = mc.read_committed("file:///lake/flights")

The guarantees are spelled out in spec/v1.md; docstrings cite its clauses. Importing this module imports no Spark.
"""

from typing import TYPE_CHECKING

from .engine.outcome import Outcome
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
from .job import Job, begin, write
from .table import Table, create_table, read_committed, resolve
from .version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `format("manifestcommit")` known to this session; an installed package makes it known by itself."""
    from .spark.session import register as register_in  # late: pyspark is an extra

    register_in(spark)


__all__ = [
    "CommitConflictError",
    "CorruptMetadataError",
    "Job",
    "JobAbortedError",
    "JobFencedError",
    "KeyReusedError",
    "ManifestCommitError",
    "NotATableError",
    "Outcome",
    "OutcomeUnknownError",
    "SchemaMismatchError",
    "SnapshotExpiredError",
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
    "begin",
    "create_table",
    "read_committed",
    "register",
    "resolve",
    "write",
]

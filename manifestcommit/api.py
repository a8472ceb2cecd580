"""The public names of the package. `manifestcommit/__init__.py` loads this module when one of them
is first used.

Internal: import them from `manifestcommit`.
"""

from typing import TYPE_CHECKING

from .argument_checks import checked
from .core.commit.audit import VerifyFinding
from .core.commit.conflict import Conflict
from .core.table.snapshot import Snapshot
from .core.table.watermark import WatermarkMismatch
from .engine.inspection.table_metrics import TableMetrics
from .engine.inspection.verify import VerifyReport
from .engine.job.resolve import JobInfo, Resolution
from .engine.maintenance.adopt import Adoption, SkippedFile
from .engine.maintenance.compaction import Compaction, LostGroup
from .engine.maintenance.gc import GcReport, ObjectTotals
from .engine.operations.lineage import FileRange, Lineage
from .engine.operations.row_change import RowOutcome
from .engine.row_changes.clauses import Delete, Insert, Update
from .engine.runtime.outcome import JobMetrics, JobResult, JobResults, Outcome
from .errors import (
    CommitConflictError,
    CorruptMetadataError,
    DataFileMissingError,
    JobAbortedError,
    JobFencedError,
    KeyReusedError,
    ManifestCommitError,
    NotATableError,
    OutcomeUnknownError,
    OutputGoneError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StoreDeniedError,
    StoreError,
    StoreFullError,
    StoreUnclearError,
    TableNotFoundError,
    UndecidedError,
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
from .interop.export_result import Export
from .job import DroppedJobWarning, Job, begin, commit, commit_all, write
from .joint import (
    JointOutcome,
    PinnedTable,
    read_together,
    rollback_together,
    tag_together,
)
from .joint_transaction import Transaction, TransactionRows, transaction
from .report.page import Report
from .spark_sql.door import attach, sql
from .store.probes.doctor import DoctorCheck, DoctorLatency, DoctorReport
from .table import Table, gc, read_committed
from .table.creation import create_table
from .table.listing import Listing
from .table.merge_builder import MergeBuilder
from .version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pyspark.sql import SparkSession


@checked()
def register(spark: "SparkSession", storage_options: "Mapping[str, Any] | None" = None) -> None:
    """Register `format("manifestcommit")` with a Spark session, and its storage options.

    An installed package makes the format known by itself: the call is needed for `storage_options`
    only. Calling it again replaces what was given before.

    Args:
        spark: the session.
        storage_options: what reaches the object stores of this session's tables, credentials
            included; Spark's processes get it, and no plan, log or page of Spark shows it. By
            default the environment.

    Raises:
        UsageError: an argument is wrong.

    Spec: SE1.
    """
    from .spark.session import register as register_in  # late: pyspark is an extra

    register_in(spark, storage_options)


__all__ = [
    "Adoption",
    "CommitConflictError",
    "Compaction",
    "Conflict",
    "CorruptMetadataError",
    "DataFileMissingError",
    "Delete",
    "DoctorCheck",
    "DoctorLatency",
    "DoctorReport",
    "DroppedJobWarning",
    "Export",
    "FileRange",
    "GcReport",
    "Insert",
    "Job",
    "JobAbortedError",
    "JobFencedError",
    "JobInfo",
    "JobMetrics",
    "JobResult",
    "JobResults",
    "JointOutcome",
    "KeyReusedError",
    "Lineage",
    "Listing",
    "LostGroup",
    "ManifestCommitError",
    "MergeBuilder",
    "NotATableError",
    "ObjectTotals",
    "Outcome",
    "OutcomeUnknownError",
    "OutputGoneError",
    "PinnedTable",
    "Report",
    "Resolution",
    "RowOutcome",
    "SchemaMismatchError",
    "SkippedFile",
    "Snapshot",
    "SnapshotExpiredError",
    "StoreDeniedError",
    "StoreError",
    "StoreFullError",
    "StoreUnclearError",
    "Table",
    "TableMetrics",
    "TableNotFoundError",
    "Transaction",
    "TransactionRows",
    "UndecidedError",
    "UnsafeStoreError",
    "UnsupportedFormatError",
    "UnsupportedTypeError",
    "Update",
    "UsageError",
    "VerifyFinding",
    "VerifyReport",
    "VersionNotFoundError",
    "WatermarkError",
    "WatermarkGapError",
    "WatermarkMismatch",
    "WatermarkMismatchError",
    "WatermarkOverlapError",
    "__version__",
    "attach",
    "begin",
    "commit",
    "commit_all",
    "create_table",
    "gc",
    "read_committed",
    "read_together",
    "register",
    "rollback_together",
    "sql",
    "tag_together",
    "transaction",
    "write",
]

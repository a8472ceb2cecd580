"""The public names of the package, for type checkers: at runtime `manifestcommit/__init__.py` loads
the module of a name when it is first used, and never this one.

Internal: import them from `manifestcommit`.
"""

from .core.commit.audit import VerifyFinding
from .core.commit.conflict import Conflict, Violation
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
    CheckFailedError,
    CommitConflictError,
    ConstraintError,
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
    SourceError,
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
from .sources.loading import LoadOutcome, follow, load
from .spark_sql.door import attach, register, sql
from .staging import Staged, staged
from .store.probes.doctor import DoctorCheck, DoctorLatency, DoctorReport
from .table import Table, gc, read_committed
from .table.creation import create_table
from .table.listing import Listing
from .table.merge_builder import MergeBuilder
from .version import __version__

__all__ = [
    "Adoption",
    "CheckFailedError",
    "CommitConflictError",
    "Compaction",
    "Conflict",
    "ConstraintError",
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
    "LoadOutcome",
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
    "SourceError",
    "Staged",
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
    "Violation",
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
    "follow",
    "gc",
    "load",
    "read_committed",
    "read_together",
    "register",
    "rollback_together",
    "sql",
    "staged",
    "tag_together",
    "transaction",
    "write",
]

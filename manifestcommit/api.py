"""The public names of the package, for type checkers: at runtime `manifestcommit/__init__.py` loads
the module of a name when it is first used, and never this one.

Internal: import them from `manifestcommit`.
"""

from .commits.resolve import JobInfo, Resolution
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
from .export.export_result import Export
from .format.snapshot import Snapshot
from .format.watermark import WatermarkMismatch
from .job import DroppedJobWarning, Job, begin, commit, commit_all, write
from .joint import (
    JointOutcome,
    PinnedTable,
    read_together,
    rollback_together,
    tag_together,
)
from .maintain.adopt import Adoption, SkippedFile
from .maintain.compaction import Compaction, LostGroup
from .maintain.gc import GcReport, ObjectTotals
from .maintain.lineage import FileRange, Lineage
from .maintain.table_metrics import TableMetrics
from .maintain.verify import VerifyReport
from .protocol.audit import VerifyFinding
from .protocol.conflict import Conflict, Violation
from .report.page import Report
from .rows.clauses import Delete, Insert, Update
from .rows.row_change import RowOutcome
from .runtime.outcome import JobMetrics, JobResult, JobResults, Outcome
from .sources.loading import LoadOutcome, follow, load
from .spark_sql.api import attach, register, sql
from .staging import Staged, staged
from .store.doctor import DoctorCheck, DoctorLatency, DoctorReport
from .table import Table, gc, read_committed
from .table.creation import create_table
from .table.listing import Listing
from .table.merge_builder import MergeBuilder
from .transactions import Transaction, TransactionRows, transaction
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

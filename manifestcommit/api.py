"""The public names of the package, for type checkers: at runtime `manifestcommit/__init__.py` loads
the module of a name when it is first used, and never this one.

Internal: import them from `manifestcommit`.
"""

from .catalog.clone import CloneReport, clone
from .catalog.lake import Lake, lake
from .catalog.publishing import publish_catalog
from .commits.two_phase import JobInfo, Resolution
from .export.exporter import Export
from .format.change import WatermarkMismatch
from .format.snapshot import Snapshot
from .job import DroppedJobWarning, Job, begin, write
from .operations.adopt import Adoption, SkippedFile
from .operations.compaction import Compaction, LostGroup
from .operations.describe import FileRange, Lineage, TableMetrics
from .operations.gc import GcReport, ObjectTotals
from .operations.verify import VerifyReport
from .protocol.audit import VerifyFinding
from .protocol.conflict import Conflict, Violation
from .report.page import Report
from .rows.clauses import Delete, Insert, Update
from .rows.row_change import RowOutcome
from .runtime.outcome import JobMetrics, Outcome
from .sources.loading import LoadOutcome, follow, load
from .spark_sql.api import attach, register, sql
from .staging import Staged
from .store.doctor import DoctorCheck, DoctorReport
from .table import Table, gc, read_committed
from .table.erasing import Erasure
from .table.functions import commit, create_table
from .table.listing import Listing
from .transactions import (
    JointOutcome,
    PinnedTable,
    Transaction,
    TransactionRows,
    read_together,
    rollback_together,
    transaction,
)
from .upkeep import maintain
from .version import __version__

__all__ = [
    "Adoption",
    "CloneReport",
    "Compaction",
    "Conflict",
    "Delete",
    "DoctorCheck",
    "DoctorReport",
    "DroppedJobWarning",
    "Erasure",
    "Export",
    "FileRange",
    "GcReport",
    "Insert",
    "Job",
    "JobInfo",
    "JobMetrics",
    "JointOutcome",
    "Lake",
    "Lineage",
    "Listing",
    "LoadOutcome",
    "LostGroup",
    "ObjectTotals",
    "Outcome",
    "PinnedTable",
    "Report",
    "Resolution",
    "RowOutcome",
    "SkippedFile",
    "Snapshot",
    "Staged",
    "Table",
    "TableMetrics",
    "Transaction",
    "TransactionRows",
    "Update",
    "VerifyFinding",
    "VerifyReport",
    "Violation",
    "WatermarkMismatch",
    "__version__",
    "attach",
    "begin",
    "clone",
    "commit",
    "create_table",
    "follow",
    "gc",
    "lake",
    "load",
    "maintain",
    "publish_catalog",
    "read_committed",
    "read_together",
    "register",
    "rollback_together",
    "sql",
    "transaction",
    "write",
]

"""Publish files to an object store exactly once: one conditional create commits data and watermarks
together.

    import manifestcommit as mc

    outcome = mc.write(
        df,
        "file:///lake/flights",
        partition_by=["month"],
        key="flights:2013-01",
        watermarks={"flights": (0, 27004)},
    )
    df = mc.read_committed("file:///lake/flights")

Public is what `manifestcommit`, `manifestcommit.checks`, `manifestcommit.errors`,
`manifestcommit.sources`, `manifestcommit.store` and `manifestcommit.testing` export. Every other
module is internal and may change in any release.

The guarantees are spelled out in spec/v1.md; docstrings cite its clauses. Importing this module is
cheap: what its names need is loaded when one of them is first used, and Spark when it is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .log import registry as _registry
from .version import __version__ as __version__

# The public names of each module; type checkers are told below.
_HOMES = {
    "protocol.audit": "VerifyFinding",
    "protocol.conflict": "Conflict Violation",
    "format.snapshot": "Snapshot",
    "format.change": "WatermarkMismatch",
    "operations.verify": "VerifyReport",
    "commits.two_phase": "JobInfo Resolution",
    "operations.adopt": "Adoption SkippedFile",
    "operations.compaction": "Compaction",
    "operations.gc": "GcReport ObjectTotals",
    "operations.describe": "FileRange Lineage TableMetrics",
    "rows.row_change": "RowOutcome",
    "rows.clauses": "Delete Insert Update",
    "runtime.outcome": "JobMetrics Outcome",
    "catalog.clone": "CloneReport clone",
    "catalog.lake": "Lake lake",
    "catalog.publishing": "publish_catalog",
    "export.exporter": "Export",
    "job": "DroppedJobWarning Job begin write",
    "transactions": "JointOutcome PinnedTable Transaction TransactionRows read_together "
    "rollback_together transaction",
    "upkeep": "maintain",
    "report.page": "Report",
    "sources.loading": "LoadOutcome follow load",
    "staging": "Staged",
    "spark_sql.api": "attach register sql",
    "store.doctor": "DoctorCheck DoctorReport",
    "table": "Table gc read_committed",
    "table.erasing": "Erasure",
    "table.functions": "commit create_table",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


# Here, where every process passes: one that names no public call, such as Spark's, commits too.
_registry.register(
    exporter="manifestcommit.export.exporter",
    gate="manifestcommit.gate.rows",
    staging="manifestcommit.staging",
    quarantine="manifestcommit.quarantine",
)

if TYPE_CHECKING:
    from .catalog.clone import CloneReport as CloneReport, clone as clone  # noqa: I001  # a line each
    from .catalog.lake import Lake as Lake, lake as lake
    from .catalog.publishing import publish_catalog as publish_catalog
    from .commits.two_phase import JobInfo as JobInfo, Resolution as Resolution
    from .export.exporter import Export as Export
    from .format.change import WatermarkMismatch as WatermarkMismatch
    from .format.snapshot import Snapshot as Snapshot
    from .job import DroppedJobWarning as DroppedJobWarning, Job as Job, begin as begin
    from .job import write as write
    from .operations.adopt import Adoption as Adoption, SkippedFile as SkippedFile
    from .operations.compaction import Compaction as Compaction
    from .operations.describe import FileRange as FileRange, Lineage as Lineage
    from .operations.describe import TableMetrics as TableMetrics
    from .operations.gc import GcReport as GcReport, ObjectTotals as ObjectTotals
    from .operations.verify import VerifyReport as VerifyReport
    from .protocol.audit import VerifyFinding as VerifyFinding
    from .protocol.conflict import Conflict as Conflict, Violation as Violation
    from .report.page import Report as Report
    from .rows.clauses import Delete as Delete, Insert as Insert, Update as Update
    from .rows.row_change import RowOutcome as RowOutcome
    from .runtime.outcome import JobMetrics as JobMetrics, Outcome as Outcome
    from .sources.loading import LoadOutcome as LoadOutcome, follow as follow, load as load
    from .spark_sql.api import attach as attach, register as register, sql as sql
    from .staging import Staged as Staged
    from .store.doctor import DoctorCheck as DoctorCheck, DoctorReport as DoctorReport
    from .table import Table as Table, gc as gc, read_committed as read_committed
    from .table.erasing import Erasure as Erasure
    from .table.functions import commit as commit, create_table as create_table
    from .transactions import JointOutcome as JointOutcome, PinnedTable as PinnedTable
    from .transactions import Transaction as Transaction, TransactionRows as TransactionRows
    from .transactions import read_together as read_together, rollback_together as rollback_together
    from .transactions import transaction as transaction
    from .upkeep import maintain as maintain
else:  # not for type checkers: with a `__getattr__` they take every name for one that exists

    def __getattr__(name: str) -> Any:
        """A public name, on first use, from its module (PEP 562)."""
        if name == "__all__":
            return sorted([*_HOME_OF, "__version__"])
        if name in ("checks", "errors", "sources", "store", "testing"):  # public modules
            return import_module(f".{name}", __name__)
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        return globals().setdefault(name, found)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME_OF, "__all__"})

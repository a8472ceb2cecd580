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

from .log import export_hook as _export_hook
from .version import __version__ as __version__

# The public names of each module; `api` has them for type checkers.
_HOMES = {
    "protocol.audit": "VerifyFinding",
    "protocol.conflict": "Conflict Violation",
    "format.snapshot": "Snapshot",
    "format.change": "WatermarkMismatch",
    "operations.verify": "VerifyReport",
    "commits.two_phase": "JobInfo Resolution",
    "operations.adopt": "Adoption SkippedFile",
    "operations.compaction": "Compaction LostGroup",
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
    "table.listing": "Listing",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def _load_exporter() -> "_Exporter":
    from .export import exporter  # late: only tables with exports need it

    return exporter


def _load_gate() -> "_Gate":
    from .gate import rows  # late: only tables with constraints need it

    return rows


def _load_staging() -> Any:
    from . import staging  # late: few jobs are staged

    return staging


def _load_quarantine() -> Any:
    from . import quarantine  # late: few writes use it

    return quarantine


# Here, where every process passes: one that names no public call, such as Spark's, commits too.
_export_hook.register(_load_exporter)
_export_hook.register(_load_gate, "gate")
_export_hook.register(_load_staging, "staging")
_export_hook.register(_load_quarantine, "quarantine")

if TYPE_CHECKING:
    from .api import *  # noqa: F403  # `__all__` of `api` says which
    from .log.table_context import Exporter as _Exporter
    from .log.table_context import Gate as _Gate
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

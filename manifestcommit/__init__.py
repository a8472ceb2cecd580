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

Public is what `manifestcommit`, `manifestcommit.errors`, `manifestcommit.store` and
`manifestcommit.testing` export. Every other module is internal and may change in any release.

The guarantees are spelled out in spec/v1.md; docstrings cite its clauses. Importing this module is
cheap: what its names need is loaded when one of them is first used, and Spark when it is needed.
"""

import sys
from typing import TYPE_CHECKING, Any

from .engine.metadata import export_hook as _export_hook
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .engine.metadata.exports import Exporter as _Exporter


def _load_exporter() -> "_Exporter":
    from .interop import exporter  # late: only tables with exports need it

    return exporter


# Here, where every process passes: one that names no public call, such as Spark's, commits too.
_export_hook.register(_load_exporter)

if TYPE_CHECKING:
    from .api import *  # noqa: F403  # `__all__` of `api` says which
else:  # not for type checkers: with a `__getattr__` they take every name for one that exists

    def __getattr__(name: str) -> Any:
        """A public name of `api`, or a module that it loads, on first use (PEP 562)."""
        if name == "__all__" or not name.startswith("__"):
            api = _api()
            if name == "__all__" or name in api.__all__:
                return globals().setdefault(name, getattr(api, name))
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_api().__all__})

    def _api() -> Any:
        # Not as an attribute of this package: another thread may have loaded the module a moment
        # before it sets that, and the look for it would end here again.
        import manifestcommit.api  # noqa: F401  # for `sys.modules`

        return sys.modules["manifestcommit.api"]

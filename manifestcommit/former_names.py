"""Names that were in use before, and those that replaced them: the error of an old one says the new
one.

Internal: it may change in any release.

Not here: what is still taken with a DeprecationWarning (argument_checks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

# Where a name is used -> the old name -> the new one.
FORMER: Mapping[str, Mapping[str, str]] = {
    "manifestcommit": {"Figures": "JobMetrics", "TableFigures": "TableMetrics"},
    "Table": {"delete_where": "delete", "figures": "metrics"},
    "Job": {"abandon": "abort", "figures": "metrics"},
    "Outcome": {"figures": "metrics"},
    "argument": {"df_path": "path"},
    "command": {"diff": "changes", "log": "history", "show": "describe"},
    "option": {"--delete": "the command untag", "--manifests": "--only-manifests"},
    "Spark option": {"timestampAsOf": "asOf", "versionAsOf": "version"},
}
_Kind = TypeVar("_Kind", bound=type[Any])


def hint(where: str, name: str) -> str:
    """What an error adds about a name that is not there; empty if it was never in use. Spark makes
    options lower case."""
    for old, new in FORMER[where].items():
        if name == old or (where == "Spark option" and name.lower() == old.lower()):
            return f"; {old} is now {new}"
    return ""


def with_former_names(where: str) -> Callable[[_Kind], _Kind]:
    """Decorate a class: an AttributeError for an old name of a member says the new one.

    Not by a `__getattr__` in its body, with which type checkers take every name for one that
    exists.
    """

    def decorate(kind: _Kind) -> _Kind:
        def getattr_(self: Any, name: str) -> Any:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{hint(where, name)}",
                name=name,
                obj=self,
            )

        kind.__getattr__ = getattr_
        return kind

    return decorate

"""The registered loaders of what is called from below: the exporter, the gate, and staged jobs.
[EX2] [EX4] [CK2] [CK5]

`manifestcommit/__init__.py` registers them, so that every process has them; therefore this module
needs the standard library only. `Exporter` and `Gate` of `table_context` say what the loaders
return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_registered: dict[str, Callable[[], Any]] = {}
_WITHOUT = {
    "exporter": "exports can be neither made nor protected from gc",
    "gate": "rows cannot be checked against the constraints of a table",
    "staging": "staged jobs cannot be opened",
    "quarantine": "refused rows cannot be kept",
}


def register(loader: Callable[[], Any], what: str = "exporter") -> None:
    """Set a loader of this process. It is called when what it loads is first needed."""
    _registered[what] = loader


def registered(what: str = "exporter") -> Callable[[], Any]:
    """The loader. RuntimeError without one: gc would delete files that an export shows, commits
    would leave exports behind, or rows unchecked. [EX2] [EX4] [CK2]"""
    if what not in _registered:
        raise RuntimeError(
            f"no {what} is registered: {_WITHOUT[what]}. "
            "`manifestcommit/__init__.py` registers one: reinstall manifestcommit"
        )
    return _registered[what]

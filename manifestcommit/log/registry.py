"""Modules that are called from below: the exporter, the gate, staged jobs and the quarantine. Each
is loaded when it is first needed. [EX2] [EX4] [CK2] [CK5]

`manifestcommit/__init__.py` registers them, so that every process has them; therefore this module
needs the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

_registered: dict[str, str] = {}
_WITHOUT = {
    "exporter": "exports can be neither made nor protected from gc",
    "gate": "rows cannot be checked against the constraints of a table",
    "staging": "staged jobs cannot be opened",
    "quarantine": "refused rows cannot be kept",
}


def register(**modules: str) -> None:
    """Set the modules of this process, by their names."""
    _registered.update(modules)


def registered(what: str = "exporter") -> Callable[[], Any]:
    """What loads it. RuntimeError without one: gc would delete files that an export shows, commits
    would leave exports behind, or rows unchecked. [EX2] [EX4] [CK2]"""
    if what not in _registered:
        raise RuntimeError(
            f"no {what} is registered: {_WITHOUT[what]}. "
            "`manifestcommit/__init__.py` registers one: reinstall manifestcommit"
        )
    return partial(import_module, _registered[what])

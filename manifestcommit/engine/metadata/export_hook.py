"""The one registered loader of the exporter. [EX2] [EX4]

`manifestcommit/__init__.py` registers it, so that every process has it; therefore this module needs
the standard library only. `exports.Exporter` says what the loader returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_registered: list[Callable[[], Any]] = []


def register(loader: Callable[[], Any]) -> None:
    """Set the loader of this process's exporter. It is called when an export is first needed."""
    _registered[:] = [loader]


def registered() -> Callable[[], Any]:
    """The loader. RuntimeError without one: gc would delete files that an export shows, and commits
    would leave exports behind. [EX2] [EX4]"""
    if not _registered:
        raise RuntimeError(
            "no exporter is registered: exports can be neither made nor protected from gc. "
            "`manifestcommit/__init__.py` registers one: reinstall manifestcommit"
        )
    return _registered[0]

"""Other budgets of snapshots and commits than the usual ones: for a block, or for the rest of a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

import msgspec

from manifestcommit.engine.runtime.environment import tuned, tuning


class SetBudgets(Protocol):
    """The fixture `set_budgets`: these budgets are others for the rest of the test."""

    def __call__(self, **changes: int) -> None: ...


@contextlib.contextmanager
def budgets(**changes: int) -> Iterator[None]:
    """Within the block these budgets are others."""
    usual = tuning()
    with tuned(msgspec.structs.replace(usual, budgets=msgspec.structs.replace(usual.budgets, **changes))):
        yield

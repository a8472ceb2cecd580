"""What tests of gc are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.budgets import SetBudgets


@pytest.fixture
def empty_memory() -> Iterator[None]:
    yield
    MemoryFileSystem.store.clear()


@pytest.fixture
def tight(set_budgets: SetBudgets) -> None:
    """Budgets so small that everything spills and merges."""
    set_budgets(inline_entry_bytes=1500, inline_keys=3, inline_jobs=2, inline_removed_bytes=4, fan_in=3)

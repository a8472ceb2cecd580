"""What tests of gc are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from manifestcommit.core.commit import spill_policy


@pytest.fixture
def empty_memory() -> Iterator[None]:
    yield
    MemoryFileSystem.store.clear()


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets so small that everything spills and merges."""
    monkeypatch.setattr(spill_policy, "INLINE_ENTRY_BYTES", 1500)
    monkeypatch.setattr(spill_policy, "INLINE_KEYS", 3)
    monkeypatch.setattr(spill_policy, "INLINE_JOBS", 2)
    monkeypatch.setattr(spill_policy, "INLINE_REMOVED_BYTES", 4)
    monkeypatch.setattr(spill_policy, "FAN_IN", 3)

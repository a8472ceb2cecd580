"""What tests of gc are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem


@pytest.fixture
def empty_memory() -> Iterator[None]:
    yield
    MemoryFileSystem.store.clear()

"""What tests of gc are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from manifestcommit.store.local import OBJECTS


@pytest.fixture
def empty_memory() -> Iterator[None]:
    yield
    OBJECTS.clear()

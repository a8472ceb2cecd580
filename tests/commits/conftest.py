"""Tables as joint commits find them: two in memory, three on a disk."""

from pathlib import Path

import pytest
from tests.commits.tables import Lake, tables_on_disk


@pytest.fixture
def lake() -> Lake:
    return Lake(2)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return tables_on_disk(tmp_path)

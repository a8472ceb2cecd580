"""Tables of pipelines are watched as those of themes are."""

import pytest
from tests.simulator.oracle import WatchedSpace

from manifestcommit.testing import pipelines


@pytest.fixture(autouse=True)
def pipelines_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "Space", WatchedSpace)

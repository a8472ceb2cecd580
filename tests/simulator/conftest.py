"""Tables of pipelines are watched as those of themes are."""

from __future__ import annotations

import pytest
from tests.simulator.oracle import Oracle

from manifestcommit.testing import SimulatedStore, pipelines
from manifestcommit.testing.scheduler import Scheduler, onlooker
from manifestcommit.testing.simulated_store import Space
from manifestcommit.testing.trace import Trace


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def space(scheduler: Scheduler, trace: Trace) -> Space:
        made = Space(scheduler, trace)
        made.watcher = Oracle(scheduler, SimulatedStore(made, onlooker(scheduler)))
        return made

    monkeypatch.setattr(pipelines, "Space", space)

"""gc, while everything else goes on."""

from __future__ import annotations

from tests.chaos.history import witness
from tests.chaos.world import AGAIN, HANDED, Actor, Phase, World

import manifestcommit as mc


def takes_part() -> bool:
    """Whether this release can collect."""
    return hasattr(mc, "gc")


class Collector(Actor):
    """Expires all but a few versions and deletes what nobody can reach: stalled writers are fenced, now and then all who are at work."""

    # What must be in these two is told by all of their history, which gc would expire.
    spared = frozenset({AGAIN, HANDED})

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._gc = mc.gc
        self._known: set[str] = set()

    def look_back(self, name: str) -> None:
        """What the table says of jobs whose processes never knew, before that expires."""
        try:
            commits = [(each["version"], each["job"]) for each in self.table(name).history()]
        except mc.SnapshotExpiredError:  # the gc of this actor's earlier life was still under way
            return
        witness(self.record(name), commits, self._known)

    def turn(self, phase: Phase) -> None:
        name = self.dice.choice(sorted(self.world.urls.keys() - self.spared))
        try:
            grace = self.dice.choice(("0s", "1s", "3s")) if phase == "run" else "3s"
            self.look_back(name)
            with self.record(name).gc(forgets=False) as running:
                report = self._gc(self.world.urls[name], grace=grace, keep_versions=20, keep_for="3s", storage_options=self.world.options)
                running.collected(report.version, report.fence)
            self.note("collected", table=name)
        except mc.StoreError as error:
            if not self.world.faulty:
                raise
            self.note("failed", error=type(error).__name__)
        self.pause(2.0)

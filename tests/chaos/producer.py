"""The producer: appends to the log as long as the run runs."""

from __future__ import annotations

import time

from tests.chaos.world import Actor, Phase


class Producer(Actor):
    """The only one that appends; it may be killed, too."""

    def run(self) -> None:
        while self.phase() == "run":
            self.turn("run")

    def turn(self, phase: Phase) -> None:
        source = self.dice.choice(self.world.sources)
        count = self.dice.choice((1, 2, 5, 20))
        self.log.append(source, self.log.invent(source, count, self.dice))
        time.sleep(count / self.world.per_second * self.dice.uniform(0.5, 1.5))

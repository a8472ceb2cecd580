"""A process of a round: does its steps one after the other, is killed or stopped where its part says so, and writes down all of it.

Run as a module it is the pool of a whole run: `python -m tests.races.actor`, told what to start on its standard input.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from tests.chaos.process_pool import load, serve
from tests.chaos.world import NoteReader, notes_folder
from tests.kit.clocks import CLOCKS
from tests.races import operations
from tests.races.draw import Actor, Moment, Round, Step
from tests.races.records import Log, Outcome, Record, merge
from tests.races.rig import Rig, install

import manifestcommit as mc
from manifestcommit.protocol.apply import Budgets
from manifestcommit.runtime.environment import tune, tuning
from manifestcommit.store import Store, open_store
from manifestcommit.testing.faults import FaultCall

CALM = ("founder", "closer", "cleaner")
_SLOW_S = 0.03


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What all rounds of a run share."""

    folder: str
    store: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a round takes place. options: through the proxy, where there is one, and soon out of patience; calm: the same for those who
    come before and after the races, with patience; direct: past the proxy."""

    folder: str
    url: str
    round: Round
    options: dict[str, Any] = {}
    calm: dict[str, Any] = {}
    direct: dict[str, Any] = {}

    @property
    def archive(self) -> Path:
        return Path(self.folder) / "archive"

    def actor(self, name: str) -> Actor:
        """Who has that name: one of the round, or whoever makes the table before it and cleans it up after it."""
        if name == "founder":
            return Actor(name=name, steps=self.round.founding)
        if name == "closer":
            return Actor(name=name, steps=(Step(operation="close"), *self._repeats()))
        if name == "cleaner":
            clean = Step(operation="gc", arguments={"foreign": self.round.foreign})
            return Actor(name=name, steps=(clean, clean, *self._repeats()))
        return next(actor for actor in self.round.actors if actor.name == name)

    def _repeats(self) -> Iterator[Step]:
        """Every key of the round once more: what is known of it when all is over."""
        steps = [*self.round.founding, *(step for actor in self.round.actors for step in actor.steps)]
        keys = {step.arguments["key"] for step in steps if step.arguments.get("key")}
        return (Step(operation="repeat", arguments={"key": key}) for key in sorted(keys))


class Process:
    """One incarnation of an actor. After a kill the next one goes on behind the step that was cut off; one with a key is repeated."""

    def __init__(self, place: Place, name: str, incarnation: int) -> None:
        self.place, self.actor, self.incarnation = place, place.actor(name), incarnation
        self.url, self.options = place.url, place.calm if name in CALM else place.options
        self.dice = random.Random(f"{place.round.seed}/{place.round.number}/{name}/{incarnation}")
        self.log = Log(notes_folder(Path(place.folder)) / f"{name}.{incarnation}.jsonl", name)
        self._step, self._counts = 0, dict[Moment, int]()

    def run(self) -> None:
        place, actor = self.place, self.actor
        if place.round.tight:
            tighten()
        install(self.rig, skew_s=actor.skew_s, page=actor.page)
        for number, step in list(enumerate(actor.steps))[self._first() :]:
            self._step = number
            time.sleep(step.pause_s)
            self._perform(step, number)

    def note(self, what: str, **more: Any) -> None:
        self.log.say(what, **more)

    def table(self) -> mc.Table:
        return mc.Table(self.url, self.options)

    def store(self) -> Store:
        """The store as this process has it."""
        return self.rig(open_store(self.url, self.options))

    def rig(self, store: Store) -> Store:
        actor = self.actor
        return Rig(store, archive=self.place.archive, watch=self._watch, tell=CLOCKS[actor.clock], page=actor.page)

    def learn(self, record: Record, **learned: Any) -> None:
        """What has to be known if this process ends here."""
        record.result.update(learned)
        self.log.learn(record, **learned)

    def _first(self) -> int:
        """The step to begin with."""
        if self.incarnation == 0:
            return 0
        records = merge(NoteReader(Path(self.place.folder)).new())
        begun = [record.arguments["step"] for record in records if record.process == self.actor.name]
        if not begun:
            return 0
        last = begun[-1]
        return last if self.actor.steps[last].arguments.get("key") else last + 1

    def _perform(self, step: Step, number: int) -> None:
        record = self.log.begin(step.operation, {**step.arguments, "step": number})
        outcome: Outcome
        try:
            outcome = operations.perform(self, record)
        except mc.errors.ManifestCommitError as error:
            outcome = operations.outcome_of(error)
            record.result.update(error=type(error).__name__, message=str(error), rule=getattr(error, "rule", ""))
        self.log.end(record, outcome, record.result)

    def _watch(self, call: FaultCall) -> None:
        if self.incarnation == 0:
            for moment, number in ((self.actor.stop, signal.SIGSTOP), (self.actor.kill, signal.SIGKILL)):
                if moment is not None and self._meets(moment, call):
                    self.note("stops" if number == signal.SIGSTOP else "dies", call=call.kind, name=call.name)
                    os.kill(os.getpid(), number)
        if self.dice.random() < self.actor.share:
            time.sleep(self.dice.uniform(0, _SLOW_S))

    def _meets(self, moment: Moment, call: FaultCall) -> bool:
        if moment.step != self._step or moment.kind not in ("", call.kind) or not call.name.startswith(moment.name):
            return False
        self._counts[moment] = self._counts.get(moment, 0) + 1
        return self._counts[moment] == moment.nth


def tighten() -> None:
    """Budgets so small that entries, keys, jobs and removals spill and merge at once."""
    tight = Budgets(inline_entry_bytes=1500, inline_keys=3, inline_jobs=2, inline_removed_bytes=4, fan_in=3)
    tune(msgspec.structs.replace(tuning(), budgets=tight))


def make(ground: Ground, name: str, incarnation: int) -> Process:
    """name: the round's number and the actor's name."""
    number, _, actor = name.partition(" ")
    place = msgspec.json.decode((Path(ground.folder) / number / "place.json").read_bytes(), type=Place)
    return Process(place, actor, incarnation)


if __name__ == "__main__":
    serve(Ground, lambda ground: load(s3=ground.store == "s3"), make)

"""Runs actors one at a time, with choices that decide which: threads that pass a baton, and a clock
without waiting.

    scheduler = Scheduler(Choices(seed=7))
    scheduler.run({"one": program, "two": program})      # a program is called with its Actor
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ..format.snapshot import Author
from .choices import Choices

STALLS = (0, 3, 10, 30, 100, 1000)  # for how many steps of the others an actor may be stalled
START_US = 1_700_000_000_000_000
MOST_STEPS = 50_000
_ONLOOKER = 65_000


class Stopped(BaseException):
    """The run is over. Not an Exception: nothing in the code under test may continue."""


class Died(BaseException):
    """The actor's program ended here, as if it were killed; it may be restarted."""


class EndlessError(Exception):
    """The actors never finish: one of them starves. [IV9]"""


class Actor:
    """One thread of control with a clock of its own. It is also the engine's environment. [ST6]

    skew_us: the error of its clock; is_dead: its program was killed, and nothing that it would
    still do takes effect.
    """

    def __init__(self, scheduler: Scheduler, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.skew_us = 0
        self.calls = 0
        self._scheduler = scheduler
        self._points = self._drawn = 0
        self._turn = threading.Semaphore(0)
        self._thread: int | None = None
        self._held_until = 0
        self.is_done = False
        self.is_dead = False
        self.takes_turns = True

    def now_us(self) -> int:
        """This actor's clock."""
        return self._scheduler.now_us + self.skew_us

    def randomness(self, count: int) -> bytes:
        """Bytes that nobody else draws; in a trace they show which actor drew them."""
        self._drawn += 1
        return self.number.to_bytes(2, "big") + self._drawn.to_bytes(count - 2, "big")

    def sleep(self, seconds: float) -> None:
        """Others may continue; afterwards the clock is that much later."""
        wake_us = self._scheduler.now_us + round(seconds * 1e6)
        self._scheduler.pause(self)
        self._scheduler.now_us = max(self._scheduler.now_us, wake_us)

    @property
    def drawn(self) -> int:
        """The number of its random draws."""
        return self._drawn

    def jitter(self) -> float:
        return 0.5

    def author(self) -> Author:
        """Whose records they are."""
        return Author(user=self.name)

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is this actor's own: calls of its helper threads take no turns
        while it waits for them."""
        return self.takes_turns and self._thread in (None, threading.get_ident())


class Scheduler:
    """Decides which actor runs. pending: requests in progress, in the order in which they were
    sent.

    alone: no other actor runs and nothing goes wrong, for example before the first and after the
    last actor; failure: what ended the run.
    """

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.now_us = START_US
        self.steps = 0
        self.alone = True
        self.failure: BaseException | None = None
        self.pending: list[Callable[[], None]] = []
        self.actors: list[Actor] = []
        self._restless = choices.weather((0.02, 0.1, 0.3, 0.6))
        self._stalling = choices.weather((0.0, 0.2, 0.6))
        self._done = threading.Semaphore(0)

    def run(self, programs: Mapping[str, Callable[[Actor], None]]) -> None:
        """Run until every program has ended, or one has failed: `failure` is its error."""
        for number, name in enumerate(programs, start=1):
            self.actors.append(Actor(self, name, number))
        self.alone = False
        threads = []
        for actor, program in zip(self.actors, programs.values(), strict=True):
            thread = threading.Thread(
                target=self._live, args=(actor, program), name=actor.name, daemon=True
            )
            thread.start()
            threads.append(thread)
        if self.actors:
            self.actors[self.choices.pick("first", len(self.actors), free=True)]._turn.release()
            self._done.acquire()
        for thread in threads:
            thread.join()
        self.alone = True

    @property
    def current(self) -> Actor | None:
        """The actor of this thread; None: it takes no turns."""
        return next(
            (actor_ for actor_ in self.actors if actor_._thread == threading.get_ident()), None
        )

    def fail(self, error: BaseException) -> None:
        """End the run: every actor stops where it is."""
        self.failure = self.failure or error

    def pause(self, actor: Actor, *, after: bool = False) -> None:
        """A point at which others may continue first, or a request in progress may arrive. after:
        after a call's effect; if all schedules are enumerated, the point before the next call
        represents it, as nobody can see a difference."""
        if self.failure is not None:
            raise Stopped
        if self.alone or not actor.is_here or (after and self.choices.is_exhaustive):
            return
        self.steps += 1
        actor._points += 1
        if self.steps > MOST_STEPS:
            raise EndlessError(f"no end after {MOST_STEPS} steps")
        others = self._ready(actor)
        point = f"{actor.name}.{actor._points}"
        chosen = self.choices.pick(
            f"turn {point}", 1 + len(others) + len(self.pending), self._restless
        )
        if chosen > len(others):
            self.pending.pop(chosen - len(others) - 1)()
        elif chosen:
            actor._held_until = (
                self.steps
                + STALLS[self.choices.pick(f"stall {point}", len(STALLS), self._stalling)]
            )
            others[chosen - 1]._turn.release()
            self._wait(actor)

    def _ready(self, actor: Actor) -> list[Actor]:
        """The others that can continue, the next one first."""
        place = self.actors.index(actor)
        others = [
            actor_
            for actor_ in (*self.actors[place + 1 :], *self.actors[:place])
            if not actor_.is_done
        ]
        return [actor_ for actor_ in others if actor_._held_until <= self.steps]

    def _wait(self, actor: Actor) -> None:
        actor._turn.acquire()
        if self.failure is not None:
            raise Stopped

    def _live(self, actor: Actor, program: Callable[[Actor], None]) -> None:
        actor._thread = threading.get_ident()
        try:
            self._wait(actor)
            program(actor)
        except (Stopped, Died):
            pass
        except BaseException as error:
            self.fail(error)
        actor.is_done = True
        living = [actor_ for actor_ in self.actors if not actor_.is_done]
        if not living:
            self._done.release()
            return
        ready = self._ready(actor) or sorted(living, key=lambda actor_: actor_._held_until)[:1]
        chosen = (
            0
            if self.failure is not None
            else self.choices.pick(f"next {actor.name}", len(ready), free=True)
        )
        ready[chosen]._turn.release()


def onlooker(scheduler: Scheduler) -> Actor:
    """An actor that takes no turns, and to which nothing happens."""
    actor = Actor(scheduler, "onlooker", _ONLOOKER)
    actor.takes_turns = False
    return actor

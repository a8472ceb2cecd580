from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ..format import object_names
from ..format.snapshot import Author
from ..runtime.environment import Env
from .faults import Died

_SCHEDULE = ("turn ", "next ", "first")


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A requested decision. count: of its answers; free: it stops no actor that could continue."""

    name: str
    count: int
    free: bool


class Choices:
    """Answers decisions by name. The answer 0 is always the plain one: continue, nothing goes
    wrong. seed: other answers are drawn from it, in the order of the requests; without a seed, they
    are the given ones, and 0 everywhere else. taken: all answers but 0, which suffice to repeat the
    run; is_exhaustive: all schedules are enumerated, for which the points are recorded."""

    def __init__(
        self,
        seed: int | None = None,
        given: Mapping[str, int] | None = None,
        *,
        exhaustive: bool = False,
    ) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._given = dict(given or {})
        self.is_exhaustive = exhaustive
        self.taken: dict[str, int] = {}
        self.points: list[Point] = []

    def pick(self, name: str, count: int, odds: float | None = None, *, free: bool = False) -> int:
        """A number below `count`. odds: that it is not 0; None: all are equally likely."""
        if count <= 1:
            return 0
        if self.is_exhaustive and name.startswith(_SCHEDULE):
            self.points.append(Point(name=name, count=count, free=free))
        if self._random is None:
            chosen = self._given.get(name, 0)
            chosen = chosen if chosen < count else 0
        elif odds is None:
            chosen = self._random.randrange(count)
        else:
            chosen = self._random.randrange(1, count) if self._random.random() < odds else 0
        if chosen:
            self.taken[name] = chosen
        return chosen

    def weather(self, odds: Sequence[float]) -> float:
        """A probability in the whole of this run; irrelevant if the answers are given."""
        return 0.0 if self._random is None else self._random.choice(odds)


_JOB = re.compile(r"v(\d+)-[0-9a-f]{16}-([0-9a-f]{4})0*([0-9a-f]+)(-[0-9a-f]+)?")
_VERSION = re.compile(re.escape(object_names.VERSIONS) + r"0*(\d+)\.json\.zst")


class Trace:
    """Lines in the order of calls, each with its result. names: of the actors, by number."""

    def __init__(self, names: dict[int, str] | None = None) -> None:
        self.names = dict(names or {})
        self._lines: list[list[str]] = []

    def call(self, actor: str, kind: str, name: str, fault: str) -> int:
        """Record a call; returns the number of its line."""
        self._lines.append([actor, kind, name, fault, ""])
        return len(self._lines) - 1

    def answer(self, line: int, shown: str) -> None:
        self._lines[line][4] = shown

    def note(self, actor: str, text: str) -> None:
        """Add a line that is not a call: the beginning or end of an operation."""
        self._lines.append([actor, "--", text, "", ""])

    def text(self) -> str:
        width = max((10, *(len(line[0]) for line in self._lines)))
        return "\n".join(
            f"{number:5} {actor:{width}} {kind:7} {self._short(name)}"
            + (f"  !{fault}" if fault else "")
            + (f"  -> {shown}" if shown else "")
            for number, (actor, kind, name, fault, shown) in enumerate(self._lines, start=1)
        )

    def _short(self, name: str) -> str:
        """Job ids as their base version and the actor's draw, versions as their number."""
        short = _JOB.sub(self._job, _VERSION.sub(r"version \1", name))
        return short.replace(f"{object_names.ROOM}/", "")

    def _job(self, match: re.Match[str]) -> str:
        number = int(match[2], 16)
        return f"<{self.names.get(number, number)}#{int(match[3], 16)} born {match[1]}>"


STALLS = (0, 3, 10, 30, 100, 1000)  # for how many steps of the others an actor may be stalled
START_US = 1_700_000_000_000_000
MOST_STEPS = 50_000
_ONLOOKER = 65_000


class Stopped(BaseException):
    """The run is over. Not an Exception: nothing in the code under test may continue."""


class EndlessError(Exception):
    """The actors never finish: one of them starves. [IV9]"""


class Actor(Env):
    """One thread of control with a clock of its own. It is also the engine's environment. [ST6]
    skew_us: the error of its clock; is_dead: its program was killed, and nothing that it would
    still do takes effect."""

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
    sent. alone: no other actor runs and nothing goes wrong, for example before the first and after
    the last actor; failure: what ended the run."""

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
            work = (actor, program)
            thread = threading.Thread(target=self._live, args=work, name=actor.name, daemon=True)
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
        here = threading.get_ident()
        return next((each for each in self.actors if each._thread == here), None)

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
        point, count = f"{actor.name}.{actor._points}", 1 + len(others) + len(self.pending)
        chosen = self.choices.pick(f"turn {point}", count, self._restless)
        if chosen > len(others):
            self.pending.pop(chosen - len(others) - 1)()
        elif chosen:
            stall = self.choices.pick(f"stall {point}", len(STALLS), self._stalling)
            actor._held_until = self.steps + STALLS[stall]
            others[chosen - 1]._turn.release()
            self._wait(actor)

    def _ready(self, actor: Actor) -> list[Actor]:
        """The others that can continue, the next one first."""
        place = self.actors.index(actor)
        others = (*self.actors[place + 1 :], *self.actors[:place])
        return [each for each in others if not each.is_done and each._held_until <= self.steps]

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
        living = [each for each in self.actors if not each.is_done]
        if not living:
            self._done.release()
            return
        ready, chosen = self._ready(actor) or [min(living, key=lambda each: each._held_until)], 0
        if self.failure is None:
            chosen = self.choices.pick(f"next {actor.name}", len(ready), free=True)
        ready[chosen]._turn.release()


def onlooker(scheduler: Scheduler) -> Actor:
    """An actor that takes no turns, and to which nothing happens."""
    actor = Actor(scheduler, "onlooker", _ONLOOKER)
    actor.takes_turns = False
    return actor

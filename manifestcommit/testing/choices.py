"""Every decision of a simulated run, by name: drawn from a seed, or given. What was decided can be replayed, and made less. [IV3]

Not here: what is decided (scheduler, simulated_store, themes), how a run is made less (shrink).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

_SCHEDULE = ("turn ", "next ", "first")


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was asked for. count: of its possible answers; free: it takes nothing away from an actor that could go on."""

    name: str
    count: int
    free: bool


class Choices:
    """Answers decisions, each by its name. The answer 0 is always the plain one: go on, nothing goes wrong.

    seed: the others are drawn, in the order in which they are asked for; without one, they are those given, and 0 everywhere else.
    taken: all answers but 0, which are all that it takes to do the same again; is_exhaustive: all schedules are enumerated, for which
    the points are kept: what was asked.
    """

    def __init__(self, seed: int | None = None, given: Mapping[str, int] | None = None, *, exhaustive: bool = False) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._given = dict(given or {})
        self.is_exhaustive = exhaustive
        self.taken: dict[str, int] = {}
        self.points: list[Point] = []

    def pick(self, name: str, count: int, odds: float | None = None, *, free: bool = False) -> int:
        """A number below `count`. odds: how likely it is not 0, as likely as any other where it is None."""
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
        """How likely something is in the whole of this run; of no matter where the answers are given."""
        return 0.0 if self._random is None else self._random.choice(odds)

"""Every decision of a simulated run, by name: drawn from a seed, or given. A run can be replayed
from its decisions, and shrunk. [IV3]
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

_SCHEDULE = ("turn ", "next ", "first")


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A requested decision. count: of its answers; free: it stops no actor that could continue."""

    name: str
    count: int
    free: bool


class Choices:
    """Answers decisions by name. The answer 0 is always the plain one: continue, nothing goes
    wrong.

    seed: other answers are drawn from it, in the order of the requests; without a seed, they are
    the given ones, and 0 everywhere else. taken: all answers but 0, which suffice to repeat the
    run; is_exhaustive: all schedules are enumerated, for which the points are recorded.
    """

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

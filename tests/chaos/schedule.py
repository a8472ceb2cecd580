"""What goes wrong when: drawn from the seed before the run begins, so that the same seed has the same schedule."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from tests.kit.proxy import Fault, Request

_MEAN_STOP_S = 2.5
_STOPPED_S = (0.2, 0.5, 1.0, 2.0, 6.0)
_MEAN_CALM_S = 2.5  # between windows of faulty requests
_WINDOW_S = (0.5, 4.0)
_SHARES = (0.03, 0.1, 0.3, 0.6)


class Blow(msgspec.Struct, frozen=True, kw_only=True):
    """At this second of the run one actor is killed, or stopped for a while."""

    at_s: float
    kind: Literal["kill", "stop"]
    actor: str
    for_s: float


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """From this second on some requests fail."""

    at_s: float
    for_s: float
    mood: str
    share: float


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """All blows and windows, in order."""

    blows: tuple[Blow, ...]
    windows: tuple[Window, ...]


def draw(seed: int, seconds: float, actors: Sequence[str], *, kill_every_s: float = 1.2) -> Schedule:
    """The schedule of a seed."""
    kills, stops, faults = (random.Random(f"{seed}/{kind}") for kind in ("kills", "stops", "faults"))
    blows = [Blow(at_s=at, kind="kill", actor=kills.choice(actors), for_s=0.0) for at in _moments(kills, kill_every_s, seconds)]
    blows += [
        Blow(at_s=at, kind="stop", actor=stops.choice(actors), for_s=stops.choice(_STOPPED_S))
        for at in _moments(stops, _MEAN_STOP_S, seconds)
    ]
    windows = [
        Window(at_s=at, for_s=faults.uniform(*_WINDOW_S), mood=faults.choice(sorted(MOODS)), share=faults.choice(_SHARES))
        for at in _moments(faults, _MEAN_CALM_S, seconds)
    ]
    return Schedule(blows=tuple(sorted(blows, key=lambda blow: blow.at_s)), windows=tuple(windows))


def _moments(dice: random.Random, mean_s: float, seconds: float) -> Iterator[float]:
    """Each is drawn after what the one before it needed: a longer run goes wrong in the same way as long as the shorter one lasts."""
    at = min(seconds / 2, dice.expovariate(1 / mean_s))
    while at < seconds:
        yield at
        at += dice.expovariate(1 / mean_s)


# --- requests -----------------------------------------------------------------------------------------------------------
MOODS: dict[str, tuple[Fault, ...]] = {
    "lost answers": (Fault(kind="answer_dropped"), Fault(kind="answer_closed")),
    "resets": (Fault(kind="request_reset"), Fault(kind="request_dropped")),
    "errors": tuple(Fault(kind=kind, status=status) for kind in ("status_before", "status_after") for status in (500, 503)),
    "slow": (Fault(kind="answer_delayed", delay_s=0.3), Fault(kind="answer_delayed", delay_s=4.0)),
    "cut": (Fault(kind="answer_cut"), Fault(kind="answer_cut", cut="head")),
    "late": (Fault(kind="lands_late", delay_s=1.0), Fault(kind="lands_late", delay_s=5.0, hang=False)),
    "doubled": (Fault(kind="doubled"),),
}
MOODS["all at once"] = tuple(fault for mood in list(MOODS.values()) for fault in mood)
LOST = ("answer_dropped", "answer_closed", "answer_cut", "status_after", "lands_late")  # carried out, and the client was not told


class Weather:
    """The faults of requests as they come: called by the proxy for each. Which request meets which draw is up to timing."""

    def __init__(self, seed: int, schedule: Schedule) -> None:
        self._dice, self._windows = random.Random(f"{seed}/weather"), schedule.windows
        self.now_s = -1.0  # of the run, before it begins and when it is over
        self.seen: Counter[str] = Counter()

    def __call__(self, request: Request) -> Fault | None:
        for window in self._windows:
            if window.at_s <= self.now_s < window.at_s + window.for_s and self._dice.random() < window.share:
                fault = self._dice.choice(MOODS[window.mood])
                self.seen[fault.kind] += 1
                return fault
        return None

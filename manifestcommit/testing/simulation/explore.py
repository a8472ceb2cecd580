"""Enumerates all schedules of a small world, up to a number of preemptive switches. [IV1]-[IV8]

    explore("two writers", switches=2)

A switch costs if it stops an actor that could continue; choosing the next actor after one has ended
is free. No request fails here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...core.commit.retention import Policy
from ..choices import Choices
from .scheduler import Actor
from .simulator import Cast, Programs, Run, run
from .themes import Theme
from .workers import ADVANCING, Work, Worker, World

_HARSH = Policy(grace_s=0, keep_for_s=0, keep_versions=1, prepared_grace_s=0)
_THEME = Theme(actors={}, versions=4)


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """schedules: their number; found: the first that breaks a rule, None: none does."""

    case: str
    switches: int
    schedules: int
    found: Run | None = None


def explore(case: str, *, switches: int) -> Exploration:
    """Run every schedule of the case with at most that many switches, each once, up to the first
    that breaks a rule."""
    count = 0
    waiting: list[tuple[dict[str, int], int, int]] = [({}, 0, 0)]
    while waiting:
        given, spent, start = waiting.pop()
        done = run(_THEME, Choices(None, given, exhaustive=True), name=case, cast=CASES[case])
        count += 1
        if done.violation is not None:
            return Exploration(case=case, switches=switches, schedules=count, found=done)
        for place, point in enumerate(done.points[start:], start=start):
            cost = spent + (not point.free)
            if cost <= switches:
                waiting += [
                    ({**given, point.name: other}, cost, place + 1)
                    for other in range(1, point.count)
                ]
    return Exploration(case=case, switches=switches, schedules=count)


def _writer(world: World, *works: Work) -> Callable[[Actor], None]:
    def live(actor: Actor) -> None:
        worker = Worker(world, actor)
        for work in works:
            worker.publish(work)

    return live


def _collector(world: World) -> Callable[[Actor], None]:
    return lambda actor: Worker(world, actor).collect(_HARSH)


def _reader(world: World) -> Callable[[Actor], None]:
    return lambda actor: Worker(world, actor).read(None)


def _two_writers(world: World) -> Programs:
    same = Work(number=ADVANCING, day=1)
    return {"a": _writer(world, same), "b": _writer(world, same)}


def _two_overwriters(world: World) -> Programs:
    return {
        "a": _writer(world, Work(replaces="day", serializable=True)),
        "b": _writer(world, Work(replaces="day", serializable=True), Work()),
    }


def _two_writers_and_gc(world: World) -> Programs:
    return {
        "a": _writer(world, Work(number=1)),
        "b": _writer(world, Work(replaces="day")),
        "gc": _collector(world),
    }


def _stalled_writer_and_gc(world: World) -> Programs:
    return {
        "stalled": _writer(world, Work()),
        "b": _writer(world, Work(day=1), Work(replaces="all")),
        "gc": _collector(world),
    }


def _reader_and_gc(world: World) -> Programs:
    return {
        "reader": _reader(world),
        "b": _writer(world, Work(replaces="all")),
        "gc": _collector(world),
    }


CASES: dict[str, Cast] = {
    "two writers": _two_writers,
    "two overwriters": _two_overwriters,
    "two writers and gc": _two_writers_and_gc,
    "a stalled writer, a writer and gc": _stalled_writer_and_gc,
    "a reader, a writer and gc": _reader_and_gc,
}

"""Runs of a theme: every interleaving, every fault and every clock decided by one seed, and the table judged all the while. [IV1]-[IV8]

    found = run_theme("gc", seed=7)
    print(found.violation, found.trace)

The same seed gives the same trace, byte for byte. Not here: making a found violation small (shrink), all schedules of a small world
(explore), pipelines of users (simulate).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping

import msgspec

from ..core import spill
from ..core.retention import DAY_S, Policy
from ..engine import commit, gc
from ..engine.commit import create_table
from ..engine.session import Session
from ..errors import TableNotFoundError
from .checker import check
from .choices import Choices, Point
from .history import History
from .operation import Contradiction, Operation
from .oracle import Oracle, ViolationError
from .scheduler import Actor, Scheduler, onlooker
from .simulated_store import SimulatedStore, Space
from .themes import THEMES, Theme, program
from .trace import Trace
from .workers import SCHEMA, Work, Worker, World

_TIGHT = {"INLINE_ENTRY_BYTES": 1500, "INLINE_KEYS": 1, "INLINE_JOBS": 2, "INLINE_REMOVED_BYTES": 4, "FAN_IN": 3}
_LAST = Policy(grace_s=DAY_S, keep_for_s=0, keep_versions=1, prepared_grace_s=DAY_S)
_SETUP, _CLOSER = 0, 65_001


class ContradictionError(ViolationError):
    """What actors were told has no serial order that explains all of it."""

    def __init__(self, found: Contradiction) -> None:
        super().__init__(str(found))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run. violation: what did not hold, None where all did; choices: all that it takes to do the same again; points: what
    was asked, where all schedules are enumerated; versions: how many there were; steps: turns that were given."""

    theme: str
    seed: int | None
    violation: str | None
    kind: str
    choices: dict[str, int]
    trace: str
    history: tuple[Operation, ...]
    versions: int
    steps: int
    points: tuple[Point, ...] = ()


Programs = Mapping[str, Callable[[Actor], None]]
Cast = Callable[[World], Programs]


def run_theme(name: str, seed: int | None = None, *, given: Mapping[str, int] | None = None) -> Run:
    """One run of a theme, by a seed or by given choices. [IV1]-[IV8]"""
    theme = THEMES[name]
    return run(theme, Choices(seed, given), name=name, seed=seed)


def run(theme: Theme, choices: Choices, *, name: str = "", seed: int | None = None, cast: Cast | None = None) -> Run:
    """One run in the world of a theme. cast: who takes part, and does what; the theme's own actors where it is None."""
    with budgets(_TIGHT if theme.tight else {}), eagerness(theme.eager):
        world = _world(theme, choices)
        programs = cast(world) if cast is not None else {each: program(world, theme, each) for each in theme.actors}
        world.trace.names |= dict(enumerate(programs, start=1))
        world.scheduler.run(programs)
        if world.scheduler.failure is None:
            try:
                _close(world)
                if (wrong := check(world.history.operations)) is not None:
                    raise ContradictionError(wrong)
            except Exception as error:
                world.scheduler.fail(error)
    return told(world.scheduler, world.trace, theme=name, seed=seed, history=world.history, versions=len(world.oracle.chain))


def told(scheduler: Scheduler, trace: Trace, *, theme: str, seed: int | None, history: History, versions: int) -> Run:
    """What came of a run that has ended."""
    failure, choices = scheduler.failure, scheduler.choices
    return Run(
        theme=theme,
        seed=seed,
        violation=None if failure is None else _said(failure),
        kind="" if failure is None else _kind(failure),
        choices=choices.taken,
        trace=trace.text(),
        history=history.operations,
        versions=versions,
        steps=scheduler.steps,
        points=tuple(choices.points),
    )


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, ViolationError) else f"{type(error).__name__}: {error}".removesuffix(": ")


def _kind(error: BaseException) -> str:
    """What two violations have in common that are of one cause: the clauses, or the type of an error."""
    if isinstance(error, ContradictionError):
        return "history"
    clauses = str(error).partition("[")[2]
    return f"[{clauses}" if isinstance(error, ViolationError) and clauses else type(error).__name__


def _world(theme: Theme, choices: Choices) -> World:
    scheduler, trace = Scheduler(choices), Trace()
    space = Space(scheduler, trace)
    oracle = Oracle(scheduler, SimulatedStore(space, onlooker(scheduler)))
    space.watcher = oracle
    space.tells_times = not choices.pick("store tells no times", 2, 0.15)
    history = History()
    if theme.versions:
        before = _start(theme.versions, theme.tight, space.tells_times)
        space.objects = dict(before.space.objects)
        scheduler.now_us = before.scheduler.now_us
        oracle.resume(before.oracle)
        history = History(before.history.operations)
    return World(scheduler=scheduler, trace=trace, space=space, oracle=oracle, history=history)


@functools.cache
def _start(versions: int, tight: bool, tells_times: bool) -> World:
    """A table with some history, the same for all runs: files of two partitions, one overwritten, a tag, a key, a source."""
    scheduler, trace = Scheduler(Choices()), Trace()
    space = Space(scheduler, trace)
    oracle = Oracle(scheduler, SimulatedStore(space, onlooker(scheduler)))
    space.watcher, space.tells_times = oracle, tells_times
    world = World(scheduler=scheduler, trace=trace, space=space, oracle=oracle, history=History())
    worker = Worker(world, Actor(scheduler, "setup", _SETUP))
    create_table(worker.session, schema=SCHEMA, partition_by=(2,), properties={})
    deeds: list[Callable[[], None]] = [
        lambda: worker.publish(Work(day=0)),
        lambda: worker.tag("t0 é", 0),
        lambda: worker.publish(Work(day=1, number=0)),
        lambda: worker.publish(Work(day=0, replaces="day")),
        lambda: worker.publish(Work(day=2, files=2)),
        lambda: worker.publish(Work(day=1, number=1)),
    ]
    for deed in deeds[: versions - 1]:
        scheduler.now_us += 3_600_000_000
        deed()
    assert len(oracle.chain) == versions, trace.text()
    scheduler.now_us += 3_600_000_000
    return world


def _close(world: World) -> None:
    """All that was on its way arrives, the actors are gone, and two gcs later nothing dead is left. [GC5] [GC7]"""
    scheduler = world.scheduler
    while scheduler.pending:
        scheduler.pending.pop(0)()
    store = SimulatedStore(world.space, Actor(scheduler, "closer", _CLOSER))
    for _ in range(2):
        scheduler.now_us += 100 * round(DAY_S * 1e6)
        try:
            gc.run(Session(store, store.env), _LAST)
        except TableNotFoundError:
            if world.oracle.chain:
                raise
            return  # nobody came as far as making one
    world.oracle.check_end(world.space.objects)


@contextlib.contextmanager
def budgets(values: Mapping[str, int]) -> Iterator[None]:
    """With other budgets of what a head carries inline. [CM12]"""
    before = {name: getattr(spill, name) for name in values}
    for name, value in values.items():
        setattr(spill, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(spill, name, value)


@contextlib.contextmanager
def eagerness(is_eager: bool) -> Iterator[None]:
    """Where it is, who loses once asks others for help. [CM19]"""
    before = commit.DEFAULT_LIMITS
    commit.DEFAULT_LIMITS = msgspec.structs.replace(before, lost_alone=1) if is_eager else before
    try:
        yield
    finally:
        commit.DEFAULT_LIMITS = before

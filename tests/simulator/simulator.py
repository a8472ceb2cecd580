"""Runs a theme: one seed decides every interleaving, every fault and every clock, while the table is checked all the time. [IV1]-[IV8]

    found = run_theme("gc", seed=7)
    print(found.violation, found.trace)

The same seed gives the same trace, byte for byte.
"""

import functools
from collections.abc import Callable, Iterator, Mapping

import msgspec
from tests.kit.sizes import tuned
from tests.simulator.joint_workers import check_splits
from tests.simulator.oracle import ViolationError, WatchedSpace
from tests.simulator.run_history import History
from tests.simulator.themes import THEMES, Theme, program
from tests.simulator.workers import QUERY, SCHEMA, Work, Worker, World, refused_by

from manifestcommit.commits.commit_loop import create_table
from manifestcommit.errors import TableNotFoundError
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations import alter, gc
from manifestcommit.protocol.apply import Budgets
from manifestcommit.protocol.retention import DAY_S, Policy
from manifestcommit.runtime.environment import Tuning, tuning
from manifestcommit.testing import pipelines
from manifestcommit.testing.history.checker import check, check_joint
from manifestcommit.testing.history.operation import Contradiction, Operation
from manifestcommit.testing.scheduler import Actor, Choices, Point, Scheduler, Trace

_TIGHT = Budgets(inline_entry_bytes=1500, inline_keys=1, inline_jobs=2, inline_removed_bytes=4, fan_in=3)
_LAST = Policy(grace_s=DAY_S, keep_for_s=0, keep_versions=1, prepared_grace_s=DAY_S)
_SETUP, _CLOSER = 0, 65_001


class ContradictionError(ViolationError):
    """No serial order explains all results of the actors."""

    def __init__(self, found: Contradiction) -> None:
        super().__init__(str(found))


class Run(pipelines.Run, frozen=True, kw_only=True):
    """The result of a run in the world of a theme. kind: what two violations of one cause have in common; points: the decisions that were
    requested, if all schedules are enumerated."""

    theme: str
    kind: str
    history: tuple[Operation, ...]
    points: tuple[Point, ...] = ()


Programs = Mapping[str, Callable[[Actor], None]]
Cast = Callable[[World], Programs]


def run_theme(name: str, seed: int | None = None, *, given: Mapping[str, int] | None = None) -> Run:
    """One run of a theme, by a seed or by given choices. [IV1]-[IV8]"""
    theme = THEMES[name]
    return run(theme, Choices(seed, given), name=name, seed=seed)


def run(theme: Theme, choices: Choices, *, name: str = "", seed: int | None = None, cast: Cast | None = None) -> Run:
    """One run in the world of a theme. cast: the actors and their programs; None: the theme's own."""
    with tuned(_tuning_of(theme)):
        world = _worlds(theme, choices)
        programs = cast(world) if cast is not None else {actor: program(world, theme, actor) for actor in theme.actors}
        world.trace.names |= dict(enumerate(programs, start=1))
        world.scheduler.run(programs)
        if world.scheduler.failure is None:
            try:
                _let_arrive(world)
                for each in world.beside.values() or (world,):
                    _close(each)
                    if (wrong := check((*_settled(each), *_versions(each)))) is not None:
                        raise ContradictionError(wrong)
                check_splits(world)
                if (wrong := check_joint(_histories(world))) is not None:
                    raise ContradictionError(wrong)
            except Exception as error:
                world.scheduler.fail(error)
    failure = world.scheduler.failure
    return Run(
        theme=name, seed=seed, violation=None if failure is None else _said(failure), kind="" if failure is None else _kind(failure),
        choices=choices.taken, trace=world.trace.text(), history=world.history.operations,
        versions=sum(len(each.oracle.chain) for each in world.beside.values() or (world,)), steps=world.scheduler.steps,
        points=tuple(choices.points),
    )  # fmt: skip


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, ViolationError) else pipelines.text_of(error)


def _kind(error: BaseException) -> str:
    """What two violations of one cause have in common: the clauses, or the type of an error."""
    if isinstance(error, ContradictionError):
        return "history"
    clauses = str(error).partition("[")[2]
    return f"[{clauses}" if isinstance(error, ViolationError) and clauses else type(error).__name__


def _worlds(theme: Theme, choices: Choices) -> World:
    """That of the first table, and of all that are beside it."""
    scheduler, trace = Scheduler(choices), Trace()
    first = _world(theme, scheduler, trace, 0)
    if theme.tables > 1:
        others = [_world(theme, scheduler, trace, which) for which in range(1, theme.tables)]
        for which, each in enumerate((first, *others)):
            first.beside[f"table {which}"] = each
            each.url, each.beside = f"sim://table {which}", first.beside
            each.joint, each.together, each.splits = first.joint, first.together, first.splits
            each.history = History(each.history.operations, beside=first.history)
        oracles = {each.oracle.head.snapshot.table_id: each.oracle for each in first.beside.values()}
        for oracle in oracles.values():
            oracle.homes = oracles
    return first


def _world(theme: Theme, scheduler: Scheduler, trace: Trace, which: int) -> World:
    space = WatchedSpace(scheduler, trace)
    space.tells_times = not scheduler.choices.pick("store tells no times", 2, 0.15)
    history = History()
    if theme.versions:
        before = _start(theme.versions, theme.tight, space.tells_times, which)
        space.objects = dict(before.space.objects)
        scheduler.now_us = max(scheduler.now_us, before.scheduler.now_us)
        space.oracle.resume(before.oracle)
        history = History(before.history.operations)
    return World(scheduler=scheduler, trace=trace, space=space, history=history)


@functools.cache
def _start(versions: int, tight: bool, tells_times: bool, which: int) -> World:
    """A table with some history, the same for all runs where it is table `which`: files in two partitions, one overwritten, a tag, a key, a
    source."""
    scheduler, trace = Scheduler(Choices()), Trace()
    space = WatchedSpace(scheduler, trace)
    space.tells_times = tells_times
    world = World(scheduler=scheduler, trace=trace, space=space, history=History())
    worker = Worker(world, Actor(scheduler, "setup", _SETUP + 64_000 * bool(which) + which))
    create_table(worker.ctx, schema=SCHEMA, partition_by=(2,), properties={})
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
    assert len(world.oracle.chain) == versions, trace.text()
    scheduler.now_us += 3_600_000_000
    return world


def _let_arrive(world: World) -> None:
    """All requests in progress arrive."""
    while world.scheduler.pending:
        world.scheduler.pending.pop(0)()


def _close(world: World) -> None:
    """The actors are gone, and two gcs later no orphan file is left. [GC5] [GC7]"""
    scheduler = world.scheduler
    # by a person, as advised in the error that blocks everyone
    for name in list(world.oracle.strays):
        world.space.remove(name, "closer")
    worker = Worker(world, Actor(scheduler, "closer", _CLOSER))
    store = worker.store
    chain = world.oracle.chain
    if chain and all(state.snapshot.pending is not None for state in chain[1:]):
        # no fence passes a job whose base version is the only one that is no member of a joint commit, which may be void
        alter.set_properties(TableContext(store, store.env), {"closed": "é"})
    for _ in range(2):
        scheduler.now_us += 100 * round(DAY_S * 1e6)
        try:
            gc.run(TableContext(store, store.env), _LAST)
        except TableNotFoundError:
            if world.oracle.chain:
                raise
            return  # nobody got as far as creating one
    world.oracle.check_end(world.space.objects)


def _settled(world: World) -> Iterator[Operation]:
    """The history. Of processes that ran one job, each with files of its own, those whose files its version has say what it added."""
    chain, versions = world.oracle.chain, world.oracle.committed()
    for each in world.history.operations:
        live = chain[versions[each.job] - 1].files.keys() if each.job in versions else each.adds.keys()
        others = (other for other in world.history.operations if other.job == each.job and other.adds)
        is_other = bool(each.adds.keys() - live) and any(other.adds.keys() <= live for other in others)
        yield msgspec.structs.replace(each, adds={}) if is_other else each


def _versions(world: World) -> Iterator[Operation]:
    """What whoever looks at each version when all is over sees of it, those of removed tables included. Void ones show nothing."""
    known = {each.key: None for each in world.history.operations if each.key is not None and not each.key.startswith(QUERY)}
    for chain in (world.oracle.chain, *world.oracle.removed_tables.values()):
        for state in chain:
            snapshot = state.snapshot
            if not state.is_void and snapshot.pending is None:
                yield Operation(
                    id=f"{snapshot.table_id} {state.version}", process="last", name="read", begin=0, outcome="read", version=state.version,
                    at=state.version, items=tuple(sorted(state.files)), watermarks=dict(snapshot.watermarks),
                    origins=dict(snapshot.origins), constraints=refused_by(snapshot), keys={**known, **state.keys}, table=snapshot.table_id,
                )  # fmt: skip


def _histories(world: World) -> dict[str, tuple[Operation, ...]]:
    """The history of each table, with what the table's own says of jobs whose actors were not told: committed at any time. Parts of joint
    commits that are not in it never were. [MT1]"""
    found = {}
    for url, each in world.beside.items():
        committed = each.oracle.committed()
        tried = {jobs[table_id] for table_id in [each.oracle.head.snapshot.table_id] for jobs in world.joint if table_id in jobs}
        witness = functools.partial(Operation, process="history", name="history", begin=0)
        found[url] = (
            *each.history.operations,
            *(witness(id=f"history/{job}", outcome="committed", version=at, job=job) for job, at in committed.items()),
            *(witness(id=f"history/{job}", outcome="refused", rule="aborted", job=job) for job in tried - committed.keys()),
        )
    return found


def _tuning_of(theme: Theme) -> Tuning:
    """tight: a snapshot carries little inline; eager: who loses once asks others for help. [CM12] [CM19]"""
    usual = tuning()
    return Tuning(
        limits=msgspec.structs.replace(usual.limits, lost_alone=1) if theme.eager else usual.limits,
        budgets=_TIGHT if theme.tight else usual.budgets,
    )

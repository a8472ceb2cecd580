"""A clone of a table that goes on: calls that die or stall anywhere, several at once, and a failover. [CN1]-[CN6]

Each object of the clone is checked at the moment when it appears or goes.
"""

import contextlib
import json
from collections.abc import Callable, Mapping

import pytest
from tests.kit.sizes import rounds, tuned
from tests.simulator.oracle import ViolationError
from tests.simulator.simulator import _let_arrive, _tuning_of, _worlds
from tests.simulator.themes import THEMES, program
from tests.simulator.workers import EXPECTED, World

from manifestcommit.catalog.clone import CLAIM, _Cloning
from manifestcommit.errors import SnapshotExpiredError, TableNotFoundError, UsageError
from manifestcommit.format import codec, object_names
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations import alter
from manifestcommit.operations.verify import verify
from manifestcommit.protocol.retention import DAY_S
from manifestcommit.scan import planning
from manifestcommit.testing.scheduler import Actor, Choices, Died, onlooker
from manifestcommit.testing.simulated_store import SimulatedStore, Space, Watcher

STANDBY = "sim://standby"
_STATE = ("schema", "partition_by", "watermarks", "origins", "keys", "streams", "properties", "constraints", "totals")
SAME = (*_STATE, "added", "manifests", "key_runs")


def listed(ctx: TableContext, snapshot: Snapshot) -> set[str]:
    """Every object that a version lists, data files and metadata."""
    files = set(planning.entries_table(ctx, snapshot).column("path").to_pylist()) if snapshot.schema else set()
    runs = (*snapshot.removed_runs, *snapshot.key_runs, *snapshot.job_runs)
    return files | {each.path for each in (*snapshot.manifests, *runs)}


class Standby(Watcher):
    """Checks the clone at every effect. own: its versions; first_own: the first that was committed there."""

    def __init__(self, world: World) -> None:
        self._world, self.space = world, Space(world.scheduler, world.trace)
        self.space.watcher = self
        self.own: dict[int, Snapshot] = {}
        self.first_own: int | None = None
        self._needs: dict[int, set[str]] = {}

    def store(self, actor: Actor) -> SimulatedStore:
        return SimulatedStore(self.space, actor, STANDBY)

    def quiet(self) -> SimulatedStore:
        return self.store(onlooker(self._world.scheduler))

    def appeared(self, name: str, data: bytes, actor: str) -> None:
        version = object_names.parse_version(name)
        if version is None or version in self.own:
            return
        snapshot = codec.decode_snapshot(data, name=name)
        ctx = TableContext(self.quiet(), None)
        self._needs[version] = listed(ctx, snapshot)
        missing = self._needs[version] - self.space.objects.keys()
        self._holds(not missing, f"version {version} lists {sorted(missing)}, not there yet [CN1]")
        self.own[version] = snapshot
        (origin,) = snapshot.cloned.values()
        if origin.version < version:
            self.first_own = min(version, self.first_own or version)
            return
        self._holds(self.first_own is None, f"version {version} is of the source, above {self.first_own} of the clone's own [CN6]")
        theirs = self._world.oracle.chain[version - 1].snapshot
        for each in SAME if version not in self._world.oracle.head.snapshot.void else ():
            self._holds(getattr(snapshot, each) == getattr(theirs, each), f"version {version} has another {each} than its source [CN3]")

    def gone(self, name: str, actor: str) -> None:
        newest = self.own[max(self.own)] if self.own else None
        if newest is None:
            return
        kept = {*range(newest.expired, newest.version + 1), *(tag.version for tag in newest.tags.values())} & self.own.keys()
        holders = [version for version in kept if name in self._needs[version] or object_names.parse_version(name) == version]
        self._holds(not holders, f"{name} was deleted, which versions {holders} need [CN5]")

    def _holds(self, truth: bool, said: str) -> None:
        if not truth:
            self._world.scheduler.fail(ViolationError(said))


def cloner(world: World, standby: Standby, times: int) -> Callable[[Actor], None]:
    """A process that clones again and again, and begins again where it dies."""

    def live(actor: Actor) -> None:
        for _ in range(times):
            with contextlib.suppress(Died, TableNotFoundError, *EXPECTED):
                clone(world, standby, actor)
            actor.is_dead = False
            actor.sleep(DAY_S)

    return live


def failover(world: World, standby: Standby) -> Callable[[Actor], None]:
    """A writer that goes on in the clone, once there is one."""

    def live(actor: Actor) -> None:
        for _ in range(2):
            actor.sleep(2 * DAY_S)
            with contextlib.suppress(Died, TableNotFoundError, *EXPECTED):
                alter.set_properties(TableContext(standby.store(actor), actor), {"written": "at the standby"})
                return
            actor.is_dead = False

    return live


def clone(world: World, standby: Standby, actor: Actor) -> int:
    source = SimulatedStore(world.space, actor, world.url)
    return _Cloning(TableContext(source, actor), TableContext(standby.store(actor), actor), None, False).run().version


def cast(world: World, theme: str, standby: Standby, has_failover: bool) -> Mapping[str, Callable[[Actor], None]]:
    programs = {actor: program(world, THEMES[theme], actor) for actor in THEMES[theme].actors if actor != "reader"}
    programs |= {name: cloner(world, standby, 3) for name in ("clone", "other clone")}
    return programs | ({"failover": failover(world, standby)} if has_failover else {})


def run(theme: str, seed: int, has_failover: bool) -> Standby:
    """One seed; ViolationError, or the error of an actor."""
    with tuned(_tuning_of(THEMES[theme])):
        world = _worlds(THEMES[theme], Choices(seed))
        standby = Standby(world)
        programs = cast(world, theme, standby, has_failover)
        world.trace.names |= dict(enumerate(programs, start=1))
        world.scheduler.run(programs)
        if world.scheduler.failure is not None:
            raise world.scheduler.failure
        _let_arrive(world)
        closer = onlooker(world.scheduler)
        head = world.oracle.head.snapshot
        claim = json.loads(standby.space.objects[CLAIM].data)["version"] if not standby.own and CLAIM in standby.space.objects else None
        next_one = max(standby.own) + 1 if standby.own else claim or head.version
        is_late = next_one < head.expired
        refusals = [UsageError] * bool(standby.first_own) + [SnapshotExpiredError] * is_late
        with pytest.raises(tuple(refusals)) if refusals else contextlib.nullcontext():
            assert clone(world, standby, closer) == world.oracle.latest
        ctx = TableContext(standby.quiet(), closer)
        if standby.own:
            assert verify(ctx).is_sound and CLAIM not in standby.space.objects
        if world.scheduler.failure is not None:
            raise world.scheduler.failure
        return standby


@pytest.mark.parametrize("has_failover", [False, True])
@pytest.mark.parametrize("theme", ["gc", "tags", "back", "rows tight"])
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, rounds(40, 4_000)), marks=pytest.mark.thorough)], ids=["first", "more"])
def test_no_schedule_and_no_fault_makes_a_false_clone(theme: str, has_failover: bool, seeds: range) -> None:
    """[CN1] [CN2] [CN3] [CN5] [CN6]"""
    found = []
    for seed in seeds:
        try:
            found.append(run(theme, seed, has_failover))
        except BaseException as error:
            raise AssertionError(f"theme {theme}, seed {seed}: {error}") from error
    assert sum(len(each.own) for each in found) > len(found), "nothing was cloned"
    assert has_failover == any(each.first_own for each in found)

"""Bank transfers between tables in the simulator: whatever dies, every read of all tables shows sums that agree. [MT1] [MT12]"""

from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.kit.sizes import rounds
from tests.simulator.simulator import run_theme

import manifestcommit as mc
from manifestcommit.testing import PipelineViolationError, simulate
from manifestcommit.transactions import PinnedTable

BANKS = [f"sim://bank/{name} %+=#é" for name in ("a", "b", "c")]


def amounts(*values: int) -> pa.Table:
    return pa.table({"amount": pa.array(values, pa.int64())})


class World:
    """What the actors of one run share. acknowledged: url -> the versions of joint commits that were reported."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        self.done: set[str] = set()
        self.void = 0

    def create(self) -> None:
        for url in BANKS:
            mc.write(amounts(0), url)

    def transfer(self, name: str, urls: list[str]) -> Callable[[], None]:
        """From the first table to the others, under one key; in this order of tables."""

        def run() -> None:
            for number in range(2):
                key = f"{name} {number} é"
                with mc.transaction(urls, key=key) as tx:
                    tx[urls[0]].write(amounts(-(len(urls) - 1)))
                    for url in urls[1:]:
                        tx[url].write(amounts(1))
                assert tx.outcome is not None
                self.done.add(key)
                for url, version in tx.outcome.versions.items():
                    self.acknowledged[url] = max(version, self.acknowledged.get(url, 0))

        return run

    def deposit(self) -> None:
        """A single writer, which moves nothing."""
        for _ in range(2):
            mc.write(amounts(0), BANKS[1])

    def collect(self) -> None:
        for url in BANKS:
            mc.gc(url, grace="0s", keep_for="0s", keep_versions=2)

    def look(self) -> None:
        for _ in range(3):
            self.see()

    def see(self) -> None:
        before = dict(self.acknowledged)
        pinned = mc.read_together(BANKS)
        total = sum(sum(table.to_arrow()["amount"].to_pylist()) for table in pinned)
        assert total == 0, f"{total} {[table.version for table in pinned]}"
        for table in pinned:
            assert table.version >= before.get(table.url, 0), f"{table} misses what was acknowledged: {before}"

    def end(self) -> None:
        """Whatever is left undecided is settled by the next writer; each key is committed once, in all of its tables."""
        for url in BANKS:
            mc.write(amounts(0), url)
        self.see()
        for url in BANKS:
            table = mc.Table(url)
            self.void += len(table.snapshot().void)
            assert table.verify().is_sound
        for name, urls in TRANSFERS.items():
            for number in range(2):
                keys = [sum(row["key"] == f"{name} {number} é" for row in mc.Table(url).history()) for url in urls]
                assert max(keys) <= 1
        for key in self.done:
            for url in TRANSFERS[key.split(" ")[0]]:
                with mc.begin(url, key=key) as job:
                    assert job.already_committed, (key, url)
                    job.abort()


TRANSFERS = {"ab": BANKS[:2], "ba": BANKS[1::-1], "cab": [BANKS[2], BANKS[0], BANKS[1]]}


def play(seed: int) -> World:
    world = World()
    actors: dict[str, Callable[[], object]] = {name: world.transfer(name, urls) for name, urls in TRANSFERS.items()}
    actors |= {"single": world.deposit, "gc": world.collect, "reader": world.look}
    simulate(actors, seed, before=world.create, check=world.end)
    return world


@pytest.mark.thorough
def test_sums_agree_in_every_read_whatever_dies() -> None:
    """Coordinators that die anywhere, with opposite orders of tables, single writers, gc and readers beside them. [MT1] [MT3] [MT4] [MT5]
    [MT6] [MT8] [MT9] [MT12] [MT13]"""
    worlds = [play(seed) for seed in range(rounds(14, 3000))]
    assert sum(len(world.done) for world in worlds) > len(worlds)
    assert sum(world.void for world in worlds), "no joint commit was aborted: nothing was tried"


@pytest.mark.thorough
def test_jobs_that_are_prepared_together_come_to_every_end() -> None:
    """Committed and aborted by others, recovered, refused, fenced, and left by those who died. [MT11]"""
    history = [each for seed in range(rounds(40, 3000)) for each in run_theme("joint prepared", seed).history]
    ended = {(each.name, each.outcome) for each in history}
    for name in ("commit together", "commit one of together"):
        assert {(name, "committed"), (name, "refused")} <= ended, name
    assert {("abort together", "refused"), ("abort one of together", "refused"), ("publish together", "committed")} <= ended
    assert {each.rule for each in history if each.shared} >= {"aborted", "another table"}
    assert any(each.end is None for each in history if each.shared), "nobody died"


class Undone(World):
    """In which somebody takes back what was done in all tables. back: how often that was reported."""

    back = 0

    def undo(self) -> None:
        pinned = mc.read_together(BANKS)
        for url in BANKS:
            mc.write(amounts(0), url)
        mc.rollback_together({table.url: table.version for table in pinned}, reason="é")
        self.back += 1

    def end(self) -> None:
        for url in BANKS:
            mc.write(amounts(0), url)
        self.see()
        for url in BANKS:
            self.void += len(mc.Table(url).snapshot().void)
            assert mc.Table(url).verify().is_sound


def undo(seed: int) -> Undone:
    world = Undone()
    actors: dict[str, Callable[[], object]] = {name: world.transfer(name, urls) for name, urls in TRANSFERS.items()}
    actors |= {"undo": world.undo, "reader": world.look}
    simulate(actors, seed, before=world.create, check=world.end)
    return world


@pytest.mark.thorough
def test_sums_agree_while_all_tables_are_rolled_back_together() -> None:
    """Beside transfers that die anywhere: a rollback of all tables is in each of them, or in none. [MT1] [MT14] [MT5] [MT8] [MT12]"""
    worlds = [undo(seed) for seed in range(rounds(20, 2000))]
    assert sum(world.back for world in worlds) > len(worlds) / 2
    assert sum(world.void for world in worlds), "no joint commit was aborted: nothing was tried"


@pytest.mark.thorough
def test_the_simulator_finds_what_reading_one_after_the_other_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without MT12 a read of all tables shows half of a transfer. [MT12]"""

    def alone(urls: list[str]) -> list[mc.PinnedTable]:
        return [PinnedTable(table, table._ctx.open()) for table in map(mc.Table, urls)]

    monkeypatch.setattr(mc, "read_together", alone, raising=False)
    with pytest.raises(PipelineViolationError):
        _ = [play(seed) for seed in range(40)]

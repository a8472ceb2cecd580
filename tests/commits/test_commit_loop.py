"""The commit loop over thousands of versions, without data files: what is spilled and merged stays what it was. [CM11] [CM12] [KY1]"""

import secrets
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.kit.faults import before_create
from tests.kit.sizes import SetBudgets, budgets
from tests.kit.tables import memory, session

from manifestcommit.commits.commit_loop import commit, create_table
from manifestcommit.format import object_names
from manifestcommit.format.change import Overwrite, Write
from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import Field, Schema
from manifestcommit.log.table_context import TableContext, find_key
from manifestcommit.log.version_chain import Head, open_head, read_version, walk_back
from manifestcommit.protocol.apply import Budgets
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.scan import planning
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore, FaultCall, FaultStore

SCHEMA = Schema(fields=(Field(id=1, name="day", type="string"), Field(id=2, name="id", type="long")))
BY = (1,)


def table(store: Store) -> TableContext:
    made = session(store)
    create_table(made, schema=SCHEMA, partition_by=BY, properties={})
    return made


def change(head: Head, *days: str, key: str | None = None, overwrite: Overwrite | None = None, rows: int = 1) -> Write:
    """One made-up file per day."""
    job = object_names.job_id(head.version, head.snapshot.table_id, secrets.token_bytes(16))
    add = tuple(
        Entry(path=f"day={day}/{at:05d}-0-{job}.parquet", partition=(day,), rows=rows, bytes=10, job=job) for at, day in enumerate(days)
    )
    return Write(
        job=job, birth=head.version, operation="overwrite" if overwrite else "append", key=key, declared="d", schema=SCHEMA,
        partition_by=BY, add=add, touched=tuple({1: day} for day in days), overwrite=overwrite,
    )  # fmt: skip


def run(own: TableContext, made: Write, head: Head | None = None) -> Outcome:
    return commit(own, head or own.known or own.open(), made)


class World:
    """The table, and beside it a model of a few lines: the live paths after each version."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.own = table(store)
        self.live: dict[str, str] = {}  # path -> day
        self.states: dict[int, dict[str, str]] = {1: {}}
        self.jobs: dict[str, int] = {}
        self.keys: dict[str, int] = {}

    def commit(self, *days: str, key: str | None = None, scope: tuple[dict[int, Any], ...] | None = None) -> None:
        head = self.own.known
        assert head is not None
        made = change(head, *days, key=key, overwrite=None if scope is None else Overwrite(scope=scope, conflict="blind"))
        outcome = run(self.own, made)
        assert outcome.version is not None and outcome.kind == "committed"
        for pattern in scope or ():
            self.live = {path: day for path, day in self.live.items() if pattern.get(1, day) != day}
        self.live = self.live | {entry.path: str(entry.partition[0]) for entry in made.add}
        self.states[outcome.version] = self.live
        self.jobs[made.job] = outcome.version
        if key is not None:
            self.keys[key] = outcome.version

    def check(self, head: Head) -> None:
        snapshot, live = head.snapshot, self.states[head.version]
        entries = planning.entries_table(session(self.store), snapshot)
        assert entries.column("path").to_pylist() and sorted(entries.column("path").to_pylist()) == sorted(live)
        assert dict(zip(entries.column("path").to_pylist(), entries.column("partition.1").to_pylist(), strict=True)) == live
        for path, job, added in zip(*(entries.column(name).to_pylist() for name in ("path", "job", "added")), strict=True):
            assert job in path and added == self.jobs[job], "the version that added it, however often it was merged since"
        assert (snapshot.totals.files, snapshot.totals.rows, snapshot.totals.bytes) == (len(live), len(live), 10 * len(live))


@pytest.fixture
def world(set_budgets: SetBudgets) -> World:
    # Files spill every 40 commits instead of every 170: a quarter of this is for earlier commits. Keys and jobs at their real budgets.
    set_budgets(inline_entry_bytes=48 * 1024, inline_removed_bytes=200)
    return World(memory())


@pytest.mark.thorough
def test_thousands_of_commits_later_nothing_is_lost_doubled_or_forgotten(world: World) -> None:
    """Files, totals, history, keys, jobs and changes, against the model. [CM12] [OB2] [OB9] [OB11] [RD8] [KY1] [CM10]"""
    world.commit("first", key="the first")
    for number in range(1, 2100):
        world.commit(
            f"d{number % 50}", key=f"key {number}" if number % 3 else None, scope=({1: f"d{number % 7}"},) if number % 97 == 0 else None
        )
    head = open_head(world.store)
    snapshot = head.snapshot
    assert head.version == 2101 and len(snapshot.manifests) > 2 and snapshot.key_runs and snapshot.job_runs and snapshot.removed_runs
    assert len(snapshot.manifests) < 40 and len(snapshot.job_runs) < 9, "merged, not piled up"
    fresh = session(world.store)
    for version in (2101, 2000, 1358, 700, 98, 97, 3):
        world.check(read_version(world.store, head, version))
    for key, version in [*world.keys.items()][:: len(world.keys) // 60]:
        record = find_key(fresh, snapshot, key)
        assert record is not None and record.version == version
    assert find_key(fresh, snapshot, "never") is None
    for job, version in [*world.jobs.items()][:: len(world.jobs) // 60]:
        assert fresh.manifests.job(snapshot, job) == ("committed", version)
    assert {
        commit.job: each.version for each in walk_back(world.store, head) for commit in each.snapshot.commits if each.version > 1
    } == world.jobs
    for start, end in ((1, 2101), (2000, 2101), (95, 400), (1358, 1359), (1357, 1358), (700, 700)):
        before, after = planning.differing_entries(
            fresh, read_version(world.store, head, start).snapshot, read_version(world.store, head, end).snapshot
        )
        assert sorted(after.column("path").to_pylist()) == sorted(world.states[end].keys() - world.states[start].keys())
        assert sorted(before.column("path").to_pylist()) == sorted(world.states[start].keys() - world.states[end].keys())


def test_a_key_that_was_spilled_is_found_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """[KY1] [KY3] [OB11]"""
    world = World(memory())
    for number in range(Budgets().inline_keys + 60):
        world.commit("d", key=f"key {number}")
    snapshot = open_head(world.store).snapshot
    assert snapshot.key_runs and "key 7" not in snapshot.keys
    outcome = run(world.own, change(open_head(world.store), "d", key="key 7"))
    assert (outcome.kind, outcome.version) == ("already_committed", world.keys["key 7"])
    other = msgspec.structs.replace(change(open_head(world.store), "d", key="key 7"), declared="other")
    assert run(world.own, other).kind == "key_reused"


@pytest.fixture
def tiny(set_budgets: SetBudgets) -> None:
    set_budgets(inline_entry_bytes=600, inline_keys=2, inline_jobs=2, inline_removed_bytes=4, fan_in=2)


@pytest.mark.thorough
@pytest.mark.usefixtures("tiny")
def test_a_race_lost_in_the_middle_of_spills_and_merges_loses_nothing() -> None:
    """What was merged for the lost attempt must not hide what the winner removed. [CM12] [OB9]"""
    world = World(memory())
    for number in range(20):
        world.commit(f"d{number % 4}", f"e{number}")
    for number in range(12):
        scope = ({1: f"d{number % 4}"},) if number % 2 else ({1: f"e{number}"},)
        slow = session(before_create(world.store, partial(world.commit, f"w{number}", scope=scope)))
        made = change(slow.open(), f"d{number % 4}", "loser")
        outcome = run(slow, made)
        assert outcome.kind == "committed" and outcome.attempts == 2 and outcome.version is not None
        world.live = world.live | {entry.path: str(entry.partition[0]) for entry in made.add}
        world.states[outcome.version], world.jobs[made.job] = world.live, outcome.version
        world.own.open()
        world.check(open_head(world.store))


@pytest.mark.usefixtures("tiny")
def test_a_merge_that_was_made_for_a_lost_attempt_does_not_keep_the_version_that_was_lost(set_budgets: SetBudgets) -> None:
    """The same manifests are merged again, and the job's own one is added by a later version now: streams go by that. [CM12] [OB6]"""
    set_budgets(inline_entry_bytes=0, fan_in=1000)
    world = World(memory())
    world.commit("d0")
    merged = 0

    def beat(call: FaultCall) -> None:
        nonlocal merged
        merged += call.kind == "put_if_absent" and call.name.startswith(object_names.MANIFESTS)
        if call.kind == "put_if_absent" and call.name == object_names.version_name(3) and open_head(world.store).version == 2:
            world.commit()  # lists nothing new

    slow = session(FaultStore(world.store, on_call=beat))
    made = change(slow.open(), "loser")
    with budgets(fan_in=2):
        outcome = run(slow, made)
    assert (outcome.kind, outcome.attempts, outcome.version) == ("committed", 2, 4) and merged == 4
    world.live = world.live | {entry.path: str(entry.partition[0]) for entry in made.add}
    world.states[4], world.jobs[made.job] = world.live, 4
    head = open_head(world.store)
    assert len(head.snapshot.manifests) == 1, "merged"
    world.check(head)


# --- what it costs ---------------------------------------------------------------------------------------------------------
def test_a_job_with_very_many_files_keeps_them_out_of_the_head(store: MemoryStore) -> None:
    """[CM12] [IV10]"""
    own = table(store)
    made = change(own.open(), *(f"{number:05}" for number in range(5000)))
    assert run(own, made).committed
    snapshot = open_head(store).snapshot
    assert snapshot.added == () and snapshot.totals.files == 5000 and sum(ref.files for ref in snapshot.manifests) == 5000
    assert sorted(planning.entries_table(own, snapshot).column("path").to_pylist()) == sorted(entry.path for entry in made.add)
    assert len(store.get(object_names.version_name(2))) < 200_000


def test_an_overwrite_opens_the_manifests_that_may_hold_its_partitions_and_no_other(set_budgets: SetBudgets) -> None:
    """[CM12] [RD6]"""
    set_budgets(inline_entry_bytes=0, fan_in=1000)
    world = World(memory())
    for number in range(20):
        world.commit(f"{number:02}")
    counting = CountingStore(world.store)
    own = session(counting)
    made = change(own.open(), "07", overwrite=Overwrite(scope=({1: "07"},), conflict="blind"))
    counting.reset()
    assert run(own, made).committed
    assert counting.requests(under=object_names.MANIFESTS)["get"] == 1
    assert open_head(world.store).snapshot.totals.files == 20


def test_each_file_of_a_manifest_is_removed_once_and_never_listed_twice(set_budgets: SetBudgets) -> None:
    """The first and the last one, too: a manifest's bounds are of its paths. [OB6] [CF7] [CF10]"""
    set_budgets(inline_entry_bytes=0, fan_in=99)
    store = memory()
    own = table(store)
    for days in ("ab", "cde"):
        assert run(own, change(open_head(store), *days)).committed
    listed = planning.entries_table(own, open_head(store).snapshot).to_pylist()
    assert [ref.files for ref in open_head(store).snapshot.manifests] == [2, 3]
    for each in listed:
        head = open_head(store)
        again = change(head)
        entry = Entry(path=each["path"], partition=(each["path"][4],), rows=1, bytes=10, job=again.job)
        outcome = run(own, msgspec.structs.replace(again, add=(entry,)), head)
        assert outcome.conflict is not None and outcome.conflict.rule == "path_is_live"
        going = msgspec.structs.replace(change(head), operation="delete", remove=frozenset({each["path"]}))
        assert run(own, going, head).committed
    assert open_head(store).snapshot.totals.files == 0

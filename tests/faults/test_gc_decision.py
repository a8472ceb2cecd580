"""What a gc decides from, value by value: ages, prepared jobs, keys, runs, condemned names. [GC1] [GC3] [GC6] [GC8] [KY4] [AB5]"""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pyarrow as pa
import pytest
from tests.kit.clocks import CLOCKS, HOUR, StoreClock, chain
from tests.kit.tables import job_on, job_with, memory, put_version, rollback, rows, session, write, write_each

from manifestcommit.commits.two_phase import commit_prepared
from manifestcommit.errors import OutcomeUnknownError, SnapshotExpiredError, StoreError, UsageError
from manifestcommit.format import codec, object_names
from manifestcommit.format.snapshot import KeyRecord, RunRef, Snapshot, Tag
from manifestcommit.log.manifests import JOB_RUN, KEY_RUN, put_run
from manifestcommit.log.version_chain import Head, open_head
from manifestcommit.operations import gc
from manifestcommit.operations.adopt import UNFINISHED
from manifestcommit.operations.gc import run
from manifestcommit.protocol.retention import Policy, horizon_of
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.store import ObjectInfo, Store
from manifestcommit.testing.faults import FaultCall, FaultStore

SECOND = 1_700_000_000  # a whole number, so that no time is rounded
NOW_US = SECOND * 10**6
ALL = Policy(grace_s=0.0, keep_for_s=0.0, keep_versions=1)


def table(versions: int = 5) -> Store:
    """Versions 1 to so many, each after the first with a row of its number."""
    store = memory()
    for number in range(2, versions + 1):
        write(store, rows([number]), key=f"k {number} é%")
    return store


@pytest.fixture
def store() -> Store:
    return table()


def decide(store: Store, *, writing: bool = True, foreign: bool = False, policy: Policy = ALL, lists: bool = False) -> Any:
    each = session(calls := FaultStore(store))
    change = gc._change(gc.GcTask(each, policy, 4e9, foreign), each.open(), writing=writing)
    assert any(call.kind == "list" and not call.name for call in calls.calls) == lists, "whether everything was listed"
    return change


def condemned(infos: list[ObjectInfo], pending: frozenset[str] = frozenset(), *, foreign: bool = True) -> tuple[Any, Any, int]:
    """What gc makes of a store of these objects, of which versions list "listed.csv"; and how often it lists them."""
    listed, reach = Mock(side_effect=lambda prefix: iter(infos)), gc.ReachableObjects()
    each: Any = SimpleNamespace(store=SimpleNamespace(list=listed), tuning=session(memory()).tuning)
    reach.objects.add("listed.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda *given: reach)
        task = gc.GcTask(each, Policy(grace_s=100.0), 200.0, foreign)
        chosen, gone = gc._foreign(task, horizon_of(open_head(table()).snapshot), pending)
    return chosen, gone, listed.call_count


# --- whether it changes anything ------------------------------------------------------------------------------------------
RUN = RunRef(path="r", rows=1, bytes=1, digest="d", first="a", last="b")
CHANGES: dict[str, Any] = {
    "fence": 3, "expired": 2, "tags": {"t é": Tag(version=1)}, "keys": {"k": KeyRecord(version=1, digest="d")}, "key_runs": (RUN,),
    "job_runs": (RUN,), "condemned": {"x/é%.csv": None}, "recent_jobs": {"mine": 6},
}  # fmt: skip


@pytest.mark.parametrize("member", [None, *CHANGES])
def test_a_decision_is_committed_where_it_changes_anything_that_gc_decides(member: str | None) -> None:
    """[GC3]"""
    before = open_head(table()).snapshot
    after = msgspec.structs.replace(before, recent_jobs={**before.recent_jobs, "mine": 6})
    if member is not None:
        after = msgspec.structs.replace(after, **{member: CHANGES[member]})
    assert gc._changes_nothing(before, after, "mine") == (member is None)


def test_a_head_that_expired_while_it_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two other gcs went by. [GC3]"""
    store, original, seen = table(), gc._change, []

    def expired_once(*given: Any, **named: Any) -> Any:
        seen.append(given)
        if len(seen) == 1:
            raise SnapshotExpiredError("two other gcs went by")
        return original(*given, **named)

    monkeypatch.setattr(gc, "_change", expired_once)
    assert run(session(store), ALL).fence == 5 and len(seen) == 2


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_decision_of_unknown_outcome_is_told_unless_others_went_beyond_it(monkeypatch: pytest.MonkeyPatch, beyond: int) -> None:
    """A fence at the version that it was decided on is not beyond it. [GC3] [CM6]"""
    store, original, seen = table(), gc.commit, []

    def unknown_once(each: Any, head: Head, change: Any) -> Outcome:
        seen.append(change)
        if len(seen) > 1:
            return original(each, head, change)
        put_version(store, head, fence=head.version + beyond)
        return Outcome(kind="unknown", job_id=change.job, reason="no answer")

    monkeypatch.setattr(gc, "commit", unknown_once)
    if beyond:
        assert run(session(store), ALL).fence == 6
    else:
        with pytest.raises(OutcomeUnknownError):
            run(session(store), ALL)


# --- ages -----------------------------------------------------------------------------------------------------------------
def test_the_time_of_a_store_that_tells_none_and_takes_no_hint(store: Store) -> None:
    """Of the newest version, which is never too late: by itself where the store does not say. [GC1]"""
    head = open_head(store)
    modified = next(info.modified for info in store.list(object_names.version_name(head.version)))

    def full(call: FaultCall) -> None:
        if call.kind == "put":
            raise StoreError("no space left")

    said = {}
    for name in ("right", "silent"):
        each = session(FaultStore(StoreClock(store, CLOCKS[name]), on_call=full))
        said[name] = gc.store_time(each, head, writing=True)
    assert said == {"right": modified, "silent": head.snapshot.committed_at / 1e6}


@pytest.mark.parametrize("expired", [1, 3])
@pytest.mark.parametrize("told", ["none", "some"])
def test_the_version_at_a_moment_by_the_times_that_versions_say(expired: int, told: str) -> None:
    """Version n + 2 is of hour n, at the very moment too; 0 where no readable one is so old. [GC1]"""
    store = chain(memory(), [NOW_US + hour * HOUR for hour in range(5)])
    each, head = session(store), open_head(store)
    head = msgspec.structs.replace(head, snapshot=msgspec.structs.replace(head.snapshot, expired=expired))
    times = [(version, 1.0 if told == "some" and version % 2 else 0.0) for version in range(expired, head.version + 1)]
    now_s = SECOND + 10 * 3600.0
    task = gc.GcTask(each, ALL, now_s)
    found = {hour: gc._created_by(task, head, times, (10 - hour) * 3600.0) for hour in range(-1, 6)}
    assert found == {-1: 0, 0: 2 if expired == 1 else 0, 1: 3, 2: 4, 3: 5, 4: 6, 5: 6}
    assert gc._created_by(task, head, times, 9 * 3600.0 + 1) == (2 if expired == 1 else 0)


def test_a_version_that_says_a_time_to_come_goes_by_its_writers_clock() -> None:
    """[CM27] [GC1]"""
    snapshot = open_head(table()).snapshot
    said = [
        gc._said_us(msgspec.structs.replace(snapshot, committed_at=NOW_US + late, clock=clock), float(SECOND))
        for late, clock in ((1, 7), (0, 7), (-1, 7), (1, None))
    ]
    assert said == [7, NOW_US, NOW_US - 1, NOW_US + 1]


# --- prepared jobs --------------------------------------------------------------------------------------------------------
def prepared(store: Store, row: int) -> str:
    return job_with(store, rows([row])).prepare()


def test_prepared_jobs_count_by_age_birth_and_decision() -> None:
    """Less than so old, born in [fence, below), undecided, and of this table. [AB5]"""
    store = table(2)
    jobs = []
    for number in range(3):
        jobs.append(prepared(store, 50 + number))
        write(store, rows([number]))
    each, head = session(store), open_head(store)
    at = {job: next(info.modified for info in store.list(object_names.prepared_name(job))) for job in jobs}

    def young(since_s: float = 0.0, *, fence: int = 1, below: int = 99) -> list[int]:
        there = msgspec.structs.replace(head, snapshot=msgspec.structs.replace(head.snapshot, fence=fence))
        return sorted(gc._young_prepared(each, there, since_s, below=below))

    assert [object_names.parse_job_id(job).birth for job in jobs] == [2, 3, 4]
    assert young() == [2, 3, 4]
    assert [young(fence=fence) for fence in (2, 3, 5)] == [[2, 3, 4], [3, 4], []]
    assert [young(below=below) for below in (2, 3, 5)] == [[], [2], [2, 3, 4]]
    assert young(at[jobs[2]]) == [], "as old as the grace period is not younger than that"
    assert young(at[jobs[2]] - 1e-3)[-1:] == [4]
    stranger = object_names.job_id(3, "f" * 16, b"r" * 16)
    for name in (
        object_names.prepared_name(stranger),
        f"{object_names.JOBS}no job é/prepared.json.zst",
        object_names.key_mark_name(jobs[0], "k"),
    ):
        store.put(name, b"?")
    assert young() == [2, 3, 4]
    store.put(object_names.prepared_name(jobs[1]), b"?")
    assert young() == [2, 3, 4], "one that cannot be read may be needed from its birth on"
    assert commit_prepared(each, jobs[0]).committed
    head = open_head(store)
    assert young() == [3, 4]


def test_a_prepared_job_that_is_based_on_a_version_below_the_fence_holds_nothing() -> None:
    """It can never commit, though it was born above. [AB5] [CF17]"""
    store = table(3)
    for _ in range(2):
        put_version(store, open_head(store))
    job = job_on(session(store), key=None, fingerprint=None, based_on=3)
    job.overwrite(None)
    job.write(rows([50]))
    job.prepare()
    each, head = session(store), open_head(store)
    found = [
        gc._young_prepared(each, msgspec.structs.replace(head, snapshot=msgspec.structs.replace(head.snapshot, fence=fence)), 0.0, below=9)
        for fence in (3, 4)
    ]
    assert found == [[3], []]


def test_prepared_jobs_below_the_fence_cost_no_request(store: Store) -> None:
    """[AB5]"""
    prepared(store, 50)
    head = put_version(store, open_head(store), fence=6)
    calls = FaultStore(store)
    assert gc._young_prepared(session(calls), head, 0.0, below=99) == [] and [call.kind for call in calls.calls] == ["list"]


def test_a_prepared_job_of_a_later_release_holds_the_fence_at_its_birth(store: Store) -> None:
    """[AB5] [CP2]"""
    job = prepared(store, 50)
    name = object_names.prepared_name(job)
    raw = codec.decompress(store.get(name), name=name)
    store.put(name, codec.compress(raw.replace(b'"format_version":1', b'"format_version":99')))
    assert gc._young_prepared(session(store), open_head(store), 0.0, below=99) == [5]


def test_a_prepared_job_says_its_time_where_the_store_does_not(store: Store) -> None:
    """[AB5]"""
    job = prepared(store, 50)
    each = session(store)
    made = codec.decode_prepared(store.get(object_names.prepared_name(job)), name=object_names.prepared_name(job))
    info = ObjectInfo(name=object_names.prepared_name(job), size_bytes=1, modified=0.0)
    assert gc._prepared_at(each, job, info) == made.prepared_at / 1e6
    assert gc._prepared_at(each, job, msgspec.structs.replace(info, modified=7.0)) == 7.0


# --- keys and records -----------------------------------------------------------------------------------------------------
def runs_of(**tables: list[tuple[str, int, str]]) -> Any:
    """A session that holds these runs of keys, and counts who reads them."""
    made = {name: pa.table([list(column) for column in zip(*records, strict=True)], schema=KEY_RUN) for name, records in tables.items()}
    read: list[str] = []

    def one(ref: RunRef, kind: pa.Schema) -> pa.Table:
        read.append(ref.path)
        return made[ref.path]

    refs = tuple(RunRef(path=name, rows=len(each), bytes=1, digest="d", first="a", last="z") for name, each in made.items())
    return SimpleNamespace(manifests=SimpleNamespace(run=one), refs=refs, read=read)


def test_the_keys_that_are_kept_are_counted_by_their_newest_records() -> None:
    """In the head and in runs, in whatever order; the runs are read only where there may be too many. [KY4]"""
    each = runs_of(one=[("a", 9, "x"), ("b", 3, "x"), ("c", 1, "x")], two=[("a", 2, "x"), ("b", 7, "x"), ("d", 8, "")])
    keys = {"c": KeyRecord(version=5, digest="x"), "e": KeyRecord(version=6, digest="x")}
    snapshot: Snapshot = msgspec.structs.replace(open_head(table()).snapshot, keys=keys, key_runs=each.refs)
    assert gc._keys_from(each, snapshot, 8) == 0 and each.read == []
    assert [gc._keys_from(each, snapshot, keep) for keep in (6, 4, 3, 2, 1, 0)] == [0, 0, 6, 7, 9, 10], "a 9, b 7, e 6, c 5"
    each.read.clear()
    assert gc._keys_from(each, msgspec.structs.replace(snapshot, keys={}), 6) == 0 and each.read == []
    assert gc._keys_from(each, msgspec.structs.replace(snapshot, key_runs=()), 1) == 6


@pytest.mark.parametrize("fence", range(3, 9))
def test_a_rollback_above_the_fence_is_found_at_either_end(fence: int, store: Store) -> None:
    """Version 6 is one. [KY4] [CF13]"""
    assert rollback(session(store), 4, reason="x").version == 6
    assert gc._is_rolled_back_above(session(store), open_head(store), fence) == (fence < 6)
    write(store, rows([7]))
    assert gc._is_rolled_back_above(session(store), open_head(store), fence) == (fence < 6)


def test_runs_are_rewritten_where_they_hold_what_is_forgotten_and_only_there(store: Store) -> None:
    """Into one, with each key once; into none where nothing is left. [KY4] [GC8] [OB11]"""
    each, head = session(store), open_head(store)

    def put(kind: pa.Schema, *records: tuple[str, int, str]) -> RunRef:
        columns = dict(zip(kind.names, (pa.array(list(column)) for column in zip(*records, strict=True)), strict=False))
        return put_run(store, columns, job=each.new_job(head), env=each.env)

    def rewritten(runs: tuple[RunRef, ...], version: int) -> Any:
        return gc._rewritten(each, runs, KEY_RUN, lambda run: pa.array([at >= version for at in run[1].to_pylist()]), each.new_job(head))

    old, mixed = put(KEY_RUN, ("a", 1, "x"), ("b", 5, "x")), put(KEY_RUN, ("b", 2, "x"), ("b c", 6, "x"), ("b", 7, "y"))
    whole = put(KEY_RUN, ("d", 9, "x"))
    assert rewritten((old, mixed, whole), 1) is None
    made = rewritten((old, mixed, whole), 3)
    assert made.old == {old.path, mixed.path}
    (new,) = made.new
    assert each.manifests.run(new, KEY_RUN).to_pylist() == [
        {"key": "b", "version": 7, "digest": "y"}, {"key": "b c", "version": 6, "digest": "x"},
    ]  # fmt: skip
    nothing = rewritten((old, mixed), 8)
    assert (nothing.old, nothing.new) == ({old.path, mixed.path}, ())
    jobs = put_run(store, {"job": pa.array(["x", "y"]), "version": pa.array([1, None], pa.int64())}, job=each.new_job(head), env=each.env)
    found = gc._rewritten(each, (jobs,), JOB_RUN, lambda one: pa.array([False, True]), each.new_job(head))
    assert found is not None and each.manifests.run(found.new[0], JOB_RUN).to_pylist() == [{"job": "y", "version": None}]


@pytest.mark.usefixtures("tight")
def test_a_plan_puts_no_run_and_a_gc_that_forgets_no_key_reads_none() -> None:
    """[GC5] [KY4]"""
    store = table(30)
    run(session(store), Policy(grace_s=0.0, keep_for_s=0.0, keep_versions=1))
    write_each(store, range(100, 103))
    head = open_head(store).snapshot
    assert head.key_runs and head.job_runs
    for writing, keep in ((False, 2), (False, 10_000), (True, 10_000)):
        calls = FaultStore(store)
        change = decide(calls, writing=writing, policy=msgspec.structs.replace(ALL, keep_keys=keep))
        if not writing:
            assert change.job_runs is None and not [call for call in calls.calls if call.kind.startswith("put")]
        if keep == 10_000:
            assert change.key_runs is None
            assert not {call.name for call in calls.calls} & {ref.path for ref in head.key_runs}
    assert decide(store).job_runs is not None


@pytest.mark.usefixtures("tight")
def test_a_job_leaves_the_runs_by_the_fence_that_the_head_had() -> None:
    """Not by the one that is being decided. [GC8]"""
    store = table(30)
    change = decide(store)
    assert change.fence == 30 and open_head(store).snapshot.fence == 1
    assert change.job_runs is None, "no job was born below fence 1"


# --- foreign files --------------------------------------------------------------------------------------------------------
def test_names_that_were_seen_to_be_gone_are_not_looked_for(store: Store) -> None:
    """[GC6]"""
    put_version(store, open_head(store), condemned={"x/é%.csv": 5})
    assert decide(store).gone == frozenset()
    head = open_head(store)
    put_version(store, head, condemned={"x/é%.csv": 5, "y": None})
    assert decide(store, lists=True).gone == {"y"}


def test_gc_without_foreign_does_not_wait_for_an_adoption(store: Store) -> None:
    """[GC6] [AF2]"""
    put_version(store, open_head(store), properties={UNFINISHED: "1"})
    assert decide(store).fence == 6
    with pytest.raises(UsageError, match="finish it with `adopt` first"):
        decide(store, foreign=True)


@pytest.mark.parametrize("modified", [100.0, 99.0, 100.5, 0.0, -1.0])
def test_an_object_is_condemned_by_its_age_by_the_stores_clock(modified: float) -> None:
    """Older than that for sure, or as old. [GC6]"""
    found, _, _ = condemned([ObjectInfo(name="x/é 1%.csv", size_bytes=1, modified=modified)])
    assert found == ({"x/é 1%.csv"} if modified in (99.0, 100.0) else set())


def test_an_object_is_condemned_only_where_all_is_known_of_it() -> None:
    """Not in another table, not what a later release may know, not what versions list. [GC6]"""
    names = ("inner/é.csv", "inner2/é.csv", "_manifest/of a later release", "listed.csv", f"inner/{object_names.version_name(1)}")
    found, _, _ = condemned([ObjectInfo(name=name, size_bytes=1, modified=50.0) for name in names])
    assert found == {"inner2/é.csv"}


def test_a_key_that_a_young_version_recorded_is_not_forgotten() -> None:
    """Not even where no key is to be kept: the fence has not passed it. [KY4]"""
    change = decide(table(), policy=Policy(keep_keys=0, grace_s=4e9))
    assert change.keys_from == change.fence == 1

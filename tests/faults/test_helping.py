"""Writers that carry each other: each job once, whoever dies, stalls, races, gives up or lies beside it. [CM19]-[CM22] [CM24]"""

import random
import secrets
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kit.faults import (
    FAULTS,
    carried,
    carry,
    intents,
    is_create,
    is_publishing,
    losing,
    publish,
    put_intent,
    resolve,
    rival,
    state_of,
)
from tests.kit.sizes import SetBudgets
from tests.kit.tables import (
    all_snapshots,
    begin,
    change_of,
    check_head,
    check_table,
    clone,
    in_chain,
    job_on,
    key_version,
    memory,
    positions,
    put_version,
    read_ids,
    rewind,
    rollback,
    rows,
    session,
    write,
)

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.commits.commit_loop import commit
from manifestcommit.commits.two_phase import commit_prepared, give_up, list_jobs, resolve_job
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Advance
from manifestcommit.format.evolution import drop_column
from manifestcommit.format.fields import mark_of
from manifestcommit.job import Job
from manifestcommit.log.version_chain import MAX_INTENTS, open_head, read_object
from manifestcommit.operations import gc as gc_engine
from manifestcommit.operations.alter import edit_schema
from manifestcommit.operations.describe import trace
from manifestcommit.operations.verify import verify
from manifestcommit.protocol.commit_group import MAX_CARRIED, MAX_CARRIED_BYTES
from manifestcommit.protocol.retention import Policy
from manifestcommit.runtime.environment import Limits
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.scan.change_feed import Feed
from manifestcommit.store import Store, open_store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore, Died, Fault, FaultCall, FaultStore

KEY = "a key: 100% 'ü'+=#"
SOURCE = "topic:0 %"


def table() -> MemoryStore:
    """Version 2 has the rows 1 and 2; a source stands at 5."""
    store = memory()
    write(store, rows([1, 2]), key="before", watermarks={SOURCE: (0, 5)})
    return store


@pytest.fixture
def store() -> MemoryStore:
    return table()


def mine(store: Store) -> list[int]:
    """The ids of all rows but those of rivals."""
    return [each for each in read_ids(store) if each < 1_000_000]


# --- who publishes, and what that costs ---------------------------------------------------------------------------------
def test_a_writer_whom_nobody_is_in_the_way_pays_nothing_for_helping() -> None:
    """The same requests, also where intents of the long dead lie about that nobody could carry. [CM11] [CM19] [CM20]"""
    for dead in (0, 3):
        store = table()
        for number in range(dead):
            publish(store, 10 + number, key=KEY)
        if dead:
            write(store, rows([9]), key=KEY)  # none of them applies any more
            while open_head(store).version - object_names.parse_job_id(intents(store)[-1]).birth <= 8:
                rival(store)
        counting = CountingStore(store)
        own = session(counting)
        change = change_of(_written(store, 20))
        head = own.open()
        counting.reset()
        assert commit(own, head, change).committed
        assert counting.requests() == {"put_if_absent": 1, "list": 1, "put": 1}
        assert len(intents(store)) == dead and mine(store)[-1] == 20


def test_who_opens_while_others_wait_asks_before_it_is_in_their_way(store: MemoryStore) -> None:
    """It lets those before it go first; where they are dead it carries them, and takes away what nobody needs. [CM19] [CM20] [CM22]"""
    waiting = [publish(store, 10 + number) for number in range(3)]
    rival(store)
    calls = FaultStore(store)
    outcome = write(calls, rows([20]))
    kinds = [call.kind for call in calls.calls if call.name.startswith(object_names.VERSIONS)]
    opened = kinds.index("put_if_absent")
    assert kinds[opened:] == ["put_if_absent", *["list"] * 6, *["get"] * 3, "put_if_absent", "list", *["delete"] * 4]
    assert outcome.attempts == 1 and set(carried(store, outcome.version or 0)) == {*waiting, outcome.job_id}
    assert intents(store) == [] and mine(store) == [1, 2, 10, 11, 12, 20]


@pytest.mark.parametrize("spilled", [False, True])
def test_who_asked_before_any_create_and_was_carried_creates_nothing(set_budgets: SetBudgets, spilled: bool) -> None:
    """Also where its job has left the head's own record by then: it would be in the table twice. [CM1] [CM19] [CM20]"""
    if spilled:
        set_budgets(inline_jobs=0)
    store = table()
    publish(store, 10)
    told = list[Outcome]()

    def others(call: FaultCall) -> None:
        if call.kind == "list" and len(intents(store)) == 2 and not told:
            told.append(carry(store, 30))
            rival(store)
            rival(store)

    calls = FaultStore(store, on_call=others)
    outcome = write(calls, rows([20]))
    assert open_head(store).snapshot.recent_jobs.get(outcome.job_id) == (None if spilled else outcome.version)
    assert (outcome.kind, outcome.version, outcome.attempts) == ("committed", told[0].version, 0)
    assert not any(is_create(call) for call in calls.calls) and mine(store) == [1, 2, 10, 20, 30]
    taken = [call.name for call in calls.calls if call.kind == "delete"]
    assert taken == [] and intents(store) == [], "its carrier has taken it away"
    check_table(store)


@pytest.mark.parametrize("other", [False, True])
def test_who_waits_while_the_table_is_removed_leaves_no_version_behind(other: bool, store: MemoryStore) -> None:
    """It would stand there alone, or in front of the table that was made there meanwhile, whose rows nobody would see. [CM5] [CM20]"""
    publish(store, 10)

    def remove(call: FaultCall) -> None:
        if call.kind == "list" and any(map(is_publishing, calls.calls)) and len(intents(store)) == 2:
            store.delete([info.name for info in store.list("")])
            if other:
                write(store, rows([7]))

    calls = FaultStore(store, on_call=remove)
    with pytest.raises(mc.errors.TableNotFoundError, match="was removed"):
        write(calls, rows([20]))
    assert not any(map(is_create, calls.calls)) and read_ids(store) == ([7] if other else [])


@pytest.mark.thorough
def test_who_is_not_seen_behind_too_many_intents_takes_its_own_away(store: MemoryStore) -> None:
    """One list shows a number of them at most; with each writer there would be one more that nobody takes away but gc. [CM22]"""
    left = [object_names.job_id(1, open_head(store).snapshot.table_id, number.to_bytes(16, "big")) for number in range(MAX_INTENTS)]
    for job in left:
        store.put(object_names.intent_name(job), b"cut off")
    outcome = write(losing(store, 2), rows([20]))
    assert outcome.committed and outcome.attempts == 3 and intents(store) == left


def test_what_can_be_no_intent_makes_nobody_ask(store: MemoryStore) -> None:
    """Empty, or larger than anyone reads: for many versions every writer would publish its change, and be carried by nobody. [CM19]"""
    head = open_head(store)
    for size in (0, codec.MAX_INTENT_BYTES + 1):
        job = object_names.job_id(head.version, head.snapshot.table_id, secrets.token_bytes(16))
        store.put(object_names.intent_name(job), b"x" * size)
    calls = losing(store, 1)
    assert write(calls, rows([20])).attempts == 2
    assert not any(map(is_publishing, calls.calls)) and len(intents(store)) == 2


def test_who_loses_once_asks_nobody_and_who_loses_twice_asks_once() -> None:
    """One put, and one delete at the end; the requests of a commit that loses are otherwise what they were. [CM19] [CM22]"""
    for lost, published in ((1, 0), (2, 1), (5, 1)):
        store = table()
        calls = losing(store, lost)
        assert write(calls, rows([10])).attempts == lost + 1
        kinds = [call.kind for call in calls.calls if call.name.startswith(object_names.INTENTS)]
        assert kinds == ["put_if_absent", "delete"] * published
        assert intents(store) == [] and mine(store) == [1, 2, 10]
        looks = [call for call in calls.calls if call.kind in ("list", "get") and call.name.startswith(object_names.VERSIONS)]
        assert len(looks) == 2 + 2 * lost + 1, (
            "opening; after each loss the winner, and a list that shows none above it; the list at the end"
        )


@pytest.mark.thorough
def test_the_dead_hold_nobody_up_for_long(store: MemoryStore) -> None:
    """Who has asked lets those go first who were born before it: some turns, before each create, and no more. [CM19] [CM20]"""
    dead = [publish(store, 10 + number, key=KEY) for number in range(12)]
    write(store, rows([9]), key=KEY)  # none of them applies any more
    calls = losing(store, 1)
    assert write(calls, rows([20])).attempts == 2 and mine(store)[-1] == 20 and sorted(intents(store)) == sorted(dead)
    eight = ["list"] * 8  # looks at a head that stays
    names = [(call.kind, call.name) for call in calls.calls]
    asked = next(index for index, (kind, name) in enumerate(names) if kind == "put_if_absent" and name.startswith(object_names.INTENTS))
    after = [
        kind for kind, name in names[asked + 1 :] if name.startswith(object_names.VERSIONS) and not name.startswith(object_names.INTENTS)
    ]
    assert after == [*eight, "put_if_absent", "get", "list", *eight, "put_if_absent", "list"], "its own creates between"


def _written(store: Store, *ids: int, key: str | None = None, advance: tuple[int, int] | None = None, **more: tuple[Any, Any]) -> Any:
    job = begin(store, key)
    for source, each in {**({SOURCE: advance} if advance else {}), **more}.items():
        job.advance(source, *each)
    job.write(rows(ids))
    return job


def wait(store: Store, *ids: int, **options: Any) -> str:
    """A job whose intent is there, as if it had been published when there was no gap yet; the next one is born after it."""
    job = put_intent(store, change_of(_written(store, *ids, **options)))
    rival(store)
    return job


@pytest.mark.thorough
def test_only_appends_whose_own_process_alone_can_finish_them_are_published(tmp_path: Path) -> None:
    """Overwrites, new columns, prepared and recoverable jobs go on alone. [CM19]"""

    def tried(store: Store, run: Any) -> list[FaultCall]:
        calls = losing(store, 4)
        run(calls)
        return [call for call in calls.calls if is_publishing(call)]

    def recoverable(store: Store) -> None:
        with job_on(session(store), key=KEY, fingerprint="f", recoverable=True) as job:
            job.write(rows([10]))

    def prepared(store: Store) -> None:
        assert commit_prepared(session(store), _written(store, 10).prepare()).committed

    def adding(store: Store) -> None:
        write(store, rows([10], more="x"), merge_schema=True)

    def overwriting(store: Store) -> None:
        write(store, rows([10]), overwrite=None, conflict="blind")

    def foreign(store: Store) -> None:
        data = next(info.name for info in store.list("") if info.name.endswith(".parquet") and "/" not in info.name)
        store.put("some file %.parquet", store.get(data))
        with begin(store) as job:
            job.add_files(["some file %.parquet"])

    for run in (recoverable, prepared, adding, overwriting, foreign):
        assert tried(table(), run) == [], run
    assert len(tried(table(), lambda store: write(store, rows([10]), key=KEY, watermarks={SOURCE: (5, 6)}))) == 1


# --- being carried ------------------------------------------------------------------------------------------------------
def test_who_asks_for_a_job_while_it_is_carried_is_not_told_that_it_never_committed(store: MemoryStore) -> None:
    """Its intent is gone by the second look, as its carrier takes it away: a rerun would double its rows. [CM22] [CM23]"""
    job = publish(store, 10)
    told = list[Outcome]()

    def others(call: FaultCall) -> None:
        if call.name.startswith(object_names.INTENTS) and not told:
            told.append(carry(store, 30))

    found = resolve_job(session(FaultStore(store, on_call=others)), job)
    assert intents(store) == [] and mine(store) == [1, 2, 10, 30]
    assert (str(found), found.version) == ("committed", told[0].version)


def test_whoever_wins_next_carries_what_was_published(store: MemoryStore) -> None:
    """Rows, key and watermark of a process that died are in the version of another writer, once, and everyone is told so. [CM20] [CM24]"""
    job = publish(store, 10, 11, key=KEY, watermarks={SOURCE: (5, 9)})
    assert resolve(store, job) == ("pending", None) and mine(store) == [1, 2]
    outcome = carry(store, 20, key="carrier")
    assert outcome.version is not None and carried(store, outcome.version) == [job, outcome.job_id]
    assert resolve(store, job) == ("committed", outcome.version) == resolve(store, outcome.job_id)
    assert mine(store) == [1, 2, 10, 11, 20] and positions(store) == {SOURCE: 9}
    assert key_version(store, KEY) == key_version(store, "carrier") == outcome.version
    assert write(store, rows([10, 11]), key=KEY, watermarks={SOURCE: (5, 9)}).already_committed
    carry(store, 21)
    assert in_chain(store, job) == [outcome.version], "once"
    check_table(store)


def test_an_intent_that_lands_long_after_its_job_was_carried_is_not_carried_again(set_budgets: SetBudgets) -> None:
    """The job has left the head's own record, and only a run knows it: its rows would be in the table twice. [CM20] [CM22]"""
    set_budgets(inline_jobs=0, inline_entry_bytes=0)  # nor does the head say which files are in the table
    store = table()
    job = publish(store, 10)
    late = store.get(object_names.intent_name(job))
    told = carry(store, 20)
    rival(store)
    assert job not in open_head(store).snapshot.recent_jobs and intents(store) == []
    assert store.put_if_absent(object_names.intent_name(job), late)  # a request that was on its way all the time
    assert carry(store, 30).committed
    assert mine(store) == [1, 2, 10, 20, 30] and in_chain(store, job) == [told.version]
    assert resolve(store, job) == ("committed", told.version)
    check_table(store)


def test_the_owner_finds_itself_in_the_head_and_creates_nothing_more() -> None:
    """It sleeps through being carried, and tells the version that carries it. [CM1] [CM20]"""
    store, told = table(), list[Outcome]()

    def others(call: FaultCall) -> None:
        if call.kind == "list" and intents(store) and not told:
            told.append(carry(store, 20))

    outcome = write(losing(store, 2, then=others), rows([10]), key=KEY)
    assert (outcome.kind, outcome.version, outcome.attempts) == ("committed", told[0].version, 2)
    assert outcome.metrics is not None and outcome.metrics.kind == "committed" and outcome.metrics.rows_committed == 1
    assert mine(store) == [1, 2, 10, 20] and intents(store) == [], "and it takes its intent away"
    check_table(store)


def test_the_version_that_is_told_is_the_recorded_one_not_one_that_was_brought_back(store: MemoryStore) -> None:
    """Its late create takes a name that gc had freed, while others had carried it elsewhere. [CM5] [IV8]"""
    change, base = change_of(_written(store, 10)), open_head(store)
    put_intent(store, change)
    rival(store)
    version = carry(store, 20).version
    assert version is not None and version > base.version + 1 and change.job in carried(store, version)
    head = put_version(store, open_head(store), fence=version, expired=version)
    store.delete([object_names.version_name(each) for each in range(1, version)])
    own = session(FaultStore(store))
    outcome = commit(own, base, change)
    assert read_object(store, base.version + 1) is not None, "it did create it"
    assert (outcome.kind, outcome.version) == ("committed", version)
    assert head.version == open_head(store).version and mine(store) == [1, 2, 10, 20]


def test_a_carrier_that_brings_a_deleted_version_back_commits_nobody(store: MemoryStore) -> None:
    """What it carried there is in no head, so it is still to be carried, or fenced, and told so. [CM5] [IV8]"""
    waiting, own = change_of(_written(store, 10)), _written(store, 20)
    put_intent(store, waiting)
    creates = 0

    def sleep(call: FaultCall) -> None:
        nonlocal creates
        creates += is_create(call)
        if is_create(call) and creates == 2:
            for _ in range(2):
                rival(store)
            head = open_head(store)
            put_version(store, head, fence=head.version, expired=head.version)
            store.delete([object_names.version_name(each) for each in range(1, head.version)])

    outcome = commit(session(losing(store, 1, then=sleep)), open_head(store), change_of(own))
    assert creates == 2 and not outcome.committed and state_of(store, waiting.job) is None
    back = [head for head in all_snapshots(store) if any(each.job == waiting.job for each in head.snapshot.commits)]
    assert [head.version < open_head(store).snapshot.expired for head in back] == [True], "it did create it, below what is readable"
    assert resolve(store, waiting.job) == ("forgotten", None) and 10 not in read_ids(store) and 20 not in read_ids(store)
    check_head(store)


@pytest.mark.thorough
def test_the_oldest_are_carried_first_and_never_more_than_the_bound(store: MemoryStore) -> None:
    """70 wait, of three births: 64 are in the first version, lowest births first, the rest in the next; each once. [CM20]"""
    waiting = []
    for birth in range(3):
        for number in range(25 if birth < 2 else 20):
            waiting.append(put_intent(store, change_of(_written(store, 100 + 25 * birth + number))))
        rival(store)
    first = carry(store, 20)
    assert first.version is not None
    born = [object_names.parse_job_id(job).birth for job in carried(store, first.version)]
    assert len(born) == MAX_CARRIED + 1 and born[:-1] == sorted(born[:-1]) and carried(store, first.version)[-1] == first.job_id
    second = carry(store, 21)
    assert second.version is not None and len(carried(store, second.version)) == 70 - MAX_CARRIED + 1
    assert sorted(mine(store)) == sorted([1, 2, 20, 21, *range(100, 170)]) and {len(in_chain(store, job)) for job in waiting} == {1}
    check_table(store)


@pytest.mark.thorough
def test_where_everything_spills_those_who_were_carried_are_found(set_budgets: SetBudgets) -> None:
    """Jobs, keys and entries in runs and manifests: nobody is carried twice, nobody is forgotten. [CM12] [CM20] [OB11]"""
    set_budgets(inline_entry_bytes=600, inline_keys=1, inline_jobs=1, fan_in=2)
    store = table()
    jobs = []
    for number in range(6):
        jobs.append(publish(store, 10 + number, key=f"{KEY} {number}" if number % 3 else None))
        if number % 2:
            version = carry(store, 30 + number).version
            assert version is not None
            snapshot = read_object(store, version)
            assert snapshot is not None and all(snapshot.snapshot.recent_jobs[job] == version for job in carried(store, version))
    assert all(session(store).manifests.job(open_head(store).snapshot, job)[1] == in_chain(store, job)[0] for job in jobs)
    assert open_head(store).snapshot.job_runs and open_head(store).snapshot.key_runs
    assert mine(store) == sorted([1, 2, *range(10, 16), 31, 33, 35])
    assert verify(session(store), deep=True).is_sound
    check_table(store)


# --- what must not be carried ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("spilled", [False, True])
def test_an_intent_whose_key_was_committed_is_not_carried(set_budgets: SetBudgets, spilled: bool) -> None:
    """The rerun of a process that died has done its work: its rows would be in the table twice. [CM20] [KY5]"""
    if spilled:
        set_budgets(inline_keys=0)
    store = table()
    job = publish(store, 10, key=KEY)
    assert write(store, rows([10]), key=KEY).kind == "committed"
    carry(store, 20)
    assert mine(store) == [1, 2, 10, 20] and state_of(store, job) is None
    check_table(store)


def test_who_helps_does_not_lose_by_it(store: MemoryStore) -> None:
    """What it could carry takes the range that it wants itself: it goes alone. [CM20]"""
    job = publish(store, 10, watermarks={SOURCE: (5, 9)})
    other = publish(store, 11)
    outcome = carry(store, 20, watermarks={SOURCE: (5, 8)})
    assert outcome.kind == "committed" and mine(store) == [1, 2, 20] and positions(store) == {SOURCE: 8}
    assert state_of(store, job) is state_of(store, other) is None
    carry(store, 21)
    assert mine(store) == [1, 2, 11, 20, 21], "the one that still holds is carried by the next"


def test_who_has_read_the_table_carries_nobody(store: MemoryStore) -> None:
    """It lost to a commit that changes no row; what waits writes where it has read, and alone it would be in its way. [CM20] [CF16]"""
    job = publish(store, 10)
    own = session(FaultStore(store, on_call=lambda call: tag() if is_create(call) and not tagged else None))
    tagged: list[int] = []

    def tag() -> None:
        tagged.append(open_head(store).version)
        mc.Table(store.url).tag("first", version=1)

    reading = Job(own)
    head, reading.appends_what_it_read = open_head(store), True
    reading.marks.append(mark_of(head.snapshot.table_id, store.url, head.version))
    reading.write(rows([20]))
    assert reading.commit().committed
    assert tagged and state_of(store, job) is None and mine(store) == [1, 2, 20]


def test_ranges_that_follow_each_other_are_carried_in_order_and_gaps_wait(store: MemoryStore) -> None:
    """[CM20] [CM24] [WM2]"""
    early = wait(store, 12, advance=(9, 12))
    jobs = [wait(store, 10, advance=(5, 7)), wait(store, 11, advance=(7, 9))]
    version = carry(store, 20).version
    assert version is not None and carried(store, version)[:-1] == jobs and positions(store) == {SOURCE: 9}
    assert state_of(store, early) is None and carry(store, 21).committed and positions(store) == {SOURCE: 12}
    assert mine(store) == [1, 2, 10, 11, 12, 20, 21]


def test_an_intent_below_the_fence_is_not_carried_and_its_owner_is_fenced() -> None:
    """gc deletes its files: a head that lists them would be damaged. [CM20] [CM2] [GC5] [IV7]"""
    store, slept = table(), False

    def sleep(call: FaultCall) -> None:
        nonlocal slept
        if call.kind == "list" and intents(store) and not slept:
            slept = True
            rival(store)
            put_version(store, open_head(store), fence=open_head(store).version)
            carry(store, 20)

    with pytest.raises(mc.errors.JobFencedError):
        write(losing(store, 2, then=sleep), rows([10]))
    assert slept and mine(store) == [1, 2, 20]
    check_table(store)
    job = publish(store, 11)
    rival(store)
    report = gc_engine.run(session(store), Policy(grace_s=0, keep_for_s=0))
    assert report.deleted["intent"].count == 1 and report.deleted["data file"].count >= 1 and intents(store) == []
    carry(store, 21)
    assert mine(store) == [1, 2, 20, 21] and resolve(store, job)[0] == "forgotten"
    check_head(store)


def test_gc_beside_helping_takes_only_what_the_fence_has_settled(store: MemoryStore) -> None:
    """[CM22] [GC5] [IV7]"""
    dead = publish(store, 10)
    for _ in range(2):
        rival(store)
    young, kept = publish(store, 11, key=KEY), open_head(store).version
    policy = Policy(grace_s=0, keep_for_s=0)
    assert object_names.intent_name(dead) in gc_engine.plan(session(store), policy)["name"].to_pylist()
    born = object_names.parse_job_id(young).birth
    put_version(store, open_head(store), fence=born, expired=born)
    gc_engine.run(session(store), msgspec.structs.replace(policy, grace_s=3600, keep_for_s=3600))
    assert intents(store) == [young] and kept >= born
    carry(store, 20)
    assert mine(store) == [1, 2, 11, 20] and key_version(store, KEY) is not None
    gc_engine.run(session(store), policy)
    gc_engine.run(session(store), policy)
    assert intents(store) == [] and mine(store) == [1, 2, 11, 20]
    check_head(store)


# --- conflicts and giving up --------------------------------------------------------------------------------------------
def overtaken(store: Store, *, then: Any = lambda: None) -> FaultStore:
    """A store for a writer of (5, 9): it publishes, and another takes its range before it looks again."""
    done = False

    def beat(call: FaultCall) -> None:
        nonlocal done
        if call.kind == "list" and intents(store) and not done:
            done = True
            write(store, rows([50]), watermarks={SOURCE: (5, 9)}, key="the other")
            then()

    return losing(store, 2, then=beat)


def test_a_conflict_is_told_only_once_a_head_holds_the_job_as_given_up(store: MemoryStore) -> None:
    """The other's range is rewound, so that the change would fit again: who was told of a failure is not committed later. [CM21]"""
    job = ""

    def note() -> None:
        nonlocal job
        (job,) = intents(store)

    with pytest.raises(mc.errors.WatermarkOverlapError):
        write(overtaken(store, then=note), rows([10]), watermarks={SOURCE: (5, 9)}, key=KEY)
    assert state_of(store, job) == "given up" and resolve(store, job) == ("aborted", None) and intents(store) == []
    rewind(session(store), SOURCE, 5, reason="to be read again")
    change = msgspec.structs.replace(change_of(_written(store, 10, key=KEY, advance=(5, 9))), job=job)
    born = object_names.parse_job_id(job).birth
    path = f"00000-0-{job}.parquet"
    entry = msgspec.structs.replace(change.add[0], job=job, path=path)
    store.put(path, store.get(change.add[0].path))
    put_intent(store, msgspec.structs.replace(change, birth=born, add=(entry,)))  # as a late request of its process would
    carry(store, 20)
    assert mine(store) == [1, 2, 20, 50] and positions(store) == {SOURCE: 5} and key_version(store, KEY) is None
    check_table(store)


@pytest.mark.parametrize("fault", FAULTS[:3])
def test_a_job_whose_publishing_got_no_answer_counts_as_published(fault: Fault) -> None:
    """The request may land at any time, so that a failure is told only once nobody can carry it. [CM19] [CM21]"""
    base = table()
    healthy = overtaken(clone(base))
    with pytest.raises(mc.errors.WatermarkOverlapError):
        write(healthy, rows([10]), watermarks={SOURCE: (5, 9)})
    (number,) = (call.number for call in healthy.calls if is_publishing(call))
    store, lost = clone(base), 0

    def beat(call: FaultCall) -> None:
        nonlocal lost
        if is_create(call) and lost < 2:
            lost += 1
            rival(store)
        if call.number == number + 1:
            write(store, rows([50]), watermarks={SOURCE: (5, 9)})

    with pytest.raises(mc.errors.WatermarkOverlapError):
        write(FaultStore(store, {number: fault}, on_call=beat), rows([10]), watermarks={SOURCE: (5, 9)})
    assert list(open_head(store).snapshot.recent_jobs.values()).count(None) == 1 and intents(store) == []


def test_giving_up_and_carrying_race_for_one_decision() -> None:
    """While the owner enters itself as given up, its column comes back and another carries it: it has committed, and says so. [CM21]"""
    store, dropped, won = memory(), list[int](), list[int | None]()
    before = write(store, rows([1, 2], more="x")).version

    def beat(call: FaultCall) -> None:
        if call.kind == "list" and intents(store) and not dropped:
            dropped.append(0)  # what follows makes calls of its own
            dropped[0] = edit_schema(session(store), lambda schema, _: drop_column(schema, "more")).version or 0
        elif is_create(call) and dropped and open_head(store).version == dropped[0]:
            assert rollback(session(store), before, reason="the column is needed").committed
            won.append(carry(store, 20).version)

    outcome = write(losing(store, 2, then=beat), rows([10], more="x"), key=KEY)
    assert (outcome.kind, outcome.version) == ("committed", won[0]) and mine(store) == [1, 2, 10, 20]
    assert key_version(store, KEY) == won[0] and None not in open_head(store).snapshot.recent_jobs.values()
    check_table(store)


def test_a_job_whose_key_another_committed_is_given_up_before_it_says_so() -> None:
    """Were the key dropped later, the intent would be carried as well, and the rerun's rows be there twice. [CM21] [KY3]"""
    store, done = table(), False

    def beat(call: FaultCall) -> None:
        nonlocal done
        if call.kind == "list" and intents(store) and not done:
            done = True
            write(store, rows([10]), key=KEY, watermarks={SOURCE: (5, 9)})

    outcome = write(losing(store, 2, then=beat), rows([10]), key=KEY, watermarks={SOURCE: (5, 9)})
    assert outcome.already_committed and state_of(store, outcome.job_id) == "given up"
    assert mine(store).count(10) == 1


def test_contention_is_told_once_the_job_is_given_up_and_is_unknown_where_it_cannot_be(store: MemoryStore) -> None:
    """[CM8] [CM21]"""
    change = change_of(_written(store, 10))
    lost = commit(session(losing(store, 3), Limits(attempts=3)), open_head(store), change)
    assert lost.conflict is not None and lost.conflict.rule == "contention" and state_of(store, change.job) == "given up"
    change = change_of(_written(store, 11))
    never = commit(session(losing(store, 99), Limits(attempts=3)), open_head(store), change)
    assert never.kind == "unknown" and "still commit it" in never.reason and resolve(store, change.job) == ("pending", None)
    carry(store, 20)
    assert mine(store) == [1, 2, 11, 20]


@pytest.mark.parametrize("failure", [mc.errors.StoreError, ValueError])
def test_a_failure_after_publishing_is_an_unknown_outcome_that_can_be_asked_for_and_decided(failure: type[Exception]) -> None:
    """Whatever failed: the store, or what nobody had thought of. [CM21] [CM23] [AB4]"""

    def fail(store: Store, *ids: int) -> str:
        broken, before = False, intents(store)

        def stop(call: FaultCall) -> None:
            nonlocal broken
            broken = broken or (call.kind == "list" and intents(store) != before)
            if broken:
                raise failure("the store is down")

        with pytest.raises(mc.errors.OutcomeUnknownError) as caught:
            write(losing(store, 2, then=stop), rows(ids))
        assert resolve(store, caught.value.job_id) == ("pending", None)
        return caught.value.job_id

    store = table()
    job = fail(store, 10)
    assert [(each.job, each.state) for each in list_jobs(session(store))] == [(job, "published")]
    assert give_up(session(store), job).kind == "aborted" and resolve(store, job) == ("aborted", None)
    carry(store, 20)
    assert mine(store) == [1, 2, 20]
    job = fail(store, 11)
    assert commit_prepared(session(store), job).committed and commit_prepared(session(store), job).committed
    carry(store, 21)
    assert mine(store) == [1, 2, 11, 20, 21] and in_chain(store, job) == [resolve(store, job)[1]]
    job = fail(store, 12)
    carry(store, 22)
    assert resolve(store, job)[0] == "committed" == give_up(session(store), job).kind and mine(store).count(12) == 1
    check_table(store)


def test_an_owner_that_others_gave_up_is_told_so(store: MemoryStore) -> None:
    """[AB4] [CM21]"""

    def abort(call: FaultCall) -> None:
        for job in intents(store) if call.kind == "list" else ():
            if state_of(store, job) is None:
                assert give_up(session(store), job).kind == "aborted"

    with pytest.raises(mc.errors.JobAbortedError):
        write(losing(store, 2, then=abort), rows([10]))
    carry(store, 20)
    assert mine(store) == [1, 2, 20]


# --- crashes --------------------------------------------------------------------------------------------------------------
def attempt(run: Any) -> tuple[Outcome | None, BaseException | None]:
    try:
        return run(), None
    except (mc.errors.ManifestCommitError, Died) as error:
        return None, error


# --- hostile intents --------------------------------------------------------------------------------------------------------
def strange(store: Store) -> dict[str, bytes]:
    """Name of an intent that nobody carries -> its bytes."""
    head = open_head(store).snapshot
    change = change_of(_written(store, 666))

    def made(**members: Any) -> tuple[str, bytes]:
        job = object_names.job_id(head.version, head.table_id, secrets.token_bytes(16))
        document = {
            "format_version": 1,
            "change": {"job": job, "birth": head.version, "operation": "append"},
            "prepared_at": 0,
            "writer": "",
        }
        top = members.pop("top", {})
        document["change"] |= members
        return object_names.intent_name(job), codec.compress(msgspec.json.encode({**document, **top}))

    entry = msgspec.to_builtins(change.add[0], str_keys=True)
    schema = msgspec.to_builtins(change.schema, str_keys=True)
    other = object_names.job_id(1, "f" * 16, bytes(16))
    found = [
        made(later="a member of a later release"),
        made(operation="an operation of a later release"),
        made(top={"format_version": 2}),
        made(top={"later": 1}),
        made(top={"done": {"version": 1, "digest": "d"}}),
        made(overwrite={"scope": [{}], "conflict": "blind"}),
        made(remove=[change.add[0].path]),
        made(properties={"a": "b"}),
        made(job=other),
        made(birth=head.version + 5),
        made(key="no digest"),
        made(add=[entry], schema=schema, partition_by=[]),  # another job's file
        made(add=[{**entry, "job": "x"}]),
        made(advances=[{"source": SOURCE, "start": 5, "end": 7, "later": 1}]),
        made(advances=[{"source": SOURCE, "start": 1.5, "end": 7}]),
        made(advances=[{"source": SOURCE, "start": 0, "end": 7}]),
        made(advances=[{"source": SOURCE, "start": 5, "end": 3}]),  # all between would be read again
        made(advances=[{"source": SOURCE, "start": 5, "end": "a text"}]),
        made(advances=[{"source": "another", "end": 2**63}]),
    ]
    name = found[0][0]
    spare = iter(made()[0] for _ in range(9))
    return dict(found) | {
        next(spare): b"", next(spare): b"no frame", next(spare): found[0][1][:-3], next(spare): codec.compress(b"[]"),
        next(spare): codec.compress(b'{"a":' * 5000), next(spare): codec.compress(b" " * (codec.MAX_INTENT_RAW_BYTES + 1)),
        next(spare): secrets.token_bytes(codec.MAX_INTENT_BYTES + 1),
        f"{name} ": b"x", f"{object_names.INTENTS}v0-x": b"x", f"{object_names.INTENTS}..": b"x", f"{object_names.VERSIONS}zzz é%": b"x",
        object_names.intent_name(other): found[1][1],
        object_names.intent_name(object_names.job_id(10**18, head.table_id, bytes(16))): found[1][1],
    }  # fmt: skip


def test_strange_intents_are_passed_over_and_those_behind_them_carried(store: MemoryStore) -> None:
    """Damaged, hostile, of other tables and later releases: no error, nothing of them committed, nobody held up. [CM20] [OB4] [SE2]"""
    bad = strange(store)
    for name, data in bad.items():
        store.put(name, data)
    job = publish(store, 10, key=KEY)
    before = {name: store.get(name) for name in bad}
    version = carry(store, 20).version
    assert version is not None and carried(store, version)[0] == job and len(carried(store, version)) == 2
    assert mine(store) == [1, 2, 10, 20] and positions(store) == {SOURCE: 5}
    assert {name: store.get(name) for name in bad} == before, "whoever knows them may need them"
    assert verify(session(store)).is_sound
    check_table(store)


@pytest.mark.thorough
def test_many_dead_intents_in_front_starve_nobody(store: MemoryStore) -> None:
    """More than one version carries, of jobs whose processes died before a gap that nobody closes. [CM20]"""
    dead = [put_intent(store, change_of(_written(store, 1000 + number, advance=(50, 60)))) for number in range(MAX_CARRIED + 10)]
    rival(store)
    job = publish(store, 10)
    counting = CountingStore(store)
    assert write(losing(counting, 1), rows([20])).committed
    read = counting.requests(under=object_names.INTENTS)["get"]
    assert mine(store) == [1, 2, 10, 20] and len(in_chain(store, job)) == 1 and sorted(intents(store)) == sorted(dead)
    assert read == len(dead) + 1, "each once"


def test_what_one_create_carries_is_bounded_in_bytes(store: MemoryStore) -> None:
    """[CM20] [IV10]"""
    for number in range(12):
        change = change_of(_written(store, 100 + number))
        names = random.Random(number)  # that do not compress: a reader takes no object that does a hundredfold
        advances = tuple(Advance(source=names.randbytes(500).hex(), end=each) for each in range(110))
        put_intent(store, msgspec.structs.replace(change, advances=advances))
    version = carry(store, 20).version
    assert version is not None
    count = len(carried(store, version)) - 1
    assert 1 <= count < 12 and count == MAX_CARRIED_BYTES // len(document(store))


def document(store: Store) -> bytes:
    name = object_names.intent_name(intents(store)[0])
    return codec.decompress(store.get(name), name=name)


# --- versions that carry several ------------------------------------------------------------------------------------------
def shared(store: Store) -> int:
    """One version with four commits, three of which advance one source, and whose intents came late, or again."""
    wait(store, 10, key="k 5-7", advance=(5, 7), **{"only here": (None, "x")})
    wait(store, 11, key="k 7-9", advance=(7, 9))
    wait(store, 12, key="k 9-12", advance=(9, 12))
    late = {name: store.get(name) for name in map(object_names.intent_name, intents(store))}
    version = carry(store, 20, key="own").version
    assert version is not None and len(carried(store, version)) == 4
    for name, data in late.items():
        store.put(name, data)
    return version


@pytest.mark.thorough
def test_a_rewind_drops_the_keys_of_those_commits_of_a_version_whose_advances_it_undoes() -> None:
    """The others' work stays in the table: a rerun of theirs must stay a no-op. [CM24] [WM5]"""
    for to, dropped in ((9, ("k 9-12",)), (8, ("k 7-9", "k 9-12")), (7, ("k 7-9", "k 9-12")), (5, ("k 5-7", "k 7-9", "k 9-12"))):
        store = table()
        shared(store)
        assert rewind(session(store), SOURCE, to, reason="x").dropped_keys == dropped
        assert key_version(store, "before") is not None and positions(store)[SOURCE] == to
        kept = [key for key in ("k 5-7", "k 7-9", "k 9-12") if key not in dropped]
        assert all(key_version(store, key) is not None for key in kept)
    store = table()
    shared(store)
    assert rewind(session(store), "only here", None, reason="x").dropped_keys == ("k 5-7",)


@pytest.mark.parametrize("key", [None, "another attempt", "k"])
@pytest.mark.parametrize("undo", ["rollback", "rewind", "rewind that keeps keys"])
def test_a_dead_attempt_at_a_range_is_not_carried_once_the_range_is_to_be_done_again(undo: str, key: str | None) -> None:
    """It was in conflict with what was there, under no key, one of its own or the one that is dropped, and would fit again: the rerun's
    rows would be there twice. [CM21] [CF13] [WM5]"""
    store = table()
    before = open_head(store).version
    dead = put_intent(store, change_of(_written(store, 10, key=key, advance=(5, 7))))
    write(store, rows([11]), key="k", watermarks={SOURCE: (5, 7)})
    other = put_intent(store, change_of(_written(store, 13, key="other")))
    if undo == "rollback":
        undone = rollback(session(store), before, reason="x")
    else:
        undone = rewind(session(store), SOURCE, 5, reason="x", keep_keys=undo != "rewind")
    is_kept = undo == "rewind that keeps keys"
    assert undone.committed and undone.dropped_keys == (() if is_kept else ("k",))
    assert carry(store, 20).committed
    assert resolve(store, dead)[0] == "pending" and resolve(store, other)[0] == "committed"
    assert write(store, rows([12]), key="k anew" if is_kept else "k", watermarks={SOURCE: (5, 7)}).kind == "committed"
    assert mine(store) == ([1, 2, 12, 13, 20] if undo == "rollback" else [1, 2, 11, 12, 13, 20])


@pytest.mark.parametrize("undo", ["rollback", "rewind"])
@pytest.mark.parametrize("why", ["below the fence", "of another table", "of another table and a later release"])
def test_what_nobody_can_carry_any_more_does_not_keep_work_from_being_undone(undo: str, why: str, store: MemoryStore) -> None:
    """It cannot be given up either, and gc leaves what is another table's: nothing could be undone ever again. [CM21] [CM22]"""
    before = open_head(store).version
    if why == "below the fence":
        dead = put_intent(store, change_of(_written(store, 10, key="k", advance=(5, 7))))
        write(store, rows([11]), key="k", watermarks={SOURCE: (5, 7)})
        put_version(store, open_head(store), fence=open_head(store).version)
    else:
        earlier = table()
        dead = put_intent(earlier, change_of(_written(earlier, 10, key="k", advance=(5, 7))))
        if "later" in why:
            a_later_release_publishes(earlier)
        write(store, rows([11]), key="k", watermarks={SOURCE: (5, 7)})
        store.put(object_names.intent_name(dead), earlier.get(object_names.intent_name(dead)))  # it lands late
    undone = rollback(session(store), before, reason="x") if undo == "rollback" else rewind(session(store), SOURCE, 5, reason="x")
    assert undone.committed and undone.dropped_keys == ("k",) and intents(store) == [dead]
    assert carry(store, 20).committed and in_chain(store, dead) == []


def unreadable(store: Store) -> FaultStore:
    """The store fails whoever reads an intent."""

    def fail(call: FaultCall) -> None:
        if call.kind == "get" and call.name.startswith(object_names.INTENTS):
            raise mc.errors.StoreError("the store is busy")

    return FaultStore(store, on_call=fail)


def a_later_release_publishes(store: Store) -> None:
    """The intents' objects, in a format version of tomorrow."""
    for job in intents(store):
        name = object_names.intent_name(job)
        document = msgspec.json.decode(codec.decompress(store.get(name), name=name))
        store.put(name, codec.compress(msgspec.json.encode({**document, "format_version": 2})))


@pytest.mark.thorough
@pytest.mark.parametrize("undo", ["rollback", "rewind"])
@pytest.mark.parametrize("why", ["the store is busy", "has format_version 2", "it lands afterwards"])
def test_what_waits_unseen_while_its_key_is_dropped_is_not_carried_later(undo: str, why: str, store: MemoryStore) -> None:
    """A rewind does not have to see it: its job began before. [CM21] [WM6] [KY7]"""
    before = open_head(store).version
    dead = put_intent(store, change_of(_written(store, 10, key="k", advance=(5, 7))))
    intent = store.get(object_names.intent_name(dead))
    write(store, rows([11]), key="k", watermarks={SOURCE: (5, 7)})
    if why == "has format_version 2":
        a_later_release_publishes(store)
    elif why == "it lands afterwards":
        store.delete([object_names.intent_name(dead)])
    broken = session(unreadable(store) if why == "the store is busy" else store)
    undoing = partial(rollback, broken, before) if undo == "rollback" else partial(rewind, broken, SOURCE, 5)
    assert undoing(reason="x").dropped_keys == ("k",)
    store.put(object_names.intent_name(dead), intent)
    assert carry(store, 20).committed and resolve(store, dead)[0] == "pending"
    refused = commit_prepared(session(store), dead)
    assert refused.conflict is not None and refused.conflict.rule == "source_was_set_back"
    assert resolve(store, dead)[0] == "aborted", "it was published, and is decided for good"
    assert write(store, rows([12]), key="k", watermarks={SOURCE: (5, 7)}).kind == "committed"
    assert mine(store) == ([1, 2, 12, 20] if undo == "rollback" else [1, 2, 11, 12, 20])


def test_a_published_job_that_cannot_be_read_now_is_not_told_to_be_missing(store: MemoryStore) -> None:
    """Who is told so would run the work again, and others may still carry it. [CM21] [AB3]"""
    job = publish(store, 10)
    with pytest.raises(mc.errors.StoreError, match="busy"):
        commit_prepared(session(unreadable(store)), job)
    assert commit_prepared(session(store), job).committed and mine(store) == [1, 2, 10]


def test_texts_that_come_back_within_one_version_are_undone_commit_by_commit(store: MemoryStore) -> None:
    """The version as a whole did not move the source, two of its commits did. [CM24] [WM5] [WM3]"""
    write(store, rows([3]), watermarks={"opaque": (None, "a")})
    wait(store, 10, key="to b", opaque=("a", "b"))
    wait(store, 11, key="to a", opaque=("b", "a"))
    assert carry(store, 20).committed and positions(store)["opaque"] == "a"
    write(store, rows([12]), key="to c", watermarks={"opaque": ("a", "c")})
    assert rewind(session(store), "opaque", "b", reason="x").dropped_keys == ("to a", "to c")


def test_lineage_tells_the_files_of_the_commit_not_of_its_whole_version(store: MemoryStore) -> None:
    """[CM24] [RD9]"""
    version = shared(store)
    found = [trace(session(store), SOURCE, position) for position in (5, 8, 11)]
    assert [None if each is None else (each.version, len(each.files)) for each in found] == [(version, 1)] * 3
    assert len({each.files[0].path for each in found if each is not None}) == 3


def test_a_rollback_undoes_all_that_a_version_carried_and_none_of_it_comes_back(store: MemoryStore) -> None:
    """They were committed, so nobody carries them again; their work can be done again under their keys. [CF13] [CM20]"""
    version = shared(store)
    jobs = carried(store, version)
    assert rollback(session(store), version - 1, reason="x").dropped_keys == ("k 5-7", "k 7-9", "k 9-12", "own")
    assert mine(store) == [1, 2] and len(intents(store)) == 3
    carry(store, 21)
    assert mine(store) == [1, 2, 21] and [resolve(store, job) for job in jobs] == [("committed", version)] * 4
    assert write(store, rows([10]), key="k 5-7", watermarks={SOURCE: (5, 7)}).kind == "committed"
    check_table(store)


def test_history_figures_counts_and_verify_tell_each_commit_of_a_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[CM24] [RD10] [OB10] [RD8]"""
    store = open_store(tmp_path)
    write(store, rows([1, 2]), key="before", watermarks={SOURCE: (0, 5)})
    version = shared(store)
    own = mc.Table(tmp_path)
    told = [each for each in own.history() if each["version"] == version]
    assert [each["key"] for each in told] == ["k 5-7", "k 7-9", "k 9-12", "own"] and {each["summary"]["rows"] for each in told} == {1}
    assert [each["key"] for each in own.describe(version)["commits"]] == ["k 5-7", "k 7-9", "k 9-12", "own"]
    assert own.verify(deep=True).is_sound
    assert own.changed_files(version - 1, version)["added"].num_rows == 4
    assert sum(each.kind == "intent" for each in own.verify().findings) == 3
    assert own.jobs() and {each.state for each in own.jobs()} == {"committed"}
    assert main(["history", str(tmp_path), "--limit", "4"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[-4:]] == [str(version)] * 4
    assert main(["jobs", str(tmp_path)]) == 0 and capsys.readouterr().out.count("committed") == 3


def test_a_stream_is_given_the_files_of_every_commit_of_a_version(store: MemoryStore) -> None:
    """Each once, in one order, whatever the first of them was. [CM24] [SP8]"""
    begun = open_head(store).version
    version = shared(store)
    feed = Feed(session(store), columns=open_head(store).snapshot.schema.fields, pinned=begun)
    start = feed.beginning(begun + 1)
    end = feed.advance(start)
    given = [path for path, _ in feed.between(start, end)]
    found = read_object(store, version)
    assert found is not None and len(given) == len(set(given))
    assert given[-4:] == sorted(entry.path for entry in found.snapshot.added if entry.added == version)

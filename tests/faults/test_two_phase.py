"""Two-phase commit under faults, races and kill -9: one decision, told alike by everyone, and each row once. [AB3] [AB4] [IV2]-[IV4]"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.faults import dying, lives
from tests.kit.tables import begin, check_head, check_table, clone, in_chain, memory, positions, put_version, read_ids, rows, session, write

import manifestcommit as mc
from manifestcommit.commits.two_phase import commit_prepared, give_up, list_jobs, resolve_job
from manifestcommit.errors import CommitConflictError, JobAbortedError, StoreError, StoreUnclearError, UsageError
from manifestcommit.format import object_names
from manifestcommit.format.snapshot import Commit
from manifestcommit.log.version_chain import open_head
from manifestcommit.runtime.outcome import Outcome, committed_or_raise
from manifestcommit.store import LocalStore, Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import FaultCall, FaultStore


def table(versions: int = 3) -> MemoryStore:
    """Version n has the ids 2 to n; a source stands at 5."""
    store = memory()
    write(store, rows([2]), watermarks={"s": (0, 5)})
    for number in range(3, versions + 1):
        write(store, rows([number]))
    return store


@pytest.fixture
def store() -> MemoryStore:
    return table()


def prepared(store: Store, *ids: int, key: str | None = None, advance: tuple[int, int] | None = None) -> str:
    job = begin(store, key)
    if advance is not None:
        job.advance("s", *advance)
    job.write(rows(ids))
    return job.prepare()


def commit(store: Store, job: str) -> Outcome:
    """As the public call, over a store of the test's own."""
    return committed_or_raise(commit_prepared(session(store), job), store.url)


def decision(outcome: Outcome) -> tuple[str, int | None]:
    """What a caller is told: what became of the job, and at which version."""
    assert outcome.kind in ("committed", "aborted"), outcome
    return outcome.kind, outcome.version


def check_decided(store: Store, job: str, told: set[tuple[str, int | None]], row: int) -> None:
    """Everybody was told the same, and it is what the chain says: once, or never."""
    assert len(told) == 1, told
    ((kind, version),) = told
    assert in_chain(store, job) == ([version] if kind == "committed" else []), told
    assert read_ids(store).count(row) == (kind == "committed")
    assert decision(commit_prepared(session(store), job)) == decision(give_up(session(store), job)) == (kind, version)
    check_table(store)


# --- races, every interleaving that a test can steer -----------------------------------------------------------------------
FINISHERS: dict[str, Callable[[Store, str], Outcome]] = {
    "commit": lambda store, job: commit_prepared(session(store), job),
    "abort": lambda store, job: give_up(session(store), job),
}


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("first", FINISHERS)
@pytest.mark.parametrize("second", FINISHERS)
@pytest.mark.parametrize("others", [0, 4])
def test_whatever_happens_between_any_two_calls_of_a_finisher_both_say_the_same(first: str, second: str, others: int) -> None:
    """The second runs, and other writers commit so much that its record is spilled, before each single call of the first. [AB4] [CM1]"""
    base = table(5)
    job = prepared(base, 77)
    healthy = FaultStore(clone(base))
    FINISHERS[first](healthy, job)
    for number in range(1, healthy.count + 1):
        store = clone(base)
        told: set[tuple[str, int | None]] = set()

        def between(call: FaultCall, number: int = number, store: Store = store, told: set[Any] = told) -> None:
            if call.number == number:
                told.add(decision(FINISHERS[second](store, job)))
                for each in range(others):
                    write(store, rows([100 + each]))

        told.add(decision(FINISHERS[first](FaultStore(store, on_call=between), job)))
        check_decided(store, job, told, 77)


class Stalls(MemoryStore):
    """Holds the next create of a version back, as a network does that has no answer, until the test lands it."""

    def __init__(self) -> None:
        super().__init__(secrets.token_hex(8))
        self.hold = False
        self.held: tuple[str, bytes] | None = None

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.hold and name.startswith(object_names.VERSIONS):
            self.held = (name, data)
            raise StoreUnclearError("no answer")
        return super().put_if_absent(name, data)

    def land(self) -> bool:
        assert self.held is not None
        return super().put_if_absent(*self.held)


def stalled(first: str) -> tuple[Stalls, str]:
    """A job whose first finisher never had an answer, and whose create is still under way."""
    store = Stalls()
    for number in range(2, 5):
        write(store, rows([number]))
    job = prepared(store, 77)
    store.hold = True
    outcome = FINISHERS[first](store, job)
    store.hold = False
    assert outcome.kind == "unknown" and store.held is not None
    return store, job


@pytest.mark.parametrize("first", FINISHERS)
@pytest.mark.parametrize("second", FINISHERS)
def test_a_create_that_lands_late_never_undoes_what_was_told(first: str, second: str) -> None:
    """The second finisher was told; then the first one's request arrives after all, and finds its name taken. [AB4] [CM3] [IV4]"""
    store, job = stalled(first)
    told = decision(FINISHERS[second](store, job))
    assert told[0] == {"commit": "committed", "abort": "aborted"}[second]
    assert not store.land()
    check_decided(store, job, {told}, 77)


@pytest.mark.thorough
@pytest.mark.parametrize("first", FINISHERS)
@pytest.mark.parametrize("second", FINISHERS)
def test_a_create_that_lands_at_any_call_of_the_second_finisher_decides_or_is_too_late(first: str, second: str) -> None:
    """[AB4] [CM1] [CM4]"""
    landed = []
    for number in range(1, 12):
        store, job = stalled(first)

        def between(call: FaultCall, number: int = number, store: Stalls = store) -> None:
            if call.number == number:
                landed.append(store.land())

        told = decision(FINISHERS[second](FaultStore(store, on_call=between), job))
        check_decided(store, job, {told}, 77)
    assert set(landed) == {True, False}


# --- faults at every call ----------------------------------------------------------------------------------------------------
def test_a_prepare_whose_answer_never_came_is_asked_for_again_with_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request may have landed, and others may have finished the job: its own process must not commit it by itself. [AB3]"""
    monkeypatch.setattr("manifestcommit.store.object_store.time.sleep", lambda seconds: None)
    store = table(3)
    real, landed = store.put_if_absent, []

    def answer_lost(name: str, data: bytes) -> bool:
        landed.append(real(name, data))
        raise StoreUnclearError("no answer")

    job = begin(store)
    job.write(rows([77]))
    store.put_if_absent = answer_lost  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        job.prepare()
    store.put_if_absent = real  # type: ignore[method-assign]
    assert landed[0] and [each.state for each in list_jobs(session(store))] == ["prepared"]
    for use in (job.commit, job.abort):
        with pytest.raises(UsageError, match="may have been prepared"):
            use()
    assert job.prepare() == job.id
    assert commit(store, job.id).version == 4 and read_ids(store) == [2, 3, 77]


# --- conflicts leave it prepared -----------------------------------------------------------------------------------------------
def test_a_prepared_overwrite_that_lost_conflicts_each_time_until_it_is_given_up(store: MemoryStore) -> None:
    """[AB3] [AB4] [CF5]"""
    job = begin(store)
    job.overwrite(None)
    job.write(rows([77]))
    name = job.prepare()
    write(store, rows([4]))
    for _ in range(3):
        with pytest.raises(CommitConflictError):
            commit(store, name)
    assert read_ids(store) == [2, 3, 4] and open_head(store).version == 4
    assert give_up(session(store), name).kind == "aborted"
    with pytest.raises(JobAbortedError):
        commit(store, name)
    assert read_ids(store) == [2, 3, 4]


# --- the fence ------------------------------------------------------------------------------------------------------------------
def fence(store: Store, version: int, **changes: Any) -> None:
    """What gc commits; what it would delete stays."""
    put_version(store, open_head(store), fence=version, **changes)


def listed(store: Store, job: str) -> tuple[str, int | None]:
    return next((each.state, each.version) for each in list_jobs(session(store)) if each.job == job)


def resolved(store: Store, job: str) -> tuple[str, int | None]:
    found = resolve_job(session(store), job)
    return str(found), found.version


def test_a_list_of_jobs_and_an_answer_for_one_say_the_same_of_a_fenced_one(store: MemoryStore) -> None:
    """Prepared or not, it never committed: no version since its birth carries it. [CM23] [AB3]"""
    job = prepared(store, 77)
    write(store, rows([4]))
    fence(store, 4)
    assert listed(store, job) == resolved(store, job) == ("fenced", None)
    store.delete([object_names.prepared_name(job)])
    assert resolved(store, job) == ("fenced", None)


@pytest.mark.parametrize("finish", FINISHERS)
@pytest.mark.parametrize("collected", [False, True])
def test_a_job_that_committed_and_was_forgotten_is_never_told_to_be_given_up(finish: str, collected: bool, store: MemoryStore) -> None:
    """Its record left `recent_jobs` behind the fence; the chain still carries it. [AB4] [CM2] [IV4]"""
    job = prepared(store, 77)
    assert commit(store, job).version == 4
    write(store, rows([5]))
    fence(store, 5, recent_jobs={})
    assert listed(store, job) == resolved(store, job) == ("committed", 4)
    if collected:
        store.delete([object_names.prepared_name(job)])
    assert resolved(store, job) == ("committed", 4)
    before = open_head(store).version
    outcome = FINISHERS[finish](store, job)
    assert (outcome.kind, outcome.version, outcome.job_id) == ("committed", 4, job)
    assert open_head(store).version == before and read_ids(store) == [2, 3, 5, 77]


@pytest.mark.parametrize("finish", FINISHERS)
@pytest.mark.parametrize("collected", [False, True])
def test_a_forgotten_job_whose_history_is_gone_is_unknown(finish: str, collected: bool, store: MemoryStore) -> None:
    """It may have committed in a version that was deleted. [AB4] [CM2] [CM6]"""
    job = prepared(store, 77)
    commit(store, job)
    for number in (5, 6):
        write(store, rows([number]))
    fence(store, 6, expired=6, recent_jobs={})
    store.delete([object_names.version_name(version) for version in range(1, 6)])
    assert listed(store, job) == resolved(store, job) == ("forgotten", None)
    if collected:
        store.delete([object_names.prepared_name(job)])
    assert resolved(store, job) == ("forgotten", None)
    outcome = FINISHERS[finish](store, job)
    assert outcome.kind == "unknown" and outcome.job_id == job
    check_head(store)


def test_a_fence_that_rises_while_a_job_is_given_up_does_not_deny_its_commit() -> None:
    """The one who gives up sleeps; the job commits; gc fences both, and forgets. [AB4] [CM2]"""
    base = table(3)
    job = prepared(base, 77)
    healthy = FaultStore(clone(base))
    give_up(session(healthy), job)
    for forgets in (False, True):
        for number in range(1, healthy.count + 1):
            store = clone(base)

            def between(call: FaultCall, number: int = number, store: Store = store, forgets: bool = forgets) -> None:
                if call.number == number and session(store).manifests.job(open_head(store).snapshot, job)[0] is None:
                    commit(store, job)
                    write(store, rows([5]))
                    fence(store, 5, **({"recent_jobs": {}} if forgets else {}))

            outcome = give_up(session(FaultStore(store, on_call=between)), job)
            carries = in_chain(store, job)
            assert (outcome.kind, outcome.version) == (("committed", carries[0]) if carries else ("aborted", None)), (forgets, number)
            assert read_ids(store).count(77) == len(carries)


def test_a_fence_between_the_births_of_job_and_give_up_does_not_let_it_be_given_up_after_its_commit(store: MemoryStore) -> None:
    """The job's birth is below the fence and its record is forgotten, that of the give-up is above it. [AB4] [CM2]"""
    job = prepared(store, 77)
    for number in (4, 5):
        write(store, rows([number]))

    def between(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and open_head(store).version == 5:
            commit(store, job)
            fence(store, 4, recent_jobs={})

    outcome = give_up(session(FaultStore(store, on_call=between)), job)
    assert (outcome.kind, outcome.version) == ("committed", 6) and read_ids(store) == [2, 3, 4, 5, 77]


# --- records that were spilled ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("first", FINISHERS)
def test_a_decision_that_was_spilled_into_a_run_is_found(first: str, store: MemoryStore) -> None:
    """[CM1] [AB3] [AB4] [CM12]"""
    job = prepared(store, 77)
    told = decision(FINISHERS[first](store, job))
    for number in range(4):
        write(store, rows([100 + number]))
    snapshot = open_head(store).snapshot
    assert job not in snapshot.recent_jobs and snapshot.job_runs
    assert session(store).manifests.job(snapshot, job)[0] == {"commit": "committed", "abort": "aborted"}[first]
    check_decided(store, job, {told}, 77)


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("first", FINISHERS)
def test_a_decision_that_is_spilled_after_the_look_is_found_before_the_create(first: str, store: MemoryStore) -> None:
    """Between the committer's look and its prepared object another one decides, and the record is spilled at once. [CM1] [AB3]"""
    job = prepared(store, 77)
    told: set[tuple[str, int | None]] = set()

    def between(call: FaultCall) -> None:
        if call.name == object_names.prepared_name(job) and not told:
            told.add(decision(FINISHERS[first](store, job)))
            for number in range(4):
                write(store, rows([100 + number]))

    told.add(decision(commit_prepared(session(FaultStore(store, on_call=between)), job)))
    check_decided(store, job, told, 77)


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("first", FINISHERS)
def test_a_decision_that_is_spilled_while_an_old_head_conflicts_is_found_in_the_new_one(first: str, store: MemoryStore) -> None:
    """A gap at the head that the committer knows is closed, another one decides, and its record is spilled: no create was sent yet.

    Looking into the head only, it would commit what was given up, or report an overlap with itself. [CM1] [AB3] [AB4]
    """
    job, before = prepared(store, 77, advance=(7, 9)), prepared(store, 66, advance=(5, 7))
    told: set[tuple[str, int | None]] = set()

    def between(call: FaultCall) -> None:
        if call.name == object_names.prepared_name(job) and not told:
            commit(store, before)
            told.add(decision(FINISHERS[first](store, job)))
            for number in range(4):
                write(store, rows([100 + number]))
            assert job not in open_head(store).snapshot.recent_jobs

    told.add(decision(commit_prepared(session(FaultStore(store, on_call=between)), job)))
    check_decided(store, job, told, 77)


@pytest.mark.parametrize("first", FINISHERS)
@pytest.mark.parametrize("second", FINISHERS)
def test_a_job_that_is_settled_and_collected_between_two_calls_is_told_as_settled(first: str, second: str, store: MemoryStore) -> None:
    """Its object is gone because it was done, not because it never was. [AB3] [AB4]"""
    job = prepared(store, 77)
    told: set[tuple[str, int | None]] = set()

    def between(call: FaultCall) -> None:
        if call.name == object_names.prepared_name(job) and not told:
            told.add(decision(FINISHERS[first](store, job)))
            store.delete([object_names.prepared_name(job)])

    told.add(decision(FINISHERS[second](FaultStore(store, on_call=between), job)))
    check_decided(store, job, told, 77)


def test_a_record_of_the_chain_is_enough(store: MemoryStore) -> None:
    """Whoever wrote it. [CM1]"""
    job = prepared(store, 77)
    put_version(store, open_head(store), commit=Commit(job=job, commit_id=f"{job}.x", operation="append"))
    assert commit(store, job).version == 4 and give_up(session(store), job).version == 4


# --- real processes ------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "a table%20")
    mc.write(rows([1]), root, watermarks={"s": (0, 5)})
    return root


def write_epoch(root: str) -> mc.Job:
    job = mc.begin(root, key="epoch 1")
    job.write(rows([7, 8]))
    Path(root, "name of the job").write_text(job.id)
    return job


def prepare_and_die(root: str, calls: list[str]) -> None:
    with dying(1, "before", calls, name=object_names.JOBS):
        write_epoch(root).prepare()


def commit_all(root: str, jobs: list[str]) -> None:
    for job in jobs:
        mc.commit(root, job)


def commit_all_and_die(root: str, jobs: list[str], call: str, name: str, at: int, moment: str) -> None:
    with dying(at, moment, [call], name=name):
        for job in jobs:
            commit(LocalStore(root), job)


def publish_epoch(root: str) -> None:
    """What a restarted task does: the same work under the same key, prepared, and committed by whoever commits."""
    job = mc.begin(root, key="epoch 1")
    job.write(rows([7, 8]))
    mc.commit(root, job.prepare())


def dead_job(root: str) -> str:
    return Path(root, "name of the job").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("after", [False, True], ids=["at its put", "after it"])
def test_a_task_that_dies_at_prepare_or_after_it_is_committed_once(root: str, after: bool) -> None:
    """[AB3] [KY3]"""
    store = LocalStore(root)
    assert not lives(prepare_and_die, root, [] if after else ["put_if_absent"])
    assert mc.Table(root).resolve(dead_job(root)) == ("pending" if after else "not_committed")
    assert read_ids(store) == [1]
    if after:
        assert lives(commit_all, root, [dead_job(root)])
        assert read_ids(store) == [1, 7, 8]
    assert lives(publish_epoch, root)  # the engine restarts the task as well
    assert read_ids(store) == [1, 7, 8]
    check_table(store)


HALF_WAY = {
    "between two jobs": ("get", object_names.HINT, 3, "before"),
    "before the create of the third": ("put_if_absent", object_names.VERSIONS, 3, "before"),
    "after the create of the third": ("put_if_absent", object_names.VERSIONS, 3, "after"),
    "after its look at the third": ("get", object_names.JOBS, 3, "after"),
    "before the last hint": ("put", object_names.HINT, 4, "before"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("where", HALF_WAY)
def test_a_committer_that_dies_half_way_is_taken_over_by_the_next(root: str, where: str) -> None:
    """Several prepared jobs, some of them committed: the next committer commits them all again. [AB3] [CM1] [IV4]"""
    store = LocalStore(root)
    jobs = [prepared(store, 10 + number, advance=(5 + number, 6 + number)) for number in range(4)]
    assert not lives(commit_all_and_die, root, jobs, *HALF_WAY[where])
    done = len(read_ids(store)) - 1
    assert 2 <= done <= 4 and positions(store) == {"s": 5 + done}
    assert lives(commit_all, root, jobs)
    assert read_ids(store) == [1, 10, 11, 12, 13] and positions(store) == {"s": 9}
    assert [in_chain(store, job) for job in jobs] == [[3], [4], [5], [6]]
    check_table(store)

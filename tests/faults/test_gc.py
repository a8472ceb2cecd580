"""gc under crashes, races and lies: nothing that is needed ever goes, and what is dead is gone after the next two. [GC1]-[GC8] [IV7]

Not here: which version and which name may go, as pure functions (tests/unit/test_retention.py); callers and the command line
(tests/unit/test_gc.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from manifestcommit.core import format, spill
from manifestcommit.core.change import Change, TagEdit
from manifestcommit.core.conflict import is_readable
from manifestcommit.core.retention import Policy
from manifestcommit.engine import plan
from manifestcommit.engine import rows as engine_rows
from manifestcommit.engine.adopt import UNFINISHED, adopt
from manifestcommit.engine.commit import commit
from manifestcommit.engine.gc import GcReport, run
from manifestcommit.engine.gc import plan as look
from manifestcommit.engine.head import open_head, read_object
from manifestcommit.engine.outcome import committed_or_raise
from manifestcommit.engine.prepare import commit_prepared
from manifestcommit.engine.rollback import rollback
from manifestcommit.errors import (
    CommitConflictError,
    CorruptMetadataError,
    JobFencedError,
    ManifestCommitError,
    OutcomeUnknownError,
    SnapshotExpiredError,
    StoreError,
    TableNotFoundError,
    UsageError,
)
from manifestcommit.store import LocalStore, MemoryStore, Store
from manifestcommit.testing.faults import Died, Fault, FaultCall, FaultStore
from tests.faults.clocks import CLOCKS, Clock
from tests.faults.tables import begin, check_head, check_table, clone, key_version, memory, read, read_ids, rows, session, write

HARSH = Policy(grace_s=0, keep_for_s=0, keep_versions=1)
DAY = "a b%2F+=#'é🦆"


def gc(store: Store, **options: Any) -> GcReport:
    """One gc without any grace: whatever it may not take by the protocol, it must not take now."""
    foreign = options.pop("foreign", False)
    return run(session(store), msgspec.structs.replace(HARSH, **options), foreign=foreign)


def sizes(store: Store) -> dict[str, int]:
    return {info.name: info.size_bytes for info in store.list("")}


def check_readable(store: Store) -> None:
    """Every readable version can be read in full, and the head is a sound table. [IV2] [IV7]"""
    head, there = open_head(store), sizes(store)
    tagged = {tag.version for tag in head.snapshot.tags.values()}
    for version in sorted(tagged | set(range(head.snapshot.expired, head.version + 1))):
        assert is_readable(head.snapshot, version)
        found = read_object(store, version)
        assert found is not None, f"version {version} is gone"
        entries = plan.entries_table(session(store), found.snapshot)
        listed = dict(zip(entries["path"].to_pylist(), entries["bytes"].to_pylist(), strict=True))
        assert {path: there.get(path) for path in listed} == listed, f"files of version {version}"
        assert read(store, version).num_rows == found.snapshot.totals.rows
        for run_ref in (*found.snapshot.key_runs, *found.snapshot.job_runs, *found.snapshot.removed_runs):
            assert there.get(run_ref.path) == run_ref.bytes
    check_head(store)


def needed(store: Store) -> set[str]:
    """The chain, and what its readable versions list: nothing else has to be there."""
    head = open_head(store)
    names = {format.HINT}
    for version in {tag.version for tag in head.snapshot.tags.values()} | set(range(head.snapshot.expired, head.version + 1)):
        found = read_object(store, version)
        assert found is not None
        snapshot = found.snapshot
        names |= {format.version_name(version), *(ref.path for ref in snapshot.manifests)}
        names |= {each.path for runs in (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs) for each in runs}
        names |= set(plan.entries_table(session(store), snapshot)["path"].to_pylist())
    return names


def check_clean(store: Store, *left: str) -> None:
    """Two gcs on, the folder is the chain and what it lists, and nothing of it is lost. [GC7]"""
    before = read_ids(store)
    gc(store)
    gc(store)
    check_readable(store)
    assert read_ids(store) == before
    assert set(sizes(store)) == needed(store) | set(left)


def table() -> MemoryStore:
    """Partitions, overwrites, removed files, a tag far back, keys, watermarks, orphans of dead jobs, a prepared job that was given up."""
    store = memory()
    write(store, rows([1], day=DAY), key="k 1%", watermarks={"s": (0, 5)}, partition_by=["day"])
    write(store, rows([2], day=None))
    tag(store, "first é", 2)
    write(store, rows([3], day=DAY), overwrite={"day": DAY}, key="k2")
    orphan(store, 4)
    write(store, rows([5], day="x"))
    write(store, rows([6], day="x"), overwrite="dynamic")
    return store


_turns = itertools.count()


def check_now_and_then(store: Store) -> None:
    """`check_clean`, for some of many that are alike: it takes most of the time."""
    if next(_turns) % 4 == 0:
        check_clean(store)


def forget(store: Store) -> None:
    """A list of memory looks at everything that the process has in it."""
    store.delete([info.name for info in store.list("")])


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    yield
    MemoryFileSystem.store.clear()


def tag(store: Store, name: str, version: int | None) -> None:
    each = session(store)
    head = each.open()
    job = format.job_id(head.version, head.snapshot.table_id, secrets.token_bytes(16))
    change = Change(job=job, birth=head.version, operation="tag", tag=TagEdit(name=name, version=version))
    committed_or_raise(commit(each, head, change), store.url)


def orphan(store: Store, number: int, **parts: Any) -> None:
    """A job that writes and never commits."""
    with contextlib.suppress(ZeroDivisionError), begin(store) as job:
        job.write(rows([number], **(parts or {"day": "orphan"})))
        raise ZeroDivisionError


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets so small that everything spills and merges."""
    monkeypatch.setattr(spill, "INLINE_ENTRY_BYTES", 1500)
    monkeypatch.setattr(spill, "INLINE_KEYS", 3)
    monkeypatch.setattr(spill, "INLINE_JOBS", 2)
    monkeypatch.setattr(spill, "INLINE_REMOVED_BYTES", 4)
    monkeypatch.setattr(spill, "FAN_IN", 3)


# --- completeness, alone --------------------------------------------------------------------------------------------------


def test_two_gcs_leave_the_chain_and_what_it_lists() -> None:
    """[GC5] [GC7]"""
    store = table()
    before = read(store).sort_by("id")
    report = gc(store)
    assert report.deleted["data file"].count >= 1 and report.deleted["version"].count >= 1
    check_readable(store)
    check_clean(store)
    assert read(store).sort_by("id") == before
    assert read_ids(store, 2) == [1], "tagged, and so kept with its file, which was overwritten long ago"
    tag(store, "first é", None)
    check_clean(store)
    assert read_object(store, 2) is None


@pytest.mark.usefixtures("tight")
def test_spilled_and_merged_tables_are_collected_too() -> None:
    """An entry stays as long as one readable version has not taken it away; runs and manifests that were merged go. [GC5] [OB9]"""
    store = memory()
    for number in range(24):
        write(store, rows([number], day=str(number % 3)), key=f"k{number}", partition_by=["day"])
        if number % 7 == 3:
            write(store, rows([100 + number], day="1"), overwrite={"day": "1"})
        if number == 11:
            tag(store, "t", open_head(store).version)
        if number % 5 == 0:
            gc(store, keep_versions=4)
            check_readable(store)
    tagged = read_ids(store, open_head(store).snapshot.tags["t"].version)
    snapshot = open_head(store).snapshot
    assert snapshot.manifests and snapshot.key_runs, "nothing was spilled: the budgets are too large for this test"
    check_clean(store)
    assert read_ids(store, open_head(store).snapshot.tags["t"].version) == tagged
    assert all(key_version(store, f"k{number}") for number in range(24))


def test_late_files_of_dead_tasks_go_with_the_next_gc() -> None:
    """[GC5] [IV5]"""
    store = table()
    job = begin(store)
    job.write(rows([7], day="late"))
    gc(store)
    gc(store)
    assert not any(job.id in name for name in sizes(store)), "a job that was born below the fence has nothing left"
    store.put(f"day=late/00000-{'0' * 16}-0-{job.id}.parquet", b"a zombie's")
    store.put(format.manifest_name(job.id, b"0" * 16), b"a zombie's")
    with pytest.raises(JobFencedError):
        job.commit()
    store.put(format.key_mark_name(job.id, "k é"), b"of a recoverable job")
    store.put(format.task_name(job.id, "0" * 32, 7), b"of a recoverable job")
    store.put(format.prepared_name(job.id), b"of a prepared job")
    check_clean(store)
    assert not any(job.id in name for name in sizes(store))


def test_a_job_that_is_fenced_loses_its_own_work_only() -> None:
    """[GC2] [CM2] [IV7]"""
    store = table()
    jobs = [begin(store) for _ in range(3)]
    for number, job in enumerate(jobs):
        job.write(rows([50 + number], day="x"))
    jobs[0].commit()
    assert gc(store, grace_s=3600).fence == 1
    jobs[1].commit()
    gc(store)
    with pytest.raises((JobFencedError, OutcomeUnknownError)):
        jobs[2].commit()
    assert {50, 51} <= set(read_ids(store)) and 52 not in read_ids(store)
    check_clean(store)


def test_a_key_outlives_gc_and_a_rerun_does_nothing() -> None:
    """[KY3] [KY4]"""
    store = table()
    gc(store)
    gc(store)
    assert write(store, rows([3], day=DAY), overwrite={"day": DAY}, key="k2").already_committed
    assert write(store, rows([1], day=DAY), key="k 1%", watermarks={"s": (0, 5)}).already_committed


@pytest.mark.usefixtures("tight")
def test_only_the_last_keys_are_remembered_where_there_are_too_many() -> None:
    """Inlined and spilled ones, and never above the fence. [KY4] [GC8]"""
    store = memory()
    for number in range(20):
        write(store, rows([number]), key=f"k{number}")
    gc(store, keep_keys=5)
    gc(store, keep_keys=5)
    kept = [number for number in range(20) if key_version(store, f"k{number}")]
    assert kept == [15, 16, 17, 18, 19]
    jobs = [job for each in [session(store)] for job in recorded_jobs(each)]
    fence = open_head(store).snapshot.fence
    gc(store, keep_keys=5)
    assert all(format.parse_job_id(job).birth >= fence for job in recorded_jobs(session(store))), "one gc later they are forgotten [GC8]"
    assert any(format.parse_job_id(job).birth < fence for job in jobs), "and not earlier"
    assert not write(store, rows([0]), key="k0").already_committed
    check_clean(store)
    store = memory()
    for number in range(9):
        write(store, rows([number]), key=f"k{number}")
    run(session(store), Policy(keep_keys=0))
    assert all(key_version(store, f"k{number}") for number in range(9)), "the fence has not reached them"


def recorded_jobs(each: Any) -> list[str]:
    from manifestcommit.engine.manifests import JOB_RUN

    snapshot = each.open().snapshot
    spilled = [job for ref in snapshot.job_runs for job in each.manifests.run(ref, JOB_RUN).column("job").to_pylist()]
    return [*snapshot.recent_jobs, *spilled]


def test_a_young_prepared_job_holds_the_fence_and_an_old_one_does_not() -> None:
    """[AB5] [AB3]"""
    store = table()
    jobs = []
    for number in (60, 61):
        job = begin(store)
        job.write(rows([number], day="x"))
        jobs.append(job.prepare())
    birth = format.parse_job_id(jobs[0]).birth
    for _ in range(3):
        assert gc(store).fence <= birth
    assert commit_prepared(session(store), jobs[0]).committed
    check_readable(store)
    for _ in range(2):
        assert gc(store, prepared_grace_s=0).fence > birth
    assert commit_prepared(session(store), jobs[1]).kind in ("fenced", "unknown")
    assert 60 in read_ids(store) and 61 not in read_ids(store)
    check_clean(store)


def test_a_prepared_job_on_a_store_without_times_goes_by_its_own() -> None:
    """[AB5]"""
    store = table()
    job = begin(store)
    job.write(rows([60], day="x"))
    job_id = job.prepare()
    timeless = Clock(store, lambda modified: 0.0)
    for _ in range(3):
        gc(timeless)
    assert commit_prepared(session(store), job_id).committed
    gc(timeless)
    gc(timeless)
    check_clean(store)


# --- clocks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("grace_s", [0.0, 86_400.0])
def test_no_clock_can_make_gc_delete_what_is_needed(clock: str, grace_s: float) -> None:
    """[GC1] [IV7]"""
    store = table()
    prepared = begin(store)
    prepared.write(rows([70], day="x"))
    for number in range(4):
        job = begin(store)
        job.write(rows([80 + number], day="x"))
        gc(Clock(store, CLOCKS[clock]), grace_s=grace_s, keep_for_s=grace_s)
        check_readable(store)
        with contextlib.suppress(JobFencedError):
            job.commit()
        check_readable(store)
    with contextlib.suppress(JobFencedError, OutcomeUnknownError):
        prepared.commit()
    check_clean(store)


@pytest.mark.parametrize("clock", ["right", "ahead", "behind", "silent", "whole seconds"])
def test_ages_are_measured_by_the_stores_own_clock(clock: str) -> None:
    """A store whose clock is hours off keeps what is younger than the grace period, and expires with none. [GC1]"""
    store = table()
    kept = gc(Clock(store, CLOCKS[clock]), grace_s=3600, keep_for_s=3600)
    assert (kept.fence, kept.expired, kept.deleted) == (1, 1, {})
    assert gc(Clock(store, CLOCKS[clock])).fence == 7, "the head before it"


# --- crashes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["dies_before", "dies_after"])
@pytest.mark.usefixtures("tight")
def test_a_crash_anywhere_leaves_what_the_next_gc_finishes(fault: Fault) -> None:
    """[GC7] [IV3]"""
    base = table()
    base.put("x/foreign é.csv", b"1")
    before = read_ids(base)
    calls = FaultStore(clone(base))
    gc(calls, foreign=True, keep_keys=1)
    assert calls.count > 20
    for number in range(1, calls.count + 1):
        store = clone(base)
        with contextlib.suppress(Died):
            gc(FaultStore(store, {number: fault}), foreign=True, keep_keys=1)
        check_readable(store)
        assert read_ids(store) == before
        left = [name for name in sizes(store) if "foreign" in name and name not in open_head(store).snapshot.condemned]
        check_clean(store, *left)
        forget(store)


@pytest.mark.parametrize("fault", ["refused", "request_lost", "answer_lost"])
def test_a_request_that_fails_costs_nothing(fault: Fault) -> None:
    """[GC3] [IV3] [IV4]"""
    base = table()
    before = read_ids(base)
    calls = FaultStore(clone(base))
    gc(calls)
    for number in range(1, calls.count + 1):
        store = clone(base)
        failing = FaultStore(store, {number: fault})
        with contextlib.suppress(StoreError, OutcomeUnknownError):
            gc(failing)
        deleted = [call for call in failing.calls if call.kind == "delete"]
        assert not deleted or open_head(store).snapshot.commits[-1].operation == "gc", "nothing goes before it is decided"
        check_readable(store)
        assert read_ids(store) == before
        check_clean(store)
        forget(store)


# --- one thing in between, at every call ----------------------------------------------------------------------------------


def interleaved(base: Store, work: Callable[[Store], object], act: Callable[[Store], object]) -> Iterator[tuple[Store, object, object]]:
    """`work` with the whole of `act` before one of its calls, for each of them: the store, and what both returned or raised."""
    calls = FaultStore(clone(base))
    work(calls)
    for number in range(1, calls.count + 1):
        store, acted = clone(base), []

        def between(call: FaultCall, number: int = number, store: Store = store, acted: list[object] = acted) -> None:
            if call.number == number:
                acted.append(told(lambda: act(store)))

        done = told(lambda store=store, between=between: work(FaultStore(store, on_call=between)))
        assert acted
        yield store, done, acted[0]
        forget(store)


def told(work: Callable[[], object]) -> object:
    try:
        return work()
    except ManifestCommitError as error:
        return error


def append(store: Store) -> object:
    return write(store, rows([200], day="x"), key="new")


def overwrite(store: Store) -> object:
    return write(store, rows([200], day="y"), overwrite=None, conflict="blind")


def append_and_overwrite(store: Store) -> object:
    write(store, rows([201], day=DAY))
    return write(store, rows([200], day=DAY), overwrite="dynamic")


def add_foreign(store: Store) -> object:
    """Makes a table list the file that gc is about to condemn."""
    with begin(store) as job:
        job.add_files(["day=x/foreign.parquet"])
    return job.outcome


ACTS: dict[str, Callable[[Store], object]] = {
    "append": append,
    "overwrite": overwrite,
    "two commits": append_and_overwrite,
    "tag": lambda store: tag(store, "new", open_head(store).snapshot.expired),
    "untag": lambda store: tag(store, "first é", None),
    "rollback": lambda store: rollback(session(store), open_head(store).snapshot.expired, reason="é"),
    "rollback to a tag": lambda store: rollback(session(store), tag="first é", reason="é"),
    "gc": gc,
    "two gcs": lambda store: (gc(store), gc(store)),
    "an orphan": lambda store: orphan(store, 9),
}


@pytest.mark.parametrize("act", ACTS)
def test_whatever_happens_before_any_call_of_a_gc_is_kept(act: str) -> None:
    """[GC4] [GC12] [IV2] [IV7]"""
    for store, done, acted in interleaved(table(), gc, ACTS[act]):
        assert isinstance(done, GcReport), done
        assert not isinstance(acted, ManifestCommitError) or (act == "rollback" and isinstance(acted, UsageError)), acted
        check_readable(store)
        if act == "rollback to a tag":
            assert read_ids(store) == [1]
        if act in ("append", "overwrite", "two commits"):
            assert 200 in read_ids(store)
        if act == "tag":
            assert is_readable(open_head(store).snapshot, open_head(store).snapshot.tags["new"].version)
        check_now_and_then(store)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("work", ["append", "overwrite", "two commits"])
def test_gcs_before_any_call_of_a_commit_take_nothing_that_it_lists(work: str, count: int) -> None:
    """It commits, or it is fenced and nothing of it is visible; others lose nothing. [GC2] [CM2] [IV7]"""
    base = table()
    before = read_ids(base)
    fenced = 0
    for store, done, acted in interleaved(base, ACTS[work], lambda store: [gc(store) for _ in range(count)]):
        assert isinstance(acted, list)
        check_readable(store)
        if isinstance(done, ManifestCommitError):
            assert isinstance(done, JobFencedError | OutcomeUnknownError), done
            if isinstance(done, JobFencedError):
                assert 200 not in read_ids(store) and set(before) - {3} <= set(read_ids(store))
            fenced += 1
        else:
            assert 200 in read_ids(store)
        check_now_and_then(store)
    assert (fenced > 0) == (count == 2)


def spilled() -> MemoryStore:
    """A table whose entries, keys, jobs and removals all lie in objects of their own, which every gc replaces."""
    store = memory()
    for number in range(6):
        write(store, rows([number], day=str(number % 2)), key=f"k{number}", partition_by=["day"])
    write(store, rows([50], day="1"), overwrite={"day": "1"})
    tag(store, "t", 6)
    return store


def replace_all(store: Store) -> None:
    """Nothing that the head lists now is listed by a version that can be read afterwards."""
    tag(store, "t", None)
    write(store, rows([100], day="1"), overwrite=None, conflict="blind")
    for _ in range(2):
        gc(store, keep_keys=1)


@pytest.mark.parametrize("work", ["append", "overwrite", "gc", "rollback"])
@pytest.mark.usefixtures("tight")
def test_what_gc_takes_of_an_expired_head_is_no_damage_to_who_still_knows_it(work: str) -> None:
    """A job that slept is fenced, and not told to restore a backup of a table that is whole. [CM2] [RD3] [GC5]"""
    works: dict[str, Callable[[Store], object]] = {
        "append": lambda store: write(store, rows([200], day="0"), key="k1 again"),
        "overwrite": lambda store: write(store, rows([200], day="0"), overwrite={"day": "0"}),
        "gc": lambda store: gc(store, keep_keys=4),
        "rollback": lambda store: rollback(session(store), tag="t", reason="é"),
    }
    told_of = set()
    for store, done, acted in interleaved(spilled(), works[work], replace_all):
        assert not isinstance(acted, ManifestCommitError), acted
        assert not isinstance(done, CorruptMetadataError), done
        told_of.add(getattr(done, "kind", type(done).__name__))
        check_readable(store)
    assert len(told_of) > 1 or work == "gc", told_of


@pytest.mark.usefixtures("tight")
def test_a_snapshot_that_expired_before_its_files_were_listed_says_so() -> None:
    """[RD3]"""
    store = spilled()
    known = open_head(store)
    replace_all(store)
    with pytest.raises(SnapshotExpiredError):
        plan.entries_table(session(store), known.snapshot)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "INLINE_ENTRY_BYTES", 1)
        write(store, rows([10], day="1"))
    newest = open_head(store)
    store.delete([newest.snapshot.manifests[0].path])
    with pytest.raises(CorruptMetadataError):
        plan.entries_table(session(store), newest.snapshot)
    write(store, rows([11], day="1"))
    with pytest.raises(CorruptMetadataError):
        plan.entries_table(session(store), newest.snapshot)


def test_a_prepared_commit_at_any_call_of_a_gc() -> None:
    """[AB3] [AB5] [IV7]"""
    base = table()
    job = begin(base)
    job.write(rows([200], day="x"))
    job_id = job.prepare()
    for store, _, acted in interleaved(base, gc, lambda store: commit_prepared(session(store), job_id)):
        assert not isinstance(acted, ManifestCommitError)
        assert 200 in read_ids(store)
        check_readable(store)
        check_now_and_then(store)


def parquet(store: Store, name: str, number: int) -> None:
    """A file that fits the table and that no job of it wrote."""
    import io

    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(rows([number], day="x"), sink)
    store.put(name, sink.getvalue())


def test_adding_a_file_that_gc_condemns_is_one_or_the_other() -> None:
    """At every call of gc, and at every call of the job: it is listed and there, or refused and gone. [GC6] [CF11]"""
    base = table()
    parquet(base, "day=x/foreign.parquet", 200)
    both: list[tuple[Callable[[Store], object], Callable[[Store], object]]] = [
        (lambda store: gc(store, foreign=True), add_foreign),
        (add_foreign, lambda store: gc(store, foreign=True)),
    ]
    outcomes = set()
    for work, act in both:
        for store, done, acted in interleaved(base, work, act):
            check_readable(store)
            listed = 200 in read_ids(store)
            outcomes.add(listed)
            assert not (listed and "day=x/foreign.parquet" in open_head(store).snapshot.condemned), "live, and condemned"
            added = done if work is add_foreign else acted
            assert listed == ("day=x/foreign.parquet" in sizes(store)) == (not isinstance(added, Exception)), (done, acted)
            check_now_and_then(store)
    assert outcomes == {True, False}


def test_a_file_that_was_removed_and_is_added_again_is_not_taken_by_a_gc_that_runs() -> None:
    """Its name carries an old job: whoever adds it is fenced where gc may be about to delete it. [CM2] [GC5] [IV7]"""
    base = memory()
    write(base, rows([1]))
    path = open_head(base).snapshot.added[0].path
    write(base, rows([2]), overwrite=None)

    def add_again(store: Store) -> object:
        with begin(store) as job:
            job.add_files([path])
        return job.outcome

    for store, done, acted in interleaved(base, gc, add_again):
        check_readable(store)
        assert isinstance(done, GcReport) and (read_ids(store) == [1, 2]) == (not isinstance(acted, Exception)), acted
    for store, done, _ in interleaved(base, add_again, gc):
        check_readable(store)
        assert (read_ids(store) == [1, 2]) == (not isinstance(done, Exception)), done


# --- any history --------------------------------------------------------------------------------------------------------

STEPS = ("append", "overwrite", "orphan", "begin", "commit", "prepare", "tag", "untag", "rollback", "gc", "gentle gc")


@settings(max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), min_size=5, max_size=12), st.booleans())
def test_any_history_keeps_what_is_readable_and_leaves_nothing_else(steps: list[tuple[str, int]], is_tight: bool) -> None:
    """Jobs that wait, commit late or never, tags and rollbacks, with gcs between them. [GC5] [GC7] [IV7]"""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("INLINE_ENTRY_BYTES", "INLINE_KEYS", "INLINE_JOBS", "INLINE_REMOVED_BYTES") if is_tight else ():
            patch.setattr(spill, name, 2)
        patch.setattr(spill, "FAN_IN", 3 if is_tight else 8)
        store, waiting = memory(), []
        write(store, rows([0], day="0"), partition_by=["day"])
        for number, (step, which) in enumerate(steps, start=1):
            data, day = rows([number], day=str(which)), {"day": str(which)}
            with contextlib.suppress(JobFencedError, OutcomeUnknownError, CommitConflictError, SnapshotExpiredError, UsageError):
                match step:
                    case "append":
                        write(store, data, key=f"k{number}")
                    case "overwrite":
                        write(store, data, overwrite=day)
                    case "orphan":
                        orphan(store, number)
                    case "begin":
                        waiting.append(begin(store, f"w{number}"))
                        waiting[-1].write(data)
                    case "commit" if waiting:
                        waiting.pop(which % len(waiting)).commit()
                    case "prepare" if waiting:
                        waiting.pop(which % len(waiting)).prepare()
                    case "tag":
                        tag(store, f"t{which}", open_head(store).snapshot.expired)
                    case "untag":
                        tag(store, f"t{which}", None)
                    case "rollback":
                        rollback(session(store), max(1, open_head(store).version - which - 1), reason="x")
                    case "gc" | "gentle gc":
                        gc(store, prepared_grace_s=0, keep_versions=1 if step == "gc" else 4)
            check_readable(store)
        gc(store, prepared_grace_s=0)
        gc(store, prepared_grace_s=0)
        check_clean(store)
        forget(store)


# --- more of what goes wrong ----------------------------------------------------------------------------------------------


def test_two_gcs_with_commits_beside_them() -> None:
    """Threads, as they come. [GC12] [IV7]"""
    store = table()
    errors: list[BaseException] = []

    def collect() -> None:
        for _ in range(12):
            gc(store)

    def publish(start: int) -> None:
        for number in range(start, start + 12):
            while key_version(store, str(number)) is None:  # between its begin and its commit two gcs may come by
                with contextlib.suppress(JobFencedError, OutcomeUnknownError):
                    write(store, rows([number], day="x"), key=str(number))

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    works = [collect, collect, lambda: publish(1000), lambda: publish(2000)]
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert [number for number in read_ids(store) if number >= 1000] == [*range(1000, 1012), *range(2000, 2012)]
    check_readable(store)
    check_clean(store)


def test_a_version_that_a_stalled_writer_brings_back_is_deleted_again_and_trusted_by_no_one() -> None:
    """[GC4] [GC7] [IV8]"""
    base = table()
    old = {version: base.get(format.version_name(version)) for version in (1, 3, 4)}

    def bring_back(store: Store) -> None:
        for version, data in old.items():
            store.put_if_absent(format.version_name(version), data)

    gc(base)
    for store, done, _ in interleaved(base, gc, bring_back):
        assert isinstance(done, GcReport)
        check_readable(store)
        check_clean(store)
        assert read_object(store, 3) is None


def test_a_stalled_create_of_a_deleted_version_is_not_acknowledged() -> None:
    """The writer stops before its create, gc goes by twice, and it goes on. [IV8] [CM5]"""
    base = table()
    held: list[FaultCall] = []

    def stall(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and call.name.startswith(format.VERSIONS) and not held:
            held.append(call)
            for number in range(3):
                write(base, rows([300 + number], day="x"))
                gc(base)

    with pytest.raises((JobFencedError, OutcomeUnknownError)):
        write(FaultStore(base, on_call=stall), rows([200], day="x"))
    assert 200 not in read_ids(base)
    check_clean(base)


@pytest.mark.parametrize("hint", [b"1", b"999999", b"nonsense", b"", None])
def test_a_hint_that_lies_changes_nothing(hint: bytes | None) -> None:
    """[LY7] [GC7]"""
    store = table()
    gc(store)
    before = read_ids(store)
    store.delete([format.HINT])
    if hint is not None:
        store.put(format.HINT, hint)
    gc(store)
    assert read_ids(store) == before
    check_clean(store)


def test_damage_stops_gc_before_it_deletes_anything() -> None:
    """A version that is missing, or replaced, or a manifest that is gone: fewer references would delete live files. [GC4] [IV1]"""
    for victim in ("version", "replaced", "manifest"):
        store = memory()
        write(store, rows([1]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spill, "INLINE_ENTRY_BYTES", 1)
            write(store, rows([2]))
        write(store, rows([3]))
        if victim == "version":
            store.delete([format.version_name(3)])
        elif victim == "replaced":
            found = read_object(store, 3)
            assert found is not None
            bare = msgspec.structs.replace(found.snapshot, added=(), manifests=())
            store.put(format.version_name(3), format.encode_snapshot(bare))
        else:
            store.delete([open_head(store).snapshot.manifests[0].path])
        before = {name for name in sizes(store) if not name.startswith("_manifest/")}
        with pytest.raises(CorruptMetadataError):
            run(session(store), msgspec.structs.replace(HARSH, keep_versions=3))
        assert {name for name in sizes(store) if not name.startswith("_manifest/")} == before, victim


def test_objects_of_other_tables_and_of_nobody_are_left() -> None:
    """A table inside, a copy inside, an earlier table at this root, and what this release does not know. [GC5] [GC6] [LY6]"""
    store = table()
    other = table()
    for info in other.list(""):
        store.put(f"inner/{info.name}", other.get(info.name))
    for info in list(store.list("")):
        if not info.name.startswith("inner/"):
            store.put(f"backup/{info.name}", store.get(info.name))
    data = next(info.name for info in other.list("day="))
    foreign_job = format.job_of_data_file(data)
    assert foreign_job is not None
    store.put(data, b"of an earlier table")
    store.put(format.prepared_name(foreign_job), b"of an earlier table")
    store.put(format.manifest_name(foreign_job, b"0" * 16), b"of an earlier table")
    store.put("_manifest/versions/i-x", b"?")
    store.put("_manifest/of a later release/x", b"?")
    store.put("_delta_log/00.json", b"?")
    store.put("_SUCCESS", b"")
    store.put("plain é%.csv", b"1,2")
    strangers = {name for name in sizes(store) if name.startswith(("inner/", "backup/", "_delta", "_SUCCESS", "plain"))}
    strangers |= {data, format.prepared_name(foreign_job), format.manifest_name(foreign_job, b"0" * 16)}
    strangers |= {"_manifest/versions/i-x", "_manifest/of a later release/x"}
    check_clean(store, *strangers)
    report = gc(store)
    assert report.foreign.count + report.unknown.count == len(strangers)
    assert report.unknown.count == 4
    gc(store, foreign=True)
    gone = {data, "plain é%.csv"}
    assert strangers - gone <= set(sizes(store)) and not gone & set(sizes(store))


def test_the_only_copy_of_a_folder_that_is_being_adopted_is_not_condemned() -> None:
    """Crashed between the table and the list of its files, at every call there: they look foreign, and are the data. [GC6] [AF2] [IV7]"""
    base = memory()
    parquet(base, "day=x/only copy é.parquet", 200)
    calls = FaultStore(clone(base))
    adopt(session(calls))
    unfinished = 0
    for number in range(1, calls.count + 1):
        store = clone(base)
        with contextlib.suppress(Died):
            adopt(session(FaultStore(store, {number: "dies_before"})))
        made = any(info.name.startswith(format.VERSIONS) for info in store.list(""))
        if made and UNFINISHED in open_head(store).snapshot.properties:
            unfinished += 1
            before = sizes(store)
            for refused in (lambda store=store: gc(store, foreign=True), lambda store=store: look(session(store), HARSH, foreign=True)):
                with pytest.raises(UsageError, match="adoption of this folder is unfinished"):
                    refused()
            assert sizes(store).keys() - {format.HINT} == before.keys() - {format.HINT}
            gc(store)
        assert adopt(session(store)).version
        assert gc(store, foreign=True).deleted.keys() <= {"version", "manifest"} and read_ids(store) == [200]
        forget(store)
    assert unfinished > 2


def test_condemned_names_leave_the_chain_once_no_job_can_add_them_any_more() -> None:
    """[GC6] [CF11]"""
    store = table()
    parquet(store, "day=x/foreign.parquet", 200)
    gc(store, foreign=True)
    assert open_head(store).snapshot.condemned == {"day=x/foreign.parquet": None}
    parquet(store, "day=x/foreign.parquet", 200)
    with pytest.raises(CommitConflictError) as caught:
        add_foreign(store)
    assert caught.value.rule == "path_is_condemned"
    gc(store)
    assert "day=x/foreign.parquet" not in sizes(store)
    for _ in range(3):
        gc(store)
    assert open_head(store).snapshot.condemned == {}
    parquet(store, "day=x/foreign.parquet", 200)
    assert add_foreign(store)
    check_clean(store)
    assert 200 in read_ids(store)


def paused(store: Store, act: Callable[[], object]) -> FaultStore:
    """A store whose gc stops after its last list of everything, before it deletes anything, until `act` is done."""
    lists: list[int] = []

    def stop(call: FaultCall) -> None:
        if len(lists) == 3:
            lists.append(0)
            act()
        elif (call.kind, call.name) == ("list", ""):
            lists.append(0)

    return FaultStore(store, on_call=stop)


def test_a_gc_that_slept_deletes_no_file_that_is_listed_by_now() -> None:
    """The name that it condemned has left the chain, and was used again. [GC6] [IV7]"""
    store = table()
    parquet(store, "day=x/foreign.parquet", 200)

    def meanwhile() -> None:
        for _ in range(4):
            gc(store)
        parquet(store, "day=x/foreign.parquet", 200)
        add_foreign(store)

    gc(paused(store, meanwhile), foreign=True)
    assert 200 in read_ids(store)
    check_readable(store)
    check_clean(store)


def test_a_gc_that_slept_deletes_nothing_of_a_table_that_was_made_anew() -> None:
    """[GC7]"""
    store = table()
    parquet(store, "day=x/foreign.parquet", 200)

    def meanwhile() -> None:
        forget(store)
        for number in range(3):
            write(store, rows([number]))

    with pytest.raises(TableNotFoundError):
        gc(paused(store, meanwhile), foreign=True)
    assert read_ids(store) == read_ids(store, 4) == [0, 1, 2]
    assert read_ids(store, 2) == [0]


def test_at_most_so_many_foreign_files_are_condemned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """[GC6]"""
    from manifestcommit.core import retention

    monkeypatch.setattr(retention, "MAX_CONDEMNED", 3)
    store = table()
    for number in range(7):
        store.put(f"x/{number}", b"1")
    assert [gc(store, foreign=True).foreign.count for _ in range(4)] == [4, 1, 0, 0]
    check_clean(store)


def test_a_gc_that_finds_nothing_to_change_commits_nothing() -> None:
    """[GC3]"""
    store = table()
    report = run(session(store), Policy())
    assert report.version == 7 and report.deleted == {}
    check_table(store)


def test_versions_go_last_and_lowest_first_and_never_before_the_decision() -> None:
    """[GC3] [GC7]"""
    calls = FaultStore(table())
    gc(calls)
    deletes = [call.name for call in calls.calls if call.kind == "delete"]
    versions = [name for name in deletes if name.startswith(format.VERSIONS)]
    assert versions == sorted(versions) and deletes[-len(versions) :] == versions and len(versions) < len(deletes)
    created = next(call.number for call in calls.calls if call.kind == "put_if_absent" and call.name.startswith(format.VERSIONS))
    assert all(call.number > created for call in calls.calls if call.kind == "delete")


def test_on_disk_with_temporary_files(tmp_path: Path) -> None:
    """[GC9] [ST2]"""
    store = LocalStore(str(tmp_path / "a t%+é"))
    for info in (base := table()).list(""):
        store.put(info.name, base.get(info.name))
    orphan(store, 7)
    left = tmp_path / "a t%+é" / "day=x" / ".mc-tmp-0123456789abcdef"
    left.write_bytes(b"half a file")
    spared = gc(store, grace_s=3600)
    assert left.exists() and "temporary file" not in spared.deleted, "someone may still write it"
    report = gc(store)
    assert (report.deleted["temporary file"].count, report.deleted["temporary file"].bytes) == (1, 11)
    assert not left.exists()
    check_clean(store)


def slow(store: Store, act: Callable[[], object]) -> Any:
    """A job with a file that is half written while `act` takes place."""
    job = begin(store)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(range(500, 5500), day="x").to_batches()
        act()
        yield from rows(range(5500, 5600), day="x").to_batches()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_rows, "ROW_GROUP_BYTES", 1)  # what is buffered has no file yet
        job.write(pa.RecordBatchReader.from_batches(rows([0], day="x").schema, batches()))
    return job


def test_a_file_that_a_running_task_still_writes_is_not_taken_however_old_it_is(tmp_path: Path) -> None:
    """A task that computes for longer than the grace period: its job can still commit, so its half file stays. [GC9] [IV7]"""
    store = LocalStore(str(tmp_path / "t"))
    write(store, rows([1], day=DAY), partition_by=["day"])

    def collect() -> None:
        (half,) = store.unfinished()
        os.utime(tmp_path / "t" / half.temporary, (1, 1))
        gc(store)
        assert [each.name for each in store.unfinished()] == [half.name]

    slow(store, collect).commit()
    assert read_ids(store) == [1, *range(500, 5600)]
    check_clean(store)


def test_the_half_file_of_a_job_that_is_fenced_goes_and_its_task_is_told(tmp_path: Path) -> None:
    """However young it is: nobody can finish it. [GC9] [ST15] [CM2]"""
    store = LocalStore(str(tmp_path / "t"))
    write(store, rows([1], day=DAY), partition_by=["day"])

    def collect() -> None:
        write(store, rows([2]))
        assert len(list(store.unfinished())) == 1
        assert gc(store).deleted["unfinished output"].count == 1

    with pytest.raises(StoreError, match="removed while it was written"):
        slow(store, collect)
    assert list(store.unfinished()) == [] and read_ids(store) == [1, 2]
    check_clean(store)

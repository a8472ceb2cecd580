"""gc under crashes, damage and lies: nothing that is needed ever goes, and what is dead is gone after the next two. [GC1]-[GC8] [IV7]"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.faults.collected import DAY, HARSH, add_foreign, check_clean, check_readable, gc, orphan, parquet, sizes, table, tag
from tests.kit.clocks import CLOCKS, StoreClock
from tests.kit.sizes import SetBudgets, budgets
from tests.kit.tables import begin, job_on, job_with, key_version, memory, read, read_ids, rollback, rows, session, write

from manifestcommit import errors
from manifestcommit.commits.two_phase import commit_prepared
from manifestcommit.files import writer as engine_rows
from manifestcommit.format import codec, object_names
from manifestcommit.format.partitioning import NULL_FOLDER
from manifestcommit.log.version_chain import open_head, read_object
from manifestcommit.operations.gc import run
from manifestcommit.operations.verify import verify
from manifestcommit.protocol.retention import Policy
from manifestcommit.store import LocalStore, Store, Unfinished
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import Died, Fault, FaultCall, FaultStore


# --- completeness, alone --------------------------------------------------------------------------------------------------
@pytest.mark.thorough
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
def test_spilled_and_merged_tables_are_collected_too(store: MemoryStore) -> None:
    """An entry stays as long as one readable version has not taken it away; runs and manifests that were merged go. [GC5] [OB9]"""
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
    job = job_with(store, rows([7], day="late"))
    gc(store)
    gc(store)
    assert not any(job.id in name for name in sizes(store)), "a job that was born below the fence has nothing left"
    store.put(f"day=late/00000-{'0' * 16}-0-{job.id}.parquet", b"a zombie's")
    store.put(object_names.manifest_name(job.id, b"0" * 16), b"a zombie's")
    with pytest.raises(errors.JobFencedError):
        job.commit()
    store.put(object_names.key_mark_name(job.id, "k é"), b"of a recoverable job")
    store.put(object_names.task_name(job.id, "0" * 32, 7), b"of a recoverable job")
    store.put(object_names.prepared_name(job.id), b"of a prepared job")
    check_clean(store)
    assert not any(job.id in name for name in sizes(store))


@pytest.mark.thorough
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
    assert all(object_names.parse_job_id(job).birth >= fence for job in recorded_jobs(session(store))), (
        "one gc later they are forgotten [GC8]"
    )
    assert any(object_names.parse_job_id(job).birth < fence for job in jobs), "and not earlier"
    assert not write(store, rows([0]), key="k0").already_committed
    check_clean(store)
    store = memory()
    for number in range(9):
        write(store, rows([number]), key=f"k{number}")
    run(session(store), Policy(keep_keys=0))
    assert all(key_version(store, f"k{number}") for number in range(9)), "the fence has not reached them"


@pytest.mark.parametrize("late", [False, True], ids=["before gc", "beside gc"])
@pytest.mark.parametrize("spilled", [False, True], ids=["inlined", "spilled"])
def test_rows_are_not_doubled_by_a_job_that_began_while_its_key_was_rolled_back(late: bool, spilled: bool, set_budgets: SetBudgets) -> None:
    """A rollback brings a key back with its old record, below the fence: gc must not forget it while that job can commit. [KY4] [CF13]"""
    if spilled:
        set_budgets(inline_keys=0)
    store = memory()
    write(store, rows([1]))
    done = write(store, rows([2]), key="k").version
    assert done is not None
    rollback(session(store), done - 1, reason="by mistake")
    write(store, rows([3]), key="later")  # so that a gc before the second rollback has a key to forget
    old = max(info.modified for info in store.list(object_names.VERSIONS))
    clock = StoreClock(store, lambda modified: modified - 7200 if modified <= old else modified)
    tried = 0

    def undo(call: FaultCall) -> None:
        nonlocal tried
        tried += call.kind == "put_if_absent" and object_names.parse_version(call.name) is not None
        if tried == late:
            tried += 1
            rollback(session(store), done, reason="it was right")

    with begin(store, "k") as job:
        job.write(rows([2]))
        if not late:
            rollback(session(store), done, reason="it was right")
        policy = Policy(grace_s=3600, keep_versions=1, keep_for_s=0, keep_keys=0)
        each = session(FaultStore(clock, on_call=undo if late else None))
        report = run(each, policy)
        assert object_names.parse_job_id(job.id).birth >= report.fence > done, "it can still commit, and the record is below the fence"
        assert key_version(store, "k") == done
    assert job.outcome is not None and job.outcome.already_committed and read_ids(store) == [1, 2]
    gc(store, keep_keys=0)
    gc(store, keep_keys=0)
    assert key_version(store, "k") is None, "from then on it may be forgotten"


def recorded_jobs(each: Any) -> list[str]:
    from manifestcommit.log.manifests import JOB_RUN

    snapshot = each.open().snapshot
    spilled = [job for ref in snapshot.job_runs for job in each.manifests.run(ref, JOB_RUN).column("job").to_pylist()]
    return [*snapshot.recent_jobs, *spilled]


def test_a_young_prepared_job_holds_the_fence_and_an_old_one_does_not() -> None:
    """[AB5] [AB3]"""
    store = table()
    jobs = []
    for number in (60, 61):
        job = job_with(store, rows([number], day="x"))
        jobs.append(job.prepare())
    birth = object_names.parse_job_id(jobs[0]).birth
    for _ in range(3):
        assert gc(store).fence <= birth
    assert commit_prepared(session(store), jobs[0]).committed
    check_readable(store)
    for _ in range(2):
        assert gc(store, prepared_grace_s=0).fence > birth
    assert commit_prepared(session(store), jobs[1]).kind in ("fenced", "unknown")
    assert 60 in read_ids(store) and 61 not in read_ids(store)
    check_clean(store)


# --- clocks ---------------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("grace_s", [0.0, 86_400.0])
def test_no_clock_can_make_gc_delete_what_is_needed(clock: str, grace_s: float) -> None:
    """[GC1] [IV7]"""
    store = table()
    prepared = job_with(store, rows([70], day="x"))
    for number in range(4):
        job = job_with(store, rows([80 + number], day="x"))
        gc(StoreClock(store, CLOCKS[clock]), grace_s=grace_s, keep_for_s=grace_s)
        check_readable(store)
        with contextlib.suppress(errors.JobFencedError):
            job.commit()
        check_readable(store)
    with contextlib.suppress(errors.JobFencedError, errors.OutcomeUnknownError):
        prepared.commit()
    check_clean(store)


@pytest.mark.parametrize("clock", ["right", "ahead", "behind", "silent", "whole seconds"])
def test_ages_are_measured_by_the_stores_own_clock(clock: str) -> None:
    """A store whose clock is hours off keeps what is younger than the grace period, and expires with none. [GC1]"""
    store = table()
    kept = gc(StoreClock(store, CLOCKS[clock]), grace_s=3600, keep_for_s=3600)
    assert (kept.fence, kept.expired, kept.deleted) == (1, 1, {})
    assert gc(StoreClock(store, CLOCKS[clock])).fence == 7, "the head before it"


# --- more of what goes wrong ----------------------------------------------------------------------------------------------
def test_damage_stops_gc_before_it_deletes_anything() -> None:
    """A version that is missing, or replaced, or a manifest that is gone: fewer references would delete live files. [GC4] [IV1]"""
    for victim in ("version", "replaced", "manifest"):
        store = memory()
        write(store, rows([1]))
        with budgets(inline_entry_bytes=1):
            write(store, rows([2]))
        write(store, rows([3]))
        if victim == "version":
            store.delete([object_names.version_name(3)])
        elif victim == "replaced":
            found = read_object(store, 3)
            bare = msgspec.structs.replace(found.snapshot, added=(), manifests=())
            store.put(object_names.version_name(3), codec.encode_snapshot(bare))
        else:
            store.delete([open_head(store).snapshot.manifests[0].path])
        before = {name for name in sizes(store) if not name.startswith("_manifest/")}
        with pytest.raises(errors.CorruptMetadataError):
            run(session(store), msgspec.structs.replace(HARSH, keep_versions=3))
        assert {name for name in sizes(store) if not name.startswith("_manifest/")} == before, victim


def told(store: Store) -> Counter[str]:
    """How many objects verify tells of, by kind."""
    found: Counter[str] = Counter()
    for each in verify(session(store)).findings:
        assert each.severity == "note", each
        found[each.kind] += 1 if each.object else int(each.problem.partition(": ")[2].split()[0].replace(",", ""))
    return found


STRANGERS: dict[str, Callable[[str, str], str]] = {  # what is told -> and the name, by a job and the same job of another table
    "orphans: in a folder of a partition": lambda own, other: f"day=é %2F+%3D%23%27/{data_file(own)}",
    "orphans: in that of null": lambda own, other: f"day={NULL_FOLDER}/{data_file(own)}",
    "orphans: a manifest": lambda own, other: object_names.manifest_name(own, b"m" * 16),
    "orphans: left by a job": lambda own, other: object_names.key_mark_name(own, "k é"),
    "foreign_files: a copy": lambda own, other: f"backup/{data_file(own)}",
    "foreign_files: a copy in a partition": lambda own, other: f"day=x/copy of é/{data_file(own)}",
    "foreign_files: a copy below the root": lambda own, other: data_file(own),
    "foreign_files: a copy in a folder like a partition's": lambda own, other: f"backup=2013-01-01/{data_file(own)}",
    "foreign_files: a copy of a partition's folder": lambda own, other: f"old-day=x/{data_file(own)}",
    "foreign_files: a copy of a partition in another": lambda own, other: f"day=x/day=x/{data_file(own)}",
    "foreign_files: a folder that is escaped otherwise": lambda own, other: f"day=%78/{data_file(own)}",
    "foreign_files: a folder with nothing behind its =": lambda own, other: f"day=/{data_file(own)}",
    "foreign_files: a copy under another name": lambda own, other: f"day=x/copy-{data_file(own)}",
    "foreign_files: a copy with a number": lambda own, other: f"day=x/1{data_file(own)[1:5]}-{data_file(own)}",
    "foreign_files: a checksum beside it": lambda own, other: f"day=x/{data_file(own)}.crc",
    "untracked_parquet: a stranger": lambda own, other: "day=x/a b%20+=#'\".parquet",
    "other_table: its file": lambda own, other: f"day=x/{data_file(other)}",
    "other_table: a copy of its file": lambda own, other: f"backup/{data_file(other)}",
    "other_table: its manifest": lambda own, other: object_names.manifest_name(other, b"m" * 16),
    "other_table: left by its job": lambda own, other: object_names.prepared_name(other),
    "other_table: its intent": lambda own, other: object_names.intent_name(other),
    "other_table: a version below": lambda own, other: f"é b/{object_names.version_name(1)}",
    "other_table: a whole copy below": lambda own, other: f"backup/{object_names.manifest_name(own, b'm' * 16)}",
    "intent: of a job that is fenced": lambda own, other: object_names.intent_name(own),
    "foreign_name: no intent": lambda own, other: f"{object_names.INTENTS}{own} ",
    "foreign_name: no version": lambda own, other: f"{object_names.VERSIONS}7.json.zst",
    "foreign_name: no manifest": lambda own, other: f"{object_names.MANIFESTS}x %41.parquet",
    "foreign_name: no job": lambda own, other: f"{object_names.JOBS}what/ever",
    "foreign_name: of a later release": lambda own, other: "_manifest/else where",
}


def data_file(job: str) -> str:
    return f"00003-{'a' * 16}-0-{job}.parquet"


@pytest.mark.parametrize("stranger", STRANGERS)
def test_what_verify_says_of_a_name_is_what_gc_does_with_it(stranger: str) -> None:
    """Nobody waits for a gc to remove what it leaves, nor keeps what it takes. [RD10] [GC5] [GC6]"""
    store = table()
    gc(store)
    head = open_head(store).snapshot
    assert head.fence > 1
    name = STRANGERS[stranger](*(object_names.job_id(head.fence - 1, each, b"r" * 16) for each in (head.table_id, "f" * 16)))
    before = told(store)
    store.put(name, b"123")
    kind = stranger.partition(":")[0]
    assert told(store) - before == Counter([kind])
    gc(store, grace_s=86_400.0)
    assert open_head(store).snapshot.fence == head.fence
    assert (name not in sizes(store)) == (kind in ("orphans", "intent"))


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
    foreign_job = object_names.job_of_data_file(data)
    assert foreign_job is not None
    store.put(data, b"of an earlier table")
    store.put(object_names.prepared_name(foreign_job), b"of an earlier table")
    store.put(object_names.manifest_name(foreign_job, b"0" * 16), b"of an earlier table")
    store.put("_manifest/versions/i-x", b"?")
    store.put("_manifest/of a later release/x", b"?")
    store.put("_delta_log/00.json", b"?")
    store.put("_SUCCESS", b"")
    store.put("plain é%.csv", b"1,2")
    strangers = {name for name in sizes(store) if name.startswith(("inner/", "backup/", "_delta", "_SUCCESS", "plain"))}
    strangers |= {data, object_names.prepared_name(foreign_job), object_names.manifest_name(foreign_job, b"0" * 16)}
    strangers |= {"_manifest/versions/i-x", "_manifest/of a later release/x"}
    check_clean(store, *strangers)
    report = gc(store)
    assert report.foreign.count + report.unknown.count == len(strangers)
    assert report.unknown.count == 4
    gc(store, foreign=True)
    gone = {data, "plain é%.csv"}
    assert strangers - gone <= set(sizes(store)) and not gone & set(sizes(store))


@pytest.mark.parametrize("log", ["_delta_log/00.json", ".hoodie/x", "_spark_metadata/0", "metadata/v1.metadata.json", "_manifest/hint"])
def test_the_files_of_another_format_s_table_are_not_condemned(log: str) -> None:
    """Its log says which of its files count. [GC6] [LY6]"""
    store = table()
    for name in (f"lake/é/{log}", "lake/é/a=1/0.parquet", "lake/plain.csv"):
        store.put(name, b"?")
    gc(store, foreign=True)
    assert {name for name in sizes(store) if name.startswith("lake/")} == {f"lake/é/{log}", "lake/é/a=1/0.parquet"}


def test_condemned_names_leave_the_chain_once_no_job_can_add_them_any_more() -> None:
    """[GC6] [CF11]"""
    store = table()
    parquet(store, "day=x/foreign.parquet", 200)
    gc(store, foreign=True)
    assert open_head(store).snapshot.condemned == {"day=x/foreign.parquet": None}
    parquet(store, "day=x/foreign.parquet", 200)
    with pytest.raises(errors.CommitConflictError, check=lambda error: error.rule == "path_is_condemned"):
        add_foreign(store)
    gc(store)
    assert "day=x/foreign.parquet" not in sizes(store)
    for _ in range(3):
        gc(store)
    assert open_head(store).snapshot.condemned == {}
    parquet(store, "day=x/foreign.parquet", 200)
    assert add_foreign(store)
    check_clean(store)
    assert 200 in read_ids(store)


def test_at_most_so_many_foreign_files_are_condemned_at_once(set_budgets: SetBudgets) -> None:
    """[GC6]"""
    set_budgets(condemned=3)
    store = table()
    for number in range(7):
        store.put(f"x/{number}", b"1")
    assert [gc(store, foreign=True).foreign.count for _ in range(4)] == [4, 1, 0, 0]
    check_clean(store)


def test_versions_go_last_and_lowest_first_and_never_before_the_decision() -> None:
    """[GC3] [GC7]"""
    calls = FaultStore(table())
    gc(calls)
    deletes = [call.name for call in calls.calls if call.kind == "delete"]
    versions = [name for name in deletes if name.startswith(object_names.VERSIONS)]
    assert versions == sorted(versions) and deletes[-len(versions) :] == versions and len(versions) < len(deletes)
    created = next(call.number for call in calls.calls if call.kind == "put_if_absent" and call.name.startswith(object_names.VERSIONS))
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


class DiskFaults(FaultStore):
    """What was never finished is asked for and given up by calls, too; the fault comes at one of these."""

    def __init__(self, inner: Store, fault: Fault, at: int) -> None:
        super().__init__(inner, on_call=self._meet)
        self._fault, self._at, self.met = fault, at, 0

    def unfinished(self) -> Iterator[Unfinished]:
        return iter(self._call("unfinished", "", lambda: list(self._inner.unfinished())))

    def discard_unfinished(self, each: Unfinished) -> None:
        self._call("discard_unfinished", each.name, lambda: self._inner.discard_unfinished(each))

    def _meet(self, call: FaultCall) -> None:
        self.met += call.kind in ("unfinished", "discard_unfinished")
        if self.met == self._at:
            self._faults[call.number] = self._fault


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["dies_before", "dies_after", "refused"])
def test_a_crash_among_the_unfinished_files_leaves_them_to_the_next_gc(tmp_path: Path, fault: Fault) -> None:
    """[GC7] [GC9]"""
    store = LocalStore(str(tmp_path / "t"))
    write(store, rows([1], day="x"), partition_by=["day"])
    for at in range(1, 5):
        job = begin(store)
        half = [tmp_path / "t" / "day=x" / f".mc-tmp-{each:016x}-0000{each}-{'0' * 16}-0-{job.id}.parquet" for each in range(3)]
        for each in half:
            each.write_bytes(b"half")
        write(store, rows([at], day=None))
        failing = DiskFaults(store, fault, at)
        with pytest.raises(errors.StoreError if fault == "refused" else Died):
            gc(failing)
        assert failing.met >= at
        check_readable(store)
        gc(store)
        assert not any(each.exists() for each in half)
    check_clean(store)


@pytest.fixture
def disk(root: Path) -> LocalStore:
    write(store := LocalStore(str(root)), rows([1], day=DAY), partition_by=["day"])
    return store


def slow(store: Store, act: Callable[[], object], job: Any = None) -> Any:
    """A job with a file that is half written while `act` takes place."""
    job = job or begin(store)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(range(500, 5500), day="x").to_batches()
        act()
        yield from rows(range(5500, 5600), day="x").to_batches()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_rows, "ROW_GROUP_BYTES", 1)  # what is buffered has no file yet
        job.write(pa.RecordBatchReader.from_batches(rows([0], day="x").schema, batches()))
    return job


def test_a_file_that_a_running_task_still_writes_is_not_taken_however_old_it_is(disk: LocalStore, root: Path) -> None:
    """A task that computes for longer than the grace period: its job can still commit, so its half file stays. [GC9] [IV7]"""

    def collect() -> None:
        (half,) = disk.unfinished()
        os.utime(root / half.temporary, (1, 1))
        gc(disk)
        assert [each.name for each in disk.unfinished()] == [half.name]

    slow(disk, collect).commit()
    assert read_ids(disk) == [1, *range(500, 5600)]
    check_clean(disk)


def test_the_half_file_of_a_job_that_is_fenced_goes_and_its_task_is_told(disk: LocalStore) -> None:
    """However young it is: nobody can finish it. [GC9] [ST15] [CM2]"""

    def collect() -> None:
        write(disk, rows([2], day=None))
        assert len(list(disk.unfinished())) == 1
        assert gc(disk).deleted["unfinished output"].count == 1

    with pytest.raises(errors.JobFencedError, match="began before the table's fence") as caught:
        slow(disk, collect)
    assert isinstance(caught.value.__cause__, errors.OutputGoneError)
    assert list(disk.unfinished()) == [] and read_ids(disk) == [1, 2]
    check_clean(disk)


def test_who_loses_a_half_file_of_a_job_that_another_process_has_committed_is_not_told_that_it_was_not(disk: LocalStore) -> None:
    """Both run one recoverable job, which has one id; gc takes what the slower one has left. [CM2] [AB6] [GC9]"""
    mine = job_on(session(disk), key="k", fingerprint="the same", recoverable=True)

    def commit_and_collect() -> None:
        other = job_on(session(disk), key="k", fingerprint="the same", recoverable=True)
        assert other.id == mine.id
        other.write(rows(range(500, 5600), day="x"))
        assert other.commit().committed
        write(disk, rows([2], day=None))
        gc(disk)

    with pytest.raises(errors.OutputGoneError, match="removed while it was written"):
        slow(disk, commit_and_collect, mine)
    assert begin(disk, "k", "the same").already_committed and len(read_ids(disk)) == 5102
    check_clean(disk)


def test_the_half_file_that_somebody_removed_is_told_as_gone(disk: LocalStore) -> None:
    """The job is not fenced: it is not gc that has taken it. [ST15] [CM2]"""

    def clean() -> None:
        for each in disk.unfinished():
            disk.discard_unfinished(each)

    with pytest.raises(errors.OutputGoneError, match="removed while it was written"):
        slow(disk, clean)
    assert read_ids(disk) == [1]
    check_clean(disk)

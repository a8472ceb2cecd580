"""Writers that slept through a gc, a fence, or the removal of the table: never acknowledged for what is not there. [CM2] [CM5] [IV8]"""

import secrets
from collections.abc import Callable, Iterator

import msgspec
import pytest
from tests.kit.tables import (
    begin,
    change_of,
    check_head,
    clone,
    memory,
    positions,
    put_version,
    read_ids,
    rewind,
    rows,
    session,
    write,
    write_each,
)

from manifestcommit.commits.commit_loop import Committers, commit
from manifestcommit.commits.prepared_job import fenced_outcome
from manifestcommit.errors import JobAbortedError, JobFencedError, ManifestCommitError, SnapshotExpiredError
from manifestcommit.format import codec, object_names
from manifestcommit.format.snapshot import Commit
from manifestcommit.job import Job
from manifestcommit.log.version_chain import Head, newest_above, open_head, read_object, read_version
from manifestcommit.scan.change_feed import Feed
from manifestcommit.store import ObjectInfo
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import FaultCall, FaultStore


def table(versions: int) -> MemoryStore:
    """Version n has the ids 2 to n."""
    store = memory()
    write_each(store, range(2, versions + 1))
    return store


@pytest.fixture
def store() -> MemoryStore:
    return table(3)


def expire(store: MemoryStore, *, fence: int, expired: int, **changes: object) -> Head:
    """What gc does: a version that moves fence and expired, then the deletion of the versions below."""
    head = put_version(store, open_head(store), fence=fence, expired=expired, **changes)
    store.delete([object_names.version_name(version) for version in range(1, expired)])
    return head


def stalled(store: MemoryStore, *, key: str | None = None) -> tuple[Job, Head]:
    """A job that has written, and the head that it knows."""
    job = begin(store, key)
    job.advance("s", 0, 5)
    job.write(rows([77]))
    return job, open_head(store)


def test_a_stalled_writer_that_brings_a_deleted_version_back_is_not_acknowledged_for_it(store: MemoryStore) -> None:
    """slatedb#352: gc freed the number, and the writer created it "successfully". Its rows are in no head: they are lost. [CM5] [IV8]"""
    job, base = stalled(store)
    write_each(store, range(4, 8))
    expire(store, fence=7, expired=7)
    assert read_object(store, 4) is None, "the name that the writer wants is free"
    outcome = commit(session(store), base, change_of(job))
    assert read_object(store, 4) is not None, "it did create it"
    assert not outcome.committed, "acknowledged, but not in the head"
    assert outcome.kind in ("fenced", "unknown")
    assert 77 not in read_ids(store) and positions(store) == {}
    check_head(store)


def test_a_stalled_writer_above_the_fence_builds_on_the_head_and_commits_once() -> None:
    """Its birth is above the fence, so nothing that it could bring back was deleted. [CM3] [CM5]"""
    store = table(6)
    job, base = stalled(store)
    expire(store, fence=5, expired=5)
    outcome = commit(session(store), base, change_of(job))
    assert outcome.kind == "committed" and outcome.version == 8
    assert read_ids(store) == [2, 3, 4, 5, 6, 77]
    check_head(store)


def test_a_version_that_came_back_is_acknowledged_where_the_head_says_that_its_job_is_committed(store: MemoryStore) -> None:
    """The job had committed, its answer was lost, its version was expired and deleted: it is in the head all the same. [CM5]"""
    job, base = stalled(store)
    assert commit(session(store), base, change_of(job)).version == 4
    write_each(store, range(5, 8))
    expire(store, fence=7, expired=7)
    again = commit(session(store), base, change_of(job))
    assert again.committed and again.version == 4
    assert read_ids(store).count(77) == 1


def test_a_version_that_came_back_is_not_told_where_another_driver_committed_the_job(store: MemoryStore) -> None:
    """It may be looked at by that number, or tagged: what stands there is gone, and was never the table's. [CM5] [AB6]"""
    job, base = stalled(store)
    change = change_of(job)
    write(store, rows([4]))
    assert commit(session(store), open_head(store), change, committers=Committers.ANY_PROCESS).version == 5
    write_each(store, (6, 7))
    expire(store, fence=7, expired=7)
    again = commit(session(store), base, change, committers=Committers.ANY_PROCESS)
    assert read_object(store, 4) is not None, "it did create it"
    assert again.committed and again.version == 5


@pytest.mark.parametrize("builds", [1, 3])
def test_a_create_upon_which_others_built_counts(builds: int, store: MemoryStore) -> None:
    """Something stands above my version, and it is not expired. [CM5]"""

    def build_on_it(call: FaultCall) -> None:
        if (
            call.kind == "list"
            and call.name == object_names.VERSIONS
            and read_object(store, 4) is not None
            and read_object(store, 5) is None
        ):
            write_each(store, range(100, 100 + builds))

    slow = FaultStore(store, on_call=build_on_it)
    outcome = write(slow, rows([77]))
    assert (outcome.kind, outcome.version) == ("committed", 4)
    assert read_ids(store) == [2, 3, 77, *range(100, 100 + builds)]


def came_back(store: MemoryStore) -> Callable[[FaultCall], None]:
    """What happens between a reader's list, which shows version 4 as the highest, and its get: others commit, gc deletes that version, and
    a writer that has slept creates it again."""
    job, base = stalled(store, key="k")
    write(store, rows([4]))
    got = []

    def overtake(call: FaultCall) -> None:
        if (call.kind, call.name) == ("get", object_names.version_name(4)) and not got:
            got.append(call)
            write_each(store, [5, 6])
            expire(store, fence=6, expired=6)
            assert not commit(session(store), base, change_of(job)).committed
            assert read_object(store, 4) is not None, "it did create it"

    return overtake


@pytest.mark.parametrize("hint", [b"1", b"nonsense", b"3"])
def test_a_reader_is_not_given_a_version_that_came_back_as_the_head(hint: bytes, store: MemoryStore) -> None:
    """It would see rows of a job that was never acknowledged, and a rerun would take its key as done. [RD1] [RD2] [IV8]"""
    slow = FaultStore(store, on_call=came_back(store))
    store.put(object_names.HINT, hint)
    head = open_head(slow)
    assert head.version == 7 and "k" not in head.snapshot.keys
    assert read_ids(store) == [2, 3, 4, 5, 6]


class Tells(FaultStore):
    """It tells what a list calls the content that it gives."""

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_from=start_from):
            yield msgspec.structs.replace(info, etag=codec.digest(self._inner.get(info.name)))

    def get_tagged(self, name: str, end: int) -> tuple[bytes, str]:
        data = self.get(name, 0, end)
        return data, codec.digest(data)


@pytest.mark.parametrize("from_version", [0, 3])
def test_what_came_back_is_not_taken_for_what_the_list_has_shown(from_version: int, store: MemoryStore) -> None:
    """The list shows version 4 as the newest; what is got is another's, as its ETag says. [RD1] [IV8]"""
    slow = Tells(store, on_call=came_back(store))
    found = newest_above(slow, from_version)
    assert found is not None and found.version == 7 and "k" not in found.snapshot.keys


def test_what_was_got_as_it_was_listed_needs_no_other_list(store: MemoryStore) -> None:
    """[RD1] [CM11]"""
    tells = Tells(store)
    found = newest_above(tells, 2)
    assert found is not None and found.version == 3
    assert [call.kind for call in tells.calls] == ["list", "get"]


class ListsFirst(FaultStore):
    """Of two requests that go side by side the second one, the list, takes effect first."""

    def goes_second_first(self) -> bool:
        return True


def test_a_version_that_came_back_beside_the_list_is_not_the_head(store: MemoryStore) -> None:
    """The list showed it as the newest, and what was got after that, by its name, was another's. [RD1] [LY7] [IV8]"""
    lists_first = ListsFirst(store, on_call=came_back(store))
    assert codec.decode_hint(store.get(object_names.HINT)) == codec.Hint(version=4, digest=open_head(store).digest)
    head = open_head(lists_first)
    assert head.version == 7 and "k" not in head.snapshot.keys


def test_a_second_look_does_not_trust_a_version_that_came_back(store: MemoryStore) -> None:
    """What it says of `expired` is old: a reader would be given a version that gc has taken. [RD1] [RD3]"""
    slow = FaultStore(store, on_call=came_back(store))
    found = newest_above(slow, 3)
    assert found is not None and found.version == 7


def test_a_stream_is_given_no_rows_of_a_version_that_came_back(store: MemoryStore) -> None:
    """It would be given files that were never committed, and would lose for good those that were. [SP8] [RD1]"""
    waiting: list[Callable[[FaultCall], None]] = []
    slow = FaultStore(store, on_call=lambda call: waiting[0](call) if waiting else None)
    feed = Feed(session(slow), columns=open_head(store).snapshot.schema.fields, pinned=3)
    start = feed.beginning(4)
    waiting.append(came_back(store))
    with pytest.raises(SnapshotExpiredError):
        feed.between(start, feed.advance(start))


def test_a_rewind_does_not_ask_a_version_that_came_back_which_keys_to_drop(store: MemoryStore) -> None:
    """The key of the work that it undoes would stay, so that a rerun leaves that work out: its rows are lost. [WM5] [RD3] [KY3]"""
    job, base = stalled(store)
    write(store, rows([4]), key="undone", watermarks={"other": (0, 5)})
    write(store, rows([5]), watermarks={"other": (5, 9)})
    got: list[FaultCall] = []

    def overtake(call: FaultCall) -> None:
        if (call.kind, call.name) == ("get", object_names.version_name(4)) and not got:
            got.append(call)
            expire(store, fence=5, expired=5)
            assert not commit(session(store), base, change_of(job)).committed
            assert read_object(store, 4) is not None, "it did create it"

    with pytest.raises(SnapshotExpiredError):
        rewind(session(FaultStore(store, on_call=overtake)), "other", 0, reason="to be done again")
    assert got and positions(store) == {"other": 9}


def test_readers_get_through_however_fast_others_commit(store: MemoryStore) -> None:
    """What others have built upon is as good as the newest. [RD1] [IV9]"""

    def commit_one(call: FaultCall) -> None:
        if call.kind == "list":
            write(store, rows([open_head(store).version + 100]))

    head = open_head(FaultStore(store, on_call=commit_one))
    assert read_object(store, head.version) == head and head.version > 4


def test_a_job_born_below_the_fence_is_fenced_and_commits_nothing(store: MemoryStore) -> None:
    """[CM2]"""
    job, _ = stalled(store, key="k")
    write(store, rows([4]))
    before = expire(store, fence=4, expired=1)
    with pytest.raises(JobFencedError):
        job.commit()
    assert open_head(store).version == before.version and read_ids(store) == [2, 3, 4]
    assert write(store, rows([77]), key="k").committed, "run again as a new job"


def test_a_job_without_files_that_was_born_right_below_the_fence_is_fenced(store: MemoryStore) -> None:
    """gc would forget that it committed while others can still finish it: it would empty the table once more. [CM2] [GC8]"""
    job = begin(store)
    job.overwrite(None, conflict="blind")
    change = change_of(job)
    write(store, rows([4]))
    expire(store, fence=4, expired=1)
    assert not change.add and change.birth == 3
    for committers in (Committers.THIS_PROCESS, Committers.ANY_PROCESS):
        assert commit(session(store), open_head(store), change, committers=committers).kind == "fenced"
    assert read_ids(store) == [2, 3, 4]


def test_a_slow_overwrite_that_gc_overtakes_is_fenced_and_not_told_of_damage(store: MemoryStore) -> None:
    """It has read the head, and gc deletes a version that it is about to compare itself with: nothing is damaged. [CM2] [CF3]"""
    job = begin(store)
    job.overwrite(None)
    job.write(rows([77]))
    write(store, rows([4]))

    def overtake(call: FaultCall) -> None:
        if (call.kind, call.name) == ("get", object_names.version_name(4)) and open_head(store).version == 5:
            expire(store, fence=5, expired=5)

    write(store, rows([5]))
    outcome = commit(session(FaultStore(store, on_call=overtake)), open_head(store), change_of(job))
    assert outcome.kind == "fenced" and read_ids(store) == [2, 3, 4, 5]


def test_a_job_born_at_the_fence_commits() -> None:
    """[CM2]"""
    store = table(4)
    job, _ = stalled(store)
    expire(store, fence=4, expired=1)
    assert job.commit().committed


def test_a_job_that_lists_files_of_a_fenced_job_is_fenced(store: MemoryStore) -> None:
    """gc may delete them between the look and the create. [CM2]"""
    old, _ = stalled(store)
    adopted = change_of(old).add
    write(store, rows([4]))
    expire(store, fence=4, expired=1)
    new = begin(store)
    new.add_written(adopted)
    with pytest.raises(JobFencedError):
        new.commit()
    assert read_ids(store) == [2, 3, 4]


def test_a_job_that_lists_again_a_file_of_a_fenced_job_is_fenced(store: MemoryStore) -> None:
    """Its entry says that this job lists it; gc goes by the name, and may delete it between the look and the create. [CM2] [GC5]"""
    (path, *_) = (entry.path for entry in open_head(store).snapshot.added)
    write(store, rows([4]), overwrite=None)
    new = begin(store)
    new.add_files([path])
    (entry,) = change_of(new).add
    assert entry.job == new.id and open_head(store).version == 4
    expire(store, fence=4, expired=1)
    with pytest.raises(JobFencedError):
        new.commit()
    assert read_ids(store) == [4]


def test_a_fenced_job_whose_create_was_sent_reads_the_history_before_it_says_so(store: MemoryStore) -> None:
    """It lost once, then slept, then was fenced; every version since its birth can be read and none has it. [CM2]"""
    job, base = stalled(store)

    def beat_and_fence(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and open_head(store).version == 3:
            write(store, rows([4]))
            put_version(store, open_head(store), fence=5, expired=1)

    outcome = commit(session(calls := FaultStore(store, on_call=beat_and_fence)), base, change_of(job))
    assert outcome.kind == "fenced" and read_ids(store) == [2, 3, 4]
    last = [(call.kind, object_names.parse_version(call.name)) for call in calls.calls[-3:]]
    assert last == [("get", 4), ("get", 5), ("list", None)], "one list tells that nothing stands above"


def test_a_fenced_job_that_had_committed_is_not_told_that_it_had_not(store: MemoryStore) -> None:
    """Its record left `recent_jobs`, as gc may do; the history since its birth still has it. [CM2]"""
    job, base = stalled(store)

    def answer_lost_for_long(call: FaultCall) -> None:
        if call.kind == "list" and open_head(store).version == 4:
            write(store, rows([5]))
            put_version(store, open_head(store), fence=6, expired=1, recent_jobs={})

    outcome = commit(session(FaultStore(store, on_call=answer_lost_for_long)), base, change_of(job))
    assert outcome.committed and outcome.version == 4 and read_ids(store) == [2, 3, 5, 77]


def test_a_fenced_job_that_another_process_had_committed_is_not_told_that_it_had_not(store: MemoryStore) -> None:
    """It is finished from two places; the second comes when the fence has passed it and its record is gone. [CM2] [AB3] [IV2]"""
    job, base = stalled(store)
    change = change_of(job)
    assert commit(session(store), base, change).version == 4
    write(store, rows([5]))
    put_version(store, open_head(store), fence=6, expired=1, recent_jobs={})
    again = commit(session(store), open_head(store), change, committers=Committers.ANY_PROCESS)
    assert (again.kind, again.version) == ("committed", 4), "its rows are there: whoever ran it again would double them"
    assert read_ids(store) == [2, 3, 5, 77]


def test_a_fenced_job_whose_history_is_gone_is_unknown(store: MemoryStore) -> None:
    """It may have been in a version that was deleted. [CM2] [CM6]"""
    job, base = stalled(store)

    def beat_and_expire(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and open_head(store).version == 3:
            write_each(store, (4, 5, 6))
            put_version(store, open_head(store), fence=6, expired=6)

    def forget(call: FaultCall) -> None:
        beat_and_expire(call)
        if call.kind == "list" and open_head(store).snapshot.expired == 6:
            store.delete([object_names.version_name(version) for version in range(1, 6)])

    outcome = commit(session(FaultStore(store, on_call=forget)), base, change_of(job))
    assert outcome.kind == "unknown" and 77 not in read_ids(store)


@pytest.mark.parametrize("expired", [5, 7])
def test_a_fenced_job_does_not_believe_a_version_that_came_back_while_it_read_the_history(expired: int, store: MemoryStore) -> None:
    """Its own create, long lost, arrives under a name that gc has freed: "committed" would be told of rows that no head has. [CM2] [IV8]"""
    job, base = stalled(store)
    elsewhere = clone(store)
    assert commit(session(elsewhere), base, change_of(job)).version == 4
    late = elsewhere.get(object_names.version_name(4))
    write_each(store, (4, 5, 6))
    head = put_version(store, open_head(store), fence=6)

    def arrive(call: FaultCall) -> None:
        if call.kind == "get" and call.name == object_names.version_name(4) and open_head(store).version == head.version:
            expire(store, fence=7, expired=expired)
            assert store.put_if_absent(call.name, late)

    outcome = fenced_outcome(session(FaultStore(store, on_call=arrive)), head, job.id)
    assert read_object(store, 4) is not None and 77 not in read_ids(store)
    assert outcome.kind == "unknown"


def test_a_job_that_was_given_up_commits_nothing(store: MemoryStore) -> None:
    """[CM1] [AB1]"""
    job, _ = stalled(store)
    head = open_head(store)
    put_version(store, head, recent_jobs={**head.snapshot.recent_jobs, job.id: None})
    with pytest.raises(JobAbortedError):
        job.commit()
    assert read_ids(store) == [2, 3]
    assert session(store).manifests.job(open_head(store).snapshot, job.id) == ("aborted", None)


def test_a_job_that_someone_else_finished_is_committed_and_sends_nothing(store: MemoryStore) -> None:
    """[CM1]"""
    job, _ = stalled(store)
    record = Commit(job=job.id, commit_id=f"{job.id}.x", operation="append")
    put_version(store, open_head(store), commit=record)
    outcome = job.commit()
    assert (outcome.kind, outcome.version) == ("committed", 4) and open_head(store).version == 4


# --- the table goes away ------------------------------------------------------------------------------------------------
def remove(store: MemoryStore) -> None:
    store.delete([info.name for info in store.list("")])


def test_a_commit_whose_version_vanished_is_not_acknowledged() -> None:
    """A removal that has come as far as the newest versions. [CM5]"""
    store = table(4)
    job = begin(store)
    job.write(rows([77]))
    change, head = change_of(job), open_head(store)

    def removed(call: FaultCall) -> None:
        if call.kind == "list":
            store.delete([object_names.version_name(5)])

    try:
        outcome = commit(session(FaultStore(store, on_call=removed)), head, change)
    except ManifestCommitError:
        return
    assert not outcome.committed


@pytest.mark.parametrize("with_rows", [True, False])
def test_a_job_does_not_commit_into_another_table_at_its_root(with_rows: bool, store: MemoryStore) -> None:
    """The table was removed and written anew while the job ran: its files went with the old one, its watermark is not the new one's.

    [CM18] [IV6] [WM4]
    """
    job = begin(store, "k")
    job.advance("s", 0, 5)
    if with_rows:
        job.write(rows([77]))
    remove(store)
    write_each(store, range(1000, 1005))
    with pytest.raises(ManifestCommitError):
        job.commit()
    assert read_ids(store) == list(range(1000, 1005)) and positions(store) == {}
    check_head(store)


# --- reading beside gc --------------------------------------------------------------------------------------------------
def test_a_version_that_came_back_from_the_dead_is_not_read() -> None:
    """[RD3]"""
    store = table(5)
    body = store.get(object_names.version_name(2))
    expire(store, fence=4, expired=4)
    store.put_if_absent(object_names.version_name(2), body)
    head = open_head(store)
    with pytest.raises(SnapshotExpiredError, match="the oldest readable version is 4"):
        read_version(store, head, 2)
    assert read_version(store, head, 4).version == 4


def test_a_version_that_expires_while_it_is_read_is_not_given_out() -> None:
    """The second look: what was got may be a stalled writer's. [RD3]"""
    store = table(5)
    head = open_head(store)

    def expire_meanwhile(call: FaultCall) -> None:
        if call.name == object_names.version_name(2) and open_head(store).version == 5:
            put_version(store, open_head(store), fence=4, expired=4)

    with pytest.raises(SnapshotExpiredError):
        read_version(FaultStore(store, on_call=expire_meanwhile), head, 2)


def test_opening_starts_over_where_the_listed_head_is_gone(store: MemoryStore) -> None:
    """[RD1]"""

    def newer_and_gone(call: FaultCall) -> None:
        if call.kind == "get" and call.name == object_names.version_name(3) and open_head(store).version == 3:
            put_version(store, open_head(store), fence=4, expired=4)
            store.delete([object_names.version_name(version) for version in (1, 2, 3)])

    assert open_head(FaultStore(store, on_call=newer_and_gone)).version == 4


def test_a_job_of_another_table_is_not_taken_for_ones_own(store: MemoryStore) -> None:
    foreign = object_names.job_id(1, secrets.token_hex(8), secrets.token_bytes(16))
    assert session(store).manifests.job(open_head(store).snapshot, foreign) == (None, None)


# --- versions never start anew ----------------------------------------------------------------------------------------------
def test_a_table_that_is_emptied_and_filled_again_goes_on_in_its_chain() -> None:
    """Its keys and watermarks would otherwise be forgotten, and reruns of old work double it. [LY10]"""
    store = memory()
    write(store, rows([1]), key="old work", watermarks={"s": (0, 5)})
    write(store, rows([]), overwrite=None)
    assert read_ids(store) == [] and open_head(store).version == 3
    assert write(store, rows([2])).version == 4
    assert write(store, rows([1]), key="old work", watermarks={"s": (0, 5)}).version == 2, "already committed"
    assert read_ids(store) == [2] and positions(store) == {"s": 5}

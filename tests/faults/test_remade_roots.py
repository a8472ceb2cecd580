"""A root whose table was removed, and another one that was made there: no job of the one commits into the other. [LY10] [LY14] [CM5]"""

import contextlib
import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.kit.tables import (
    begin,
    change_of,
    check_table,
    job_with,
    memory,
    objects_of,
    put_back,
    put_version,
    read_ids,
    rewind,
    rollback,
    rows,
    session,
    write,
)

from manifestcommit.commits.commit_loop import commit, create_table, record_abort
from manifestcommit.commits.two_phase import commit_prepared, resolve_job
from manifestcommit.errors import CorruptMetadataError, NotATableError, StoreError, TableNotFoundError, VersionNotFoundError
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Write
from manifestcommit.format.fields import NO_COLUMNS, Field, Schema
from manifestcommit.job import Job
from manifestcommit.log import version_chain
from manifestcommit.log.table_context import check_free_root
from manifestcommit.log.version_chain import Head, choose_version, newest_above, open_head, read_object, read_version, walk_back
from manifestcommit.operations import gc as gc_engine
from manifestcommit.operations.adopt import adopt
from manifestcommit.operations.verify import verify
from manifestcommit.protocol.retention import Policy
from manifestcommit.scan.change_feed import Feed
from manifestcommit.store import LocalStore, Store
from manifestcommit.testing.faults import Died, FaultCall, FaultStore

SCHEMA = Schema(fields=(Field(id=1, name="id", type="long"),))
REMADE = [0, 1, 2, 5]  # versions of the table that is made anew: none, fewer than the job's base, as many, more


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A root with a table of two versions, and the row 2."""
    made: Store = memory() if request.param == "memory" else LocalStore(str(tmp_path / "a t%+é"))
    make(made, 2, first=2)
    return made


def make(store: Store, versions: int, *, first: int = 1000) -> None:
    """A table of so many versions; each after the first appends a row."""
    if versions:
        create_table(session(store), schema=SCHEMA, partition_by=(), properties={})
    for number in range(versions - 1):
        write(store, rows([first + number]))


def remake(store: Store, versions: int) -> None:
    """Every object of the root is removed, as `rm -rf` does, and a table made there."""
    store.delete([info.name for info in store.list("")])
    make(store, versions)


def ids_of(versions: int) -> list[int]:
    return [1000 + number for number in range(versions - 1)]


def pending(store: Store, row: int = 77) -> tuple[Job, Head]:
    """A job that has written, and the head that it knows."""
    job = begin(store, "k")
    job.advance("s", 0, 5)
    job.write(rows([row]))
    return job, open_head(store)


def markers(store: Store) -> list[str]:
    """The ids of the tables whose markers are there."""
    return [table_id for info in store.list(object_names.MARKERS) if (table_id := object_names.parse_marker(info.name)) is not None]


def wrong_version(store: Store) -> int | None:
    """The version that readers of the root refuse, by the error's text."""
    error = None
    try:
        open_head(store)
    except CorruptMetadataError as caught:
        error = caught
    except TableNotFoundError:
        return None
    if error is None:
        return None
    (named,) = (version for version in versions(store) if object_names.version_name(version) in str(error))
    return named


def left(store: Store) -> list[int]:
    """The versions that are there of tables whose markers are not."""
    found = ((version, read_object(store, version)) for version in versions(store))
    return [version for version, each in found if each is not None and each.snapshot.table_id not in markers(store)]


def check_clean(store: Store, versions: int, *others: int) -> None:
    """The table that was made anew is as if there had been no job of another one, and goes on."""
    assert read_ids(store) == sorted([*ids_of(versions), *others])
    if versions:
        check_table(store)
        assert markers(store) == [open_head(store).snapshot.table_id]
    for row in range(50, 54):  # past all that is in the way
        write(store, rows([row]))
    assert read_ids(store) == sorted([*ids_of(versions), *others, *range(50, 54)])
    assert open_head(store).snapshot.watermarks == {}
    check_table(store)
    assert verify(session(store)).is_sound


def check_refused(store: Store, created: int | None) -> None:
    """What a job of the removed table has created is read by nobody and built upon by nobody.

    Where a table is there, it is passed over, and nobody deletes it. Where none is there, deleting it is the remedy. [LY14] [LY15]
    """
    if created is None:
        assert wrong_version(store) is None
        return
    name = object_names.version_name(created)
    if markers(store):
        own = open_head(store)
        assert own.snapshot.table_id in markers(store) and own.version < created and own.taken == (own.version == created - 1)
        report = verify(session(store))
        assert report.is_sound and [each.object for each in report.findings if each.kind == "version_skipped"] == [name]
        return
    assert wrong_version(store) == created
    for attempt in (lambda: open_head(store), lambda: write(store, rows([6])), lambda: read_ids(store)):
        with pytest.raises(CorruptMetadataError, match=name):
            attempt()
    assert read_object(store, created + 1) is None
    report = verify(session(store))
    assert not report.is_sound and any(name in (each.object, *each.problem.split()) for each in report.findings)
    store.delete([name])


# --- jobs of the table that was removed -----------------------------------------------------------------------------------
@pytest.mark.parametrize("versions", REMADE)
def test_a_job_of_a_removed_table_is_refused_whatever_is_there(store: Store, versions: int) -> None:
    """It was born at version 2, and once was acknowledged where the new table had two versions as well. [LY10] [CM5] [IV2]"""
    job, head = pending(store)
    change = change_of(job)
    remake(store, versions)
    with pytest.raises(TableNotFoundError, match="removed") as caught:
        commit(session(store), head, change)
    created = 3 if versions < 3 else None
    assert (object_names.version_name(3) in str(caught.value)) == (created is not None), "a version of the new table is never named"
    check_refused(store, created)
    check_clean(store, versions)


@pytest.mark.thorough
@pytest.mark.parametrize("versions", REMADE)
def test_a_root_removed_at_any_request_of_a_commit(store: Store, versions: int) -> None:
    """[LY10] [CM5]"""
    snapshot = objects_of(store)
    calls = FaultStore(store)
    job, head = pending(store)
    assert commit(session(calls), head, change_of(job)).committed
    for number in range(1, calls.count + 1):
        put_back(store, snapshot)
        job, head = pending(store)

        def at(call: FaultCall, number: int = number) -> None:
            if call.number == number:
                remake(store, versions)

        try:
            outcome = commit(session(FaultStore(store, on_call=at)), head, change_of(job))
        except TableNotFoundError as error:
            created = next(iter(left(store)), None)
            assert (object_names.version_name(3) in str(error)) == (created == 3), "nobody is asked to delete a version of the new table"  # noqa: PT017
            check_refused(store, created)
        else:
            assert outcome.committed and calls.calls[number - 1].name == object_names.HINT, "it had counted before the root was removed"
        check_clean(store, versions)


@pytest.mark.parametrize("versions", [1, 2])
def test_a_second_job_of_the_removed_table_does_not_build_on_the_first_ones_version(store: Store, versions: int) -> None:
    """It loses to an object of its own table, which nobody may take for the head. [LY10] [LY14] [CM4]"""
    (one, head), (two, _) = pending(store), pending(store, 78)
    changes = change_of(one), plain(change_of(two))
    remake(store, versions)
    for change in changes:
        with pytest.raises(TableNotFoundError, match="removed"):
            commit(session(store), head, change)
    check_refused(store, 3)
    check_clean(store, versions)


@pytest.mark.parametrize("remade", [1, 2])
def test_a_job_that_creates_above_another_one_of_the_removed_table_is_refused_and_so_is_the_other(store: Store, remade: int) -> None:
    """Also where its base is gone.

    The list that follows a create shows a version of the same table above it, and still not that table's marker. [LY14] [CM5]
    """
    (one, head), (two, _) = pending(store), pending(store, 78)
    change, later = change_of(one), plain(change_of(two))
    bodies: list[bytes] = []

    def keep(call: FaultCall) -> None:
        if call.kind == "put" and not bodies:  # the hint: both versions are there
            bodies.append(store.get(object_names.version_name(4)))

    assert commit(session(store), head, change).committed and read_object(store, 3) is not None
    assert commit(session(FaultStore(store, on_call=keep)), open_head(store), later).committed
    third = pending(store, 79)[0]
    remake(store, remade)

    def above(call: FaultCall) -> None:
        if call.kind == "list":
            store.put_if_absent(object_names.version_name(4), bodies[0])

    with pytest.raises(TableNotFoundError, match=object_names.version_name(3)):
        commit(session(FaultStore(store, on_call=above)), head, plain(change_of(third)))
    assert left(store) == [3, 4] and open_head(store).version == remade
    check_clean(store, remade)
    assert left(store) == [3, 4] and {3, 4} <= {*open_head(store).snapshot.void}


def plain(change: Write) -> Write:
    """Without key and advance, so that it follows another one like it."""
    return msgspec.structs.replace(change, key=None, declared=None, advances=())


def collect(store: Store) -> Any:
    return gc_engine.run(session(store), Policy(grace_s=0, keep_for_s=0, keep_versions=1))


def give_up(store: Store) -> Any:
    (job,) = {object_names.job_of_handed(info.name) for info in store.list(object_names.JOBS)}
    return record_abort(session(store), job)


ACTS: dict[str, Callable[[Store], object]] = {
    "append": lambda store: write(store, rows([9])),
    "roll_back": lambda store: rollback(session(store), 2, reason="r"),
    "rewind_source": lambda store: rewind(session(store), "s", 0, reason="r"),
    "collect": collect,
    "give_up": give_up,
}


@pytest.mark.thorough
@pytest.mark.parametrize("act", ACTS)
def test_whatever_commits_goes_through_the_same_check(store: Store, act: str) -> None:
    """[LY10] [CM5] [CF13] [WM5] [AB4] [GC1]"""
    write(store, rows([3]), watermarks={"s": (0, 5)})
    waiting = job_with(store, rows([70]))
    waiting.prepare()
    base = open_head(store).version
    seen: list[int] = []

    def at(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and object_names.parse_version(call.name) == base + 1 and not seen:
            seen.append(call.number)
            remake(store, base)

    with pytest.raises(TableNotFoundError, match="removed"):
        ACTS[act](FaultStore(store, on_call=at))
    assert seen
    check_refused(store, base + 1)
    check_clean(store, base)


# --- the table that was made anew -----------------------------------------------------------------------------------------
def test_a_writer_of_the_new_table_that_loses_to_a_removed_one_does_not_build_on_it(store: Store) -> None:
    """It takes the name after that, on the state below it; the removed table's rows are never seen. [LY15] [CM4]"""
    job, head = pending(store)
    change = change_of(job)
    remake(store, 2)
    mine, known = begin(store), open_head(store)
    mine.write(rows([8]))
    with pytest.raises(TableNotFoundError):
        commit(session(store), head, change)
    check_refused(store, 3)
    outcome = commit(session(store), known, change_of(mine))
    assert (outcome.kind, outcome.version) == ("committed", 4)
    made = open_head(store).snapshot
    assert made.void == (3,) and made.parent_digest == known.digest and read_ids(store) == [1000, 8][::-1]
    check_clean(store, 2, 8)


def stray(store: Store, *numbers: int) -> None:
    """Objects of a removed table under these versions' names, as its jobs have left them."""
    made = memory()
    make(made, 1)
    for number in numbers:
        head = put_version(made, open_head(made))
        found = msgspec.structs.replace(head.snapshot, version=number)
        assert store.put_if_absent(object_names.version_name(number), codec.encode_snapshot(found))


def test_what_is_in_the_way_costs_a_get_and_a_list(store: Store) -> None:
    """Of each table that is opened, until a commit has gone past it; none after that. [CM11] [LY15]"""
    stray(store, 3, 6)
    (first, second), calls = (begin(store), begin(store)), FaultStore(store)
    assert open_head(calls).version == 2 and [call.kind for call in calls.calls] == ["get", "get", "list", "get", "get", "list"]
    first.write(rows([8]))
    second.write(rows([9]))
    assert (first.commit().version, second.commit().version, write(store, rows([10])).version) == (4, 5, 7)
    calls = FaultStore(store)
    assert open_head(calls).snapshot.void == (3, 6) and [call.kind for call in calls.calls] == ["get", "get", "list"]
    assert read_ids(store) == [2, 8, 9, 10]


def test_a_hint_that_names_what_a_removed_table_left_leads_to_the_head(store: Store) -> None:
    """A stalled gc of the removed table may have put it. [LY7] [LY15]"""
    stray(store, 3, 7)
    for hint in (b"3", b"7", b"5"):
        store.put(object_names.HINT, hint)
        assert open_head(store).version == 2


def test_more_objects_than_jobs_can_have_left_are_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens the table reads no more of them than 256, here 20. [LY15] [OB4]"""
    assert version_chain._MOST_OTHERS == 256
    monkeypatch.setattr(version_chain, "_MOST_OTHERS", 20)
    stray(store, *range(4, 4 + 60))
    calls = FaultStore(store)
    with pytest.raises(CorruptMetadataError, match=object_names.version_name(63)):
        newest_above(calls, 2)
    assert calls.count < 34


def test_a_number_that_was_passed_over_is_never_a_version(store: Store) -> None:
    """Somebody deletes the object, and a writer that knows nothing of it creates the number: it commits above the head, once. [LY15]"""
    job, head = pending(store)
    stray(store, 3)
    assert write(store, rows([8])).version == 4
    store.delete([object_names.version_name(3)])
    outcome = commit(session(store), head, change_of(job))
    assert (outcome.kind, outcome.version) == ("committed", 5) and read_object(store, 3) is not None
    assert read_ids(store) == [2, 8, 77]
    assert [each.version for each in walk_back(store, open_head(store))] == [5, 4, 2, 1]
    assert verify(session(store)).is_sound
    gc_engine.run(session(store), Policy(grace_s=0))
    assert read_ids(store) == [2, 8, 77]


def test_a_version_that_was_replaced_below_a_void_number_stops_gc() -> None:
    """What the true one lists would be deleted. [GC4] [IV7] [LY15]"""
    store = memory()
    make(store, 2, first=2)
    stray(store, 3)
    write(store, rows([8]))
    found = read_object(store, 2)
    store.put(object_names.version_name(2), codec.encode_snapshot(msgspec.structs.replace(found.snapshot, writer="other")))
    with pytest.raises(CorruptMetadataError, match=f"{object_names.version_name(2)}.*the next version was built on"):
        gc_engine.run(session(store), Policy(grace_s=0))
    assert any(each.kind == "version_replaced" for each in verify(session(store)).findings)


def test_a_version_that_is_missing_beside_a_void_number_is_damage() -> None:
    """Only the void number's own object may be gone. [OB4] [LY15]"""
    store = memory()
    make(store, 3, first=2)
    stray(store, 4)
    write(store, rows([8]))
    store.delete([object_names.version_name(2), object_names.version_name(4)])
    with pytest.raises(CorruptMetadataError, match="some are missing"):
        newest_above(store, 1)
    assert {each.object for each in verify(session(store)).findings if each.kind == "version_missing"} == {object_names.version_name(2)}


def test_where_no_table_is_there_yet_the_object_in_the_way_is_named(store: Store) -> None:
    """Beside the marker of a creator that died: it could be the marker that is the wrong one. [LY14] [LY15]"""
    job, head = pending(store)
    change, name = change_of(job), object_names.version_name(3)
    remake(store, 0)
    store.put(STRAY, b"0123456789abcdef")
    with pytest.raises(TableNotFoundError, match=f"{name}.*no table can be created there. Delete that object by hand"):
        commit(session(store), head, change)
    with pytest.raises(CorruptMetadataError, match=f"{name} .*create .* again.*no other table is here yet: delete {name}") as caught:
        open_head(store)
    assert caught.value.object_name == name
    assert [each.kind for each in verify(session(store)).findings if each.object == name] == ["version_misplaced"]


def test_what_was_passed_over_is_no_version_for_anyone(store: Store) -> None:
    """Readers, time travel, streams, gc, rollbacks, history and prepared jobs; also once somebody has deleted it. [LY15] [RD3] [GC4]"""
    for gone in (False, True):
        remake(store, 0)
        make(store, 2, first=2)
        (one, head), two = pending(store), pending(store, 78)[0]
        changes = change_of(one), plain(change_of(two))
        remake(store, 2)
        feed = Feed(session(store), columns=SCHEMA.fields, pinned=2)
        at = feed.advance(feed.beginning(2))
        with pytest.raises(TableNotFoundError):
            commit(session(store), head, changes[0])
        write(store, rows([5]), watermarks={"s": (0, 5)}, key="k")
        prepared = job_with(store, rows([6]))
        prepared.prepare()
        assert open_head(store).version == 4
        if gone:
            store.delete([object_names.version_name(3)])
        assert commit_prepared(session(store), prepared.id).version == 5
        head = open_head(store)
        assert [each.version for each in walk_back(store, head)] == [5, 4, 2, 1]
        with pytest.raises(VersionNotFoundError, match="void"):
            read_version(store, head, 3)
        for version in (1, 2, 4, 5):
            stored = read_object(store, version)
            assert stored is not None and choose_version(store, head, version=None, as_of=when(stored), tag=None) == version
        assert len(feed.between(at, feed.advance(at))) == 2
        assert rewind(session(store), "s", 0, reason="r").version == 6
        assert rollback(session(store), 4, reason="r").version == 7
        assert read_ids(store) == [5, 1000]
        check_table(store)
        report = verify(session(store))
        assert report.is_sound and [each.kind for each in report.findings if each.kind.startswith("version")] == ["version_skipped"] * (
            not gone
        )
        gc_engine.run(session(store), Policy(grace_s=0))  # reads all versions, and keeps them
        assert open_head(store).snapshot.void == (3,)
        collect(store)
        collect(store)
        assert read_ids(store) == [5, 1000] and verify(session(store)).is_sound
        check_table(store)


def when(head: Head) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=head.snapshot.committed_at)


def test_who_knows_a_head_of_the_removed_table_is_not_told_that_nothing_happened(store: Store) -> None:
    """Both are at version 2, and what is known of the one says nothing of the other. [RD1] [RD3] [LY14]"""
    feed = Feed(session(store), columns=(), pinned=2)
    at, old = feed.advance(feed.beginning(1)), open_head(store)
    write(store, rows([3]))
    newer = open_head(store)
    remake(store, 2)
    assert newest_above(store, old.version, old) == open_head(store)
    with pytest.raises(TableNotFoundError, match="checkpoint is of the table"):
        feed.advance(at)
    with pytest.raises(TableNotFoundError, match="was removed while version 2 was read"):
        read_version(store, newer, 2)
    make(store, 2)
    with pytest.raises(TableNotFoundError, match="was removed while version 2 was read"):
        read_version(store, newer, 2)


# --- the marker -----------------------------------------------------------------------------------------------------------
def test_a_table_has_its_marker_from_before_its_first_version(store: Store) -> None:
    """[LY14] [CM13]"""
    snapshot = open_head(store).snapshot
    assert markers(store) == [snapshot.table_id]
    assert store.get(object_names.marker_name(snapshot.table_id)) == snapshot.table_id.encode()
    fresh = memory()
    calls = FaultStore(fresh)
    make(calls, 1)
    created = [call.name for call in calls.calls if call.kind == "put_if_absent"]
    assert created == [object_names.marker_name(open_head(fresh).snapshot.table_id), object_names.version_name(1)]


def test_the_marker_is_between_versions_and_intents_in_every_list() -> None:
    """So it is shown by the list that begins at the newest version, and not hidden by any number of intents. [LY14] [LY11]"""
    store = memory()
    make(store, 2)
    table_id = open_head(store).snapshot.table_id
    assert object_names.version_name(10**19) < object_names.marker_name(table_id) < object_names.INTENTS
    for number in range(1100):
        store.put(object_names.intent_name(object_names.job_id(1, table_id, number.to_bytes(16, "big"))), b"?")
    assert open_head(store).version == 2


def test_every_commit_leaves_the_marker(store: Store) -> None:
    """[CM17] [OB2] [CF13]"""
    write(store, rows([3]), watermarks={"s": (0, 5)})
    for act in ("append", "rewind_source", "roll_back", "collect"):
        before = open_head(store).version
        ACTS[act](store)
        assert open_head(store).version > before
    assert markers(store) == [open_head(store).snapshot.table_id], "gc keeps it"


def test_a_marker_that_was_lost_is_named_and_can_be_created_again(store: Store) -> None:
    """[LY14] [RD10]"""
    head = open_head(store)
    name = object_names.marker_name(head.snapshot.table_id)
    job, known = pending(store)
    store.delete([name])
    for attempt in (lambda: open_head(store), lambda: write(store, rows([6])), lambda: read_ids(store)):
        with pytest.raises(CorruptMetadataError, match=r"create .* again") as caught:
            attempt()
        assert caught.value.object_name == name and name in str(caught.value) and head.snapshot.table_id in str(caught.value)
    assert any(each.kind == "marker_missing" and each.object == name for each in verify(session(store)).findings)
    outcome = commit(session(store), known, change_of(job))
    assert outcome.kind == "unknown" and name in outcome.reason, "the base is what it was: the table was not removed"
    store.put(name, head.snapshot.table_id.encode())
    assert open_head(store).version == 3 and resolve_job(session(store), job.id) == "committed"
    assert verify(session(store)).is_sound


@pytest.mark.parametrize("dies", [False, True])
def test_of_two_creators_the_loser_takes_its_marker_away(dies: bool) -> None:
    """One that dies leaves it: its id is of no job, and costs each commit one request. [LY14] [CM13]"""
    store = memory()

    def other(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and object_names.parse_version(call.name) == 1 and not versions(store):
            make(store, 1)
        if dies and versions(store) and call.kind in ("list", "get"):
            raise Died("having lost")

    with contextlib.suppress(Died):
        make(FaultStore(store, on_call=other), 1)
    own = open_head(store).snapshot.table_id
    assert (own in markers(store), len(markers(store))) == (True, 1 + dies)
    write(store, rows([3]))
    assert read_ids(store) == [3]
    report = verify(session(store))
    stale = [object_names.marker_name(each) for each in markers(store) if each != own]
    assert report.is_sound and [each.object for each in report.findings if each.kind == "foreign_name"] == stale
    assert collect(store).unknown.count == len(stale) and len(markers(store)) == 1 + dies, "gc leaves what may be another table's"


def versions(store: Store) -> list[int]:
    return [version for info in store.list(object_names.VERSIONS) if (version := object_names.parse_version(info.name))]


def test_a_creator_that_lost_joins_the_table_also_where_its_marker_cannot_be_deleted() -> None:
    """[CM13] [LY14]"""
    store = memory()

    def at(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and object_names.parse_version(call.name) == 1:
            make(store, 1)
        if call.kind == "delete":
            raise StoreError("503")

    joined = create_table(session(FaultStore(store, on_call=at)), schema=NO_COLUMNS, partition_by=(), properties={})
    assert joined.snapshot.table_id == open_head(store).snapshot.table_id and len(markers(store)) == 2
    assert write(store, rows([3])).committed


def test_damage_above_a_base_that_has_expired_is_damage(store: Store) -> None:
    """The table's marker is there: it was not removed, though the base is gone. [LY14] [CM5] [GC2]"""
    job, head = pending(store)
    change = change_of(job)
    write(store, rows([3]))
    collect(store)
    assert read_object(store, head.version) is None
    name = object_names.version_name(open_head(store).version)
    store.put(name, b"?")
    with pytest.raises(CorruptMetadataError, check=lambda error: error.object_name == name):
        commit(session(store), head, change)


def test_a_creator_of_version_1_below_a_table_joins_it_and_leaves_no_marker() -> None:
    """Its version 1 was deleted by a gc, so that the name was free. [LY10] [CM13]"""
    store = memory()
    make(store, 4)
    collect(store)
    own = open_head(store).snapshot.table_id
    store.delete([object_names.version_name(1)])
    joined = create_table(session(store), schema=NO_COLUMNS, partition_by=(), properties={})
    assert joined.snapshot.table_id == own and markers(store) == [own]


def test_a_folder_with_only_a_marker_is_no_table(tmp_path: Path) -> None:
    """[LY9] [LY6] [AF2]"""
    store = LocalStore(str(tmp_path))
    store.put(object_names.marker_name("0123456789abcdef"), b"0123456789abcdef")
    with pytest.raises(TableNotFoundError):
        open_head(store)
    assert read_ids(store) == []
    inner = LocalStore(str(tmp_path / "inner"))
    check_free_root(inner)
    make(inner, 1)
    with pytest.raises(NotATableError, match="inside it"):
        check_free_root(store)
    shutil.rmtree(tmp_path / "inner")
    pq.write_table(rows([1]), tmp_path / "a.parquet")
    adopt(session(store))
    assert read_ids(store) == [1] and open_head(store).snapshot.table_id in markers(store)


def test_a_version_of_a_removed_table_beside_its_own_marker_is_not_acknowledged(store: Store) -> None:
    """Who removed the versions forgot the marker: then the base tells, by one more request. [CM5] [LY14]"""
    job, head = pending(store)
    change = change_of(job)
    store.delete([info.name for info in store.list("") if object_names.parse_marker(info.name) is None])
    make(store, 2)
    assert len(markers(store)) == 2
    with pytest.raises(TableNotFoundError, match=f"{object_names.version_name(3)}.*Delete that object by hand"):
        commit(session(store), head, change)
    store.delete([object_names.version_name(3), object_names.marker_name(head.snapshot.table_id)])
    check_clean(store, 2)


# --- a marker beside the table's own ---------------------------------------------------------------------------------------
STRAY = object_names.marker_name("0123456789abcdef")


def make_beside(store: Store, versions: int) -> None:
    """A table, and the marker of a creator that failed: a list does not tell whether the table is the one that it was."""
    make(store, versions)
    store.put(STRAY, b"0123456789abcdef")


def test_a_commit_beside_another_marker_reads_its_base_once_more() -> None:
    """[CM5] [CM11]"""
    for make_one, kinds in ((make_beside, ["put_if_absent", "list", "put", "get"]), (make, ["put_if_absent", "list", "put"])):
        table = memory()
        make_one(table, 2)
        job, head = pending(table)
        change, calls = change_of(job), FaultStore(table)
        assert commit(session(calls), head, change).committed
        assert [call.kind for call in calls.calls] == kinds


def test_a_base_that_expired_while_its_job_created_is_no_removed_table() -> None:
    """A gc right above the created version has deleted it. [CM5] [GC2]"""
    store = memory()
    make_beside(store, 2)
    write(store, rows([3]))
    job, head = pending(store)
    seen: list[int] = []

    def at(call: FaultCall) -> None:
        if call.kind == "list" and not seen:
            seen.append(call.number)
            collect(store)

    outcome = commit(session(FaultStore(store, on_call=at)), head, change_of(job))
    assert (outcome.kind, outcome.version) == ("committed", head.version + 1)
    assert (read_object(store, head.version), open_head(store).version) == (None, head.version + 2)
    check_table(store)


def test_a_table_beside_another_marker_that_is_removed_after_the_list() -> None:
    """The list has shown the base, which is gone when it is read. [CM5]"""
    store = memory()
    make_beside(store, 2)
    job, head = pending(store)

    def at(call: FaultCall) -> None:
        if call.kind == "get" and object_names.parse_version(call.name) == head.version:
            store.delete([info.name for info in store.list("")])

    with pytest.raises(TableNotFoundError, match="removed"):
        commit(session(FaultStore(store, on_call=at)), head, change_of(job))

"""Which files a stream is given: each once, in order, from any offset on, and what stops it. [SP8]"""

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.sizes import budgets, rounds
from tests.kit.tables import memory, objects_of, put_back, put_version, rollback, session

from manifestcommit import errors
from manifestcommit.commits.commit_loop import commit, create_table
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Overwrite, Write
from manifestcommit.format.entries import Entry
from manifestcommit.format.evolution import SchemaEdit
from manifestcommit.format.fields import ArrayType, Field, MapType, Schema, StructType
from manifestcommit.format.snapshot import Commit, Summary
from manifestcommit.log.version_chain import Head, open_head
from manifestcommit.protocol.change_feed import Offset, OnOverwrite, parse_offset, unreadable_columns
from manifestcommit.scan.change_feed import Feed
from manifestcommit.scan.planning import entries_table
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import FaultCall, FaultStore

DAY, ID = Field(id=1, name="day", type="string"), Field(id=2, name="id", type="long")
SCHEMA = Schema(fields=(DAY, ID))
DIGEST = f"sha256:{0:064}"
BY = (1,)
HOSTILE = ("plain", "a b%20+=#'\"", "漢é", "..x", "z" * 60, "-")


class History:
    """A table without data files, and what each version added and left, as a model of a few lines."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.own = session(store)
        create_table(self.own, schema=SCHEMA, partition_by=BY, properties={})
        self.added: dict[int, list[str]] = {1: []}
        self.live: dict[int, list[str]] = {1: []}  # by the version that added them, then by path

    @property
    def head(self) -> Head:
        return self.own.known or self.own.open()

    def commit(
        self,
        *days: str | None,
        operation: str = "append",
        foreign: bool = False,
        remove: list[str] | None = None,
        rows: int = 1,
        **change: Any,
    ) -> int:
        """One file per day. foreign: under a name that no job gave it; remove: these paths go; rows: of each file."""
        job = object_names.job_id(self.head.version, self.head.snapshot.table_id, secrets.token_bytes(16))
        label = secrets.token_hex(4) if foreign else job
        add = tuple(
            Entry(path=f"day={day}/{at:05d} {label}.parquet", partition=(day,), rows=rows, bytes=10 + at, digest=DIGEST, job=job)
            for at, day in enumerate(days)
        )
        made = Write(
            job=job, birth=self.head.version, operation=operation, partition_by=BY, add=add,
            schema=self.head.snapshot.schema if add else None,
            touched=tuple({1: day} for day in days), remove=frozenset(remove or ()), **change,
        )  # fmt: skip
        outcome = commit(self.own, self.head, made)
        assert outcome.kind == "committed" and outcome.version is not None
        paths = sorted(entry.path for entry in add)
        gone = set(remove or ())
        if change.get("overwrite"):
            gone = set(self.live[outcome.version - 1])
        self.added[outcome.version] = paths
        self.live[outcome.version] = [path for path in self.live[outcome.version - 1] if path not in gone] + paths
        return outcome.version

    def replace(self) -> int:
        """What a compaction does: all files become one."""
        return self.commit("plain", operation="replace", remove=self.live[self.head.version], rows=self.head.snapshot.totals.rows)

    def rollback(self, target: int) -> int:
        """Files keep the version that added them."""
        outcome = rollback(self.own, target, reason="it was wrong")
        assert outcome.version is not None
        self.live[outcome.version] = self.live[target]
        self.added[outcome.version] = []
        return outcome.version

    def overwrite(self, *days: str) -> int:
        return self.commit(*days, operation="overwrite", overwrite=Overwrite(scope=({},), conflict="blind"))


def feed(store: Store, on_overwrite: OnOverwrite = "fail", *, pinned: int | None = None, columns: tuple[Field, ...] = (DAY, ID)) -> Feed:
    """As a new process has it."""
    return Feed(session(store), columns=columns, pinned=pinned or open_head(store).version, on_overwrite=on_overwrite)


def batches(own: Feed, start: Offset, limit: int | None = None) -> Iterator[list[str]]:
    """What every trigger gives until there is nothing more."""
    while (end := own.advance(start, limit)) != start:
        yield [path for path, _ in own.between(start, end)]
        start = end


def everything(store: Store, starting: int | None = None, limit: int | None = None, on_overwrite: OnOverwrite = "fail") -> list[str]:
    own = feed(store, on_overwrite)
    return [path for batch in batches(own, own.beginning(starting), limit) for path in batch]


# Two entries are spilled, and two manifests are merged.
SMALL = {"inline_entry_bytes": 500, "fan_in": 2}


@pytest.fixture
def history() -> History:
    """Version n, from 2 to 7, added n - 1 files."""
    made = History(memory())
    for version in range(2, 8):
        made.commit(*HOSTILE[: version - 1])
    return made


# --- each file once, in order -------------------------------------------------------------------------------------------
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 4)), st.tuples(st.just("foreign"), st.integers(1, 3)),
        st.tuples(st.just("overwrite"), st.integers(0, 2)), st.tuples(st.just("replace"), st.just(1)),
        st.tuples(st.just("properties"), st.just(0)), st.tuples(st.just("rollback"), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=10,
)  # fmt: skip


@pytest.mark.thorough
@settings(max_examples=rounds(20, 300))
@given(
    before=STEPS, after=STEPS, limit=st.none() | st.integers(1, 5), starting=st.none() | st.integers(1, 8), small=st.booleans(),
    skips=st.booleans(),
)  # fmt: skip
def test_each_file_is_given_once_in_order(
    before: Any, after: Any, limit: int | None, starting: int | None, small: bool, skips: bool
) -> None:
    """Against the model, with manifests that are spilled and merged, through new processes, and each batch asked for twice. [SP8]"""
    history = History(memory())
    data: dict[int, list[str]] = {}
    returned: dict[int, int] = {}

    def play(steps: list[tuple[str, int]]) -> None:
        for kind, count in steps:
            if kind == "overwrite":
                removes = bool(history.live[history.head.version])
                version = history.overwrite(*HOSTILE[:count])
                data[version] = [] if removes and skips else history.added[version]
            elif kind == "replace":
                data[history.replace()] = []
            elif kind == "rollback" and history.head.version > count:
                target, before = history.head.version - count, history.live[history.head.version]
                version = history.rollback(target)
                if set(history.live[target]) - set(before):
                    returned[version] = target
            elif kind == "rollback":
                pass
            else:
                operation = "properties" if kind == "properties" else "append"
                version = history.commit(*HOSTILE[:count], operation=operation, foreign=kind == "foreign")
                data[version] = history.added[version]

    with budgets(**SMALL if small else {}):
        play(before)
        starting = None if starting is None else min(starting, history.head.version + 1)
        first = history.head.version
        choice: OnOverwrite = "skip" if skips else "files"
        start = feed(history.store, choice).beginning(starting)
        play(after)
        given_files: list[str] = []
        with contextlib.suppress(errors.UsageError):
            while (end := feed(history.store, choice).advance(start, limit)) != start:
                again = [[path for path, _ in feed(history.store, choice).between(start, end)] for _ in range(2)]
                assert again[0] == again[1] and (limit is None or len(again[0]) <= limit)
                given_files += again[0]
                start = end
    expected = list(history.live[first]) if starting is None else []
    seen, last = first if starting is None else starting - 1, history.head.version
    if not skips:  # a rollback that reaches back behind the beginning stops the stream
        last = min((version - 1 for version, target in returned.items() if version > seen and target < seen), default=last)
    for version in range(seen + 1, last + 1):
        expected += data.get(version, [])
    assert given_files == expected and len(given_files) == len(set(given_files)) and start.version == last + 1
    if not skips:
        compacted = {path for version, paths in history.added.items() if version not in data or not data[version] for path in paths}
        assert set(history.live[last]) <= {*given_files, *compacted, *(history.live[seen] if starting is not None and seen else [])}


def test_a_limit_cuts_the_beginning_and_every_version(history: History) -> None:
    """[SP8]"""
    own = feed(history.store)
    live = history.live[7]
    found = list(batches(own, own.beginning(), 4))
    assert [len(batch) for batch in found] == [4, 4, 4, 4, 4, 1] and [path for batch in found for path in batch] == live
    found = list(batches(feed(history.store), own.beginning().start().next_version(), 4))
    assert found == []
    found = list(batches(feed(history.store), feed(history.store).beginning(5), 4))
    assert [len(batch) for batch in found] == [4, 4, 4, 3]
    assert [path for batch in found for path in batch] == history.added[5] + history.added[6] + history.added[7]


@pytest.mark.parametrize("spilled", [False, True])
def test_what_a_stream_begins_with_is_in_the_order_of_paths_within_a_version(spilled: bool) -> None:
    """Not in that in which they were named, and not in that of partitions, as manifests are: "a" comes before "a b". [SP8]"""
    with budgets(**SMALL if spilled else {}):
        history = History(memory())
        for _ in range(2):
            history.commit("b", "a", "a b", "a", "a!", None)
    head = history.head.snapshot
    assert bool(head.manifests) is spilled
    by_partition = entries_table(history.own, head).filter(pc.field("added") == 3).column("path").to_pylist()
    assert sorted(by_partition) == history.added[3] != by_partition, "or this tests nothing"
    assert everything(history.store) == everything(history.store, limit=5) == history.live[3]


def test_sizes_come_with_the_paths(history: History) -> None:
    own = feed(history.store)
    start = own.beginning(7)
    sizes = {entry.path: entry.bytes for entry in history.head.snapshot.added}
    assert own.between(start, own.advance(start)) == [(path, sizes[path]) for path in history.added[7]]
    assert len(set(sizes.values())) > 1


def test_the_first_batch_is_the_same_in_a_new_process_though_the_head_moved(history: History) -> None:
    """Spark logs the end of a batch before it runs, and asks a new process again where a stream begins. [SP8]"""
    first = feed(history.store)
    end = first.advance(first.beginning(), 5)
    asked = first.between(first.beginning(), end)
    history.commit("later")
    history.replace()
    again = feed(history.store)
    assert again.beginning() != first.beginning()
    assert again.between(again.beginning(), end) == asked == [(path, size) for path, size in asked if path in history.live[7][:5]]
    rest = [path for batch in batches(again, end) for path in batch]
    assert [path for path, _ in asked] + rest == history.live[7] + history.added[8]
    other_option = feed(history.store)
    assert other_option.between(other_option.beginning(3), end) == asked, "the option counts where a stream begins, and never again"


def test_a_stream_told_to_stop_at_the_head_does(history: History) -> None:
    """[SP8]"""
    own = feed(history.store)
    own.stop_at_head()
    history.commit("later")
    start = own.beginning()
    assert start.version == 7
    assert [path for batch in batches(own, start, 20) for path in batch] == history.live[7]
    older = feed(history.store)
    older.stop_at_head()
    history.commit("later still")
    found = list(batches(older, older.beginning(6), 4))
    assert [path for batch in found for path in batch] == history.added[6] + history.added[7] + history.added[8] and len(found) == 3
    fresh = feed(history.store)
    assert [path for batch in batches(fresh, fresh.beginning(8)) for path in batch] == history.added[8] + history.added[9]


def test_a_stream_waits_for_the_next_version_and_for_no_later_one(history: History) -> None:
    """[SP8] [RD4]"""
    own = feed(history.store)
    start = own.beginning(8)
    assert own.advance(start) == start and own.between(start, start) == []
    history.commit("new")
    assert list(batches(own, start)) == [history.added[8]]
    for version in (10, 0, -1):
        with pytest.raises(errors.VersionNotFoundError, match=rf"cannot start at version {version}: the table has 1 to 8; 9 would be"):
            feed(history.store).beginning(version)


def test_an_empty_table_begins_with_nothing() -> None:
    history = History(memory())
    own = feed(history.store)
    start = own.beginning()
    end = own.advance(start)
    assert own.between(start, end) == [] and end.version == 2
    with pytest.raises(errors.TableNotFoundError):
        Feed(session(memory()), columns=(), pinned=1).beginning()


# --- what is no data ----------------------------------------------------------------------------------------------------
def test_a_version_of_several_jobs_is_decided_by_the_job_of_each_entry(history: History) -> None:
    """[SP8] [OB10]"""
    head = history.head
    entries = [
        Entry(path=f"{job}.parquet", partition=("d",), rows=1, bytes=1, digest=DIGEST, added=8, job=job)
        for job in ("compacts", "appends", "overwrites")
    ]
    commits = (
        Commit(job="compacts", commit_id="compacts.1", operation="replace", summary=Summary(removed_files=3)),
        Commit(job="appends", commit_id="appends.1", operation="append"),
        Commit(job="overwrites", commit_id="overwrites.1", operation="merge", summary=Summary(removed_files=1)),
    )
    made = msgspec.structs.replace(
        head.snapshot, version=8, parent_digest=head.digest, commits=commits, added=(*head.snapshot.added, *entries)
    )
    assert history.store.put_if_absent(object_names.version_name(8), codec.encode_snapshot(made))
    assert everything(history.store, 8, on_overwrite="skip") == ["appends.parquet"]
    assert everything(history.store, 8, on_overwrite="files") == ["appends.parquet", "overwrites.parquet"]
    with pytest.raises(errors.UsageError, match="merge by job overwrites"):
        everything(history.store, 8)


def test_an_overwrite_fails_is_given_or_is_skipped(history: History) -> None:
    """[SP8]"""
    history.overwrite("x", "y")
    history.commit("after")
    rest = history.added[9]
    assert everything(history.store, 7, on_overwrite="files") == history.added[7] + history.added[8] + rest
    assert everything(history.store, 7, on_overwrite="skip") == history.added[7] + rest
    own = feed(history.store)
    start = own.beginning(7)
    end = own.advance(start)
    assert [path for path, _ in own.between(start, end)] == history.added[7], "what comes before it is given first"
    with pytest.raises(
        errors.UsageError, match=r"version 8 of memory://\S+ \(overwrite by job v7-.*\) removed 21 rows in 21 files"
    ) as raised:
        own.advance(end)
    assert 'option("onOverwrite", "files")' in str(raised.value) and '"skip"' in str(raised.value)
    with pytest.raises(errors.UsageError, match="version 8 of"):
        feed(history.store).between(start, end.next_version())
    assert everything(history.store) == history.live[9], "what a stream begins with is what is live, however it came"


def test_a_batch_that_is_repeated_under_another_choice_is_an_error(history: History) -> None:
    """An offset within a version counts the files that were given then. [SP8]"""
    version = history.overwrite("a", "b", "c")
    own = feed(history.store, "files")
    start = own.beginning(version)
    end = own.advance(start, 2)
    assert len(own.between(start, end)) == 2
    with pytest.raises(errors.UsageError, match="onOverwrite"):
        feed(history.store, "skip").between(start, end)


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("choice", ["fail", "files", "skip"])
def test_files_that_a_rollback_brings_back_from_before_the_stream_began_are_an_error(choice: OnOverwrite, spilled: bool) -> None:
    """They keep the version that added them, and a stream that began when the table was empty has not been given them. [SP8] [CF13]"""
    with budgets(**SMALL if spilled else {}):
        history = History(memory())
        history.commit("a", "b")
        history.overwrite()
        start = feed(history.store).beginning()
        assert (start.whole, start.version) == (True, 3)
        assert history.rollback(2) == 4
        history.commit("after")
    assert history.head.snapshot.totals.files == 3
    own = feed(history.store, choice)
    reached = own.advance(start)
    assert own.between(start, reached) == [] or choice == "skip"
    if choice == "skip":
        assert reached.version == 6 and [path for path, _ in own.between(start, reached)] == history.added[5]
        return
    assert reached.version == 4
    said = r"version 4 of memory://\S+ \(rollback by job v3-.*\) brought back 2 files with 2 rows from before the stream began"
    with pytest.raises(errors.UsageError, match=said) as raised:
        own.advance(reached)
    assert 'Table.changed_files(3, 4)["added"]' in str(raised.value) and 'option("onOverwrite", "skip")' in str(raised.value)
    with pytest.raises(errors.UsageError, match=said):
        feed(history.store, choice).between(start, reached.next_version())


@pytest.mark.parametrize(("starting", "is_news"), [(None, True), (5, True), (4, False), (3, False)])
def test_files_of_versions_that_a_stream_has_seen_are_no_news(starting: int | None, is_news: bool) -> None:
    """What was live when the stream began, or just before the version with which it began, is given by then, or was not wanted. [SP8]"""
    history = History(memory())
    history.commit("a")
    history.commit("b")
    history.overwrite()
    began = feed(history.store).beginning(starting)
    history.rollback(3)
    history.commit("after")
    own = feed(history.store, "files")
    if is_news:
        with pytest.raises(errors.UsageError, match=r"version 5 of .* brought back 2 files"):
            list(batches(own, began))
    else:
        assert [path for batch in batches(own, began) for path in batch] == (history.added[3] if starting == 3 else []) + history.added[6]


@pytest.mark.parametrize("choice", ["fail", "files", "skip"])
def test_what_a_commit_of_another_kind_brings_back_is_no_less(history: History, choice: OnOverwrite) -> None:
    """Not by the name of the operation: by what its record counts beside what the version added. [SP8] [CM9]"""
    head = history.head
    commits = (Commit(job="undeletes", commit_id="undeletes.1", operation="undelete", summary=Summary(files=1, rows=1)),)
    back = msgspec.structs.replace(head.snapshot.added[0], path="day=x/back.parquet")
    made = msgspec.structs.replace(head.snapshot, version=8, parent_digest=head.digest, commits=commits, added=(*head.snapshot.added, back))
    assert history.store.put_if_absent(object_names.version_name(8), codec.encode_snapshot(made))
    if choice == "skip":
        assert everything(history.store, 8, on_overwrite=choice) == []
    else:
        with pytest.raises(errors.UsageError, match=r"undelete by job undeletes.* brought back 1 files"):
            everything(history.store, 8, on_overwrite=choice)


def test_an_overwrite_is_found_in_the_middle_of_a_walk_by_its_removal_alone(history: History) -> None:
    """A commit that only removes gives nothing, but it cannot be told to who has read the rows. [SP8]"""
    history.commit(operation="delete", remove=history.added[3])
    with pytest.raises(errors.UsageError, match="delete by job"):
        everything(history.store, 8)
    assert everything(history.store, 8, on_overwrite="files") == everything(history.store, 8, on_overwrite="skip") == []


# --- versions that are not there ----------------------------------------------------------------------------------------
def test_an_expired_version_is_an_error_that_says_what_to_do(history: History) -> None:
    """Never a silent skip, though objects of that name exist. [SP8] [RD3]"""
    start = feed(history.store).beginning(3)
    put_version(history.store, open_head(history.store), fence=5, expired=5)
    said = r"needs version 3 of .* expired.* oldest readable version is 5\. Nothing was skipped.*new checkpoint.*\"startingVersion\", 5"
    for ask in (
        lambda: feed(history.store).advance(start),
        lambda: feed(history.store).between(start, start.next_version()),
        lambda: feed(history.store).beginning(3),
    ):
        with pytest.raises(errors.SnapshotExpiredError, match=said):
            ask()
    assert everything(history.store, 5) == history.added[5] + history.added[6] + history.added[7]
    running = feed(history.store)
    end = running.advance(running.beginning(), 1)
    put_version(history.store, open_head(history.store), fence=9, expired=9)
    with pytest.raises(errors.SnapshotExpiredError, match="needs version 8"):
        running.advance(end, 1)
    whole = Offset(table=start.table, began=4, whole=True, version=4, files=1)
    with pytest.raises(errors.SnapshotExpiredError, match="needs version 4"):
        feed(history.store).advance(whole)


@pytest.mark.parametrize("gone", [False, True])
def test_a_version_that_expires_while_it_is_read_is_not_given_out(history: History, gone: bool) -> None:
    """The second look: what was got may be a stalled writer's. [RD3] [SP8]"""

    def expire_meanwhile(call: FaultCall) -> None:
        if call.kind == "get" and call.name == object_names.version_name(4) and open_head(history.store).version == 7:
            put_version(history.store, open_head(history.store), fence=6, expired=6)
            if gone:
                history.store.delete([object_names.version_name(4)])

    start = feed(history.store).beginning(4)
    with pytest.raises(errors.SnapshotExpiredError, match="needs version 4"):
        feed(FaultStore(history.store, on_call=expire_meanwhile)).advance(start)


@pytest.mark.parametrize("expired", [False, True])
def test_a_manifest_that_is_gone_is_damage_or_expiry(expired: bool) -> None:
    """[OB4] [SP8]"""
    with budgets(**SMALL):
        history = History(memory())
        history.commit(*HOSTILE)
        history.commit("x")
        history.commit("y")
    (manifest,) = (call for call in history.store.list("_manifest/manifests/") if "v1-" in call.name)

    def meanwhile(call: FaultCall) -> None:
        if call.kind == "get" and call.name == manifest.name and open_head(history.store).version == 4:
            history.store.delete([manifest.name])
            put_version(history.store, open_head(history.store), fence=4, expired=4 if expired else 1)

    own = feed(FaultStore(history.store, on_call=meanwhile))
    with pytest.raises(errors.SnapshotExpiredError if expired else errors.CorruptMetadataError):
        own.advance(own.beginning(2))


def test_another_table_is_not_the_one_of_the_checkpoint(history: History) -> None:
    """[SP8]"""
    start = feed(history.store).beginning(3)
    running = feed(history.store)
    running.advance(start)
    history.store.delete([info.name for info in history.store.list("")])
    with pytest.raises(errors.TableNotFoundError):
        running.advance(start)
    other = session(history.store)
    create_table(other, schema=SCHEMA, partition_by=BY, properties={})
    table = open_head(history.store).snapshot.table_id
    for own in (running, feed(history.store)):
        with pytest.raises(errors.TableNotFoundError, match=f"of the table {start.table}, but at .* the table {table}.*Nothing was read"):
            own.advance(start)
    with pytest.raises(errors.TableNotFoundError):
        feed(history.store).between(start, start.next_version())
    fresh = feed(history.store)
    with pytest.raises(errors.TableNotFoundError, match="Nothing was read"):
        fresh.between(fresh.beginning(), start)


def test_a_table_that_is_made_anew_while_a_stream_looks_is_not_taken_for_the_old_one(history: History) -> None:
    """[SP8]"""
    other = History(memory())
    for _ in range(9):
        other.commit("another")

    def make_anew(call: FaultCall) -> None:
        if call.kind == "get" and call.name == object_names.version_name(4):
            put_back(history.store, objects_of(other.store))

    start = feed(history.store).beginning(4)
    with pytest.raises(errors.TableNotFoundError, match=f"of the table {start.table}, but at"):
        feed(FaultStore(history.store, on_call=make_anew)).advance(start)


@pytest.mark.parametrize(
    ("begun", "gone", "error", "told"),
    [
        (3, 4, errors.CorruptMetadataError, "missing"),
        (8, 7, errors.VersionNotFoundError, "no version above 6, but this stream has read up to 7"),
    ],
)
def test_a_version_that_is_gone_is_damage_or_an_older_state(
    history: History, begun: int, gone: int, error: type[Exception], told: str
) -> None:
    """[IV1] [OB4] [SP8]"""
    start = feed(history.store).beginning(begun)
    history.store.delete([object_names.version_name(gone)])
    with pytest.raises(error, match=told):
        feed(history.store).advance(start)


@pytest.mark.parametrize(
    "given_offset",
    [
        {},
        [],
        {"table": "t", "began": 2, "whole": True, "version": 1, "files": 0},
        {"table": "t", "began": 0, "whole": True, "version": 1, "files": 0},
        {"table": "t", "began": 1, "whole": True, "version": 1, "files": -1},
        {"table": "t", "began": 1, "whole": True, "version": 1, "files": 0, "more": 1},
        {"table": "t", "began": "1", "whole": True, "version": 1, "files": 0},
    ],
)
def test_an_offset_of_another_source_is_refused(given_offset: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_offset(given_offset)
    good = Offset(table="t", began=1, whole=False, version=3, files=2)
    assert parse_offset(msgspec.to_builtins(good)) == good


# --- columns ------------------------------------------------------------------------------------------------------------
def edited(history: History, *edits: SchemaEdit) -> None:
    history.commit(operation="schema", edits=edits)


def test_a_dropped_column_stops_the_stream_where_files_lack_it(history: History) -> None:
    """Not before, and not where the stream does not show it. [SP8]"""
    own = feed(history.store)
    start = own.beginning(7)
    edited(history, SchemaEdit(kind="drop", id=2, column="id"))
    end = own.advance(start)
    assert [path for path, _ in own.between(start, end)] == history.added[7] and end.version == 9
    history.commit("new")
    with pytest.raises(errors.SchemaMismatchError, match=r"version 9 .*the column 'id' was dropped\. Nothing of them .* same checkpoint"):
        own.advance(end)
    with pytest.raises(errors.SchemaMismatchError, match="'id' was dropped"):
        feed(history.store, pinned=7).between(end, end.next_version())
    assert list(batches(feed(history.store, pinned=7, columns=(DAY,)), end)) == [history.added[9]]
    assert list(batches(feed(history.store, columns=(DAY,)), end)) == [history.added[9]]


def test_columns_that_were_added_or_renamed_change_nothing(history: History) -> None:
    """[SP8] [SC6]"""
    own = feed(history.store)
    start = own.beginning(7)
    edited(history, SchemaEdit(kind="rename", id=2, column="id", was="id", to="number"))
    edited(history, SchemaEdit(kind="add", id=9, column="more", field=Field(id=9, name="more", type="string")))
    history.commit("new")
    expected = history.added[7] + history.added[10]
    assert [path for batch in batches(own, start) for path in batch] == expected
    newer = feed(history.store, columns=(DAY, Field(id=9, name="more", type="string")))
    assert [path for batch in batches(newer, start) for path in batch] == expected, "in older files a younger column is null"


def test_a_column_that_became_wider_stops_the_stream_and_a_younger_stream_reads_both() -> None:
    """[SP8] [SC5]"""
    wide, narrow = Field(id=5, name="n", type="long"), Field(id=5, name="n", type="integer")
    assert unreadable_columns([narrow], [wide], later=True) == ["the column 'n' is long there and integer in the stream"]
    assert unreadable_columns([wide], [narrow], later=False) == []
    assert unreadable_columns([narrow], [], later=False) == []
    kinds = [
        lambda field: StructType(fields=(field,)),
        lambda field: ArrayType(element=msgspec.structs.replace(field, name="element")),
        lambda field: MapType(
            key=Field(id=6, name="key", type="string", nullable=False), value=msgspec.structs.replace(field, name="value")
        ),
        lambda field: MapType(
            key=msgspec.structs.replace(field, name="key", nullable=False), value=Field(id=6, name="value", type="string")
        ),
    ]
    for nest in kinds:
        outer = [Field(id=7, name="c", type=nest(each)) for each in (narrow, wide)]
        assert unreadable_columns([outer[0]], [outer[0]], later=True) == []
        assert unreadable_columns([outer[1]], [outer[0]], later=False) == []
        assert unreadable_columns([outer[0]], [outer[1]], later=True) != []
    more = Field(id=7, name="c", type=StructType(fields=(narrow, Field(id=8, name="m", type="string"))))
    less = Field(id=7, name="c", type=StructType(fields=(narrow,)))
    assert unreadable_columns([less], [more], later=True) == [] == unreadable_columns([more], [less], later=False)

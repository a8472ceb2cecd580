"""One suite for every backend that commits may go through. [ST1]-[ST9]"""

import contextlib
import gc
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.faults import processes
from tests.kit.stores import HOSTILE, NOT_ON_AZURE
from tests.kit.tables import check_table, read_ids, rows, session, write, write_each
from tests.store.places import Place, names

from manifestcommit.errors import StoreError
from manifestcommit.log.version_chain import open_head
from manifestcommit.store import LocalStore, Store
from manifestcommit.store.local import MemoryStore

CLIMBING = ["", "/", "/etc/x", "..", "../x", "a/../../x", "a/..", ".", "./a", "a/./b", "a//b", "a/", "a\0b", "//a"]


# --- atomic create ------------------------------------------------------------------------------------------------------
def test_of_32_racing_threads_exactly_one_creates(place: Place) -> None:
    """[ST1]"""
    creators = 6 if place.is_tree else 32  # SeaweedFS keeps each waiting for a second or more
    for number in range(20 if creators == 32 else 3):
        barrier = threading.Barrier(creators)

        def create(body: bytes, name: str = f"versions/{number}", barrier: threading.Barrier = barrier) -> bool:
            store = place.open()
            barrier.wait()
            return store.put_if_absent(name, body)

        bodies = [str(each).encode() * 100 for each in range(creators)]
        with ThreadPoolExecutor(creators) as pool:
            won = list(pool.map(create, bodies))
        assert won.count(True) == 1
        assert place.open().get(f"versions/{number}") == bodies[won.index(True)], "the winner's bytes, not a loser's"


def race_for_names(place: Place, number: int, count: int, ready: Any, start: Any, won: Any) -> None:
    store = place.open()
    with contextlib.suppress(FileNotFoundError):
        store.get("nothing")  # connected before the race begins
    ready.release()
    start.wait()
    with contextlib.suppress(FileNotFoundError):
        store.get("nothing")  # a connection that was closed meanwhile is replaced
    won.put([each for each in range(count) if store.put_if_absent(f"versions/{each:04}", b"process %d" % number)])


@pytest.mark.parametrize("racers", [8, pytest.param(32, marks=pytest.mark.thorough)])
def test_of_racing_processes_exactly_one_creates(shared_place: Place, racers: int) -> None:
    """A check before a write would let two win. [ST1] [ST9] [ST10]"""
    count = 20
    ready, start, won = processes.Semaphore(0), processes.Event(), processes.Queue()
    running = [processes.Process(target=race_for_names, args=(shared_place, number, count, ready, start, won)) for number in range(racers)]
    for process in running:
        process.start()
    assert all(ready.acquire(timeout=120) for _ in running)
    start.set()
    victories = [won.get(timeout=120) for _ in running]
    for process in running:
        process.join(60)
    assert [process.exitcode for process in running] == [0] * racers
    assert sorted(each for taken in victories for each in taken) == list(range(count)), "each name has one creator"
    bodies = [shared_place.open().get(f"versions/{each:04}") for each in range(count)]
    assert sum(len(taken) > 0 for taken in victories) == len(set(bodies)), "the winners' bytes, and theirs only"


def test_a_reader_sees_a_created_object_whole_or_not_at_all(store: Store, place: Place) -> None:
    """O_EXCL alone would show its first half, or nothing of it. [ST1] [ST2] [ST9]"""
    whole = secrets.token_bytes(3_000_000)  # long enough to be caught in the middle of
    over = threading.Event()
    torn: list[int] = []

    def read() -> None:
        own = place.open()
        while not over.is_set():
            for info in own.list("v/"):
                with contextlib.suppress(FileNotFoundError):
                    found = own.get(info.name)
                    if found != whole or info.size_bytes != len(whole):
                        torn.append(len(found))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for number in range(30):
            assert store.put_if_absent(f"v/{number}", whole)
            store.put("v/again", whole)
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert torn == []


def test_a_taken_name_keeps_its_bytes(store: Store) -> None:
    """[ST1] [ST8]"""
    assert store.put_if_absent("v/1", b"first")
    assert not store.put_if_absent("v/1", b"second")
    assert not store.put_if_absent("v/1", b"first"), "the same bytes are no exception: the name is taken"
    assert store.get("v/1") == b"first"


def test_a_deleted_name_is_free(store: Store) -> None:
    assert store.put_if_absent("v/1", b"first")
    store.delete(["v/1"])
    assert store.put_if_absent("v/1", b"second")
    assert store.get("v/1") == b"second"


# --- get and put --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_kept_as_it_was_written(place: Place, name: str, store: Store) -> None:
    """[LY1] [ST8]"""
    if store.url.startswith("abfs:") and name in NOT_ON_AZURE:
        with pytest.raises(StoreError):
            store.put_if_absent(f"d/{name}", b"x")
        return
    assert store.put_if_absent(f"d/{name}", b"x")
    assert store.get(f"d/{name}") == b"x"
    if place.is_tree and "\\" in name:
        assert names(store, "d/") == ["d/back/slash"]  # no name of a table has one
        return
    assert names(store, "d/") == [f"d/{name}"]
    assert not store.put_if_absent(f"d/{name}", b"y")
    output = store.create_output(f"e/{name}")
    output.write(b"out")
    output.close()
    with store.open_input(f"e/{name}") as stream:
        assert stream.read() == b"out"
    store.delete([f"d/{name}", f"e/{name}"])
    assert names(store) == []


@pytest.mark.parametrize("name", CLIMBING)
def test_a_name_that_climbs_is_refused_by_every_call(store: Store, name: str) -> None:
    """[LY1] [SE2]"""
    calls: list[Callable[[], object]] = [
        lambda: store.get(name), lambda: store.put(name, b"x"), lambda: store.put_if_absent(name, b"x"), lambda: store.delete([name]),
        lambda: store.create_output(name), lambda: store.open_input(name),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match="not a name below"):
            call()
    assert names(store) == []


@pytest.mark.parametrize("prefix", ["../", "a/../../", "/etc/", "a//b"])
def test_a_list_does_not_climb(store: Store, place: Place, prefix: str) -> None:
    """[LY1] [SE2]"""
    place.named(f"{place.url.removesuffix('root')}beside").open().put("x", b"secret")
    with contextlib.suppress(ValueError):
        assert names(store, prefix) == []


@pytest.mark.thorough
@pytest.mark.parametrize("size", [0, 1, 8 * 1024 * 1024, 80 * 1024 * 1024])
def test_an_object_of_any_size_comes_back(store: Store, size: int) -> None:
    """[ST2] [ST8]"""
    body = secrets.token_bytes(size)
    assert store.put_if_absent("created", body)
    store.put("put", body)
    output = store.create_output("written")
    for start in range(0, size, 3_000_000):
        output.write(body[start : start + 3_000_000])
    output.close()
    for name in ("created", "put", "written"):
        assert store.get(name) == body
        assert store.get(name, 0, size + 10) == body
        assert [info.size_bytes for info in store.list(name)] == [size]
    assert not store.put_if_absent("created", b"")
    assert store.get("created", size // 2) == body[size // 2 :]
    assert store.get("created", 1, 5) == body[1:5]
    assert store.get("created", size, size + 1) == b""


@pytest.mark.parametrize(("start", "end"), [(5, 5), (5, 4), (5, 3), (0, 0), (None, 0), (10, 11), (10, None), (99, None), (99, 98)])
def test_a_range_with_nothing_in_it_is_empty(store: Store, start: int | None, end: int | None) -> None:
    """Reversed, or behind the end: no more than what was asked for, and no error. [ST8]"""
    store.put("x", b"0123456789")
    assert store.get("x", start, end) == b""


def test_a_put_replaces_the_whole_object(store: Store) -> None:
    store.put("hint", b"12345")
    store.put("hint", b"6")
    assert store.get("hint") == b"6"


def test_what_is_missing_is_told_from_a_failure(store: Store) -> None:
    """[ST8]"""
    store.put("there", b"")
    for name in ("absent", "no/such/folder/absent"):
        with pytest.raises(FileNotFoundError):
            store.get(name)
        with pytest.raises(FileNotFoundError):
            store.open_input(name)


def test_many_delete_the_same_objects_at_once(store: Store, place: Place) -> None:
    """Two cleaners, or one that is run again: what is gone is no error. [ST8]"""
    written = [f"d/{number} %" for number in range(40)]
    for name in written:
        store.put(name, b"x")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: place.open().delete(written), range(8)))
    assert names(store) == []


def test_another_instance_reads_what_was_written(place: Place) -> None:
    """No instance answers from a memory of its own. [ST3] [ST8]"""
    first, second = place.open(), place.open()
    assert names(second, "v/") == []
    first.put_if_absent("v/1", b"1")
    assert names(second, "v/") == ["v/1"] and second.get("v/1") == b"1"
    second.put("v/1", b"2")
    assert first.get("v/1") == b"2"
    first.delete(["v/1"])
    assert names(second, "v/") == [] and second.put_if_absent("v/1", b"3")


# --- list ---------------------------------------------------------------------------------------------------------------
def test_a_list_is_ordered_by_code_points(place: Place, store: Store) -> None:
    """Plain names everywhere; where the server keeps no folders, all of them: `a/` stands where its slash does, after `a!` and `a-b`,
    before `a0`; UTF-16 would order 🦆 before \ue000. [ST3]"""
    written = ["a!", "a-b", "a/x", "a/y/z", "a0", "a", "B", "Z", "é", "\ue000", "🦆", "a.b", "a b"]
    for name in written:
        store.put(f"d/{name}" if name != "a" else "d/a_", b"")
    expected = sorted(f"d/{name}" if name != "a" else "d/a_" for name in written)
    flat = ["d/B", "d/Z", "d/a-b", "d/a.b", "d/a0", "d/a_"]
    for start in flat:
        assert [name for name in names(store, "d/", start_from=start) if name in flat] == flat[flat.index(start) :]
    if place.is_tree:
        assert sorted(names(store)) == sorted(names(store, "d/")) == expected
        return
    assert names(store) == names(store, "d/") == expected
    for start in expected:
        assert names(store, "d/", start_from=start) == expected[expected.index(start) :]
    assert names(store, "d/", start_from="d/a/y") == expected[expected.index("d/a/y/z") :]
    assert names(store, "d/", start_from="d/a/zzz") == expected[expected.index("d/a0") :]
    assert names(store, "d/", start_from="e") == []


def test_a_prefix_ends_where_it_says(place: Place, store: Store) -> None:
    """Cleaning /output/dataset1 once cancelled the work of /output/dataset10. [ST3]"""
    for name in ("t1/a", "t10/a", "t1", "t1-x/a") if not place.url.startswith("/") else ("t1/a", "t10/a", "t1-x/a"):
        store.put(name, b"")
    assert names(store, "t1/") == ["t1/a"]
    assert "t10/a" in names(store, "t1") and "t1-x/a" in names(store, "t1")
    assert names(store, "t1/a") == ["t1/a"] and names(store, "t1/ab") == [] and names(store, "t2/") == []
    beside = place.named(f"{place.url}0").open()
    beside.put("x", b"")
    assert "x" not in names(store) and names(beside) == ["x"]


components = st.text(st.sampled_from("ab01/-. %+=#é🦆\ue000"), min_size=1, max_size=6)


@settings(max_examples=60)
@given(written=st.sets(components, max_size=12), prefix=components | st.just(""), start=components | st.just(""))
def test_a_list_is_the_sorted_names_with_the_prefix_from_the_start_on(
    tmp_path_factory: pytest.TempPathFactory, written: set[str], prefix: str, start: str
) -> None:
    """Both backends against two lines of Python. [ST3] [LY1]"""
    good = {name for name in written if all(part not in ("", ".", "..") for part in name.split("/"))}
    # No file system has a file `a` beside a folder `a`.
    good = {name for name in good if not any(other.startswith(f"{name}/") for other in good)}
    folder = prefix.rpartition("/")[0]
    if any(part in ("", ".", "..") for part in folder.split("/")) and folder:
        return
    expected = sorted(name for name in good if name.startswith(prefix) and name >= start)
    for store in (LocalStore(str(tmp_path_factory.mktemp("list"))), MemoryStore(secrets.token_hex(8))):
        for name in good:
            store.put(name, b"")
        assert names(store, prefix, start) == expected


# --- outputs and leftovers ----------------------------------------------------------------------------------------------
def test_an_output_appears_whole_when_it_is_closed_and_not_before(store: Store) -> None:
    """[ST2] [DF2]"""
    output = store.create_output("day=1/a b.parquet")
    for _ in range(3):
        output.write(b"x" * 100_000)
    output.flush()
    assert output.tell() == 300_000 and not output.closed
    assert names(store) == []
    with pytest.raises(FileNotFoundError):
        store.get("day=1/a b.parquet")
    output.close()
    assert output.closed and store.get("day=1/a b.parquet") == b"x" * 300_000
    output.close()
    output.discard()
    assert names(store) == ["day=1/a b.parquet"], "discarding what was closed takes nothing back"
    with pytest.raises(ValueError, match="closed"):
        output.write(b"late")
    assert store.get("day=1/a b.parquet") == b"x" * 300_000


def test_a_discarded_output_never_appears(store: Store, tmp_path: Path) -> None:
    """[ST2] [AB2]"""
    output = store.create_output("day=1/x")
    output.write(b"half")
    output.discard()
    output.discard()
    output.close()
    with pytest.raises(ValueError, match="closed"):
        output.write(b"late")
    assert names(store) == []
    assert [path for path in (tmp_path / "root").rglob("*") if path.is_file()] == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_an_output_that_is_forgotten_never_appears(store: Store) -> None:
    """Only `close()` publishes: the death of a variable is none. [ST2]"""
    output = store.create_output("day=1/x")
    output.write(b"half")
    del output
    gc.collect()
    assert names(store) == []


def test_parquet_files_go_through_outputs_and_the_filesystem(store: Store) -> None:
    """[ST2]"""
    table = pa.table({"a": range(1000)})
    output = store.create_output("a b=%2F/x.parquet")
    pq.write_table(table, output)
    output.close()
    filesystem, base = store.filesystem()
    assert pq.read_table(f"{base}/a b=%2F/x.parquet", filesystem=filesystem, partitioning=None).equals(table)
    with store.open_input("a b=%2F/x.parquet") as stream:
        assert pq.read_table(stream).equals(table)


@pytest.mark.thorough
def test_many_threads_read_one_file_each_from_its_beginning(store: Store) -> None:
    """A stream has a position of its own. [ST8] [RD2]"""
    table = pa.table({"a": range(200_000), "b": [str(number) for number in range(200_000)]})
    output = store.create_output("x.parquet")
    pq.write_table(table, output, row_group_size=1000)
    output.close()
    filesystem, base = store.filesystem()

    def read(_: int) -> bool:
        return bool(pq.read_table(f"{base}/x.parquet", filesystem=filesystem, use_threads=False).equals(table))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(24)))


def test_each_answer_of_a_service_tells_its_time(store: Store) -> None:
    """A folder's and this memory's clock is this machine's. [CM14]"""
    is_service = store.is_remote
    for ask in (lambda: store.put_if_absent("x", b"1"), lambda: list(store.list("")), lambda: store.put("x", b"2")):
        fresh: Any = store
        if is_service:
            fresh._told_s = None
        ask()
        told = fresh.now_s
        assert (told is not None) == is_service
        assert told is None or abs(told - time.time()) < 900


def test_a_list_of_a_service_names_each_content(store: Store) -> None:
    """By which a process that knows the newest version sees that it is still that one. [RD1]"""

    def named() -> str:
        return next(info.etag for info in store.list("v/"))

    store.put("v/1", b"one")
    first = named()
    assert bool(first) == store.is_remote and named() == first
    assert store.put_if_absent("v/2", b"other") and named() == first
    store.put("v/1", b"two")
    assert named() != first or not first
    data, got = store.get_tagged("v/1", 2)
    assert data == b"tw" and got == named().strip('"'), "so that no list has to follow"


def test_what_a_process_knows_of_a_table_ends_where_it_is_put_back(store: Store) -> None:
    """The newest version has the number of the known one, and another content. [RD1]"""
    write_each(store, range(3))
    before = {info.name: store.get(info.name) for info in store.list("")}
    write(store, rows([3]))
    store.delete([info.name for info in [*store.list("")]])
    for name, data in before.items():
        store.put(name, data)
    kept = store.heads
    known = dict(kept or {})
    write(store, rows([30]))
    if kept is not None:
        assert known[store.url].version == kept[store.url].version
        kept.update(known)
    assert session(store).open().digest == open_head(store).digest
    write(store, rows([4]))
    check_table(store)
    assert read_ids(store) == [0, 1, 2, 4, 30]


def test_a_process_that_ends_just_after_a_scan_ends_well() -> None:
    """Threads of pyarrow still let go of what they read from Python: four of five such processes aborted."""
    code = (
        "import secrets, pyarrow as pa, manifestcommit as mc; url = 'memory://' + secrets.token_hex(4)\n"
        "for day in range(6): mc.write(pa.table({'id': range(300), 'day': [day] * 300}), url, partition_by='day')\n"
        "mc.Table(url).to_arrow()"
    )
    ends = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode for _ in range(3)]
    assert ends == [0, 0, 0]

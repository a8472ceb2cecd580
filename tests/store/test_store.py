"""One suite for every backend that commits may go through. [ST1]-[ST9]"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifestcommit.errors import StoreError
from manifestcommit.store import LocalStore, MemoryStore, Store, open_store

KINDS = ("local", "memory")
HOSTILE = [
    "a b/c d", " ", "100%", "%2F", "%41", "a+b", "a=b", "day=1/#x", "'single'", '"double"', "`back`", "back\\slash", "tab\there",
    "new\nline", "été", "e\u0301te\u0301", "日本/語", "🦆", "\ue000", "\U00010000", "*?[x]", "{brace}", "$HOME", "~", "-rf", "...",
    ".hidden",
    "x" * 255, f"{'y' * 200}/{'z' * 200}/{'é' * 100}", "__HIVE_DEFAULT_PARTITION__", "a:b", "a|b", "\x01", "a;b",
]  # fmt: skip
CLIMBING = ["", "/", "/etc/x", "..", "../x", "a/../../x", "a/..", ".", "./a", "a/./b", "a//b", "a/", "a\0b", "//a"]

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["manifestcommit"])


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "root") if request.param == "local" else f"memory://{secrets.token_hex(8)}/root"


@pytest.fixture
def store(url: str) -> Store:
    return open_store(url)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "root"))


def names(store: Store, prefix: str = "", start_from: str = "") -> list[str]:
    return [info.name for info in store.list(prefix, start_from=start_from)]


# --- atomic create ------------------------------------------------------------------------------------------------------


def test_of_32_racing_threads_exactly_one_creates(url: str) -> None:
    """[ST1]"""
    for number in range(20):
        barrier = threading.Barrier(32)

        def create(body: bytes, name: str = f"versions/{number}", barrier: threading.Barrier = barrier) -> bool:
            store = open_store(url)
            barrier.wait()
            return store.put_if_absent(name, body)

        bodies = [str(each).encode() * 100 for each in range(32)]
        with ThreadPoolExecutor(32) as pool:
            won = list(pool.map(create, bodies))
        assert won.count(True) == 1
        assert open_store(url).get(f"versions/{number}") == bodies[won.index(True)], "the winner's bytes, not a loser's"


def race_for_names(root: str, body: bytes, count: int, start_at: float, won: multiprocessing.Queue[tuple[bytes, int]]) -> None:
    store = LocalStore(root)
    time.sleep(max(0.0, start_at - time.time()))
    for number in range(count):
        if store.put_if_absent(f"versions/{number:04}", body):
            won.put((body, number))


def test_of_16_racing_processes_exactly_one_creates(local: LocalStore, tmp_path: Path) -> None:
    """O_EXCL would do this too; a check before a write would not. [ST1] [ST9]"""
    won: multiprocessing.Queue[tuple[bytes, int]] = processes.Queue()
    start_at = time.time() + 3.0
    arguments = [(str(tmp_path / "root"), f"process {number}".encode(), 40, start_at, won) for number in range(16)]
    running = [processes.Process(target=race_for_names, args=each) for each in arguments]
    for process in running:
        process.start()
    winners = dict(reversed(won.get(timeout=60)) for _ in range(40))
    for process in running:
        process.join(60)
    assert [process.exitcode for process in running] == [0] * 16
    assert won.empty(), "more creates succeeded than there are names"
    assert winners == {number: local.get(f"versions/{number:04}") for number in range(40)}


def test_a_reader_sees_a_created_object_whole_or_not_at_all(store: Store, url: str) -> None:
    """O_EXCL alone would show its first half, or nothing of it. [ST1] [ST2] [ST9]"""
    whole = secrets.token_bytes(3_000_000)  # long enough to be caught in the middle of
    over = threading.Event()
    torn: list[int] = []

    def read() -> None:
        own = open_store(url)
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
def test_a_hostile_name_is_kept_as_it_was_written(store: Store, name: str) -> None:
    """[LY1] [ST8]"""
    assert store.put_if_absent(f"d/{name}", b"x")
    assert store.get(f"d/{name}") == b"x"
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
        lambda: store.get(name),
        lambda: store.put(name, b"x"),
        lambda: store.put_if_absent(name, b"x"),
        lambda: store.delete([name]),
        lambda: store.create_output(name),
        lambda: store.open_input(name),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="not a name below"):
            call()
    assert names(store) == []


@pytest.mark.parametrize("prefix", ["../", "a/../../", "/etc/", "a//b"])
def test_a_list_does_not_climb(store: Store, url: str, prefix: str) -> None:
    """[LY1] [SE2]"""
    open_store(f"{url.removesuffix('root')}beside").put("x", b"secret")
    with contextlib.suppress(ValueError):
        assert names(store, prefix) == []


@pytest.mark.parametrize("size", [0, 1, 8 * 1024 * 1024])
def test_an_object_of_any_size_comes_back(store: Store, size: int) -> None:
    """[ST2] [ST8]"""
    body = secrets.token_bytes(size)
    assert store.put_if_absent("created", body)
    store.put("put", body)
    for name in ("created", "put"):
        assert store.get(name) == body
        assert store.get(name, 0, size + 10) == body
        assert [info.size_bytes for info in store.list(name)] == [size]
    assert not store.put_if_absent("created", b"")
    assert store.get("created", size // 2) == body[size // 2 :]
    assert store.get("created", 1, 5) == body[1:5]
    assert store.get("created", size, size + 1) == b""


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


def test_deleting_what_is_absent_is_no_error(store: Store) -> None:
    store.put("a", b"")
    store.delete(["never/was", "a", "a"])
    store.delete([])
    assert names(store) == []


def test_another_instance_reads_what_was_written(url: str) -> None:
    """No instance answers from a memory of its own. [ST3] [ST8]"""
    first, second = open_store(url), open_store(url)
    assert names(second, "v/") == []
    first.put_if_absent("v/1", b"1")
    assert names(second, "v/") == ["v/1"] and second.get("v/1") == b"1"
    second.put("v/1", b"2")
    assert first.get("v/1") == b"2"
    first.delete(["v/1"])
    assert names(second, "v/") == [] and second.put_if_absent("v/1", b"3")


# --- list ---------------------------------------------------------------------------------------------------------------


def test_a_list_is_ordered_by_code_points_across_folders(store: Store) -> None:
    """A folder `a/` stands where its slash does: after `a!` and `a-b`, before `a0`; UTF-16 would order 🦆 before \ue000. [ST3]"""
    written = ["a!", "a-b", "a/x", "a/y/z", "a0", "a", "B", "Z", "é", "\ue000", "🦆", "a.b", "a b"]
    for name in written:
        store.put(f"d/{name}" if name != "a" else "d/a_", b"")
    expected = sorted(f"d/{name}" if name != "a" else "d/a_" for name in written)
    assert names(store) == names(store, "d/") == expected
    for start in expected:
        assert names(store, "d/", start_from=start) == expected[expected.index(start) :]
    assert names(store, "d/", start_from="d/a/y") == expected[expected.index("d/a/y/z") :]
    assert names(store, "d/", start_from="d/a/zzz") == expected[expected.index("d/a0") :]
    assert names(store, "d/", start_from="e") == []


def test_a_prefix_ends_where_it_says(url: str) -> None:
    """Cleaning /output/dataset1 once cancelled the work of /output/dataset10. [ST3]"""
    store = open_store(url)
    for name in ("t1/a", "t10/a", "t1", "t1-x/a") if url.startswith("memory") else ("t1/a", "t10/a", "t1-x/a"):
        store.put(name, b"")
    assert names(store, "t1/") == ["t1/a"]
    assert "t10/a" in names(store, "t1") and "t1-x/a" in names(store, "t1")
    assert names(store, "t1/a") == ["t1/a"] and names(store, "t1/ab") == [] and names(store, "t2/") == []
    beside = open_store(f"{url}0")
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


def come_and_go(root: str, number: int, started: Any, over: Any) -> None:
    store = LocalStore(root)
    for each in itertools.count():
        if over.is_set():
            return
        store.put_if_absent(f"versions/new-{number}-{each:06}", b"x")
        if each >= 5:
            store.delete([f"versions/new-{number}-{each - 5:06}"])
            started.set()


@pytest.mark.slow
def test_a_list_never_misses_what_was_there_before_it_began(local: LocalStore, tmp_path: Path) -> None:
    """A scan of a folder is no snapshot while names come and go; the list must be one. [ST3]"""
    kept = [f"versions/{number:06}" for number in range(400)]
    (tmp_path / "root" / "versions").mkdir(parents=True)
    for name in kept:
        (tmp_path / "root" / name).write_bytes(b"x")
    over, started = processes.Event(), [processes.Event(), processes.Event()]
    arguments = [(str(tmp_path / "root"), number, event, over) for number, event in enumerate(started)]
    writers = [processes.Process(target=come_and_go, args=each) for each in arguments]
    try:
        for writer in writers:
            writer.start()
        assert all(event.wait(60) for event in started)
        until = time.monotonic() + 5
        for scan in itertools.count():
            if scan >= 30 and time.monotonic() > until:
                break
            if scan % 5 == 0:
                kept.append(f"versions/{len(kept):06}")
                assert local.put_if_absent(kept[-1], b"x")
            found = names(local, "versions/0")
            assert found == kept, f"missed {set(kept) - set(found)} in scan {scan}"
    finally:
        over.set()
        for writer in writers:
            writer.join(30)
            writer.kill()
    assert [writer.exitcode for writer in writers] == [0, 0]


def test_a_scan_that_misses_a_name_is_scanned_again(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scans in a row must agree; what the kernel seldom does is done here on purpose: the first scan misses the newest. [ST3]"""
    for number in range(3):
        local.put(f"versions/{number}", b"")
    real, scans = os.scandir, []

    @contextlib.contextmanager
    def forgetful(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with real(path) as entries:
            found = list(entries)
        scans.append(path)
        yield [entry for entry in found if entry.name != "2"] if len(scans) == 1 else found

    monkeypatch.setattr("os.scandir", forgetful)
    assert names(local, "versions/") == ["versions/0", "versions/1", "versions/2"]
    assert len(scans) == 3, "one that missed it, two that agree"


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


def test_a_discarded_output_never_appears(store: Store, tmp_path: Path) -> None:
    """[ST2] [AB2]"""
    output = store.create_output("day=1/x")
    output.write(b"half")
    output.discard()
    output.discard()
    output.close()
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


def write_for_ever(root: str, ready: multiprocessing.Queue[int]) -> None:
    store = LocalStore(root)
    output = store.create_output("day=1/open")
    output.write(b"half")
    output.flush()
    body = bytes(4_000_000)
    ready.put(1)
    for number in itertools.count():
        store.put_if_absent(f"day=1/{number}", body)
        store.put("day=1/hint", body)


def test_what_a_killed_writer_leaves_is_not_listed(local: LocalStore, tmp_path: Path) -> None:
    """Whole objects only, and no temporary names. [ST2] [ST9]"""
    root = tmp_path / "root"
    for _ in range(3):
        ready: multiprocessing.Queue[int] = processes.Queue()
        writer = processes.Process(target=write_for_ever, args=(str(root), ready))
        writer.start()
        ready.get(timeout=60)
        time.sleep(0.05)
        writer.kill()
        writer.join()
        assert any(path.name.startswith(".mc-tmp-") for path in root.rglob("*")), "the open output left a temporary file"
        listed = list(local.list("day=1/"))
        assert all(info.name.rpartition("/")[2].isdigit() or info.name == "day=1/hint" for info in listed)
        assert {info.size_bytes for info in listed} <= {4_000_000}
        local.delete([info.name for info in listed])


# --- local: link, never rename ------------------------------------------------------------------------------------------


def test_a_local_create_does_not_overwrite_a_winner(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is taken between the write and the link stays the winner's: os.link fails, os.rename would not. [ST1] [ST9]"""
    real = os.link

    def late(source: str, target: str) -> None:
        Path(target).write_bytes(b"the winner's")
        real(source, target)

    monkeypatch.setattr("os.link", late)
    assert local.put_if_absent("v/1", b"mine") is False
    assert local.get("v/1") == b"the winner's"


def test_every_new_folder_and_file_is_synced_before_a_call_returns(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[ST2] [ST9]"""
    synced: list[str] = []
    real = os.fsync

    def seen(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr("os.fsync", seen)
    root = tmp_path / "root"
    for write in (lambda: local.put_if_absent("a/b/1", b"x"), lambda: local.put("c/d/2", b"x"), lambda: finished(local, "e/f/3")):
        synced.clear()
        write()
        top, second = synced_folders(synced, root)
        assert {str(top.parent), str(top), str(second)} <= set(synced), "the file's folder and each parent that got a new name"
        assert any(".mc-tmp-" in name for name in synced), "the bytes, before the name"
        assert synced.index(next(name for name in synced if ".mc-tmp-" in name)) < len(synced) - 1


def finished(store: LocalStore, name: str) -> None:
    output = store.create_output(name)
    output.write(b"x")
    output.close()


def synced_folders(synced: list[str], root: Path) -> tuple[Path, Path]:
    file = Path(next(name for name in synced if ".mc-tmp-" in name))
    return file.parents[1], file.parent


def test_a_system_failure_is_a_store_error(local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[ST5]"""
    local.put("a/file", b"")
    (tmp_path / "root" / "a" / "folder").mkdir()
    with pytest.raises(StoreError):
        local.get("a/folder")
    with pytest.raises(StoreError):
        local.put_if_absent("x" * 300, b"")
    with pytest.raises(StoreError):
        local.put("a/file/below", b"")
    for folder in ("a", "b"):

        def full(source: str, target: str, folder: str = folder) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.link", full)
        with pytest.raises(StoreError, match="No space left"):
            local.put_if_absent(f"{folder}/new", b"")
    assert names(local) == ["a/file"]


@pytest.mark.parametrize("call", ["os.link", "os.replace"])
def test_a_folder_that_vanishes_under_a_write_is_a_store_error(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
) -> None:
    """Someone removes the table: FileNotFoundError would say that the caller's own data is missing. [ST5] [ST8]"""
    real = getattr(os, call.partition(".")[2])

    def removed(source: str, target: str) -> None:
        shutil.rmtree(tmp_path / "root")
        real(source, target)

    monkeypatch.setattr(call, removed)
    write = local.put_if_absent if call == "os.link" else local.put
    with pytest.raises(StoreError):
        write("a/b", b"x")

"""What is special about local and other POSIX file systems: links, fsync, scans that are no snapshots. [ST1]-[ST3] [ST9]"""

from __future__ import annotations

import contextlib
import errno
import itertools
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.faults import processes
from tests.store.places import names

import manifestcommit as mc
from manifestcommit.errors import StoreError, StoreUnclearError
from manifestcommit.store import LocalStore
from manifestcommit.store import local as linux


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "root"))


# --- lists --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("least", ["", "versions/1"])
def test_a_scan_that_misses_a_name_is_scanned_again(local: LocalStore, monkeypatch: pytest.MonkeyPatch, least: str) -> None:
    """Two scans in a row must agree; what the kernel seldom does is done here on purpose: the first scan misses the newest. Whoever is
    not shown the version above its own takes its commit for the newest. [ST3] [CM5]"""
    for number in range(3):
        local.put(f"versions/{number}", b"")
    real, scans = os.listdir, []

    def forgetful(path: str) -> list[str]:
        scans.append(path)
        return [name for name in real(path) if name != "2"] if len(scans) == 1 else real(path)

    monkeypatch.setattr("os.listdir", forgetful)
    assert names(local, "versions/", least) == [f"versions/{number}" for number in range(3) if f"versions/{number}" >= least]
    assert len(scans) == 3, "one that missed it, two that agree"


def test_a_list_that_is_given_up_holds_no_folder_open(local: LocalStore) -> None:
    """A head is found by the first names of a list; a long-lived reader would run out of descriptors. [ST3]"""
    for number in range(3):
        local.put(f"a/b/{number}", b"")
    before = len(os.listdir("/dev/fd"))
    given_up = [local.list("") for _ in range(5)]
    assert [next(each).name for each in given_up] == ["a/b/0"] * 5
    assert len(os.listdir("/dev/fd")) == before


def test_a_folder_that_is_removed_while_it_is_listed_holds_nothing(local: LocalStore, tmp_path: Path) -> None:
    """Someone clears partitions away beside a gc: each is listed as it was when it was read. [ST3]"""
    for folder in ("day=1", "day=2"):
        for number in range(3):
            local.put(f"{folder}/{number}", b"")
    listed = local.list("")
    assert next(listed).name == "day=1/0"
    shutil.rmtree(tmp_path / "root" / "day=1")
    shutil.rmtree(tmp_path / "root" / "day=2")
    assert [each.name for each in listed] == ["day=1/1", "day=1/2"]


# --- leftovers ---------------------------------------------------------------------------------------------------------
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


@pytest.mark.parametrize("name", ["a b%2F+=#'é🦆.parquet", "-", "x" * 230, "x" * 231, "é" * 127, "x" * 255])
def test_the_temporary_file_of_an_output_tells_which_file_it_becomes(local: LocalStore, tmp_path: Path, name: str) -> None:
    """Unless its own name would be too long. Who cleans up goes by that name, not by a guess. [ST15] [GC9]"""
    output = local.create_output(f"day=1/{name}")
    output.write(b"half")
    output.flush()
    (found,) = local.unfinished()
    assert (tmp_path / "root" / found.temporary).read_bytes() == b"half" and found.size_bytes == 4
    told = len(os.fsencode(name)) <= 230
    assert found.name == (f"day=1/{name}" if told else found.temporary)
    assert names(local) == []
    output.close()
    assert list(local.unfinished()) == [] and names(local) == [f"day=1/{name}"]
    other = local.create_output("day=1/other")
    (left,) = local.unfinished()
    local.discard_unfinished(found)
    assert list(local.unfinished()) == [left] and names(local) == [f"day=1/{name}"], "what is finished stays"
    local.discard_unfinished(left)
    other.discard()
    assert list(local.unfinished()) == [] and names(local) == [f"day=1/{name}"]


def test_a_file_that_is_taken_away_while_it_is_written_is_an_error_that_says_so(local: LocalStore) -> None:
    """Another writer's finished file of that name would not do either. [ST15]"""
    output = local.create_output("day=1/a é")
    output.write(b"half")
    (found,) = local.unfinished()
    local.discard_unfinished(found)
    with pytest.raises(StoreError, match="day=1/a é: the temporary file was removed while it was written"):
        output.close()
    assert names(local) == []


@pytest.mark.parametrize("call", ["os.link", "os.replace"])
def test_a_small_object_whose_temporary_file_is_taken_away_is_written_again(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Somebody who cleans up beside a commit: the version must not fail for want of a file that took a millisecond. [ST15] [GC9]"""
    real, taken = getattr(os, call.partition(".")[2]), []

    def late(source: str, target: str) -> None:
        if len(taken) < 3:
            os.unlink(source)
            taken.append(source)
        real(source, target)

    monkeypatch.setattr(call, late)
    write = local.put_if_absent if call == "os.link" else local.put
    assert write("v/1", b"whole") is (True if call == "os.link" else None)
    assert len(taken) == 3 and local.get("v/1") == b"whole" and list(local.unfinished()) == []
    monkeypatch.setattr(call, lambda source, target: [os.unlink(source), real(source, target)])
    with pytest.raises(StoreError):
        write("v/2", b"never")
    assert names(local) == ["v/1"] and list(local.unfinished()) == []


# --- local: link, never rename ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", ["os.link", "os.replace"])
def test_no_gc_takes_a_temporary_file_that_is_being_written(local: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """However many gcs without grace go by while a disk is slow: eight that took it, one after the other, failed a commit. [ST15] [GC9]"""
    real, kept = getattr(os, call.partition(".")[2]), []

    def late(source: str, target: str) -> None:
        for _ in range(20):
            for each in local.unfinished():
                local.discard_unfinished(each)
        kept.append(source)
        real(source, target)

    monkeypatch.setattr(call, late)
    write = local.put_if_absent if call == "os.link" else local.put
    assert write("v/1", b"whole") is (True if call == "os.link" else None) and len(kept) == 1, "the first was never gone"
    assert local.get("v/1") == b"whole" and list(local.unfinished()) == []


def test_the_temporary_file_of_a_writer_that_was_killed_is_not_kept(local: LocalStore, tmp_path: Path) -> None:
    """The system ends its lock with it. [ST15] [GC9]"""
    text = "import os, sys; from manifestcommit.store import LocalStore; os.link = lambda *_: os.kill(os.getpid(), 9); "
    text += "LocalStore(sys.argv[1]).put_if_absent('v/1', b'whole')"
    assert subprocess.run([sys.executable, "-c", text, str(tmp_path / "root")], check=False).returncode == -9
    (left,) = local.unfinished()
    local.discard_unfinished(left)
    assert list(local.unfinished()) == [] and names(local) == []


def test_a_local_create_does_not_overwrite_a_winner(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is taken between the write and the link stays the winner's: os.link fails, os.rename would not. [ST1] [ST9]"""
    real = os.link

    def late(source: str, target: str) -> None:
        Path(target).write_bytes(b"the winner's")
        real(source, target)

    monkeypatch.setattr("os.link", late)
    assert local.put_if_absent("v/1", b"mine") is False
    assert local.get("v/1") == b"the winner's"


@pytest.mark.parametrize("took_effect", [True, False])
@pytest.mark.parametrize("number", ["EIO", "ESTALE", "ETIMEDOUT", "EINTR", "EACCES", "EPERM", "ENOSPC", "EROFS", "ENOTCONN", "ENOENT"])
def test_a_link_that_reports_an_error_may_have_taken_effect(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, number: str, took_effect: bool
) -> None:
    """A soft mount answers so after the server has made the name: whatever the error, it is asked again, and no class says that
    nothing was done. [ST5] [CM6]"""
    real, code = os.link, getattr(errno, number)

    def linked(source: str, target: str) -> None:
        if took_effect:
            real(source, target)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.link", linked)
    if number == "ENOENT" and took_effect:  # written again under another temporary name, and then it is taken
        assert local.put_if_absent("v/1", b"mine") is False
    else:
        with pytest.raises(StoreUnclearError, match=r"unclear whether .*/v/1 was created"):
            local.put_if_absent("v/1", b"mine")
    monkeypatch.setattr("os.link", real)
    assert local.put_if_absent("v/1", b"mine") is not took_effect and local.get("v/1") == b"mine"
    assert list(local.unfinished()) == []


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("call", ["os.open", "os.fsync", "os.close", "os.stat"])
def test_every_call_after_the_link_leaves_it_open_what_is_durable(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str, taken: bool
) -> None:
    """The name may be this call's own doing, also where the link says that it is taken. [ST5] [ST9] [CM6]"""
    local.put("v/0", b"")
    if taken:
        local.put("v/1", b"whole")
    link, real, linked = os.link, getattr(os, call.partition(".")[2]), []

    def late(source: str, target: str) -> None:
        linked.append(target)
        link(source, target)

    def failing(*arguments: Any, **named: Any) -> Any:
        if linked:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments, **named)

    monkeypatch.setattr("os.link", late)
    monkeypatch.setattr(call, failing)
    try:
        with contextlib.ExitStack() as expected:
            if call != "os.stat" or taken:
                expected.enter_context(pytest.raises(StoreUnclearError))
            local.put_if_absent("v/1", b"whole")
    finally:
        monkeypatch.undo()
    assert local.get("v/1") == b"whole"


def test_an_error_before_the_link_is_a_failure_and_no_taken_name(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mounted file system that repeats its request for the temporary file answers that it exists: that is not the object. [ST5]"""
    real, failed = open, []

    def repeated(path: Any, mode: str = "r", **named: Any) -> Any:
        if mode == "xb" and len(failed) < 2:
            failed.append(real(path, mode, **named).close())
            raise FileExistsError(errno.EEXIST, "File exists", path)
        return real(path, mode, **named)

    monkeypatch.setattr("builtins.open", repeated)
    assert local.put_if_absent("v/1", b"mine") is True and len(failed) == 2
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(StoreError) as refused:
        local.put_if_absent("v/2", b"mine")
    assert not isinstance(refused.value, StoreUnclearError) and names(local) == ["v/1"]


def test_a_commit_whose_link_took_effect_and_failed_is_committed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller is asked to try again, which without a key would append the rows twice. [CM6] [ST5]"""
    table, real, failed = str(tmp_path / "t"), os.link, []
    before = mc.write(pa.table({"a": [1]}), table).version

    def linked(source: str, target: str) -> None:
        real(source, target)
        if "/_manifest/versions/" in target and not failed:
            failed.append(target)
            raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.link", linked)
    assert mc.write(pa.table({"a": [2]}), table).version == before + 1 and failed
    assert sorted(mc.Table(table).to_arrow()["a"].to_pylist()) == [1, 2]


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
    for write in (lambda: local.put_if_absent("a/b/1", b"x"), lambda: finished(local, "e/f/3")):
        synced.clear()
        write()
        top, second = synced_folders(synced, root)
        assert {str(top.parent), str(top), str(second)} <= set(synced), "the file's folder and each parent that got a new name"
        assert any(".mc-tmp-" in name for name in synced), "the bytes, before the name"
        assert synced.index(next(name for name in synced if ".mc-tmp-" in name)) < len(synced) - 1


def test_a_folder_that_another_writer_made_is_synced_once(local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That one may not have come to it yet. [ST2]"""
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr("os.fsync", lambda descriptor: (synced.append(os.readlink(f"/proc/self/fd/{descriptor}")), real(descriptor)))
    local.put("marker", b"")
    (tmp_path / "root" / "p=1" / "q=2").mkdir(parents=True)
    folders = [str(tmp_path / "root" / name) for name in (".", "p=1", "p=1/q=2")]
    for wanted in (sorted(map(os.path.normpath, folders)), [os.path.normpath(folders[-1])]):
        synced.clear()
        finished(local, "p=1/q=2/file")
        assert sorted(name for name in synced if ".mc-tmp-" not in name) == wanted


def test_a_folder_that_is_made_again_is_synced_again(local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may give it the number of the one that was removed. [ST2]"""
    synced: list[str] = []
    sync, make = os.fsync, os.mkdir

    def made_with_a_known_number(folder: str) -> None:
        make(folder)
        linux._DURABLE.add((folder, os.stat(folder).st_ino))

    monkeypatch.setattr("os.mkdir", made_with_a_known_number)
    monkeypatch.setattr("os.fsync", lambda descriptor: (synced.append(os.readlink(f"/proc/self/fd/{descriptor}")), sync(descriptor)))
    finished(local, "p=1/file")
    assert {str(tmp_path), str(tmp_path / "root")} <= set(synced)


def test_a_delete_that_fails_names_the_object_and_what_is_gone_is_no_error(local: LocalStore) -> None:
    """Deleting goes on behind a name that someone else took away, and stops at one that cannot be removed. [ST5]"""
    for name in ("a/x %.txt", "b/y", "c"):
        local.put(name, b"1")
    local.delete(["a/x %.txt", "a/x %.txt", "gone/é"])
    with pytest.raises(StoreError, match=r"/root/b: "):
        local.delete(["b", "c"])
    with pytest.raises(ValueError, match="below a table path"):
        local.delete(["../c"])
    assert [each.name for each in local.list("")] == ["b/y", "c"]


def test_a_put_waits_for_no_disk(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint is put with each commit and proves nothing: to sync it would double what a commit costs. [ST2] [LY7]"""
    local.put("a/hint", b"1")
    monkeypatch.setattr("os.fsync", lambda _: pytest.fail("synced"))
    local.put("a/hint", b"2")
    assert local.get("a/hint") == b"2"


def test_the_end_of_a_large_folder_is_listed_without_looking_at_the_rest(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions pile up until gc takes them; a commit asks for those above one of them, and must not pay for all. [ST3] [CM25]"""
    for number in range(300):
        local.put(f"v/{number:05}", b"")
    looked: list[str] = []
    scans: list[int] = []
    real, scan = os.stat, os.listdir

    def look(name: str, **settings: Any) -> os.stat_result:
        looked.append(name)
        return real(name, **settings)

    def listdir(folder: int) -> list[str]:
        scans.append(folder)
        return scan(folder)

    monkeypatch.setattr("os.stat", look)
    monkeypatch.setattr("os.listdir", listdir)
    assert names(local, "v/", "v/00298") == ["v/00298", "v/00299"]
    assert (len(scans), sorted(looked)) == (2, ["00298", "00299"]), "each of the two names once"


@pytest.mark.parametrize("least", ["", "!", "0", "000500", "000500-", "a b", "zz", "é", "\ud7ff", "🦆"])
def test_the_end_of_a_folder_is_in_the_order_of_code_points(local: LocalStore, tmp_path: Path, least: str) -> None:
    """Names of any length and bytes: none is lost, none stands elsewhere. [ST3]"""
    folder = tmp_path / "root" / "v"
    folder.mkdir(parents=True)
    odd = ["a b", "%2F", "+=#'\"", "é", "\ue000", "🦆", "x" * 255, "é" * 127, ".hidden", "..more", "-", "\udcff", "\x08\n", "ab\udc80"]
    many = [f"{number:06}" for number in range(0, 2400, 2)] + [f"{'0' * length}1" for length in range(40)]
    for name in (*odd, *many, ".mc-tmp-0123456789abcdef"):
        (folder / name).write_bytes(b"")
    expected = [f"v/{name}" for name in sorted({*odd, *many}) if name >= least]
    assert names(local, "v/", f"v/{least}") == expected


def test_a_folder_in_a_folder_is_gone_through_and_no_object(local: LocalStore) -> None:
    """One of a name before the first that is asked for may hold later ones. [ST3]"""
    local.put("v/5", b"")
    local.put("v/0/deep", b"")
    assert names(local, "v/", "v/0!") == ["v/0/deep", "v/5"]
    assert names(local, "v/", "v/00") == ["v/5"]
    assert names(local, "v/0/d") == ["v/0/deep"]


def test_a_put_over_an_object_leaves_nothing_else(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 writes out what is renamed over a file, at each commit's hint; names are swapped instead, where the kernel can. [ST2] [ST8]"""
    local.put("a/hint", b"1")
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", lambda *_: pytest.fail("renamed over it"))
        local.put("a/hint", b"22")
    assert local.get("a/hint") == b"22" and names(local) == ["a/hint"] and list(local.unfinished()) == []
    monkeypatch.setattr(linux, "_rename", None)
    local.put("a/hint", b"333")
    assert local.get("a/hint") == b"333" and names(local) == ["a/hint"] and list(local.unfinished()) == []


def test_a_put_never_takes_the_place_of_a_folder(local: LocalStore) -> None:
    """The kernel would swap a file and a folder full of data. [ST2] [ST8]"""
    local.put("day=1/part", b"kept")
    with pytest.raises(StoreError):
        local.put("day=1", b"")
    assert local.get("day=1/part") == b"kept" and names(local) == ["day=1/part"] and list(local.unfinished()) == []


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

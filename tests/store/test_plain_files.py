"""Objects of a local store are plain files below the root: no link is followed, and nothing else is opened. [SE2] [ST9]"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.errors import StoreError
from manifestcommit.format import object_names
from manifestcommit.store import LocalStore

HARSH: dict[str, Any] = {"grace": "0s", "keep_for": "0s"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    root = tmp_path / "outside é"
    root.mkdir()
    (root / "x").write_bytes(b"outside")
    return root


def through(store: LocalStore) -> dict[str, Callable[[], Any]]:
    """Each call of a store, on a name whose root is a link."""
    return {
        "get": lambda: store.get("a/link/x"),
        "open_input": lambda: store.open_input("a/link/x"),
        "put": lambda: store.put("a/link/x", b"new"),
        "put below": lambda: store.put("a/link/b/c/new", b"new"),
        "put_if_absent": lambda: store.put_if_absent("a/link/new", b"new"),
        "create_output": lambda: store.create_output("a/link/new"),
        "delete": lambda: store.delete(["a/link/x"]),
        "list": lambda: list(store.list("a/link/")),
        "check_files": lambda: store.check_files(["plain", "a/link/x"]),
    }


@pytest.mark.parametrize("call", list(through(LocalStore(""))))
@pytest.mark.parametrize("place", ["outside", "inside"])
def test_no_call_goes_through_a_link(tmp_path: Path, outside: Path, call: str, place: str) -> None:
    """Refused by name before a byte is read, written or deleted; what is there stays. [SE2] [LY1]"""
    store = LocalStore(str(tmp_path / "root"))
    store.put("plain", b"1")
    store.put("a/inside/x", b"inside")
    (tmp_path / "root/a/link").symlink_to(outside if place == "outside" else "inside")
    before = {each: each.read_bytes() for each in [*outside.iterdir(), *(tmp_path / "root").rglob("*")] if each.is_file()}
    with pytest.raises(StoreError, match=r"a/link.*symbolic link"):
        through(store)[call]()
    assert {each: each.read_bytes() for each in [*outside.iterdir(), *(tmp_path / "root").rglob("*")] if each.is_file()} == before


def test_a_link_is_no_object_but_can_be_replaced_and_deleted(tmp_path: Path, outside: Path) -> None:
    """It is the link that goes, never what it leads to. [SE2]"""
    store = LocalStore(str(tmp_path / "root"))
    store.put("plain", b"1")
    for name in ("hint", "created", "old"):
        (tmp_path / "root" / name).symlink_to(outside / "x")
    (tmp_path / "root/folder").symlink_to(outside)
    for name in ("hint", "folder"):
        for read in (store.get, store.open_input):
            with pytest.raises(StoreError, match=f"{name}: is a symbolic link"):
                read(name)
    with pytest.raises(StoreError, match="created: is a symbolic link"):
        store.put_if_absent("created", b"mine")
    store.put("hint", b"2")
    assert store.get("hint") == b"2"
    assert [info.name for info in store.list("")] == ["created", "folder", "hint", "old", "plain"], "none is gone into"
    store.delete(["old", "folder", "created", "missing", "plain/below"])
    assert [info.name for info in store.list("")] == ["hint", "plain"] and (outside / "x").read_bytes() == b"outside"


@pytest.mark.parametrize("above", [False, True])
def test_a_root_that_is_a_link_is_a_root(tmp_path: Path, above: bool) -> None:
    """Such as /tmp, or a link `current`; and a root above it. [SE2]"""
    (tmp_path / "real/t").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / ("real" if above else "real/t"))
    url = str(tmp_path / ("link/t" if above else "link"))
    for number in range(3):
        mc.write(pa.table({"x": [number], "p": ["a"]}), url, partition_by=["p"], mode="overwrite")
    report = mc.gc(url, **HARSH)
    assert isinstance(report, mc.GcReport) and report.deleted["data file"].count == 2
    assert mc.Table(url).dataset().to_table()["x"].to_pylist() == [2]


def test_a_root_that_is_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    """No folder can be made there, however often it is tried. [LY1] [ST2]"""
    (tmp_path / "t").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "t", tmp_path / "t" / "below"):
        with pytest.raises(mc.errors.StoreError, match=f"{path}.*No such file"):
            mc.write(pa.table({"a": [1]}), path)
    assert [each.name for each in tmp_path.iterdir()] == ["t"]


def test_a_listed_file_that_became_a_link_is_not_read(tmp_path: Path, root: Path) -> None:
    """By no reader that opens paths itself. [SE2] [RD2]"""
    mc.write(pa.table({"x": [1], "p": ["é"]}), root, partition_by=["p"])
    (file,) = root.glob("p=*/*.parquet")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=rf"{file.name}: is a symbolic link"):
        mc.Table(root).dataset()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(StoreError, match=rf"{file.name}: is a FIFO"):
        mc.Table(root).dataset()
    file.unlink()
    file.parent.rename(tmp_path / "moved")
    file.parent.symlink_to(tmp_path / "moved")
    with pytest.raises(StoreError, match="'p=é' is a symbolic link"):
        mc.Table(root).dataset()


def test_a_write_into_a_partition_that_is_a_link_leaves_nothing_outside(outside: Path, root: Path) -> None:
    """[SE2]"""
    mc.write(pa.table({"x": [1], "p": ["a"]}), root, partition_by=["p"])
    (root / "p=b").symlink_to(outside)
    with pytest.raises(StoreError, match="'p=b' is a symbolic link"):
        mc.write(pa.table({"x": [1], "p": ["b"]}), root)
    assert os.listdir(outside) == ["x"] and mc.Table(root).dataset().count_rows() == 1


def test_gc_follows_no_link(tmp_path: Path, root: Path) -> None:
    """Neither one that a partition's root became, nor one among the metadata. [SE2] [GC5]"""
    for number in range(3):
        mc.write(pa.table({"x": [number], "p": ["a"]}), root, partition_by=["p"], mode="overwrite")
    dead = sorted(root.glob("p=a/*.parquet"))
    (root / "p=a").rename(tmp_path / "moved")
    (root / "p=a").symlink_to(tmp_path / "moved")
    mc.gc(root, **HARSH)
    assert all((tmp_path / "moved" / each.name).exists() for each in dead)
    with pytest.raises(StoreError, match="symbolic link"):
        LocalStore(str(root)).delete([f"p=a/{dead[0].name}"])


@pytest.mark.parametrize("kind", ["FIFO", "socket", "folder", "device"])
@pytest.mark.parametrize("name", [object_names.HINT, object_names.version_name(2), object_names.version_name(3)])
def test_what_is_no_file_is_refused_at_once(kind: str, name: str, root: Path) -> None:
    """A FIFO in the place of the hint would hold every reader for ever. [SE2] [LY7]"""
    mc.write(pa.table({"x": [1]}), root)
    path = root / name
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        here = socket.socket(socket.AF_UNIX)
        with tempfile.TemporaryDirectory(dir="/tmp") as short:
            here.bind(f"{short}/s")
            os.rename(f"{short}/s", path)
        here.close()
    elif kind == "folder":
        path.mkdir()
    elif os.geteuid() == 0:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero: a read of it would never end
    else:
        pytest.skip("only root can make a device")
    said = subprocess.run(
        [sys.executable, "-c", "import sys, manifestcommit as mc; mc.Table(sys.argv[1]).dataset()", str(root)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if name == object_names.version_name(3) and kind == "folder":
        assert said.returncode == 0, "no list shows a folder"
    else:
        assert said.returncode != 0 and "StoreError" in said.stderr and f"{name}: is a {kind}" in said.stderr


def test_a_folder_that_has_the_next_versions_name_is_told_at_once(root: Path) -> None:
    """It was tried for 13 seconds, and the outcome was unknown then. [ST9] [CM6]"""
    mc.write(pa.table({"x": [1]}), root)
    (root / object_names.version_name(4)).mkdir()
    mc.write(pa.table({"x": [1]}), root)
    with pytest.raises(StoreError, match=rf"{object_names.version_name(4)}: is a folder", check=lambda error: type(error) is StoreError):
        mc.write(pa.table({"x": [2]}), root)
    (root / object_names.version_name(4)).rmdir()
    mc.write(pa.table({"x": [2]}), root)
    assert mc.Table(root).dataset().count_rows() == 3

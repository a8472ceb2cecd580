"""gc on a file system that is really full: it frees what it may, and says what it lacks. [GC19] [GC1] [GC3]"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.errors import StoreError, StoreFullError
from manifestcommit.format import object_names
from manifestcommit.store import LocalStore

HARSH: dict[str, Any] = {"grace": "0s", "keep_for": "0s"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of two megabytes."""
    place = tmp_path / "disk é"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path) -> None:
    """Until not one more page fits."""
    with open(disk / "filler", "ab", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    with pytest.raises(StoreFullError, match="No space left"):
        LocalStore(str(disk)).put("more", b"1")


def table(disk: Path) -> Path:
    """Five versions, of which a gc has kept the last; what it had decided on before it died is there again."""
    url = disk / "t"
    for number in range(5):
        mc.write(pa.table({"x": [number]}), url, mode="overwrite")
    mc.gc(url, **HARSH)
    head = mc.Table(url).snapshot()
    job = object_names.job_id(1, head.table_id, bytes(16))
    (url / f"00000-{'0' * 16}-0-{job}.parquet").write_bytes(b"\1" * 100_000)
    return url


def names(disk: Path) -> set[str]:
    return {os.path.relpath(os.path.join(folder, name), disk) for folder, _, found in os.walk(disk) for name in found}


def test_gc_frees_what_was_decided_on_and_then_decides(disk: Path) -> None:
    """The hint cannot be put, nor a version, until something is gone. [GC19]"""
    url = table(disk)
    mc.write(pa.table({"x": [9]}), url, mode="overwrite")
    fill(disk)
    report = mc.gc(url, **HARSH)
    assert isinstance(report, mc.GcReport) and report.deleted["data file"].count == 2 and report.deleted["data file"].bytes > 100_000
    assert report.expired == report.version - 1 and report.deleted["version"].count > 0
    assert mc.Table(url).dataset().to_table()["x"].to_pylist() == [9]
    assert not any(".mc-tmp-" in name for name in names(disk))
    mc.write(pa.table({"x": [10]}), url)


def test_a_gc_that_changes_nothing_needs_no_room(disk: Path) -> None:
    """[GC19] [GC1]"""
    url = table(disk)
    mc.gc(url, **HARSH)
    mc.gc(url, **HARSH)
    job = object_names.job_id(1, mc.Table(url).snapshot().table_id, bytes(16))
    dead = url / f"00001-{'0' * 16}-0-{job}.parquet"
    dead.write_bytes(b"\1" * 100_000)
    (url / "_manifest" / ".mc-tmp-0123456789abcdef").write_bytes(b"\1" * 5000)
    fill(disk)
    report = mc.gc(url, **HARSH)
    assert isinstance(report, mc.GcReport) and not dead.exists()
    assert (report.deleted["data file"].count, report.deleted["temporary file"].count) == (1, 1)


def test_what_gc_lacks_is_told_and_nothing_is_lost(disk: Path) -> None:
    """[GC19] [GC3]"""
    url = disk / "t"
    for number in range(3):
        mc.write(pa.table({"x": [number]}), url, mode="overwrite")
    fill(disk)
    before = names(disk)
    with pytest.raises(StoreFullError, match="gc writes its decision") as caught:
        mc.gc(url, **HARSH)
    assert "deleted 0 bytes" in str(caught.value) and "No space left" in str(caught.value)
    assert names(disk) == before and mc.Table(url).dataset(version=2).count_rows() == 1
    (disk / "filler").unlink()
    report = mc.gc(url, **HARSH)
    assert isinstance(report, mc.GcReport) and report.deleted["data file"].count == 2


def test_a_data_file_that_finds_no_room_leaves_nothing(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while it is written nor where only its fsync fails. [ST2] [ST15]"""
    url = disk / "t"
    mc.write(pa.table({"x": [0]}), url)
    before = names(disk)
    with pytest.raises(StoreFullError):
        mc.write(pa.table({"x": [os.urandom(3_000_000)]}), disk / "other")
    assert not any(".mc-tmp-" in name or name.endswith(".parquet") for name in names(disk) - before)

    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    output = LocalStore(str(url)).create_output("x.bin")
    output.write(b"1")
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", failing)
        with pytest.raises((StoreError, OSError), match="Input/output error"):
            output.close()
    assert not (url / "x.bin").exists() and not any(".mc-tmp-" in name for name in names(disk))

"""Footers of Parquet files that other programs wrote: judged once, in a process that may die of
one, and compared with what was noted then before each later use. [AF3]

A forged footer can crash pyarrow, and no `except` helps.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptMetadataError, StoreError
from ..format import codec
from ..format.entries import FooterRef
from ..format.manifest_table import footers_in
from ..runtime import footer_child
from ..runtime.footer_child import MAGIC, SIZE_BYTES, metadata_of, put, take

TAIL_BYTES = 8  # at the end of a footer: its length and the magic
MAX_FOOTER_BYTES = 128 << 20  # pyarrow's object takes about eight times as much as the footer
_READ_BYTES = 64 * 1024  # most footers are no longer
_MOST_SECONDS = 60.0  # for one footer
# Options of pyarrow's `ParquetFile` for batches of a large file: by default it holds whole column
# chunks, and from some version on those of all columns.
STREAMED: Mapping[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20}
_CHILD = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    f"from {footer_child.__name__} import answer; answer(sys.stdin.buffer, sys.stdout.buffer)"
)


class _Judge:
    """The child process that reads footers, one for this process. It starts with the first footer,
    again after one that it died of, and ends once it has had none for a while. [AF3]"""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, footer: bytes, file_bytes: int) -> str:
        """What is wrong with the footer; empty: nothing. Safe for threads."""
        with self._lock:
            if self._child is not None and self._child.poll() is not None:
                self._end()  # of idleness, or of a signal to all processes of this terminal
            answer = self._answer(footer, file_bytes)
            if answer is None and self._end() == 0:  # idle until just now
                answer = self._answer(footer, file_bytes)
            if answer is None:
                self._end()
                return (
                    "pyarrow crashed, or did not come to an end, when it read it in another process"
                )
            return answer.decode("utf-8", "replace")

    def end(self) -> None:
        """End the child, which a later footer starts again."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """In a process that was forked: the child is another process's."""
        child, self._child, self._lock = self._child, None, threading.Lock()
        if child is not None:
            child.returncode = 0  # nothing to wait for
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()

    def _answer(self, footer: bytes, file_bytes: int) -> bytes | None:
        child = self._child = self._child or _started()
        timer = threading.Timer(_MOST_SECONDS, child.kill)
        timer.start()
        try:
            assert child.stdin is not None and child.stdout is not None
            put(cast(BinaryIO, child.stdin), file_bytes.to_bytes(SIZE_BYTES, "big"), footer)
            return take(cast(BinaryIO, child.stdout))
        except OSError:  # it ended before it had read all
            return None
        finally:
            timer.cancel()

    def _end(self) -> int | None:
        """Its exit code."""
        child, self._child = self._child, None
        if child is None:
            return None
        with contextlib.suppress(OSError):
            try:
                child.communicate(timeout=_MOST_SECONDS)  # it ends where its questions do
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
        return child.returncode


_JUDGE = _Judge()
atexit.register(_JUDGE.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_JUDGE.forget)


def open_foreign(source: Any, **options: Any) -> tuple[pq.ParquetFile, FooterRef]:
    """The file in this seekable stream, and its footer; `pa.ArrowInvalid` if that is damaged, which
    a child process finds out. One or two reads. options: as for pyarrow's `ParquetFile`. [AF3]"""
    footer, size = _read_footer(source)
    if reason := _JUDGE.ask(footer, size):
        raise pa.ArrowInvalid(f"its Parquet footer is damaged: {reason}")
    file = pq.ParquetFile(source, metadata=metadata_of(footer), **options)
    return file, FooterRef(bytes=len(footer), digest=codec.digest(footer))


def _started() -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _CHILD, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError) as error:
        raise StoreError(
            f"Parquet footers of other programs are read in a process of their own, and "
            f"{sys.executable!r} could not be started: {error}. Nothing was changed."
        ) from error


def footers_of(entries: pa.Table, url: str) -> dict[str, FooterRef]:
    """Path -> footer of each file of another program; CorruptMetadataError if an entry has none.
    [AF3]

    entries: as a manifest's table.
    """
    foreign = entries.filter(entries.column("digest").is_null())
    found = dict(zip(foreign.column("path").to_pylist(), footers_in(foreign), strict=True))
    for path, footer in found.items():
        if footer is None:
            raise CorruptMetadataError(
                f"{url}: the entry of data file {path} has neither the digest of the file nor that "
                "of its Parquet footer, so that nothing shows whether the file is what was added. "
                "No row of it was read. Remove the file from the table (overwrite its partition, "
                "or roll back to a version that does not list it), and add it again.",
                object_name=path,
            )
    return cast(dict[str, FooterRef], found)


def noted_footer(source: Any, file_bytes: int, footer: FooterRef) -> bytes:
    """The footer of the file in this seekable stream; `pa.ArrowInvalid` unless it is the one that
    was noted when the file was added. One read. [AF3]"""
    if not 0 <= footer.bytes <= min(file_bytes, MAX_FOOTER_BYTES):
        raise pa.ArrowInvalid(f"its entry says that its footer has {footer.bytes} bytes")
    source.seek(file_bytes - footer.bytes)
    return same_footer(bytes(source.read(footer.bytes + 1)), footer)


def same_footer(data: bytes, footer: FooterRef) -> bytes:
    """These bytes; `pa.ArrowInvalid` unless they are the footer that was noted. [AF3]"""
    if len(data) != footer.bytes or codec.digest(data) != footer.digest:
        raise pa.ArrowInvalid(
            "its Parquet footer is not the one that it had when it was added to the table"
        )
    return data


def open_noted(
    source: Any, file_bytes: int, footer: FooterRef | None, **options: Any
) -> pq.ParquetFile:
    """The data file in this seekable stream. footer: as its entry notes it; None: this project
    wrote the file. options: as for pyarrow's `ParquetFile`. [AF3]"""
    if footer is not None:
        options["metadata"] = metadata_of(noted_footer(source, file_bytes, footer))
        source.seek(0)
    return pq.ParquetFile(source, **options)


def damaged_file(url: str, name: str, what: object) -> CorruptMetadataError:
    """The error for a data file that cannot be decoded, or whose footer is another one. [RD2]"""
    text = (
        f"{url}: data file {name} is damaged: {str(what).strip().removesuffix('.')}. No row of it "
        "was read. Restore the file, or remove it from the table: overwrite its partition, or roll "
        "back to a version that does not list it."
    )
    return CorruptMetadataError(text, object_name=name)


def _read_footer(source: Any) -> tuple[bytes, int]:
    """The end of a Parquet file from where its footer begins, and the length of the file."""
    size = source.seek(0, os.SEEK_END)
    source.seek(max(0, size - _READ_BYTES))
    tail = bytes(source.read(_READ_BYTES))
    if len(tail) < TAIL_BYTES or tail[-len(MAGIC) :] != MAGIC:
        raise pa.ArrowInvalid("it does not end as a Parquet file does")
    length = int.from_bytes(tail[-TAIL_BYTES : -len(MAGIC)], "little") + TAIL_BYTES
    if not TAIL_BYTES < length <= min(size - len(MAGIC), MAX_FOOTER_BYTES):
        raise pa.ArrowInvalid(
            f"it claims a footer of {length - TAIL_BYTES} bytes, and has {size} bytes itself "
            f"(at most {MAX_FOOTER_BYTES} are read)"
        )
    if length <= len(tail):
        return tail[-length:], size
    source.seek(size - length)
    return bytes(source.read(length)), size

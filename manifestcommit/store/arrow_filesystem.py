"""A store as a pyarrow filesystem, with which pyarrow's datasets, and through them DuckDB and
Polars, read data files. [RD2]"""

from __future__ import annotations

import atexit
import io
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystemHandler, FileType, PyFileSystem

from .base import Store, missing_file

# A seekable stream over an object, by ranged gets.

TAIL_BYTES = 64 * 1024  # as much as pyarrow reads for a footer


class RangedInput(io.RawIOBase):
    """Reads an immutable object, with one request for each `read` that its tail does not cover."""

    def __init__(self, fetch: Callable[[int, int], bytes], tail: tuple[bytes, int]) -> None:
        """fetch: returns bytes [start, end); tail: the last bytes, and the whole length."""
        super().__init__()
        self._fetch = fetch
        self._tail, self._size = tail
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        start = self._position
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        if start >= end:
            return b""
        kept = self._size - len(self._tail)
        data = self._tail[start - kept : end - kept] if start >= kept else self._fetch(start, end)
        self._position = start + len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self.read()


class _LateInput(RangedInput):
    """An object whose length is known, which the first read opens."""

    def __init__(self, store: Store, name: str, size_bytes: int) -> None:
        super().__init__(self._opened, (b"", size_bytes))
        self._store, self._name = store, name
        self._stream: BinaryIO | None = None

    def _opened(self, start: int, end: int) -> bytes:
        if self._stream is None:
            try:
                self._stream = self._store.open_input(self._name)
            except FileNotFoundError:
                raise missing_file(self._store.url, self._name) from None
            found = self._stream.seek(0, os.SEEK_END)
            if found != self._size:
                raise pa.ArrowInvalid(f"it has {found} bytes, and is listed with {self._size}")
        self._stream.seek(start)
        return self._stream.read(end - start)


_RELEASE_S = 0.05  # it takes less than a millisecond where a core is free


def arrow_filesystem(store: Store) -> Any:
    """A read-only filesystem with objects by their names below the table path."""
    _wait_at_exit()
    return PyFileSystem(_Handler(store))


def knowing_sizes(filesystem: Any, sizes: Mapping[str, int]) -> Any:
    """The filesystem, which if it is one of these need not ask for the sizes of these objects:
    pyarrow opens one file after another, and then reads many at once. [RD14]"""
    handler = getattr(filesystem, "handler", None)
    if not isinstance(handler, _Handler):
        return filesystem
    return PyFileSystem(_Handler(handler.store, sizes))


@cache
def _wait_at_exit() -> None:
    """Threads of pyarrow release buffers and files just after the scan that used them has ended.
    Where the interpreter exits meanwhile, a thread that releases what is Python's aborts the
    process, whose exit code then says that it failed."""
    atexit.register(time.sleep, _RELEASE_S)


class _Handler(FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no types
    def __init__(self, store: Store, sizes: Mapping[str, int] = {}) -> None:  # never mutated
        self.store, self._sizes = store, sizes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other.store.url == self.store.url

    __hash__ = None  # type: ignore[assignment]  # as its base class

    def get_type_name(self) -> str:
        return "manifestcommit"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> Any:
        name = path.lstrip("/")
        if name in self._sizes:
            return pa.PythonFile(_LateInput(self.store, name, self._sizes[name]), mode="r")
        try:
            return pa.PythonFile(self.store.open_input(name), mode="r")
        except FileNotFoundError:
            raise missing_file(self.store.url, name) from None

    open_input_stream = open_input_file

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> Any:
        try:
            with self.store.open_input(path.lstrip("/")) as stream:
                return FileInfo(path, FileType.File, size=stream.seek(0, 2))
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def _refuse(self, *_: object, **__: object) -> Any:
        advice = "write through manifestcommit.write or begin"
        raise NotImplementedError(f"this filesystem reads the files of a snapshot; {advice}")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse

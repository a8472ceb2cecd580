"""A store as a pyarrow filesystem, with which pyarrow's datasets, and through them DuckDB and
Polars, read data files. [RD2]"""

from __future__ import annotations

import atexit
import time
from functools import cache
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystemHandler, FileType, PyFileSystem

from ..base import Store, missing_file

_RELEASE_S = 0.05  # it takes less than a millisecond where a core is free


def arrow_filesystem(store: Store) -> Any:
    """A read-only filesystem with objects by their names below the table path."""
    _wait_at_exit()
    return PyFileSystem(_Handler(store))


@cache
def _wait_at_exit() -> None:
    """Threads of pyarrow release buffers and files just after the scan that used them has ended.
    Where the interpreter exits meanwhile, a thread that releases what is Python's aborts the
    process, whose exit code then says that it failed."""
    atexit.register(time.sleep, _RELEASE_S)


class _Handler(FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no types
    def __init__(self, store: Store) -> None:
        self._store = store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other._store.url == self._store.url

    __hash__ = None  # type: ignore[assignment]  # as its base class

    def get_type_name(self) -> str:
        return "manifestcommit"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> Any:
        name = path.lstrip("/")
        try:
            return pa.PythonFile(self._store.open_input(name), mode="r")
        except FileNotFoundError:
            raise missing_file(self._store.url, name) from None

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> Any:
        try:
            with self._store.open_input(path.lstrip("/")) as stream:
                return FileInfo(path, FileType.File, size=stream.seek(0, 2))
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def get_file_info_selector(self, selector: Any) -> Any:
        raise NotImplementedError(_ONLY_READS)

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError(_ONLY_READS)

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError(_ONLY_READS)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError(_ONLY_READS)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError(_ONLY_READS)

    def delete_file(self, path: str) -> None:
        raise NotImplementedError(_ONLY_READS)

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError(_ONLY_READS)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError(_ONLY_READS)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError(_ONLY_READS)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError(_ONLY_READS)


_ONLY_READS = (
    "this filesystem reads the files of a snapshot; write through manifestcommit.write or begin"
)

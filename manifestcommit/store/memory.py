"""Objects in this process' memory, over fsspec's MemoryFileSystem, with the lock that it lacks. For
tests and notebooks. [ST1]"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from .base import BufferedOutput, ObjectInfo, Output
from .options import check_name, check_root

_LOCK = threading.RLock()  # fsspec's memory is shared by the whole process, and so is its lock


class MemoryStore:
    """One table path in fsspec's process-wide memory. It ends with the process, and does not work
    under Spark, whose tasks are other processes. [ST1]"""

    def __init__(self, root: str) -> None:
        self._root = f"/{check_root('memory', root.strip('/'))}"
        self._fs = MemoryFileSystem()

    @property
    def url(self) -> str:
        return f"memory:/{self._root}"

    @property
    def identity(self) -> str:
        return ""  # one lock for the one process that can see it

    def parent(self) -> MemoryStore | None:
        parent = self._root.rpartition("/")[0]
        return MemoryStore(parent) if parent else None

    def beside(self, scheme: str, rest: str) -> MemoryStore | None:
        """Another table path in this process; None: it is elsewhere. [MT6]"""
        return MemoryStore(rest) if scheme == "memory" else None

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        with _LOCK:
            file = self._fs.store.get(self._path(name))
            if file is None:
                raise FileNotFoundError(f"{self.url}/{name}")
            return bytes(file.getbuffer()[slice(start, end)])

    def put(self, name: str, data: bytes) -> None:
        with _LOCK:
            self._fs.store[self._path(name)] = MemoryFile(self._fs, self._path(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with _LOCK:
            if self._path(name) in self._fs.store:
                return False
            self.put(name, data)
            return True

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        base = f"{self._root}/"
        first, common = base + start_from, base + prefix
        with _LOCK:
            files = {
                path: file
                for path, file in self._fs.store.items()
                if path >= first and path.startswith(common)
            }
            found = [
                ObjectInfo(
                    name=path.removeprefix(base),
                    size_bytes=file.getbuffer().nbytes,
                    modified=float(file.modified.timestamp()) if file.modified else time.time(),
                )
                for path, file in sorted(files.items())
            ]
        yield from found

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with _LOCK:
                self._fs.store.pop(self._path(name), None)

    def create_output(self, name: str) -> Output:
        check_name(name)
        return BufferedOutput(lambda data: self.put(name, data))

    def open_input(self, name: str) -> BinaryIO:
        return io.BytesIO(self.get(name))

    def filesystem(self) -> tuple[Any, str]:
        from .arrow_filesystem import arrow_filesystem  # late: only readers need it

        return arrow_filesystem(self), ""

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

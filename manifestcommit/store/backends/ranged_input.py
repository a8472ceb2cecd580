"""A seekable stream over an object, by ranged gets. [ST8]

Opening it fetches the last bytes: they show that the object exists, its length, and its Parquet
footer, so no request is spent on the length alone.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

TAIL_BYTES = 64 * 1024  # as much as pyarrow reads for a footer
TAIL = {"Range": f"bytes=-{TAIL_BYTES}"}


def span(start: int | None, end: int | None) -> dict[str, str]:
    """The header that requests bytes [start, end), which is not empty; none for the whole
    object."""
    return (
        {}
        if start is None and end is None
        else {"Range": f"bytes={start or 0}-{'' if end is None else end - 1}"}
    )


def whole_size(content_range: str | None, data: bytes) -> int:
    """The length of the object from which a response has these bytes."""
    return int(content_range.rpartition("/")[2]) if content_range else len(data)


class RangedInput(io.RawIOBase):
    """Reads an immutable object, with one request for each `read` that its tail does not cover."""

    def __init__(self, fetch: Callable[[int, int], bytes], tail: tuple[bytes, int]) -> None:
        """fetch: returns bytes [start, end); tail: the last bytes, and the length of the whole
        object."""
        super().__init__()
        self._fetch = fetch
        self._tail, self._size = tail
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

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

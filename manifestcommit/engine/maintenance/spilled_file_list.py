"""A list of inspected files on the way into manifests: kept in a temporary file, so that memory
does not grow with their number. [AF2]"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from types import TracebackType

import msgspec
import zstandard

from ...core.schema.wire import WireValue
from ...core.table.entries import ColumnStats


class GatheredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be registered. inside: partition columns that it holds; folders: partition values
    of its folders."""

    path: str
    rows: int
    bytes: int
    columns: dict[int, ColumnStats]
    inside: dict[str, WireValue]
    folders: dict[str, str | None]


class SpilledFileList:
    """Files in the order of addition, in groups of one manifest. files, rows, bytes: totals.

    group: files in memory at a time, and in one manifest.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self._spilled = tempfile.TemporaryFile(prefix="manifestcommit-")  # noqa: SIM115  # closed by __exit__
        self._sizes: list[int] = []
        self._last: list[GatheredFile] = []
        self.files = self.rows = self.bytes = 0

    def add(self, file: GatheredFile) -> None:
        """Add one file."""
        if len(self._last) == self._group:
            packed = zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(self._last))
            self._spilled.write(packed)
            self._sizes.append(len(packed))
            self._last = []
        self._last.append(file)
        self.files += 1
        self.rows += file.rows
        self.bytes += file.bytes

    def __iter__(self) -> Iterator[list[GatheredFile]]:
        at = 0
        for size in self._sizes:
            self._spilled.seek(at)
            packed = self._spilled.read(size)
            yield msgspec.msgpack.decode(
                zstandard.ZstdDecompressor().decompress(packed), type=list[GatheredFile]
            )
            at += size
        if self._last:
            yield self._last

    def __enter__(self) -> SpilledFileList:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spilled.close()

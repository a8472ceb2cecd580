"""Files on whatever filesystem fsspec has, which are only read: no table can lie there. [LD3]"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO

from ..errors import StoreError, UsageError
from ..store import ObjectInfo, StorageOptions
from ..store.base import etag_of, modified_s
from ..version import install

# of a file's content: a time of its creation says nothing
_TIMES = ("mtime", "LastModified", "last_modified")


class FsspecFiles:
    """What landed files need of a store. url: what names their source."""

    def __init__(self, url: str, options: StorageOptions) -> None:
        self.url, self._options = url.rstrip("/"), options
        fresh = {"use_listings_cache": False, "skip_instance_cache": True}
        try:
            fsspec = import_module("fsspec.core")
        except ImportError:
            raise UsageError(f"{url} needs fsspec, which is missing: {install('fsspec')}") from None
        with self._raising_ours():
            self._files, root = fsspec.url_to_fs(url, **{**fresh, **options})
        self._base = f"{root.rstrip('/')}/"

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        with self._raising_ours():
            found = self._files.find(self._base, detail=True)
        for path, info in sorted(found.items()):
            name = path.removeprefix(self._base)
            if info["type"] == "file" and name.startswith(prefix) and name >= start_from:
                yield self._described(name, info)

    def open_input(self, name: str) -> BinaryIO:
        with self._raising_ours():
            stream: BinaryIO = self._files.open(f"{self._base}{name}", "rb")
        return stream

    def _described(self, name: str, info: dict[str, Any]) -> ObjectInfo:
        with self._raising_ours():
            modified, etag, size = modified_s(info, _TIMES), etag_of(info), int(info["size"])
        if modified is None and not etag:
            raise StoreError(
                f"{self.url}/{name}: the filesystem tells neither a time nor an ETag of it, by "
                "which another content would be known; nothing more was loaded"
            )
        return ObjectInfo(name=name, size_bytes=size, modified=modified or 0.0, etag=etag)

    @contextlib.contextmanager
    def _raising_ours(self) -> Iterator[None]:
        """Whatever a filesystem raises becomes this package's error, without secrets. [SE1]"""
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            text = self._options.scrub(f"{type(error).__name__}: {error}")
            raise StoreError(f"{self.url} cannot be read by fsspec: {text}") from None

"""Files on whatever filesystem fsspec has, which are only read: no table can lie there. [LD3]"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO

from ..errors import StoreError, UsageError
from ..store import ObjectInfo, StorageOptions


class FsspecFiles:
    """What landed files need of a store. url: what names their source."""

    def __init__(self, url: str, options: StorageOptions) -> None:
        self.url, self._options = url.rstrip("/"), options
        fresh = {"use_listings_cache": False, "skip_instance_cache": True}
        try:
            fsspec = import_module("fsspec.core")
        except ImportError:
            raise UsageError(f"{url} needs fsspec, which is missing: pip install fsspec") from None
        with self._told():
            self._files, root = fsspec.url_to_fs(url, **{**fresh, **options})
        self._base = f"{root.rstrip('/')}/"

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        with self._told():
            found = self._files.find(self._base, detail=True)
        for path, told in sorted(found.items()):
            name = path.removeprefix(self._base)
            if told["type"] == "file" and name.startswith(prefix) and name >= start_from:
                yield self._info(name, told)

    def open_input(self, name: str) -> BinaryIO:
        with self._told():
            stream: BinaryIO = self._files.open(f"{self._base}{name}", "rb")
        return stream

    def _info(self, name: str, told: dict[str, Any]) -> ObjectInfo:
        etag = str(told.get("ETag") or told.get("etag") or "")
        when = told.get("mtime") or told.get("LastModified") or told.get("last_modified")
        seconds = when.timestamp() if isinstance(when, dt.datetime) else when
        if seconds is None and not etag:
            raise StoreError(
                f"{self.url}/{name}: the filesystem tells neither a time nor an ETag of it, by "
                "which another content would be known; nothing more was loaded"
            )
        size = int(told["size"])
        return ObjectInfo(name=name, size_bytes=size, modified=float(seconds or 0), etag=etag)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever a filesystem raises becomes this package's error, without secrets. [SE1]"""
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            told = self._options.scrub(f"{type(error).__name__}: {error}")
            raise StoreError(f"{self.url} cannot be read by fsspec: {told}") from None

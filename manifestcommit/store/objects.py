"""Object stores: the calls of a store, made of single requests to one bucket. [ST1] [ST10]

Not here: the requests and what their errors mean (requests, s3, azure, gcs, generic).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, cast

from ..errors import StoreError, StoreUnclearError
from .arrow import arrow_filesystem
from .base import ObjectInfo, Output
from .generic import GenericBackend, check_scheme
from .names import check_name, check_root
from .options import StorageOptions
from .ranged import RangedInput
from .requests import Backend, Upload
from .retry import TransientError

PART_BYTES = 8 * 1024 * 1024  # S3 wants 5 MiB at least, R2 parts of one size, GCS multiples of 256 KiB


class ObjectStore:
    """One root in one bucket or container. What an SDK would repeat by itself is repeated by us, or not at all. [ST10] [ST14]"""

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        """root: bucket, or bucket/prefix; the bucket in whatever form the scheme has for it."""
        check_scheme(scheme)
        self._scheme, self._root, self._options = scheme, check_root(scheme, root), options
        bucket, _, prefix = root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._backend = _backend(scheme, bucket, options)
        self._url = f"{self._backend.url}/{prefix}".rstrip("/")

    @property
    def url(self) -> str:
        return self._url

    @property
    def identity(self) -> str:
        return self._backend.identity

    def above(self) -> ObjectStore | None:
        return ObjectStore(self._scheme, self._root.rpartition("/")[0], self._options) if self._prefix else None

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        key = self._key(name)
        if end is not None and end <= (start or 0):
            return b""
        return self._backend.persist(lambda: self._backend.read(key, start, end))

    def put(self, name: str, data: bytes) -> None:
        key = self._key(name)
        self._backend.persist(lambda: self._backend.write(key, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """One conditional request, sent once. [ST10] [ST11]"""
        key = self._key(name)

        def create() -> bool:
            try:
                return self._backend.create(key, data)
            except TransientError as error:
                if not error.sent:
                    raise  # nothing reached the store: asking again is the same as asking once
                raise StoreUnclearError(f"{error}; it may have been created") from None
            except FileNotFoundError:
                raise StoreError(f"{self.url}/{name} could not be created: there is nothing to create it in") from None

        return self._backend.persist(create)

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        found = self._list(prefix, start_from)
        yield from found if self._backend.pages_are_ordered else sorted(found, key=lambda info: info.name)

    def delete(self, names: Iterable[str]) -> None:
        waiting = iter(names)
        while batch := [self._key(name) for name in islice(waiting, self._backend.removed_at_once)]:
            self._backend.remove_all(batch)

    def create_output(self, name: str) -> Output:
        return _Output(self._backend, self._key(name))

    def open_input(self, name: str) -> BinaryIO:
        key = self._key(name)
        tail = self._backend.persist(lambda: self._backend.tail(key))
        return cast(BinaryIO, RangedInput(lambda start, end: self.get(name, start, end), tail))

    def filesystem(self) -> tuple[Any, str]:
        return arrow_filesystem(self), ""

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _list(self, prefix: str, start_from: str) -> Iterator[ObjectInfo]:
        below, first, mark = self._prefix + prefix, self._prefix + start_from, ""
        while True:
            page, mark = self._backend.persist(partial(self._backend.page, below, first, mark))
            for info in page:
                name = info.name[len(self._prefix) :]
                if name and name >= start_from and info.name.startswith(below):
                    yield ObjectInfo(name=name, size_bytes=info.size_bytes, modified=info.modified)
            if not mark:
                return


class _Output:
    """A buffer that goes up in parts once it is large, and appears when it is closed. A name of its own: no condition is needed. [ST2]"""

    def __init__(self, backend: Backend, key: str) -> None:
        self._backend, self._key = backend, key
        self._buffer = bytearray()
        self._sent_bytes = 0
        self._upload: Upload | None = None
        self._sending: Future[None] | None = None
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        while len(self._buffer) > PART_BYTES:
            self._send(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return len(view)

    def tell(self) -> int:
        return self._sent_bytes + len(self._buffer)

    def flush(self) -> None:
        """Nothing appears before `close`."""

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if self.closed:
            return
        if self._upload is None:
            self._backend.persist(lambda: self._backend.write(self._key, bytes(self._buffer)))
        else:
            self._await()
            self._upload.finish(bytes(self._buffer))
        self.closed = True
        self._buffer.clear()

    def discard(self) -> None:
        """Give up: the object never appears. Parts that are there already are told to go, as far as that is possible."""
        if self.closed:
            return
        self.closed = True
        self._buffer.clear()
        with contextlib.suppress(Exception):
            self._await()
        if self._upload is not None:
            with contextlib.suppress(StoreError, FileNotFoundError):
                self._upload.discard()

    def _send(self, data: bytes) -> None:
        if self._upload is None:
            self._upload = self._backend.upload(self._key)
        self._await()  # one part on its way, one in the making: memory stays bounded
        self._sent_bytes += len(data)
        upload = self._upload
        self._sending = self._backend.later(lambda: upload.send(data))

    def _await(self) -> None:
        if self._sending is not None:
            self._sending.result()


def _backend(scheme: str, bucket: str, options: StorageOptions) -> Backend:
    if scheme == "s3":
        from .s3 import S3Backend

        return S3Backend(bucket, options)
    if scheme == "abfs":
        from .azure import AzureBackend

        return AzureBackend(bucket, options)
    if scheme == "gs":
        from .gcs import GcsBackend

        return GcsBackend(bucket, options)
    return GenericBackend(scheme, bucket, options)

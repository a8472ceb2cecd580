"""Object stores: the calls of a store as single requests to one bucket. [ST1] [ST10]"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from ..errors import StoreError, StoreUnclearError, UnsafeStoreError, UsageError
from ..version import install
from .arrow_filesystem import RangedInput, arrow_filesystem
from .backend import (
    Backend,
    ClientFailedError,
    NothingThereError,
    NotOfferedError,
    TakenError,
    Upload,
)
from .base import ObjectInfo, Output, Unfinished
from .fsspec import GenericBackend, check_scheme
from .options import StorageOptions, check_name, check_root
from .retry import TransientError

_Listed = TypeVar("_Listed")
# S3 requires at least 5 MiB, R2 parts of one size, GCS multiples of 256 KiB
PART_BYTES = 8 * 1024 * 1024
# what one request reads of an object whose length is not known
WHOLE_BYTES = 2 * PART_BYTES


class ObjectStore:
    """One prefix in one bucket or container. Only this package repeats requests, never an SDK.
    [ST10] [ST14]"""

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        """root: bucket, or bucket/prefix; the bucket in the form of the scheme."""
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

    @property
    def is_remote(self) -> bool:
        """Whether a response takes longer than its processing, so that concurrent requests pay
        off."""
        return True

    @property
    def retries(self) -> int:
        """How many requests were repeated so far. [ST14]"""
        return self._backend.retries

    @property
    def now_s(self) -> float | None:
        """The time by the store's own clock, from its last response. [CM14]"""
        return self._backend.now_s

    def parent(self) -> ObjectStore | None:
        return (
            ObjectStore(self._scheme, self._root.rpartition("/")[0], self._options)
            if self._prefix
            else None
        )

    def beside(self, scheme: str, rest: str) -> ObjectStore | None:
        """Another table path in the same bucket, with the same options; None: it is elsewhere.
        [MT6] [SE2]"""
        is_here = scheme == self._scheme and rest.partition("/")[0] == self._root.partition("/")[0]
        return ObjectStore(scheme, rest, self._options) if is_here else None

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        key = self._key(name)
        first = start or 0
        if end is not None and end <= first:
            return b""
        once = min(end, first + WHOLE_BYTES) if end and self._backend.tells_size else end
        data, size_bytes = self._read(key, start, once)
        if end is None or once is None or end == once or size_bytes <= once:
            return data
        return self._read_rest(key, data, first, min(end, size_bytes))

    def put(self, name: str, data: bytes) -> None:
        key = self._key(name)
        try:
            self._backend.persist(lambda: self._backend.write(key, data))
        except FileNotFoundError:
            raise StoreError(
                f"{self.url}/{name} could not be written: there is nothing to write it in"
            ) from None

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """One conditional request, sent once. [ST10] [ST11]"""
        key = self._key(name)

        def create() -> bool:
            try:
                self._backend.create(key, data)
                return True
            except TakenError:
                return False
            except NotOfferedError:
                raise UnsafeStoreError(
                    f"{self.url}/{name}: this store knows no conditional create; nothing can "
                    "be committed to it safely"
                ) from None
            except TransientError as error:
                if not error.sent:
                    raise  # nothing reached the store: a repeat is safe
                raise StoreUnclearError(f"{error}; it may have been created") from None
            except ClientFailedError as error:
                raise StoreUnclearError(f"{error}; it may have been created") from None
            except FileNotFoundError:
                raise StoreError(
                    f"{self.url}/{name} could not be created: there is nothing to create it in"
                ) from None

        return self._backend.persist(create)

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        found = self._list(prefix, start_from)
        yield from (
            found if self._backend.pages_are_ordered else sorted(found, key=lambda info: info.name)
        )

    def folders(self, prefix: str) -> Sequence[str]:
        """One request for each thousand folders or so, whatever they hold. [LK1]"""
        below = self._prefix + prefix
        pages = self._pages(prefix, partial(self._backend.folder_page, below))
        names = {key[len(below) :].partition("/")[0] for page in pages for key in page}
        return sorted(names - {""})

    def delete(self, names: Iterable[str]) -> None:
        waiting = iter(names)
        while batch := [self._key(name) for name in islice(waiting, self._backend.removed_at_once)]:
            self._backend.remove_all(batch)

    def create_output(self, name: str) -> Output:
        return _Output(self._backend, self._key(name))

    def open_input(self, name: str) -> BinaryIO:
        key = self._key(name)
        try:
            tail = self._backend.persist(lambda: self._backend.tail(key))
        except NothingThereError:
            tail = b"", 0
        return cast(BinaryIO, RangedInput(lambda start, end: self.get(name, start, end), tail))

    def unfinished(self) -> Iterator[Unfinished]:
        """Uploads that were begun and neither finished nor aborted, if the store lists them.
        [GC9]"""
        for upload in self._backend.unfinished(self._prefix):
            if upload.name.startswith(self._prefix):
                yield Unfinished(
                    name=upload.name[len(self._prefix) :],
                    upload=upload.upload,
                    started=upload.started,
                )

    def discard_unfinished(self, unfinished: Unfinished) -> None:
        self._backend.give_up_unfinished(self._key(unfinished.name), unfinished.upload)

    def filesystem(self) -> tuple[Any, str]:
        return arrow_filesystem(self), ""

    def _read(self, key: str, start: int | None, end: int | None) -> tuple[bytes, int]:
        try:
            return self._backend.persist(lambda: self._backend.read(key, start, end))
        except NothingThereError:
            return b"", 0

    def _read_rest(self, key: str, data: bytes, start: int, end: int) -> bytes:
        """What follows the data up to the end, by several requests at the same time."""
        first = start + len(data)
        spans = [(at, min(at + PART_BYTES, end)) for at in range(first, end, PART_BYTES)]
        rest = [self._backend.later(partial(self._read, key, *each)) for each in spans]
        whole = b"".join([data, *(each.result()[0] for each in rest)])
        if len(whole) != end - start:
            raise StoreError(
                f"{self._backend.display_name(key)} changed while it was read: {len(whole)} bytes "
                f"came of {end - start}"
            )
        return whole

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _list(self, prefix: str, start_from: str) -> Iterator[ObjectInfo]:
        below, first = self._prefix + prefix, self._prefix + start_from
        for page in self._pages(prefix, partial(self._backend.page, below, first)):
            for info in page:
                name = info.name[len(self._prefix) :]
                if name and name >= start_from and info.name.startswith(below):
                    yield msgspec.structs.replace(info, name=name)

    def _pages(
        self, prefix: str, ask: Callable[[str], tuple[Sequence[_Listed], str]]
    ) -> Iterator[Sequence[_Listed]]:
        """The pages of a list. ask: the request, by the mark of the page before."""
        mark = ""
        while True:
            before = mark
            try:
                page, mark = self._backend.persist(partial(ask, before))
            except FileNotFoundError:
                raise StoreError(
                    f"{self.url}/{prefix} could not be listed: the store finds nothing to "
                    "list there"
                ) from None
            if mark and mark == before:
                raise StoreError(
                    f"{self.url}/{prefix} could not be listed: the store gives the same page "
                    "again and again"
                )
            yield page
            if not mark:
                return


class _Output:
    """A buffer that is uploaded in parts once it is large, and becomes visible when it is closed.
    Its name is unique, so no condition is needed. [ST2]"""

    def __init__(self, backend: Backend, key: str) -> None:
        self._backend, self._key = backend, key
        self._buffer = bytearray()
        self._sent_bytes = 0
        self._upload: Upload | None = None
        self._sending: deque[Future[None]] = deque()
        self._parts = 0
        self._process = os.getpid()
        self._has_failed = False
        self.closed = False

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("write to an output that is closed")
        view = memoryview(data).cast("B")
        self._buffer += view
        while len(self._buffer) > PART_BYTES:
            self._send(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return len(view)

    def tell(self) -> int:
        return self._sent_bytes + len(self._buffer)

    def flush(self) -> None:
        """Nothing becomes visible before `close`."""

    def close(self) -> None:
        if self.closed:
            return
        if self._has_failed or self._process != os.getpid():
            shown = self._backend.display_name(self._key)
            raise StoreError(
                f"{shown} could not be completed before, or is another process' to complete; "
                "run the task again"
            )
        self._has_failed = True  # until proven otherwise: a repeat would upload the last part twice
        if self._upload is None:
            self._backend.persist(lambda: self._backend.write(self._key, bytes(self._buffer)))
        else:
            self._await(0)
            self._upload.finish(self._parts + 1, bytes(self._buffer))
        self._has_failed = False
        self.closed = True
        self._buffer.clear()

    def discard(self) -> None:
        """Abort: the object never becomes visible. Uploaded parts are removed if possible."""
        if self.closed:
            return
        self.closed = True
        self._buffer.clear()
        if self._process != os.getpid():
            return  # in a forked child: the upload and its threads belong to the parent
        while self._sending:
            with contextlib.suppress(Exception):
                self._await(0)
        if self._upload is not None:
            with contextlib.suppress(StoreError, FileNotFoundError):
                self._upload.discard()

    def _send(self, data: bytes) -> None:
        if self._upload is None:
            self._upload = self._backend.upload(self._key)
        self._await(self._upload.at_once - 1)  # memory stays bounded
        self._sent_bytes += len(data)
        self._parts += 1
        self._sending.append(self._backend.later(partial(self._upload.send, self._parts, data)))

    def _await(self, most: int) -> None:
        """Wait until no more than so many parts are being sent."""
        while len(self._sending) > most:
            self._sending.popleft().result()


def _backend(scheme: str, bucket: str, options: StorageOptions) -> Backend:
    try:
        if scheme == "s3":
            from .s3 import S3Backend  # late, as the others: an extra

            return S3Backend(bucket, options)
        if scheme == "abfs":
            from .azure import AzureBackend

            return AzureBackend(bucket, options)
        if scheme == "gs":
            from .gcs import GcsBackend

            return GcsBackend(bucket, options)
    except ImportError as error:
        extra = {"abfs": "azure", "gs": "gcs"}.get(scheme, scheme)
        raise UsageError(
            f"{scheme}:// needs a package that is missing ({error}): {install(extra)}"
        ) from None
    return GenericBackend(scheme, bucket, options)

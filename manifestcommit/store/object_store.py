"""Object stores: the calls of a store as single requests to one bucket. [ST1] [ST10]"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, cast

import msgspec

from ..errors import StoreError, StoreUnclearError, UnsafeStoreError, UsageError
from ..version import install
from .arrow_filesystem import RangedInput, arrow_filesystem
from .backend import (
    Backend,
    ClientFailedError,
    NothingThereError,
    NotOfferedError,
    Page,
    TakenError,
    TransientError,
)
from .base import ObjectInfo, Output, StorageOptions, Unfinished, check_name, check_root
from .fsspec import GenericBackend, check_scheme

# S3 requires at least 5 MiB, R2 parts of one size, GCS multiples of 256 KiB
PART_BYTES = 8 * 1024 * 1024
# what one request reads of an object whose length is not known
WHOLE_BYTES = 2 * PART_BYTES


class ObjectStore:
    """One prefix in a bucket or container. No SDK repeats requests, only this. [ST10] [ST14]"""

    is_remote = True  # a response takes longer than its processing

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
    def heads(self) -> dict[str, Any]:
        """What this process keeps of the tables in this store, by their URLs. [RD1]"""
        return self._backend.connection().heads

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
        """Another table path in this bucket, with these options; None: elsewhere. [MT6] [SE2]"""
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
        names = set[str]()
        for page in self._pages(prefix, "", "/"):
            keys = (*page.folders, *(info.name for info in page.objects))
            parts = (key[len(below) :].partition("/") for key in keys)
            names.update(name for name, slash, _ in parts if slash and name)
        return sorted(names)

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
        """Uploads neither finished nor aborted, if the store lists them. [GC9]"""
        for upload in self._backend.unfinished(self._prefix):
            if upload.name.startswith(self._prefix):
                yield Unfinished(
                    name=upload.name[len(self._prefix) :],
                    upload=upload.upload,
                    started=upload.started,
                )

    def discard_unfinished(self, unfinished: Unfinished) -> None:
        self._backend.abort_upload(self._key(unfinished.name), unfinished.upload)

    def filesystem(self) -> tuple[Any, str]:
        return arrow_filesystem(self), ""

    def _read(
        self, key: str, start: int | None, end: int | None, into: memoryview | None = None
    ) -> tuple[bytes, int]:
        try:
            return self._backend.persist(lambda: self._backend.read(key, start, end, into))
        except NothingThereError:
            return b"", 0

    def _read_rest(self, key: str, data: bytes, start: int, end: int) -> bytes:
        """The data and what follows it, by several requests at once into one piece of memory."""
        whole = BytesIO(bytes(end - start))
        with whole.getbuffer() as buffer:
            buffer[: len(data)] = data

            def read(at: int) -> int:
                into = buffer[at : at + PART_BYTES]
                found, _ = self._read(key, start + at, start + at + len(into), into)
                if found is not into and len(found) == len(into):
                    into[:] = found
                return len(found)

            places = range(len(data), end - start, PART_BYTES)
            found = [self._backend.later(partial(read, at)) for at in places]
            try:
                came = len(data) + sum(each.result() for each in found)
            finally:
                wait(found)  # no request writes into what others hold by then
        if came != end - start:
            raise StoreError(
                f"{self._backend.display_name(key)} changed while it was read: {came} bytes "
                f"came of {end - start}"
            )
        return whole.getvalue()

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _list(self, prefix: str, start_from: str) -> Iterator[ObjectInfo]:
        below = self._prefix + prefix
        for page in self._pages(prefix, start_from):
            for info in page.objects:
                name = info.name[len(self._prefix) :]
                if name and name >= start_from and info.name.startswith(below):
                    yield msgspec.structs.replace(info, name=name)

    def _pages(self, prefix: str, start_from: str, delimiter: str = "") -> Iterator[Page]:
        below, first = self._prefix + prefix, self._prefix + start_from
        mark = ""
        while True:
            ask = partial(self._backend.page, below, first, mark, delimiter)
            try:
                page = self._backend.persist(ask)
            except FileNotFoundError:
                raise StoreError(
                    f"{self.url}/{prefix} could not be listed: the store finds nothing to "
                    "list there"
                ) from None
            if page.mark and page.mark == mark:
                raise StoreError(
                    f"{self.url}/{prefix} could not be listed: the store gives the same page "
                    "again and again"
                )
            yield page
            if not (mark := page.mark):
                return


class _Output:
    """A buffer that is uploaded in parts once it is large, and becomes visible when it is closed.
    Its name is unique, so no condition is needed. [ST2]"""

    def __init__(self, backend: Backend, key: str) -> None:
        self._backend, self._key = backend, key
        self._buffer = bytearray()
        self._sent_bytes = 0
        self._upload: Any = None
        self._sending: deque[Future[Any]] = deque()
        self._parts: list[Any] = []  # of those that arrived, what identifies them
        self._has_begun = False
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
        if not self._has_begun:
            self._backend.persist(lambda: self._backend.write(self._key, bytes(self._buffer)))
        else:
            self._send(bytes(self._buffer))
            self._await(0)
            self._backend.finish_upload(self._key, self._upload, self._parts, self._sent_bytes)
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
        if self._has_begun:
            with contextlib.suppress(StoreError, FileNotFoundError):
                self._backend.abort_upload(self._key, self._upload)

    def _send(self, data: bytes) -> None:
        if not self._has_begun:
            self._upload = self._backend.begin_upload(self._key)
            self._has_begun = True
        self._await(self._backend.parts_at_once - 1)  # memory stays bounded
        number = len(self._parts) + len(self._sending) + 1
        if number > self._backend.most_parts:
            raise StoreError(
                f"{self._backend.display_name(self._key)} has more than {number - 1} parts. Lower "
                "target_file_size."
            )
        self._sent_bytes += len(data)
        send = partial(self._backend.send_part, self._key, self._upload, number, data)
        self._sending.append(self._backend.later(send))

    def _await(self, most: int) -> None:
        """Wait until no more than so many parts are being sent."""
        while len(self._sending) > most:
            self._parts.append(self._sending.popleft().result())


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

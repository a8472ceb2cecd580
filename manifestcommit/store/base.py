"""The protocol's interface to an object store: calls over names relative to one table path.
[ST1]-[ST5]

Implemented by store.object_store, store.memory and store.local.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, BinaryIO, Protocol, runtime_checkable

import msgspec

from ..errors import DataFileMissingError, UsageError
from .options import split_url


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One listed object.

    Attributes:
        name: relative to the table path, exactly as written.
        size_bytes: its size.
        modified: when it was written, by the store's clock, in Unix seconds.
        etag: what the store calls this content of the name; empty: it has no such text.
    """

    name: str
    size_bytes: int
    modified: float
    etag: str = ""


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """An output that was never closed, and that no listing shows.

    Attributes:
        name: the object that it would have become, or that of a temporary file.
        upload: the store's own id of it.
        temporary: the temporary file, if it is one; empty: it is none.
        size_bytes: its size, as far as known.
        started: when it was begun, by the store's clock, in Unix seconds; 0: unknown.
    """

    name: str
    upload: str = ""
    temporary: str = ""
    size_bytes: int = 0
    started: float


@runtime_checkable
class KeepsUnfinished(Protocol):
    """A store that keeps unfinished outputs, and can list them.

    Spec: GC9.
    """

    def unfinished(self) -> Iterator[Unfinished]:
        """List everything below the table path that was begun and not finished.

        Some of it may still be finished.

        Returns:
            The unfinished outputs, in any order.
        """
        ...

    def discard_unfinished(self, unfinished: Unfinished) -> None:
        """Remove an unfinished output, so that it never becomes an object.

        One that is finished or gone meanwhile is left as it is, without an error.

        Args:
            unfinished: the output, as `unfinished` lists it.

        Raises:
            StoreError: the store failed.
        """
        ...


class Output(Protocol):
    """A stream whose object becomes visible, complete and durable, only when `close` returns.

    Spec: ST2.
    """

    @property
    def closed(self) -> bool:
        """Return whether it is closed or discarded."""
        ...

    def write(self, data: Any, /) -> int:
        """Write bytes.

        Args:
            data: the bytes, or a buffer.

        Returns:
            How many bytes were written: all of them.

        Raises:
            ValueError: it is closed or discarded.
            StoreError: the store failed.
        """
        ...

    def tell(self) -> int:
        """Return how many bytes were written so far.

        Returns:
            The number of bytes.
        """
        ...

    def flush(self) -> None:
        """Write what is buffered, as far as the store can; nothing becomes visible."""
        ...

    def close(self) -> None:
        """Publish the object; a second call does nothing."""
        ...

    def discard(self) -> None:
        """Drop it: no object becomes visible, and nothing is left."""
        ...


class BufferedOutput:
    """An output in memory, which one call puts as a whole when it is closed. Not a BytesIO, which
    closes itself when it is garbage-collected, and closing publishes. [ST2]"""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put, self._buffer, self.closed = put, io.BytesIO(), False

    def write(self, data: Any, /) -> int:
        return self._buffer.write(data)

    def tell(self) -> int:
        return self._buffer.tell()

    def flush(self) -> None:
        """Nothing becomes visible before `close`."""

    def close(self) -> None:
        if not self.closed:
            data = self._buffer.getvalue()
            self.discard()
            self._put(data)

    def discard(self) -> None:
        self.closed = True
        self._buffer.close()


def is_remote(store: Store) -> bool:
    """Whether a response takes longer than its processing, so that concurrent requests pay off. A
    store says so by an attribute of this name; one without it counts as local."""
    return bool(getattr(store, "is_remote", False))


def heads_of(store: Store) -> MutableMapping[str, Any] | None:
    """What this process keeps of the tables that it reaches in the same way: URL -> the newest
    version that it has seen. None: this store keeps nothing. [RD1]"""
    kept: MutableMapping[str, Any] | None = getattr(store, "heads", None)
    return kept


def retries_of(store: Store) -> int:
    """How many requests were repeated so far, as an attribute `retries` says. [ST14]"""
    retries: int = getattr(store, "retries", 0)
    return retries


def now_of(store: Store) -> float | None:
    """The store's own time, Unix seconds, of its last response; None: unknown. [CM14]"""
    told: float | None = getattr(store, "now_s", None)
    return told


def store_beside(store: Store, url: str) -> Store | None:
    """The table path `url` in the same object store, with the same credentials; None: it is in
    another store, or this store cannot open others. A store that can has a method `beside`.
    [MT6] [SE2]"""
    beside = getattr(store, "beside", None)
    if beside is None:
        return None
    try:
        found: Store | None = beside(*split_url(url))
    except UsageError:  # no table path
        return None
    return found


def check_files(store: Store, names: Iterable[str], *, must_exist: bool = False) -> None:
    """StoreError if one of these data files is a link, is reached through one, or is not a plain
    file: for readers that open paths themselves. A store whose objects are files has a method of
    this name; without links, there is nothing to check. [SE2]

    must_exist: whether a missing file is a DataFileMissingError, if there is such a method.
    """
    check = getattr(store, "check_files", None)
    if check is not None:
        check(names, must_exist=must_exist)


def missing_file(url: str, path: str) -> DataFileMissingError:
    """The error for a listed data file that is missing. [RD2]"""
    return DataFileMissingError(
        f"{url}: data file {path} is listed by the version that is read, and is gone. If gc "
        "expired that version meanwhile, read the newest one. Otherwise something else removed the "
        "file: `manifestcommit verify` names all files that are missing.",
        path=path,
    )


class Store(Protocol):
    """One table path in one object store; a store of a user's own has these methods.

    All names are relative to the table path, `/`-separated, and never leave it.

    Spec: LY1, ST1.
    """

    @property
    def url(self) -> str:
        """Return the canonical URL of the table path, without credentials or a trailing slash."""
        ...

    @property
    def identity(self) -> str:
        """Return what identifies the store, without credentials, in the record of its probes.

        It is empty if the store needs no probes.

        Spec: ST12.
        """
        ...

    def parent(self) -> Store | None:
        """Open the store one level up.

        Returns:
            That store; None: there is none.

        Spec: LY6.
        """
        ...

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """Read an object, or a part of it, in one request; strongly consistent.

        Args:
            name: the object.
            start: the first byte; by default the beginning.
            end: the byte after the last one; by default the end.

        Returns:
            The bytes from `start` to `end`; empty if these are beyond the object's end.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: the store failed.
        """
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write an object as a whole; the last writer wins.

        Readers never see a partial object. A power failure may undo it, or damage its content.

        Args:
            name: the object.
            data: its content.

        Raises:
            StoreError: the store failed.

        Spec: ST2.
        """
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create an object atomically (put-if-absent): one of all concurrent creators wins.

        Args:
            name: the object.
            data: its content.

        Returns:
            True for exactly one creator; False if the name is taken.

        Raises:
            StoreUnclearError: the outcome is ambiguous: this call may have created the object.
            StoreError: the store failed, and this call created nothing.

        Spec: ST1.
        """
        ...

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        """List every object whose name begins with a prefix, each once.

        Plain names of one folder (ASCII letters, digits, `.`, `-`, `_`) are in the order of their
        code points; nothing relies on any other order.

        Args:
            prefix: the prefix; empty for every object.
            start_from: only names that are not below this one; by default all.

        Returns:
            The objects.

        Raises:
            StoreError: the store failed, also while the objects are iterated.

        Spec: ST3.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; missing ones are not an error.

        Args:
            names: the objects.

        Raises:
            StoreError: the store failed; some may be removed.
        """
        ...

    def create_output(self, name: str) -> Output:
        """Open a stream for a data file, whose name no other writer has.

        Args:
            name: the object.

        Returns:
            The stream; the object is visible when it is closed.

        Raises:
            StoreError: the store failed.

        Spec: ST2.
        """
        ...

    def open_input(self, name: str) -> BinaryIO:
        """Open a seekable stream over an object, for Parquet footers and column reads.

        Args:
            name: the object.

        Returns:
            The stream, for reading bytes.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: the store failed.
        """
        ...

    def filesystem(self) -> tuple[Any, str]:
        """Return what pyarrow reads data files with.

        Returns:
            A `pyarrow.fs.FileSystem`, and the path of the table path in it.
        """
        ...

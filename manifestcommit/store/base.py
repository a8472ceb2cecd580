"""The protocol's interface to an object store: calls over names relative to one table path.
[ST1]-[ST5]

The backends are in store.backends and store.local. Not here: retries of a commit
(engine.commit.commit_loop), the meaning of names (core.table.object_names).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Protocol, runtime_checkable

import msgspec

from ..errors import DataFileMissingError


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One listed object. name: relative to the table path, exactly as written; size_bytes;
    modified: by the store's clock, Unix seconds."""

    name: str
    size_bytes: int
    modified: float


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """An output that was never closed, and that no listing shows. name: the object that it would
    have become, or that of a temporary file; upload: the store's own id of it; temporary: the
    temporary file, if it is one; size_bytes: as far as known; started: by the store's clock, Unix
    seconds, 0: unknown."""

    name: str
    upload: str = ""
    temporary: str = ""
    size_bytes: int = 0
    started: float


@runtime_checkable
class KeepsUnfinished(Protocol):
    """A store that keeps unfinished outputs, and can list them. [GC9]"""

    def unfinished(self) -> Iterator[Unfinished]:
        """Everything below the table path that was begun and not finished; some of it may still be
        finished."""
        ...

    def discard_unfinished(self, unfinished: Unfinished) -> None:
        """Remove it: it never becomes an object. One that is finished or gone meanwhile stays as it
        is, without an error."""
        ...


class Output(Protocol):
    """A stream whose object becomes visible, complete and durable, only when `close()` returns;
    `discard()` aborts without a trace. [ST2]

    `write` after either raises ValueError.
    """

    @property
    def closed(self) -> bool: ...

    def write(self, data: Any, /) -> int: ...

    def tell(self) -> int: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def discard(self) -> None: ...


def is_remote(store: Store) -> bool:
    """Whether a response takes longer than its processing, so that concurrent requests pay off. A
    store says so by an attribute of this name; one without it counts as local."""
    return bool(getattr(store, "is_remote", False))


def retries_of(store: Store) -> int:
    """How many requests were repeated so far. A store behind a network counts them, in an attribute
    `retries`. [ST14]"""
    retries: int = getattr(store, "retries", 0)
    return retries


def now_of(store: Store) -> float | None:
    """The time by the store's own clock, Unix seconds, from its last response; None: unknown. Costs
    no request. [CM14]"""
    told: float | None = getattr(store, "now_s", None)
    return told


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
    """One table path in one object store. All names are relative to it, `/`-separated, and never
    leave it. [LY1]

    Every call raises `StoreError` when the store fails; `get` and `open_input` raise
    `FileNotFoundError` for a missing object.
    """

    @property
    def url(self) -> str:
        """The canonical URL of the table path, without credentials and without a trailing slash."""
        ...

    @property
    def identity(self) -> str:
        """Identifies the store, without credentials, in the record that it is proven; empty if it
        needs no proof. [ST12]"""
        ...

    def parent(self) -> Store | None:
        """The store one level up; None if there is none. [LY6]"""
        ...

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """The whole object, or its bytes [start, end); empty if these are beyond its end. One
        request; strongly consistent."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write the whole object; the last writer wins; readers never see a partial object. A power
        failure may undo it, or damage its content. [ST2]"""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create the object atomically (put-if-absent): True for exactly one of all concurrent
        creators, False if the name is taken. [ST1]

        Raises `StoreUnclearError` (a `StoreError`) if the outcome is ambiguous: this call may have
        created the object.
        """
        ...

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        """Every object whose name starts with `prefix` and is >= `start_from`, in code-point order
        of names. [ST3]"""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove the objects; missing ones are not an error."""
        ...

    def create_output(self, name: str) -> Output:
        """A stream for a data file, whose name no other writer can have. [ST2]"""
        ...

    def open_input(self, name: str) -> BinaryIO:
        """A seekable stream over the object, for Parquet footers and column reads."""
        ...

    def filesystem(self) -> tuple[Any, str]:
        """(pyarrow filesystem, base path in it), with which pyarrow reads data files."""
        ...

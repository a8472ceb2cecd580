"""What the protocol needs of an object store: six calls over names relative to one root. [ST1]-[ST5]

Backends live beside this file, one each. Not here: retries of a commit (engine), the meaning of any name (core.format).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Protocol, runtime_checkable

import msgspec


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One listed object. name: relative to the root, exactly as written; size_bytes; modified: store's clock, Unix seconds."""

    name: str
    size_bytes: int
    modified: float


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """What an output left that was never closed, where no list shows it. name: the object that it would have become, or a temporary file
    that does not tell; upload: the store's own id of it; temporary: the file that it is, where it is one; size_bytes: as far as it is
    known; started: store's clock, Unix seconds, 0 where it does not say."""

    name: str
    upload: str = ""
    temporary: str = ""
    size_bytes: int = 0
    started: float


@runtime_checkable
class KeepsUnfinished(Protocol):
    """A store that keeps what was never finished, and can list it. [GC9]"""

    def unfinished(self) -> Iterator[Unfinished]:
        """Everything below the root that was begun and not finished; some of it may be finished yet."""
        ...

    def discard_unfinished(self, each: Unfinished) -> None:
        """Remove it: it never becomes an object. What is finished or gone meanwhile is no error, and stays as it is."""
        ...


class Output(Protocol):
    """A stream whose object appears, whole and durable, only when `close()` returns; `discard()` gives up without a trace. [ST2]

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
    """Whether an answer takes longer than what is done with it, so that several are better waited for at once. A store says so by an
    attribute of this name; one that has none is taken for a local one."""
    return bool(getattr(store, "is_remote", False))


def retries_of(store: Store) -> int:
    """How many requests had to be sent again so far. A store behind a network counts them, in an attribute `retries`. [ST14]"""
    retries: int = getattr(store, "retries", 0)
    return retries


class Store(Protocol):
    """One root in one object store. All names are relative to it, `/`-separated, and never climb above it. [LY1]

    Every call raises `StoreError` when the store fails; `get` and `open_input` raise `FileNotFoundError` for a missing object.
    """

    @property
    def url(self) -> str:
        """The canonical root URL, without credentials and without a trailing slash."""
        ...

    @property
    def identity(self) -> str:
        """Which store this is, without credentials, for the record that its create was proved; empty where that needs no proof. [ST12]"""
        ...

    def above(self) -> Store | None:
        """The store whose root is one level up; None where there is none. [LY6]"""
        ...

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """The whole object, or its bytes [start, end), none where that is empty or behind its end. One request; strongly consistent."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write the whole object; the last writer wins; never seen half-written. A power cut may take it back, or its content. [ST2]"""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create the object atomically: True for exactly one of all racing creators, False if the name is taken. [ST1]

        Raises `StoreUnclearError` (a `StoreError`) when it cannot know whether the object was created by this call.
        """
        ...

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        """Every object whose name starts with `prefix` and is >= `start_from`, in code-point order of names. [ST3]"""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove the objects; a missing one is no error."""
        ...

    def create_output(self, name: str) -> Output:
        """A stream for a data file, whose name no one else can have. [ST2]"""
        ...

    def open_input(self, name: str) -> BinaryIO:
        """A seekable stream over the object, for Parquet footers and column reads."""
        ...

    def filesystem(self) -> tuple[Any, str]:
        """(pyarrow filesystem, base path in it): how pyarrow reads data files below this root."""
        ...

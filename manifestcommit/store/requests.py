"""What an object store asks of a backend: single requests, and what each process shares to send them. [ST5] [ST13] [ST14]

One subclass of `Backend` for each kind of store (s3, azure, gcs, generic). Not here: names below a root, the calls of a store (objects).
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from ..errors import ManifestCommitError, UsageError
from .base import ObjectInfo
from .options import StorageOptions
from .retry import FIRST_CONTACT, USUAL, Patience, persist

T = TypeVar("T")

CONNECT_S = 5
READ_S = 20
_SENDERS = 8


class Upload(Protocol):
    """An object that is sent in parts, one after the other, and appears when the last one is. Repeats its own requests. [ST2]"""

    def send(self, data: bytes) -> None: ...

    def finish(self, data: bytes) -> None: ...

    def discard(self) -> None: ...


class _Connection:
    """What one process shares for one set of options: fsspec's filesystem, and threads for what is on its way."""

    def __init__(self, fs: Any) -> None:
        self.fs = fs
        self.senders = ThreadPoolExecutor(_SENDERS, thread_name_prefix="manifestcommit-send")
        self.has_answered = False


_shared: dict[tuple[int, str, str], _Connection] = {}  # those of a forked process' parent stay: to close them would disturb it
_lock = threading.Lock()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()
    for connection in _shared.values():  # adlfs would close its client when the child ends, and wait for ever for the parent's loop
        for reference in weakref.getweakrefs(connection.fs):
            if isinstance(reference.__callback__, weakref.finalize):
                reference.__callback__.detach()


os.register_at_fork(after_in_child=_forked)


class Backend(ABC):
    """Requests to one bucket, each sent once; safe to share between threads, to pickle, and to use after a fork. [ST13]

    Every request raises FileNotFoundError (no such object), StoreError (refused) or TransientError (asking again may help).
    """

    name: str  # for messages: of the kind of store
    extra: str  # what pip installs for it

    def __init__(self, options: StorageOptions, place: str) -> None:
        """place: what in the URL tells one connection from another."""
        self._options, self._place = options, place

    @property
    @abstractmethod
    def url(self) -> str:
        """The bucket's canonical URL. [ST4]"""

    @property
    @abstractmethod
    def identity(self) -> str: ...

    @abstractmethod
    def read(self, key: str, start: int | None, end: int | None) -> bytes: ...

    @abstractmethod
    def tail(self, key: str) -> tuple[bytes, int]:
        """Some last bytes, perhaps none, and the length of the whole object."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """One conditional request: False if the name is taken. [ST1] [ST11]"""

    @abstractmethod
    def page(self, prefix: str, start_from: str, mark: str) -> tuple[Sequence[ObjectInfo], str]:
        """Some objects by their full keys, and the mark of the next page, empty after the last. start_from may be disregarded."""

    pages_are_ordered = False  # by code points, over all pages

    @abstractmethod
    def remove(self, key: str) -> None: ...

    removed_at_once = 64

    def remove_all(self, keys: Sequence[str]) -> None:
        """Remove up to `removed_at_once` objects; what is not there is no error."""
        for removed in [self.later(partial(self._remove, key)) for key in keys]:
            removed.result()

    @abstractmethod
    def upload(self, key: str) -> Upload: ...

    @abstractmethod
    def connect(self) -> Any:
        """fsspec's filesystem, a new one."""

    @abstractmethod
    def meaning(self, error: Exception, told: str) -> tuple[Exception, bool]:
        """What the caller is told, and whether the store answered at all."""

    def persist(self, request: Callable[[], T]) -> T:
        """Send a request until it is answered or patience is over. [ST14]"""
        return persist(request, self._patience)

    def later(self, request: Callable[[], T]) -> Future[T]:
        """Send a request while the caller does something else."""
        return self.connection().senders.submit(request)

    def told(self, key: str) -> str:
        return f"{self.url}/{key}"

    def scrub(self, text: str) -> str:
        """The text without anything secret. [SE1]"""
        return self._options.scrub(text)

    def connection(self) -> _Connection:
        key = (os.getpid(), f"{type(self).__name__} {self._place}", self._options.fingerprint())
        with _lock:
            if key not in _shared:
                try:
                    _shared[key] = _Connection(self.connect())
                except ManifestCommitError:
                    raise
                except ImportError as error:
                    raise UsageError(f"{self.name} needs a package that is missing: {self.extra} ({error})") from None
                except Exception as error:  # whatever the library objects to in what it was given, or found
                    raise UsageError(
                        f"no client for {self.name} can be made of these storage_options and this environment: {self.scrub(str(error))}"
                    ) from None
            return _shared[key]

    def once(self, key: str, request: Callable[[Any], T]) -> T:
        """What one request returns; its errors in this package's words. key: what it is about."""
        connection = self.connection()
        try:
            result = request(connection.fs)
        except Exception as error:
            if isinstance(error, ManifestCommitError):
                raise
            meant, answered = self.meaning(error, self.told(key))
            connection.has_answered |= answered
            if meant.args and isinstance(meant.args[0], str):
                meant.args = (self.scrub(meant.args[0]), *meant.args[1:])
            raise meant from None
        connection.has_answered = True
        return result

    def _remove(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.persist(lambda: self.remove(key))

    def _patience(self) -> Patience:
        return USUAL if self.connection().has_answered else FIRST_CONTACT


def wait(fs: Any, work: Coroutine[Any, Any, T]) -> T:
    """Let fsspec's own loop do the work."""
    from fsspec.asyn import sync

    result: T = sync(fs.loop, lambda: work)
    return result

"""What an object store asks of a backend: single requests, and what each process shares to send them. [ST5] [ST13] [ST14]

One subclass of `Backend` for each kind of store (s3, azure, gcs, generic). Not here: names below a root, the calls of a store (objects).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from ..errors import ManifestCommitError, StoreDeniedError, StoreError, UsageError
from .base import ObjectInfo, Unfinished
from .options import StorageOptions
from .retry import FIRST_CONTACT, USUAL, Patience, TransientError, persist

T = TypeVar("T")

CONNECT_S = 5
READ_S = 20
SENDING_S = 300  # a request with a body; the HTTP library bounds only the wait for its answer
_SENDERS = 8
_CONNECTIONS_KEPT = 16  # tokens that change every hour must not fill the memory of a service


class TakenError(StoreError):
    """The condition of a create did not hold: an answer, no failure."""


class NothingThereError(StoreError):
    """A range begins at or behind the object's end: an answer, no failure."""


class NotOfferedError(StoreError):
    """The store does not know this kind of request."""


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
        self.beside: dict[str, Any] = {}  # what else a backend keeps for each of its buckets


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
    takes: str  # which options
    credentials = ""  # for messages: how to give them
    busy = frozenset({408, 409, 429})  # besides what a server or a proxy says of its own failure
    busy_codes: frozenset[str] = frozenset()
    taken_codes: frozenset[str] = frozenset()
    bad_credentials: frozenset[str] = frozenset()

    def __init__(self, options: StorageOptions, place: str) -> None:
        """place: what in the URL tells one connection from another."""
        self._options, self._place = options, place
        self.retries = 0  # requests sent again so far, by whatever thread

    @property
    @abstractmethod
    def url(self) -> str:
        """The bucket's canonical URL. [ST4]"""

    @property
    @abstractmethod
    def identity(self) -> str: ...

    @abstractmethod
    def read(self, key: str, start: int | None, end: int | None) -> bytes:
        """Bytes [start, end), which are some. NothingThereError where the object ends before."""

    @abstractmethod
    def tail(self, key: str) -> tuple[bytes, int]:
        """Some last bytes, perhaps none, and the length of the whole object. NothingThereError where it is empty."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def create(self, key: str, data: bytes) -> None:
        """One conditional request: TakenError if the name is taken. [ST1] [ST11]"""

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

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """Uploads of keys below `prefix` that are under way or were left, by their full keys; none where the store drops them by itself."""
        return iter(())

    def give_up_unfinished(self, key: str, upload: str) -> None:  # noqa: B027  # nothing to do where none is listed
        """Drop one of them; one that is finished or gone is no error."""

    @abstractmethod
    def connect(self) -> Any:
        """fsspec's filesystem, a new one."""

    @abstractmethod
    def translate(self, error: Exception, shown: str) -> tuple[Exception, bool]:
        """What the caller is told, and whether the store answered at all. shown: what the request was about."""

    def answered(self, status: int, code: str, shown: str, text: str = "") -> Exception:
        """What an HTTP answer means, in one wording for all stores; a backend looks first for what only its store says."""
        said = f"HTTP {status}, {code}" if code and code != str(status) else f"HTTP {status}"
        if status == 404:
            return FileNotFoundError(shown)
        if status == 412 or code in self.taken_codes:
            return TakenError(f"{shown}: the name is taken ({said})")
        if status == 416:
            return NothingThereError(f"{shown}: the object ends before that range ({said})")
        if status == 501:
            return NotOfferedError(f"{shown}: the store does not know this request ({said})")
        if status in self.busy or status >= 500 or status < 100 or code in self.busy_codes:
            return TransientError(f"{shown}: the store is busy or failed ({said})", sent=True)
        if status == 401 or code in self.bad_credentials:
            return StoreError(f"{shown}: the store does not accept the credentials ({said}). {self.credentials}")
        if status == 403:
            advice = "these credentials may not do this; spec/stores.md tells what is needed"
            return StoreDeniedError(f"{shown}: access denied ({code or status}): {advice}")
        return StoreError(f"{shown}: refused by the store ({said}{f': {text}' if text else ''})")

    def no_credentials(self, shown: str) -> StoreError:
        return StoreError(f"{shown}: no usable credentials were found. {self.credentials}")

    def client_options(self, *unwanted: str) -> dict[str, Any]:
        """The options for fsspec's filesystem, but for those that would bring caches, or a loop of somebody else's. [ST13]"""
        ours = {"use_listings_cache": False, "skip_instance_cache": True}
        refused = {*ours, "asynchronous", "loop", *unwanted}
        return {name: each for name, each in self._options.items() if name not in refused} | ours

    def persist(self, request: Callable[[], T]) -> T:
        """Send a request until it is answered or patience is over. [ST14]"""
        return persist(request, self._patience, self._count_retry)

    def later(self, request: Callable[[], T]) -> Future[T]:
        """Send a request while the caller does something else."""
        return self.connection().senders.submit(request)

    def display_name(self, key: str) -> str:
        return f"{self.url}/{key}"

    def scrub(self, text: str) -> str:
        """The text without anything secret. [SE1]"""
        return self._options.scrub(text)

    def connection(self) -> _Connection:
        key = (os.getpid(), f"{type(self).__name__} {self._place}", self._options.fingerprint())
        with _lock:
            if key not in _shared:
                mine = [other for other in _shared if other[0] == key[0]]
                for oldest in mine[: len(mine) + 1 - _CONNECTIONS_KEPT]:
                    del _shared[oldest]  # whoever still uses it holds it
                try:
                    _shared[key] = _Connection(self.connect())
                except ManifestCommitError:
                    raise
                except ImportError as error:
                    raise UsageError(f"{self.name} needs a package that is missing: {self.extra} ({error})") from None
                except Exception as error:  # whatever the library objects to in what it was given, or found
                    raise UsageError(
                        f"no client for {self.name} can be made of these storage_options and this environment: {self.scrub(str(error))}. "
                        f"It takes {self.takes}."
                    ) from None
            _shared[key] = found = _shared.pop(key)  # the last one used is the last one dropped
            return found

    def once(self, key: str, request: Callable[[Any], T]) -> T:
        """What one request returns; its errors in this package's words. key: what it is about."""
        connection = self.connection()
        try:
            result = request(connection.fs)
        except Exception as error:
            if isinstance(error, ManifestCommitError):
                raise
            meant, answered = self.translate(error, self.display_name(key))
            connection.has_answered |= answered
            if meant.args and isinstance(meant.args[0], str):
                meant.args = (self.scrub(meant.args[0]), *meant.args[1:])
            raise meant from None
        connection.has_answered = True
        return result

    def _remove(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.persist(lambda: self.remove(key))

    def _count_retry(self) -> None:
        with _lock:
            self.retries += 1

    def _patience(self) -> Patience:
        return USUAL if self.connection().has_answered else FIRST_CONTACT


def wait(fs: Any, work: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
    """Let fsspec's own loop do the work; TimeoutError where it takes longer than the limit, and it goes on no more. [ST14]"""
    from fsspec.asyn import sync

    result: T = sync(fs.loop, lambda: asyncio.wait_for(work, limit_s))
    return result

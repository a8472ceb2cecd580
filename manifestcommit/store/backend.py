"""The interface between an object store and its backend: single requests, how long they are
repeated, and the connections that each process shares. [ST5] [ST13] [ST14]

One subclass of `Backend` for each kind of store (store.s3, store.azure, store.gcs, store.fsspec).
Only requests that may be carried out twice are repeated. A create is put again by its callers,
which recognise their own object: `create` of runtime.environment, and commits.create_version. The
retries of the libraries below are turned off, so these numbers are complete.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from ..errors import ManifestCommitError, StoreError, UsageError
from ..version import install
from .base import ObjectInfo, StorageOptions, Unfinished

T = TypeVar("T")


class TransientError(Exception):
    """The same request may succeed later. sent: the store may have carried it out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a request is repeated. attempts: requests at most; the pauses double, up to the
    longest; *_s: seconds."""

    attempts: int
    deadline_s: float
    first_pause_s: float
    longest_pause_s: float = 8.0


USUAL = Patience(attempts=8, deadline_s=60.0, first_pause_s=0.1)
# For a store that has not answered this process yet: a wrong endpoint is likelier than an outage.
FIRST_CONTACT = Patience(attempts=3, deadline_s=15.0, first_pause_s=0.2)


def persist(
    request: Callable[[], T],
    patience: Callable[[], Patience],
    again: Callable[[], None] = lambda: None,
) -> T:
    """The result of the request, as soon as the store answers; StoreError once the time is over.
    [ST14]

    again: called before every repeat.
    """
    began = time.monotonic()
    tried = 0
    while True:
        tried += 1
        try:
            return request()
        except TransientError as error:
            limit = patience()
            pause = min(
                limit.longest_pause_s, limit.first_pause_s * 2.0 ** (tried - 1)
            ) * random.uniform(0.5, 1.0)
            if tried >= limit.attempts or time.monotonic() - began + pause > limit.deadline_s:
                raise StoreError(f"{error} (asked {tried} times)") from None
        time.sleep(pause)
        again()


_SENDERS = 8
# Characters that XML 1.0, in which services list and bulk-delete, cannot hold; and the carriage
# return, which its readers turn into a newline.
NOT_IN_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# tokens that change every hour must not accumulate in the memory of a service
_CONNECTIONS_KEPT = 16
# the environment that clients are made of: credentials, endpoints, proxies, certificates
_DECIDES = re.compile(
    r"(aws|azure|boto|cloudsdk|fsspec|gce|gcsfs|google|storage_emulator)_|"
    r"\w*(_proxy|_ca_bundle)$|ssl_cert|(home|userprofile)$",
    re.IGNORECASE,
)


class TakenError(StoreError):
    """The condition of a create did not hold: a definite response, not a failure."""


class NothingThereError(StoreError):
    """A range begins at or after the object's end: a definite response, not a failure."""


class NotOfferedError(StoreError):
    """The store does not support this kind of request."""


class ClientFailedError(StoreError):
    """The store's library failed, perhaps before it sent the request, perhaps after."""


class NoCredentialsError(Exception):
    """None were found, or the service that gives them refuses; its text says more."""


class NotMadeError(Exception):
    """The client cannot make the request: nothing was sent."""


class Page(NamedTuple):
    """One page of a list. objects: by their full keys; mark: of the next page, empty after the
    last; folders: keys that end with the delimiter."""

    objects: Sequence[ObjectInfo]
    mark: str = ""
    folders: Sequence[str] = ()


class _Connection:
    """What a process shares for one set of options: a client, and threads for requests."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.senders = ThreadPoolExecutor(_SENDERS, thread_name_prefix="manifestcommit-send")
        self.has_answered = False
        self.heads: dict[str, Any] = {}


# connections of a forked process' parent stay open: closing them would disturb the parent
_shared: dict[tuple[int, str, str], _Connection] = {}
_lock = threading.Lock()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


class Backend(ABC):
    """Requests to one bucket, each sent once; it can be shared between threads, pickled, and used
    after a fork. [ST13]

    Every request raises FileNotFoundError (no such object), StoreError (refused) or TransientError
    (a repeat may succeed).
    """

    name: str  # for messages: the kind of store
    extra = ""  # of this package, that brings what the backend needs
    takes: str  # describes the options
    credentials = ""  # for messages: how to pass credentials
    sections: Sequence[str] = ()  # of fsspec's settings; the first that names an option counts

    def __init__(self, bucket: str, options: StorageOptions, place: str = "") -> None:
        """place: the part of the URL that distinguishes connections."""
        self._bucket, self._options, self._place = bucket, options, place
        self._sharing: tuple[int, str, str] | None = None  # who shares a connection
        self.retries = 0  # requests repeated so far, by all threads
        self._date = ""
        # the store's time, and when it was received
        self._told_s: tuple[float, float] | None = None

    @property
    def url(self) -> str:
        """The bucket's canonical URL. [ST4]"""
        return f"{self.name}{self._bucket}"

    @property
    @abstractmethod
    def identity(self) -> str: ...

    @abstractmethod
    def read(
        self, key: str, start: int | None, end: int | None, into: memoryview | None = None
    ) -> tuple[bytes, int]:
        """Bytes [start, end), which is not empty, and the length of the whole object, if this store
        tells it; perhaps in `into`. NothingThereError if the object ends before."""

    tells_size = True  # with each read

    @abstractmethod
    def tail(self, key: str) -> tuple[bytes, int]:
        """Some last bytes, perhaps none, and the whole length. NothingThereError if empty."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def create(self, key: str, data: bytes) -> None:
        """One conditional request: TakenError if the name is taken. [ST1] [ST11]"""

    @abstractmethod
    def page(self, prefix: str, start_from: str, mark: str, delimiter: str = "") -> Page:
        """Some objects, or with a delimiter the folders directly below the prefix. start_from and
        delimiter may be ignored."""

    pages_are_ordered = False  # by code points, across all pages

    @abstractmethod
    def remove(self, key: str) -> None: ...

    removed_at_once = 64

    def remove_all(self, keys: Sequence[str]) -> None:
        """Remove up to `removed_at_once` objects; missing ones are not an error."""
        for removed in [self.later(partial(self._remove, key)) for key in keys]:
            removed.result()

    # An object that is uploaded in parts, numbered from 1, becomes visible when it is finished.
    # These calls repeat their own requests. [ST2]

    parts_at_once = 4
    most_parts = 10_000

    def begin_upload(self, key: str) -> Any:
        """What identifies the upload; here nothing does."""
        return None

    @abstractmethod
    def send_part(self, key: str, upload: Any, number: int, data: bytes) -> Any:
        """Send a part; returns what identifies it."""

    @abstractmethod
    def finish_upload(self, key: str, upload: Any, parts: Sequence[Any], size_bytes: int) -> None:
        """parts: in order, as `send_part` returned them."""

    def abort_upload(self, key: str, upload: Any) -> None:  # noqa: B027  # nothing to do for most
        """Drop an upload; one that is finished or gone is not an error."""

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """Unfinished uploads of keys below `prefix`, in progress or orphaned, by their full keys;
        none if the store removes them by itself."""
        return iter(())

    @abstractmethod
    def connect(self) -> Any:
        """A new client."""

    @abstractmethod
    def translate(self, error: Exception, shown: str) -> tuple[Exception, bool]:
        """Translate an error for the caller, and say whether the store answered at all. shown:
        describes the request."""

    def no_credentials(self, shown: str, why: object = "") -> StoreError:
        return StoreError(f"{shown}: no usable credentials were found{why}. {self.credentials}")

    def persist(self, request: Callable[[], T]) -> T:
        """Send a request until it is answered or its time is over. [ST14]"""
        return persist(request, self._patience, self._count_retry)

    def later(self, request: Callable[[], T]) -> Future[T]:
        """Send a request in the background."""
        return self.connection().senders.submit(request)

    def tell_time(self, date: str | None) -> None:
        """Note the store's own clock, from the header Date of a response. [CM14]"""
        if not date or (self._told_s is not None and date == self._date):
            return  # it counts seconds: the first response of each is the most exact
        self._date = date
        with contextlib.suppress(ValueError):  # a proxy's response
            self._told_s = parsedate_to_datetime(date).timestamp(), time.monotonic()

    @property
    def now_s(self) -> float | None:
        """The time by the store's own clock, from its last response; None: no response had it."""
        told = self._told_s
        return None if told is None else told[0] + time.monotonic() - told[1]

    def display_name(self, key: str) -> str:
        return f"{self.url}/{key}"

    def scrub(self, text: str) -> str:
        """The text without secrets. [SE1]"""
        return self._options.scrub(text)

    def given(self) -> dict[str, Any]:
        """The options, above those that fsspec's own settings name for this store."""
        from fsspec.config import conf

        named = (conf.get(section, {}) for section in self.sections)
        return dict(ChainMap({**self._options}, *named))

    def _setting(self) -> str:
        """Equal where clients are made of the same options and the same environment."""
        # only these are decoded: it is asked in each append
        found = sorted((name, os.environ.get(name)) for name in os.environ if _DECIDES.match(name))
        return StorageOptions({"given": self.given(), "environment": found}).fingerprint()

    def connection(self) -> _Connection:
        key = self._sharing
        if key is None or key[0] != os.getpid():
            key = self._sharing = (
                os.getpid(),
                f"{type(self).__name__} {self._place}",
                self._setting(),
            )
        with _lock:
            if key not in _shared:
                mine = [other for other in _shared if other[0] == key[0]]
                for oldest in mine[: max(0, len(mine) + 1 - _CONNECTIONS_KEPT)]:
                    del _shared[oldest]  # code that still uses it holds a reference
                try:
                    _shared[key] = _Connection(self.connect())
                except ManifestCommitError:
                    raise
                except NoCredentialsError as error:
                    raise self.no_credentials(self.url, error) from None
                except ImportError as error:
                    advice = f": {install(self.extra)}" if self.extra else ""
                    raise UsageError(
                        f"{self.name} needs a package that is missing ({error}){advice}"
                    ) from None
                # the library objects to its arguments, or to a response
                except Exception as error:
                    raise UsageError(
                        f"no client for {self.name} can be made of these storage_options and this "
                        f"environment: {self.scrub(str(error))}. It takes {self.takes}."
                    ) from None
            _shared[key] = found = _shared.pop(key)  # the last one used is the last one evicted
            return found

    def once(self, key: str, request: Callable[[Any], T]) -> T:
        """One request's result; its errors in this package's words. key: describes it."""
        connection = self.connection()
        try:
            result = request(connection.client)
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

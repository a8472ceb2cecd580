"""Object stores: each call of a store as single requests to one bucket, over connections that each
process shares. [ST1] [ST5] [ST10] [ST13] [ST14]

One subclass of `ObjectStore` for each kind of store (store.s3, store.azure, store.gcs,
store.fsspec). Only `ObjectStore.request` sends anything again: the retries of the libraries below
are turned off, so its numbers are complete. A create that may have reached the store is put again
by its callers, which recognise their own object: `create` of runtime.environment, and
commits.create_version.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from email.utils import parsedate_to_datetime
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar, cast

import msgspec

from ..errors import (
    ManifestCommitError,
    StoreError,
    StoreUnclearError,
    UnsafeStoreError,
    UsageError,
)
from ..version import install
from .arrow_filesystem import RangedInput, arrow_filesystem
from .base import ObjectInfo, Output, StorageOptions, Unfinished, check_name, check_root

T = TypeVar("T")

# S3 requires at least 5 MiB, R2 parts of one size, GCS multiples of 256 KiB
PART_BYTES = 8 * 1024 * 1024
# what one request reads of an object whose length is not known
WHOLE_BYTES = 2 * PART_BYTES
# Characters that XML 1.0, in which services list and bulk-delete, cannot hold; and the carriage
# return, which its readers turn into a newline.
NOT_IN_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SENDERS = 8
# tokens that change every hour must not accumulate in the memory of a service
_CONNECTIONS_KEPT = 16
# the environment that clients are made of: credentials, endpoints, proxies, certificates
_DECIDES = re.compile(
    r"(aws|azure|boto|cloudsdk|fsspec|gce|gcsfs|google|storage_emulator)_|"
    r"\w*(_proxy|_ca_bundle)$|ssl_cert|(home|userprofile)$",
    re.IGNORECASE,
)


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


class TransientError(Exception):
    """The same request may succeed later. sent: the store may have carried it out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TakenError(StoreError):
    """The condition of a create did not hold: a definite response, not a failure."""


class NotOfferedError(StoreError):
    """The store does not support this kind of request."""


class ClientFailedError(StoreError):
    """The store's library failed, perhaps before it sent the request, perhaps after."""


class NoCredentialsError(Exception):
    """None were found, or the service that gives them refuses; its text says more."""


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


class ObjectStore(ABC):
    """One prefix in a bucket or container; it can be shared between threads, pickled, and used
    after a fork. [ST10] [ST13] [ST14]

    Subclasses send the requests. A key is the whole name in the bucket. Each request raises
    FileNotFoundError (no such object), or StoreError (refused, or busy for too long).
    """

    is_remote = True  # a response takes longer than its processing
    extra = ""  # of this package, that brings what the store needs
    takes: str  # describes the options
    credentials = ""  # for messages: how to pass credentials
    sections: Sequence[str] = ()  # of fsspec's settings; the first that names an option counts
    tells_size = True  # with each read
    pages_are_ordered = False  # by code points, across all pages
    removed_at_once = 64
    parts_at_once = 4
    most_parts = 10_000

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        """root: bucket, or bucket/prefix; on Azure perhaps container@account."""
        self._scheme, self._root, self._options = scheme, check_root(scheme, root), options
        place, _, prefix = root.partition("/")
        self._bucket, _, self._host = place.partition("@")
        self._prefix = f"{prefix}/" if prefix else ""
        self._sharing: tuple[int, str, str] | None = None  # who shares a connection
        self.retries = 0  # requests repeated so far, by all threads [ST14]
        self._date = ""
        # the store's time, and when it was received
        self._told_s: tuple[float, float] | None = None

    # --- the calls of a store -----------------------------------------------------------------

    @property
    def bucket_url(self) -> str:
        """The bucket's canonical URL. [ST4]"""
        return f"{self._scheme}://{self._bucket}"

    @property
    def url(self) -> str:
        return f"{self.bucket_url}/{self._prefix}".rstrip("/")

    @property
    @abstractmethod
    def identity(self) -> str: ...

    @property
    def heads(self) -> dict[str, Any]:
        """What this process keeps of the tables in this store, by their URLs. [RD1]"""
        return self.connection().heads

    @property
    def now_s(self) -> float | None:
        """The time by the store's own clock, from its last response. [CM14]"""
        told = self._told_s
        return None if told is None else told[0] + time.monotonic() - told[1]

    def parent(self) -> Self | None:
        above = self._root.rpartition("/")[0]
        return type(self)(self._scheme, above, self._options) if above else None

    def beside(self, scheme: str, rest: str) -> Self | None:
        """Another table path in this bucket, with these options; None: elsewhere. [MT6] [SE2]"""
        is_here = scheme == self._scheme and rest.partition("/")[0] == self._root.partition("/")[0]
        return type(self)(scheme, rest, self._options) if is_here else None

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        key = self._key(name)
        first = start or 0
        if end is not None and end <= first:
            return b""
        once = min(end, first + WHOLE_BYTES) if end and self.tells_size else end
        data, size_bytes = self.read(key, start, once)
        if end is None or once is None or end == once or size_bytes <= once:
            return data
        return self._read_rest(key, data, first, min(end, size_bytes))

    def put(self, name: str, data: bytes) -> None:
        with self._in_a_bucket(name, "written"):
            self.write(self._key(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """One conditional request, sent once. [ST10] [ST11]"""
        try:
            with self._in_a_bucket(name, "created"):
                self.create(self._key(name), data)
        except TakenError:
            return False
        except NotOfferedError:
            raise UnsafeStoreError(
                f"{self.url}/{name}: this store knows no conditional create; nothing can be "
                "committed to it safely"
            ) from None
        return True

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        found = self._list(prefix, start_from)
        yield from found if self.pages_are_ordered else sorted(found, key=lambda info: info.name)

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
        while batch := [self._key(name) for name in islice(waiting, self.removed_at_once)]:
            self.remove_all(batch)

    def create_output(self, name: str) -> Output:
        return _Output(self, self._key(name))

    def open_input(self, name: str) -> BinaryIO:
        tail = self.tail(self._key(name))
        return cast(BinaryIO, RangedInput(lambda start, end: self.get(name, start, end), tail))

    def unfinished(self) -> Iterator[Unfinished]:
        """Uploads neither finished nor aborted, if the store lists them. [GC9]"""
        for upload in self.uploads(self._prefix):
            if upload.name.startswith(self._prefix):
                name = upload.name[len(self._prefix) :]
                yield msgspec.structs.replace(upload, name=name)

    def discard_unfinished(self, unfinished: Unfinished) -> None:
        self.abort_upload(self._key(unfinished.name), unfinished.upload)

    def filesystem(self) -> tuple[Any, str]:
        return arrow_filesystem(self), ""

    def _read_rest(self, key: str, data: bytes, start: int, end: int) -> bytes:
        """The data and what follows it, by several requests at once into one piece of memory."""
        whole = BytesIO(bytes(end - start))
        with whole.getbuffer() as buffer:
            buffer[: len(data)] = data

            def read(at: int) -> int:
                into = buffer[at : at + PART_BYTES]
                found, _ = self.read(key, start + at, start + at + len(into), into)
                if found is not into and len(found) == len(into):
                    into[:] = found
                return len(found)

            places = range(len(data), end - start, PART_BYTES)
            found = [self.later(partial(read, at)) for at in places]
            try:
                came = len(data) + sum(each.result() for each in found)
            finally:
                wait(found)  # no request writes into what others hold by then
        if came != end - start:
            raise StoreError(
                f"{self.display_name(key)} changed while it was read: {came} bytes came of "
                f"{end - start}"
            )
        return whole.getvalue()

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    @contextlib.contextmanager
    def _in_a_bucket(self, name: str, done: str) -> Iterator[None]:
        """Of an object, FileNotFoundError says that it is missing; here the place for it is."""
        try:
            yield
        except FileNotFoundError:
            raise StoreError(
                f"{self.url}/{name} could not be {done}: the store finds no place for it"
            ) from None

    def _list(self, prefix: str, start_from: str) -> Iterator[ObjectInfo]:
        below = self._prefix + prefix
        for page in self._pages(prefix, start_from):
            for info in page.objects:
                name = info.name[len(self._prefix) :]
                if name and name >= start_from and info.name.startswith(below):
                    yield msgspec.structs.replace(info, name=name)

    def _pages(self, prefix: str, start_from: str, delimiter: str = "") -> Iterator[Page]:
        mark = ""
        while True:
            with self._in_a_bucket(prefix, "listed"):
                page = self.page(self._prefix + prefix, self._prefix + start_from, mark, delimiter)
            if page.mark and page.mark == mark:
                raise StoreError(
                    f"{self.url}/{prefix} could not be listed: the store gives the same page "
                    "again and again"
                )
            yield page
            if not (mark := page.mark):
                return

    # --- what subclasses send: each one request, or several for an upload -----------------------

    @abstractmethod
    def read(
        self, key: str, start: int | None, end: int | None, into: memoryview | None = None
    ) -> tuple[bytes, int]:
        """Bytes [start, end), perhaps in `into`, and the length of the whole object, if this store
        tells it; nothing if the object ends before."""

    @abstractmethod
    def tail(self, key: str) -> tuple[bytes, int]:
        """Some last bytes, perhaps none, and the whole length."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def create(self, key: str, data: bytes) -> None:
        """One conditional request: TakenError if the name is taken. [ST1] [ST11]"""

    @abstractmethod
    def page(self, prefix: str, start_from: str, mark: str, delimiter: str = "") -> Page:
        """Some objects, or with a delimiter the folders directly below the prefix. start_from and
        delimiter may be ignored."""

    @abstractmethod
    def remove(self, key: str) -> None: ...

    def remove_all(self, keys: Sequence[str]) -> None:
        """Remove up to `removed_at_once` objects; missing ones are not an error."""

        def remove(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self.remove(key)

        for removed in [self.later(partial(remove, key)) for key in keys]:
            removed.result()

    # An object that is uploaded in parts, numbered from 1, becomes visible when it is finished.
    # [ST2]

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

    def uploads(self, prefix: str) -> Iterator[Unfinished]:
        """Unfinished uploads of keys below `prefix`, in progress or orphaned, by their full keys;
        none if the store removes them by itself."""
        return iter(())

    @abstractmethod
    def connect(self) -> Any:
        """A new client."""

    @abstractmethod
    def translate(self, error: Exception, shown: str) -> Exception:
        """An error of a request, in this package's words. shown: describes the request."""

    # --- how requests are sent ------------------------------------------------------------------

    def request(self, key: str, send: Callable[[Any], T], *, is_create: bool = False) -> T:
        """What the client's request returns, which is repeated until the store answers or its time
        is over; that of a create, only if nothing reached the store. key: describes it.
        [ST5] [ST10] [ST14]"""
        connection = self.connection()
        began, tried = time.monotonic(), 0
        while True:
            tried += 1
            try:
                result = send(connection.client)
                connection.has_answered = True
                return result
            except ManifestCommitError:
                raise
            except Exception as error:
                meant = self.translate(error, self.display_name(key))
            text = self.scrub(str(meant))
            if is_create and (
                isinstance(meant, ClientFailedError) or getattr(meant, "sent", False)
            ):
                raise StoreUnclearError(f"{text}; it may have been created") from None
            if not isinstance(meant, TransientError):
                meant.args = (text, *meant.args[1:])
                raise meant from None
            limit = USUAL if connection.has_answered else FIRST_CONTACT
            pause = min(limit.longest_pause_s, limit.first_pause_s * 2.0 ** (tried - 1))
            pause *= random.uniform(0.5, 1.0)
            if tried >= limit.attempts or time.monotonic() - began + pause > limit.deadline_s:
                raise StoreError(f"{text} (asked {tried} times)") from None
            time.sleep(pause)
            with _lock:
                self.retries += 1

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

    def display_name(self, key: str) -> str:
        return f"{self.bucket_url}/{key}"

    def scrub(self, text: str) -> str:
        """The text without secrets. [SE1]"""
        return self._options.scrub(text)

    def given(self) -> dict[str, Any]:
        """The options, above those that fsspec's own settings name for this store."""
        from fsspec.config import conf

        named = (conf.get(section, {}) for section in self.sections)
        return dict(ChainMap({**self._options}, *named))

    def connection(self) -> _Connection:
        key = self._sharing
        if key is None or key[0] != os.getpid():
            # Equal where clients are made of the same options and the same environment, of which
            # only these are decoded: it is asked in each append.
            found = sorted(
                (name, os.environ.get(name)) for name in os.environ if _DECIDES.match(name)
            )
            setting = StorageOptions({"given": self.given(), "environment": found}).fingerprint()
            key = self._sharing = (os.getpid(), f"{self._scheme} {self._host}", setting)
        with _lock:
            connection = _shared.pop(key, None)
            if connection is None:
                mine = [other for other in _shared if other[0] == key[0]]
                for oldest in mine[: max(0, len(mine) + 1 - _CONNECTIONS_KEPT)]:
                    del _shared[oldest]  # code that still uses it holds a reference
                connection = _Connection(self._client())
            _shared[key] = connection  # the last one used is the last one evicted
            return connection

    def _client(self) -> Any:
        try:
            return self.connect()
        except ManifestCommitError:
            raise
        except NoCredentialsError as error:
            raise self.no_credentials(f"{self._scheme}://{self._bucket}", error) from None
        except ImportError as error:
            advice = f": {install(self.extra)}" if self.extra else ""
            raise UsageError(
                f"{self._scheme}:// needs a package that is missing ({error}){advice}"
            ) from None
        # the library objects to its arguments, or to a response
        except Exception as error:
            raise UsageError(
                f"no client for {self._scheme}:// can be made of these storage_options and this "
                f"environment: {self.scrub(str(error))}. It takes {self.takes}."
            ) from None

    def no_credentials(self, shown: str, why: object = "") -> StoreError:
        return StoreError(f"{shown}: no usable credentials were found{why}. {self.credentials}")


class _Output:
    """A buffer that is uploaded in parts once it is large, and becomes visible when it is closed.
    Its name is unique, so no condition is needed. [ST2]"""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key
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
            shown = self._store.display_name(self._key)
            raise StoreError(
                f"{shown} could not be completed before, or is another process' to complete; "
                "run the task again"
            )
        self._has_failed = True  # until proven otherwise: a repeat would upload the last part twice
        if not self._has_begun:
            self._store.write(self._key, bytes(self._buffer))
        else:
            self._send(bytes(self._buffer))
            self._await(0)
            self._store.finish_upload(self._key, self._upload, self._parts, self._sent_bytes)
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
                self._store.abort_upload(self._key, self._upload)

    def _send(self, data: bytes) -> None:
        if not self._has_begun:
            self._upload = self._store.begin_upload(self._key)
            self._has_begun = True
        self._await(self._store.parts_at_once - 1)  # memory stays bounded
        number = len(self._parts) + len(self._sending) + 1
        if number > self._store.most_parts:
            raise StoreError(
                f"{self._store.display_name(self._key)} has more than {number - 1} parts. Lower "
                "target_file_size."
            )
        self._sent_bytes += len(data)
        send = partial(self._store.send_part, self._key, self._upload, number, data)
        self._sending.append(self._store.later(send))

    def _await(self, most: int) -> None:
        """Wait until no more than so many parts are being sent."""
        while len(self._sending) > most:
            self._parts.append(self._sending.popleft().result())

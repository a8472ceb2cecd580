"""Object stores: each call of a store as single requests to one bucket, over connections that each
process shares. [ST1] [ST5] [ST10] [ST13] [ST14]

One subclass of `ObjectStore` for each kind of store (store.s3, store.azure, store.gcs): its
requests, and the signer that sends them. Only `ObjectStore.ask_for` sends anything again, so its
numbers are complete. A create that may have reached the store is put again by its callers, which
recognise their own object: `create` of runtime.environment, and commits.commit_loop.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from email.utils import parsedate_to_datetime
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote
from xml.etree import ElementTree

import msgspec

from ..errors import (
    ManifestCommitError,
    StoreDeniedError,
    StoreError,
    StoreUnclearError,
    UnsafeStoreError,
    UsageError,
)
from ..version import install
from .arrow_filesystem import TAIL_BYTES, RangedInput, arrow_filesystem
from .base import (
    BufferedOutput,
    ObjectInfo,
    Output,
    StorageOptions,
    Store,
    Unfinished,
    check_name,
    check_root,
    public_endpoint,
)
from .http import Answer, NoAnswerError, NotMadeError

T = TypeVar("T")

# S3 requires at least 5 MiB, R2 parts of one size, GCS multiples of 256 KiB
PART_BYTES = 8 * 1024 * 1024
# what one request reads of an object whose length is not known
WHOLE_BYTES = 2 * PART_BYTES
# Characters that XML 1.0, in which services list and bulk-delete, cannot hold; and the carriage
# return, which its readers turn into a newline.
NOT_IN_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_PARTS = 10_000
_SENDERS = 8
# tokens that change every hour must not accumulate in the memory of a service
_CONNECTIONS_KEPT = 16
# the environment that clients are made of: credentials, endpoints, proxies, certificates
_DECIDES = re.compile(
    r"(aws|azure|boto|cloudsdk|gce|gcsfs|google|storage_emulator)_|"
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


# options of s3fs, gcsfs and adlfs about caches, event loops and file objects, which single requests
# have not
_OF_FILES = (
    "assume_container_exists asynchronous block_size blocksize cache_regions cache_timeout "
    "check_connection consistency default_block_size default_cache_type default_fill_cache "
    "default_location fixed_upload_size listings_expiry_time local_expiry_check loop "
    "max_concurrency max_paths requests_timeout secure_serialize skip_instance_cache "
    "socket_timeout timeout use_listings_cache version_aware"
)
# What a refusal means, by its code or its status: a request is sent again if the store is busy.
# [ST10] [ST14]
_MEANINGS = {
    said: meaning
    for meaning, all_said in {
        "busy": "408 409 429 InternalError RequestTimeout ServiceUnavailable SlowDown Throttling "
        "ThrottlingException rateLimitExceeded userRateLimitExceeded",
        "taken": "412 BlobAlreadyExists UnauthorizedBlobOverwrite ConditionNotMet",
        "missing": "404",
        "unknown": "501",
        "denied": "403",
        "login": "401 AuthenticationFailed ExpiredToken InvalidAccessKeyId "
        "InvalidAuthenticationInfo InvalidToken NoAuthenticationInformation SignatureDoesNotMatch "
        "TokenRefreshRequired",
        "nowhere": "NoSuchBucket ContainerBeingDeleted ContainerDisabled ContainerNotFound",
        "clock": "RequestTimeTooSkewed",
        "elsewhere": "AuthorizationHeaderMalformed IllegalLocationConstraintException",
        "payer": "400:required UserProjectMissing",
    }.items()
    for said in all_said.split()
}
_NAMESPACE = re.compile(rb"""\sxmlns=("[^"]*"|'[^']*')""")


class Request(NamedTuple):
    """kind: the method, or on S3 its name in botocore; key: the object, or describes the request;
    place: what the signer makes the URL of; expected: statuses that are responses, besides those
    below 300; into: takes the body if that has its length; is_create: whether a repeat would be
    taken for another writer's; call: of a filesystem, with the path there."""

    kind: str
    key: str
    query: Mapping[str, str] = {}  # never mutated
    headers: Mapping[str, str] = {}
    body: bytes = b""
    place: str = ""
    expected: Sequence[int] = ()
    into: memoryview | None = None
    is_create: bool = False
    call: Any = None


class TakenError(StoreError):
    """The condition of a create did not hold: a definite response, not a failure."""


class NotOfferedError(StoreError):
    """The store does not support this kind of request."""


class ClientFailedError(StoreError):
    """The store's library failed, perhaps before it sent the request, perhaps after."""


class NoCredentialsError(Exception):
    """None were found, or the service that gives them refuses; its text says more."""


class RefusalError(Exception):
    """A whole response with a status that was not expected."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


# What a refusal's meaning is said to be. said: status and code; login: how to pass credentials.
_REFUSALS: dict[str, tuple[type[ManifestCommitError], str]] = {
    "clock": (
        StoreDeniedError,
        "this machine's clock and the store's are too far apart ({code}); set the clock",
    ),
    "denied": (
        StoreDeniedError,
        "access denied ({code}): these credentials may not do this; spec/stores.md lists what is "
        "needed",
    ),
    "login": (StoreError, "the store does not accept the credentials ({said}). {login}"),
    "payer": (
        UsageError,
        "the requester pays for this bucket; give requester_pays=True in storage_options",
    ),
    "taken": (TakenError, "the name is taken ({said})"),
    "unknown": (NotOfferedError, "the store does not know this request ({said})"),
}


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


class ObjectStore(Store):
    """One prefix in a bucket or container; it can be shared between threads, pickled, and used
    after a fork. [ST10] [ST13] [ST14] Subclasses send the requests. A key is the whole name in the
    bucket. Each request raises FileNotFoundError (no such object), or StoreError (refused, or busy
    for too long)."""

    is_remote = True  # a response takes longer than its processing
    account: Any  # makes one of the options: its `send` signs and sends a request to its `endpoint`
    extra: str  # of this package, that brings what the store needs
    takes: str  # describes the options
    credentials: str  # for messages: how to pass credentials
    address: str  # for messages: what decides where requests go
    noun = "bucket"
    missing = "endpoint"  # what may be wrong where there is no connection
    gets, deletes = "GET", "DELETE"  # the kinds of requests for an object and for its end
    got_by: Mapping[str, str] = {}  # the query with which it is got; never mutated
    tagged_by = "etag"  # the header that tells what lists call its content
    pages_are_ordered = False  # by code points, across all pages
    removed_at_once = 64
    parts_at_once = 4

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        """root: bucket, or bucket/prefix; on Azure perhaps container@account."""
        self._scheme, self._root, self._options = scheme, check_root(scheme, root), options
        place, _, prefix = root.partition("/")
        self._bucket, _, self._host = place.partition("@")
        self._prefix = f"{prefix}/" if prefix else ""
        self._sharing: tuple[int, str, str] | None = None  # who shares a connection
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
    def where(self) -> str:
        """The endpoint that requests go to, without secrets."""
        return public_endpoint(self.connection().client.endpoint)

    @property
    def identity(self) -> str:
        own = self.connection().client.is_providers
        return self.bucket_url + ("" if own else f" at {self.where}")

    @property
    def heads(self) -> dict[str, Any]:  # type: ignore[override]  # of this process only
        """What this process keeps of the tables in this store, by their URLs. [RD1]"""
        return self.connection().heads

    @property
    def now_s(self) -> float | None:  # type: ignore[override]  # told, never set
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
        key, first = self._key(name), start or 0
        if end is None:
            return self.read(key, start, None)[0]
        if end <= first:
            return b""
        once = min(end, first + WHOLE_BYTES)
        data, size_bytes = self.read(key, start, once)
        until = min(end, size_bytes)
        return data if until <= once else self._read_rest(key, data, first, until)

    def get_tagged(self, name: str, end: int) -> tuple[bytes, str]:
        """The first bytes of an object, and what a list calls its content; "": unknown."""
        if not self.tagged_by:
            return self.get(name, 0, end), ""
        data, _, etag = self._fetch(self._key(name), {"Range": f"bytes=0-{end - 1}"})
        return data[:end], etag

    def put(self, name: str, data: bytes) -> None:
        with self._in_a_bucket(name, "written"):
            self.write(self._key(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """One conditional request, sent once. [ST10] [ST11]"""
        try:
            with self._in_a_bucket(name, "created"):
                self.write(self._key(name), data, is_create=True)
        except TakenError:
            return False
        except NotOfferedError:
            text = "this store knows no conditional create; nothing can be committed to it safely"
            raise UnsafeStoreError(f"{self.url}/{name}: {text}") from None
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
            why = f"changed while it was read: {came} bytes came of {end - start}"
            raise StoreError(f"{self.display_name(key)} {why}")
        return whole.getvalue()

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    @contextlib.contextmanager
    def _in_a_bucket(self, name: str, done: str) -> Iterator[None]:
        """Of an object, FileNotFoundError says that it is missing; here the place for it is."""
        try:
            yield
        except FileNotFoundError:
            text = f"could not be {done}: the store finds no place for it"
            raise StoreError(f"{self.url}/{name} {text}") from None

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
                text = "could not be listed: the store gives the same page again and again"
                raise StoreError(f"{self.url}/{prefix} {text}")
            yield page
            if not (mark := page.mark):
                return

    # --- what subclasses send: each one request, or several for an upload -----------------------

    @abstractmethod
    def located(self, request: Request) -> Request:
        """The request with its place."""

    def read(
        self, key: str, start: int | None, end: int | None, into: memoryview | None = None
    ) -> tuple[bytes, int]:
        """Bytes [start, end), perhaps in `into`, and the length of the whole object; nothing if the
        object ends before."""
        is_whole = start is None and end is None
        last = "" if end is None else end - 1
        headers = {} if is_whole else {"Range": f"bytes={start or 0}-{last}"}
        data, size_bytes, _ = self._fetch(key, headers, into)
        # some servers answer a range with the whole object
        return (data[start or 0 : end] if len(data) == size_bytes else data), size_bytes

    def tail(self, key: str) -> tuple[bytes, int]:
        """Some last bytes, perhaps none, and the whole length."""
        return self._fetch(key, {"Range": f"bytes=-{TAIL_BYTES}"})[:2]

    def remove(self, key: str) -> None:
        self.ask(Request(self.deletes, key))

    def _fetch(
        self, key: str, headers: Mapping[str, str], into: memoryview | None = None
    ) -> tuple[bytes, int, str]:
        """The requested bytes, the length of the whole object, and what a list calls its content;
        nothing if it ends before."""

        def read(answer: Answer) -> tuple[bytes, int, str]:
            if answer.status == 416:
                return b"", 0, ""
            total = answer.headers.get("content-range", f"/{len(answer.body)}")
            etag = answer.headers.get(self.tagged_by, "").strip('"')
            return answer.body, int(total.rpartition("/")[2]), etag

        request = Request(self.gets, key, self.got_by, headers, expected=(416,), into=into)
        return self.ask_for(request, read)

    @abstractmethod
    def write(self, key: str, data: bytes, *, is_create: bool = False) -> None:
        """One request, of a create a conditional one: TakenError if the name is taken.
        [ST1] [ST11]"""

    @abstractmethod
    def page(self, prefix: str, start_from: str, mark: str, delimiter: str = "") -> Page:
        """Some objects, or with a delimiter the folders directly below the prefix. start_from and
        delimiter may be ignored."""

    def remove_all(self, keys: Sequence[str]) -> None:
        """Remove up to `removed_at_once` objects; missing ones are not an error."""

        def remove(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self.remove(key)

        for removed in [self.later(partial(remove, key)) for key in keys]:
            removed.result()

    # An object that is uploaded in parts, numbered from 1, becomes visible when it is finished.
    # [ST2] Here, where a store has no such uploads, memory keeps the parts.

    def begin_upload(self, key: str) -> Any:
        """What identifies the upload; here nothing does."""
        return None

    def send_part(self, key: str, upload: Any, number: int, data: bytes) -> Any:
        """Send a part; returns what identifies it."""
        return data

    def finish_upload(self, key: str, upload: Any, parts: Sequence[Any], size_bytes: int) -> None:
        """parts: in order, as `send_part` returned them."""
        self.write(key, b"".join(parts))

    def abort_upload(self, key: str, upload: Any) -> None:  # nothing to do for most
        """Drop an upload; one that is finished or gone is not an error."""

    # --- how requests are sent ------------------------------------------------------------------

    def ask(self, request: Request) -> Answer:
        """The response to one request, if its status is below 300 or expected."""
        return self.ask_for(request, lambda answer: answer)

    def ask_for(self, request: Request, read: Callable[[Answer], T]) -> T:
        """What a response says. The request is repeated until the store answers, and its answer can
        be read, or its time is over; a create, only if nothing reached the store.
        [ST5] [ST10] [ST14]"""
        connection = self.connection()
        began, tried = time.monotonic(), 0
        while True:
            tried += 1
            try:
                answer = connection.client.send(self.located(request))
                connection.has_answered = True
                return self._read(request, answer, read)
            except ManifestCommitError:
                raise
            except Exception as error:
                meant = self._translate(error, self.display_name(request.key))
            text = self.scrub(str(meant))
            is_unclear = isinstance(meant, ClientFailedError) or getattr(meant, "sent", False)
            if request.is_create and is_unclear:
                raise StoreUnclearError(f"{text}; it may have been created") from None
            if not isinstance(meant, NoAnswerError):
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

    def _read(self, request: Request, answer: Answer, read: Callable[[Answer], T]) -> T:
        self._tell_time(answer.headers.get("date"))
        if answer.status >= 300 and answer.status not in request.expected:
            raise RefusalError(answer)
        try:
            return read(answer)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            text = f"the response is malformed ({type(error).__name__}: {error})"
            raise NoAnswerError(text, sent=True) from None

    def later(self, request: Callable[[], T]) -> Future[T]:
        """Send a request in the background."""
        return self.connection().senders.submit(request)

    def _tell_time(self, date: str | None) -> None:
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
        """The options that clients are made of."""
        left_out = _OF_FILES.split()
        return {name: each for name, each in self._options.items() if name not in left_out}

    def connection(self) -> _Connection:
        key = self._sharing
        if key is None or key[0] != os.getpid():
            # Equal where clients are made of the same options and the same environment, of which
            # only these are decoded: it is asked in each append.
            names = sorted(name for name in os.environ if _DECIDES.match(name))
            found = [(name, os.environ.get(name)) for name in names]
            setting = StorageOptions({"given": self.given(), "environment": found}).fingerprint()
            key = self._sharing = (os.getpid(), f"{self._scheme} {self._host}", setting)
        with _lock:
            connection = _shared.pop(key, None)
            if connection is None:
                mine = [other for other in _shared if other[0] == key[0]]
                for oldest in mine[: max(0, len(mine) + 1 - _CONNECTIONS_KEPT)]:
                    del _shared[oldest]  # code that still uses it holds a reference
                connection = _Connection(self._account())
            _shared[key] = connection  # the last one used is the last one evicted
            return connection

    def _account(self) -> Any:
        try:
            return self.account(self.given())
        except ManifestCommitError:
            raise
        except NoCredentialsError as error:
            raise self._no_credentials(f"{self._scheme}://{self._bucket}", error) from None
        except ImportError as error:
            text = f"{self._scheme}:// needs a package that is missing ({error})"
            raise UsageError(f"{text}: {install(self.extra)}") from None
        # the library objects to its arguments, or to a response
        except Exception as error:
            raise UsageError(
                f"no client for {self._scheme}:// can be made of these storage_options and this "
                f"environment: {self.scrub(str(error))}. It takes {self.takes}."
            ) from None

    def _no_credentials(self, shown: str, why: object) -> StoreError:
        return StoreError(f"{shown}: no usable credentials were found{why}. {self.credentials}")

    def _translate(self, error: Exception, shown: str) -> Exception:
        """An error of a request, in this package's words."""
        if isinstance(error, RefusalError):
            return self._refused(error.answer, shown)
        if isinstance(error, NoAnswerError):
            advice = "" if error.sent else f"; check the {self.missing} and the network"
            return NoAnswerError(f"{shown}: {error}{advice}", sent=error.sent)
        if isinstance(error, NoCredentialsError):
            return self._no_credentials(shown, error)
        if isinstance(error, NotMadeError):
            return StoreError(f"{shown}: the client refuses the request: {error}")
        text = f"the client refuses the request ({type(error).__name__}: {error})"
        return ClientFailedError(f"{shown}: {text}")

    def _refused(self, answer: Answer, shown: str) -> Exception:
        """The error for a response, in the same words for all stores."""
        meaning, code, text = _meaning(answer)
        said = f"HTTP {answer.status}{f', {code}' if code else ''}"
        code = code or str(answer.status)
        if meaning == "nowhere":
            where = f"check the name and the {self.missing}, or create it"
            return StoreError(f"{shown}: there is no {self.noun} {self._bucket}; {where}")
        if meaning == "elsewhere":
            # of a location its host only: the rest may hold a signature
            url = public_endpoint(answer.headers.get("location", ""))
            host = url.partition("://")[2].partition("/")[0][:100]
            text = (
                f"{self.noun} {self._bucket} is in another region, or at another address ({code}"
                f"{f', to {host}' if host else ''}), and no redirect is followed"
            )
            return StoreError(f"{shown}: {text}. {self.address}")
        if meaning == "missing":
            return FileNotFoundError(shown)
        if meaning == "busy":
            return NoAnswerError(f"{shown}: the store is busy or failed ({said})", sent=True)
        if meaning == "refused":
            text = f": {text}" if text else ""
            return StoreError(f"{shown}: refused by the store ({said}{text})")
        kind, words = _REFUSALS[meaning]
        return kind(f"{shown}: {words.format(said=said, code=code, login=self.credentials)}")


class _Output(BufferedOutput):
    """A buffer that is uploaded in parts once it is large, and becomes visible when it is closed.
    Its name is unique, so no condition is needed. [ST2]"""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__(partial(store.write, key))
        self._store, self._key = store, key
        self._sent_bytes = 0
        self._upload: Any = None
        self._sending: deque[Future[Any]] = deque()
        self._parts: list[Any] = []  # of those that arrived, what identifies them
        self._process = os.getpid()
        self._has_failed = False

    def write(self, data: Any) -> int:
        written = super().write(data)
        while len(self._buffer) > PART_BYTES:
            self._send(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return written

    def tell(self) -> int:
        return self._sent_bytes + super().tell()

    def close(self) -> None:
        if self.closed:
            return
        if self._has_failed or self._process != os.getpid():
            text = "could not be completed before, or is another process' to complete"
            shown = self._store.display_name(self._key)
            raise StoreError(f"{shown} {text}; run the task again")
        self._has_failed = True  # until proven otherwise: a repeat would upload the last part twice
        if not self._sent_bytes:
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
        super().discard()
        if self._process != os.getpid():
            return  # in a forked child: the upload and its threads belong to the parent
        while self._sending:
            with contextlib.suppress(Exception):
                self._await(0)
        if self._sent_bytes:
            with contextlib.suppress(StoreError, FileNotFoundError):
                self._store.abort_upload(self._key, self._upload)

    def _send(self, data: bytes) -> None:
        if not self._sent_bytes:
            self._upload = self._store.begin_upload(self._key)
        self._await(self._store.parts_at_once - 1)  # memory stays bounded
        number = len(self._parts) + len(self._sending) + 1
        if number > _MOST_PARTS:
            shown = self._store.display_name(self._key)
            raise StoreError(f"{shown} has more than {number - 1} parts. Lower target_file_size.")
        self._sent_bytes += len(data)
        send = partial(self._store.send_part, self._key, self._upload, number, data)
        self._sending.append(self._store.later(send))

    def _await(self, most: int) -> None:
        """Wait until no more than so many parts are being sent."""
        while len(self._sending) > most:
            self._parts.append(self._sending.popleft().result())


def query_of(values: Mapping[str, str]) -> str:
    """The query of a URL, percent-encoded as every signature has it."""
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())


def none_left(scheme: str, options: Mapping[str, Any]) -> None:
    """UsageError for options that nothing was made of."""
    if left := sorted(str(name) for name, value in options.items() if value is not None):
        raise UsageError(f"{scheme}:// takes no option {', '.join(left)}")


def parsed(body: bytes) -> ElementTree.Element | None:
    """The document without its namespace, or None."""
    try:
        return ElementTree.fromstring(_NAMESPACE.sub(b"", body, count=1))
    except (ElementTree.ParseError, ValueError):
        return None


def document(answer: Answer, root: str) -> ElementTree.Element:
    """The document with this root that a response is: a proxy's page is no empty list."""
    found = parsed(answer.body)
    if found is not None and found.tag == "Error":  # with a status of success
        raise RefusalError(answer._replace(status=500))
    if found is None or found.tag != root:
        raise ValueError(f"no {root}")
    return found


def text_of(element: ElementTree.Element, name: str) -> str:
    """The text of a part of a document; KeyError if it has none."""
    found = element.findtext(name)
    if found is None:
        raise KeyError(name)
    return found


def _meaning(answer: Answer) -> tuple[str, str, str]:
    """What a refusal means, in a word; its code and its text."""
    status, (code, text) = answer.status, _code(answer)
    said = (code, f"{status}:{code}", str(status))
    usual = "busy" if status >= 500 or status < 100 else "refused"
    meaning = next((_MEANINGS[each] for each in said if each in _MEANINGS), usual)
    if 300 <= status < 400:
        meaning = "elsewhere"
    elif status == 404 and "bucket does not exist" in text:  # Google has no code for it
        meaning = "nowhere"
    elif meaning == "busy" and "x-ms-error-code" in answer.headers and status == 409:
        meaning = "refused"  # Azure never says that a name is being taken
    return meaning, code, text


def _code(answer: Answer) -> tuple[str, str]:
    """The code of a refusal, and its text: Azure's is in a header, S3's is XML, Google's JSON."""
    if code := answer.headers.get("x-ms-error-code"):
        return code, ""
    if (said := parsed(answer.body)) is not None:
        return said.findtext("Code", ""), said.findtext("Message", "")
    text = answer.body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        return str(error["errors"][0]["reason"]), str(error["message"])
    except (ValueError, LookupError, TypeError):
        return "", text[:300]

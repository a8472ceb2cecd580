"""The HTTP client of all object stores, and what S3, Google's and Azure's have in common: each of
them is its signer, its requests and the names of its errors. [ST5] [ST13] [ST14]

A request is sent once, to the place that it names; one that was never sent is distinguished from
one that the store may have carried out. urllib3 keeps the connections. Nothing is repeated or
redirected here; store.object_store repeats.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import ssl
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from xml.etree import ElementTree

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ReadTimeoutError

from ..errors import StoreDeniedError, StoreError, UsageError
from .arrow_filesystem import TAIL_BYTES
from .base import public_endpoint
from .object_store import (
    ClientFailedError,
    NoCredentialsError,
    NotOfferedError,
    ObjectStore,
    TakenError,
    TransientError,
)

T = TypeVar("T")

CONNECT_S = 5.0
READ_S = 20.0  # without a byte, in either direction
REQUEST_S = 300.0  # all of a request and its response
# options of s3fs, gcsfs and adlfs about caches, event loops and file objects, which single requests
# have not
_OF_FILES = {
    name
    for names in (
        "assume_container_exists asynchronous block_size blocksize cache_regions cache_timeout",
        "check_connection consistency default_block_size default_cache_type default_fill_cache",
        "default_location fixed_upload_size listings_expiry_time local_expiry_check loop",
        "max_concurrency max_paths requests_timeout secure_serialize skip_instance_cache",
        "socket_timeout timeout use_listings_cache version_aware",
    )
    for name in names.split()
}
# what the stores' codes mean, besides statuses
_MEANINGS = {
    code: meaning
    for meaning, codes in {
        "busy": "InternalError RequestTimeout ServiceUnavailable SlowDown Throttling "
        "ThrottlingException rateLimitExceeded userRateLimitExceeded",
        "taken": "BlobAlreadyExists UnauthorizedBlobOverwrite ConditionNotMet",
        "login": "AuthenticationFailed ExpiredToken InvalidAccessKeyId InvalidAuthenticationInfo "
        "InvalidToken NoAuthenticationInformation SignatureDoesNotMatch TokenRefreshRequired",
        "nowhere": "NoSuchBucket ContainerBeingDeleted ContainerDisabled ContainerNotFound",
        "clock": "RequestTimeTooSkewed",
        "elsewhere": "AuthorizationHeaderMalformed IllegalLocationConstraintException",
        "payer": "required UserProjectMissing",
    }.items()
    for code in codes.split()
}
_KEPT = 64  # connections to one host
_PIECE = 1024 * 1024
_ONCE = urllib3.Retry(False, redirect=False)  # not made anew for each request
_NAMESPACE = re.compile(rb"""\sxmlns=("[^"]*"|'[^']*')""")


class Request(NamedTuple):
    """kind: the method, or on S3 its name in botocore; key: the object, or describes the request;
    place: what the signer makes the URL of; expected: statuses that are responses, besides those
    below 300; into: takes the body if that has its length; is_create: whether a repeat would be
    taken for another writer's."""

    kind: str
    key: str
    query: Mapping[str, str] = {}  # never mutated
    headers: Mapping[str, str] = {}
    body: bytes = b""
    place: str = ""
    expected: Sequence[int] = ()
    into: memoryview | None = None
    is_create: bool = False


class Answer(NamedTuple):
    """A whole response. headers: by name, whatever the case of its letters; body: or `into`."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSentError(Exception):
    """There was no connection, so that the store cannot know of the request."""


class LostError(Exception):
    """No whole response came: the store may have carried out the request."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        inner = (error, *error.args)  # urllib3 wraps some
        self.is_late = any(isinstance(each, TimeoutError | ReadTimeoutError) for each in inner)


class NotMadeError(Exception):
    """The client cannot make the request: nothing was sent."""


class RefusalError(Exception):
    """A whole response with a status that was not expected."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Way(NamedTuple):
    """How requests reach a store. verify: check certificates, by a file or folder of authorities if
    one is named; certificate: of the client, one file, or one with its key."""

    connect_s: float = CONNECT_S
    read_s: float = READ_S
    verify: bool | str = True
    certificate: str | tuple[str, str] | None = None
    proxies: Mapping[str, str] = {}  # never mutated
    socket_options: Sequence[tuple[int, int, int]] = ()


class HttpClient:
    """Connections of one process, for any number of threads."""

    def __init__(self, way: Way) -> None:
        quiet("urllib3")  # it logs the targets of requests, some with a signature
        if isinstance(way.verify, str) and not os.path.exists(way.verify):
            raise UsageError(
                f"the certificates of authorities are to be in {way.verify!r}, which is not there: "
                "mend verify in client_kwargs of storage_options, or AWS_CA_BUNDLE or "
                "REQUESTS_CA_BUNDLE in the environment"
            )
        self._way = way
        self._is_absolute = bool(way.proxies.get("http"))
        self._pools: dict[str, Any] = {}

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        into: memoryview | None = None,
    ) -> Answer:
        """The whole response; NotSentError or LostError. url: encoded; into: see `Request`."""
        until = time.monotonic() + REQUEST_S
        scheme, _, rest = url.partition("://")
        host, slash, target = rest.partition("/")
        origin = f"{scheme}://{host}"
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = connections(self._way, scheme).connection_from_url(origin)
        try:
            response = pool.urlopen(
                method,
                url if self._is_absolute and scheme == "http" else slash + target,
                body=body or None,
                headers=headers,
                retries=_ONCE,
                redirect=False,
                assert_same_host=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                data = _read(response, until, into)
            except BaseException:
                response.close()
                raise
        except (HTTPError, OSError) as error:
            raise LostError(error) from error
        return Answer(response.status, response.headers, data)


class HttpStore(ObjectStore):
    """A store whose requests this client sends. `connection().client` is an account, whose `send`
    signs and sends one request to its `endpoint`, which is its provider's own or not."""

    account: Any  # makes one of the options
    noun = "bucket"
    missing = "endpoint"  # what may be wrong where there is no connection
    address: str  # for messages: what decides where requests go
    gets, deletes = "GET", "DELETE"  # the kinds of requests for an object and for its end
    got_by: Mapping[str, str] = {}  # the query with which it is got; never mutated
    busy = frozenset({408, 409, 429})  # besides the statuses of a server's own failure

    def connect(self) -> Any:
        return self.account(self.given())

    def given(self) -> dict[str, Any]:
        return {name: each for name, each in super().given().items() if name not in _OF_FILES}

    @property
    def where(self) -> str:
        """The endpoint that requests go to, without secrets."""
        return public_endpoint(self.connection().client.endpoint)

    @property
    def identity(self) -> str:
        own = self.connection().client.is_providers
        return self.bucket_url + ("" if own else f" at {self.where}")

    @abstractmethod
    def located(self, request: Request) -> Request:
        """The request with its place."""

    def ask(self, request: Request) -> Answer:
        """The response to one request, if its status is below 300 or expected."""
        return self.ask_for(request, lambda answer: answer)

    def ask_for(self, request: Request, read: Callable[[Answer], T]) -> T:
        """What a response says; the request is repeated if that cannot be read. [ST5]"""

        def send(account: Any) -> T:
            answer = account.send(self.located(request))
            self.tell_time(answer.headers.get("Date"))
            if answer.status >= 300 and answer.status not in request.expected:
                raise RefusalError(answer)
            try:
                return read(answer)
            except (LookupError, TypeError, ValueError, OverflowError) as error:
                raise TransientError(
                    f"{self.display_name(request.key)}: the response is malformed "
                    f"({type(error).__name__}: {error})",
                    sent=True,
                ) from None

        return self.request(request.key, send, is_create=request.is_create)

    def read(
        self, key: str, start: int | None, end: int | None, into: memoryview | None = None
    ) -> tuple[bytes, int]:
        is_whole = start is None and end is None
        last = "" if end is None else end - 1
        headers = {} if is_whole else {"Range": f"bytes={start or 0}-{last}"}
        data, size_bytes = self._fetch(key, headers, into)
        # some servers answer a range with the whole object
        return (data[start or 0 : end] if len(data) == size_bytes else data), size_bytes

    def tail(self, key: str) -> tuple[bytes, int]:
        return self._fetch(key, {"Range": f"bytes=-{TAIL_BYTES}"})

    def remove(self, key: str) -> None:
        self.ask(Request(self.deletes, key))

    def _fetch(
        self, key: str, headers: Mapping[str, str], into: memoryview | None = None
    ) -> tuple[bytes, int]:
        """The requested bytes, and the length of the whole object; nothing if it ends before."""

        def read(answer: Answer) -> tuple[bytes, int]:
            if answer.status == 416:
                return b"", 0
            total = answer.headers.get("Content-Range", f"/{len(answer.body)}")
            return answer.body, int(total.rpartition("/")[2])

        request = Request(self.gets, key, self.got_by, headers, expected=(416,), into=into)
        return self.ask_for(request, read)

    def translate(self, error: Exception, shown: str) -> Exception:
        if isinstance(error, RefusalError):
            self.connection().has_answered = True
            return self._refused(error.answer, shown)
        if isinstance(error, NotSentError):
            text = f"no connection to {self.where}; check the {self.missing} and the network"
            return TransientError(f"{shown}: {text}", sent=False)
        if isinstance(error, LostError):
            text = f"the connection to {self.where} failed ({error})"
            if error.is_late:
                text = f"no answer from {self.where} in time"
            return TransientError(f"{shown}: {text}", sent=True)
        if isinstance(error, NoCredentialsError):
            return self.no_credentials(shown, error)
        if isinstance(error, NotMadeError):
            return StoreError(f"{shown}: the client refuses the request: {error}")
        if isinstance(error, TransientError):
            return error
        return ClientFailedError(
            f"{shown}: the client refuses the request ({type(error).__name__}: {error})"
        )

    def _refused(self, answer: Answer, shown: str) -> Exception:
        """The error for a response, in the same words for all stores."""
        status, (code, text) = answer.status, _code(answer)
        code = code or str(status)
        said = f"HTTP {status}" if code == str(status) else f"HTTP {status}, {code}"
        meaning = _MEANINGS.get(code)
        if meaning == "nowhere" or (status == 404 and "bucket does not exist" in text):
            where = f"check the name and the {self.missing}, or create it"
            return StoreError(f"{shown}: there is no {self.noun} {self._bucket}; {where}")
        if meaning == "clock":
            text = f"this machine's clock and the store's are too far apart ({code}); set the clock"
            return StoreDeniedError(f"{shown}: {text}")
        if meaning == "elsewhere" or 300 <= status < 400:
            # of a location its host only: the rest may hold a signature
            url = public_endpoint(answer.headers.get("Location", ""))
            host = url.partition("://")[2].partition("/")[0][:100]
            text = (
                f"{self.noun} {self._bucket} is in another region, or at another address ({code}"
                f"{f', to {host}' if host else ''}), and no redirect is followed"
            )
            return StoreError(f"{shown}: {text}. {self.address}")
        if status == 400 and meaning == "payer":
            text = "the requester pays for this bucket; give requester_pays=True in storage_options"
            return UsageError(f"{shown}: {text}")
        if status == 404:
            return FileNotFoundError(shown)
        if status == 412 or meaning == "taken":
            return TakenError(f"{shown}: the name is taken ({said})")
        if status == 501:
            return NotOfferedError(f"{shown}: the store does not know this request ({said})")
        if status in self.busy or status >= 500 or status < 100 or meaning == "busy":
            return TransientError(f"{shown}: the store is busy or failed ({said})", sent=True)
        if status == 401 or meaning == "login":
            text = f"the store does not accept the credentials ({said}). {self.credentials}"
            return StoreError(f"{shown}: {text}")
        if status == 403:
            advice = "these credentials may not do this; spec/stores.md lists what is needed"
            return StoreDeniedError(f"{shown}: access denied ({code}): {advice}")
        return StoreError(f"{shown}: refused by the store ({said}{f': {text}' if text else ''})")


def quiet(library: str) -> None:
    """At DEBUG it logs secrets. A level of its own keeps that from a root logger at DEBUG; users
    who set the level of this logger ask for it. [SE1]"""
    log = logging.getLogger(library)
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def query_of(values: Mapping[str, str]) -> str:
    """The query of a URL, percent-encoded as every signature has it."""
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())


def none_left(scheme: str, options: Mapping[str, Any]) -> None:
    """UsageError for options that nothing was made of."""
    if options:
        raise UsageError(f"{scheme}:// takes no option {', '.join(sorted(map(str, options)))}")


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


def _read(response: Any, until: float, into: memoryview | None) -> Any:
    """The body, as bytes, or in `into`; an error of urllib3 if less arrives than was announced."""
    pieces: list[bytes] = []
    at = 0
    fits = response.status in (200, 206) and into and response.length_remaining == len(into)
    while piece := response.read1(_PIECE):
        if fits:
            into[at : at + len(piece)] = piece  # type: ignore[index]  # it is not None
            at += len(piece)
        else:
            pieces.append(piece)
        if time.monotonic() > until:
            raise TimeoutError
    if fits:
        return into
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Response(http.client.HTTPResponse):
    """A response whose head arrived whole, and whose body has a length: the standard library takes
    what was cut off for the end of either."""

    def begin(self) -> None:
        file = self.fp
        lines: Any = _Lines(file)
        self.fp = lines
        super().begin()
        if self.fp is lines:
            self.fp = file
        if lines.last.strip(b"\r\n") or not lines.last:
            raise http.client.HTTPException("the head of the response is cut off")
        if self.length is None and not self.chunked and self.status < 300:
            raise http.client.HTTPException("the response has no length")


class _Lines:
    """The lines of a file; the last one is remembered."""

    def __init__(self, file: Any) -> None:
        self.file, self.last = file, b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self.file.readline(limit)
        return self.last

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class _Sending:
    """A connection that tells whether anything was sent, sends what is small in one piece, and a
    large body in any time that the network needs. [ST5]"""

    response_class: Any = _Response
    sock: Any
    _held: bytearray | None = None  # the head of a request that is being made

    def connect(self) -> None:
        """With a proxy's tunnel and the handshake of TLS."""
        held, self._held = self._held, None
        try:
            super().connect()  # type: ignore[misc]  # beside one of urllib3's connections
        except Exception as error:
            raise NotSentError(type(error).__name__) from error
        self._held = held

    def request(self, *args: Any, **settings: Any) -> None:
        self._held = bytearray()
        try:
            super().request(*args, **settings)  # type: ignore[misc]  # beside one of urllib3's
        finally:
            held, self._held = self._held, None
        if held:
            self.send(held)

    def send(self, data: Any) -> None:
        """Limited by the time without progress; `sendall` limits the whole."""
        if self.sock is None:
            self.connect()
        if self._held is not None:
            self._held += data
            if len(self._held) < _PIECE:
                return
            data, self._held = self._held, bytearray()
        until = time.monotonic() + REQUEST_S
        view = memoryview(data)
        while view:
            if (left := until - time.monotonic()) <= 0:
                raise TimeoutError
            self.sock.settimeout(min(READ_S, left))
            view = view[self.sock.send(view[:_PIECE]) :]


class _Plain(_Sending, HTTPConnection):
    pass


class _Secure(_Sending, HTTPSConnection):
    pass


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Secure


def from_environment(url: str) -> dict[str, str]:
    """The proxies that the environment names for the host of this URL."""
    host = urlsplit(url).hostname or ""
    return {} if proxy_bypass(host) else getproxies()


def connections(way: Way, scheme: str) -> urllib3.PoolManager:
    proxy = way.proxies.get(scheme)
    settings: dict[str, Any] = {
        "maxsize": _KEPT,
        "timeout": urllib3.Timeout(connect=way.connect_s, read=way.read_s),
    }
    if scheme == "https":
        settings["ssl_context"] = _context(way)
    if way.socket_options:
        settings["socket_options"] = [
            *HTTPConnection.default_socket_options,
            *way.socket_options,
        ]
    if not proxy:
        found = urllib3.PoolManager(**settings)
    else:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        user, _, password = parts.netloc.rpartition("@")[0].partition(":")
        login = f"{unquote(user)}:{unquote(password)}" if user else None
        found = urllib3.ProxyManager(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            proxy_headers=urllib3.make_headers(proxy_basic_auth=login) if login else None,
            **settings,
        )
    found.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
    return found


def _context(way: Way) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if isinstance(way.verify, str):
        is_folder = os.path.isdir(way.verify)
        context = ssl.create_default_context(
            capath=way.verify if is_folder else None, cafile=None if is_folder else way.verify
        )
    elif not way.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if way.certificate:
        pair = [way.certificate] if isinstance(way.certificate, str) else way.certificate
        context.load_cert_chain(*pair)
    return context

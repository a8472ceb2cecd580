"""The HTTP client of all object stores: it sends each request once, to the place that the request
names, and tells a request that was never sent from one that the store may have carried out.
[ST5] [ST13] [ST14]

urllib3 keeps the connections. Nothing is repeated or redirected here; store.retry repeats.
"""

from __future__ import annotations

import http.client
import logging
import os
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from xml.etree import ElementTree

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ReadTimeoutError

from ..errors import StoreError
from .backend import Backend, ClientFailedError
from .retry import TransientError

CONNECT_S = 5.0
READ_S = 20.0  # without a byte, in either direction
REQUEST_S = 300.0  # all of a request and its response
# options of s3fs, gcsfs and adlfs about caches, event loops and file objects, which single requests
# have not
OF_FILES = frozenset(
    {
        "assume_container_exists",
        "asynchronous",
        "block_size",
        "blocksize",
        "cache_regions",
        "cache_timeout",
        "check_connection",
        "consistency",
        "default_block_size",
        "default_cache_type",
        "default_fill_cache",
        "default_location",
        "fixed_upload_size",
        "listings_expiry_time",
        "local_expiry_check",
        "loop",
        "max_concurrency",
        "max_paths",
        "requests_timeout",
        "secure_serialize",
        "skip_instance_cache",
        "socket_timeout",
        "timeout",
        "use_listings_cache",
        "version_aware",
    }
)
_KEPT = 64  # connections to one host
_PIECE = 1024 * 1024
_NAMESPACE = re.compile(rb"""\sxmlns=("[^"]*"|'[^']*')""")


class Answer(NamedTuple):
    """A whole response. headers: by name, whatever the case of its letters."""

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
        # At DEBUG it logs the targets of requests, some with a signature. A level of its own keeps
        # that from a root logger at DEBUG; whoever sets the level of "urllib3" has asked for it.
        log = logging.getLogger("urllib3")
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)
        self._way = way
        self._is_absolute = bool(way.proxies.get("http"))
        self._pools: dict[str, Any] = {}

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """The whole response; NotSentError or LostError. url: percent-encoded."""
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
                retries=False,
                redirect=False,
                assert_same_host=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                data = _read(response, until)
            except BaseException:
                response.close()
                raise
        except (HTTPError, OSError) as error:
            raise LostError(error) from error
        return Answer(response.status, response.headers, data)


class HttpBackend(Backend):
    """A store whose requests this client sends. `connection().client` knows how to authorize
    them."""

    missing = "endpoint"  # what may be wrong where there is no connection

    @property
    def where(self) -> str:
        """The host that requests go to, for messages."""
        raise NotImplementedError

    def refused(self, answer: Answer, shown: str) -> Exception:
        """The error for a response."""
        raise NotImplementedError

    def told(self, answer: Answer, expected: Sequence[int] = ()) -> Answer:
        """The response, if its status is below 300 or expected."""
        self.tell_time(answer.headers.get("Date"))
        if answer.status >= 300 and answer.status not in expected:
            raise RefusalError(answer)
        return answer

    def document(self, answer: Answer, key: str, root: str) -> ElementTree.Element:
        """The document in a response, if its root has this name: a proxy's page must not pass for
        an empty list."""
        found = parsed(answer.body)
        if found is not None and found.tag == root:
            return found
        if found is not None and found.tag == "Error":  # with a status of success
            raise RefusalError(answer._replace(status=500))
        raise self.malformed(key, f"no {root}")

    def malformed(self, key: str, why: object) -> TransientError:
        return TransientError(
            f"{self.display_name(key)}: the response is malformed: {why}", sent=True
        )

    def translate(self, error: Exception, shown: str) -> tuple[Exception, bool]:
        if isinstance(error, RefusalError):
            return self.refused(error.answer, shown), True
        if isinstance(error, NotSentError):
            return TransientError(
                f"{shown}: no connection to {self.where}; check the {self.missing} and the network",
                sent=False,
            ), False
        if isinstance(error, LostError) and error.is_late:
            return TransientError(f"{shown}: no answer from {self.where} in time", sent=True), False
        if isinstance(error, LostError):
            return TransientError(
                f"{shown}: the connection to {self.where} failed ({error})", sent=True
            ), False
        if isinstance(error, StoreError | TransientError | FileNotFoundError):
            return error, False
        return ClientFailedError(
            f"{shown}: the client refuses the request ({type(error).__name__}: {error})"
        ), False


def parsed(body: bytes) -> ElementTree.Element | None:
    """The document without its namespace, or None."""
    try:
        return ElementTree.fromstring(_NAMESPACE.sub(b"", body, count=1))
    except (ElementTree.ParseError, ValueError):
        return None


def text_of(element: ElementTree.Element, name: str) -> str:
    """The text of a part of a document; KeyError if it has none."""
    found = element.findtext(name)
    if found is None:
        raise KeyError(name)
    return found


def _read(response: Any, until: float) -> bytes:
    """The body; an error of urllib3 if less arrives than was announced."""
    pieces: list[bytes] = []
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        if time.monotonic() > until:
            raise TimeoutError
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
    """Connections that go this way."""
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

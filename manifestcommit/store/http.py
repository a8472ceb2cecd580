"""The HTTP client of all object stores, made of urllib3. [ST5] [ST13] [ST14]

A request is sent once, to the place that it names, over a connection that is kept; one that was
never sent is distinguished from one that the store may have carried out. Nothing is repeated or
redirected here; store.object_store repeats.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from functools import cache
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ..errors import UsageError

CONNECT_S = 5.0
READ_S = 20.0  # without a byte, in either direction
REQUEST_S = 300.0  # all of a request and its response
_KEPT = 64  # connections to one host
_PIECE = 1024 * 1024
_PORTS = {"http": 80, "https": 443}


class Answer(NamedTuple):
    """A whole response. headers: by their names in any case; body: or `into`."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoAnswerError(Exception):
    """No whole response came, and the same request may get one later. sent: the store may have
    carried out this one; else there was no connection, so that it cannot know of it."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class NotMadeError(Exception):
    """The client cannot make the request: nothing was sent."""


class Way(NamedTuple):
    """How requests reach a store. verify: check certificates, by a file or folder of authorities if
    one is named; certificate: of the client, one file, or one with its key."""

    connect_s: float = CONNECT_S
    read_s: float = READ_S
    verify: bool | str = True
    certificate: str | tuple[str, str] | None = None
    proxies: Mapping[str, str] = {}  # never mutated


class HttpClient:
    """Connections of one process, for any number of threads."""

    def __init__(self, way: Way) -> None:
        if isinstance(way.verify, str) and not os.path.exists(way.verify):
            raise UsageError(
                f"the certificates of authorities are to be in {way.verify!r}, which is not there: "
                "mend verify in client_kwargs of storage_options, or AWS_CA_BUNDLE or "
                "REQUESTS_CA_BUNDLE in the environment"
            )
        import urllib3.exceptions as theirs  # late: of an extra

        quiet("urllib3")
        self._way = way
        self._lost = (OSError, HTTPException, theirs.HTTPError)
        self._late = (TimeoutError, theirs.ReadTimeoutError)
        self._pools: dict[str, Any] = {}

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        into: memoryview | None = None,
    ) -> Answer:
        """The whole response; NoAnswerError or NotMadeError. url: encoded; into: takes the body if
        that has its length."""
        until = time.monotonic() + REQUEST_S
        scheme, _, rest = url.partition("://")
        place = f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"
        sent = {"Host": host_of(place), "Accept-Encoding": "identity", **headers}
        if body or method in ("PUT", "POST"):
            sent["Content-Length"] = str(len(body))
        _check(sent)
        pools = self._pools.get(scheme) or self._pools.setdefault(scheme, self._to(scheme))
        options = {"retries": False, "preload_content": False}  # nor are redirects followed then
        try:
            response = pools.urlopen(
                method, url, headers=sent, body=_pieces(body, until) or None, **options
            )
            try:
                data = _read(response, until, into)
            except BaseException:
                response.close()
                raise
        except _NotConnectedError as error:
            raise NoAnswerError(f"no connection to {place}", sent=False) from error.__cause__
        except self._lost as error:
            cause = [each for each in (error, *error.args) if isinstance(each, Exception)][-1]
            text = f"the connection to {place} failed ({type(cause).__name__})"
            if isinstance(cause, self._late):
                text = f"no answer from {place} in time"
            raise NoAnswerError(text, sent=True) from error
        return Answer(response.status, response.headers, data)

    def _to(self, scheme: str) -> Any:
        """The connections to all hosts of one scheme, through its proxy if it has one."""
        import urllib3

        way = self._way
        timeout = urllib3.Timeout(connect=way.connect_s, read=way.read_s)
        more: dict[str, Any] = {"maxsize": _KEPT, "timeout": timeout}
        if scheme == "https":
            more["ssl_context"] = _context(way)
        if proxy := way.proxies.get(scheme):
            address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            login, _, place = address.netloc.rpartition("@")
            headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else None
            more |= {"proxy_headers": headers, "proxy_ssl_context": _context(way)}
            pools: Any = urllib3.ProxyManager(f"{address.scheme}://{place}", **more)
        else:
            pools = urllib3.PoolManager(**more)
        pools.pool_classes_by_scheme = {
            "http": _kind(urllib3.HTTPConnectionPool, way.read_s),
            "https": _kind(urllib3.HTTPSConnectionPool, way.read_s),
        }
        return pools


class _NotConnectedError(Exception):
    """There was no connection, a proxy's tunnel and the handshake of TLS included."""


class _Response(HTTPResponse):
    """urllib3 takes a head that is cut off in a name for whole, and logs its URL."""

    def begin(self) -> None:
        super().begin()
        if self.headers.get_payload():
            raise HTTPException("a line in the head of the response is no header")


def _kind(pool: Any, read_s: float) -> Any:
    """A kind of pool, whose connections say whether they failed before anything was sent."""

    class Connection(pool.ConnectionCls):  # type: ignore[misc]  # it depends on the argument
        response_class = _Response

        def connect(self) -> None:
            try:
                super().connect()
            except Exception as error:
                raise _NotConnectedError from error
            self.sock.settimeout(read_s)  # of each piece that is sent

    return type("Pool", (pool,), {"ConnectionCls": Connection})


def _context(way: Way) -> ssl.SSLContext:
    named = way.verify if isinstance(way.verify, str) else None
    file, folder = (None, named) if named and os.path.isdir(named) else (named, None)
    context = ssl.create_default_context(capath=folder, cafile=file)
    if not way.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if way.certificate:
        pair = [way.certificate] if isinstance(way.certificate, str) else way.certificate
        context.load_cert_chain(*pair)
    return context


def _check(headers: Mapping[str, str]) -> None:
    """A line break would begin another header, or another request."""
    for value in headers.values():
        if "\n" in value or "\r" in value or (not value.isascii() and max(value) > "\xff"):
            raise NotMadeError("a header has a line break, or a character beyond Latin-1")


def _pieces(body: bytes, until: float) -> bytes | Iterator[memoryview]:
    """The body, a large one in pieces, each of which has the whole time of one."""
    if len(body) <= _PIECE:
        return body

    def pieces() -> Iterator[memoryview]:
        for start in range(0, len(body), _PIECE):
            _check_time(until)
            yield memoryview(body)[start : start + _PIECE]

    return pieces()


def _check_time(until: float) -> None:
    if time.monotonic() > until:
        raise TimeoutError


def _read(response: Any, until: float, into: memoryview | None) -> Any:
    """The body, as bytes, or in `into`; an error if it is not whole. Where there is neither a
    length nor chunks, it is what came until the connection ended, whether that was its end or not.
    """
    pieces: list[bytes] = []
    at, left = 0, response.length_remaining
    if left is None and not response.chunked and response.status < 300:
        raise HTTPException("the response has no length")
    fits = response.status in (200, 206) and into and left == len(into)
    while piece := response.read1(_PIECE):
        if fits:
            into[at : at + len(piece)] = piece  # type: ignore[index]  # it is not None
            at += len(piece)
        else:
            pieces.append(piece)
        _check_time(until)
    if fits:
        return into
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def quiet(name: str) -> None:
    """At DEBUG libraries log what they sign, tokens and addresses with signatures. A level of its
    own keeps that from a root logger at DEBUG; users who set this logger's ask for it. [SE1]"""
    log = logging.getLogger(name)
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


@cache
def host_of(url: str) -> str:
    """As the header Host has it."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return host if parts.port in (None, _PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


def from_environment(url: str) -> dict[str, str]:
    """The proxies that the environment names for the host of this URL."""
    return {} if proxy_bypass(urlsplit(url).netloc.rpartition("@")[2]) else getproxies()

"""The HTTP client of all object stores, made of urllib3. [ST5] [ST13] [ST14]

A request is sent once, to the place that it names, over a connection that is kept; one that was
never sent is distinguished from one that the store may have carried out. Nothing is repeated or
redirected here; store.object_store repeats.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import cache, cached_property
from http.client import HTTPException, HTTPResponse
from io import BufferedReader, RawIOBase
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ..errors import UsageError

CONNECT_S = 5.0
READ_S = 20.0  # without a byte, in either direction
REQUEST_S = 300.0  # all of a request and its response
_KEPT = 256  # hosts, and connections to each; urllib3 warns of more threads than that
_PIECE = 1024 * 1024
_until: ContextVar[float] = ContextVar("until")  # when the time of this request is over


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
        self._lost = (OSError, theirs.HTTPError)
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
        _until.set(time.monotonic() + REQUEST_S)
        scheme, _, rest = url.partition("://")
        place = f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"
        try:
            sent = {"Host": host_of(place), "Accept-Encoding": "identity", **headers}
            # a line break would begin another header, or another request
            if " " in place or re.search(b"[\r\n]", "".join(sent.values()).encode("latin-1")):
                raise ValueError
            pools = self._pools.get(scheme) or self._pools.setdefault(scheme, self._to(scheme))
        except (LookupError, TypeError, ValueError):  # whose text may hold a password
            text = "a header, a timeout, or the address of a store or a proxy is malformed"
            raise NotMadeError(text) from None
        if body or method in ("PUT", "POST"):
            sent["Content-Length"] = str(len(body))
        try:
            response = pools.urlopen(
                method,
                url,
                headers=sent,
                body=_pieces(body) if body else None,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,  # lengths, ranges and digests are of what is stored
            )
            try:
                data = _read(response, into)
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
        more: dict[str, Any] = {"num_pools": _KEPT, "maxsize": _KEPT, "timeout": timeout}
        if scheme == "https":
            more["ssl_context"] = self._context
        if proxy := way.proxies.get(scheme):
            address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            login, _, place = address.netloc.rpartition("@")
            headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else None
            more |= {"proxy_headers": headers, "proxy_ssl_context": self._context}
            pools: Any = urllib3.ProxyManager(f"{address.scheme}://{place}", **more)
        else:
            pools = urllib3.PoolManager(**more)
        pools.pool_classes_by_scheme = {
            "http": _kind(urllib3.HTTPConnectionPool, way.read_s),
            "https": _kind(urllib3.HTTPSConnectionPool, way.read_s),
        }
        return pools

    @cached_property
    def _context(self) -> ssl.SSLContext:
        way = self._way
        named = way.verify if isinstance(way.verify, str) else None
        file, folder = (None, named) if named and os.path.isdir(named) else (named, None)
        try:
            context = ssl.create_default_context(capath=folder, cafile=file)
            if own := way.certificate:
                context.load_cert_chain(*([own] if isinstance(own, str) else own))
        except OSError as error:
            raise NotMadeError(f"a certificate cannot be read: {error}") from None
        if not way.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class _NotConnectedError(Exception):
    """There was no connection, a proxy's tunnel and the handshake of TLS included."""


class _Timely(RawIOBase):
    """What a connection receives, until the request's time is over: a server that drips would
    start the time of a read again with each byte."""

    def __init__(self, source: Any) -> None:
        self._source, self.has_ended = source, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        _check_time()
        count: int | None = self._source.raw.readinto(buffer)
        self.has_ended = count == 0
        return count

    def close(self) -> None:
        super().close()
        self._source.close()


class _Response(HTTPResponse):
    """Its head is whole, of the request's end, and says where the body ends."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fp = BufferedReader(_Timely(self.fp))

    def begin(self) -> None:
        super().begin()
        is_cut = self.fp.raw.has_ended  # type: ignore[attr-defined]  # of _Timely
        if is_cut or (self.headers.get_payload() and not self.headers.is_multipart()):
            raise HTTPException("the head is cut off, or has a line that is no header")
        if self.status < 200:
            raise HTTPException("another response follows")  # and would be the next request's
        if self.length is None and not self.chunked and self.status < 300:
            raise HTTPException("the response has no length")
        self.headers.defects.clear()  # urllib3 would log them, with the URL


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
            self.is_verified = True  # as far as the caller wants it: urllib3 would warn

        def request(self, *args: Any, **options: Any) -> None:
            if self.sock is not None:
                self.timeout = read_s  # as above: urllib3 has set that of a connect
            super().request(*args, **options)

    return type("Pool", (pool,), {"ConnectionCls": Connection})


def _pieces(body: bytes) -> Iterator[memoryview]:
    """The body in pieces, each of which has the whole time of one."""
    for start in range(0, len(body), _PIECE):
        _check_time()
        yield memoryview(body)[start : start + _PIECE]


def _check_time() -> None:
    if time.monotonic() > _until.get():
        raise TimeoutError


def _read(response: Any, into: memoryview | None) -> Any:
    """The body, as bytes, or in `into`; an error if it is not whole. Where there is neither a
    length nor chunks, it is what came until the connection ended, whether that was its end or not.
    """
    pieces: list[bytes] = []
    at, left = 0, response.length_remaining
    fits = response.status in (200, 206) and into and left == len(into)
    while piece := response.read1(_PIECE):
        if fits:
            into[at : at + len(piece)] = piece  # type: ignore[index]  # it is not None
            at += len(piece)
        else:
            pieces.append(piece)
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
    from urllib3.util import parse_url

    parts = parse_url(url)
    is_usual = parts.port == {"http": 80, "https": 443}[parts.scheme or ""]
    return str(parts.host if is_usual else parts.netloc)


def from_environment(url: str) -> dict[str, str]:
    """The proxies that the environment names for the host of this URL."""
    return {} if proxy_bypass(urlsplit(url).netloc.rpartition("@")[2]) else getproxies()

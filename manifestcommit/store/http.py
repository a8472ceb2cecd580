"""The HTTP client of all object stores. [ST5] [ST13] [ST14]

A request is sent once, to the place that it names, over a connection that is kept; one that was
never sent is distinguished from one that the store may have carried out. Nothing is repeated or
redirected here; store.object_store repeats. The standard library connects, through proxies and
TLS; heads are written and read here, because its parser takes longer than all the rest of a small
request, and takes a head or a body that is cut off for a whole one.
"""

from __future__ import annotations

import base64
import os
import re
import select
import socket
import ssl
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ..errors import UsageError

CONNECT_S = 5.0
READ_S = 20.0  # without a byte, in either direction
REQUEST_S = 300.0  # all of a request and its response
_KEPT = 64  # connections to one host
_PIECE = 1024 * 1024
_LINE_BYTES, _MOST_LINES = 64 * 1024, 200  # of the head of a response
_PORTS = {"http": 80, "https": 443}
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?", re.ASCII)
_FIELD = re.compile(r"([!#$%&'*+.^_`|~\w-]+):[ \t]*(.*?)[ \t]*", re.ASCII)


class Answer(NamedTuple):
    """A whole response. headers: by their names in lower case; body: or `into`."""

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
        self._way = way
        named = (scheme for scheme in _PORTS if way.proxies.get(scheme))
        self._proxies = {scheme: _Proxy(way.proxies[scheme]) for scheme in named}
        self._kept: dict[str, list[HTTPConnection]] = {}
        weakref.finalize(self, _close, self._kept)

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
        place, slash, target = rest.partition("/")
        place = place.rpartition("@")[2]
        head = self._head(method, scheme, place, slash + target, headers, body)
        kept = self._kept.setdefault(f"{scheme}://{place}", [])
        connection = kept.pop() if kept else None
        if connection is not None and _has_ended(connection.sock):
            connection.close()
            connection = None
        if connection is None:
            connection = self._connected(scheme, place)
        is_kept = False
        try:
            # what is small goes in one piece
            for data in (head + body,) if len(body) < _PIECE else (head, body):
                self._send(connection.sock, data, until)
            connection.sock.settimeout(self._way.read_s)
            with _Response(connection.sock, method) as response:
                response.begin()
                data = _read(response, until, into)
            is_kept = not response.will_close and len(kept) < _KEPT
        except (OSError, HTTPException) as error:
            text = f"the connection to {scheme}://{place} failed ({type(error).__name__})"
            if isinstance(error, TimeoutError):
                text = f"no answer from {scheme}://{place} in time"
            raise NoAnswerError(text, sent=True) from error
        finally:
            if is_kept:
                kept.append(connection)
            else:
                connection.close()
        return Answer(response.status, response.fields, data)

    def _head(
        self,
        method: str,
        scheme: str,
        place: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> bytes:
        sent = {"Host": host_of(f"{scheme}://{place}"), "Accept-Encoding": "identity", **headers}
        proxy = self._proxies.get(scheme)
        if proxy is not None and scheme == "http":  # there is no tunnel
            target = f"{scheme}://{place}{target}"
            sent |= proxy.login
        if body or method in ("PUT", "POST"):
            sent["Content-Length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {sent[name]}" for name in sent)]
        if " " in target or any("\n" in line or "\r" in line for line in lines):
            raise NotMadeError("a header has a line break, or the address has a space")
        try:
            return "\r\n".join([*lines, "", ""]).encode("latin-1")
        except UnicodeEncodeError:
            raise NotMadeError("a header has a character beyond Latin-1") from None

    def _connected(self, scheme: str, place: str) -> HTTPConnection:
        """A new connection, with a proxy's tunnel and the handshake of TLS."""
        proxy = self._proxies.get(scheme)
        first, limit_s = proxy.place if proxy else place, self._way.connect_s
        context = self._context if scheme == "https" else None
        try:
            if context is None:
                connection = HTTPConnection(first, timeout=limit_s)
            else:
                connection = HTTPSConnection(first, timeout=limit_s, context=context)
                if proxy:
                    connection.set_tunnel(place, headers=proxy.login)
            connection.connect()
        except Exception as error:
            raise NoAnswerError(f"no connection to {scheme}://{place}", sent=False) from error
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def _send(self, connected: socket.socket, data: bytes, until: float) -> None:
        """Limited by the time without progress; `sendall` limits the whole."""
        view = memoryview(data)
        while view:
            if (left := until - time.monotonic()) <= 0:
                raise TimeoutError
            connected.settimeout(min(self._way.read_s, left))
            view = view[connected.send(view[:_PIECE]) :]

    @cached_property
    def _context(self) -> ssl.SSLContext:
        way = self._way
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


def _close(kept: Mapping[str, Sequence[HTTPConnection]]) -> None:
    for connections in kept.values():
        for connection in connections:
            connection.close()


class _Proxy:
    """place: its host and port; login: the header with which it is used."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if (scheme := parts.scheme) != "http":
            raise UsageError(
                f"a proxy is reached by http://, and this one's address begins with {scheme}://: "
                "give the address of one that takes requests, or tunnels, without TLS of its own"
            )
        login, _, self.place = parts.netloc.rpartition("@")
        self.login: dict[str, str] = {}
        if login:
            named = base64.b64encode(unquote(login).encode()).decode()
            self.login["Proxy-Authorization"] = f"Basic {named}"


class _Response(HTTPResponse):
    """A response whose head arrived whole, and whose body has a length: the standard library takes
    what was cut off for the end of either, and reads heads as it reads mail."""

    def __init__(self, connected: socket.socket, method: str) -> None:
        super().__init__(connected, method=method)
        self._is_of_head = method == "HEAD"

    def begin(self) -> None:
        version, self.status = "", 100
        while self.status < 200:  # others come before the response
            first, *lines = self._head()
            found = _STATUS.fullmatch(first)
            fields = [_FIELD.fullmatch(line) for line in lines]
            if found is None or None in fields:
                raise HTTPException("it is no response of HTTP")
            version, self.status = found[1], int(found[2])
        self.fields = {field[1].lower(): field[2] for field in fields if field}
        self.will_close = version == "0" or self.fields.get("connection", "").lower() == "close"
        self.chunked = self.fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        has_none = self._is_of_head or self.status in (204, 304)
        length = "0" if has_none else self.fields.get("content-length", "")
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        if self.length is None and not self.chunked:
            self.will_close = True
            if self.status < 300:
                raise HTTPException("the response has no length")

    def _head(self) -> list[str]:
        """Its lines, before the empty one."""
        lines: list[str] = []
        while (line := self.fp.readline(_LINE_BYTES)) != b"\r\n":
            if not line.endswith(b"\r\n") or len(lines) > _MOST_LINES:
                raise HTTPException("the head of the response is cut off")
            lines.append(line[:-2].decode("latin-1"))
        return lines or [""]


def _read(response: _Response, until: float, into: memoryview | None) -> Any:
    """The body, as bytes, or in `into`; an error if less arrives than was announced."""
    pieces: list[bytes] = []
    at, left = 0, response.length
    fits = response.status in (200, 206) and into and left == len(into)
    # the standard library counts in some of its releases only
    while piece := (
        response.read1(_PIECE) if left is None else response.fp.read1(min(left, _PIECE))
    ):
        left = left and left - len(piece)
        if fits:
            into[at : at + len(piece)] = piece  # type: ignore[index]  # it is not None
            at += len(piece)
        else:
            pieces.append(piece)
        if time.monotonic() > until:
            raise TimeoutError
    if left:
        raise HTTPException("the body of the response is cut off")
    if fits:
        return into
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _has_ended(connected: socket.socket) -> bool:
    """Whether the server ended it: between two responses there is nothing else to read."""
    asked = select.poll()
    asked.register(connected, select.POLLIN)
    return bool(asked.poll(0))


@cache
def host_of(url: str) -> str:
    """As the header Host has it."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return host if parts.port in (None, _PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


def from_environment(url: str) -> dict[str, str]:
    """The proxies that the environment names for the host of this URL."""
    return {} if proxy_bypass(urlsplit(url).netloc.rpartition("@")[2]) else getproxies()

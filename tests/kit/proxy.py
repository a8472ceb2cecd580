"""An HTTP proxy between an S3 client and an S3 server that loses, delays, doubles and falsifies requests as scripted.

Bytes pass unchanged in both directions, Host and percent-encoding included, so that signatures stay valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http.client
import socket
import struct
import threading
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, Self
from urllib.parse import unquote, urlsplit

import msgspec

Kind = Literal[
    "request_dropped",  # never reaches the server; no answer: the client hangs until it gives up
    "request_reset",  # never reaches the server; the connection is reset at once
    "answer_dropped",  # carried out; no answer: the client hangs until it gives up
    "answer_closed",  # carried out; the connection is closed without an answer
    "answer_cut",  # carried out; half of the answer, then closed
    "answer_delayed",  # carried out; the answer comes after delay_s
    "status_after",  # carried out; the client is told `status`
    "status_before",  # not carried out; the client is told `status`
    "lands_late",  # carried out delay_s after the client's connection has ended
    "doubled",  # carried out twice, one after the other; the client gets the second answer
]
_CODES = {400: "RequestTimeout", 403: "AccessDenied", 404: "NoSuchKey", 409: "ConditionalRequestConflict"}
_CODES |= {412: "PreconditionFailed", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}
_HANG_S = 120.0  # how long a client is left without an answer
_LIMIT = 1 << 20  # the longest head; bodies have no limit but memory


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one request. delay_s: `math.inf` for lands_late means "not before settle(now=True)"."""

    kind: Kind
    delay_s: float = 0.0
    status: int = 0
    code: str = ""  # of the error body; by default S3's usual one for the status. A status of 200 with an error body is S3's, too.
    hang: bool = True  # lands_late: False closes the connection at once
    cut: Literal["head", "body"] = "body"  # an answer without a body is cut in its head

    def __post_init__(self) -> None:
        if (self.kind in ("status_before", "status_after")) != (self.status >= 200):
            raise ValueError(f"{self.kind} with status {self.status}")
        if self.kind == "answer_delayed" and self.delay_s <= 0:
            raise ValueError("answer_delayed needs a delay_s")


class Request(msgspec.Struct, kw_only=True):
    """One request, numbered in the order in which their last bytes came. Times are time.monotonic()."""

    number: int  # from 1, since the start or the last reset()
    method: str
    path: str  # as sent, percent-encoded
    query: str  # as sent, without the question mark
    body_size: int  # without the framing of chunks
    has_if_none_match: bool
    started: float = msgspec.field(default_factory=time.monotonic)  # when it had come whole
    finished: float | None = None  # when client and server were through with it
    landed: float | None = None  # when the server had answered, the last time
    statuses: tuple[int, ...] = ()  # the server's, one each time that it was carried out
    answer_bytes: int = 0  # the bodies of the server's answers, without the framing of chunks
    answered: int | None = None  # the status of the answer that the client was sent whole
    fault: Fault | None = None

    @property
    def status(self) -> int | None:
        """The server's last status; None if the server never answered."""
        return self.statuses[-1] if self.statuses else None

    @property
    def name(self) -> str:
        """The path, decoded: /bucket/key."""
        return unquote(self.path)


class Rule(msgspec.Struct, kw_only=True):
    """The fault for the first `times` requests that match, or for all of them (None). used: how many there were."""

    match: Callable[[Request], bool]
    fault: Fault
    times: int | None = 1
    used: int = 0


def to(method: str, part: str = "") -> Callable[[Request], bool]:
    """Matches requests of this method whose decoded path contains `part`."""
    return lambda request: request.method == method and part in request.name


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    first: list[str]  # of the first line: method, target, version; or version, status, reason
    head: bytes
    body: bytes  # as it came, chunks and trailers included
    size: int
    headers: dict[str, str]
    kept: bool  # whether the connection outlives this message

    @property
    def status(self) -> int:
        return int(self.first[1])


class FaultProxy:
    """A proxy in a thread of its own. faults: rules, the first that applies wins; or a function that gives a request's fault."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"the upstream is not an http endpoint: {upstream}")
        self._upstream = (parts.hostname, parts.port or 80)
        self._lock = threading.Lock()
        self._seen: list[Request] = []
        self._broken: list[Exception] = []
        self._connections: dict[asyncio.Task[None], StreamWriter] = {}
        self._underway: set[asyncio.Task[_Message | None]] = set()  # to the server, or still to be sent to it
        self.faults: list[Rule] | Callable[[Request], Fault | None] = []

    def __enter__(self) -> Self:
        port: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(port)), name="fault proxy", daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{port.result(timeout=30)}"
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Ends all connections, lands what is still to land, and raises what broke the proxy itself, such as a faulty rule."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._broken and error is None:
            raise RuntimeError(f"the proxy failed {len(self._broken)} times") from self._broken[0]

    @property
    def requests(self) -> list[Request]:
        """Copies of what is known of every request so far."""
        with self._lock:
            return [copy.copy(request) for request in self._seen]

    def reset(self) -> None:
        """Forget requests and faults, and count from 1 again. What is to land late still lands: settle() first."""
        with self._lock:
            self._seen, self.faults = [], []

    def settle(self, *, now: bool = False, timeout_s: float = 60.0) -> None:
        """Waits until nothing is on its way to the server any more; `now` cuts the delays of late requests short. Raises TimeoutError."""
        asyncio.run_coroutine_threadsafe(self._settled(now, timeout_s), self._loop).result()

    async def _run(self, port: Future[int]) -> None:
        self._loop, self._stop, self._release = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_LIMIT, backlog=256)
        port.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for connection, writer in self._connections.items():
            writer.transport.abort()  # a task that never ran closes nothing
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._settled(True, 60.0)
        await server.wait_closed()

    async def _settled(self, now: bool, timeout_s: float) -> None:
        if now:
            self._release.set()
        try:
            if self._underway and (await asyncio.wait(self._underway, timeout=timeout_s))[1]:
                raise TimeoutError(f"requests that the server has not answered: {len(self._underway)}")
        finally:
            self._release.clear()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        client = _Client(reader=reader, writer=writer, gone=asyncio.Event())
        try:
            while await self._answer(await _read_message(reader, continues=writer), client):
                pass
            writer.close()
            await writer.wait_closed()
        except (OSError, EOFError):
            pass  # the client has gone
        except Exception as error:
            self._broken.append(error)
        finally:
            await _end(writer)
            client.gone.set()

    def _record(self, message: _Message) -> Request:
        method, (path, _, query) = message.first[0], message.first[1].partition("?")
        absent = "if-none-match" in message.headers
        with self._lock:
            number, faults = len(self._seen) + 1, self.faults
            request = Request(number=number, method=method, path=path, query=query, body_size=message.size, has_if_none_match=absent)
            self._seen.append(request)
        if callable(faults):
            request.fault = faults(request)
        elif rule := next((rule for rule in faults if rule.used != rule.times and rule.match(request)), None):
            rule.used += 1
            request.fault = rule.fault
        return request

    async def _answer(self, message: _Message, client: _Client) -> bool:
        """Whether the connection goes on."""
        request = self._record(message)
        fault, answer = request.fault, None
        kind = fault.kind if fault else None
        late = self._send(request, message, client) if kind == "lands_late" else None
        if kind == "request_reset":
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
        elif kind not in ("request_dropped", "status_before", "lands_late"):
            answer = await self._send(request, message)
        if fault and (kind == "status_before" or (kind == "status_after" and answer)):
            answer = _error(fault, request)
        if kind in ("request_dropped", "answer_dropped") or (fault and late and fault.hang):
            await client.gives_up(_HANG_S)
        if fault and kind == "answer_delayed" and await client.gives_up(fault.delay_s):
            answer = None
        if not late:
            request.finished = time.monotonic()  # before the client can know
        if answer is None or kind in ("answer_dropped", "answer_closed"):
            return False
        head, body = answer.head, answer.body
        if fault and kind == "answer_cut":
            client.writer.write(head + body[: len(body) // 2] if body and fault.cut == "body" else head[: len(head) // 2])
            return False
        request.answered = answer.status
        client.writer.writelines((head, body))
        await client.writer.drain()
        return answer.kept and message.kept

    def _send(self, request: Request, message: _Message, after: _Client | None = None) -> asyncio.Future[_Message | None]:
        """Shielded: what is on its way to the server arrives, whatever becomes of the client."""
        task = asyncio.create_task(self._carry(request, message, after))
        self._underway.add(task)
        task.add_done_callback(self._underway.discard)
        return asyncio.shield(task)

    async def _carry(self, request: Request, message: _Message, after: _Client | None) -> _Message | None:
        fault = request.fault
        if fault and after:
            await after.gone.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._release.wait(), fault.delay_s)
        answer = None
        for _ in range(2 if fault and fault.kind == "doubled" else 1):
            try:
                answer = await _exchange(self._upstream, message, request.method)
            except Exception as error:
                self._broken.append(error)
            if answer:
                request.statuses, request.landed = (*request.statuses, answer.status), time.monotonic()
                request.answer_bytes += answer.size
        if after:
            request.finished = time.monotonic()
        return answer


class _Client(msgspec.Struct, frozen=True, kw_only=True):
    reader: StreamReader
    writer: StreamWriter
    gone: asyncio.Event  # the connection has ended

    async def gives_up(self, within_s: float) -> bool:
        """Whether the client closes within this time."""
        with contextlib.suppress(ConnectionError):
            try:
                await asyncio.wait_for(self.reader.read(), within_s)
            except TimeoutError:
                return False
        return True


async def _exchange(upstream: tuple[str, int], message: _Message, method: str) -> _Message | None:
    """One request on a connection of its own, so that no idle connection dies unscripted. None: the server gave no whole answer."""
    with contextlib.suppress(OSError, EOFError):
        reader, writer = await asyncio.open_connection(*upstream, limit=_LIMIT)
        try:
            writer.writelines((message.head, message.body))
            while (answer := await _read_message(reader, method)).status < 200:
                pass  # the client has got its 100 from here
            return answer
        finally:
            await _end(writer)
    return None


async def _end(writer: StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _read_message(reader: StreamReader, answers: str = "", continues: StreamWriter | None = None) -> _Message:
    """One message with its whole body. answers: the method, if this is an answer. Raises EOFError if the peer closes before its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    line, *lines = head[:-4].decode("latin-1").split("\r\n")
    first = line.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    kept = first[0 if answers else 2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    if continues and headers.get("expect", "").lower() == "100-continue":
        continues.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body, size = b"", 0
    if answers and (answers == "HEAD" or int(first[1]) in (204, 304) or int(first[1]) < 200):
        pass
    elif headers.get("transfer-encoding", "").lower().endswith("chunked"):
        body, size = await _read_chunks(reader)
    elif "content-length" in headers or not answers:
        size = int(headers.get("content-length", 0))
        body = await reader.readexactly(size)
    else:  # an answer that ends with its connection
        body, kept = await reader.read(), False
        size = len(body)
    return _Message(first=first, head=head, body=body, size=size, headers=headers, kept=kept)


async def _read_chunks(reader: StreamReader) -> tuple[bytes, int]:
    """A chunked body as it came, and how much of it is payload."""
    raw, payload = bytearray(), 0
    while True:
        line = await reader.readuntil(b"\r\n")
        raw += line
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            break
        raw += await reader.readexactly(size + 2)
        payload += size
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        raw += line  # a trailer
    return bytes(raw + line), payload


def _error(fault: Fault, request: Request) -> _Message:
    """An answer as S3 words it."""
    code = fault.code or _CODES.get(fault.status, "InternalError")
    text = f"<Error><Code>{code}</Code><Message>scripted</Message><RequestId>scripted</RequestId></Error>"
    head = f"HTTP/1.1 {fault.status} {http.client.responses.get(fault.status, 'Odd')}\r\nContent-Type: application/xml\r\n"
    head += f"Content-Length: {len(text)}\r\nx-amz-request-id: scripted\r\n\r\n"
    body = b"" if request.method == "HEAD" else text.encode()
    return _Message(first=head.split(" ", 2), head=head.encode(), body=body, size=len(body), headers={}, kept=True)

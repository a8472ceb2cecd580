"""The fault proxy itself: what the client saw, what the server carried out, byte for byte, for every fault."""

import contextlib
import http.client
import logging
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, get_args
from urllib.parse import urlsplit

import pytest
from tests.kit.proxy import Fault, FaultProxy, Kind, Rule, to
from tests.kit.web import answering

READ_S = 0.3  # the read timeout of clients that are left without an answer
PATIENT_S = 30.0  # that of all others, on whatever machine


class Upstream(ThreadingHTTPServer):
    """A tiny object store that keeps which requests reached it."""

    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.lines: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_PUT(self) -> None:
        body = self._arrive()
        with self.server.lock:
            taken = "If-None-Match" in self.headers and self.path in self.server.objects
            if not taken:
                self.server.objects[self.path] = body
        self._answer(412 if taken else 200, b"stored: no" if taken else b"stored: yes")

    def do_DELETE(self) -> None:
        self._arrive()
        self._answer(204)

    def _arrive(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            self.server.lines.append(self.requestline.removesuffix(" HTTP/1.1"))
        return body

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with answering(Upstream()) as server:
        yield server


@pytest.fixture
def proxy(upstream: Upstream, caplog: pytest.LogCaptureFixture) -> Iterator[FaultProxy]:
    with FaultProxy(f"http://127.0.0.1:{upstream.server_port}") as proxy:
        yield proxy
    assert [
        record for record in (*caplog.get_records("call"), *caplog.records) if record.levelno >= logging.ERROR
    ] == []  # no task died unseen


@contextlib.contextmanager
def client(proxy: FaultProxy, *, kept: bool = False, timeout_s: float = PATIENT_S) -> Iterator[http.client.HTTPConnection]:
    """A connection; a kept one has already had an answer."""
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=timeout_s)
    with contextlib.closing(connection):
        if kept:
            assert ask(connection, "DELETE", "/before") == (204, b"")
            proxy.reset()
        yield connection


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read()


class Case(NamedTuple):
    fault: Fault
    seen: type[Exception] | int
    carried_out: int
    landed: int = 0  # more, after settle(now=True)


CASES = [
    Case(Fault(kind="request_dropped"), TimeoutError, 0), Case(Fault(kind="request_reset"), ConnectionResetError, 0),
    Case(Fault(kind="answer_dropped"), TimeoutError, 1), Case(Fault(kind="answer_closed"), http.client.RemoteDisconnected, 1),
    Case(Fault(kind="answer_cut"), http.client.IncompleteRead, 1), Case(Fault(kind="answer_delayed", delay_s=30), TimeoutError, 1),
    Case(Fault(kind="status_after", status=500), 500, 1), Case(Fault(kind="status_after", status=409), 409, 1),
    Case(Fault(kind="status_before", status=503), 503, 0),
    Case(Fault(kind="status_before", status=403, code="RequestTimeTooSkewed"), 403, 0),
    Case(Fault(kind="lands_late", delay_s=math.inf), TimeoutError, 0, 1),
    Case(Fault(kind="lands_late", delay_s=math.inf, hang=False), http.client.RemoteDisconnected, 0, 1), Case(Fault(kind="doubled"), 412, 2),
]  # fmt: skip
CODES = {500: b"InternalError", 409: b"ConditionalRequestConflict", 503: b"SlowDown", 403: b"RequestTimeTooSkewed"}


def test_every_fault_is_tried() -> None:
    assert {case.fault.kind for case in CASES} == set(get_args(Kind))


@pytest.mark.parametrize("kept", [False, True], ids=["fresh", "kept"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fault.kind}-{case.fault.status or case.fault.hang}")
def test_fault(proxy: FaultProxy, upstream: Upstream, case: Case, kept: bool) -> None:
    """The client sees the fault, the server has carried out what it should have, and the next request is untouched."""
    with client(proxy, kept=kept, timeout_s=READ_S if case.seen is TimeoutError else PATIENT_S) as connection:
        upstream.lines.clear()
        rule = Rule(match=to("PUT", "/versions/"), fault=case.fault)
        proxy.faults = [rule]
        if isinstance(case.seen, int):
            status, body = ask(connection, "PUT", "/b/versions/1", b"data", If_None_Match="*")
            assert status == case.seen and CODES.get(status, b"stored: no") in body
            assert ask(connection, "DELETE", "/same-connection") == (204, b"")
        else:
            with pytest.raises(case.seen) as caught:
                ask(connection, "PUT", "/b/versions/1", b"data", If_None_Match="*")
            assert caught.type is case.seen  # RemoteDisconnected is a ConnectionResetError, too
    put = "PUT /b/versions/1"
    assert upstream.lines.count(put) == case.carried_out
    proxy.settle(now=True)
    assert upstream.lines.count(put) == case.carried_out + case.landed
    with client(proxy) as connection:
        assert ask(connection, "PUT", "/b/versions/2", b"data")[0] == 200  # the fault was for one request
    first = proxy.requests[0]
    expected = {0: (), 1: (200,), 2: (200, 412)}[case.carried_out + case.landed]
    assert (rule.used, first.fault, first.statuses, first.status) == (1, case.fault, expected, expected[-1] if expected else None)
    assert first.answered == (case.seen if isinstance(case.seen, int) else None)
    assert first.finished is not None and first.finished >= (first.landed or first.started) >= first.started


def test_late_request_lands_by_itself(proxy: FaultProxy, upstream: Upstream) -> None:
    """After its delay, behind what the client sent since: it loses against the client's own second try."""
    proxy.faults = [Rule(match=to("PUT"), fault=Fault(kind="lands_late", delay_s=READ_S, hang=False))]
    with client(proxy) as connection, pytest.raises(http.client.RemoteDisconnected):
        ask(connection, "PUT", "/v", b"first", If_None_Match="*")
    with client(proxy) as connection:
        assert ask(connection, "PUT", "/v", b"second", If_None_Match="*")[0] == 200
    proxy.settle()
    assert [(request.number, request.statuses) for request in proxy.requests] == [(1, (412,)), (2, (200,))]
    assert upstream.objects == {"/v": b"second"}

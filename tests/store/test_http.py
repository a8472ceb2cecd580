"""The HTTP client of all stores: what was sent and what was not, every way to a server, and what s3fs' options make of a request.
[ST5] [ST13] [ST14]

Against servers of a few lines, which see every byte; and real S3, where credentials are to be judged.
"""

import base64
import contextlib
import hashlib
import json
import logging
import re
import secrets
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.kit.proxy import Fault, FaultProxy, Rule, to
from tests.kit.stores import Notes, NotingServer, noting
from tests.kit.stores import place as place
from tests.kit.stores import server as server
from tests.servers.servers import free_port
from tests.sources.kafka_front import front
from tests.store.places import Place, names, sent

from manifestcommit.errors import StoreError, StoreUnclearError, UsageError
from manifestcommit.store import Store, http, open_store
from manifestcommit.store.http import HttpClient, NoAnswerError, NotMadeError, Way
from manifestcommit.store.object_store import PART_BYTES, WHOLE_BYTES

KEYS = {"key": "AKIDEXAMPLE", "secret": "wJalrXUtnFEMI"}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata"


# --- sent, or not sent -----------------------------------------------------------------------------------------------------
def _request(connection: socket.socket) -> bytes:
    """The next one, whole; empty: the connection ended."""
    with connection.makefile("rb") as file:
        head = b""
        while (line := file.readline()) not in (b"", b"\r\n"):
            head += line
        return head and head + line + file.read(int((re.search(rb"\nContent-Length: (\d+)", head) or [0, 0])[1]))


@contextlib.contextmanager
def scripted(*answers: bytes | None, context: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """(its URL, what it received): a server that answers the requests of all connections in turn, and closes after None or the last."""
    received: list[bytes] = []
    left = list(answers)

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while left and (asked := _request(connection)):
                received.append(asked)
                answer = left.pop(0)
                if answer is None:
                    return
                connection.sendall(answer)
                if not answer.endswith(b"data"):
                    return

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with contextlib.suppress(OSError):
                    threading.Thread(
                        target=serve, args=(context.wrap_socket(connection, server_side=True) if context else connection,)
                    ).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"{'https' if context else 'http'}://127.0.0.1:{listening.getsockname()[1]}", received
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server of one connection."""

    def accept() -> None:
        connection, _ = listening.accept()
        with contextlib.suppress(OSError), connection:
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        thread.join(10)


def test_a_refused_connection_has_sent_nothing() -> None:
    for where in (f"127.0.0.1:{free_port()}", "no-such-host.invalid"):
        with pytest.raises(NoAnswerError, match="no connection"):
            HttpClient(Way()).send("PUT", f"http://{where}/x", {}, b"body")


@pytest.mark.parametrize(
    "answer",
    [
        None, b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nETag: x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nda", b"HTTP/1.1 200 OK\r\n\r\nall until the end", b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nda\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity, chunked\r\n\r\n2\r\nda", b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK,
    ],
)  # fmt: skip
def test_half_an_answer_is_none(answer: bytes | None) -> None:
    """The standard library takes what is cut off for the end; and nothing is sent twice. [ST5] [ST8] [ST14]"""
    for body in (b"", b"body"):  # urllib3 can repeat only what has no body: a second time nothing comes of an iterator
        with scripted(answer, OK) as (url, received), pytest.raises(NoAnswerError, match="failed"):
            HttpClient(Way()).send("PUT", f"{url}/x", {}, body)
        assert len(received) == 1


def test_a_kept_connection_that_breaks_is_no_reason_to_send_again() -> None:
    """A create that succeeded would look like a taken name. [ST5] [ST14]"""
    client = HttpClient(Way())
    with scripted(OK, None, OK) as (url, received):
        assert client.send("PUT", f"{url}/x", {}, b"1").body == b"data"
        with pytest.raises(NoAnswerError, match="failed"):
            client.send("PUT", f"{url}/x", {}, b"")  # which could be sent once more
        assert len(received) == 2
        assert client.send("PUT", f"{url}/x", {}, b"3").status == 200 and len(received) == 3


@pytest.mark.parametrize(
    ("method", "answer", "status", "body"),
    [
        ("GET", b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nda\r\n2\r\nta\r\n0\r\nT: x\r\n\r\n", 200, b"data"),
        ("PUT", b"100 Continue\r\n\r\nHTTP/1.1 200\r\ncontent-LENGTH:4\r\n\r\ndata", 200, b"data"),
        ("HEAD", b"200 OK\r\nContent-Length: 4\r\n\r\n", 200, b""),
        ("DELETE", b"204 No Content\r\n\r\n", 204, b""),
        ("GET", b"503 Busy\r\n\r\nall until the end", 503, b"all until the end"),
        ("GET", b"200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\ndata", 200, b"data"),
        ("GET", b"200 OK\r\nContent-Type: message/rfc822\r\nContent-Length: 4\r\n\r\ndata", 200, b"data"),
        ("PUT", b"307 Elsewhere\r\nLocation: http://[::1/x\r\nContent-Length: 4\r\n\r\ndata", 307, b"data"),
    ],
)
def test_answers_of_every_form_are_read(method: str, answer: bytes, status: int, body: bytes) -> None:
    """[ST8]"""
    with scripted(b"HTTP/1.1 " + answer) as (url, _):
        found = HttpClient(Way()).send(method, f"{url}/x", {})
        assert (found.status, found.body) == (status, body)


def test_what_no_request_can_hold_is_not_sent() -> None:
    """A line break in an option would begin another header, or another request. [SE2] [ST5]"""
    with scripted(OK) as (url, received):
        for value in ("a\r\nb: c", "a\nb", "ż", 1, b"x"):
            with pytest.raises(NotMadeError):
                HttpClient(Way()).send("GET", f"{url}/x", {"x": value})  # type: ignore[dict-item]
        assert received == []
        HttpClient(Way()).send("GET", f"{url}/x y\r\nb: c", {})
        assert received[0].startswith(b"GET /x%20y%0D%0Ab:%20c HTTP/1.1\r\n")
    hosts = ("http://me:pass/word@host/x", "http://a b/x", "ftp://host/x", "http://[::1/x")
    for url, proxy in (*((each, "") for each in hosts), *(("http://s/x", each) for each in ("socks5://me:word@h:1", "http://me:pass/w@h"))):
        with pytest.raises(NotMadeError, match=r"^a header, a timeout, or the address of a store or a proxy is malformed$"):
            HttpClient(Way(proxies={"http": proxy})).send("PUT", url, {})


def test_an_answer_that_comes_too_late_is_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, pytest.raises(NoAnswerError, match="in time", check=lambda error: error.sent):
        HttpClient(Way(read_s=0.2)).send("GET", f"http://127.0.0.1:{deaf.getsockname()[1]}/x", {})


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: "])
def test_an_answer_that_drips_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """[ST14]"""
    monkeypatch.setattr(http, "REQUEST_S", 0.5)

    def drip(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(head)
        while True:
            connection.sendall(b".")
            time.sleep(0.05)

    with serving(drip) as url:
        began = time.monotonic()
        with pytest.raises(NoAnswerError, match="in time", check=lambda error: error.sent):
            HttpClient(Way()).send("GET", url, {})
        assert time.monotonic() - began < 5


def test_each_piece_of_a_body_has_the_time_of_a_read() -> None:
    """Also on a connection that is kept, where urllib3 gives it that of a connect. [ST14]"""

    def answer_late(connection: socket.socket) -> None:
        for pause_s in (0, 1):
            time.sleep(pause_s)
            _request(connection)
            connection.sendall(OK)

    with serving(answer_late) as url:
        client = HttpClient(Way(connect_s=0.3))
        assert client.send("GET", url, {}).body == client.send("PUT", url, {}, bytes(8 << 20)).body == b"data"


def test_a_hundred_threads_are_no_reason_to_warn(server: "NotingServer", caplog: pytest.LogCaptureFixture) -> None:
    client, all_wait = HttpClient(Way()), threading.Barrier(100)
    server.reply = lambda _: (200, {}, str(all_wait.wait()).encode())
    with ThreadPoolExecutor(100) as threads:
        assert len(list(threads.map(lambda _: client.send("GET", f"{server.url}/x", {}), range(100)))) == 100
    assert caplog.text == ""


def test_a_create_tells_not_sent_from_perhaps_carried_out() -> None:
    """[ST5]"""
    with pytest.raises(StoreError, match=r"no connection .*asked 3 times", check=lambda error: not isinstance(error, StoreUnclearError)):
        open_store("s3://b/t", {**KEYS, "endpoint_url": f"http://127.0.0.1:{free_port()}"}).put_if_absent("x", b"1")
    with scripted(None) as (url, received), pytest.raises(StoreUnclearError, match="may have been created"):
        open_store("s3://b/t", {**KEYS, "endpoint_url": url}).put_if_absent("x", b"1")
    assert len(received) == 1 and b"\r\nIf-None-Match: *\r\n" in received[0] and received[0].endswith(b"1")


# --- TLS -------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    folder = tmp_path_factory.mktemp("tls")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout key -out cert"
    subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return folder / "cert", context


def test_a_certificate_of_a_known_authority_is_needed(certificate: tuple[Path, ssl.SSLContext]) -> None:
    """An unknown one ends the handshake: nothing was sent. [ST5]"""
    cert, context = certificate
    with scripted(OK, OK, None, context=context) as (url, received):
        with pytest.raises(NoAnswerError, match="no connection"):
            HttpClient(Way()).send("PUT", f"{url}/x", {}, b"1")
        with pytest.raises(NotMadeError, match="a certificate cannot be read"):
            HttpClient(Way(verify=str(cert.with_name("key")))).send("PUT", f"{url}/x", {}, b"1")
        assert received == []
        assert HttpClient(Way(verify=False)).send("PUT", f"{url.replace('127.0.0.1', 'localhost')}/x", {}, b"1").body == b"data"
        assert HttpClient(Way(verify=str(cert))).send("PUT", f"{url}/x", {}, b"1").body == b"data"
        with pytest.raises(NoAnswerError, match="failed"):
            HttpClient(Way(verify=str(cert))).send("PUT", f"{url}/x", {}, b"2")
        assert len(received) == 3
    with scripted(OK) as (url, received), pytest.raises(NoAnswerError, match="no connection"):  # no TLS there
        HttpClient(Way()).send("PUT", url.replace("http:", "https:") + "/x", {}, b"1")


@pytest.mark.parametrize("way", ["verify", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_an_authority_of_ones_own_is_given_as_to_s3fs(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    cert, context = certificate
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False) if name != way else monkeypatch.setenv(name, str(cert))
    options = {"client_kwargs": {"verify": str(cert)}} if way == "verify" else {}
    with scripted(OK, context=context) as (url, _):
        assert open_store("s3://b/t", {**KEYS, **options, "endpoint_url": url}).get("x") == b"data"


# --- requests as s3fs' options make them -----------------------------------------------------------------------------------


@pytest.fixture
def amazon(server: NotingServer) -> dict[str, Any]:
    """Options with which requests for Amazon's hosts go to the server, which is their proxy."""
    return {**KEYS, "use_ssl": False, "config_kwargs": {"proxies": {"http": server.url}}, "client_kwargs": {"region_name": "eu-west-1"}}


def header(server: NotingServer, name: str, number: int = -1) -> str | None:
    return {each.lower(): value for each, value in server.asked[number][2].items()}.get(name.lower())


@pytest.mark.thorough
def test_requests_go_to_the_host_that_the_style_of_addresses_wants(server: NotingServer, amazon: dict[str, Any]) -> None:
    """Virtual hosts on Amazon, paths where a server has an address of its own; and the other way round where that is said. [ST4]"""
    open_store("s3://bucket/t", amazon).get("a b/%2F+ü")
    assert server.asked[-1][1] == "http://bucket.s3.eu-west-1.amazonaws.com/t/a%20b/%252F%2B%C3%BC"
    assert "/eu-west-1/s3/aws4_request" in (header(server, "Authorization") or "")
    by_path = {**amazon["config_kwargs"], "s3": {"addressing_style": "path"}}
    open_store("s3://bucket/t", {**amazon, "config_kwargs": by_path}).get("x")
    assert server.asked[-1][1] == "http://s3.eu-west-1.amazonaws.com/bucket/t/x"
    open_store("s3://bucket/t", {**KEYS, "endpoint_url": server.url}).get("x")
    assert server.asked[-1][1] == "/bucket/t/x"


def test_a_bucket_in_another_region_of_amazon_is_found(server: NotingServer, amazon: dict[str, Any]) -> None:
    """Its name comes with the refusal, of which nothing was carried out; later requests go there at once. [ST14]"""

    def reply(request: Notes) -> tuple[int, dict[str, str], bytes]:
        return (200, {}, b"data") if "ap-south-1" in request.path else (301, {"x-amz-bucket-region": "ap-south-1"}, b"")

    server.reply = reply
    store = open_store("s3://elsewhere/t", amazon)
    assert store.put_if_absent("x", b"1") and store.get("x") == b"data"
    assert [(each[0], each[1].split("/")[2]) for each in server.asked] == [
        ("PUT", "elsewhere.s3.eu-west-1.amazonaws.com"),
        ("PUT", "elsewhere.s3.ap-south-1.amazonaws.com"),
        ("GET", "elsewhere.s3.ap-south-1.amazonaws.com"),
    ]
    assert store.identity == "s3://elsewhere"


LISTED = b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>t/x</Key><Size>1</Size>%b</Contents></ListBucketResult>"
UPLOADS = b"<ListMultipartUploadsResult><Upload>%b</Upload></ListMultipartUploadsResult>"
MALFORMED: dict[str, tuple[str, Callable[[Any], Any], tuple[int, dict[str, str], bytes]]] = {
    "size": ("s3", lambda store: store.get("x", 0, 4), (206, {"Content-Range": "bytes 0-3/*"}, b"data")),
    "tail": ("gs", lambda store: store.open_input("x"), (206, {"Content-Range": "bytes 0-3/four"}, b"data")),
    "no length": ("abfs", lambda store: store.open_input("x"), (200, {"Content-Length": "all"}, b"")),
    "time": ("s3", lambda store: [*store.list("")], (200, {}, LISTED % b"<LastModified>yesterday</LastModified>")),
    "no name": ("s3", lambda store: [*store.list("")], (200, {}, LISTED % b"")),
    "upload": ("s3", lambda store: [*store.unfinished()], (200, {}, UPLOADS % b"<Key>t/x</Key><UploadId>1</UploadId>")),
    "its time": (
        *("s3", lambda store: [*store.unfinished()]),
        (200, {}, UPLOADS % b"<Key>t/x</Key><UploadId>1</UploadId><Initiated>soon</Initiated>"),
    ),
    "address": ("gs", lambda store: large(store), (200, {}, b"")),
}


def large(store: Any) -> None:
    with contextlib.closing(store.create_output("x")) as output:
        output.write(bytes(2 * PART_BYTES))


@pytest.mark.parametrize("case", MALFORMED)
def test_an_answer_that_cannot_be_read_is_an_error_of_ours(case: str, server: NotingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's, or a damaged server's: a KeyError or a ValueError left gc and reads. [ST5] [ST14]"""
    monkeypatch.setattr("manifestcommit.store.object_store.random.uniform", lambda *_: 0.0)  # no pauses
    scheme, call, server.reply = MALFORMED[case][0], MALFORMED[case][1], lambda _: MALFORMED[case][2]
    options = {
        "s3": {**KEYS, "endpoint_url": server.url},
        "gs": {"token": "anon", "endpoint_url": server.url},
        "abfs": {"connection_string": f"AccountName=a;AccountKey=a2V5;BlobEndpoint={server.url}/a"},
    }
    with pytest.raises(StoreError, match="the response is malformed"):
        call(open_store(f"{scheme}://b/t", options[scheme]))
    assert len(server.asked) > 1, "it is asked again"


@pytest.mark.thorough
def test_a_proxy_is_used_with_its_login_and_not_for_excepted_hosts(server: NotingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("http://", "http://someone:pass%20word@"))
    monkeypatch.setenv("http_proxy", server.url.replace("http://", "http://someone:pass%20word@"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    open_store("s3://bucket/t", {**KEYS, "endpoint_url": "http://store.invalid"}).get("x")
    assert server.asked[-1][1] == "http://store.invalid/bucket/t/x"
    assert header(server, "Proxy-Authorization") == "Basic c29tZW9uZTpwYXNzIHdvcmQ="
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with noting() as direct:
        open_store("s3://bucket/t", {**KEYS, "endpoint_url": direct.url}).get("x")
        assert direct.asked[-1][1] == "/bucket/t/x"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_tls_goes_through_a_proxys_tunnel(certificate: tuple[Path, ssl.SSLContext], scheme: str) -> None:
    """Which learns the host, and neither the request nor what it is signed with. [SE1]"""
    cert, context = certificate
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        asked.append(connection.recv(1 << 16))
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as inner:
            asked.append(inner.recv(1 << 16))
            inner.sendall(OK)

    with serving(serve) as url, socket.create_server(("127.0.0.1", 0)) as tls:
        port = int(url.split(":")[2].removesuffix("/x"))
        with front(tls, port, context, None):
            proxy = f"{scheme}://me:pass%20word@127.0.0.1:{port if scheme == 'http' else tls.getsockname()[1]}"
            assert HttpClient(Way(verify=str(cert), proxies={"https": proxy})).send("GET", "https://127.0.0.1:9/x", {}).body == b"data"
    assert asked[0].startswith(b"CONNECT 127.0.0.1:9 HTTP/1.") and b"Basic bWU6cGFzcyB3b3Jk\r\n" in asked[0]
    assert asked[1].startswith(b"GET /x HTTP/1.1\r\n") and b"\r\nHost: 127.0.0.1:9\r\n" in asked[1] and b"Proxy" not in asked[1]


@pytest.mark.thorough
def test_an_endpoint_may_have_an_ipv6_address() -> None:
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(noting("::1"))
        except OSError:
            pytest.skip("NOT RUN on a machine with IPv6: this one has none")
        store = open_store("s3://bucket/t", {**KEYS, "endpoint_url": server.url})
        assert store.get("x") == b"data" and server.asked[-1][1] == "/bucket/t/x" and store.identity.endswith(server.url)


SSE_C, SSE = {"SSECustomerKey": "k" * 32, "SSECustomerAlgorithm": "AES256"}, "x-amz-server-side-encryption"


def of(**each: str) -> dict[str, Any]:
    """Options of s3fs for requests."""
    return {"s3_additional_kwargs": each}


@pytest.mark.parametrize(
    ("options", "expected", "of"),
    [
        ({"requester_pays": True}, {"x-amz-request-payer": "requester"}, "PUT GET LIST"),
        (of(ServerSideEncryption="AES256"), {SSE: "AES256"}, "PUT"),
        (of(ServerSideEncryption="aws:kms", SSEKMSKeyId="id"), {SSE: "aws:kms", f"{SSE}-aws-kms-key-id": "id"}, "PUT"),
        (of(**SSE_C), {f"{SSE}-customer-key-md5": base64.b64encode(hashlib.md5(b"k" * 32).digest()).decode()}, "PUT GET"),
        (of(ACL="bucket-owner-full-control"), {"x-amz-acl": "bucket-owner-full-control"}, "PUT"),
        (of(StorageClass="STANDARD_IA"), {"x-amz-storage-class": "STANDARD_IA"}, "PUT"),
        (of(ExpectedBucketOwner="1"), {"x-amz-expected-bucket-owner": "1"}, "PUT GET LIST"),
        (of(ChecksumAlgorithm="SHA256"), {"x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(b"a text").digest()).decode()}, "PUT"),
        ({"token": "a session's"}, {"x-amz-security-token": "a session's"}, "PUT GET LIST"),
        ({"config_kwargs": {"user_agent": "me"}}, {"User-Agent": "me"}, "PUT GET LIST"),
    ],
)
def test_headers_are_those_that_s3fs_would_send(server: NotingServer, options: dict[str, Any], expected: dict[str, str], of: str) -> None:
    """Also with a create, where no option may take the condition away. [ST10]"""
    store = open_store("s3://bucket/t", {**KEYS, "endpoint_url": server.url, **options})
    store.put_if_absent("x", b"a text")
    store.get("x")
    server.reply = lambda _: (200, {}, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    assert names(store) == []
    for number, kind in enumerate(("PUT", "GET", "LIST")):
        for name, value in expected.items():
            assert (header(server, name, number) == value) == (kind in of.split()), (kind, name)
    assert header(server, "If-None-Match", 0) == "*" and header(server, "Content-Length", 0) == "6"


IGNORED: dict[str, Any] = {
    "default_block_size": 1, "default_fill_cache": False, "default_cache_type": "none", "version_aware": True, "cache_regions": True,
    "asynchronous": True, "loop": None, "max_concurrency": 1, "fixed_upload_size": True, "local_expiry_check": True,
    "skip_instance_cache": True, "use_listings_cache": True, "listings_expiry_time": 9, "max_paths": 9,
}  # fmt: skip
MEANT = {
    "anon", "endpoint_url", "key", "secret", "token", "use_ssl", "s3_additional_kwargs", "client_kwargs", "requester_pays", "config_kwargs",
    "session",
}  # fmt: skip
REFUSED = {"username", "password"}  # other names of key and secret


def test_every_option_that_s3fs_documents_is_taken_or_makes_no_difference(server: NotingServer) -> None:
    """Those of caches, of files and of event loops have nothing to do with single requests."""
    import inspect

    from s3fs import S3FileSystem

    documented = set(inspect.signature(S3FileSystem.__init__).parameters) - {"self", "kwargs"}
    assert documented - MEANT - REFUSED - IGNORED.keys() == set()
    store = open_store("s3://bucket/t", {**KEYS, "endpoint_url": server.url, **IGNORED})
    assert store.get("x") == b"data" and len(server.asked) == 1


@pytest.mark.thorough
def test_keys_may_stand_in_client_kwargs_and_their_own_names_win(server: NotingServer) -> None:
    for options in (
        {"client_kwargs": {"aws_access_key_id": "AKID", "aws_secret_access_key": "s"}},
        {"key": "AKID", "secret": "s", "client_kwargs": {"aws_access_key_id": "other", "aws_secret_access_key": "other"}},
    ):
        open_store("s3://bucket/t", {**options, "endpoint_url": server.url}).get("x")
        assert "Credential=AKID/" in (header(server, "Authorization") or "")


def test_a_session_of_ones_own_is_botocores(server: NotingServer) -> None:
    from aiobotocore.session import AioSession
    from botocore.session import Session

    session = Session()
    session.set_credentials("AKIDSESSION", "secret")
    open_store("s3://bucket/t", {"session": session, "endpoint_url": server.url}).get("x")
    assert "Credential=AKIDSESSION/" in (header(server, "Authorization") or "")
    with pytest.raises(UsageError, match=r"session in storage_options is a botocore\.session\.Session.*AioSession"):
        open_store("s3://bucket/t", {"session": AioSession(), "endpoint_url": server.url}).get("x")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"no_such_option": 1}, "no_such_option"),
        ({"username": "a"}, "username"),
        ({"password": "a"}, "password"),
        ({"client_kwargs": {"verify": "/no/such.pem"}}, "'/no/such.pem', which is not there"),
        ({"config_kwargs": {"connector_args": {}}}, "connector_args"),
        ({"config_kwargs": {"proxies_config": {"proxy_ca_bundle": "x"}}}, "proxies_config"),
        ({"config_kwargs": {"signature_version": "s3"}}, "signature_version"),
        ({"s3_additional_kwargs": {"ChecksumAlgorithm": "CRC32C"}}, "ChecksumAlgorithm|CRC32C"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(server: NotingServer, options: dict[str, Any], told: str) -> None:
    store = open_store("s3://bucket/t", {**KEYS, "endpoint_url": server.url, **options})
    with pytest.raises((UsageError, StoreError), match=told):
        store.put("x", b"")
    assert server.asked == []


# --- credentials that S3 judges --------------------------------------------------------------------------------------------
PROGRAM = """
import datetime as dt, json, sys
with open(sys.argv[1], "a") as count:
    count.write("x")
number = len(open(sys.argv[1]).read())
until = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=int(sys.argv[2]))
print(json.dumps({"Version": 1, "AccessKeyId": sys.argv[3], "SecretAccessKey": sys.argv[4], "Expiration": until.isoformat()}))
"""


@pytest.mark.thorough
def test_credentials_that_end_are_renewed_in_the_middle(rgw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a role end every hour; a profile names them, and botocore's session renews them. [SE1]"""
    (tmp_path / "program.py").write_text(PROGRAM)
    calls = tmp_path / "calls"
    command = f"{sys.executable} {tmp_path / 'program.py'} {calls} 2 {rgw.key} {rgw.secret}"
    (tmp_path / "config").write_text(f"[profile rotating]\ncredential_process = {command}\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    store = open_store(f"s3://{rgw.bucket()}/t", {"profile": "rotating", "endpoint_url": rgw.endpoint})
    store.put("x", b"1")
    first = len(calls.read_text())
    assert store.get("x") == b"1" and len(calls.read_text()) > first, "they end within two seconds: too soon to be used again"


def test_a_program_that_gives_no_credentials_is_told(rgw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[ST5] [SE1]"""
    (tmp_path / "config").write_text("[profile broken]\ncredential_process = false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    store = open_store("s3://bucket/t", {"profile": "broken", "endpoint_url": rgw.endpoint})
    with pytest.raises(StoreError, match="no usable credentials were found"):
        store.put_if_absent("x", b"1")


def test_a_public_bucket_is_read_without_credentials(rgw: Any) -> None:
    bucket = rgw.bucket()
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    rgw.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [everybody]}))
    rgw.call("put_object", Bucket=bucket, Key="t/x", Body=b"1")
    store = open_store(f"s3://{bucket}/t", {"anon": True, **KEYS, "endpoint_url": rgw.endpoint})
    assert store.get("x") == b"1"
    with pytest.raises(StoreError, match="denied"):
        store.put("x", b"2")


@pytest.mark.thorough
def test_a_service_account_of_google_gets_its_token_by_the_same_client(server: NotingServer) -> None:
    """Once, as long as it is valid. [SE1]"""
    made = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True, text=True).stdout
    token = {"type": "service_account", "client_email": "a@b", "private_key": made, "token_uri": f"{server.url}/token"}
    server.reply = lambda request: (200, {}, b'{"access_token": "T1", "expires_in": 3600}' if request.path == "/token" else b"data")
    store = open_store("gs://bucket/t", {"token": token, "endpoint_url": server.url})
    assert store.get("x") == store.get("y") == b"data"
    assert [each[1][-15:] for each in server.asked] == ["/token", "t%2Fx?alt=media", "t%2Fy?alt=media"]
    assert header(server, "Authorization", 0) is None and header(server, "Authorization") == "Bearer T1"
    server.reply = lambda _: (400, {}, b'{"error": "invalid_grant"}')
    with pytest.raises(StoreError, match="no usable credentials were found"):
        open_store("gs://bucket/t", {"token": {**token, "client_email": "b@b"}, "endpoint_url": server.url}).get("x")


def test_a_signature_in_an_address_is_sent_and_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Azure's shared access signatures stand in every address, which clients log. [SE1]"""
    caplog.set_level(logging.DEBUG)
    bad = b"HTTP/1.1 503 Busy\r\nno header\r\n\r\n"
    with scripted(OK.replace(b"\n", b"\n x: y\r\n", 1), bad, bad, bad) as (url, received):
        store = open_store("abfs://c/t", {"connection_string": f"BlobEndpoint={url}/a;SharedAccessSignature=sv=1&sig=SECRET%2Bx%3D"})
        assert store.get("x") == b"data" and b"GET /a/c/t/x?sv=1&sig=SECRET%2Bx%3D HTTP/1.1" in received[0]
        with pytest.raises(StoreUnclearError, match="failed") as error:
            store.put_if_absent("x", b"1")
    assert "SECRET" not in caplog.text + str(error.value)


# --- large bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_large_range_comes_by_several_requests_and_a_small_object_by_one(proxy: FaultProxy, store: Store) -> None:
    """Also where only a limit of the length is known. [ST8] [ST42]"""
    body = secrets.token_bytes(2 * WHOLE_BYTES + 5)
    store.put("large", body)
    store.put("small", b"small")
    proxy.reset()
    assert store.get("small", 0, 1 << 30) == b"small" and sent(proxy) == ["GET"]
    assert store.get("large", 7, WHOLE_BYTES) == body[7:WHOLE_BYTES] and sent(proxy) == ["GET"]
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="answer_cut"), times=2)]
    assert store.get("large", 7, 1 << 30) == body[7:]
    assert len(sent(proxy)) == 1 + 2 + 2, "the first, two parts of what follows, and what was cut"
    assert store.get("large", 3, len(body) - 1) == body[3:-1]


def test_an_object_that_changes_while_it_is_read_is_told(place: Place, proxy: FaultProxy, store: Store) -> None:
    """Half of the one and half of the other would be neither. [ST8] [ST42]"""
    store.put("x", bytes(2 * WHOLE_BYTES))
    read: Callable[..., Any] = store.read  # type: ignore[attr-defined]

    def change(key: str, start: int | None, *more: Any) -> Any:
        found = read(key, start, *more)
        if not start:
            place.open().put("x", bytes(WHOLE_BYTES + 1))
        return found

    store.read = change  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="changed while it was read"):
        store.get("x", 0, 2 * WHOLE_BYTES)


@pytest.mark.thorough
def test_parts_go_up_at_once_and_no_more_than_a_few_are_held(proxy: FaultProxy, store: Store) -> None:
    """[ST2]"""
    proxy.faults = lambda each: Fault(kind="answer_delayed", delay_s=0.5) if "partNumber" in each.query else None
    output, body = store.create_output("x"), secrets.token_bytes(8 * PART_BYTES)
    most = 0
    for start in range(0, len(body), PART_BYTES // 2):
        output.write(body[start : start + PART_BYTES // 2])
        most = max(most, len(output._sending))  # type: ignore[attr-defined]
    output.close()
    assert most == 4
    assert store.get("x") == body

"""GCS: which requests are sent, and what becomes of the answers that Google documents. [ST10] [ST11] [ST13] [ST14]

By a stand-in, which answers what Google documents and an emulator does not, and by races on the emulator. Neither tells how Google's own
store behaves: whether of many racing creators one wins is proved there by the race before the first commit.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest
from tests.kit.stores import Notes
from tests.kit.web import answering
from tests.store.places import names

import manifestcommit as mc
from manifestcommit.errors import StoreError
from manifestcommit.store import Store, open_store
from manifestcommit.store.object_store import PART_BYTES


class StandIn(ThreadingHTTPServer):
    """As much of Google's JSON API as is asked for here, in memory. It proves nothing about Google's store."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.objects: dict[str, bytes] = {}
        self.sessions: dict[str, tuple[str, bytearray]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.refuse: list[int] = []  # statuses of the next answers, -1: carried out, not answered
        self.instead = b""  # the body of all answers to GET
        self.lock = threading.Lock()


class Answers(Notes):
    server: StandIn

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        with self.server.lock:
            self.server.asked.append((self.command, query))
            refused = self.server.refuse.pop(0) if self.server.refuse else 0
            if refused > 0:
                self.reply(refused, json.dumps({"error": {"message": "scripted", "errors": [{"reason": "scripted"}]}}).encode())
                return
            if self.command == "GET" and self.server.instead:
                self.reply(200, self.server.instead)
                return
            if "/b/bucket/o" not in url.path:
                self.reply(404, b'{"error": {"message": "The specified bucket does not exist.", "errors": [{"reason": "notFound"}]}}')
                return
            reply = self.carry_out(unquote(url.path.partition("/b/bucket/o")[2][1:]), query, body)
        if refused < 0:
            self.close_connection = True
        else:
            self.reply(*reply)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815  # their names in http.server

    def carry_out(self, name: str, query: dict[str, str], body: bytes) -> tuple[Any, ...]:
        objects, sessions = self.server.objects, self.server.sessions
        if "session" in query:
            return self.go_on(query["session"], body)
        if query.get("uploadType") == "resumable":
            sessions[str(len(sessions))] = (query["name"], bytearray())
            return 200, b"{}", {"Location": f"http://{self.headers['Host']}{urlsplit(self.path).path}?session={len(sessions) - 1}"}
        if self.command == "POST":
            if query.get("ifGenerationMatch") == "0" and query["name"] in objects:
                return 412, b"{}"
            head, _, rest = body.partition(b"\r\n\r\n")[2].partition(b"\r\n\r\n")
            end = b"\r\n" + head.split(b"\r\n")[1] + b"--\r\n"
            assert query["uploadType"] == "multipart" and rest.endswith(end)
            objects[query["name"]] = rest.removesuffix(end)
            return 200, b"{}"
        if not name:
            return self.listed(query)
        if name not in objects:
            return 404, f"No such object: bucket/{name}".encode()
        if self.command == "DELETE":
            del objects[name]
            return 204, b""
        whole, (first, _, last) = objects[name], self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(whole) - int(last), 0)
        if "Range" not in self.headers:
            return 200, whole
        if start >= len(whole):
            return 416, b"<Code>InvalidRange</Code>"
        found = whole[start : int(last) + 1 if first and last else None]
        return 206, found, {"Content-Range": f"bytes {start}-{start + len(found) - 1}/{len(whole)}"}

    def listed(self, query: dict[str, str]) -> tuple[int, bytes]:
        first = query.get("pageToken", query.get("startOffset", ""))
        found = sorted(name for name in self.server.objects if name.startswith(query["prefix"]) and name >= first)
        item = {"timeCreated": "2026-01-02T03:04:05.678Z"}
        page: dict[str, Any] = {
            "kind": "storage#objects",
            "items": [{"name": name, "size": str(len(self.server.objects[name])), **item} for name in found[:2]],
        }
        return 200, json.dumps(page | ({"nextPageToken": found[2]} if len(found) > 2 else {})).encode()

    def go_on(self, session: str, body: bytes) -> tuple[Any, ...]:
        if self.command == "DELETE":
            del self.server.sessions[session]
            return 499, b""
        name, stored = self.server.sessions[session]
        span, _, total = self.headers["Content-Range"].removeprefix("bytes ").partition("/")
        if span != "*":
            start = int(span.partition("-")[0])
            taken = len(body) if total != "*" else len(body) // 2**18 * 2**18 - 2**18  # a store may always take less
            stored[start:] = body[:taken]
        if total != "*" and len(stored) == int(total):
            self.server.objects[name] = bytes(stored)
            return 200, b"{}"
        return 308, b"", {"Range": f"bytes=0-{len(stored) - 1}"} if stored else {}

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def google() -> Iterator[StandIn]:
    with answering(StandIn()) as server:
        yield server


@pytest.fixture
def gcs(google: StandIn) -> Store:
    return open_store("gcs://bucket/lake/t", {"token": "anon", "endpoint_url": f"http://127.0.0.1:{google.server_port}"})


def asked(google: StandIn) -> list[str]:
    """What was asked since the last time."""
    found = [method for method, _ in google.asked]
    google.asked.clear()
    return found


def test_each_call_to_gcs_is_one_request(gcs: Store, google: StandIn) -> None:
    """[ST10] [ST11] [ST13]"""
    boundary = b"\n--==0==--"
    for name, body in (("v/1", b"x" * 100 + boundary), ("v/0", b""), ("v/a b%2F+?#🦆\n\\", boundary), ("v/9", bytes(60_000_000))):
        assert gcs.put_if_absent(name, body)
        assert google.asked == [("POST", {"uploadType": "multipart", "name": f"lake/t/{name}", "ifGenerationMatch": "0"})]
        google.asked.clear()
        assert not gcs.put_if_absent(name, b"late") and asked(google) == ["POST"]
        assert gcs.get(name) == body and asked(google) == ["GET"]
        with gcs.open_input(name) as stream:
            assert stream.read(200_000) == body[:200_000] and stream.seek(0, os.SEEK_END) == len(body)
        assert asked(google) == ["GET"] * (2 if len(body) > 200_000 else 1)
    assert gcs.get("v/1", 1, 3) == b"xx" and gcs.get("v/1", 500, 600) == b"" and asked(google) == ["GET", "GET"]
    gcs.put("hint", b"1")
    assert "ifGenerationMatch" not in google.asked[0][1] and asked(google) == ["POST"]
    found = list(gcs.list("v/"))
    assert [info.name for info in found] == ["v/0", "v/1", "v/9", "v/a b%2F+?#🦆\n\\"] and asked(google) == ["GET", "GET"]
    assert (found[0].size_bytes, found[0].modified) == (0, 1767323045.678)
    assert names(gcs, "v/", "v/9") == names(gcs, "v/")[2:] and google.asked[0][1]["startOffset"] == "lake/t/v/9"
    google.asked.clear()
    gcs.delete(["v/1", "absent"])
    assert asked(google) == ["DELETE", "DELETE"]
    with pytest.raises(FileNotFoundError):
        gcs.get("v/1")
    assert asked(google) == ["GET"]


def test_outputs_on_gcs_appear_whole_or_never(gcs: Store, google: StandIn) -> None:
    """Also where the store takes less of a part than it was sent, and where answers are lost. [ST2] [AB2]"""
    gcs.create_output("empty").close()
    written = secrets.token_bytes(1_000_000)
    kept, dropped = gcs.create_output("kept"), gcs.create_output("dropped")
    for number in range(20):
        kept.write(written)
        dropped.write(written)
        google.refuse += [503, -1] if number == 10 else []
    dropped.discard()
    assert list(google.objects) == ["lake/t/empty"] and len(google.sessions) == 1
    google.refuse = [-1]
    kept.close()
    assert gcs.get("kept") == written * 20 and names(gcs) == ["empty", "kept"]


@pytest.mark.parametrize(("status", "told"), [(404, "forgotten this upload; run the task again"), (200, "ended the upload too early")])
def test_an_upload_that_gcs_ends_is_no_object(gcs: Store, google: StandIn, status: int, told: str) -> None:
    """Google forgets an upload after a week; and only its last part may complete it. [ST2] [ST5]"""
    output = gcs.create_output("x")
    output.write(bytes(PART_BYTES + 1))
    with contextlib.suppress(StoreError):
        while len(google.asked) < 2:
            time.sleep(0.01)  # until the first part has gone
    google.refuse = [status]
    with pytest.raises(StoreError, match=f"gs://bucket/lake/t/x: .*{told}"):
        output.write(bytes(2 * PART_BYTES))
    output.discard()
    assert names(gcs) == [] and google.sessions == {}


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Welcome</html>", b"{}", b"[]", b"null", b'{"kind": "storage#objects", "items": [1]}',
        b'{"kind": "storage#objects", "items": 1}',
    ],
)  # fmt: skip
def test_an_answer_that_is_no_list_of_gcs_is_no_empty_list(
    gcs: Store, google: StandIn, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[ST3] [CM5]"""
    monkeypatch.setattr("manifestcommit.store.object_store.random.uniform", lambda *_: 0.0)  # no pauses
    google.instead = body
    with pytest.raises(StoreError, match="the response is malformed"):
        names(gcs)


def test_a_missing_bucket_and_a_place_on_gcs(gcs: Store, google: StandIn) -> None:
    """[ST4] [ST5]"""
    there = f"http://127.0.0.1:{google.server_port}"
    assert gcs.url == "gs://bucket/lake/t" and gcs.identity == f"gs://bucket at {there}" and gcs.parent().url == "gs://bucket/lake"  # type: ignore[union-attr]
    assert open_store("gs://bucket", {"token": "anon"}).identity == "gs://bucket"
    missing = open_store("gs://missing/t", {"token": "anon", "endpoint_url": there})
    for call in (lambda: missing.get("x"), lambda: names(missing), lambda: missing.put_if_absent("x", b"")):
        with pytest.raises(StoreError, match="no bucket missing"):
            call()
    assert len(asked(google)) == 3


@pytest.mark.thorough
def test_a_table_is_written_and_read_by_the_requests_for_gcs(google: StandIn) -> None:
    options = {"token": "anon", "endpoint_url": f"http://127.0.0.1:{google.server_port}"}
    assert mc.write(pa.table({"x": [1, 2]}), "gs://bucket/t", key="k", storage_options=options).kind == "committed"
    assert mc.write(pa.table({"x": [1, 2]}), "gs://bucket/t", key="k", storage_options=options).kind == "already_committed"
    assert mc.Table("gs://bucket/t", storage_options=options).dataset().to_table()["x"].to_pylist() == [1, 2]


@pytest.mark.thorough
@pytest.mark.parametrize("refused", [True, False])
def test_where_no_credentials_are_found_the_ways_to_give_them_are_told_soon(refused: bool, tmp_path: Path) -> None:
    """google-auth would wait for a metadata server for half a minute. [ST14]"""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        port = silent.getsockname()[1]
        if refused:
            silent.close()  # and is refused at once
        there = f"127.0.0.1:{port}"
        metadata = {"GCE_METADATA_HOST": there, "GCE_METADATA_IP": there, "GCE_METADATA_TIMEOUT": "60"}
        kept = {name: each for name, each in os.environ.items() if not name.startswith(("GOOGLE_", "GCE_", "NO_GCE", "STORAGE_EMULATOR"))}
        home = {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path)}
        program = "import sys, manifestcommit as mc; mc.Table('gs://bucket/x')"
        run = subprocess.run([sys.executable, "-c", program], env=kept | home | metadata, capture_output=True, text=True, timeout=55)
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("manifestcommit.errors.StoreError: gs://bucket: no usable credentials were found")
    assert all(way in last for way in ("storage_options", "GOOGLE_APPLICATION_CREDENTIALS", "gcloud", "token='anon'"))
    assert ("metadata server" in last) != refused


def test_an_emulator_needs_no_credentials(google: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """[ST14]"""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setattr("manifestcommit.store.gcs._LOGIN_S", 0.05)
    assert names(open_store("gs://bucket/t", {"endpoint_url": f"http://127.0.0.1:{google.server_port}"})) == []


@pytest.mark.thorough
def test_a_machine_whose_clock_is_far_off_takes_the_time_of_the_store(google: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer tells it, so that no request is made for it. [CM14] [CM11]"""
    options = {"token": "anon", "endpoint_url": f"http://127.0.0.1:{google.server_port}"}
    mc.write(pa.table({"x": [1]}), "gs://bucket/t", storage_options=options)
    table = mc.Table("gs://bucket/t", storage_options=options)
    before, requests = table.snapshot().committed_at, []
    for date in ("Sat, 01 Jan 2101 00:00:00 GMT", "no date"):
        google.asked.clear()
        monkeypatch.setattr(Answers, "date_time_string", lambda *_, date=date: date)
        mc.write(pa.table({"x": [2]}), "gs://bucket/t", storage_options=options)
        requests.append(sorted(asked(google)))
    taken = table.snapshot().committed_at
    assert abs(before / 1e6 - time.time()) < 900 and 0 <= taken / 1e6 - 4133980800 < 900 and requests[0] == requests[1]

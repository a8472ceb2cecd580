"""A filesystem, servers and answers that stores are tested on, and the names that are hard for them."""

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from fsspec.registry import _registry
from fsspec.spec import AbstractFileSystem
from tests.kit.web import answering
from tests.store.places import Place

from manifestcommit.store import StorageOptions
from manifestcommit.store.http import Answer
from manifestcommit.store.object_store import ObjectStore, Request


class Toy(AbstractFileSystem):  # type: ignore[misc]
    """An object store in memory, whose create is atomic."""

    protocol = "toy"
    cachable = False
    held: ClassVar[dict[str, bytes]] = {}
    lock = threading.Lock()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.lock:
            if mode == "create" and path in self.held:
                raise FileExistsError(path)
            self.held[path] = value

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        if path not in self.held:
            raise FileNotFoundError(path)
        return self.held[path][start:end]

    def rm_file(self, path: str) -> None:
        if self.held.pop(path, None) is None:
            raise FileNotFoundError(path)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        if path not in self.held:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.held[path]), "type": "file"}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        below = [name.removeprefix(f"{path}/") for name in self.held if name.startswith(f"{path}/")]
        found = [self.info(f"{path}/{name}") for name in below if "/" not in name]
        folders = sorted({name.partition("/")[0] for name in below if "/" in name})
        return found + [{"name": f"{path}/{name}", "size": 0, "type": "directory"} for name in folders]


@pytest.fixture
def toy() -> Iterator[str]:
    """A scheme that is registered for one test."""
    scheme = f"toy{secrets.token_hex(4)}"
    yield scheme
    _registry.pop(scheme, None)


HOSTILE = [
    "a b/c d", " ", "100%", "%2F", "%41", "a+b", "a=b", "day=1/#x", "'single'", '"double"', "`back`", "back\\slash", "tab\there",
    "new\nline", "été", "e\u0301te\u0301", "日本/語", "🦆", "\ue000", "\U00010000", "*?[x]", "{brace}", "$HOME", "~", "-rf", "...",
    ".hidden",
    "x" * 255, f"{'y' * 200}/{'z' * 200}/{'é' * 100}", "__HIVE_DEFAULT_PARTITION__", "a:b", "a|b", "\x01", "a;b",
]  # fmt: skip
NOT_ON_AZURE = ["back\\slash", "\x01"]  # it takes the one for a slash, and cannot list the other


class Scripted(ObjectStore):
    """Each request is answered with the status that comes with it."""

    write = page = None  # type: ignore[assignment]  # none is called

    def account(self, options: dict[str, Any]) -> Any:
        return self

    def located(self, request: Request) -> Request:
        return request

    def send(self, request: Request) -> Answer:
        status: Callable[[], int] = request.kind  # type: ignore[assignment]
        return Answer(status(), {}, b"")


def scripted() -> Scripted:
    return Scripted("scripted", "b", StorageOptions())


def answered(status: Callable[[], int]) -> Request:
    return Request(status, "x")  # type: ignore[arg-type]


class Notes(BaseHTTPRequestHandler):
    """Notes every request; answers what its server is told to. It is also a proxy that answers by itself."""

    protocol_version = "HTTP/1.1"
    server: Any

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        status, headers, told = self.server.reply(self)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(told)), "ETag": '"e"', **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815  # names that http.server looks for

    def log_message(self, *_: Any) -> None:
        pass


class NotingServer(ThreadingHTTPServer):
    asked: list[tuple[str, str, dict[str, str], bytes]]
    reply: Any
    url: str


@contextlib.contextmanager
def noting(host: str = "127.0.0.1") -> Iterator[NotingServer]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = type("Server", (NotingServer,), {"address_family": family, "asked": [], "request_queue_size": 128})  # for a hundred threads
    with answering(kind((host, 0), Notes)) as server:
        server.reply = lambda _: (200, {}, b"data")
        server.url = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"
        yield server


@pytest.fixture
def server() -> Iterator[NotingServer]:
    with noting() as server:
        yield server


@pytest.fixture
def place(s3_behind_proxy: Place) -> Place:
    return s3_behind_proxy

"""Lakes that are served, and what asks for them."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.catalog import rest
from manifestcommit.store import StorageOptions, open_store

ICEBERG = {"export.formats": "iceberg"}
TOKEN = "not-for-logs"


class Answer(NamedTuple):
    """status, headers with names in lower case, and the body, of JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Server(NamedTuple):
    """A server that runs, by its address."""

    address: str
    token: str | None = None

    def ask(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None) -> Answer:
        """One request, whose path is sent as it is."""
        given = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        try:
            connection.request(method, path, body, given | dict(headers or {}))
            response = connection.getresponse()
            data = response.read()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, json.loads(data) if data else None)
        finally:
            connection.close()

    def load(self, name: str, method: str = "GET", **headers: str) -> Answer:
        """A table by its name."""
        *namespace, own = name.split(".")
        given = {each.replace("_", "-"): value for each, value in headers.items()}
        return self.ask(f"/v1/namespaces/{quote(chr(31).join(namespace))}/tables/{quote(own, safe='')}", method, given)


@contextmanager
def served(catalog: rest.Catalog, *, token: str | None = None, host: str = "127.0.0.1") -> Iterator[Server]:
    """The server of a catalog, in a thread."""
    server, listener, address = rest.make_server(catalog, host=host, port=0, token=token)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Server(address, token)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def lake(tmp_path: Path) -> mc.Lake:
    """Tables at the root, in folders, in folders of these; one that is not exported."""
    made = mc.lake(tmp_path / "lake")
    for name in ("flights", "sales.orders", "sales.eu.orders"):
        made.create(name, pa.schema([("n", pa.int64())]), properties=ICEBERG)
        mc.write(pa.table({"n": [1, 2, 3]}), made.table(name).url)
    mc.write(pa.table({"n": [1]}), made.table("sales.plain").url)
    return made


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Serves a lake until the test ends."""
    with ExitStack() as stack:

        def begin(lake: mc.Lake, *, token: str | None = None, refresh_s: float = 0.0, options: Any = None, **where: Any) -> Server:
            catalog = rest.Catalog(open_store(lake.url, options), StorageOptions(options), refresh_s=refresh_s)
            return stack.enter_context(served(catalog, token=token, **where))

        yield begin


@pytest.fixture
def server(lake: mc.Lake, start: Callable[..., Server]) -> Server:
    return start(lake)

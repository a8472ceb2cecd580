"""Servers of HTTP that a test writes."""

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import ThreadingHTTPServer
from typing import TypeVar

import pytest
from tests.servers.fixtures import SKIPPED
from tests.servers.servers import APT_SCRIPT

import manifestcommit as mc
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore

_Server = TypeVar("_Server", bound=ThreadingHTTPServer)


@contextlib.contextmanager
def answering(server: _Server) -> Iterator[_Server]:
    """Within, a thread answers."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Counting(CountingStore):
    """Counts lists of folders, too, as one request each."""

    def folders(self, prefix: str) -> Sequence[str]:
        return self._call("list", prefix, lambda: tuple(self._inner.folders(prefix)))


def stored(lake: mc.Lake) -> dict[str, bytes]:
    """All objects of the lake."""
    store = open_store(lake.url)
    return {info.name: store.get(info.name) for info in store.list("")}


@pytest.fixture(scope="module")
def chromium() -> str:
    """Chromium, installed where it is missing: on Debian, as root."""
    if shutil.which("chromium") is None:
        said = subprocess.run([APT_SCRIPT, "chromium"], capture_output=True, text=True, check=False)
        if said.returncode:
            reason = said.stderr.strip().splitlines()[-1]
            if os.environ.get("MC_SERVERS") == "required":
                pytest.fail(f"no Chromium: {reason}", pytrace=False)
            pytest.skip(f"{SKIPPED}Chromium: {reason}")
    return str(shutil.which("chromium"))

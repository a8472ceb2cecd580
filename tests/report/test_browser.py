"""A real browser shows the page: no error in its console, no request for anything else, at two widths."""

import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.catalog.browser import browser
from tests.report.synthetic import data_of, head, schema_of
from tests.report.test_page import HOSTILE
from tests.servers.fixtures import SKIPPED
from tests.servers.servers import APT_SCRIPT

from manifestcommit.report.page import render


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


@contextmanager
def served(html: str) -> Iterator[tuple[str, list[str]]]:
    """The page on the loopback, and the paths that were asked for."""
    asked: list[str] = []

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.path == "/" else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(html.encode() if self.path == "/" else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["", HOSTILE["script"]], ids=["plain", "hostile"])
@pytest.mark.parametrize("width", [800, 1400])
def test_a_browser_shows_the_page_and_asks_for_nothing(chromium: str, tmp_path: Path, width: int, text: str) -> None:
    newest = head(300, schema_of(["day", "flight"]), watermarks={"topic:0": 7})
    html = render(data_of(newest, versions=300, text=text))
    picture = tmp_path / "page.png"
    with served(html) as (url, asked), browser(chromium, tmp_path) as shown:
        shown.show(width)
        shown.open(url)
        shown.picture(picture)
        assert shown.said == []
    assert asked == ["/"]
    png = picture.read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">I", png[16:20])[0] == width
    assert len(png) > 30_000  # a blank one of this size has a tenth of that


@pytest.mark.thorough
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(chromium: str, tmp_path: Path, width: int) -> None:
    """What needs more room scrolls in its own place."""
    newest = head(300, schema_of(["day", "flight"]), watermarks={"topic:0": 7})
    page = render(data_of(newest, versions=300, text=HOSTILE["long"][:400]))
    with served(page) as (url, _), browser(chromium, tmp_path) as shown:
        shown.show(width)
        shown.open(url)
        assert shown.value("[document.documentElement.scrollWidth, innerWidth]") == [width, width]


@pytest.mark.thorough
def test_what_a_page_may_not_do_is_seen_here(chromium: str, tmp_path: Path) -> None:
    """The control: the policy stops a script, a style and a picture, and the console says so."""
    html = render(data_of(head(3, schema_of(["a"])), versions=3))
    html = html.replace("<h1>", "<script>document.title='run'</script><img src=/picture><p style='color:red'>x</p><h1>", 1)
    with served(html) as (url, asked), browser(chromium, tmp_path) as shown:
        shown.open(url)
        assert shown.value("document.title") != "run" and "Growth" in shown.value("document.body.innerText")
        assert len([line for line in shown.said if "Content Security Policy" in line]) >= 3
    assert asked == ["/"]

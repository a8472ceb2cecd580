"""Pages of a lake and of its tables. [LK9]"""

import base64
import hashlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pytest
from tests.catalog.browser import browser
from tests.catalog.conftest import ICEBERG, TOKEN, Server, served
from tests.kit.web import chromium as chromium
from tests.kit.web import stored

import manifestcommit as mc
from manifestcommit.catalog import pages, rest
from manifestcommit.display import size_text
from manifestcommit.store import open_store

ONE = pa.schema([("n", pa.int64())])
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "ul", "li", "b", "span", "section", "div", "footer", "bdi"),
    *("table", "thead", "tbody", "tr", "th", "td", "a", "form", "label", "input", "button"),
}
NAMES = ["a b", "100%", "été", "日本", "x#y?z", "'; --", "<b>bold</b>", '" onclick=alert(1) x="', "{{ 7 * 7 }}", "&lt;", "$(id)"]
TEXTS = ["</style><script>alert(1)</script>", '" onmouseover="alert(1)', "{{ 7 * 7 }}", "abc\u202egpj.exe", "\x1b[31m\x07"]


class Page(HTMLParser):
    """The texts and links of a page; an element or attribute that no template has is an error."""

    def __init__(self, html: str, policy: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.texts: list[str] = []
        self.style, self._open = "", [""]
        self.feed(html)
        self.close()
        digest = base64.b64encode(hashlib.sha256(self.style.encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy and "script" not in policy
        assert "url(" not in self.style and "@import" not in self.style and "prefers-color-scheme:dark" in self.style

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, f"<{tag}>"
        given = dict(attrs)
        assert not [name for name in given if name.startswith("on") or name in ("style", "src", "srcdoc")], given
        if tag == "a":
            assert (given["href"] or "").startswith("/"), "it leads elsewhere"
            self.links.append(given["href"] or "")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open[-1] == "style":
            self.style += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def soon() -> Iterator[None]:
    """Again and again, for half a minute at most."""
    for _ in range(600):
        yield
        time.sleep(0.05)


def opened(server: Server, path: str = "/", status: int = 200, headers: dict[str, str] | None = None) -> Page:
    """The page at a path."""
    text, found = fetched(server, path, status, headers)
    return Page(text, found["content-security-policy"])


def fetched(server: Server, path: str, status: int = 200, headers: dict[str, str] | None = None) -> tuple[str, dict[str, str]]:
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=60)
    connection.request("GET", path, headers=headers or {})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    assert response.status == status, data
    return data.decode(), {name.lower(): value for name, value in response.getheaders()}


def test_the_page_of_a_lake_has_each_table_with_its_figures(lake: mc.Lake, server: Server) -> None:
    """[LK9]"""
    page = opened(server)
    assert page.links == ["/tables/flights", "/tables/sales.eu.orders", "/tables/sales.orders", "/tables/sales.plain"]
    assert "4 tables. As of 20" in page.text and "s ago." in page.text
    row = page.text[page.text.index("sales.orders") : page.text.index("sales.plain")]
    size = size_text(lake.table("sales.orders").snapshot().totals.bytes)
    assert row.split()[1] == "ok" and f" 3 {size} 1 2 " in row


def test_links_lead_to_pages_of_tables(lake: mc.Lake, server: Server) -> None:
    lake.table("sales.orders").add_column("note", "string")
    mc.write(pa.table({"n": [5], "note": ["x"]}), lake.table("sales.orders").url, key="day 1", message="what for")
    for link in opened(server).links:
        page = opened(server, link)
        assert page.links[:2] == ["/", f"{link}/report"]
        html, headers = fetched(server, f"{link}/report")
        assert html.startswith("<!DOCTYPE html>") and headers["content-security-policy"] == "sandbox"
    text = opened(server, "/tables/sales.orders").text
    assert "note string yes" in text and "day 1" in text and "what for" in text and "The newest 4 commits" in text


def test_a_search_finds_parts_of_paths(server: Server) -> None:
    assert opened(server, "/?q=EU").links == ["/", "/tables/sales.eu.orders"]
    page = opened(server, f"/?q={quote(TEXTS[0])}")
    assert page.links == ["/"] and "0 tables of 4" in page.text and TEXTS[0] in page.text
    opened(server, f"/?q={'x' * 5000}")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_text_and_its_link_leads_to_it(tmp_path: Path, start: Callable[..., Server], name: str) -> None:
    lake = mc.lake(tmp_path)
    lake.create(name.replace("/", "").replace("=", "-").replace(".", "-"), ONE)
    (known,) = lake.tables().column("name").to_pylist()
    server = start(lake)
    page = opened(server)
    (link,) = page.links
    assert unquote(link) == f"/tables/{known}" and known in page.text
    assert known in opened(server, link).text and fetched(server, f"{link}/report")


@pytest.mark.parametrize("text", TEXTS)
def test_what_a_table_holds_is_shown_as_text(tmp_path: Path, start: Callable[..., Server], text: str) -> None:
    lake = mc.lake(tmp_path)
    mc.write(pa.table({f"c{text}": [1]}), lake.table("t").url, key=f"k{text}", message=f"m{text}" if text.isprintable() else "m")
    html, _ = fetched(start(lake), "/tables/t")
    page = opened(start(lake), "/tables/t")
    assert all(each.isprintable() or each == "\n" for each in html)
    for mark in "ckm":
        assert f"{mark}{text[:2] if text.isprintable() else ''}" in page.text


def test_a_table_without_a_name_is_listed_and_has_no_link(lake: mc.Lake, start: Callable[..., Server]) -> None:
    mc.write(pa.table({"n": [1]}), f"{lake.url}/v1.2/t")
    page = opened(start(lake))
    assert "v1.2/t" in page.text and not [link for link in page.links if "v1" in link]


def test_a_damaged_table_is_shown_with_the_reason_beside_the_others(lake: mc.Lake, start: Callable[..., Server]) -> None:
    root = Path(lake.table("sales.orders").url.removeprefix("file://"))
    for file in (root / "_manifest" / "versions").glob("*.zst"):
        file.write_bytes(b"damaged")
    mc.write(pa.table({"n": [1]}), lake.table("flights").url)
    server = start(lake)
    page = opened(server)
    assert len(page.links) == 4 and page.text.count(" ok ") == 3
    assert "00000000000000000002" in page.text
    assert "cannot be shown" in opened(server, "/tables/sales.orders", 503).text


def test_sources_and_jobs_that_wait_are_shown(tmp_path: Path, start: Callable[..., Server]) -> None:
    """And a job that nobody decides is seen without asking for it."""
    lake = mc.lake(tmp_path)
    mc.write(pa.table({"n": [1]}), lake.table("t").url, watermarks={f"s{TEXTS[0]}": (None, 41)})
    server = start(lake)
    assert "Jobs" not in opened(server, "/tables/t").text
    with mc.begin(lake.table("t").url) as job:
        job.write(pa.table({"n": [2]}))
        job.prepare()
    mc.write(pa.table({"n": [3]}), lake.table("t").url, publish=False)
    text = opened(server, "/tables/t").text
    jobs = text[text.index("job state since size") : text.index("Schema")].split()
    assert jobs.count("prepared") == 2
    assert f"s{TEXTS[0]} 41" in text and " ago" in text[text.index("Sources") : text.index("Jobs")]
    lists = (opened(server).text for _ in soon())
    assert any(" jobs that wait t ok " in each and " 1 2 2 manifestcommit" in each for each in lists)


def test_rows_are_shown_where_the_server_is_asked_to(tmp_path: Path) -> None:
    """[LK9]"""
    lake = mc.lake(tmp_path)
    far = pa.array([2**62], pa.timestamp("us"))
    hostile = pa.table({"text": TEXTS, "far": pa.concat_arrays([far] * len(TEXTS)), "deep": [[{"n": None}]] * len(TEXTS)})
    mc.write(hostile, lake.table("t").url)
    lake.create("empty", ONE)
    for sample in (0, 3):
        with served(rest.Catalog(open_store(lake.url), sample=sample)) as server:
            page = opened(server, "/tables/t")
            shown = [text for text in page.texts if "[{'n': None}]" in text]
            assert len(shown) == sample and ("Some rows" in page.text) is bool(sample)
            assert "Some rows" not in opened(server, "/tables/empty").text
    assert TEXTS[1] in page.text


def test_an_export_that_is_behind_is_a_problem(lake: mc.Lake, start: Callable[..., Server]) -> None:
    hint = Path(lake.table("sales.orders").url.removeprefix("file://")) / "_iceberg" / "metadata" / "version-hint.text"
    hint.write_text("1")
    assert "the export to iceberg is 1 version behind" in opened(start(lake)).text
    hint.unlink()
    assert "nothing is exported to iceberg" in opened(start(lake), "/tables/sales.orders").text


@pytest.mark.parametrize("path", ["/tables/none", "/tables/a..b", "/tables/_manifest", "/tables/%00", "/tables/none/report"])
def test_a_page_that_is_not_there_says_why(server: Server, path: str) -> None:
    assert "There is no such table" in opened(server, path, 404).text


def test_pages_write_nothing(lake: mc.Lake, server: Server) -> None:
    """[LK7]"""
    before = stored(lake)
    for link in opened(server).links:
        opened(server, link)
        fetched(server, f"{link}/report")
    assert stored(lake) == before


def test_only_the_first_waits_for_what_is_read_again(lake: mc.Lake) -> None:
    """And each sees how old it is. [LK9]"""
    going, ended, reading = threading.Event(), threading.Event(), threading.Lock()
    ended.set()
    catalog = rest.Catalog(open_store(lake.url), refresh_s=0)
    read = catalog.rows._read

    def slow() -> Any:
        for _ in range(6_000):
            going.set()  # again and again: one that the first request began may be waiting here when it is cleared
            with reading:
                if ended.wait(0.01):
                    return read()
        raise AssertionError("nobody ended it")

    catalog.rows._read = slow
    with served(catalog) as server:
        first = opened(server)
        with reading:  # none that the first request began is under way
            ended.clear()
        going.clear()
        lake.create("new", ONE)
        assert all(opened(server).links == first.links for _ in range(3))
        assert going.wait(60)
        ended.set()
        assert any(len(opened(server).links) > len(first.links) for _ in soon())


def test_a_page_of_a_thousand_tables_takes_a_third_of_a_second(lake: mc.Lake) -> None:
    """Of this process' time, request and response included, once the list is there; each has a problem or a job that waits. [LK9]"""
    now_us = 1_790_000_000_000_000
    shown = {"version": 1_234, "rows": 10**9, "bytes": 10**12, "files": 4_321, "committed_us": now_us, "data_us": now_us}
    rows = [
        pages.Row(path=f"sales/{name}{at}", name=f"sales.{name}{at}", waiting=at % 3, problems=(TEXTS[at % 5],) * (at % 2), **shown)
        for at in range(100)
        for name in NAMES[1:]
    ]
    catalog = rest.Catalog(open_store(lake.url), refresh_s=3600)
    catalog.rows._read = lambda: (rows, catalog.env.now_us())
    taken = []
    with served(catalog) as server:
        for _ in range(4):
            began = time.process_time()
            text, _ = fetched(server, "/")
            taken.append(time.process_time() - began)
    assert len(rows) == 1_000 and text.count("<tr><td") == 1_000
    assert min(taken[1:]) <= 0.3, taken


def test_a_failure_to_read_again_leaves_what_is_there(lake: mc.Lake, caplog: pytest.LogCaptureFixture) -> None:
    catalog = rest.Catalog(open_store(lake.url), refresh_s=0)
    with served(catalog) as server:
        links = opened(server).links

        def fails() -> Any:
            raise OSError("gone")

        catalog.rows._read = fails
        assert any(opened(server).links == links and "gone" in caplog.text for _ in soon())


def test_a_browser_sends_the_token_as_a_password(lake: mc.Lake, start: Callable[..., Server]) -> None:
    """For pages only. [LK8]"""
    server = start(lake, token=TOKEN)
    basic = {"Authorization": f"Basic {base64.b64encode(f'anyone:{TOKEN}'.encode()).decode()}"}
    assert len(opened(server, headers=basic).links) == 4
    assert opened(server, headers={"Authorization": f"Bearer {TOKEN}"}).links
    wrong = ["", "Basic", "Basic x", "Basic é", f"Basic {base64.b64encode(b'a:b').decode()}", f"Basic {TOKEN}"]
    for given in wrong:
        for path in ("/", "/tables/flights", "/tables/flights/report", "/none"):
            _, headers = fetched(server, path, 401, {"Authorization": given})
            assert headers["www-authenticate"].startswith("Basic ")
    assert fetched(server, "/v1/config", 401, basic)[1]["www-authenticate"] == "Bearer"


# --- in a browser

# Texts of a page that are hard to see: their colour has less than 4.5 times the light of what is behind them, or the reverse (WCAG AA).
FAINT = """
(() => {
  const parts = (text) => (text.match(/[0-9.]+/g) || []).map(Number);
  const linear = (each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4;
  const light = (rgb) => rgb.slice(0, 3).map((each) => linear(each / 255))
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const found = parts(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim(), node = texts.currentNode.parentElement;
    const two = [light(parts(getComputedStyle(node).color)), light(behind(node))];
    if (text && (Math.max(...two) + 0.05) / (Math.min(...two) + 0.05) < 4.5) faint.push(`${node.tagName}: ${text}`);
  }
  return faint;
})()
"""
FOCUSED = """
(() => {
  const found = document.activeElement, style = getComputedStyle(found);
  return [found.name || found.textContent, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0];
})()
"""
HOSTILE = "hostile.<img src-x onerror-alert(1)>"


@pytest.mark.thorough
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_pages_at_every_width_light_and_dark(
    chromium: str, lake: mc.Lake, server: Server, tmp_path: Path, width: int
) -> None:
    """Nothing is refused to them, and nothing is wider than the window: what needs more room scrolls in its place. All text can be read."""
    lake.create(f"wide.{'x' * 200}", ONE, properties=ICEBERG)
    for name in [HOSTILE, *(f"hostile.{each.replace('/', '')}" for each in NAMES if "=" not in each and "." not in each)]:
        mc.write(pa.table({"c" * 200: ["日本🦆" * 100]}), lake.table(name).url, key=TEXTS[1], watermarks={TEXTS[0]: (None, 1)})
    Path(lake.table("sales.orders").url.removeprefix("file://"), "_iceberg/metadata/version-hint.text").unlink()
    paths = ["/", *opened(server).links, "/?q=none"]
    with browser(chromium, tmp_path) as shown:
        for is_dark in (False, True):
            shown.show(width, is_dark=is_dark)
            for path in paths:
                shown.open(server.address + path)
                assert shown.value("[document.documentElement.scrollWidth, innerWidth]") == [width, width], path
                assert shown.value(FAINT) == [], (path, is_dark)
                back = shown.value("getComputedStyle(document.body).backgroundColor")
                assert back == ("rgb(20, 24, 28)" if is_dark else "rgb(255, 255, 255)")
        assert f"/tables/{quote(HOSTILE)}" in paths and shown.said == []


@pytest.mark.thorough
def test_everything_can_be_done_by_keyboard(chromium: str, lake: mc.Lake, server: Server, tmp_path: Path) -> None:
    """What has the focus is seen; what is beside the window is scrolled to."""
    mc.write(pa.table({"n": [1]}), lake.table(HOSTILE).url)
    names = ["flights", HOSTILE, "sales.eu.orders", "sales.orders", "sales.plain"]
    with browser(chromium, tmp_path) as shown:
        shown.show(390)
        shown.open(server.address)
        reached = []
        for _ in range(7):
            shown.press("Tab")
            reached.append(shown.value(FOCUSED))
        assert reached == [[name, True] for name in ("q", "search", *names)]
        shown.value("scrollTo(0, 0)")
        assert shown.value("document.querySelector('.scroll').scrollLeft") == 0
        shown.press("ArrowRight")
        assert any(shown.value("document.querySelector('.scroll').scrollLeft") > 0 for _ in soon())
        shown.press("Tab", is_back=True)
        with shown.loading():
            shown.press("Enter")
        assert shown.value("document.title") == "sales.orders"
        shown.press("Tab")
        with shown.loading():
            shown.press("Enter")
        assert shown.value("location.pathname") == "/"
        shown.press("Tab")
        shown.call("Input.insertText", text="eu")
        with shown.loading():
            shown.press("Enter")
        assert shown.value("[location.search, document.querySelectorAll('tbody tr').length]") == ["?q=eu", 1]

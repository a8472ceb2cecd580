"""`Table.report`: what the page shows, through Python and the command line."""

import html
import json
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.catalog.browser import browser
from tests.kit.tables import table_with
from tests.kit.web import answering
from tests.kit.web import chromium as chromium
from tests.report.pages import Page
from tests.report.synthetic import data_of, head, schema_of

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.log.table_context import TableContext
from manifestcommit.report import data as data_module
from manifestcommit.report.data import read_report
from manifestcommit.report.page import render
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions: 1 create, 2 and 3 append, 4 overwrite, 5 a new column, 6 a tag, 7 a rewind; one prepared job."""
    root = tmp_path_factory.mktemp("report") / "flights"
    rows = pa.table({"day": ["2013-01-01", "2013-01-02"], "flight": [1545, 1714]})
    mc.write(rows, root, partition_by=["day"], key="flights:1", watermarks={"faa": (0, 100)})
    mc.write(rows, root, key="flights:2", watermarks={"faa": (100, 250)})
    table = table_with(rows, root, mode="overwrite", key="again")
    table.add_column("tail", "string")
    table.tag("audited")
    table.rewind("faa", 100, reason="wrong file delivered")
    job = mc.begin(root)
    job.write(rows)
    job.prepare()
    return root


def test_the_page_shows_what_the_table_is(root: Path) -> None:
    table = mc.Table(root)
    report = table.report(ends={"faa": 300})
    page = Page(report.html)
    page.check_policy()
    snapshot = table.snapshot()
    assert report.version == snapshot.version
    assert page.tiles["rows"] == f"{snapshot.totals.rows:,}" and page.tiles["version"] == str(snapshot.version)
    assert page.tiles["waiting jobs"] == "1" and page.tiles["watermark sources"] == "1"
    assert len(page.of_class("commit")) == len(table.history())
    assert "day=2013-01-01" in page.text("partitions") and "day=2013-01-02" in page.text("partitions")
    assert "faa 100 200" in page.text("watermarks")
    assert "+ tail: string" in page.text("schema") and "+ flight: long" in page.text("schema")
    assert "prepared" in page.text("jobs")
    assert "audited" in page.text("growth")
    assert "wrong file delivered" in page.text("commits") and "flights:2" in page.text("commits")
    assert not page.text("gc")


def test_the_command_writes_the_page(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    assert main(["report", str(root), "-o", str(file), "--gc", "--last", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(file), "version": 7, "bytes": file.stat().st_size}
    page = Page(file.read_text("utf-8"))
    page.check_policy()
    assert "What gc would delete" in page.text("gc")
    assert "The newest 3 of 7 readable versions" in page.text("growth") and len(page.of_class("commit")) == 3
    assert main(["report", str(root)]) == 0
    assert Page(capsys.readouterr().out).tiles["version"] == "7"


def test_the_page_and_lineage_say_who_committed_and_what_for(tmp_path: Path) -> None:
    """[OB15]"""
    table = mc.Table(tmp_path / "t")
    note = {"message": "late rows <b>", "metadata": {"git": "4d6b4d9"}}
    mc.write(pa.table({"a": [1, 2]}), table.url, watermarks={"s": (0, 2)}, **note)
    author = table.history(1)[0]["author"]
    page = table.report().html
    assert "late rows &lt;b&gt;" in page and "4d6b4d9" in page and html.escape(author["program"]) in page
    found = table.lineage("s", 1)
    assert found is not None and (found.message, found.metadata) == ("late rows <b>", {"git": "4d6b4d9"})
    assert found.author == author


# --- hostile texts in every place ---------------------------------------------------------------------------------------
HOSTILE = {
    "script": "</script></style></title><script>alert(1)</script><img src=x onerror=alert(1)>",
    "attribute": '" onmouseover="alert(1)" x=\'', "direction": "abc\u202egpj.exe\u2066\u200f", "NUL": "a\0b\x1b[31m\x07",
    "template": "{{ 7 * 7 }}{% raw %}{# x #}&lt;&amp;", "surrogate": "a\ud800b", "newline": "a\n\r\n\u2028<b>", "long": '<&">' * 2_500,
    "wide": "日本🦆" * 3_000,
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_is_only_a_text_wherever_it_is(text: str) -> None:
    newest = head(30, schema_of([text, "b"]), watermarks={text: text[:100], "b": 7})
    html = render(data_of(newest, versions=30, text=text))
    page = Page(html)  # it fails on an element or attribute that no template has
    page.check_policy()
    assert not [each for each in html if each != "\n" and not each.isprintable()]
    beginning = text[:2].encode("unicode_escape").decode() if not text[:2].isprintable() else text[:2]
    for section in ("partitions", "watermarks", "schema", "jobs", "gc", "commits"):
        assert beginning in page.text(section), section
    assert len(html.encode()) < 2_000_000
    assert html == html.encode().decode()


@pytest.mark.parametrize("text", [HOSTILE["script"], HOSTILE["attribute"], HOSTILE["direction"], HOSTILE["template"]])
def test_a_table_with_hostile_names_has_a_page(tmp_path: Path, text: str) -> None:
    """Through the store: columns, partition values, keys, sources, tags and reasons."""
    root = tmp_path / "a b" / "<i>'\"&"
    rows = pa.table({text: [text, None], f"v{text}": [1, 2]})
    table = table_with(rows, root, partition_by=text, key=text, watermarks={text: (None, text)})
    table.tag(text)
    table.rewind(text, None, reason=text)
    page = Page(table.report(gc=True).html)
    page.check_policy()
    assert len(page.of_class("commit")) == len(table.history()) == 4
    assert text[:3] in page.text("partitions") and text[:3] in page.text("commits")


def test_a_frame_in_a_notebook_holds_the_page_and_no_more(tmp_path: Path) -> None:
    report = table_with(pa.table({"a": [1]}), tmp_path / "t", key=HOSTILE["script"]).report()
    frame = report._repr_html_()
    assert frame.startswith("<iframe sandbox ") and frame.count("<") == 2 and frame.endswith("</iframe>")
    assert repr(report).startswith("Report(version=2, ") and len(repr(report)) < 60


# --- a page is bounded --------------------------------------------------------------------------------------------------
MOST_BYTES = 2_000_000


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("versions", "files", "partitions", "columns", "sources"),
    [(1, 1, 1, 1, 0), (10, 100, 3, 5, 2), (100_000, 1_000_000, 10_000, 10_000, 20_000)],
)
def test_a_page_stays_small(versions: int, files: int, partitions: int, columns: int, sources: int) -> None:
    schema = schema_of([f"column_{at}" for at in range(columns)])
    newest = head(versions, schema, watermarks={f"topic:{at}": at for at in range(sources)})
    found = data_of(newest, versions=versions, files=files, partitions=partitions)
    html = render(found)
    page = Page(html)
    page.check_policy()
    assert len(html.encode()) < MOST_BYTES
    assert page.tiles["version"] == f"{versions:,}" and page.tiles["columns"] == f"{columns:,}"
    history = found.history
    assert len(history.buckets) == min(versions, data_module.BUCKETS)
    assert len(history.commits) == min(versions, data_module.COMMITS) and history.commit_count == versions
    assert sum(sum(bucket.operations.values()) for bucket in history.buckets) == versions
    assert (history.buckets[0].first, history.buckets[-1].last) == (1, versions)
    shown, others = found.file_view.partitions, found.file_view.others
    assert len(shown) == min(partitions, data_module.PARTITIONS)
    assert sum(each.files for each in shown) + (others.files if others else 0) == files // partitions * partitions
    kept = msgspec.structs.asdict(found) | {"history": [history.buckets, history.commits, history.schema_changes]}
    assert len(msgspec.json.encode(kept)) < MOST_BYTES  # what is kept is bounded as well


def test_operations_of_any_name_do_not_add_up() -> None:
    """The set is open: whoever writes metadata may name as many as they like."""
    newest = head(5_000, schema_of(["a"]))
    reducer = data_module.HistoryView(newest, 5_000, "memory://t")
    for version in range(5_000, 0, -1):
        one = head(version, schema_of(["a"]))
        reducer.add(msgspec.structs.replace(one, commits=(msgspec.structs.replace(one.commits[0], operation=f"op{version}"),)))
    assert len(reducer.operations) == data_module.REASONS + 1


@pytest.fixture(scope="module")
def url() -> str:
    """Thirty versions with one file each, after the one that creates the table."""
    url = f"memory://report/{id(sys)}/bounds"
    for at in range(30):
        mc.write(pa.table({"day": [f"{at % 5}"], "a": [at]}), url, partition_by="day")
    return url


@pytest.mark.parametrize("last", [1, 7, 30, 100])
def test_one_request_for_each_version_that_is_read(url: str, last: int) -> None:
    store = CountingStore(open_store(url))
    found = read_report(TableContext(store), last=last, with_gc=False, ends=None)
    count = min(last, mc.Table(url).version)
    assert found.history.last - found.history.first + 1 == count
    requests = store.requests()
    # the newest version comes with the opening: three requests, two of them gets or less
    assert requests["get"] <= count + 1 and requests["list"] <= 3 and set(requests) <= {"get", "list"}


def test_a_report_changes_nothing(url: str) -> None:
    table = mc.Table(url)
    before = table.version
    for gc in (False, True):
        Page(table.report(gc=gc).html).check_policy()
    assert table.version == before
    store = CountingStore(open_store(url))
    read_report(TableContext(store), last=5, with_gc=True, ends={"topic": 5})
    assert set(store.requests()) <= {"get", "list"}


# --- in a REPL and in a notebook ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module", params=["plain", "script", "attribute", "direction", "template", "long", "wide"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[mc.Table, mc.Outcome, str]:
    text = HOSTILE.get(request.param, "flights:1")
    root = tmp_path_factory.mktemp("notebook") / "<b>'\"&\u202e"
    column = text[:200]
    outcome = mc.write(pa.table({column: [1, 2]}), root, key=text, watermarks={text: (None, text)})
    table = mc.Table(root)
    table.rewind(text, None, reason=text)
    return table, outcome, text


def test_a_value_is_one_line_in_a_repl(made: tuple[mc.Table, mc.Outcome, str]) -> None:
    table, outcome, _ = made
    for value in (outcome, outcome.metrics, table.gc(), table.verify(), table.metrics()):
        assert len(repr(value)) <= 100 and repr(value).isprintable(), repr(value)
        assert repr(value).startswith(f"{type(value).__name__}(")
    assert repr(outcome).startswith("Outcome(kind='committed', version=2, rows=2, files=1, attempts=1, seconds=")


def test_a_row_change_shows_the_rows_that_it_changed(tmp_path: Path) -> None:
    mc.write(pa.table({"id": [1, 2, 3]}), tmp_path)
    merged = repr(mc.Table(tmp_path).merge(pa.table({"id": [3, 4]}), on="id"))
    assert merged.startswith("RowOutcome(kind='committed', version=3, rows_updated=1, rows_inserted=1, files_rewritten=1, "), merged
    assert repr(mc.Table(tmp_path).compact()).startswith("Compaction(commits=0, groups=0, rows=0, ")


def test_a_waiting_job_shows_the_id_that_finishes_it(tmp_path: Path) -> None:
    with mc.begin(tmp_path / "t") as job:
        job.write(pa.table({"a": [1]}))
        prepared = job.prepare()
    (found,) = mc.Table(tmp_path / "t").jobs()
    assert repr(found).startswith(f"JobInfo(job='{prepared}', state='prepared', ") and len(repr(found)) <= 100


def test_a_history_is_a_list_and_prints_as_a_table(made: tuple[mc.Table, mc.Outcome, str]) -> None:
    table, _, text = made
    history = table.history()
    assert isinstance(history, list) and history[0]["operation"] == "rewind" and history[0]["reason"] == text
    assert history == list(history) and history[1]["summary"]["rows"] == 2 and history[:1] == [history[0]]
    lines = repr(history).splitlines()
    assert lines[0].split()[:5] == ["version", "committed", "at", "(UTC)", "operation"] and len(lines) == 2 + len(history)
    assert all(line.isprintable() and len(line) < 200 for line in lines)
    assert json.loads(json.dumps(history, default=str))[0]["version"] == 3
    assert repr(table.history(0)) == "[]"


def test_a_long_history_prints_its_beginning(tmp_path: Path) -> None:
    table = mc.Table(tmp_path)
    for at in range(24):
        mc.write(pa.table({"a": [at]}), tmp_path)
    assert repr(table.history()).endswith("\n… and 5 more")
    assert len(table.history()) == 25


def test_findings_are_shown(tmp_path: Path) -> None:
    table = table_with(pa.table({"a": [1]}), tmp_path)
    (name,) = table.files()["path"].to_pylist()
    (tmp_path / name).unlink()
    report = table.verify()
    assert not report.is_sound and "damages=1" in repr(report)


def test_a_struct_is_what_it_was(tmp_path: Path) -> None:
    """Comparison, hash and JSON are as before; only its text is another."""
    outcome = mc.write(pa.table({"a": [1]}), tmp_path)
    assert outcome == msgspec.structs.replace(outcome) and hash(outcome) == hash(msgspec.structs.replace(outcome))
    assert msgspec.to_builtins(outcome)["version"] == outcome.version
    assert main(["verify", str(tmp_path), "--json"]) == 0


# --- in a real browser --------------------------------------------------------------------------------------------------


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

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Pages)) as server:
        yield f"http://127.0.0.1:{server.server_port}/", asked


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

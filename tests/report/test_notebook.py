"""What public values print in a REPL and in a notebook: short, escaped, and of the type that they were."""

import json
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.report.test_page import HOSTILE

import manifestcommit as mc
from manifestcommit.cli.main import main


class Tables(HTMLParser):
    """Elements of small tables; any other element, and every attribute, is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"table", "thead", "tbody", "tr", "th", "td", "p"} and not attrs, (tag, attrs)

    def handle_data(self, data: str) -> None:
        assert data.isprintable(), data
        self.cells.append(data)


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


def test_a_waiting_job_shows_the_id_that_finishes_it(tmp_path: Path) -> None:
    with mc.begin(tmp_path / "t") as job:
        job.write(pa.table({"a": [1]}))
        prepared = job.prepare()
    (found,) = mc.Table(tmp_path / "t").jobs()
    assert repr(found).startswith(f"JobInfo(job='{prepared}', state='prepared', ") and len(repr(found)) <= 100
    assert prepared in Tables(found._repr_html_()).cells


def test_a_value_is_a_small_table_in_a_notebook(made: tuple[mc.Table, mc.Outcome, str]) -> None:
    table, outcome, text = made
    for value in (outcome, outcome.metrics, table.gc(), table.verify(), table.metrics(), table, table.history()):
        html = value._repr_html_()  # type: ignore[union-attr]
        assert Tables(html).cells and len(html) < 20_000
    cells = Tables(table.history()._repr_html_()).cells  # type: ignore[attr-defined]
    assert [cell for cell in cells if cell.startswith(text[:2])]


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
    assert repr(table.history()).endswith("\n… and 5 more") and "<p>… and 5 more</p>" in table.history()._repr_html_()  # type: ignore[attr-defined]
    assert len(table.history()) == 25


def test_showing_a_table_asks_nothing_of_the_store(tmp_path: Path) -> None:
    """There need be none: a notebook shows what a cell returns, whatever it is."""
    assert Tables(mc.Table(tmp_path / "none")._repr_html_()).cells[0] == "table"


def test_findings_are_shown(tmp_path: Path) -> None:
    mc.write(pa.table({"a": [1]}), tmp_path)
    table = mc.Table(tmp_path)
    (name,) = table.files()["path"].to_pylist()
    (tmp_path / name).unlink()
    report = table.verify()
    assert not report.is_sound and "damages=1" in repr(report)
    assert {"damage", "file_missing"} <= set(Tables(report._repr_html_()).cells)


def test_a_struct_is_what_it_was(tmp_path: Path) -> None:
    """Comparison, hash and JSON are as before; only its text is another."""
    outcome = mc.write(pa.table({"a": [1]}), tmp_path)
    assert outcome == msgspec.structs.replace(outcome) and hash(outcome) == hash(msgspec.structs.replace(outcome))
    assert msgspec.to_builtins(outcome)["version"] == outcome.version
    assert main(["verify", str(tmp_path), "--json"]) == 0

"""`Table.report`: what the page shows, through Python and the command line."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.report.pages import Page

import manifestcommit as mc
from manifestcommit.cli.main import main


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions: 1 create, 2 and 3 append, 4 overwrite, 5 a new column, 6 a tag, 7 a rewind; one prepared job."""
    root = tmp_path_factory.mktemp("report") / "flights"
    rows = pa.table({"day": ["2013-01-01", "2013-01-02"], "flight": [1545, 1714]})
    mc.write(rows, root, partition_by=["day"], key="flights:1", watermarks={"faa": (0, 100)})
    mc.write(rows, root, key="flights:2", watermarks={"faa": (100, 250)})
    mc.write(rows, root, mode="overwrite", key="again")
    table = mc.Table(root)
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
    told = json.loads(capsys.readouterr().out)
    assert told == {"file": str(file), "version": 7, "bytes": file.stat().st_size}
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

"""What a command found, for people on a terminal and for programs: the same rows as a table, JSON, JSON lines and CSV."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cli import on_terminal

import manifestcommit as mc
from manifestcommit.cli.main import main

HOSTILE = "x\x1b[31m\n,\"'=1+1 日本"
Said = Callable[..., str]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 2 and 3 with rows in five partitions, null and hostile values among them, and a prepared job."""
    root = tmp_path_factory.mktemp("formats") / "flights"
    rows = pa.table({"p": [HOSTILE, "", None, "null", "a=b"], "v": [1, 2, 3, None, 5], "text": [HOSTILE, None, "", "z", "[bold]y"]})
    mc.write(rows, root, partition_by="p", key=HOSTILE, watermarks={HOSTILE: (0, 5)})
    mc.write(
        pa.table({"p": ["a=b"] * 5000, "v": range(5000), "text": ["t"] * 5000}), root, key="second", message='late\n"corrections", all'
    )
    mc.Table(root).set_properties({"owner": HOSTILE})
    with mc.begin(root) as job:
        job.write(rows)
        job.prepare()
    return root


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*arguments: Any, status: int = 0) -> str:
        capsys.readouterr()
        assert main([str(each) for each in arguments]) == status
        return capsys.readouterr().out

    return run


ROWS = ["history", "files", "partitions", "watermarks", "jobs", "schema", "head", "properties", "changes"]


def of(name: str, root: Path) -> list[str]:
    return [name, str(root), *(["2"] if name == "changes" else [])]


@pytest.mark.parametrize("name", ROWS)
def test_every_format_has_the_same_rows(root: Path, said: Said, name: str) -> None:
    """A line each in jsonl and csv, of the same members as in the document."""
    document = json.loads(said(*of(name, root), "--format", "json"))
    assert json.loads(said(*of(name, root), "--json")) == document
    lines = [json.loads(line) for line in said(*of(name, root), "--format", "jsonl").splitlines()]
    text = said(*of(name, root), "--format", "csv")
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(read) == len(lines) > 0
    for got, line in zip(read, lines, strict=True):
        assert list(got) == list(line)
        for member, value in line.items():
            text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            assert got[member] == text, member
    if isinstance(document, list):
        assert lines == document


def test_csv_tells_null_from_the_empty_text(root: Path, said: Said) -> None:
    lines = said("partitions", root, "--format", "csv").splitlines()
    assert {line.partition(",")[0] for line in lines if line.endswith((",1", ",2")) or ",1,1," in line} >= {"", '""', "null"}


@pytest.mark.parametrize("name", ["describe", "metrics"])
def test_one_document_is_one_row(root: Path, said: Said, name: str) -> None:
    document = json.loads(said(name, root, "--json"))
    (line,) = said(name, root, "--format", "jsonl").splitlines()
    (row,) = csv.DictReader(io.StringIO(said(name, root, "--format", "csv"), newline=""))
    assert list(json.loads(line)) == list(document) == list(row)


@pytest.mark.parametrize("name", ["history", "files", "partitions", "head", "jobs", "describe", "watermarks", "properties", "schema"])
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_table_fits_the_terminal_and_nothing_hostile_is_sent(
    root: Path, name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Escapes stay escaped, and markup is text. [LY1]"""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    found = on_terminal.run(*of(name, root), columns=columns)
    assert found.status == 0 and "\x1b" not in found.shown
    if columns > 40:
        table = [line for line in found.shown.splitlines() if "file://" not in line and "no room" not in line]
        assert max(map(width, table)) <= columns


def width(line: str) -> int:
    from manifestcommit.terminal import text_width

    return text_width(line)


@pytest.mark.parametrize(("variable", "value", "coloured"), [("NO_COLOR", "1", False), ("TERM", "dumb", False), ("TERM", "xterm", True)])
def test_colour_is_for_terminals_that_take_it(
    root: Path, said: Said, variable: str, value: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    found = on_terminal.run("jobs", root)
    assert bool(re.search(r"\x1b\[[\d;]*36m", found.shown)) == coloured, "prepared is cyan"
    assert "\x1b" not in said("jobs", root)


def test_colour_says_nothing_about_values_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is called "failed" did not fail."""
    monkeypatch.setenv("TERM", "xterm")
    mc.write(pa.table({"v": ["failed"]}), tmp_path / "t", key="failed")
    for name in ("history", "head"):
        assert not re.search(r"\x1b\[[\d;]*31m", on_terminal.run(name, tmp_path / "t").shown)


def test_a_pipe_has_no_width(root: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a row, whatever COLUMNS says: what cuts lines finds them whole."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = said("files", root).splitlines()
    assert len(lines) == 2 + mc.Table(root).files().num_rows and max(map(len, lines)) > 100


def test_sizes_are_rounded_and_exact_on_demand(root: Path, said: Said) -> None:
    size = mc.Table(root).metrics().bytes
    assert size > 10_000
    assert f"{size / 1024:.1f} KiB" in said("metrics", root) and f"{size:,}" in said("metrics", root, "--bytes")
    large = max(mc.Table(root).files()["bytes"].to_pylist())
    assert f"  {large / 1024:.1f} KiB  " in said("files", root) and f"  {large:,}  " in said("files", root, "--bytes")


# --- the new commands ------------------------------------------------------------------------------------------------------------
def test_partitions_and_schema_are_what_python_gives(root: Path, said: Said) -> None:
    """[PT1]"""
    key = str
    found = json.loads(said("partitions", root, "--json"))
    assert sorted(found, key=key) == sorted(mc.Table(root).partitions().to_pylist(), key=key)
    assert json.loads(said("schema", root, "--json")) == mc.Table(root).describe()["columns"]

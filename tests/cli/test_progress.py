"""Progress of long work: rows, bytes and rate where someone looks, nothing anywhere else."""

import io
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.on_terminal import shown

import manifestcommit as mc
from manifestcommit import terminal as progress
from manifestcommit.terminal import Steps, live_progress

HOSTILE = "writing to a\x1b[31m\n[bold]b"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown from the first call on."""
    monkeypatch.setattr(progress, "_FIRST_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)


def of_rows(total: int | None, what: str = "writing to x") -> Callable[[], None]:
    def work() -> None:
        with live_progress(what, total) as told:
            for done in (1_000, 20_000, 40_000):
                time.sleep(0.01)
                if told is not None:
                    told(done, done * 1024)

    return work


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_rows_bytes_and_rate(at_once: None, columns: int) -> None:
    screen = shown(of_rows(50_000), columns)
    last = plain(screen).replace("\r", "\n").rstrip().splitlines()[-1]
    assert re.search(r"writing[^━]* ━+.* 40,000 rows, 39\.1 MiB, [\d,]+ rows/s, [\d.,]+ [MG]iB/s", last)
    assert len(last) <= columns and plain(screen).endswith("\n")


def test_a_stream_of_unknown_length_has_no_bar(at_once: None) -> None:
    assert "━" not in shown(of_rows(None), 80)
    assert "40,000 rows" in shown(of_rows(None), 80)


def test_hostile_names_are_escaped(at_once: None) -> None:
    """Neither a terminal's escapes nor the markup of the library that draws it. [LY1]"""
    screen = shown(of_rows(None, HOSTILE), 120)
    assert "\x1b[31m" not in screen and "[bold]" in plain(screen) and "\\x1b[31m\\n" in plain(screen)


def test_no_colour_where_nobody_wants_it(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = shown(of_rows(50_000), 80)
    monkeypatch.setenv("NO_COLOR", "1")
    assert re.search(r"\x1b\[[\d;]*[39][0-7]", coloured) and not re.search(r"\x1b\[[\d;]*[39][0-7]", shown(of_rows(50_000), 80))


def test_quick_work_shows_nothing_and_loads_nothing() -> None:
    assert shown(of_rows(50_000), 80) == ""


def test_steps_are_gone_when_they_are_done(at_once: None) -> None:
    def work() -> None:
        with Steps() as steps:
            steps("reading manifests: 3 of 7")
            steps("comparing\x1b[31m")

    screen = shown(work, 80)
    assert "reading manifests: 3 of 7" in screen and "comparing\\x1b[31m" in screen
    assert screen.endswith("\x1b[2K"), "the line is empty again"


def test_nobody_looks_at_a_pipe(at_once: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    of_rows(50_000)()
    with Steps() as steps:
        steps("comparing")
    assert capsys.readouterr() == ("", "")
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        of_rows(50_000)()


def test_a_write_counts_its_rows_and_bytes(at_once: None, tmp_path: Path) -> None:
    """Through the whole path, from a table whose length is known."""
    rows = pa.table({"id": range(300_000)})
    screen = plain(shown(lambda: mc.write(rows, tmp_path / "t"), 120))
    assert "300,000 rows, 2.3 MiB" in screen and "━" in screen


def plain(text: str) -> str:
    """Without colours and movements."""
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text)

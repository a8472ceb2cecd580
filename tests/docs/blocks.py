"""Runs the blocks of a page in their order, as its reader would, in an empty folder.

- `python` blocks share one namespace. What one prints is shown in a `text` block right below it, and compared; `...` stands for
  anything, times and ids for those of any run, `/lake` for the folder of the run. A block that prints and shows nothing fails.
- `console` blocks are commands after `$ `, each with what it prints below it, if that is shown. A command has to succeed.
- `<!-- invisible-code: python` … `-->` is code that readers of the page do not see: what they have already, such as a folder of files.
- `<!-- needs: spark, s3 -->` says what a page needs: a Spark session, called `spark`, an S3 server, dlt.

Blocks of other languages are not run.
"""

import contextlib
import doctest
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

REPO = Path(__file__).resolve().parents[2]
RUN = ("python", "text", "console")
_NEEDS = re.compile(r"^<!-- needs: ([a-z0-9, ]+) -->$", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """The README, and every page of docs/."""
    return [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]


def needs(page: Path) -> frozenset[str]:
    """What a page needs besides a folder."""
    found = _NEEDS.search(page.read_text("utf-8"))
    return frozenset(found[1].replace(" ", "").split(",")) if found else frozenset()


def run(page: Path, names: Mapping[str, Any], section: str | None = None, *, shown: bool = False) -> dict[str, Any]:
    """Run a page, or what is right below one of its headings, in the current folder; returns the names that are defined then.

    shown: only what readers see.
    """
    runner = _Runner()
    document = Document.parse(str(page), *(CodeBlockParser(language, getattr(runner, language)) for language in RUN))
    document.namespace.update({"__name__": page.stem, **names})
    chosen = [
        example
        for example in document.examples()
        if (section is None or section == heading_above(document.text, example.region.start))
        and not (shown and document.text.startswith("<!--", example.region.start))
    ]
    assert chosen, f"{page} has no blocks to run" + (f" below {section!r}" if section else "")
    with _same_logging_afterwards():
        for example in chosen:
            example.evaluate()
    runner.nothing_unsaid()
    return document.namespace


@contextlib.contextmanager
def _same_logging_afterwards() -> Iterator[None]:
    """Take back what a page does to loggers: other tests run in this process."""
    loggers = [logging.getLogger(name) for name in ("manifestcommit", "manifestcommit.jobs", "manifestcommit.spark")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    try:
        yield
    finally:
        for logger, (level, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.handlers[:] = handlers


def heading_above(text: str, position: int) -> str | None:
    """The last heading above a position."""
    outside = _FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    headings = [match[1] for match in _HEADING.finditer(outside, 0, position)]
    return headings[-1] if headings else None


class _Runner:
    """Evaluates blocks one after another. printed: what the last one printed, until it is compared; where: its place."""

    def __init__(self) -> None:
        self.printed, self.where = "", ""
        self._evaluate = PythonEvaluator()

    def python(self, example: Example) -> None:
        self.nothing_unsaid()
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self._evaluate(example)
        self.printed, self.where = said.getvalue(), f"{example.path}:{example.line}"

    def text(self, example: Example) -> None:
        assert self.where, f"{example.path}:{example.line}: a text block shows what the block above it printed"
        compare(self.printed, example.parsed, f"{example.path}:{example.line}")
        self.printed = self.where = ""

    def console(self, example: Example) -> None:
        self.nothing_unsaid()
        for command, shown in commands(example.parsed):
            done = subprocess.run(["bash", "-c", command], env=_environment(), capture_output=True, text=True, check=False)
            where = f"{example.path}:{example.line}: $ {command}"
            assert done.returncode == 0, f"{where}\nexit status {done.returncode}\n{done.stdout}{done.stderr}"
            if shown:
                compare(done.stdout + done.stderr, shown, where)

    def nothing_unsaid(self) -> None:
        assert not self.printed.strip(), f"{self.where}: the block prints, and the page does not show it:\n{self.printed}"


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and what is shown of its output. A line that ends with a backslash goes on."""
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown.strip("\n")


def compare(printed: str, shown: str, where: str) -> None:
    """Spaces at the ends of lines do not count either."""
    printed = printed.replace(str(Path.cwd()), "/lake")
    got, want = (_timeless(re.sub(r"[ \t]+$", "", text.strip("\n"), flags=re.MULTILINE)) + "\n" for text in (printed, shown))
    if not doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS):
        raise AssertionError(f"{where}\nshown:\n{want}\nprinted:\n{got}")


def _timeless(text: str) -> str:
    """A text in which all times, and all ids of tables and jobs, short ones too, are the same."""
    text = re.sub(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d", r"2026-01-01\g<1>00:00:00", text)
    return re.sub(r"\b[0-9a-f]{16}(?:-[0-9a-f]{32})?\b|\b[0-9a-f]{8}\b", lambda found: re.sub(r"\w", "0", found[0]), text)


def _environment() -> dict[str, str]:
    """`manifestcommit` is this repository's, by this interpreter, whatever is installed."""
    shims = Path(".shims").absolute()
    if not shims.exists():
        shims.mkdir()
        (shims / "manifestcommit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m manifestcommit "$@"\n', "utf-8")
        (shims / "manifestcommit").chmod(0o755)
        (shims / "python").symlink_to(sys.executable)
    path = f"{shims}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(REPO), "COLUMNS": "110"}

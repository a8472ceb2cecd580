"""`manifestcommit report`: pictures of a table as one HTML page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...errors import UsageError
from ..options import Commands, positive, table_of
from ..output import size_text, written
from .metrics import read_ends


def add_commands(commands: Commands) -> None:
    """Register `report`."""
    report = commands.add(
        "report",
        _report,
        "pictures of a table as one HTML page, without script and network; changes nothing",
        ["report /lake/flights -o report.html --open"],
    )
    report.add_argument(
        "-o", "--output", metavar="FILE", help="the page's file (default: standard output)"
    )
    report.add_argument(
        "--last",
        type=positive,
        default=200,
        metavar="N",
        help="read the newest N versions, one request each (default: 200)",
    )
    report.add_argument(
        "--gc", action="store_true", help="with what gc would delete: lists the whole store"
    )
    report.add_argument(
        "--ends",
        metavar="FILE",
        help='a JSON file with the ends of sources, such as {"topic:0": 12345}, for the lag',
    )
    report.add_argument("--open", action="store_true", help="show the file in a browser")


def _report(options: argparse.Namespace) -> int:
    file: str | None = options.output
    if file is None and (options.open or options.format != "table"):
        what = "open" if options.open else options.format
        raise UsageError(f"--{what} needs --output FILE")
    made = table_of(options).report(
        file, last=options.last, gc=options.gc, ends=read_ends(options.ends)
    )
    if file is None:
        sys.stdout.write(made.html)
        return 0
    size = len(made.html.encode())
    if options.open:
        import webbrowser  # late: most runs do without

        webbrowser.open(Path(file).absolute().as_uri())
    if not written(options, {"file": file, "version": made.version, "bytes": size}):
        what = f"version {made.version:,}: {size_text(options, size)} in {file}"
        print(what, file=sys.stderr)
    return 0

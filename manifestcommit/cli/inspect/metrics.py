"""`manifestcommit metrics`: a table's figures, for monitoring."""

from __future__ import annotations

import argparse
import json
from typing import Any

import msgspec

from ...errors import UsageError
from ...terminal.render import age, plain_text
from ...terminal.screen import print_table
from ..options import Commands, table_of
from ..output import size_text, written


def add_commands(commands: Commands) -> None:
    """Register `metrics`."""
    metrics = commands.add(
        "metrics",
        _metrics,
        "size, age, waiting jobs, watermarks and lag, for monitoring",
        ["metrics /lake/flights --ends ends.json --json"],
    )
    metrics.add_argument(
        "--ends",
        metavar="FILE",
        help='a JSON file with the ends of sources, such as {"topic:0": 12345}, for the lag',
    )


def read_ends(file: str | None) -> dict[str, Any] | None:
    """The ends of sources, from a file with one JSON object."""
    if file is None:
        return None
    form = 'a file with one JSON object, such as {"topic:0": 12345}'
    try:
        with open(file, "rb") as stream:
            given = json.load(stream)
    except OSError as error:
        raise UsageError(
            f"invalid --ends {file!r}: expected {form}; it cannot be read: {error.strerror}"
        ) from None
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise UsageError(f"invalid --ends {file!r}: expected {form}")
    return given


def _metrics(options: argparse.Namespace) -> int:
    figures = table_of(options).metrics(read_ends(options.ends))
    if written(options, msgspec.to_builtins(figures)):
        return 0
    oldest = figures.oldest_prepared_s
    rows = [
        ("version", f"{figures.version}"),
        ("age of its commit", age(figures.head_age_s)),
        *((name, f"{getattr(figures, name):,}") for name in ("files", "rows")),
        ("size", size_text(options, figures.bytes)),
        ("prepared jobs", f"{figures.prepared_jobs:,}"),
        ("size of prepared jobs", size_text(options, figures.prepared_bytes)),
        ("age of the oldest prepared job", "" if oldest is None else age(oldest)),
        ("running jobs", f"{figures.running_jobs:,}"),
    ]
    print_table(("", ""), rows, header=False)
    if figures.watermarks or figures.lag:
        sources = sorted({**figures.watermarks, **figures.lag})
        lag = {
            source: "?" if behind is None else f"{behind:,}"
            for source, behind in figures.lag.items()
        }
        marks = [
            (source, plain_text(figures.watermarks.get(source, "")), lag.get(source, ""))
            for source in sources
        ]
        print()
        print_table(("source", "position", "lag"), marks)
    if figures.export_lag:
        exports = [
            (format, "nothing is exported", "")
            if behind is None
            else (format, f"{behind:,}", age(figures.export_age_s[format] or 0.0))
            for format, behind in figures.export_lag.items()
        ]
        print()
        print_table(("export", "versions behind", "for"), exports)
    return 0

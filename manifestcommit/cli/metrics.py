"""How the `manifestcommit` command shows a table's figures and whether its counts match.

Not here: arguments and exit statuses (cli), what the figures are (engine.inspection.table_metrics,
engine.inspection.count_audit).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import UsageError
from ..terminal.render import counted, plain_text, print_json, render_table, visible

if TYPE_CHECKING:
    from ..engine.inspection.count_audit import CountReport
    from ..engine.inspection.table_metrics import TableMetrics

_SHOWN = 1000  # differences in the table for people; --json has all


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


def print_figures(figures: TableMetrics, *, as_json: bool) -> int:
    """The metrics of a table."""
    if as_json:
        return print_json(msgspec.to_builtins(figures))
    oldest = figures.oldest_prepared_s
    rows = [
        ("version", f"{figures.version}"),
        ("seconds since its commit", f"{figures.head_age_s:,.0f}"),
        *((name, f"{getattr(figures, name):,}") for name in ("files", "rows", "bytes")),
        ("prepared jobs", f"{figures.prepared_jobs:,}"),
        ("bytes of prepared jobs", f"{figures.prepared_bytes:,}"),
        ("seconds since the oldest was prepared", "" if oldest is None else f"{oldest:,.0f}"),
        ("running jobs", f"{figures.running_jobs:,}"),
    ]
    print(render_table(("", ""), rows, header=False))
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
        print("\n" + render_table(("source", "position", "lag"), marks))
    return 0


def print_counts(report: CountReport, *, as_json: bool) -> int:
    """Whether all counts match; 1 if they do not."""
    if as_json:
        print_json({**msgspec.to_builtins(report), "all_match": report.all_match})
    elif report.all_match:
        size = f"{counted(report.files, 'file')}, {counted(report.rows, 'row')}"
        print(f"all counts match: versions {report.first} to {report.last}, {size}")
        print(
            f"{report.recorded:,} of {report.commits:,} commits say what they read", file=sys.stderr
        )
    else:
        rows = [
            (str(each.version), each.what, each.expected, each.found)
            for each in report.mismatches[:_SHOWN]
        ]
        print(render_table(("version", "what", "expected", "found"), rows))
        count = len(report.mismatches)
        print(
            f"\n{counted(count, 'count')} of {visible(report.url)} "
            f"{'does' if count == 1 else 'do'} not match"
        )
    return 0 if report.all_match else 1

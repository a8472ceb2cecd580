"""Results in the formats for programs: --format json, jsonl and csv."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from ..terminal.render import print_csv, print_json, short_size, size


def written(
    options: argparse.Namespace, value: Any, rows: Iterable[Mapping[str, Any]] | None = None
) -> bool:
    """Print a result in the chosen format; False where that is a table, which the caller prints.

    value: the JSON document. rows: what jsonl and csv have a line for; by default the document's
    own rows, or itself as one row.
    """
    if options.format == "table":
        return False
    if options.format == "json":
        print_json(value)
        return True
    lines = list(rows) if rows is not None else value if isinstance(value, list) else [value]
    if options.format == "csv":
        print_csv(lines)
    else:
        for line in lines:
            print_json(line, indent=None)
    return True


def size_cell(options: argparse.Namespace, count: int) -> int | str:
    """A size in a column of a table."""
    return count if options.bytes else short_size(count)


def size_text(options: argparse.Namespace, count: int) -> str:
    """A size in a sentence."""
    return size(count, exact=options.bytes)

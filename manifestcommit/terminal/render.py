"""Plain text tables for terminals: aligned columns, numbers to the right, control characters made
visible. And JSON for scripts."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any


def render_table(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, header: bool = True
) -> str:
    """The rows below their names; a column of numbers only is aligned to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        bool(rows)
        and all(isinstance(row[i], int) or _is_number(cells[n][i]) for n, row in enumerate(rows))
        for i in range(len(names))
    ]
    lines = ([[visible(name) for name in names]] if header else []) + cells
    widths = [max((_width(line[i]) for line in lines), default=0) for i in range(len(names))]
    padded = [[_pad(text, widths[i], right[i]) for i, text in enumerate(line)] for line in lines]
    if header:
        padded.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(line).rstrip() for line in padded)


def print_table(names: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str = "") -> None:
    """The table on standard output; where it has no rows, no bare names, but `nothing` on standard
    error."""
    if rows:
        print(render_table(names, rows))
    elif nothing:
        print(nothing, file=sys.stderr)


def counted(count: int, noun: str) -> str:
    """`1 row`, `2 rows`, `1,000 rows`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def were(count: int, noun: str) -> str:
    """`1 key was`, `2 keys were`."""
    return f"{counted(count, noun)} {'was' if count == 1 else 'were'}"


def visible(text: str) -> str:
    """The text with everything escaped that a terminal would obey instead of showing it."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def quoted(value: Any) -> str:
    """A value of the user's: a text that could be taken for a null, or for nothing, is in
    quotes."""
    return (
        json.dumps(value)
        if isinstance(value, str) and (value in ("", "null") or value.startswith('"'))
        else plain_text(value)
    )


def plain_text(value: Any) -> str:
    """A value as people read it."""
    if isinstance(value, dict | list):
        return json.dumps(_jsonable(value), ensure_ascii=False) if value else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "null" if value is None else str(value)


def print_json(value: Any) -> int:
    """One JSON document on standard output, by the standard's rules; 0, the exit status."""
    text = json.dumps(_jsonable(value), ensure_ascii=False, indent=2, allow_nan=False)
    print(
        "".join(
            each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
        )
    )
    return 0


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return visible(text)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9][0-9,]*", text) is not None


def _width(text: str) -> int:
    return sum(
        2 if unicodedata.east_asian_width(each) in "WF" else 0 if unicodedata.combining(each) else 1
        for each in text
    )


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        # as the format spells them [SC7]
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, str | int | float) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, decimal.Decimal | dt.timedelta):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")

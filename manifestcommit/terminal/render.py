"""Text for people and programs: aligned tables, counts and sizes, JSON and CSV."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..display import counted, relative_path, visible

# a whole number with its thousands marked, or a size
_NUMBER = re.compile(r"-?[0-9][0-9,]*|[0-9][0-9,]*(\.[0-9])? ([KMGTP]i)?B")


def render_table(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, header: bool = True
) -> str:
    """The rows below their names; a column of numbers only is aligned to the right."""
    cells, right = laid_out(names, rows)
    lines = ([[visible(name) for name in names]] if header else []) + cells
    widths = [max((text_width(line[i]) for line in lines), default=0) for i in range(len(names))]
    padded = [[_pad(text, widths[i], right[i]) for i, text in enumerate(line)] for line in lines]
    if header:
        padded.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(line).rstrip() for line in padded)


_TEXTS = frozenset({"job", "key"})  # of which some are digits only


def laid_out(
    names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> tuple[list[list[str]], list[bool]]:
    """(the text of each cell, whether each column is of numbers only)."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        bool(rows)
        and names[i] not in _TEXTS
        and all(isinstance(row[i], int) or _is_number(cells[n][i]) for n, row in enumerate(rows))
        for i in range(len(names))
    ]
    return cells, right


def size(count: int, *, exact: bool = False) -> str:
    """`812 bytes`, `1.4 MiB`; exact: `1,467,293 bytes`."""
    return counted(count, "byte") if exact or count < 1024 else _in_units(count)


def short_size(count: int) -> str:
    """A size for a column: `812 B`, `1.4 MiB`."""
    return f"{count} B" if count < 1024 else _in_units(count)


def _in_units(count: float) -> str:
    units = ["KiB", "MiB", "GiB", "TiB", "PiB"]
    while (count := count / 1024) >= 1023.95 and len(units) > 1:
        del units[0]
    return f"{count:,.1f} {units[0]}"


def were(count: int, noun: str) -> str:
    """`1 key was`, `2 keys were`."""
    return f"{counted(count, noun)} {'was' if count == 1 else 'were'}"


def other_tables(roots: Iterable[str], url: str) -> str:
    """The tables of these paths on one line, for who knows one of them, and without it."""
    return ", ".join(relative_path(root, url) for root in roots if root != url)


def quoted(value: Any) -> str:
    """A value of the user's: in quotes if it is like a null, or like nothing."""
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


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document on standard output, by the standard's rules."""
    text = json.dumps(_jsonable(value), ensure_ascii=False, indent=indent, allow_nan=False)
    print(
        "".join(
            each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
        )
    )


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows as CSV with a line of names, exactly as they are: null is nothing, an empty text is
    in quotes, what has members is JSON."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines: list[list[Any]] = [[row.get(name) for name in names] for row in rows]
    for line in [list(names), *lines] if names else []:
        print(",".join(map(_csv_cell, line)), end="\r\n")


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    plain = _jsonable(value)
    if not isinstance(plain, str):
        plain = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    if plain and not any(each in plain for each in ',"\r\n'):
        return plain
    return '"' + plain.replace('"', '""') + '"'


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return visible(text)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def text_width(text: str) -> int:
    """How many places of a terminal the text takes."""
    return sum(
        2 if unicodedata.east_asian_width(each) in "WF" else 0 if unicodedata.combining(each) else 1
        for each in text
    )


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - text_width(text))
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

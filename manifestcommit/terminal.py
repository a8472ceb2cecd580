"""What people see on a terminal: tables and progress, as wide as it is, with colour where it takes
colour. In a pipe tables are as wide as their content. [LY1]

Rich is loaded only for a terminal. It takes half a millisecond for a row, so long tables are
printed as in a pipe. Progress of long work is a line on standard error, and silent where no one is
looking.

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import os
import re
import sys
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any, Self, TypeAlias

from .display import counted, relative_path, visible

Rows: TypeAlias = Sequence[Sequence[Any]]
# a whole number with its thousands marked, or a size
_NUMBER = re.compile(r"-?[0-9][0-9,]*|[0-9][0-9,]*(\.[0-9])? ([KMGTP]i)?B")


def render_table(names: Sequence[str], rows: Rows, *, header: bool = True) -> str:
    """The rows below their names; a column of numbers only is aligned to the right."""
    cells, right = laid_out(names, rows)
    lines = ([[visible(name) for name in names]] if header else []) + cells
    widths = [max((text_width(line[i]) for line in lines), default=0) for i in range(len(names))]
    padded = [[_pad(text, widths[i], right[i]) for i, text in enumerate(line)] for line in lines]
    if header:
        padded.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(line).rstrip() for line in padded)


_TEXTS = frozenset({"job", "key"})  # of which some are digits only


def laid_out(names: Sequence[str], rows: Rows) -> tuple[list[list[str]], list[bool]]:
    """(the text of each cell, whether each column is of numbers only)."""
    cells = [[_cell(value) for value in row] for row in rows]

    def is_of_numbers(i: int) -> bool:
        pairs = [(row[i], line[i]) for row, line in zip(rows, cells, strict=True)]
        return all(isinstance(value, int) or _NUMBER.fullmatch(text) for value, text in pairs)

    right = [name not in _TEXTS and is_of_numbers(i) for i, name in enumerate(names)]
    return cells, [each and bool(rows) for each in right]


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


def other_tables(roots: Iterable[str], url: str) -> str:
    """The tables of these paths on one line, for who knows one of them, and without it."""
    return ", ".join(relative_path(root, url) for root in roots if root != url)


def quoted(value: Any) -> str:
    """A value of the user's: in quotes if it is like a null, or like nothing."""
    is_unclear = isinstance(value, str) and (value in ("", "null") or value.startswith('"'))
    return json.dumps(value) if is_unclear else plain_text(value)


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
    shown = (
        each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
    )
    print("".join(shown))


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


def text_width(text: str) -> int:
    """How many places of a terminal the text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    narrow = [each for each in text if unicodedata.east_asian_width(each) not in "WF"]
    return 2 * wide + sum(not unicodedata.combining(each) for each in narrow)


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


_MOST = 1000  # rows that are fitted to the terminal
_SHORT, _LEAST, _GAP = 20, 12, 2  # characters: never wrapped, the least of others, between two
_HEIGHT = 25
_WIDTH = 80  # where a terminal does not say
# What a column of one of these names says is coloured: never a value of the table's own.
_STATES = ("state", "status", "result", "severity")
_STYLES = {
    **dict.fromkeys(("passed", "committed", "already committed"), "green"),
    **dict.fromkeys(("prepared", "published", "running"), "cyan"),
    **dict.fromkeys(("aborted", "fenced", "forgotten", "unclear", "warning"), "yellow"),
    **dict.fromkeys(("failed", "damage"), "red"),
}


def is_terminal(stream: IO[str]) -> bool:
    """Whether someone looks at what is written."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # none, or closed
        return False


def can_rewrite(stream: IO[str]) -> bool:
    """Whether someone looks at a terminal on which a line can be replaced."""
    return is_terminal(stream) and os.environ.get("TERM") not in ("dumb", "unknown")


def columns_of(stream: IO[str]) -> int:
    """How wide a terminal is: what COLUMNS says, or the terminal itself."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH
    except (OSError, ValueError):  # no real terminal
        return _WIDTH


def print_table(
    names: Sequence[str],
    rows: Rows,
    nothing: str = "",
    *,
    header: bool = True,
    spare: Sequence[str] = (),
) -> None:
    """The table on standard output; where it has no rows, no bare names, but `nothing` on standard
    error. spare: columns that a narrow terminal does without, the first one first."""
    if not rows:
        if nothing:
            print(nothing, file=sys.stderr)
    elif is_terminal(sys.stdout) and len(rows) <= _MOST:
        _print_fitted(names, rows, header=header, spare=spare)
    else:
        print(render_table(names, rows, header=header))


def _print_fitted(names: Sequence[str], rows: Rows, *, header: bool, spare: Sequence[str]) -> None:
    from rich import box  # late: most runs are not looked at
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells, right = laid_out(names, rows)
    width = columns_of(sys.stdout)
    columns = [(visible(name), *(line[i] for line in cells)) for i, name in enumerate(names)]
    natural = [max(map(text_width, column)) for column in columns]
    fixed = [number or most <= _SHORT for number, most in zip(right, natural, strict=True)]
    least = [most if is_fixed else _LEAST for most, is_fixed in zip(natural, fixed, strict=True)]
    kept = _kept(names, least, spare, width)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_header=header,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for i in kept:
        table.add_column(
            Text(visible(names[i])),
            justify="right" if right[i] else "left",
            no_wrap=fixed[i],
            min_width=least[i],
            overflow="fold",
        )
    for line in cells:
        styles = [_STYLES.get(line[i], "") if names[i] in _STATES else "" for i in kept]
        table.add_row(*(Text(line[i], style) for i, style in zip(kept, styles, strict=True)))
    # with a height, too: Rich takes a terminal that is called dumb for 80 columns otherwise
    console = Console(
        file=sys.stdout, width=width, height=_HEIGHT, highlight=False, markup=False, emoji=False
    )
    console.print(table)
    if left := [name for i, name in enumerate(names) if i not in kept]:
        what = f"{', '.join(left)} {'has' if len(left) == 1 else 'have'} no room"
        print(f"{what}: use a wider terminal, or --format csv", file=sys.stderr)


def _kept(names: Sequence[str], least: list[int], spare: Sequence[str], width: int) -> list[int]:
    """The columns for which there is room, by number."""
    kept = list(range(len(names)))
    for name in spare:
        if sum(least[i] for i in kept) + _GAP * (len(kept) - 1) <= width:
            break
        if name in names:
            kept.remove(list(names).index(name))
    return kept


# --- Progress of long work ---

_FIRST_S = 1.0
_EVERY_S = 0.2


class _LiveLine:
    """A line of a terminal that is rewritten where there is something new, by Rich, without a
    thread of its own; leaving the `with` block ends it. stays: it is not removed in the end."""

    def __init__(self, what: str, total: int | None = None, *, stays: bool = True) -> None:
        self._what, self._total, self._stays = what, total, stays
        self._began = self._shown = time.monotonic()
        self._line: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._line is not None:
            self._line.stop()

    def _show(self, rows: int, text: str) -> None:
        if self._line is None:
            self._line = self._begun()
        self._line.update(self._line.task_ids[0], completed=rows, done=text, refresh=True)

    def _begun(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        room = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        described = TextColumn("{task.description}", markup=False, table_column=room)
        done = TextColumn("{task.fields[done]}", markup=False, table_column=Column(no_wrap=True))
        columns: list[Any] = [described] if self._what else []
        columns += [BarColumn(bar_width=12)] if self._total else []
        width = columns_of(sys.stderr)
        console = Console(file=sys.stderr, width=width, height=_HEIGHT, highlight=False)
        line = Progress(
            *columns,
            done,
            console=console,
            auto_refresh=False,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=not self._stays,
        )
        line.add_task(visible(self._what), total=self._total, done="")
        line.start()
        return line


class Progress(_LiveLine):
    """Call it with rows and bytes so far; it rewrites one line, after the first second. total: how
    many rows there are, if that is known: then there is a bar."""

    def __call__(self, rows: int, bytes_: int) -> None:
        now = time.monotonic()
        if now - self._began < _FIRST_S or now - self._shown < _EVERY_S:
            return
        self._shown, seconds = now, now - self._began
        rate = f"{counted(round(rows / seconds), 'row')}/s, {size(round(bytes_ / seconds))}/s"
        self._show(rows, f"{counted(rows, 'row')}, {size(bytes_)}, {rate}")


def live_progress(what: str, total: int | None = None) -> AbstractContextManager[Progress | None]:
    """Progress of what the `with` block does; None where no line can be rewritten."""
    return Progress(what, total) if can_rewrite(sys.stderr) else nullcontext()


class Steps(_LiveLine):
    """Call it with what is done next; it rewrites one line, which is removed in the end."""

    def __init__(self) -> None:
        super().__init__("", None, stays=False)

    def __call__(self, step: str) -> None:
        if can_rewrite(sys.stderr) and time.monotonic() - self._began >= _EVERY_S:
            self._show(0, visible(step))

"""Tables on a terminal: as wide as it is, with colour where it takes colour. In a pipe they are as
wide as their content. [LY1]

Rich is loaded only for a terminal. It takes half a millisecond for a row, so long tables are
printed as in a pipe. Progress of long work is a line on standard error, and
silent where no one is looking.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import IO, Any, Self

from ..display import counted, visible
from .render import laid_out, render_table, size, text_width

_MOST = 1000  # rows that are fitted to the terminal
_SHORT, _LEAST, _GAP = 20, 12, 2  # characters: never wrapped, the least of others, between two
_HEIGHT = 25
_WIDTH = 80  # where a terminal does not say
# What a column of one of these names says is coloured: never a value of the table's own.
_STATES = ("state", "status", "result", "severity")
_STYLES = {
    "passed": "green",
    "committed": "green",
    "already committed": "green",
    "prepared": "cyan",
    "published": "cyan",
    "running": "cyan",
    "aborted": "yellow",
    "fenced": "yellow",
    "forgotten": "yellow",
    "unclear": "yellow",
    "warning": "yellow",
    "failed": "red",
    "damage": "red",
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
    rows: Sequence[Sequence[Any]],
    nothing: str = "",
    *,
    header: bool = True,
    file: IO[str] | None = None,
    spare: Sequence[str] = (),
) -> None:
    """The table on standard output, or in `file`; where it has no rows, no bare names, but
    `nothing` on standard error.

    spare: columns that a narrow terminal does without, the first one first.
    """
    stream = file or sys.stdout
    if not rows:
        if nothing:
            print(nothing, file=sys.stderr)
    elif is_terminal(stream) and len(rows) <= _MOST:
        _print_fitted(names, rows, header=header, stream=stream, spare=spare)
    else:
        print(render_table(names, rows, header=header), file=stream)


def _print_fitted(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    header: bool,
    stream: IO[str],
    spare: Sequence[str],
) -> None:
    from rich import box  # late: most runs are not looked at
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells, right = laid_out(names, rows)
    width = columns_of(stream)
    natural = [
        max(text_width(text) for text in (visible(name), *(line[i] for line in cells)))
        for i, name in enumerate(names)
    ]
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
        table.add_row(
            *(Text(line[i], _STYLES.get(line[i], "") if names[i] in _STATES else "") for i in kept)
        )
    # with a height, too: Rich takes a terminal that is called dumb for 80 columns otherwise
    console = Console(
        file=stream, width=width, height=_HEIGHT, highlight=False, markup=False, emoji=False
    )
    console.print(table)
    if left := [name for i, name in enumerate(names) if i not in kept]:
        what = f"{', '.join(left)} {'has' if len(left) == 1 else 'have'} no room"
        print(f"{what}: use a wider terminal, or --format csv", file=sys.stderr)


def _kept(
    names: Sequence[str], least: Sequence[int], spare: Sequence[str], width: int
) -> list[int]:
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


class _Told:
    """What rewrites one line of a terminal; leaving the `with` block ends the line."""

    _line: _OnTerminal | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._line is not None:
            self._line.end()


class Progress(_Told):
    """Call it with rows and bytes so far; it rewrites one line, after the first second.

    total: how many rows there are, if that is known: then there is a bar.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = visible(what), total
        self._began = self._shown = time.monotonic()
        self._enabled = can_rewrite(sys.stderr)

    def __call__(self, rows: int, bytes_: int) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._began < _FIRST_S or now - self._shown < _EVERY_S:
            return
        self._shown = now
        if self._line is None:
            self._line = _OnTerminal(self._what, self._total)
        seconds = now - self._began
        rate = f"{counted(round(rows / seconds), 'row')}/s, {size(round(bytes_ / seconds))}/s"
        self._line.show(rows, f"{counted(rows, 'row')}, {size(bytes_)}, {rate}")


class Steps(_Told):
    """Call it with what is done next; it rewrites one line, which is removed in the end."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, step: str) -> None:
        if not can_rewrite(sys.stderr) or time.monotonic() - self._began < _EVERY_S:
            return
        if self._line is None:
            self._line = _OnTerminal("", None, stays=False)
        self._line.show(0, visible(step))


class _OnTerminal:
    """A line of Rich's, without a thread of its own: it changes when there is something new."""

    def __init__(self, what: str, total: int | None, *, stays: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        room = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        described = TextColumn("{task.description}", markup=False, table_column=room)
        done = TextColumn("{task.fields[done]}", markup=False, table_column=Column(no_wrap=True))
        columns: list[Any] = [described] if what else []
        columns += [BarColumn(bar_width=12)] if total else []
        self._progress = Progress(
            *columns,
            done,
            console=Console(
                file=sys.stderr, width=columns_of(sys.stderr), height=25, highlight=False
            ),
            auto_refresh=False,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=not stays,
        )
        self._task = self._progress.add_task(what, total=total, done="")
        self._progress.start()

    def show(self, rows: int, text: str) -> None:
        self._progress.update(self._task, completed=rows, done=text, refresh=True)

    def end(self) -> None:
        self._progress.stop()

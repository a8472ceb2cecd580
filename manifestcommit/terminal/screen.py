"""Tables on a terminal: as wide as it is, with colour where it takes colour. In a pipe they are as
wide as their content. [LY1]

Rich is loaded only for a terminal. It takes half a millisecond for a row, so long tables are
printed as in a pipe. Not here: the text of cells (terminal.render).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO, Any

from .render import laid_out, render_table, visible

_MOST = 1000  # rows that are fitted to the terminal
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
) -> None:
    """The table on standard output, or in `file`; where it has no rows, no bare names, but
    `nothing` on standard error."""
    stream = file or sys.stdout
    if not rows:
        if nothing:
            print(nothing, file=sys.stderr)
    elif is_terminal(stream) and len(rows) <= _MOST:
        _print_fitted(names, rows, header=header, stream=stream)
    else:
        print(render_table(names, rows, header=header), file=stream)


def _print_fitted(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, header: bool, stream: IO[str]
) -> None:
    from rich import box  # late: most runs are not looked at
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells, right = laid_out(names, rows)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_header=header,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
    )
    for name, is_number in zip(names, right, strict=True):
        table.add_column(
            Text(visible(name)),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    for line in cells:
        table.add_row(
            *(
                Text(text, _STYLES.get(text, "") if name in _STATES else "")
                for name, text in zip(names, line, strict=True)
            )
        )
    Console(
        file=stream, width=columns_of(stream), highlight=False, markup=False, emoji=False
    ).print(table)

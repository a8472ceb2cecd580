"""Progress of long work: a line on a terminal's standard error, or in a notebook; silent where no
one is looking.

Rich and IPython are loaded when there is something to show.
"""

from __future__ import annotations

import html
import sys
import time
from types import TracebackType
from typing import Any, Protocol

from ..display import visible
from .render import counted, size
from .screen import can_rewrite, columns_of

_FIRST_S = 1.0
_EVERY_S = 0.2


class _Line(Protocol):
    """A line that can be rewritten."""

    def show(self, rows: int, text: str) -> None: ...

    def end(self) -> None: ...


class Progress:
    """Call it with rows and bytes so far; it rewrites one line, after the first second. Leaving the
    `with` block ends the line.

    total: how many rows there are, if that is known: then there is a bar.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = visible(what), total
        self._began = self._shown = time.monotonic()
        self._line: _Line | None = None
        self._enabled = can_rewrite(sys.stderr) or _notebook() is not None

    def __call__(self, rows: int, bytes_: int) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._began < _FIRST_S or now - self._shown < _EVERY_S:
            return
        self._shown = now
        if self._line is None:
            self._line = (
                _OnTerminal(self._what, self._total)
                if _notebook() is None
                else _InNotebook(self._what, self._total)
            )
        seconds = now - self._began
        rate = f"{counted(round(rows / seconds), 'row')}/s, {size(round(bytes_ / seconds))}/s"
        self._line.show(rows, f"{counted(rows, 'row')}, {size(bytes_)}, {rate}")

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.end()


class Steps:
    """Call it with what is done next; it rewrites one line. Leaving the `with` block removes the
    line."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._line: _OnTerminal | None = None

    def __call__(self, step: str) -> None:
        if not can_rewrite(sys.stderr) or time.monotonic() - self._began < _EVERY_S:
            return
        if self._line is None:
            self._line = _OnTerminal("", None, stays=False)
        self._line.show(0, visible(step))

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.end()


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


class _InNotebook:
    """An output of the cell that is replaced: a bar of HTML, and text where there is no HTML."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._shown: Any = None

    def show(self, rows: int, text: str) -> None:
        from IPython import display

        said = f"{self._what}: {text}"
        bar = f'<progress value="{rows}" max="{self._total}"></progress> ' if self._total else ""
        data = {"text/plain": said, "text/html": bar + html.escape(said)}
        if self._shown is None:
            show: Any = display.display
            self._shown = show(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)

    def end(self) -> None:
        pass


def _notebook() -> Any:
    """The shell of the notebook that this runs in; None elsewhere. Nothing is imported for it."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None

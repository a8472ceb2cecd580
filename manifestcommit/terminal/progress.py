"""Progress of long work, in one line on a terminal's standard error; silent where no one is
looking."""

from __future__ import annotations

import sys
import time
from types import TracebackType

_FIRST_S = 1.0
_EVERY_S = 0.2


class Progress:
    """Call it with counts; it rewrites one line, after the first second. Leaving the `with` block
    ends the line."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._shown = time.monotonic()
        self._visible = False
        self._enabled = sys.stderr.isatty()

    def __call__(self, rows: int, files: int) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._began < _FIRST_S or now - self._shown < _EVERY_S:
            return
        self._shown = now
        self._visible = True
        speed = rows / (now - self._began)
        print(
            f"\r{self._what}: {rows:,} rows, {speed:,.0f} rows/s",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._visible:
            print(file=sys.stderr)


class Steps:
    """Call it with what is done next; it rewrites one line. Leaving the `with` block removes the
    line."""

    def __init__(self) -> None:
        self._width = 0

    def __call__(self, step: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{step.ljust(self._width)}", end="", file=sys.stderr, flush=True)
            self._width = len(step)

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)

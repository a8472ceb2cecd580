"""Progress of long work on a terminal's standard error; silent for the first second, and wherever no one is looking."""

from __future__ import annotations

import sys
import time
from types import TracebackType

_FIRST_S = 1.0
_EVERY_S = 0.2


class Progress:
    """Call it with counts; it rewrites one line. Leaving the `with` block ends the line."""

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
        print(f"\r{self._what}: {rows:,} rows, {speed:,.0f} rows/s", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._visible:
            print(file=sys.stderr)

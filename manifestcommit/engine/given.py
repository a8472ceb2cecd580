"""What callers hand in, checked before anything is read: texts, reasons, ranges of sources. [SC7] [WM3]

Not here: what a job and a change do with it (engine.job, engine.row_change).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.text import is_text
from ..core.watermark import Advance, check_advance
from ..errors import UsageError

Ranges = Mapping[str, tuple[int | str | None, int | str]]  # source -> start, end; half-open


def check_work(*, key: object, fingerprint: object) -> None:
    """UsageError unless each is a text that can be stored, or None. [KY1] [SC7]"""
    for name, value in (("key", key), ("fingerprint", fingerprint)):
        if value is not None and not is_text(value):
            raise UsageError(f"{name} is a non-empty text that is the same on every rerun of this work, not {value!r}")


def check_reason(what: str, reason: object) -> None:
    """UsageError unless the reason says something. what: the operation that it is recorded with. [OB10]"""
    if not (is_text(reason) and reason.strip()):
        raise UsageError(f"a {what} is recorded with its reason: say why, for those who read the history later; {reason!r} does not")


def advance_of(source: object, start: object, end: object) -> Advance:
    """A well-formed range of a source, or UsageError. [WM3]"""
    try:
        return check_advance(source, start, end)
    except ValueError as error:
        raise UsageError(str(error)) from None


def advances_of(ranges: Ranges | None) -> tuple[Advance, ...]:
    """The ranges of all sources, well-formed, or a UsageError that names the one that is not. [WM3]"""
    given: Any = ranges if ranges is not None else {}
    if not isinstance(given, Mapping):
        raise UsageError(f"watermarks and sources map a source to (start, end), half-open; this is {given!r}")
    advances = []
    for source, pair in given.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise UsageError(f"watermarks and sources map a source to (start, end), half-open; {source!r} has {pair!r}")
        advances.append(advance_of(source, *pair))
    return tuple(advances)

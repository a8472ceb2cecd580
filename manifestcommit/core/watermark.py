"""Watermarks: how far each source has been read, and the only way in which they move. [WM1]-[WM4]

Pure. Not here: when they are checked (core.conflict), where they are stored (core.snapshot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

Position: TypeAlias = int | str | None


class Watermark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a source stands. position: everything before it is in the table; origin: where its first advance began. [WM1]"""

    position: int | str
    origin: Position = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Advance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The half-open range [start, end) of a source whose rows a change adds. [WM2]"""

    source: str
    start: Position = None
    end: int | str


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """Why an advance does not hold. have: the table's position; want: the advance's start; all_covered: see `WatermarkError`."""

    kind: Literal["gap", "overlap", "mismatch"]
    source: str
    have: Position
    want: Position
    all_covered: bool


def find_misfit(watermarks: Mapping[str, Watermark], advances: Sequence[Advance]) -> Misfit | None:
    """The first advance that does not start exactly where its source stands, or None if all do. [WM2]"""
    position: dict[str, Position] = {}
    for advance in advances:
        known = advance.source in position or advance.source in watermarks
        have = position[advance.source] if advance.source in position else _position(watermarks, advance.source)
        if known and have != advance.start:
            return Misfit(
                kind=_kind(have, advance.start),
                source=advance.source,
                have=have,
                want=advance.start,
                all_covered=all(_covered(watermarks, each) for each in advances),
            )
        position[advance.source] = advance.end
    return None


def move(watermarks: Mapping[str, Watermark], advances: Sequence[Advance]) -> dict[str, Watermark]:
    """The watermarks after advances that fit; every other source stays where it was. [WM2]"""
    moved = dict(watermarks)
    for advance in advances:
        before = moved.get(advance.source)
        moved[advance.source] = Watermark(
            position=advance.end,
            origin=advance.start if before is None else before.origin,
            extra={} if before is None else before.extra,
        )
    return moved


def check_advance(source: object, start: object, end: object) -> Advance:
    """A well-formed advance: text source, int or str positions of one kind, never backwards; ValueError otherwise. [WM3]"""
    if not isinstance(source, str) or not source:
        raise ValueError(f"a watermark's source is a non-empty text, not {source!r}")
    if isinstance(end, bool) or not isinstance(end, int | str):
        raise ValueError(f"watermark {source!r}: the end is an integer or a text, not {end!r}")
    if start is not None and (isinstance(start, bool) or not isinstance(start, type(end))):
        raise ValueError(f"watermark {source!r}: start {start!r} and end {end!r} are not of one kind")
    if isinstance(end, int):
        if any(isinstance(p, int) and not -(2**63) <= p < 2**63 for p in (start, end)):
            raise ValueError(f"watermark {source!r}: positions are signed 64-bit integers; give larger ones as text")
        if isinstance(start, int) and end < start:
            raise ValueError(f"watermark {source!r}: the end {end} lies before the start {start}; a range never runs backwards")
    assert start is None or isinstance(start, int | str)
    return Advance(source=source, start=start, end=end)


def _position(watermarks: Mapping[str, Watermark], source: str) -> Position:
    mark = watermarks.get(source)
    return None if mark is None else mark.position


def _kind(have: Position, want: Position) -> Literal["gap", "overlap", "mismatch"]:
    # Opaque texts have no order: neither a gap nor an overlap can be told. [WM3]
    if isinstance(have, int) and isinstance(want, int):
        return "gap" if have < want else "overlap"
    if isinstance(have, int) and want is None:
        return "overlap"  # the job thinks that the source is new; the table already holds some of it
    return "mismatch"


def _covered(watermarks: Mapping[str, Watermark], advance: Advance) -> bool:
    have = _position(watermarks, advance.source)
    if isinstance(have, int) and isinstance(advance.end, int):
        return advance.end <= have
    return have is not None and have == advance.end

"""Watermarks: how far each source has been read, and the only ways in which they move. [WM1]-[WM5]

Pure. Not here: when they are checked (core.conflict), where they are stored (core.snapshot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from .text import is_text, is_unicode

Position: TypeAlias = int | str | None


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


def find_misfit(watermarks: Mapping[str, int | str], origins: Mapping[str, Position], advances: Sequence[Advance]) -> Misfit | None:
    """The first advance that does not start exactly where its source stands, or None if all do. [WM2]"""
    position: dict[str, Position] = {}
    for advance in advances:
        known = advance.source in position or advance.source in watermarks
        have = position[advance.source] if advance.source in position else watermarks.get(advance.source)
        if known and have != advance.start:
            return Misfit(
                kind=_kind(have, advance.start),
                source=advance.source,
                have=have,
                want=advance.start,
                all_covered=all(_covered(watermarks, origins, each) for each in advances),
            )
        position[advance.source] = advance.end
    return None


def move(watermarks: Mapping[str, int | str], advances: Sequence[Advance]) -> dict[str, int | str]:
    """The watermarks after advances that fit; every other source stays where it was. [WM2]"""
    return {**watermarks, **{advance.source: advance.end for advance in advances}}


def note_origins(origins: Mapping[str, Position], watermarks: Mapping[str, int | str], advances: Sequence[Advance]) -> dict[str, Position]:
    """Where the first advance of every source began, those of new sources added. [WM1]"""
    new: dict[str, Position] = {}
    for advance in advances:
        if advance.source not in watermarks:
            new.setdefault(advance.source, advance.start)
    return {**origins, **new}


def rewind_watermarks(watermarks: Mapping[str, int | str], source: str, to: Position) -> dict[str, int | str]:
    """The watermarks with one source back at `to`, or without it. [WM5]"""
    others = {each: position for each, position in watermarks.items() if each != source}
    return others if to is None else {**others, source: to}


def rewind_origins(origins: Mapping[str, Position], source: str, to: Position) -> dict[str, Position]:
    """The origins after a rewind: a source that goes back beyond its origin will be read from there. [WM1] [WM5]"""
    if to is None:
        return {each: origin for each, origin in origins.items() if each != source}
    origin = origins.get(source)
    return {**origins, source: to} if isinstance(origin, int) and isinstance(to, int) and to < origin else dict(origins)


def is_left_by(to: Position, end: Position) -> bool:
    """Whether a rewind to `to` leaves a step of the watermark that ended at `end`, and so all before it, as it is. [WM5]

    A text has no order: a rewind leads to one that the source stood at.
    """
    return end == to or (isinstance(end, int) and isinstance(to, int) and end <= to)


def check_advance(source: object, start: object, end: object) -> Advance:
    """A well-formed advance: text source, int or str positions of one kind, never backwards; ValueError otherwise. [WM3]"""
    if not is_text(source):
        raise ValueError(f"a watermark's source is a non-empty text, not {source!r}")
    if isinstance(end, bool) or not isinstance(end, int | str) or not all(is_unicode(p) for p in (start, end) if isinstance(p, str)):
        raise ValueError(f"watermark {source!r}: the end is an integer or a text, not {end!r}")
    if start is not None and (isinstance(start, bool) or not isinstance(start, type(end))):
        raise ValueError(f"watermark {source!r}: start {start!r} and end {end!r} are not of one kind")
    if isinstance(end, int):
        if any(isinstance(p, int) and not -(2**63) <= p < 2**63 for p in (start, end)):
            raise ValueError(f"watermark {source!r}: positions are signed 64-bit integers; give larger ones as text")
        if isinstance(start, int) and end < start:
            raise ValueError(f"watermark {source!r}: the end {end} lies before the start {start}; a range never runs backwards")
    assert start is None or isinstance(start, int | str)
    return Advance(source=str(source), start=start, end=end)


def _kind(have: Position, want: Position) -> Literal["gap", "overlap", "mismatch"]:
    # Opaque texts have no order: neither a gap nor an overlap can be told. [WM3]
    if isinstance(have, int) and isinstance(want, int):
        return "gap" if have < want else "overlap"
    if isinstance(have, int) and want is None:
        return "overlap"  # the job thinks that the source is new; the table already holds some of it
    return "mismatch"


def _covered(watermarks: Mapping[str, int | str], origins: Mapping[str, Position], advance: Advance) -> bool:
    have, origin = watermarks.get(advance.source), origins.get(advance.source)
    if isinstance(have, int) and isinstance(advance.end, int):
        # What lies before the origin was never read: a caller who took it as done would lose it.
        reached = origin is None or (isinstance(advance.start, int) and isinstance(origin, int) and advance.start >= origin)
        return reached and advance.end <= have
    return False  # texts have no order: nothing tells where reading began

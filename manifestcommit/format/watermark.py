"""Watermarks: how far each source has been read, and the only ways in which they move. [WM1]-[WM5]

Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from typing import Literal, TypeAlias

import msgspec

from .fields import Closed, is_text, is_unicode, shown

Position: TypeAlias = int | str | None


# How far back a range of texts is looked for, which the present watermark does not show.
VERSIONS_SEARCHED = 100


class Advance(Closed, frozen=True, kw_only=True):
    """The half-open range [start, end) of a source whose rows a change adds. [WM2]"""

    source: str
    start: Position = None
    end: int | str


class WatermarkMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """How an advance differs from the current watermark of its source.

    Attributes:
        kind: "gap", "overlap", or "mismatch" for watermarks that are texts.
        source: the source's name.
        have: the current watermark; None: the source has none.
        want: where the advance starts.
        all_covered: whether the table already contains every advance of the job.

    Spec: WM2.
    """

    kind: Literal["gap", "overlap", "mismatch"]
    source: str
    have: Position
    want: Position
    all_covered: bool


def find_mismatch(
    watermarks: Mapping[str, int | str],
    origins: Mapping[str, Position],
    advances: Sequence[Advance],
    committed: Set[Advance] = frozenset(),
) -> WatermarkMismatch | None:
    """The first advance that does not start exactly at its source's current watermark; None: all
    do. committed: those of texts that a version is known to have committed. [WM2]"""
    position: dict[str, Position] = {}
    for advance in advances:
        # A source with an origin and no position was rolled back to before its first advance. [WM1]
        known = (
            advance.source in position or advance.source in watermarks or advance.source in origins
        )
        have = (
            position[advance.source]
            if advance.source in position
            else watermarks.get(advance.source)
        )
        if known and have != advance.start:
            return WatermarkMismatch(
                kind=_kind(have, advance.start),
                source=advance.source,
                have=have,
                want=advance.start,
                all_covered=all(
                    other in committed or _covered(watermarks, origins, other) for other in advances
                ),
            )
        position[advance.source] = advance.end
    return None


def move(watermarks: Mapping[str, int | str], advances: Sequence[Advance]) -> dict[str, int | str]:
    """The watermarks after matching advances; all other sources keep theirs. [WM2]"""
    return {**watermarks, **{advance.source: advance.end for advance in advances}}


def note_origins(
    origins: Mapping[str, Position],
    watermarks: Mapping[str, int | str],
    advances: Sequence[Advance],
) -> dict[str, Position]:
    """The origins, with those of new sources added: where the first advance of each began. [WM1]"""
    new: dict[str, Position] = {}
    for advance in advances:
        if advance.source not in watermarks:
            new.setdefault(advance.source, advance.start)
    return {**origins, **new}


def rewind_watermarks(
    watermarks: Mapping[str, int | str], source: str, to: Position
) -> dict[str, int | str]:
    """The watermarks with one source set back to `to`, or removed. [WM5]"""
    others = {name: position for name, position in watermarks.items() if name != source}
    return others if to is None else {**others, source: to}


def rewind_origins(
    origins: Mapping[str, Position], source: str, to: Position
) -> dict[str, Position]:
    """The origins after a rewind, which may lie before those of now. [WM1] [WM5]"""
    if to is None:
        return {name: origin for name, origin in origins.items() if name != source}
    origin = origins.get(source)
    return (
        {**origins, source: to}
        if isinstance(origin, int) and isinstance(to, int) and to < origin
        else dict(origins)
    )


def first_origin(origins: Sequence[Position]) -> Position:
    """Where a source first began, from all its beginnings, oldest first: the lowest integer, null
    below all; for texts the oldest. [CF13]"""
    whole = [origin for origin in origins if isinstance(origin, int)]
    return min(whole) if len(whole) == len(origins) else None if None in origins else origins[0]


def is_left_by(to: Position, end: Position) -> bool:
    """Whether a rewind to `to` keeps an advance that ended at `end`, and so everything before it.
    [WM5]

    Texts have no order: a rewind leads to one of the source's earlier positions.
    """
    return end == to or (isinstance(end, int) and isinstance(to, int) and end <= to)


def check_advance(source: object, start: object, end: object) -> Advance:
    """Check that an advance is well-formed: the source is a text, the positions are int or str of
    one kind, and it does not go backwards; ValueError otherwise. [WM3]"""
    if not is_text(source):
        raise ValueError(f"a watermark's source is a non-empty text, not {shown(source)}")
    if (
        isinstance(end, bool)
        or not isinstance(end, int | str)
        or not all(is_unicode(p) for p in (start, end) if isinstance(p, str))
    ):
        raise ValueError(f"watermark {source!r}: the end is an integer or a text, not {shown(end)}")
    if start is not None and (isinstance(start, bool) or not isinstance(start, type(end))):
        raise ValueError(
            f"watermark {source!r}: start {shown(start)} and end {shown(end)} are not of one kind"
        )
    if isinstance(end, int):
        if any(isinstance(p, int) and not -(2**63) <= p < 2**63 for p in (start, end)):
            raise ValueError(
                f"watermark {source!r}: positions are signed 64-bit integers; give larger "
                "ones as text"
            )
        if isinstance(start, int) and end < start:
            raise ValueError(
                f"watermark {source!r}: the end {end} lies before the start {start}; a range "
                "never runs backwards"
            )
    assert start is None or isinstance(start, int | str)
    return Advance(source=str(source), start=start, end=end)


def predecessors(jobs: Sequence[Sequence[Advance]]) -> list[set[int]]:
    """For each job, the jobs whose advances come directly before its own: for integers the next
    lower range of the source, for texts the range that ends where this one starts. [WM7]"""
    ranges: dict[str, list[tuple[int, Advance]]] = {}
    for index, advances in enumerate(jobs):
        for advance in advances:
            ranges.setdefault(advance.source, []).append((index, advance))
    before: list[set[int]] = [set() for _ in jobs]
    for of_source in ranges.values():
        whole = [(index, advance) for index, advance in of_source if isinstance(advance.end, int)]
        whole.sort(
            key=lambda pair: (isinstance(pair[1].start, int), pair[1].start or 0, pair[1].end)
        )
        for (lower, _), (higher, _) in itertools.pairwise(whole):
            before[higher].add(lower)
        ends: dict[Position, list[int]] = {}
        for index, advance in of_source:
            ends.setdefault(advance.end, []).append(index)
        for index, advance in of_source:
            before[index].update(
                ends.get(advance.start, ()) if isinstance(advance.start, str) else ()
            )
    return [earlier - {index} for index, earlier in enumerate(before)]


def in_order_of_advances(before: Sequence[Set[int]]) -> list[int]:
    """An order of the jobs in which none comes before its predecessors; where there is none,
    because texts form a cycle, the given order. [WM7]"""
    order: dict[int, None] = {}
    for first in range(len(before)):
        path = {first: None}  # a path of predecessors, down to one that may come next
        while path:
            index = next(reversed(path))
            missing = next(
                (
                    earlier
                    for earlier in sorted(before[index])
                    if earlier not in order and earlier not in path
                ),
                None,
            )
            if missing is None:
                order[index] = path.pop(index)
            else:
                path[missing] = None
    return list(order)


def _kind(have: Position, want: Position) -> Literal["gap", "overlap", "mismatch"]:
    # Opaque texts have no order, so gaps and overlaps cannot be detected. [WM3]
    if isinstance(have, int) and isinstance(want, int):
        return "gap" if have < want else "overlap"
    if isinstance(have, int) and want is None:
        # the job assumes a new source, but the table already holds some of it
        return "overlap"
    if have is None and isinstance(want, int):
        return "gap"
    return "mismatch"


def _covered(
    watermarks: Mapping[str, int | str], origins: Mapping[str, Position], advance: Advance
) -> bool:
    have, origin = watermarks.get(advance.source), origins.get(advance.source)
    if isinstance(have, int) and isinstance(advance.end, int):
        # What lies before the origin was never read: a caller who took it as done would lose it.
        reached = origin is None or (
            isinstance(advance.start, int) and isinstance(origin, int) and advance.start >= origin
        )
        return reached and advance.end <= have
    return False  # texts have no order, so the beginning is unknown

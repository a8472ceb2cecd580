"""What is claimed (claims.toml), the newest results of it, and whether they keep the claim. Pure but for reading those files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

CLAIMS = Path(__file__).resolve().parent / "claims.toml"
Scalar = str | int | float | bool


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of a claim, and its bound.

    benchmark, case, of, figure: the median that is judged, of the contestant `of` in the newest result whose case has these members.
    against: another contestant of the same result; against_case: the same contestant in another case. by: what of the two is judged.
    most, least: the bound; enough: a median that is good enough by itself, whatever it is compared with.
    """

    says: str
    benchmark: str
    figure: str
    case: dict[str, Scalar] = {}
    of: str = "manifestcommit"
    against: str | None = None
    against_case: dict[str, Scalar] | None = None
    by: Literal["ratio", "difference"] = "ratio"
    most: float | None = None
    least: float | None = None
    enough: float | None = None

    def __post_init__(self) -> None:
        if (self.most is None) == (self.least is None):
            raise ValueError(f"{self.says!r} has one bound: either `most` or `least`")
        if self.against is not None and self.against_case is not None:
            raise ValueError(f"{self.says!r} is held against one thing: another contestant or another case")


class Plot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a claim's picture shows, one panel for each figure in `y`.

    x: a member of the case, with a point for each newest result; or, with `rounds`, a figure of every single round of one result; without
    it the contestants' medians in one result stand side by side. of: only these contestants.
    """

    benchmark: str
    y: tuple[str, ...]
    case: dict[str, Scalar] = {}
    x: str = ""
    rounds: bool = False
    log: bool = False
    of: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence, the figures that it stands or falls with, and a picture."""

    id: str
    says: str
    line: tuple[Line, ...]
    plot: Plot | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of benchmarks/results/: what `measure.report` wrote."""

    benchmark: str
    at: str
    case: dict[str, Any]
    medians: dict[str, dict[str, float]]
    rounds: dict[str, list[dict[str, float]]]
    machine: dict[str, Any]
    ratios: dict[str, dict[str, float]] = {}
    command: str = ""

    def has(self, wanted: Mapping[str, Scalar]) -> bool:
        """Whether the case has these members with these values; an empty text is that of a member that it lacks."""
        return all(self.case.get(name, "") == value for name, value in wanted.items())


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest results say of a line. value: what is judged; measured, other: the two medians; short: by what part of the bound it
    is missed, 0 where it is kept, None where nothing was measured; results: those that it comes from."""

    value: float | None = None
    measured: float | None = None
    other: float | None = None
    short: float | None = None
    results: tuple[Result, ...] = ()


def read_claims(path: Path = CLAIMS) -> tuple[Claim, ...]:
    """All claims in their order; ValueError where one says what it cannot mean."""
    claims = msgspec.convert(tomllib.loads(path.read_text("utf-8"))["claim"], tuple[Claim, ...])
    if len({claim.id for claim in claims}) < len(claims):
        raise ValueError(f"{path.name}: two claims share an id")
    return claims


def read_results(folder: Path) -> tuple[Result, ...]:
    """Of each benchmark and case the newest result, oldest first. The versions of peers and tools are no part of a case; a first look at
    small sizes (`--quick`) is no result."""
    found: dict[str, Result] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text("utf-8").splitlines():
            result = msgspec.json.decode(text, type=Result)
            if "--quick" in result.command:
                continue
            case = {name: value for name, value in result.case.items() if name != "versions"}
            place = json.dumps([result.benchmark, case], sort_keys=True)
            if place not in found or found[place].at <= result.at:
                found[place] = result
    return tuple(sorted(found.values(), key=lambda result: (result.at, result.benchmark, str(result.case))))


def judge(line: Line, results: Sequence[Result]) -> Judgement:
    """What the newest results say; nothing where one that it takes is not there."""
    mine = _newest(line, line.case, line.of, results)
    if mine is None:
        return Judgement()
    measured, other = mine.medians[line.of][line.figure], None
    used: tuple[Result, ...] = (mine,)
    if line.against is not None:
        other = mine.medians.get(line.against, {}).get(line.figure)
    elif line.against_case is not None:
        theirs = _newest(line, line.against_case, line.of, results)
        other, used = (theirs.medians[line.of][line.figure], (theirs, mine)) if theirs is not None else (None, used)
    if line.against is None and line.against_case is None:
        value = measured
    elif other is None or (line.by == "ratio" and not other):
        return Judgement()
    else:
        value = measured / other if line.by == "ratio" else measured - other
    return Judgement(value=value, measured=measured, other=other, short=_short(line, value, measured), results=used)


def _short(line: Line, value: float, measured: float) -> float:
    if line.most is not None:
        enough = line.enough is not None and measured <= line.enough
        return 0.0 if enough or value <= line.most else (value - line.most) / abs(line.most) if line.most else float("inf")
    assert line.least is not None
    enough = line.enough is not None and measured >= line.enough
    return 0.0 if enough or value >= line.least else (line.least - value) / abs(line.least)


def _newest(line: Line, case: Mapping[str, Scalar], of: str, results: Sequence[Result]) -> Result | None:
    fitting = (
        result for result in results
        if result.benchmark == line.benchmark and result.has(case) and line.figure in result.medians.get(of, {})
    )  # fmt: skip
    return max(fitting, key=lambda result: result.at, default=None)


# --- pictures -------------------------------------------------------------------------------------------------------------


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over x, a series of points for each contestant; x is empty where medians stand side by side."""

    y: str
    x: str
    log: bool
    series: dict[str, list[tuple[float, float]]]


def panels(plot: Plot, results: Sequence[Result]) -> tuple[Panel, ...]:
    """What is to be drawn; nothing where there is no result."""
    fitting = [result for result in results if result.benchmark == plot.benchmark and result.has(plot.case)]
    fitting = [result for result in fitting if not plot.x or plot.rounds or plot.x in result.case]
    found = []
    for y in plot.y:
        series: dict[str, list[tuple[float, float]]] = {}
        for name, point in _points(plot, y, fitting if plot.x and not plot.rounds else fitting[-1:]):
            series.setdefault(name, []).append(point)
        if series:
            sorted_series = {name: sorted(points) for name, points in series.items()}
            found.append(Panel(y=y, x=plot.x, log=plot.log, series=sorted_series))
    return tuple(found)


def _points(plot: Plot, y: str, results: Sequence[Result]) -> Iterator[tuple[str, tuple[float, float]]]:
    for result in results:
        for name, medians in result.medians.items():
            if plot.of and name not in plot.of:
                continue
            if plot.rounds:
                yield from ((name, (one[plot.x], one[y])) for one in result.rounds[name] if plot.x in one and y in one)
            elif y in medians:
                yield name, (float(result.case[plot.x]) if plot.x else 0.0, medians[y])

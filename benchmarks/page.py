"""The page of claims, spec/performance.md: what is claimed, what was measured, and whether the one keeps the other.

    python -m benchmarks.page              # write the page and its pictures anew from benchmarks/results/
    python -m benchmarks.page --check      # only say whether they are what the results give

Nothing on the page is typed but the claims themselves and their bounds (claims.toml): verdicts are computed from the newest result of each
case. A test of the usual run compares the page in the repository with what the results give.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.claims import Claim, Judgement, Line, Panel, Result, judge, panels, read_claims, read_results
from benchmarks.measure import REPO, RESULTS
from benchmarks.plot import digest, digest_in, draw

PAGE = REPO / "spec" / "performance.md"
PICTURES = REPO / "spec" / "performance"
_TOP = """# Performance

What is claimed, what was measured of it, and what falls short. This page is generated: `python -m benchmarks.page` writes it from
the newest results in [benchmarks/results/](../benchmarks/results) and the bounds in [claims.toml](../benchmarks/claims.toml); no figure
and no verdict on it is typed. How it is measured, and what figures of different runs are worth, is in
[benchmarks/README.md](../benchmarks/README.md); what took the time, and what was done about it, in
[profiles.md](../benchmarks/profiles.md). Where a time was taken while others worked on the machine, the verdict tells the load of its
last 15 minutes: such a verdict is worth a second look.
"""


def main() -> int:
    """Write the page, or say what is stale."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description="The page of claims, from the newest results.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page is not what the results give")
    claims, results = read_claims(), read_results(RESULTS)
    if parser.parse_args().check:
        wrong = list(stale(claims, results))
        print("\n".join(wrong) if wrong else "the page is what the results give")
        return bool(wrong)
    drawn = pictures(claims, results)
    for path, shown in drawn.items():
        draw(path, shown)
    for path in set(PICTURES.glob("*")) - drawn.keys():
        path.unlink()
    PAGE.write_text(render(claims, results), "utf-8")
    print(f"{PAGE.relative_to(REPO)} and {len(drawn)} pictures are what the results give")
    return 0


def stale(claims: Sequence[Claim], results: Sequence[Result]) -> Iterator[str]:
    """Each way in which the page or a picture is not what the results give."""
    again = "; run `python -m benchmarks.page`"
    if not PAGE.exists() or PAGE.read_text("utf-8") != render(claims, results):
        yield f"{PAGE.relative_to(REPO)} is not what the results give{again}"
    drawn = pictures(claims, results)
    for path, shown in drawn.items():
        if digest_in(path) != digest(shown):
            yield f"{path.relative_to(REPO)} shows other figures than the results{again}"
    for path in sorted(set(PICTURES.glob("*")) - drawn.keys()):
        yield f"{path.relative_to(REPO)} belongs to no claim{again}"


def pictures(claims: Sequence[Claim], results: Sequence[Result]) -> dict[Path, tuple[Panel, ...]]:
    """Where each picture lies, and what it shows."""
    found = {PICTURES / f"{claim.id}.png": panels(claim.plot, results) for claim in claims if claim.plot is not None}
    return {path: shown for path, shown in found.items() if shown}


# --- the page -------------------------------------------------------------------------------------------------------------


def render(claims: Sequence[Claim], results: Sequence[Result]) -> str:
    """The whole page."""
    judged = {claim.id: [(line, judge(line, results)) for line in claim.line] for claim in claims}
    drawn = pictures(claims, results)
    parts = [_TOP, _summary(claims, judged)]
    used: dict[int, Result] = {}
    for claim in claims:
        parts.append(f"## {claim.id}\n\n{claim.says}\n")
        parts.append(_lines(judged[claim.id]))
        if PICTURES / f"{claim.id}.png" in drawn:
            parts.append(f"![{claim.id}]({PICTURES.name}/{claim.id}.png)\n")
        runs = {id(result): result for _, each in judged[claim.id] for result in each.results}
        used |= runs
        if runs:
            parts.append("From: " + ", ".join(f"[{_title(one)}](#{_anchor(_title(one))})" for one in runs.values()) + ".\n")
    parts.append("## Where the time goes\n")
    profiles = [result for result in results if result.benchmark == "profile"]
    parts += [_result(result) for result in profiles] or ["Not measured.\n"]
    parts.append("## Results\n\nThe newest result of every case that a claim takes: medians, and how the first row stands to the others.\n")
    parts += [_result(result) for result in results if id(result) in used]
    return "\n".join(parts)


def _summary(claims: Sequence[Claim], judged: Mapping[str, Sequence[tuple[Line, Judgement]]]) -> str:
    rows = []
    for claim in claims:
        shorts = [each.short for _, each in judged[claim.id]]
        counts = {
            "met": sum(short == 0 for short in shorts),
            "falls short": sum(bool(short) for short in shorts),
            "not measured": sum(short is None for short in shorts),
        }
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        rows.append((f"[{claim.id}](#{_anchor(claim.id)})", claim.says, told))
    return _table(("claim", "says", "of its figures"), rows)


def _lines(judged: Sequence[tuple[Line, Judgement]]) -> str:
    head = ("figure", "measured", "held against", "is", "bound", "verdict")
    return _table(head, [(line.says, *_cells(line, each), _bound(line), verdict(each) + _busy(line, each)) for line, each in judged])


def _cells(line: Line, each: Judgement) -> tuple[str, str, str]:
    if each.value is None or each.measured is None:
        return "-", "-", "-"
    measured = f"{number(each.measured)} ({line.figure})"
    if each.other is None:
        return measured, "-", number(each.value)
    theirs = line.against or ", ".join(f"{name} {number(value)}" for name, value in (line.against_case or {}).items())
    return measured, f"{number(each.other)} ({theirs})", _judged(line, each.value)


def _judged(line: Line, value: float) -> str:
    if line.against is None and line.against_case is None:
        return number(value)
    return f"×{value:.2f}" if line.by == "ratio" else f"{number(value)} more"


def _bound(line: Line) -> str:
    bound = f"at most {_judged(line, line.most)}" if line.most is not None else f"at least {_judged(line, line.least or 0)}"
    return bound + (f", or {number(line.enough)}" if line.enough is not None else "")


def verdict(each: Judgement) -> str:
    """In words; what falls short is told as a part of its bound."""
    if each.short is None:
        return "not measured"
    if each.short == 0:
        return "met"
    return f"**falls short by {each.short:.0%}**" if each.short >= 0.005 else "**falls short by less than 1%**"


def _busy(line: Line, each: Judgement) -> str:
    """What is to be known of a time that was taken while others worked: the load, where it was above twice the cores."""
    is_time = "cpu" not in line.figure and (line.figure == "ms" or line.figure.endswith(("_s", "_ms")))
    loads = [one.machine.get("load_15m", 0) for one in each.results if one.machine.get("load_15m", 0) > 2 * one.machine.get("cores", 1)]
    return f" (load {number(max(loads))})" if is_time and loads else ""


def _result(result: Result) -> str:
    figures = list(dict.fromkeys(name for medians in result.medians.values() for name in medians))
    rows = [(who, *(_cell(medians, name) for name in figures)) for who, medians in result.medians.items()]
    first = next(iter(result.medians))
    rows += (
        []
        if result.benchmark == "profile"
        else [  # parts of one whole are no contestants
            (f"{first} / {who}", *(f"×{ratios[name]:.2f}" if name in ratios else "-" for name in figures))
            for who, ratios in result.ratios.items()
            if ratios
        ]
    )
    machine = result.machine
    state = " with changes" if machine.get("changed_since_commit") else ""
    rounds = max(len(each) for each in result.rounds.values())
    libraries = ", ".join(f"{name} {machine[name]}" for name in ("python", "java", "pyspark", "pyarrow") if machine.get(name))
    commit = str(machine.get("commit") or "unknown")[:12]
    command = result.command or f"python -m benchmarks.{result.benchmark}"
    made = (
        f"`{command}` on {result.at[:10]}, {rounds} round{'s'[: rounds > 1]}, at commit {commit}{state}; {machine['cores']} cores, "
        f"{machine['memory_gb']} GB, load before the end {machine['load_15m']}, kernel {machine['kernel']}, {libraries}"
    )
    versions = f"; {result.case['versions']}" if "versions" in result.case else ""
    return f"### {_title(result)}\n\n{_table(('', *figures), rows)}\n{made}{versions}.\n"


def _title(result: Result) -> str:
    case = ", ".join(f"{name} {number(value)}" for name, value in result.case.items() if name != "versions")
    return f"{result.benchmark}: {case}"


def _anchor(title: str) -> str:
    """The name that a Markdown page gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _cell(medians: Mapping[str, float], name: str) -> str:
    return number(medians[name]) if name in medians else "-"


def number(value: Any) -> str:
    """Three digits that count; more of a large number, with commas."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 100 or value == int(value):
        return f"{round(value):,}"
    return f"{value:.3g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = ([text.replace("|", "\\|") for text in row] for row in (head, ["---"] * len(head), *rows))
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


if __name__ == "__main__":
    sys.exit(main())

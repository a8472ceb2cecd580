"""The tables of spec/model/README.md: which configuration has which features together, and what TLC found in each.

`python -m tests.model.pages` writes them anew, from runs.toml and from figures.json, which `python -m tests.model --record` writes.
"""

import json
import re
import sys
from collections.abc import Sequence

from tests.model.runs import ALL_FEATURES, SIZES, SPEC, Run, load
from tests.model.tlc import Verdict

README = SPEC / "README.md"
FIGURES = SPEC / "figures.json"
_PART = "<!-- {name} -->\n{body}\n<!-- end of {name} -->"


def readme(text: str, runs: Sequence[Run]) -> str:
    """The page with its tables as they are to be."""
    for name, body in (("pairs", _pairs(runs)), ("configurations", _configurations(runs)), ("rules", _rules(runs))):
        whole = _PART.format(name=name, body=body)
        text = re.sub(rf"<!-- {name} -->.*<!-- end of {name} -->", lambda _, whole=whole: whole, text, flags=re.DOTALL)
    return text


def recorded() -> dict[str, dict[str, dict[str, int]]]:
    """What an earlier run found: size -> configuration -> states and depth."""
    found = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    assert isinstance(found, dict)
    return found


def record(verdict: Verdict) -> None:
    """Note what was found, for the page and for the tests."""
    figures = recorded()
    figures.setdefault(verdict.size, {})[verdict.run.name] = {"states": verdict.states, "depth": verdict.depth}
    # In their order, and without those that are gone.
    names = {size: [run.name for run in load() if size in run.sizes] for size in SIZES}
    kept = {size: {name: found[name] for name in names[size] if name in found} for size, found in sorted(figures.items())}
    lines = [
        f'"{size}": {{\n' + ",\n".join(f"  {json.dumps(n)}: {json.dumps(f)}" for n, f in found.items()) + "\n}"
        for size, found in kept.items()
    ]
    FIGURES.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _pairs(runs: Sequence[Run]) -> str:
    numbers = {run.name: number for number, run in enumerate(_holding(runs), 1)}
    lines = ["| |" + "|".join(f" {name} " for name in ALL_FEATURES[1:]) + "|", "|---" * len(ALL_FEATURES) + "|"]
    for row, one in enumerate(ALL_FEATURES[:-1]):
        cells = []
        for column, other in enumerate(ALL_FEATURES[1:], 1):
            together = [run for run in _holding(runs) if "test" in run.sizes and {one, other} <= run.features("test")]
            cells.append(" ".join(str(numbers[run.name]) for run in together[:3]) if column > row else "")
        lines.append(f"| **{one}** | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _configurations(runs: Sequence[Run]) -> str:
    figures = recorded()
    lines = [
        "| | configuration | processes | versions, lost | states (depth) | large: versions, lost | states (depth) |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, run in enumerate(_holding(runs), 1):
        plans = "<br>".join(f"`{name}`: `{plan}`" for name, plan in run.plans["test"].items())
        extra = "; helping" if run.helping else ""
        cells = [
            f"{run.versions[size]}, {run.lost[size]} | {_found(figures.get(size, {}).get(run.name))}" if size in run.sizes else " | "
            for size in reversed(SIZES)
        ]
        lines.append(f"| {number} | **{run.name}**: {run.why} | {plans}{extra} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _rules(runs: Sequence[Run]) -> str:
    figures = recorded().get("test", {})
    lines = ["| without | what happens | breaks | steps | states |", "|---|---|---|---|---|"]
    for run in runs:
        if run.expect is not None:
            found = figures.get(run.name)
            steps, states = (str(found["depth"]), f"{found['states']:,}") if found else ("", "")
            off = ", ".join(f"`{rule}`" for rule in run.off)
            lines.append(f"| {off} | **{run.name}**: {run.why} | {run.expect} | {steps} | {states} |")
    return "\n".join(lines)


def _found(figure: dict[str, int] | None) -> str:
    return f"{figure['states']:,} ({figure['depth']})" if figure else "not recorded"


def _holding(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.expect is None]


def main() -> int:
    runs = load()
    README.write_text(readme(README.read_text("utf-8"), runs), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

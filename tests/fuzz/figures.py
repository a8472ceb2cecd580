"""What long runs of the fuzzer found, as `--record` noted it; spec/proof.md shows the same figures. [OB4] [AF3]"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.fuzz.tally import Tally

FIGURES = Path(__file__).with_name("figures.json")


def recorded() -> dict[str, dict[str, int]]:
    """Kind of object -> rounds, and what they found."""
    found: dict[str, dict[str, int]] = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    return found


def record(tallies: Iterable[Tally]) -> None:
    """Add these figures to those that are noted: rounds of other seeds, by the same code."""
    noted = recorded()
    for each in tallies:
        told, before = each.told(), noted.get(each.kind, {})
        noted[each.kind] = {name: (max if name == "peak_mib" else sum)((number, before.get(name, 0))) for name, number in told.items()}
    FIGURES.write_text(json.dumps(dict(sorted(noted.items())), indent=1) + "\n", "utf-8")


def page(figures: Mapping[str, Mapping[str, int]]) -> str:
    """The table of spec/proof.md."""
    head = "| Object | Rounds | Untyped errors | Aborts | Hangs | Peak, MiB |\n|---|--:|--:|--:|--:|--:|\n"
    names = ("rounds", "untyped", "aborted", "hung", "peak_mib")
    return head + "".join(f"| {kind} | {' | '.join(f'{each[name]:,}' for name in names)} |\n" for kind, each in sorted(figures.items()))

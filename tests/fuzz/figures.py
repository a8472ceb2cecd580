"""What long runs of the fuzzer found, as `--record` noted it; spec/proof.md shows the same figures. [OB4] [AF3]"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.child import Ended

PEAK_BYTES = 1 << 30


@dataclass(slots=True)
class Tally:
    """untyped: errors that are not the library's own, all of them; findings: the first of each kind, by what it was and where."""

    kind: str
    rounds: int = 0
    untyped: int = 0
    aborted: int = 0
    hung: int = 0
    peak_bytes: int = 0
    findings: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, ended: Ended) -> Iterator[str]:
        """Count one round; what is wrong with it, where nothing before was wrong in that way."""
        self.rounds += 1
        self.untyped += len(ended.said)
        self.aborted += ended.how == "aborted"
        self.hung += ended.how == "hung"
        self.peak_bytes = max(self.peak_bytes, ended.peak_bytes)
        wrong = [((error, where), text) for error, where, text in ended.said]
        if ended.how != "done":
            wrong.append(((ended.how, ""), f"the process {ended.how}"))
        if ended.peak_bytes > PEAK_BYTES:
            wrong.append((("memory", ""), f"{ended.peak_bytes >> 20} MiB of memory"))
        for place, text in wrong:
            if place not in self.findings:
                self.findings[place] = text
                yield text

    def told(self) -> dict[str, int]:
        """In numbers."""
        counts = {"rounds": self.rounds, "untyped": self.untyped, "aborted": self.aborted, "hung": self.hung}
        return {**counts, "peak_mib": self.peak_bytes >> 20}

    def __str__(self) -> str:
        return f"{self.kind:<10}" + "".join(f"  {name} {number}" for name, number in self.told().items())


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

"""What each client has read, as recorded by the last run, and the table of docs/reference/clients.md."""

import json
import re
from pathlib import Path
from typing import TypedDict

from tests.clients.environments import REPO
from tests.clients.faults import FAULTS
from tests.clients.readers import READERS
from tests.clients.run import REFUSED, SAME
from tests.docs.generated import with_tables
from tests.export.kinds import KINDS

RESULTS = Path(__file__).with_name("results.json")
PAGE = REPO / "docs" / "reference" / "clients.md"
PLACES = {"disk": "on a local disk", "s3": "on S3"}


class Results(TypedDict):
    """verdicts: place -> client -> kind -> what became of it."""

    date: str
    versions: dict[str, str]
    verdicts: dict[str, dict[str, dict[str, str]]]


def recorded() -> Results:
    """The last run."""
    found: Results = json.loads(RESULTS.read_text("utf-8"))
    return found


def record(results: Results) -> None:
    """Keep the results, and show them on the page."""
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(replaced(PAGE.read_text("utf-8"), results), "utf-8")


def totals(results: Results) -> str:
    """Client by place: how many tables it reads right."""
    lines = [f"| client | version | format | {' | '.join(PLACES.values())} |", "|---|---|---|--:|--:|"]
    for client in READERS:
        counts = []
        for place in PLACES:
            verdicts = results["verdicts"].get(place, {}).get(client, {})
            given = [said for said in verdicts.values() if said != REFUSED]
            counts.append(f"{given.count(SAME)} of {len(given)}" if given else "not run")
        format = "Iceberg" if "iceberg" in client else "Delta"
        lines.append(f"| {client} | {results['versions'].get(client, '')} | {format} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def matrix(results: Results) -> str:
    """Kind of table by client: a mark for the worst of both places."""
    lines = [f"| table | {' | '.join(READERS)} |", f"|---|{':-:|' * len(READERS)}"]
    found = {kind for by_client in results["verdicts"].values() for kinds in by_client.values() for kind in kinds}
    for kind in sorted(found, key=[*KINDS, *sorted(found - KINDS.keys())].index):
        marks = [_mark([by_client.get(client, {}).get(kind, SAME) for by_client in results["verdicts"].values()]) for client in READERS]
        lines.append(f"| {kind} | {' | '.join(marks)} |")
    return "\n".join(lines) + "\n"


def _mark(verdicts: list[str]) -> str:
    if any(said.startswith("wrong") for said in verdicts):
        return "wrong"
    if any(said.startswith("error") for said in verdicts):
        return "error"
    return "–" if REFUSED in verdicts else "✓"


def faults() -> str:
    """What each client gets wrong, and in which tables."""
    lines = ["| client | what it gets wrong | in the tables |", "|---|---|---|"]
    for client, known in FAULTS.items():
        by_why: dict[str, list[str]] = {}
        for kind, fault in known.items():
            where = "" if set(fault.places) == set(PLACES) else f" ({' and '.join(PLACES[place] for place in fault.places)})"
            by_why.setdefault(f"{fault.why}{where}", []).append(kind)
        lines += [f"| {client} | {why} | {', '.join(kinds)} |" for why, kinds in by_why.items()]
    return "\n".join(lines) + "\n"


def replaced(text: str, results: Results) -> str:
    """The page with its tables and its date as they are now."""
    text = re.sub(r"The last run was on [-0-9]+", f"The last run was on {results['date']}", text)
    return with_tables(text, {"| client | version |": totals(results), "| table |": matrix(results), "| client | what it": faults()})

"""What the last run in each environment has found, and the tables of docs/reference/supported.md."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from tests.docs.generated import with_tables
from tests.versions.environments import REPO, environments

from manifestcommit.spark.features import FEATURES, Version

RESULTS = Path(__file__).with_name("results.json")
PAGE = REPO / "docs" / "reference" / "supported.md"
SPARKS: tuple[Version, ...] = ((3, 5), (4, 0), (4, 1), (4, 2), (4, 3))


class Result(TypedDict):
    """versions: of what was installed; not_run: why, instead of everything else."""

    date: str
    passed: int
    failed: int
    left_out: int
    seconds: int
    versions: dict[str, str]
    not_run: str


def recorded() -> dict[str, Result]:
    """Environment -> its last result."""
    found: dict[str, Result] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return found


def record(name: str, result: Result) -> None:
    """Keep the result, and show it on the page."""
    kept = {**recorded(), name: result}
    RESULTS.write_text(json.dumps(dict(sorted(kept.items())), indent=1, sort_keys=True) + "\n", "utf-8")
    PAGE.write_text(replaced(PAGE.read_text("utf-8")), "utf-8")


def features() -> str:
    """Feature by version of Spark, from the library's own table."""
    shown = [".".join(map(str, version)) for version in SPARKS]
    lines = [f"| with Spark | {' | '.join(shown)} | Connect | where it is missing |", f"|---|{':-:|' * len(SPARKS)}:-:|---|"]
    for feature in FEATURES.values():
        marks = ["✓" if version >= feature.since else "–" for version in SPARKS]
        lines.append(f"| {feature.what} | {' | '.join(marks)} | {'✓' if feature.connect else '–'} | {feature.instead} |")
    return "\n".join(lines) + "\n"


def runs(results: Mapping[str, Result]) -> str:
    """Environment by outcome of its last run."""
    lines = ["| environment | Python | Spark | pyarrow | pandas | date | tests | left out |", "|---|---|---|---|---|---|--:|--:|"]
    for environment in environments():
        result = results.get(environment.name)
        if result is None or result["not_run"]:
            why = result["not_run"] if result else "not run yet"
            lines.append(f"| {environment.what} | {environment.python} | | | | {result['date'] if result else ''} | {why} | |")
            continue
        versions = " | ".join(result["versions"].get(name, "") for name in ("python", "pyspark", "pyarrow", "pandas"))
        outcome = f"{result['passed']} passed" + (f", {result['failed']} failed" if result["failed"] else "")
        lines.append(f"| {environment.what} | {versions} | {result['date']} | {outcome} | {result['left_out']} |")
    return "\n".join(lines) + "\n"


def replaced(text: str) -> str:
    """The page with both tables as they are now."""
    return with_tables(text, {"| with Spark |": features(), "| environment |": runs(recorded())})

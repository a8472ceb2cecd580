"""How much stands behind the invariants of section 13: counted now, by running, or read from what an earlier run recorded."""

import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import figures as fuzzed
from tests.fuzz.run import KINDS, fuzz
from tests.model import pages, tlc
from tests.model.runs import load
from tests.mutants.__main__ import FIGURES, recorded
from tests.mutants.mutant import MUTANTS, REPO, SIMULATED
from tests.mutants.run import SEEDS
from tests.simulator.__main__ import CASES, explore
from tests.simulator.simulator import run_theme
from tests.simulator.themes import THEMES
from tests.spec.clauses import cited_by_tests, defined


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """One line of the answer. how: where the figures are from; figures: in the order in which they are told; wrong: what did not hold."""

    what: str
    how: str
    figures: dict[str, int] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()


def clauses() -> Count:
    """Read from the tree as it is."""
    held, cited = defined((REPO / "spec" / "v1.md").read_text("utf-8")).held, cited_by_tests(REPO)
    figures = {"clauses": len(held), "cited by tests": len(held & cited.keys())}
    return Count(what="specification", how="counted now", figures=figures)


def model(*, running: bool) -> Iterator[Count]:
    """The configurations that hold, by size, and those that do without a rule. running: those of the small size are run, not read."""
    runs, figures = load(), pages.recorded()
    for size in ("test", "large"):
        holding = [run for run in runs if run.expect is None and size in run.sizes]
        what, how = f"model, {'small' if size == 'test' else 'large'}", f"read from spec/model/figures.json, {committed(pages.FIGURES)}"
        found = {name: each["states"] for name, each in figures[size].items()}
        wrong: list[str] = []
        if running and size == "test":
            verdicts = [tlc.check(run, "test") for run in holding]
            how, found = "run now", {each.run.name: each.states for each in verdicts}
            wrong = [f"{each.run.name} breaks {each.violated}" for each in verdicts if not each.as_expected]
        states = [found[run.name] for run in holding if run.name in found]
        told = {"configurations": len(holding), "of these counted": len(states), "states": sum(states), "most in one": max(states)}
        yield Count(what=what, how=how, figures=told, wrong=tuple(wrong))
    without = [run for run in runs if run.expect is not None]
    wrong, how = [], f"read from spec/model/figures.json, {committed(pages.FIGURES)}"
    if running:
        how = "run now"
        verdicts = [tlc.check(run, "test") for run in without]
        wrong = [f"{each.run.name} breaks {each.violated}, not {each.run.expect}" for each in verdicts if not each.as_expected]
    rules = {rule for run in without for rule in run.off}
    yield Count(what="model, without a rule", how=how, figures={"configurations": len(without), "rules": len(rules)}, wrong=tuple(wrong))


def schedules(seconds: float, first: int) -> Count:
    """Simulated runs of all themes in turn, each judged by the oracle at every request, and its history by the checker.

    first: the first seed, here and below.
    """
    names, total = sorted(THEMES), Counter[str]()
    wrong: list[str] = []
    for seed in _during(seconds, first, at_least=len(names)):
        run = run_theme(names[seed % len(names)], seed)
        total += Counter({"schedules": 1, "histories checked": 1, "operations in them": len(run.history)})
        total += Counter({"requests and turns": run.steps, "versions": run.versions})
        if run.violation is not None:
            wrong.append(f"theme {run.theme}, seed {seed}: {run.violation}")
    return Count(what="simulator", how=_now(seconds, first), figures={"themes": len(names), **total}, wrong=tuple(wrong))


def every_schedule() -> Count:
    """The small worlds of which every schedule with one switch is tried."""
    found = [explore(case, switches=1) for case in CASES]
    wrong = tuple(f"{each.case}: {each.found.violation}" for each in found if each.found is not None)
    figures = {"small worlds": len(found), "schedules": sum(each.schedules for each in found)}
    return Count(what="every schedule with one switch", how="run now", figures=figures, wrong=wrong)


def mutants() -> Iterator[Count]:
    """Read from the record: all of them are run by `make proof`."""
    figures = {name: each for name, each in recorded().items() if name in MUTANTS}
    tests = {str(each["test"]).partition("[")[0] for each in figures.values() if "test" in each}
    killed = {name for name, each in figures.items() if "test" in each}
    how = f"read from {FIGURES.relative_to(REPO).as_posix()}, {committed(FIGURES)}"
    told = {"safeguards taken out": len(MUTANTS), "killed by tests": len(killed), "by different tests": len(tests)}
    wrong = _missing("not killed by a test", MUTANTS.keys() - killed)
    yield Count(what="mutants", how=how, figures=told, wrong=wrong)
    seeds = {name: int(str(each["seed"])) for name, each in figures.items() if "seed" in each}
    told = {
        "safeguards taken out": len(SIMULATED),
        f"found within {SEEDS:,} seeds": len(seeds),
        "last seed": max(seeds.values(), default=0),
    }
    wrong = _missing("not found by the simulator", SIMULATED.keys() - seeds.keys())
    yield Count(what="mutants, simulator alone", how=how, figures=told, wrong=wrong)


def _missing(what: str, names: Set[str]) -> tuple[str, ...]:
    return (f"{what}: {', '.join(sorted(names))}",) if names else ()


def hostile(seconds: float, first: int) -> Count:
    """Hostile objects, each read by everything that reads what others wrote."""
    done, kinds = 0, sorted(KINDS)
    wrong: dict[tuple[str, str], str] = {}
    for seed in _during(seconds, first):
        done += 1
        for finding in fuzz(seed, kinds):
            wrong.setdefault(finding.place, f"seed {seed}: {finding.text}")
    figures = {"kinds of objects": len(kinds), "hostile objects": done}
    return Count(what="fuzzing", how=_now(seconds, first), figures=figures, wrong=tuple(wrong.values()))


def hostile_before() -> Count:
    """Read from the record of long runs, whose rounds are done in child processes."""
    noted = fuzzed.recorded().values()
    wrong = tuple(f"{each[name]} {name}" for each in noted for name in ("untyped", "aborted", "hung") if each[name])
    told = {"kinds of objects": len(noted), "hostile objects": sum(each["rounds"] for each in noted)}
    told |= {"MiB at most": max(each["peak_mib"] for each in noted)}
    how = f"read from tests/fuzz/figures.json, {committed(fuzzed.FIGURES)}"
    return Count(what="fuzzing, long runs", how=how, figures=told, wrong=wrong)


def committed(path: Path) -> str:
    """The commit that a recorded figure was last noted in, in words."""
    commit = _git("log", "-1", "--format=%h", "--", str(path))
    return f"noted in commit {commit}" if commit else "of this release"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=REPO, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _now(seconds: float, first: int) -> str:
    return f"run now, {seconds:.0f} s, from seed {first}"


def _during(seconds: float, first: int, *, at_least: int = 1) -> Iterator[int]:
    """Seeds from the first on, until the time is over."""
    until, number = time.monotonic() + seconds, 0
    while number < at_least or time.monotonic() < until:
        yield first + number
        number += 1

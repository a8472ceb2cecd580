"""`python -m tests.mutants`: each safeguard is taken out of a copy of the package in turn, and its tests have to notice.

    python -m tests.mutants                       the tests as they are (the control), then every mutant
    python -m tests.mutants --list
    python -m tests.mutants --only fence --only "look above"
    python -m tests.mutants --simulator           the protocol's, by the simulator alone: within 10,000 seeds

Exit codes: 0 all were killed, 1 one survived, or its tests could not be run, or the control failed, 2 usage.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutant import MUTANTS, SIMULATED, Mutant
from tests.mutants.run import CONTROL_S, SEEDS, Verdict, judge, run_tests, scratch_copy, simulate

FIGURES = Path(__file__).with_name("figures.json")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Takes each safeguard out of a copy of the package, and sees which test notices."
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="only this one; may be given several times")
    parser.add_argument("--without", action="append", default=[], choices=("server", "spark"), help="leave out those whose tests need it")
    parser.add_argument("--list", action="store_true", help="what there is; runs nothing")
    parser.add_argument("--simulator", action="store_true", help="by the simulator alone, without tests")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of the simulator at most (default: {SEEDS:,})")
    parser.add_argument("--no-control", action="store_true", help="do not run the tests on the package as it is first")
    parser.add_argument("--json", action="store_true", help="one JSON document for each, on a line of its own")
    parser.add_argument("--record", action="store_true", help="note who killed what in tests/mutants/figures.json")
    given = parser.parse_args(arguments)
    known = SIMULATED if given.simulator else MUTANTS
    if unknown := set(given.only or ()) - known.keys():
        parser.error(f"no such mutant{' of the simulator' if given.simulator else ''}: {', '.join(sorted(unknown))}")
    chosen = [each for name, each in known.items() if (not given.only or name in given.only) and each.needs not in given.without]
    if given.list:
        for each in chosen:
            print(json.dumps(_document(each)) if given.json else f"{each.name:<32} {each.needs:<7} {each.why}")
        return 0
    survived = _simulated(given, chosen) if given.simulator else _tested(given, chosen)
    if not given.json:
        print(f"{len(chosen)} mutants, {survived} not killed")
    return 1 if survived else 0


def _simulated(given: argparse.Namespace, chosen: Sequence[Mutant]) -> int:
    survived = 0
    for each in chosen:
        verdict = simulate(each, given.seeds)
        survived += not verdict.killed
        _tell(given, verdict, f"found by seed {verdict.seed} of {each.theme}" if verdict.killed else "SURVIVED")
    return survived


def _tested(given: argparse.Namespace, chosen: Sequence[Mutant]) -> int:
    survived = 0
    with tempfile.TemporaryDirectory(prefix="manifestcommit-mutants-") as folder, scratch_copy(Path(folder)) as root:
        if not given.no_control:
            nodes = list(dict.fromkeys(node for each in chosen for node in each.tests))
            failed, trouble = run_tests(root, nodes, CONTROL_S)
            if failed or trouble:
                print(f"the package as it is fails {failed or trouble}: nothing is known of any mutant", file=sys.stderr)
                return len(chosen)
            print(f"the package as it is passes {len(nodes)} tests", file=sys.stderr, flush=True)
        for each in chosen:
            verdict = judge(root, each)
            survived += not verdict.killed
            said = f"killed by {verdict.killed_by}" if verdict.killed else f"COULD NOT BE RUN: {verdict.trouble}"
            _tell(given, verdict, said if verdict.killed or verdict.trouble else "SURVIVED")
    return survived


def _tell(given: argparse.Namespace, verdict: Verdict, said: str) -> None:
    if given.record:
        record(verdict, by_simulator=given.simulator)
    found = {"killed_by": verdict.killed_by, "seed": verdict.seed, "seconds": round(verdict.seconds, 1), "trouble": verdict.trouble}
    name = verdict.mutant.name
    print(json.dumps({**_document(verdict.mutant), **found}) if given.json else f"{name:<32} {verdict.seconds:>6.1f} s  {said}", flush=True)


def _document(each: Mutant) -> dict[str, object]:
    return {
        "name": each.name, "why": each.why, "clauses": list(each.clauses), "invariant": each.invariant or None, "files": list(each.files),
        "tests": list(each.tests), "theme": each.theme or None, "needs": each.needs or None,
    }  # fmt: skip


def recorded() -> dict[str, dict[str, object]]:
    """Mutant -> who killed it in the last run that was recorded: `test`, and `seed` of the simulator."""
    figures: dict[str, dict[str, object]] = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    return figures


def record(verdict: Verdict, *, by_simulator: bool) -> None:
    """Note who killed it; nobody, where it survived. No commit is named: a rebase would change its id."""
    figures, kind = recorded(), "seed" if by_simulator else "test"
    mine = figures.setdefault(verdict.mutant.name, {})
    mine.pop(kind, None)
    if verdict.killed:
        mine[kind] = verdict.seed if by_simulator else verdict.killed_by
    known = {name: dict(sorted(each.items())) for name, each in figures.items() if each and name in MUTANTS}  # in the file's order
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in known.items())
    FIGURES.write_text(f"{{\n{lines}\n}}\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

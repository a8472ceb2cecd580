"""`python -m tests.proof`: what stands behind the invariants, in numbers, each with where it is from.

    python -m tests.proof --quick        two minutes: what can be run in that time is run, the rest is read from recorded figures
    python -m tests.proof                a quarter of an hour: the model's small configurations are run, too
    python -m tests.proof --who          which test, and which seed of the simulator, killed each mutant

spec/proof.md tells for each invariant where it is modelled, simulated, tested and by which mutants it is guarded. Exit codes: 0 everything
held, 1 something did not, 2 usage, 3 no Java or no TLC.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Iterator, Sequence

from tests.model.tlc import ModelError
from tests.mutants.__main__ import recorded
from tests.mutants.catalogue import MUTANTS
from tests.proof import measure
from tests.proof.measure import Count

_QUICK_S, _WHOLE_S = 90.0, 600.0
# Shares of the time. Enumerating takes as long as it takes: some seconds.
_SIMULATED, _HOSTILE = 0.75, 0.25


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof", description="Counts what stands behind the invariants of the specification."
    )
    parser.add_argument("--quick", action="store_true", help="two minutes, the model's figures being read instead of found")
    parser.add_argument("--seconds", type=float, help="for what can be run for any time, instead; the model's figures are read")
    parser.add_argument("--seed", type=int, help="the first seed of what is run (default: a new one, which is told)")
    parser.add_argument("--who", action="store_true", help="each mutant with who killed it; runs nothing")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args(arguments)
    if given.seconds is not None and given.seconds <= 0:
        parser.error("--seconds is a time above zero")
    if given.who:
        return _tell_who(as_json=given.json)
    seconds = given.seconds if given.seconds is not None else _QUICK_S if given.quick else _WHOLE_S
    counts = []
    try:
        seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000_000)
        for count in _counts(seconds, seed, running=not given.quick and given.seconds is None):
            counts.append(count)
            if not given.json:
                _tell(count)
    except ModelError as error:
        print(error, file=sys.stderr)
        return 3
    if given.json:
        print(json.dumps([{"what": each.what, "how": each.how, **each.figures, "wrong": list(each.wrong)} for each in counts]))
    return 1 if any(each.wrong for each in counts) else 0


def _counts(seconds: float, seed: int, *, running: bool) -> Iterator[Count]:
    yield measure.clauses()
    yield from measure.model(running=running)
    yield measure.schedules(seconds * _SIMULATED, seed)
    yield measure.every_schedule()
    yield from measure.mutants()
    yield measure.hostile(seconds * _HOSTILE, seed)
    yield measure.hostile_before()


def _tell(count: Count) -> None:
    figures = ", ".join(f"{number:,} {name}" for name, number in count.figures.items())
    print(f"{count.what:<32} {figures}\n{'':<32} ({count.how})", flush=True)
    for wrong in count.wrong:
        print(f"{'':<32} WRONG: {wrong}", flush=True)


def _tell_who(*, as_json: bool) -> int:
    known = {name: recorded().get(name, {}) for name in MUTANTS}
    if as_json:
        print(json.dumps(known))
        return 0
    for name, each in known.items():
        seed = f"; alone by the simulator, seed {each['seed']} of {MUTANTS[name].theme}" if "seed" in each else ""
        print(f"{name:<32} {each.get('test', 'nobody')}{seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

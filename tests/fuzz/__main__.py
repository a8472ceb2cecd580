"""python -m tests.fuzz --minutes 10: hostile objects against every reader. Prints the seed of each finding, exit status 1 then.

A finding is an error that is not the library's own, a process that ended or hung, or more than a gibibyte of memory.
"""

import argparse
import json
import sys
import time

from tests.fuzz.figures import Tally, record
from tests.fuzz.run import EVERY, fuzz_apart

_ROUNDS_OF_A_CHILD = 50  # of one kind of object


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; one that is printed replays by --seed N --rounds 1")
    parser.add_argument("--rounds", type=int, default=None, help="how many objects of each kind; instead of --minutes")
    parser.add_argument("--target", choices=sorted(EVERY), help="only this kind of object")
    parser.add_argument("--record", action="store_true", help="add the figures to tests/fuzz/figures.json")
    parser.add_argument("--json", action="store_true", help="one document on standard output")
    asked = parser.parse_args()
    first = asked.seed if asked.seed is not None else time.time_ns() % 2**31
    kinds = [asked.target] if asked.target else sorted(EVERY)
    until = None if asked.rounds else time.monotonic() + asked.minutes * 60
    tallies = {kind: Tally(kind) for kind in kinds}
    seed, left = first, asked.rounds or sys.maxsize
    while left and (until is None or time.monotonic() < until):
        some = min(left, _ROUNDS_OF_A_CHILD)
        for kind in kinds:
            _rounds(tallies[kind], range(seed, seed + some), until)
        seed, left = seed + some, left - some
    if asked.record:
        record(tallies.values())
    report = {"seed": first, **{kind: each.told() for kind, each in tallies.items()}}
    print(json.dumps(report) if asked.json else "\n".join(map(str, tallies.values())))
    return 1 if any(each.findings for each in tallies.values()) else 0


def _rounds(tally: Tally, seeds: range, until: float | None) -> None:
    for seed, ended in fuzz_apart(seeds, [tally.kind]):
        for text in tally.take(ended):
            print(f"seed {seed} of --target {tally.kind}: {text}", file=sys.stderr, flush=True)
        if until is not None and time.monotonic() > until:
            return


sys.exit(main())

"""python -m tests.fuzz --minutes 10: hostile metadata against every reader. Prints the seed of each finding, exit status 1 then."""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.fuzz.run import Finding, fuzz
from tests.fuzz.targets import HOSTILE_OBJECTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; one that is printed replays by --seed N --rounds 1")
    parser.add_argument("--rounds", type=int, default=None, help="how many objects; instead of --minutes")
    parser.add_argument("--target", choices=sorted(HOSTILE_OBJECTS), help="only this kind of object")
    parser.add_argument("--json", action="store_true", help="one document on standard output")
    asked = parser.parse_args()
    first = asked.seed if asked.seed is not None else time.time_ns() % 2**31
    until = None if asked.rounds else time.monotonic() + asked.minutes * 60
    kinds = [asked.target] if asked.target else sorted(HOSTILE_OBJECTS)
    findings: dict[tuple[str, str], Finding] = {}
    done, told = 0, time.monotonic()
    seed = first
    while (asked.rounds is not None and done < asked.rounds) or (until is not None and time.monotonic() < until):
        for finding in fuzz(seed, kinds):
            if findings.setdefault(finding.place, finding) is finding:
                print(f"seed {seed}: {finding.text}", file=sys.stderr)
        seed, done = seed + 1, done + 1
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{done} hostile objects, {len(findings)} findings", file=sys.stderr)
    report = {"seed": first, "objects": done, "findings": [each.text for each in findings.values()]}
    if asked.json:
        print(json.dumps(report))
    else:
        print(f"{done} hostile objects from seed {first}: {len(findings)} findings")
    return 1 if findings else 0


sys.exit(main())

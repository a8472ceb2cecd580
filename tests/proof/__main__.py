"""`python -m tests.proof`: what stands behind the invariants, in numbers, each with where it is from.

    python -m tests.proof --quick        two minutes: what can be run in that time is run, the rest is read from recorded figures
    python -m tests.proof                a quarter of an hour: the model's small configurations are run, too
    python -m tests.proof --who          which test, and which seed of the simulator, killed each mutant
    python -m tests.proof --page         writes the mutants of each invariant into spec/proof.md

spec/proof.md tells for each invariant where it is modelled, simulated, tested and by which mutants it is guarded. Exit codes: 0 everything
held, 1 something did not, 2 usage, 3 no Java or no TLC.
"""

import argparse
import json
import re
import secrets
import sys
import textwrap
from collections.abc import Iterator, Sequence

from tests.model.tlc import ModelError
from tests.mutants.__main__ import recorded
from tests.mutants.mutant import MUTANTS, REPO
from tests.proof import measure
from tests.proof.measure import Count

PAGE = REPO / "spec" / "proof.md"
_MUTANTS = re.compile(r"(?<=^- )\*\*Mutants\.\*\* .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
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
    parser.add_argument("--page", action="store_true", help="write the mutants of each invariant into spec/proof.md; runs nothing")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args(arguments)
    if given.seconds is not None and given.seconds <= 0:
        parser.error("--seconds is a time above zero")
    if given.page:
        PAGE.write_text(with_mutants(PAGE.read_text("utf-8")), "utf-8")
        return 0
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


def with_mutants(page: str) -> str:
    """The page with the mutants as the tables list them: below each invariant its own, and those of none at the end."""
    parts = re.split(r"(?m)^(?=## )", page)
    return "".join(_MUTANTS.sub(lambda _, part=part: _listed(re.match(r"## (IV\d+)?", part)[1]), part) for part in parts)  # type: ignore[misc,index]


def _listed(invariant: str | None) -> str:
    names = ", ".join(f"*{each.name}*" for each in MUTANTS.values() if each.invariant == (invariant or ""))
    return textwrap.fill(f"**Mutants.** {names}.", 138, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


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

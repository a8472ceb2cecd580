"""`python -m tests.model`: the model checker TLC on every configuration of spec/model, each with what was expected of it.

    python -m tests.model
    python -m tests.model --size large
    python -m tests.model --only no-fence --trace

Exit codes: 0 everything came out as expected, 1 something did not, 2 usage, 3 no Java or no TLC.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.model import pages
from tests.model.runs import load
from tests.model.tlc import ModelError, Verdict, check, find_jar, find_java


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description="Checks the model of the protocol, and what each rule is for."
    )
    parser.add_argument("--size", choices=("test", "large"), default="test", help="bounds: two minutes or hours (default: test)")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this configuration; may be given several times")
    parser.add_argument("--trace", action="store_true", help="show how what is violated comes about")
    parser.add_argument("--record", action="store_true", help="note what was found in spec/model/figures.json and on its page")
    given = parser.parse_args(arguments)
    runs = [run for run in load() if given.size in run.sizes and (not given.only or run.name in given.only)]
    if unknown := set(given.only or ()) - {run.name for run in runs}:
        parser.error(f"no such configuration in this size: {', '.join(sorted(unknown))}")
    try:
        find_java(), find_jar()
    except ModelError as error:
        print(error, file=sys.stderr)
        return 3
    print(f"{'configuration':<38} {'states':>10} {'depth':>5} {'CPU s':>7}  verdict")
    failed = 0
    for run in runs:
        verdict = check(run, given.size)
        failed += not verdict.as_expected
        if given.record:
            pages.record(verdict)
        print(_line(verdict), flush=True)
        if verdict.violated and (given.trace or not verdict.as_expected):
            print(verdict.trace)
    if given.record:
        pages.main()
    print(f"{len(runs)} configurations, {failed} not as expected")
    return 1 if failed else 0


def _line(verdict: Verdict) -> str:
    run = verdict.run
    said = "holds" if verdict.violated is None else f"breaks {verdict.violated}"
    if not verdict.as_expected:
        said += f" - NOT AS EXPECTED: {'all rules are on' if run.expect is None else f'{run.expect} was to break'}"
    return f"{run.name:<38} {verdict.states:>10,} {verdict.depth:>5} {verdict.seconds:>7.1f}  {said}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m manifestcommit.testing`: simulated runs by seed, one run again by its choices, all
schedules of a small world.

    simulate --seeds 0:10000 [--theme gc] [--json]     the first seed that breaks a rule
    simulate --seeds 7:8 --theme gc --trace            one run, line by line
    replay FILE                                        one run again, by its file of choices
    explore [--switches 2]                             every schedule of small worlds

Exit codes: 0 nothing broke a rule, 1 something did, 2 usage.
"""

from __future__ import annotations

import argparse
import functools
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..protocol.retention import Policy
from .choices import Choices
from .simulation.scheduler import Actor
from .simulation.simulator import Cast, Run, run, run_theme
from .simulation.themes import THEMES, Theme
from .simulation.workers import ADVANCING, Work, Worker, World

# Shrinks a run that violates a rule: as few choices as possible for the same violation.

Again = Callable[[Mapping[str, int]], Run]


def shrink(found: Run, again: Again, *, tries: int = 600) -> Run:
    """The smallest run found that breaks the same rule. again: repeats a run with given choices;
    tries: how many runs it may take.

    Every choice has a name of its own, and is 0, the plain one, if none is given: so any subset of
    them is a run, too.
    """
    left = tries
    best = found

    def holds(given: Mapping[str, int]) -> bool:
        nonlocal best, left
        left -= 1
        run = again(given)
        if run.kind != found.kind or len(run.choices) > len(best.choices):
            return False
        best = run
        return True

    chunk = max(1, len(best.choices) // 2)
    while left > 0:
        before, place = len(best.choices), 0
        while place < len(best.choices) and left > 0:
            names = list(best.choices)
            gone = set(names[place : place + chunk])
            if not holds(
                {name: answer for name, answer in best.choices.items() if name not in gone}
            ):
                place += chunk
        if chunk == 1 and len(best.choices) == before:
            break
        chunk = max(1, chunk // 2)
    for name in list(best.choices):
        for lower in range(1, best.choices.get(name, 0)):
            if left > 0 and holds({**best.choices, name: lower}):
                break
    return best


# Enumerates all schedules of a small world, up to a number of preemptive switches.

_HARSH = Policy(grace_s=0, keep_for_s=0, keep_versions=1, prepared_grace_s=0)
_THEME = Theme(actors={}, versions=4)


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """schedules: their number; found: the first that breaks a rule, None: none does."""

    case: str
    switches: int
    schedules: int
    found: Run | None = None


def explore(case: str, *, switches: int) -> Exploration:
    """Run every schedule of the case with at most that many switches, each once, up to the first
    that breaks a rule."""
    count = 0
    waiting: list[tuple[dict[str, int], int, int]] = [({}, 0, 0)]
    while waiting:
        given, spent, start = waiting.pop()
        done = run(_THEME, Choices(None, given, exhaustive=True), name=case, cast=CASES[case])
        count += 1
        if done.violation is not None:
            return Exploration(case=case, switches=switches, schedules=count, found=done)
        for place, point in enumerate(done.points[start:], start=start):
            cost = spent + (not point.free)
            if cost <= switches:
                waiting += [
                    ({**given, point.name: other}, cost, place + 1)
                    for other in range(1, point.count)
                ]
    return Exploration(case=case, switches=switches, schedules=count)


def _writer(world: World, *works: Work) -> Callable[[Actor], None]:
    def live(actor: Actor) -> None:
        worker = Worker(world, actor)
        for work in works:
            worker.publish(work)

    return live


def _collector(world: World) -> Callable[[Actor], None]:
    return lambda actor: Worker(world, actor).collect(_HARSH)


def _reader(world: World) -> Callable[[Actor], None]:
    return lambda actor: Worker(world, actor).read(None)


_SAME = Work(number=ADVANCING, day=1)
_ALL, _DAY = Work(replaces="all"), Work(replaces="day", serializable=True)
CASES: dict[str, Cast] = {
    "two writers": lambda world: {"a": _writer(world, _SAME), "b": _writer(world, _SAME)},
    "two overwriters": lambda world: {"a": _writer(world, _DAY), "b": _writer(world, _DAY, Work())},
    "two writers and gc": lambda world: {
        "a": _writer(world, Work(number=1)),
        "b": _writer(world, Work(replaces="day")),
        "gc": _collector(world),
    },
    "a stalled writer, a writer and gc": lambda world: {
        "stalled": _writer(world, Work()),
        "b": _writer(world, Work(day=1), _ALL),
        "gc": _collector(world),
    },
    "a reader, a writer and gc": lambda world: {
        "reader": _reader(world),
        "b": _writer(world, _ALL),
        "gc": _collector(world),
    },
}


_TOLD = 60


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to repeat a run."""

    theme: str
    choices: dict[str, int]
    seed: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m manifestcommit.testing",
        description="Simulated tables: every schedule by a seed.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("simulate", help="runs by seed, until one breaks a rule")
    one.add_argument(
        "--seeds",
        default="0:1000",
        metavar="FROM:TO",
        help="first seed, and the one behind the last (default: 0:1000)",
    )
    themes = f"one of {', '.join(sorted(THEMES))}; may be repeated; default: all, in turn"
    one.add_argument(
        "--theme", action="append", choices=sorted(THEMES), metavar="THEME", help=themes
    )
    one.add_argument("--trace", action="store_true", help="print the trace of every run")
    one.add_argument(
        "--choices",
        type=Path,
        metavar="FILE",
        help="where to leave the choices of a run that broke a rule",
    )
    two = commands.add_parser("replay", help="a run by its choices")
    two.add_argument(
        "file", type=Path, help="the choices of a run, as `simulate --choices FILE` leaves them"
    )
    three = commands.add_parser("explore", help="all schedules of small worlds")
    three.add_argument(
        "--switches",
        type=int,
        default=1,
        help="how often an actor that could go on is stopped, at most (default: 1)",
    )
    cases = f"one of {', '.join(map(repr, sorted(CASES)))}; may be repeated; default: all"
    three.add_argument("--case", action="append", choices=sorted(CASES), metavar="CASE", help=cases)
    for command in (one, two, three):
        command.add_argument(
            "--json", action="store_true", help="one JSON document on standard output"
        )
    given = parser.parse_args(arguments)
    # Warnings of simulated clocks and lost races are what is simulated, not news for people.
    logging.getLogger("manifestcommit").addHandler(logging.NullHandler())
    commanded = {"simulate": _simulate, "replay": _replay, "explore": _explore}[given.command]
    try:
        return commanded(given)
    # not a range; a file that cannot be read, or is not a file of choices
    except (ValueError, OSError) as error:
        print(f"{error}", file=sys.stderr)
        return 2


def _simulate(given: argparse.Namespace) -> int:
    seeds = _range(given.seeds)
    names = given.theme or list(THEMES)
    began, runs, steps, versions = time.monotonic(), 0, 0, 0
    found: Run | None = None
    for seed in seeds:
        name = names[seed % len(names)]
        run = run_theme(name, seed)
        runs, steps, versions = runs + 1, steps + run.steps, versions + run.versions
        if given.trace and not given.json:
            print(f"--- {name}, seed {seed}\n{run.trace}")
        if run.violation is not None:
            found = run
            break
    seconds = time.monotonic() - began
    told = {
        "runs": runs,
        "steps": steps,
        "versions": versions,
        "seconds": round(seconds, 3),
        "runs_per_minute": round(runs / seconds * 60),
    }
    if found is None:
        _print(
            given,
            {**told, "violation": None},
            f"{runs} runs, {steps} steps, {told['runs_per_minute']} runs a minute: no violation",
        )
        return 0
    small = shrink(found, functools.partial(_again, found.theme))
    if given.choices is not None:
        replay = Replay(theme=small.theme, choices=small.choices, seed=found.seed)
        given.choices.write_bytes(msgspec.json.format(msgspec.json.encode(replay)) + b"\n")
    size = f"{len(found.choices)} choices made {len(small.choices)}"
    text = f"{_shown(small)}\nafter {runs} runs: theme {found.theme}, seed {found.seed}, {size}"
    _print(given, {**told, **_told(small), "seed": found.seed}, text)
    return 1


def _range(text: str) -> range:
    """The seeds in the range; at least one, since no run would break no rule."""
    first, _, behind = text.partition(":")
    try:
        seeds = range(int(first), int(behind or int(first) + 1))
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise ValueError(
            f"--seeds {text}: give two numbers, the first seed and a larger one, the one "
            "behind the last, such as 0:1000; or one seed"
        )
    return seeds


def _again(name: str, choices: Any) -> Run:
    return run_theme(name, given=choices)


def _replay(given: argparse.Namespace) -> int:
    try:
        replay = msgspec.json.decode(given.file.read_bytes(), type=Replay)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"{given.file} is no file of choices, as `simulate --choices FILE` leaves it: {error}"
        ) from error
    if replay.theme not in THEMES:
        raise ValueError(
            f"{given.file}: there is no theme {replay.theme!r}; there are "
            f"{', '.join(sorted(THEMES))}"
        )
    run = run_theme(replay.theme, given=replay.choices)
    _print(given, _told(run), _shown(run))
    return int(run.violation is not None)


def _explore(given: argparse.Namespace) -> int:
    if given.switches < 0:
        raise ValueError(f"--switches {given.switches}: give 0 or more")
    broken = False
    told = []
    for case in given.case or CASES:
        done = explore(case, switches=given.switches)
        told.append(
            {
                "case": case,
                "switches": done.switches,
                "schedules": done.schedules,
                **(_told(done.found) if done.found else {}),
            }
        )
        if not given.json:
            print(
                f"{case}: {done.schedules} schedules with up to {done.switches} switches"
                + (f"\n{_shown(done.found)}" if done.found else "")
            )
        broken |= done.found is not None
    if given.json:
        _print(given, {"cases": told}, "")
    return int(broken)


def _told(run: Run) -> dict[str, Any]:
    return {
        "theme": run.theme,
        "violation": run.violation,
        "choices": run.choices,
        "trace": run.trace.splitlines(),
    }


def _shown(run: Run) -> str:
    lines = run.trace.splitlines()
    left = [f"  … {len(lines) - _TOLD} lines before"] if len(lines) > _TOLD else []
    verdict = f"violation: {run.violation}" if run.violation else "no violation"
    return "\n".join([*left, *lines[-_TOLD:], verdict])


def _print(given: argparse.Namespace, document: dict[str, Any], text: str) -> None:
    print(msgspec.json.encode(document).decode() if given.json else text)


if __name__ == "__main__":
    sys.exit(main())

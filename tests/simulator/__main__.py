"""`python -m tests.simulator`: simulated runs by seed, one run again by its choices, all schedules of a small world.

    --seeds 0:10000 [--about gc]       the first seed that breaks a rule
    --seeds 7 --about gc --trace       one run, line by line
    --replay FILE                      one run again, by its file of choices
    --explore 2                        every schedule of small worlds

Exit codes: 0 nothing broke a rule, 1 something did, 2 usage.
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from tests.simulator.simulator import Cast, Run, run, run_theme
from tests.simulator.themes import THEMES, Theme
from tests.simulator.workers import ADVANCING, Work, Worker, World

from manifestcommit.protocol.retention import Policy
from manifestcommit.testing.scheduler import Actor, Choices

# Shrinks a run that violates a rule: as few choices as possible for the same violation.

Again = Callable[[Mapping[str, int]], Run]


def shrink(found: Run, again: Again) -> Run:
    """The smallest run found that breaks the same rule. again: repeats a run with given choices, 600 times at most.

    Every choice has a name of its own, and is 0, the plain one, if none is given: so any subset of them is a run, too.
    """
    left, best = 600, found

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
            if not holds({name: answer for name, answer in best.choices.items() if name not in gone}):
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
    """Run every schedule of the case with at most that many switches, each once, up to the first that breaks a rule."""
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
                waiting += [({**given, point.name: other}, cost, place + 1) for other in range(1, point.count)]
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
    "a reader, a writer and gc": lambda world: {"reader": _reader(world), "b": _writer(world, _ALL), "gc": _collector(world)},
}


_SHOWN = 60  # lines of a trace


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to repeat a run."""

    theme: str
    choices: dict[str, int]
    seed: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description="Simulated tables: every schedule by a seed.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", default="0:1000", metavar="FROM:TO", help="the first seed, and the one behind the last (default: 0:1000)")
    what.add_argument("--replay", type=Path, metavar="FILE", help="one run again, as `--choices FILE` left it")
    what.add_argument("--explore", type=int, metavar="SWITCHES", help="every schedule of small worlds with so many preemptive switches")
    parser.add_argument("--about", choices=sorted(THEMES), metavar="THEME", help=f"{', '.join(sorted(THEMES))}; default: all, in turn")
    parser.add_argument("--trace", action="store_true", help="print the trace of every run")
    parser.add_argument("--choices", type=Path, metavar="FILE", help="where to leave the choices of a run that broke a rule")
    given = parser.parse_args(arguments)
    # Warnings of simulated clocks and lost races are what is simulated, not news for people.
    logging.getLogger("manifestcommit").addHandler(logging.NullHandler())
    try:
        if given.replay is not None:
            return _replay(given.replay)
        return _explore(given.explore) if given.explore is not None else _simulate(given)
    # not a range; a file that cannot be read, or is not a file of choices
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def _simulate(given: argparse.Namespace) -> int:
    seeds, names = _range(given.seeds), [given.about] if given.about else list(THEMES)
    began, runs, steps = time.monotonic(), 0, 0
    for seed in seeds:
        found = run_theme(names[seed % len(names)], seed)
        runs, steps = runs + 1, steps + found.steps
        if given.trace:
            print(f"--- {found.theme}, seed {seed}\n{found.trace}")
        if found.violation is not None:
            break
    counted = f"{runs} runs, {steps} steps, {round(runs / (time.monotonic() - began) * 60)} runs a minute"
    if found.violation is None:
        print(f"{counted}: no violation")
        return 0
    small = shrink(found, lambda choices: run_theme(found.theme, given=choices))
    if given.choices is not None:
        replay = Replay(theme=small.theme, choices=small.choices, seed=found.seed)
        given.choices.write_bytes(msgspec.json.format(msgspec.json.encode(replay)) + b"\n")
    size = f"{len(found.choices)} choices made {len(small.choices)}"
    print(f"{_shown(small)}\nafter {counted}: theme {found.theme}, seed {found.seed}, {size}")
    return 1


def _range(text: str) -> range:
    """The seeds in the range; at least one, since no run would break no rule."""
    first, _, behind = text.partition(":")
    try:
        seeds = range(int(first), int(behind or int(first) + 1))
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise ValueError(f"--seeds {text}: give a seed, or two numbers, the first seed and the one behind the last, such as 0:1000")
    return seeds


def _replay(file: Path) -> int:
    try:
        replay = msgspec.json.decode(file.read_bytes(), type=Replay)
    except msgspec.DecodeError as error:
        raise ValueError(f"{file} is no file of choices, as `--choices FILE` leaves it: {error}") from error
    if replay.theme not in THEMES:
        raise ValueError(f"{file}: there is no theme {replay.theme!r}; there are {', '.join(sorted(THEMES))}")
    run = run_theme(replay.theme, given=replay.choices)
    print(_shown(run))
    return int(run.violation is not None)


def _explore(switches: int) -> int:
    if switches < 0:
        raise ValueError(f"--explore {switches}: give 0 or more")
    explored = [explore(case, switches=switches) for case in CASES]
    for done in explored:
        print(f"{done.case}: {done.schedules} schedules with up to {switches} switches")
        if done.found is not None:
            print(_shown(done.found))
    return int(any(done.found is not None for done in explored))


def _shown(run: Run) -> str:
    lines = run.trace.splitlines()
    left = [f"  … {len(lines) - _SHOWN} lines before"] if len(lines) > _SHOWN else []
    return "\n".join([*left, *lines[-_SHOWN:], f"violation: {run.violation}" if run.violation else "no violation"])


if __name__ == "__main__":
    sys.exit(main())

"""Shrinks a run that violates a rule: as few choices as possible for the same violation. [IV3]"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .simulation.simulator import Run

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

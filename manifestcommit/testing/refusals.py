"""Was there a reason for each refusal? What no winner, gc or rerun explains was refused for nothing. [CF1] [CM2] [KY2] [WM2]

Not here: the order of the commits (testing.checker), whose outcome is taken as given.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from .operation import EVERYTHING, Operation
from .united import United

Steps: TypeAlias = dict[str, list[tuple[Operation, object]]]  # source -> who moved it, and to where

_ADVANCES = ("gap", "overlap", "mismatch")


def unexplained_refusals(united: United, order: Sequence[tuple[int, Operation]]) -> Iterator[tuple[str, Operation]]:
    """(problem, operation) of each refusal for which nothing that was committed, or may have been, gives the reason that it was told.

    Refusals by rules that are not known here need no reason. order: the commits with their versions.
    """
    placed = {each.id for _, each in order}
    unplaced = [(sys.maxsize, each) for each in united.commits if each.outcome == "unknown" and each.id not in placed]
    order = [*order, *unplaced]
    steps = _positions(order)
    commits = sorted(order, key=lambda pair: pair[1].begin)
    begins = [each.begin for _, each in commits]
    others = [each for each in united.told if each.fence is not None or each.forgets or each.gives_up or each.rewinds or each.restores]
    for each in united.told:
        if each.outcome == "refused":
            # The nearest first: a reason is found at once where there is one.
            before = reversed(commits[: bisect_left(begins, each.until)])
            problem = _without_reason(each, before, [other for other in others if other.begin < each.until], steps, order)
            if problem is not None:
                yield f"{each.id} was told {problem}", each


def _without_reason(
    each: Operation,
    before: Iterator[tuple[int, Operation]],
    others: Sequence[Operation],
    steps: Steps,
    order: Sequence[tuple[int, Operation]],
) -> str | None:
    by_gc = any(_may_hinder(other, each) and not _is_before(other, each) for other in others)
    if each.rule in ("conflict", "contention") and not by_gc and all(_is_older(version, other, each) for version, other in before):
        return "of a conflict, and nobody committed beside it"
    if each.rule == "fenced" and not any(_may_fence(other, each.birth) for other in others):
        return f"that it is fenced, and no gc had put the fence above its birth {each.birth}"
    # A prepared job that found its key done holds no work, and is none any more once that was undone. [AB3]
    found_done = each.rule == "aborted" and each.key is not None and any(other.key == each.key for _, other in before)
    if each.rule == "aborted" and not found_done and not any(_may_give_up(other, each.job) for other in others):
        return "that it was given up, and nobody gave it up"
    if each.rule == "key_reused" and not any(other.key == each.key for _, other in before):
        return "that its key is used, and nobody had committed it"
    if each.rule in _ADVANCES and each.advances and not _could_misfit(each, steps, order):
        return f"of a watermark that does not fit ({each.rule}), and all of its advances did"
    return None


def _may_hinder(gc: Operation, each: Operation) -> bool:
    """No commit of anything to read; yet what a tag names may be gone by it, no rollback goes over its version, and keys that a rewind is
    to drop may be forgotten by it. [CF12] [CF13] [WM5]"""
    return (gc.fence is not None and (each.is_idle or each.restores is not None)) or bool(gc.forgets and each.rewinds)


def _may_fence(other: Operation, birth: int | None) -> bool:
    return other.fence is not None and (birth is None or other.fence > birth)


def _may_give_up(other: Operation, job: str) -> bool:
    """What a rewind or a rollback undoes, it also gives up where it was published. [CM21]"""
    return other.gives_up in (job, EVERYTHING) or bool(other.rewinds) or other.restores is not None


def _is_older(version: int, other: Operation, each: Operation) -> bool:
    if each.birth is not None:
        return version <= each.birth
    return _is_before(other, each)


def _is_before(other: Operation, each: Operation) -> bool:
    return other.end is not None and other.end < each.begin


def _positions(order: Sequence[tuple[int, Operation]]) -> Steps:
    """Each source's commits that moved it, with the position that they left: a rollback may have left any."""
    steps: Steps = {}
    for _, each in order:
        for source, (_, end) in each.advances.items():
            steps.setdefault(source, []).append((each, end))
        for source, to in each.rewinds.items():
            steps.setdefault(source, []).append((each, to))
    return steps


def _could_misfit(each: Operation, steps: Steps, order: Sequence[tuple[int, Operation]]) -> bool:
    """Whether some source stood elsewhere at some moment between its beginning and its end."""
    if any(other.restores is not None and other.begin < each.until for _, other in order):
        return True
    for source, (start, _) in each.advances.items():
        moved = [(other, end) for other, end in steps.get(source, []) if other.begin < each.until]
        settled = [end for other, end in moved if other.end is not None and other.outcome == "committed" and other.end < each.begin]
        beside = [end for other, end in moved if not (other.end is not None and other.outcome == "committed" and other.end < each.begin)]
        stood = [*settled[-1:], *beside]
        if any(position != start for position in stood):
            return True
    return False

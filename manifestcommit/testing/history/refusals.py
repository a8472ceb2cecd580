"""Checks that every refusal had a reason: an intervening commit, a gc or a rerun that explains it.
[CF1] [CM2] [KY2] [WM2]
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from .commit_groups import United
from .operation import EVERYTHING, UNDONE, Operation

# source -> which operations moved it, and to where
Steps: TypeAlias = dict[str, list[tuple[Operation, object]]]

_ADVANCES = ("gap", "overlap", "mismatch")


def unexplained_refusals(
    united: United, order: Sequence[tuple[int, Operation]]
) -> Iterator[tuple[str, Operation]]:
    """(problem, operation) of each refusal whose reported reason no commit, certain or possible,
    explains.

    Refusals by unknown rules need no reason. order: the commits with their versions.
    """
    placed = {operation.id for _, operation in order}
    unplaced = [
        (sys.maxsize, operation)
        for operation in united.commits
        if operation.outcome == "unknown" and operation.id not in placed
    ]
    order = [*order, *unplaced]
    steps = _positions(order)
    commits = sorted(order, key=lambda pair: pair[1].begin)
    begins = [operation.begin for _, operation in commits]
    others = [
        operation
        for operation in united.told
        if operation.fence is not None
        or operation.forgets
        or operation.gives_up
        or operation.rewinds
        or operation.restores
    ]
    for operation in united.told:
        if operation.outcome == "refused":
            # The nearest first: an existing reason is found at once.
            before = reversed(commits[: bisect_left(begins, operation.until)])
            problem = _without_reason(
                operation,
                before,
                [other for other in others if other.begin < operation.until],
                steps,
                order,
            )
            if problem is not None:
                yield f"{operation.id} learned {problem}", operation


def _without_reason(
    operation: Operation,
    before: Iterator[tuple[int, Operation]],
    others: Sequence[Operation],
    steps: Steps,
    order: Sequence[tuple[int, Operation]],
) -> str | None:
    by_gc = any(
        _may_hinder(other, operation) and not _is_before(other, operation) for other in others
    )
    rule = operation.rule
    if (
        rule in ("conflict", "contention")
        and not by_gc
        and all(_is_older(version, other, operation) for version, other in before)
    ):
        return "of a conflict, and nobody committed beside it"
    if rule == "fenced" and not any(_may_fence(other, operation.birth) for other in others):
        return f"that it is fenced, and no gc had put the fence above its birth {operation.birth}"
    # A prepared job that found its key committed holds no work, even once that commit was undone.
    # [AB3]
    if (
        rule == "aborted"
        and not (operation.key and any(other.key == operation.key for _, other in before))
        and not any(_may_give_up(other, operation.job) for other in others)
    ):
        return "that it was aborted, and nobody aborted it"
    if rule == "key_reused" and not any(other.key == operation.key for _, other in before):
        return "that its key is used, and nobody had committed it"
    if rule == "constraint" and not _may_violate(list(before), operation):
        return "that rows violate a constraint, and nobody had added these rows, or that constraint"
    if rule in UNDONE and not any(_may_undo(other, operation) for other in others):
        return f"that what it does was undone since it began ({rule}), and nobody had undone it"
    if rule in _ADVANCES and operation.advances and not _could_misfit(operation, steps, order):
        return f"of a watermark that does not fit ({rule}), and all of its advances did"
    return None


def _may_hinder(gc: Operation, operation: Operation) -> bool:
    """A gc commits nothing readable. But it may remove what a tag names, no rollback goes over its
    version (nor over one in which a job was aborted), and it may forget keys that a rewind
    invalidates. [CF12] [CF13] [WM5]"""
    stops_rollback = operation.restores is not None and (gc.fence is not None or bool(gc.gives_up))
    return (
        stops_rollback
        or (gc.fence is not None and operation.is_idle)
        or bool(gc.forgets and operation.rewinds)
    )


def _may_undo(other: Operation, operation: Operation) -> bool:
    """A rollback may undo anything, a rewind an advance, and gc forgets keys. [WM6] [KY7] [KY8]"""
    if other.outcome == "refused" or _is_older(other.version or sys.maxsize, other, operation):
        return False
    if operation.rule == "source_was_set_back":
        return other.restores is not None or bool(other.rewinds.keys() & operation.advances.keys())
    return (
        other.restores is not None
        or bool(other.rewinds)
        or (operation.rule == "key_is_gone" and bool(other.forgets))
    )


def _may_violate(before: Sequence[tuple[int, Operation]], operation: Operation) -> bool:
    """Whether it adds a constraint and another one the items that this refuses, or the other way
    round, or may have: what a refused one was to add is not known. A constraint that was dropped
    before it began is none any more, unless a rollback may have brought it back. [CK2] [CK3]"""
    gone: dict[str, int] = {}
    if all(other.restores is None for _, other in before):
        for version, other in before:
            if version < sys.maxsize and _is_older(version, other, operation):
                dropped = (name for name, refused in other.constrains.items() if not refused)
                gone |= {name: max(version, gone.get(name, 0)) for name in dropped}
    for version, other in before:
        for adds, writes, at in ((other, operation, version), (operation, other, sys.maxsize)):
            held = {
                each for name, each in adds.constrains.items() if each and at > gone.get(name, 0)
            }
            if held and (not writes.adds or held & {*writes.adds.values()}):
                return True
    return False


def _may_fence(other: Operation, birth: int | None) -> bool:
    return other.fence is not None and (birth is None or other.fence > birth)


def _may_give_up(other: Operation, job: str) -> bool:
    """A rewind or a rollback also aborts the published jobs whose work it undoes. [CM21]"""
    return other.gives_up in (job, EVERYTHING) or bool(other.rewinds) or other.restores is not None


def _is_older(version: int, other: Operation, operation: Operation) -> bool:
    if operation.birth is not None:
        return version <= operation.birth
    return _is_before(other, operation)


def _is_before(other: Operation, operation: Operation) -> bool:
    return other.end is not None and other.end < operation.begin


def _is_settled(other: Operation, operation: Operation) -> bool:
    return other.outcome == "committed" and _is_before(other, operation)


def _positions(order: Sequence[tuple[int, Operation]]) -> Steps:
    """Each source's commits and resulting positions: after a rollback, any position."""
    steps: Steps = {}
    for _, operation in order:
        for source, (_, end) in operation.advances.items():
            steps.setdefault(source, []).append((operation, end))
        for source, to in operation.rewinds.items():
            steps.setdefault(source, []).append((operation, to))
    return steps


def _could_misfit(
    operation: Operation, steps: Steps, order: Sequence[tuple[int, Operation]]
) -> bool:
    """Whether some source was at another position between its beginning and its end."""
    if any(other.restores is not None and other.begin < operation.until for _, other in order):
        return True
    for source, (start, _) in operation.advances.items():
        moved = [
            (other, end) for other, end in steps.get(source, []) if other.begin < operation.until
        ]
        settled = [end for other, end in moved if _is_settled(other, operation)]
        beside = [end for other, end in moved if not _is_settled(other, operation)]
        stood = [*settled[-1:], *beside]
        if any(position != start for position in stood):
            return True
    return False

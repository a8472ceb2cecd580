"""What the operations of a history were as commits: all of one job are one, by whomever it was finished, given up or found. [CM10] [AB4]

Not here: in which order the commits stand (testing.order).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from .operation import Contradiction, Operation, contradiction

FOR_EVER = ("aborted", "fenced")  # who was told so of a job that others can finish knows of all of them


class United(msgspec.Struct, frozen=True, kw_only=True):
    """commits: one operation for each job, and the reads; told: every operation as it was told, with what its job does; wrong: jobs of
    which two were told what cannot both be."""

    commits: tuple[Operation, ...]
    told: tuple[Operation, ...]
    wrong: tuple[Contradiction, ...] = ()


def unite(operations: Sequence[Operation]) -> United:
    """Operations, in the order in which they began, with those of one job as one commit. [CM10]"""
    groups: dict[str, list[Operation]] = defaultdict(list)
    for each in operations:
        if each.job and not each.is_read:
            groups[each.job].append(each)
    commits, told, wrong = list[Operation](), list[Operation](), list[Contradiction]()
    forgets = any(each.forgets for each in operations)
    for each in operations:
        group = groups.get(each.job, [each]) if not each.is_read else [each]
        does = group[0] if len(group) == 1 else max(group, key=lambda one: (bool(one.adds), not one.is_idle))  # the first of the best
        told.append(each if each is does else _with(each, does))
        if each is group[0]:
            wrong += _at_odds(group)
            commits.append(each if len(group) == 1 and each.outcome != "already" else _as_one(group, does, forgets=forgets))
    return United(commits=tuple(commits), told=tuple(told), wrong=tuple(wrong))


def _with(each: Operation, does: Operation) -> Operation:
    """What this one was told, of a commit that does what the other one says."""
    return msgspec.structs.replace(
        does,
        id=each.id, process=each.process, name=each.name, begin=each.begin, end=each.end, outcome=each.outcome, version=each.version,
        rule=each.rule, shared=each.shared, gives_up=each.gives_up,
    )  # fmt: skip


def _as_one(group: Sequence[Operation], does: Operation, *, forgets: bool) -> Operation:
    """It was begun by who says what it does, and over when the first was told how it ended."""
    told = [each for each in group if each.outcome == "committed"] or [each for each in group if _is_final(each, group)]
    if not told and not forgets:  # once keys may be forgotten, it may have been committed at another version than the one that it was told
        told = [each for each in group if each.outcome == "already"]
    begin = min(each.begin for each in group if each is does or each.adds)
    if not told:
        return msgspec.structs.replace(does, begin=begin, outcome="unknown", version=None, rule="")
    first = min(told, key=lambda each: float("inf") if each.end is None else each.end)
    return msgspec.structs.replace(
        does, begin=begin, end=first.end, outcome=first.outcome, version=first.version, rule=first.rule, gives_up=""
    )


def _is_final(each: Operation, group: Sequence[Operation]) -> bool:
    """Whether it was told that the job never commits."""
    return each.outcome == "refused" and (each.rule in FOR_EVER or not any(one.shared for one in group))


def _at_odds(group: Sequence[Operation]) -> Iterator[Contradiction]:
    committed = [each for each in group if each.outcome == "committed"]
    for each in committed[1:]:
        if each.version != committed[0].version:
            problem = f"job {each.job} was told to be committed at version {committed[0].version}, and at version {each.version}"
            yield contradiction(problem, committed[0], each)
    for each in group:
        if committed and _is_final(each, group):
            problem = f"job {each.job} was told to be committed at version {committed[0].version}, and never to be ({each.rule})"
            yield contradiction(problem, committed[0], each)

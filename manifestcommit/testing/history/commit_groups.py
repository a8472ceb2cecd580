"""Groups the operations of a history into commits: all operations of one job are one, in
whatever process it was finished, aborted or found. [CM10] [AB4]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from .operation import UNDONE, Contradiction, Operation, contradiction

# an operation with this outcome, of a job that others can finish, knows of all of them
FOR_EVER = ("aborted", "fenced", *UNDONE)


class United(msgspec.Struct, frozen=True, kw_only=True):
    """commits: one operation for each job, and the reads; told: every operation with its own result
    and its job's effect; wrong: jobs with contradictory results."""

    commits: tuple[Operation, ...]
    told: tuple[Operation, ...]
    wrong: tuple[Contradiction, ...] = ()


def unite(operations: Sequence[Operation]) -> United:
    """Operations, in the order in which they began, with those of one job as one commit. [CM10]"""
    groups: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.job and not operation.is_read:
            groups[operation.job].append(operation)
    for operation in operations:
        if operation.gives_up in groups and operation.job != operation.gives_up:
            groups[operation.gives_up] += _aborting(operation)
    commits, told, wrong = list[Operation](), list[Operation](), list[Contradiction]()
    forgets = any(operation.forgets for operation in operations)
    for operation in operations:
        group = groups.get(operation.job, [operation]) if not operation.is_read else [operation]
        # The first of the best: an operation that slept until gc had removed what others finished
        # reports other items than were committed.
        does = max(
            group, key=lambda one: (bool(one.adds), not one.is_idle, one.outcome == "committed")
        )
        told.append(operation if operation is does else _with(operation, does))
        if operation is group[0]:
            wrong += _at_odds(group)
            commits.append(
                operation
                if len(group) == 1 and operation.outcome != "already"
                else _as_one(group, does, forgets=forgets)
            )
    return United(commits=tuple(commits), told=tuple(told), wrong=tuple(wrong))


def _with(operation: Operation, does: Operation) -> Operation:
    """This operation's result, with the effect that the other operation states."""
    return msgspec.structs.replace(
        does,
        id=operation.id,
        process=operation.process,
        name=operation.name,
        begin=operation.begin,
        end=operation.end,
        outcome=operation.outcome,
        version=operation.version,
        rule=operation.rule,
        shared=operation.shared,
        gives_up=operation.gives_up,
    )


def _aborting(operation: Operation) -> Iterator[Operation]:
    """What a commit that aborts a job, as one of its own, tells of that job. [AB4]"""
    if operation.outcome == "committed":
        yield Operation(
            id=operation.id,
            process=operation.process,
            name=operation.name,
            begin=operation.begin,
            end=operation.end,
            outcome="refused",
            rule="aborted",
            job=operation.gives_up,
            shared=True,
        )


def _as_one(group: Sequence[Operation], does: Operation, *, forgets: bool) -> Operation:
    """It began with the operation that says its effect, and ended with the first to know it."""
    told = [operation for operation in group if operation.outcome == "committed"] or [
        operation for operation in group if _is_final(operation, group)
    ]
    # once keys may be forgotten, it may have been committed at another version than the reported
    # one
    if not told and not forgets:
        told = [operation for operation in group if operation.outcome == "already"]
    begin = min(operation.begin for operation in group if operation is does or operation.adds)
    if not told:
        return msgspec.structs.replace(does, begin=begin, outcome="unknown", version=None, rule="")
    first = min(
        told, key=lambda operation: float("inf") if operation.end is None else operation.end
    )
    return msgspec.structs.replace(
        does,
        begin=begin,
        end=first.end,
        outcome=first.outcome,
        version=first.version,
        rule=first.rule,
        gives_up="",
    )


def _is_final(operation: Operation, group: Sequence[Operation]) -> bool:
    """Whether its result says that the job never commits."""
    return operation.outcome == "refused" and (
        operation.rule in FOR_EVER or not any(one.shared for one in group)
    )


def _at_odds(group: Sequence[Operation]) -> Iterator[Contradiction]:
    committed = [operation for operation in group if operation.outcome == "committed"]
    for operation in committed[1:]:
        if operation.version != committed[0].version:
            problem = (
                f"job {operation.job} was reported as committed at version {committed[0].version}, "
                f"and at version {operation.version}"
            )
            yield contradiction(problem, committed[0], operation)
    for operation in group:
        if committed and _is_final(operation, group):
            problem = (
                f"job {operation.job} was reported as committed at version {committed[0].version}, "
                f"and never to be ({operation.rule})"
            )
            yield contradiction(problem, committed[0], operation)

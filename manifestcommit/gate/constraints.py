"""Adding constraints to a table, and dropping them. [CK3]"""

from __future__ import annotations

import msgspec

from ..commits.commit_loop import commit
from ..errors import UsageError
from ..format.change import Write
from ..format.fields import shown
from ..format.snapshot import Constraint, Snapshot
from ..log.table_context import TableContext
from ..log.version_chain import Head
from ..protocol.conflict import ROWS_CAME_SINCE
from ..runtime.environment import STARTS
from ..runtime.outcome import Outcome, constraint_error
from .rows import bind, first_violation


def add(ctx: TableContext, name: str, condition: str) -> Outcome:
    """Add a constraint, once all rows of the table are found to keep it. Others may commit
    meanwhile: what they have added is proven as well. [CK3]

    ConstraintError where a row violates it. Adding the same once more is no change.
    """
    seen: set[str] = set()  # files that are found to keep it
    bound: Constraint | None = None
    tried = 0
    while True:
        tried += 1
        head = ctx.open()
        snapshot = head.snapshot
        if snapshot.schema is None:
            raise UsageError(f"{ctx.store.url} has no columns yet; nothing was changed")
        constraint = bind(ctx, {name: condition}, snapshot.schema)[name]
        if bound is not None and bound.columns != constraint.columns:
            seen.clear()  # the names in it are other columns now
        bound = constraint
        if (there := _same(ctx, snapshot, name, constraint)) is not None:
            return _unchanged(head, there)
        found = first_violation(ctx, snapshot, {name: constraint}, seen)
        if found is not None:
            raise constraint_error(ctx.store.url, found, is_new=True)
        outcome = commit(ctx, head, _change(ctx, head, {name: constraint}))
        rule = outcome.conflict.rule if outcome.conflict is not None else ""
        if rule != ROWS_CAME_SINCE or tried >= STARTS:
            return msgspec.structs.replace(outcome, attempts=max(outcome.attempts, tried))


def drop(ctx: TableContext, name: str) -> Outcome:
    """Drop a constraint. UsageError where the table has none of that name. [CK3]"""
    head = ctx.open()
    if name not in head.snapshot.constraints:
        raise UsageError(
            f"{ctx.store.url} has no constraint {shown(name)}; it has "
            f"{', '.join(sorted(head.snapshot.constraints)) or 'none'}. Nothing was changed."
        )
    return commit(ctx, head, _change(ctx, head, {name: None}))


def _same(ctx: TableContext, snapshot: Snapshot, name: str, new: Constraint) -> Constraint | None:
    """The constraint that is there already, if it says the same; UsageError if another one has the
    name."""
    for other, there in snapshot.constraints.items():
        if other.lower() != name.lower():
            continue
        if (other, there.condition, there.columns) == (name, new.condition, new.columns):
            return there
        raise UsageError(
            f"{ctx.store.url} has the constraint {other!r} already ({there.condition}); "
            "nothing was changed. Drop it first, or choose another name."
        )
    return None


def _unchanged(head: Head, there: Constraint) -> Outcome:
    return Outcome(
        kind="already_committed", job_id=head.snapshot.commits[-1].job, version=head.version
    )


def _change(ctx: TableContext, head: Head, constrain: dict[str, Constraint | None]) -> Write:
    return Write(
        job=ctx.new_job(head),
        birth=head.version,
        operation="constraint",
        constrain=constrain,
    )

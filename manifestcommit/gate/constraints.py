"""Adding constraints to a table, and dropping them. [CK3] [CK8]"""

from __future__ import annotations

import msgspec

from ..commits.commit_loop import commit
from ..errors import UsageError
from ..format.change import Write
from ..format.evolution import SchemaEdit, find_column, relax_column
from ..format.fields import Field, shown
from ..format.snapshot import Constraint, Snapshot, never_null
from ..log.table_context import TableContext
from ..log.version_chain import Head
from ..protocol.conflict import ROWS_CAME_SINCE
from ..runtime.environment import STARTS
from ..runtime.outcome import Outcome, constraint_error
from .rows import bind, first_violation, not_null_name, quoted


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
        constraint = bind(ctx, {name: condition}, snapshot.schema)[name]
        if bound is not None and bound.columns != constraint.columns:
            seen.clear()  # the names in it are other columns now
        bound = constraint
        if _same(ctx, snapshot, name, constraint):
            return _unchanged(head)
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


def require(ctx: TableContext, column: str) -> Outcome:
    """Let no row have a null in this column, by a constraint. [CK8]"""
    head = ctx.open()
    field = find_column(head.snapshot.schema, column)
    if not field.nullable or _not_null(head.snapshot, field):
        return _unchanged(head)
    name = not_null_name(field)
    if name.lower() in {each.lower() for each in head.snapshot.constraints}:
        name = f"not_null_{field.id}"  # of a column that was called so before
    return add(ctx, name, f"{quoted(field.name)} IS NOT NULL")


def relax(ctx: TableContext, column: str) -> Outcome:
    """Let rows have a null in this column: drop what forbids it. [CK8] [SC5]"""
    head = ctx.open()
    schema = head.snapshot.schema
    field = find_column(schema, column)
    names, edits = _not_null(head.snapshot, field), relax_column(schema, column)
    if not names and not edits:
        return _unchanged(head)
    return commit(ctx, head, _change(ctx, head, dict.fromkeys(names), edits))


def _not_null(snapshot: Snapshot, field: Field) -> list[str]:
    """The constraints that say that the column is never null, and no more."""
    return [name for name, each in snapshot.constraints.items() if never_null(each) == field.id]


def _same(ctx: TableContext, snapshot: Snapshot, name: str, new: Constraint) -> bool:
    """Whether it is there already; UsageError if another one has the name."""
    for other, there in snapshot.constraints.items():
        if other.lower() != name.lower():
            continue
        if (other, there.condition, there.columns) == (name, new.condition, new.columns):
            return True
        raise UsageError(
            f"{ctx.store.url} has the constraint {other!r} already ({there.condition}); "
            "nothing was changed. Drop it first, or choose another name."
        )
    return False


def _unchanged(head: Head) -> Outcome:
    return Outcome(
        kind="already_committed", job_id=head.snapshot.commits[-1].job, version=head.version
    )


def _change(
    ctx: TableContext,
    head: Head,
    constrain: dict[str, Constraint | None],
    edits: tuple[SchemaEdit, ...] = (),
) -> Write:
    return Write(
        job=ctx.new_job(head),
        birth=head.version,
        operation="constraint",
        constrain=constrain,
        edits=edits,
    )

"""Rollbacks and rewinds that are planned and committed at once, as those of `Table` are."""

from typing import Any

from manifestcommit.operations.rollback import plan_rewind, plan_rollback, undo
from manifestcommit.runtime.outcome import Outcome


def rollback(ctx: Any, *given: Any, **named: Any) -> Outcome:
    return undo(ctx, *plan_rollback(ctx, *given, **named))


def rewind(ctx: Any, *given: Any, **named: Any) -> Outcome:
    return undo(ctx, *plan_rewind(ctx, *given, **named))

"""Sets a watermark back, and invalidates the idempotency keys of what that undoes. [WM5]"""

from __future__ import annotations

import msgspec

from ..commits.commit_loop import commit
from ..errors import SnapshotExpiredError, UsageError
from ..format.change import Rewind
from ..format.watermark import Position, check_advance, is_left_by
from ..log.table_context import TableContext
from ..log.time_travel import find_key_at, steps
from ..log.version_chain import Head
from ..runtime.outcome import Outcome
from ..runtime.validation import check_reason
from .lineage import unknown_source


def rewind(
    ctx: TableContext,
    source: str,
    to: Position,
    *,
    reason: str,
    keep_keys: bool = False,
    alone: bool = False,
) -> Outcome:
    """Set a source's watermark back with a commit of its own, and invalidate the keys whose
    advances that undoes. alone: undo joint commits in this table alone. [WM5] [MT14]

    One request for each version back to the one that last had this watermark. It conflicts if the
    source moves meanwhile.
    """
    head, back = plan_rewind(ctx, source, to, reason=reason, keep_keys=keep_keys, alone=alone)
    outcome = commit(ctx, head, back)
    return (
        msgspec.structs.replace(outcome, dropped_keys=tuple(sorted(back.keys)))
        if outcome.committed
        else outcome
    )


def plan_rewind(
    ctx: TableContext,
    source: str,
    to: Position,
    *,
    reason: str,
    keep_keys: bool = False,
    alone: bool = False,
) -> tuple[Head, Rewind]:
    """The latest version, and the change that a rewind would commit now; nothing is written.
    [WM5]"""
    check_reason("rewind", reason)
    head = ctx.open()
    have = head.snapshot.watermarks.get(source)
    if source not in head.snapshot.origins and have is None:
        raise UsageError(unknown_source(ctx, head.snapshot, source))
    _check_target(source, have, to)
    # Only the history knows whether a source was ever at a text; a source without a position has
    # nothing to undo.
    is_walked = have is not None and (isinstance(to, str) or not keep_keys)
    undone = _undone_keys(ctx, head, source, to) if is_walked else {}
    undone = {} if keep_keys else undone
    return head, Rewind(
        job=ctx.new_job(head),
        birth=head.version,
        source=source,
        have=have,
        to=to,
        keys=frozenset(undone),
        undone_jointly=frozenset(key for key, is_joint in undone.items() if is_joint),
        alone=alone,
        reason=reason,
    )


def _check_target(source: str, have: Position, to: Position) -> None:
    """UsageError unless the source, now at `have`, can be set back to `to`."""
    if to is None:
        return
    if have is None:
        raise UsageError(
            f"source {source!r} has no position, since a rollback to before its first "
            "advance: rewind it to None to forget it"
        )
    try:
        check_advance(source, have, to)  # of one kind, and representable
    except ValueError as error:
        if (
            isinstance(have, int)
            and isinstance(to, int)
            and not isinstance(to, bool)
            and -(2**63) <= to < have
        ):
            return
        raise UsageError(str(error)) from None
    if isinstance(have, int) or to == have:
        raise UsageError(
            f"source {source!r} is at {have!r}; a rewind sets it back, and {to!r} is not "
            "before that"
        )


def _undone_keys(ctx: TableContext, head: Head, source: str, to: Position) -> dict[str, bool]:
    """The keys that a rewind drops, and whether a joint commit has them in other tables, too: of
    the commits that moved the source past `to`, newest first, unless the key was recorded again
    since. [WM5] [MT14]"""
    keys: dict[str, bool] = {}
    try:
        for step in steps(ctx, head, source):
            if is_left_by(to, step.end):
                return keys
            key = step.commit.key
            record = find_key_at(ctx, head, key)[1] if key is not None else None
            if record is not None and record.version == step.version:
                keys[str(key)] = step.is_joint
            if is_left_by(to, step.start):  # versions before that need not be readable
                return keys
    except SnapshotExpiredError as error:
        raise SnapshotExpiredError(
            f"{error}, nor which keys a rewind to {to!r} has to drop. Nothing was changed. Rewind "
            "with keep_keys=True (--keep-keys) and give new keys to the work that is done again."
        ) from None
    if isinstance(to, str) and to != head.snapshot.origins.get(source):
        raise UsageError(
            f"source {source!r} was never at {to!r}; texts have no order, so that a rewind "
            "leads to a position that it once had"
        )
    return keys

"""Rolls several tables back, or tags them, together. [MT14]"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from ..commits.commit_loop import settle_first
from ..commits.joint_commit import TablePart, commit_jointly
from ..commits.joint_read import read_jointly
from ..errors import UsageError
from ..format.change import Rollback
from ..log.table_context import TableContext
from ..log.version_chain import Head
from ..protocol.joint_outcome import find_mismatch
from ..runtime.outcome import Outcome
from .rollback import plan_rollback
from .tags import check_tag, plan_tag

# Gives consistent versions of several tables one tag, by one joint commit.


def tag_jointly(
    contexts: Sequence[TableContext], name: str, *, keep_for: str | dt.timedelta | None
) -> tuple[Outcome, ...]:
    """Tag one version of each table, such that each joint commit is in all of them or in none; all
    tables have the tag then, or none has moved it. One outcome for each. [MT1] [MT12]

    The requests of `read_jointly` and `commit_jointly`.
    """
    for ctx in contexts:
        check_tag(ctx, name, keep_for)
    chosen = read_jointly(contexts)
    parts = []
    for ctx, head in zip(contexts, chosen, strict=True):
        newest = ctx.known or head
        edit = plan_tag(ctx, newest, name, head.version, keep_for=keep_for)
        parts.append(TablePart(ctx=ctx, head=newest, change=edit))
    return commit_jointly(parts)


class JointRollback(msgspec.Struct, frozen=True, kw_only=True):
    """A rollback of several tables, of which nothing is committed yet."""

    parts: tuple[TablePart, ...]

    def commit(self) -> tuple[Outcome, ...]:
        """Roll all tables back, or none; one outcome for each. [MT1] [MT14]"""
        outcomes = commit_jointly(self.parts)
        return tuple(
            msgspec.structs.replace(outcome, dropped_keys=tuple(sorted(part.change.dropped)))
            if outcome.committed and isinstance(part.change, Rollback)
            else outcome
            for outcome, part in zip(outcomes, self.parts, strict=True)
        )


def plan_joint_rollback(
    contexts: Sequence[TableContext],
    targets: Sequence[int | str],
    *,
    reason: str,
    settle: bool = True,
) -> JointRollback:
    """The rollback of each table to its target, a version or a tag; nothing of it is written, but
    attempts of joint commits that their coordinators left are aborted. UsageError where the targets
    hold a joint commit in some of the tables only. [MT9] [MT14] [CF13]

    settle: False leaves those attempts as they are: the commit of the plan may conflict with them.
    """
    for ctx in contexts if settle else ():  # an abort in a home is a version, to be seen
        settle_first(ctx, ctx.open())
    plans = [_plan(each, target, reason) for each, target in zip(contexts, targets, strict=True)]
    ids = frozenset(head.snapshot.table_id for head, _ in plans)
    _check_targets(contexts, [back for _, back in plans])
    parts = []
    for ctx, (head, back) in zip(contexts, plans, strict=True):
        change = msgspec.structs.replace(back, beside=ids - {head.snapshot.table_id})
        parts.append(TablePart(ctx=ctx, head=head, change=change))
    return JointRollback(parts=tuple(parts))


def _plan(ctx: TableContext, target: int | str, reason: str) -> tuple[Head, Rollback]:
    version, tag = (None, target) if isinstance(target, str) else (target, None)
    return plan_rollback(ctx, version, tag=tag, reason=reason)


def _check_targets(contexts: Sequence[TableContext], plans: Sequence[Rollback]) -> None:
    urls = {back.target.table_id: ctx.store.url for ctx, back in zip(contexts, plans, strict=True)}
    mismatch = find_mismatch({back.target.table_id: back.target for back in plans})
    if mismatch is not None:
        raise UsageError(
            f"version {mismatch.version} of {urls[mismatch.table_id]} is part of a joint commit "
            f"that {urls[mismatch.home]} decided, and only one of the two targets is before it; "
            "nothing was changed. Choose versions that have it in all tables or in none, as "
            "read_together returns them."
        )

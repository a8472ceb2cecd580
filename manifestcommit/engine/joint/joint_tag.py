"""Gives consistent versions of several tables one tag, by one joint commit. [MT12] [GC10]"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from ..metadata.table_context import TableContext
from ..operations.tags import check_tag, plan_tag
from ..runtime.outcome import Outcome
from .joint_commit import TablePart, commit_jointly
from .joint_read import read_jointly


def tag_jointly(
    sessions: Sequence[TableContext], name: str, *, keep_for: str | dt.timedelta | None
) -> tuple[Outcome, ...]:
    """Tag one version of each table, such that each joint commit is in all of them or in none; all
    tables have the tag then, or none has moved it. One outcome for each. [MT1] [MT12]

    The requests of `read_jointly` and `commit_jointly`.
    """
    for session in sessions:
        check_tag(session, name, keep_for)
    chosen = read_jointly(sessions)
    parts = []
    for session, head in zip(sessions, chosen, strict=True):
        newest = session.known or head
        edit = plan_tag(session, newest, name, head.version, keep_for=keep_for)
        parts.append(TablePart(session=session, head=newest, change=edit))
    return commit_jointly(parts)

"""Settles a table whose newest version is a member of a joint commit, so that it no longer depends
on its home; where that is gone, as an operator says. [MT10]
"""

from __future__ import annotations

from typing import Literal

from ...core.commit.change import Write
from ...core.joint.fate import state_before
from ...errors import CorruptMetadataError, StoreError, UsageError
from ..commit.commit_loop import commit
from ..commit.group_commit import Committers
from ..commit.joint_part import Part, Settlement
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head, missing_version, open_object, read_object, settled_head
from ..runtime.outcome import Outcome

Said = Literal["committed", "aborted"]


def settle(session: TableContext, said: Said | None, *, reason: str | None = None) -> Outcome:
    """Commit a version that is no member, on top of one that is; "unchanged" where none is. [MT10]

    said: what became of the member, as an operator decides; only where its home cannot be asked.
    """
    newest = open_object(session.store)
    if newest.snapshot.pending is None:
        return Outcome(kind="unchanged", job_id="", version=newest.version)
    part: Part | None = None
    if said is None:
        head = session.open()
    else:
        _check_unknown(session, newest)
        head, part = _as_said(session, newest, said), Settlement(newest.snapshot.pending.table_id)
    change = Write(
        job=session.new_job(head),
        birth=head.version,
        operation="settle",
        reason=reason if said is None else f"as {said}: {reason}",
    )
    return commit(session, head, change, committers=Committers.THIS_PROCESS, part=part)


def _check_unknown(session: TableContext, newest: Head) -> None:
    """UsageError where the home can be asked, and may still decide."""
    assert newest.snapshot.pending is not None
    try:
        settled_head(session.store, newest)
    except (StoreError, CorruptMetadataError):
        return
    raise UsageError(
        f"{session.store.url}: what became of version {newest.version} is for the table at "
        f"{newest.snapshot.pending.home} to tell, which can be asked; nothing was changed. Settle "
        "without an outcome"
    )


def _as_said(session: TableContext, newest: Head, said: Said) -> Head:
    """What to build the next version on."""
    if said == "committed":
        return newest
    assert newest.snapshot.pending is not None
    base = read_object(session.store, newest.snapshot.pending.base)
    if base is None:
        raise missing_version(newest.snapshot.pending.base)
    return Head(snapshot=state_before(newest.snapshot, base.snapshot), digest=newest.digest)

"""Tags: names for versions. A tagged version, and everything that it lists, stays until the tag is
removed. [GC10]
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from typing import Literal

from ..commits.commit_loop import commit
from ..commits.group_commit import Committers
from ..commits.prepared_job import Part, Settlement
from ..errors import CorruptMetadataError, StoreError, UsageError
from ..format.change import TagEdit, Write
from ..format.fields import is_text
from ..log.table_context import TableContext
from ..log.time_travel import choose_version, parse_age
from ..log.version_chain import (
    Head,
    missing_version,
    open_object,
    read_object,
    read_version,
    settled_head,
)
from ..protocol.joint_outcome import state_before
from ..runtime.outcome import Outcome

# Settles a table whose newest version is a member of a joint commit, so that it no longer depends
# on its home; where that is gone, as an operator says.

Said = Literal["committed", "aborted"]


def settle(ctx: TableContext, said: Said | None, *, reason: str | None = None) -> Outcome:
    """Commit a version that is no member, on top of one that is; "unchanged" where none is. [MT10]

    said: what became of the member, as an operator decides; only where its home cannot be asked.
    """
    newest = open_object(ctx.store)
    if newest.snapshot.pending is None:
        return Outcome(kind="unchanged", job_id="", version=newest.version)
    part: Part | None = None
    if said is None:
        head = ctx.open()
    else:
        _check_unknown(ctx, newest)
        head, part = _as_said(ctx, newest, said), Settlement(newest.snapshot.pending.table_id)
    change = Write(
        job=ctx.new_job(head),
        birth=head.version,
        operation="settle",
        reason=reason if said is None else f"as {said}: {reason}",
    )
    return commit(ctx, head, change, committers=Committers.THIS_PROCESS, part=part)


def _check_unknown(ctx: TableContext, newest: Head) -> None:
    """UsageError where the home can be asked, and may still decide."""
    assert newest.snapshot.pending is not None
    try:
        settled_head(ctx.store, newest)
    except (StoreError, CorruptMetadataError):
        return
    raise UsageError(
        f"{ctx.store.url}: what became of version {newest.version} is for the table at "
        f"{newest.snapshot.pending.home} to tell, which can be asked; nothing was changed. Settle "
        "without an outcome"
    )


def _as_said(ctx: TableContext, newest: Head, said: Said) -> Head:
    """What to build the next version on."""
    if said == "committed":
        return newest
    assert newest.snapshot.pending is not None
    base = read_object(ctx.store, newest.snapshot.pending.base)
    if base is None:
        raise missing_version(newest.snapshot.pending.base)
    return Head(snapshot=state_before(newest.snapshot, base.snapshot), digest=newest.digest)


# the end of the year 9999, the limit of Python's and other dates
_LATEST_US = 253_402_300_799_000_000


def tag(
    ctx: TableContext,
    name: str,
    version: int | None = None,
    *,
    keep_for: str | dt.timedelta | None = None,
) -> Outcome:
    """Give a readable version this name, and take it from another version that has it; it conflicts
    if the version expires meanwhile. [CF12] [GC10]

    version: None: the latest; keep_for: how long from now gc has to keep it, None: until `untag`.
    """
    check_tag(ctx, name, keep_for)
    head = ctx.open()
    chosen = choose_version(ctx.store, head, version=version, as_of=None, tag=None)
    number = head.version if chosen is None else read_version(ctx.store, head, chosen).version
    return commit(ctx, head, plan_tag(ctx, head, name, number, keep_for=keep_for))


def plan_tag(
    ctx: TableContext,
    head: Head,
    name: str,
    version: int,
    *,
    keep_for: str | dt.timedelta | None,
) -> TagEdit:
    """The change that gives a version this name; nothing is written. [GC10]"""
    return TagEdit(
        job=ctx.new_job(head),
        birth=head.version,
        operation="tag",
        name=name,
        version=version,
        until=check_tag(ctx, name, keep_for),
    )


def untag(ctx: TableContext, name: str) -> Outcome:
    """Remove a tag: gc no longer keeps its version because of it. VersionNotFoundError if there is
    no such tag. [GC10]"""
    if not isinstance(name, str):
        raise UsageError(f"a tag's name is a text, not {name!r}")
    head = ctx.open()
    choose_version(ctx.store, head, version=None, as_of=None, tag=name)
    job = ctx.new_job(head)
    edit = TagEdit(job=job, birth=head.version, operation="untag", name=name)
    return commit(ctx, head, edit)


def check_tag(ctx: TableContext, name: object, keep_for: str | dt.timedelta | None) -> int | None:
    """When a tag of this name ends, if it does, in microseconds; UsageError for what is no name or
    no time. [GC10]"""
    if not is_text(name) or any(unicodedata.category(letter) == "Cc" for letter in name):
        raise UsageError(
            f"a tag's name is a non-empty text without control characters, not {name!r}"
        )
    return None if keep_for is None else _until(ctx, keep_for)


def _until(ctx: TableContext, keep_for: str | dt.timedelta) -> int:
    seconds = parse_age(keep_for, "keep_for")
    until = ctx.env.now_us() + round(seconds * 1_000_000)
    if seconds <= 0 or until > _LATEST_US:
        raise UsageError(
            f"keep_for is a time from now on, such as 30d, not {keep_for!r}; without it a "
            "tag stays until `untag` deletes it"
        )
    return until

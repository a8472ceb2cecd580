"""Tags: names for versions. A tagged version, and everything that it lists, stays until the tag is
removed. [GC10]
"""

from __future__ import annotations

import datetime as dt
import unicodedata

from ...core.commit.change import TagEdit
from ...core.schema.text import is_text
from ...errors import UsageError
from ..commit.commit_loop import commit
from ..metadata.table_context import TableContext
from ..metadata.time_travel import choose_version, parse_age
from ..metadata.version_chain import Head, read_version
from ..runtime.outcome import Outcome

# the end of the year 9999, the limit of Python's and other dates
_LATEST_US = 253_402_300_799_000_000


def tag(
    session: TableContext,
    name: str,
    version: int | None = None,
    *,
    keep_for: str | dt.timedelta | None = None,
) -> Outcome:
    """Give a readable version this name, and take it from another version that has it; it conflicts
    if the version expires meanwhile. [CF12] [GC10]

    version: None: the latest; keep_for: how long from now gc has to keep it, None: until `untag`.
    """
    check_tag(session, name, keep_for)
    head = session.open()
    chosen = choose_version(session.store, head, version=version, as_of=None, tag=None)
    number = head.version if chosen is None else read_version(session.store, head, chosen).version
    return commit(session, head, plan_tag(session, head, name, number, keep_for=keep_for))


def plan_tag(
    session: TableContext,
    head: Head,
    name: str,
    version: int,
    *,
    keep_for: str | dt.timedelta | None,
) -> TagEdit:
    """The change that gives a version this name; nothing is written. [GC10]"""
    return TagEdit(
        job=session.new_job(head),
        birth=head.version,
        operation="tag",
        name=name,
        version=version,
        until=check_tag(session, name, keep_for),
    )


def untag(session: TableContext, name: str) -> Outcome:
    """Remove a tag: gc no longer keeps its version because of it. VersionNotFoundError if there is
    no such tag. [GC10]"""
    if not isinstance(name, str):
        raise UsageError(f"a tag's name is a text, not {name!r}")
    head = session.open()
    choose_version(session.store, head, version=None, as_of=None, tag=name)
    job = session.new_job(head)
    edit = TagEdit(job=job, birth=head.version, operation="untag", name=name)
    return commit(session, head, edit)


def check_tag(
    session: TableContext, name: object, keep_for: str | dt.timedelta | None
) -> int | None:
    """When a tag of this name ends, if it does, in microseconds; UsageError for what is no name or
    no time. [GC10]"""
    if not is_text(name) or any(unicodedata.category(letter) == "Cc" for letter in name):
        raise UsageError(
            f"a tag's name is a non-empty text without control characters, not {name!r}"
        )
    return None if keep_for is None else _until(session, keep_for)


def _until(session: TableContext, keep_for: str | dt.timedelta) -> int:
    seconds = parse_age(keep_for, "keep_for")
    until = session.env.now_us() + round(seconds * 1_000_000)
    if seconds <= 0 or until > _LATEST_US:
        raise UsageError(
            f"keep_for is a time from now on, such as 30d, not {keep_for!r}; without it a "
            "tag stays until `untag` deletes it"
        )
    return until

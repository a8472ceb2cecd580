"""Names for versions: a tagged version stays readable, and all that it reaches stays, until the tag goes. [GC10]

Not here: reading by tag (engine.times), when a tag no longer holds (core.conflict), taking ended ones away (engine.gc).
"""

from __future__ import annotations

import datetime as dt
import unicodedata

from ..core.change import Change, TagEdit
from ..core.text import is_text
from ..errors import UsageError
from .commit import commit
from .head import Head, read_version
from .outcome import Outcome
from .session import Session
from .times import choose_version, parse_age

_LATEST_US = 253_402_300_799_000_000  # the end of the year 9999: what Python's and everyone's dates can show


def tag(session: Session, name: str, version: int | None = None, *, keep_for: str | dt.timedelta | None = None) -> Outcome:
    """Give a readable version this name, and take it from another one that has it; a conflict if it expires meanwhile. [CF12] [GC10]

    version: None for the head; keep_for: how long from now gc has to keep it, None: until `untag`.
    """
    _check_name(name)
    until = None if keep_for is None else _until(session, keep_for)
    head = session.open()
    chosen = choose_version(session.store, head, version=version, as_of=None, tag=None)
    number = head.version if chosen is None else read_version(session.store, head, chosen).version
    return _commit(session, head, "tag", TagEdit(name=name, version=number, until=until))


def untag(session: Session, name: str) -> Outcome:
    """Take a name away: gc no longer keeps its version for it. VersionNotFoundError where there is no such tag. [GC10]"""
    if not isinstance(name, str):
        raise UsageError(f"a tag's name is a text, not {name!r}")
    head = session.open()
    choose_version(session.store, head, version=None, as_of=None, tag=name)
    return _commit(session, head, "untag", TagEdit(name=name))


def _commit(session: Session, head: Head, operation: str, edit: TagEdit) -> Outcome:
    job = session.new_job(head)
    return commit(session, head, Change(job=job, birth=head.version, operation=operation, tag=edit))


def _check_name(name: object) -> None:
    if not is_text(name) or any(unicodedata.category(each) == "Cc" for each in name):
        raise UsageError(f"a tag's name is a non-empty text without control characters, not {name!r}")


def _until(session: Session, keep_for: str | dt.timedelta) -> int:
    seconds = parse_age(keep_for, "keep_for")
    until = session.env.now_us() + round(seconds * 1_000_000)
    if seconds <= 0 or until > _LATEST_US:
        raise UsageError(f"keep_for is a time from now on, such as 30d, not {keep_for!r}; without it a tag stays until it is taken away")
    return until

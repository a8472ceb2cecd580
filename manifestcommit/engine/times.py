"""Which version a reader asked for: by number, by tag, by time. [RD4] [RD5]"""

from __future__ import annotations

import datetime as dt
import re

from ..core.snapshot import Snapshot
from ..errors import SnapshotExpiredError, UsageError, VersionNotFoundError
from ..store import Store
from .head import Head, missing_version, open_head, read_object

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_AGE = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)


def parse_moment(micros: int) -> dt.datetime:
    """Microseconds since the epoch as an aware datetime in UTC."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def to_micros(moment: str | dt.datetime) -> int:
    """Microseconds since the epoch of a datetime or an ISO text; one without a zone is UTC. UsageError for anything else. [RD4]"""
    if isinstance(moment, str):
        try:
            moment = dt.datetime.fromisoformat(moment)
        except ValueError:
            raise UsageError(f"as_of is a datetime or an ISO text such as 2013-01-31T12:00:00Z, not {moment!r}") from None
    if not isinstance(moment, dt.datetime):
        raise UsageError(f"as_of is a datetime or an ISO text, not {moment!r}")
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def parse_age(age: str | dt.timedelta, argument: str = "an age") -> float:
    """Seconds of a timedelta, or of a text such as "24h", "7d", "90m" or "30s"; never below 0. UsageError for anything else. [GC1]"""
    if isinstance(age, dt.timedelta):
        seconds = age.total_seconds()
    else:
        found = _AGE.fullmatch(age) if isinstance(age, str) else None
        seconds = int(found[1]) * _UNITS[found[2]] if found else -1.0
    if seconds < 0:
        raise UsageError(f'{argument} is a timedelta or a text such as "24h", "7d" or "90m", and not below 0; {age!r} is none')
    return seconds


def choose_version(store: Store, head: Head, *, version: int | None, as_of: str | dt.datetime | None, tag: str | None) -> int | None:
    """The version meant, or None for the head; at most one of the three may be given. [RD4] [RD5]"""
    given = [name for name, value in (("version", version), ("as_of", as_of), ("tag", tag)) if value is not None]
    if len(given) > 1:
        raise UsageError(f"give one of version, as_of and tag, not {' and '.join(given)}")
    if version is not None:
        if isinstance(version, bool) or not isinstance(version, int):
            raise UsageError(f"version is a number from 1 on, not {version!r}")
        return version
    if tag is not None:
        return _tagged(head.snapshot, tag, store.url)
    return None if as_of is None else _version_at(store, head, to_micros(as_of))


def _tagged(snapshot: Snapshot, tag: str, url: str) -> int:
    if tag not in snapshot.tags:
        known = ", ".join(sorted(snapshot.tags)) or "none"
        raise VersionNotFoundError(f"{url} has no tag {tag!r}; it has: {known}")
    return snapshot.tags[tag].version


def _version_at(store: Store, head: Head, moment: int) -> int:
    """The highest readable version not committed after the moment: a binary search, since times never decrease along the chain. [CM14]"""
    if head.snapshot.committed_at <= moment:
        return head.version
    low, high = head.snapshot.expired, head.version  # the answer lies in [low, high)
    if _committed_at(store, low) > moment:
        raise VersionNotFoundError(f"{store.url} has no readable version as old as {parse_moment(moment).isoformat()}; the oldest is {low}")
    while high - low > 1:
        middle = (low + high) // 2
        if _committed_at(store, middle) <= moment:
            low = middle
        else:
            high = middle
    return low


def _committed_at(store: Store, version: int) -> int:
    found = read_object(store, version)
    if found is not None:
        return found.snapshot.committed_at
    if version < (oldest := open_head(store).snapshot.expired):
        raise SnapshotExpiredError(f"{store.url}: versions below {oldest} expired while the time was looked up; ask again")
    raise missing_version(version)

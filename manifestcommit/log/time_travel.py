"""Time travel: which version a reader asks for, by number, tag or time. [RD4] [RD5]"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias, TypeVar

import msgspec

from ..errors import SnapshotExpiredError, UsageError, VersionNotFoundError
from ..format.change import Advance, Position
from ..format.snapshot import Commit, KeyRecord, Snapshot, is_far
from ..protocol.joint_outcome import is_part
from ..runtime.environment import Env, SystemEnv
from ..runtime.validation import wrong
from ..store import Store
from ..store.base import now_of
from .manifests import KEY_RUN
from .table_context import TableContext
from .version_chain import (
    Head,
    missing_version,
    next_state,
    open_head,
    raise_if_expired,
    read_object,
    read_version,
    walk_back,
)

# Looks up the record of an idempotency key or a job, in the latest version or in the runs that it
# spilled.

JobState: TypeAlias = Literal["committed", "given_up"]
_Found = TypeVar("_Found")


def find_key(ctx: TableContext, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The record of a key, inlined or spilled; None: never committed, invalidated or forgotten. A
    run that lacks the key is read only once. [KY1] [WM5]"""
    record = find_record(ctx, snapshot, key)
    return record if record is not None and record.digest else None


def find_record(ctx: TableContext, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The newest record of a key, inlined or spilled, or that invalidates it. [KY7]"""
    return snapshot.keys[key] if key in snapshot.keys else _spilled_key(ctx, snapshot, key)


def dropped_at(ctx: TableContext, snapshot: Snapshot, key: str | None) -> int:
    """Where a rewind or a rollback invalidated this key; 0: recorded, or unknown. [KY7]"""
    record = find_record(ctx, snapshot, key) if key is not None else None
    return record.version if record is not None and not record.digest else 0


def find_key_at(ctx: TableContext, head: Head, key: str) -> tuple[Head, KeyRecord | None]:
    """A key's record at this head, or a newer one if gc deleted its runs since. [KY1] [RD3]"""
    return _at(ctx, head, lambda snapshot: find_key(ctx, snapshot, key))


def _spilled_key(ctx: TableContext, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The newest record in the runs: a key that was invalidated is in several. [OB11]"""
    absent = ctx.absent_keys.setdefault(key, set())
    newest: KeyRecord | None = None
    for run in snapshot.key_runs:
        if run.path in absent:
            continue
        row = ctx.manifests.lookup((run,), key, KEY_RUN)
        if row is None:
            absent.add(run.path)
        elif newest is None or int(str(row["version"])) > newest.version:
            newest = KeyRecord(version=int(str(row["version"])), digest=str(row["digest"]))
    return newest


def find_job(
    ctx: TableContext, snapshot: Snapshot, job: str, *, runs: bool = True
) -> tuple[JobState | None, int | None]:
    """A job's record, inlined or (with `runs`) spilled: state and version. [CM1]"""
    return ctx.manifests.job(snapshot, job, runs=runs)


def find_job_at(
    ctx: TableContext, head: Head, job: str
) -> tuple[Head, tuple[JobState | None, int | None]]:
    """A job's record at this head, or a newer one if its runs are gone. [CM1] [RD3]"""
    return _at(ctx, head, lambda snapshot: find_job(ctx, snapshot, job))


def _at(ctx: TableContext, head: Head, look: Callable[[Snapshot], _Found]) -> tuple[Head, _Found]:
    while True:
        try:
            with raise_if_expired(ctx.store, head.version):
                return head, look(head.snapshot)
        except SnapshotExpiredError:
            head = ctx.open()


# Moves of a source's watermark.


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that advanced a source from `start` to `end`; None: unknown to the table; is_joint:
    whether it is part of a commit of several tables. [WM1] [CM24] [MT14]"""

    version: int
    commit: Commit
    start: Position
    end: Position
    is_joint: bool = False


def steps(ctx: TableContext, head: Head, source: str) -> Iterator[Step]:
    """Every move of a source's watermark, newest first, back to the first one. One request per
    version. [WM1]

    SnapshotExpiredError if the readable history ends before that.
    """
    first = head.snapshot
    if source not in first.watermarks:
        return
    for newer, older in _pairs(ctx, head):
        yield from _moves(newer, source, older)
        if older is None or source not in older.watermarks:
            return
        first = older
    raise SnapshotExpiredError(
        f"{ctx.store.url}: the readable history begins at version {first.version}, "
        f"where source {source!r} was at "
        f"{first.watermarks[source]!r} already; what moved it before is no longer known"
    )


def committed_ranges(
    ctx: TableContext, head: Head, ranges: Iterable[Advance], oldest: int
) -> frozenset[Advance]:
    """Those of these ranges that a version from `oldest` on committed, since their source was set
    back last: what a rewind set back is read again. One request per version. [WM2]"""
    waiting = set(ranges)
    found: set[Advance] = set()
    for newer, older in _pairs(ctx, head, oldest):
        for advance in tuple(waiting):
            for step in _moves(newer, advance.source, older):
                is_it = (step.start, step.end) == (advance.start, advance.end)
                if is_it or step.commit.operation == "rewind":
                    found.update({advance} if is_it else ())
                    waiting.discard(advance)
                    break
            if older is not None and advance.source not in older.watermarks:
                waiting.discard(advance)
        if not waiting:
            break
    return frozenset(found)


def _pairs(
    ctx: TableContext, head: Head, oldest: int = 1
) -> Iterator[tuple[Snapshot, Snapshot | None]]:
    """Each version and the one before, newest first, from `oldest` on; None: it is the first."""
    newer: Snapshot | None = None
    for older in _ancestors(ctx, head):
        if older.version < oldest:
            return
        if newer is not None:
            yield newer, older
        newer = older
    if newer is not None and newer.version == 1:
        yield newer, None


def _moves(snapshot: Snapshot, source: str, older: Snapshot | None) -> Iterator[Step]:
    """The commits of a version that advanced the source, last first. Every commit records its
    advance, except a single one that moved the watermark. [CM24]"""
    before = None if older is None else older.watermarks.get(source)
    is_joint = older is not None and is_part(snapshot, older)
    for record in reversed(snapshot.commits):
        if source in record.advanced:
            start, end = record.advanced[source]
            yield Step(
                version=snapshot.version, commit=record, start=start, end=end, is_joint=is_joint
            )
    if len(snapshot.commits) == 1 and snapshot.watermarks.get(source) != before:
        yield Step(
            version=snapshot.version,
            commit=snapshot.commits[0],
            start=before,
            end=snapshot.watermarks.get(source),
            is_joint=is_joint,
        )


def _ancestors(ctx: TableContext, head: Head) -> Iterator[Snapshot]:
    """This version and those before it whose work is in it, newest first: the version that a
    rollback restored precedes the rollback. [CF13]"""
    start: Head | None = head
    while start is not None:
        restored: int | None = None
        for older in walk_back(ctx.store, start):
            if older.version < head.snapshot.expired and older is not start:
                break  # a tagged start is readable, but nothing before it
            yield older.snapshot
            restored = next(
                (
                    commit.restored
                    for commit in older.snapshot.commits
                    if commit.restored is not None
                ),
                None,
            )
            if restored is not None:
                break
        try:
            start = None if restored is None else read_version(ctx.store, head, restored)
        except SnapshotExpiredError:
            return


LOG = logging.getLogger("manifestcommit.jobs")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_AGE = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)


def to_datetime(micros: int) -> dt.datetime:
    """Microseconds since the epoch as an aware datetime in UTC; times out of range become the first
    or the last datetime.

    The end of a tag may lie beyond Python's last year.
    """
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
    except OverflowError:
        return (dt.datetime.max if micros > 0 else dt.datetime.min).replace(tzinfo=dt.UTC)


def to_micros(moment: str | dt.datetime) -> int:
    """Microseconds since the epoch of a datetime or an ISO text; without a zone it is UTC.
    UsageError for anything else. [RD4]"""
    try:
        time = dt.datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        if isinstance(time, dt.datetime):
            time = (
                time.astimezone(dt.UTC) if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
            )
    except (ValueError, OverflowError):  # not a time, or out of the range of UTC
        time = None
    if not isinstance(time, dt.datetime):
        raise wrong("as_of", moment, "a datetime or an ISO text", "2013-01-31T12:00:00Z")
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def parse_age(age: str | dt.timedelta, argument: str = "age") -> float:
    """Seconds of a timedelta, or of a text such as "24h", "7d", "90m" or "30s"; never negative.
    UsageError for anything else. [GC1]"""
    if isinstance(age, dt.timedelta):
        seconds = age.total_seconds()
    else:
        match = _AGE.fullmatch(age) if isinstance(age, str) else None
        seconds = int(match[1]) * _UNITS[match[2]] if match else -1.0
    if seconds < 0:
        raise wrong(
            argument,
            age,
            "a timedelta, or a number with a unit (s, m, h, d, w), and not below 0",
            "24h or 7d",
        )
    return seconds


def choose_version(
    store: Store,
    head: Head,
    *,
    version: int | None,
    as_of: str | dt.datetime | None,
    tag: str | None,
) -> int | None:
    """The requested version; None: the latest. At most one argument is given. [RD4] [RD5]"""
    given = [
        name
        for name, value in (("version", version), ("as_of", as_of), ("tag", tag))
        if value is not None
    ]
    if len(given) > 1:
        raise UsageError(f"give one of version, as_of and tag, not {' and '.join(given)}")
    if version is not None:
        if isinstance(version, bool) or not isinstance(version, int):
            raise wrong("version", version, "a whole number from 1 on")
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
    """The highest readable version not committed after that time: a binary search, since times
    never decrease along the chain. [CM14]"""
    if head.snapshot.committed_at <= moment:
        return head.version
    low, high = head.snapshot.expired, head.version  # the answer lies in [low, high)
    if (oldest := _committed_at(store, head, low)) > moment:
        _check_undisputed(store, head, moment, low, oldest)
        raise VersionNotFoundError(
            f"{store.url} has no readable version as old as "
            f"{to_datetime(moment).isoformat()}; the oldest is {low}"
        )
    while high - low > 1:
        middle = (low + high) // 2
        if _committed_at(store, head, middle) <= moment:
            low = middle
        else:
            high = middle
    _check_undisputed(store, head, moment, high, _committed_at(store, head, high))
    for void in reversed(head.snapshot.void):  # was never a state of the table [MT8]
        low -= void == low
    if low < head.snapshot.expired:
        raise VersionNotFoundError(
            f"{store.url} has no readable version as old as {to_datetime(moment).isoformat()}"
        )
    return low


def _check_undisputed(store: Store, head: Head, moment: int, above: int, said: int) -> None:
    """VersionNotFoundError if the version above the answer was certainly not committed at its
    recorded time, a warning if that is possible. [CM27]

    The recorded time is certainly wrong if it lies in the future, or if the clocks of later writers
    have reached it. If their clocks jumped over it, theirs may be the wrong ones.
    """
    env: Env = getattr(store, "env", None) or SystemEnv()
    now = now_of(store)
    now_us = env.now_us() if now is None else int(now * 1e6)
    dispute = next(
        (disputed for disputed in head.snapshot.disputed_times if disputed.first == above), None
    )
    is_ahead = said > now_us and is_far(said, now_us)
    if dispute is None and not is_ahead:
        return
    last = head.version if dispute is None else dispute.last
    text = (
        f"{store.url}: which version was the newest at {to_datetime(moment).isoformat()} is not "
        f"known. Versions {above} to {last} say that they were committed at "
        f"{to_datetime(said).isoformat()}, by a clock that is far from the others'. Choose one of "
        "them, or one before them, by its number: version=…."
    )
    if is_ahead or (dispute is not None and not is_far(dispute.said, dispute.clock)):
        raise VersionNotFoundError(text)
    LOG.warning("%s Version %d is read.", text, above - 1)


def _committed_at(store: Store, head: Head, version: int) -> int:
    """When a version was committed; of a void one, when the next that is a state was: its object
    may be of another table. [LY15]"""
    version = next_state(head.snapshot, version)
    stored = head if version == head.version else read_object(store, version)
    if stored is not None:
        return stored.snapshot.committed_at
    if version < (oldest := open_head(store).snapshot.expired):
        raise SnapshotExpiredError(
            f"{store.url}: versions below {oldest} expired while the time was looked up; ask again"
        )
    raise missing_version(version)

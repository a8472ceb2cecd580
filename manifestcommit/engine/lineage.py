"""Where a source's positions are: which version brought one, which files hold it, and setting the watermark back. [RD9] [WM5]

Not here: what an advance is and when it holds (core.watermark).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..core import manifest_table
from ..core.change import Change, Rewind
from ..core.manifest import SourceRange
from ..core.snapshot import REPLACE, Commit, Snapshot
from ..core.watermark import Position, check_advance, is_left_by
from ..errors import SnapshotExpiredError, UsageError
from . import plan
from .commit import commit
from .given import check_reason
from .head import Head, read_version, walk_back
from .lookup import find_key_at
from .outcome import Outcome
from .session import Session
from .undone import give_up_published

_Listed = tuple[str, int, str, tuple[SourceRange, ...]]  # path, the version that added it, its job, what it says that it holds
_Commits = frozenset[tuple[int, str]]  # version, job


class FileRange(msgspec.Struct, frozen=True, kw_only=True):
    """A live file and the range of the source that it holds; start, end: None where the file itself does not say. version: as `added`."""

    path: str
    version: int
    start: Position = None
    end: Position = None


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a position of a source is. version: the commit that brought it, or, where the history that tells is expired, the one that
    has rewritten its file since; files: the live ones that hold it; exact: whether the files
    themselves say so, or some only came with that version and say nothing. [RD9]"""

    source: str
    position: int
    version: int
    files: tuple[FileRange, ...] = ()
    exact: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that moved a source's watermark from `start` to `end`; None: unknown to the table. [WM1] [CM24]"""

    version: int
    commit: Commit
    start: Position
    end: Position


def trace(session: Session, source: str, position: int) -> Lineage | None:
    """Which version and which live files hold this position; None: no version does. [RD9]

    One request per manifest; where no file says what it holds, one more per version back to the one that brought the position.
    """
    if isinstance(position, bool) or not isinstance(position, int):
        raise UsageError(f"a position is a whole number, not {position!r}: texts have no order, so that no file can be told by one")
    head = session.open()
    snapshot = head.snapshot
    have, origin = snapshot.watermarks.get(source), snapshot.origins.get(source)
    if isinstance(have, str):
        raise UsageError(f"source {source!r} has texts as positions, which have no order: which file holds one cannot be told")
    entries = tuple(_entries(session, snapshot))
    holding = tuple(_holding(entries, source, position))
    if holding:  # they may hold what a rewind has made to be read again
        ranges = tuple(each for each, _ in holding)
        newest = max(each.version for each in ranges)
        commits = frozenset((newest, job) for each, job in holding if each.version == newest)
        step = None if have is None else _before_compaction(session, head, source, position, newest)
        version = newest if step is None else step.version
        silent = _brought(entries, commits if step is None else commits | {(step.version, step.commit.job)})
        return Lineage(source=source, position=position, version=version, files=(*ranges, *silent), exact=not silent)
    if have is None:
        raise UsageError(_unknown(session, snapshot, source))
    if position >= have or (isinstance(origin, int) and position < origin):
        return None
    step = _moved_over(session, head, source, position)
    if step is None:
        return None
    files = _brought(entries, frozenset({(step.version, step.commit.job)}))
    return Lineage(source=source, position=position, version=step.version, files=files)


def _moved_over(session: Session, head: Head, source: str, position: int) -> Step | None:
    """The newest commit that moved the source over this position."""
    for step in steps(session, head, source):
        if isinstance(step.end, int) and position < step.end and (not isinstance(step.start, int) or step.start <= position):
            return step
    return None


def _before_compaction(session: Session, head: Head, source: str, position: int, version: int) -> Step | None:
    """Where that version only replaced files: the commit that brought their rows, as far as the history tells. [GC11]"""
    try:
        snapshot = read_version(session.store, head, version).snapshot
        if all(commit.operation == REPLACE for commit in snapshot.commits):
            return _moved_over(session, head, source, position)
    except SnapshotExpiredError:
        pass
    return None


def steps(session: Session, head: Head, source: str) -> Iterator[Step]:
    """Each move of a source's watermark, newest first, down to the one that made it known. One request per version. [WM1]

    SnapshotExpiredError where the readable history ends before that.
    """
    newer: Snapshot | None = None
    for older in _ancestors(session, head):
        if newer is not None:
            yield from _moves(newer, source, older.watermarks.get(source))
        if source not in older.watermarks:
            return
        newer = older
    assert newer is not None
    if newer.version > 1:
        raise SnapshotExpiredError(
            f"{session.store.url}: the readable history begins at version {newer.version}, where source {source!r} stood at "
            f"{newer.watermarks[source]!r} already; what moved it before cannot be told any more"
        )
    yield from _moves(newer, source, None)


def _moves(snapshot: Snapshot, source: str, before: Position) -> Iterator[Step]:
    """The commits of a version that moved the source, last first: of several, each says so itself. [CM24]"""
    if len(snapshot.commits) > 1:
        for commit in reversed(snapshot.commits):
            if source in commit.advanced:
                start, end = commit.advanced[source]
                yield Step(version=snapshot.version, commit=commit, start=start, end=end)
    elif snapshot.watermarks.get(source) != before:
        yield Step(version=snapshot.version, commit=snapshot.commits[0], start=before, end=snapshot.watermarks.get(source))


def _ancestors(session: Session, head: Head) -> Iterator[Snapshot]:
    """The head and those before it whose work is in it, newest first: before a rollback came the version that it restored. [CF13]"""
    start: Head | None = head
    while start is not None:
        restored: int | None = None
        for each in walk_back(session.store, start):
            if each.version < head.snapshot.expired and each is not start:
                break  # a tagged start is readable, and nothing before it
            yield each.snapshot
            restored = next((commit.restored for commit in each.snapshot.commits if commit.restored is not None), None)
            if restored is not None:
                break
        try:
            start = None if restored is None else read_version(session.store, head, restored)
        except SnapshotExpiredError:
            return


def rewind(session: Session, source: str, to: Position, *, reason: str, keep_keys: bool = False) -> Outcome:
    """Set a source's watermark back in a commit of its own, and drop the keys whose advances that undoes. [WM5]

    One request for each version back to the one that last stood there. Conflicts if the source moves meanwhile.
    """
    check_reason("rewind", reason)
    head = session.open()
    have = head.snapshot.watermarks.get(source)
    if have is None:
        raise UsageError(_unknown(session, head.snapshot, source))
    _check_target(source, have, to)
    # Whether a source ever stood at a text is known to the history only.
    keys = frozenset[str]() if keep_keys and not isinstance(to, str) else _undone_keys(session, head, source, to)
    keys = frozenset() if keep_keys else keys
    if give_up_published(session, head, keys=keys, sources=(source,)):
        return rewind(session, source, to, reason=reason, keep_keys=keep_keys)
    job = session.new_job(head)
    back = Rewind(source=source, have=have, to=to, keys=keys)
    outcome = commit(session, head, Change(job=job, birth=head.version, operation="rewind", rewind=back, reason=reason))
    return msgspec.structs.replace(outcome, dropped_keys=tuple(sorted(keys))) if outcome.committed else outcome


def _check_target(source: str, have: int | str, to: Position) -> None:
    if to is None:
        return
    try:
        check_advance(source, have, to)  # of one kind, and representable
    except ValueError as error:
        if isinstance(have, int) and isinstance(to, int) and not isinstance(to, bool) and -(2**63) <= to < have:
            return
        raise UsageError(str(error)) from None
    if isinstance(have, int) or to == have:
        raise UsageError(f"source {source!r} stands at {have!r}; a rewind sets it back, and {to!r} is not before that")


def _undone_keys(session: Session, head: Head, source: str, to: Position) -> frozenset[str]:
    keys: set[str] = set()
    try:
        for step in steps(session, head, source):
            if is_left_by(to, step.end):
                return frozenset(keys)
            key = step.commit.key
            record = find_key_at(session, head, key)[1] if key is not None else None
            if record is not None and record.version == step.version:
                keys.add(str(key))
    except SnapshotExpiredError as error:
        raise SnapshotExpiredError(
            f"{error}, nor which keys a rewind to {to!r} has to drop. Nothing was changed. Rewind with keep_keys=True (--keep-keys) and "
            "give new keys to the work that is done again."
        ) from None
    if isinstance(to, str) and to != head.snapshot.origins.get(source):
        raise UsageError(f"source {source!r} never stood at {to!r}; texts have no order, so that a rewind leads to where it once stood")
    return frozenset(keys)


def _holding(entries: Iterable[_Listed], source: str, position: int) -> Iterator[tuple[FileRange, str]]:
    for path, version, job, ranges in entries:
        for each in ranges:
            begins = each.start is None or (isinstance(each.start, int) and each.start <= position)
            if each.source == source and begins and isinstance(each.end, int) and position < each.end:
                yield FileRange(path=path, version=version, start=each.start, end=each.end), job


def _brought(entries: Iterable[_Listed], commits: _Commits) -> tuple[FileRange, ...]:
    """The live files of these commits that do not say what they hold; those that do hold no other ranges. [OB8]"""
    return tuple(FileRange(path=path, version=added) for path, added, job, ranges in entries if (added, job) in commits and not ranges)


def _entries(session: Session, snapshot: Snapshot) -> Iterator[_Listed]:
    table = plan.entries_table(session, snapshot)
    names = ("path", "added", "job", "sources")
    for path, added, job, ranges in zip(*(table.column(name).to_pylist() for name in names), strict=True):
        yield path, added, job, manifest_table.source_ranges(ranges)


def _unknown(session: Session, snapshot: Snapshot, source: str) -> str:
    known = sorted(snapshot.watermarks)
    names = ", ".join(repr(each) for each in known[:5]) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
    return f"{session.store.url} knows no source {source!r}; it knows {names or 'none'}"

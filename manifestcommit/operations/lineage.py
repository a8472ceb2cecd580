"""Traces positions of a source: the version that added one, and the files that hold it. [RD9]"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ..display import ReprMixin
from ..errors import SnapshotExpiredError, UsageError
from ..format import manifest_table
from ..format.entries import SourceRange
from ..format.fields import shown
from ..format.snapshot import REPLACE, Snapshot, known_parts
from ..format.watermark import Position
from ..log.table_context import TableContext
from ..log.time_travel import Step, steps
from ..log.version_chain import Head, read_version
from ..scan import planning

# path, the version that added the file, its job, its source ranges
_Listed = tuple[str, int, str, tuple[SourceRange, ...]]
_Commits = frozenset[tuple[int, str]]  # version, job


class FileRange(msgspec.Struct, frozen=True, kw_only=True):
    """A live file that holds a position of a source.

    Attributes:
        path: the file, relative to the table path.
        version: the version that added it.
        start: the start of its range of the source; None: the file records none.
        end: the end of that range, not included; None: the file records none.
    """

    path: str
    version: int
    start: Position = None
    end: Position = None


class Lineage(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """Where a position of a source is.

    Attributes:
        source: the source's name.
        position: the position.
        version: the version that added it or, if that history is expired, the one that has
            rewritten its file since.
        files: the live files that hold it.
        message: what its commit is for; None: nothing was said, or it is expired.
        metadata: what else its commit says.
        author: what is known of the user, host, program and software that made its commit.
        exact: whether every file records the range that it holds; False: some were only added by
            that version and record nothing.

    Spec: RD9.
    """

    source: str
    position: int
    version: int
    message: str | None = None
    metadata: dict[str, str] = {}
    author: dict[str, str] = {}
    files: tuple[FileRange, ...] = ()
    exact: bool = False


def trace(ctx: TableContext, source: str, position: int) -> Lineage | None:
    """The version and the live files that hold this position; None: no version does. [RD9]

    One request per manifest, and one for the version; if no file records its ranges, one for each
    version back to the one that added the position.
    """
    if isinstance(position, bool) or not isinstance(position, int):
        raise UsageError(
            f"a position is a whole number, not {position!r}: texts have no order, so that "
            "no file can be found by one"
        )
    head = ctx.open()
    snapshot = head.snapshot
    have, origin = snapshot.watermarks.get(source), snapshot.origins.get(source)
    if isinstance(have, str):
        raise UsageError(
            f"source {source!r} has texts as positions, which have no order: which file "
            "holds one cannot be known"
        )
    entries = tuple(_entries(ctx, snapshot))
    holding = tuple(_holding(entries, source, position))
    if holding:  # they may hold what is read again after a rewind
        ranges = tuple(span for span, _ in holding)
        newest = max(span.version for span in ranges)
        commits = frozenset((newest, job) for span, job in holding if span.version == newest)
        step = _brought_by(ctx, head, source, position, commits)
        version = newest if step is None else step.version
        silent = _brought(
            entries, commits if step is None else commits | {(step.version, step.commit.job)}
        )
        return Lineage(
            source=source,
            position=position,
            version=version,
            **_said_of(step),
            files=(*ranges, *silent),
            exact=not silent,
        )
    if have is None:
        raise UsageError(unknown_source(ctx, snapshot, source))
    if position >= have or (isinstance(origin, int) and position < origin):
        return None
    step = _moved_over(ctx, head, source, position)
    if step is None:
        return None
    files = _brought(entries, frozenset({(step.version, step.commit.job)}))
    return Lineage(
        source=source, position=position, version=step.version, files=files, **_said_of(step)
    )


def _said_of(step: Step | None) -> dict[str, Any]:
    if step is None:
        return {}
    commit = step.commit
    return {
        "message": commit.message,
        "metadata": commit.metadata,
        "author": known_parts(commit.author),
    }


def _moved_over(ctx: TableContext, head: Head, source: str, position: int) -> Step | None:
    """The newest commit that moved the source's watermark past this position."""
    for step in steps(ctx, head, source):
        if (
            isinstance(step.end, int)
            and position < step.end
            and (not isinstance(step.start, int) or step.start <= position)
        ):
            return step
    return None


def _brought_by(
    ctx: TableContext, head: Head, source: str, position: int, commits: _Commits
) -> Step | None:
    """The commit of these, which are of one version; if that version only replaced files: the one
    that added their rows, as far as the history goes. None: the version is expired. [GC11]"""
    version = max(version for version, _ in commits)
    try:
        snapshot = read_version(ctx.store, head, version).snapshot
    except SnapshotExpiredError:
        return None
    own = next((each for each in snapshot.commits if (version, each.job) in commits), None)
    if source in head.snapshot.watermarks and all(
        each.operation == REPLACE for each in snapshot.commits
    ):
        with contextlib.suppress(SnapshotExpiredError):
            if (step := _moved_over(ctx, head, source, position)) is not None:
                return step
    return None if own is None else Step(version=version, commit=own, start=None, end=None)


def _holding(
    entries: Iterable[_Listed], source: str, position: int
) -> Iterator[tuple[FileRange, str]]:
    for path, version, job, ranges in entries:
        for span in ranges:
            begins = span.start is None or (isinstance(span.start, int) and span.start <= position)
            if (
                span.source == source
                and begins
                and isinstance(span.end, int)
                and position < span.end
            ):
                yield FileRange(path=path, version=version, start=span.start, end=span.end), job


def _brought(entries: Iterable[_Listed], commits: _Commits) -> tuple[FileRange, ...]:
    """The live files of these commits that do not record their ranges; files that do hold no other
    ranges. [OB8]"""
    return tuple(
        FileRange(path=path, version=added)
        for path, added, job, ranges in entries
        if (added, job) in commits and not ranges
    )


def _entries(ctx: TableContext, snapshot: Snapshot) -> Iterator[_Listed]:
    table = planning.entries_table(ctx, snapshot)
    names = ("path", "added", "job", "sources")
    for path, added, job, ranges in zip(
        *(table.column(name).to_pylist() for name in names), strict=True
    ):
        yield path, added, job, manifest_table.source_ranges(ranges)


def unknown_source(ctx: TableContext, snapshot: Snapshot, source: str) -> str:
    """The message for a source that the table does not know; it names those that it knows."""
    known = sorted(snapshot.watermarks)
    names = ", ".join(repr(name) for name in known[:5]) + (
        f" and {len(known) - 5} more" if len(known) > 5 else ""
    )
    return f"{ctx.store.url} knows no source {shown(source)}; it knows {names or 'none'}"

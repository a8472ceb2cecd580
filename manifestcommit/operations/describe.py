"""Describes versions and commits in plain values, for people and `--json`. [OB2] [OB10]"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ..commits.two_phase import list_jobs
from ..display import ReprMixin, relative_path
from ..errors import SnapshotExpiredError, UsageError
from ..format import manifest_table
from ..format.change import Position
from ..format.entries import SourceRange
from ..format.fields import Field, comment_of, is_text, shown, type_text, walk
from ..format.snapshot import REPLACE, Commit, Snapshot, columns_of, known_parts
from ..format.transforms import spelled
from ..log.table_context import Step, TableContext, export_lags, gate, steps
from ..log.version_chain import Head, read_version
from ..protocol.conflict import describe_touch
from ..protocol.joint_outcome import share_of
from ..runtime.validation import to_datetime, wrong
from ..scan import planning


def describe(snapshot: Snapshot, url: str) -> dict[str, Any]:
    """A version in plain values, as `Table.describe` and the command return it. [OB2]"""
    return {
        "url": url,
        "version": snapshot.version,
        "committed_at": to_datetime(snapshot.committed_at).isoformat(),
        "table_id": snapshot.table_id,
        "format_version": snapshot.format_version,
        "writer": snapshot.writer,
        "files": snapshot.totals.files,
        "rows": snapshot.totals.rows,
        "bytes": snapshot.totals.bytes,
        "partition_by": spelled(snapshot.schema, snapshot.partition_by),
        "sources": len(snapshot.watermarks),
        "streams": {
            name: {"query": record.query, "batch": record.batch, "version": record.version}
            for name, record in snapshot.streams.items()
        },
        "oldest_readable_version": snapshot.expired,
        "fence": snapshot.fence,
        "tags": {
            name: {
                "version": tag.version,
                "until": tag.until and to_datetime(tag.until).isoformat(),
            }
            for name, tag in snapshot.tags.items()
        },
        "properties": snapshot.properties,
        "constraints": gate().texts_of(snapshot) if snapshot.constraints else {},
        "joint": joint_of(snapshot, url),
        "rank": snapshot.rank,
        "decided_by": sorted(record.root for record in snapshot.homes.values()),
        "decides_for": sorted(record.root for record in snapshot.joint.values()),
        "columns": list(_columns(columns_of(snapshot).fields)),
        "commits": [
            {
                "job": commit.job,
                "operation": commit.operation,
                "key": commit.key,
                "reason": commit.reason,
                **said_of(commit),
                "touched": [describe_touch(snapshot, touch) for touch in commit.touched],
                "summary": values(commit.summary),
            }
            for commit in snapshot.commits
        ],
    }


def _columns(fields: tuple[Field, ...]) -> Iterator[dict[str, Any]]:
    """Every column, and each member that has a comment, by its path. [CK8]"""
    for path, field in walk(fields):
        comment = comment_of(field)
        if len(path) == 1 or comment is not None:
            yield {
                "id": field.id,
                "name": ".".join(path),
                "type": type_text(field.type),
                "nullable": field.nullable,
                "comment": comment,
            }


def said_of(commit: Commit) -> dict[str, Any]:
    """Who made a commit and what for: `message`, `metadata`, known parts of `author`. [OB15]"""
    return {
        "message": commit.message,
        "metadata": dict(commit.metadata),
        "author": known_parts(commit.author),
    }


def joint_of(snapshot: Snapshot, url: str) -> dict[str, Any] | None:
    """The joint commit that a version is part of, None: of none: `decided_by`, the table that
    decided; `attempt`; `partners`, the other tables that the version names, each with its version,
    None: it does not say. [MT3] [MT4]"""
    share = share_of(snapshot)
    if share is None:
        return None
    partners = share.members if share.home is None else {share.home: None}
    return {"decided_by": share.home or url, "attempt": share.attempt, "partners": partners}


def partners_text(joint: Mapping[str, Any] | None, url: str = "") -> str:
    """A joint commit's other tables on one line: `rejects 4, audit 12`. url: of this one."""
    if joint is None:
        return ""
    return ", ".join(
        f"{relative_path(root, url)} {f'{version:,}' if version else '(decides)'}"
        for root, version in joint["partners"].items()
    )


def author_text(author: Mapping[str, str]) -> str:
    """An author on one line: `user@host program`. [OB15]"""
    place = "@".join(author[part] for part in ("user", "host") if part in author)
    return " ".join(text for text in (place, author.get("program")) if text)


def values(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields by name, zeros included, unknown ones omitted."""
    known = msgspec.structs.asdict(struct)
    known.pop("extra", None)
    return known


_Commits = frozenset[tuple[int, str]]  # version, job


class _File(NamedTuple):
    """A live file. version: that added it."""

    path: str
    version: int
    job: str
    ranges: tuple[SourceRange, ...]


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
    """The version and the live files that hold this position; None: no version does. One request
    per manifest, and one for the version; if no file records its ranges, one for each version back
    to the one that added the position. [RD9]"""
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
    files, version, commits = _files(ctx, snapshot), 0, _Commits()
    holding = [
        (file, span) for file in files for span in file.ranges if _holds(span, source, position)
    ]
    if holding:  # they may hold what is read again after a rewind
        version = max(file.version for file, _ in holding)
        commits = frozenset((version, file.job) for file, _ in holding if file.version == version)
        step = _brought_by(ctx, head, source, position, commits)
    elif have is None:
        raise UsageError(unknown_source(ctx, snapshot, source))
    else:
        is_outside = position >= have or (isinstance(origin, int) and position < origin)
        step = None if is_outside else _moved_over(ctx, head, source, position)
        if step is None:
            return None
    said = {} if step is None else said_of(step.commit)
    if step is not None:
        version, commits = step.version, commits | {(step.version, step.commit.job)}
    silent = _brought(files, commits)
    ranges = (
        FileRange(path=file.path, version=file.version, start=span.start, end=span.end)
        for file, span in holding
    )
    return Lineage(
        source=source,
        position=position,
        version=version,
        files=(*ranges, *silent),
        exact=bool(holding) and not silent,
        **said,
    )


def _moved_over(ctx: TableContext, head: Head, source: str, position: int) -> Step | None:
    """The newest commit that moved the source's watermark past this position."""
    for step in steps(ctx, head, source):
        begins = not isinstance(step.start, int) or step.start <= position
        if begins and isinstance(step.end, int) and position < step.end:
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


def _holds(span: SourceRange, source: str, position: int) -> bool:
    begins = span.start is None or (isinstance(span.start, int) and span.start <= position)
    return span.source == source and begins and isinstance(span.end, int) and position < span.end


def _brought(files: Iterable[_File], commits: _Commits) -> tuple[FileRange, ...]:
    """The live files of these commits without ranges; others hold no other ranges. [OB8]"""
    return tuple(
        FileRange(path=file.path, version=file.version)
        for file in files
        if (file.version, file.job) in commits and not file.ranges
    )


def _files(ctx: TableContext, snapshot: Snapshot) -> list[_File]:
    table = planning.entries_table(ctx, snapshot)
    names = ("path", "added", "job", "sources")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return [
        _File(path, version, job, manifest_table.source_ranges(ranges))
        for path, version, job, ranges in rows
    ]


def unknown_source(ctx: TableContext, snapshot: Snapshot, source: str) -> str:
    """The message for a source that the table does not know; it names those that it knows."""
    known = sorted(snapshot.watermarks)
    names = ", ".join(map(repr, known[:5])) or "none"
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    return f"{ctx.store.url} knows no source {shown(source)}; it knows {names}{more}"


class TableMetrics(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """A table in numbers.

    Ages compare the store's or the committer's clock with this machine's, and are never negative.

    Attributes:
        table: the table path.
        version: the latest version.
        head_age_s: seconds since the newest commit, of whatever kind: gc and compaction, too.
        data_age_s: seconds since the last commit that added rows or moved a watermark; None: there
            was none. Compaction, gc, deletes and updates are none.
        source_age_s: source -> seconds since its watermark moved last; None: it never did.
        files: how many live files it has.
        rows: how many rows it has.
        bytes: how many bytes its files have.
        prepared_jobs: how many jobs are prepared and not decided.
        prepared_bytes: the size of their objects, in bytes.
        oldest_prepared_s: seconds since the oldest of these objects was written; None: there is
            none.
        running_jobs: how many jobs have left objects for others and are not prepared.
        watermarks: source -> how far it has been read.
        lag: source -> how far its watermark is behind the given end; None: positions are texts that
            differ.
        export_lag: format of the property `export.formats` -> how many versions its export is
            behind; None: nothing is exported yet.
        export_age_s: format -> seconds since the first version that its export lacks was committed,
            0.0 if it lacks none; None: nothing is exported yet.

    Spec: WM1, EX2.
    """

    table: str
    version: int
    head_age_s: float
    data_age_s: float | None = None
    source_age_s: dict[str, float | None] = {}
    files: int
    rows: int
    bytes: int
    prepared_jobs: int = 0
    prepared_bytes: int = 0
    oldest_prepared_s: float | None = None
    running_jobs: int = 0
    watermarks: dict[str, int | str] = {}
    lag: dict[str, int | None] = {}
    export_lag: dict[str, int | None] = {}
    export_age_s: dict[str, float | None] = {}


def table_metrics(ctx: TableContext, ends: Mapping[str, Any] | None = None) -> TableMetrics:
    """The metrics as of this call: two list requests for the objects of jobs, and a get per run of
    jobs. ends: source -> its end, as for `Table.metrics`. [WM1]"""
    known = _check_ends(ends or {})
    jobs = list(list_jobs(ctx, is_read=False))
    assert ctx.known is not None  # the version by which the jobs were judged
    snapshot = ctx.known.snapshot
    prepared = [job for job in jobs if job.state == "prepared"]
    now_us = ctx.env.now_us()
    behind = export_lags(ctx, snapshot)
    return TableMetrics(
        table=ctx.store.url,
        version=snapshot.version,
        head_age_s=_age_s(now_us, snapshot.committed_at / 1e6),
        data_age_s=data_age_s(snapshot, now_us),
        source_age_s=source_age_s(snapshot, now_us),
        files=snapshot.totals.files,
        rows=snapshot.totals.rows,
        bytes=snapshot.totals.bytes,
        prepared_jobs=len(prepared),
        prepared_bytes=sum(job.size_bytes for job in prepared),
        oldest_prepared_s=_age_s(now_us, min(job.since for job in prepared)) if prepared else None,
        running_jobs=sum(job.state in ("running", "published") for job in jobs),
        watermarks=snapshot.watermarks,
        lag=lag_of(snapshot.watermarks, known),
        export_lag={format: lag.behind for format, lag in behind.items()},
        export_age_s={format: lag.age_s for format, lag in behind.items()},
    )


def data_age_s(snapshot: Snapshot, now_us: int) -> float | None:
    """Seconds since rows were added or a watermark moved; None: never. [OB17]"""
    return None if snapshot.data_at is None else _age_s(now_us, snapshot.data_at / 1e6)


def source_age_s(snapshot: Snapshot, now_us: int) -> dict[str, float | None]:
    """Source -> seconds since its watermark moved; None: never. [OB17]"""
    moved = snapshot.advanced_at
    return {
        source: _age_s(now_us, moved[source] / 1e6) if source in moved else None
        for source in snapshot.origins
    }


def lag_of(
    watermarks: Mapping[str, int | str], ends: Mapping[str, Any] | None
) -> dict[str, int | None]:
    """Source -> how far its watermark is behind its end, as in `TableMetrics.lag`. [WM1]"""
    known = _check_ends(ends or {})
    return {source: _lag(watermarks.get(source), end) for source, end in known.items()}


def _lag(watermark: int | str | None, end: int | str) -> int | None:
    if isinstance(end, str) or isinstance(watermark, str):
        return 0 if end == watermark else None
    # a source that was never read lags by all of it, counted from 0
    return end - (watermark or 0)


def _age_s(now_us: int, since_s: float) -> float:
    return round(max(0.0, now_us / 1e6 - since_s), 3)


def _check_ends(ends: Any) -> dict[str, int | str]:
    """The ends; UsageError for what is no mapping of sources to them."""
    given = ends.items() if isinstance(ends, Mapping) else [(None, ends)]
    for source, end in given:
        is_number = isinstance(end, int) and not isinstance(end, bool) and end.bit_length() <= 63
        if not is_text(source) or not (is_number or isinstance(end, str)):
            expected = "a mapping of sources to whole numbers of 64 bits, or to texts"
            raise wrong("ends", ends, expected, '{"topic:0": 12345}')
    return dict(given)

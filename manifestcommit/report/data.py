"""What a report shows, and how it is read: a bounded number of requests, and nothing is changed.
[RD3] [RD6]
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..commits.two_phase import JobInfo, list_jobs
from ..format.fields import NO_COLUMNS, Field, Schema, type_text
from ..format.snapshot import Commit, Snapshot, Totals
from ..format.transforms import partition_fields
from ..format.values import python_rows
from ..log.table_context import ExportLag, TableContext, export_lags, gate
from ..log.version_chain import raise_if_expired, walk_back
from ..operations import gc
from ..operations.describe import author_text, joint_of, lag_of, partners_text, said_of
from ..operations.upkeep_properties import retention_of
from ..scan.planning import describe_partitions
from ..terminal import plain_text

BUCKETS = 180  # of versions, in charts
COMMITS = 200  # in the table of commits
PARTITIONS = 20
SOURCES = 30
JOBS = 50
CHANGES = 25  # of schemas, each with as many lines
TAGS = 200
REASONS = 20
_TEXT = 400  # characters of a text that is kept
# upper ends of the classes of file sizes, in bytes; the last class has none
SIZE_CLASSES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)


class SchemaChange(NamedTuple):
    """What a version changed in the columns: (sign, column) lines. more: lines beyond them."""

    version: int
    committed_at: int
    lines: tuple[tuple[str, str], ...]
    more: int


class Bucket(msgspec.Struct, kw_only=True):
    """Successive versions that a chart shows as one. totals: at the last of them."""

    first: int
    last: int
    committed_at: int
    totals: Totals
    operations: Counter[str] = msgspec.field(default_factory=Counter)


class SourceRow(NamedTuple):
    """A source: position, lag (None: unknown), and when it moved last (None: never)."""

    source: str
    position: int | str | None
    lag: int | None
    moved_at: int | None


class PartitionRow(NamedTuple):
    """A partition, by its column values in one text."""

    name: str
    files: int
    rows: int
    bytes: int


class GcRow(NamedTuple):
    """Objects that gc would delete for one reason."""

    reason: str
    objects: int
    bytes: int


class FilesView(msgspec.Struct, frozen=True, kw_only=True):
    """Live files, reduced. partitions: the largest; others: the rest in one."""

    partitions: tuple[PartitionRow, ...]
    partition_count: int
    others: PartitionRow | None
    sizes: tuple[int, ...]
    partitioned: bool


class HistoryView:
    """The newest versions, reduced: takes them newest first, one at a time, and keeps what a report
    shows. first, last: the versions that were read; oldest: the oldest readable one; commits: the
    newest; commit_count: of all that were read."""

    def __init__(self, head: Snapshot, last: int, url: str) -> None:
        """last: the number of versions that will be read at most; url: of the table."""
        self._url = url
        self.first, self.last, self.oldest = head.version + 1, head.version, head.expired
        self._low = max(head.expired, head.version - last + 1)
        self._count = head.version - self._low + 1
        self._buckets: dict[int, Bucket] = {}
        self.commits: list[dict[str, Any]] = []  # the page's columns, with bounded texts
        self._operations: Counter[str] = Counter()
        self.commit_count = self.conflicts = self.retries = self.more_schema_changes = 0
        self.schema_changes: list[SchemaChange] = []
        self._newer: Snapshot | None = None

    @property
    def buckets(self) -> list[Bucket]:
        """What charts show, the oldest first."""
        return [self._buckets[at] for at in sorted(self._buckets)]

    @property
    def operations(self) -> dict[str, int]:
        """How many commits did what, the most first."""
        return dict(self._operations.most_common())

    def add(self, snapshot: Snapshot) -> None:
        """Take the next older version."""
        if self._newer is not None:
            self._note_change(snapshot.schema, self._newer)
        self._newer, self.first = snapshot, snapshot.version
        if snapshot.version == 1:
            self._note_change(NO_COLUMNS, snapshot)
        bucket = self._bucket(snapshot)
        bucket.first = snapshot.version
        together = partners_text(joint_of(snapshot, self._url), self._url)[:_TEXT]
        for commit in snapshot.commits:
            summary = commit.summary
            name = commit.operation
            if name not in self._operations and len(self._operations) >= REASONS:
                name = "other"  # an open set: whoever writes metadata may name as many as they like
            bucket.operations[name] += 1
            self._operations[name] += 1
            self.conflicts += summary.conflicts
            self.retries += summary.retries
            self.commit_count += 1
            if len(self.commits) < COMMITS:
                self.commits.append(
                    {
                        "version": snapshot.version,
                        "committed_at": snapshot.committed_at,
                        "operation": commit.operation,
                        "key": commit.key,
                        "author": author_text(said_of(commit)["author"])[:_TEXT],
                        "why": _why(commit),
                        "together": together,
                        "rows": summary.rows - summary.removed_rows,
                        "files": summary.files - summary.removed_files,
                        "size_bytes": summary.bytes - summary.removed_bytes,
                        "seconds": summary.seconds,
                        "conflicts": summary.conflicts,
                        "retries": summary.retries,
                    }
                )

    def _bucket(self, snapshot: Snapshot) -> Bucket:
        at = (snapshot.version - self._low) * min(BUCKETS, self._count) // self._count
        if at not in self._buckets:
            version, when, totals = snapshot.version, snapshot.committed_at, snapshot.totals
            new = Bucket(first=version, last=version, committed_at=when, totals=totals)
            self._buckets[at] = new
        return self._buckets[at]

    def _note_change(self, before: Schema, newer: Snapshot) -> None:
        after = newer.schema
        if before == after:
            return
        if len(self.schema_changes) >= CHANGES:
            self.more_schema_changes += 1
            return
        if lines := tuple(differing_columns(before, after)):
            when, more = newer.committed_at, max(0, len(lines) - CHANGES)
            self.schema_changes.append(SchemaChange(newer.version, when, lines[:CHANGES], more))


def _why(commit: Commit) -> str:
    pairs = [f"{name}={value}" for name, value in commit.metadata.items()]
    pairs += [f"{name}: held" for name in commit.summary.checks]
    return " · ".join(text for text in (commit.reason, commit.message, *pairs) if text)[:_TEXT]


def differing_columns(before: Schema, after: Schema) -> Iterator[tuple[str, str]]:
    """Lines of a diff: ("-", column) and ("+", column), by field id. [SC6]"""
    old = {field.id: field for field in before.fields}
    new = {field.id: field for field in after.fields}
    for field in before.fields:
        if field != new.get(field.id):
            yield "-", _column(field)
            if field.id in new:
                yield "+", _column(new[field.id])
    for field in after.fields:
        if field.id not in old:
            yield "+", _column(field)


def _column(field: Field) -> str:
    return f"{field.name[:200]}: {type_text(field.type)[:200]}"


class ReportData(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a page shows. made_at: microseconds since the epoch; tags: (name, version),
    those of the versions read first; constraints: (name, condition); jobs: that wait; exports: by
    format [EX2]; gc: None: it was not asked for."""

    url: str
    made_at: int
    snapshot: Snapshot
    constraints: tuple[tuple[str, str], ...]
    tags: tuple[tuple[str, int], ...]
    history: HistoryView
    file_view: FilesView
    sources: tuple[SourceRow, ...]
    jobs: tuple[JobInfo, ...]
    job_states: dict[str, int]
    exports: Mapping[str, ExportLag]
    gc: tuple[GcRow, ...] | None


def most_behind(
    watermarks: Mapping[str, int | str], lag: Mapping[str, int | None]
) -> list[tuple[str, int | None]]:
    """The sources that a report shows, with their lag: the furthest behind first."""

    def place(item: tuple[str, int | None]) -> tuple[int, bool, str]:
        return -(item[1] or 0), item[1] is None, item[0]

    known = {source: lag.get(source) for source in {**watermarks, **lag}}
    return heapq.nsmallest(SOURCES, known.items(), key=place)


def gc_rows(plan: pa.Table) -> tuple[GcRow, ...]:
    """A plan of gc by reason, the most bytes first. [GC5]"""
    sums = plan.group_by(["action", "reason"]).aggregate([("bytes", "count"), ("bytes", "sum")])
    gone = [each for each in sums.to_pylist() if each["action"] == "delete"]
    rows = [GcRow(each["reason"], each["bytes_count"], each["bytes_sum"]) for each in gone]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.reason))[:REASONS])


_WAITING = ("prepared", "published", "running")


def read_report(
    ctx: TableContext, *, last: int, with_gc: bool, ends: Mapping[str, Any] | None
) -> ReportData:
    """What a report shows, as of this call. Opens the table, reads `last` versions at most, the
    manifests and their removals, and lists the objects of jobs; with_gc: what a dry run of gc
    reads, too. Memory: one version, the partition and the size of each file, and what is shown."""
    jobs, states = _jobs(ctx)
    head = ctx.known
    assert head is not None  # the version by which the jobs were judged
    snapshot = head.snapshot
    at, moved = snapshot.watermarks, snapshot.advanced_at
    behind = most_behind(at, lag_of(at, ends))
    sources = [SourceRow(name, at.get(name), lag, moved.get(name)) for name, lag in behind]
    history = HistoryView(snapshot, last, ctx.store.url)
    for each in itertools.islice(walk_back(ctx.store, head), last):
        history.add(each.snapshot)
    tags = [(name, tag.version) for name, tag in snapshot.tags.items()]
    tags.sort(key=lambda tag: (-tag[1], tag[0]))
    return ReportData(
        url=ctx.store.url,
        made_at=ctx.env.now_us(),
        snapshot=snapshot,
        constraints=tuple(gate().texts_of(snapshot).items()) if snapshot.constraints else (),
        tags=tuple(tags[:TAGS]),
        history=history,
        file_view=_files(ctx, snapshot),
        sources=tuple(sources),
        jobs=jobs,
        job_states=states,
        exports=export_lags(ctx, snapshot),
        gc=gc_rows(gc.plan(ctx, retention_of(snapshot))) if with_gc else None,
    )


def _jobs(ctx: TableContext) -> tuple[tuple[JobInfo, ...], dict[str, int]]:
    """The waiting jobs, the oldest first, and how many jobs are in each state."""
    states: Counter[str] = Counter()

    def waiting() -> Iterator[JobInfo]:
        for job in list_jobs(ctx):
            states[job.state] += 1
            if job.state in _WAITING:
                yield job

    oldest = heapq.nsmallest(JOBS, waiting(), key=lambda job: (job.since, job.job))
    return tuple(oldest), dict(states)


def _files(ctx: TableContext, snapshot: Snapshot) -> FilesView:
    names = [*(f"partition.{each}" for each in snapshot.partition_by), "rows", "bytes"]
    with raise_if_expired(ctx.store, snapshot.version):
        removed = ctx.manifests.removed(snapshot)
        parts = [ctx.manifests.inlined(snapshot).select(names)]
        for ref in snapshot.manifests:
            parts.append(ctx.manifests.columns(ref, snapshot, removed.get(ref.path, 0), names))
    files = pa.concat_tables(parts)
    fields = partition_fields(snapshot.schema, snapshot.partition_by)
    partitions = describe_partitions(files, snapshot)
    return files_view(partitions, [each.name for each in fields], files.column("bytes").to_pylist())


def files_view(partitions: pa.Table, names: Sequence[str], sizes: Iterable[int]) -> FilesView:
    """The largest partitions, and all others as one. partitions: as `describe_partitions` has them;
    names: of the partition columns; sizes: of files, in bytes."""

    def text(values: Iterable[Any]) -> str:
        pairs = zip(names, values, strict=True)
        return "/".join(f"{name[:100]}={plain_text(value)[:100]}" for name, value in pairs)

    ordered = partitions.sort_by([("bytes", "descending")])
    shown = [[*row.values()] for row in python_rows(ordered.slice(0, PARTITIONS))]
    largest = [PartitionRow(text(row[:-3]), *row[-3:]) for row in shown]
    rest = ordered.slice(PARTITIONS).select(["files", "rows", "bytes"])
    left = {name: pc.sum(rest.column(name)).as_py() for name in rest.column_names}
    classes = Counter(bisect_right(SIZE_CLASSES, size) for size in sizes)
    return FilesView(
        partitions=tuple(largest),
        partition_count=partitions.num_rows,
        others=PartitionRow(name="all others", **left) if rest.num_rows else None,
        sizes=tuple(classes[each] for each in range(len(SIZE_CLASSES) + 1)),
        partitioned=bool(names),
    )

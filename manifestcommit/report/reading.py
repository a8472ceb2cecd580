"""Reads what a report shows, with a bounded number of requests; changes nothing. [RD3] [RD6]"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ..commits.two_phase import list_jobs
from ..format.snapshot import Snapshot
from ..format.transforms import partition_fields
from ..format.values import python_rows
from ..log.table_context import TableContext, export_lags, gate
from ..log.version_chain import raise_if_expired, walk_back
from ..operations import gc
from ..operations.describe import lag_of
from ..operations.upkeep_properties import retention_of
from .data import (
    JOBS,
    SIZE_CLASSES,
    TAGS,
    ExportRow,
    FilesReducer,
    FilesView,
    Group,
    HistoryReducer,
    JobRow,
    ReportData,
    SourceRow,
    gc_rows,
    most_behind,
    others_text,
)

MANIFESTS = 1000  # that are read; the files of further ones are not counted
_WAITING = ("prepared", "published", "running", "staged")


def read_report(
    ctx: TableContext, *, last: int, with_gc: bool, ends: Mapping[str, Any] | None
) -> ReportData:
    """What a report shows, as of this call.

    Opens the table, reads `last` versions at most, at most 1,000 manifests and their removals, and
    lists the objects of jobs; with_gc: what a dry run of gc reads, too. Memory: one version, one
    manifest, and what is shown.
    """
    jobs, states = _jobs(ctx)
    head = ctx.known
    assert head is not None  # the version by which the jobs were judged
    snapshot = head.snapshot
    behind = most_behind(snapshot.watermarks, lag_of(snapshot.watermarks, ends))
    reducer = HistoryReducer(snapshot, last, ctx.store.url)
    for each in itertools.islice(walk_back(ctx.store, head), last):
        reducer.add(each.snapshot)
    history = reducer.view()
    tags = sorted(((name, tag.version) for name, tag in snapshot.tags.items()), key=_newest)
    return ReportData(
        url=ctx.store.url,
        made_at=ctx.env.now_us(),
        version=snapshot.version,
        committed_at=snapshot.committed_at,
        data_at=snapshot.data_at,
        rows=snapshot.totals.rows,
        files=snapshot.totals.files,
        bytes=snapshot.totals.bytes,
        columns=len(snapshot.schema.fields) if snapshot.schema else 0,
        constraints=tuple(gate().texts_of(snapshot).items()) if snapshot.constraints else (),
        source_count=len(snapshot.watermarks),
        tag_count=len(tags),
        tags=tuple(tags[:TAGS]),
        history=history,
        file_view=_files(ctx, snapshot),
        sources=tuple(
            SourceRow(
                source=source,
                position=snapshot.watermarks.get(source),
                lag=lag,
                moved_at=snapshot.advanced_at.get(source),
            )
            for source, lag in behind
        ),
        jobs=jobs,
        job_states=states,
        exports=tuple(
            ExportRow(format=format, version=lag.version, behind=lag.behind, age_s=lag.age_s)
            for format, lag in export_lags(ctx, snapshot).items()
        ),
        gc=gc_rows(gc.plan(ctx, retention_of(snapshot))) if with_gc else None,
    )


def _newest(tag: tuple[str, int]) -> tuple[int, str]:
    return -tag[1], tag[0]


def _jobs(ctx: TableContext) -> tuple[tuple[JobRow, ...], dict[str, int]]:
    """The waiting jobs, the oldest first, and how many jobs are in each state."""
    states: Counter[str] = Counter()
    url = ctx.store.url

    def waiting() -> Iterator[JobRow]:
        for job in list_jobs(ctx):
            states[job.state] += 1
            if job.state in _WAITING:
                yield JobRow(
                    job=job.job,
                    state=job.state,
                    since=job.since,
                    size_bytes=job.size_bytes,
                    together=others_text(job.together, url),
                )

    oldest = heapq.nsmallest(JOBS, waiting(), key=lambda job: (job.since, job.job))
    return tuple(oldest), dict(states)


def _files(ctx: TableContext, snapshot: Snapshot) -> FilesView:
    if snapshot.schema is None:
        return FilesReducer(()).view()
    fields = partition_fields(snapshot.schema, snapshot.partition_by)
    reducer = FilesReducer(tuple(field.name for field in fields))
    with raise_if_expired(ctx.store, snapshot.version):
        for table in _entries(ctx, snapshot):
            reducer.add(_size_classes(table), _groups(table, snapshot))
    return reducer.view()


def _entries(ctx: TableContext, snapshot: Snapshot) -> Iterator[pa.Table]:
    """Partition, rows and bytes of the live files, one manifest at a time."""
    names = [*(f"partition.{each}" for each in snapshot.partition_by), "rows", "bytes"]
    yield ctx.manifests.inlined(snapshot).select(names)
    references = snapshot.manifests[:MANIFESTS]
    removed = ctx.manifests.removed(snapshot) if references else {}
    for ref in references:
        yield ctx.manifests.columns(ref, snapshot, removed.get(ref.path, 0), names)


def _size_classes(table: pa.Table) -> list[int]:
    found = Counter(bisect_right(SIZE_CLASSES, size) for size in table.column("bytes").to_pylist())
    return [found[each] for each in range(len(SIZE_CLASSES) + 1)]


def _groups(table: pa.Table, snapshot: Snapshot) -> Iterator[Group]:
    keys = [f"partition.{each}" for each in snapshot.partition_by]
    if not table.num_rows:
        return
    sums = table.group_by(keys).aggregate([("rows", "count"), ("rows", "sum"), ("bytes", "sum")])
    names = [*keys, "rows_count", "rows_sum", "bytes_sum"]
    for row in python_rows(sums.select(names)):
        *values, files, rows, size = row.values()
        yield tuple(values), files, rows, size

"""Metrics of a table that concern no single job: its size, waiting and running jobs, and its lag
behind its sources. [WM1]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..commits.two_phase import list_jobs
from ..display import ReprMixin
from ..errors import UsageError
from ..format.fields import is_text, shown
from ..format.snapshot import Snapshot
from ..log import exports
from ..log.table_context import TableContext


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
    """The metrics as of this call. Opens the table, and takes two list requests for the objects of
    jobs, and a get per run of jobs. [WM1]

    ends: source -> its end, as for `Table.metrics`.
    """
    known = _check_ends(ends or {})
    jobs = list(list_jobs(ctx, is_read=False))
    assert ctx.known is not None  # the version by which the jobs were judged
    snapshot = ctx.known.snapshot
    prepared = [job for job in jobs if job.state == "prepared"]
    now_us = ctx.env.now_us()
    behind = exports.lags(ctx, snapshot)
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


def _check_ends(ends: Mapping[str, Any]) -> dict[str, int | str]:
    if not isinstance(ends, Mapping):
        raise UsageError(
            f'ends maps a source to its end, such as {{"topic:0": 12345}}; it is no '
            f"{type(ends).__qualname__}"
        )
    for source, end in ends.items():
        if not is_text(source):
            raise UsageError(
                f"ends maps a source to a whole number or a text; {shown(source)} is not the "
                "name of a source"
            )
        if (
            isinstance(end, bool)
            or not isinstance(end, int | str)
            or (isinstance(end, int) and end.bit_length() > 63)
        ):
            raise UsageError(
                "ends maps a source to a whole number of 64 bits, or to a text; "
                f"{shown(source)} has {shown(end)}"
            )
    return dict(ends)

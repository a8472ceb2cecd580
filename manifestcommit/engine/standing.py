"""How a table stands, in numbers that are of no single job: its size, what waits in it, and how far it lags behind its sources. [WM1]

Not here: what a job did (engine.figures), how figures leave the process (telemetry).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import UsageError
from .prepare import list_jobs
from .session import Session


class TableFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A table in numbers. [WM1]

    head_age_s: since the newest commit; running_jobs: those that left something for others and are not prepared; oldest_prepared_s:
    None where no job is prepared; lag: source -> how far its watermark is behind the end that the caller knows, None where positions are
    texts that differ. Ages are of the store's or the committer's clock against this one, and never below 0.
    """

    table: str
    version: int
    head_age_s: float
    files: int
    rows: int
    bytes: int
    prepared_jobs: int = 0
    prepared_bytes: int = 0
    oldest_prepared_s: float | None = None
    running_jobs: int = 0
    watermarks: dict[str, int | str] = {}
    lag: dict[str, int | None] = {}


def stand(session: Session, ends: Mapping[str, Any] | None = None) -> TableFigures:
    """The table as of this call. The head, two lists of what jobs have left, a get per run of jobs. [WM1]

    ends: source -> its end, as for `Table.figures`.
    """
    known = _check_ends(ends or {})
    jobs = list(list_jobs(session))
    assert session.known is not None  # the head that the jobs were judged by
    snapshot = session.known.snapshot
    prepared = [job for job in jobs if job.state == "prepared"]
    now_us = session.env.now_us()
    return TableFigures(
        table=session.store.url,
        version=snapshot.version,
        head_age_s=_age_s(now_us, snapshot.committed_at / 1e6),
        files=snapshot.totals.files,
        rows=snapshot.totals.rows,
        bytes=snapshot.totals.bytes,
        prepared_jobs=len(prepared),
        prepared_bytes=sum(job.size_bytes for job in prepared),
        oldest_prepared_s=_age_s(now_us, min(job.since for job in prepared)) if prepared else None,
        running_jobs=sum(job.state in ("running", "published") for job in jobs),
        watermarks=snapshot.watermarks,
        lag={source: _lag(snapshot.watermarks.get(source), end) for source, end in known.items()},
    )


def _lag(watermark: int | str | None, end: int | str) -> int | None:
    if isinstance(end, str) or isinstance(watermark, str):
        return 0 if end == watermark else None
    return end - (watermark or 0)  # a source that nobody has read lags by all it has, counted from 0


def _age_s(now_us: int, since_s: float) -> float:
    return round(max(0.0, now_us / 1e6 - since_s), 3)


def _check_ends(ends: Mapping[str, Any]) -> dict[str, int | str]:
    if not isinstance(ends, Mapping):
        raise UsageError(f'ends maps a source to its end, such as {{"topic:0": 12345}}; it is no {type(ends).__qualname__}')
    for source, end in ends.items():
        if not isinstance(source, str) or isinstance(end, bool) or not isinstance(end, int | str):
            raise UsageError(f"ends maps a source to a whole number or a text; {source!r} has {end!r}")
    return dict(ends)

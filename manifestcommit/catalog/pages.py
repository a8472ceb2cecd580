"""Pages of a lake and its tables: no script, and a policy against requests to others. [LK9]"""

from __future__ import annotations

import base64
import hashlib
import itertools
import logging
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from ..commits.two_phase import JobInfo, list_jobs
from ..display import age, counted, cut
from ..errors import ManifestCommitError
from ..format.fields import type_text
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext, export_lags
from ..log.version_chain import walk_back
from ..operations.describe import source_age_s
from ..report import page as report_page
from ..report.data import HistoryView, read_report
from ..runtime.environment import map_concurrently
from ..store import StorageOptions, Store, open_store
from ..table import Table
from ..version import __version__
from .lake import FoundTable

LOG = logging.getLogger("manifestcommit.serve")
_COMMITS = 50  # and versions, on the page of a table
_VERSIONS = 200  # in its report
_AT_ONCE = 16  # tables that are opened
_TEXT = 400  # characters of a problem


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A table in the list of tables. name: None where it has none; version: None if the table
    cannot be opened; times in microseconds; waiting: jobs that are prepared; problems:
    what is wrong, none if it is healthy."""

    path: str
    name: str | None
    version: int | None = None
    rows: int = 0
    bytes: int = 0
    files: int = 0
    committed_us: int = 0
    data_us: int | None = None
    waiting: int = 0
    problems: tuple[str, ...] = ()


class Kept:
    """What takes long to read: kept, and read again in the background when it is old. Each
    call gets what is there, and how old it is. [LK9]"""

    def __init__(self, read: Callable[[], tuple[list[Row], int]], refresh_us: int) -> None:
        self._read, self._refresh_us = read, refresh_us
        self._found: tuple[list[Row], int] | None = None
        self._lock, self._reading = threading.Lock(), threading.Lock()

    def get(self, now_us: int) -> tuple[list[Row], int]:
        """The rows, and when they were read. Only the first call waits for them."""
        with self._lock:
            if self._found is None:
                self._found = self._read()
            found = self._found
        is_old = not 0 <= now_us - found[1] < self._refresh_us
        if is_old and self._reading.acquire(blocking=False):
            threading.Thread(target=self._again, name="manifestcommit-pages", daemon=True).start()
        return found

    def _again(self) -> None:
        try:
            self._found = self._read()
        except Exception as error:
            LOG.warning("the list of tables could not be read again: %s", error)
        finally:
            self._reading.release()


def read_rows(lake: Store, options: StorageOptions | None, found: list[FoundTable]) -> list[Row]:
    """A row for each table: one version is opened, exports and objects of jobs are looked at."""
    ordered = sorted(found, key=lambda each: each.path)

    def read(each: FoundTable) -> Row:
        path = "/".join(each.path)
        try:
            ctx = TableContext(open_store(f"{lake.url}/{path}", options))
            return row_of(ctx, [*list_jobs(ctx, is_read=False)], path, each.name)
        except ManifestCommitError as error:
            return Row(path=path, name=each.name, problems=(cut(error, _TEXT),))

    return map_concurrently(lake, read, ordered, limit=_AT_ONCE)


def row_of(ctx: TableContext, jobs: list[JobInfo], path: str, name: str | None) -> Row:
    """What the list shows of a table, as of the version by which its jobs were judged."""
    assert ctx.known is not None
    snapshot, problems = ctx.known.snapshot, []
    for format, lag in export_lags(ctx, snapshot).items():
        if lag.version is None:
            problems.append(f"nothing is exported to {format}")
        elif lag.behind:
            problems.append(
                f"the export to {format} is {counted(lag.behind, 'version')} behind, for "
                f"{age(lag.age_s or 0.0)}"
            )
    return Row(
        path=path,
        name=name,
        version=snapshot.version,
        rows=snapshot.totals.rows,
        bytes=snapshot.totals.bytes,
        files=snapshot.totals.files,
        committed_us=snapshot.committed_at,
        data_us=snapshot.data_at,
        waiting=sum(job.state == "prepared" for job in jobs),
        problems=tuple(problems),
    )


def lake_page(url: str, rows: list[Row], made_us: int, now_us: int, search: str) -> str:
    """The list of tables whose paths contain the text."""
    shown = [row for row in rows if search.casefold() in row.path.casefold()]
    return _rendered(
        page="lake",
        title=url,
        url=url,
        rows=shown,
        count=len(rows),
        search=search,
        made_us=made_us,
        age_s=(now_us - made_us) / 1e6,
        now_s=now_us / 1e6,
    )


def table_page(lake: str, table: Table, name: str, sample: int) -> str:
    """One table: its health, its sources and jobs, its schema, its newest commits, and as many rows
    as `sample`. At most 50 versions are read."""
    ctx = table._ctx
    store, head = ctx.store, ctx.open()
    snapshot, jobs = head.snapshot, [*list_jobs(ctx)]
    now_us = ctx.env.now_us()
    ages_s = source_age_s(snapshot, now_us)
    history = HistoryView(snapshot, _COMMITS, store.url)
    for each in itertools.islice(walk_back(store, head), _COMMITS):
        history.add(each.snapshot)
    return _rendered(
        page="table",
        title=name,
        lake=lake,
        url=store.url,
        snapshot=snapshot,
        columns=snapshot.schema.fields,
        row=row_of(ctx, jobs, "", name),
        sources=[
            (source, position, ages_s.get(source))
            for source, position in sorted(snapshot.watermarks.items())
        ],
        jobs=jobs,
        sample=sampled(table, snapshot, sample),
        history=history.commits[:_COMMITS],
        now_s=now_us / 1e6,
    )


def sampled(table: Table, snapshot: Snapshot, most: int) -> list[list[str]]:
    """Some rows, as texts."""
    if not most or not snapshot.totals.rows:
        return []
    found = table.dataset(snapshot.version).head(most)
    return [list(row) for row in zip(*(map(_cell, column) for column in found), strict=True)]


def _cell(value: pa.Scalar[Any]) -> str:
    try:
        return "null" if not value.is_valid else str(value.as_py())
    except (ValueError, OverflowError):  # such as a time after the year 9999
        return str(pa.array([value], value.type)).strip("[] \n")


def report(table: Table) -> str:
    """The report of a table, as `Table.report` makes it."""
    return report_page.render(read_report(table._ctx, last=_VERSIONS, with_gc=False, ends=None))


def problem_page(title: str, message: str) -> str:
    """Why there is no other page."""
    return _rendered(page="problem", title=title, message=message)


def policy() -> str:
    """What a browser may do with a page: show its style, and send its search to this server."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


def _rendered(**values: Any) -> str:
    text: str = _template().render(style=_style(), release=__version__, **values)
    # A lone surrogate, which some stores' names have, has no form in UTF-8.
    return text.encode("utf-8", "backslashreplace").decode()


@cache
def _style() -> str:
    return (
        report_page.style() + ":root{--link:#2a63ad}td.name:first-child{min-width:12em}\n"
        "@media (prefers-color-scheme:dark){:root{--link:#6aa5ee}}\n"
        "a{color:var(--link)}.filter{align-items:baseline}.filter button{font:inherit}\n"
    )


@cache
def _template() -> Any:
    environment = report_page.environment(Path(__file__).parent)
    environment.filters.update(type=type_text)
    return environment.get_template("pages.html.j2")

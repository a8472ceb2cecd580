"""Metrics for operators: one log record per job that ended, and OpenTelemetry's metrics where that
package is installed. [OB10]

Logger `manifestcommit.jobs`: INFO for what ended well or was aborted, WARNING for conflicts,
failures and unknown outcomes, DEBUG for each version that another job won; each record has the
figures as plain values in its attribute `manifestcommit`. Metrics go to the meter provider of the
application, under `manifestcommit.`, seconds in `s`, bytes in `By`. No credential and no data is in
either. For other sinks, add a function to `runtime.outcome.observers`.

Internal: it may change in any release.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from .display import counted, size_text, visible
from .runtime.outcome import JobMetrics, observers

if TYPE_CHECKING:
    from .operations.describe import TableMetrics

LOG = logging.getLogger("manifestcommit.jobs")
# Without one, Python would print warnings of programs that have no logging to standard error; what
# they say is an exception as well.
LOG.addHandler(logging.NullHandler())

_WELL = ("committed", "already_committed", "prepared", "aborted", "left")
_SENTENCES = {
    "committed": "committed version {version:,} of {table}: {work} in {seconds:.1f} s, {attempts}",
    "already_committed": "{job} of {table} was committed before, at version {version:,}: "
    "nothing was done",
    "prepared": "prepared {job} of {table}: {work} in {seconds:.1f} s",
    "aborted": "aborted {job} of {table}: {work}, none of it visible",
    "left": "left {job} of {table} for its rerun: {work}, none of it visible",
    "failed": "{job} of {table} ended with an error after {attempts}",
    "unknown": "it is not known whether {job} of {table} was committed, after {attempts}; "
    "nothing was deleted",
}
_OTHERWISE = "{job} of {table} was not committed: {kind}, after {attempts}"


# Member of JobMetrics or TableMetrics -> (metric below `manifestcommit.`, unit, description).
_AMOUNTS = {
    "rows": ("rows", "{row}", "Rows that jobs read, wrote and committed"),
    "bytes": ("bytes", "By", "Bytes that jobs read (as Arrow), wrote and committed"),
    "files": ("files", "{file}", "Data files that jobs wrote and committed"),
}
_COUNTS = {
    "attempts": ("commit.attempts", "{attempt}", "Versions contended for"),
    "conflicts": ("commit.conflicts", "{conflict}", "Versions contended for that others won"),
    "unknowns": ("commit.unknowns", "{answer}", "Creates of versions without a clear answer"),
    "retries": ("store.retries", "{request}", "Requests to the store that were sent again"),
}
_ENDED = {
    "checks": ("checks", "{check}", "Checks of staged jobs, by result"),
    "jobs": ("jobs", "{job}", "Jobs that ended, by outcome"),
}
_SPENT = {
    "commit_s": ("commit.duration", "s", "How long commits took, waiting included"),
    "prepare_s": ("prepare.duration", "s", "How long it took to make jobs durable"),
}
_ADDED = "Time since the last commit that added rows or moved a watermark"
_OLDEST = "Age of the oldest of them, 0 if there is none"
_RUNNING = "Jobs that left something for others, not prepared"
_GAUGES = {
    "version": ("table.version", "{version}", "The newest version"),
    "head_age_s": ("table.head_age", "s", "Time since the newest commit"),
    "data_age_s": ("table.data_age", "s", _ADDED),
    "files": ("table.files", "{file}", "Live files"),
    "rows": ("table.rows", "{row}", "Live rows"),
    "bytes": ("table.size", "By", "Bytes of live files"),
    "prepared_jobs": ("table.prepared_jobs", "{job}", "Jobs that are prepared and undecided"),
    "oldest_prepared_s": ("table.oldest_prepared_age", "s", _OLDEST),
    "running_jobs": ("table.running_jobs", "{job}", _RUNNING),
}
# Member of TableMetrics, by source or by format of an export -> the same.
_BY_SOURCE = {
    "source_age_s": ("source.age", "s", "Time since the watermark of a source moved"),
    "lag": ("source.lag", "{position}", "How far the table is behind the end of a source"),
}
_BY_FORMAT = {
    "export_lag": ("export.lag", "{version}", "Versions that an export is behind"),
    "export_age_s": ("export.age", "s", "Time since the first version that an export lacks"),
}


class Instruments:
    """The metrics of one meter provider."""

    def __init__(self, provider: Any) -> None:
        meter = provider.get_meter("manifestcommit")

        def made(create: Any, metrics: dict[str, tuple[str, str, str]]) -> dict[str, Any]:
            return {
                member: create(f"manifestcommit.{name}", unit, description)
                for member, (name, unit, description) in metrics.items()
            }

        self._amounts = made(meter.create_counter, _AMOUNTS)
        self._counts = made(meter.create_counter, _COUNTS)
        self._gauges = made(meter.create_gauge, _GAUGES)
        self._by_source = made(meter.create_gauge, _BY_SOURCE)
        self._by_format = made(meter.create_gauge, _BY_FORMAT)
        ended, spent = made(meter.create_counter, _ENDED), made(meter.create_histogram, _SPENT)
        self.checks, self._jobs = ended["checks"], ended["jobs"]
        self._commit_s, self._prepare_s = spent["commit_s"], spent["prepare_s"]

    def record(self, figures: JobMetrics) -> None:
        """A job that ended. What a first phase has reported is not reported by the second."""
        base = {"manifestcommit.table": figures.table}
        base["manifestcommit.operation"] = figures.operation
        states = ["committed"] if figures.phase == "second" else ["read", "written", "committed"]
        for state in states:
            for name, instrument in self._amounts.items():
                if amount := getattr(figures, f"{name}_{state}", None):
                    instrument.add(amount, {**base, "manifestcommit.state": state})
        for name, instrument in self._counts.items():
            if amount := getattr(figures, name):
                instrument.add(amount, base)
        ended = {**base, "manifestcommit.outcome": figures.kind}
        self._jobs.add(1, ended)
        if figures.attempts:
            self._commit_s.record(figures.commit_s, ended)
        if figures.phase == "first":
            self._prepare_s.record(figures.prepare_s, base)

    def record_table(self, figures: TableMetrics) -> None:
        """The gauges of a table."""
        base = {"manifestcommit.table": figures.table}
        for name, instrument in self._gauges.items():
            if (value := getattr(figures, name)) is not None or name != "data_age_s":
                instrument.set(value or 0, base)
        for name, instrument in self._by_source.items():
            for source, value in getattr(figures, name).items():
                if value is not None:
                    instrument.set(value, {**base, "manifestcommit.source": source})
        for format, behind in figures.export_lag.items():
            if behind is not None:
                labels = {**base, "manifestcommit.format": format}
                self._by_format["export_lag"].set(behind, labels)
                self._by_format["export_age_s"].set(figures.export_age_s[format] or 0.0, labels)


def count(figures: JobMetrics) -> None:
    """A job that ended, as metrics. [OB10]"""
    if (instruments := _instruments()) is not None:
        instruments.record(figures)


def count_checks(table: str, held: Iterable[bool]) -> None:
    """Checks of a staged job, as metrics."""
    if (instruments := _instruments()) is not None:
        for each in held:
            result = "held" if each else "failed"
            base = {"manifestcommit.table": table, "manifestcommit.result": result}
            instruments.checks.add(1, base)


def record_table(figures: TableMetrics) -> None:
    """Log the metrics of a table, and set its gauges."""
    waiting = f"{counted(figures.prepared_jobs, 'prepared job')}, {figures.running_jobs:,} running"
    holds = f"{counted(figures.files, 'file')}, {counted(figures.rows, 'row')}"
    text = f"{visible(figures.table)} is at version {figures.version:,}: {holds}, {waiting}"
    with contextlib.suppress(Exception):  # a sink that is broken is no reason to answer nothing
        LOG.info("%s", text, extra={"manifestcommit": msgspec.to_builtins(figures)})
        if (instruments := _instruments()) is not None:
            instruments.record_table(figures)


def log(figures: JobMetrics) -> None:
    """A job that ended, as one record. [OB10]"""
    level = logging.INFO if figures.kind in _WELL else logging.WARNING
    if not LOG.isEnabledFor(level):
        return
    state = "committed" if figures.kind == "committed" else "written"
    files, rows, size = (getattr(figures, f"{name}_{state}") for name in ("files", "rows", "bytes"))
    sentence = _SENTENCES.get(figures.kind, _OTHERWISE).format(
        table=visible(figures.table),
        job=f"job {figures.job}" if figures.job else "a job",
        version=figures.version or 0,
        work=f"{counted(files, 'file')}, {counted(rows, 'row')}, {size_text(size)}",
        seconds=figures.seconds,
        attempts=counted(figures.attempts, "attempt"),
        kind=f"{figures.kind.replace('_', ' ')}{f' ({figures.rule})' if figures.rule else ''}",
    )
    LOG.log(level, "%s", sentence, extra={"manifestcommit": msgspec.to_builtins(figures)})


_lock = threading.Lock()
_made: list[Instruments | None] = []


def _instruments() -> Instruments | None:
    """Those of the application's meter provider, which may be set later; None where there can be
    none yet, and for good where the package is not installed."""
    if not _made:
        if not _has_provider():
            return None
        with _lock:
            if not _made:
                _made.append(_make())
    return _made[0]


def _has_provider() -> bool:
    """Whether somebody can have set a meter provider: in code, for which the package is imported,
    or by a variable. Importing it takes as long as a small commit."""
    return "opentelemetry.metrics" in sys.modules or "OTEL_PYTHON_METER_PROVIDER" in os.environ


def _make() -> Instruments | None:
    try:
        from opentelemetry import metrics  # late: most programs do without
    except ImportError:
        return None
    try:
        return Instruments(metrics.get_meter_provider())
    except Exception as error:  # such as an API that is too old
        LOG.warning("there will be no metrics: %s", error)
        return None


observers += [log, count]

"""What operators' tools get: log records with fields, OpenTelemetry metrics through the real SDK, and neither a secret nor data. [SE1]"""

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.docs.blocks import REPO, run
from tests.kit import tables
from tests.kit.faults import before_create

import manifestcommit as mc
from manifestcommit import telemetry
from manifestcommit.operations.describe import TableMetrics
from manifestcommit.runtime.outcome import JobMetrics
from manifestcommit.telemetry import Instruments
from manifestcommit.testing.faults import FaultStore

ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "secret": ["hunter2"] * 3})
LOGGER = "manifestcommit.jobs"
PAGE = REPO / "docs" / "how-to" / "monitor.md"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a b%\n\x1b[31m日本"


class Metrics:
    """What one reader of the SDK has collected."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self.reader])

    def points(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Metric -> attributes (without our prefix) and value; of a histogram the count."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "manifestcommit"
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        attributes = {name.removeprefix("manifestcommit."): each for name, each in point.attributes.items()}
                        value = point.value if hasattr(point, "value") else point.count
                        found.setdefault(metric.name.removeprefix("manifestcommit."), []).append((attributes, value))
        return found

    def sums(self, name: str, by: str) -> dict[str, Any]:
        """Of one metric, by one attribute."""
        found: Counter[str] = Counter()
        for attributes, value in self.points().get(name, []):
            found[attributes[by]] += value
        return dict(found)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    """The library's instruments on a provider of this test's own."""
    found = Metrics()
    monkeypatch.setattr(telemetry, "_made", [Instruments(found.provider)])
    yield found
    found.provider.shutdown()


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Callable[[], list[logging.LogRecord]]:
    caplog.set_level(logging.DEBUG, logger="manifestcommit")
    return lambda: [record for record in caplog.records if record.name == LOGGER]


Records = Callable[[], list[logging.LogRecord]]


# --- logging ----------------------------------------------------------------------------------------------------------
def test_each_job_that_ended_is_one_record_with_its_figures(root: Path, records: Records) -> None:
    """A logger that writes JSON has the fields, and a person a sentence. [OB10]"""
    outcome = mc.write(ROWS, root)
    (record,) = records()
    assert record.levelno == logging.INFO
    fields = record.manifestcommit  # type: ignore[attr-defined]  # it is an extra
    assert fields == json.loads(json.dumps(fields)) == msgspec.to_builtins(outcome.metrics)
    url = mc.Table(root).url
    assert record.getMessage().startswith("committed version 2 of file://") and ": 1 file, 3 rows, " in record.getMessage()
    assert record.getMessage().endswith(", 1 attempt") and fields["table"] == url
    assert record.getMessage().isprintable(), "a path cannot forge lines of a log"


@pytest.mark.parametrize(
    ("figures", "level", "said"),
    [
        ({"kind": "committed", "version": 1234, "files_committed": 3, "rows_committed": 1000, "bytes_committed": 12_345, "attempts": 2,
          "seconds": 0.24}, logging.INFO, "committed version 1,234 of s3://b/t: 3 files, 1,000 rows, 12.3 kB in 0.2 s, 2 attempts"),
        ({"kind": "already_committed", "version": 7}, logging.INFO,
         "job v1 of s3://b/t was committed before, at version 7: nothing was done"),
        ({"kind": "prepared", "files_written": 1, "bytes_written": 999, "seconds": 1}, logging.INFO,
         "prepared job v1 of s3://b/t: 1 file, 0 rows, 999 B in 1.0 s"),
        ({"kind": "aborted", "bytes_written": 999_960}, logging.INFO,
         "aborted job v1 of s3://b/t: 0 files, 0 rows, 1.0 MB, none of it visible"),
        ({"kind": "conflict", "rule": "watermark_gap", "attempts": 1}, logging.WARNING,
         "job v1 of s3://b/t was not committed: conflict (watermark_gap), after 1 attempt"),
        ({"kind": "key_reused"}, logging.WARNING, "job v1 of s3://b/t was not committed: key reused, after 0 attempts"),
        ({"kind": "fenced"}, logging.WARNING, "job v1 of s3://b/t was not committed: fenced, after 0 attempts"),
        ({"kind": "failed", "attempts": 1}, logging.WARNING, "job v1 of s3://b/t ended with an error after 1 attempt"),
        ({"kind": "unknown", "attempts": 1}, logging.WARNING,
         "it is not known whether job v1 of s3://b/t was committed, after 1 attempt; nothing was deleted"),
    ],
)  # fmt: skip
def test_every_end_has_its_sentence_and_its_level(records: Records, figures: dict[str, Any], level: int, said: str) -> None:
    """[OB10]"""
    telemetry.log(JobMetrics(table="s3://b/t", job="v1", **figures))
    (record,) = records()
    assert (record.levelno, record.getMessage()) == (level, said)


def test_conflicts_warn_and_lost_creates_are_for_debugging(records: Records) -> None:
    """[CF1] [CM3]"""
    store = tables.memory()
    tables.write(store, ROWS, watermarks={"s": (0, 5)})
    with pytest.raises(mc.errors.WatermarkGapError):
        tables.write(store, ROWS, watermarks={"s": (9, 10)})
    assert records()[-1].levelno == logging.WARNING and "watermark_gap" in records()[-1].getMessage()
    tables.write(before_create(store, lambda: tables.write(store, ROWS)), ROWS)
    lost = [record for record in records() if record.levelno == logging.DEBUG]
    assert len(lost) == 1 and "another job won version 3" in lost[0].getMessage()


@pytest.mark.thorough
def test_a_program_without_logging_sees_nothing_and_the_library_sets_nothing_up(tmp_path: Path) -> None:
    """No handler but the one that drops, no level; a conflict is an exception, and no line on standard error."""
    script = f"""
import logging, manifestcommit as mc, pyarrow as pa
rows = pa.table({{"n": [1]}})
mc.write(rows, {str(tmp_path)!r}, watermarks={{"s": (0, 5)}})
try:
    mc.write(rows, {str(tmp_path)!r}, watermarks={{"s": (9, 10)}})
except mc.errors.WatermarkGapError:
    print("gap")
names = [name for name in logging.root.manager.loggerDict if name.startswith("manifestcommit")]
print([(name, logging.getLogger(name).level, [type(each).__name__ for each in logging.getLogger(name).handlers]) for name in sorted(names)])
print(logging.root.handlers)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["gap", "[('manifestcommit', 0, []), ('manifestcommit.jobs', 0, ['NullHandler'])]", "[]"] or (
        done.stdout.splitlines() == ["gap", "[('manifestcommit.jobs', 0, ['NullHandler'])]", "[]"]
    )


def test_a_handler_that_fails_fails_no_commit(root: Path) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("by the test")

    broken, logger = Broken(), logging.getLogger(LOGGER)
    logger.addHandler(broken)
    logger.setLevel(logging.INFO)
    try:
        assert mc.write(ROWS, root).committed and mc.Table(root).metrics().rows == 3
    finally:
        logger.removeHandler(broken)
        logger.setLevel(logging.NOTSET)


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------
def test_jobs_become_metrics(root: Path, metrics: Metrics) -> None:
    """Read, written and committed apart; by table, operation and outcome. [OB10]"""
    mc.write(ROWS, root, key="k")
    mc.write(ROWS, root, key="k")
    mc.write(ROWS.slice(0, 1), root, mode="overwrite")
    url = mc.Table(root).url
    assert metrics.sums("rows", "state") == {"read": 4, "written": 4, "committed": 4}
    assert metrics.sums("rows", "operation") == {"append": 9, "overwrite": 3}
    assert metrics.sums("files", "state") == {"written": 2, "committed": 2}
    size = metrics.sums("bytes", "state")
    assert size["written"] == size["committed"] > size["read"] > 0
    assert metrics.sums("jobs", "outcome") == {"committed": 2, "already_committed": 1}
    assert metrics.sums("commit.attempts", "table") == {url: 2}
    assert metrics.sums("commit.duration", "outcome") == {"committed": 2}, "what sent no create took no time to commit"
    assert not {"commit.conflicts", "commit.unknowns", "store.retries", "prepare.duration"} & set(metrics.points())


def test_what_went_wrong_becomes_metrics(metrics: Metrics) -> None:
    """[CM6] [CF1] [OB10]"""
    store = tables.memory()
    tables.write(store, ROWS, watermarks={"s": (0, 5)})
    with pytest.raises(mc.errors.WatermarkGapError):
        tables.write(store, ROWS, watermarks={"s": (9, 10)})
    calls = FaultStore(tables.clone(store))
    tables.write(calls, ROWS)
    create = next(call.number for call in calls.calls if call.kind == "put_if_absent" and "/versions/" in call.name)
    tables.write(FaultStore(store, {create: "answer_lost"}), ROWS)
    tables.write(before_create(store, lambda: tables.write(store, ROWS)), ROWS)
    assert metrics.sums("jobs", "outcome")["conflict"] == 1
    for name in ("commit.unknowns", "store.retries", "commit.conflicts"):
        assert metrics.sums(name, "operation") == {"append": 1}, name


def test_a_tables_gauges_are_set_when_its_figures_are_asked_for(root: Path, metrics: Metrics) -> None:
    """[WM1] [AB3]"""
    mc.write(ROWS, root, watermarks={"t:0": (0, 5)})
    with mc.begin(root) as job:
        job.write(ROWS)
        job.prepare()
    assert "table.rows" not in metrics.points()
    table = mc.Table(root)
    table.metrics({"t:0": 12, "text": "x"})
    points = metrics.points()
    assert points["source.lag"] == [({"table": table.url, "source": "t:0"}, 7)]
    assert {name: points[f"table.{name}"] for name in ("version", "files", "rows", "prepared_jobs", "running_jobs")} == {
        name: [({"table": table.url}, value)]
        for name, value in {"version": 2, "files": 1, "rows": 3, "prepared_jobs": 1, "running_jobs": 0}.items()
    }
    assert points["table.size"][0][1] == sum(table.files()["bytes"].to_pylist())
    for name in ("table.head_age", "table.data_age", "source.age"):
        assert 0 <= points[name][0][1] < 60
    assert points["source.age"][0][0] == {"table": table.url, "source": "t:0"}
    assert 0 <= points["table.oldest_prepared_age"][0][1] < 60
    mc.Table(root).abort(job.id)
    table.metrics()
    assert metrics.points()["table.oldest_prepared_age"][0][1] == 0


def test_the_lag_of_exports_is_a_gauge(root: Path, metrics: Metrics) -> None:
    """[EX2]"""
    mc.create_table(root, ROWS.schema, properties={"export.formats": "delta"})
    table = mc.Table(root)
    table.export("delta")
    odd = ROWS.schema.empty_table().append_column("odd", pa.array([], pa.duration("us")))  # what Delta cannot express
    mc.write(odd, root, merge_schema=True)
    table.metrics()
    points = metrics.points()
    assert points["export.lag"] == [({"table": table.url, "format": "delta"}, 1)]
    assert 0 <= points["export.age"][0][1] < 60


def test_every_metric_has_a_unit_a_description_and_a_name_of_ours() -> None:
    """By OpenTelemetry's conventions: one namespace, lower case, UCUM units, and no name that is also a namespace."""
    found = Metrics()
    instruments = Instruments(found.provider)
    many = {name: 2 for name, kind in JobMetrics.__annotations__.items() if kind in ("int", "int | None")}
    instruments.record(JobMetrics(table="t", job="j", kind="committed", **many))
    instruments.record(JobMetrics(table="t", job="j", kind="prepared", phase="first"))
    ages: dict[str, Any] = {"data_age_s": 1.0, "source_age_s": {"s": 1.0}}
    exports = {"export_lag": {"delta": 3}, "export_age_s": {"delta": 1.5}}
    instruments.record_table(TableMetrics(table="t", version=1, head_age_s=1, files=1, rows=1, bytes=1, lag={"s": 1}, **ages, **exports))
    data = found.reader.get_metrics_data()
    metrics = [metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics]
    names = {metric.name for metric in metrics}
    assert len(metrics) == len(names) == 23
    assert all(metric.unit in ("s", "By") or metric.unit.startswith("{") for metric in metrics)
    assert all(metric.description and metric.name.startswith("manifestcommit.") and metric.name.islower() for metric in metrics)
    assert not [(one, other) for one in names for other in names if other.startswith(f"{one}.")]
    page, shown, last = PAGE.read_text("utf-8"), set(), ""
    for name in re.findall(r"`(manifestcommit\.[a-z_.]+|\.[a-z_.]+)`", page):  # `.files` has the prefix of the one before
        last = name if name.startswith("m") else f"{'.'.join(last.split('.')[: -name.count('.')])}{name}"
        shown.add(last)
    assert names <= shown, f"monitor.md does not list {sorted(names - shown)}"
    found.provider.shutdown()


def test_a_table_without_data_sets_no_age(root: Path, metrics: Metrics) -> None:
    """[OB17]"""
    mc.create_table(root, ROWS.schema, sources={"s": 0})
    mc.Table(root).metrics()
    assert "table.head_age" in metrics.points() and not {"table.data_age", "source.age"} & metrics.points().keys()


def test_the_lines_of_the_page_are_ones_that_prometheus_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sources are called. By the grammar of its text format."""
    monkeypatch.chdir(tmp_path)
    hostile = ['t"0', "new\nline", "back\\slash", "ä{}"]
    mc.write(ROWS, "flights", watermarks=dict.fromkeys(hostile, (0, 5)))
    run(PAGE, {"mc": mc}, "Prometheus")
    label = r'[a-z]+="((?:[^"\\\n]|\\[\\n"])*)"'
    lines = (tmp_path / "manifestcommit.prom").read_text("utf-8").splitlines()
    found = [re.fullmatch(rf"manifestcommit_moved_timestamp_seconds\{{{label},{label}\}} (\d+\.?\d*)", line) for line in lines]
    assert all(found), lines
    sources = [re.sub(r"\\(.)", lambda each: {"n": "\n"}.get(each[1], each[1]), each[2]) for each in found if each]
    assert sorted(sources) == sorted([*hostile, ""])
    assert all(abs(float(each[3]) - time.time()) < 60 for each in found if each)


@pytest.mark.thorough
def test_metrics_go_to_the_applications_provider_even_if_it_comes_later(tmp_path: Path) -> None:
    """In a process of its own: an application sets its provider once."""
    script = f"""
import manifestcommit as mc, pyarrow as pa
rows = pa.table({{"n": [1, 2]}})
mc.write(rows, {str(tmp_path)!r})
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
mc.write(rows, {str(tmp_path)!r})
data = reader.get_metrics_data()
print({{m.name: sum(p.value for p in m.data.data_points) for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics
       if m.name == "manifestcommit.rows"}})
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "{'manifestcommit.rows': 6}", done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("before", "env", "imported"),
    [
        ("", {}, False),
        ("", {"OTEL_PYTHON_METER_PROVIDER": "sdk_meter_provider"}, True),
        ("from opentelemetry import metrics", {}, True),
        ("sys.modules['opentelemetry'] = None", {"OTEL_PYTHON_METER_PROVIDER": "sdk_meter_provider"}, False),
    ],
    ids=["no provider", "named by the environment", "imported by the application", "not installed"],
)
def test_the_package_is_imported_only_where_there_can_be_a_provider(
    before: str, env: dict[str, str], imported: bool, tmp_path: Path
) -> None:
    """It takes as long as a small commit."""
    script = f"""
import sys
{before}
import manifestcommit as mc, pyarrow as pa
assert mc.write(pa.table({{"n": [1]}}), {str(tmp_path)!r}).committed
assert mc.Table({str(tmp_path)!r}).metrics().rows == 1
print("opentelemetry.metrics" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, env={**os.environ, **env})
    assert done.stdout.strip() == str(imported), done.stderr


def test_an_api_that_is_too_old_is_told_once_and_fails_nothing(root: Path, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_made", [])
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", lambda: object())
    mc.write(ROWS, root)
    mc.write(ROWS, root)
    assert [record.getMessage() for record in records()].count(
        "there will be no metrics: 'object' object has no attribute 'get_meter'"
    ) == 1

"""What operators see of jobs and tables: figures as values, in the history, and whether all counts match. [OB10]"""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.kit.faults import before_create
from tests.kit.sizes import SetBudgets
from tests.kit.stores import answered, scripted
from tests.kit.tables import Hasty, memory, put_version, session, table_with

import manifestcommit as mc
from manifestcommit.commits.commit_loop import commit
from manifestcommit.format.snapshot import Snapshot, Summary, Totals
from manifestcommit.job import Job
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations.verify import verify
from manifestcommit.runtime.environment import Limits
from manifestcommit.runtime.outcome import InputTotals, JobMetrics, StoreCounters, WriteTotals, observers
from manifestcommit.store import LocalStore, Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.store.object_store import Request
from manifestcommit.testing.faults import CountingStore, FaultCall, FaultStore

ROWS = pa.table({"day": ["a", "a", "b"], "n": pa.array([1, 2, 3], pa.int64())})
HOSTILE = "a b%20+=#'\"日本\n\x1b[31m"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / HOSTILE


@pytest.fixture
def told() -> Iterator[list[JobMetrics]]:
    """Every job that ended."""
    found: list[JobMetrics] = []
    observers.append(found.append)
    yield found
    observers.remove(found.append)


class Retrying(CountingStore):
    """Says how often its requests were sent again."""

    retries = 0


def summary_of(store: Store) -> Summary:
    return open_head(store).snapshot.commits[-1].summary


def begin(store: Store, **options: Any) -> Job:
    return Job(session(store), **options)


def written(store: Store, data: pa.Table = ROWS, **options: Any) -> Job:
    """A job that has written and not ended."""
    job = begin(store, **options)
    job.write(data, partition_by=["day"])
    return job


# --- one job ----------------------------------------------------------------------------------------------------------
def test_a_jobs_figures_are_what_was_handed_in_written_and_committed(root: Path) -> None:
    """[OB10]"""
    with mc.begin(root, key="k") as job:
        job.write(ROWS, partition_by="day")
        job.write(ROWS.slice(0, 1))
        before = job.metrics
    found = job.metrics
    assert job.outcome is not None and job.outcome.metrics == found
    size = sum(mc.Table(root).files()["bytes"].to_pylist())
    assert (before.kind, before.rows_read, before.files_written, before.rows_committed) == ("running", 4, 3, 0)
    assert (found.kind, found.version, found.job, found.table) == ("committed", job.outcome.version, job.id, mc.Table(root).url)
    assert (found.rows_read, found.rows_written, found.rows_committed) == (4, 4, 4)
    assert (found.files_written, found.files_committed, found.bytes_written, found.bytes_committed) == (3, 3, size, size)
    assert found.bytes_read == ROWS.nbytes + ROWS.slice(0, 1).nbytes
    assert (found.operation, found.phase, found.tasks, found.attempts) == ("append", "both", 2, 1)
    assert found.conflicts == found.retries == found.unknowns == 0 and found.prepare_s == 0
    assert 0 < found.commit_s <= found.seconds


def test_the_history_holds_what_is_known_before_the_create(root: Path) -> None:
    """[OB10]"""
    found = table_with(ROWS, root, partition_by="day").history()[0]["summary"]
    assert (found["rows_read"], found["rows_written"], found["rows"]) == (3, 3, 3)
    assert (found["files_written"], found["bytes_written"]) == (found["files"], found["bytes"]) and found["bytes_read"] == ROWS.nbytes
    assert (found["attempts"], found["conflicts"], found["retries"], found["unknowns"], found["prepare_s"]) == (1, 0, 0, 0, 0)
    assert found["seconds"] > 0
    mc.Table(root).set_properties({"x": "y"})
    assert mc.Table(root).history()[0]["summary"]["rows_read"] is None, "a job that handles no rows counts none"


def test_what_is_not_counted_is_not_in_the_document(root: Path) -> None:
    """A commit without rows pays nothing for the figures. [OB10] [OB1]"""
    mc.write(ROWS, root)
    mc.Table(root).set_properties({"x": "y"})
    summary = json.loads(msgspec.json.encode(open_head(LocalStore(str(root))).snapshot))["commits"][0]["summary"]
    assert set(summary) == {"attempts", "seconds"}


def test_a_job_whose_tasks_do_not_say_what_they_were_handed_does_not_say_either(store: MemoryStore) -> None:
    """None is no zero. [OB10]"""
    written(store).commit()
    entries = written(store).entries
    job = begin(store)
    job.add_written([msgspec.structs.replace(each, job=job.id) for each in entries], tasks=1)
    job.write(ROWS)
    outcome = job.commit()
    assert outcome.metrics is not None and outcome.metrics.rows_read is None and outcome.metrics.rows_committed == 6
    assert (summary_of(store).rows_read, summary_of(store).rows_written) == (None, 6)
    assert verify(session(store)).is_sound


def test_a_ledger_counts_entries_and_manifests(set_budgets: SetBudgets) -> None:
    """What tasks wrote as manifests is written as well. [SP9] [OB10]"""
    set_budgets(inline_entry_bytes=100)
    store = memory()
    written(store).commit()
    ref = open_head(store).snapshot.manifests[0]
    ledger = WriteTotals(StoreCounters(store, lambda: 0))
    ledger.take(InputTotals(rows=9, bytes=7, retries=2))
    found = ledger.summary(4, written(store).entries, [ref])
    assert (found.files_written, found.rows_written, found.rows_read, found.bytes_read) == (4, 6, 9, 7)
    assert (found.tasks, found.retries) == (4, 2)


# --- how jobs end -----------------------------------------------------------------------------------------------------
def test_a_commit_that_raises_has_its_figures(told: list[JobMetrics], store: MemoryStore) -> None:
    """[CM8] [OB10]"""
    written(store).commit()

    def refuse(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and call.name.startswith("_manifest/versions/"):
            raise mc.errors.StoreError("refused, by the test")

    job = written(FaultStore(store, on_call=refuse))
    with pytest.raises(mc.errors.StoreError):
        job.commit()
    assert (job.metrics.kind, job.metrics.attempts, job.metrics.rows_written, job.metrics.rows_committed) == ("failed", 1, 3, 0)
    assert told[-1] == job.metrics


def test_lost_creates_are_conflicts_and_attempts(told: list[JobMetrics], store: MemoryStore) -> None:
    """In the history as in the outcome. [CM3] [OB10]"""
    written(store).commit()
    outcome = written(before_create(store, *[lambda: written(store).commit()] * 2)).commit()
    assert outcome.metrics is not None and outcome.attempts == 3
    assert (outcome.metrics.attempts, outcome.metrics.conflicts, outcome.metrics.version) == (3, 2, 5)
    assert (summary_of(store).attempts, summary_of(store).conflicts) == (3, 2)
    assert [each.attempts for each in told] == [1, 1, 1, 3], "and those of others are theirs"


def test_an_outcome_that_is_not_known_has_figures(told: list[JobMetrics], store: MemoryStore) -> None:
    """[CM6] [OB10]"""
    written(store).commit()
    job = written(store)

    def lose(call: FaultCall) -> None:
        if call.kind == "put_if_absent":
            raise mc.errors.StoreUnclearError("by the test")

    faulty = session(FaultStore(store, on_call=lose), Limits(unclear_tries=4))
    found = commit(faulty, open_head(store), job.change()).metrics
    assert found is not None and (found.kind, found.unknowns, found.retries, found.attempts) == ("unknown", 4, 3, 1)
    assert found.rows_written == 3 and found.rows_committed == 0 and told[-1] == found


class Slow(Hasty):
    """A clock that only tests move."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000

    def now_us(self) -> int:
        return self.now


def test_times_are_those_of_the_phases_and_never_below_zero() -> None:
    """Seconds from begin to the create; a clock that is set back makes none negative. [OB10]"""
    store, env = memory(), Slow()
    own = session(store)
    own.env = env
    job = Job(own)
    job.write(ROWS)
    env.now += 2_000_000
    outcome = job.commit()
    assert outcome.metrics is not None and (outcome.metrics.seconds, outcome.metrics.commit_s) == (2.0, 0.0)
    assert summary_of(store).seconds == 2.0
    job = Job(own)
    job.write(ROWS)
    env.now -= 5_000_000
    outcome = job.commit()
    assert outcome.metrics is not None and outcome.metrics.seconds == summary_of(store).seconds == 0.0

    def set_back(call: FaultCall) -> None:
        env.now -= 5_000_000

    own = session(FaultStore(store, on_call=set_back))
    own.env = env
    found = Job(own).commit().metrics
    assert found is not None and found.commit_s == 0.0 <= summary_of(store).seconds


# --- two phases -------------------------------------------------------------------------------------------------------
def test_each_phase_has_its_own_figures(root: Path, told: list[JobMetrics]) -> None:
    """The second tells what it committed, and repeats what the first took in. [AB3] [OB10]"""
    mc.write(ROWS, root)
    with mc.begin(root) as job:
        job.write(ROWS)
        prepared = job.prepare()
    first = job.metrics
    assert (first.kind, first.phase, first.job, first.rows_read, first.rows_committed) == ("prepared", "first", prepared, 3, 0)
    assert 0 < first.prepare_s <= first.seconds and first.commit_s == 0
    second = mc.commit(root, prepared).metrics
    assert second is not None and (second.kind, second.phase, second.rows_read, second.rows_committed) == ("committed", "second", 3, 3)
    assert second.commit_s > 0 and second.attempts == 1
    again = mc.commit(root, prepared).metrics
    assert again is not None and (again.kind, again.rows_committed, again.version) == ("already_committed", 0, 3)
    assert told[1:] == [first, second, again]
    summary = mc.Table(root).history()[0]["summary"]
    assert (summary["rows_read"], summary["rows_written"], summary["rows"]) == (3, 3, 3) and mc.Table(root).verify().is_sound
    assert 0 < summary["prepare_s"] <= first.prepare_s
    assert summary["seconds"] >= summary["prepare_s"]


# --- requests that are sent again -------------------------------------------------------------------------------------
def test_each_store_counts_its_own_repeats_in_all_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that run beside each other do not count for each other. [ST14] [OB10]"""
    monkeypatch.setattr("manifestcommit.store.object_store.time.sleep", lambda seconds: None)
    one, other = scripted(), scripted()
    other.ask(fails_once())
    threads = [threading.Thread(target=lambda: [one.ask(fails_once()) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (one.retries, other.retries) == (200, 1)
    with pytest.raises(mc.errors.StoreError, match="asked 8 times"):
        one.ask(answered(lambda: 503))
    assert one.retries == 207, "the request that is not sent any more is no repeat"


def fails_once() -> Request:
    statuses = iter((503, 200))
    return answered(lambda: next(statuses))


def test_a_jobs_retries_are_those_since_it_began() -> None:
    """Of its requests, of its creates, and of its tasks. [ST14] [OB10]"""

    store = Retrying(memory())
    store.retries = 5
    written(store).commit()
    store.retries = 7
    job = written(store)
    store.retries = 10
    job.add_written([], intake=InputTotals(retries=20))
    outcome = job.commit()
    assert outcome.metrics is not None and outcome.metrics.retries == 23 == summary_of(store).retries


# --- the table --------------------------------------------------------------------------------------------------------
def test_a_table_tells_its_size_what_waits_and_how_far_it_lags(root: Path) -> None:
    """[WM1] [AB3]"""
    mc.write(ROWS, root, watermarks={"t:0": (0, 30), "t:1": (5, 40), "f\n": (None, "etag")})
    with mc.begin(root) as job:
        job.write(ROWS)
        job.prepare()
    found = mc.Table(root).metrics({"t:0": 100, "t:1": 39, "t:2": 7, "f\n": "etag", "new": "etag"})
    assert (found.version, found.files, found.rows) == (2, 1, 3) and found.bytes == mc.Table(root).files()["bytes"].to_pylist()[0]
    assert (found.prepared_jobs, found.running_jobs) == (1, 0) and found.prepared_bytes > 100
    assert found.oldest_prepared_s is not None and 0 <= found.oldest_prepared_s < 60 and 0 <= found.head_age_s < 60
    assert found.watermarks == {"t:0": 30, "t:1": 40, "f\n": "etag"}
    assert found.lag == {"t:0": 70, "t:1": -1, "t:2": 7, "f\n": 0, "new": None}
    mc.commit(root, job.id)
    found = mc.Table(root).metrics()
    assert (found.prepared_jobs, found.oldest_prepared_s, found.lag) == (0, None, {})


def test_a_tables_figures_take_five_requests() -> None:
    """[RD1]"""
    from manifestcommit.operations.describe import table_metrics

    store = CountingStore(memory())
    written(store).commit()
    written(store).prepare()
    store.reset()
    assert table_metrics(session(store)).prepared_jobs == 1
    assert store.requests() == {"get": 2, "list": 3}


@pytest.mark.parametrize("ends", [["t"], {"t": 1.5}, {"t": True}, {"t": None}, {1: 2}])
def test_ends_that_are_none_are_refused(tmp_path: Path, ends: Any) -> None:
    mc.write(ROWS, tmp_path)
    with pytest.raises(mc.errors.ManifestCommitError, match="invalid ends"):
        mc.Table(tmp_path).metrics(ends)


# --- all counts match -------------------------------------------------------------------------------------------------
Planted = Callable[[Snapshot], dict[str, Any]]


def plant(store: Store, change: Planted) -> int:
    """One more version, hand-made of the head."""
    head = open_head(store)
    return put_version(store, head, **change(head.snapshot)).version


def carry(snapshot: Snapshot, *, summary: Summary | None = None, **members: Any) -> dict[str, Any]:
    return {**members, "commit": msgspec.structs.replace(snapshot.commits[0], summary=summary or Summary())}


def more(totals: Totals, **by: int) -> Totals:
    return msgspec.structs.replace(totals, **{name: getattr(totals, name) + each for name, each in by.items()})


# --- on the command line ----------------------------------------------------------------------------------------------
Ran = tuple[int, str, str]


def test_counts_that_differ_are_a_finding_of_verify(run: Callable[..., Ran], root: Path) -> None:
    """[OB10] [RD10]"""
    mc.write(ROWS, root)
    assert run("verify", root)[0] == 0
    plant(LocalStore(str(root)), lambda s: carry(s, summary=Summary(rows_read=1000)))
    status, out, err = run("verify", root)
    assert (status, err) == (1, "") and "counts_differ" in out and "0 rows committed, but 1,000 read" in out
    status, out, _ = run("verify", root, "--json")
    document = json.loads(out)
    assert status == 1 and not document["is_sound"] and [each["kind"] for each in document["findings"]] == ["counts_differ"]


@pytest.mark.parametrize("content", [None, b"[1]", b"{", b"\xff", b'{"t": [1]}', b'{"t": 1.5}'])
def test_ends_that_are_no_file_of_ends_are_a_usage_error(run: Callable[..., Ran], root: Path, tmp_path: Path, content: Any) -> None:
    mc.write(ROWS, root)
    ends = tmp_path / "e.json"
    if content is not None:
        ends.write_bytes(content)
    status, out, err = run("metrics", root, "--ends", ends)
    assert (status, out) == (2, "") and "ends" in err and "Traceback" not in err

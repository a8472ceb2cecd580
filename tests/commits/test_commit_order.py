"""Several jobs of one run: each is committed on its own, and the result says which are to be done again. [CM10]"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.faults import is_create
from tests.kit.tables import begin, check_table, memory, positions, read_ids, rows, write

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import CommitConflictError, JobAbortedError, KeyReusedError, OutcomeUnknownError, UsageError, WatermarkGapError
from manifestcommit.log.version_chain import open_head
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import Fault, FaultCall, FaultStore


@pytest.fixture
def store() -> MemoryStore:
    made = memory()
    write(made, rows([1]), key="first", watermarks={"s": (0, 10)})
    return made


def job_over(store: object, number: int, key: str, start: int, end: int) -> mc.Job:
    job = begin(store, key)  # type: ignore[arg-type]
    job.write(rows([number]))
    job.advance("s", start, end)
    return job


def test_each_job_is_committed_on_its_own_and_told_in_order() -> None:
    """[CM10]"""
    stores = [memory() for _ in range(3)]
    jobs = [job_over(each, n, f"k{n}", 0, 1) for n, each in enumerate(stores)]
    results = mc.commit_all(iter(jobs))
    assert [(r.key, r.tries, r.error) for r in results] == [("k0", 1, None), ("k1", 1, None), ("k2", 1, None)]
    assert results.committed == results and results.failed == ()
    for number, (each, job, result) in enumerate(zip(stores, jobs, results, strict=True)):
        assert read_ids(each) == [number] and job.outcome == result.outcome and result.job_id == job.id


@pytest.mark.parametrize("fault", ["refused", "request_lost", "answer_lost"])
def test_a_job_whose_table_could_not_be_made_is_committed_by_the_next_try(fault: Fault) -> None:
    """One without rows makes its table as it commits: where that fails, nothing was sent that could be sent again. [CM10] [CM13]"""
    store = memory()

    def fail(call: FaultCall) -> None:
        if is_create(call) and len(failed) < 10:
            failed.append(call.number)
            flaky._faults[call.number] = fault

    failed: list[int] = []
    flaky = FaultStore(store, on_call=fail)
    job = begin(flaky, "k")
    job.advance("s", 0, 10)
    (result,) = mc.commit_all([job], tries=11)
    assert result.outcome is not None and result.outcome.kind == "committed", result.error
    assert (result.job_id, result.tries) == (job.id, 11 if fault == "refused" else 2)
    assert positions(store) == {"s": 10} and open_head(store).version == 2
    check_table(store)


@pytest.mark.parametrize("fault", ["answer_lost", "request_lost"])
def test_an_outcome_that_was_unknown_is_found_out_and_counted_once(store: MemoryStore, fault: str) -> None:
    """The create landed, or not; every answer about it was lost: the next try tells. [CM6] [IV4]"""

    def lose(call: FaultCall) -> None:
        if is_create(call) and len(lost) < 10:
            lost.append(call.number)
            deaf._faults[call.number] = fault  # type: ignore[assignment]

    lost: list[int] = []
    deaf = FaultStore(store, on_call=lose)
    job = job_over(deaf, 2, "second", 10, 20)
    (result,) = mc.commit_all([job])
    assert len(lost) == 10 and result.tries == 2, result.error
    assert result.outcome is not None and result.outcome.committed
    assert read_ids(store) == [1, 2] and positions(store) == {"s": 20}
    check_table(store)


def test_an_unknown_outcome_that_stays_unknown_is_told(store: MemoryStore) -> None:
    """[CM10]"""
    deaf = FaultStore(store)
    job = job_over(deaf, 2, "second", 10, 20)
    deaf._on_call = lambda call: deaf._faults.__setitem__(call.number, "request_lost") if is_create(call) else None
    (result,) = mc.commit_all([job], tries=2)
    assert isinstance(result.error, OutcomeUnknownError) and result.tries == 2 and result.job_id == result.error.job_id


def test_a_gap_that_another_of_the_jobs_closes_is_none_and_any_other_is_tried_again(store: MemoryStore) -> None:
    """[WM2] [WM7]"""
    later, sooner = job_over(store, 3, "third", 20, 30), job_over(store, 2, "second", 10, 20)
    results = mc.commit_all([later, sooner])
    assert [r.tries for r in results] == [1, 1] and not results.failed
    assert positions(store) == {"s": 30} and read_ids(store) == [1, 2, 3]
    (gap,) = mc.commit_all([job_over(store, 9, "gap", 50, 60)])
    assert isinstance(gap.error, WatermarkGapError) and gap.tries == 3


def test_what_no_repetition_can_change_is_tried_once(store: MemoryStore) -> None:
    """[KY2]"""
    job = job_over(store, 2, "first", 10, 20)
    (result,) = mc.commit_all([job])
    assert isinstance(result.error, KeyReusedError) and result.tries == 1


def test_a_job_that_was_committed_before_is_not_told_to_be_done_again(store: MemoryStore) -> None:
    """Nor one that is given twice: without a key its rows would be there twice. [CM10]"""
    job = job_over(store, 2, "second", 10, 20)
    outcome = job.commit()
    for _ in range(2):
        results = mc.commit_all([job, job])
        assert [result.outcome for result in results] == [outcome] and not results.failed
    assert read_ids(store) == [1, 2]


def test_a_job_that_was_given_up_is_told_as_such(store: MemoryStore) -> None:
    job = job_over(store, 2, "second", 10, 20)
    job.abort()
    (result,) = mc.commit_all([job])
    assert isinstance(result.error, UsageError) and read_ids(store) == [1]


def test_a_failure_of_any_kind_is_one_jobs_own(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CM10]"""
    bad, good = job_over(store, 2, "second", 10, 20), job_over(store, 3, "third", 10, 20)

    def fails(**_: Any) -> Any:
        raise pa.ArrowInvalid("of this test")

    monkeypatch.setattr(bad, "commit_now", fails)
    results = mc.commit_all([bad, good])
    assert "ArrowInvalid: of this test" in str(results[0].error) and isinstance(results[0].error.__cause__, pa.ArrowInvalid)
    assert results[1] in results.committed and read_ids(store) == [1, 3]


# --- every prepared job of a table ------------------------------------------------------------------------------------------
def prepare(root: Path, number: int, start: int, end: int) -> str:
    with mc.begin(root, key=f"k{number}") as job:
        job.write(rows([number]))
        job.advance("s", start, end)
        return job.prepare()


def ids(root: Path) -> list[int]:
    return sorted(mc.Table(root).dataset().to_table()["id"].to_pylist())


def test_recover_commits_every_prepared_job_once(tmp_path: Path) -> None:
    """A coordinator comes back; what cannot be committed now stays prepared. [AB3]"""
    root = tmp_path / "t"
    mc.write(rows([1]), root, watermarks={"s": (0, 10)})
    good, gap = prepare(root, 2, 10, 20), prepare(root, 9, 50, 60)
    results = {r.job_id: r for r in mc.Table(root).recover()}
    assert results[good].outcome is not None and isinstance(results[gap].error, WatermarkGapError)
    assert ids(root) == [1, 2] and mc.Table(root).resolve(gap) == "pending"
    assert [r.job_id for r in mc.Table(root).recover()] == [gap]  # what is decided is not decided again


def test_recover_gives_up_what_another_job_has_committed_under_the_same_key(tmp_path: Path) -> None:
    """Once a rewind drops the key, the work is to be done anew, not from what was prepared long ago. [AB3] [WM5]"""
    root = tmp_path / "t"
    mc.write(rows([1]), root, watermarks={"s": (0, 10)})
    lost, kept = prepare(root, 2, 10, 20), prepare(root, 2, 10, 20)
    mc.commit(root, kept)
    (result,) = mc.Table(root).recover()
    assert result.outcome is not None and result.outcome.already_committed and mc.Table(root).resolve(lost) == "aborted"
    mc.Table(root).rewind("s", 10, reason="x")
    assert mc.Table(root).recover() == () and ids(root) == [1, 2]
    with pytest.raises(JobAbortedError):
        mc.commit(root, lost)


@pytest.mark.parametrize("what", ["key", "source", "partition", "found key"])
def test_recover_aborts_what_can_never_commit_and_says_so_once(tmp_path: Path, what: str) -> None:
    """Prepared, it would hold the fence for its grace; a rerun of its work commits. [AB4] [AB5] [AB3]"""
    root = tmp_path / "t é%+=#'"
    mc.write(rows([1]), root, watermarks={"s": (0, 10)})
    if what == "partition":
        with mc.begin(root, key="k2") as job:
            job.write(rows([2]))
            job.overwrite(None)
            stale = job.prepare()
        mc.write(rows([1]), root)
        rule = "partition_was_touched"
    elif what == "source":
        stale = prepare(root, 2, 10, 20)
        mc.Table(root).rewind("s", 0, reason="x")
        mc.write(rows([1]), root, watermarks={"s": (0, 10)})
        rule = "source_was_set_back"
    else:
        if what == "key":
            with mc.begin(root, key="k2") as job:
                job.write(rows([2]))
                stale = job.prepare()
        mc.write(rows([1]), root, key="k2")
        if what == "found key":
            stale = prepare(root, 2, 10, 20)
        mc.Table(root).rollback(2, reason="x")
        rule = "key_was_set_back" if what == "key" else "key_is_gone"
    before = len(ids(root))
    (result,) = results = mc.Table(root).recover()
    assert isinstance(result.error, CommitConflictError) and result.error.rule == rule and "was aborted" in str(result.error)
    assert result.outcome is not None and result.outcome.kind == "aborted" and results.failed == (result,) and results.committed == ()
    assert mc.Table(root).recover() == () and mc.Table(root).resolve(stale) == "aborted" and len(ids(root)) == before
    with pytest.raises(JobAbortedError):
        mc.commit(root, stale)
    assert mc.write(rows([2]), root, key="k2", watermarks={"s": (10, 20)}).kind == "committed"


def test_recover_leaves_a_range_that_was_set_back_in_the_way_of_later_ones_of_an_unknown_source(tmp_path: Path) -> None:
    """Until someone aborts it by its id, as its error says: the next call would begin the source behind it. [WM7] [AB4]"""
    root = tmp_path / "t"
    mc.write(rows([1]), root, watermarks={"s": (0, 10)})
    lower = prepare(root, 2, 10, 20)
    mc.Table(root).rewind("s", None, reason="x")
    higher = prepare(root, 3, 20, 30)
    for _ in range(2):
        results = {each.job_id: each.error for each in mc.Table(root).recover()}
        assert isinstance(results[higher], WatermarkGapError) and ids(root) == [1]
        assert isinstance(results[lower], CommitConflictError) and f"{lower!r}), or `manifestcommit abort`" in str(results[lower])
    assert mc.Table(root).abort(lower) == "aborted"
    assert len(mc.Table(root).recover().committed) == 1 and ids(root) == [1, 3]


def test_recover_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[AB3]"""
    root = tmp_path / "t"
    mc.write(rows([1]), root, watermarks={"s": (0, 10)})
    good, gap = prepare(root, 2, 10, 20), prepare(root, 9, 50, 60)
    assert main(["recover", str(root), "--json"]) == 1
    told = {row["job"]: row for row in json.loads(capsys.readouterr().out)}
    assert told[good]["status"] == "committed" and told[gap]["status"] == "undecided" and "50" in told[gap]["error"]
    assert main(["recover", str(root), "--abort", "--yes"]) == 0
    assert gap[-32:-24] in capsys.readouterr().out
    assert main(["recover", str(root)]) == 0

"""Changes of rows as parts of a joint commit: of all tables or of none, whoever dies or wins. [MT1] [MT3] [RC1]"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.row_works import OLD, WORKS, data, found, make, run, run_in

import manifestcommit as mc

KINDS = [work for work in WORKS if work != "compact"]


@pytest.fixture
def lake(tmp_path: Path) -> list[str]:
    """Two tables with the same rows, the first to be the home, and one that does not exist yet."""
    paths = [str(tmp_path / name) for name in ("orders %+=#é", "lines ’", "log")]
    for path in paths[:2]:
        make(path)
    return paths


def nightly(paths: list[str], work: str, other: str) -> mc.Transaction:
    with mc.transaction(paths, key="k") as tx:
        run_in(work, tx.rows(paths[0]))
        run_in(other, tx.rows(paths[1]))
        tx[paths[2]].write(data(1))
    return tx


@pytest.mark.parametrize("work", KINDS)
def test_rows_of_several_tables_change_together_and_a_rerun_changes_nothing(lake: list[str], work: str) -> None:
    """As each change does alone, with its operation in the history. [KY3] [MT13]"""
    other = KINDS[KINDS.index(work) - 1]
    tx = nightly(lake, work, other)
    assert tx.outcome is not None and not tx.outcome.already_committed
    for _ in range(2):
        assert found(lake[0]) == sorted(WORKS[work].after(OLD)) and found(lake[1]) == sorted(WORKS[other].after(OLD))
        assert len(found(lake[2])) == 1
        assert [mc.Table(path).history(1)[0]["operation"] for path in lake] == [WORKS[work].operation, WORKS[other].operation, "append"]
        again = nightly(lake, work, other)
        assert again.already_committed and again.outcome is not None and again.outcome.already_committed
        assert again.outcome.versions == tx.outcome.versions
    told = mc.transaction(lake, key="k").rows(lake[0]).delete("day = 'a' AND id = 1") if work == "delete" else None
    assert told is None or (told.kind, told.version) == ("already_committed", tx.outcome.versions[mc.Table(lake[0]).url])
    assert all(mc.Table(path).verify(deep=True).is_sound for path in lake)


def test_the_numbers_are_told_and_nothing_is_visible_before_the_block_is_left(lake: list[str]) -> None:
    with mc.transaction(lake[:2]) as tx:
        told = run_in("delete", tx.rows("orders %+=#é"))
        assert (told.kind, told.rows_deleted, told.version) == ("pending", 1, None) and not told.committed
        assert run_in("merge", tx.rows(lake[1])).rows_inserted == 1
        assert found(lake[0]) == found(lake[1]) == sorted(OLD)
    assert found(lake[0]) == sorted(WORKS["delete"].after(OLD))


def test_one_that_changes_no_row_still_rests_on_what_it_has_read(lake: list[str]) -> None:
    """[CF16]"""
    tx = mc.transaction(lake[:2])
    assert tx.rows(lake[0]).delete("day = 'a' AND id = 50").rows_deleted == 0
    tx[lake[1]].write(data(77))
    mc.write(data(50), lake[0])
    with pytest.raises(mc.errors.CommitConflictError, match="orders"):
        tx.commit()
    assert found(lake[1]) == sorted(OLD)


def found_of(*ids: int) -> list[tuple[str, int, str]]:
    return [tuple(row.values()) for row in data(*ids).to_pylist()]


REFUSED: dict[str, tuple[Callable[[mc.Transaction], Any], str]] = {
    "no such table": (lambda tx: tx.rows("other"), "has no table 'other'"),
    "a key of its own": (lambda tx: tx.rows("log").delete("id = 1", key="k"), "invalid key: in a transaction all tables share the key"),
    "a fingerprint": (lambda tx: tx.rows("log").update({"id": "1"}, fingerprint="f"), "invalid fingerprint: in a transaction"),
    "rows changed twice": (lambda tx: tx.rows("log").delete("id = 1"), "has a change of this table already"),
    "a write beside them": (lambda tx: tx["log"].write(data(1)), "has a change of this table already"),
    "rows changed beside a write": (lambda tx: tx.rows("rejects").delete("id = 1"), "has a change of this table already"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_single_change_of_a_table_is_refused_and_the_rest_commits(tmp_path: Path, what: str) -> None:
    call, said = REFUSED[what]
    paths = [str(tmp_path / name) for name in ("log", "rejects")]
    for path in paths:
        make(path)
    with mc.transaction(paths) as tx:
        run_in("delete", tx.rows("log"))
        tx["rejects"].write(data(77))
        with pytest.raises(mc.errors.UsageError, match=said):
            call(tx)
    assert found(paths[0]) == sorted(WORKS["delete"].after(OLD)) and len(found(paths[1])) == len(OLD) + 1
    with pytest.raises(mc.errors.UsageError, match="is over"):
        tx.rows("log").delete("id = 1")


BESIDE: dict[str, Callable[[mc.Transaction, str], Any]] = {
    "another change": lambda tx, path: tx.rows(path).delete("day = 'a' AND id = 1"),
    "a write": lambda tx, path: tx[path].write(data(77)),
    "the end": lambda tx, path: tx.commit(),
}


@pytest.mark.parametrize("what", BESIDE)
def test_a_change_is_refused_whose_transaction_went_on_while_it_ran(lake: list[str], what: str) -> None:
    """As another thread would go on: neither of the two is lost in silence. [MT1] [MT3]"""
    tx, rows = mc.transaction(lake[:2]), data(1)

    def source() -> Iterator[pa.RecordBatch]:
        BESIDE[what](tx, lake[0])
        yield from rows.to_batches()

    stream = pa.RecordBatchReader.from_batches(rows.schema, source())
    with pytest.raises(mc.errors.UsageError, match="nothing was done"):
        tx.rows(lake[0]).merge(stream, on=["day", "id"])
    if what != "the end":
        tx.commit()
    after = {"another change": sorted(WORKS["delete"].after(OLD)), "a write": sorted([*OLD, *found_of(77)]), "the end": sorted(OLD)}
    assert found(lake[0]) == after[what]


def test_a_job_writes_nothing_beside_a_change_of_rows_that_came_after_it_was_taken(lake: list[str]) -> None:
    """What it wrote would be lost. [MT3]"""
    with mc.transaction(lake[:2]) as tx:
        job = tx[lake[0]]
        run_in("delete", tx.rows(lake[0]))
        with pytest.raises(mc.errors.UsageError, match="changes rows of its table"):
            job.write(data(77))
    with pytest.raises(mc.errors.UsageError, match="begin a new one"):
        job.write(data(77))
    assert found(lake[0]) == sorted(WORKS["delete"].after(OLD))


@pytest.mark.parametrize("end", ["commit", "abort", "prepare"])
def test_a_transaction_of_row_changes_ends_once(lake: list[str], end: str) -> None:
    """And what is prepared is not aborted without a word. [AB1] [AB3]"""
    tx = mc.transaction(lake[:2])
    for path in lake[:2]:
        run_in("delete", tx.rows(path))
    ended = getattr(tx, end)()
    for again in (tx.commit, tx.abort if end == "prepare" else tx.prepare):
        with pytest.raises(mc.errors.UsageError, match=r"the transaction of .* (was prepared|is over); nothing was done"):
            again()
    if end == "prepare":
        ended.commit()
    assert [found(path) for path in lake[:2]] == [sorted(OLD if end == "abort" else WORKS["delete"].after(OLD))] * 2


@pytest.mark.parametrize("other", ["rows", "a write"])
def test_a_part_of_a_refused_transaction_is_not_committed_alone(lake: list[str], other: str) -> None:
    """[MT1]"""
    tx = mc.transaction(lake[:2])
    run_in("delete", tx.rows(lake[0]))
    jobs = [tx._jobs[path] for path in lake[:2]]
    if other == "rows":
        run_in("delete", tx.rows(lake[1]))
    else:
        jobs[1].write(data(77))
    mc.write(data(50), lake[0])
    with pytest.raises(mc.errors.CommitConflictError):
        tx.commit()
    for job in jobs:
        with pytest.raises(mc.errors.UsageError, match="belongs to a transaction"):
            job.commit()
    assert found(lake[0]) == sorted([*OLD, *found_of(50)]) and found(lake[1]) == sorted(OLD)


def test_a_rehearsal_is_no_part(lake: list[str]) -> None:
    """And an aborted transaction has changed nothing."""
    tx = mc.transaction(lake[:2])
    assert tx.rows(lake[0]).delete("day = 'a' AND id = 1", dry_run=True).kind == "planned"
    run_in("update", tx.rows(lake[0]))
    tx.abort()
    assert found(lake[0]) == sorted(OLD)
    run("delete", lake[0])

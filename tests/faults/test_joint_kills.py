"""Jobs of several tables that are prepared together or recoverable, on a disk, and kill -9 of the process that prepares or commits them:
another one commits, aborts or recovers them, or does the same work again, and all tables agree. [MT11] [AB6]
"""

import contextlib
import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.commits.tables import DAY, tables_on_disk
from tests.kit.faults import dying, lives
from tests.kit.sizes import rest_thorough
from tests.kit.tables import unread

import manifestcommit as mc
from manifestcommit.errors import JobAbortedError, UsageError
from manifestcommit.format import object_names
from manifestcommit.transactions import PreparedTransaction

KEY = "day 1 é"
VERSION, PREPARED, HINT = object_names.VERSIONS, object_names.JOBS, object_names.HINT


@pytest.fixture
def lake(tmp_path: Path) -> list[str]:
    return tables_on_disk(tmp_path)


# --- in the processes that are killed, and in those that go on ----------------------------------------------------------------------------
def prepare(paths: list[str]) -> PreparedTransaction:
    jobs = [mc.begin(path, key=KEY) for path in paths]
    for job in jobs:
        job.write(DAY)
    names = {path: job.id for path, job in zip(paths, jobs, strict=True)}
    Path(paths[0], "names of the jobs").write_text(json.dumps(names))
    return mc.transaction(jobs).prepare()


def dead_jobs(paths: list[str]) -> PreparedTransaction:
    return PreparedTransaction(json.loads(Path(paths[0], "names of the jobs").read_text()))


def dying_at(name: str, skip: int, after: bool) -> AbstractContextManager[None]:
    """Killed before or after the put of such an object, and after `skip` of them."""
    return dying(skip + 1, "after" if after else "before", ["put", "put_if_absent"], name=name)


def prepare_and_die(paths: list[str], where: tuple[str, int, bool]) -> None:
    with dying_at(*where):
        prepare(paths)


def commit_and_die(paths: list[str], where: tuple[str, int, bool]) -> None:
    with dying_at(*where):
        dead_jobs(paths).commit()


def go_on(paths: list[str], how: str) -> None:
    """Where not all were prepared, by each job that was, which stands for all."""
    jobs = dead_jobs(paths)
    try:
        jobs.commit() if how == "commit" else jobs.abort()
    except UsageError:
        for path, job in jobs.jobs.items():
            with contextlib.suppress(JobAbortedError, UsageError):
                mc.commit(path, job) if how == "commit" else mc.Table(path).abort(job)
    except JobAbortedError:
        assert how == "commit"


def run_again(paths: list[str]) -> None:
    """The same work under the same key, in one transaction."""
    with mc.transaction(paths, key=KEY) as tx:
        for path in paths:
            tx[path].write(DAY)


def write_all(paths: list[str], finished: int = 0, *, until: int = 3) -> mc.Transaction:
    """A run of recoverable jobs, which has written these tables; what is said to be finished must not be read."""
    tx = mc.transaction(paths, key=KEY, recoverable=True, fingerprint="day 1")
    for path in paths[:until]:
        tx[path].write(unread(DAY) if path in paths[:finished] else DAY)
    return tx


def write_and_die(paths: list[str], written: int, where: tuple[str, int, bool] | None = None) -> None:
    """Where it says, or when these tables are written."""
    tx = write_all(paths, until=written)
    with dying_at(*where) if where else dying(1, "before", []):
        if where:
            tx.commit()


def write_again(paths: list[str], finished: int) -> None:
    """The rerun: it commits now, or finds it committed."""
    write_all(paths, finished).commit()


# --- the tests ----------------------------------------------------------------------------------------------------------------------------
def agreed(paths: list[str]) -> int:
    """How many rows each table has, which is the same in all, by a joint read and by reads of each; no job is left, nothing is damaged."""
    counts = {table.to_arrow().num_rows for table in mc.read_together(paths)} | {mc.Table(path).to_arrow().num_rows for path in paths}
    assert len(counts) == 1, counts
    states = {str(mc.Table(path).resolve(job)) for path, job in dead_jobs(paths).jobs.items()}
    (count,) = counts
    assert states <= ({"committed"} if count else {"aborted", "not_committed"}), (count, states)
    assert all(mc.Table(path).verify().is_sound for path in paths)
    return count


def converge(paths: list[str], count: int) -> None:
    """Whatever became of the prepared jobs, the rerun of their key leaves the work once in each table."""
    run_again(paths)
    assert {mc.Table(path).to_arrow().num_rows for path in paths} == {2}
    versions = [mc.Table(path).version for path in paths]
    run_again(paths)
    assert [mc.Table(path).version for path in paths] == versions, "the key was committed already"
    assert count in (0, 2)


HALF_PREPARED = {
    "before the first member's": (PREPARED, 0, False),
    "between two members'": (PREPARED, 0, True),
    "before the home's": (PREPARED, 2, False),
}
HOW = ("commit", "abort")


@pytest.mark.parametrize("how", rest_thorough(HOW, "commit"))
@pytest.mark.parametrize("where", rest_thorough(HALF_PREPARED, "between two members'"))
def test_who_dies_while_it_prepares_leaves_nothing_that_can_commit(lake: list[str], where: str, how: str) -> None:
    """The home's comes last: without it none is committed, by whomever. [MT11] [AB3]"""
    assert not lives(prepare_and_die, lake, HALF_PREPARED[where])
    assert lives(go_on, lake, how)
    assert agreed(lake) == 0
    converge(lake, 0)


@pytest.mark.parametrize("how", rest_thorough(HOW, "abort"))
def test_who_dies_once_all_is_prepared_leaves_it_to_others(lake: list[str], how: str) -> None:
    """[MT11] [MT1]"""
    assert not lives(prepare_and_die, lake, (PREPARED, 2, True))
    assert {str(mc.Table(path).resolve(job)) for path, job in dead_jobs(lake).jobs.items()} == {"pending"}
    assert {table.to_arrow().num_rows for table in mc.read_together(lake)} == {0}
    assert lives(go_on, lake, how)
    count = agreed(lake)
    assert count == (0 if how == "abort" else 2)
    converge(lake, count)


UNDECIDED = {
    "before the first member": (VERSION, 0, False),
    "between two members": (VERSION, 0, True),
    "between the last member and the decision": (VERSION, 1, True),
    "before the decision": (VERSION, 2, False),
}
DECIDED = {"after the decision": (VERSION, 2, True), "after the hint of the home": (HINT, 0, True), "between two hints": (HINT, 1, True)}


@pytest.mark.parametrize("how", rest_thorough([*HOW, "write"], "commit"))
@pytest.mark.parametrize("where", rest_thorough(UNDECIDED, "before the decision"))
def test_who_dies_before_the_decision_leaves_it_to_others(lake: list[str], where: str, how: str) -> None:
    """Nobody sees any of it until one of them decides. [MT11] [MT1] [MT4] [MT6] [MT9]"""
    prepare(lake)
    assert not lives(commit_and_die, lake, UNDECIDED[where])
    assert {table.to_arrow().num_rows for table in mc.read_together(lake)} == {0} == {mc.Table(path).to_arrow().num_rows for path in lake}
    if how == "write":  # who needs the tables aborts the attempt; the jobs can be committed by the next
        for path in lake:
            mc.write(DAY.slice(0, 0), path)
        assert {mc.Table(path).to_arrow().num_rows for path in lake} == {0}
        assert lives(go_on, lake, "commit")
    else:
        assert lives(go_on, lake, how)
    count = agreed(lake)
    assert count == (0 if how == "abort" else 2)
    converge(lake, count)


@pytest.mark.parametrize("how", rest_thorough(HOW, "abort"))
@pytest.mark.parametrize("where", rest_thorough(DECIDED, "after the decision"))
def test_who_dies_after_the_decision_has_committed_in_all_tables(lake: list[str], where: str, how: str) -> None:
    """Whoever comes is told so. [MT11] [MT1] [MT7]"""
    prepare(lake)
    assert not lives(commit_and_die, lake, DECIDED[where])
    assert agreed(lake) == 2
    assert lives(go_on, lake, how)
    assert dead_jobs(lake).abort() == "committed" and len(dead_jobs(lake).commit().versions) == 3
    assert agreed(lake) == 2
    converge(lake, 2)


def rows_of(paths: list[str]) -> list[int]:
    """How many rows each table has, by a joint read and by reads of each; nothing is damaged, and each work is there once."""
    counts = [table.to_arrow().num_rows for table in mc.read_together(paths)]
    assert counts == [mc.Table(path).to_arrow().num_rows for path in paths]
    assert all(mc.Table(path).verify(deep=True).is_sound for path in paths)
    return counts


@pytest.mark.thorough
@pytest.mark.parametrize("written", [1, 2])
def test_a_rerun_reads_only_what_the_dead_process_had_not_written(lake: list[str], written: int) -> None:
    """[AB6] [MT1]"""
    assert not lives(write_and_die, lake, written)
    assert rows_of(lake) == [0, 0, 0]
    assert lives(write_again, lake, written)
    assert rows_of(lake) == [2, 2, 2]


@pytest.mark.parametrize("where", rest_thorough([*UNDECIDED, *DECIDED], "between two members"))
def test_a_rerun_takes_over_the_tasks_of_each_table_and_commits_once(lake: list[str], where: str) -> None:
    """Wherever the process was killed: all is there, once, and no row is read again. [AB6] [MT1] [MT4] [MT9]"""
    assert not lives(write_and_die, lake, 3, {**UNDECIDED, **DECIDED}[where])
    is_decided = where in DECIDED
    assert rows_of(lake) == [2 if is_decided else 0] * 3
    assert lives(write_again, lake, 3)
    assert rows_of(lake) == [2, 2, 2]
    versions = [mc.Table(path).version for path in lake]
    write_again(lake, 3)
    assert [mc.Table(path).version for path in lake] == versions, "the key was committed already"
    for path in lake:
        assert mc.Table(path).metrics().files == 1 == len(list(Path(path).glob("*.parquet"))), "of either run the same file"

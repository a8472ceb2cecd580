"""The protocol's promises at their simplest, one test each; tests/faults and tests/stateful try races, lost answers and crashes."""

import secrets
import threading

import pyarrow as pa
import pytest
from tests.spec import golden

from manifestcommit import Table
from manifestcommit.commits.commit_loop import commit
from manifestcommit.errors import UsageError
from manifestcommit.format import object_names
from manifestcommit.format.change import Inputs, Write
from manifestcommit.format.entries import Entry
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import read_object
from manifestcommit.protocol.conflict import find_conflict
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.store.local import MemoryStore
from manifestcommit.table.functions import create_table
from manifestcommit.testing.faults import CountingStore

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def root() -> str:
    return f"spec-protocol/{secrets.token_hex(8)}"


def append(session: TableContext, key: str | None = None) -> tuple[Job, Outcome]:
    job = Job(session, key=key)
    job.write(ROWS)
    return job, job.commit_now()


def entries(job: str, count: int) -> tuple[Entry, ...]:
    return tuple(Entry(path=f"{task:05d}-{job}.parquet", rows=1, bytes=1, job=job) for task in range(count))


def test_a_birth_is_read_afresh(root: str) -> None:
    """A job of a process that knows an old head begins at the head that there is. [CM15]"""
    one, other = TableContext(MemoryStore(root)), TableContext(MemoryStore(root))
    append(one)
    append(other)
    version = append(other)[1].version
    assert version is not None and one.known is not None and one.known.version < version
    assert object_names.parse_job_id(Job(one).id).birth == version


@pytest.mark.thorough
def test_requests_do_not_grow_with_the_table_or_its_history(root: str) -> None:
    """Opening takes three; a warm commit of a hundred files one create, one list and one put of the hint. [CM11] [IV10] [RD1]"""
    inner = MemoryStore(root)
    for _ in range(30):
        append(TableContext(inner))
    store = CountingStore(inner)
    session = TableContext(store)
    head = session.open()
    assert store.requests() == {"get": 2, "list": 1}
    store.reset()
    job = object_names.job_id(head.version, head.snapshot.table_id, secrets.token_bytes(16))
    change = Write(job=job, birth=head.version, operation="append", schema=head.snapshot.schema, partition_by=(), add=entries(job, 100))
    assert commit(session, head, change).committed
    assert store.requests() == {"put_if_absent": 1, "list": 1, "put": 1}


def test_what_became_of_a_job_is_told_from_anywhere(root: str) -> None:
    """[CM23]"""
    url = f"memory://{root}"
    create_table(url, ROWS.schema)
    session = TableContext(MemoryStore(root))
    job, outcome = append(session)
    answer = Table(url).resolve(job.id)
    assert (answer, answer.version) == ("committed", outcome.version)
    unborn = Job(session)
    assert Table(url).resolve(unborn.id) == "not_committed"
    unborn.abort()
    assert Table(url).resolve(unborn.id) == "not_committed"
    for other in (golden.JOB, "no job"):
        with pytest.raises(UsageError):
            Table(url).resolve(other)


def test_replacing_a_file_that_is_no_longer_live_conflicts() -> None:
    """Its rows would come back from the dead. [CF7] [CF1]"""
    head = golden.full()
    change = Write(job=golden.OLD_JOB, birth=39, operation="replace", remove=frozenset({"a.parquet", "b.parquet"}))
    assert find_conflict(head, change, Inputs()) is None
    conflict = find_conflict(head, change, Inputs(gone=frozenset({"b.parquet"})))
    assert conflict is not None and conflict.rule == "replaced_file_is_gone" and "b.parquet" in conflict.mine


def test_under_contention_every_writer_gets_through_and_nothing_is_lost(root: str) -> None:
    """Each acknowledged commit is in the history of the head, at the version that it was told. [IV9] [IV2] [IV1] [CM24]"""
    append(TableContext(MemoryStore(root)))
    acknowledged: list[tuple[str, int | None]] = []

    def work() -> None:
        for _ in range(5):
            job, outcome = append(TableContext(MemoryStore(root)))
            acknowledged.append((job.id, outcome.version))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    head = TableContext(MemoryStore(root)).open().snapshot
    assert len(acknowledged) == 30
    for job, version in acknowledged:  # one version may carry several
        found = read_object(MemoryStore(root), version or 0)
        assert found is not None and job in {each.job for each in found.snapshot.commits}
    assert all(head.recent_jobs[job] == version for job, version in acknowledged)
    assert head.totals.rows == 31 * ROWS.num_rows

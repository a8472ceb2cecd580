"""Many batches of a streaming query through the engine, planned and committed apart as Spark does it. [SP7] [KY6] [IV10]"""

import secrets
from collections import Counter

import pytest
from tests.kit.sizes import SetBudgets, rounds
from tests.kit.tables import memory

from manifestcommit.format.change import StreamBatch
from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.object_names import version_name
from manifestcommit.format.snapshot import StreamRecord
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import open_head
from manifestcommit.store.local import MemoryStore
from manifestcommit.table import Table
from manifestcommit.testing.faults import CountingStore

# Entries spill after some 1,330 batches of one file; with an eighth of the budget, some 160 batches show the same.
BUDGET = rounds(32 * 1024, 256 * 1024)
BATCHES = rounds(250, 1_500)
MANY = rounds(1_000, 10_000)
SCHEMA = Schema(fields=(Field(id=1, name="n", type="long"),))


@pytest.fixture(autouse=True)
def budget(set_budgets: SetBudgets) -> None:
    set_budgets(inline_entry_bytes=BUDGET)


def run_batch(store: CountingStore, number: int) -> Counter[str]:
    """One file's worth of a batch: planned by one job object, committed by another one; the requests of both."""
    store.reset()
    planning = Job(TableContext(store))
    plan = planning.plan_write(SCHEMA)
    change = planning.change()
    committing = Job(TableContext(store))
    committing.resume(change, began_us=0)
    committing.take_batch(StreamBatch(name="q", query="q", batch=number))
    path = f"00000-{secrets.token_hex(8)}-0-{plan.job}.parquet"
    committing.add_written([Entry(path=path, rows=1, bytes=1000, job=plan.job)])
    outcome = committing.commit()
    assert (outcome.kind, outcome.job_id) == ("committed", plan.job)
    return store.requests()


@pytest.mark.thorough
def test_each_batch_costs_the_same_requests() -> None:
    """[KY6] [IV10] [CM12] However many batches there were."""
    store = CountingStore(memory())
    assert run_batch(store, 0)["list"] <= 8  # looking around before there is a table
    requests = [sum(run_batch(store, number).values()) for number in range(1, BATCHES)]
    # Planning and committing open the table (hint, list, get), the commit is a create, a list and the hint.
    usual = 3 + 3 + 3
    assert Counter(requests).most_common(1)[0][0] == usual
    assert max(requests) <= usual + 5 and sum(requests) <= (usual + 0.02) * BATCHES
    assert Table(store.url).files().num_rows == BATCHES


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_ten_thousand_batches_leave_one_record_and_a_bounded_head(store: MemoryStore) -> None:
    """[KY6] [IV10] What a commit carries does not grow with the number of batches: ten thousand in `make proof`, with the whole budget."""
    session = TableContext(store)
    head_bytes = []
    for number in range(MANY):
        job = Job(session)
        job.take_batch(StreamBatch(name="q", query="q", batch=number))
        plan = job.plan_write(SCHEMA)
        job.add_written([Entry(path=f"{number:05}-{secrets.token_hex(8)}-0-{plan.job}.parquet", rows=1, bytes=1000, job=plan.job)])
        outcome = job.commit()
        assert outcome.kind == "committed" and outcome.version is not None
        head_bytes.append(len(store.get(version_name(outcome.version))))
    snapshot = open_head(store).snapshot
    assert snapshot.streams == {"q": StreamRecord(query="q", batch=MANY - 1, version=snapshot.version)}
    assert snapshot.totals.files == MANY and snapshot.keys == {} and snapshot.key_runs == ()
    print(f"head after 100, {MANY:,} batches: {head_bytes[99]}, {head_bytes[-1]} bytes; largest {max(head_bytes)}")
    # It grows until its entries spill, and then begins anew.
    assert max(head_bytes) < BUDGET / 4 + 16 * 1024  # the entries, and the jobs that are remembered
    assert max(head_bytes[MANY // 2 :]) < 1.1 * max(head_bytes[: MANY // 2])

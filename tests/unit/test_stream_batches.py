"""Many batches of a streaming query through the engine, planned and committed apart as Spark does it. [SP7] [KY6] [IV10]

Not here: which batch a table waits for (test_stream), Spark (tests/spark/test_stream_sink.py).
"""

from __future__ import annotations

import secrets
from collections import Counter

from manifestcommit.core.change import StreamBatch
from manifestcommit.core.manifest import Entry
from manifestcommit.core.schema import Field, Schema
from manifestcommit.engine.head import open_head
from manifestcommit.engine.job import Job
from manifestcommit.engine.session import Session
from manifestcommit.testing.counting import CountingStore
from tests.faults.tables import memory

BATCHES = 2_000
SCHEMA = Schema(fields=(Field(id=1, name="n", type="long"),))


def run_batch(store: CountingStore, number: int) -> Counter[str]:
    """One file's worth of a batch: planned by one job object, committed by another one; the requests of both."""
    store.reset()
    planning = Job(Session(store))
    plan = planning.plan_write(SCHEMA)
    change = planning.change()
    committing = Job(Session(store))
    committing.resume(change, began_us=0)
    committing.take_batch(StreamBatch(name="q", query="q", batch=number))
    path = f"00000-{secrets.token_hex(8)}-0-{plan.job}.parquet"
    committing.add_written([Entry(path=path, rows=1, bytes=1000, job=plan.job)])
    outcome = committing.commit()
    assert (outcome.kind, outcome.job_id) == ("committed", plan.job)
    return store.requests()


def test_two_thousand_batches_leave_a_bounded_head() -> None:
    """[KY6] [IV10] [CM12] One record, a bounded head, and a bounded number of requests for each batch, however many there were."""
    store = CountingStore(memory())
    first = run_batch(store, 0)
    assert first["list"] <= 8  # looking around before there is a table
    head_bytes, requests = [], []
    for number in range(1, BATCHES):
        counted = run_batch(store, number)
        requests.append(sum(counted.values()))
        head_bytes.append(store.sent_bytes("put_if_absent", under="_manifest/versions/"))
    snapshot = open_head(store).snapshot
    assert (snapshot.totals.files, len(snapshot.streams)) == (BATCHES, 1)
    assert snapshot.keys == {} and snapshot.key_runs == ()
    # Planning and committing open the table (hint, list, get), the commit is a create, a list and the hint.
    usual = 3 + 3 + 3
    assert Counter(requests).most_common(1)[0][0] == usual
    assert max(requests) <= usual + 5 and sum(requests) <= (usual + 0.02) * BATCHES
    # It grows until its entries spill, at some 1,330 batches of one file, and then begins anew.
    assert head_bytes[-1] < max(head_bytes) < 64 * 1024, (head_bytes[-1], max(head_bytes))

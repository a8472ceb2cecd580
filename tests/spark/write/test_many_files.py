"""A job of very many files: tasks put manifests, and the process that commits holds references to them, no entries. [CM26] [SP9]

No session: what tasks send and what the driver makes of it is the same with and without one.
"""

from pathlib import Path

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.files.writer import WritePlan
from manifestcommit.format import codec, object_names
from manifestcommit.format.entries import Entry
from manifestcommit.format.values import from_arrow
from manifestcommit.job import Job
from manifestcommit.log.manifests import ManifestReader
from manifestcommit.log.table_context import TableContext
from manifestcommit.rows.row_change import NewFiles
from manifestcommit.spark import writing
from manifestcommit.spark.writing import TaskMessage, TaskWritten, collect, packed, spill_manifest, unpacked
from manifestcommit.store import StorageOptions, open_store
from manifestcommit.testing.faults import CountingStore

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
DAYS = ["a b", "100%", "x=y", "#ü🦆", None]


def begin(url: str) -> tuple[Job, CountingStore, WritePlan]:
    """A job of a partitioned table, which is to be written as `overwrite="dynamic"` where the table holds something."""
    mc.create_table(url, SCHEMA, partition_by=["day"])
    store = CountingStore(open_store(url))
    job = Job(TableContext(store))
    return job, store, job.plan_write(from_arrow(SCHEMA, iter(range(1, 99)).__next__))


def entries(plan: WritePlan, task: int, files: int, days: list[str | None] = DAYS) -> tuple[Entry, ...]:
    def entry(number: int) -> Entry:
        day = days[number % len(days)]
        path = f"{task:05d}-{task:016x}-{number}-{plan.job}.parquet"
        return Entry(path=path, partition=(day,), rows=1, bytes=10, digest=codec.digest(path.encode()), job=plan.job)

    return tuple(entry(number) for number in range(files))


def messages(plan: WritePlan, store: CountingStore, *, touched: bool = True) -> list[TaskMessage]:
    """Two tasks with a manifest each, two with a few files; without `touched` as an earlier attempt recorded them."""
    made = []
    for task in range(2):
        many = entries(plan, task, 50, DAYS[:3])
        parts = tuple({plan.partition_by[0]: day} for day in DAYS[:3]) if touched else ()
        made.append(packed(TaskWritten(task=task, manifests=(spill_manifest(store, many, plan),), touched=parts)))
    return [*made, *(packed(TaskWritten(task=task, entries=entries(plan, task, 20, DAYS[2:]))) for task in (2, 3))]


def commit(job: Job, written: NewFiles) -> None:
    job.add_written(written.entries, written.manifests, touched=written.touched, tasks=written.tasks)
    assert job.commit().committed


@pytest.mark.parametrize("touched", [True, False], ids=["told", "not told"])
def test_no_entry_of_a_manifest_is_held_and_every_partition_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, touched: bool
) -> None:
    """A driver of a million files held them all; one that forgot a partition would let an overwrite of it commute. [CM26] [OB10]"""
    monkeypatch.setattr(ManifestReader, "manifest", lambda *_: pytest.fail("a manifest was read whole"))
    job, store, plan = begin(f"file://{tmp_path}/t")
    sent = messages(plan, store, touched=touched)
    monkeypatch.setattr(writing, "WRITTEN_LIMIT_BYTES", 2_000)  # what two tasks sent is more
    store.reset()
    written = collect(plan, sent, StorageOptions())
    assert written.tasks == 4 and written.entries == () and [ref.files for ref in written.manifests] == [50, 50, 20, 20]
    commit(job, written)
    assert store.requests(under=object_names.MANIFESTS) == {}, "who knows what was touched reads nothing"
    head = TableContext(store).open().snapshot
    assert head.added == () and head.totals.files == 140
    (day,) = head.partition_by
    assert {touch[day] for touch in head.commits[-1].touched} == set(DAYS)


def test_a_job_without_sparks_messages_looks_into_its_manifests_for_partitions_only(tmp_path: Path) -> None:
    """What an earlier attempt finished is known by its manifest. [AB6] [CM26]"""
    job, store, plan = begin(f"file://{tmp_path}/t")
    ref = spill_manifest(store, entries(plan, 0, 50), plan)
    store.reset()
    job.add_written((), (ref,))
    assert store.requests() == {"get": 1}
    assert {touch[plan.partition_by[0]] for touch in job.change().touched} == set(DAYS)


def test_a_dynamic_overwrite_by_manifests_empties_what_they_touch_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CF4] [CM26]"""
    url = f"file://{tmp_path}/t"
    job, store, plan = begin(url)
    commit(job, collect(plan, messages(plan, store), StorageOptions()))
    again = Job(TableContext(store))
    again.overwrite("dynamic")
    plan = again.plan_write(from_arrow(SCHEMA, iter(range(1, 99)).__next__))
    monkeypatch.setattr(writing, "WRITTEN_LIMIT_BYTES", 100)
    sent = [packed(TaskWritten(task=0, entries=entries(plan, 0, 7, [None, "100%"])))]
    commit(again, collect(plan, sent, StorageOptions()))
    left = mc.Table(url).files().column("day").to_pylist()
    before = [day for task in range(2) for day in (DAYS[:3][n % 3] for n in range(50))]
    before += [day for task in range(2) for day in (DAYS[2:][n % 3] for n in range(20))]
    expected = [day for day in before if day not in (None, "100%")] + [[None, "100%"][n % 2] for n in range(7)]
    assert sorted(map(str, left)) == sorted(map(str, expected))


def test_messages_are_compressed_and_come_back_whole() -> None:
    """The driver holds those of all tasks at once. [CM26]"""
    plan = WritePlan(
        url="memory://x", job="v1-0123456789abcdef-00112233445566778899aabbccddeeff", schema=from_arrow(SCHEMA, iter(range(1, 99)).__next__)
    )
    written = TaskWritten(task=3, entries=entries(plan, 3, 1000))
    message = packed(written)
    assert unpacked(message) == written
    assert len(message.data) < 100 * 1000, "a hundred bytes a file, of which a digest alone is 32"

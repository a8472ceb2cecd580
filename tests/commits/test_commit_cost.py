"""What a commit costs does not depend on how large the table or how long its history is: requests and bytes, no times. [CM11] [CM25] [LY13]

The manifests that the heads here list are made up and do not exist: whoever asked for one would fail.
"""

import re
import secrets
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from benchmarks.long_life import Life, expected
from benchmarks.made_up import COLUMNS, append, made_up_refs, made_up_session
from tests.kit.sizes import rounds

from manifestcommit.commits.commit_loop import commit
from manifestcommit.format import codec, object_names
from manifestcommit.format.entries import ColumnStats, Entry
from manifestcommit.format.fields import leaves
from manifestcommit.format.snapshot import KeyRecord, Snapshot
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import Head
from manifestcommit.protocol.apply import Budgets, entries_overflow
from manifestcommit.spark.writing import MESSAGE_LIMIT_BYTES
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore

USUAL = Budgets()
SMALLEST = USUAL.max_merged_files // USUAL.fan_in + 1  # files of the smallest manifest that no commit merges


def entry(head: Head, job: str, number: int) -> Entry:
    """A file with bounds of five columns, as tasks tell of it."""
    columns = {
        leaf.id: ColumnStats(
            nulls=0, min=f"a{number}" if leaf.type == "string" else number, max=f"z{number}" if leaf.type == "string" else 10**6
        )
        for leaf in leaves(head.snapshot.schema)
        if leaf.path[0] in COLUMNS
    }
    path = f"day=7/{number % 100:05d}-{secrets.token_hex(8)}-0-{job}.parquet"
    digest = codec.digest(path.encode())
    return Entry(path=path, partition=(7,), rows=number, bytes=10**8, digest=digest, job=job, columns=columns)


def commit_one(session: TableContext, head: Head, number: int = 1) -> None:
    job = session.new_job(head)
    change = msgspec.structs.replace(append(head, job), add=(entry(head, job, number),), touched=({head.snapshot.partition_by[0]: 7},))
    assert commit(session, head, change).committed


def table(files: int, *, manifest_files: int = 65_536, sources: int = 0) -> CountingStore:
    """A table of so many files that nobody has written."""
    session = made_up_session(MemoryStore(f"scale-{secrets.token_hex(8)}"))
    head = session.open()
    refs = made_up_refs(head, files, manifest_files) if files else ()
    assert commit(session, head, append(head, session.new_job(head), refs=refs, sources=sources)).committed
    return CountingStore(session.store)


def opened_and_committed(store: CountingStore) -> tuple[Counter[str], Counter[str], int, int]:
    """The requests of opening and of a commit of one file, and what was sent and fetched for both."""
    store.reset()
    session = TableContext(store)
    head = session.open()
    opening = store.requests()
    commit_one(session, head)
    return opening, store.requests() - opening, store.sent_bytes(), store.received_bytes()


@pytest.mark.parametrize("files", [10_000, 1_000_000, 10_000_000])
def test_a_file_costs_the_same_in_a_table_of_millions(files: int) -> None:
    """Others read 90 MB, or write them, to add one file to a million. [CM11] [CM25] [RD1]"""
    opening, committing, sent, fetched = opened_and_committed(table(0))
    assert opening == {"get": 2, "list": 1} and committing == {"put_if_absent": 1, "list": 1, "put": 1}
    large = opened_and_committed(table(files))
    assert large[:2] == (opening, committing)
    assert large[2] - sent < 200_000 and large[3] - fetched < 200_000


@pytest.mark.thorough
def test_a_file_costs_the_same_after_many_commits() -> None:
    """Also while the head carries all that its budgets let it. [CM12] [CM25]"""
    store = CountingStore(MemoryStore(f"scale-{secrets.token_hex(8)}"))
    session = made_up_session(store)
    head = session.open()
    spilling = 0
    for number in range(rounds(700, 10_000)):
        store.reset()
        commit_one(session, head, number)
        assert store.requests(under=object_names.VERSIONS) == {"put_if_absent": 1, "list": 1} and store.requests(
            under=object_names.HINT
        ) == {"put": 1}
        assert store.sent_bytes() < 250_000 + 200 * USUAL.max_merged_files // USUAL.fan_in
        spilling += bool(store.requests(under=object_names.MANIFESTS))
        assert session.known is not None
        head = session.known
        assert len(msgspec.json.encode(head.snapshot.added)) < USUAL.inline_entry_bytes / 3, "each commit reads and writes them all again"
        assert len(head.snapshot.recent_jobs) <= USUAL.inline_jobs + 1
    assert head.snapshot.manifests and head.snapshot.job_runs and 0 < spilling <= number / 50
    opening, *_ = opened_and_committed(store)
    assert opening == {"get": 2, "list": 1}


def filled(snapshot: Snapshot, head: Head) -> Snapshot:
    """With as many entries, keys and jobs as a head carries at most."""
    jobs = [object_names.job_id(head.version, snapshot.table_id, secrets.token_bytes(16)) for _ in range(USUAL.inline_jobs)]
    entries: tuple[Entry, ...] = ()
    while not entries_overflow(entries, USUAL):
        entries = (*entries, *(entry(head, jobs[len(entries) % 500 + number], number) for number in range(10)))
    return msgspec.structs.replace(
        snapshot,
        added=entries[:-10],
        keys={f"orders {number} {job}": KeyRecord(version=number + 1, digest=secrets.token_hex(16)) for number, job in enumerate(jobs)},
        recent_jobs={job: number + 1 for number, job in enumerate(jobs)},
    )


def smallest_of_tasks() -> int:
    """How many files a task has at least that sends a manifest for them."""
    session = made_up_session(MemoryStore(f"scale-{secrets.token_hex(8)}"))
    head = session.open()
    return MESSAGE_LIMIT_BYTES // len(msgspec.json.encode(entry(head, session.new_job(head), 123_456)))


@pytest.mark.parametrize("of_tasks", [False, True], ids=["merged as far as commits do", "as tasks put them"])
def test_the_head_of_ten_million_files_and_ten_thousand_sources_is_below_a_megabyte(of_tasks: bool) -> None:
    """It is written with every commit and read by every reader. [LY13]"""
    head = TableContext(table(0, sources=10_000)).open()
    refs = made_up_refs(head, 10_000_000, smallest_of_tasks() if of_tasks else SMALLEST)
    snapshot = msgspec.structs.replace(head.snapshot, manifests=refs)
    assert sum(ref.files for ref in refs) == 10_000_000 and len(snapshot.watermarks) == 10_000
    data = codec.encode_snapshot(filled(snapshot, head))
    assert len(data) < 1_000_000
    assert codec.decode_snapshot(data, name=object_names.version_name(head.version)).manifests == refs


# --- a table that lives long --------------------------------------------------------------------------------------------
STORES = Path(__file__).parents[2] / "spec" / "stores.md"


def test_the_page_for_operators_computes_with_the_codes_constants() -> None:
    """[CM12]"""
    text = " ".join(STORES.read_text("utf-8").split())
    usual = Budgets()
    for said in (
        f"{usual.inline_entry_bytes // 1024} KiB of entries",
        f"{usual.inline_entry_bytes // 4096} KiB of earlier ones",
        f"{usual.inline_keys} keys",
        f"{usual.inline_jobs} jobs",
        f"{usual.fan_in} objects of one size",
        f"{usual.max_merged_files:,} rows",
    ):
        assert said in text


@pytest.mark.thorough
def test_the_page_for_operators_says_what_is_computed(tmp_path: Path) -> None:
    """[CM12]"""
    like = Life(str(tmp_path / "t"), None, maintained=False).session.open().snapshot
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d.,]+) \|$", STORES.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 3
    for row in rows:
        commits, objects, gigabytes = (float(text.replace(",", "")) for text in row)
        computed_objects, computed_bytes = expected(int(commits), like)
        assert objects == pytest.approx(computed_objects, rel=0.001), "field ids are drawn, and have more digits or fewer"
        assert gigabytes == pytest.approx(computed_bytes / 1e9, rel=0.1)

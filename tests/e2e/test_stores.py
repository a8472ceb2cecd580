"""Whole tables on a real S3 server: many writers, the permissions that the page names. [IV9] [CM8] [SE1]"""

import json
import re
import secrets
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.faults import processes
from tests.kit.proxy import FaultProxy
from tests.kit.tables import read_ids
from tests.store.places import Place

import manifestcommit as mc
from manifestcommit.errors import StoreDeniedError
from manifestcommit.store import open_store

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "object-stores.md"
PAGE = Path(__file__).resolve().parents[2] / "spec" / "stores.md"
PROCESSES, THREADS, COMMITS = 5, 10, 3


@pytest.fixture
def place(rgw: Any) -> Place:
    return Place(url=f"s3://{rgw.bucket()}/lake/flights", options=rgw.storage_options)


def append(place: Place, *ids: int, **options: Any) -> mc.Outcome:
    return mc.write(pa.table({"id": pa.array(ids, pa.int64())}), place.url, storage_options=place.options, **options)


# --- a server that keeps a tree ----------------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.parametrize("versioned", [False, True])
def test_a_table_lives_on_a_server_that_lists_folder_by_folder(versioned: bool, seaweedfs: Any, tmp_path: Path) -> None:
    """Partitions that its order and that of names differ in; a landing folder and a lake, too. [ST3] [GC5] [LD3] [LK1]"""
    lake, options = f"s3://{seaweedfs.bucket(versioned=versioned)}/lake", seaweedfs.storage_options
    url, days = f"{lake}/t", ["a", "a-b", "a!", "b c"]
    for number in range(24):
        rows = pa.table({"day": [days[number % 4]], "id": [number]})
        mc.write(rows, url, partition_by="day", key=f"job {number}", storage_options=options)
    landing = open_store(f"{lake}/landing", options)
    for name in ("a-b/1.csv", "a/1.csv", "a/2.csv", "b/1.csv"):
        landing.put(name, b"id\n7\n")
    mc.load(mc.sources.files(f"{lake}/landing", "csv", settle="0s", storage_options=options), f"{lake}/loaded", storage_options=options)
    table = mc.Table(url, storage_options=options)
    table.set_properties({"export.formats": "iceberg,delta"})
    before = table.version
    table.compact()
    table.delete("id = 3")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [each for each in range(24) if each != 3]
    assert table.to_arrow(version=before).num_rows == 24
    mc.gc(url, keep_versions=1, keep_for="0s", grace="0s", storage_options=options)
    assert table.verify(deep=True).findings == ()
    assert table.to_arrow().num_rows == 23
    assert mc.lake(lake, storage_options=options).tables()["url"].to_pylist() == [
        f"{lake}/{name}" for name in ("loaded", "loaded.files", "t")
    ]
    assert mc.Table(f"{lake}/loaded", storage_options=options).to_arrow().num_rows == 4


@pytest.mark.thorough
def test_pages_of_a_list_hold_every_name_once_in_any_order_of_folders(seaweedfs: Any) -> None:
    """[ST3]"""
    store = open_store(f"s3://{seaweedfs.bucket()}/t", seaweedfs.storage_options)
    names = [f"{folder}/{number:04}" for folder in ("a", "a-b", "a!") for number in range(700)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))
    assert sorted(info.name for info in store.list("")) == sorted(names)
    assert [info.name for info in store.list("a/", start_from="a/0690")] == [f"a/{number:04}" for number in range(690, 700)]


# --- what calls cost ----------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_the_page_tells_how_many_requests_calls_take(place: Place, proxy: FaultProxy) -> None:
    """Without a count of their own, pages would go on naming what once was. [CM11]"""
    place = place.given(endpoint_url=proxy.url)
    for number in range(4):
        append(place, number)
    calls: dict[str, Callable[[mc.Table], Any]] = {
        "opening a table, such as `Table.version`": lambda table: table.version,
        "`to_arrow` of four small files": lambda table: table.to_arrow(),
        "a delete of all rows of one of them": lambda table: table.delete("id = 1"),
        "an append of one file": lambda table: append(place, 5),
    }
    again = "an append of one file by a process that knows the table"
    for name, call in {**calls, again: lambda table: append(place, 6)}.items():
        table = mc.Table(place.url, storage_options=place.options)
        kept = place.open().heads
        assert kept
        if name != again:
            kept.clear()
        proxy.reset()
        call(table)
        reads = sum(each.method == "GET" and "list-type" not in each.query for each in proxy.requests)
        others = len(proxy.requests) - reads
        row = f"| {name} | {others} | {reads} | {(others * 0.005 + reads * 0.0004):.4f} |"
        assert row in HOW_TO.read_text("utf-8").splitlines()


# --- contention -------------------------------------------------------------------------------------------------------------
def contend(place: Place, process: int, ready: Any, start: Any, told: Any) -> None:
    """Ten threads, each of which commits several times: what each commit came to, and when."""

    def work(thread: int) -> list[tuple[int, int, int, float]]:
        found = []
        for number in range(COMMITS):
            each = ((process * THREADS) + thread) * COMMITS + number
            outcome = append(place, each, key=f"key {each}")
            found.append((each, outcome.version or 0, outcome.attempts, time.time()))
        return found

    mc.Table(place.url, storage_options=place.options).snapshot()  # connected
    ready.release()
    start.wait()
    with ThreadPoolExecutor(THREADS) as pool:
        told.put([each for found in pool.map(work, range(THREADS)) for each in found])


@pytest.mark.thorough
def test_fifty_writers_on_one_table_all_get_through(place: Place) -> None:
    """Blind retries once failed 54 commits under contention. Writers carry each other: nobody needs many attempts. [IV9] [CM8] [CM20]"""
    append(place, -1)
    ready, start, told = processes.Semaphore(0), processes.Event(), processes.Queue()
    running = [processes.Process(target=contend, args=(place, number, ready, start, told)) for number in range(PROCESSES)]
    for process in running:
        process.start()
    assert all(ready.acquire(timeout=120) for _ in running)
    start.set()
    commits = [each for _ in running for each in told.get(timeout=240)]
    for process in running:
        process.join(60)
    total = PROCESSES * THREADS * COMMITS
    assert [process.exitcode for process in running] == [0] * PROCESSES
    versions, attempts = {version for _, version, _, _ in commits}, sorted(count for _, _, count, _ in commits)
    mean, most = statistics.mean(attempts), attempts[-1]
    print(f"{len(versions)} versions; attempts: median {statistics.median(attempts)}, mean {mean:.1f}, most {most}")
    assert len(commits) == total and most <= MOST_ATTEMPTS and mean <= MEAN_ATTEMPTS and len(versions) <= total // 2
    assert read_ids(open_store(place.url, place.options)) == [-1, *range(total)]


# Fifty contend at once. Each for itself needed 9 attempts on average, the unluckiest 36; now 3 and 5.
MOST_ATTEMPTS, MEAN_ATTEMPTS = 12, 6


# --- permissions ------------------------------------------------------------------------------------------------------------
def policy(bucket: str) -> dict[str, Any]:
    """The page's policy for the table at lake/flights, as refusals that bind a bucket's owner: all that it does not allow is denied."""
    found = re.search(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    allowed = json.loads(found[1].replace("arn:aws:s3:::lake", f"arn:aws:s3:::{bucket}").replace("flights/", "lake/flights/"))["Statement"]
    denied: list[dict[str, Any]] = [
        {"NotAction": [action for each in allowed for action in _listed(each["Action"])], "Resource": [f"arn:aws:s3:::{bucket}/*"]}
    ]
    for each in allowed:
        if condition := each.get("Condition"):
            assert list(condition) == ["StringLike"]
            denied.append({"Action": each["Action"], "Resource": each["Resource"], "Condition": {"StringNotLike": condition["StringLike"]}})
        else:
            # Ceph asks for a bulk delete of the bucket itself first, then of each object.
            denied.append({"Action": each["Action"], "NotResource": [each["Resource"], f"arn:aws:s3:::{bucket}"]})
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*", **each} for each in denied]}


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@pytest.mark.thorough
def test_the_permissions_on_the_page_are_enough_and_not_more(place: Place, rgw: Any) -> None:
    """A refusal is told as one, and names the page. [ST5]"""
    bucket = place.url.split("/")[2]
    rgw.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps(policy(bucket)))
    append(place, 1, 2, key="a")
    assert append(place, 1, 2, key="a").already_committed
    big = pa.table({"id": pa.array([3], pa.int64()), "payload": [secrets.token_bytes(12_000_000)]})
    mc.write(big, place.url, merge_schema=True, storage_options=place.options)
    table = mc.Table(place.url, storage_options=place.options)
    assert sorted(table.dataset().to_table().column("id").to_pylist()) == [1, 2, 3]
    assert table.doctor().verdict == "safe"
    assert not [info.name for info in open_store(place.url, place.options).list("_manifest/doctor/")]
    outside = place.named(f"s3://{bucket}/other")
    with pytest.raises(StoreDeniedError, match=r"access denied .*spec/stores\.md"):
        append(outside, 1)
    data_file = table.files().column("path").to_pylist()[0]
    with pytest.raises(StoreDeniedError, match=r"could not be deleted|access denied"):
        open_store(place.url, place.options).delete([data_file])
    assert table.dataset().to_table().num_rows == 3


# --- a table that moves -----------------------------------------------------------------------------------------------------

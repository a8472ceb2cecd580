"""A page is bounded: its bytes, what is kept while versions and files are read, and the requests."""

from __future__ import annotations

import sys

import msgspec
import pyarrow as pa
import pytest
from tests.report.pages import Page
from tests.report.synthetic import data_of, head, schema_of

import manifestcommit as mc
from manifestcommit.log.table_context import TableContext
from manifestcommit.report import data as data_module
from manifestcommit.report.data import read_report
from manifestcommit.report.page import render
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore

MOST_BYTES = 2_000_000


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("versions", "files", "partitions", "columns", "sources"),
    [(1, 1, 1, 1, 0), (10, 100, 3, 5, 2), (100_000, 1_000_000, 10_000, 10_000, 20_000)],
)
def test_a_page_stays_small(versions: int, files: int, partitions: int, columns: int, sources: int) -> None:
    schema = schema_of([f"column_{at}" for at in range(columns)])
    newest = head(versions, schema, watermarks={f"topic:{at}": at for at in range(sources)})
    found = data_of(newest, versions=versions, files=files, partitions=partitions)
    html = render(found)
    page = Page(html)
    page.check_policy()
    assert len(html.encode()) < MOST_BYTES
    assert page.tiles["version"] == f"{versions:,}" and page.tiles["columns"] == f"{columns:,}"
    history = found.history
    assert len(history.buckets) == min(versions, data_module.BUCKETS)
    assert len(history.commits) == min(versions, data_module.COMMITS) and history.commit_count == versions
    assert sum(sum(bucket.operations.values()) for bucket in history.buckets) == versions
    assert (history.buckets[0].first, history.buckets[-1].last) == (1, versions)
    shown, others = found.file_view.partitions, found.file_view.others
    assert len(shown) == min(partitions, data_module.PARTITIONS)
    assert sum(each.files for each in shown) + (others.files if others else 0) == files // partitions * partitions
    kept = msgspec.structs.asdict(found) | {"history": [history.buckets, history.commits, history.schema_changes]}
    assert len(msgspec.json.encode(kept)) < MOST_BYTES  # what is kept is bounded as well


def test_operations_of_any_name_do_not_add_up() -> None:
    """The set is open: whoever writes metadata may name as many as they like."""
    newest = head(5_000, schema_of(["a"]))
    reducer = data_module.HistoryView(newest, 5_000, "memory://t")
    for version in range(5_000, 0, -1):
        one = head(version, schema_of(["a"]))
        reducer.add(msgspec.structs.replace(one, commits=(msgspec.structs.replace(one.commits[0], operation=f"op{version}"),)))
    assert len(reducer.operations) == data_module.REASONS + 1


@pytest.fixture(scope="module")
def url() -> str:
    """Thirty versions with one file each, after the one that creates the table."""
    url = f"memory://report/{id(sys)}/bounds"
    for at in range(30):
        mc.write(pa.table({"day": [f"{at % 5}"], "a": [at]}), url, partition_by="day")
    return url


@pytest.mark.parametrize("last", [1, 7, 30, 100])
def test_one_request_for_each_version_that_is_read(url: str, last: int) -> None:
    store = CountingStore(open_store(url))
    found = read_report(TableContext(store), last=last, with_gc=False, ends=None)
    count = min(last, mc.Table(url).version)
    assert found.history.last - found.history.first + 1 == count
    requests = store.requests()
    # the newest version comes with the opening: three requests, two of them gets or less
    assert requests["get"] <= count + 1 and requests["list"] <= 3 and set(requests) <= {"get", "list"}


def test_a_report_changes_nothing(url: str) -> None:
    table = mc.Table(url)
    before = table.version
    for gc in (False, True):
        Page(table.report(gc=gc).html).check_policy()
    assert table.version == before
    store = CountingStore(open_store(url))
    read_report(TableContext(store), last=5, with_gc=True, ends={"topic": 5})
    assert set(store.requests()) <= {"get", "list"}

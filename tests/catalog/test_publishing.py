"""A catalog of plain objects: what engines read by GET alone, and what could not be read so. [LK5] [LK6] [LK10]"""

import contextlib
import json
import secrets
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import polars
import pyarrow as pa
import pytest
from tests.catalog.conftest import ICEBERG
from tests.export.clients import duck
from tests.kit.sizes import rest_thorough
from tests.kit.web import answering

import manifestcommit as mc
from manifestcommit.catalog import publishing
from manifestcommit.errors import ManifestCommitError, NotATableError, UsageError
from manifestcommit.store import Store, open_store, register_scheme
from manifestcommit.testing.faults import Died, FaultStore

ONE = pa.schema([("n", pa.int64())])


class Names(NamedTuple):
    """A place for a catalog, and where its objects are read over HTTP."""

    url: str
    options: dict[str, Any] | None
    address: str


@contextlib.contextmanager
def read_by_get(store: Store) -> Iterator[str]:
    """A server that knows GET of an object's name and nothing else: no query, no ETag, no type of content."""

    class Plain(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data, status = b"<Error>NoSuchKey</Error>", 404
            with contextlib.suppress(FileNotFoundError):
                data, status = store.get(unquote(urlsplit(self.path).path)[1:]), 200
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Plain)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(params=rest_thorough(["plain", "rgw"], "plain"))
def names(request: pytest.FixtureRequest) -> Iterator[Names]:
    """In memory, behind a server of GETs; or in a bucket of real S3 that everybody may read."""
    if request.param == "plain":
        url = new()
        with read_by_get(open_store(url)) as address:
            yield Names(url, None, address)
        return
    rgw = request.getfixturevalue("rgw")
    bucket = rgw.bucket()
    public = [
        {"Effect": "Allow", "Principal": "*", "Action": f"s3:{action}", "Resource": f"arn:aws:s3:::{bucket}{inside}"}
        for action, inside in (("GetObject", "/names/*"), ("ListBucket", ""))  # without the latter, what is not there is denied
    ]
    rgw.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": public}))
    yield Names(f"s3://{bucket}/names", rgw.storage_options, f"{rgw.endpoint}/{bucket}/names")


@pytest.fixture
def flat(tmp_path: Path) -> mc.Lake:
    """Tables at the root and in folders; one that is not exported."""
    made = mc.lake(tmp_path / "flat")
    for name in ("flights", "sales.orders", "sales.a b+c", "été.x"):
        made.create(name, ONE, properties=ICEBERG)
        mc.write(pa.table({"n": [1, 2, 3]}), made.table(name).url)
    made.create("sales.plain", ONE)
    return made


def new() -> str:
    return f"memory://names{secrets.token_hex(6)}"


def objects(url: str) -> dict[str, bytes]:
    store = open_store(url)
    return {info.name: store.get(info.name) for info in store.list("")}


def problems(found: Any) -> dict[str, str | None]:
    return {row["name"]: row["problem"] for row in found.to_pylist()}


def check_whole(url: str) -> set[str]:
    """Whatever a client is led to is there and is JSON; returns the tables that are listed."""
    held = {name: data for name, data in objects(url).items() if name != "v1/lake"}
    found = {name: json.loads(data) for name, data in held.items()}
    tables = set()
    for (namespace,) in found.get("v1/namespaces", {"namespaces": []})["namespaces"]:
        assert found[f"v1/namespaces/{namespace}"]["namespace"] == [namespace]
        for each in found[f"v1/namespaces/{namespace}/tables"]["identifiers"]:
            assert found[f"v1/namespaces/{namespace}/tables/{each['name']}"]["metadata"]["current-snapshot-id"] > 0
            tables.add(f"{namespace}.{each['name']}")
    return tables


# --- clients ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_clients_find_and_read_tables_by_get_alone(flat: mc.Lake, names: Names) -> None:
    """pyiceberg, DuckDB and Polars; a commit is seen after the next call. [LK5] [LK10]"""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    found = mc.publish_catalog(flat.url, names.url, to_options=names.options)
    assert [name for name, problem in problems(found).items() if problem] == ["sales.plain"]
    catalog = load_catalog("lake", type="rest", uri=names.address, auth={"type": "noop"})  # else S3 refuses its header
    assert set(catalog.list_namespaces()) == {("default",), ("sales",), ("été",)}
    assert catalog.list_tables("sales") == [("sales", "a b+c"), ("sales", "orders")]
    for name in ("default.flights", "sales.orders", "sales.a b+c", "été.x"):
        assert catalog.load_table(name).scan().to_arrow() == flat.table(name.removeprefix("default.")).to_arrow()
    for name in ("sales.plain", "sales.none"):
        with pytest.raises(NoSuchTableError):
            catalog.load_table(name)
    with pytest.raises(NotImplementedError, match="does not support endpoint"):
        catalog.drop_table("sales.orders")

    session = duck().cursor()
    session.execute(f"ATTACH OR REPLACE 'lake' AS published (TYPE iceberg, ENDPOINT '{names.address}', AUTHORIZATION_TYPE 'none')")
    listed = {(row[1], row[2]) for row in session.execute("SHOW ALL TABLES").fetchall() if row[0] == "published"}
    assert listed == {("default", "flights"), ("sales", "orders"), ("sales", "a b+c"), ("été", "x")}
    assert session.execute('SELECT sum(n) FROM published.sales."a b+c"').fetchall() == [(6,)]
    session.execute("DETACH published")
    with warnings.catch_warnings():  # that a faster planner is not installed
        warnings.simplefilter("ignore")
        assert polars.scan_iceberg(catalog.load_table("été.x")).collect()["n"].to_list() == [1, 2, 3]

    mc.write(pa.table({"n": [4]}), flat.table("sales.orders").url)
    assert catalog.load_table("sales.orders").scan().to_arrow().num_rows == 3
    mc.publish_catalog(flat.url, names.url, to_options=names.options)
    assert catalog.load_table("sales.orders").scan().to_arrow().num_rows == 4


# --- what is published, and what goes -----------------------------------------------------------------------------------


def test_what_cannot_be_read_keeps_nothing_else_from_being_published(flat: mc.Lake) -> None:
    """Each table that is left out says why. [LK5] [LK10]"""
    root, to = Path(flat.url.removeprefix("file://")), new()
    mc.write(pa.table({"n": [1]}), root / "a.b")
    (document,) = (root / "flights" / "_iceberg" / "metadata").glob("v2.metadata.json")
    document.write_bytes(b"{}")
    told = problems(mc.publish_catalog(flat.url, to))
    assert "cannot be read" in str(told["flights"]) and "cannot be a name" in str(told["a.b"])
    assert "manifestcommit export" in str(told["sales.plain"]) and told["sales.orders"] is None
    assert check_whole(to) == {"sales.orders", "sales.a b+c", "été.x"}


def test_a_table_that_is_dropped_goes_with_its_namespace(flat: mc.Lake) -> None:
    """[LK10]"""
    to = new()
    mc.publish_catalog(flat.url, to)
    flat.drop("été.x")
    flat.drop("sales.orders")
    mc.publish_catalog(flat.url, to)
    assert check_whole(to) == {"default.flights", "sales.a b+c"}
    assert not [name for name in objects(to) if "été" in name or "orders" in name]


def test_a_call_that_ends_at_any_request_leaves_no_name_without_its_table(flat: mc.Lake) -> None:
    """First calls, and one after tables were dropped and made; the next call ends what was begun. [LK10]"""
    scheme, faults, stores = f"dying{secrets.token_hex(4)}", dict[int, Any](), list[FaultStore]()

    def opened(rest: str) -> Store:
        stores.append(FaultStore(open_store(f"memory://{rest}"), dict(faults)))
        return stores[-1]

    register_scheme(scheme, opened)

    def ends(to: str, number: int) -> bool:
        faults.clear()
        faults[number] = "dies_before"
        with contextlib.suppress(Died):
            mc.publish_catalog(flat.url, to.replace("memory", scheme))
            return False
        return True

    numbers = []
    for change in (lambda: None, lambda: (flat.drop("été.x"), flat.create("new.y", ONE, properties=ICEBERG))):
        before = new()
        mc.publish_catalog(flat.url, before)
        change()
        whole = new()
        mc.publish_catalog(flat.url, whole)
        for number in range(1, 60):
            to = new()
            for name, data in objects(before).items() if numbers else ():
                open_store(to).put(name, data)
            if not ends(to, number):
                break
            numbers.append(number)
            check_whole(to)
            mc.publish_catalog(flat.url, to)
            assert objects(to) == objects(whole)
    assert len(numbers) > 20


# --- what is refused ----------------------------------------------------------------------------------------------------


def nested(lake: mc.Lake, to: str) -> None:
    lake.create("sales.eu.orders", ONE)


def doubled(lake: mc.Lake, to: str) -> None:
    lake.create("default.flights", ONE)


def a_table(lake: mc.Lake, to: str) -> None:
    mc.write(pa.table({"n": [1]}), to)


def files(lake: mc.Lake, to: str) -> None:
    open_store(to).put("x.parquet", b"1")


def another(lake: mc.Lake, to: str) -> None:
    other = f"{to}-lake"
    mc.write(pa.table({"n": [1]}), f"{other}/t")
    mc.publish_catalog(other, to)


def emptied(lake: mc.Lake, to: str) -> None:
    for name in lake.tables().column("name").to_pylist():
        lake.drop(name)


def removed(lake: mc.Lake, to: str) -> None:
    mc.publish_catalog(lake.url, to)
    shutil.rmtree(lake.url.removeprefix("file://"))


REFUSED: dict[Callable[[mc.Lake, str], None], str] = {
    nested: "sales.eu.orders .* is in a folder of a folder.*Publish .*/flat/sales by a call of its own",
    doubled: "two tables are default.flights",
    a_table: "is a table",
    files: "holds files",
    another: "has the catalog of another lake",
    emptied: "there is no table in",
    removed: "there is no folder",
}


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_what_get_alone_cannot_tell_apart_is_refused_before_anything_is_written(
    flat: mc.Lake, make: Callable[[mc.Lake, str], None]
) -> None:
    """[LK10]"""
    to = f"{new()}/names"
    make(flat, to)
    before = objects(to)
    with pytest.raises((UsageError, NotATableError), match=REFUSED[make]):
        mc.publish_catalog(flat.url, to)
    assert objects(to) == before


def test_a_lake_whose_last_table_was_dropped_lists_none(flat: mc.Lake) -> None:
    """[LK10]"""
    to = new()
    mc.publish_catalog(flat.url, to)
    emptied(flat, to)
    assert mc.publish_catalog(flat.url, to).num_rows == 0
    left = objects(to)
    assert json.loads(left["v1/namespaces"]) == {"namespaces": []} and sorted(left) == ["v1/config", "v1/lake", "v1/namespaces"]


def test_a_folder_on_a_disk_is_refused(flat: mc.Lake, tmp_path: Path) -> None:
    """[LK10]"""
    with pytest.raises(UsageError, match="`manifestcommit serve`"):
        mc.publish_catalog(flat.url, tmp_path / "names")
    assert not (tmp_path / "names").exists()


def test_calls_at_once_have_one_result(flat: mc.Lake) -> None:
    to, failed = new(), list[ManifestCommitError]()

    def publish() -> None:
        try:
            mc.publish_catalog(flat.url, to)
        except ManifestCommitError as error:
            failed.append(error)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed and check_whole(to) == {"default.flights", "sales.orders", "sales.a b+c", "été.x"}


def test_a_call_that_another_overtakes_publishes_too(flat: mc.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one claims the place, and writes, once this one has seen that nobody had. [LK10]"""
    to, real, at_once = new(), publishing.open_or_free, iter(["overtake"])

    def overtaken(ctx: Any) -> Any:
        if next(at_once, None):
            mc.publish_catalog(flat.url, to)
        return real(ctx)

    monkeypatch.setattr(publishing, "open_or_free", overtaken)
    mc.publish_catalog(flat.url, to)
    assert next(at_once, "it did") == "it did" and check_whole(to) == {"default.flights", "sales.orders", "sales.a b+c", "été.x"}

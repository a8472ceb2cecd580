"""What is special about Azure: real requests to Azurite, through a proxy that records or loses them. [ST10]-[ST14]"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import secrets
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.proxy import Fault, FaultProxy, Rule, to
from tests.store.places import Place, names, sent

import manifestcommit as mc
from manifestcommit.errors import StoreDeniedError, StoreError, StoreUnclearError, UsageError
from manifestcommit.store import Store, open_store
from manifestcommit.store.object_store import PART_BYTES


@pytest.fixture
def proxy(azurite: Any) -> Iterator[FaultProxy]:
    with FaultProxy(azurite.endpoint) as proxy:
        yield proxy


@pytest.fixture
def place(azurite: Any, azure_root: Place, proxy: FaultProxy) -> Place:
    """A fresh root on Azurite, reached through the proxy."""
    upstream = azurite.endpoint.removesuffix(f"/{azurite.account}")
    reached = {"connection_string": azurite.connection_string.replace(upstream, proxy.url), "read_timeout": 60}
    return Place(url=f"{azure_root.url}/{secrets.token_hex(8)}", options=reached)


def test_each_call_to_azure_is_one_request(store: Store, proxy: FaultProxy) -> None:
    """[ST10] [ST13]"""
    for name, body in (("v/1", b"x" * 100), ("v/0", b""), ("v/2", bytes(40_000_000))):
        assert store.put_if_absent(name, body)
        assert [(each.method, each.has_if_none_match, each.query) for each in proxy.requests] == [("PUT", True, "")]
        proxy.reset()
        assert not store.put_if_absent(name, b"y") and sent(proxy) == ["PUT"]
    assert store.get("v/1") == b"x" * 100 and sent(proxy) == ["GET"]
    assert store.get("v/1", 5, 10) == b"xxxxx" and store.get("v/1", 98) == b"xx" and sent(proxy) == ["GET", "GET"]
    assert store.get("v/1", 100, 110) == b"" and sent(proxy) == ["GET"]
    store.put("hint", b"1")
    assert sent(proxy) == ["PUT"]
    assert names(store, "v/", "v/1") == ["v/1", "v/2"] and sent(proxy) == ["GET"]
    store.delete(["v/1", "absent"])
    assert sent(proxy) == ["DELETE", "DELETE"]
    with pytest.raises(FileNotFoundError):
        store.get("v/1")
    assert sent(proxy) == ["GET"]


def test_a_parquet_file_on_azure_is_one_request_to_write_and_two_to_read(store: Store, proxy: FaultProxy) -> None:
    """Azure has no range that counts from the end: its length is asked for first. [ST8]"""
    table = pa.table({"a": range(100)})
    output = store.create_output("a b/%2F.parquet")
    pq.write_table(table, output)
    output.close()
    assert sent(proxy) == ["PUT"]
    filesystem, base = store.filesystem()
    assert pq.ParquetFile(filesystem.open_input_file(f"{base}/a b/%2F.parquet")).metadata.num_rows == 100
    assert sent(proxy) == ["HEAD", "GET"]


def test_outputs_on_azure_appear_whole_or_never(store: Store, proxy: FaultProxy) -> None:
    """[ST2] [AB2]"""
    store.create_output("empty").close()
    assert sent(proxy) == ["PUT"] and store.get("empty") == b""
    written = secrets.token_bytes(1_000_000)
    kept, dropped = store.create_output("kept"), store.create_output("dropped")
    for _ in range(20):
        kept.write(written)
        dropped.write(written)
    assert names(store) == ["empty"] and kept.tell() == 20_000_000
    kept.close()
    dropped.discard()
    dropped.close()
    assert names(store) == ["empty", "kept"] and store.get("kept") == written * 20
    blocks = [each.body_size for each in proxy.requests if "comp=block&" in f"{each.query}&" and each.name.endswith("kept")]
    assert sorted(blocks, reverse=True) == [PART_BYTES, PART_BYTES, 20_000_000 - 2 * PART_BYTES]
    assert [each.name.rpartition("/")[2] for each in proxy.requests if "comp=blocklist" in each.query] == ["kept"]


def test_folders_of_a_hierarchical_namespace_are_no_objects(store: Store, azurite: Any, azure_root: Place) -> None:
    """Such an account lists each folder as an empty blob that says so in its metadata. [ST3]"""
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient.from_connection_string(azurite.connection_string) as client:
        container, folder = store.url.removeprefix("abfs://").split("/", 1)
        for name, sign in (("d", "hdi_isfolder"), ("d/e", "Hdi_isfolder")):
            client.get_blob_client(container, f"{folder}/{name}").upload_blob(b"", metadata={sign: "true"})
    store.put("d/e/file", b"1")
    assert names(store) == names(store, "d") == ["d/e/file"]


def test_a_backslash_is_refused_as_azure_would_make_a_slash_of_it(store: Store, proxy: FaultProxy) -> None:
    """[LY1]"""
    with pytest.raises(StoreError, match="backslash"):
        store.put_if_absent("a\\b", b"")
    assert sent(proxy) == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_azure_is_asked_again_by_us_alone(store: Store, proxy: FaultProxy, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """[ST14]"""
    monkeypatch.setattr("manifestcommit.store.object_store.random.uniform", lambda *_: 0.0)  # no pauses
    store.put("x", b"1")
    proxy.reset()
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="status_before", status=status), times=2)]
    assert store.get("x") == b"1" and sent(proxy) == ["GET"] * 3
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="status_before", status=status), times=None)]
    with pytest.raises(StoreError, match=f"HTTP {status}.*asked 8 times"):
        store.get("x")
    assert sent(proxy) == ["GET"] * 8


@pytest.mark.parametrize(
    "fault", [Fault(kind="answer_closed"), Fault(kind="answer_dropped"), Fault(kind="status_after", status=503)], ids=lambda each: each.kind
)
def test_a_create_whose_answer_is_lost_is_unclear_and_sent_once(place: Place, proxy: FaultProxy, fault: Fault) -> None:
    """A repeat would find the name taken: by its own first try. [ST5] [ST10]"""
    store = (place.given(read_timeout=2) if fault.kind == "answer_dropped" else place).open()
    proxy.faults = [Rule(match=to("PUT"), fault=fault, times=None)]
    with pytest.raises(StoreUnclearError, match="may have been created"):
        store.put_if_absent("v/1", b"mine")
    assert sent(proxy) == ["PUT"] and store.get("v/1") == b"mine"


def test_lost_blocks_and_lists_of_blocks_are_sent_again(store: Store, proxy: FaultProxy) -> None:
    """[ST2] [ST14]"""
    store.put("x", b"")
    proxy.faults = [
        Rule(match=lambda each: "comp=blocklist" in each.query, fault=Fault(kind="answer_closed")),
        Rule(match=lambda each: "comp=block&" in f"{each.query}&", fault=Fault(kind="answer_closed")),
    ]
    output = store.create_output("big")
    written = secrets.token_bytes(2 * PART_BYTES + 1)
    output.write(written)
    output.close()
    assert store.get("big") == written


def broken(azurite: Any, what: str) -> tuple[str, dict[str, Any]]:
    container, whole = azurite.container(), azurite.connection_string
    wrong_key = whole.replace(azurite.key, f"AAAA{azurite.key[4:]}")
    return {
        "container": ("abfs://no-such-container/t", {"connection_string": whole}),
        "key": (f"abfs://{container}/t", {"connection_string": wrong_key}),
        "no key": (f"abfs://{container}/t", {"connection_string": whole.replace(azurite.key, "no base64 at all!")}),
    }[what]


@pytest.mark.parametrize(
    ("what", "kind", "told", "requests"),
    [
        ("container", StoreError, "no container no-such-container", 1),
        ("key", StoreDeniedError, "denied", 1),
        ("no key", StoreError, "credentials", 0),
    ],
)
def test_what_is_wrong_with_the_place_is_said_at_once(
    azurite: Any, proxy: FaultProxy, what: str, kind: type[StoreError], told: str, requests: int
) -> None:
    """[ST5] [ST14]"""
    url, options = broken(azurite, what)
    upstream = azurite.endpoint.removesuffix(f"/{azurite.account}")
    store = open_store(url, {"connection_string": options["connection_string"].replace(upstream, proxy.url)})
    calls = [lambda: store.get("x"), lambda: names(store), lambda: store.put("x", b""), lambda: store.put_if_absent("x", b"")]
    for call in [*calls, lambda: store.open_input("x"), lambda: store.delete(["x"])]:
        with pytest.raises(StoreError, match=told) as error:
            call()
        assert type(error.value) is kind and len(sent(proxy)) == requests


def test_an_endpoint_that_nobody_serves_is_tried_three_times(azurite: Any, unused_tcp_endpoint: str) -> None:
    """A wrong endpoint is likelier than a bad moment. [ST14]"""
    options = {"connection_string": azurite.connection_string.replace(azurite.endpoint, f"{unused_tcp_endpoint}/{azurite.account}")}
    for call in (lambda each: each.get("x"), lambda each: each.put_if_absent("x", b"")):
        with pytest.raises(StoreError, match=r"no connection to http://127\.0\.0\.1:\d+/.*asked 3 times") as error:
            call(open_store("abfs://c/t", options))
        assert not isinstance(error.value, StoreUnclearError), "nothing reached a store"


@pytest.fixture
def unused_tcp_endpoint() -> str:
    from tests.servers.servers import free_port

    return f"http://127.0.0.1:{free_port()}"


def test_the_account_key_is_in_no_text(azurite: Any, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """[SE1]"""
    caplog.set_level(logging.DEBUG)
    store, texts = place.open(), []
    store.put("x", b"1")
    for what in ("container", "key", "no key"):
        url, options = broken(azurite, what)
        for call in (lambda each: each.get("x"), lambda each: each.put_if_absent("x", b"1")):
            with pytest.raises(StoreError) as error:
                call(open_store(url, options))
            texts += [str(error.value), repr(error.value), repr(error.getrepr(showlocals=False))]
    for wrong in ({"connection_string": f"AccountKey={azurite.key};nonsense"}, {"account_key": azurite.key, "location_mode": azurite.key}):
        with pytest.raises(UsageError) as usage:
            open_store("abfs://c/t", wrong)
        texts.append(str(usage.value))
    revived = pickle.loads(pickle.dumps(store))
    assert revived.get("x") == b"1" and revived.url == store.url
    texts += [repr(store), repr(revived), repr(store._options), str(store.identity), store.url, caplog.text]  # type: ignore[attr-defined]

    assert store.scrub(f"no client for {azurite.key}, {place.options['connection_string']}") == "no client for ***, ***"
    for secret in (azurite.key, azurite.key[4:-2], "no base64 at all!"):
        assert secret not in "\n".join(texts)


@pytest.mark.parametrize(
    ("url", "options", "canonical", "endpoint"),
    [
        ("abfss://c@acc.dfs.core.windows.net/a/b/", {}, "abfs://c@acc.dfs.core.windows.net/a/b", "https://acc.blob.core.windows.net"),
        ("ABFS://c@acc.blob.core.windows.net/a", {}, "abfs://c@acc.dfs.core.windows.net/a", "https://acc.blob.core.windows.net"),
        ("az://c/a", {"account_name": "acc"}, "abfs://c@acc.dfs.core.windows.net/a", "https://acc.blob.core.windows.net"),
        ("az://c", {"account_name": "acc"}, "abfs://c@acc.dfs.core.windows.net", "https://acc.blob.core.windows.net"),
        (
            "abfs://c@acc.dfs.core.chinacloudapi.cn/a",
            {},
            "abfs://c@acc.dfs.core.chinacloudapi.cn/a",
            "https://acc.blob.core.chinacloudapi.cn",
        ),
        ("az://c/a", {"account_name": "acc", "account_host": "127.0.0.1:1/acc"}, "abfs://c/a", "https://127.0.0.1:1/acc"),
    ],
)
def test_a_place_on_azure_has_one_url(url: str, options: dict[str, str], canonical: str, endpoint: str) -> None:
    """[ST4]"""
    store = open_store(url, {"account_key": "c2VjcmV0", **options})
    assert store.url == canonical and store._endpoint == endpoint  # type: ignore[attr-defined]
    assert open_store(store.url, {"account_key": "c2VjcmV0", **options}).url == canonical
    assert store.identity.startswith("abfs://c") and ("@" in canonical or endpoint in store.identity)


def test_an_azure_url_that_names_no_place_is_refused(azurite: Any) -> None:
    """[ST4] [SE1]"""
    for url in ("abfs://c@acc/t", "abfs://@acc.dfs.core.windows.net/t", "abfs://c@acc.dfs.core.windows.net//t", "abfs://"):
        with pytest.raises(UsageError):
            open_store(url, {"account_key": "c2VjcmV0"})
    with pytest.raises(UsageError, match="another account"):
        open_store("abfs://c@acc.dfs.core.windows.net/t", azurite.storage_options)
    with pytest.raises(UsageError, match="credentials"):
        open_store(f"abfs://acc:{azurite.key}@host/t")


def write_after_fork(store: Store, place: Place, answers: Any) -> None:
    store.put("from the child", store.get("from the parent"))
    answers.put((names(store), mc.Table(f"{place.url}/t", storage_options=place.options).snapshot().version))


def test_a_forked_process_uses_the_store_of_its_parent_on_azure(azurite: Any, azure_root: Place) -> None:
    """[ST13]"""
    place = azure_root.named(f"{azure_root.url}/{secrets.token_hex(8)}")
    store = place.open()
    mc.write(pa.table({"x": [1]}), f"{place.url}/t", storage_options=place.options)
    store.put("from the parent", b"x")
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python says that forking with threads is dangerous; it is, and it is done
        child = fork.Process(target=write_after_fork, args=(store, place, answers))
        child.start()
    found, version = answers.get(timeout=60)
    child.join(30)
    assert child.exitcode == 0 and version == 2 and {"from the child", "from the parent"} <= set(found)
    assert store.get("from the child") == b"x"


FORKING = """
import os, sys
from manifestcommit.store import open_store
store = open_store(sys.argv[1], {"connection_string": os.environ["REACHED"]})
store.put("a", b"1")
child = os.fork()
if not child:
    store.put("b", store.get("a"))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0 and store.get("b") == b"1"
"""


def test_a_forked_process_ends(azurite: Any, azure_root: Place) -> None:
    """Nothing of its parent's client is waited for at the end. [ST13]"""
    command = [sys.executable, "-W", "ignore", "-c", FORKING, f"{azure_root.url}/{secrets.token_hex(8)}"]
    subprocess.run(command, env=os.environ | {"REACHED": azurite.connection_string}, check=True, timeout=60)


def append(place: Place, number: int) -> None:
    mc.write(pa.table({"x": [number]}), place.url, key=f"k{number}", storage_options=place.options)

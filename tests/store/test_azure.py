"""What is special about Azure: real requests to Azurite, through a proxy that records or loses them. [ST10]-[ST14]"""

import logging
import pickle
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.proxy import FaultProxy
from tests.store.places import Place, names, sent

from manifestcommit.errors import StoreDeniedError, StoreError, UsageError
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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
        ("abfs://c@acc.dfs.core.chinacloudapi.cn/a", {}, None, "https://acc.blob.core.chinacloudapi.cn"),  # None: the same
        ("az://c/a", {"account_name": "acc", "account_host": "127.0.0.1:1/acc"}, "abfs://c/a", "https://127.0.0.1:1/acc"),
    ],
)
def test_a_place_on_azure_has_one_url(url: str, options: dict[str, str], canonical: str | None, endpoint: str) -> None:
    """[ST4]"""
    store, canonical = open_store(url, {"account_key": "c2VjcmV0", **options}), canonical or url
    assert store.url == canonical and store.where == endpoint  # type: ignore[attr-defined]
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

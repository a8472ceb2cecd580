"""What passed for an answer of the store and was none, and what was taken for the same and was another. [ST5] [ST10] [ST14] [SE1]

Each of these once lost a row, doubled one, or showed a secret to a stranger.
"""

import multiprocessing
import os
import re
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.kit.proxy import Fault, FaultProxy, Rule, to
from tests.kit.stores import noting
from tests.kit.stores import place as place
from tests.store.places import Place, names

import manifestcommit as mc
from manifestcommit.errors import OutcomeUnknownError, StoreError, StoreUnclearError, UsageError
from manifestcommit.store import StorageOptions, Store, open_store
from manifestcommit.store import object_store as backends
from manifestcommit.store.object_store import PART_BYTES, ObjectStore, Page


@contextmanager
def stranger(status: int) -> Iterator[tuple[str, Callable[[], list[Any]]]]:
    """(its URL, what arrived elsewhere): sends whoever asks to another host, or acknowledges without an ETag."""
    with noting() as server:
        elsewhere = f"http://user:word@localhost:{server.server_port}/elsewhere?sig=signature"
        server.reply = lambda _: (status, {"Location": elsewhere, "ETag": ""}, b"")
        yield server.url, lambda: [each for each in server.asked if each[1].startswith("/elsewhere")]


KEYS = {"key": "k" * 20, "secret": "s" * 40, "token": "a session's token"}
KINDS: dict[str, tuple[str, str, Callable[[str], dict[str, Any]]]] = {
    "s3": ("s3://b/t", "AWS_DEFAULT_REGION", lambda at: {**KEYS, "endpoint_url": at}),
    "gcs": ("gs://b/t", "endpoint_url in storage_options", lambda at: {"token": "anon", "endpoint_url": at}),
    "azure": ("abfs://b/t", "account_host", lambda at: {"connection_string": f"AccountName=a;AccountKey=a2V5;BlobEndpoint={at}/a"}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_told_with_what_decides_the_address(status: int, kind: str) -> None:
    """A file that a login page had \"taken\" was committed, and the token sent along to another host. [ST14] [SE1]"""
    url, remedy, options = KINDS[kind]
    with stranger(status) as (endpoint, arrived):
        store = open_store(url, options(endpoint))
        calls = (store.put, store.put_if_absent, lambda name, _: store.get(name), lambda name, _: [*store.list(name)])
        for call in (*calls, lambda name, _: store.delete([name])):
            with pytest.raises(StoreError, match=f"{status}, to localhost:[0-9]+\\), and no redirect is followed.*{remedy}") as caught:
                call("x", b"rows")
            assert type(caught.value) is StoreError and not {"word", "sig"} & {*re.split(r"\W", str(caught.value))}
        assert arrived() == []


def test_a_put_that_nobody_acknowledged_by_its_etag_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """[ST2] [ST5]"""
    monkeypatch.setattr(backends, "USUAL", msgspec.structs.replace(backends.USUAL, first_pause_s=0.001))
    with stranger(200) as (endpoint, _):
        store = open_store("s3://b/t", {"key": "k" * 20, "secret": "s" * 40, "endpoint_url": endpoint})
        with pytest.raises(StoreError, match="names no ETag"):
            store.put("x", b"rows")
        with pytest.raises(StoreUnclearError, match="names no ETag"):
            store.put_if_absent("y", b"rows")


def test_an_empty_answer_to_a_list_is_no_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that answers everything would make a table look removed, and a folder free. [ST3] [CM5] [LY6]"""
    monkeypatch.setattr(backends, "USUAL", msgspec.structs.replace(backends.USUAL, first_pause_s=0.001))
    with stranger(200) as (endpoint, _):
        store = open_store("s3://b/t", {"key": "k" * 20, "secret": "s" * 40, "endpoint_url": endpoint})
        with pytest.raises(StoreError, match="the response is malformed \\(ValueError: no ListBucketResult"):
            names(store)


@pytest.mark.thorough
def test_a_page_that_is_no_list_is_no_empty_list(proxy: FaultProxy, store: Store) -> None:
    """[ST3] [CM5]"""
    store.put("x", b"")
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="status_before", status=200, code="Welcome"))]
    assert names(store) == ["x"]
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="status_before", status=404, code="NoSuchKey"), times=None)]
    with pytest.raises(StoreError, match="could not be listed"):
        names(store)
    proxy.faults = [Rule(match=to("PUT"), fault=Fault(kind="status_before", status=404, code="NoSuchKey"))]
    with pytest.raises(StoreError, match="could not be written"):
        store.put("x", b"")


def test_a_list_without_end_is_told(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """[ST14]"""
    assert isinstance(store, ObjectStore)
    monkeypatch.setattr(store, "page", lambda *_: Page((), "the same"), raising=True)
    with pytest.raises(StoreError, match="again and again"):
        names(store)


def test_a_range_that_the_store_disregards_is_cut_here(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """[ST8]"""
    assert isinstance(store, ObjectStore)
    monkeypatch.setattr(store, "_fetch", lambda *_: (b"0123456789", 10, "tag"), raising=True)
    assert (store.get("x", 2, 4), store.get("x", 8), store.get("x"), store.get("x", 0, 99)) == (b"23", b"89", b"0123456789", b"0123456789")
    assert store.get_tagged("x", 4) == (b"0123", "tag")


def test_versioning_that_is_switched_on_later_is_noticed(rgw: Any) -> None:
    """Of eight racing commits that were all acknowledged, one was there. [ST12] [CM6]"""
    bucket = rgw.bucket()
    url = f"s3://{bucket}/t"
    mc.write(pa.table({"id": [1]}), url, storage_options=rgw.storage_options)
    rgw.call("put_bucket_versioning", Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    with pytest.raises(OutcomeUnknownError, match="versioning is on"):
        mc.write(pa.table({"id": [2]}), url, storage_options=rgw.storage_options)


@pytest.mark.thorough
def test_a_peer_that_stops_reading_does_not_hold_a_request_for_ever() -> None:
    """The sending of a body is bounded, too. [ST14]"""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        options = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{deaf.getsockname()[1]}"}
        store = open_store("s3://b/t", {**options, "config_kwargs": {"read_timeout": 1}})
        with pytest.raises(StoreUnclearError, match="no answer"):
            store.put_if_absent("x", bytes(32 * 1024 * 1024))


# --- who is who -------------------------------------------------------------------------------------------------------------
class Masked(str):
    """A text that does not show itself, as classes for secrets do."""

    def __repr__(self) -> str:
        return "***"


def test_tenants_do_not_share_a_client() -> None:
    """[SE1] [ST13]"""
    assert StorageOptions({"key": Masked("a")}).fingerprint() != StorageOptions({"key": Masked("b")}).fingerprint()
    assert StorageOptions({"key": Masked("a")}).fingerprint() == StorageOptions({"key": Masked("a")}).fingerprint()

    class Session:
        def __repr__(self) -> str:
            return "<session>"

    one, other = Session(), Session()
    assert StorageOptions({"session": one}).fingerprint() != StorageOptions({"session": other}).fingerprint()


def test_options_that_are_no_mapping_are_refused_without_showing_them() -> None:
    """[SE1]"""
    with pytest.raises(UsageError, match="is a mapping", check=lambda error: "hunter2" not in str(error)):
        open_store("s3://b/t", "secret=hunter2")  # type: ignore[arg-type]


def test_options_that_are_changed_later_change_no_open_store() -> None:
    """[SE1]"""
    given = {"client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}, "list": [1]}
    options = StorageOptions(given)
    before = options.fingerprint()
    given["client_kwargs"]["endpoint_url"] = "http://elsewhere"  # type: ignore[index]
    given["list"].append(2)  # type: ignore[attr-defined]
    assert options.fingerprint() == before and options["client_kwargs"]["endpoint_url"] == "http://127.0.0.1:9"


@pytest.mark.thorough
def test_old_clients_are_dropped(s3_root: Place) -> None:
    """A token that changes every hour filled a service's memory. [IV10]"""
    for number in range(backends._CONNECTIONS_KEPT + 5):
        store = open_store(f"{s3_root.url}/old", {**s3_root.options, "config_kwargs": {"user_agent_extra": f"number-{number}"}})
        store.put("x", b"")
    assert len([key for key in backends._shared if key[0] == os.getpid()]) == backends._CONNECTIONS_KEPT


# --- outputs ----------------------------------------------------------------------------------------------------------------
def test_an_output_whose_completion_failed_is_not_completed_again(proxy: FaultProxy, store: Store) -> None:
    """The last part was there twice. [ST2]"""
    output = store.create_output("x")
    output.write(bytes(PART_BYTES + 1000))
    proxy.faults = [Rule(match=to("POST"), fault=Fault(kind="status_before", status=403), times=None)]
    with pytest.raises(StoreError):
        output.close()
    proxy.faults = []
    with pytest.raises(StoreError, match="could not be completed before"):
        output.close()
    output.discard()
    assert names(store) == []


@pytest.mark.thorough
def test_a_forked_child_does_not_end_its_parents_upload(store: Store) -> None:
    """[ST2] [ST13]"""
    output = store.create_output("x")
    output.write(bytes(2 * PART_BYTES + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=output.discard)
        child.start()
    child.join(60)
    assert child.exitcode == 0
    output.close()
    assert [info.size_bytes for info in store.list("x")] == [2 * PART_BYTES + 1]

"""Data on S3 comes by GETs of our own, like those of s3fs' client: the same bytes for the same account, or that client's refusal. [ST41]"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.faults.proxy import Fault, FaultProxy, Rule, to
from tests.store.places import Place, sent

from manifestcommit.errors import StoreError
from manifestcommit.store import Store, open_store
from manifestcommit.store.backends import s3_gets
from manifestcommit.store.backends.arrow_filesystem import TAIL_BYTES
from manifestcommit.store.backends.retry import Patience
from manifestcommit.store.backends.s3 import DATA_BYTES

SIZE = 3 * DATA_BYTES
NAMES = ("plain.parquet", "a b/%2F+#=?&.parquet", "k=ü 漢/'\"~*()!@$,;:.parquet", "dots/.../y.parquet")


@pytest.fixture
def place(s3_behind_proxy: Place) -> Place:
    return s3_behind_proxy


def ours(store: Any) -> Any:
    """What sends GETs of data in this store's bucket; None where s3fs' client does."""
    return store._backend.connection().beside[store._backend._bucket]


@pytest.fixture
def data(store: Store, proxy: FaultProxy) -> bytes:
    """What stands at "x.parquet", in a store that knows how to get it."""
    body = secrets.token_bytes(SIZE)
    store.put("x.parquet", body)
    for _ in range(2):
        assert store.get("x.parquet", 0, SIZE) == body
    assert ours(store).has_worked
    proxy.reset()
    return body


@pytest.mark.parametrize("name", NAMES)
def test_any_range_of_any_name_is_one_request_and_the_same_bytes(store: Store, proxy: FaultProxy, data: bytes, name: str) -> None:
    store.put(name, data)
    proxy.reset()
    for start, end in [(0, SIZE), (1, DATA_BYTES + 1), (SIZE - DATA_BYTES, SIZE), (DATA_BYTES, SIZE + 10**6)]:
        ours(store).has_worked = False
        assert store.get(name, start, end) == data[start:end]
        assert ours(store).has_worked and sent(proxy) == ["GET"]
    assert store.get(name, SIZE, SIZE + DATA_BYTES) == b"", "behind its end"


@pytest.mark.parametrize("size", [SIZE, 3, 0])
def test_the_end_of_a_data_file_comes_by_the_cheaper_client(store: Store, proxy: FaultProxy, data: bytes, size: int) -> None:
    """A task would begin with the dearest requests of all: a footer of each of its files."""
    store.put("end.parquet", data[:size])
    proxy.reset()
    ours(store).has_worked = size == 0  # of nothing there is no range
    with store.open_input("end.parquet") as source:
        assert source.seek(-min(size, TAIL_BYTES), io.SEEK_END) == max(0, size - TAIL_BYTES)
        assert source.read() == data[max(0, size - TAIL_BYTES) : size]
    assert ours(store).has_worked and sent(proxy) == ["GET"] * (1 if size else 2)


def test_what_is_no_data_is_left_to_the_other_client(store: Store, proxy: FaultProxy, data: bytes) -> None:
    """A version that may be missing is asked for once, however many bytes it could have. [CM5]"""
    ours(store).has_worked = False
    store.put("state.json.zst", data)
    proxy.reset()
    assert store.get("state.json.zst", 0, 1 << 26) == data and sent(proxy) == ["GET"]
    with pytest.raises(FileNotFoundError):
        store.get("gone.json.zst", 0, 1 << 26)
    assert sent(proxy) == ["GET"] and not ours(store).has_worked


def test_many_threads_and_a_pickled_store_share_the_connections(store: Store, data: bytes) -> None:
    def get(at: int) -> bool:
        return store.get("x.parquet", at, at + DATA_BYTES) == data[at : at + DATA_BYTES]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(get, range(0, SIZE - DATA_BYTES, 997)))
    assert ours(open_store(store.url, store._options)) is ours(store)  # type: ignore[attr-defined]


def test_data_that_is_gone_is_told_as_such(store: Store, data: bytes) -> None:
    """Not as an empty file, nor as a bad connection. [ST8]"""
    with pytest.raises(FileNotFoundError, match=r"/gone\.parquet"):
        store.get("gone.parquet", 0, SIZE)
    assert ours(store).has_worked


@pytest.mark.parametrize("kind", ["answer_cut", "answer_closed", "request_reset"])
def test_an_answer_that_breaks_off_is_asked_for_again(store: Store, proxy: FaultProxy, data: bytes, kind: Any) -> None:
    """[ST8] [ST14]"""
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind=kind), times=2)]
    assert store.get("x.parquet", 0, SIZE) == data
    assert sent(proxy) == ["GET"] * 3 and store.retries == 2  # type: ignore[attr-defined]


def test_a_busy_store_is_asked_for_data_a_bounded_number_of_times(
    store: Store, proxy: FaultProxy, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each of the two clients as often as one is. [ST14]"""
    three = Patience(attempts=3, deadline_s=60.0, first_pause_s=0.01)
    monkeypatch.setattr(store._backend, "_patience", lambda: three)  # type: ignore[attr-defined]
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="status_before", status=503), times=2)]
    assert store.get("x.parquet", 0, SIZE) == data and len(sent(proxy)) == 3 and store.retries == 2  # type: ignore[attr-defined]
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="status_before", status=503), times=None)]
    with pytest.raises(StoreError, match="busy"):
        store.get("x.parquet", 0, SIZE)
    assert len(proxy.requests) == 2 * 3


@pytest.mark.parametrize("fault", [Fault(kind="status_before", status=403), Fault(kind="request_reset")], ids=lambda each: str(each.kind))
def test_a_store_that_serves_only_the_other_client_is_read_by_that(place: Place, proxy: FaultProxy, fault: Fault) -> None:
    """A table that could be read before stays readable, and no request is wasted from then on."""
    store = place.given(config_kwargs={"read_timeout": 59}).open()
    store.put("x.parquet", bytes(SIZE))
    assert store.get("x.parquet", 0, SIZE) == bytes(SIZE)
    proxy.reset()
    proxy.faults = [Rule(match=to("GET"), fault=fault)]
    assert store.get("x.parquet", 0, SIZE) == bytes(SIZE) and sent(proxy) == ["GET", "GET"]
    assert ours(store) is None
    assert store.get("x.parquet", 0, SIZE) == bytes(SIZE) and sent(proxy) == ["GET"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_store_that_is_busy_once_does_not_make_all_later_reads_dear(place: Place, proxy: FaultProxy, status: int) -> None:
    """It is at the start of a job that a store is asked to slow down; a worker lives for long after it."""
    store = place.given(config_kwargs={"read_timeout": status / 10}).open()  # a connection of its own
    store.put("x.parquet", bytes(SIZE))
    assert store.get("x.parquet", 0, SIZE) == bytes(SIZE)
    proxy.reset()
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="status_before", status=status), times=2)]
    assert store.get("x.parquet", 0, SIZE) == bytes(SIZE) and sent(proxy) == ["GET"] * 3  # the other client was refused, too
    proxy.faults = [Rule(match=to("GET"), fault=Fault(kind="status_before", status=status))]
    ours(store).has_worked = False
    assert store.get("x.parquet", 0, SIZE) == bytes(SIZE) and sent(proxy) == ["GET"] * 2
    assert store.get("x.parquet", 0, SIZE) == bytes(SIZE) and sent(proxy) == ["GET"] and ours(store).has_worked


def test_new_credentials_are_used_once_the_client_has_them(
    store: Store, data: bytes, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """Those of a role change every hour; and nobody reads with those that were taken away. [SE1]"""
    from aiobotocore.credentials import AioCredentials

    monkeypatch.setattr(s3_gets, "_CREDENTIALS_KEPT_S", -1.0)
    signer = store._backend.connection().fs.s3._request_signer  # type: ignore[attr-defined]
    right, wrong = signer._credentials, secrets.token_hex(20)
    signer._credentials = AioCredentials(place.options["key"], wrong)
    try:
        assert ours(store).get(store._key("x.parquet"), {}) == 403  # type: ignore[attr-defined]
        with pytest.raises(StoreError, match="does not accept the credentials") as told:
            store.get("x.parquet", 0, SIZE)
        assert wrong not in str(told.value)
    finally:
        signer._credentials = right
    assert store.get("x.parquet", 0, SIZE) == data


def test_a_public_bucket_is_read_without_credentials(rgw: Any) -> None:
    bucket = rgw.bucket()
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    rgw.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [everybody]}))
    rgw.call("put_object", Bucket=bucket, Key="t/x.parquet", Body=bytes(SIZE))
    store = open_store(f"s3://{bucket}/t", {"anon": True, "endpoint_url": rgw.endpoint})
    for _ in range(2):
        assert store.get("x.parquet", 0, SIZE) == bytes(SIZE)
    assert ours(store).has_worked and not ours(store)._region


def spoil(request: Any, **changes: Any) -> Any:
    return type("Request", (), {"method": request.method, "url": request.url, "headers": request.headers, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        lambda request: {"url": request.url + "?versionId=1"},
        lambda request: {"method": "HEAD"},
        lambda request: {"headers": {**dict(request.headers), "Authorization": "AWS key:signature"}},
        lambda request: {
            "headers": {**dict(request.headers), "Authorization": b"AWS4-ECDSA-P256-SHA256 Credential=k/20130101/s3/aws4_request, "}
        },
    ],
    ids=["a version", "no GET", "the older signature", "a signature for several regions"],
)
def test_what_is_signed_or_named_in_another_way_is_left_to_the_client(
    store: Store, data: bytes, changes: Callable[[Any], dict[str, Any]]
) -> None:
    noted: list[Any] = []
    backend: Any = store._backend  # type: ignore[attr-defined]
    backend._fetch(store._key("x.parquet"), {}, noted)  # type: ignore[attr-defined]
    (request, settings), fs = noted[0], backend.connection().fs
    assert s3_gets.clone_request(fs, request, settings, store._key("x.parquet")) is not None  # type: ignore[attr-defined]
    assert s3_gets.clone_request(fs, spoil(request, **changes(request)), settings, store._key("x.parquet")) is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["resolver", "socket_factory", "ssl_context"])
def test_a_client_with_a_way_of_its_own_to_the_store_is_not_passed_by(store: Store, data: bytes, way: str) -> None:
    """Requests that are told to take a private network would go by the public one, with the headers of this one. [ST41] [SE1]"""
    noted: list[Any] = []
    backend: Any = store._backend  # type: ignore[attr-defined]
    backend._fetch(store._key("x.parquet"), {}, noted)  # type: ignore[attr-defined]
    (request, settings), fs = noted[0], backend.connection().fs
    kept = settings["connector_args"]
    assert s3_gets.clone_request(fs, request, settings, store._key("x.parquet")) is not None, kept  # type: ignore[attr-defined]
    assert s3_gets.clone_request(fs, request, {**settings, "connector_args": {**kept, way: object()}}, store._key("x.parquet")) is None  # type: ignore[attr-defined]

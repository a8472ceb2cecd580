"""What is special about S3: how many requests a call is, whose repeats they are, and what its refusals become. [ST10]-[ST14]

Through a proxy that records every request, or loses some, before a real S3 server.
"""

import datetime as dt
import json
import multiprocessing
import os
import pickle
import secrets
import warnings
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.proxy import Fault, FaultProxy, Rule, to
from tests.kit.stores import place as place
from tests.store.places import Place, names, sent

import manifestcommit as mc
from manifestcommit.errors import StoreDeniedError, StoreError, StoreUnclearError, UnsafeStoreError, UsageError
from manifestcommit.store import StorageOptions, Store, open_store
from manifestcommit.store.object_store import PART_BYTES
from manifestcommit.store.s3 import _just_below, _time


# --- requests -------------------------------------------------------------------------------------------------------------
def test_each_call_is_one_request(store: Store, proxy: FaultProxy) -> None:
    """No HEAD before a GET, no list before a PUT. [ST10] [ST13]"""
    assert store.put_if_absent("v/1", b"x" * 100) and sent(proxy) == ["PUT"]
    assert not store.put_if_absent("v/1", b"y") and sent(proxy) == ["PUT"]
    assert store.get("v/1") and sent(proxy) == ["GET"]
    assert store.get("v/1", 5, 10) == b"xxxxx" and sent(proxy) == ["GET"]
    assert store.get("v/1", 100, 110) == b"" and sent(proxy) == ["GET"]
    store.put("hint", b"1")
    assert sent(proxy) == ["PUT"]
    assert names(store, "v/", "v/0") == ["v/1"] and sent(proxy) == ["GET"]
    store.delete(["v/1", "hint", "absent"])
    assert sent(proxy) == ["POST"]
    with pytest.raises(FileNotFoundError):
        store.get("v/1")
    assert sent(proxy) == ["GET"]


@pytest.mark.thorough
def test_a_create_is_one_conditional_put_whatever_its_size(store: Store, proxy: FaultProxy) -> None:
    """Stores ignore the condition on a multipart upload. [ST10] [ST11]"""
    for number, size in enumerate((0, 1, 3 * PART_BYTES, 80 * 1024 * 1024)):
        assert store.put_if_absent(f"v/{number}", bytes(size))
        assert [(each.method, each.has_if_none_match, each.body_size) for each in proxy.requests] == [("PUT", True, size)]
        proxy.reset()
        assert not store.put_if_absent(f"v/{number}", b"")
        assert not store.put_if_absent(f"v/{number}", bytes(PART_BYTES + 1))
        assert sent(proxy) == ["PUT", "PUT"]


def test_a_small_parquet_file_is_one_request_to_write_and_one_to_read(store: Store, proxy: FaultProxy) -> None:
    """[ST13]"""
    table = pa.table({"a": range(100)})
    output = store.create_output("a b/%2F.parquet")
    pq.write_table(table, output)
    output.close()
    assert sent(proxy) == ["PUT"]
    with store.open_input("a b/%2F.parquet") as stream:
        assert pq.read_table(stream).equals(table)
    assert sent(proxy) == ["GET"]
    filesystem, base = store.filesystem()
    assert pq.ParquetFile(filesystem.open_input_file(f"{base}/a b/%2F.parquet")).read().equals(table)
    assert sent(proxy) == ["GET"]


def test_a_column_is_read_without_the_others(store: Store, proxy: FaultProxy) -> None:
    """[ST8]"""
    noise = secrets.token_bytes(4_000_000)
    table = pa.table({"wide": [noise[start : start + 4000] for start in range(0, 4_000_000, 4000)], "narrow": range(1000)})
    output = store.create_output("x.parquet")
    pq.write_table(table, output, compression="none", use_dictionary=False)
    output.close()
    proxy.reset()
    with store.open_input("x.parquet") as stream:
        assert pq.ParquetFile(stream, pre_buffer=True).read(columns=["narrow"]).equals(table.select(["narrow"]))
    assert sum(each.answer_bytes for each in proxy.requests) < 100_000


def test_a_discarded_upload_leaves_nothing_that_is_billed(store: Store, proxy: FaultProxy, rgw: Any) -> None:
    """[ST2] [AB2]"""
    output = store.create_output("big")
    output.write(bytes(3 * PART_BYTES))
    output.discard()
    output.close()
    assert names(store) == []
    assert [each.method for each in proxy.requests][-2:] == ["DELETE", "GET"]
    bucket, prefix = store.url.removeprefix("s3://").split("/", 1)
    assert "Uploads" not in rgw.call("list_multipart_uploads", Bucket=bucket, Prefix=prefix)


@pytest.mark.thorough
def test_discarding_an_upload_leaves_all_others_alone(store: Store, proxy: FaultProxy) -> None:
    """S3A's jobs to one destination cancelled each other's uploads, which they found by listing them. [ST2] [AB2]"""
    mine = store.create_output("day=1/a")
    others = {name: store.create_output(name) for name in ("day=1/b", "day=1/a0", "day=10/a", "c")}
    for output in (mine, *others.values()):
        output.write(bytes(3 * PART_BYTES))
    mine.discard()
    for output in others.values():
        output.close()
    assert names(store) == sorted(others)
    assert not [each for each in proxy.requests if each.method == "GET" and "uploads" in each.query], "nobody looks for the others'"


@pytest.mark.parametrize("text", ["2026-11-28T10:00:00.000Z", "2026-11-28T10:00:00Z", "2026-11-28T11:00:00+01:00", "2026-11-28T10:00:00"])
def test_a_time_of_a_list_is_of_no_local_clock(text: str) -> None:
    """[GC1]"""
    assert _time(text) == dt.datetime(2026, 11, 28, 10, tzinfo=dt.UTC).timestamp()


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_a_list_starts_a_little_below_its_first_name(name: str) -> None:
    """[ST3]"""
    assert _just_below(name) < name
    _just_below(name).encode()


# --- nothing stale ----------------------------------------------------------------------------------------------------------
def commit_one(place: Place, day: str) -> int | None:
    return mc.write(pa.table({"day": [day]}), place.url, storage_options=place.options).version


def write_after_fork(store: Store, place: Place, answers: Any) -> None:
    found = store.get("from the parent")
    store.put("from the child", found)
    assert store.get("data", 0, 10**6) == bytes(10**6)
    answers.put((names(store), mc.Table(place.url, storage_options=place.options).snapshot().version))


@pytest.mark.thorough
def test_a_forked_process_uses_the_store_of_its_parent(s3_root: Place) -> None:
    """Two processes that shared a connection would read each other's answers. Spark forks its workers. [ST13]"""
    place = s3_root.named(f"{s3_root.url}/{secrets.token_hex(8)}")
    store = place.open()
    store.put("_manifest/from before", b"")
    commit_one(place, "1")
    store.put("from the parent", b"x")
    store.put("data", bytes(10**6))
    store.get("data", 0, 10**6)
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python says that forking with threads is dangerous; it is, and it is done
        child = fork.Process(target=write_after_fork, args=(store, place, answers))
        child.start()
    listed, version = answers.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0 and "from the child" in listed and version == 2
    assert store.get("from the child") == b"x" and store.get("data", 0, 10**6) == bytes(10**6), "and the parent goes on"


# --- unclear answers, busy stores -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [500, 503, 429, 409])
def test_a_busy_store_is_asked_again(store: Store, proxy: FaultProxy, status: int) -> None:
    """[ST14]"""
    store.put("x", b"1")
    calls = (lambda: store.get("x"), lambda: store.put("x", b"1"), lambda: names(store), lambda: store.delete(["y"]))
    for call, method in zip(calls, ("GET", "PUT", "GET", "POST"), strict=True):
        proxy.reset()
        proxy.faults = [Rule(match=to(method), fault=Fault(kind="status_before", status=status), times=2)]
        call()
        assert sent(proxy) == [method] * 3


@pytest.mark.parametrize(
    ("fault", "lands"),
    [
        (Fault(kind="status_before", status=503), False), (Fault(kind="status_before", status=500), False),
        (Fault(kind="status_before", status=409), False), (Fault(kind="status_after", status=500), True),
        (Fault(kind="status_after", status=503), True), (Fault(kind="status_after", status=409), True),
        (Fault(kind="status_after", status=520, code="Unknown"), True),
        (Fault(kind="status_after", status=524, code="TimeoutOccurred"), True), (Fault(kind="status_after", status=599, code="Odd"), True),
        (Fault(kind="status_after", status=200, code="InternalError"), True), (Fault(kind="request_reset"), False),
        (Fault(kind="request_dropped"), False), (Fault(kind="answer_closed"), True), (Fault(kind="answer_dropped"), True),
        (Fault(kind="answer_cut", cut="head"), True),
    ],
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Fault) else "",
)  # fmt: skip
def test_a_create_without_a_clear_answer_is_unclear(place: Place, proxy: FaultProxy, fault: Fault, lands: bool) -> None:
    """Never reported as won, nor as lost; whether to ask again is the commit's to decide. [ST5] [ST14] [CM6] [IV4]"""
    hangs = fault.kind in ("request_dropped", "answer_dropped")
    store = (place.given(config_kwargs={"read_timeout": 1}) if hangs else place).open()
    store.put("warm", b"")
    proxy.reset()
    proxy.faults = [Rule(match=to("PUT"), fault=fault, times=None)]
    with pytest.raises(StoreUnclearError, match="may have been created"):
        store.put_if_absent("v/1", b"x")
    proxy.faults = []
    # Left to itself, aiohttp sends a PUT again where a connection that it had kept breaks, and tells what became of the second.
    assert len([each for each in proxy.requests if each.method == "PUT"]) == 1
    assert (names(store, "v/") == ["v/1"]) == lands


@pytest.mark.thorough
def test_an_upload_whose_completion_was_answered_by_nothing_is_complete(store: Store, proxy: FaultProxy) -> None:
    """Asked again, S3 knows no such upload any more. [ST2] [ST14]"""
    output = store.create_output("big")
    output.write(bytes(PART_BYTES + 1))
    proxy.faults = [Rule(match=lambda each: each.method == "POST" and "uploadId=" in each.query, fault=Fault(kind="answer_closed"))]
    output.close()
    assert [info.size_bytes for info in store.list("big")] == [PART_BYTES + 1]


@pytest.mark.thorough
@pytest.mark.parametrize(("there", "told"), [(None, "forgotten this upload"), (b"another", f"7 bytes where {PART_BYTES + 1} were")])
def test_an_upload_that_the_store_does_not_know_is_not_complete(store: Store, proxy: FaultProxy, there: bytes | None, told: str) -> None:
    """Somebody cleaned up; what is there, if anything, is not what was written. [ST2] [ST5]"""
    output = store.create_output("big")
    output.write(bytes(PART_BYTES + 1))
    if there is not None:
        store.put("big", there)
    fault = Fault(kind="status_before", status=404, code="NoSuchUpload")
    proxy.faults = [Rule(match=lambda each: each.method == "POST" and "uploadId=" in each.query, fault=fault)]
    with pytest.raises(StoreError, match=f"/big.*{told}.* Run the task again"):
        output.close()
    output.discard()
    assert [info.size_bytes for info in store.list("big")] == ([] if there is None else [7])


@pytest.mark.thorough
def test_an_output_of_too_many_parts_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 counts to 10,000. [ST2]"""
    monkeypatch.setattr("manifestcommit.store.object_store._MOST_PARTS", 1)
    output = store.create_output("big")
    output.write(bytes(PART_BYTES + 1))
    with pytest.raises(StoreError, match=r"/big has more than 1 parts\. Lower target_file_size\."):
        output.close()
    output.discard()
    assert names(store) == []


@pytest.mark.thorough
def test_a_part_that_is_lost_is_sent_again(store: Store, proxy: FaultProxy) -> None:
    """[ST14]"""
    proxy.faults = [Rule(match=lambda each: "partNumber=2" in each.query, fault=Fault(kind="request_reset"))]
    body = secrets.token_bytes(2 * PART_BYTES + 1)
    output = store.create_output("big")
    output.write(body)
    output.close()
    assert store.get("big") == body


# --- refusals ---------------------------------------------------------------------------------------------------------------
def every_call(store: Store) -> list[Any]:
    return [
        lambda: store.get("x"), lambda: store.put("x", b""), lambda: store.put_if_absent("x", b""), lambda: names(store),
        lambda: store.delete(["x"]), lambda: store.open_input("x"), lambda: store.create_output("x").close(),
    ]  # fmt: skip


def refusals(store: Store, kind: type[StoreError], text: str, secret: str) -> None:
    for call in every_call(store):
        with pytest.raises(kind, match=text, check=lambda error: secret not in str(error) and secret not in repr(error)):
            call()


@pytest.mark.thorough
def test_a_missing_bucket_is_named(place: Place, proxy: FaultProxy) -> None:
    """[ST5]"""
    refusals(place.named("s3://there-is-no-such-bucket/t").open(), StoreError, "no bucket there-is-no-such-bucket", place.options["secret"])
    assert len(proxy.requests) == len(every_call(place.open())), "each is told at the first answer"


@pytest.mark.thorough
def test_wrong_credentials_are_told_and_not_shown(place: Place, proxy: FaultProxy) -> None:
    """[ST5] [SE1]"""
    wrong = secrets.token_hex(20)
    refusals(open_store(place.url, {**place.options, "secret": wrong}), StoreError, "does not accept the credentials", wrong)
    refusals(open_store(place.url, {**place.options, "key": wrong}), StoreError, "does not accept the credentials", wrong)
    assert len(proxy.requests) == 2 * len(every_call(place.open()))


def test_a_read_only_bucket_is_told_before_anything_is_written(rgw: Any) -> None:
    """[ST5]"""
    bucket = rgw.bucket()
    rgw.make_read_only(bucket)
    place = Place(url=f"s3://{bucket}/t", options=rgw.storage_options)
    with pytest.raises(StoreDeniedError, match=r"access denied \(AccessDenied\)"):
        mc.write(pa.table({"a": [1]}), place.url, storage_options=place.options)
    assert names(place.open()) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("status", "code", "kind", "told"),
    [
        (403, "RequestTimeTooSkewed", StoreDeniedError, "clock and the store's are too far apart"),
        (400, "AuthorizationHeaderMalformed", StoreError, "is in another region"),
        (400, "IllegalLocationConstraintException", StoreError, "is in another region"),
        (301, "PermanentRedirect", StoreError, "is in another region"),
        (307, "TemporaryRedirect", StoreError, "is in another region"),
    ],
)
def test_what_is_wrong_with_clock_or_region_is_told_at_once(
    store: Store, proxy: FaultProxy, status: int, code: str, kind: type[StoreError], told: str
) -> None:
    """[ST5] [ST14]"""
    for call, method in ((lambda: store.get("x"), "GET"), (lambda: store.put_if_absent("x", b""), "PUT")):
        proxy.reset()
        proxy.faults = [Rule(match=to(method), fault=Fault(kind="status_before", status=status, code=code), times=None)]
        with pytest.raises(StoreError, match=told) as error:
            call()
        assert type(error.value) is kind and sent(proxy) == [method]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("status", "code", "error", "told"),
    [
        (404, "NoSuchKey", StoreError, "v/1 could not be created"),  # FileNotFoundError says of an object that it is not there
        (501, "NotImplemented", UnsafeStoreError, "no conditional create"),
    ],
)
def test_a_create_that_the_store_cannot_do_is_told_as_that(
    store: Store, proxy: FaultProxy, status: int, code: str, error: type[Exception], told: str
) -> None:
    """[ST5] [ST7] [ST10]"""
    proxy.faults = [Rule(match=to("PUT"), fault=Fault(kind="status_before", status=status, code=code))]
    with pytest.raises(error, match=told):
        store.put_if_absent("v/1", b"")


def test_a_delete_of_many_says_what_was_refused(rgw: Any) -> None:
    """The answer's status is 200. [ST5]"""
    bucket = rgw.bucket()
    store = open_store(f"s3://{bucket}/t", rgw.storage_options)
    for name in ("a", "kept", "z"):
        store.put(name, b"")
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{bucket}/t/kept"}
    rgw.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
    with pytest.raises(StoreError, match=r"1 of 3 objects could not be deleted; the first is 't/kept' \(AccessDenied\)"):
        store.delete(["a", "kept", "z"])
    assert names(store) == ["kept"]


def test_a_part_of_an_object_is_read_from_a_server_that_adds_the_checksum_of_the_whole(rclone: Any) -> None:
    """`rclone serve s3` does; a client that checked it would refuse every column read. [ST8]"""
    store = open_store(f"s3://{rclone.bucket()}/t", rclone.storage_options)
    store.put("x", b"0123456789" * 10)
    assert store.get("x", 3, 5) == b"34"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3://", "no root"), ("s3:///x", "no root"), ("s3://b//x", "no root"), ("s3://b/../c", "no root"), ("s3://b/./c", "no root"),
        ("s3://arn:aws:s3:us-west-2:1:accesspoint/t", "alias"), ("s3://key:secret@b/t", "must not carry credentials"),
    ],
)  # fmt: skip
def test_a_root_that_cannot_be_is_refused_without_a_request(url: str, text: str) -> None:
    """[ST4] [ST7] [SE1]"""
    with pytest.raises(UsageError, match=text):
        open_store(url)


def test_a_directory_bucket_is_unsafe() -> None:
    """[ST3] [ST7]"""
    with pytest.raises(UnsafeStoreError, match="directory bucket"):
        open_store("s3://fast--usw2-az1--x-s3/t")


# --- secrets ----------------------------------------------------------------------------------------------------------------
def test_a_store_and_its_options_show_no_value(place: Place, store: Store) -> None:
    """[SE1]"""
    options = StorageOptions({**place.options, "client_kwargs": {"aws_session_token": "a deeper secret"}})
    for text in (repr(store), str(store.__dict__), repr(options), str(options), f"{options}", store.url, store.identity):
        assert place.options["secret"] not in text and "deeper" not in text
    assert options.scrub(f"no {place.options['secret']} and no a deeper secret") == "no *** and no ***"
    pickle.loads(pickle.dumps(store)).put("x", b"1")
    assert store.get("x") == b"1"


def test_the_root_one_level_up(place: Place) -> None:
    """[LY6]"""
    bucket = place.url.split("/")[2]
    above = place.named(f"s3://{bucket}/a/b").open().parent()
    assert above is not None and above.url == f"s3://{bucket}/a"
    top = above.parent()
    assert top is not None and top.url == f"s3://{bucket}" and top.parent() is None


@pytest.mark.thorough
def test_credentials_may_come_from_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the time at which a store is opened, though a process shares its connections. [SE1] [ST13]"""
    with FaultProxy(place.options["endpoint_url"]) as other:
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "before")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "they came")
        with pytest.raises(StoreError, match="credentials"):
            open_store(place.url).put("x", b"")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", place.options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", place.options["secret"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.options["endpoint_url"])
    store = open_store(place.url)
    store.put("x", os.urandom(3))
    assert names(store) == ["x"] and store.identity.endswith(place.options["endpoint_url"])

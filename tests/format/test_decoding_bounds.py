"""Little that is stored and much that it becomes: bounded before memory is taken. [OB4]"""

import io
import random
import time
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.footers import parquet_bytes
from tests.kit.sizes import SetBudgets
from tests.kit.tables import head_of

import manifestcommit as mc
from manifestcommit.format import codec, object_names
from manifestcommit.format.codec import MAX_DEPTH
from manifestcommit.log import manifests
from manifestcommit.log.version_chain import open_head
from manifestcommit.protocol.retention import Horizon
from manifestcommit.store.local import MemoryStore

ROWS = pa.table({"x": [1]})


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    store = MemoryStore(f"bombs/{request.node.name}/{time.monotonic_ns()}")
    for _ in range(3):
        mc.write(ROWS, store.url)
    return store


def put(store: MemoryStore, name: str, document: dict[str, Any]) -> None:
    store.put(name, codec.compress(msgspec.json.encode(document)))


@pytest.mark.parametrize("version", [9, 3 * 10**9, 2**63 - 1])
def test_a_version_that_the_list_contradicts_is_refused(store: MemoryStore, version: int) -> None:
    """[OB4] It claims readable versions that are not there: nothing is written upon it, and nothing loops over what it claims."""
    _, document = head_of(store)
    document.update(version=version, expired=1, fence=1)
    name = object_names.version_name(version)
    put(store, name, document)
    for use in (lambda: mc.Table(store.url).snapshot(), lambda: mc.write(ROWS, store.url), lambda: mc.gc(store.url)):
        with pytest.raises(mc.errors.CorruptMetadataError, match="some are missing"):
            use()
    assert max(info.name for info in store.list(object_names.VERSIONS) if object_names.parse_version(info.name)) == name
    store.put(object_names.HINT, str(version).encode())  # then no list shows what is missing
    for collect in (lambda: mc.gc(store.url, keep_for="30d"), lambda: list(mc.Table(store.url).history())):
        with pytest.raises(mc.errors.CorruptMetadataError):
            collect()


def test_versions_are_as_many_as_one_says_and_take_no_memory() -> None:
    """[OB4]"""
    many = Horizon(table_id="0" * 16, version=3 * 10**9, fence=10, expired=10, tagged=frozenset({7, 3, 12})).readable
    assert many == ([3, 7], range(10, 3 * 10**9 + 1))


@pytest.mark.parametrize("hole", ["[]", "{}", '""', "0"])
def test_a_document_of_nothing_takes_no_memory(store: MemoryStore, hole: str) -> None:
    """[OB4] A few kilobytes as stored, millions of values; and a writer makes none."""
    name, document = head_of(store)
    pad = random.Random(7).randbytes(200_000).hex()  # so that its size alone is not refused
    many = f'{{"pad":"{pad}","later":[{",".join([hole] * codec.MAX_VALUES)}],'.encode()
    store.put(name, codec.compress(many + msgspec.json.encode(document)[1:]))
    assert len(store.get(name)) < 400_000
    with pytest.raises(mc.errors.CorruptMetadataError, match="values"):
        mc.Table(store.url).snapshot()


@pytest.mark.parametrize("hole", ["[]", '{"a":0}', "0", '"' + "x" * 100 + '"'])
def test_a_few_kilobytes_decode_to_a_bounded_document(store: MemoryStore, hole: str) -> None:
    """[OB4] A head of nine kilobytes took a gigabyte."""
    name, document = head_of(store)
    many = f'{{"later":[{",".join([hole] * (4_000_000 // len(hole)))}],'.encode()
    store.put(name, codec.compress(many + msgspec.json.encode(document)[1:]))
    assert len(store.get(name)) < 9_000
    with pytest.raises(mc.errors.CorruptMetadataError, match=r"more than the .* that are allowed"):
        mc.Table(store.url).snapshot()
    with pytest.raises(mc.errors.CorruptMetadataError):
        mc.write(ROWS, store.url)


_NUMBERS: dict[str, Any] = {
    "files of the table": ("totals", "files", 2**63),
    "rows of the table": ("totals", "rows", 10**30),
    "bytes of the table": ("totals", "bytes", -1),
    "fence": (None, "fence", 2**63),
    "a position": ("watermarks", "s", 2**63),
    "a tag's version": ("tags", "t", {"version": -1}),
    "a disputed time": (None, "disputed_times", [{"first": 1, "last": 1, "said": 2**62, "clock": 0}]),
    "a void version": (None, "void", [2**63]),
    "an aborted job": ("recent_jobs", "j", 2**63),
}


@pytest.mark.parametrize("what", _NUMBERS)
def test_a_number_that_no_reader_takes_is_damage_and_is_not_written(store: MemoryStore, what: str) -> None:
    """[OB4] A head with such a count ended reads in a bare OverflowError, and a write upon it was acknowledged."""
    name, document = head_of(store)
    inside, member, value = _NUMBERS[what]
    (document if inside is None else document.setdefault(inside, {}))[member] = value
    put(store, name, document)
    for use in (lambda: mc.Table(store.url).snapshot(), lambda: mc.write(ROWS, store.url)):
        with pytest.raises(mc.errors.CorruptMetadataError):
            use()


def test_what_a_writer_would_acknowledge_is_checked_as_readers_check_it(store: MemoryStore) -> None:
    """[OB4] One check for both directions, of every member."""
    head = mc.Table(store.url).snapshot().version
    snapshot = open_head(store).snapshot
    assert codec.encode_snapshot(snapshot)
    for broken in (
        msgspec.structs.replace(snapshot, totals=msgspec.structs.replace(snapshot.totals, rows=2**63)),
        msgspec.structs.replace(snapshot, committed_at=2**62),
        msgspec.structs.replace(snapshot, expired=snapshot.version + 1),
        msgspec.structs.replace(snapshot, watermarks={"s": -(2**63) - 1}),
    ):
        with pytest.raises(mc.errors.UsageError, match="no reader accepts; nothing was committed"):
            codec.encode_snapshot(broken)
    assert mc.Table(store.url).snapshot().version == head


def test_unknown_members_are_nested_no_deeper_than_can_be_written_back(store: MemoryStore) -> None:
    """[OB4] [OB12] What is read can be written again."""
    name, document = head_of(store)
    raw = msgspec.json.encode(document)

    def with_depth(depth: int) -> None:
        store.put(name, codec.compress(b'{"later":' + b"[" * depth + b"]" * depth + b"," + raw[1:]))

    with_depth(MAX_DEPTH - 2)
    mc.write(ROWS, store.url)
    name, document = head_of(store)
    del document["later"]
    raw = msgspec.json.encode(document)
    with_depth(MAX_DEPTH)
    with pytest.raises(mc.errors.CorruptMetadataError, match="later"):
        mc.Table(store.url).snapshot()


def spilled(set_budgets: SetBudgets, store: MemoryStore) -> tuple[str, dict[str, Any], str]:
    set_budgets(inline_entry_bytes=100)
    for _ in range(8):
        mc.write(ROWS, store.url)
    name, document = head_of(store)
    return name, document, document["manifests"][0]["path"]


@pytest.mark.parametrize("column", ["job", "digest", "extra", "later"])
def test_a_manifest_whose_values_stand_for_gigabytes_takes_none(set_budgets: SetBudgets, store: MemoryStore, column: str) -> None:
    """[OB4] One long value in a dictionary, and a number for each of many rows."""
    head, document, path = spilled(set_budgets, store)
    sound = pq.read_table(pa.BufferReader(store.get(path)))
    count = 20_000
    long = pa.repeat(pa.scalar('"' + "x" * 60_000 + '"'), 1)
    values = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), long)
    columns = {name: pa.repeat(sound.column(name)[0], count) for name in sound.column_names}
    table = pa.table(columns | {"path": pa.array([f"{number}.parquet" for number in range(count)]), column: values})
    data = parquet_bytes(table, compression="zstd", store_schema=False)
    assert len(data) < 200_000
    store.put(path, data)
    document["manifests"][0].update(bytes=len(data), digest=codec.digest(data), files=count, footer=None)
    del document["manifests"][0]["footer"]
    put(store, head, document)
    before = pa.total_allocated_bytes()
    with pytest.raises(mc.errors.CorruptMetadataError, match="once decoded"):
        mc.Table(store.url).files()
    assert pa.total_allocated_bytes() - before < manifests.ROOM_BYTES


def test_a_manifest_of_other_rows_than_its_reference_says_is_not_decoded(set_budgets: SetBudgets, store: MemoryStore) -> None:
    """[OB4] [OB6]"""
    head, document, _ = spilled(set_budgets, store)
    document["manifests"][0]["files"] += 1
    put(store, head, document)
    with pytest.raises(mc.errors.CorruptMetadataError, match="rows, the head says"):
        mc.Table(store.url).files()


def test_a_manifest_of_shared_beginnings_is_refused(set_budgets: SetBudgets, store: MemoryStore) -> None:
    """[OB4] [OB13] A few bytes of these stand for any amount."""
    head, document, path = spilled(set_budgets, store)
    sink = io.BytesIO()
    encodings = {"path": "DELTA_BYTE_ARRAY"}
    pq.write_table(
        pq.read_table(pa.BufferReader(store.get(path))), sink, column_encoding=encodings, use_dictionary=False, store_schema=False
    )
    data = sink.getvalue()
    store.put(path, data)
    document["manifests"][0].update(bytes=len(data), digest=codec.digest(data))
    document["manifests"][0].pop("footer", None)
    put(store, head, document)
    with pytest.raises(mc.errors.CorruptMetadataError, match="share their beginnings"):
        mc.Table(store.url).files()

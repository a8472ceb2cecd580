"""Members that readers compute with and that lie: refused by the name of the object, or taken for what they are. [OB4]"""

import copy
import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.kit.footers import parquet_bytes
from tests.kit.sizes import SetBudgets
from tests.kit.tables import head_of

import manifestcommit as mc
from manifestcommit.format import codec, object_names
from manifestcommit.store.local import MemoryStore

ROWS = pa.table({"x": [1, 5], "a b%é": ["p", None]})
LARGE = 2**70


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    store = MemoryStore(f"hostile/{request.node.originalname}/{time.monotonic_ns()}")
    for turn in range(3):
        mc.write(ROWS, store.url, watermarks={"s:0": (turn * 10 or None, turn * 10 + 10)})
    return store


def change_head(store: MemoryStore, change: Callable[[dict[str, Any]], object]) -> str:
    name, document = head_of(store)
    change(document)
    store.put(name, codec.compress(msgspec.json.encode(document)))
    return name


def refused(name: str, *uses: Callable[[], object]) -> None:
    for use in uses:
        with pytest.raises(mc.errors.CorruptMetadataError, check=lambda error: error.object_name == name):
            use()


# --- times ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("member", ["committed_at", "clock"])
@pytest.mark.parametrize("micros", [LARGE, 2**63 - 1, -(2**63), 253_402_300_800_000_000, -62_135_596_800_000_001])
def test_a_time_that_no_reader_can_show_is_damage(store: MemoryStore, member: str, micros: int) -> None:
    """[OB2] [OB4] Microseconds beyond the years 1 to 9999."""
    name = change_head(store, lambda document: document.update({member: micros}))
    table = mc.Table(store.url)
    refused(name, table.describe, lambda: list(table.history()), table.dataset, lambda: mc.write(ROWS, store.url), lambda: mc.gc(store.url))


@pytest.mark.parametrize("micros", [-62_135_596_800_000_000, 0, 253_402_300_799_999_999])
def test_the_first_and_the_last_time_are_shown(store: MemoryStore, micros: int) -> None:
    """[OB2]"""
    change_head(store, lambda document: document.update(committed_at=micros))
    shown = mc.Table(store.url).describe()["committed_at"]
    assert (dt.datetime.fromisoformat(shown) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1) == micros


def test_a_tag_that_is_kept_beyond_all_years_is_shown(store: MemoryStore) -> None:
    """[RD5] Python has no such year; the table stays as readable as it was."""
    change_head(store, lambda document: document.update(tags={"é": {"version": 2, "until": LARGE}}))
    assert mc.Table(store.url).describe()["tags"]["é"]["until"].startswith("9999-12-31")
    mc.write(ROWS, store.url)


# --- columns --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("other", [{}, {"id": 7}, {"name": "y"}, {"id": 7, "name": "X"}])
def test_a_column_that_comes_twice_is_damage(store: MemoryStore, other: dict[str, Any]) -> None:
    """[OB4] [SC1] By its id, its name, or its name in another case."""

    def twice(document: dict[str, Any]) -> None:
        document["schema"]["fields"].append({**document["schema"]["fields"][0], **other})

    name = change_head(store, twice)
    table = mc.Table(store.url)
    refused(name, table.snapshot, table.dataset, lambda: mc.write(ROWS, store.url))


@pytest.mark.parametrize("bound", ["min", "max"])
def test_a_bound_without_the_other_excludes_only_what_it_bounds(store: MemoryStore, bound: str) -> None:
    """[OB7] [RD6] What is absent is not known: a reader who took it for none would miss rows."""

    def drop(document: dict[str, Any]) -> None:
        for entry in document["added"]:
            for stats in entry["columns"].values():
                stats.pop(bound, None)

    change_head(store, drop)
    table = mc.Table(store.url)
    above, below = table.files(filter=pc.field("x") > 100).num_rows, table.files(filter=pc.field("x") < -100).num_rows
    assert (above, below) == ((0, 3) if bound == "min" else (3, 0))
    assert table.dataset().to_table(filter=pc.field("x") > 1).num_rows == 3


@pytest.mark.parametrize("lost", ["min", "max", "nulls", "cuts"])
def test_statistics_of_a_manifest_that_are_not_whole_are_damage(set_budgets: SetBudgets, store: MemoryStore, lost: str) -> None:
    """[OB4] [OB13]"""

    def without(table: pa.Table) -> pa.Table:
        return table.drop_columns([next(name for name in table.column_names if name.startswith(f"{lost}."))])

    name = change_manifest(set_budgets, store, without)
    table = mc.Table(store.url)
    refused(name, table.files, lambda: table.files(filter=pc.field("x") > 1), table.dataset)


def test_a_partition_of_a_type_that_has_no_order_is_damage(set_budgets: SetBudgets) -> None:
    """[OB4] [OB13] Lists in the place of the values of a partition column, and paths that do not rise."""
    store = MemoryStore(f"hostile/partitions/{time.monotonic_ns()}")
    mc.write(ROWS, store.url, partition_by=["x"])

    def lists(table: pa.Table) -> pa.Table:
        at = next(index for index, name in enumerate(table.column_names) if name.startswith("partition."))
        table = table.set_column(at, table.column_names[at], pa.repeat(pa.scalar(["x"]), table.num_rows))
        return table.take(list(reversed(range(table.num_rows))))

    name = change_manifest(set_budgets, store, lists)
    table = mc.Table(store.url)
    refused(name, table.files, table.dataset, lambda: table.files(filter=pc.field("x") > 1))


# --- ranges of sources ------------------------------------------------------------------------------------------------------
def change_manifest(set_budgets: SetBudgets, store: MemoryStore, change: Callable[[pa.Table], pa.Table]) -> str:
    """The name of a manifest that was changed, and whose length and digest the head vouches for."""
    set_budgets(inline_entry_bytes=100)
    for _ in range(8):
        mc.write(ROWS, store.url)
    document = head_of(store)[1]
    path: str = document["manifests"][0]["path"]
    data = parquet_bytes(change(pq.read_table(pa.BufferReader(store.get(path)))))
    store.put(path, data)

    def vouch(document: dict[str, Any]) -> None:
        document["manifests"][0].update(bytes=len(data), digest=codec.digest(data))
        document["manifests"][0].pop("footer", None)

    change_head(store, vouch)
    return path


HOSTILE_SOURCES: list[Any] = [
    *(1, "s", {}, [None], [[]], [{}], {"source": "s", "start": 0, "end": 1}),
    *([{"source": "s", "start": None}], [{"source": 1, "start": 0, "end": 1}], [{"source": "s", "start": {}, "end": 1}]),
    *([{"source": "s", "start": 0, "end": 1.5}], [{"source": "s", "start": 0, "end": None}]),
]


@pytest.mark.parametrize("sources", HOSTILE_SOURCES, ids=repr)
def test_sources_of_the_wrong_kind_are_damage(store: MemoryStore, sources: Any) -> None:
    """[OB4] [OB8] In an entry of the head."""
    name = change_head(store, lambda document: document["added"][0].update(sources=copy.deepcopy(sources)))
    table = mc.Table(store.url)
    refused(name, table.files, lambda: table.lineage("s:0", 5), lambda: mc.write(ROWS, store.url))


@pytest.mark.parametrize("end", [None, "", "{", "[]", "{}", "1.5", "null", "true", "[" * 5_000, "NaN"])
def test_sources_of_a_manifest_that_are_no_positions_are_damage(set_budgets: SetBudgets, store: MemoryStore, end: str | None) -> None:
    """[OB4] [OB8] [OB13] In a row of a manifest, where positions are JSON."""

    def lie(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("sources")
        ranges = pa.array([[{"source": "s:0", "start": "0", "end": end}]] * table.num_rows, table.schema.field(at).type)
        return table.set_column(at, "sources", ranges)

    name = change_manifest(set_budgets, store, lie)
    table = mc.Table(store.url)
    refused(name, table.files, lambda: table.lineage("s:0", 5), table.dataset, lambda: table.changed_files(1))


# --- what jobs leave for others -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("lost", ["schema", "partition_by"])
def test_a_prepared_job_that_does_not_say_what_its_files_hold_is_refused(store: MemoryStore, lost: str) -> None:
    """[AB3] [OB4] Its values could not be compared with the table's columns, and a head that nobody reads would be committed."""
    with mc.begin(store.url) as job:
        job.write(ROWS)
        prepared = job.prepare()
    name = object_names.prepared_name(prepared)
    document = msgspec.json.decode(codec.decompress(store.get(name), name=name))
    del document["change"][lost]
    next(iter(document["change"]["add"][0]["columns"].values()))["max"] = "no number"
    store.put(name, codec.compress(msgspec.json.encode(document)))
    refused(name, lambda: mc.commit(store.url, prepared))
    assert mc.Table(store.url).dataset().count_rows() == 6


# --- the log of a streaming query -------------------------------------------------------------------------------------------
def test_a_line_of_a_sinks_log_without_an_end_takes_no_memory() -> None:
    """[OB4] The log is read in portions; no line of it is longer than a path can be."""
    store = MemoryStore(f"hostile/sink/{time.monotonic_ns()}")
    store.put("_spark_metadata/0", b"v1\n" + b" " * (1 << 23))
    with pytest.raises(mc.errors.UsageError, match="a line of more than 65536 bytes"):
        mc.Table(store.url).adopt()

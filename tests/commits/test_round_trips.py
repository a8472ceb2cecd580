"""How many requests wait for each other: what an append, an open and a read take where each request takes long. [CM11] [RD1]

Not how many there are: those that go side by side take the time of one.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.kit.tables import check_table, job_on, objects_of, put_back, write

import manifestcommit as mc
from manifestcommit.format import codec
from manifestcommit.log import table_context
from manifestcommit.log.table_context import TableContext
from manifestcommit.store import ObjectInfo, Store, register_scheme
from manifestcommit.store.local import MemoryStore

REQUEST_S = 0.03  # in which the threads beside each other begin


class Waits:
    """The longest chain of requests, each of which began after the one before it had ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.longest, self.chains = 0, list[str]()

    @contextmanager
    def request(self, what: str) -> Iterator[None]:
        with self._lock:
            depth = self.longest + 1
        try:
            time.sleep(REQUEST_S)
            yield
        finally:
            with self._lock:
                self.longest = max(self.longest, depth)
                self.chains.append(f"{depth} {what}")


class FarStore(MemoryStore):
    """Far away: each request takes its time, and its waits are counted."""

    is_remote = True

    def __init__(self, root: str, waits: Waits) -> None:
        super().__init__(root)
        self.waits, self.url = waits, self.url.replace("memory:", "far:")

    def parent(self) -> None:
        return None

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        with self.waits.request(f"get {name}"):
            return super().get(name, start, end)

    def put(self, name: str, data: bytes) -> None:
        with self.waits.request(f"put {name}"):
            super().put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self.waits.request(f"create {name}"):
            return MemoryStore(self._root).put_if_absent(name, data)

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        with self.waits.request(f"list {prefix}"):
            found = list(super().list(prefix, start_from=start_from))
        return iter(found)


class OneProcess(FarStore):
    """What one process keeps of such a store, whose lists name each content."""

    def __init__(self, root: str, waits: Waits, heads: dict[str, Any]) -> None:
        super().__init__(root, waits)
        self.heads = heads

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_from=start_from):
            yield msgspec.structs.replace(info, etag=codec.digest(MemoryStore(self._root).get(info.name)))

    def get_tagged(self, name: str, end: int) -> tuple[bytes, str]:
        data = self.get(name, 0, end)
        return data, codec.digest(data)


@pytest.fixture
def kept() -> tuple[str, Waits]:
    """As `far`, by a process that keeps what it knows."""
    heads = dict[str, Any]()
    return with_versions("kept", lambda rest, waits: OneProcess(rest, waits, heads))


@pytest.fixture
def far() -> tuple[str, Waits]:
    """The URL of a table with some versions, and what waits there."""
    return with_versions("far", FarStore)


def with_versions(scheme: str, opened: Callable[[str, Waits], Store]) -> tuple[str, Waits]:
    waits, url = Waits(), f"{scheme}://{secrets.token_hex(8)}/t"
    register_scheme(scheme, lambda rest: opened(rest, waits))
    for number in range(3):
        mc.write(rows(number), url)
    waits.reset()
    return url, waits


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number]})


def longest(waits: Waits, call: Callable[[], Any]) -> int:
    waits.reset()
    call()
    assert waits.longest, "no request was seen"
    return waits.longest


def test_an_open_waits_for_two_requests(far: tuple[str, Waits]) -> None:
    """The hint; then what it names, beside the list above it. [CM11] [RD1]"""
    url, waits = far
    assert longest(waits, lambda: mc.Table(url).snapshot()) == 2, waits.chains
    assert len(waits.chains) == 3, "each of them once"


def test_a_known_head_is_opened_by_one_list(far: tuple[str, Waits]) -> None:
    """[CM11] [RD1]"""
    url, waits = far
    table = mc.Table(url)
    assert table.snapshot().version == 4
    assert longest(waits, table.snapshot) == 1, waits.chains
    mc.write(rows(3), url)
    assert table.snapshot().version == 5, "what others commit meanwhile is seen"


def test_an_append_waits_for_five_requests(far: tuple[str, Waits]) -> None:
    """Hint; head beside list; data; create; list beside hint. The next reader finds the hint with the digest. [CM7] [CM11]"""
    url, waits = far
    assert longest(waits, lambda: mc.write(rows(3), url)) == 5, waits.chains
    assert longest(waits, lambda: mc.Table(url).snapshot()) == 2, waits.chains


def test_an_append_in_a_loop_waits_for_four(far: tuple[str, Waits]) -> None:
    """A list above the known head; data; create; list beside hint. [CM11]"""
    url, waits = far
    session = TableContext(FarStore(url.removeprefix("far://"), waits))

    def append() -> None:
        job = job_on(session)
        job.write(rows(7))
        assert job.commit().committed

    append()
    assert longest(waits, append) == 4, waits.chains


def test_the_next_append_of_a_process_waits_for_four(kept: tuple[str, Waits]) -> None:
    """List above what it has committed; data; create; list beside hint. [CM11] [RD1]"""
    url, waits = kept
    assert longest(waits, lambda: mc.write(rows(3), url)) == 4, waits.chains
    assert len(waits.chains) == 5, "what it knows it does not get again"
    assert longest(waits, lambda: mc.Table(url).snapshot()) == 1, waits.chains
    assert mc.Table(url).to_arrow().num_rows == 4


def test_what_others_commit_meanwhile_costs_one_get(kept: tuple[str, Waits]) -> None:
    """It is what the list has shown, as the store tells: no other list follows. [CM11] [RD1]"""
    url, waits = kept
    stranger = FarStore(url.removeprefix("kept://"), waits)
    for number in range(3):
        write(stranger, rows(number))
    assert longest(waits, lambda: mc.write(rows(3), url)) == 5, waits.chains
    assert len(waits.chains) == 6, waits.chains
    assert mc.Table(url).to_arrow().num_rows == 7


def test_a_table_that_was_put_back_is_not_taken_for_the_one_that_was_known(kept: tuple[str, Waits]) -> None:
    """Its newest version has the number of the known one, and another content. [RD1]"""
    url, _ = kept
    store = MemoryStore(url.removeprefix("kept://"))
    before = objects_of(store)
    mc.write(rows(3), url)
    put_back(store, before)
    write(store, rows(30))
    mc.write(rows(4), url)
    assert sorted(mc.Table(url).to_arrow().column("id").to_pylist()) == [0, 1, 2, 4, 30]
    check_table(store)


@pytest.mark.thorough
def test_a_process_keeps_the_heads_of_few_tables_and_no_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """[RD1] [CM25]"""
    waits, heads, root = Waits(), dict[str, Any](), secrets.token_hex(8)
    monkeypatch.setattr(waits, "request", lambda what: nullcontext())
    for number in range(40):
        write(OneProcess(f"{root}/{number}", waits, heads), rows(number))
    assert list(heads) == [OneProcess(f"{root}/{number}", waits, heads).url for number in range(8, 40)]
    monkeypatch.setattr(table_context, "_LARGEST_KEPT", 100)
    write(OneProcess(f"{root}/39", waits, heads), rows(40))
    assert len(heads) == 31


def test_a_read_of_inlined_entries_waits_for_three(far: tuple[str, Waits]) -> None:
    """Hint; head beside list; the files beside each other. [CM11]"""
    url, waits = far
    assert longest(waits, lambda: mc.Table(url).to_arrow()) == 3, waits.chains


def test_no_hint_says_a_digest_before_its_version_is_there(far: tuple[str, Waits]) -> None:
    """Who reads such a hint, and then a list, may trust what has the digest. [LY7] [CM7] [RD1]"""
    url, waits = far
    mc.write(rows(3), url)
    writes = [each.split()[1:] for each in waits.chains if each.split()[1] in ("create", "put")]
    names = [name for _, name in writes if name.startswith("_manifest/")]
    assert names == ["_manifest/versions/00000000000000000005.json.zst", "_manifest/hint"], waits.chains

"""Small files of a row change are read once, and large ones twice, with the same result. [RC8] [RC1]"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.faults.row_changes import begin_delete, begin_id_update, commit, here
from tests.kit.sizes import tuned
from tests.kit.tables import memory, read_ids, rows, session, table_with, write

import manifestcommit as mc
from manifestcommit.rows import row_change as rewrite
from manifestcommit.rows.where import delete_where, update_where
from manifestcommit.runtime.environment import Tuning
from manifestcommit.scan import planning
from manifestcommit.store.local import MemoryStore

TWICE = Tuning(read_once_bytes=0)
SOME = pc.field("id").isin([1, 12])  # of two files of three


class Reads(MemoryStore):
    """Counts how often each object is read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.read: Counter[str] = Counter()

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        self.read[name] += 1
        return super().get(name, start, end)


def three_files() -> Reads:
    store = Reads(memory().url.rpartition("/")[2])
    for first in (0, 10, 20):
        write(store, rows(range(first, first + 10)))
    store.read.clear()
    return store


def live(store: MemoryStore) -> list[str]:
    """The paths of its files."""
    each = session(store)
    paths: list[str] = planning.entries_table(each, each.open().snapshot).column("path").to_pylist()
    return paths


def delete(store: MemoryStore) -> Any:
    each = session(store)
    return delete_where(each, SOME, here(each))


def update(store: MemoryStore) -> Any:
    return update_where(session(store), {"id": "id + 100"}, SOME)


@pytest.mark.thorough
@pytest.mark.parametrize("way", [Tuning(), TWICE])
@pytest.mark.parametrize("begun", [begin_delete, begin_id_update])
def test_a_file_of_which_all_rows_match_and_that_was_replaced_meanwhile_is_a_conflict(way: Tuning, begun: Callable[..., Any]) -> None:
    """Whether it was held in memory or not: neither does its replacement come back nor go. [CF7] [RC1]"""
    for theirs in (begin_delete, begin_id_update):
        store = memory()
        for first in (0, 3):
            write(store, rows(range(first, first + 3)))
        with tuned(way):
            mine = begun(store, pc.field("id") < 3)
            commit(theirs(store, pc.field("id") == 1))
            before = read_ids(store)
            with pytest.raises(mc.errors.CommitConflictError):
                commit(mine)
        assert read_ids(store) == before


def test_rows_that_take_more_memory_than_the_files_say_are_not_held(tmp_path: Path) -> None:
    """A file of one value repeated is small however many rows it has. [RC8]"""
    table = table_with(pa.table({"id": pa.array(range(100_000)), "text": pa.array(["x" * 100] * 100_000)}), tmp_path / "t")
    each = table._ctx
    entries = planning.entries_table(each, each.open().snapshot)
    size = rewrite.size_of(entries)
    assert rewrite.read_once(each, each.open().snapshot, entries) is not None
    with tuned(Tuning(read_once_bytes=size)):
        assert rewrite.read_once(each, each.open().snapshot, entries) is None
        assert table.delete("id = 7").rows_rewritten == 99_999
        assert table.update({"id": "-id"}, where="id = 8").rows_updated == 1
    with tuned(Tuning(read_once_bytes=size - 1)):
        assert rewrite.read_once(each, each.open().snapshot, entries) is None


@pytest.mark.parametrize("together", [1, 2, 6])
def test_of_many_files_each_is_read_once_and_only_some_are_in_memory(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone or with others, in the order of their entries. [RC8]"""
    store = three_files()
    for first in range(30, 60, 10):
        write(store, rows(range(first, first + 10)))
    each = session(store)
    snapshot = each.open().snapshot
    entries = planning.entries_table(each, snapshot)
    one = max(entries.column("bytes").to_pylist())
    monkeypatch.setattr(rewrite, "_PACK_BYTES", together * one)
    store.read.clear()
    with tuned(Tuning(read_once_bytes=2 * one)):
        plain = pa.Table.from_batches(list(rewrite.scan(each, snapshot, entries))).column("id").to_pylist()
    assert plain == [first + i for first in plain[::10] for i in range(10)] and sorted(plain) == list(range(60))
    assert {store.read[path] for path in live(store)} == {1}


def test_files_that_are_read_at_once_are_held_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thread asks for the size of a batch, another one uses up the room and leaves its file. [RC8]"""
    store = three_files()
    monkeypatch.setattr(store, "is_remote", True, raising=False)
    each = session(store)
    snapshot = each.open().snapshot
    entries = planning.entries_table(each, snapshot).slice(0, 2)
    asked, left = threading.Event(), threading.Event()

    class Batch(NamedTuple):
        rows: pa.RecordBatch
        is_small: bool

        @property
        def nbytes(self) -> int:
            if self.is_small:
                asked.set()
            assert (left if self.is_small else asked).wait(60)
            return 1 if self.is_small else 1 << 40

    first = entries.column("path")[0].as_py()

    def batches_of(session: Any, snapshot: Any, entry: pa.Table, *given: Any, **named: Any) -> Iterator[Any]:
        is_small = entry.column("path")[0].as_py() != first
        try:
            for batch in found(session, snapshot, entry, *given, **named):
                yield Batch(batch, is_small)
        finally:
            if not is_small:
                left.set()

    found = rewrite.batches_of
    monkeypatch.setattr(rewrite, "batches_of", batches_of)
    assert rewrite.read_once(each, snapshot, entries) is None

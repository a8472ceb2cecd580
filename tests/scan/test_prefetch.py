"""How many requests and bytes a task's files cost, what is on its way while one is decoded, and what is held: by counts. [RD14]"""

import itertools
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manifestcommit.runtime.footer_child import chunk_span
from manifestcommit.scan import parallel_decode as module
from manifestcommit.scan.parallel_decode import bounded, read_ahead
from manifestcommit.store.arrow_filesystem import TAIL_BYTES, RangedInput
from manifestcommit.store.local import MemoryStore

_ROOTS = itertools.count()
GROUP = 20_000


class Remote(MemoryStore):
    """Objects in memory that are read by ranges, as those of a bucket are, each later by `delay_s`; every request is noted."""

    def __init__(self, delay_s: float = 0) -> None:
        super().__init__(f"/test_read_ahead/{next(_ROOTS)}")
        self.asked, self.delay_s = list[tuple[str, int, int]](), delay_s

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        time.sleep(self.delay_s)
        data = super().get(name, start, end)
        self.asked.append((name, start or 0, (start or 0) + len(data)))
        return data

    def open_input(self, name: str) -> Any:
        data = super().get(name)
        tail = data[-TAIL_BYTES:]
        self.asked.append((name, len(data) - len(tail), len(data)))
        return RangedInput(lambda start, end: self.get(name, start, end), (tail, len(data)))

    @property
    def bytes(self) -> int:
        return sum(end - start for _, start, end in self.asked)


def file_of(store: Remote, name: str, rows: int, start: int = 0) -> tuple[str, int]:
    """Two narrow columns of random numbers with a wide one between, which no one shortens."""
    draw = np.random.default_rng(start)
    wide = pa.array([draw.bytes(100) for _ in range(rows)])
    table = pa.table({"n": np.arange(start, start + rows), "wide. ü": wide, "x": draw.integers(0, 2**60, rows)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=GROUP, compression="none", use_dictionary=False)
    store.put(name, sink.getvalue().to_pybytes())
    return name, sink.getvalue().size


def rows_of(
    store: Remote, files: Iterable[tuple[str, int]], columns: list[str] | None = None, groups: list[int] | None = None
) -> list[int]:
    chosen = read_ahead(
        store,
        files,
        lambda file: (range(file.num_row_groups) if groups is None else groups, columns or file.schema_arrow.names),
        all_columns=columns is None,
        footers={},
    )
    return [
        n
        for part in chosen
        for batch in part.file.iter_batches(row_groups=part.groups, columns=part.columns)
        for n in batch.column("n").to_pylist()
    ]


@pytest.mark.thorough
def test_of_a_large_file_the_wanted_chunks_come_once_and_nothing_else() -> None:
    """Two columns of three, two row groups of four: the footer's end, and a range for each chunk, as the wide one lies between."""
    store = Remote()
    name, size = file_of(store, "k=v/+", 4 * GROUP)
    metadata = pq.ParquetFile(pa.BufferReader(MemoryStore.get(store, name))).metadata
    wanted = [chunk_span(metadata.row_group(group).column(at)) for group in (0, 2) for at in (0, 2)]
    assert size > module.SMALL_FILE_BYTES
    assert rows_of(store, [(name, size)], ["n", "x"], [0, 2]) == [*range(GROUP), *range(2 * GROUP, 3 * GROUP)]
    assert store.asked[0] == (name, size - TAIL_BYTES, size)
    assert sorted(store.asked[1:]) == sorted((name, start, end) for start, end in wanted)


@pytest.mark.thorough
def test_a_file_that_lacks_every_wanted_column_is_read_to_its_end_only() -> None:
    """Its rows count all the same: they are null, or what their entry says."""
    store = Remote()
    file = file_of(store, "old", 3 * GROUP)
    found = read_ahead(store, [file], lambda each: (range(each.num_row_groups), []), all_columns=False, footers={})
    assert sum(batch.num_rows for part in found for batch in part.file.iter_batches(row_groups=part.groups, columns=[])) == 3 * GROUP
    assert len(store.asked) == 1


@pytest.mark.thorough
def test_the_next_files_are_fetched_while_one_is_decoded_and_not_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task holds does not grow with its files."""
    store = Remote()
    files = [file_of(store, f"{n:02}", GROUP, n * GROUP) for n in range(30)]
    monkeypatch.setattr(module, "AHEAD_BYTES", 2 * files[0][1])
    monkeypatch.setattr(module, "FILES_AHEAD", 3)
    came = []
    parts = read_ahead(store, files, lambda file: (range(file.num_row_groups), file.schema_arrow.names), all_columns=True, footers={})
    for at, part in enumerate(parts):
        came.append(part.path)
        fetched = {name for name, *_ in store.asked}
        assert len(fetched) <= at + 1 + 2 + 1 + 3  # this one, those that are due, one that did not fit, and those that are being opened
        assert part.file.read_row_groups(part.groups).num_rows == GROUP
    assert came == [name for name, _ in files]
    ahead = next(at for at, (name, *_) in enumerate(store.asked) if name == "03")
    assert ahead < len(store.asked) - 20  # asked for long before the last one


@pytest.mark.thorough
def test_the_bytes_of_a_file_are_asked_for_as_soon_as_its_footer_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the next portion is wanted: whoever takes them may be waiting for an earlier one, and nothing would be on its way. [RD14]"""
    store = Remote()
    files = [file_of(store, f"{n}", 4 * GROUP, n) for n in range(3)]
    plain, has_first, came = store.open_input, threading.Event(), threading.Event()

    def late(name: str) -> Any:
        assert name == "0" or has_first.wait(30)
        return plain(name)

    def noted(name: str, *asked: Any) -> bytes:
        if name == "2":
            came.set()
        return Remote.get(store, name, *asked)

    monkeypatch.setattr(store, "open_input", late)
    monkeypatch.setattr(store, "get", noted)
    parts = read_ahead(store, files, lambda file: (range(file.num_row_groups), ["n"]), all_columns=False, footers={})
    next(parts)
    has_first.set()
    assert came.wait(30)
    assert len(list(parts)) >= 2
    assert not [t for t in threading.enumerate() if t.name.startswith("manifestcommit-read")]


@pytest.mark.thorough
def test_who_stops_early_is_told_of_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """`limit` would fill a worker's log with requests that could not be sent any more."""
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    store = Remote(0.02)
    files = [file_of(store, f"{n:02}", 2_000) for n in range(40)]
    parts = read_ahead(store, files, lambda file: ([0], file.schema_arrow.names), all_columns=True, footers={})
    next(parts)
    parts.close()
    assert not caplog.records


@pytest.mark.thorough
def test_what_was_handed_out_still_comes_when_there_is_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who decodes one portion while another thread has found that it was the last one. [RD40]"""
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    monkeypatch.setattr(module, "_REQUEST_BYTES", 100_000)
    monkeypatch.setattr(module, "GAP_BYTES", 0)
    monkeypatch.setattr(module, "SMALL_FILE_BYTES", 0)
    store = Remote(0.002)
    files = [file_of(store, f"{n}", GROUP, n * GROUP) for n in range(3)]
    parts = list(read_ahead(store, files, lambda file: (range(file.num_row_groups), file.schema_arrow.names), all_columns=True, footers={}))
    assert [n for part in parts for n in part.file.read_row_groups(part.groups).column("n").to_pylist()] == list(range(3 * GROUP))
    some: list[Any] = []
    with pytest.raises(FileNotFoundError, match="gone"):
        some.extend(read_ahead(store, [*files, ("gone", 100)], lambda file: ([0], file.schema_arrow.names), all_columns=True, footers={}))
    assert len(some) == 3 and some[-1].file.read_row_groups([0]).num_rows == GROUP


def test_a_file_that_is_gone_is_an_error_in_its_turn() -> None:
    """[SP4] Never fewer rows."""
    store = Remote()
    files = [file_of(store, "here", 10), ("gone", 100), ("gone too", 1 << 20)]
    with pytest.raises(FileNotFoundError, match="gone"):
        rows_of(store, files)


@pytest.mark.thorough
def test_row_groups_are_decoded_in_bounded_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow keeps all that one call reads: a file of many row groups is read by several calls, small row groups together."""
    store = Remote()
    name, size = file_of(store, "many", 10 * GROUP)
    metadata = pq.ParquetFile(store.open_input(name)).metadata
    monkeypatch.setattr(module, "PORTION_BYTES", metadata.row_group(0).total_byte_size * 3)
    assert [len(groups) for groups in bounded(metadata, range(10))] == [3, 3, 3, 1]
    assert rows_of(store, [(name, size)]) == list(range(10 * GROUP))

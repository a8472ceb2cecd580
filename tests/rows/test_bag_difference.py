"""What differs between two bags of rows, in memory and split among files. [CH3] [CH4] [CH5]"""

import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.sizes import rounds

from manifestcommit.rows import read_changes as module
from manifestcommit.rows.read_changes import bag_difference

Row = tuple[int | None, str | None]
KIND = pa.schema([("id", pa.int64()), ("text", pa.string())])


def batches(rows: Sequence[Row], size: int = 3) -> list[pa.RecordBatch]:
    return [
        pa.record_batch([pa.array([row[at] for row in rows[first : first + size]], KIND.field(at).type) for at in (0, 1)], schema=KIND)
        for first in range(0, len(rows), size)
    ]


def told(changes: Iterator[tuple[str, pa.RecordBatch]]) -> dict[str, Counter[Row]]:
    found: dict[str, Counter[Row]] = {}
    for kind, batch in changes:
        assert batch.schema.equals(KIND)
        found.setdefault(kind, Counter()).update(tuple(row.values()) for row in batch.to_pylist())
    return found


def expected(removed: Sequence[Row], added: Sequence[Row], by_key: bool) -> dict[str, Counter[Row]]:
    gone, come = Counter(removed) - Counter(added), Counter(added) - Counter(removed)
    found: dict[str, Counter[Row]] = {}
    for kind, image, mine, other in (("delete", "update_preimage", gone, come), ("insert", "update_postimage", come, gone)):
        for row, often in mine.items():
            mates = [sum(count for (key, _), count in side.items() if key == row[0]) for side in (mine, other)]
            is_update = by_key and row[0] is not None and mates == [1, 1]
            found.setdefault(image if is_update else kind, Counter())[row] += often
    return found


ROWS = st.lists(st.tuples(st.none() | st.integers(0, 3), st.sampled_from([None, "", "a", "é'\""])), max_size=12)


@given(ROWS, ROWS, st.booleans(), st.sampled_from([0, 700, 1 << 20]))
@settings(max_examples=rounds(40, 1000), deadline=None)
def test_it_is_what_counting_finds(removed: list[Row], added: list[Row], by_key: bool, limit: int) -> None:
    """Whatever is held in memory, and however often what is not is split. [CH3] [CH4] [CH5]"""
    found = told(bag_difference(batches(removed), batches(added), ["id"] if by_key else [], limit_bytes=limit))
    assert found == expected(removed, added, by_key)


def test_nested_columns_come_back_from_the_files() -> None:
    """[CH5]"""
    kind = pa.list_(pa.struct([("k", pa.map_(pa.string(), pa.decimal128(5, 2)))]))
    values: list[Any] = [None, [], [None], [{"k": None}], [{"k": []}], [{"k": [("a", None)]}]]
    old = pa.record_batch({"v": pa.array(values, kind)})
    new = pa.record_batch({"v": pa.array([*values[:-1], values[3]], kind)})
    changes = [(each, batch.to_pylist()) for each, batch in bag_difference([old], [new], limit_bytes=0)]
    assert sorted(changes, key=repr) == [("delete", [{"v": values[-1]}]), ("insert", [{"v": values[3]}])]


def test_rows_without_columns_differ_by_their_number() -> None:
    """[CH3]"""
    none, row = pa.schema([]), pa.array([{}] * 5, pa.struct([]))
    five = pa.RecordBatch.from_struct_array(row)
    three = pa.RecordBatch.from_struct_array(row.slice(0, 3))
    assert five.schema == none
    assert [(kind, batch.num_rows) for kind, batch in bag_difference([five], [three])] == [("delete", 2)]


def test_a_row_that_comes_very_often_is_held_once_and_given_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """[CH5]"""
    monkeypatch.setattr(module, "_BATCH_ROWS", 1000)
    many = batches([(1, "a")] * 4500, 900)
    sizes = [(kind, batch.num_rows) for kind, batch in bag_difference([], many, limit_bytes=10_000)]
    assert sizes == [("insert", 1000)] * 4 + [("insert", 500)]


@pytest.mark.thorough
def test_memory_is_bounded_by_the_limit_not_by_the_rows() -> None:
    """Python's part; Arrow's is counted by its pool. [CH5]"""
    rows = 40_000
    text = "x" * 20

    def given(first: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, 2000):
            ids = pa.array(range(first + start, first + start + 2000), pa.int64())
            yield pa.record_batch([ids, pa.array([text] * 2000)], schema=KIND)

    def peak(limit: int) -> tuple[int, int]:
        before = pa.total_allocated_bytes()
        arrow = found = 0
        tracemalloc.start()
        try:
            for _, batch in bag_difference(given(0), given(rows // 2), limit_bytes=limit):
                found += batch.num_rows
                arrow = max(arrow, pa.total_allocated_bytes() - before)
            return found, arrow + tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    (few, bounded), (all_of_them, unbounded) = peak(1 << 20), peak(1 << 30)
    assert few == all_of_them == rows
    assert bounded < 6 << 20 < 9 << 20 < unbounded, (bounded, unbounded)

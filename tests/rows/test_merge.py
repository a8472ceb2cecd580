"""Rows merged by key in this process, without Spark. [RC3] [RC4] [RC5]"""

import datetime as dt
import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.row_tables import MERGES, changed, content, copy, merged, shown, with_repeated_keys
from tests.kit.sizes import tuned
from tests.kit.tables import table_with

import manifestcommit as mc
from manifestcommit.filter.predicate import MergeKeys
from manifestcommit.format.values import from_arrow
from manifestcommit.rows import find
from manifestcommit.rows import row_change as rewrite
from manifestcommit.rows.find import KeyIndex
from manifestcommit.runtime.environment import Tuning
from manifestcommit.table import Table


@pytest.mark.parametrize("few", [0, 10_000])
@pytest.mark.parametrize(("name", "on", "matched", "unmatched"), MERGES)
def test_a_merge_leaves_what_it_should_row_by_row(
    base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on: list[str], matched: Any, unmatched: Any, few: int
) -> None:
    """Keys that are null, that the table has twice, that move to another partition, that no row has. [RC3] [RC1]"""
    monkeypatch.setattr(find, "_FEW_KEYS", few)
    monkeypatch.setattr(rewrite, "_BATCH_ROWS", 3)
    table, data, source = with_repeated_keys(base, name, tmp_path)
    with tuned(Tuning() if few else Tuning(read_once_bytes=0)):  # by two looks, or one
        outcome = table.merge(source, on, when_matched=matched, when_not_matched=unmatched)
    expected = merged(data, source, [each.lower() for each in on], matched, unmatched)
    assert content(table) == expected and outcome.executor == "arrow"
    assert len(data) + outcome.rows_inserted - outcome.rows_deleted == len(expected)
    assert outcome.committed and table.verify(deep=True).is_sound


def test_a_source_is_read_once_in_batches(tmp_path: Path) -> None:
    """[RC4]"""
    mc.write(pa.table({"id": range(2_000), "v": ["old"] * 2_000}), tmp_path / "t")
    read = itertools.count()

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 3_000, 500):
            next(read)
            yield pa.record_batch({"id": range(first, first + 500, 5), "v": ["new"] * 100})

    source = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64(), "v": pa.string()}), batches())
    outcome = Table(tmp_path / "t").merge(source, "id")
    assert (outcome.rows_updated, outcome.rows_inserted, next(read)) == (400, 200, 6)
    found = Table(tmp_path / "t").dataset().to_table()
    assert sorted(found.column("id").to_pylist()) == [*range(2_000), *range(2_000, 3_000, 5)]
    assert found.column("v").to_pylist().count("new") == 600


def test_a_key_that_comes_twice_is_named(base: Any, tmp_path: Path) -> None:
    """[RC3]"""
    table, data = copy(base, "partitioned", tmp_path)
    for source in (changed([7, 8, 8, None, None]), changed([8]).select(["day", "x", "dec", "text"])):
        with pytest.raises(mc.errors.ManifestCommitError, match=r"2 rows with the key day='k=v#x\?', id=8|'id'"):
            table.merge(source, on=["day", "id"])
    with pytest.raises(mc.errors.UsageError, match="double"):
        table.merge(changed([1]), on="x")
    with pytest.raises(mc.errors.UsageError, match="are all None"):
        table.merge(changed([1]), on="id", when_matched=None, when_not_matched=None)
    assert content(table) == shown(data)


def test_an_empty_source_and_an_empty_table(tmp_path: Path) -> None:
    """[RC3] [RC6]"""
    none = pa.table({"id": pa.array([], pa.int64())})
    table = mc.create_table(tmp_path / "t", none.schema)
    assert table.merge(none, "id").kind == "unchanged"
    assert table.merge(pa.table({"id": [1, None]}), "id").rows_inserted == 2
    assert table.merge(none, "id", when_matched="delete", when_not_matched=None).kind == "unchanged"
    assert table.merge(none, "id", key="k").committed and table.merge(none, "id", key="k").already_committed


def test_rows_say_where_they_came_from(tmp_path: Path) -> None:
    """[RC5] [OB8] [WM2]"""
    for first in (0, 10):
        mc.write(pa.table({"id": range(first, first + 10)}), tmp_path / "t", watermarks={"s": (first, first + 10)})
    table, source = table_with(pa.table({"id": range(20, 30)}), tmp_path / "t"), pa.table({"id": [5, 15, 25, 40]})
    outcome = table.merge(source, "id", watermarks={"changes": (0, 4)}, key="first four")
    assert (outcome.rows_updated, outcome.rows_inserted, outcome.files_rewritten, outcome.rows_rewritten) == (3, 1, 3, 27)
    assert table.watermarks() == {"s": 20, "changes": 4}
    kept, new = table.lineage("s", 5), table.lineage("changes", 2)
    assert kept is not None and {(each.start, each.end) for each in kept.files} == {(0, 20), (None, None)}
    assert new is not None and [(each.start, each.end) for each in new.files if each.start is not None] == [(0, 4)]
    assert table.merge(source, "id", watermarks={"changes": (0, 4)}, key="first four").already_committed
    with pytest.raises(mc.errors.WatermarkOverlapError):
        table.merge(source, "id", watermarks={"changes": (0, 4)})


KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-1, 0, 1, 2, None]),
    (pa.int64(), [0, 1, 2**53 - 1, 2**62 - 2, None]),
    (pa.string(), ["", "a", "é", "a b", None]),
    (pa.bool_(), [True, False, None]),
    (pa.binary(), [b"", b"\x00", b"a", None]),
    (pa.decimal128(9, 2), [Decimal("0.10"), Decimal("1.00"), None]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2013, 1, 1, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC), None]),
]


@given(st.data())
def test_a_key_is_found_by_all_of_its_columns(data: st.DataObject) -> None:
    """Against a dictionary of tuples, over columns of all kinds. [RC3]"""
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    row = st.tuples(*(st.sampled_from(values) for _, values in kinds))
    names = [f"k {number}" for number in range(len(kinds))]
    schema = pa.schema([(name, kind) for name, (kind, _) in zip(names, kinds, strict=True)])

    def table(given: list[tuple[Any, ...]]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(names, each, strict=True)) for each in given], schema)

    source = data.draw(st.lists(row, min_size=1, max_size=12))
    keys = MergeKeys(from_arrow(schema, itertools.count(1).__next__).fields, tuple(names))
    complete = [each for each in source if None not in each]
    if len(set(complete)) < len(complete):
        with pytest.raises(mc.errors.UsageError, match="rows with the key"):
            KeyIndex(keys, table(source))
        return
    asked = data.draw(st.lists(row, min_size=1, max_size=30))
    found = KeyIndex(keys, table(source)).find(table(asked))
    assert found.to_pylist() == [source.index(each) if None not in each and each in source else None for each in asked]


@pytest.mark.parametrize("end", [2**31, 2**53 - 1, 2**62 - 2, 2**63 - 1])
@pytest.mark.parametrize("null_safe", [False, True])
def test_wide_keys_are_no_others(end: int, null_safe: bool) -> None:
    """Codes of two columns together that no whole number holds. [RC3]"""
    source = pa.table({"a": range(4000), "b": pa.array([*range(3999), end], pa.int64()), "c": [0] * 4000})
    fields = from_arrow(source.schema, itertools.count(1).__next__).fields
    safe = frozenset(field.id for field in fields) if null_safe else frozenset()
    index = KeyIndex(MergeKeys(fields, ("a", "b", "c"), safe), source)
    other = pa.table({"a": range(2048, 6048), "b": pa.array(range(4000), pa.int64()), "c": [0] * 4000})
    assert index.find(other).null_count == 4000
    assert index.find(source).to_pylist() == list(range(4000))


FAR = {
    "9999": (pa.date32(), pa.int32(), 2_932_897),
    "before 1": (pa.date32(), pa.int32(), -719_529),
    "infinite": (pa.date32(), pa.int32(), 2**31 - 1),
    "moment": (pa.timestamp("us"), pa.int64(), 253_402_300_800_000_000),
    "moment in UTC": (pa.timestamp("us", "UTC"), pa.int64(), -(2**63)),
}


@pytest.mark.parametrize(("kind", "storage", "value"), FAR.values(), ids=FAR)
def test_keys_that_python_cannot_hold_are_found(tmp_path: Path, kind: pa.DataType, storage: pa.DataType, value: int) -> None:
    """Days and moments before the year 1, after 9999, infinite ones. [RC3]"""
    mine = pa.table({"k": pa.array([value, 0], storage).view(kind), "v": [1, 2]})
    table = table_with(mine, tmp_path / "t")
    source = pa.table({"k": pa.array([value, 5], storage).view(kind), "v": [10, 20]})
    outcome = table.merge(source, on="k")
    assert (outcome.rows_updated, outcome.rows_inserted) == (1, 1)
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == [2, 10, 20]
    with pytest.raises(mc.errors.UsageError, match=f"2 rows with the key k={value};"):
        table.merge(pa.concat_tables([source, source]).filter(pa.array([True, False, True, False])), on="k")

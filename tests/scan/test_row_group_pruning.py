"""Row groups of data files that a filter skips: never one with a matching row, whoever wrote the file. [RD13]"""

from __future__ import annotations

import io
import itertools
import math
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.filter.test_predicate import TYPES, VALUES, Truth, predicates
from tests.kit.sizes import rounds

from manifestcommit.filter.predicate import And, Compare, IsNull, Not, Predicate, StartsWith
from manifestcommit.format.arrow_schema import from_arrow
from manifestcommit.format.fields import Schema
from manifestcommit.scan.planning import matching_groups


def file_of(table: pa.Table, group_rows: int, **options: Any) -> pq.ParquetFile:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group_rows, **options)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()))


def renamed(schema: pa.Schema) -> Schema:
    """A table's schema over files whose columns have other names."""
    found = from_arrow(schema, itertools.count(1).__next__)
    return Schema(fields=tuple(msgspec.structs.replace(each, physical=f"{each.name}. old") for each in found.fields))


def groups_of(file: pq.ParquetFile, schema: Schema, predicate: Predicate | None) -> list[int]:
    return list(matching_groups(file.metadata, file.schema_arrow, schema, predicate))


@settings(max_examples=rounds(100, 2_000), deadline=None)
@given(st.data(), st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=2, unique=True))
def test_no_row_group_with_a_matching_row_is_ever_skipped(data: st.DataObject, names: list[str]) -> None:
    """[RD13] [RD7] Such rows would be missing silently. pyarrow's own statistics, as a file from elsewhere has them."""
    size = data.draw(st.integers(0, 8))
    columns = {k: data.draw(st.lists(st.sampled_from([*VALUES[k], None]), min_size=size, max_size=size)) for k in names}
    logical = pa.schema([(k, TYPES[k]) for k in names])
    table = pa.table(columns, schema=logical).rename_columns([f"{k}. old" for k in names])
    group_rows = data.draw(st.integers(1, 4))
    file = file_of(table, group_rows, write_statistics=data.draw(st.sampled_from([True, names[:1]])))
    predicate = data.draw(predicates(names))
    kept = groups_of(file, renamed(logical), predicate)
    event(f"skipped some: {len(kept) < file.num_row_groups}")
    hours = data.draw(st.integers(-18, 18))
    for at in range(size):
        row = {k: values[at] for k, values in columns.items()}
        for truth in (Truth(spark=False), Truth(spark=True, zone=timedelta(hours=hours))):
            assert truth(predicate, row) is not True or at // group_rows in kept, (predicate, row)


NUMBERS = file_of(pa.table({"n": pa.array([1, 2, 3, 4, None, None], pa.int32()), "s": ["a", "b", "ü", "漢", None, "'"]}), 2)
SCHEMA = from_arrow(pa.schema([("n", pa.int64()), ("s", pa.string()), ("late", pa.string())]), itertools.count(1).__next__)


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (None, [0, 1, 2]),
        (Compare(op=">", column=("n",), value=2), [1]),
        (Compare(op="=", column=("n",), value=9), []),
        (IsNull(column=("n",)), [2]),
        (Not(arg=IsNull(column=("n",))), [0, 1]),
        (StartsWith(column=("s",), prefix="漢"), [1]),
        (And(args=(Compare(op="<", column=("n",), value=3), Compare(op=">", column=("s",), value="b"))), []),
        (Compare(op="=", column=("late",), value="x"), [0, 1, 2]),  # the file lacks it: an entry may have its value
    ],
)
def test_row_groups_that_clearly_hold_no_match_are_skipped(predicate: Predicate | None, kept: list[int]) -> None:
    """[RD13] In a file whose numbers are narrower than the table's."""
    assert groups_of(NUMBERS, SCHEMA, predicate) == kept


@pytest.mark.parametrize("metadata", [{"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}, {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}])
def test_a_column_with_an_order_of_its_own_skips_nothing(metadata: dict[str, Any]) -> None:
    """[RD13] [RD6] Engines find 'A' equal to 'a', or to 'A  '."""
    own = Schema(fields=tuple(msgspec.structs.replace(each, metadata=metadata) if each.name == "s" else each for each in SCHEMA.fields))
    predicate = Compare(op="=", column=("s",), value="A")
    assert groups_of(NUMBERS, SCHEMA, predicate) == [] and groups_of(NUMBERS, own, predicate) == [0, 1, 2]


def test_a_nan_that_the_footer_hides_is_found() -> None:
    """[RD13] Parquet's bounds leave NaN out, and to Spark it is greater than every number."""
    file = file_of(pa.table({"f": [1.0, math.nan, 1.0, 2.0]}), 2)
    schema = from_arrow(file.schema_arrow, itertools.count(1).__next__)
    assert groups_of(file, schema, Compare(op=">", column=("f",), value=5.0)) == [0, 1]
    assert groups_of(file, schema, Compare(op="<", column=("f",), value=0.5)) == []

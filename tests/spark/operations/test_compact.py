"""Compaction through Spark: fewer files, the same rows. [GC11] [GC16]"""

import datetime as dt
import itertools
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import manifestcommit as mc
from manifestcommit.format.fields import to_spark
from manifestcommit.format.values import from_arrow
from manifestcommit.table import Table

DAYS = ["a b%20", "k=v#x?", "'\"ü漢+", None]
STRUCT = pa.struct([("a", pa.int32()), ("b.c", pa.list_(pa.string()))])


def batch(first: int) -> pa.Table:
    """One row for each day, with what is easily lost on the way: NaN, -0.0, nulls at every depth, old times, wide decimals, short chars."""
    ids = list(range(first, first + len(DAYS)))
    return pa.table(
        {
            "day": DAYS,
            "id": ids,
            "x": pa.array([float("nan"), -0.0, None, 1e300], pa.float64()),
            "dec": pa.array([Decimal(first), Decimal("-0.000000000001"), None, Decimal("99999999999999999999999999.999999999999")],
                            pa.decimal128(38, 12)),
            "at": pa.array([dt.datetime(1, 1, 1), dt.datetime(1890, 5, 5, 1, 2, 3, 4), None, dt.datetime(9999, 12, 31)],
                           pa.timestamp("us", "UTC")),
            "s": pa.array([{"a": None, "b.c": [None, ""]}, {"a": 1, "b.c": []}, None, {"a": first, "b.c": None}], STRUCT),
            "code": ["ab", "", None, "abcde"],
            "text": ["", "\u0000'\"\n", None, "é\U0001f600"],
        }
    )  # fmt: skip


def rows(table: Table, **choice: Any) -> list[str]:
    """Every row as text, in the order of ids: repr tells NaN, -0.0, None and "" apart."""
    return [repr(row) for row in sorted(table.dataset(**choice).to_table().to_pylist(), key=lambda row: row["id"])]


@pytest.fixture
def table(root: str) -> Table:
    """Four files in each of the partitions. Spark pads chars when it reads them; what is stored is as it was written."""
    fields = [pa.field(each.name, each.type) for each in batch(0).schema]
    created = StructType.fromJson(to_spark(from_arrow(pa.schema(fields), itertools.count(1).__next__), physical=False))
    created["code"].metadata = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    mc.create_table(root, created, partition_by="day")
    for first in range(0, 40, 10):
        mc.write(batch(first), root, partition_by="day")
    return Table(root)


def files(table: Table) -> list[str]:
    return table.files().column("path").to_pylist()


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_every_row_is_there_once_whatever_its_values(spark, table) -> None:
    """[GC11] In a file for each partition; gc then leaves exactly what is listed."""
    before = rows(table)
    with ThreadPoolExecutor(1) as pool:  # a thread that Spark has never heard of
        done = pool.submit(table.compact, spark=spark).result()
    assert (done.groups, done.files_before, done.files_after, done.rows, done.lost_groups) == (4, 16, 4, 16, 0)
    assert rows(table) == before
    assert mc.read_committed(table.url, spark=spark).filter("id % 10 < 4").count() == 16
    assert len(files(table)) == 4
    assert table.verify(deep=True).is_sound
    for _ in range(2):
        table.gc(grace="0s", keep_for="0s")
    folder = Path(table.url.removeprefix("file://"))
    assert {str(path.relative_to(folder)) for path in folder.glob("day=*/*")} == set(files(table))
    assert rows(table) == before

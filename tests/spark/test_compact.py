"""Compaction through Spark: fewer files, the same rows. [SP1] [SP2]"""

from __future__ import annotations

import datetime as dt
import shutil
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.core import format
from manifestcommit.engine.plan import entries_table
from manifestcommit.engine.replace import check_rows, plan_rewrite
from manifestcommit.errors import CorruptMetadataError
from manifestcommit.spark.rewrite import rewrite
from manifestcommit.table import Table

DAYS = ["a b%20", "k=v#x?", "'\"ü漢+", None]
STRUCT = pa.struct([("a", pa.int32()), ("b.c", pa.list_(pa.string()))])


def batch(first: int) -> pa.Table:
    """One row for each day, with what is easily lost on the way: NaN, -0.0, nulls at every depth, old times, wide decimals."""
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
            "text": ["", "\u0000'\"\n", None, "é\U0001f600"],
        }
    )  # fmt: skip


def rows(table: Table, **choice: Any) -> list[str]:
    """Every row as text, in the order of ids: repr tells NaN, -0.0, None and "" apart."""
    return [repr(row) for row in sorted(table.dataset(**choice).to_table().to_pylist(), key=lambda row: row["id"])]


@pytest.fixture
def table(root: str) -> Table:
    """Four files in each of the partitions."""
    for first in range(0, 40, 10):
        mc.write(batch(first), root, partition_by="day")
    return Table(root)


def in_new_files(spark: Any, table: Table, **options: Any) -> Any:
    snapshot = table.snapshot()
    entries = entries_table(table._session, snapshot)
    job = format.job_id(snapshot.version, snapshot.table_id, table._session.env.randomness(16))
    return rewrite(spark, snapshot, entries, plan_rewrite(table.url, snapshot, job), **options), entries


def test_rows_in_new_files_are_the_rows_of_the_old_ones(spark, table) -> None:
    """[SP2] Whatever their values, in files of each partition, in a thread that Spark has never heard of, too."""
    before = rows(table)
    with ThreadPoolExecutor(1) as pool:
        written, entries = pool.submit(in_new_files, spark, table, sort_by=["id"]).result()
    assert [entry.rows for entry in written.entries] == [4, 4, 4, 4]
    copy = mc.create_table(f"{table.url} copy", table.dataset().schema, partition_by="day")
    here, there = (Path(each.url.removeprefix("file://")) for each in (table, copy))
    for entry in written.entries:
        (there / entry.path).parent.mkdir()
        shutil.copyfile(here / entry.path, there / entry.path)
    with mc.begin(copy.url) as job:
        job.add_files([entry.path for entry in written.entries])
    assert rows(copy) == before == rows(table)
    check_rows(["p"], sum(entries.column("rows").to_pylist()), written.entries)
    with pytest.raises(CorruptMetadataError, match="read as 16 rows"):
        check_rows(["p"], 17, written.entries)

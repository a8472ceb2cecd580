"""Data that lacks columns of the table: nulls only where they are meant. [SC8]"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manifestcommit as mc
from manifestcommit.errors import SchemaMismatchError, UsageError

PROPERTY = "write.missing-columns"
FIRST = pa.table({"id": [1, 2], "it's a %+= 日": ["x", None], "v": [0.5, None]})
NAME = FIRST.column_names[1]
WAYS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda data: data,
    "batches": lambda data: data.to_reader(max_chunksize=1),
    "pandas": lambda data: data.to_pandas(),
    "polars": lambda data: pl.from_arrow(data),
}


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A table that is partitioned by NAME."""
    url = str(tmp_path / "t") if request.param == "local" else f"memory://{tmp_path.name}-{id(request)}/t"
    mc.write(FIRST, url, partition_by=[NAME])
    return url


def ids(root: str) -> list[int]:
    return sorted(mc.Table(root).dataset().to_table()["id"].to_pylist())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"merge_schema": True}, {"key": "k", "recoverable": True, "fingerprint": "f"}, {"mode": "overwrite"},
        {"mode": "overwrite", "overwrite": "dynamic"},
        {"mode": "overwrite", "overwrite": {NAME: "x"}}, {"mode": "overwrite", "overwrite": {NAME: None}},
    ],
    ids=str,
)  # fmt: skip
def test_data_without_a_partition_column_is_refused_in_every_way_of_writing(root: str, way: str, options: dict[str, Any]) -> None:
    """Its rows went to the partition of null. [SC8]"""
    mc.Table(root).set_properties({PROPERTY: "null"})
    before = mc.Table(root).snapshot().version
    with pytest.raises(SchemaMismatchError, match=r"it's a %\+= 日.* partitions the table and is missing .*explicit column of nulls"):
        mc.write(WAYS[way](FIRST.select(["v", "id"])), root, **options)
    assert ids(root) == [1, 2] and mc.Table(root).snapshot().version == before


def test_nulls_that_are_meant_are_written_as_a_column_of_nulls(root: str) -> None:
    """[SC8]"""
    mc.write(pa.table({"id": [3], NAME: pa.nulls(1)}), root)
    mc.write(pd.DataFrame({"id": [4], NAME: [None]}), root)
    found = mc.Table(root).dataset().to_table().to_pylist()
    assert {row["id"]: row[NAME] for row in found} == {1: "x", 2: None, 3: None, 4: None}


def test_a_job_that_does_not_know_the_new_name_of_a_partition_column_is_refused(root: str) -> None:
    """With merge_schema it added the old name again, and put all rows into the partition of null. [SC8] [SC6]"""
    mc.Table(root).rename_column(NAME, "day")
    for merge in (True, False):
        with pytest.raises(SchemaMismatchError, match=r"'day' partitions the table and is missing.*it was \"it's a %\+= 日\" before"):
            mc.write(FIRST, root, merge_schema=merge)
    mc.write(FIRST.rename_columns(["id", "day", "v"]), root, merge_schema=True)
    assert ids(root) == [1, 1, 2, 2] and mc.Table(root).dataset().schema.names == ["id", "day", "v"]


@pytest.mark.parametrize("data", [pa.table({"other": [1], "ID ": [2]}), pa.table({"z": pa.nulls(1)})], ids=["names", "null"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_data_of_another_table_does_not_become_columns_of_this_one(tmp_path: Path, data: pa.Table, mode: Any) -> None:
    """[SC8]"""
    mc.write(pa.table({"id": [1], "v": [2]}), tmp_path)
    mc.Table(tmp_path).set_properties({PROPERTY: "null"})
    with pytest.raises(SchemaMismatchError, match=r"no column in common.*'id', 'v'"):
        mc.write(data, tmp_path, merge_schema=True, mode=mode)
    mc.write(pa.table({"ID": [2], "other": [1]}), tmp_path, merge_schema=True)
    assert ids(str(tmp_path)) == [1, 2]


def test_rows_without_any_column_are_refused(tmp_path: Path) -> None:
    """[SC8]"""
    mc.write(pa.table({"id": [1]}), tmp_path)
    with pytest.raises(SchemaMismatchError, match="at least one column"):
        mc.write(pa.table({"id": [1, 2]}).select([]), tmp_path)


@pytest.mark.parametrize(
    ("said", "options", "refused"),
    [
        (None, {}, False), (None, {"mode": "overwrite"}, True), (None, {"mode": "overwrite", "overwrite": "dynamic"}, False),
        (None, {"mode": "overwrite", "overwrite": {NAME: "x"}}, False),
        ("null", {}, False), ("null", {"mode": "overwrite"}, False), ("null", {"mode": "overwrite", "overwrite": "dynamic"}, False),
        ("error", {}, True), ("error", {"merge_schema": True}, True), ("error", {"mode": "overwrite"}, True),
        ("error", {"mode": "overwrite", "overwrite": "dynamic"}, True), ("error", {"mode": "overwrite", "overwrite": {NAME: "x"}}, True),
    ],
    ids=str,
)  # fmt: skip
def test_whether_another_column_may_be_missing(root: str, said: str | None, options: dict[str, Any], refused: bool) -> None:
    """By default it may, unless its values in all rows would be lost. [SC8] [SC4]"""
    mc.Table(root).set_properties({PROPERTY: said})
    data = pa.table({"id": [3], NAME: ["x"]})
    if refused:
        with pytest.raises(SchemaMismatchError, match=r"'v' of the table is missing .*drop_column.*write\.missing-columns"):
            mc.write(data, root, **options)
        assert ids(root) == [1, 2]
    else:
        mc.write(data, root, **options)
        assert 3 in ids(root)
    mc.write(data.append_column("v", pa.nulls(1)), root, **options)
    assert 3 in ids(root)


def test_the_order_of_a_jobs_calls_makes_no_difference(root: str) -> None:
    """What is written first and declared an overwrite after is refused all the same. [SC8]"""
    with mc.begin(root) as job:
        job.write(pa.table({"id": [3], NAME: ["x"]}))
        job.write(pa.table({"id": [4], NAME: ["x"], "v": [1.0]}))
        with pytest.raises(SchemaMismatchError, match="'v' of the table"):
            job.overwrite()
    with mc.begin(root) as job:
        job.overwrite()
        job.write(pa.table({"id": [5], NAME: ["x"], "v": [1.0], "w": [1]}), merge_schema=True)
        with pytest.raises(SchemaMismatchError, match="'w' of the table"):
            job.write(pa.table({"id": [6], NAME: ["x"], "v": [1.0]}))


@pytest.mark.parametrize("declared_first", [True, False])
@pytest.mark.parametrize(("said", "overwrites"), [("error", False), (None, True)])
def test_files_of_others_that_lack_a_column_are_refused_likewise(
    tmp_path: Path, said: str | None, overwrites: bool, declared_first: bool
) -> None:
    """[SC8] [AF1]"""
    root = tmp_path / "t"
    mc.write(pa.table({"id": [1], "v": [1]}), root)
    mc.Table(root).rename_column("v", "w")
    mc.Table(root).set_properties({PROPERTY: said})
    pq.write_table(pa.table({"id": [2]}), root / "less.parquet")
    pq.write_table(pa.table({"id": [3], "v": [1]}), root / "whole.parquet")

    def list_it(name: str) -> None:
        with mc.begin(root) as job:
            if overwrites and declared_first:
                job.overwrite()
            job.add_files([name])
            if overwrites and not declared_first:
                job.overwrite()

    with pytest.raises(SchemaMismatchError, match="'w' of the table"):
        list_it("less.parquet")
    list_it("whole.parquet")
    assert 2 not in ids(str(root)) and 3 in ids(str(root))


def test_a_merge_says_which_column_its_source_lacks(root: str) -> None:
    """Before anything runs: no session is needed for it. [RC3] [SC8]"""
    version = mc.Table(root).version
    with pytest.raises(SchemaMismatchError, match="it's a"):
        mc.Table(root).merge(FIRST.select(["id", "v"]), on=["id"])
    assert mc.Table(root).version == version


@pytest.mark.parametrize("value", ["", "Error", "fail", "1"])
def test_the_property_is_error_or_null(root: str, value: str) -> None:
    """[SC8]"""
    with pytest.raises(UsageError, match=r'write\.missing-columns.* "error" or "null"'):
        mc.Table(root).set_properties({PROPERTY: value})
    with pytest.raises(UsageError, match=r'write\.missing-columns.* "error" or "null"'):
        mc.create_table(f"{root}-other", FIRST.schema, properties={PROPERTY: value})
    mc.create_table(f"{root}-other", FIRST.schema, properties={PROPERTY: "error"})
    with pytest.raises(SchemaMismatchError, match=PROPERTY):
        mc.write(FIRST.select(["id"]), f"{root}-other")

"""Rows deleted in this process, without Spark, over real files, against DuckDB as the model. [RC1] [RC2] [RC8]"""

import datetime as dt
import logging
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.faults.row_changes import no_spark
from tests.kit.row_tables import CONDITIONS, NAN, content, copy, shown
from tests.kit.sizes import rest_thorough
from tests.kit.tables import memory, session, table_with, write
from tests.kit.tables import rows as small_rows

import manifestcommit as mc
from manifestcommit.rows import find
from manifestcommit.rows import row_change as rewrite
from manifestcommit.rows.find import ArrowRows, ExecutorChoice
from manifestcommit.rows.where import delete_where
from manifestcommit.runtime import environment
from manifestcommit.table import Table


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Spark is not installed: whatever asks for it fails."""
    for name in [name for name in sys.modules if name.startswith("manifestcommit.spark") or name == "pyspark.sql"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("name", rest_thorough(["partitioned", "plain"], "plain"))
def test_exactly_the_rows_that_match_go(base: Any, tmp_path: Path, name: str, condition: str) -> None:
    """What is null, NaN, empty or quoted is judged as SQL judges it; all other rows are there as they were. [RC1] [RC2]"""
    table, data = copy(base, name, tmp_path)
    before = table.files()
    outcome = table.delete(condition)
    model = duckdb.sql(f"SELECT * FROM data WHERE NOT coalesce(({condition}), false)").to_arrow_table()
    assert content(table) == shown(model.cast(data.schema))
    assert outcome.rows_deleted == len(data) - len(model) and outcome.executor == "arrow"
    assert table.verify(deep=True).is_sound
    after = set(table.files().column("path").to_pylist())
    touched = before.num_rows - sum(path in after for path in before.column("path").to_pylist())
    assert outcome.files_removed is not None and touched == outcome.files_removed + (outcome.files_rewritten or 0)


def test_where_partition_values_tell_no_file_is_read(base: Any, tmp_path: Path) -> None:
    """Here their bytes are gone already. [RC2]"""
    table, data = copy(base, "partitioned", tmp_path, emptied=True)
    outcome = table.delete("day = 'k=v#x?'")
    assert (outcome.rows_deleted, outcome.files_removed, outcome.files_rewritten) == (8, 4, 0)
    assert content(table) == shown(data.filter(~pc.field("day").isin(["k=v#x?"])))
    assert table.delete("true").rows_deleted == 32 and content(table) == []
    assert table.delete("true").kind == "unchanged"


def test_a_pyarrow_expression_means_what_it_means_to_a_reader(base: Any, tmp_path: Path) -> None:
    """NaN is above all numbers, as in SQL. [RC2] [RD7]"""
    table, data = copy(base, "plain", tmp_path)
    high = pc.field("x") > 1
    planned = table.delete(high, dry_run=True)
    expected = data.filter(high | pc.is_nan(pc.field("x"))).num_rows
    assert (planned.kind, planned.rows_deleted) == ("planned", expected) and expected > data.filter(high).num_rows
    assert table.delete("x > 1", dry_run=True).rows_deleted == table.to_arrow(filter=high).num_rows == expected
    by_call = pc.utf8_length(pc.field("text")) > 3
    assert table.delete(by_call).rows_deleted == data.filter(by_call).num_rows == 12


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("nope = 1", "no column 'nope'"),
        ("initcap(text) = 'x'", "(?s)without Spark.*pyarrow.*pip install"),
        ("day = 2013-01-01", "(?s)without Spark.*pyarrow.*pip install"),
        ("id = ", "^invalid where 'id = ': it ends too early; nothing was done$"),
        ("id == = 3", "^invalid where 'id == = 3': a value is missing before '='; nothing was done$"),
        ("id", "^invalid where 'id': long values are neither true nor false; nothing was done$"),
        ("id / 0 = 1", "(?s)cannot be evaluated.*divide by zero.*nothing was done"),
        ("id + 9223372036854775807 > 0", "(?s)cannot be evaluated.*overflow"),
        (pc.field("nope") == 1, "nope"),
        (pc.field("id"), "true or false"),
        (pc.field("id") == "x", "cannot be evaluated"),
        (pc.field("text").cast(pa.int64()) == 1, "(?s)cannot be evaluated.*Failed to parse"),
    ],
)
def test_a_condition_that_is_none_is_refused_before_anything_is_written(base: Any, tmp_path: Path, condition: Any, says: str) -> None:
    """[RC2] [RC8]"""
    table, _ = copy(base, "plain", tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(mc.errors.UsageError, match=says):
        table.delete(condition)
    assert sorted(tmp_path.rglob("*")) == before


def test_rows_go_out_of_adopted_files_whose_partition_stands_in_their_folder_only(tmp_path: Path) -> None:
    """The rows that stay keep the partition that their file did not hold. [RC1] [DF4]"""
    for day in ("2013-01-01", "2013-01-02"):
        folder = tmp_path / "adopted" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2, 3], "x": [NAN, 1.0, None]}), folder / "a b%20.parquet")
    mc.Table(tmp_path / "adopted").adopt()
    table = Table(tmp_path / "adopted")
    assert table.delete("day = '2013-01-02' AND isnan(x)").rows_rewritten == 2
    assert table.delete("x IS NULL AND day < '2013-01-02'").rows_rewritten == 2
    days = [dt.date(2013, 1, 1)] * 2 + [dt.date(2013, 1, 2)] * 2
    wanted = pa.table({"id": [1, 2, 2, 3], "x": [NAN, 1.0, 1.0, None], "day": days})
    assert shown(table.dataset().to_table().select(["id", "x", "day"])) == shown(wanted)
    assert table.verify(deep=True).is_sound


def test_large_files_are_shared_among_threads_and_lose_no_row(base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[RC1] [RC5]"""
    for module in (find, rewrite, environment):
        monkeypatch.setattr(module, "MUCH_BYTES", 1)
    monkeypatch.setattr(rewrite, "_BATCH_ROWS", 3)
    monkeypatch.setattr(environment.os, "cpu_count", lambda: 6)
    table, data = copy(base, "plain", tmp_path)
    outcome = table.delete("id IN (3, 13, 23, 33)")
    assert outcome.files_rewritten == 4 and table.files().num_rows == 3, "two files of four share a thread"
    assert content(table) == shown(data.filter(~pc.coalesce(pc.field("id").isin([3, 13, 23, 33]), pc.scalar(False))))


def test_what_is_large_is_left_to_an_active_session_and_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """And to no other. [RC8]"""
    caplog.set_level(logging.INFO, "manifestcommit.jobs")
    store = memory()
    write(store, small_rows(range(10)))
    each = session(store)
    for is_active, few, outcome in ((False, 0, "arrow"), (True, 1 << 30, "arrow"), (True, 0, "no Spark here")):
        monkeypatch.setattr(find, "SPARK_FROM_BYTES", few)
        monkeypatch.setattr(find, "running_session", lambda is_active=is_active: "a session" if is_active else None)
        choice = ExecutorChoice(ArrowRows(each), no_spark, is_given=False)
        try:
            found: Any = delete_where(each, pc.field("id") == 3, choice, dry_run=True).executor
        except mc.errors.UsageError as error:
            found = str(error)
        assert outcome in found, (is_active, few)
    assert "1 files of 0.0 MB may hold such rows; they are read and rewritten by arrow" in caplog.text


def test_rows_of_files_with_ranges_and_without_are_not_mixed(root: Path) -> None:
    """[RC5] [OB8]"""
    for first in (0, 10):
        mc.write(pa.table({"id": range(first, first + 10)}), root, watermarks={"s": (first, first + 10)})
    table = table_with(pa.table({"id": range(20, 30)}), root)
    assert table.delete("id IN (5, 15, 25)").rows_rewritten == 27
    kept = table.lineage("s", 5)
    assert kept is not None and {(each.start, each.end) for each in kept.files} == {(0, 20), (None, None)}

"""Small files are decoded whole, with the rows that a scan finds; files that are not stored as the table is are scanned. [RD2] [RC8]"""

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.kit.footers import changed, parquet_bytes
from tests.kit.sizes import tuned
from tests.kit.tables import memory, rows, session, table_with, write

import manifestcommit as mc
from manifestcommit.rows import row_change as rewrite
from manifestcommit.rows import row_change as whole_file
from manifestcommit.rows.row_change import batches_of, checked_bytes, scan, wanted_columns
from manifestcommit.runtime.environment import Tuning
from manifestcommit.scan import planning
from manifestcommit.scan.arrow_dataset import open_dataset
from manifestcommit.testing import CountingStore

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "a": pa.array([{"b": 1.5, "c": None}, None, {"b": None, "c": "x"}], pa.struct([("b", pa.float64()), ("c", pa.string())])),
        "a.b": pa.array(["dot", None, ""]),
        "many": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int16())),
        "dec": pa.array([Decimal("1.25"), None, Decimal("-0.01")], pa.decimal128(9, 2)),
        "at": pa.array([dt.datetime(2026, 1, 31, tzinfo=dt.UTC), None, dt.datetime(1, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        "on": pa.array([dt.date(2026, 1, 31), None, dt.date(1, 1, 1)]),
        "raw": pa.array([b"\0\xff", None, b""], pa.binary()),
        "day": pa.array(["d", "d", "d"]),
    }
)
CHANGES = {
    "a new column": lambda table: table.add_column("late", pa.string()),
    "a wider type": lambda table: table.widen_column("id", pa.int64()),
}


def whole(table: mc.Table, columns: list[str] | None = None) -> pa.Table | None:
    """The rows of its only file, if it is decoded whole, after which nobody opens it."""
    session, snapshot, entries = opened(table)
    data = checked_bytes(session, entries)
    if data is None:
        return None
    (path,) = entries.column("path").to_pylist()
    file = Path(table.url.removeprefix("file://")) / path
    file.rename(file.with_name("away"))
    wanted = wanted_columns(session, snapshot, columns)
    try:
        return pa.Table.from_batches(batches_of(session, snapshot, entries, data, wanted))
    finally:
        file.with_name("away").rename(file)


def opened(table: mc.Table) -> tuple[Any, Any, pa.Table]:
    snapshot = table._ctx.open().snapshot
    return table._ctx, snapshot, planning.entries_table(table._ctx, snapshot)


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    """One file, of which a column was renamed."""
    table = table_with(
        ROWS.rename_columns({"raw": "old", **{name: name for name in ROWS.column_names if name != "raw"}}), tmp_path, partition_by="day"
    )
    table.rename_column("old", "raw")
    return table


@pytest.mark.parametrize("columns", [None, ["id"], ["a"], ["a.b"], ["a.b", "a"], ["day", "raw", "many", "id"]], ids=str)
def test_a_file_has_the_rows_that_a_scan_finds(table: mc.Table, columns: list[str] | None) -> None:
    """By the names and types that the table has, in the order that was asked for, with the mark of their version. [CF17] [SC6]"""
    found = whole(table, columns)
    scanned = open_dataset(*opened(table)).to_table(columns=columns)
    assert found is not None and found.equals(scanned, check_metadata=True)
    assert found.select(columns or ROWS.column_names).equals(ROWS.select(columns or ROWS.column_names))


@pytest.mark.parametrize("columns", [None, ["id"], ["day", "raw", "many"]], ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_is_older_than_its_columns_is_read_once_too(table: mc.Table, change: str, columns: list[str] | None) -> None:
    """[SC4] [SC5] [CF17]"""
    CHANGES[change](table)
    found = whole(table, columns)
    session, snapshot, entries = opened(table)
    scanned = open_dataset(session, snapshot, entries).to_table(columns=columns)
    assert found is not None and found.equals(scanned, check_metadata=True)
    assert pa.Table.from_batches(scan(session, snapshot, entries, columns)).equals(scanned)
    assert table.delete("id = 1").rows_rewritten == 2


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "one byte of a value": lambda data: data.replace(b"dot", b"dat"),
    "cut": lambda data: data[:-1],
    "empty": lambda data: b"",
    "another file": lambda data: parquet_bytes(pa.table({"id": pa.array([7, 8, 9], pa.int32())})),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_not_what_was_written_is_named_and_not_rewritten(table: mc.Table, damage: str) -> None:
    """A new file with its rows would have a digest of its own, and no check would find the damage any more. [DF3] [RD10]"""
    (path,) = opened(table)[2].column("path").to_pylist()
    file = Path(table.url.removeprefix("file://")) / path
    data = DAMAGE[damage](file.read_bytes())
    assert data != file.read_bytes()
    file.write_bytes(data)
    table, version = mc.Table(table.url), table._ctx.open().version
    key = {"on": "id", "when_matched": "delete", "when_not_matched": None}
    for change in (
        lambda: table.delete("id = 1"),
        lambda: table.delete("id = 1", dry_run=True),
        lambda: table.update({"id": "5"}, "id = 1"),
        lambda: table.merge(ROWS.select(["id"]).slice(0, 1), **key),
    ):
        with pytest.raises(mc.errors.CorruptMetadataError, match=re.escape(path), check=lambda error: error.object_name == path):
            change()
    assert table._ctx.open().version == version


@pytest.mark.parametrize("most", [0, 1 << 30])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_not_held_with_its_rows_is_named_too(
    table: mc.Table, damage: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is compared with its digest before its rows are written, and, if it is too large for that, where it cannot be decoded.
    [DF3] [RC1]"""
    monkeypatch.setattr(rewrite, "_WHOLE_BYTES", most)
    monkeypatch.setattr(whole_file, "_REQUEST_BYTES", 100)
    session, snapshot, entries = opened(table)
    (path,) = entries.column("path").to_pylist()
    file = Path(table.url.removeprefix("file://")) / path
    data = file.read_bytes()
    with tuned(Tuning(read_once_bytes=0)):
        assert pa.Table.from_batches(list(scan(session, snapshot, entries))).num_rows == ROWS.num_rows
        file.write_bytes(DAMAGE[damage](data))
        table = mc.Table(table.url)
        if most:
            with pytest.raises(mc.errors.CorruptMetadataError, match=re.escape(path)):
                list(scan(session, snapshot, entries))
        seen = {"cut", "empty"} | ({"one byte of a value"} if most else set())
        for change in (
            lambda: table.update({"id": "5"}, "id = 1"),
            lambda: table.delete("id = 1 AND day = 'd'"),
            lambda: table.merge(ROWS.select(["id"]).slice(0, 1), on="id", when_matched="delete", when_not_matched=None),
        ):
            if damage in seen:
                with pytest.raises(mc.errors.CorruptMetadataError, match=re.escape(path), check=lambda error: error.object_name == path):
                    change()
    assert mc.Table(table.url).version == snapshot.version


def test_a_condition_that_cannot_be_evaluated_is_not_said_to_be_damage(table: mc.Table) -> None:
    """[RC8]"""
    with tuned(Tuning(read_once_bytes=0)), pytest.raises(mc.errors.UsageError, match="cannot be evaluated"):
        table.delete(pc.field("id") / 0 == 1)
    assert mc.Table(table.url).version == table.version


def test_a_file_of_another_program_is_checked_and_scanned(tmp_path: Path) -> None:
    """pyarrow would trust a footer that lies. [AF3]"""
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet")
    mc.Table(tmp_path).adopt()
    table = mc.Table(tmp_path)
    assert whole(table) is None
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(changed(data, 4, 0, 1, 0, 3, 12, 3, to=-1))
    with pytest.raises(mc.errors.CorruptMetadataError, match=r"a\.parquet"):
        table.delete("id = 1")


@pytest.mark.parametrize("most", [1, 1000, 1 << 20])
def test_a_large_file_behind_a_network_comes_in_several_requests_at_once(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one from where a request costs nothing. [RD2]"""
    monkeypatch.setattr(whole_file, "_REQUEST_BYTES", most)
    for is_far in (False, True):
        inner = memory()
        monkeypatch.setattr(type(inner), "is_remote", is_far, raising=False)
        store = CountingStore(inner)
        write(store, rows(range(300)))
        each = session(store)
        snapshot = each.open().snapshot
        entries = planning.entries_table(each, snapshot)
        before = len(store.calls)
        data = whole_file.checked_bytes(each, entries)
        assert data is not None
        found = whole_file.batches_of(each, snapshot, entries, data, whole_file.wanted_columns(each, snapshot, None))
        assert [row["id"] for batch in found for row in batch.to_pylist()] == list(range(300))
        whole_file.check_digest(each, entries)
        parts = -(-entries.column("bytes")[0].as_py() // most)
        assert len(store.calls) - before == (parts if is_far else 1) + parts, "a digest alone is taken in parts everywhere"


def test_the_schema_of_a_file_is_not_made_anew_for_each_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow makes it at each access: a row of 1,600 columns would take ten times as long to update. [RC8]"""
    asked: list[int] = []
    made = pq.ParquetFile.schema_arrow.fget

    def schema_arrow(file: pq.ParquetFile) -> pa.Schema:
        asked.append(1)
        return made(file)

    monkeypatch.setattr(pq.ParquetFile, "schema_arrow", property(schema_arrow))
    counts = []
    for width in (3, 40):
        root = str(tmp_path / str(width))
        mc.write(pa.table({f"c{at}": [1, 2] for at in range(width)}), root)
        asked.clear()
        mc.Table(root).update({"c1": "c1 + 1"}, where="c0 = 1")
        mc.Table(root).delete("c0 = 2")
        mc.Table(root).export("delta")
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0

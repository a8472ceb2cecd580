"""The rows that changed between versions: applied to the rows of the first one they give those of the last. [CH1]-[CH6]"""

import math
import tempfile
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.change_tables import KIND, OPERATIONS, apply, bag, check, kinds, new_table, overwrite, rows
from tests.kit.sizes import rounds
from tests.kit.tables import session, table_with

import manifestcommit as mc
from manifestcommit.commits.commit_loop import create_table
from manifestcommit.errors import SchemaMismatchError, SnapshotExpiredError, UsageError, VersionNotFoundError
from manifestcommit.format.fields import NO_COLUMNS
from manifestcommit.rows.read_changes import RowFeed
from manifestcommit.store import open_store


# --- any history --------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
@given(st.lists(st.one_of(OPERATIONS), min_size=1, max_size=8), st.booleans(), st.data())
@settings(max_examples=rounds(12, 300), deadline=None)
def test_any_history_is_followed_exactly(operations: list[tuple[str, Any]], by_day: bool, data: st.DataObject) -> None:
    """From any version to any later one, after rewrites, compaction, rollbacks and dropped columns. [CH1] [CH3] [CH6]"""
    with tempfile.TemporaryDirectory() as folder:
        table = new_table(folder, by_day=by_day)
        for kind, value in [("append", rows(0, 1, 2, 2, None)), *operations]:
            apply(table, kind, value)
        end = data.draw(st.integers(2, table.version))
        check(table, data.draw(st.integers(0, end)), end, data.draw(st.sampled_from([None, "id"])))


# --- what each operation gives ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("by_day", [True, False])
def test_each_operation_gives_what_it_changed_and_no_more(tmp_path: Path, by_day: bool) -> None:
    """[CH1] [CH2] [CH3] [CH4]"""
    table = new_table(tmp_path, by_day=by_day)
    steps: list[tuple[Callable[[], Any], Counter[tuple[str, int | None]] | None]] = [
        (lambda: mc.write(rows(1, 2, 2, None), table.url), Counter({("insert", 1): 1, ("insert", 2): 2, ("insert", None): 1})),
        (lambda: mc.write(rows(3, 6, 11), table.url), Counter({("insert", 3): 1, ("insert", 6): 1, ("insert", 11): 1})),
        (lambda: table.delete("id = 1"), Counter({("delete", 1): 1})),
        (lambda: table.compact(), Counter()),
        (lambda: table.update({"x": "7.5"}, "id = 3"), Counter({("update_preimage", 3): 1, ("update_postimage", 3): 1})),
        (lambda: table.update({"day": "'moved'"}, "id = 6"), Counter({("update_preimage", 6): 1, ("update_postimage", 6): 1})),
        (lambda: table.update({"x": "8.5"}, "id = 2"), Counter({("delete", 2): 2, ("insert", 2): 2})),
        (lambda: table.update({"x": "8.5"}, "id IS NULL"), Counter({("delete", None): 1, ("insert", None): 1})),
        (lambda: table.rollback(4, reason="again"), None),
        (lambda: overwrite(table, rows(2, 2, 3, 6, 12)), Counter({("delete", None): 1, ("delete", 11): 1, ("insert", 12): 1})),
        (lambda: overwrite(table, rows(2, 3, 3, 6, 12)), Counter({("delete", 2): 1, ("insert", 3): 1})),
        (lambda: table.set_properties({"owner": "é"}), Counter()),
    ]
    rolled_back = 0
    for step, expected in steps:
        before = table.version
        step()
        found = check(table, before, table.version, "id")
        assert expected is None or kinds(found) == expected, before
        rolled_back = rolled_back or (expected is None and table.version)
    back = kinds(check(table, rolled_back - 1, rolled_back, "id"))
    assert back[("update_postimage", 3)] == back[("update_preimage", 6)] == 1 and ("insert", 1) not in back
    assert ("update_preimage", 3) not in kinds(check(table, 4, rolled_back))
    check(table, 0, table.version, "id")


def test_the_row_that_differs_only_by_its_sign_of_zero_or_its_nan_is_told_apart(tmp_path: Path) -> None:
    """[CH3]"""
    table = new_table(tmp_path)
    mc.write(rows(0, 1, 2), table.url)  # NaN, -0.0, 0.0
    table.update({"x": "0.0"}, "id = 1")
    (old, new) = check(table, 2, 3, "id")
    assert math.copysign(1, old["x"]) == -1 and math.copysign(1, new["x"]) == 1
    table.update({"x": "x"}, "id < 3")
    assert check(table, 3, 4) == []


# --- columns ------------------------------------------------------------------------------------------------------------
def test_rows_have_the_columns_of_the_last_version(tmp_path: Path) -> None:
    """A column that was dropped is not shown, and what changed in it alone is no change; one that a rollback brought back is. [CH6]"""
    table = new_table(tmp_path)
    mc.write(rows(1, 2), table.url)
    table.update({"dec": Decimal("5.00")}, "id = 1")
    table.rename_column("x", "Der Wert, %")
    table.add_column("late", pa.int32())
    table.update({"late": "3"}, "id = 2")
    table.drop_column("dec")
    assert [(row["_commit_version"], row["late"]) for row in check(table, 2, 7, "id")] == [(6, None), (6, 3)]
    assert "Der Wert, %" in table.changed_rows(2).schema.names and "dec" not in table.changed_rows(2).schema.names
    table.add_column("dec", pa.string())
    mc.write(rows(4).drop_columns(["x"]).set_column(2, "dec", pa.array(["another"])), table.url)
    assert [row["dec"] for row in check(table, 2, 9) if row["_commit_version"] == 9] == ["another"]
    table.rollback(3, reason="dropped by mistake")
    back = check(table, 7, 10, "id")
    assert {(row["id"], row["_change_type"], row["dec"] is None) for row in back} >= {
        (1, "update_postimage", False),
        (1, "update_preimage", True),
        (2, "update_preimage", True),
    }
    check(table, 2, 10, "id")


def test_members_of_structs_are_matched_by_id(path: str) -> None:
    """Also the one that has the name of another, which a rollback took back. [CH6]"""
    table = table_with(pa.table({"id": [1], "s": [{"a": 1}]}), path)
    mc.write(pa.table({"id": [2], "s": [{"a": 2, "b": "text"}]}), path, merge_schema=True)
    table.rollback(2, reason="b is a number")
    mc.write(pa.table({"id": [3], "s": [{"a": 3, "b": 7}]}), path, merge_schema=True)
    found = table.changed_rows(1, 5).read_all().to_pylist()
    assert [(row["id"], row["s"]) for row in found] == [
        (1, {"a": 1, "b": None}),
        (2, {"a": 2, "b": None}),
        (2, {"a": 2, "b": None}),
        (3, {"a": 3, "b": 7}),
    ]
    assert [row["s"] for row in table.changed_rows(1, 3).read_all().to_pylist()] == [{"a": 1, "b": None}, {"a": 2, "b": "text"}]


@pytest.mark.parametrize("name", ["s.b", "l.element.b"])
def test_members_that_were_dropped_and_came_back_are_changes(tmp_path: Path, name: str) -> None:
    """Though dropping one replaces files as compaction does; so a stream and a load are given them. [CH6] [CH7] [SC12]"""
    root, copy = str(tmp_path / "t"), str(tmp_path / "copy")
    data = [{"id": number, "s": {"a": number, "b": "x"}, "l": [{"a": number, "b": "y"}]} for number in (1, 2)]
    table = table_with(pa.Table.from_pylist(data), root)
    table.drop_column(name)
    assert table.changed_rows(2).read_all().num_rows == 0  # in the columns that are left
    table.delete("id = 2")
    table.rollback(2, reason="dropped by mistake")
    table.compact()
    updates = {3: 2, 5: 1}  # version to rows whose member went or came
    found = Counter((row["_commit_version"], row["_change_type"]) for row in table.changed_rows(2, on="id").read_all().to_pylist())
    images = {(version, kind): count for version, count in updates.items() for kind in ("update_preimage", "update_postimage")}
    assert found == {**images, (4, "delete"): 1, (5, "insert"): 1}
    stream = RowFeed(session(open_store(root)), columns=table.snapshot().schema.fields, pinned=5)
    assert [one.added.snapshot.version for one in stream.between(stream.beginning(2), stream.advance(stream.beginning(2)))] == [2, 3, 4, 5]
    mc.load(mc.sources.table(root), copy)
    assert bag(mc.Table(copy).to_arrow()) == bag(table.changed_rows(1).read_all())


def test_a_column_that_was_widened_is_shown_as_it_is_now_and_one_that_a_rollback_narrowed_is_an_error(path: str) -> None:
    """[CH6]"""
    mc.write(pa.table({"id": pa.array([1], pa.int32()), "l": pa.array([[1]], pa.list_(pa.int8()))}), path)
    wide = pa.table({"id": pa.array([1 << 40], pa.int64()), "l": pa.array([[1 << 20]], pa.list_(pa.int32()))})
    table = table_with(wide, path, merge_schema=True)
    assert [row["id"] for row in check(table, 1, 3)] == [1, 1 << 40]
    assert table.changed_rows(1).schema.field("id").type == pa.int64()
    table.rollback(2, reason="too wide")
    with pytest.raises(SchemaMismatchError, match=r"version 3 .*columns of version 4.*'id' is long there and integer"):
        table.changed_rows(1)
    assert [row["id"] for row in check(table, 1, 3)] == [1, 1 << 40]
    assert check(table, 4, 4) == []


def test_columns_can_be_chosen_and_names_that_collide_are_refused(path: str) -> None:
    """[CH2] [CH4]"""
    table = table_with(pa.table({"id": [1, 2], "x": [1, 2], "_Change_Type": ["a", "b"]}), path)
    with pytest.raises(UsageError, match=r"a column '_Change_Type', .*rename_column.*columns="):
        table.changed_rows(1)
    table.update({"x": "x + 1"}, "id = 1")
    found = table.changed_rows(2, columns=["x", "ID"], on="id").read_all()
    assert found.schema.names == ["x", "id", "_change_type", "_commit_version", "_commit_timestamp"]
    assert [row["x"] for row in found.to_pylist()] == [1, 2]
    assert table.changed_rows(2, columns="id").read_all().num_rows == 0, "x alone changed"
    with pytest.raises(UsageError, match="on: the column 'id' is not among the columns that are read"):
        table.changed_rows(2, columns=["x"], on="id")
    with pytest.raises(UsageError, match="no column 'none'"):
        table.changed_rows(2, columns=["none"])
    with pytest.raises(UsageError, match="on names one or more columns"):
        table.changed_rows(2, columns=["x"], on=[])
    for columns in ([], ["x", "x"]):
        with pytest.raises(UsageError, match="columns: expected names of columns, each once"):
            table.changed_rows(2, columns=columns)


# --- versions -----------------------------------------------------------------------------------------------------------
def test_versions_that_are_not_there_or_expired_are_errors_that_name_what_is_left(tmp_path: Path) -> None:
    """[CH1] [RD3]"""
    table = new_table(tmp_path)
    for number in range(4):
        mc.write(rows(number), table.url)
    assert table.changed_rows(5).read_all().num_rows == 0
    assert table.changed_rows(0, 0 + 1).read_all().num_rows == 0
    with pytest.raises(UsageError, match="version 6 is newer than 5"):
        table.changed_rows(6)
    with pytest.raises(UsageError, match="version 4 is newer than 3"):
        table.changed_rows(4, 3)
    with pytest.raises(VersionNotFoundError, match="no version 9; it has 1 to 5"):
        table.changed_rows(2, 9)
    with pytest.raises(UsageError, match="start_version"):
        table.changed_rows(-1)
    reading = table.changed_rows(2, 5)
    table.tag("kept", 2)
    table.gc(keep_versions=2, keep_for="0s", grace="0s")
    expired = table.snapshot().expired
    assert expired > 3
    for start in (0, 2, 3):
        with pytest.raises(SnapshotExpiredError, match=rf"need all versions from {max(start, 1)} on.* from version {expired} on"):
            table.changed_rows(start, expired)
    check(table, expired, table.version)
    assert reading.read_all().num_rows == 3, "no file was removed, and what was planned can be read"


def test_a_file_that_gc_deleted_meanwhile_is_an_error_that_says_so(tmp_path: Path) -> None:
    """[CH1] [RD2] [RD3]"""
    table = new_table(tmp_path, by_day=False)
    mc.write(rows(1, 2, 3), table.url)
    table.delete("id = 1")
    reading = table.changed_rows(2, 3)
    for _ in range(2):
        table.gc(keep_versions=1, keep_for="0s", grace="0s")
    with pytest.raises(SnapshotExpiredError, match="need all versions from 2 on"):
        reading.read_all()


def test_a_table_without_columns_has_no_changes_and_an_empty_one_gives_its_columns(path: str) -> None:
    """[CH1] [CH2]"""
    create_table(session(open_store(path)), schema=NO_COLUMNS, partition_by=(), properties={})
    assert mc.Table(path).changed_rows(0).read_all().schema.names[0] == "_change_type"
    mc.write(rows(), path)
    assert mc.Table(path).changed_rows(0).read_all().schema.names[:7] == KIND.names
    mc.write(rows(1), path)
    mc.Table(path).rollback(1, reason="to the time before there was a column")
    assert kinds(check(mc.Table(path), 0, 4)) == Counter({("insert", 1): 1})
    with pytest.raises(UsageError, match=r"version 5 .* has no columns"):
        mc.Table(path).changed_rows(0)

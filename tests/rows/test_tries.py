"""Row changes that others were faster than are done again, by the library, where what they read allows it. [RC11]"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.row_works import OLD, SCHEMA, before_its_create, data, found, make

import manifestcommit as mc
from manifestcommit.rows import row_change
from manifestcommit.store.local import LocalStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make(tmp_path / "t")
    return tmp_path / "t"


def append(path: Path) -> None:
    mc.write(data(50), path)


# --- real processes -----------------------------------------------------------------------------------------------------
# --- what is not repeated -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("winner", [append, lambda path: mc.Table(path).compact()])
def test_what_is_based_on_a_version_is_tried_once(path: Path, monkeypatch: pytest.MonkeyPatch, winner: Callable[[Path], Any]) -> None:
    """Its caller decides again: the values come from that version. [RC11] [CF17]"""
    table = mc.Table(path)
    calls: list[Callable[[int], Any]] = [
        lambda version: table.update({"text": "'mine'"}, "day = 'a'", based_on=version),
        lambda version: table.delete("day = 'a' AND id = 1", based_on=version),
        lambda version: table.merge(data(1), ["day", "id"], based_on=version),
        lambda version: table.overwrite_where(data(0, 1), "day = 'a' AND id < 2", based_on=version),
    ]
    for call in calls if winner is append else calls[:1]:
        version = table.snapshot().version
        with before_its_create(monkeypatch, lambda: winner(path)), pytest.raises(mc.errors.CommitConflictError):
            call(version)
        assert table.snapshot().version == version + 1


def test_rows_that_carry_the_version_they_were_read_at_are_tried_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[RC11] [CF17]"""
    table = mc.Table(path)
    read = table.to_arrow()
    with before_its_create(monkeypatch, lambda: append(path)), pytest.raises(mc.errors.CommitConflictError):
        table.merge(read, ["day", "id"])
    assert "new" in {text for _, _, text in found(path)}


def test_a_change_in_a_transaction_is_tried_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[RC11] [MT1]"""
    tables = [path, path.parent / "other"]
    make(tables[1])
    with before_its_create(monkeypatch, lambda: append(path)), pytest.raises(mc.errors.CommitConflictError), mc.transaction(tables) as tx:
        assert tx.rows(str(path)).delete("day = 'a' AND id = 1").kind == "pending"
    assert len(found(path)) == len(OLD) + 1


def test_a_conflict_that_no_second_look_resolves_is_told_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[RC11] [WM2]"""
    table = mc.Table(path)

    def winner() -> None:
        mc.write(data(50), path, watermarks={"s": (0, 5)})

    with before_its_create(monkeypatch, winner), pytest.raises(mc.errors.WatermarkOverlapError):
        table.merge(data(1), ["day", "id"], watermarks={"s": (0, 5)})


# --- how often, and what is left of it ----------------------------------------------------------------------------------
def always_behind(monkeypatch: pytest.MonkeyPatch, path: Path, times: int) -> list[int]:
    """Others append right before each create, so many times."""
    put, lost = LocalStore.put_if_absent, list[int]()

    def late(self: LocalStore, name: str, bytes_: Any) -> bool:
        if "/versions/" in f"/{name}" and len(lost) < times:
            with monkeypatch.context() as patch:
                patch.setattr(LocalStore, "put_if_absent", put)
                mc.write(data(100 + len(lost)), path)
            lost.append(1)
            monkeypatch.setattr(LocalStore, "put_if_absent", late)
        return put(self, name, bytes_)

    monkeypatch.setattr(LocalStore, "put_if_absent", late)
    return lost


@pytest.mark.thorough
def test_it_is_tried_ten_times_unless_the_table_says_otherwise(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[RC11]"""
    table = mc.Table(path)
    always_behind(monkeypatch, path, 9)
    assert table.delete("day = 'a' AND id = 1").tries == 10
    always_behind(monkeypatch, path, 10)
    with pytest.raises(mc.errors.CommitConflictError, match="read_partition_was_touched"):
        table.delete("day = 'a' AND id = 2")
    monkeypatch.undo()
    table.set_properties({"write.row-change-tries": "2"})
    always_behind(monkeypatch, path, 2)
    with pytest.raises(mc.errors.CommitConflictError):
        table.delete("day = 'a' AND id = 2")
    monkeypatch.undo()
    for wrong in ("0", "-1", "many"):
        with pytest.raises(mc.errors.UsageError, match="above 0"):
            table.set_properties({"write.row-change-tries": wrong})


def test_a_key_that_another_run_committed_meanwhile_is_not_done_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[RC11] [KY5]"""
    table, twin = mc.Table(path), mc.Table(path)
    same: dict[str, Any] = {"set": {"id": "id + 100"}, "where": "day = 'a' AND id = 1", "key": "k"}
    with before_its_create(monkeypatch, lambda: (twin.update(**same), append(path))):
        outcome = table.update(**same)
    assert outcome.kind == "already_committed"
    assert [row for row in found(path) if row[1] >= 100] == [("a", 101, "old")]


@pytest.mark.parametrize("way", ["merge", "overwrite_where"])
def test_a_source_is_evaluated_once_however_often_it_is_tried(path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """[RC11] [RC4]"""
    given = list[int]()

    def batches() -> Iterator[pa.RecordBatch]:
        given.append(1)
        yield from data(0, 1).to_batches()

    source, table = pa.RecordBatchReader.from_batches(SCHEMA, batches()), mc.Table(path)
    always_behind(monkeypatch, path, 2)
    if way == "merge":
        outcome = table.merge(source, ["day", "id"])
    else:
        outcome = table.overwrite_where(source, "day = 'a' AND id < 2")
    monkeypatch.undo()
    assert given == [1] and outcome.tries == 3
    assert [row[2] for row in found(path) if row[0] == "a" and row[1] < 2] == ["new", "new"]


def test_rows_that_were_written_for_other_columns_are_not_taken_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that was dropped and added again is another one, for which the files hold no value. [RC11] [CF8]"""
    table, other = mc.Table(path), mc.Table(path)

    def between(*given: Any) -> float:
        other.drop_column("text")
        other.add_column("text", "string")
        return 0.0

    monkeypatch.setattr(row_change, "pause", between)
    with before_its_create(monkeypatch, lambda: append(path)), pytest.raises(mc.errors.CommitConflictError, match="rule schema"):
        table.overwrite_where(data(0, 1), "day = 'a' AND id < 2")
    assert len(found(path)) == len(OLD) + 1

"""A first write that fails must not decide for ever what the table looks like. [CM13] [CF8]"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import manifestcommit as mc

BROKEN = pa.table({"day": ["a", "b"], "at": pa.array([1, 2], pa.timestamp("ns"))})  # nanoseconds that microseconds cannot hold
MENDED = pa.table({"day": ["a", "b"], "at": [1, 2]})


def test_a_failed_first_write_leaves_room_for_a_mended_one(tmp_path: Path) -> None:
    """[CM13] [SC3]"""
    with pytest.raises(mc.SchemaMismatchError):
        mc.write(BROKEN, tmp_path / "t", partition_by="day")
    assert mc.write(MENDED, tmp_path / "t", key="k").committed
    table = mc.Table(tmp_path / "t")
    assert table.dataset().to_table().sort_by("at") == MENDED
    assert [each["operation"] for each in table.history()] == ["append", "create"]
    assert table.describe()["partition_by"] == []


def test_a_table_that_its_caller_created_keeps_its_columns(tmp_path: Path) -> None:
    """[CM13] [SC3]"""
    mc.create_table(tmp_path / "t", MENDED.schema, partition_by="day")
    with pytest.raises(mc.SchemaMismatchError):
        mc.write(pa.table({"day": ["a"], "at": ["text"]}), tmp_path / "t")
    with pytest.raises(mc.UsageError, match="partitioned by day"):
        mc.write(MENDED, tmp_path / "t", partition_by=[])


def test_columns_that_a_commit_used_are_not_replaced(tmp_path: Path) -> None:
    """[CM13] [CF8]"""
    mc.write(MENDED, tmp_path / "t")
    with pytest.raises(mc.SchemaMismatchError):
        mc.write(pa.table({"day": ["a"], "at": ["text"]}), tmp_path / "t")


@pytest.mark.parametrize("maker_first", [True, False])
def test_of_two_first_writes_the_first_to_commit_decides(tmp_path: Path, maker_first: bool) -> None:
    """Whoever made the table is no better than the other, and nothing of the winner is lost. [CF8] [CM13]"""
    text = pa.table({"day": ["x"], "at": ["text"]})
    maker = mc.begin(tmp_path / "t")
    maker.write(text)
    other = mc.begin(tmp_path / "t")
    other.write(MENDED, partition_by="day")
    first, second = (maker, other) if maker_first else (other, maker)
    first.commit()
    with pytest.raises(mc.CommitConflictError) as caught:
        second.commit()
    assert caught.value.rule == "schema"
    table = mc.Table(tmp_path / "t")
    assert table.dataset().to_table().sort_by("at") == (text if maker_first else MENDED)
    assert table.describe()["partition_by"] == ([] if maker_first else ["day"])


def test_the_id_of_a_job_stays_what_it_was_when_asked_for(tmp_path: Path) -> None:
    """[LY4] [CM23]"""
    with mc.begin(tmp_path / "t") as job:
        asked = job.id
        job.write(MENDED)
        assert job.id == asked
    assert job.outcome is not None and mc.resolve(tmp_path / "t", asked) == "committed"
    assert mc.resolve(tmp_path / "t", asked).version == job.outcome.version

"""A first write that fails must not decide for ever what the table looks like. [CM13] [CF8]"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc

BROKEN = pa.table({"day": ["a", "b"], "at": pa.array([1, 2], pa.timestamp("ns"))})  # nanoseconds that microseconds cannot hold
MENDED = pa.table({"day": ["a", "b"], "at": [1, 2]})


def test_a_failed_first_write_leaves_room_for_a_mended_one(tmp_path: Path) -> None:
    """[CM13] [SC3]"""
    with pytest.raises(mc.errors.SchemaMismatchError):
        mc.write(BROKEN, tmp_path / "t", partition_by="day")
    assert mc.write(MENDED, tmp_path / "t", key="k").committed
    table = mc.Table(tmp_path / "t")
    assert table.dataset().to_table().sort_by("at") == MENDED
    assert [each["operation"] for each in table.history()] == ["append", "create"]
    assert table.describe()["partition_by"] == []


def test_a_table_that_its_caller_created_keeps_its_columns(tmp_path: Path) -> None:
    """[CM13] [SC3]"""
    mc.create_table(tmp_path / "t", MENDED.schema, partition_by="day")
    with pytest.raises(mc.errors.SchemaMismatchError):
        mc.write(pa.table({"day": ["a"], "at": ["text"]}), tmp_path / "t")
    with pytest.raises(mc.errors.UsageError, match="partitioned by day"):
        mc.write(MENDED, tmp_path / "t", partition_by=[])


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
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "schema"):
        second.commit()
    table = mc.Table(tmp_path / "t")
    assert table.dataset().to_table().sort_by("at") == (text if maker_first else MENDED)
    assert table.describe()["partition_by"] == ([] if maker_first else ["day"])


def test_the_id_of_a_job_stays_what_it_was_when_asked_for(tmp_path: Path) -> None:
    """[LY4] [CM23]"""
    with mc.begin(tmp_path / "t") as job:
        asked = job.id
        job.write(MENDED)
        assert job.id == asked
    assert job.outcome is not None and mc.Table(tmp_path / "t").resolve(asked) == "committed"
    assert mc.Table(tmp_path / "t").resolve(asked).version == job.outcome.version


# --- mode="error" and mode="ignore" ------------------------------------------------------------------------------------------
def while_read(act: Callable[[], Any]) -> pa.RecordBatchReader:
    """MENDED, as a stream during which something else happens."""

    def batches() -> Iterator[pa.RecordBatch]:
        act()
        yield from MENDED.to_batches()

    return pa.RecordBatchReader.from_batches(MENDED.schema, batches())


def never() -> pa.RecordBatchReader:
    return while_read(lambda: pytest.fail("the data was read"))


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_a_first_write_creates_the_table_and_a_second_one_does_not_look_at_its_data(tmp_path: Path, mode: Any) -> None:
    """Whatever columns that has. [CF18]"""
    root = tmp_path / "t a%20b+=#'é"
    assert mc.write(MENDED, root, mode=mode, partition_by="day").committed
    other = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int8())]), (pytest.fail("read") for _ in range(1)))
    for data in (never(), other):
        if mode == "error":
            with pytest.raises(mc.errors.CommitConflictError, match="the table exists, at version 2") as caught:
                mc.write(data, root, mode=mode)
            assert caught.value.rule == "table_exists"
        else:
            outcome = mc.write(data, root, mode=mode)
            assert (outcome.kind, outcome.committed, outcome.version) == ("unchanged", False, 2)
    table = mc.Table(root)
    assert table.to_arrow().num_rows == 2 and [each["operation"] for each in table.history()] == ["append", "create"]


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_a_table_exists_once_anything_was_committed_to_it(tmp_path: Path, mode: Any) -> None:
    """An empty one, too; what a failed first write left behind is none. [CF18] [CM13]"""

    def exists(root: Path) -> bool:
        try:
            return not mc.write(MENDED, root, mode=mode).committed
        except mc.errors.CommitConflictError as error:
            return error.rule == "table_exists"

    mc.create_table(tmp_path / "made", MENDED.schema)
    assert exists(tmp_path / "made")
    mc.write(MENDED, tmp_path / "emptied")
    mc.Table(tmp_path / "emptied").delete("true")
    assert exists(tmp_path / "emptied")
    assert mc.begin(tmp_path / "begun").id  # another job has a name in it
    assert exists(tmp_path / "begun")
    with pytest.raises(mc.errors.SchemaMismatchError):
        mc.write(BROKEN, tmp_path / "failed", partition_by="day")
    assert mc.Table(tmp_path / "failed").version == 1 and not exists(tmp_path / "failed")
    assert mc.Table(tmp_path / "failed").to_arrow().num_rows == 2
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x.csv").write_text("x")
    with pytest.raises(mc.errors.NotATableError):
        exists(tmp_path / "files")


def test_of_many_at_once_one_creates_the_table(tmp_path: Path) -> None:
    """[CF18] [CM13]"""
    start, count = Barrier(8), 8

    def one(number: int) -> str:
        start.wait()
        try:
            return mc.write(pa.table({"n": [number]}), tmp_path / "t", mode="error" if number % 2 else "ignore").kind
        except mc.errors.CommitConflictError as error:
            return error.rule

    with ThreadPoolExecutor(count) as pool:
        told = list(pool.map(one, range(count)))
    (winner,) = (number for number, each in enumerate(told) if each == "committed")
    assert mc.Table(tmp_path / "t").to_arrow()["n"].to_pylist() == [winner]
    assert all(each == ("table_exists" if number % 2 else "unchanged") for number, each in enumerate(told) if number != winner)


@pytest.mark.parametrize("options", [{"overwrite": "dynamic"}, {"conflict": "fail"}])
def test_what_is_for_overwrites_is_refused(tmp_path: Path, options: Any) -> None:
    """[SE3]"""
    with pytest.raises(mc.errors.UsageError, match='mode="error" leave it out'):
        mc.write(MENDED, tmp_path / "t", mode="error", **options)

"""What a transaction has read holds until it commits: `Transaction.read`, and `based_on` of row changes. [MT16] [CF16] [CF17]"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit.row_works import data, found, make

import manifestcommit as mc
from manifestcommit.transactions import PreparedTransaction


def amounts(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"id": pa.array([a for a, _ in pairs], pa.int64()), "a": pa.array([b for _, b in pairs], pa.int64())})


def total(of: Any) -> int:
    return sum(of.to_arrow()["a"].to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> tuple[mc.Table, mc.Table]:
    """Silver of ids 1 and 2, and an empty gold."""
    silver, gold = (mc.create_table(tmp_path / name, amounts().schema) for name in ("silver", "gold"))
    mc.write(amounts((1, 10), (2, 20)), silver.url)
    return silver, gold


def begin(lake: tuple[mc.Table, mc.Table], **more: Any) -> mc.Transaction:
    return mc.transaction([table.url for table in lake], **more)


def merge(tx: mc.Transaction) -> None:
    tx.rows("silver").merge(amounts((3, 5)), on="id")


SILVER: dict[str, Callable[[mc.Transaction], object]] = {
    "nothing": lambda tx: None,
    "append": lambda tx: tx["silver"].write(amounts((3, 5))),
    "blind overwrite": lambda tx: (tx["silver"].overwrite(None, conflict="blind"), tx["silver"].write(amounts((3, 5)))),
    "merge": merge,
    "delete": lambda tx: tx.rows("silver").delete("id = 99"),
    "update": lambda tx: tx.rows("silver").update({"a": 1}, "id = 99"),
    "overwrite_where": lambda tx: tx.rows("silver").overwrite_where(amounts((3, 5)), "id = 3"),
}
OTHERS: dict[str, Callable[[mc.Table], object]] = {
    "append": lambda silver: mc.write(amounts((9, 1)), silver.url),
    "delete": lambda silver: silver.delete("id = 1"),
    "overwrite": lambda silver: mc.write(amounts(), silver.url, mode="overwrite"),
    "rollback": lambda silver: silver.rollback(1, reason="wrong"),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("work", SILVER)
def test_a_change_of_what_was_read_is_a_conflict(lake: tuple[mc.Table, mc.Table], work: str, other: str) -> None:
    """Wherever in the block it comes, and whatever the block does with the table. [MT16]"""
    silver, gold = lake
    for when in ("before the work", "after the work", "before the read"):
        with pytest.raises(mc.errors.CommitConflictError, match="silver") as refused, begin(lake) as tx:  # noqa: PT012  # somewhere in it
            if when == "before the read":
                OTHERS[other](silver)
            sums = total(tx.read("silver")) + 5
            if when == "before the work":
                OTHERS[other](silver)
            SILVER[work](tx)
            tx["gold"].write(amounts((1, sums)))
            if when == "after the work":
                OTHERS[other](silver)
        assert refused.value.rule in ("read_partition_was_touched", "partition_was_touched")
        assert gold.to_arrow().num_rows == 0
        mc.write(amounts((1, 10), (2, 20)), silver.url, mode="overwrite")


@pytest.mark.parametrize("work", SILVER)
def test_the_read_comes_after_the_change(lake: tuple[mc.Table, mc.Table], work: str) -> None:
    """A change of rows in the block looks at the newest version; what is read is the older one. [MT16]"""
    silver, gold = lake
    tx = begin(lake)
    silver.delete("id = 1")
    SILVER[work](tx)
    with pytest.raises(mc.errors.CommitConflictError):  # noqa: PT012  # now, or by the commit
        tx["gold"].write(amounts((1, total(tx.read("silver")))))
        tx.commit()
    assert gold.to_arrow().num_rows == 0


@pytest.mark.parametrize("work", SILVER)
def test_what_nobody_changed_is_committed(lake: tuple[mc.Table, mc.Table], work: str) -> None:
    """Compaction, tags and properties are no change of rows; a rerun of the key does nothing. [MT16] [CF16] [KY3]"""
    silver, gold = lake
    mc.write(amounts((7, 7)), silver.url)
    for attempt in (1, 2):
        with begin(lake, key="day 1") as tx:
            seen = tx.read("silver")
            assert seen.version == (3 if attempt == 1 else silver.version)
            if attempt == 1:
                silver.compact()
                silver.set_properties({"owner": "us"})
                silver.tag("kept", 2)
            sums = total(seen)
            SILVER[work](tx)
            tx["gold"].write(amounts((1, sums)))
            if attempt == 2:
                mc.write(amounts((9, 9)), silver.url)
        assert tx.outcome is not None and tx.outcome.already_committed == (attempt == 2)
    assert total(gold) == 37
    assert all(table.verify(deep=True).is_sound for table in lake)


def test_what_is_prepared_rests_on_what_was_read(lake: tuple[mc.Table, mc.Table]) -> None:
    """[MT16] [MT11]"""
    silver, gold = lake
    for by_rows in (False, True):
        tx = begin(lake)
        sums = total(tx.read("silver"))
        if by_rows:
            merge(tx)
        tx["gold"].write(amounts((1, sums)))
        prepared = tx.prepare()
        mc.write(amounts((9, 9)), silver.url)
        with pytest.raises(mc.errors.CommitConflictError, match="silver"):
            PreparedTransaction(prepared.jobs).commit()
        prepared.abort()
        with pytest.raises(mc.errors.UsageError, match="prepared"):
            tx.read("silver")
    assert gold.to_arrow().num_rows == 0


def test_only_tables_of_the_transaction_that_exist_are_read(tmp_path: Path) -> None:
    with mc.transaction([tmp_path / "silver", tmp_path / "gold"]) as tx:
        with pytest.raises(mc.errors.UsageError, match="has no table 'bronze'"):
            tx.read("bronze")
        with pytest.raises(mc.errors.TableNotFoundError, match="create_table"):
            tx.read("silver")
        for name in ("silver", "gold"):
            tx[name].write(amounts((1, 1)))
    with pytest.raises(mc.errors.UsageError, match="over"):
        tx.read("silver")


# based_on of single changes


def based(work: str, table: Any, **more: Any) -> Any:
    """`id = 5` and all that day's rows, in a table that is partitioned by day."""
    match work:
        case "delete":
            return table.delete("day = 'a' AND id = 1", **more)
        case "update":
            return table.update({"id": 7}, "day = 'a' AND id = 1", **more)
        case "merge":
            return table.merge(data(60), on=["day", "id"], **more)
        case "merge by clauses":
            return table.merge(data(60), on=["day", "id"], when_matched=None, when_not_matched=mc.Insert(), **more)
    return table.overwrite_where(data(60), "day = 'a' AND id = 60", **more)


BASED = ["delete", "update", "merge", "merge by clauses", "overwrite_where"]


@pytest.mark.parametrize("work", BASED)
def test_a_row_change_is_compared_from_the_version_that_it_is_based_on(tmp_path: Path, work: str) -> None:
    """Elsewhere is no conflict. [CF17] [CF16]"""
    make(str(tmp_path / "t"))
    table = mc.Table(tmp_path / "t")
    version = table.version
    elsewhere = data(70).set_column(0, "day", pa.array(["elsewhere"]))
    mc.write(elsewhere, table.url)
    assert "day" in elsewhere.schema.names
    assert based(work, table, based_on=version).committed
    version = table.version
    mc.write(data(50), table.url)
    before = found(table.url)
    with pytest.raises(mc.errors.CommitConflictError, match=f"since {version}") as refused:
        based(work, table, based_on=version)
    assert refused.value.rule == "read_partition_was_touched" and found(table.url) == before
    with pytest.raises(mc.errors.VersionNotFoundError, match="is based on version 99"):
        based(work, table, based_on=99)
    with pytest.raises(mc.errors.UsageError, match="based_on"):
        based(work, table, based_on=0)
    for _ in range(2):
        table.gc(grace="0s", keep_versions=1, keep_for="0s")
    with pytest.raises(mc.errors.JobFencedError, match=f"read from version {version}"):
        based(work, table, based_on=version)
    based(work, table, based_on=table.version)


@pytest.mark.parametrize("work", BASED)
def test_a_rerun_of_a_committed_key_is_compared_with_nothing(tmp_path: Path, work: str) -> None:
    """[KY3] [CF17]"""
    make(str(tmp_path / "t"))
    table = mc.Table(tmp_path / "t")
    version = table.version
    first = based(work, table, based_on=version, key="k")
    mc.write(data(50), table.url)
    again = based(work, table, based_on=version, key="k")
    assert again.already_committed and again.version == first.version


@pytest.mark.parametrize("clauses", [False, True])
def test_rows_that_tell_their_version_are_merged_as_they_are_written(clauses: bool, path: str) -> None:
    """A delay is doubled of rows that another has changed since. [CF17] [RC3] [RC9]"""
    mc.write(amounts((1, 10), (2, 20)), path)
    table = mc.Table(path)

    def merged(source: Any, **more: Any) -> Any:
        if clauses:
            return table.merge(source, on="id", when_matched=mc.Update(), when_not_matched=None, **more)
        return table.merge(source, on="id", **more)

    seen = table.to_arrow()
    doubled = seen.set_column(1, "a", pc.multiply(seen["a"], 2))
    version = table.version
    table.update({"a": 11}, "id = 1")
    with pytest.raises(mc.errors.CommitConflictError, match=f"since {version}"):
        merged(doubled)
    merged(doubled, based_on=table.version)
    assert total(table) == 60
    merged(table.to_arrow())
    merged(doubled.replace_schema_metadata(None))
    assert total(table) == 60

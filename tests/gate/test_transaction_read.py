"""What a transaction reads: a part of a table, and what the transaction itself has written so far. [MT16] [MT17] [CF16]"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import manifestcommit as mc
from manifestcommit.errors import CommitConflictError, ConstraintError, UsageError
from manifestcommit.transactions import PreparedTransaction


def rows(*given: tuple[str, int]) -> pa.Table:
    return pa.table({"day": pa.array([day for day, _ in given], pa.string()), "a": pa.array([a for _, a in given], pa.int64())})


def pairs(of: Any, **how: Any) -> list[tuple[str, int]]:
    found = of.to_arrow(**how)
    return sorted(zip(found["day"].to_pylist(), found["a"].to_pylist(), strict=True))


@pytest.fixture
def lake(tmp_path: Path) -> tuple[mc.Table, mc.Table]:
    """Silver, by days, and an empty gold."""
    silver = mc.create_table(tmp_path / "silver", rows().schema, partition_by=["day"])
    gold = mc.create_table(tmp_path / "gold", rows().schema)
    mc.write(rows(("mo", 1), ("tu", 2)), silver.url)
    return silver, gold


def begin(lake: tuple[mc.Table, mc.Table], **more: Any) -> mc.Transaction:
    return mc.transaction([table.url for table in lake], **more)


# --- a part of a table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["day = 'mo'", pc.field("day") == "mo", "day IN ('mo', 'we') AND a < 100"], ids=str)
def test_only_writes_into_what_was_read_conflict(lake: tuple[mc.Table, mc.Table], given: Any) -> None:
    silver, gold = lake
    for other, conflicts in (("tu", False), ("mo", True)):
        with begin(lake) as tx:
            part = tx.read("silver", filter=given)
            assert pairs(part) == pairs(silver, filter=given)
            tx["gold"].write(part.to_arrow())
            mc.write(rows((other, 7)), silver.url)
            if conflicts:
                with pytest.raises(CommitConflictError) as caught:
                    tx.commit()
                assert caught.value.rule == "read_partition_was_touched"
    assert pairs(gold) == [("mo", 1)]


WRITES: dict[str, Callable[[mc.Transaction], object]] = {
    "append": lambda tx: tx["silver"].write(rows(("tu", 5))),
    "delete": lambda tx: tx.rows("silver").delete("day = 'tu'"),
    "update": lambda tx: tx.rows("silver").update({"a": 9}, "day = 'tu'"),
}


@pytest.mark.parametrize("work", WRITES)
@pytest.mark.parametrize("first", [True, False])
def test_a_part_that_was_read_holds_beside_what_is_written(lake: tuple[mc.Table, mc.Table], work: str, first: bool) -> None:
    """Whether it was read before the table was written to, or after."""
    silver, _ = lake
    for day, conflicts in (("we", False), ("mo", True)):
        tx = begin(lake)
        if first:
            tx.read("silver", filter="day = 'mo'")
        WRITES[work](tx)
        if not first:
            tx.read("silver", filter="day = 'mo'")
        mc.write(rows((day, 3)), silver.url)
        if conflicts:
            with pytest.raises(CommitConflictError):
                tx.commit()
        else:
            assert tx.commit().versions


def test_what_is_read_adds_up(lake: tuple[mc.Table, mc.Table]) -> None:
    silver, _ = lake
    for day in ("mo", "tu"):
        tx = begin(lake)
        for part in ("mo", "tu"):
            tx.read("silver", filter=f"day = '{part}'")
        mc.write(rows((day, 3)), silver.url)
        with pytest.raises(CommitConflictError):
            tx.commit()


def test_a_part_that_was_read_holds_for_a_prepared_transaction(lake: tuple[mc.Table, mc.Table]) -> None:
    """[MT16] [AB3]"""
    silver, gold = lake
    for day, conflicts in (("tu", False), ("mo", True)):
        with begin(lake) as tx:
            tx["silver"].write(rows(("we", 4)))
            tx["gold"].write(tx.read("silver", filter="day = 'mo'", own=True).to_arrow())
            prepared = tx.prepare()
        mc.write(rows((day, 7)), silver.url)
        if conflicts:
            with pytest.raises(CommitConflictError):
                prepared.commit()
            assert prepared.abort() == "aborted"
        else:
            assert prepared.commit().versions and pairs(gold) == [("mo", 1)]


def test_all_methods_show_the_part_that_was_read(lake: tuple[mc.Table, mc.Table]) -> None:
    duckdb = pytest.importorskip("duckdb")
    with begin(lake) as tx:
        part = tx.read("silver", filter="a >= 2")
        assert pairs(part) == [("tu", 2)]
        assert part.to_arrow(columns=["day"]).to_pylist() == [{"day": "tu"}]
        opened = part.dataset()
        assert opened.to_table().num_rows == opened.count_rows() == 1
        assert duckdb.connect().sql("SELECT day, a FROM opened").fetchall() == [("tu", 2)]
        with pytest.raises(UsageError, match="was read with a filter"):
            part.to_arrow(filter="a < 9")
        for wrong in ("no_such = 1", "day = current_date", "a +", "java_method('x', 'y')"):
            with pytest.raises(UsageError):
                tx.read("silver", filter=wrong)


# --- what the transaction has written --------------------------------------------------------------------------------------


OWN: dict[str, tuple[Callable[[mc.Transaction], object], list[tuple[str, int]]]] = {
    "nothing": (lambda tx: None, [("mo", 1), ("tu", 2)]),
    "append": (WRITES["append"], [("mo", 1), ("tu", 2), ("tu", 5)]),
    "overwrite": (lambda tx: (tx["silver"].overwrite({"day": "mo"}), tx["silver"].write(rows(("mo", 8)))), [("mo", 8), ("tu", 2)]),
    "delete": (WRITES["delete"], [("mo", 1)]),
    "update": (WRITES["update"], [("mo", 1), ("tu", 9)]),
    "merge": (lambda tx: tx.rows("silver").merge(rows(("tu", 4), ("we", 5)), on="day"), [("mo", 1), ("tu", 4), ("we", 5)]),
}


@pytest.mark.parametrize("work", OWN)
def test_own_rows_are_shown_and_nothing_is_committed_for_it(lake: tuple[mc.Table, mc.Table], work: str) -> None:
    silver, _ = lake
    write, expected = OWN[work]
    before = silver.version
    with begin(lake) as tx:
        early = tx.read("silver", own=True)
        write(tx)
        own = tx.read("silver", own=True)
        assert pairs(own) == expected
        assert sorted(own.dataset().to_table()["a"].to_pylist()) == sorted(a for _, a in expected)
        assert pairs(tx.read("silver", own=True, filter="day = 'mo'")) == [each for each in expected if each[0] == "mo"]
        assert pairs(early) == pairs(tx.read("silver")) == pairs(silver) == [("mo", 1), ("tu", 2)]  # of then, and without them
        assert silver.version == own.version == before
        tx["gold"].write(own.to_arrow())
    assert pairs(silver) == pairs(lake[1]) == expected


@pytest.mark.parametrize("work", OWN)
def test_what_was_shown_as_own_holds_until_the_commit(lake: tuple[mc.Table, mc.Table], work: str) -> None:
    tx = begin(lake)
    OWN[work][0](tx)
    tx.read("silver", own=True)
    mc.write(rows(("su", 3)), lake[0].url)
    with pytest.raises(CommitConflictError):
        tx.commit()


def test_a_rerun_shows_what_the_first_run_committed(lake: tuple[mc.Table, mc.Table]) -> None:
    for _ in range(2):
        with begin(lake, key="day 1") as tx:
            tx["silver"].write(rows(("we", 3)))
            tx["silver"].advance("kafka", 0, 5)
            own = tx.read("silver", own=True)
            assert pairs(own) == [("mo", 1), ("tu", 2), ("we", 3)] and own.watermarks() == {"kafka": 5}
    assert lake[0].watermarks() == {"kafka": 5}


def test_own_rows_of_a_first_write_with_new_columns(tmp_path: Path) -> None:
    mc.create_table(tmp_path / "gold", rows().schema)
    with mc.transaction([tmp_path / "new", tmp_path / "gold"]) as tx:
        with pytest.raises(mc.errors.TableNotFoundError):
            tx.read("new", own=True)
        tx["new"].write(rows(("mo", 1)))
        assert pairs(tx.read("new", own=True)) == [("mo", 1)]
        tx["gold"].write(rows(("mo", 1)).append_column("b", [["x"]]), merge_schema=True)
        assert tx.read("gold", own=True).to_arrow().to_pylist() == [{"day": "mo", "a": 1, "b": "x"}]
    assert mc.Table(tmp_path / "new").to_arrow().num_rows == 1


def test_own_rows_are_held_to_constraints_that_nobody_has_checked(lake: tuple[mc.Table, mc.Table]) -> None:
    silver, _ = lake
    tx = begin(lake)
    tx["silver"].write(rows(("we", -1)))
    silver.add_constraint("positive", "a > 0")
    assert pairs(tx.read("silver", own=True))[-1] == ("we", -1)  # as of its beginning
    with pytest.raises(ConstraintError):
        tx.commit()


def test_a_table_of_a_transaction_goes_by_its_name_its_paths_and_its_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in what it prepares. [MT1] [MT11]"""
    rows = pa.table({"x": [1]})
    paths = [tmp_path / name for name in ("sales", "customers")]
    for path in paths:
        mc.write(rows, path)
    monkeypatch.chdir(tmp_path)
    sales, customers = map(mc.Table, paths)
    for tables in ([sales, customers], {"c": customers, "s": sales}, ["customers", paths[0]]):
        with mc.transaction(tables) as tx:  # type: ignore[arg-type]
            names = [sales, paths[0], str(paths[0]), "./sales", sales.url, "s" if "c" in tables else "sales"]
            assert {tx[name].url for name in names} == {tx.read(name).url for name in names} == {sales.url}
            tx.rows(customers).delete(where="x = 1")
            with pytest.raises(mc.errors.UsageError, match="this transaction has no table 'sale'; it has '"):
                tx["sale"]
            tx["sales"].write(rows) if "c" not in tables else tx["s"].write(rows)
            prepared = tx.prepare()
            staged = prepared.staged
            assert {staged[name].url for name in names} == {sales.url} and list(staged) == list(prepared.jobs)
            with pytest.raises(mc.errors.UsageError, match="has no table 'sale'; it has "):
                staged["sale"]
            with pytest.raises(mc.errors.UsageError, match="prepared, and takes no more rows: commit it or abort it"):
                tx[sales].write(rows)
            elsewhere = PreparedTransaction(prepared.jobs).staged
            assert elsewhere["sales"].url == elsewhere[sales].url == sales.url
            assert prepared.abort() == "aborted"


def test_what_is_no_filter_is_not_called_one_of_spark(tmp_path: Path) -> None:
    """[MT16] [SE3]"""
    for name in "ab":
        mc.write(pa.table({"x": [1]}), tmp_path / name)
    tx = mc.transaction([tmp_path / "a", tmp_path / "b"])
    for filter in (True, 3, ["x > 0"]):
        with pytest.raises(mc.errors.UsageError, match=r"^invalid filter .*expected") as refused:
            tx.read("a", filter=filter)  # type: ignore[arg-type]
        assert "is a Spark Column" not in str(refused.value)
    tx.abort()

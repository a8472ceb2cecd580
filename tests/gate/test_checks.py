"""Checks that look at the time, or at another table, and what a job would change. [CK5] [CK6] [CK9]"""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit import checks
from manifestcommit.staging import Staged

NOW = dt.datetime.now(dt.UTC)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    mc.write(pa.table({"id": [1, 2], "customer": [10, 20]}), tmp_path / "orders")
    return tmp_path / "orders"


@pytest.fixture
def customers(tmp_path: Path) -> str:
    mc.write(pa.table({"id": pa.array([10, 20, 30], pa.int32()), "name": ["a", "b", "c"]}), tmp_path / "customers")
    return str(tmp_path / "customers")


def stage(path: Path, data: dict[str, Any]) -> Staged:
    return mc.write(pa.table(data), path, publish=False)


# --- how old the newest row is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ([NOW - dt.timedelta(days=9), NOW - dt.timedelta(hours=1)], ""),
        ([NOW - dt.timedelta(hours=3), None], "the newest, .*, is 3:"),
        ([(NOW - dt.timedelta(hours=3)).replace(tzinfo=None)], "is 3:"),
        ([NOW.replace(tzinfo=None)], ""),
        ([NOW.date() + dt.timedelta(days=1)], ""),
        ([NOW.date() - dt.timedelta(days=1)], "is 1 day, "),
        (pa.array([None], pa.timestamp("us", "UTC")), "the job adds no time"),
    ],
)
def test_rows_are_as_new_as_expected(tmp_path: Path, times: Any, why: str) -> None:
    """[CK6]"""
    staged = stage(tmp_path / "t", {"at": times})
    check = checks.expect_fresh("at", within="2h")
    if why:
        with pytest.raises(mc.errors.CheckFailedError, match=why):
            staged.check(check)
    else:
        staged.check(check, checks.expect_fresh("at", within=dt.timedelta(hours=2)))
        assert staged.publish().committed


def test_what_is_no_time_is_refused(orders: Path) -> None:
    """[CK6]"""
    for column, why in (("id", "int64: expected timestamps"), ("nope", "no column 'nope'")):
        with pytest.raises(mc.errors.UsageError, match=why):
            stage(orders, {"id": [3], "customer": [10]}).check(checks.expect_fresh(column, within="1d"))
    with pytest.raises(mc.errors.UsageError, match="within"):
        checks.expect_fresh("id", within="soon")


# --- what rows refer to -----------------------------------------------------------------------------------------------------------


def test_values_are_in_another_table(orders: Path, customers: str) -> None:
    """[CK9]"""
    check = checks.expect_values_in(customers, "customer", of="id")
    staged = stage(orders, {"id": [3, 4], "customer": [30, None]})
    staged.check(check)
    assert staged.publish().committed
    with pytest.raises(mc.errors.CheckFailedError, match="2 values are not there, such as 40, 50"):
        stage(orders, {"id": [5, 6, 7], "customer": [40, 50, 40]}).check(check)
    with pytest.raises(mc.errors.CheckFailedError, match="1 value is not there, such as 40"):
        stage(orders, {"id": [5], "customer": [40]}).check(check)
    with pytest.raises(mc.errors.CheckFailedError, match=r"the job adds 1 row\b"):
        stage(orders, {"id": [5], "customer": [30]}).check(checks.expect_rows(at_least=2))


@pytest.mark.parametrize(
    ("column", "of", "why"),
    [("customer", None, "no column 'customer'"), ("nope", "id", "no column 'nope'"), ("customer", "name", "int64 cannot be looked up")],
)
def test_what_cannot_be_looked_up_is_refused(orders: Path, customers: str, column: str, of: str | None, why: str) -> None:
    """[CK9]"""
    with pytest.raises(mc.errors.UsageError, match=why):
        stage(orders, {"id": [3], "customer": [30]}).check(checks.expect_values_in(customers, column, of))


def test_a_row_that_is_deleted_meanwhile_is_referred_to_by_none(orders: Path, customers: str) -> None:
    """The check is made again where the other table has another version, each time that it is published. [CK9]"""
    staged = stage(orders, {"id": [3], "customer": [30]})
    staged.check(checks.expect_values_in(customers, "customer", of="id"))
    mc.Table(customers).delete("id = 30")
    for _ in range(2):
        with pytest.raises(mc.errors.CheckFailedError, match="such as 30"):
            staged.publish()
    assert mc.Table(orders).to_arrow().num_rows == 2 and [each.state for each in mc.Table(orders).jobs()] == ["prepared"]
    mc.write(pa.table({"id": pa.array([30], pa.int32()), "name": ["d"]}), customers)
    assert staged.publish().committed
    mc.Table(customers).delete("id = 30")
    assert staged.publish().committed  # it is decided, whatever comes of the other table


def test_each_try_looks_at_the_other_table_once_more(orders: Path, customers: str) -> None:
    """[CK6] [CK9]"""
    staged, seen = stage(orders, {"id": [3], "customer": [30]}), []

    def beside(found: pa.Table) -> None:
        seen.append(found.num_rows)
        if len(seen) == 2:  # while it is repeated, since others have changed rows
            mc.Table(customers).delete("id = 30")
            mc.write(pa.table({"id": [8], "customer": [10]}), orders)

    staged.check(checks.expect_values_in(customers, "customer", of="id"), checks.on_table(beside))
    mc.write(pa.table({"id": [7], "customer": [10]}), orders)
    with pytest.raises(mc.errors.CheckFailedError, match="expect_values_in"):
        staged.publish()
    assert mc.Table(orders).to_arrow().num_rows == 4


def test_the_other_table_stands_still_for_who_reads_it_in_the_transaction(orders: Path, customers: str) -> None:
    """[CK9] [MT16]"""
    with mc.transaction({"orders": orders, "customers": customers}) as tx:
        known = tx.read("customers").to_arrow(columns=["id"]).column(0).to_pylist()
        tx["orders"].write(pa.table({"id": [3], "customer": [known[-1]]}))
        prepared = tx.prepare()
    mc.Table(customers).delete("id = 30")
    with pytest.raises(mc.errors.CommitConflictError):
        prepared.commit()
    assert mc.Table(orders).to_arrow().num_rows == 2


def test_a_check_of_the_table_that_failed_is_made_again_each_time(orders: Path) -> None:
    """[CK6]"""
    staged = stage(orders, {"id": [3], "customer": [10]})
    staged.check(checks.expect_unique("id"))
    mc.write(pa.table({"id": [3], "customer": [10]}), orders)
    for _ in range(2):
        with pytest.raises(mc.errors.CheckFailedError, match="id = 3"):
            staged.publish()
    assert mc.Table(orders).to_arrow().num_rows == 3


# --- what it would change ---------------------------------------------------------------------------------------------------------


def changes(staged: Staged, **options: Any) -> list[tuple[str, int, int]]:
    found = staged.diff(**options).read_all().to_pylist()
    assert {each["_commit_version"] for each in found} <= {staged.base_version}
    return sorted((each["_change_type"], each["id"], each["customer"]) for each in found)


def test_a_difference_has_the_rows_that_a_job_adds_and_removes(orders: Path) -> None:
    """Only what differs of the files that it rewrites, on the newest version; as `changed_rows` has it once it is published. [CK5] [CH3]"""
    assert changes(stage(orders, {"id": [3], "customer": [10]})) == [("insert", 3, 10)]
    outcome = mc.Table(orders).merge(pa.table({"id": [2, 4], "customer": [21, 40]}), on="id", publish=False)
    staged = mc.Staged(orders, outcome.job_id)
    assert changes(staged) == [("delete", 2, 20), ("insert", 2, 21), ("insert", 4, 40)]
    mc.Table(orders).set_properties({"owner": "me"})
    wanted = [("insert", 4, 40), ("update_postimage", 2, 21), ("update_preimage", 2, 20)]
    assert changes(staged, on="id") == wanted
    assert set(staged.diff(columns="id").read_all().column("id").to_pylist()) == {4}
    assert mc.Table(orders).version == staged.base_version
    version = staged.publish().version
    assert version is not None
    found = mc.Table(orders).changed_rows(version - 1, on="id").read_all()
    assert sorted(found.column("_change_type").to_pylist()) == [each[0] for each in wanted]


def test_a_difference_of_the_first_rows_and_of_an_overwrite(tmp_path: Path, orders: Path) -> None:
    """[CK5] [CH3]"""
    assert changes(stage(tmp_path / "new", {"id": [1], "customer": [2]})) == [("insert", 1, 2)]
    staged = mc.write(pa.table({"id": [1], "customer": [10]}), orders, mode="overwrite", publish=False)
    assert changes(staged) == [("delete", 2, 20)]
    staged.abort()
    with pytest.raises(mc.errors.JobAbortedError):
        staged.diff()


def test_duckdb_queries_the_view(orders: Path) -> None:
    """[CK5] [RD42]"""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        stage(orders, {"id": [3], "customer": [30]}).duckdb(connection).create_view("orders")
        assert connection.sql("SELECT sum(customer) FROM orders").fetchone() == (60,)


def test_a_task_that_runs_once_more_checks_nothing_of_what_is_committed(orders: Path) -> None:
    """Its rows are in the table, or those of an earlier run are, and what the table is by now is another matter. [CK5] [CK6]"""

    def again(job: str) -> int | None:
        staged = mc.Staged(orders, job)
        version = staged.base_version
        staged.check(checks.expect_rows(at_least=1), checks.expect_unique("id"))
        return staged.publish(base_version=version).version

    data = pa.table({"id": [3], "customer": [10]})
    staged = mc.write(data, orders, key="day 1", publish=False)
    version = again(staged.job_id)
    mc.write(data, orders)
    assert again(staged.job_id) == version
    assert again(mc.write(data, orders, key="day 1", publish=False).job_id) == version


def test_a_base_is_the_newest_version_and_one_while_checks_are_made(orders: Path) -> None:
    """[CK5] [CK6]"""
    staged, seen = stage(orders, {"id": [3], "customer": [10]}), []

    def beside(found: pa.Table) -> None:
        mc.write(pa.table({"id": [8], "customer": [10]}), orders)
        seen.append((staged.base_version, staged.to_arrow().num_rows, found.num_rows))

    first = staged.base_version
    staged.check(checks.on_table(beside))
    assert seen == [(first, 3, 3)] and staged.base_version == first + 1 == mc.Table(orders).version
    mc.Table(orders).compact()
    assert staged.base_version == mc.Table(orders).version and staged.to_arrow().num_rows == 4
    with pytest.raises(mc.errors.CommitConflictError, match="audited_table_was_changed"):
        mc.Staged(orders, staged.job_id).publish(base_version=first)
    assert mc.Staged(orders, staged.job_id).publish(base_version=first + 1).committed  # a compaction changes no row


def test_a_check_that_can_never_be_made_is_none(tmp_path: Path) -> None:
    """Otherwise a typo, once named, would keep the job from being published for good. [CK6]"""
    staged, right = mc.write(pa.table({"id": [1]}), tmp_path / "t", publish=False), checks.expect("id > 0")
    for wrong in (checks.expect("idd > 0"), checks.expect_unique("idd")):
        with pytest.raises(mc.errors.UsageError, match="idd"):
            staged.check(wrong, right)
    with pytest.raises(mc.errors.TableNotFoundError):
        staged.check(checks.expect_values_in(str(tmp_path / "none"), "id"))
    staged.check(right)
    outcome = staged.publish()
    assert mc.Table(tmp_path / "t").snapshot(outcome.version).commits[0].summary.checks == {"expect(id > 0)": True}

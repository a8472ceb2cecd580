"""Staged jobs: what they would make of the table, and what is held until they are published. [CK5] [CK6]"""

import contextlib
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.report.pages import Page

import manifestcommit as mc
from manifestcommit import checks, telemetry
from manifestcommit.errors import CheckFailedError
from manifestcommit.operations import gc
from manifestcommit.protocol.retention import Policy
from manifestcommit.runtime.environment import STARTS
from manifestcommit.staging import Staged


def rows(*ids: int, amount: float = 1.0, day: str = "a") -> pa.Table:
    return pa.table({"id": list(ids), "amount": [amount] * len(ids), "day": [day] * len(ids)})


def ids(data: pa.Table) -> list[int]:
    return sorted(data.column("id").to_pylist())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    mc.write(rows(1, 2), tmp_path / "t", partition_by="day")
    mc.write(rows(3, day="b"), tmp_path / "t")
    return tmp_path / "t"


def stage(path: Path, data: pa.Table, **options: Any) -> Staged:
    return mc.write(data, path, publish=False, **options)


# --- the view ---------------------------------------------------------------------------------------------------------------------


def test_a_staged_job_shows_the_table_as_it_would_be_and_nobody_else_does(path: Path) -> None:
    """[CK5]"""
    staged = stage(path, rows(4, 5))
    assert ids(staged.to_arrow()) == [1, 2, 3, 4, 5] and ids(staged.rows()) == [4, 5] and staged.count == 2
    assert ids(staged.to_arrow(filter="id > 2 AND day = 'a'")) == [4, 5]
    assert ids(staged.dataset().to_table(filter=pc.field("day") == "b")) == [3]
    table = mc.Table(path)
    assert ids(table.to_arrow()) == [1, 2, 3] and table.version == staged.base_version
    assert [each.state for each in table.jobs()] == ["prepared"] and table.resolve(staged.job_id) == "pending"
    assert staged.publish().version == table.version
    assert ids(table.to_arrow()) == [1, 2, 3, 4, 5]


def test_an_overwrite_shows_what_it_would_leave(path: Path) -> None:
    """[CK5]"""
    staged = stage(path, rows(7), mode="overwrite", overwrite={"day": "a"})
    assert ids(staged.to_arrow()) == [3, 7] and ids(mc.Table(path).to_arrow()) == [1, 2, 3]
    mc.write(rows(8), path)
    with pytest.raises(mc.errors.CommitConflictError):
        staged.to_arrow()
    with pytest.raises(mc.errors.CommitConflictError):
        staged.publish()
    assert ids(staged.rows()) == [7]


@pytest.mark.thorough
def test_any_process_reads_and_publishes_it(path: Path) -> None:
    """[CK5] [AB3]"""
    staged = stage(path, rows(4), key="k")
    program = (
        f"import manifestcommit as mc; s = mc.Staged({str(path)!r}, {staged.job_id!r}); print(s.to_arrow().num_rows, s.publish().version)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4", "4"]
    assert mc.write(rows(4), path, key="k").already_committed
    again = stage(path, rows(4), key="k")
    assert ids(again.to_arrow()) == [1, 2, 3, 4] and again.count == 0 and again.publish().already_committed


def test_what_was_decided_is_no_view_any_more(path: Path) -> None:
    """[CK5] [AB4]"""
    staged, other = stage(path, rows(4)), stage(path, rows(5))
    assert staged.publish().committed and staged.publish().committed and other.abort() == "aborted"
    with pytest.raises(mc.errors.UsageError, match="was published at version 4"):
        staged.to_arrow()
    for call in (other.to_arrow, other.publish):
        with pytest.raises(mc.errors.JobAbortedError):
            call()
    assert staged.abort() == "committed" and ids(mc.Table(path).to_arrow()) == [1, 2, 3, 4]
    with pytest.raises(mc.errors.UsageError, match="holds no staged job"):
        mc.Staged(path, staged.job_id[:-8] + "0" * 8)
    with pytest.raises(mc.errors.TableNotFoundError):
        mc.Staged(path.parent / "order", staged.job_id)


def test_rows_of_a_view_say_the_version_below_it(path: Path) -> None:
    """An overwrite that was computed from them conflicts with the job itself, once that is published. [CK5] [CF17]"""
    staged = stage(path, rows(4))
    seen = staged.to_arrow()
    staged.publish()
    with pytest.raises(mc.errors.CommitConflictError):
        mc.write(seen, path, mode="overwrite")


def test_a_staged_job_whose_key_another_one_committed_is_listed_as_committed_and_holds_nothing(path: Path) -> None:
    """[CK5] [AB5]"""
    table = mc.Table(path)
    staged, other = stage(path, rows(4), key="day 1", watermarks={"s": (0, 10)}), stage(path, rows(5))
    mc.write(rows(4), path, key="day 1", watermarks={"s": (0, 10)})
    found = {each.job: (each.state, each.version) for each in table.jobs()}
    assert found == {staged.job_id: ("committed", table.version), other.job_id: ("prepared", None)}
    said = {job: (table.resolve(job), table.resolve(job).version) for job in found}
    assert said == {staged.job_id: ("committed", table.version), other.job_id: ("pending", None)}
    again = stage(path, rows(4), key="day 1", watermarks={"s": (0, 10)})  # it holds no work from the beginning
    assert staged.publish().already_committed and again.publish().already_committed and ids(table.to_arrow()) == [1, 2, 3, 4]
    assert other.abort() == "aborted"
    held = table.snapshot().fence
    mc.write(rows(6), path)
    gc.run(staged._ctx, Policy(grace_s=0, keep_for_s=0, keep_versions=1))
    assert table.snapshot().fence > held


def test_a_staged_job_that_has_expired_says_so(path: Path) -> None:
    """[CK5] [CM2]"""
    staged = stage(path, rows(4))
    for number in (5, 6):
        mc.write(rows(number), path)
        gc.run(staged._ctx, Policy(grace_s=0, keep_for_s=0, keep_versions=1, prepared_grace_s=0))
    staged._failed.add((staged.url, "a check"))  # to make it again would not help
    for call in (staged.publish, staged.rows, lambda: staged.check(checks.expect("amount > 0")), lambda: staged.check(len), staged.publish):
        with pytest.raises(mc.errors.OutcomeUnknownError, match="it has expired, and version"):
            call()


def test_own_rows_have_the_names_of_now(path: Path) -> None:
    """[CK5] [CK6]"""
    staged = stage(path, rows(4))
    table = mc.Table(path)
    table.rename_column("amount", "price")
    table.add_column("more", "string")
    assert staged.rows().column_names == staged.to_arrow().column_names == table.schema.names
    staged.check(checks.expect("price > 0"), checks.expect_rows(at_least=1))
    with pytest.raises(mc.errors.UsageError, match="amount"):
        staged.check(checks.expect("amount > 0"))
    assert staged.publish().committed


def test_parts_of_a_transaction_are_looked_at_and_published_together(path: Path, tmp_path: Path) -> None:
    """[CK5] [MT11]"""
    mc.write(rows(7), tmp_path / "other")
    with mc.transaction({"a": path, "b": tmp_path / "other"}) as tx:
        tx.rows("a").delete("id = 1")
        tx["b"].write(rows(8))
        prepared = tx.prepare()
    a, b = prepared.staged.values()
    assert ids(a.to_arrow()) == [2, 3] and ids(b.to_arrow()) == [7, 8] and ids(mc.Table(path).to_arrow()) == [1, 2, 3]
    b.check(checks.expect("id > 0"))
    assert b.publish().committed
    assert ids(mc.Table(path).to_arrow()) == [2, 3] and ids(mc.Table(tmp_path / "other").to_arrow()) == [7, 8]


CHANGES: dict[str, tuple[Any, list[int]]] = {
    "delete": (lambda table: table.delete("id = 1", publish=False), [2, 3]),
    "update": (lambda table: table.update({"id": "id + 10"}, "id < 3", publish=False), [3, 11, 12]),
    "merge": (lambda table: table.merge(rows(2, 7), on="id", key="k", publish=False), [1, 2, 3, 7]),
    "overwrite_where": (lambda table: table.overwrite_where(rows(8), "day = 'a'", publish=False), [3, 8]),
    "nothing": (lambda table: table.delete("id = 99", publish=False), [1, 2, 3]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_rows_is_staged(path: Path, name: str) -> None:
    """[CK5] [RC1]"""
    change, wanted = CHANGES[name]
    outcome = change(mc.Table(path))
    assert outcome.kind == "pending" and ids(mc.Table(path).to_arrow()) == [1, 2, 3]
    staged = mc.Staged(path, outcome.job_id)
    assert ids(staged.to_arrow()) == wanted
    assert staged.publish().committed and ids(mc.Table(path).to_arrow()) == wanted


def test_a_change_of_rows_with_a_reason_or_in_a_transaction_is_not_staged_so(path: Path, tmp_path: Path) -> None:
    """[CK5]"""
    with pytest.raises(mc.errors.UsageError, match="reason"):
        mc.Table(path).delete("id = 1", reason="wrong", publish=False)
    tx = mc.transaction({"a": path, "b": tmp_path / "other"})
    with pytest.raises(mc.errors.UsageError, match=r"prepare\(\)"):
        tx.rows("a").delete("id = 1", publish=False)
    tx.abort()


def test_a_constraint_that_came_since_holds_for_a_staged_job(path: Path) -> None:
    """[CK2] [CK5]"""
    staged = stage(path, rows(4, amount=-1.0))
    mc.Table(path).add_constraint("positive", "amount > 0")
    for call in (staged.to_arrow, staged.publish):
        with pytest.raises(mc.errors.ConstraintError, match="positive"):
            call()
    mc.Table(path).drop_constraint("positive")
    assert staged.publish().committed


def test_the_first_write_of_a_table_is_staged(tmp_path: Path) -> None:
    """[CK5]"""
    staged = stage(tmp_path / "new", rows(1))
    assert ids(staged.to_arrow()) == [1] and mc.Table(tmp_path / "new").to_arrow().num_rows == 0
    staged.publish()
    assert ids(mc.Table(tmp_path / "new").to_arrow()) == [1]


@pytest.mark.parametrize("options", [{"mode": "error"}, {"mode": "ignore"}, {"recoverable": True, "key": "k", "fingerprint": "f"}])
def test_what_cannot_be_staged_is_refused(path: Path, options: dict[str, Any]) -> None:
    """[CK5]"""
    with pytest.raises(mc.errors.UsageError, match="publish=False"):
        stage(path, rows(4), **options)


# --- checks -----------------------------------------------------------------------------------------------------------------------


def test_checks_that_fail_are_named_and_leave_the_job_staged(path: Path) -> None:
    """[CK6]"""
    staged = stage(path, rows(3, 4, 4, amount=-1.0))

    def adults(found: pa.Table) -> bool:
        return bool(found.num_rows > 5)

    def strict(found: pa.Table) -> None:
        raise LookupError("no such row")

    with pytest.raises(mc.errors.CheckFailedError, match="6 of 7 checks") as said:
        staged.check(
            checks.expect("amount > 0"), checks.expect_unique("id"), checks.expect_unique(["id", "amount"]),
            checks.expect_rows(at_least=4), checks.expect_rows(at_most=3), adults, strict,
        )  # fmt: skip
    assert said.value.failed == {
        "expect(amount > 0)": "3 rows violate it, such as amount = -1.0; amount = -1.0; amount = -1.0",
        "expect_unique(id)": "2 values come more than once, such as id = 3; id = 4",
        "expect_unique(id, amount)": "1 values come more than once, such as id = 4, amount = -1.0",
        "expect_rows(at_least=4)": "the job adds 3 rows",
        "adults": "it returned False",
        "strict": "LookupError: no such row",
    }
    assert [each.state for each in mc.Table(path).jobs()] == ["prepared"]
    assert staged.abort() == "aborted"


def test_what_was_checked_is_in_the_record(path: Path) -> None:
    """[CK6] [OB10]"""
    staged = stage(path, rows(4))
    staged.check(checks.expect("amount > 0"), checks.expect_rows(at_least=1))
    outcome = staged.publish()
    (commit,) = mc.Table(path).snapshot(outcome.version).commits
    assert commit.summary.checks == {"expect(amount > 0)": True, "expect_rows(at_least=1)": True}
    assert mc.Table(path).history(1)[0]["summary"]["checks"] == commit.summary.checks


def test_the_report_shows_constraints_what_waits_and_what_was_checked(path: Path) -> None:
    """[CK1] [CK6] [RD6]"""
    table = mc.Table(path)
    table.add_constraint("positive", "amount > 0")
    table.rename_column("amount", "paid")
    staged = mc.write(rows(4).rename_columns(["id", "paid", "day"]), path, publish=False)
    page = Page(table.report().html)
    assert "positive : paid > 0" in page.text("schema") and f"{staged.job_id} prepared" in page.text("jobs")
    staged.check(checks.expect("paid < 100"))
    staged.publish()
    assert "expect(paid < 100): held" in Page(table.report().html).text("commits")


def test_checks_are_counted_by_their_result(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[OB10]"""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(telemetry, "_made", [telemetry.Instruments(MeterProvider(metric_readers=[reader]))])
    staged = stage(path, rows(4))
    with pytest.raises(CheckFailedError):
        staged.check(checks.expect("amount > 0"), checks.expect("amount > 1"), checks.expect_rows(at_most=1))
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = [each for each in data.resource_metrics[0].scope_metrics[0].metrics if each.name == "manifestcommit.checks"]
    found = {str((point.attributes or {})["manifestcommit.result"]): getattr(point, "value", None) for point in metric.data.data_points}
    assert found == {"held": 2, "failed": 1}


def test_a_check_of_the_own_rows_holds_for_good(path: Path) -> None:
    """[CK6]"""
    staged = stage(path, rows(4))
    made = []
    staged.check(checks.expect("amount > 0"), lambda found: made.append(found.num_rows))
    mc.write(rows(4), path)
    assert staged.publish().committed and made == [1]


def test_a_check_of_the_table_is_repeated_where_others_changed_rows(path: Path) -> None:
    """[CK6]"""
    staged = stage(path, rows(4))
    seen: list[list[int]] = []
    staged.check(checks.on_table(lambda found: seen.append(ids(found))))
    mc.Table(path).compact()
    mc.Table(path).set_properties({"owner": "me"})
    mc.write(rows(9), path)
    assert staged.publish().committed and seen == [[1, 2, 3, 4], [1, 2, 3, 4, 9]]


def test_a_check_of_the_table_that_fails_on_a_newer_version_publishes_nothing(path: Path) -> None:
    """[CK6]"""
    staged = stage(path, rows(4))
    staged.check(checks.expect_unique("id"))
    mc.write(rows(4), path)
    with pytest.raises(mc.errors.CheckFailedError, match="id = 4"):
        staged.publish()
    assert ids(mc.Table(path).to_arrow()) == [1, 2, 3, 4]
    mc.Table(path).delete("id = 4")
    assert staged.publish().committed


def test_what_changes_no_row_makes_no_check_old(path: Path) -> None:
    """[CK6] [GC11]"""
    staged = stage(path, rows(4))
    made: list[int] = []
    staged.check(checks.on_table(lambda found: made.append(found.num_rows)))
    mc.Table(path).compact()
    mc.Table(path).set_properties({"owner": "me"})
    assert staged.publish().committed and made == [4]


@pytest.mark.thorough
def test_publishing_ends_where_others_never_stop(path: Path) -> None:
    """[CK6]"""
    staged = stage(path, rows(4))
    made: list[int] = []

    def beside(found: pa.Table) -> None:
        made.append(found.num_rows)
        mc.write(rows(100 + len(made)), path)

    staged.check(checks.on_table(beside))
    with pytest.raises(mc.errors.CommitConflictError, match="audited_table_was_changed"):
        staged.publish()
    assert len(made) == STARTS and [each.state for each in mc.Table(path).jobs()] == ["prepared"]


def test_another_process_publishes_only_what_was_audited(path: Path) -> None:
    """[CK6]"""
    staged = stage(path, rows(4))
    audited = staged.base_version
    mc.write(rows(9), path)
    with pytest.raises(mc.errors.CommitConflictError, match="audited_table_was_changed"):
        mc.Staged(path, staged.job_id).publish(base_version=audited)
    assert mc.Staged(path, staged.job_id).publish(base_version=audited + 1).committed


def test_checks_of_one_call_see_one_version(path: Path) -> None:
    """[CK6]"""
    staged, seen = stage(path, rows(4)), []

    def beside(found: pa.Table) -> None:
        seen.append(found.num_rows)
        mc.write(rows(9), path)

    def second(found: pa.Table) -> None:
        seen.append(found.num_rows)

    staged.check(checks.on_table(beside), checks.on_table(second))
    assert seen == [4, 4]


def test_checks_that_read_one_table_are_none_of_a_joint_commit(path: Path, tmp_path: Path) -> None:
    """[CK6] [MT11]"""
    with mc.transaction({"a": path, "b": tmp_path / "other"}) as tx:
        tx["a"].write(rows(4))
        tx["b"].write(rows(8))
        prepared = tx.prepare()
    staged = prepared.staged[next(iter(prepared.jobs))]
    staged.check(checks.expect_unique("id"))
    with pytest.raises(mc.errors.UsageError, match="Check its own rows"):
        staged.publish()


@pytest.mark.parametrize("wrong", [lambda: checks.expect_rows(), lambda: checks.expect_rows(at_least=-1), lambda: checks.expect(1)])
def test_what_is_no_check_is_refused(wrong: Any) -> None:
    """[CK6]"""
    with pytest.raises(mc.errors.UsageError):
        wrong()


@pytest.mark.parametrize("given", [None, "amount > 0", checks.expect("nope > 0"), checks.expect("amount")])
def test_a_check_that_cannot_be_made_is_an_error(path: Path, given: Any) -> None:
    """[CK6]"""
    with pytest.raises(mc.errors.UsageError):
        stage(path, rows(4)).check(given)


@pytest.mark.parametrize(("column", "why"), [("nope", "no column 'nope'"), ("list", "'list' is list<.*>, whose values cannot be compared")])
def test_columns_that_cannot_be_compared_are_named(tmp_path: Path, column: str, why: str) -> None:
    """[CK6]"""
    staged = mc.write(pa.table({"id": [1], "list": [[1]]}), tmp_path / "t", publish=False)
    with pytest.raises(mc.errors.UsageError, match=why):
        staged.check(checks.expect_unique(["id", column]))
    with pytest.raises(mc.errors.UsageError, match="no column 'nope'"):
        staged.rows("nope")
    staged.check(checks.expect_unique("ID"))


def test_what_is_equal_comes_twice(tmp_path: Path) -> None:
    """[CK6]"""
    staged = mc.write(pa.table({"x": [0.0, -0.0], "y": [math.nan, -math.nan]}), tmp_path / "t", publish=False)
    for column in "xy":
        with pytest.raises(mc.errors.CheckFailedError, match="1 values come more than once"):
            staged.check(checks.expect_unique(column))


def answers(value: bool) -> list[object]:
    return [value, np.bool_(value), pa.scalar(value), SimpleNamespace(success=value), {"success": value}, {"success": np.bool_(value)}]


def test_a_check_fails_by_any_false_and_holds_by_any_true(tmp_path: Path) -> None:
    """[CK6]"""
    staged = mc.write(pa.table({"id": [1]}), tmp_path / "t", publish=False)
    for said in answers(False):
        for check in (lambda _: said, checks.on_table(lambda _: said)):  # noqa: B023
            with pytest.raises(mc.errors.CheckFailedError):
                staged.check(check)
    staged = mc.Staged(tmp_path / "t", staged.job_id)
    for said in (None, *answers(True)):
        staged.check(lambda _: said)  # noqa: B023
    assert staged.publish().committed


@pytest.mark.parametrize(
    "said",
    [(False, "bad"), pa.array([True, False]), pa.scalar(None, pa.bool_()), 0, 1, "no", {"ok": False}, {"success": None}, np.array([True])],
    ids=str,
)
def test_an_answer_that_is_neither_yes_nor_no_is_refused(tmp_path: Path, said: object) -> None:
    """[CK6]"""
    staged = mc.write(pa.table({"id": [1]}), tmp_path / "t", publish=False)

    def sane(_: pa.Table) -> object:
        return said

    for check in (sane, checks.on_table(sane)):
        with pytest.raises(mc.errors.UsageError, match=f"check sane returned neither yes nor no, but a {type(said).__name__}"):
            staged.check(check)


def test_a_condition_that_cannot_be_evaluated_is_named_as_a_check(path: Path) -> None:
    """[CK6]"""
    staged = stage(path, rows(4))
    for condition, why in (
        ("amout > 0", "The table has no column 'amout'"),
        ("1 = 1", "expected a condition"),
        ("day > 1", "without Spark"),
        ("id", "long values"),
        ("id / (id - 4) > 1", "divide by zero"),
    ):
        with pytest.raises(mc.errors.UsageError, match=f"^the check expect: .*{why}.*; nothing was done") as refused:
            staged.check(checks.expect(condition))
        assert "constraint" not in str(refused.value)
    with pytest.raises(mc.errors.UsageError, match="at_least=5 is above at_most=1"):
        checks.expect_rows(at_least=5, at_most=1)
    with pytest.raises(TypeError, match="several names are one list"):
        checks.expect_unique("id", "day")  # type: ignore[call-arg]


def test_two_checks_of_one_name_are_two_and_what_failed_is_not_published(tmp_path: Path) -> None:
    """[CK6]"""
    staged = mc.write(pa.table({"id": [1]}), tmp_path / "t", publish=False)
    for made in ((lambda _: False, lambda _: True), (lambda _: True,)):
        with pytest.raises(mc.errors.CheckFailedError) if len(made) == 2 else contextlib.nullcontext():
            staged.check(*made)
    with pytest.raises(mc.errors.CheckFailedError, match="did not hold"):
        staged.publish()
    assert mc.Staged(tmp_path / "t", staged.job_id).publish().committed


def test_publish_sees_what_changed_since_a_version_below_the_jobs_own(path: Path) -> None:
    """Checked elsewhere at that version; another writer came before the job began. [CK6]"""
    checked = mc.Table(path).version
    mc.write(rows(4), path)
    staged = stage(path, rows(4))
    with pytest.raises(mc.errors.CommitConflictError, match="audited_table_was_changed"):
        staged.publish(base_version=checked)
    for wrong in (checked + 10**6, True, "1", 1.5):
        with pytest.raises(mc.errors.UsageError, match="base_version"):
            staged.publish(base_version=wrong)  # type: ignore[arg-type]
    assert ids(mc.Table(path).to_arrow()) == [1, 2, 3, 4]
    staged.publish(base_version=checked + 1)


def test_a_check_that_failed_keeps_the_tables_beside_from_being_published(path: Path, tmp_path: Path) -> None:
    """One commit publishes all. [CK6] [MT1]"""
    with mc.transaction([path, tmp_path / "other"]) as tx:
        tx[str(path)].write(rows(4))
        tx[str(tmp_path / "other")].write(rows(1))
        prepared = tx.prepare()
    mine, other = prepared.staged.values()
    with pytest.raises(CheckFailedError):
        mine.check(checks.expect("amount > 5"))
    with pytest.raises(CheckFailedError, match=r"expect\(amount > 5\) of "):
        other.publish()
    assert ids(mc.Table(path).to_arrow()) == [1, 2, 3]

"""Constraints: what they mean, which way ever makes rows, and beside jobs in flight. [CK1] [CK2] [CK3] [CK4]"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manifestcommit as mc
from manifestcommit.commits.commit_loop import Committers, commit
from manifestcommit.format import codec
from manifestcommit.format.object_names import version_name
from manifestcommit.format.snapshot import Constraint
from manifestcommit.gate import constraints
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.store import open_store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore

COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("day", pa.string())])


def rows(*amounts: float | None, day: str = "a", first: int = 1) -> pa.Table:
    ids = list(range(first, first + len(amounts)))
    return pa.table({"id": ids, "amount": list(amounts), "day": [day] * len(ids)}, schema=COLUMNS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    mc.create_table(tmp_path / "t", COLUMNS, partition_by="day", constraints={"positive": "amount > 0"})
    return tmp_path / "t"


def amounts(path: Path) -> list[float | None]:
    return sorted(mc.Table(path).to_arrow().column("amount").to_pylist(), key=lambda each: -1e9 if each is None else each)


# --- what a constraint means -----------------------------------------------------------------------------------------------------


def test_a_row_passes_where_the_condition_is_true_or_null(path: Path) -> None:
    """As CHECK does in SQL. [CK1]"""
    mc.write(rows(1.0, None), path)
    with pytest.raises(mc.errors.ConstraintError):
        mc.write(rows(0.0), path)
    assert amounts(path) == [None, 1.0]


def test_nan_is_above_every_number(path: Path) -> None:
    """Spark's order, here as in filters. [CK1] [RD7]"""
    mc.write(rows(float("nan")), path)
    mc.Table(path).add_constraint("least", "amount >= 0")
    with pytest.raises(mc.errors.ConstraintError):
        mc.Table(path).add_constraint("most", "amount < 100")


def test_the_error_names_the_constraint_its_violations_and_the_remedy(path: Path) -> None:
    """[CK2]"""
    with pytest.raises(
        mc.errors.ConstraintError, match=r"4 rows violate the constraint 'positive' \(amount > 0\), such as amount = -1.0"
    ) as said:
        mc.write(rows(1.0, -1.0, -2.0, None, -3.0, -4.0), path)
    assert (said.value.constraint, said.value.violations, len(said.value.examples)) == ("positive", 4, 3)
    assert "Nothing was committed" in str(said.value) and "drop_constraint('positive')" in str(said.value)
    assert mc.Table(path).version == 1


def test_violations_are_counted_to_the_end_of_a_stream(path: Path) -> None:
    """[CK2]"""
    batches = [rows(*([-1.0] * 10)).to_batches()[0] for _ in range(7)]
    with pytest.raises(mc.errors.ConstraintError) as said:
        mc.write(pa.RecordBatchReader.from_batches(COLUMNS, batches), path)
    assert said.value.violations == 70


@pytest.mark.parametrize("condition", ["amount > current_timestamp()", "day = current_date()", "id > 0 AND now() IS NOT NULL"])
def test_what_changes_with_the_time_is_no_constraint(path: Path, condition: str) -> None:
    """[CK1]"""
    with pytest.raises(mc.errors.UsageError, match="without a clock"):
        mc.Table(path).add_constraint("recent", condition)
    assert mc.Table(path).constraints() == {"positive": "amount > 0"}


@pytest.mark.parametrize(
    ("name", "condition", "said"),
    [
        ("x", "nope > 0", "no column 'nope'"),
        ("x", "id", "neither true nor false"),
        ("x", "amount >", "^the constraint 'x': 'amount >': it ends too early; nothing was done$"),
        ("x", "regexp_like(day, 'a')", "without Spark"),
        ("1x", "id > 0", "begins with no digit"),
        ("a b", "id > 0", "letters, digits and underscores"),
        ("x" * 101, "id > 0", "1 to 100"),
        ("x", "id > 0 " + "AND id > 0 " * 200, "2,000"),
        ("x", "1 = 1", "^the constraint 'x': expected a condition .* names a column; nothing was done$"),
        ("positive", "amount > 1", "has the constraint 'positive' already"),
        ("Positive", "amount > 0", "has the constraint 'positive' already"),
    ],
)
def test_what_is_no_constraint_is_refused(path: Path, name: str, condition: str, said: str) -> None:
    """[CK1]"""
    with pytest.raises(mc.errors.UsageError, match=said):
        mc.Table(path).add_constraint(name, condition)
    assert mc.Table(path).version == 1


def test_the_same_constraint_once_more_is_no_change(path: Path) -> None:
    """[CK3]"""
    assert mc.Table(path).add_constraint("positive", "amount > 0").already_committed
    assert mc.Table(path).version == 1


def test_a_table_that_is_there_has_to_have_the_constraints(path: Path) -> None:
    """[CK1] [CM13]"""
    mc.create_table(path, COLUMNS, partition_by="day", constraints={"positive": "amount > 0"}, exist_ok=True)
    with pytest.raises(mc.errors.UsageError, match="without the constraint 'other'"):
        mc.create_table(path, COLUMNS, partition_by="day", constraints={"other": "id > 0"})


def test_a_table_without_constraints_pays_nothing() -> None:
    """No request, and no byte of a version, that it would not have without them. [CK1]"""
    counts, documents = [], []
    for has_had_one in (False, True):
        store = CountingStore(MemoryStore(f"pays-nothing-{has_had_one}"))
        session = TableContext(store)
        job = Job(session)
        job.write(rows(1.0))
        committed_or_raise(job.commit(), store.url)
        if has_had_one:
            constraints.add(session, "positive", "amount > 0")
            constraints.drop(session, "positive")
        store.calls.clear()
        job = Job(TableContext(store))
        job.write(rows(-1.0))
        outcome = committed_or_raise(job.commit(), store.url)
        assert outcome.version is not None
        counts.append([call.kind for call in store.calls])
        documents.append(codec.decompress(store.get(version_name(outcome.version)), name="v"))
    assert counts[0] == counts[1]
    assert all(b"constrain" not in each and b"checked" not in each for each in documents)


# --- every way that makes rows ----------------------------------------------------------------------------------------------------


def pandas(path: Path) -> None:
    mc.write(rows(-1.0).to_pandas(), path)


def polars(path: Path) -> None:
    mc.write(__import__("polars").from_arrow(rows(-1.0)), path)


def duckdb(path: Path) -> None:
    mc.write(__import__("duckdb").sql("SELECT 1::BIGINT AS id, -1::DOUBLE AS amount, 'a' AS day"), path)


def overwrite(path: Path) -> None:
    mc.write(rows(-1.0), path, mode="overwrite")


def part(path: Path) -> None:
    mc.write(rows(-1.0), path, mode="overwrite", overwrite="dynamic")


def recoverable(path: Path) -> None:
    mc.write(rows(-1.0), path, key="k", fingerprint="f", recoverable=True)


def with_a_new_column(path: Path) -> None:
    mc.write(rows(-1.0).append_column("more", pa.array([1])), path, merge_schema=True)


def added_file(path: Path) -> None:
    (path / "day=a").mkdir(exist_ok=True)
    pq.write_table(rows(-1.0), path / "day=a" / "theirs.parquet")
    with mc.begin(path) as job:
        job.add_files(["day=a/theirs.parquet"])


def update(path: Path) -> None:
    mc.Table(path).update({"amount": "amount - 10"}, "id = 2")


def merge(path: Path) -> None:
    mc.Table(path).merge(rows(3.0, -3.0), on="id")


def merge_that_inserts(path: Path) -> None:
    mc.Table(path).merge(rows(-3.0, first=7), on="id", when_matched=None, when_not_matched=mc.Insert())


def merge_that_inserts_whole_rows(path: Path) -> None:
    mc.Table(path).merge(rows(-3.0, first=7), on="id", when_matched=None)


def merge_by_clauses(path: Path) -> None:
    mc.Table(path).merge(rows(3.0), on="id", when_matched=mc.Update(set={"amount": "-1.0"}))


def overwrite_where(path: Path) -> None:
    mc.Table(path).overwrite_where(rows(-3.0), "id = 1")


def prepared(path: Path) -> None:
    job = mc.begin(path)
    job.write(rows(-1.0))
    mc.commit(path, job.prepare())


def together(path: Path) -> None:
    with mc.transaction({"a": path, "b": path.with_name("other")}) as tx:
        tx["a"].write(rows(-1.0))
        tx["b"].write(rows(1.0))


WAYS: list[Callable[[Path], None]] = [
    pandas, polars, duckdb, overwrite, part, recoverable, with_a_new_column, added_file, update, merge, merge_that_inserts,
    merge_that_inserts_whole_rows, merge_by_clauses, overwrite_where, prepared, together,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_way_brings_a_row_that_violates_one(path: Path, way: Callable[[Path], None]) -> None:
    """[CK2]"""
    mc.write(rows(1.0, 2.0), path)
    with pytest.raises(mc.errors.ConstraintError, match="positive"):
        way(path)
    assert amounts(path) == [1.0, 2.0]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_stays_open_without_one(path: Path, way: Callable[[Path], None]) -> None:
    """The rows of the test above are refused by nothing else. [CK3]"""
    mc.write(rows(1.0, 2.0), path)
    mc.Table(path).drop_constraint("positive")
    way(path)
    assert min(each for each in amounts(path) if each is not None) < 0


def test_rows_that_a_merge_leaves_out_are_not_checked(path: Path) -> None:
    """[CK2]"""
    mc.write(rows(1.0, 2.0), path)
    mc.Table(path).merge(rows(-1.0, -2.0, 3.0), on="id", when_matched=None, when_not_matched=mc.Insert())
    assert amounts(path) == [1.0, 2.0, 3.0]
    mc.Table(path).merge(rows(5.0, -1.0, first=1).slice(0, 1), on="id", when_not_matched=None)
    assert amounts(path) == [2.0, 3.0, 5.0]


def test_a_delete_and_a_compaction_move_rows_as_they_are(path: Path) -> None:
    """[CK2]"""
    mc.write(rows(1.0, 2.0), path)
    mc.write(rows(3.0, first=3), path)
    mc.Table(path).compact()
    mc.Table(path).delete("id = 1")
    assert amounts(path) == [2.0, 3.0]


def test_files_of_others_are_passed_by_their_bounds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK2]"""
    (path / "day=a").mkdir()
    pq.write_table(rows(1.0), path / "day=a" / "theirs.parquet")
    mc.Table(path).add_constraint("small", "id < 100")
    mc.Table(path).drop_constraint("positive")
    refuse_reads(monkeypatch)
    with mc.begin(path) as job:
        job.add_files(["day=a/theirs.parquet"])
    assert amounts(path) == [1.0]


def refuse_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: Any, **more: Any) -> Any:
        raise AssertionError("a file was read")

    monkeypatch.setattr("manifestcommit.gate.rows.scan", refused)


# --- columns ----------------------------------------------------------------------------------------------------------------------


def test_a_renamed_column_is_followed(path: Path) -> None:
    """[CK1]"""
    mc.Table(path).rename_column("amount", "value")
    mc.Table(path).add_column("amount", "double")
    data = pa.table({"id": [1], "value": [1.0], "day": ["a"], "amount": [-1.0]})
    mc.write(data, path)
    with pytest.raises(mc.errors.ConstraintError, match=r"value = -1\.0"):
        mc.write(data.set_column(1, "value", pa.array([-1.0])), path)


def test_members_of_structs_are_followed(tmp_path: Path) -> None:
    """[CK1]"""
    data = pa.table({"s": [{"a.b": 1, "c": 2}]})
    mc.create_table(tmp_path / "t", data.schema, constraints={"inside": "s.`a.b` < s.c"})
    mc.Table(tmp_path / "t").rename_column("s", "r")
    mc.write(data.rename_columns(["r"]), tmp_path / "t")
    with pytest.raises(mc.errors.ConstraintError):
        mc.write(pa.table({"r": [{"a.b": 3, "c": 2}]}), tmp_path / "t")


def test_a_column_with_a_constraint_is_not_dropped(path: Path) -> None:
    """[CK3]"""
    with pytest.raises(mc.errors.UsageError, match=r"names the column 'amount'.*drop_constraint\('positive'\)"):
        mc.Table(path).drop_column("amount")
    mc.Table(path).drop_constraint("positive")
    mc.Table(path).drop_column("amount")


def test_a_wider_column_keeps_its_constraint(tmp_path: Path) -> None:
    """[CK1]"""
    mc.create_table(tmp_path / "t", pa.schema([("n", pa.int32())]), constraints={"small": "n < 10"})
    mc.write(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "t")
    mc.Table(tmp_path / "t").widen_column("n", "long")
    with pytest.raises(mc.errors.ConstraintError):
        mc.write(pa.table({"n": [2**40]}), tmp_path / "t")


# --- adding one, beside others -----------------------------------------------------------------------------------------------------


def test_adding_one_that_rows_violate_counts_them_and_names_files(path: Path) -> None:
    """[CK3]"""
    mc.write(rows(1.0, 2.0, 3.0), path)
    mc.write(rows(4.0, day="b"), path)
    with pytest.raises(mc.errors.ConstraintError, match=r"3 rows violate the constraint 'most' .* in day=.*day=.*was not added"):
        mc.Table(path).add_constraint("most", "amount < 2")
    assert mc.Table(path).constraints() == {"positive": "amount > 0"}


@pytest.mark.parametrize("kind", ["open", "prepared", "other process"])
@pytest.mark.parametrize("amount", [-1.0, 1.0])
def test_a_job_in_flight_is_checked_again_where_a_constraint_was_added(tmp_path: Path, kind: str, amount: float) -> None:
    """[CK2]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    job = mc.begin(path)
    job.write(rows(amount, first=5))
    name = "" if kind == "open" else job.prepare()
    mc.Table(path).add_constraint("positive", "amount > 0")
    end = job.commit if kind == "open" else (lambda: mc.commit(path, name))
    if amount > 0:
        assert end().committed
    else:
        with pytest.raises(mc.errors.ConstraintError, match="1 row violates the constraint 'positive'"):
            end()
    assert amounts(path) == ([1.0, 1.0] if amount > 0 else [1.0])


def test_a_change_in_flight_is_checked_by_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK2]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    job = mc.begin(path)
    job.write(rows(1.0, first=5))
    mc.Table(path).add_constraint("small", "id < 100")
    refuse_reads(monkeypatch)
    assert job.commit().committed


def test_a_dropped_constraint_that_comes_again_is_another_one(path: Path) -> None:
    """Rows that were checked against the first of one name have not been against the second. [CK1] [CK2]"""
    job = mc.begin(path)
    job.write(rows(1.0))
    mc.Table(path).drop_constraint("positive")
    mc.Table(path).add_constraint("positive", "amount > 5")
    with pytest.raises(mc.errors.ConstraintError):
        job.commit()


def test_rows_that_come_while_a_constraint_is_proven_are_proven_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK3]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    found, seen = constraints.first_violation, []

    def beside(*given: Any) -> Any:
        told = found(*given)
        seen.append(len(seen))
        if len(seen) <= 2:
            mc.write(rows(1.0 if len(seen) == 1 else -1.0, first=7), path)
        return told

    monkeypatch.setattr(constraints, "first_violation", beside)
    with pytest.raises(mc.errors.ConstraintError):
        mc.Table(path).add_constraint("positive", "amount > 0")
    assert len(seen) == 3 and mc.Table(path).constraints() == {}
    mc.Table(path).delete("amount < 0")
    assert mc.Table(path).add_constraint("positive", "amount > 0").committed


@pytest.mark.thorough
def test_adding_one_ends_where_others_never_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK3]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    found = constraints.first_violation

    def beside(*given: Any) -> Any:
        told = found(*given)
        mc.write(rows(1.0), path)
        return told

    monkeypatch.setattr(constraints, "first_violation", beside)
    with pytest.raises(mc.errors.CommitConflictError) as said:
        mc.Table(path).add_constraint("positive", "amount > 0")
    assert said.value.rule == "rows_came_since_the_proof"


def test_a_compaction_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK3] [GC11]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    mc.write(rows(2.0), path)
    found, tries = constraints.first_violation, []

    def beside(*given: Any) -> Any:
        tries.append(1)
        mc.Table(path).compact()
        return found(*given)

    monkeypatch.setattr(constraints, "first_violation", beside)
    assert mc.Table(path).add_constraint("positive", "amount > 0").committed and len(tries) == 1


def test_of_two_that_add_a_constraint_of_one_name_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK3]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    found = constraints.first_violation

    def beside(*given: Any) -> Any:
        monkeypatch.setattr(constraints, "first_violation", found)
        mc.Table(path).add_constraint("Positive", "amount >= 1")
        return found(*given)

    monkeypatch.setattr(constraints, "first_violation", beside)
    with pytest.raises(mc.errors.CommitConflictError, match="constraint_is_other"):
        mc.Table(path).add_constraint("positive", "amount > 0")
    assert mc.Table(path).constraints() == {"Positive": "amount >= 1"}


def test_who_drops_a_constraint_drops_no_other_of_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK3]"""
    commit = constraints.commit

    def beside(*given: Any) -> Any:
        monkeypatch.setattr(constraints, "commit", commit)
        mc.Table(path).drop_constraint("positive")
        mc.Table(path).add_constraint("positive", "amount IS NOT NULL")
        return commit(*given)

    monkeypatch.setattr(constraints, "commit", beside)
    with pytest.raises(mc.errors.CommitConflictError, match="constraint_is_other"):
        mc.Table(path).drop_constraint("positive")
    assert mc.Table(path).constraints()["positive"] == "amount IS NOT NULL"


def test_of_two_that_drop_a_constraint_one_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK3]"""
    commit = constraints.commit

    def beside(*given: Any) -> Any:
        monkeypatch.setattr(constraints, "commit", commit)
        mc.Table(path).drop_constraint("positive")
        return commit(*given)

    monkeypatch.setattr(constraints, "commit", beside)
    with pytest.raises(mc.errors.CommitConflictError, match="constraint_is_other"):
        mc.Table(path).drop_constraint("positive")
    with pytest.raises(mc.errors.UsageError, match="has no constraint 'positive'"):
        mc.Table(path).drop_constraint("positive")


def test_a_column_that_is_dropped_meanwhile_takes_no_constraint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK3]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    found = constraints.first_violation

    def beside(*given: Any) -> Any:
        mc.Table(path).drop_column("amount")
        return found(*given)

    monkeypatch.setattr(constraints, "first_violation", beside)
    with pytest.raises(mc.errors.CommitConflictError, match="constrained_column_is_gone"):
        mc.Table(path).add_constraint("positive", "amount > 0")


def test_a_file_of_others_is_checked_beside_rows_that_were(path: Path) -> None:
    """[CK2]"""
    (path / "day=a").mkdir()
    pq.write_table(rows(-1.0), path / "day=a" / "theirs.parquet")
    job = mc.begin(path)
    job.write(rows(1.0))
    job.add_files(["day=a/theirs.parquet"])
    with pytest.raises(mc.errors.ConstraintError, match=r"theirs\.parquet"):
        job.commit()
    assert amounts(path) == []


def test_tasks_of_an_earlier_attempt_are_checked_by_the_commit(tmp_path: Path) -> None:
    """They were planned when there was no constraint. [CK2] [AB6]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    job = mc.begin(path, "k", recoverable=True, fingerprint="f")
    job.write(rows(-1.0))
    job.abort()
    mc.Table(path).add_constraint("positive", "amount > 0")
    with pytest.raises(mc.errors.ConstraintError):
        mc.write(rows(-1.0), path, key="k", recoverable=True, fingerprint="f")
    assert amounts(path) == [1.0]


def test_an_intent_that_was_not_checked_is_not_carried(tmp_path: Path) -> None:
    """Who helps would publish rows that nobody checked. [CK2] [CM20]"""
    path = tmp_path / "t"
    mc.write(rows(1.0), path)
    store = open_store(path)
    theirs = Job(TableContext(store))
    theirs.write(rows(-1.0))
    from manifestcommit.commits.commit_loop import GroupCommit

    session = TableContext(store)
    session.open()
    asking = GroupCommit(session, theirs.id, Committers.GROUP, theirs.measure())
    assert asking.publish(theirs.change())
    mc.Table(path).add_constraint("positive", "amount > 0")
    mine = TableContext(store)
    head = mine.open()
    own = Job(mine)
    own.write(rows(2.0))
    group = GroupCommit(mine, own.id, Committers.GROUP, own.measure())
    group.saw(head.waiting)
    assert theirs.id in head.waiting
    from manifestcommit.commits.commit_loop import load_conflict_inputs

    assert group.carry(head.snapshot, own.change(), load_conflict_inputs(mine, head, own.change())).commits == ()
    outcome = commit(mine, mine.open(), theirs.change(), committers=Committers.ANY_WRITER)
    assert outcome.kind == "conflict" and outcome.conflict is not None and outcome.conflict.rule == "constraint_violated"
    assert str(mc.Table(path).resolve(theirs.id)) == "aborted"


def test_a_rollback_takes_the_constraints_of_its_target(path: Path) -> None:
    """[CK4] [CF13]"""
    mc.write(rows(1.0), path)
    mc.Table(path).drop_constraint("positive")
    mc.write(rows(-1.0), path)
    job = mc.begin(path)
    job.write(rows(-2.0))
    mc.Table(path).rollback(2, reason="a mistake")
    assert mc.Table(path).constraints() == {"positive": "amount > 0"} and amounts(path) == [1.0]
    with pytest.raises(mc.errors.ConstraintError):
        job.commit()
    mc.Table(path).rollback(4, reason="was none")
    assert mc.Table(path).constraints() == {} and amounts(path) == [-1.0, 1.0]


# --- where it shows ----------------------------------------------------------------------------------------------------------------


def test_describe_shows_it_with_the_columns_of_now(path: Path) -> None:
    """[CK1]"""
    mc.Table(path).rename_column("amount", "total value")
    assert mc.Table(path).describe()["constraints"] == mc.Table(path).constraints() == {"positive": "`total value` > 0"}
    with pytest.raises(mc.errors.UsageError, match=r"'positive' \(`total value` > 0\) names the column 'total value'"):
        mc.Table(path).drop_column("total value")


def test_verify_looks_for_rows_that_violate_one(path: Path) -> None:
    """[CK1] [RD10]"""
    mc.write(rows(1.0, 2.0), path)
    assert mc.Table(path).verify(deep=True).findings == ()
    snapshot, store = mc.Table(path).snapshot(), open_store(path)
    wrong = {"most": Constraint(id="0" * 16, condition="amount < 2", columns=snapshot.constraints["positive"].columns)}
    data = codec.encode_snapshot(msgspec.structs.replace(snapshot, constraints=wrong))
    store.delete([version_name(snapshot.version)])
    store.put(version_name(snapshot.version), data)
    assert mc.Table(path).verify().findings == ()
    (found,) = mc.Table(path).verify(deep=True).findings
    assert found.kind == "constraint_violated" and "1 row violates the constraint 'most' (amount < 2)" in found.problem
    assert found.object in set(mc.Table(path).files().column("path").to_pylist())


def test_a_delta_log_says_it(path: Path) -> None:
    """[CK1] [EX5]"""
    mc.Table(path).rename_column("amount", "value")
    mc.Table(path).set_properties({"export.formats": "delta"})
    mc.write(rows(1.0).rename_columns(["id", "value", "day"]), path)
    delta = pytest.importorskip("deltalake").DeltaTable(str(path))
    assert delta.metadata().configuration["delta.constraints.positive"] == "value > 0"
    assert "checkConstraints" in delta.protocol().writer_features
    assert delta.to_pyarrow_table().num_rows == 1 if not delta.protocol().reader_features else True
    mc.Table(path).drop_constraint("positive")
    delta = pytest.importorskip("deltalake").DeltaTable(str(path))
    assert "delta.constraints.positive" not in delta.metadata().configuration


# --- what is read is hostile -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"no name": Constraint(id="0" * 16, condition="id > 0", columns={"id": 1})},
        {"x": Constraint(id="short", condition="id > 0", columns={"id": 1})},
        {"x": Constraint(id="0" * 16, condition="", columns={"id": 1})},
        {"x": Constraint(id="0" * 16, condition="id > 0", columns={"id": 2**31 - 1})},
        {f"x{at}": Constraint(id="0" * 16, condition="id > 0", columns={"id": 1}) for at in range(65)},
    ],
)
def test_a_damaged_constraint_is_damage(path: Path, wrong: dict[str, Constraint]) -> None:
    """[CK1] [OB4]"""
    snapshot = msgspec.structs.replace(mc.Table(path).snapshot(), constraints=wrong)
    data = codec.compress(codec.encode_json(snapshot))
    with pytest.raises(mc.errors.CorruptMetadataError):
        codec.decode_snapshot(data, name=version_name(1))


def test_columns_that_are_words_of_sql_are_quoted(tmp_path: Path) -> None:
    """Otherwise the text of a constraint would be none, or one of another meaning. [CK1] [CK8]"""
    table = mc.Table(tmp_path / "t")
    mc.write(pa.table({"a": [True], "b": [True], "select": [1]}), tmp_path / "t")
    table.add_constraint("same", "a = b")
    table.rename_column("a", "true")
    assert table.constraints() == {"same": "`true` = b"}
    table.set_not_null("select")
    with pytest.raises(mc.errors.ConstraintError, match="not_null_select"):
        mc.write(pa.table({"true": [True], "b": [True], "select": pa.array([None], pa.int64())}), tmp_path / "t")
    table.rename_column("true", "from")
    assert table.constraints()["same"] == "`from` = b"

"""Refused rows go into a table beside, in one commit with the rest. [CK7]"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.quarantine import refused_beside
from manifestcommit.store import StorageOptions

COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.float64())])


def rows(*amounts: float | None, first: int = 1) -> pa.Table:
    return pa.table({"id": list(range(first, first + len(amounts))), "amount": list(amounts)}, schema=COLUMNS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    mc.create_table(tmp_path / "t", COLUMNS, constraints={"positive": "amount > 0", "known": "id < 100"})
    return tmp_path / "t"


def write(data: Any, path: Path, **options: Any) -> mc.Outcome:
    return mc.write(data, path, on_violation="quarantine", **options)


def found(path: Path, name: str = "id") -> list[Any]:
    return sorted(mc.Table(path).to_arrow().column(name).to_pylist())


def test_good_and_refused_rows_are_in_one_commit(path: Path) -> None:
    """[CK7] [MT1]"""
    outcome = write(rows(1.0, -2.0, None, -4.0), path, key="k", watermarks={"s": (0, 4)}, message="day 1")
    assert outcome.committed and outcome.version == 2 and found(path) == [1, 3]
    refused = mc.Table(f"{path}.refused")
    kept = refused.to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["amount"], row["refused_by"]) for row in kept] == [(2, -2.0, ["positive"]), (4, -4.0, ["positive"])]
    assert {row["refused_job"] for row in kept} == {outcome.job_id} and mc.Table(path).watermarks() == {"s": 4}
    joint = mc.Table(path).history(1)[0]["joint"]
    assert list(joint["partners"]) == [refused.url] and refused.describe()["rank"] == mc.Table(path).describe()["rank"] + 1


def test_a_row_names_every_constraint_that_it_violates(path: Path) -> None:
    """[CK7]"""
    write(rows(-1.0, first=200), path)
    assert mc.Table(f"{path}.refused").to_arrow().column("refused_by").to_pylist() == [["positive", "known"]]


def test_a_rerun_by_key_does_neither_twice(path: Path) -> None:
    """[CK7] [KY3]"""
    for _ in range(2):
        outcome = write(rows(1.0, -2.0), path, key="k")
    assert outcome.already_committed and found(path) == [1] and found(Path(f"{path}.refused")) == [2]
    with pytest.raises(mc.errors.KeyReusedError):
        mc.write(rows(1.0), path, key="k")


@pytest.mark.thorough
@pytest.mark.parametrize("door", ["write", "load"])
def test_rows_that_do_not_fit_leave_no_table_of_refused_ones(path: Path, tmp_path: Path, door: str) -> None:
    """[CK7] [LD13]"""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "more": true}')
    data, source = pa.table({"id": [1], "more": [True]}), mc.sources.files(tmp_path / "in", "json")
    with pytest.raises(mc.errors.SchemaMismatchError):
        write(data, path) if door == "write" else mc.load(source, path, on_violation="quarantine")
    assert not Path(f"{path}.refused").exists()


def test_such_a_write_is_joint_also_where_no_row_is_refused(path: Path) -> None:
    """A key's declaration covers both tables. [CK7] [MT13]"""
    write(rows(1.0), path, key="k")
    assert mc.Table(f"{path}.refused").history(1)[0]["key"] == "k" and found(Path(f"{path}.refused")) == []
    assert write(rows(1.0), path, key="k").already_committed


def test_a_stream_is_split_batch_by_batch(path: Path) -> None:
    """[CK7]"""
    batches = [rows(1.0, -1.0, first=10 * at).to_batches()[0] for at in range(8)]
    write(pa.RecordBatchReader.from_batches(COLUMNS, batches), path, mode="overwrite")
    assert found(path) == [0, 10, 20, 30, 40, 50, 60, 70] and found(Path(f"{path}.refused")) == [1, 11, 21, 31, 41, 51, 61, 71]


@pytest.mark.parametrize(("most", "passes"), [(0, False), (1, False), (2, True), (0.4, False), (0.5, True), (None, True)])
def test_more_violations_than_allowed_are_an_error(path: Path, most: Any, passes: bool) -> None:
    """[CK7]"""
    if passes:
        assert write(rows(1.0, -2.0, 3.0, -4.0), path, max_violations=most).committed
        return
    with pytest.raises(mc.errors.ConstraintError, match=r"2 rows violate the constraint 'positive' \(max_violations="):
        write(rows(1.0, -2.0, 3.0, -4.0), path, max_violations=most)
    assert found(path) == [] and found(Path(f"{path}.refused")) == []


def test_a_new_column_goes_into_both(path: Path) -> None:
    """[CK7]"""
    write(rows(1.0, -2.0), path)
    write(rows(1.0, -2.0, first=5).append_column("more", pa.array(["x", "y"])), path, merge_schema=True)
    assert found(path) == [1, 5] and found(Path(f"{path}.refused")) == [2, 6]
    assert mc.Table(f"{path}.refused").to_arrow(["more"], filter="id = 6").to_pylist() == [{"more": "y"}]


def test_a_renamed_column_is_split_by_its_constraint(path: Path) -> None:
    """[CK1] [CK7]"""
    mc.Table(path).rename_column("amount", "value")
    write(rows(1.0, -2.0).rename_columns(["id", "VALUE"]), path)
    assert found(path) == [1] and found(Path(f"{path}.refused")) == [2]


def test_a_new_column_by_an_old_name_is_not_mixed_with_the_old_one(tmp_path: Path) -> None:
    """A member after a renaming, and columns that were dropped and added, of one type and of another. [CK7]"""
    path = tmp_path / "t"
    mc.write(pa.Table.from_pylist([{"id": 1, "c": 1, "s": {"a": 1, "b": 1}}]), path)
    table, beside = mc.Table(path), mc.Table(f"{path}.refused")
    table.add_constraint("known", "id > 0")
    write(pa.Table.from_pylist([{"id": -1, "c": 1, "s": {"a": 111, "b": 1}}]), path)
    table.rename_column("s.a", "z")
    write(pa.Table.from_pylist([{"id": -2, "more": 1, "s": {"z": 222, "b": 1}}]), path, merge_schema=True)
    for column, old, kind in (("s.A", "s.a", "bigint"), ("c", "c", "bigint"), ("c", "c", "string"), ("more", "more", "bigint")):
        if column == old:
            table.drop_column(column)
        table.add_column(column, kind)
        for number in (5, -5):
            with pytest.raises(mc.errors.UsageError, match=rf"t\.refused, where .*Column '{column}' is.*rename_column"):
                write(pa.table({"id": [number]}), path)
        beside.rename_column(old, f"old{table.version}")
        write(pa.table({"id": [-4]}), path)
    kept = beside.to_arrow(filter="id = -1").to_pylist()[0]
    assert kept["s"]["A"] is None and 111 in kept["s"].values() and kept["c"] is None
    mc.write(pa.table({"id": [1], "c": [1.5], "more": [1]}), tmp_path / "second")  # whose rows go to the same place
    mc.Table(tmp_path / "second").add_constraint("known", "id > 0")
    mc.Table(tmp_path / "second").drop_column("c")
    write(pa.table({"id": [-9], "more": [9]}), tmp_path / "second", quarantine=beside.url)
    assert beside.to_arrow(["more"], filter="id = -9").to_pylist() == [{"more": 9}]


def test_another_table_takes_them_where_the_caller_says(path: Path, tmp_path: Path) -> None:
    """[CK7]"""
    write(rows(-2.0), path, quarantine=tmp_path / "elsewhere")
    assert found(tmp_path / "elsewhere") == [1]


def test_beside_the_root_of_a_bucket_is_no_place() -> None:
    """[CK7]"""
    for root in ("memory://refused-bucket", "memory://other-bucket/t"):
        mc.create_table(root, pa.schema({"n": pa.int64()}))
    with pytest.raises(mc.errors.UsageError, match="quarantine="):
        refused_beside("memory://refused-bucket", None, StorageOptions(None))
    assert refused_beside("memory://other-bucket/t", None, StorageOptions(None)) == "memory://other-bucket/t.refused"


@pytest.mark.parametrize(
    "options",
    [
        {"on_violation": "quarantine", "publish": False}, {"on_violation": "quarantine", "mode": "error"},
        {"on_violation": "quarantine", "based_on": 1}, {"max_violations": 1}, {"quarantine": "x"}, {"on_violation": "skip"},
        {"on_violation": "quarantine", "max_violations": 1.5}, {"on_violation": "quarantine", "max_violations": -1},
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(path: Path, options: dict[str, Any]) -> None:
    """[CK7] [SE3]"""
    with pytest.raises(mc.errors.UsageError):
        mc.write(rows(1.0), path, **options)
    assert mc.Table(path).version == 1


def test_a_column_that_the_quarantine_adds_is_refused(path: Path) -> None:
    """[CK7]"""
    with pytest.raises(mc.errors.UsageError, match="refused_by"):
        write(rows(1.0).append_column("refused_by", pa.array(["x"])), path, merge_schema=True)


def test_refused_rows_have_the_types_of_the_table(path: Path) -> None:
    """Not those of the first data; a column that is widened later is wider there, too. [CK7] [SC5]"""
    narrow = pa.table({"id": pa.array([1, 2], pa.int8()), "amount": pa.array([1, -2], pa.int16())})
    write(narrow, path)
    write(rows(-0.5, first=2**40), path)
    write(pa.table({"id": [7], "amount": [-1.0]}).append_column("n", pa.array([1], pa.int32())), path, merge_schema=True)
    write(pa.table({"id": [8], "amount": [-1.0]}).append_column("n", pa.array([2**40])), path, merge_schema=True)
    assert found(Path(f"{path}.refused")) == [2, 7, 8, 2**40]
    there = mc.Table(f"{path}.refused").schema
    assert (there.field("amount").type, there.field("n").type) == (pa.float64(), pa.int64())


def test_a_renamed_and_a_dropped_column_are_columns_of_their_own_there(path: Path) -> None:
    """What was refused before keeps its column. [CK7] [SC6]"""
    write(rows(-1.0), path)
    mc.Table(path).rename_column("id", "number")
    write(rows(-2.0).rename_columns(["number", "amount"]), path)
    there = mc.Table(f"{path}.refused").to_arrow(["id", "number", "amount"]).sort_by("amount").to_pylist()
    assert there == [{"id": None, "number": 1, "amount": -2.0}, {"id": 1, "number": None, "amount": -1.0}]


def test_a_null_in_a_column_that_takes_none_is_refused(tmp_path: Path) -> None:
    """[CK7] [SC3]"""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("odd name", pa.string())])
    mc.create_table(tmp_path / "t", columns)
    write(pa.table({"id": [1, None, 3], "odd name": ["x", "y", "z"]}), tmp_path / "t")
    assert found(tmp_path / "t") == [1, 3]
    kept = mc.Table(tmp_path / "t.refused").to_arrow(["odd name", "refused_by"]).to_pylist()
    assert kept == [{"odd name": "y", "refused_by": ["not_null_id"]}]


def test_what_a_constraint_says_of_such_a_column_is_one_violation(tmp_path: Path) -> None:
    """[CK7]"""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("odd name", pa.string())])
    mc.create_table(tmp_path / "t", columns, constraints={"known": "(id IS NOT NULL)"})
    write(pa.table({"id": [1, None], "odd name": ["x", "y"]}), tmp_path / "t")
    assert mc.Table(tmp_path / "t.refused").to_arrow(["refused_by"]).to_pylist() == [{"refused_by": ["known"]}]


def test_a_key_of_a_plain_write_is_no_key_of_such_a_one(path: Path) -> None:
    """[CK7] [KY8] [MT13]"""
    mc.write(rows(1.0), path, key="k")
    with pytest.raises(mc.errors.KeyReusedError):
        write(rows(1.0, -2.0), path, key="k")
    assert found(path) == [1] and found(Path(f"{path}.refused")) == []


def test_files_of_both_say_which_ranges_they_come_from(path: Path) -> None:
    """[CK7] [OB8]"""
    write(rows(1.0, -2.0), path, watermarks={"s": (0, 2)})
    for table in (path, f"{path}.refused"):
        (entry,) = mc.Table(table).snapshot().added
        assert [(each.source, each.start, each.end) for each in entry.sources] == [("s", 0, 2)]


def test_a_table_of_other_rows_is_no_quarantine(tmp_path: Path) -> None:
    """Its own rows would lie among the refused ones. [CK7]"""
    mc.write(pa.table({"id": [1]}), tmp_path / "t")
    mc.write(pa.table({"id": [1]}), tmp_path / "other")
    mc.Table(tmp_path / "t").add_constraint("positive", "id > 0")
    options: dict[str, Any] = {"on_violation": "quarantine", "key": "k"}
    with pytest.raises(mc.errors.UsageError, match="other is a table without refused_by"):
        mc.write(pa.table({"id": [-1]}), tmp_path / "t", quarantine=tmp_path / "other", **options)
    assert mc.Table(tmp_path / "other").version == 2
    mc.write(pa.table({"id": [-1]}), tmp_path / "t", quarantine=tmp_path / "its own", **options)
    assert mc.Table(tmp_path / "its own").to_arrow().num_rows == 1

"""Columns that hold no null: a constraint, whatever its name. [CK8]"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.cli.main import main as cli
from manifestcommit.gate import constraints
from manifestcommit.spark_sql import statements as sql

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("amount", pa.float64()), ("the day", pa.string())])


def rows(*amounts: float | None) -> pa.Table:
    return pa.table({"id": range(len(amounts)), "amount": list(amounts), "the day": ["a"] * len(amounts)}, schema=COLUMNS)


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    mc.create_table(tmp_path / "t", COLUMNS)
    mc.write(rows(1.0), tmp_path / "t")
    return mc.Table(tmp_path / "t")


def test_a_null_is_refused_as_by_any_constraint(table: mc.Table) -> None:
    """[CK8] [CK2]"""
    staged = mc.write(rows(None), table.url, publish=False)
    assert table.set_not_null("amount").version == 3
    assert table.constraints() == {"not_null_amount": "amount IS NOT NULL"} and "not_null_amount" in table.describe()["constraints"]
    for call in (staged.publish, lambda: mc.write(rows(1.0, None), table.url), lambda: table.update({"amount": "NULL"}, "id = 0")):
        with pytest.raises(mc.errors.ConstraintError, match="1 row violates the constraint 'not_null_amount'"):
            call()
    with pytest.raises(mc.errors.ConstraintError, match="not_null_amount"):
        mc.write(rows(1.0).drop_columns("amount"), table.url)
    assert table.drop_not_null("amount").version == 4
    assert staged.publish().committed


def test_rows_that_are_there_are_looked_at(table: mc.Table) -> None:
    """[CK8] [CK3]"""
    mc.write(rows(None, None), table.url)
    with pytest.raises(mc.errors.ConstraintError) as said:
        table.set_not_null("amount")
    assert said.value.violations == 2 and table.constraints() == {}


def test_what_holds_no_null_already_is_not_held_twice(table: mc.Table) -> None:
    """By the schema, by a constraint of another name, or of a name that the column had. [CK8]"""
    assert table.set_not_null("id").already_committed
    table.add_constraint("known", "`the day` is not null")
    assert table.set_not_null("the day").already_committed
    table.set_not_null("amount")
    table.rename_column("amount", "price")
    assert table.set_not_null("price").already_committed and table.constraints()["not_null_amount"] == "price IS NOT NULL"
    table.add_column("amount", "double")
    mc.write(pa.table({"id": [7], "amount": [1.0], "the day": ["b"], "price": [2.0]}), table.url, mode="overwrite")
    table.set_not_null("amount")
    field = next(each for each in table.describe()["columns"] if each["name"] == "amount")
    assert table.constraints()[f"not_null_{field['id']}"] == "amount IS NOT NULL"


def test_nulls_are_allowed_again_by_whatever_forbids_them(table: mc.Table) -> None:
    """[CK8] [SC5]"""
    table.set_not_null("the day")
    table.add_constraint("known", "`the day` IS NOT NULL")
    table.add_constraint("alike", "(( `the day` )  is  not null)")
    table.add_constraint("some", "`the day` IS NOT NULL OR id > 0")
    assert table.drop_not_null("the day").version == 7 and list(table.constraints()) == ["some"]
    assert not table.describe()["columns"][0]["nullable"]
    assert table.drop_not_null("id").version == 8 and table.describe()["columns"][0]["nullable"]
    for column in ("id", "amount"):
        assert table.drop_not_null(column).already_committed
    assert mc.write(pa.table({"id": [None], "amount": [None], "the day": ["c"]}, schema=table.schema), table.url).committed


@pytest.mark.parametrize("call", ["set_not_null", "drop_not_null"])
def test_what_is_no_column_is_refused(table: mc.Table, tmp_path: Path, call: str) -> None:
    """[CK8]"""
    with pytest.raises(mc.errors.UsageError, match="no column 'nope'"):
        getattr(table, call)("nope")
    mc.begin(tmp_path / "empty").commit()
    with pytest.raises(mc.errors.UsageError, match="no column 'id'; it has none"):
        getattr(mc.Table(tmp_path / "empty"), call)("id")


def test_refused_rows_name_it(table: mc.Table) -> None:
    """[CK7] [CK8]"""
    table.set_not_null("amount")
    mc.write(rows(1.0, None), table.url, on_violation="quarantine")
    assert mc.Table(f"{table.url}.refused").to_arrow(["refused_by"]).to_pylist() == [{"refused_by": ["not_null_amount"]}]


def test_iceberg_says_that_a_column_is_required(table: mc.Table) -> None:
    """As of each version; members of structs never. [CK8]"""

    def required() -> dict[str, bool]:
        table.export("iceberg")
        documents = sorted(
            Path(table.url.removeprefix("file://")).glob("_iceberg/**/*.metadata.json"), key=lambda each: each.stat().st_mtime_ns
        )
        found = json.loads(documents[-1].read_text())
        (schema,) = [each for each in found["schemas"] if each["schema-id"] == found["current-schema-id"]]
        return {each["name"]: each["required"] for each in schema["fields"]}

    assert required() == {"id": True, "amount": False, "the day": False}
    table.set_not_null("the day")
    assert required() == {"id": True, "amount": False, "the day": True}
    table.drop_not_null("the day")
    table.drop_not_null("id")
    assert required() == {"id": False, "amount": False, "the day": False}


def test_a_description_says_that_a_column_is_not_nullable(table: mc.Table, capsys: pytest.CaptureFixture[str]) -> None:
    """As of each version, by Python and on the command line; the schemas of Arrow and Spark say what data files do. [CK8]"""

    def nullable(version: int | None = None) -> dict[str, bool]:
        return {each["name"]: each["nullable"] for each in table.describe(version=version)["columns"]}

    before = table.version
    table.set_not_null("the day")
    assert nullable() == {"id": False, "amount": True, "the day": False} and nullable(before)["the day"]
    assert cli(["schema", table.url, "--json"]) == 0
    assert {each["name"]: each["nullable"] for each in json.loads(capsys.readouterr().out)} == nullable()
    assert all(field.nullable for field in (*table.schema, *table.to_arrow().schema))
    table.drop_not_null("the day")
    assert nullable()["the day"]


@pytest.mark.parametrize(("said", "method"), [("SET NOT NULL", "set_not_null"), ("drop not null", "drop_not_null")])
def test_a_statement_says_it(said: str, method: str) -> None:
    """[SP48] [CK8]"""
    wanted: Any = sql.Call(target=("t",), method=method, arguments=("c",))
    assert sql.parse(f"ALTER TABLE t ALTER COLUMN c {said}") == wanted
    with pytest.raises(mc.errors.UsageError, match="set_not_null"):
        sql.parse(f"ALTER TABLE t ALTER COLUMN c {said} NOW")


def test_a_proof_reads_a_renamed_column_by_its_name_of_now(table: mc.Table) -> None:
    """Of files that were written before it was renamed, and after. [CK3]"""
    mc.write(rows(-1.0, None), table.url)
    table.rename_column("amount", "price")
    table.add_column("amount", "double")
    mc.write(pa.table({"id": [5], "price": [-2.0], "the day": ["a"], "amount": [9.0]}), table.url)
    with pytest.raises(mc.errors.ConstraintError, match="price = -") as said:
        table.add_constraint("odd", "price > 0 OR id % 7 = 6")
    assert said.value.violations == 2
    with pytest.raises(mc.errors.ConstraintError) as said:
        table.set_not_null("price")
    assert said.value.violations == 1


def test_a_proof_begins_anew_where_its_name_is_another_column_by_then(table: mc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found to keep it held no null in the column that had the name. [CK3]"""
    proven, find = [], constraints.first_violation

    def slow(*given: Any) -> Any:
        found = find(*given)
        if not proven:
            table.rename_column("amount", "price")
            table.add_column("amount", "double")
            mc.write(pa.table({"id": [5], "price": [1.0], "the day": ["a"], "amount": [9.0]}), table.url)
        proven.append(found)
        return found

    monkeypatch.setattr(constraints, "first_violation", slow)
    with pytest.raises(mc.errors.ConstraintError) as said:
        table.add_constraint("known", "amount IS NOT NULL AND id % 7 < 7")  # which bounds leave open
    assert proven[0] is None and said.value.violations == 1 and table.constraints() == {}

"""Rows updated in this process, against DuckDB as the model. [RC7] [RC1]"""

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit.row_tables import content, copy, shown
from tests.kit.sizes import rest_thorough
from tests.kit.tables import table_with

import manifestcommit as mc
from manifestcommit.table import Table

UPDATES: list[tuple[dict[str, str], str]] = [
    ({"x": "x + 1"}, "id > 13"),
    ({"x": "NULL", "text": "'it''s'"}, "x > 1"),
    ({"dec": "dec * 2", "id": "id + 1"}, "NOT (id IN (1, 2))"),
    ({"text": "text || '-' || day"}, "text LIKE 'é%' OR id = 14"),
    ({"day": "text", "text": "day"}, "dec >= 0.15 AND text IS NOT NULL"),
    ({"day": "'k=v#x?'"}, "day IS NULL"),
    ({"x": "CASE WHEN id > 20 THEN dec ELSE x END"}, "true"),
]


@pytest.mark.parametrize(("values", "condition"), UPDATES)
@pytest.mark.parametrize("name", rest_thorough(["plain", "partitioned"], "partitioned"))
def test_exactly_the_rows_that_match_get_new_values(base: Any, tmp_path: Path, name: str, values: dict[str, str], condition: str) -> None:
    """Swapped columns see the row as it was, and rows of a changed partition column move. [RC7]"""
    table, data = copy(base, name, tmp_path)
    outcome = table.update(values, where=condition)
    columns = ", ".join(
        f"CASE WHEN {condition} THEN CAST({values[each]} AS {kind}) ELSE {each} END AS {each}" if each in values else each
        for each, kind in zip(data.column_names, ["VARCHAR", "BIGINT", "DOUBLE", "DECIMAL(9,2)", "VARCHAR", "INT"], strict=False)
    )
    with duckdb.connect() as con:  # a table of its own: filters that it hands on to Arrow treat NaN by Arrow's rules
        con.execute("CREATE TABLE model AS SELECT * FROM data")
        model = con.sql(f"SELECT {columns} FROM model").to_arrow_table().cast(data.schema)
        matching = con.sql(f"SELECT count(*) FROM model WHERE {condition}").fetchall()[0][0]
    assert content(table) == shown(model)
    assert (outcome.rows_updated, outcome.rows_deleted, outcome.rows_inserted, outcome.files_removed) == (matching, 0, 0, 0)
    assert outcome.executor == "arrow" and table.history(1)[0]["operation"] == "update"
    assert table.verify(deep=True).is_sound


def test_values_are_sql_expressions_or_values_of_python(base: Any, tmp_path: Path) -> None:
    """[RC7]"""
    table, _ = copy(base, "plain", tmp_path)
    values = {"text": pc.utf8_upper(pc.field("text")), "x": 7, "LATE": 5, "dec": Decimal("1.5"), "day": None}
    table.update(values, where=pc.field("id") == 11)
    assert table.to_arrow(filter=pc.field("id") == 11).to_pylist() == [
        {"day": None, "id": 11, "x": 7.0, "dec": Decimal("1.50"), "text": "É\U0001f600", "late": 5}
    ]
    assert table.update({"late": pc.field("id") + 1}, where="id = 12", dry_run=True).rows_updated == 1
    assert table.update({"late": pc.field("id") + 1}, where="id = 12").committed
    assert table.to_arrow(["late"], filter=pc.field("id") == 12).to_pylist() == [{"late": 13}]
    assert table.update({"late": 1}, where="id = 77").kind == "unchanged"


def test_what_is_not_selected_is_not_computed(tmp_path: Path) -> None:
    """A division by zero in a row that stays is nobody's concern. [RC7]"""
    table = table_with(pa.table({"n": [0, 2, None, 4, 0], "share": [0.5, 0.5, 0.5, 0.5, 0.5]}), tmp_path / "t")
    assert table.update({"share": "1 / n"}, where="n != 0").rows_updated == 2
    assert table.dataset().to_table().to_pylist() == [
        {"n": n, "share": share} for n, share in ((0, 0.5), (2, 0.5), (None, 0.5), (4, 0.25), (0, 0.5))
    ], "in the order that they had"
    with pytest.raises(mc.errors.UsageError, match=r"(?s)set .*share = 1 / n.* cannot be evaluated: divide by zero; nothing was done"):
        table.update({"share": "1 / n"})


def test_values_of_each_kind_come_where_the_row_is(tmp_path: Path) -> None:
    """Nested ones, too, and a value of another row's column; rows that stay keep theirs. [RC7]"""
    before = {
        "id": pa.array([1, 2, 3, 4]), "text": pa.array(["a", None, "c' ü", ""]), "other": pa.array(["x", "y", None, "w"]),
        "parts": pa.array([{"a": 1}, None, {"a": 3}, {"a": None}]), "more": pa.array([{"a": 10}, {"a": 20}, None, {"a": 40}]),
        "list": pa.array([[1], None, [], [4, None]]), "flag": pa.array([True, None, False, True]),
    }  # fmt: skip
    table = table_with(pa.table(before), tmp_path / "t")
    fields = {name: pc.field(name) for name in before}
    outcome = table.update({"text": "other", "parts": fields["more"], "flag": "NOT flag"}, where="id IN (2, 3)")
    assert outcome.rows_updated == 2
    model = pa.table(before).to_pylist()
    for row in model[1:3]:
        row |= {"text": row["other"], "parts": row["more"], "flag": None if row["flag"] is None else not row["flag"]}
    assert table.dataset().to_table().to_pylist() == model
    assert table.update({"flag": False, "text": "concat('n', `text`)"}).rows_updated == 4
    expected = [row | {"flag": False, "text": None if row["text"] is None else "n" + row["text"]} for row in model]
    assert table.dataset().to_table().to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "where", "says"),
    [
        ({}, None, "one or more columns"), ({"x": 1, "X": 2}, None, "each once"), ({"nope": 1}, None, "nope"),
        ({"x": "nope + 1"}, None, "nope"), ({"x": "late"}, "initcap(text) = 'x'", "(?s)invalid where.*without Spark"),
        ({"x": "rand()"}, None, "(?s)set 'x': 'rand.*without Spark"), ({"x": "text"}, None, "(?s)set 'x'.*string does not become a double"),
        ({"text": "late"}, None, "(?s)set 'text'"), ({"text": pc.field("id")}, None, "(?s)set 'text'.*int64.*Cast"),
        ({"text": object()}, None, "(?s)set 'text'"), ({"late": 1.5}, None, "(?s)set 'late'"), ({"late": 2**40}, None, "(?s)set 'late'"),
        ({"id": "x"}, "x = 1.5", "(?s)cannot be evaluated.*truncated"), ({"dec": "dec * dec"}, "id = 15", "(?s)cannot be evaluated"),
        ({"late": "id * 1000000000"}, "id = 15", "(?s)cannot be evaluated"), ({"x": pc.field("nope")}, None, "nope"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_refused_and_nothing_is_committed(base: Any, tmp_path: Path, values: Any, where: Any, says: str) -> None:
    """A text for a number, digits that would be lost, an overflow. [RC7]"""
    table, data = copy(base, "plain", tmp_path)
    with pytest.raises(mc.errors.UsageError, match=says):
        table.update(values, where=where)
    assert content(table) == shown(data)


D62, D3830 = pa.decimal128(6, 2), pa.decimal128(38, 30)
LOSSES: list[tuple[pa.DataType, Any, Any]] = [
    (D62, pa.scalar(1.678), "given"), (D62, pa.scalar(0.01), "given * 1.5D"), (D62, pa.scalar(1.0), 0.005), (D62, pa.scalar(1.0), 1.005),
    (D62, pa.scalar(1.0), "0.005D"), (D62, pa.scalar(1.0), pc.scalar(0.005)), (D62, pa.scalar(10_000), "given"),
    (D62, pa.scalar(9_999), "given + 1"), (D62, pa.scalar(10_000), pc.field("given")), (D62, pa.scalar(Decimal("0.005")), "given"),
    (D62, pa.scalar(1), float("nan")), (D3830, pa.scalar(2**63 - 1), "given"), (pa.int8(), pa.scalar(128), "given"),
    (pa.int32(), pa.scalar(Decimal("1.5")), "given"), (pa.int64(), pa.scalar(1.5), "given"),
    (pa.int64(), pa.scalar(2.0**63), pc.field("given")), (pa.int64(), pa.scalar(1), 2.5), (pa.float64(), pa.scalar(2**53 + 1), "given"),
    (pa.float64(), pa.scalar(Decimal("12345678901234567.89")), "given"), (pa.float64(), pa.scalar(1), 2**53 + 1),
    (pa.float32(), pa.scalar(2**24 + 1), "given"), (pa.float32(), pa.scalar(0.1), "given"),
    (pa.float32(), pa.scalar(0.1), pc.field("given")), (pa.float32(), pa.scalar(1), 1e300), (pa.float32(), pa.scalar(1), 1.23456789012),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "value"), LOSSES, ids=str)
def test_a_number_that_would_change_is_refused(tmp_path: Path, kind: pa.DataType, given: pa.Scalar, value: Any) -> None:
    """Digits, range and precision: by update and by the clauses of a merge. [RC7] [RC9]"""
    rows = pa.table({"id": [1], "given": pa.array([given.as_py()], given.type), "set": pa.array([None], kind)})
    table = table_with(rows, tmp_path / "t")
    with pytest.raises(mc.errors.UsageError, match=r"(?is)set .*nothing was done"):
        table.update({"set": value})
    source = rows.select(["id", "given"])
    values = value
    if isinstance(value, str):
        values = value.replace("given", "source.given")
    elif str(value) == "given":
        values = pc.field("source.given")
    with pytest.raises(mc.errors.UsageError, match=r"(?is)set .*nothing was done"):
        table.merge(source, on="id", when_matched=mc.Update(set={"set": values}), when_not_matched=None)
    assert table.version == 2


KEPT: list[tuple[pa.DataType, Any, Any, Any]] = [
    (D62, pa.scalar(0.1), "given", Decimal("0.10")), (D62, pa.scalar(0), 0.01, Decimal("0.01")), (D62, pa.scalar(0), 0, Decimal("0.00")),
    (D62, pa.scalar(0), "0", Decimal("0.00")), (D62, pa.scalar(-9_999, pa.int32()), "given", Decimal("-9999.00")),
    (D62, pa.scalar(7), "cast(given AS decimal(6,2))", Decimal("7.00")), (D62, pa.scalar(7), pc.field("given"), Decimal("7.00")),
    (D3830, pa.scalar(12_345_678), "given", Decimal("12345678")), (pa.float32(), pa.scalar(0), 0.1, 0.10000000149011612),
    (pa.float32(), pa.scalar(Decimal("0.1")), "given", 0.10000000149011612),
    (pa.float64(), pa.scalar(Decimal("12345678901234.56")), "given", 12345678901234.56), (pa.int8(), pa.scalar(2.0), "given * 2", 4),
    (pa.int32(), pa.scalar(Decimal("5.00")), "given", 5), (pa.string(), pa.scalar("a", pa.string_view()), pc.field("given"), "a"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "value", "expected"), KEPT, ids=str)
def test_a_number_that_stays_the_same_is_taken(tmp_path: Path, kind: pa.DataType, given: pa.Scalar, value: Any, expected: Any) -> None:
    """Whatever the types are: a whole number wherever its digits have room. [RC7]"""
    table = table_with(pa.table({"given": pa.array([given.as_py()], given.type), "set": pa.array([None], kind)}), tmp_path / "t")
    assert table.update({"set": value}).rows_updated == 1
    assert table.to_arrow()["set"].to_pylist() == [expected]


def test_a_null_for_a_column_that_has_none_is_refused(tmp_path: Path) -> None:
    """[RC7] [DF3]"""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    mc.create_table(tmp_path / "t", schema)
    mc.write(pa.table({"id": [1, 2], "v": [None, 5]}, schema=schema), tmp_path / "t")
    with pytest.raises(mc.errors.SchemaMismatchError, match="id"):
        Table(tmp_path / "t").update({"id": "v"})
    assert Table(tmp_path / "t").update({"id": "v"}, where="v IS NOT NULL").rows_updated == 1

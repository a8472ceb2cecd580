"""Columns widened and commented by operations of their own. [SC5] [SC9]"""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.format.fields import from_spark, to_spark
from manifestcommit.table import Table

NAME = "a b%20+=#'\"é漢"


def comments(table: Table) -> dict[str, str]:
    return {each["name"]: each["comment"] for each in table.describe()["columns"] if each["comment"] is not None}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Partitioned by a number that widens, too."""
    columns = {
        "part": pa.array([1, None], pa.int8()), NAME: pa.array([7, None], pa.int32()), "f": pa.array([0.1, None], pa.float32()),
        "d": pa.array([Decimal("1.5"), None], pa.decimal128(3, 1)), "s": pa.array(["x", None]),
    }  # fmt: skip
    mc.write(pa.table(columns), tmp_path / "t", partition_by="part")
    return Table(tmp_path / "t")


@pytest.mark.parametrize(
    ("name", "to", "kind"),
    [
        (NAME, "long", pa.int64()), (NAME.upper(), pa.int64(), pa.int64()), ("part", "integer", pa.int32()),
        ("f", pa.float64(), pa.float64()), ("d", "decimal(12,1)", pa.decimal128(12, 1)),
    ],
)  # fmt: skip
def test_a_column_widens_and_no_value_changes(table: Table, name: str, to: Any, kind: pa.DataType) -> None:
    """Files stay; data of the old type still fits, and such of the new one does without `merge_schema`. [SC5]"""
    files, rows, before = table.files()["path"].to_pylist(), table.to_arrow(), table.version
    job = mc.begin(table.url)
    job.write(rows)
    outcome = table.noting("wider").widen_column(name, to)
    assert outcome.committed and (outcome.version, table.history(1)[0]["message"]) == (before + 1, "wider")
    (field,) = (each for each in table.schema if each.name.lower() == name.lower())
    assert field.type == kind and table.files()["path"].to_pylist() == files
    assert table.to_arrow().cast(rows.schema).sort_by(NAME).equals(rows.sort_by(NAME)), "each value as it was"
    assert table.to_arrow(version=before).schema.equals(rows.schema)
    assert job.commit().committed, "files of the narrower type still fit [CF8]"
    mc.write(table.to_arrow(), table.url)
    assert table.to_arrow().num_rows == 8 and table.verify(deep=True).is_sound
    assert table.delete("part = 1").rows_deleted == 4
    again = table.widen_column(name, to)
    assert again.already_committed and table.version == again.version


def test_a_write_that_would_change_a_type_says_which_operation_does(table: Table) -> None:
    """[SC3]"""
    for data, ways in (
        ({"part": pa.array([1], pa.int8()), NAME: pa.array([1 << 40])}, [repr(NAME), "merge_schema=True", "widen_column(", "'long')"]),
        ({"part": pa.array([1], pa.int8()), "s": [1.5]}, ["drop_column, add_column"]),
        ({"part": pa.array([1], pa.int8()), "new": [1]}, ["merge_schema=True, or add_column"]),
    ):
        with pytest.raises(mc.errors.SchemaMismatchError) as caught:
            mc.write(pa.table(data), table.url)
        assert all(way in str(caught.value) for way in ways), caught.value
    table.widen_column(NAME, "long")
    assert mc.write(pa.table({"part": pa.array([1], pa.int8()), NAME: pa.array([1 << 40])}), table.url).committed


def test_a_comment_stays_with_its_column(table: Table) -> None:
    """Through a rename, a widening and a write; None removes it. Spark has it where it keeps its own. [SC9] [SC6]"""
    text = "minutes, at arrival: 'é' \"%+=#\" <b>漢</b>\nline 2"
    assert table.comment_column(NAME.upper(), text).committed and comments(table) == {NAME: text}
    assert table.comment_column(NAME, text).already_committed
    table.rename_column(NAME, "late")
    table.widen_column("late", "long")
    mc.write(table.to_arrow(), table.url)
    assert comments(table) == {"late": text} and table.schema.field("late").metadata is None
    spark = json.loads(json.dumps(to_spark(table.snapshot().schema, physical=False)))
    assert [each["metadata"] for each in spark["fields"] if each["name"] == "late"] == [{"comment": text}]
    assert {each.name: each.metadata for each in from_spark(spark).fields}["late"] == {"comment": text}
    assert table.comment_column("late", "other").committed and comments(table) == {"late": "other"}
    assert table.comment_column("late", None).committed and comments(table) == {}
    assert [each["operation"] for each in table.history(2)] == ["schema", "schema"] and table.verify(deep=True).is_sound


@pytest.mark.parametrize(
    ("name", "comment", "says"),
    [
        ("nope", "x", "no column 'nope'"), ("s", "\x1b[31m", "comment"), ("s", "x" * 2001, "comment"), ("s", 7, "comment"),
        ("s", "", "comment"), ("s", "password=hunter2hunter2", "comment"),
    ],
)  # fmt: skip
def test_a_comment_that_is_none_is_refused(table: Table, name: str, comment: Any, says: str) -> None:
    """What a terminal would act upon, and what looks like a credential. [SC9] [SE5]"""
    before = table.version
    with pytest.raises(mc.errors.UsageError, match=says):
        table.comment_column(name, comment)
    assert table.version == before


NUL = "a\0b"
WITH_NUL: dict[str, Callable[[], Any]] = {
    "arrow": lambda: pa.table({NUL: [1]}),
    "batches": lambda: pa.table({NUL: [1]}).to_reader(),
    "member": lambda: pa.table({"s": [{NUL: 1}]}),
    "pandas": lambda: pd.DataFrame({NUL: [1]}),
    "pandas member": lambda: pd.DataFrame({"s": [{NUL: 1}]}),
    "polars": lambda: pl.DataFrame({NUL: [1]}),
    "polars member": lambda: pl.DataFrame({"s": [[{NUL: 1}]]}),
}


@pytest.mark.parametrize("make", WITH_NUL.values(), ids=WITH_NUL)
def test_a_name_with_a_nul_is_refused_not_cut(tmp_path: Path, make: Callable[[], Any]) -> None:
    """Arrow's C interface ends a name there. [SC1]"""
    with pytest.raises(mc.errors.SchemaMismatchError, match=r"'a\\x00b' has the character NUL.*Rename"):
        mc.write(make(), tmp_path / "t")


PASSWORD = "postgresql://u:hunter2@h/x"


@pytest.mark.parametrize(
    "call",
    [
        lambda table, value: table.add_column("a", "int", default=value),
        lambda table, value: table.add_column("a", "int", default=value.encode()),
        lambda table, value: table.add_column("a", "array<int>", default=[value]),
        lambda table, value: table.add_column("a", "map<string, int>", default={value: 1, "b": value}),
        lambda table, value: table.add_column("a", value),
        lambda table, value: table.update({"d": f"'{value}'"}),
        lambda table, value: table.delete(value),
        lambda table, value: table.drop_column(value),
        lambda table, value: table.set_properties({"layout.sort-by": value}),
        lambda table, value: table.set_properties({"write.row-change-tries": value}),
        lambda table, value: table.add_constraint("x", f"d > '{value}'"),
    ],
)
def test_no_error_repeats_a_value_with_a_credential(table: Table, call: Callable[[Table, str], Any]) -> None:
    """[SE1]"""
    with pytest.raises(mc.errors.UsageError) as error:
        call(table, PASSWORD)
    assert "hunter2" not in str(error.value)

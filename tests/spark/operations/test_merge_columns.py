"""Merges and overwrites with Spark that change the table's columns, and their keys; the same as without:
tests/rows/test_merge_columns.py. [RC12] [RC3] [RC8]"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.row_tables import path as path
from tests.kit.row_works import before_its_create

import manifestcommit as mc

SOURCE = "id long, v long, s struct<a: long, b: string>, extra string"
ROWS = [(1, 10, (5, "x"), "e"), (3, 2**40, (6, None), "f")]
ALL = [(1, 10, "e", (5, "x")), (2, 2, None, (2, None)), (3, 2**40, "f", (6, None)), (9, 1, None, (1, None))]
TAKE: dict[str, Any] = {"when_matched": mc.Update(), "when_not_matched": mc.Insert()}


def rows(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    found = mc.Table(path).to_arrow().select(list(columns)).to_pylist()
    return sorted((tuple(tuple(v.values()) if isinstance(v, dict) else v for v in row.values()) for row in found), key=str)


@pytest.mark.thorough
@pytest.mark.parametrize("clauses", [{}, TAKE], ids=["rows", "clauses"])
def test_columns_change_with_the_rows_also_where_others_were_faster(
    spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch, clauses: dict[str, Any]
) -> None:
    """[RC12] [RC11]"""
    df, table = spark.createDataFrame(ROWS, SOURCE), mc.Table(path)
    one = pa.table({"id": pa.array([50], pa.int32()), "v": pa.array([0], pa.int32())})
    with before_its_create(monkeypatch, lambda: mc.write(one, path)):
        outcome = table.merge(df, on="id", merge_schema=True, **clauses)
    assert (outcome.rows_updated, outcome.rows_inserted, outcome.executor, outcome.tries) == (1, 1, "spark", 2)
    assert [row for row in rows(path, "id", "v", "extra", "s") if row[0] != 50] == ALL
    assert table.verify(deep=True).is_sound
    data = spark.createDataFrame([(2, 5, "more")], "id long, v long, more string")
    assert table.overwrite_where(data, "id = 2", merge_schema=True).rows_deleted == 1
    assert [row for row in rows(path, "id", "more") if row[1]] == [(2, "more")]


@pytest.mark.thorough
@pytest.mark.parametrize("clauses", [{}, TAKE], ids=["rows", "clauses"])
def test_keys_of_other_names_and_nulls_and_the_last_row(spark: Any, tmp_path: Path, clauses: dict[str, Any]) -> None:
    """[RC3]"""
    path = tmp_path / "t"
    mc.write(pa.table({"a": ["x", None, None], "b": [1, 1, None], "v": [1, 2, 3]}), path)
    given = [(None, 1, 19, 1), (None, 1, 20, 2), (None, None, 30, 1), ("y", None, 40, 1)]
    df, table = spark.createDataFrame(given, "k string, b long, v long, ts long"), mc.Table(path)
    source = df if clauses else df.select("k", "b", "v")
    keyed: dict[str, Any] = {"on": {"a": "k", "b": "b"}, "null_safe": True, **clauses}
    with pytest.raises(mc.errors.UsageError, match=r"2 rows with the key a=None.*keep=.last., by="):
        table.merge(source, **keyed)
    keep: dict[str, Any] = {"keep": "last", "by": "ts" if clauses else "v"}
    for times in range(2):
        outcome = table.merge(source, **keyed, **keep)
        assert (outcome.rows_updated, outcome.rows_inserted) == ((2, 1) if not times else (3, 0))
        assert rows(path, "a", "b", "v") == [("x", 1, 1), ("y", None, 40), (None, 1, 20), (None, None, 30)]
    outcome = table.merge(source, **{**keyed, "null_safe": ["a"]}, **keep)
    assert (outcome.rows_updated, outcome.rows_inserted) == (1, 2)

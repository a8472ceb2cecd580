"""Merges and overwrites that change the table's columns in the same commit, and keys with other names, nulls and several rows. [RC12]
[RC3]"""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.row_tables import path as path
from tests.kit.row_works import before_its_create

import manifestcommit as mc


def rows(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in mc.Table(path).to_arrow().select(list(columns)).to_pylist()), key=str)


NEW = pa.table({"id": pa.array([1, 3], pa.int64()), "v": [10, 2**40], "s": [{"a": 5, "b": "x"}, {"a": 6, "b": None}], "extra": ["e", "f"]})


def test_a_merge_adds_columns_and_members_and_widens_types_in_its_one_commit(path: Path) -> None:
    """Rows that stay read null there, also those of files that are not rewritten. [RC12] [SC5]"""
    table = mc.Table(path)
    before = table.snapshot().version
    with pytest.raises(mc.errors.SchemaMismatchError, match="merge_schema=True"):
        table.merge(NEW, on="id")
    outcome = table.merge(NEW, on="id", merge_schema=True)
    assert (outcome.rows_updated, outcome.rows_inserted, outcome.version) == (1, 1, before + 1)
    none = {"a": 2, "b": None}
    assert rows(path, "id", "v", "extra", "s") == [
        (1, 10, "e", {"a": 5, "b": "x"}),
        (2, 2, None, none),
        (3, 2**40, "f", {"a": 6, "b": None}),
        (9, 1, None, {"a": 1, "b": None}),
    ]
    schema = table.to_arrow().schema
    assert schema.field("id").type == pa.int64() and schema.field("v").type == pa.int64()
    assert table.to_arrow(version=before).column_names == ["id", "v", "s"]
    assert table.verify(deep=True).is_sound


def test_only_columns_that_clauses_write_change_the_table(path: Path) -> None:
    """[RC12] [RC9]"""
    table = mc.Table(path)
    source = NEW.append_column("op", pa.array(["u", "i"]))
    update, insert = mc.Update(set={"extra": "source.extra"}, where="op = 'u'"), mc.Insert(values={"id": "source.id"}, where="op = 'i'")
    table.merge(source, on="id", merge_schema=True, when_matched=update, when_not_matched=insert)
    assert rows(path, "id", "v", "extra") == [(1, 1, "e"), (2, 2, None), (3, None, None), (9, 1, None)]
    assert table.to_arrow().schema.field("v").type == pa.int32() and "op" not in table.to_arrow().column_names
    table.merge(source, on="id", when_matched=mc.Update(), when_not_matched=None, merge_schema=True)
    assert rows(path, "id", "v", "op") == [(1, 10, "u"), (2, 2, None), (3, 2**40, "i"), (9, 1, None)]


def test_an_update_in_a_merge_that_lacks_columns_binds_no_other(tmp_path: Path) -> None:
    """A column that may not be null stays so where the source does not have it. [RC12] [RC9]"""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("must", pa.string(), nullable=False)])
    table = mc.create_table(tmp_path / "t", schema)
    mc.write(pa.table({"id": [1], "must": ["m"]}, schema), tmp_path / "t")
    source = pa.table({"id": [1], "new": ["n"]}, pa.schema([schema.field("id"), ("new", pa.string())]))
    table.merge(source, on="id", when_matched=mc.Update(), when_not_matched=None, merge_schema=True)
    assert table.to_arrow().to_pylist() == [{"id": 1, "must": "m", "new": "n"}]
    assert [field.nullable for field in table.snapshot().schema.fields] == [False, False, True]


def test_an_overwrite_by_a_condition_adds_columns_that_it_may_name(path: Path) -> None:
    """[RC12] [RC10]"""
    table = mc.Table(path)
    data = NEW.slice(0, 1)
    with pytest.raises(mc.errors.SchemaMismatchError):
        table.overwrite_where(data, "id = 1")
    outcome = table.overwrite_where(data, "id = 1 AND (extra IS NULL OR extra = 'e')", merge_schema=True)
    assert (outcome.rows_deleted, outcome.rows_inserted) == (1, 1)
    assert rows(path, "id", "v", "extra") == [(1, 10, "e"), (2, 2, None), (9, 1, None)]


def test_a_change_of_columns_alone_is_a_commit(path: Path) -> None:
    """[RC12] [RC6]"""
    table = mc.Table(path)
    version = table.snapshot().version
    nobody = NEW.set_column(0, "id", pa.array([77, 78]))
    outcome = table.merge(nobody, on="id", when_not_matched=None, merge_schema=True)
    assert (outcome.kind, outcome.version) == ("committed", version + 1) and "extra" in table.to_arrow().column_names
    assert table.merge(nobody, on="id", when_not_matched=None, merge_schema=True).kind == "unchanged"


def test_rows_that_only_got_columns_are_no_changed_rows(path: Path) -> None:
    """[RC12] [CH1]"""
    table = mc.Table(path)
    version = table.snapshot().version
    table.merge(NEW.slice(0, 1), on="id", merge_schema=True)
    changed = table.changed_rows(version).read_all()
    assert sorted(zip(changed["id"].to_pylist(), changed["extra"].to_pylist(), strict=True), key=str) == [(1, "e"), (1, None)]


def test_what_others_add_meanwhile_is_theirs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same column by another commit conflicts; another one does not, and the merge is done again beside it. [RC12] [RC11] [CF8]"""
    table, other = mc.Table(path), mc.Table(path)
    with (
        before_its_create(monkeypatch, lambda: other.add_column("extra", "string")),
        pytest.raises(mc.errors.CommitConflictError, match="schema"),
    ):
        table.merge(NEW, on="id", merge_schema=True)
    more = NEW.append_column("more", pa.array([1, 2]))
    one = pa.table({"id": pa.array([50], pa.int32())})
    with before_its_create(monkeypatch, lambda: mc.write(one, path)):
        assert table.merge(more, on="id", merge_schema=True).tries == 2
    assert [row for row in rows(path, "id", "more") if row[1] is not None] == [(1, 1), (3, 2)]


# --- keys ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("simple", [True, False])
def test_keys_may_have_other_names_in_the_source(path: Path, simple: bool) -> None:
    """[RC3] [RC9]"""
    source = pa.table({"v": pa.array([10, 30], pa.int32()), "source_id": pa.array([1, 3], pa.int32()), "s": [{"a": 0}, {"a": 0}]})
    clauses: dict[str, Any] = {} if simple else {"when_matched": mc.Update(), "when_not_matched": mc.Insert()}
    outcome = mc.Table(path).merge(source, on={"id": "source_id"}, key="k", **clauses)
    assert (outcome.rows_updated, outcome.rows_inserted) == (1, 1)
    assert rows(path, "id", "v") == [(1, 10), (2, 2), (3, 30), (9, 1)]
    with pytest.raises(mc.errors.KeyReusedError):
        mc.Table(path).merge(source.rename_columns(["v", "id", "s"]), on="id", key="k", **clauses)


def test_clauses_name_the_sources_column_as_it_is_called(path: Path) -> None:
    """Also where another column of the source has the key's name. [RC9]"""
    source = pa.table({"source_id": pa.array([1, 3], pa.int32()), "id": ["one", "three"], "n": [7, 8]})
    update, insert = mc.Update(set={"v": "source.n"}), mc.Insert(values={"id": "source.source_id", "v": "length(source.id)"})
    mc.Table(path).merge(source, on={"id": "SOURCE_ID"}, when_matched=update, when_not_matched=insert)
    assert rows(path, "id", "v") == [(1, 7), (2, 2), (3, 5), (9, 1)]
    with pytest.raises(mc.errors.UsageError, match="besides 'source_id'"):
        mc.Table(path).merge(source, on={"id": "source_id"}, when_matched=mc.Update())
    with pytest.raises(mc.errors.SchemaMismatchError, match="no column 'nowhere'"):
        mc.Table(path).merge(source, on={"id": "nowhere"})
    with pytest.raises(mc.errors.UsageError):
        mc.Table(path).merge(source, on={"id": "source_id", "v": "source_id"})


@pytest.mark.parametrize("clauses", [{}, {"when_matched": mc.Update(), "when_not_matched": mc.Insert()}])
@pytest.mark.parametrize("parted", [None, "a"])
def test_a_null_is_equal_to_a_null_where_that_is_said(root: Path, clauses: dict[str, Any], parted: str | None) -> None:
    """Of each column by itself; files without a null are not read for one. [RC3] [CF16]"""
    base = pa.table({"a": ["x", None, None], "b": [1, 1, None], "v": [1, 2, 3]})
    for at in range(3):
        mc.write(base.slice(at, 1), root, partition_by=parted)
    table = mc.Table(root)
    source = pa.table({"a": pa.array([None, None, "y"], pa.string()), "b": [1, None, None], "v": [20, 30, 40]})
    for times in range(2):
        outcome = table.merge(source, on=["a", "b"], null_safe=True, **clauses)
        assert (outcome.rows_updated, outcome.rows_inserted) == ((2, 1) if not times else (3, 0))
        assert rows(root, "a", "b", "v") == [("x", 1, 1), ("y", None, 40), (None, 1, 20), (None, None, 30)]
    outcome = table.merge(source, on=["a", "b"], null_safe="a", **clauses)
    assert (outcome.rows_updated, outcome.rows_inserted) == (1, 2)
    with pytest.raises(mc.errors.UsageError, match="the source has 2 rows with the key a=None"):
        table.merge(pa.table({"a": pa.nulls(2, pa.string()), "b": [1, 1], "v": [1, 2]}), on=["a", "b"], null_safe=True)
    with pytest.raises(mc.errors.UsageError, match="null_safe"):
        table.merge(source, on="a", null_safe=["b"])


def test_a_merge_of_null_keys_has_read_the_partition_of_null(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[RC3] [CF16] [RC11]"""
    source = pa.table({"a": pa.array([None], pa.string()), "v": [1]})
    mc.write(pa.table({"a": ["x"], "v": [0]}), root, partition_by="a")
    with before_its_create(monkeypatch, lambda: mc.write(source, root)):
        assert mc.Table(root).merge(source, on="a", null_safe=True).tries == 2
    assert rows(root, "a", "v") == [("x", 0), (None, 1)]


def test_the_last_row_of_a_key_counts_where_that_is_said(path: Path) -> None:
    """By a column that the table need not have; two that are last are refused. [RC3] [RC4]"""
    table = mc.Table(path)
    stamps = ["2026-01-02", "2026-01-03", None, "2026-01-01", "2026-01-01"]
    source = pa.table(
        {"id": pa.array([1, 1, 1, 3, None], pa.int32()), "v": pa.array([10, 11, 12, 30, 40], pa.int32()), "ts": stamps, "op": ["u"] * 5}
    )
    take: dict[str, Any] = {"when_matched": mc.Update(), "when_not_matched": mc.Insert()}
    with pytest.raises(mc.errors.UsageError, match=r"the source has 3 rows with the key id=1.*keep=.last., by="):
        table.merge(source, on="id", **take)
    outcome = table.merge(source, on="id", keep="last", by="ts", **take)
    assert (outcome.rows_updated, outcome.rows_inserted) == (1, 2)
    assert rows(path, "id", "v") == [(1, 11), (2, 2), (3, 30), (9, 1), (None, 40)]
    ties = source.set_column(2, "ts", pa.array([1, 1, 0, 5, 5]))
    with pytest.raises(mc.errors.UsageError, match="the source has 2 rows with the key id=1"):
        table.merge(ties, on="id", keep="last", by="ts", **take)
    for wrong, error in (({"keep": "last"}, "go together"), ({"by": "ts"}, "go together"), ({"keep": "first", "by": "ts"}, "keep")):
        with pytest.raises(mc.errors.UsageError, match=error):
            table.merge(source, on="id", **wrong, **take)
    with pytest.raises(mc.errors.UsageError, match="by: the column 'ts' has the type double"):
        table.merge(source.set_column(2, "ts", pa.array([1.0] * 5)), on="id", keep="last", by="ts", **take)
    with pytest.raises(mc.errors.SchemaMismatchError, match="'nowhere'"):
        table.merge(source, on="id", keep="last", by="nowhere", **take)


def test_whole_rows_need_no_column_that_says_which_is_last(tmp_path: Path) -> None:
    """Unless the table gets it. [RC3] [RC12]"""
    mc.write(pa.table({"id": [1, 2], "v": [1, 2]}), tmp_path / "t")
    table, source = mc.Table(tmp_path / "t"), pa.table({"id": [1, 1, 3], "v": [10, 11, 30], "ts": [5, 6, 1]})
    table.merge(source, on="id", keep="last", by="ts")
    assert sorted(map(tuple, map(dict.values, table.to_arrow().to_pylist()))) == [(1, 11), (2, 2), (3, 30)]
    with pytest.raises(mc.errors.SchemaMismatchError, match="does not have: 'op'"):
        table.merge(source.append_column("op", [["u"] * 3]), on="id", keep="last", by="ts")
    table.merge(source, on="id", keep="last", by="ts", merge_schema=True)
    assert table.to_arrow(["ts"], filter="id = 1").to_pylist() == [{"ts": 6}]


def test_a_condition_beside_the_key_decides_who_belongs_together(tmp_path: Path) -> None:
    """Without clauses, rows are not taken as a whole; a key of a commit declares the condition. [RC3] [RC6]"""
    mc.write(pa.table({"id": [1, 2, 3], "v": [1, 2, 3], "at": [1, 9, 1]}), tmp_path / "t")
    table, source = mc.Table(tmp_path / "t"), pa.table({"id": [1, 2], "v": [10, 20], "at": [5, 5]})
    outcome = table.merge(source, on="id", where="target.at < source.at", when_not_matched=None, key="k")
    assert (outcome.rows_updated, outcome.rows_inserted) == (1, 0)
    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "v": 10, "at": 5},
        {"id": 2, "v": 2, "at": 9},
        {"id": 3, "v": 3, "at": 1},
    ]
    with pytest.raises(mc.errors.KeyReusedError):
        table.merge(source, on="id", where="target.at > source.at", when_not_matched=None, key="k")
    for wrong in ("target.nowhere = 1", "source.at", "at = 1", "target.at"):
        with pytest.raises(mc.errors.UsageError):
            table.merge(source, on="id", where=wrong)
    late = table.merge(source, on="id", where="target.at < source.at", when_matched=None)
    assert (late.rows_inserted, table.to_arrow(filter="id = 2").num_rows) == (2, 2)


def test_the_last_row_of_a_null_key_counts_where_nulls_are_equal(root: Path) -> None:
    """[RC3]"""
    mc.write(pa.table({"a": pa.array([None], pa.string()), "d": [Decimal("1.0")], "v": [0]}), root)
    source = pa.table(
        {"a": pa.array([None, None, "x"], pa.string()), "d": [Decimal("2.0"), Decimal("3.0"), Decimal("1.0")], "v": [1, 2, 3]}
    )
    mc.Table(root).merge(source, on="a", null_safe=True, keep="last", by="d")
    assert rows(root, "a", "v") == [("x", 3), (None, 2)]

"""The whole MERGE in this process, against DuckDB's as the model. [RC9] [RC3]"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.faults.row_changes import begin_merge
from tests.kit.footers import parquet_bytes
from tests.kit.row_tables import CLAUSE_MERGES, SOURCE, content, copy, merged_by_clauses, shown
from tests.kit.sizes import rest_thorough, tuned
from tests.kit.tables import begin, check_table, memory, read_ids, rows, table_with, write

import manifestcommit as mc
from manifestcommit.errors import CommitConflictError, ManifestCommitError
from manifestcommit.log.version_chain import open_head
from manifestcommit.rows import find
from manifestcommit.rows import row_change as rewrite
from manifestcommit.rows.clauses import Clauses
from manifestcommit.runtime.environment import Tuning
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.testing.faults import FaultStore


@pytest.mark.parametrize("case", CLAUSE_MERGES)
@pytest.mark.parametrize("name", rest_thorough(["plain", "partitioned"], "partitioned"))
def test_it_leaves_what_duckdb_leaves(base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, case: str) -> None:
    """Null keys, rows that move to another partition, columns that only the source has. [RC9] [RC3]"""
    monkeypatch.setattr(rewrite, "_BATCH_ROWS", 3)
    table, data = copy(base, name, tmp_path)
    arguments, sql = CLAUSE_MERGES[case]
    monkeypatch.setattr(find, "_FEW_KEYS", 0)
    with tuned(Tuning(read_once_bytes=0 if name == "partitioned" else 1 << 20)):
        outcome = table.merge(SOURCE, on="ID", **arguments)
    expected = merged_by_clauses(data, sql)
    assert content(table) == shown(expected)
    assert outcome.committed and (outcome.executor, table.history(1)[0]["operation"]) == ("arrow", "merge")
    assert len(data) + outcome.rows_inserted - outcome.rows_deleted == len(expected)
    assert table.verify(deep=True).is_sound


def test_a_pyarrow_expression_names_both_sides(base: Any, tmp_path: Path) -> None:
    """[RC9]"""
    table, _ = copy(base, "plain", tmp_path)
    source = pa.table({"id": [1, 2, 3], "plus": [10.0, 20.0, 30.0]})
    clause = mc.Update(set={"x": pc.field("target.x") + pc.field("source.plus")}, where=pc.field("source.plus") > 15)
    assert table.merge(source, on="id", when_matched=clause, when_not_matched=None).rows_updated == 2
    assert table.to_arrow(["id", "x"], filter=pc.field("id") < 4).to_pylist()[1:] == [
        {"id": 1, "x": -0.0},
        {"id": 2, "x": None},
        {"id": 3, "x": 31.5},
    ]


def test_an_empty_source_deletes_all_or_nothing(base: Any, tmp_path: Path) -> None:
    """[RC9]"""
    table, data = copy(base, "plain", tmp_path)
    none = SOURCE.slice(0, 0)
    assert table.merge(none, on="id", when_matched=mc.Update()).kind == "unchanged"
    assert table.merge(none, on="id", when_not_matched_by_source=mc.Delete(where="id < 5")).rows_deleted == 5
    outcome = table.merge(none, on="id", when_not_matched_by_source="delete", key="k")
    assert (outcome.rows_deleted, outcome.files_rewritten, content(table)) == (len(data) - 5, 0, [])
    assert table.merge(none, on="id", when_not_matched_by_source="delete", key="k").already_committed
    with pytest.raises(mc.errors.KeyReusedError):
        table.merge(none, on="id", when_not_matched_by_source=mc.Delete(where="id < 5"), key="k")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"when_matched": mc.Update(set="x = 1")}, "invalid when_matched 'x = 1': expected column -> value"),  # type: ignore[arg-type]
        ({"when_matched": "upsert"}, "(?s)invalid when_matched 'upsert': expected 'update' or 'delete', Update"),
        ({"when_matched": mc.Insert()}, "invalid when_matched"),
        ({"when_not_matched": [mc.Insert(), "delete"]}, "invalid when_not_matched"),
        ({"when_not_matched_by_source": 5}, "invalid when_not_matched_by_source"),
        ({"when_matched": [], "when_not_matched": None}, "nothing would be done"),
        ({"when_matched": mc.Update(set={"x": "x"})}, "(?s)both sides have the column 'x'.*target.x or source.x"),
        ({"when_matched": mc.Update(set={"nope": "1"})}, "nope"),
        ({"when_matched": mc.Update(set={"x": "nope"})}, "nope"),
        ({"when_matched": mc.Update(set={})}, "one or more columns"),
        ({"when_matched": mc.Delete(where="source.id")}, "neither true nor false"),
        ({"when_matched": mc.Delete(where="initcap(op) = 'd'")}, "without Spark"),
        ({"when_matched": mc.Delete(where=pc.field("op") == "d")}, "op"),
        ({"when_not_matched": mc.Insert(values={"x": "target.x"})}, "no row of the target"),
        ({"when_not_matched_by_source": mc.Delete(where="source.x > 1")}, "no row of the source"),
        ({"when_matched": mc.Update(set={"text": "source.x"})}, "(?s)set 'text'"),
        ({"when_matched": mc.Update(set={"x": "source.x / 0"})}, "(?s)cannot be evaluated.*divide by zero"),
    ],
)
def test_a_clause_that_is_none_is_refused_and_nothing_is_committed(base: Any, tmp_path: Path, arguments: dict[str, Any], says: str) -> None:
    """[RC9]"""
    table, data = copy(base, "plain", tmp_path)
    with pytest.raises(mc.errors.UsageError, match=says):
        table.merge(SOURCE, on="id", **arguments)
    assert content(table) == shown(data)


def test_the_source_has_its_keys_and_fits_the_table(base: Any, tmp_path: Path) -> None:
    """[RC3] [RC9]"""
    table, data = copy(base, "plain", tmp_path)
    for source in (SOURCE.drop_columns(["id"]), SOURCE.set_column(2, "x", SOURCE.column("text")), pa.concat_tables([SOURCE, SOURCE])):
        with pytest.raises((mc.errors.SchemaMismatchError, mc.errors.UsageError), match=r"'id'|\bx\b|rows with the key id=1;"):
            table.merge(source, on="id", when_matched=mc.Update())
    assert content(table) == shown(data)


@pytest.mark.parametrize("clause", ["insert", mc.Insert(), mc.Insert(values={"id": "id"}), [mc.Insert(where="x > 1"), mc.Insert()]])
def test_new_rows_name_their_partition_as_those_of_an_append(base: Any, tmp_path: Path, clause: Any) -> None:
    """Left out, the partition column would be null for all of them; said, it may be. [RC9] [SC8]"""
    table, data = copy(base, "partitioned", tmp_path)
    source = pa.table({"id": pa.array([1, 77], pa.int64()), "x": [0.5, 2.5]})
    clauses: dict[str, Any] = {"when_matched": mc.Update(), "when_not_matched": clause}
    with pytest.raises(mc.errors.SchemaMismatchError, match=r"(?s)'day' partitions the table.*\{'day': None\}"):
        table.merge(source, on="id", **clauses)
    assert content(table) == shown(data)
    said = mc.Insert(values={"DAY": None, "id": "id"})
    assert table.merge(source, on="id", when_matched=None, when_not_matched=said).rows_inserted == 1
    assert table.dataset().to_table(filter=pc.field("id") == 77).column("day").to_pylist() == [None]


# --- crashes, and beside others ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("by_source", [False, True])
def test_what_it_has_read_is_its_keys_partitions_or_all(by_source: bool) -> None:
    """Rows that no row of the source matches can be anywhere. [CF16] [RC9]"""
    clauses = Clauses((mc.Update(set={"id": "target.id + 10"}),), (), (mc.Delete(where="id = 9"),) if by_source else ())
    for day in "ab":
        store = memory()
        for each in "ab":
            write(store, rows([1, 2], day=each), partition_by=["day"])
        source = rows([1], day="a").select(["id", "day"])
        mine = begin_merge(store, source, ["day", "id"], clauses)
        with begin(store) as theirs:
            theirs.write(rows([3], day=day))
        if day == "b" and not by_source:
            assert committed_or_raise(mine.commit(), "t").committed and read_ids(store) == [1, 2, 2, 3, 11]
        else:
            with pytest.raises(CommitConflictError) as caught:
                committed_or_raise(mine.commit(), "t")
            assert caught.value.rule == "read_partition_was_touched" and read_ids(store) == [1, 1, 2, 2, 3]
        check_table(store)


@pytest.mark.parametrize("few", [0, 10_000])
@pytest.mark.parametrize(("clause", "counts"), [(mc.Delete(), (3, 2)), (mc.Update(set={"id": "target.id + 10"}), (1, 2))])
def test_a_file_that_changes_between_the_two_looks_loses_no_row(
    clause: Any, counts: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that others wrote, whose bytes no digest holds: rows that nobody chose would go. [RC1] [GC11]"""
    monkeypatch.setattr(find, "_FEW_KEYS", few)
    store = memory()
    write(store, rows([7]))

    def put(ids: list[int]) -> None:
        store.put("theirs.parquet", parquet_bytes(rows(ids), use_dictionary=False, compression="none"))

    put([1, 2, 3, 4])
    with begin(store) as job:
        job.add_files(["theirs.parquet"])
    looks = 0

    class Changing(FaultStore):
        def filesystem(self) -> Any:
            nonlocal looks
            looks += 1
            if looks == 2:
                put([1, 1, 3, 4])
            return super().filesystem()

    clauses = Clauses(matched=(clause,), unmatched=(), by_source=())
    too_large = tuned(Tuning(read_once_bytes=0))
    with too_large, pytest.raises(ManifestCommitError, match="keep {} rows by the first look and {} by the second".format(*counts)):
        begin_merge(Changing(store), rows([1]), ["id"], clauses)
    assert looks == 2 and open_head(store).version == 3


def test_new_rows_say_their_own_ranges_and_changed_ones_those_of_their_files(tmp_path: Path) -> None:
    """[RC5] [WM2]"""
    table = table_with(pa.table({"id": range(10)}), tmp_path / "t", watermarks={"s": (0, 10)})
    clause = mc.Update(set={"id": "target.id + 100"})
    outcome = table.merge(pa.table({"id": [5, 40]}), "id", when_matched=clause, watermarks={"changes": (0, 2)}, key="k")
    assert (outcome.rows_updated, outcome.rows_inserted, outcome.rows_rewritten) == (1, 1, 9)
    assert table.watermarks() == {"s": 10, "changes": 2}
    kept, new = table.lineage("s", 5), table.lineage("changes", 1)
    assert kept is not None and {(each.start, each.end) for each in kept.files} == {(0, 10)}
    assert new is not None and {(each.start, each.end) for each in new.files} == {(0, 2)}

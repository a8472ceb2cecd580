"""Rows overwritten by a condition in this process, against DuckDB as the model. [RC10] [RC1]"""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit.row_tables import CONDITIONS, changed, content, copy, shown
from tests.kit.row_tables import rows as hostile_rows
from tests.kit.sizes import rest_thorough, some
from tests.kit.tables import table_with

import manifestcommit as mc
from manifestcommit.errors import CommitConflictError, JobFencedError, VersionNotFoundError
from manifestcommit.table import Table

# Among the rows of `hostile_rows` there are some for which these are true, false and null.
SQL = [condition for condition in CONDITIONS if "length" not in condition]


def matching(data: pa.Table, condition: str, *, true: bool = True) -> pa.Table:
    """The rows for which it is true, or the others, as DuckDB judges."""
    with duckdb.connect() as con:  # a table of its own: filters that it hands on to Arrow treat NaN by Arrow's rules
        con.execute("CREATE TABLE model AS SELECT * FROM data")
        return con.sql(f"SELECT * FROM model WHERE coalesce(({condition}), false) = {true}").to_arrow_table().cast(data.schema)


@pytest.mark.parametrize("condition", some(SQL, 6))
@pytest.mark.parametrize("name", rest_thorough(["plain", "partitioned"], "partitioned"))
def test_the_data_replaces_exactly_the_rows_that_match(base: Any, tmp_path: Path, name: str, condition: str) -> None:
    """What is null, NaN or quoted is judged as SQL judges it, in the table and in the data; all other rows stay. [RC10] [RC1]"""
    table, data = copy(base, name, tmp_path)
    source = pa.concat_tables([hostile_rows(0), hostile_rows(20)])
    inside, stays = matching(source, condition), matching(data, condition, true=False)
    assert 0 < len(inside) < len(source)
    with pytest.raises(
        mc.errors.UsageError, match=rf"(?s){len(source) - len(inside)} of the 20 rows .* do not match .*nothing was committed"
    ):
        table.overwrite_where(source, condition)
    assert content(table) == shown(data)
    outcome = table.overwrite_where(inside, condition)
    assert content(table) == shown(pa.concat_tables([stays, inside], promote_options="default"))
    assert (outcome.rows_deleted, outcome.rows_inserted, outcome.rows_updated) == (len(data) - len(stays), len(inside), 0)
    assert outcome.executor == "arrow" and table.history(1)[0]["operation"] == "overwrite"
    assert table.verify(deep=True).is_sound


def test_a_row_for_which_the_condition_is_null_is_outside(base: Any, tmp_path: Path) -> None:
    """A rerun would not find it, and write it a second time. [RC10]"""
    table, data = copy(base, "plain", tmp_path)
    for condition in ("id > 5", pc.field("id") > 5):
        with pytest.raises(mc.errors.UsageError, match=r"1 of the 3 rows .* or it is null for them"):
            table.overwrite_where(changed([7, None, 8]), condition)
    with pytest.raises(mc.errors.UsageError, match="2 of the 2 rows"):
        table.overwrite_where(changed([1, 2]).drop(["id"]), "id > 0")  # a column that the data lacks is null
    assert content(table) == shown(data)
    assert table.overwrite_where(changed([None, 3]), "id IS NULL OR id = 3").rows_deleted == 5


def test_data_without_a_row_only_deletes_and_a_condition_without_a_match_only_inserts(base: Any, tmp_path: Path) -> None:
    """Partition values alone decide here: files whose bytes are gone are not read. [RC10] [RC2]"""
    table, data = copy(base, "partitioned", tmp_path, emptied=True)
    outcome = table.overwrite_where(hostile_rows(0).slice(0, 0), "day = 'k=v#x?'")
    assert (outcome.rows_deleted, outcome.rows_inserted, outcome.files_removed) == (8, 0, 4)
    assert content(table) == shown(data.filter(~pc.field("day").isin(["k=v#x?"])))
    outcome = table.overwrite_where(changed([1, 2], day="new"), "day = 'new'", reason="it's late")
    assert (outcome.rows_deleted, outcome.rows_inserted) == (0, 2)
    assert table.history(1)[0]["reason"] == "it's late"
    assert table.overwrite_where(changed([]), "day = 'nowhere'").kind == "unchanged"


def test_a_key_is_done_once_and_watermarks_advance_with_it(tmp_path: Path) -> None:
    """[RC6] [KY3] [WM2] [RC5]"""
    table = table_with(pa.table({"id": range(10)}), tmp_path / "t", watermarks={"s": (0, 10)})
    data = pa.table({"id": [5, 5, 6]})
    said: Any = {"where": "id >= 5 AND id < 7", "key": "k", "watermarks": {"s": (10, 12)}}
    outcome = table.overwrite_where(data, **said)
    again = table.overwrite_where(pa.table({"id": [99]}), **said)  # nothing of it is read
    assert again.already_committed and again.version == outcome.version and again.rows_inserted is None
    with pytest.raises(mc.errors.KeyReusedError):
        table.overwrite_where(data, **{**said, "where": "id >= 5 AND id < 8"})
    with pytest.raises(mc.errors.WatermarkOverlapError):
        table.overwrite_where(data, "id >= 5 AND id < 7", watermarks={"s": (10, 12)})
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    assert table.lineage("s", 11) is not None and table.watermarks() == {"s": 12}


@pytest.mark.parametrize(
    ("data", "where", "says"),
    [
        (pa.table({"id": [1], "other": [1]}), "id = 1", "(?s)other"),
        (pa.table({"id": ["one"]}), "id = 1", "(?s)'id' is long in the table and string"),
        (pa.table({"id": [1]}), "nope = 1", "nope"),
        (pa.table({"id": [1]}), pc.field("id") + 1, "true or false"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path, data: pa.Table, where: str, says: str) -> None:
    """[SC3] [RC8]"""
    mc.write(pa.table({"id": range(3)}), tmp_path / "t")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((mc.errors.UsageError, mc.errors.SchemaMismatchError), match=says):
        Table(tmp_path / "t").overwrite_where(data, where)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_table_that_is_not_there_and_columns_that_must_be_named(tmp_path: Path) -> None:
    """[SC8]"""
    with pytest.raises(mc.errors.TableNotFoundError):
        Table(tmp_path / "t").overwrite_where(pa.table({"id": [1]}), "id = 1")
    table = table_with(pa.table({"id": range(3), "v": range(3)}), tmp_path / "t")
    assert table.overwrite_where(pa.table({"id": [1]}), "id = 1").rows_inserted == 1
    before = table.to_arrow()
    with pytest.raises(mc.errors.SchemaMismatchError, match=r"'v'.*overwrite of the whole table"):
        table.overwrite_where(pa.table({"id": [7]}), "id >= 0")  # no row stays
    assert table.to_arrow().equals(before)
    table.set_properties({"write.missing-columns": "error"})
    with pytest.raises(mc.errors.SchemaMismatchError, match="'v'"):
        table.overwrite_where(pa.table({"id": [1]}), "id = 1")


# --- crashes, and beside others ------------------------------------------------------------------------------------------
def test_rows_that_were_read_from_the_table_are_compared_with_every_commit_since(tmp_path: Path) -> None:
    """Read, changed in Arrow and written back, an overwrite loses no update of others. [CF17] [RC10]"""
    table = table_with(pa.table({"day": ["a", "b"], "n": [1, 1]}), tmp_path / "t", partition_by="day")
    read = table.to_arrow(filter="day = 'a'")
    new = read.set_column(1, "n", pc.add(read["n"], 1))
    mc.write(pa.table({"day": ["b"], "n": [5]}), tmp_path / "t")
    assert table.overwrite_where(new, "day = 'a'").committed, "elsewhere is no conflict"
    with pytest.raises(CommitConflictError, check=lambda error: error.rule == "read_partition_was_touched"):
        table.overwrite_where(new, "day = 'a'")
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 5]
    plain = pa.table({"day": ["a"], "n": [3]})
    with pytest.raises(CommitConflictError):
        table.overwrite_where(plain, "day = 'a'", based_on=2)
    with pytest.raises(VersionNotFoundError):
        table.overwrite_where(plain, "day = 'a'", based_on=99)
    assert table.overwrite_where(plain, "day = 'a'", based_on=table.version).committed
    table.gc(grace="0s", keep_versions=1)
    with pytest.raises(JobFencedError):
        table.overwrite_where(plain, "day = 'a'", based_on=2)

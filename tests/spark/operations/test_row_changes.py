"""Rows deleted and merged by real Spark over real files, against DuckDB as the model. [RC1]-[RC6]"""

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.kit.row_tables import (
    CLAUSE_MERGES,
    CONDITIONS,
    MERGES,
    SOURCE,
    changed,
    content,
    copy,
    ids,
    merged,
    merged_by_clauses,
    shown,
    with_repeated_keys,
)
from tests.kit.sizes import rest_thorough, some

import manifestcommit as mc
from manifestcommit.format.fields import CHAR_VARCHAR
from manifestcommit.spark.features import frame_of
from manifestcommit.table import Table


@pytest.mark.parametrize("condition", some(CONDITIONS, 5))
@pytest.mark.parametrize("name", rest_thorough(["partitioned", "plain"], "partitioned"))
def test_exactly_the_rows_that_match_go(spark: Any, base: Any, tmp_path: Path, name: str, condition: str) -> None:
    """What is null, NaN, empty or quoted is judged as SQL judges it; all other rows are there as they were. [RC1] [RC2]"""
    table, data = copy(base, name, tmp_path)
    before = table.files()
    outcome = table.delete(condition, spark=spark)
    model = duckdb.sql(f"SELECT * FROM data WHERE NOT coalesce(({condition}), false)").to_arrow_table()
    assert content(table) == shown(model.cast(data.schema))
    assert outcome.rows_deleted == len(data) - len(model) > 0
    assert table.verify(deep=True).is_sound
    # Files without such a row are the very same.
    after = set(table.files().column("path").to_pylist())
    touched = before.num_rows - sum(path in after for path in before.column("path").to_pylist())
    assert touched == outcome.files_removed + outcome.files_rewritten


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.parametrize("name", rest_thorough(["partitioned", "plain"], "plain"))
def test_a_dataframe_replaces_exactly_the_rows_that_match(spark: Any, base: Any, tmp_path: Path, name: str) -> None:
    """By a condition that only Spark evaluates; other rows of the data are refused. [RC10] [RC8]"""
    table, data = copy(base, name, tmp_path)
    condition = "coalesce(x, 1.0) > 0 AND octet_length(text) > 3"
    inside, outside = changed([7, None, 8]), changed([9]).set_column(4, "text", pa.array([None], pa.string()))
    for given, wrong, of in ((outside, 1, 1), (pa.concat_tables([inside, outside]), 1, 4)):
        with pytest.raises(mc.errors.UsageError, match=f"{wrong} of the {of} rows .* nothing was committed"):
            table.overwrite_where(frame_of(spark, given), condition)
    assert content(table) == shown(data)
    reordered = frame_of(spark, inside).select("text", "id", "day", "x", "dec").repartition(2)
    outcome = table.overwrite_where(reordered, condition, key="k")
    model = duckdb.sql(
        "SELECT * FROM data WHERE NOT coalesce((coalesce(x, 1.0) > 0 AND octet_length(encode(text)) > 3), false)"
    ).to_arrow_table()
    assert content(table) == shown(pa.concat_tables([model.cast(data.schema), inside], promote_options="default"))
    assert (outcome.executor, outcome.rows_deleted, outcome.rows_inserted) == ("spark", len(data) - len(model), 3)
    assert table.overwrite_where(reordered, condition, key="k").already_committed
    assert table.overwrite_where(changed([20]), F.col("id") == 20).executor == "spark", "of Arrow data, by a Column"
    assert table.verify(deep=True).is_sound


@pytest.mark.thorough
def test_a_dataframe_of_the_table_itself_is_compared_from_the_version_that_it_shows(spark: Any, base: Any, tmp_path: Path) -> None:
    """[CF17] [RC10]"""
    table, _ = copy(base, "partitioned", tmp_path)
    day = F.col("day") == "k=v#x?"
    mine = mc.read_committed(table.url, spark=spark).filter(day).withColumn("id", F.col("id") + 100)
    mc.write(changed([5]), table.url)
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "read_partition_was_touched"):
        table.overwrite_where(mine, "day = 'k=v#x?'")
    again = mc.read_committed(table.url, spark=spark).filter(day).withColumn("id", F.col("id") + 100)
    assert table.overwrite_where(again, "day = 'k=v#x?'").rows_inserted == 9


def test_a_dataframe_of_the_table_itself_is_merged_as_it_is_written(spark: Any, base: Any, tmp_path: Path) -> None:
    """[CF17] [RC3]"""
    table, _ = copy(base, "partitioned", tmp_path)

    def mine() -> Any:
        return mc.read_committed(table.url, spark=spark).filter("id = 5").limit(1).withColumn("x", F.lit(0.5))

    seen, version = mine(), table.version
    mc.write(changed([5]), table.url)
    with pytest.raises(mc.errors.CommitConflictError, match=f"since {version}"):
        table.merge(seen, on="id")
    with pytest.raises(mc.errors.CommitConflictError, match=f"since {version}"):
        table.delete("id = 5", spark=spark, based_on=version)
    assert table.merge(mine(), on="id").rows_updated > 0


# --- what a deletion says, and what it leaves alone ----------------------------------------------------------------------
def ids_of(table: Table) -> list[int]:
    return [each for each in table.dataset().to_table(columns=["id"]).column("id").to_pylist() if each is not None]


@pytest.mark.versions
@pytest.mark.parametrize("condition", ["no such column = 1", "nope = 1", "id", pc.field("nope") == 1])
def test_a_condition_that_is_none_is_refused_by_name(spark: Any, base: Any, tmp_path: Path, condition: Any) -> None:
    """[RC2] [SP5]"""
    table, data = copy(base, "plain", tmp_path)
    with pytest.raises(mc.errors.UsageError):
        table.delete(condition, spark=spark)
    assert content(table) == shown(data)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", rest_thorough(["plain", "partitioned"], "plain"))
@pytest.mark.parametrize("condition", ["day = 2013-01-01", "day > 5", "id = 'abc'", "id / 0 = 1"])
def test_a_condition_that_no_value_fits_is_refused_by_name(spark: Any, base: Any, tmp_path: Path, kind: str, condition: Any) -> None:
    """A date without quotes is a number: Spark finds that out row by row. [RC2] [SP5]"""
    table, data = copy(base, kind, tmp_path)
    with pytest.raises(mc.errors.UsageError, match=r"(?s)the condition .*(day|id).* cannot be evaluated: .*nothing was done.* quotes"):
        table.delete(condition, spark=spark)
    assert content(table) == shown(data)


@pytest.mark.thorough
def test_a_condition_that_changes_its_mind_deletes_nothing(spark: Any, base: Any, tmp_path: Path) -> None:
    """Rows of which it says no at the second look would be in the table although they were counted as deleted. [RC1]"""
    table, data = copy(base, "plain", tmp_path)
    asked = str(tmp_path / "asked-")

    def first_time(each: int | None) -> bool:
        flag = Path(f"{asked}{each}")
        is_first = each in (3, 13) and not flag.exists()
        if is_first:
            flag.touch()
        return is_first

    only_once = F.udf(lambda each: first_time(each), "boolean")
    with pytest.raises(mc.errors.ManifestCommitError, match="second"):
        table.delete(only_once(F.col("id")), spark=spark)
    assert content(table) == shown(data)


@pytest.mark.versions
def test_a_condition_that_two_looks_answer_differently_is_refused_before_any_task(spark: Any, base: Any, tmp_path: Path) -> None:
    """Rows are counted, and then rewritten: chance and the clock would choose others. [RC8]"""
    table, data = copy(base, "plain", tmp_path)
    chance = F.udf(lambda each: True, "boolean").asNondeterministic()
    random = ["rand() < 0.5", "uuid() = text", "monotonically_increasing_id() > 3", F.rand() < 0.5, chance(F.col("id"))]
    clock = ["day < current_timestamp()", "day<current_date", "date_sub(NOW(), 1) > '2013-01-01'", "day < date 'today'"]
    for condition in [*random, *clock, F.col("day") < F.current_date(), F.expr("day < now()"), F.unix_timestamp() > 5]:
        with pytest.raises(mc.errors.UsageError, match=r"invalid where .*(random|the time of its evaluation).*nothing was done") as caught:
            table.delete(condition, spark=spark)
        assert caught.value.argument == "where"
    with pytest.raises(mc.errors.UsageError, match=r"invalid where .*random.*nothing was done"):
        table.overwrite_where(changed([7]), random[0], spark=spark)
    for condition in (
        "text = 'now()' OR text = \"current_date\"",
        "coalesce(`id`, 0) = 13 AND text <> \"date 'today'\"",
        F.col("id") == 13,
    ):
        assert table.delete(condition, spark=spark, dry_run=True).kind == "planned"
    assert content(table) == shown(data)


@pytest.mark.parametrize("condition", some(CONDITIONS, 2))
def test_an_update_leaves_what_spark_computes(spark: Any, base: Any, tmp_path: Path, condition: str) -> None:
    """It is always done in this process: the rows and the values are those of Spark's own SQL. [RC7] [RC8]"""
    smaller = "CASE WHEN dec < 0.05 THEN NULL ELSE dec END"
    values = {"id": "id * 2 + 1", "x": "x / 2", "text": "coalesce(text, 'none') || '!'", "dec": smaller}
    table, data = copy(base, "plain", tmp_path)
    df = frame_of(spark, data)
    new = [f"CASE WHEN {condition} THEN {values[name]} ELSE {name} END AS {name}" if name in values else name for name in df.columns]
    wanted = df.selectExpr(*new).toArrow().cast(data.schema)
    outcome = table.update(values, where=condition)
    assert content(table) == shown(wanted)
    assert outcome.rows_updated == df.filter(condition).count() and outcome.executor == "arrow"


@pytest.mark.versions
def test_a_text_that_spark_casts_to_the_day_of_the_evaluation_is_refused(spark: Any, tmp_path: Path) -> None:
    """'today' beside a date is the clock, and beside a text it is a text. [RC8]"""
    day = dt.date(2013, 1, 1)
    mc.write(pa.table({"id": [1, 2], "day": [day, day], "today": ["today", "no"]}), tmp_path / "t")
    table = Table(tmp_path / "t")
    clock = ["day < 'today'", "' Yesterday ' > day", "day <= CAST('tomorrow' AS DATE)"]
    if not spark.version.startswith("3."):  # which compares the texts of both
        clock.append("day IN ('2013-01-01', 'now')")
    for condition in [*clock, "day < to_date('today')", F.col("day") < "today"]:
        with pytest.raises(mc.errors.UsageError, match=r"invalid where .*the time of its evaluation.*nothing was done") as caught:
            table.delete(condition, spark=spark)
        assert caught.value.argument == "where"
    for condition in ("today = 'today' AND day < '2013-01-02'", "today < 'now' AND day > 'epoch'", "to_date(today) IS NOT NULL AND id = 3"):
        assert table.delete(condition, spark=spark, dry_run=True).kind == "planned"
    with pytest.raises(mc.errors.UsageError, match=r"invalid where .*without Spark; nothing was done"):
        table.update({"id": "0"}, where="day < 'today'")
    assert table.history(1)[0]["operation"] == "append" and table.snapshot().totals.rows == 2


@pytest.mark.versions
@pytest.mark.parametrize(
    ("setting", "where", "harmless"),
    [
        ("spark.sql.ansi.doubleQuotedIdentifiers", '"text" <> "x"', """text <> '"' AND `id` > 0"""),
        ("spark.sql.parser.escapedStringLiterals", r"text <> '\t'", "text <> 'x'"),
    ],
)
def test_a_text_that_the_session_reads_otherwise_is_refused(
    spark: Any, base: Any, tmp_path: Path, setting: str, where: str, harmless: str
) -> None:
    """The same text would choose other rows in this process and on Spark. [RC8]"""
    table, data = copy(base, "plain", tmp_path)
    calls: dict[str, Any] = {
        "where": lambda text: table.delete(text),
        "where on Spark": lambda text: table.delete(text, spark=spark),
        "where of an update": lambda text: table.update({"id": 1}, text),
        "set": lambda text: table.update({"text": f"CASE WHEN {text} THEN 'y' ELSE 'z' END"}),
        "where of an overwrite": lambda text: table.overwrite_where(changed([7]), text),
        "when_matched": lambda text: table.merge(changed([1]), "id", when_matched=mc.Delete(where="target." + text.lstrip('"'))),
        "filter": lambda text: table.to_arrow(filter=text),
        "filter of files": lambda text: table.files(filter=text),
        "filter on Spark": lambda text: table.read(filter=text, spark=spark),
        "where of a compaction": lambda text: table.compact(where=text),
    }
    spark.conf.set(setting, "true")
    try:
        for name, call in calls.items():
            with pytest.raises(mc.errors.UsageError, match=f"{setting}=true.*nothing was done") as caught:
                call(where)
            assert caught.value.argument == name.split()[0]
        assert content(table) == shown(data)
        assert table.to_arrow(filter=harmless).num_rows == table.read(filter=harmless, spark=spark).count() > 0
    finally:
        spark.conf.unset(setting)
    assert table.to_arrow(filter=where).num_rows > 0


# --- merge ---------------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.parametrize("case", CLAUSE_MERGES)
@pytest.mark.parametrize("name", ["plain", "partitioned"])
def test_clauses_leave_what_they_leave_without_spark(spark: Any, base: Any, tmp_path: Path, name: str, case: str) -> None:
    """Null keys, rows that move to another partition, columns that only the source has; with the same counts. [RC9] [RC8]"""
    (table, data), (other, _) = (copy(base, name, tmp_path / way) for way in ("spark", "here"))
    arguments, sql = CLAUSE_MERGES[case]
    outcome, here = table.merge(frame_of(spark, SOURCE).repartition(2), on="ID", **arguments), other.merge(SOURCE, on="ID", **arguments)
    assert content(table) == shown(merged_by_clauses(data, sql))
    assert (outcome.executor, here.executor) == ("spark", "arrow")
    counts = ("rows_deleted", "rows_updated", "rows_inserted", "rows_rewritten", "files_removed", "files_rewritten")
    assert [getattr(outcome, each) for each in counts] == [getattr(here, each) for each in counts]
    assert table.verify(deep=True).is_sound


@pytest.mark.thorough
def test_what_a_clause_cannot_compute_ends_a_merge_with_spark(spark: Any, base: Any, tmp_path: Path) -> None:
    """With the error of this process, and nothing is committed; an empty source deletes by its clauses, too. [RC9] [RC8]"""
    table, data = copy(base, "plain", tmp_path)
    frame = frame_of(spark, SOURCE)
    with pytest.raises(mc.errors.UsageError, match=r"cannot be evaluated.*divide by zero"):
        table.merge(frame, on="id", when_matched=mc.Update(set={"x": "1 / (target.id - 1)"}), when_not_matched=None)
    with pytest.raises(mc.errors.UsageError, match="2 rows with the key id="):
        table.merge(frame.union(frame), on="id", when_matched=mc.Update())
    assert content(table) == shown(data)
    outcome = table.merge(frame.limit(0), on="id", when_not_matched_by_source=mc.Delete(where="id < 5"))
    assert (outcome.executor, outcome.rows_deleted) == ("spark", 5)


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.parametrize(("name", "on", "matched", "unmatched"), rest_thorough(some(MERGES, 4), MERGES[0], MERGES[-1]))
def test_a_merge_leaves_what_it_should_row_by_row(
    spark: Any, base: Any, tmp_path: Path, name: str, on: list[str], matched: str | None, unmatched: str | None
) -> None:
    """Keys that are null, that the table has twice, that move to another partition, that no row has. [RC3] [RC1]"""
    table, data, source = with_repeated_keys(base, name, tmp_path)
    given = frame_of(spark, source) if matched == "update" else source
    outcome = table.merge(given, on, when_matched=matched, when_not_matched=unmatched, spark=spark)  # type: ignore[arg-type]
    expected = merged(data, source, [each.lower() for each in on], matched, unmatched)
    assert content(table) == expected
    assert len(data) + outcome.rows_inserted - outcome.rows_deleted == len(expected)
    assert outcome.committed and table.verify(deep=True).is_sound


@pytest.mark.thorough
def test_a_source_that_says_something_else_each_time_is_asked_once(spark: Any, root: str) -> None:
    """Compared by some keys and inserted with others, rows would be doubled and lost. [RC4]"""
    mc.write(pa.table({"id": range(2_000), "v": ["old"] * 2_000}), root)
    source = spark.range(0, 20, 1, 4).select((F.col("id") + (F.rand() * 100).cast("long") * 20).alias("id"), F.uuid().alias("v"))
    outcome = Table(root).merge(source, "id", spark=spark)
    assert (outcome.rows_updated, outcome.rows_inserted) == (20, 0)
    assert ids(Table(root)) == list(range(2_000))


@pytest.mark.versions
def test_a_key_that_comes_twice_is_named(spark: Any, base: Any, tmp_path: Path) -> None:
    """[RC3]"""
    table, data = copy(base, "partitioned", tmp_path)
    for source in (changed([7, 8, 8, None, None]), changed([8]).select(["day", "x", "dec", "text"])):
        with pytest.raises(mc.errors.ManifestCommitError, match=r"id=8|'id'"):
            table.merge(source, on=["day", "id"], spark=spark)
    with pytest.raises(mc.errors.UsageError, match="double"):
        table.merge(changed([1]), on="x", spark=spark)
    assert content(table) == shown(data)


# --- files of all kinds --------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_a_column_that_files_lack_is_null_in_conditions_and_keys(spark: Any, base: Any, tmp_path: Path) -> None:
    """[RC2] [RC3] [SC4]"""
    table, data = copy(base, "plain", tmp_path)
    assert table.delete("late > 0", spark=spark).kind == "unchanged"
    source = changed([1, 2]).append_column("late", pa.array([7, None], pa.int32()))
    outcome = table.merge(source, on=["id", "late"], spark=spark)
    assert (outcome.rows_updated, outcome.rows_inserted) == (0, 2), "null is equal to nothing"
    assert table.delete("late IS NULL AND id = 1", spark=spark).rows_deleted == 1
    assert ids_of(table).count(1) == 1 and len(content(table)) == len(data) + 1


@pytest.mark.thorough
def test_columns_named_like_the_ones_that_a_merge_makes_for_itself(spark: Any, root: str) -> None:
    """And a table and a source without rows, and a partition that is a moment in time. [RC3]"""
    noon = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
    names = ["count", "times", "col", "path", "key 0", "number", "a.b`c"]

    def named(*values: int) -> pa.Table:
        columns = {name: pa.array(values, pa.int64()) for name in names}
        return pa.table({**columns, "at": pa.array([noon + dt.timedelta(hours=each % 2) for each in values], pa.timestamp("us", "UTC"))})

    table = mc.create_table(root, named().schema, partition_by="at")
    assert table.merge(named(1, 2, 3), on=["times", "count", "a.b`c"], spark=spark).rows_inserted == 3
    assert table.merge(named(), on="count", spark=spark).kind == "unchanged"
    mc.write(named(2, 2), root)
    for on, matched, unmatched in (
        (["count", "col"], "update", "insert"),
        (["path", "key 0"], "update", None),
        (["times"], None, "insert"),
    ):
        table.merge(named(2, 4) if unmatched else named(2), on=on, when_matched=matched, when_not_matched=unmatched, spark=spark)  # type: ignore[arg-type]
        assert shown(table.dataset().to_table()) == shown(named(1, 2, 2, 2, 3, 4))
    assert table.delete("`a.b``c` = 3 AND number = 3 AND path > 2", spark=spark).rows_deleted == 1
    outcome = table.delete("at = TIMESTAMP'2013-01-01 12:00:00Z'", spark=spark)
    assert (outcome.rows_deleted, outcome.files_rewritten) == (4, 0) and shown(table.dataset().to_table()) == shown(named(1))


@pytest.mark.thorough
def test_char_values_of_rows_that_stay_are_not_padded(spark: Any, root: str) -> None:
    """Spark pads what it reads of a char column: rewritten, the values would be others. [RC1] [RC3]"""
    struct = StructType([StructField("id", LongType()), StructField("code", StringType(), metadata={CHAR_VARCHAR: "char(5)"})])
    table = mc.create_table(root, struct)
    mc.write(pa.table({"id": [1, 2, 3, 4], "code": ["ab", "", None, "x"]}), root)
    table.delete("id = 4", spark=spark)
    table.merge(pa.table({"id": [2, 5], "code": ["q", "r"]}), on="id", when_not_matched=None, spark=spark)
    assert shown(table.dataset().to_table()) == shown(pa.table({"id": [1, 2, 3], "code": ["ab", "q", None]}))
    assert table.delete("code = 'ab'", spark=spark).rows_deleted == 1 and ids(table) == [2, 3]


@pytest.mark.thorough
def test_rows_of_several_tables_change_together(spark: Any, tmp_path: Path) -> None:
    """By Spark: a deletion by a Column, a merge of a DataFrame, and rows of another one, in one commit. [MT1] [RC1] [RC8]"""
    paths = [str(tmp_path / name) for name in ("orders %+=#é", "lines", "log")]
    for path in paths[:2]:
        mc.write(pa.table({"id": [1, 2, 3], "text": ["a", "b", None]}), path)
    for _ in range(2):
        with mc.transaction(paths, key="day 1") as tx:
            gone = tx.rows(paths[0]).delete(F.col("id") == 2, spark=spark)
            merged_rows = tx.rows("lines").merge(frame_of(spark, pa.table({"id": [3, 4], "text": ["c", "d"]})), on="id")
            tx["log"].write(frame_of(spark, pa.table({"n": [1]})))
            assert mc.Table(paths[0]).version == (2 if gone.rows_deleted else 3)
        assert tx.outcome is not None and tx.outcome.already_committed == (gone.executor is None)
    assert (gone.kind, gone.rows_deleted, merged_rows.executor) == ("already_committed", None, None)
    assert sorted(mc.Table(paths[0]).to_arrow()["id"].to_pylist()) == [1, 3]
    assert sorted(mc.Table(paths[1]).to_arrow()["text"].to_pylist()) == ["a", "b", "c", "d"]
    assert mc.Table(paths[2]).to_arrow().num_rows == 1

"""SQL over tables in a session: execution, one version for a statement, and statements as operations of the library."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.errors import TableNotFoundError, UsageError
from manifestcommit.format.fields import Field, Schema
from manifestcommit.spark_sql import execution
from manifestcommit.spark_sql.execution import rows_to_insert
from manifestcommit.spark_sql.statements import Insert

NAME = "fl`i gh{t}s é漢 %;--'\""
ROWS = [("2013-01-01", 1, 0.5), ("2013-01-01", 2, None), (None, 3, 1.5)]
SCHEMA = pa.schema([("day", pa.string()), ("n b", pa.int64()), ("x", pa.float64())])


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[]] * len(SCHEMA)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@pytest.fixture
def run(spark: Any, root: str) -> Iterator[Callable[..., Any]]:
    """A statement over `t`, a table with a hostile root, one null partition and rows; the session forgets its names afterwards."""
    mc.write(table_of(ROWS), root, partition_by="day")
    before = {view.name for view in spark.catalog.listTables()}
    mc.attach(spark, {"t": root})
    yield lambda statement, **options: mc.sql(spark, statement, **options)
    for view in spark.catalog.listTables():
        if view.name not in before:
            spark.catalog.dropTempView(quoted(view.name))
    execution._ATTACHED.clear()


def rows(found: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in found.collect()), key=repr)


def held(root: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in mc.Table(root).to_arrow().to_pylist()), key=repr)


@pytest.mark.thorough
def test_a_name_is_a_view_of_one_version_and_sql_reads_the_newest(spark: Any, run: Any, root: str) -> None:
    """[SP50] [SP47] The view stays where it was made until the name is given again."""
    assert rows(spark.sql("SELECT * FROM t")) == rows(run("SELECT * FROM T")) == sorted(ROWS, key=repr)
    before = run("SELECT count(*) FROM t")
    mc.write(table_of([("2013-01-02", 4, 1.0)]), root)
    assert rows(spark.sql("SELECT count(*) FROM t")) == rows(before) == [(3,)]
    assert rows(run("SELECT count(*) FROM t")) == [(4,)]
    assert mc.attach(spark, {"t": root}) == {"t": 3}
    assert rows(spark.sql("SELECT count(*) FROM t")) == [(4,)]


@pytest.mark.thorough
def test_a_hostile_name_is_one_name(spark: Any, run: Any, root: str) -> None:
    """[SP50] [SP48] In views, in queries beside braces, before columns, and in statements that change the table."""
    name = quoted(NAME)
    assert mc.attach(spark, {NAME: root}) == {NAME: 2}
    assert rows(spark.sql(f"SELECT count(*) FROM {name}")) == [(3,)]
    assert rows(run(f"SELECT {name}.`n b`, '{{x}}' FROM {name} JOIN t ON t.`n b` = {name}.`n b` WHERE {name}.x > 1")) == [(3, "{x}")]
    assert run(f"DELETE FROM {name} WHERE {name}.`n b` = 3").rows_deleted == 1
    assert run(f"UPDATE {name} SET {name}.x = {name}.x + 1 WHERE {name}.`n b` = 1").rows_updated == 1
    assert held(root) == [("2013-01-01", 1, 1.5), ("2013-01-01", 2, None)]


@pytest.mark.thorough
def test_all_names_are_given_or_none(spark: Any, run: Any, root: str) -> None:
    """[SP50]"""
    with pytest.raises(TableNotFoundError):
        mc.attach(spark, {"one": root, "two": f"{root} gone"})
    with pytest.raises(UsageError, match="'one' is no table that is attached"):
        run("DELETE FROM one")


@pytest.mark.thorough
def test_a_name_is_known_in_its_session_only(spark: Any, run: Any) -> None:
    """[SP50] And to every object that Python has for this session."""
    other = spark.newSession()
    with pytest.raises(UsageError, match="'t' is no table that is attached to this session"):
        mc.sql(other, "DELETE FROM t")
    again = type(spark)(spark.sparkContext, spark._jsparkSession)
    assert mc.sql(again, "DELETE FROM t WHERE false").kind == "unchanged"
    del again
    gc.collect()
    assert run("DELETE FROM t WHERE false").kind == "unchanged"


@pytest.mark.thorough
def test_a_statement_reads_one_version_of_a_table(spark: Any, run: Any, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP47] Under two execution, several times, and while others commit."""
    mc.attach(spark, {"u": root})
    read, seen = mc.Table.read, []

    def reading(self: Any, **options: Any) -> Any:
        seen.append(options["version"])
        mc.write(table_of([("2013-01-03", 9, 9.0)]), root)
        return read(self, **options)

    monkeypatch.setattr(mc.Table, "read", reading)
    found = run(f"SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u), count(*) FROM t JOIN manifestcommit.{quoted(root)} v ON true")
    assert rows(found) == [(3, 3, 9)] and seen == [2]


@pytest.mark.thorough
def test_versions_times_and_tags(run: Any, root: str) -> None:
    """[SP47] Beside the newest version of the same table."""
    table = mc.Table(root)
    table.tag("a b", 2)
    table.delete("true")
    time = table.history()[-2]["committed_at"].isoformat()
    for clause in ("VERSION AS OF 2", "FOR VERSION AS OF 'a b'", f"TIMESTAMP AS OF '{time}'"):
        assert rows(run(f"SELECT count(*), (SELECT count(*) FROM t) FROM t {clause} WHERE t.`n b` > 0")) == [(3, 0)], clause
    with pytest.raises(mc.errors.VersionNotFoundError):
        run("SELECT * FROM t VERSION AS OF 'none'")


@pytest.mark.thorough
def test_a_view_of_an_older_version_is_not_mixed_in(spark: Any, run: Any, root: str) -> None:
    """[SP47] Nor read alone, whatever way leads to it, if its table has a name: that name would be the newest version."""
    spark.table("t").createOrReplaceTempView("old")
    assert rows(run("SELECT count(*) FROM old, t")) == [(9,)]
    mc.write(table_of([("2013-01-02", 4, 1.0)]), root)
    other = f"{root} other"
    mc.write(table_of(ROWS), other)
    mc.read_committed(other, spark=spark).createOrReplaceTempView("mine")
    for query in ("SELECT count(*) FROM old, t", "SELECT count(*) FROM old", "SELECT (SELECT count(*) FROM old) FROM mine"):
        with pytest.raises(UsageError, match="a view that was made of its version 2"):
            run(query)
    with pytest.raises(UsageError, match="a view that was made of its version 2"):
        run(f"INSERT INTO manifestcommit.{quoted(other)} SELECT * FROM old")
    assert rows(run("SELECT count(*) FROM mine")) == [(3,)]


@pytest.mark.thorough
def test_double_quotes_that_are_names_change_nothing(spark: Any, run: Any, root: str) -> None:
    """[SP49] In such a session they are names to Spark, and texts to this process."""
    mc.attach(spark, {NAME: root})
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    try:
        for statement in (
            """DELETE FROM t WHERE "day" = 'day'""",
            """UPDATE t SET day = r"x" """,
            """INSERT INTO t SELECT "day", 1, 1""",
            """INSERT INTO t REPLACE WHERE day = "x" SELECT 'x', 1, 1""",
            """MERGE INTO t USING u ON t.day = u.day WHEN MATCHED AND u."x" = 1 THEN DELETE""",
        ):
            with pytest.raises(UsageError, match=r"doubleQuotedIdentifiers=true.*nothing was done"):
                run(statement)
        assert held(root) == sorted(ROWS, key=repr)
        mc.write(table_of([("2013-01-02", 4, 1.0)]), root)
        assert rows(run("""WITH "u" AS (SELECT 1) SELECT count("t"."n b") FROM "t" JOIN u WHERE "n b" > 1""")) == [(3,)]
        assert run("""DELETE FROM t WHERE day = '"' -- "x"\n OR `n b` = 4""").rows_deleted == 1
    finally:
        spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")


@pytest.mark.thorough
def test_names_that_are_not_attached_are_sparks(spark: Any, run: Any) -> None:
    """[SP47] [SP48] They are read, and never changed."""
    spark.range(2).createOrReplaceTempView("mine")
    assert rows(run("SELECT count(*) FROM t, mine, range(3) WHERE mine.id < 5")) == [(18,)]
    for statement in ("INSERT INTO mine VALUES (1)", "DELETE FROM mine", "DELETE FROM spark_catalog.t"):
        with pytest.raises(UsageError, match="is no table that is attached"):
            run(statement)
    assert spark.table("mine").count() == 2


@pytest.mark.thorough
def test_insert_is_exactly_once_and_by_position(run: Any, root: str) -> None:
    """[SP48] Columns by their place, or by name where they are named; a repeated key does nothing."""
    first = run("INSERT INTO t VALUES ('2013-01-02', 4, 2.5), (NULL, 5, NULL)", key="a", watermarks={"s": (0, 2)}, message="why")
    again = run("INSERT INTO t VALUES ('2013-01-02', 4, 2.5), (NULL, 5, NULL)", key="a", watermarks={"s": (0, 2)})
    assert (first.kind, again.kind, again.version) == ("committed", "already_committed", first.version)
    assert mc.Table(root).watermarks() == {"s": 2} and mc.Table(root).history(1)[0]["message"] == "why"
    run("INSERT INTO t (x, `n b`, day) SELECT 6, 6, 'd'")
    run("INSERT INTO t BY NAME SELECT 7 AS `n b`, 'd' AS day")
    added = [("2013-01-02", 4, 2.5), (None, 5, None), ("d", 6, 6.0), ("d", 7, None)]
    assert held(root) == sorted(ROWS + added, key=repr)
    for wrong in ("SELECT 1", "VALUES ('d', 1, 1, 1)", "(day) SELECT 'a', 'b'", "(day, Day, x) SELECT 'a', 'b', 1"):
        with pytest.raises(UsageError, match="nothing was done"):
            run(f"INSERT INTO t {wrong}")


@pytest.mark.thorough
@pytest.mark.parametrize("value", ["1.5", "1e300", "cast('NaN' as double)", "9223372036854775808"])
def test_a_number_is_never_changed_into_another(run: Any, root: str, value: str) -> None:
    """[SP48] Whatever the session says of casts."""
    run("INSERT INTO t VALUES ('d', 4.0, 1), ('d', NULL, 1)")
    version = mc.Table(root).version
    with pytest.raises(Exception, match="does not fit its type long without loss"):
        run(f"INSERT INTO t VALUES ('d', {value}, 1)")
    assert mc.Table(root).version == version


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("double", "9223372036854775807L"), ("float", "9223372036854775807L"), ("float", "2147483647"), ("float", "16777217"),
        ("long", "9223372036854775808D"), ("long", "cast('9223372036854775808' as float)"), ("integer", "cast(2147483648 as float)"),
        ("integer", "2147483648D"), ("double", "cast('9223372036854775807' as decimal(20,0))"),
    ],
)  # fmt: skip
def test_a_number_at_the_end_of_its_range_is_not_changed(spark: Any, column: str, value: str) -> None:
    """[SP48] Casts end at the largest number, there and back."""
    schema = Schema(fields=(Field(id=1, name="a b", type=column),))
    statement = Insert(target=("t",), query="")
    for text, fits in ((value, False), ("NULL", True), ("-8388608", True), ("1073741824D", True)):
        df = rows_to_insert(spark.sql(f"SELECT {text} AS x"), statement, schema)
        if fits:
            assert df.where(f"`a b` <=> {text}").count() == 1
        else:
            with pytest.raises(Exception, match="does not fit its type"):
                df.collect()


@pytest.mark.thorough
def test_overwrite_replaces_what_the_session_says(spark: Any, run: Any, root: str) -> None:
    """[SP48] The whole table, or the partitions that are written."""
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "DYNAMIC")
    try:
        run("INSERT OVERWRITE t VALUES ('2013-01-02', 9, 9)")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert len(held(root)) == 4
    run("INSERT OVERWRITE t VALUES ('2013-01-03', 10, 10)")
    assert held(root) == [("2013-01-03", 10, 10.0)]


@pytest.mark.thorough
def test_rows_are_replaced_by_a_condition(run: Any, root: str) -> None:
    """[SP48] [RC10] And rows that do not match it are refused."""
    found = run("INSERT INTO t REPLACE WHERE t.`n b` < 3 SELECT 'new', `n b` + 1, x FROM t WHERE `n b` = 1", key="r")
    assert (found.rows_deleted, found.rows_inserted) == (2, 1)
    assert held(root) == sorted([("new", 2, 0.5), (None, 3, 1.5)], key=repr)
    with pytest.raises(UsageError, match="do not match where"):
        run("INSERT INTO t REPLACE WHERE `n b` < 3 VALUES ('new', 4, 1)")


@pytest.mark.thorough
def test_read_modify_write_is_based_on_what_was_read(run: Any, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP48] [CF17] An INSERT OVERWRITE of the table's own rows conflicts with a commit since they were read."""
    read = mc.Table.read

    def reading(self: Any, **options: Any) -> Any:
        found = read(self, **options)
        mc.write(table_of([("2013-01-03", 9, 9.0)]), root)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(mc.Table, "read", reading)
        with pytest.raises(mc.errors.CommitConflictError):
            run("INSERT OVERWRITE t SELECT day, `n b`, x + 1 FROM t")
    with pytest.raises(mc.errors.CommitConflictError):
        run("INSERT OVERWRITE t VALUES ('d', 1, 1)", based_on=2)
    run("INSERT OVERWRITE t SELECT day, `n b`, x + 1 FROM t")
    assert ("2013-01-03", 9, 10.0) in held(root)


@pytest.mark.thorough
def test_delete_and_update(run: Any, root: str) -> None:
    """[SP48] By this process, or by Spark where only Spark understands the condition."""
    assert run("UPDATE t f SET f.x = coalesce(f.x, 0) + 1, day = 'é' WHERE f.`n b` < 3", key="u").rows_updated == 2
    assert run("UPDATE t f SET f.x = coalesce(f.x, 0) + 1, day = 'é' WHERE f.`n b` < 3", key="u").already_committed
    assert held(root) == sorted([("é", 1, 1.5), ("é", 2, 1.0), (None, 3, 1.5)], key=repr)
    assert run("DELETE FROM t WHERE t.`n b` = 1").executor == "arrow"
    found = run("DELETE FROM t f WHERE hash(f.`n b`) = hash(2L)")
    assert (found.executor, found.rows_deleted) == ("spark", 1)
    assert run("DELETE FROM t").rows_deleted == 1 and held(root) == []


@pytest.mark.thorough
def test_merge_by_whole_rows_and_by_clauses(spark: Any, run: Any, root: str) -> None:
    """[SP48]"""
    spark.createDataFrame([("2013-01-01", 1, 10.0), ("d", 4, 4.0)], "day string, `n b` long, x double").createOrReplaceTempView("s")
    found = run(
        "MERGE INTO t USING s ON t.day = s.day AND t.`n b` = s.`n b` WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", key="m"
    )
    assert (found.rows_updated, found.rows_inserted, found.executor) == (1, 1, "spark")
    assert held(root) == sorted([("2013-01-01", 1, 10.0), ("2013-01-01", 2, None), (None, 3, 1.5), ("d", 4, 4.0)], key=repr)
    found = run(
        "MERGE INTO t USING (SELECT `n b`, x AS y FROM s UNION ALL SELECT 5, 5) s ON s.`n b` = t.`n b`"
        " WHEN MATCHED AND s.y > 5 THEN DELETE WHEN MATCHED THEN UPDATE SET x = t.x + s.y"
        " WHEN NOT MATCHED THEN INSERT (day, `n b`) VALUES ('new', s.`n b`)"
        " WHEN NOT MATCHED BY SOURCE AND t.x IS NULL THEN UPDATE SET x = 0"
    )
    assert (found.rows_deleted, found.rows_updated, found.rows_inserted) == (1, 2, 1)
    assert held(root) == sorted([("2013-01-01", 2, 0.0), (None, 3, 1.5), ("d", 4, 8.0), ("new", 5, None)], key=repr)
    with pytest.raises(UsageError, match="the source lacks day"):
        run("MERGE INTO t USING (SELECT `n b`, x FROM s) s ON s.`n b` = t.`n b` WHEN MATCHED AND true THEN UPDATE SET *")
    with pytest.raises(UsageError, match="reads the table that it changes"):
        run("MERGE INTO t USING (SELECT * FROM t) s ON s.`n b` = t.`n b` WHEN MATCHED THEN UPDATE SET *")


@pytest.mark.thorough
def test_columns_and_properties(run: Any, root: str) -> None:
    """[SP48]"""
    table = mc.Table(root)
    run("ALTER TABLE t ADD COLUMN `ä b` struct<k: int, l: array<decimal(10,2)>>", message="m")
    assert table.schema.field("ä b").type == pa.struct([("k", pa.int32()), ("l", pa.list_(pa.decimal128(10, 2)))])
    assert table.history(1)[0]["message"] == "m"
    run("ALTER TABLE t RENAME COLUMN `ä b` TO c")
    run("ALTER TABLE t DROP COLUMN c")
    run("ALTER TABLE t ADD COLUMNS (w smallint)")
    run("ALTER TABLE t ALTER COLUMN w TYPE BIGINT")
    assert table.schema.field("w").type == pa.int64()
    run("ALTER TABLE t DROP COLUMNS (w)")
    assert table.schema.names == ["day", "n b", "x"]
    run("ALTER TABLE t SET TBLPROPERTIES ('write.bounds-columns' = '3')")
    run("ALTER TABLE t UNSET TBLPROPERTIES ('write.bounds-columns')")


@pytest.mark.parametrize(
    ("statement", "option"),
    [
        ("SELECT 1", {"key": "k"}), ("SELECT 1", {"message": "m"}), ("DELETE FROM t", {"watermarks": {"s": (0, 1)}}),
        ("UPDATE t SET x = 1", {"based_on": 1}), ("ALTER TABLE t DROP COLUMN x", {"key": "k"}),
    ],
)  # fmt: skip
def test_what_is_declared_without_a_meaning_is_refused(run: Any, root: str, statement: str, option: dict[str, Any]) -> None:
    """[SP49]"""
    with pytest.raises(UsageError, match="eave"):
        run(statement, **option)
    assert mc.Table(root).version == 2


ASKED: dict[str, tuple[list[str] | None, str | None]] = {
    "SELECT x FROM t": (["x"], None),
    "SELECT count(*) FROM t": (["day"], None),
    "SELECT count(1) AS n FROM t WHERE t.x > 1": (["x"], "x > 1"),
    "SELECT * FROM t WHERE x > 1 AND day <> 'd'": (None, "x > 1 AND day <> 'd'"),
    "SELECT q.`n b` FROM t AS q WHERE q.X IN (1, 2) ORDER BY 1": (["x", "n b"], "X IN (1, 2)"),
    "SELECT day FROM t WHERE x > 1 GROUP BY day HAVING max(`n b`) > 0": (["day", "x", "n b"], "x > 1"),
    "SELECT a.x FROM t a JOIN t b ON a.day = b.day WHERE a.x > 1": (["day", "x"], None),
    "SELECT a.x FROM t a NATURAL JOIN t b WHERE a.x > 1": (None, None),
    "SELECT x FROM t WHERE x > 1 UNION ALL SELECT x FROM t": (["x"], None),
    "SELECT x FROM (SELECT x, day FROM t) WHERE x > 1": (["day", "x"], None),
    "SELECT x FROM t WHERE x > (SELECT min(x) FROM t)": (["x"], None),
    "SELECT x FROM t WHERE rand(7) < 2": (["x"], None),
    "SELECT x FROM t WHERE current_date() > DATE '2020-01-01'": (["x"], None),
    "SELECT x FROM t TABLESAMPLE (100 PERCENT) AS s WHERE x > 1": (["x"], None),
    "SELECT x, e FROM t LATERAL VIEW explode(array(x)) v AS e WHERE e > 1": (["x"], None),
}


@pytest.mark.thorough
@pytest.mark.parametrize("query", ASKED)
def test_a_query_reads_the_columns_and_rows_that_it_needs(
    run: Any, root: str, spark: Any, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """[SP50]"""
    run("INSERT INTO t (x, `n b`, day) VALUES (1, 2.0, 'd'), (2, NULL, 'e'), (3, 1.0, 'e')")
    asked: list[tuple[list[str] | None, str | None]] = []
    read = mc.Table.read

    def spy(table: mc.Table, **arguments: Any) -> Any:
        where = arguments["filter"]
        asked.append((arguments["columns"], None if where is None else where.strip()))
        return read(table, **arguments)

    monkeypatch.setattr(mc.Table, "read", spy)
    found = sorted(run(query).collect(), key=repr)
    assert [(None if c is None else sorted(c), w) for c, w in asked] == [
        (None if ASKED[query][0] is None else sorted(ASKED[query][0] or []), ASKED[query][1])
    ]
    monkeypatch.setattr("manifestcommit.spark_sql.execution._needed", lambda need, schema: (None, None))
    assert found == sorted(run(query).collect(), key=repr) and found

"""Texts in SQL as statements: each part has its meaning, or the text is refused with the call that does it. No Spark."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.errors import UsageError
from manifestcommit.spark_sql import statements as sql
from manifestcommit.spark_sql.statements import When, parse

HOSTILE = "a b%20c+d=e#f'\"`é漢\\{x}--;"
QUOTED = "`" + HOSTILE.replace("`", "``") + "`"
T = ("t",)

LAST = pa.scalar(dt.date(2020, 1, 31))


def call(method: str, *arguments: object, **options: object) -> sql.Call:
    return sql.Call(target=T, method=method, arguments=arguments, options=options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1", sql.Select(query="select 1")),
        ("SELECT * FROM t;", sql.Select(query="SELECT * FROM t")),
        ("values (1), (2)", sql.Select(query="values (1), (2)")),
        ("from t select *", sql.Select(query="from t select *")),
        ("(select 1) union all select 2", sql.Select(query="(select 1) union all select 2")),
        ("with a as (select 1) select * from a", sql.Select(query="with a as (select 1) select * from a")),
        ("insert into t select 1", sql.Insert(target=T, query="select 1")),
        ("INSERT INTO TABLE t VALUES (1)", sql.Insert(target=T, query="VALUES (1)")),
        ("insert into t (select 1)", sql.Insert(target=T, query="(select 1)")),
        ("insert into t (a, `b c`) select 1, 2", sql.Insert(target=T, query="select 1, 2", columns=("a", "b c"))),
        ("insert into t by name select 1 as a", sql.Insert(target=T, query="select 1 as a", by_name=True)),
        ("with a as (select 1) insert into t select * from a", sql.Insert(target=T, query="with a as (select 1) select * from a")),
        ("insert into t with a as (select 1) select * from a", sql.Insert(target=T, query="with a as (select 1) select * from a")),
        ("insert overwrite t select 1", sql.Insert(target=T, query="select 1", overwrite=True)),
        (
            "insert into t by name replace where t.a > 1 and (b or c) with x as (select 1) select * from x",
            sql.Insert(target=T, query="with x as (select 1) select * from x", by_name=True, replaced="a > 1 and (b or c)"),
        ),
        ("delete from t", call("delete", "true")),
        ("delete from t where t.a = 1 and b = 't.a'", call("delete", "a = 1 and b = 't.a'")),
        ("delete from manifestcommit.`/a` as f where F.a", sql.Call(target=("manifestcommit", "/a"), method="delete", arguments=("a",))),
        (
            "update t f set f.a = f.a + 1, b = concat('x, y', f.s.c) where f.s.c > 0",
            call("update", {"a": "a + 1", "b": "concat('x, y', s.c)"}, "s.c > 0"),
        ),
        ("update t set a = case when b then 1 end", call("update", {"a": "case when b then 1 end"}, None)),
        (
            "merge into t using s on t.k = s.k when matched then update set * when not matched then insert *",
            sql.Merge(target=T, source="SELECT * FROM s", on={"k": "k"}, matched=(When(kind="update"),), unmatched=(When(kind="insert"),)),
        ),
        (
            "merge into t a using (select * from s) as b on (b.k = a.K) and a.j = b.j"
            " when matched and b.x > case when a.y then 1 else 0 end then delete"
            " when matched then update set a.x = b.x + a.x, y = false"
            " when not matched by target and b.x > 0 then insert (k, x) values (b.k, concat(b.x, ','))"
            " when not matched by source and a.y then update set x = a.x + 1"
            " when not matched by source then delete",
            sql.Merge(
                target=T,
                source="select * from s",
                on={"K": "K", "j": "j"},
                matched=(
                    When(kind="delete", where="source.x > case when target.y then 1 else 0 end"),
                    When(kind="update", values=(("x", "source.x + target.x"), ("y", "false"))),
                ),
                unmatched=(When(kind="insert", where="source.x > 0", values=(("k", "source.k"), ("x", "concat(source.x, ',')"))),),
                by_source=(When(kind="update", where="target.y", values=(("x", "target.x + 1"),)), When(kind="delete")),
            ),
        ),
        (
            "merge into t using s version as of 3 n on t.k = n.k when matched then delete",
            sql.Merge(target=T, source="SELECT * FROM s version as of 3", on={"k": "k"}, matched=(When(kind="delete"),)),
        ),
        (
            "merge with schema evolution into t using s on t.k = s.j and t.a <=> s.a when matched then delete",
            sql.Merge(
                target=T, source="SELECT * FROM s", on={"k": "j", "a": "a"}, null_safe=("a",), evolves=True, matched=(When(kind="delete"),)
            ),
        ),
        (
            "merge into t using s on t.k = s.j and t.day >= '1' when matched then delete",
            sql.Merge(
                target=T,
                source="SELECT * FROM s",
                on={"k": "j"},
                where="target.k = source.j and target.day >= '1'",
                matched=(When(kind="delete"),),
            ),
        ),
        (
            "insert with schema evolution into t by name select 1 as a",
            sql.Insert(target=T, query="select 1 as a", by_name=True, evolves=True),
        ),
        ("alter table t add column a decimal(10, 2)", call("add_column", "a", "decimal(10, 2)")),
        ("alter table t add column a.b.`c d` int", call("add_column", "a.b.c d", "int")),
        ("alter table t add columns (a struct<x: int>)", call("add_column", "a", "struct<x: int>")),
        ("alter table t add column a int default 1", call("add_column", "a", "int", default=pa.scalar(1, pa.int32()))),
        (
            "alter table t add columns (a date default date '2020-01-31')",
            call("add_column", "a", "date", default=pa.scalar(dt.date(2020, 1, 31))),
        ),
        ("alter table t add column a double default -(1 + 0.5)", call("add_column", "a", "double", default=pa.scalar(-1.5))),
        ("alter table t add column a string default upper('it\\'s')", call("add_column", "a", "string", default=pa.scalar("IT'S"))),
        ("alter table t add column a int default null", call("add_column", "a", "int")),
        ("alter table t rename column a to `b c`", call("rename_column", "a", "b c")),
        ("alter table t rename column s.`x y`.b to c", call("rename_column", "s.x y.b", "c")),
        ("alter table t drop column a", call("drop_column", "a")),
        ("alter table t drop column s.b", call("drop_column", "s.b")),
        ("alter table t alter column s.b comment 'what'", call("comment_column", "s.b", "what")),
        (
            "alter table t set partitioned by (day(ts), `h o`, bucket(16, user))",
            call("set_partitioning", ["day(ts)", "h o", "bucket(16, user)"]),
        ),
        ("alter table t set partitioned by none", call("set_partitioning", [])),
        ("alter table t drop columns (a)", call("drop_column", "a")),
        ("alter table t alter column a.b type bigint", call("widen_column", "a.b", "bigint")),
        ("alter table t alter column a type bigint", call("widen_column", "a", "bigint")),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK ((a) > 0 OR (b) < 1);", call("add_constraint", "c", "(a) > 0 OR (b) < 1")),
        ("alter table t drop constraint c", call("drop_constraint", "c")),
        ("alter table t set tblproperties ('a' = 'b', 'c'='d')", call("set_properties", {"a": "b", "c": "d"})),
        ("alter table t unset tblproperties if exists ('a')", call("set_properties", {"a": None})),
    ],
)
def test_a_statement_is_understood(text: str, expected: sql.Statement) -> None:
    """[SP48] Texts of conditions and values stay as they were given, but for the tables before their columns."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("select /*+ broadcast(f) */ a.table, `table`, table, t.identifier from f", None),
        ("insert into t select /*+ broadcast(f) */ '/*+ x */' from f /* x */", "select /*+ broadcast(f) */ '/*+ x */' from f"),
    ],
)
def test_hints_of_queries_and_columns_called_table_are_kept(text: str, query: str | None) -> None:
    """[SP49]"""
    assert parse(text).query == (query or text)  # type: ignore[union-attr]


def test_a_struct_called_source_is_a_column_behind_its_table() -> None:
    """[SP48] `source` and `target` may be names of the tables, too, whichever they are."""
    found = parse(
        "merge into t source using s target on source.k = target.k when matched and source.target.x = target.source.y then delete"
    )
    assert found.matched[0].where == "target.target.x = source.source.y"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "delete from {} where {}.`x y` = 1",
        "insert into {} select 1",
        "update {} set a = {}.b",
        "merge into {} using s on {}.k = s.k when matched then delete",
        "alter table {} drop column a",
    ],
)
def test_a_hostile_name_is_one_name(text: str) -> None:
    """[SP48]"""
    found = parse(text.replace("{}", QUOTED))
    assert found.target == (HOSTILE,)  # type: ignore[union-attr]  # a query has none
    if isinstance(found, sql.Call) and found.method == "delete":
        assert found.arguments == ("`x y` = 1",)


REFUSED = {
    "": "it is empty",
    ";": "it is empty",
    "select 1; drop table t": "several statements",
    "delete from t where a = 1; delete from u": "several statements",
    "insert into t replace where a in (select 1) select 1": r"has a query in it.*overwrite_where",
    "insert into t (a) replace where a = 1 select 1": r"'replace'.*mc\.write",
    "insert overwrite t replace where a = 1 select 1": "'replace'",
    "insert into t replace using (a) select 1": "'replace'",
    "insert t select 1": "'t' is not understood",
    "insert into t (a) by name select 1": "not understood",
    "insert into t table u": "'table'",
    "from u insert into t select * insert into v select *": "not one query",
    "delete from t where": "ends too early",
    "delete from t where a in (select b from u)": r"has a query in it.*Table\(path\)\.delete",
    "delete from t using u where t.a = u.a": "not understood",
    "delete from t where a = 1 order by a": "not one expression",
    "delete from t where a, b": "not one expression",
    "update t set a = 1 from u": "not one expression",
    "update t set a = b b": "not one expression",
    "update t set a = (select max(b) from u)": "has a query in it",
    "update t set a = 1, A = 2": "names a column twice",
    "update t set a.b.c = 1": "only whole columns",
    "update t set u.a = 1": "only whole columns",
    "update t where a = 1": "not understood",
    "merge into t using s on t.k < s.k when matched then delete": "the condition of a MERGE",
    "merge into t using s on t.k = s.k or t.j = s.j when matched then delete": "the condition of a MERGE",
    "merge into t using s on k = k when matched then delete": "the condition of a MERGE",
    "merge into t using t on t.k = t.k when matched then delete": "give one an alias",
    "merge into t using s on t.k = s.k": "not understood|ends too early",
    "merge into t using s on t.k = s.k when matched then update set s.v = 1": "s.v gets a value: only whole columns of the table",
    "merge into t using s on t.k = s.k when not matched then insert (k, s.v) values (s.k, 1)": "only whole columns of the table",
    "merge into t using s on t.k = s.k when matched and source.v = 1 then delete": "source is no table of the MERGE",
    "merge into t using s on t.k = s.k when matched then update set v = Target.v": "target is no table of the MERGE",
    "merge into t using source on t.k = source.k when not matched then insert (k) values (target.v)": "target is no table of the MERGE",
    # a hint is no comment
    "delete from t /*+ where id = 1 */": "a hint",
    "/*+ x */ delete from t": "begins no statement",
    "update t set a = 1 /*+ where id = 1 */": "a hint",
    "insert into t /*+ (a, b) */ select 1": "a hint",
    # tables that a parser does not see
    "select * from (table t)": "TABLE t is not understood: write SELECT",
    "with x as (table `t`) select * from x": "TABLE `t` is not understood",
    "select 1 where exists (/* a */ Table /* b */ t)": "TABLE t is not understood",
    "insert into t ((table u))": "TABLE u is not understood",
    "select * from identifier('t')": r"IDENTIFIER\(…\) is not understood",
    "select * from IDENTIFIER ('t')": r"IDENTIFIER\(…\) is not understood",
    "delete from t where identifier('a') = 1": "is not understood",
    "merge into t using s on t.k = s.k when not matched then update set a = 1": "'update'",
    "merge into t using s on t.k = s.k when matched then insert *": "'insert'",
    "merge into t using s on t.k = s.k when not matched by source then update set *": "needs a row of the source",
    "merge into t using s on t.k = s.k when not matched then insert (a, b) values (1)": "one value for each column",
    "insert with schema evolution into t select 1": "needs BY NAME",
    "create table t (a int)": r"mc\.create_table",
    "create table t as select 1": r"mc\.write\(df, path",
    "create view v as select 1": r"spark\.sql",
    "alter table t add columns (a int, b int)": "','",
    "alter table t add column a int not null": "'not'",
    "alter table t add column a int default b": "no column 'b'",
    "alter table t add column a int default 1.5": "is no value of the type integer",
    "alter table t add column a int default 'x'": "is no value of the type integer",
    "alter table t add column a int default current_date()": "is no value of the type integer|not understood",
    "alter table t add column a int comment 'c'": "'comment'",
    "alter table t set partitioned by ()": "is not understood",
    "alter table t drop columns (a, b)": "','",
    "alter table t rename to u": "'rename'",
    "alter table t add constraint c unique (a)": "not understood",
    "describe history t": r"mc\.Table\(path\)\.history",
    "optimize t": "sort_by",
    "vacuum t dry run": "plan_gc",
    "refresh table t": r"mc\.attach",
    "insert overwrite t partition (day = '1') select 1": "REPLACE WHERE",
    "explain delete from t": "dry_run=True",
    "truncate table t": "DELETE FROM",
    "restore table t to version as of 1": "rollback",
    "convert to delta t": r"mc\.Table\(path\)\.adopt",
    "drop table t": "spark.sql",
    "set a = 1": r"spark\.sql",
    "select from where": "Instead",
    "select 1 from": "Instead",
    "selec 1": "begins no statement",
    "'select 1'": "begins no statement",
    "select 'never closed": "Missing|Error",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_understood_is_refused_with_what_to_do(text: str) -> None:
    """[SP49] Nothing is done by a parser; the error says so, and what does it."""
    with pytest.raises(UsageError, match=REFUSED[text]) as refused:
        parse(text)
    assert "nothing was done. Instead: " in str(refused.value)
    assert refused.value.argument == "statement"


@pytest.mark.parametrize(
    "text",
    [
        "insert into t replace where a = '1' select 1",
        "delete from t f where f.a = 1",
        "update t f set a = 1 where b = 2",
        "merge into t using s on t.k = s.k when matched and s.a > 1 then update set a = s.a when not matched then insert *",
        "alter table t rename column a to b",
    ],
)
def test_no_word_is_passed_over(text: str) -> None:
    """[SP49] A word more, wherever it is put, changes the statement or refuses it: none is ignored."""
    words, whole = text.split(" "), parse(text)
    for place in range(len(words) + 1):
        more = " ".join([*words[:place], "surplus", *words[place:]])
        try:
            found = parse(more)
        except UsageError:
            continue
        assert found != whole and "surplus" in repr(found), more


WORDS = "select insert into update delete from t where set a = 1 'x' ( ) , . * ; merge when `"


@given(st.lists(st.sampled_from(WORDS.split()), max_size=12))
def test_any_words_are_a_statement_or_refused(words: list[str]) -> None:
    """[SP49] No other error, whatever is written."""
    refused = None
    try:
        found = parse(" ".join(words))
    except UsageError as error:
        found, refused = None, error.argument
    assert (found is None) == (refused == "statement")

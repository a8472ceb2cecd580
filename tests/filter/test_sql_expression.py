"""SQL without Spark: what it does not understand it says, and never guesses. What it does understand is judged by Spark, in
tests/spark/filter/test_sql_expression.py. [RC2]"""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.filter import sql_results

from manifestcommit.errors import UsageError
from manifestcommit.filter.predicate import And, Compare, Not, Or, StartsWith, Unknown
from manifestcommit.filter.sql_expression import Session, columns_of, compile_condition, compile_value, literal, pruning
from manifestcommit.filter.sql_syntax import IncompleteError, NotUnderstoodError
from manifestcommit.format.fields import CHAR_VARCHAR, Field, Schema
from manifestcommit.format.values import arrow_schema, arrow_type
from manifestcommit.rows.clauses import evaluated, mask_of, understand

SCHEMA = Schema(
    fields=(
        Field(id=1, name="i", type="integer"), Field(id=2, name="s", type="string"), Field(id=3, name="at", type="timestamp"),
        Field(id=4, name="m", type="decimal(38,10)"), Field(id=5, name="code", type="string", metadata={CHAR_VARCHAR: "char(5)"}),
        Field(id=6, name="a b%+=#'é`", type="long"),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "i = 1 2", "i AND i", "i = 'abc'", "s = 5", "s = 2013-01-01", "at > '2013-01-01 00:00:00'", "at > TIMESTAMP '2013-01-01'",
        "at = DATE '2013-02-30'", "code = 'ab'", "m * m = 1", "initcap(s) = 'a'", "s RLIKE 'a'", "s LIKE '\\\\a'", "s LIKE s",
        "i IN (SELECT 1)", "EXISTS (SELECT 1)", "i = 1 -- more", "i = 1 /* more */", "i = 1; DROP TABLE t", "i DIV 2 = 1", "1.5D % 2 = 1",
        "rand() < 0.5", "current_date() > DATE '2013-01-01'", "CAST(s AS int) = 1", "i = 99999999999999999999999999999999999999999",
        "X'00' = X'00'", "'a\\x' = s", "NOT " * 3 + "(" * 200 + "true" + ")" * 200, "i IN ()", "i.x = 1", "\U0001f600 = 1",
    ],
)  # fmt: skip
def test_what_only_spark_may_know_is_not_understood(text: str) -> None:
    """A session's zone, a collation, a cast of a text, a subquery. [RC8]"""
    with pytest.raises(NotUnderstoodError):
        compile_condition(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "ends too early"), ("i =", "ends too early"), ("i = 1 AND", "ends too early"), ("(i = 1", "ends too early"),
        ("i IN (1, ", "ends too early"), ("i = 1)", "parenthesis"), ("i == = 1", "missing before '='"),
        ("i IN (1, )", r"missing before '\)'"), ("= 1 OR i = 2", "missing before '='"), ("i", "neither true nor false"),
        ("i + 1", "neither true nor false"), ("s", "string values are neither true nor false"), ("s = 'a", "quote before 'a'"),
        ("s = \"a'", "quote before"), ("`i = 1", "quote before 'i = 1'"),
    ],
)  # fmt: skip
def test_half_a_condition_is_none_for_spark_either(text: str, says: str) -> None:
    """So that it is refused here, and no session is started to hear the same. [RC8]"""
    with pytest.raises(IncompleteError, match=says):
        compile_condition(text, SCHEMA)


@pytest.mark.parametrize("text", ["nope = 1", "i = nope", "`i ` = 1", "length(`S2`) = 1"])
def test_a_column_that_does_not_exist_is_named(text: str) -> None:
    """[RC2]"""
    with pytest.raises(UsageError, match="A text has quotes: ", check=lambda error: not isinstance(error, NotUnderstoodError)):
        compile_condition(text, SCHEMA)


def test_names_are_quoted_as_in_sql() -> None:
    """[RC2]"""
    rows = pa.table({"i": [1, 2, None], "a b%+=#'é`": [7, None, 9]})
    for text, kept in (("`a b%+=#'é``` = 7", [1]), ("I = 2 OR `A B%+=#'é``` > 8", [2, None])):
        assert rows.filter(compile_condition(text, SCHEMA)).column("i").to_pylist() == kept


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs",))))
def test_any_text_in_quotes_is_that_text(value: str) -> None:
    """[RC2]"""
    for quote in "'\"":
        written = value.replace("\\", "\\\\").replace(quote, quote * 2)
        assert compile_value(quote + written + quote, columns_of(SCHEMA))[1:4] == ("string", True, value)


@given(st.text(max_size=30))
def test_any_text_is_a_condition_or_an_error_for_its_author(text: str) -> None:
    """[RC8]"""
    try:
        compile_condition(text, SCHEMA)
    except UsageError:
        return
    assert text.strip(" ()").lower() in ("true", "false", "null")


def test_a_value_of_python_is_a_literal() -> None:
    """[RC2]"""
    noon = dt.datetime(2013, 1, 1, 12)
    for value, kind in ((None, "void"), (True, "boolean"), (5, "integer"), (2**40, "long"), (0.5, "double"), (noon, "timestamp_ntz")):
        assert literal(value).type == kind
    for value, kind in (
        (noon.replace(tzinfo=dt.UTC), "timestamp"),
        (noon.date(), "date"),
        (b"x", "binary"),
        (Decimal("1.50"), "decimal(38,2)"),
    ):
        assert literal(value).type == kind
    with pytest.raises(NotUnderstoodError):
        literal(object())
    with pytest.raises(NotUnderstoodError):
        literal(2**70)
    assert compile_value("'x'", columns_of(SCHEMA)).value == "x"


@pytest.mark.parametrize(
    "text",
    [
        "i = 1 = true", "i = 1 IS NULL", "i IS NULL IS NULL", "i NOT IN (1) IS NULL", "i NOT NULL", "i IS 5", "i IS NOT (NULL)",
        "i BETWEEN 1 2", "CASE WHEN true 1 END = 1", "i = NOT i", "s || 'a' + 'b' = 'c'", "s || i + i = 'c'", "s = 'a' 'b'", "s = r'a'",
        "s = N'a'", "s = date_add 'a'", "s . 'i' = 1", "true.i = 1", "+s = 'a'", "- + 1 = i", "i = 1 ORDER BY i", "(i = 1) AS x",
        "(i AS x) = 1", "length(s => 'a') = 1", "length(DISTINCT s) = 1", "length(s) OVER () = 1", "length(s) FILTER (WHERE true) = 1",
        "i.length(s) = 1", "(i, i) = (1, 2)", "i::int = 1", "i[0] = 1", "i:x = 1", "{fn length(s)} = 1", "i = ?", "i = :x",
        "s LIKE 'a' ESCAPE '/'", "s LIKE ANY ('a', 'b')", "s COLLATE UTF8_LCASE = 'a'", "at AT TIME ZONE 'UTC' = at", "i /*+ hint */ = 1",
        "i = 1 -- ", "i IN (1, 2) = true", "i & 1 = 1", "i = 1 XOR i = 2", "CAST(i AS text) = '1'", "CAST(i AS int64) = 1",
        "CAST(i AS decimal(10, 2, 3)) = 1", "CAST(i int) = 1", "TRY_CAST(i AS int) = 1", "2i = 1", "i = 1e", "i = 1F", "i = 0x10", "* = 1",
        "i.* = 1", "s = 'a\u00a0",
        *("i" + " + i" * 5000 + " = 1", "(" * 9000, "CASE " * 500, "- " * 999 + "i = 1", "NOT (" * 60 + "true" + ")" * 60),
    ],
)  # fmt: skip
def test_what_sqlglot_reads_otherwise_is_no_guess(text: str) -> None:
    """sqlglot passes over words, or makes a tree that Spark's grammar does not make, or nests deeper than people write. [RC8]"""
    with pytest.raises((NotUnderstoodError, IncompleteError)):
        compile_condition(text, SCHEMA)


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["(" * 31 + "{}" + ")" * 31, "NOT " * 30 + "{}", "if({}, true, false)", "(" + "{} OR " * 3000 + "{})"])
def test_parts_nest_as_deep_as_people_write(text: str) -> None:
    """[RC2]"""
    assert compile_condition(text.replace("{}", "i = 1"), SCHEMA) is not None


@pytest.mark.parametrize(
    "name", ["left", "date", "timestamp", "interval", "current_date", "year", "index", "table", "values", "row", "key"]
)
def test_words_that_are_no_keywords_name_columns(name: str) -> None:
    """[RC2]"""
    schema = Schema(fields=(Field(id=1, name=name, type="integer"),))
    rows = pa.table({name: pa.array([1, 2], pa.int32())})
    assert rows.filter(compile_condition(f"{name} + 1 = 2 AND 5 > {name.upper()}", schema)).num_rows == 1


UTC_HERE = Session(is_utc=True)
SPARKS = json.loads(sql_results.ANSWERS.read_text("utf-8"))


def value_of(text: str, rows: pa.Table, schema: Schema = sql_results.SCHEMA) -> pa.ChunkedArray:
    made = compile_value(text, columns_of(schema), UTC_HERE)
    values = evaluated(rows, {"v": made.expression}).column("v")
    assert values.type == arrow_type(made.type)
    return values


@pytest.mark.parametrize("text", sql_results.texts(sql_results.CONDITIONS + sql_results.VALUES))
def test_a_text_has_the_value_that_spark_computes(text: str) -> None:
    """Spark's answers are stored; tests/spark/filter/test_sql_expression.py has them confirmed. [RC2]"""
    kind, answers = (SPARKS["conditions"] | SPARKS["values"])[text]
    values = value_of(text, sql_results.rows())
    assert sql_results.spelled(values) == answers
    assert {"int": "integer", "bigint": "long", "tinyint": "byte"}.get(kind, kind) == compile_value(
        text, columns_of(sql_results.SCHEMA), UTC_HERE
    ).type


@pytest.mark.parametrize(
    "text",
    [
        "at > TIMESTAMP '2013-01-01'", "at > DATE '2013-01-01'", "ntz < TIMESTAMP '2013-01-01 05:00:00'", "ntz = at", "day = at",
        "year(at) = 2013", "to_date(at) = day", "CAST(at AS date) = day", "date_trunc('day', ntz) = at", "at + INTERVAL 1 DAY = at",
        "day + INTERVAL 1 HOUR = at", "CASE WHEN i > 0 THEN day ELSE at END = at",
    ],
)  # fmt: skip
def test_what_depends_on_the_zone_needs_utc(text: str) -> None:
    """The error says which zone would do. [RC8]"""
    with pytest.raises(NotUnderstoodError, match="session's time zone"):
        compile_condition(text, sql_results.SCHEMA)
    compile_condition(text, sql_results.SCHEMA, UTC_HERE)


def test_the_time_is_what_the_caller_says() -> None:
    """[RC8]"""
    now = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    session = Session(is_utc=True, now=now)
    for text in ("current_date", "current_date()", "CURRENT_DATE"):
        assert compile_value(text, columns_of(sql_results.SCHEMA), session)[1:4] == ("date", True, now.date())
        with pytest.raises(NotUnderstoodError, match="time of the evaluation"):
            compile_value(text, columns_of(sql_results.SCHEMA), UTC_HERE)
        with pytest.raises(NotUnderstoodError, match="session's time zone"):
            compile_value(text, columns_of(sql_results.SCHEMA), Session(now=now))
    for text in ("current_timestamp", "current_timestamp()", "now()"):
        assert compile_value(text, columns_of(sql_results.SCHEMA), Session(now=now))[1:4] == ("timestamp", True, now)
    with pytest.raises(UsageError, match="has no column"):
        compile_value("`current_date`", columns_of(sql_results.SCHEMA), session)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lower(s)", "İ"), ("lower(s)", "ΑΣ"), ("upper(s)", "straße"), ("upper(s)", "ﬁ"), ("upper(s)", "\u1f80"),
        ("lower(s)", "\U00010d50"), ("s ILIKE 'a%'", "AİB"),
    ],
)  # fmt: skip
def test_a_letter_whose_case_spark_changes_otherwise_is_refused(text: str, value: str) -> None:
    """[RC2]"""
    schema = Schema(fields=(Field(id=1, name="s", type="string"),))
    assert value_of(text, pa.table({"s": ["Ab", None]}), schema).null_count == 1
    with pytest.raises(pa.ArrowInvalid, match="not done without Spark"):
        value_of(text, pa.table({"s": ["Ab", value]}), schema)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("i % 0", {"i": [1]}),
        ("year(day)", {"day": pa.array([20_000_000], pa.int32()).cast(pa.date32())}),
        ("date_trunc('day', at)", {"at": pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))}),
        ("to_date(iso)", {"iso": ["2013-1-1"]}),
        ("to_date(iso)", {"iso": ["2013-02-29"]}),
        ("to_date(iso)", {"iso": ["x"]}),
        ("floor(d)", {"d": [1e300]}),
        ("day + INTERVAL 1 DAY", {"day": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())}),
        ("at + INTERVAL 1 DAY", {"at": pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("us", "UTC"))}),
    ],
)
def test_a_value_that_cannot_be_computed_is_an_error(text: str, rows: dict[str, Any]) -> None:
    """Of Spark's too, or of a row that only Spark can judge. [RC2]"""
    given = pa.table({name: pa.array(values) if isinstance(values, list) else values for name, values in rows.items()})
    schema = Schema(fields=tuple(field for field in sql_results.SCHEMA.fields if field.name in rows))
    with pytest.raises(pa.ArrowInvalid):
        value_of(text, given.cast(arrow_schema(schema, physical=False, ids=False)), schema)


@pytest.mark.parametrize(
    "text",
    [
        "round(d, 1)", "round(i, -1)", "round(m, i)", "round(s)", "d % 2", "m % 2", "lower(i)", "trim('x', s)", "substring(s, i, 1)",
        "substring(s, 1.5)", "substring(s, 10000000000)", "replace(s, p, 'x')", "replace(s, NULL)", "concat(s, d)", "concat()",
        "to_date(s, 'yyyy')", "to_date(i)", "date_trunc('decade', at)", "date_trunc(s, at)", "hour(day)", "year(iso)",
        "INTERVAL 1 MONTH + day", "INTERVAL 1 DAY 2 HOURS + at", "INTERVAL '1 2' DAY TO HOUR + at", "INTERVAL '1 day' + day",
        "INTERVAL '1.5' SECOND + at", "INTERVAL i DAY + day", "INTERVAL 999999999 WEEK + day", "day - day", "day - INTERVAL 1 DAY - day",
        "INTERVAL 1 DAY - day", "INTERVAL 1 DAY = INTERVAL 24 HOURS", "INTERVAL 1 DAY", "INTERVAL 1 DAY + NULL", "ifnull(i, l, b)",
        "CASE WHEN NULL THEN i ELSE l END", "CASE WHEN (NULL) THEN i ELSE l END", "'2013-01-01' IN (s, ntz)", "s IN ('a', i)",
        "INTERVAL 1 DAY + INTERVAL 1 DAY + day", "day + if(i > 0, INTERVAL 1 DAY, INTERVAL 2 DAY)", "day + coalesce(INTERVAL 1 DAY, NULL)",
        "day + nullif(INTERVAL 1 DAY, INTERVAL 2 DAY)", "day + -INTERVAL 1 DAY", "INTERVAL 1 DAY % 2", "CAST(INTERVAL 1 DAY AS string)",
        "concat(INTERVAL 1 DAY)", "i IN (INTERVAL 1 DAY)", "day + 1", "s ILIKE p", "s ILIKE 'İ%'", "TIMESTAMP '2013-01-01 24:00:00'",
        "TIMESTAMP '2013-01-01 00:00:00+19:00'", "TIMESTAMP 'now'", "DATE 'today'", "DATE 5", "date_add(day, 1)", "extract(year FROM day)",
        "trim(BOTH 'x' FROM s)", "substring(s FROM 1 FOR 2)", "floor(d, 1)", "current_timestamp(3)",
    ],
)  # fmt: skip
def test_what_has_no_certain_value_is_not_understood(text: str) -> None:
    """[RC8]"""
    with pytest.raises(NotUnderstoodError):
        compile_value(text, columns_of(sql_results.SCHEMA), Session(is_utc=True, now=dt.datetime.now(dt.UTC)))


def test_a_condition_keeps_its_meaning_on_its_way_to_the_rows() -> None:
    """Also after Spark's order of floats was put in, and where files are skipped: none is that has a row. [RC2] [RD6]"""
    rows = sql_results.rows().drop(["row"])
    for text in sql_results.texts(sql_results.CONDITIONS):
        wanted = understand(text, sql_results.SCHEMA, "where", UTC_HERE)
        assert sql_results.spelled(mask_of(rows, wanted.form)) == SPARKS["conditions"][text][1], text
        found = ds.dataset(rows).to_table(filter=wanted.form)
        assert found.num_rows == SPARKS["conditions"][text][1].count("True"), text


def test_sums_and_products_are_computed_in_the_order_of_the_text() -> None:
    """Arrow reorders a chain of one operation: another last digit, or no overflow. [RC2]"""
    schema = Schema(fields=(Field(id=1, name="d", type="double"), Field(id=2, name="l", type="long")))
    rows = pa.table({"d": [9999999.999], "l": [2**63 - 1]})
    assert value_of("12 * (d * -2.5D)", rows, schema).to_pylist() == [12 * (9999999.999 * -2.5)] != [12 * 9999999.999 * -2.5]
    assert value_of("1e16 + (d + 1D)", rows, schema).to_pylist() == [1e16 + (9999999.999 + 1)]
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        value_of("(l + 1) + -1", rows, schema)


def test_each_term_that_is_understood_skips_files() -> None:
    """The others are unknown, and so is what a NOT makes of one. Operators may be calls by name, as Spark writes a Column. [RD6]"""
    five, more = Compare(op="=", column=("i",), value=5), Compare(op=">", column=("i",), value=1)
    a = StartsWith(column=("s",), prefix="a")
    for text in ("i = 5 AND (i > 1 OR s LIKE 'a%') AND md5(s) = 'x'", "`and`(i = 5, `or`(`>`(i, 1), `like`(s, 'a%'))) AND md5(s) = 'x'"):
        found = pruning(text, SCHEMA, Session())
        assert isinstance(found, And) and isinstance(found.args[-1], Unknown), text
        assert {five, Or(args=(more, a))} <= {*found.args, *getattr(found.args[0], "args", ())}, text
    for text in ("NOT md5(s) = 'x'", "NOT (i = 5 AND md5(s) = 'x')", "no column", "nothing = 5", "i", "("):
        assert isinstance(pruning(text, SCHEMA, Session()), Unknown), text
    assert pruning("`not`(`in`(i, 5))", SCHEMA, Session()) == Not(arg=five)


@pytest.mark.thorough
def test_thousands_of_terms_are_pruned_by() -> None:
    """Or are unknown, as nested calls are: no stack overflows. [RD6]"""
    terms = [f"i = {number}" for number in range(5_000)]
    assert isinstance(pruning(" OR ".join(terms), SCHEMA, Session()), Or)
    assert isinstance(pruning("`or`(" * 2_000 + "i = 1" + ", i = 2)" * 2_000, SCHEMA, Session()), Unknown)


READ_BY_SPARK_ALONE = ["s RLIKE 'a'", "s LIKE '!%' ESCAPE '!'", "s = X'61'", "t[0] = 1 AND t[1] = 'OR'", "i & 1 BETWEEN 0 AND 1"]


@pytest.mark.parametrize("odd", [*READ_BY_SPARK_ALONE, "CASE WHEN s RLIKE 'a' AND i = 7 THEN true END", "(s RLIKE 'a' AND i = 7)"])
def test_terms_beside_one_that_only_spark_reads_skip_files(odd: str) -> None:
    """[RD6]"""
    five, two = (Compare(op="=", column=(name,), value=value) for name, value in (("i", 5), ("m", 2)))
    found = pruning(f"i = 5 AND {odd} and m = 2.0", SCHEMA, Session())
    assert isinstance(found, And) and (found.args[0], found.args[-1]) == (five, two)
    assert all(isinstance(each, Unknown) for each in found.args[1:-1])


@pytest.mark.parametrize(
    "text",
    [
        "i = 5 AND s RLIKE 'a' OR i = 7", "i = 5 AND s RLIKE 'a' -- OR", "i = 5 /* OR */ AND s RLIKE 'a'",
        "i = 5 AND s RLIKE r'\\' AND s = ' OR i = 7 OR s = '", "i = 5 AND s RLIKE 'a", "i = 5 AND (s RLIKE 'a'",
        "i = 5 AND i BETWEEN s RLIKE 'a'", "NOT (i = 5 AND s RLIKE 'a')", " AND ".join(["s RLIKE 'a'"] * 200),
    ],
)  # fmt: skip
def test_a_text_whose_terms_are_not_certain_skips_no_file(text: str) -> None:
    """[RD6]"""
    assert isinstance(pruning(text, SCHEMA, Session()), Unknown)

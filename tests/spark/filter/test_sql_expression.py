"""SQL that is evaluated without Spark has the values that Spark computes, by Spark's own judgement. [RC2]"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from tests.filter import sql_results
from tests.kit.spark_frames import ARROW, NUMBERED, SCHEMA, matches
from tests.kit.spark_frames import frame as frame

import manifestcommit as mc
from manifestcommit.filter.arrow_expression import parse_expression
from manifestcommit.filter.predicate import Unknown
from manifestcommit.filter.sql_expression import _ODD_CASE, columns_of, compile_condition, compile_value
from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.values import arrow_type
from manifestcommit.rows.clauses import evaluated, session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIGNS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
CONDITIONS = [
    *(f"{column} {sign} {value}" for column in ("f", "d") for sign in SIGNS for value in ("0", "0.1", "1e0", "NULL")),
    *(f"f {sign} d" for sign in SIGNS), *(f"d {sign} l" for sign in SIGNS),
    *(f"{value} {sign} i" for sign in SIGNS for value in ("1", "1.5", "'5'", "-16777216", "10000000000")),
    *(f"l {sign} i" for sign in SIGNS), *(f"m {sign} {value}" for sign in SIGNS for value in ("1.50", "1.505", "5", "i", "d")),
    *(f"s {sign} {value}" for sign in SIGNS for value in ("'a'", '"a"', "''", "'%_\\\\'", "digits")),
    *(f"day {sign} {value}" for sign in SIGNS for value in ("'2024-02-29'", "DATE '2024-03-01'")),
    *(f"ts {sign} {value}" for sign in SIGNS for value in ("'2024-02-29T12:30:00.000001Z'", "TIMESTAMP '2024-02-29 00:00:00+00:00'")),
    *(f"ntz {sign} {value}" for sign in SIGNS for value in ("TIMESTAMP_NTZ '2024-02-29 12:30:00.000001'", "'2024-02-29'")),
    *(f"ok {sign} true" for sign in SIGNS), "ok", "NOT ok", "!ok OR i > 1 AND s IS NULL", "isnan(d)", "isnan(f) = (f = f)", "ok IS TRUE",
    "ok IS NOT FALSE", "i IS DISTINCT FROM 5", "i IS NOT DISTINCT FROM l", "i IN (1, 5, NULL)", "i NOT IN (1, 1.5, 40000000000)",
    "i NOT IN (1, NULL)", "f IN (0.0, 1.5)", "s IN ('a', 'é', 'x')", f"l IN ({', '.join(map(str, range(1, 60)))})",
    f"NOT (l IN ({', '.join(map(str, range(1, 60)))}, NULL))", f"NOT (s IN ('a', {', '.join(repr(str(n)) for n in range(60))}))",
    "i BETWEEN 1 AND 5", "i NOT BETWEEN 0 AND l", "s LIKE 'a%'", "s NOT LIKE '_'", "s LIKE '\\%\\_\\\\\\\\'", "s LIKE ''", "s LIKE '%b'",
    "startswith(s, 'a') OR endswith(s, 'b') OR contains(s, '_')", "length(s) > 1", "trim(digits) = '5'", "coalesce(s, digits) = '50'",
    "nullif(i, 5) IS NULL", "`a.b``c`.x = 1", "`a.b``c`.`y z.` > 1", "i + 1 > l", "I * 2 = i + i", "-i < 0", "abs(l) > 4 AND abs(l) < 100",
    "i / 2 = 0.5", "m * 2 = 3.00", "m + i > 1.5D", "m = 1.50BD OR i < 5BD", "i = 5.0D OR i > 1.5D", "i >= -1.0D AND i <> 1e300D",
    "i <=> 5 OR s <=> 'a'", "NOT (i <=> 5)", "m = -99999999.99D", "d < m", "CASE WHEN i > 1 THEN s WHEN ok THEN 'x' ELSE digits END = 'x'",
    "CASE i WHEN 5 THEN true END", "if(ok, i, l) = 5", "year(day) = 2024 AND month(day) > 2 OR dayofmonth(day) = 1", "s || digits = 'a05'",
    "concat(s, '-', digits) LIKE 'a-%'", "CAST(i AS BIGINT) = l OR CAST(m AS decimal(20, 4)) = 1.5", "CAST(ntz AS date) = '2024-02-29'",
    "NULL", "true",
]  # fmt: skip
VALUES = [
    "i", "i + 1", "i + l", "i * 1.5", "m + 1", "m * m", "i / l + 1", "f + 1", "f * d", "CAST(m + 0.35 AS double)", "CAST(m AS float)",
    "coalesce(s, 'none')", "d - i", "if(ok, 1, 2.5)",
]  # fmt: skip

KINDS = {"integer": "int", "long": "bigint"}


def is_right(sparks: Any, ours: Any) -> bool:
    if isinstance(sparks, float) and math.isnan(sparks):
        return isinstance(ours, float) and math.isnan(ours)
    return bool(sparks == ours)


@pytest.mark.thorough
def test_a_condition_selects_the_rows_that_spark_selects(frame: DataFrame) -> None:
    """NaN, -0.0, nulls in lists, decimals beside floats, times with zones, texts of all kinds; and the negation of each."""
    asked = [*CONDITIONS, *(f"NOT ({each})" for each in CONDITIONS)]
    kept = understood = 0
    for condition, rows in zip(asked, matches(frame, [F.expr(each) for each in asked]), strict=True):
        ours = compile_condition(condition, SCHEMA)
        assert rows == set(NUMBERED.filter(ours).column("row").to_pylist()), condition
        understood += not isinstance(parse_expression(ours, ARROW), Unknown)
        kept += len(rows)
    assert kept > len(asked) and understood > len(asked) // 2, "files are skipped by them"


@pytest.mark.thorough
def test_a_value_is_the_one_that_spark_computes_and_of_its_type(frame: DataFrame) -> None:
    """Some of the rows have no such value, as a division by zero has none. [RC2]"""
    some = "i != 0 AND l != 0 AND i > -10"
    rows = frame.filter(some).sort("row").selectExpr(*(f"{each} AS v{at}" for at, each in enumerate(VALUES)))
    sparks = rows.collect()
    data = NUMBERED.filter(compile_condition(some, SCHEMA))
    assert len(sparks) == len(data) > 2
    for at, text in enumerate(VALUES):
        made = compile_value(text, columns_of(SCHEMA))
        ours = ds.dataset(data).to_table(columns={"v": made.expression}).column("v")
        assert all(is_right(row[at], each) for row, each in zip(sparks, ours.to_pylist(), strict=True)), text
        assert arrow_type(made.type) == ours.type and made.type.replace("integer", "int") in rows.dtypes[at][1].replace("bigint", "long"), (
            text
        )


def test_a_column_by_one_literal_is_still_seen_by_pruning() -> None:
    """[RD6]"""
    for text in ("i = 5", "i > 1.5", "f >= 1", "m = 5", "day = '2024-02-29'", "s LIKE 'a%'", "i IN (1, 2)", "NOT (i = 5)"):
        predicate = parse_expression(compile_condition(text, SCHEMA), ARROW)
        assert not isinstance(predicate, Unknown), text


@pytest.fixture
def utc(spark: SparkSession) -> Iterator[SparkSession]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.mark.thorough
def test_the_stored_answers_are_sparks(utc: SparkSession, tmp_path: Path) -> None:
    """tests/filter/test_sql_expression.py compares ours with them. [RC2]"""
    stored = json.loads(sql_results.ANSWERS.read_text("utf-8"))
    assert sql_results.sparks_answers(utc, tmp_path) == stored


@pytest.mark.thorough
def test_every_letter_has_the_case_that_spark_gives_it_or_none(spark: SparkSession, tmp_path: Path) -> None:
    """Of all characters: the same, or refused; Σ, whose small letter depends on what follows, is refused. [RC2]"""
    letters = [chr(code) for code in range(1, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    pq.write_table(pa.table({"s": letters}), tmp_path / "letters.parquet")
    every = spark.read.parquet(str(tmp_path / "letters.parquet"))
    changed = every.selectExpr("s", "lower(s) AS lower", "upper(s) AS upper").where("s != lower OR s != upper").toArrow()
    sparks = {row["s"]: row for row in changed.to_pylist()}
    schema = Schema(fields=(Field(id=1, name="s", type="string"),))
    for name, odd in _ODD_CASE.items():
        plain = pa.table({"s": letters}).filter(~pc.match_substring_regex(pc.field("s"), odd))
        made = compile_value(f"{name}(s)", columns_of(schema)).expression
        ours = evaluated(plain, {"v": made}).column("v").to_pylist()
        wrong = [one for one, each in zip(plain.column("s").to_pylist(), ours, strict=True) if sparks.get(one, {name: one})[name] != each]
        assert not wrong, name
        assert len(letters) - len(plain) < 2000


@pytest.mark.thorough
def test_a_session_of_another_zone_evaluates_what_depends_on_it(spark: SparkSession, root: str) -> None:
    """Here its zone is Kathmandu's, 5:45 before UTC; letters of doubtful case are left to it, too. [RC8]"""
    assert not session_of().is_utc and not session_of().has_spark and session_of(falls_back=True).has_spark
    midnight = datetime(2013, 1, 1, tzinfo=UTC)
    mc.write(pa.table({"at": [midnight, midnight + timedelta(hours=1)], "s": ["straße", "x"]}), root)
    table = mc.Table(root)
    assert table.to_arrow("s", filter="at <= TIMESTAMP '2013-01-01 05:45:00'").column("s").to_pylist() == ["straße"]
    assert table.to_arrow("s", filter="upper(s) = 'STRASSE'").num_rows == 1
    assert table.delete("hour(at) = 6 AND upper(s) != 'STRASSE'").executor == "spark"
    with pytest.raises(mc.errors.UsageError, match="session's time zone"):
        table.update({"s": "'late'"}, where="hour(at) = 5")
    with pytest.raises(mc.errors.UsageError, match="upper of a letter such as ß or İ is not done without Spark; nothing was done"):
        table.update({"s": "upper(s)"})
    assert table.to_arrow().column("s").to_pylist() == ["straße"]


def test_a_session_in_utc_leaves_times_to_this_process(utc: SparkSession, root: str) -> None:
    """[RC8]"""
    assert session_of().is_utc
    mc.write(pa.table({"at": [datetime(2013, 1, 1, 5, tzinfo=UTC)]}), root)
    assert mc.Table(root).delete("hour(at) = 5").executor == "arrow"

"""Values of SQL and rows, and what Spark makes of each: Spark's own answers are in sql_results.json, so that SQL without Spark is compared
with them where there is no Spark. [RC2]

python -m tests.filter.sql_results writes them, with the session's time zone UTC.
"""

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.values import arrow_schema

ANSWERS = Path(__file__).with_suffix(".json")
KINDS = {"i": "integer", "l": "long", "b": "byte", "d": "double", "f": "float", "m": "decimal(10,3)", "w": "decimal(38,2)"}
KINDS |= {"s": "string", "p": "string", "day": "date", "at": "timestamp", "ntz": "timestamp_ntz", "iso": "string"}
SCHEMA = Schema(fields=tuple(Field(id=at, name=name, type=kind) for at, (name, kind) in enumerate(KINDS.items(), 1)))
NAN, INF, D = float("nan"), float("inf"), Decimal
_DAY_US = 86_400_000_000


def _us(*parts: int) -> int:
    since = datetime(*parts, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)  # type: ignore[misc,arg-type]
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _days(*parts: int) -> int:
    return (date(*parts) - date(1970, 1, 1)).days


# One column a line; times as microseconds and days from 1970, which go beyond the years 1 to 9999 of Python.
COLUMNS: dict[str, list[Any]] = {
    "i": [0, 1, -1, 7, -7, 2**31 - 1, -(2**31), None, 100, 3, 5, -5],
    "l": [0, 3, -3, 2**62, -(2**62), 2**63 - 1, -(2**63), None, 2**53 + 1, 10, -10, 4],
    "b": [0, 1, -1, 127, -128, 5, -5, None, 50, 99, 3, 2],
    "d": [0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 0.49999999999999994, None, NAN, 4503599627370497.5, -0.3, 1e15 + 0.3],
    "f": [0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 0.1, None, NAN, 16777217.0, -0.3, 3.7],
    "m": [D("0"), D("0.5"), D("-0.5"), D("1.499"), D("-2.5"), D("9999999.999"), D("-9999999.999"), None, D("0.05"), D("2.005"),
        D("-2.005"), D(7)],
    "w": [D(0), D("0.05"), D("-0.05"), D("1.5"), D("-1.5"), D("1e34"), D("-1e34"), None, D("2.45"), D("2.55"), D("-9.99"), D("99.99")],
    "s": ["", "a", "  aB c  ", "ÀÉî", "日本語テキスト", "naïve CAFÉ", "\t x\n", None, "a%b_c\\",
        "Привет, Мир", "🎉 Ünïcödé 🎉", "ǅ ÿ ﷺ e\u0301"],
    "p": ["a", "", "a", "é", "本", "CAFÉ", "x", "p", "%", "МИР", "🎉", None],
    "day": [0, -1, _days(1582, 10, 4), _days(1582, 10, 15), _days(1, 1, 1), _days(9999, 12, 31), 2932897, None, _days(2024, 2, 29),
        _days(2013, 1, 1), -719528, 30_000],
    "at": [0, -1, _us(1582, 10, 4, 23, 59, 59, 999999), _us(1969, 12, 31, 23), _us(1, 1, 1), _us(9999, 12, 31, 23, 59, 59, 999999),
        _us(9999, 12, 31) + _DAY_US, None, _us(2024, 2, 29, 12, 30, 15, 1), _us(2013, 1, 1, 5), -62167219200000001, _us(2038, 1, 19, 3,
        14, 8)],
}  # fmt: skip
COLUMNS["ntz"] = COLUMNS["at"][3:] + COLUMNS["at"][:3]
COLUMNS["iso"] = ["2013-01-01", "1582-10-10", "0001-01-01", "9999-12-31", "2024-02-29", "1970-01-01", "0000-02-29", None] + [
    "2013-06-07"
] * 4

CONDITIONS = """
day = DATE '2013-01-01' | day >= '1582-10-10' | day < DATE '1970-01-01' OR day IS NULL | day > TIMESTAMP '1969-12-31 00:00:01'
day = TIMESTAMP '2013-01-01 00:00:00' | at > TIMESTAMP '2013-01-01 05:00:00Z' | at >= TIMESTAMP '2013-01-01 05:00:00'
at = '2013-01-01 05:00:00' | at < '1970-01-01' | at > DATE '2013-01-01' | at BETWEEN DATE '1970-01-01' AND '2024-02-29 12:30:15.000001'
ntz >= '2013-01-01 05:00' | ntz > TIMESTAMP_NTZ '1969-12-31 23:59:59.999998' | ntz <= TIMESTAMP '2013-01-01 05:00:00'
ntz < DATE '1970-01-01' | at > day | ntz <=> at | ntz = day | at IN (TIMESTAMP '1970-01-01 00:00:00', '2013-01-01 05:00:00')
at IN (DATE '1970-01-01', TIMESTAMP '2013-01-01 05:00:00+00:00') | i % 3 = 1 | i % -3 = -1 | l % if(i = 0, 3, i) = 0 | i % 7 <> 0
b % 2 = 1 | mod(l, 10) = -2 | i % NULL IS NULL | lower(s) = 'àéî' | upper(s) LIKE 'NA%' | lower(s) LIKE '%café' | upper(s) = 'ПРИВЕТ, МИР'
lower(s) = upper(s) | trim(s) = 'aB c' | s ILIKE 'à%' | s ILIKE '%café' | s NOT ILIKE '%МИР' | s ILIKE 'A\\%B\\_c%' | NOT (s ILIKE '%ï%')
s ILIKE '' | s ILIKE '🎉%' | substring(s, 1, 1) = p | substring(s, -2) = 'é ' | substr(s, 2, 2) = '本語' | replace(s, 'a', 'é') = 'é'
length(s) % 2 = 0 | concat(s, '-', i) LIKE '%-7' | s || p = 'a' | round(d) = 1 | round(m, 2) = 2.01 | floor(d) = -1 | ceil(m) > 2
abs(m) >= 2.5 | ceiling(w) = 3 | date_trunc('month', at) = '2013-01-01 00:00:00' | date_trunc('DAY', ntz) = DATE '2013-01-01'
year(day) = 2013 | month(at) IN (1, 12) | hour(at) >= 12 | minute(ntz) = 30 | second(at) = 59 | day(ntz) = 29 | to_date(iso) = day
to_date(at) = day | CAST(ntz AS date) < '1970-01-01' | day + INTERVAL 1 DAY = DATE '2013-01-02'
at - INTERVAL '1' HOUR < '2013-01-01 04:30:00' | at + INTERVAL 2 DAYS > ntz AND day < '2030-01-01' | i <=> NULL | NOT (s <=> p) | d <=> 0
i <=> b | d = 0 | d > 5e15 | f <> f | NOT (d >= 0.5) | m IN (0.5, 7, NULL) | CASE WHEN i % 2 = 0 THEN lower(s) ELSE p END = p
l IN (9007199254740992D, 3) | l NOT IN (9007199254740992, 3) | l IN (9007199254740992, 0.5D, 3)
coalesce(lower(s), 'none') = 'none' | nullif(i % 2, 0) IS NULL | isnull(p) OR p = 'a'
"""
VALUES = """
i % 3 | i % -3 | l % 7 | b % 3 | l % i2 | mod(b, 5) | 4 % i2 | lower(s) | upper(s) | lcase(p) | ucase(p) | trim(s) | ltrim(s) | rtrim(s)
length(s) | substring(s, 0, 2) | substring(s, 2) | substring(s, -3, 2) | substring(s, -100, 99) | substring(s, 2, 0) | substring(s, 3, -1)
substr(s, 2147483647, 2147483647) | substring(s, -2147483648, 2147483647) | substring(s, -1) | replace(s, 'a') | replace(s, '', 'x')
replace(s, 'é', 'ee') | replace(s, '🎉', '') | concat(s, p) | concat(s) | concat(i, '/', l) | s || '-' || p | s || NULL | round(d)
round(f) | round(d, 0) | round(i) | round(b) | round(l, 2) | round(m) | round(m, 1) | round(m, 2) | round(m, 9) | round(w, 1) | floor(d)
ceil(d) | floor(f) | ceil(f) | floor(i) | ceil(b) | floor(m) | ceil(m) | floor(w) | ceil(w) | abs(d) | abs(m) | abs(b2) | year(day)
month(day) | day(day) | dayofmonth(day) | quarter(day) | year(at) | month(at) | day(at) | hour(at) | minute(at) | second(at) | quarter(at)
year(ntz) | month(ntz) | day(ntz) | hour(ntz) | minute(ntz) | second(ntz) | date_trunc('year', at) | date_trunc('YY', at)
date_trunc('quarter', at) | date_trunc('mon', at) | date_trunc('week', at) | date_trunc('day', at) | date_trunc('hour', at)
date_trunc('minute', at) | date_trunc('second', at) | date_trunc('millisecond', at) | date_trunc('microsecond', at)
date_trunc('week', ntz) | date_trunc('month', day) | to_date(iso) | to_date('2024-02-29') | to_date(at) | to_date(ntz) | to_date(day)
CAST(iso AS date) | CAST(at AS date) | DATE '0001-01-01' | day + INTERVAL 1 DAY | day - INTERVAL '2' DAYS | INTERVAL 1 WEEK + day
at + INTERVAL 36 HOURS | at - INTERVAL 90 MINUTES | ntz + INTERVAL '1' DAY | ntz - INTERVAL '-1' SECOND | INTERVAL 1 HOUR + at
day3 + INTERVAL 1 HOUR | CASE WHEN i > 0 THEN day3 ELSE at END | coalesce(ntz, day3) | if(i > 0, at, ntz) | lower('ÀÉ') | upper(NULL || s)
substring('日本語', 2, 1) | 5 % 3 | -5 % 3 | round(2.5) | round(-2.5D) | floor(-0.5) | -7L % 3 | 7 % -2147483648
"""
# Columns within values, that not every row can have.
SHORT = {
    "i2": "if(i = 0, 3, i)",
    "b2": "if(b = -128, CAST(1 AS byte), b)",
    "day3": "if(day > DATE '9999-12-31' OR day < '0001-01-01', NULL, day)",
}


def texts(table: str) -> list[str]:
    found = [each.strip() for line in table.splitlines() if line for each in line.split(" | ")]
    for name, column in SHORT.items():
        found = [each.replace(name, column) for each in found]
    return found


def rows() -> pa.Table:
    """The rows, with their numbers."""
    schema = arrow_schema(SCHEMA, physical=False, ids=False)
    columns = []
    for field in schema:
        given, kind = COLUMNS[field.name], field.type
        whole = pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
        columns.append(pa.array(given, whole).cast(kind))
    return pa.table(columns, schema=schema).append_column("row", pa.array(range(len(columns[0]))))


def spelled(values: pa.ChunkedArray) -> list[str | None]:
    """Values as texts that tell -0.0 and NaN, and that hold years beyond Python's."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        values = values.cast(pa.int64()) if pa.types.is_timestamp(kind) else values.cast(pa.int32())
    return [None if each is None else repr(each) if not isinstance(each, Decimal) else str(each) for each in values.to_pylist()]


def sparks_answers(spark: Any, folder: Path) -> dict[str, Any]:
    """What Spark makes of all texts, in a session whose time zone is UTC."""
    pq.write_table(rows(), folder / "rows.parquet", store_schema=False)
    frame = spark.read.parquet(str(folder / "rows.parquet"))
    found: dict[str, Any] = {}
    for table, kind in ((CONDITIONS, "conditions"), (VALUES, "values")):
        every = texts(table)
        shown = []
        made = frame.selectExpr("row", *(f"{text} AS v{at}" for at, text in enumerate(every)))
        for name, type_name in made.dtypes[1:]:
            shown.append(
                f"unix_date({name}) AS {name}"
                if type_name == "date"
                else f"unix_micros({name}) AS {name}"
                if type_name == "timestamp"
                else f"unix_micros(CAST({name} AS timestamp)) AS {name}"
                if type_name == "timestamp_ntz"
                else name
            )
        answer = pa.Table.from_batches(made.selectExpr("row", *shown).sort("row").toArrow().to_batches())
        found[kind] = {
            text: [type_name, spelled(answer.column(name))] for text, (name, type_name) in zip(every, made.dtypes[1:], strict=True)
        }
    return found


if __name__ == "__main__":
    import tempfile

    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with tempfile.TemporaryDirectory() as place:
        answers = sparks_answers(session, Path(place))
    shown = json.JSONEncoder(ensure_ascii=False).encode
    lines = [
        shown(kind) + ": {\n" + ",\n".join(f"{shown(text)}: {shown(answer)}" for text, answer in of.items()) + "\n}"
        for kind, of in answers.items()
    ]
    ANSWERS.write_text("{" + ",\n".join(lines) + "}\n", "utf-8")
    sys.stdout.write(f"{sum(map(len, answers.values()))} texts\n")

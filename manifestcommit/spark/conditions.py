"""A caller's condition on rows: SQL, a pyarrow expression or a Spark Column, in the forms for
pruning and for Spark. [RC2] [RD6] [RD7]
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import datetime, timedelta
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import errors as spark_errors
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType as SparkStruct

from ..errors import UsageError
from ..filter.arrow_expression import parse_expression, spark_order
from ..filter.predicate import Predicate, Unknown
from ..filter.sql_expression import pruning
from ..format.fields import Schema
from ..format.values import arrow_schema
from ..rows.clauses import evaluating as evaluating_here
from ..rows.clauses import mask_of, session_of
from .features import check_pandas, is_connect, sound
from .scan import relaxed, spark_schema
from .spark_internals import has_same_meaning, text_of_filter
from .tasks import Batches, mapped, raising_ours

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOG = logging.getLogger("manifestcommit.spark")

# What asks for quotes in a text: names of functions that are keywords, but not inside quotes.
_KEYWORD_CALL = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`)|\b(?P<name>and|or|in|not|r?like|ilike)\(""",
    re.DOTALL | re.IGNORECASE,
)


_MEMBER = re.compile(r"(?<=[\w`])\['(\w+)'\]")  # of a struct
# A moment without a zone of its own, but not inside quotes.
_LOCAL_MOMENT = re.compile(
    r"""\btimestamp(?:_ltz)?\s*'(?P<moment>[-\d :.]+)'"""
    r"""|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`""",
    re.DOTALL | re.IGNORECASE,
)


def for_pruning(empty: DataFrame, condition: str | Column, schema: Schema) -> Predicate:
    """What planning may take from SQL, or from a Column over the columns of `empty`: from its own
    text, if that means what the Column means, by Spark's own comparison of both. [RD6] Never an
    error: Spark itself reports errors of a condition when it filters the rows. A text may mean
    something else: functions of Python are shown by name, literals may be rounded, and what a text
    means depends on the session's settings. A Connect Column shows literals without quotes."""
    spark, text = empty.sparkSession, condition if isinstance(condition, str) else None
    session = session_of(spark, falls_back=True)
    try:
        if not isinstance(condition, str) and not is_connect(condition):
            text = faithful_text(empty, condition)
        if text is not None and not session.is_utc:
            text = _with_zones(spark, text)
    except Exception:  # it has no text, or one that cannot be parsed
        text = None
    if text is None:
        LOG.info("no file is skipped by the condition %s: Spark alone evaluates it", condition)
        return Unknown(why="a Spark Column without a text of the same meaning")
    return pruning(text, schema, session)


def _with_zones(spark: SparkSession, text: str) -> str:
    """The text with its moments in UTC, as Spark has them in the session's zone."""
    given = dict.fromkeys(found["moment"] for found in _LOCAL_MOMENT.finditer(text))
    moments = [each for each in given if each is not None]
    if not moments:
        return text
    asked = ", ".join(f"unix_micros(TIMESTAMP '{each}')" for each in moments)
    found = (timedelta(microseconds=each) for each in spark.sql(f"SELECT {asked}").collect()[0])
    times = ((datetime(1970, 1, 1) + each).isoformat(sep=" ") for each in found)
    there = dict(zip(moments, times, strict=True))
    return _LOCAL_MOMENT.sub(
        lambda each: f"TIMESTAMP '{there[each['moment']]}Z'" if each["moment"] else each[0], text
    )


def faithful_text(empty: DataFrame, column: Column) -> str | None:
    """The Column as SQL; None where Spark understands that as something else."""
    filtered = empty.filter(column)
    text = text_of_filter(filtered)
    text = _KEYWORD_CALL.sub(lambda each: each["quoted"] or f"`{each['name']}`(", text)
    text = _MEMBER.sub(r".`\1`", text)
    return text if has_same_meaning(filtered, empty.filter(F.expr(text))) else None


# Spark's errors for a condition that has the right types and cannot be evaluated for some value.
_OF_VALUES = (
    *(spark_errors.ArithmeticException, spark_errors.ArrayIndexOutOfBoundsException),
    *(spark_errors.DateTimeException, spark_errors.NumberFormatException),
    spark_errors.SparkRuntimeException,
)
# What asks the clock: functions in any form, keywords, literals of SQL. A query asks it once, two
# queries ask it twice.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`""", re.DOTALL)
_CLOCK_CALL = re.compile(
    r"\b(current_(?:timestamp|date|time)|localtimestamp|now|curdate|unix_timestamp)\s*\(\s*\d?\s*\)",
    re.IGNORECASE,
)
_CLOCK_WORD = re.compile(
    r"(?<![\w.])(current_(?:timestamp|date|time)|localtimestamp)\b(?!\s*[.(])", re.IGNORECASE
)
_CLOCK_LITERAL = re.compile(
    r"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*['\"]\s*(now|today|tomorrow|yesterday)\b|"
    + _QUOTED.pattern,
    re.IGNORECASE | re.DOTALL,
)

_MOMENTS = "(now|today|tomorrow|yesterday)"
_MOMENT = re.compile(rf"\b{_MOMENTS}\b", re.IGNORECASE)
# How Spark's plan shows a text that it takes for such a moment; a column's name has a number there.
_CAST_MOMENT = re.compile(
    rf"\bcast\(\s*{_MOMENTS}\b[^()#]* as (?:date|timestamp)"
    rf"|\bto_(?:date|timestamp)\w*\(\s*{_MOMENTS}\b[^()#]*,",
    re.IGNORECASE,
)


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """predicate: for pruning; given: a pyarrow expression or a Spark Column over the columns of
    `schema`."""

    predicate: Predicate
    given: Any
    schema: Schema

    def matching(self, df: DataFrame, *, others: bool = False) -> DataFrame:
        """The rows for which it is true, or every other row: a condition that is null for a row
        does not select it. Tasks evaluate a pyarrow expression, as this process does where it reads
        without Spark. [RC2] [RD7]"""
        if isinstance(self.given, pc.Expression):
            check_pandas("a pyarrow expression as a condition uses")
            columns = arrow_of(self.schema)
            form = spark_order(self.given, columns)
            return mapped(df, partial(_matching, form, columns, others), df.schema)
        return df.filter(~F.coalesce(self.given, F.lit(False)) if others else self.given)


def understand(
    spark: SparkSession, condition: Any, schema: Schema, argument: str = "the condition"
) -> Condition:
    """The condition over tables of this schema; UsageError, naming the argument, if none. [RC2]"""
    if isinstance(condition, pc.Expression):
        columns = arrow_of(schema)
        predicate = parse_expression(condition, columns, argument)
        with evaluating_here(condition):  # its types are checked before any row is read
            mask_of(columns.empty_table(), spark_order(condition, columns))
        return Condition(predicate=predicate, given=condition, schema=schema)
    try:
        column = F.expr(condition) if isinstance(condition, str) else condition
        empty = spark.createDataFrame([], spark_schema(schema))
        empty.filter(column).schema  # noqa: B018  # a Connect session analyses here
        predicate = for_pruning(empty, condition, schema)
        return Condition(predicate=predicate, given=column, schema=schema)
    except AnalysisException as error:
        raise UsageError(f"{_cannot(condition, error)}; nothing was done") from error


def check_repeatable(
    spark: SparkSession, condition: Any, column: Column, schema: Schema, argument: str
) -> None:
    """UsageError, with the name of the argument, where two evaluations of a condition may differ
    for a row: the rows that are counted would not be those that change. [RC8]"""
    if isinstance(condition, pc.Expression):
        return
    what = _clock(condition, schema)
    # Spark itself refuses such a condition of a join
    empty, other = (spark.createDataFrame([], of) for of in (spark_schema(schema), SparkStruct()))
    if what is None and _MOMENT.search(str(condition)):
        what = _cast_moment(empty.filter(column))
    try:
        empty.join(other, column, "left_semi").schema  # noqa: B018  # a Connect session analyses here
    except AnalysisException as error:
        if "deterministic" in str(error):
            what = "a random value, or another one that depends on when and where a row is read"
    if what is not None:
        once = "and is evaluated more than once; nothing was done. Compute the value first"
        text = f"it has {what}, {once}, and name it in the condition"
        raise UsageError(text, argument=argument, given=repr(str(condition)))


def _clock(condition: Any, schema: Schema) -> str | None:
    """What of a condition asks the clock. Columns of the table may have the names of keywords."""
    text = str(condition)
    bare = _QUOTED.sub(" ", text) if isinstance(condition, str) else text
    literals = (each for each in _CLOCK_LITERAL.finditer(text) if bare != text and each[1])
    columns = {field.name.lower() for field in schema.fields}
    words = (each for each in _CLOCK_WORD.finditer(bare) if each[1].lower() not in columns)
    found = next(literals, None) or _CLOCK_CALL.search(bare) or next(words, None)
    return None if found is None else f"the time of its evaluation ({found[1]})"


def _cast_moment(df: DataFrame) -> str | None:
    """The text in a condition that Spark casts to the day or the moment of the evaluation."""
    with redirect_stdout(StringIO()) as plan:
        df.explain(extended=True)  # the only public way to a plan, also for a Connect session
    found = _CAST_MOMENT.search(plan.getvalue())
    return found and f"the time of its evaluation ('{found[1] or found[2]}' as a date)"


@contextmanager
def evaluating(condition: Any) -> Iterator[None]:
    """Inside this block, Spark evaluates the condition for rows; UsageError if it cannot for some
    value, before anything is written. [SP5]"""
    try:
        with raising_ours():
            yield
    except _OF_VALUES as error:
        what = f"{_cannot(condition, error)}; nothing was done. Compare a column with a value of"
        advice = "its own type, texts and dates in quotes: day = '2026-01-31'"
        raise UsageError(f"{what} {advice}") from error


def _cannot(condition: Any, error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line]
    told = lines[0] if lines else type(error).__name__
    return f"the condition {str(condition)!r} cannot be evaluated: {told}"


# --- In tasks -------------------------------------------------------------------------------------


def _matching(
    form: pc.Expression, columns: pa.Schema, others: bool, batches: Batches
) -> Iterator[pa.RecordBatch]:
    for batch in map(sound, batches):
        with evaluating_here(form):
            mask = pc.fill_null(mask_of(side_of(batch, "", columns), form), False)
        rows = pa.Table.from_batches([batch])
        yield from rows.filter(pc.invert(mask) if others else mask).to_batches()


def side_of(batch: pa.RecordBatch, prefix: str, schema: pa.Schema) -> pa.Table:
    """The columns with this prefix that are there, with their own names and types."""
    there = set(batch.schema.names)
    fields = [field for field in schema if prefix + field.name in there]
    columns = [batch.column(prefix + field.name).cast(field.type) for field in fields]
    return pa.table(columns, schema=pa.schema(fields))


def arrow_of(schema: Schema) -> pa.Schema:
    """The columns in Arrow, as tasks have them."""
    return relaxed(arrow_schema(schema, physical=False, ids=False))

"""A caller's condition on rows: SQL, a pyarrow expression or a Spark Column, in the forms for
pruning and for Spark. [RC2]"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ...errors import UsageError
from ...filter.arrow_expression import parse_expression
from ...filter.predicate import Predicate
from ...format import arrow_schema
from ...format.fields import Schema
from ..read.scan import spark_schema
from ..runtime.versions import query_loggers
from .columns import to_column
from .sql import for_pruning

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# Spark's errors for a condition that has the right types and cannot be evaluated for some value.
_OF_VALUES = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
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
    """predicate: for pruning; column: true for the selected rows, false or null for all others."""

    predicate: Predicate
    column: Any

    @property
    def is_not_true(self) -> Column:
        """True for every other row: a condition that is null for a row does not select it. [RC2]"""
        return ~F.coalesce(self.column, F.lit(False))


@contextmanager
def told_once() -> Iterator[None]:
    """Inside this block, a condition that Spark refuses raises one error: Spark would log it as
    well, with a hundred lines of Java's stack."""
    here = threading.get_ident()
    logs = query_loggers()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != here

    for log in logs:
        log.addFilter(of_others)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(of_others)


def understand(
    spark: SparkSession, condition: Any, schema: Schema, argument: str = "the condition"
) -> Condition:
    """The condition over tables of this schema; UsageError, naming the argument, if none. [RC2]"""
    if isinstance(condition, pc.Expression):
        predicate = parse_expression(
            condition, arrow_schema.arrow_schema(schema, physical=False, ids=False), argument
        )
        return Condition(predicate=predicate, column=to_column(predicate, schema))
    try:
        with told_once():
            column = F.expr(condition) if isinstance(condition, str) else condition
            empty = spark.createDataFrame([], spark_schema(schema))
            empty.filter(column).schema  # noqa: B018  # a Connect session analyses here
            return Condition(predicate=for_pruning(empty, condition, schema), column=column)
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
    empty, other = (spark.createDataFrame([], of) for of in (spark_schema(schema), StructType()))
    if what is None and _MOMENT.search(str(condition)):
        what = _cast_moment(empty.filter(column))
    try:
        with told_once():
            empty.join(other, column, "left_semi").schema  # noqa: B018  # a Connect session analyses here
    except AnalysisException as error:
        if "deterministic" in str(error):
            what = "a random value, or another one that depends on when and where a row is read"
    if what is not None:
        raise UsageError(
            f"it has {what}, and is evaluated more than "
            "once; nothing was done. Compute the value first, and name it in the condition",
            argument=argument,
            given=repr(str(condition)),
        )


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
        with told_once():
            yield
    except _OF_VALUES as error:
        advice = (
            "Compare a column with a value of its own type, texts and dates in quotes: day = "
            "'2026-01-31'"
        )
        raise UsageError(f"{_cannot(condition, error)}; nothing was done. {advice}") from error


def _cannot(condition: Any, error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line]
    told = lines[0] if lines else type(error).__name__
    return f"the condition {str(condition)!r} cannot be evaluated: {told}"

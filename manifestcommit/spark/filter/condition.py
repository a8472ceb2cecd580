"""A caller's condition on rows: SQL, a pyarrow expression or a Spark Column, in the forms for
pruning and for Spark. [RC2]"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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

from ...core.filter.arrow_expression import parse_expression
from ...core.filter.predicate import Predicate
from ...core.schema import arrow_schema
from ...core.schema.fields import Schema
from ...errors import UsageError
from ..read.scan import spark_schema
from ..runtime.versions import query_loggers
from .columns import from_column, to_column
from .sql import from_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


# Spark's errors for a condition that has the right types and cannot be evaluated for some value.
_OF_VALUES = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
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
    """The condition over tables of this schema; UsageError, with the name of the argument, if it is
    not one. [RC2]"""
    if isinstance(condition, pc.Expression):
        predicate = parse_expression(
            condition, arrow_schema.arrow_schema(schema, physical=False, ids=False), argument
        )
        return Condition(predicate=predicate, column=to_column(predicate, schema))
    try:
        with told_once():
            made = Condition(
                predicate=from_sql(spark, condition)
                if isinstance(condition, str)
                else from_column(condition),
                column=F.expr(condition) if isinstance(condition, str) else condition,
            )
            spark.createDataFrame([], spark_schema(schema)).filter(made.column).schema  # noqa: B018  # a Connect session analyses here
    except AnalysisException as error:
        raise UsageError(f"{_cannot(condition, error)}; nothing was done") from error
    return made


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

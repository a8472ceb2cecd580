"""A caller's condition on rows, as it is declared with a key, and as this process evaluates it with
Arrow. [RC2] [RC6] [RC8]
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

# pyarrow.acero, which exports these, loads pyarrow.dataset, which takes longer than a small change
from pyarrow._acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

from ..errors import UsageError
from ..filter.arrow_expression import parse_expression, spark_order, spell
from ..filter.predicate import Predicate
from ..filter.sql_expression import Session, compile_condition
from ..filter.sql_syntax import IncompleteError, NotUnderstoodError
from ..format import arrow_schema
from ..format.fields import Schema
from ..version import install

_REFUSED = re.compile("'(.* is not done without Spark)'")
ADVICE = (
    "Compare a column with a value of its own type, texts and dates in quotes: day = '2026-01-31'"
)


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """given: by the caller; predicate: for pruning; form: as its executor evaluates it, true for
    the selected rows, false or null for all others."""

    given: Any
    predicate: Predicate
    form: Any


def text_of(condition: Any) -> str:
    """The condition as declared with a key: the same text in every run. [RC6]"""
    if isinstance(condition, str):
        return f"sql {condition}"
    if isinstance(condition, pc.Expression):
        return f"arrow {spell(condition)}"
    return f"spark {condition}"


def running_session() -> Any:
    """The active Spark session, if there is one; Spark is not loaded for that."""
    sql = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def session_of(
    spark: Any = None, now_us: int | None = None, *, falls_back: bool = False
) -> Session:
    """What SQL takes from its surroundings: the zone of this Spark session, else of the active one,
    else of the process, which a new session would have. now_us: where the time may be asked for;
    falls_back: Spark evaluates what this process cannot. [RC8]"""
    spark = spark if spark is not None else running_session()
    zone = time.tzname if spark is None else [spark.conf.get("spark.sql.session.timeZone")]
    is_utc = {*zone} <= {"UTC", "Etc/UTC", "Z", "+00:00"}
    since = datetime(1970, 1, 1, tzinfo=UTC)
    now = None if now_us is None else since + timedelta(microseconds=now_us)
    return Session(is_utc, now, has_spark=falls_back and spark is not None)


def understand(
    condition: Any, schema: Schema, argument: str, session: Session | None = None
) -> Condition:
    """SQL or a pyarrow expression over tables of this schema; session: by default without a time.
    NotUnderstoodError where only Spark can evaluate it; UsageError, with the name of the argument,
    if it is not a condition. [RC8]"""
    if not isinstance(condition, str | pc.Expression):
        raise NotUnderstoodError(f"{argument} is a Spark Column")
    columns = arrow_schema.arrow_schema(schema, physical=False, ids=False)
    form = condition
    if isinstance(condition, str):
        with complete(condition, argument):
            form = compile_condition(condition, schema, session or session_of(falls_back=True))
    predicate = parse_expression(form, columns, argument)
    form = spark_order(form, columns)
    with evaluating(condition):  # its types are checked before any row is read
        mask_of(columns.empty_table(), form)
    return Condition(given=condition, predicate=predicate, form=form)


def needs_spark(condition: Any, argument: str, why: Exception) -> UsageError:
    """The refusal of a condition that this process cannot evaluate while no Spark session is
    active: none is started for it, which would take half a minute. [RC8]"""
    return UsageError(
        f"{why}; nothing was done. Give SQL that docs/reference/conditions.md lists, or a pyarrow "
        "expression (pyarrow.compute.field('flight') == 1545). No Spark session is active: "
        "with one, Spark evaluates the condition (SparkSession.builder.getOrCreate(); "
        f"{install('spark')})",
        argument=argument,
        given=shown(condition),
    )


@contextmanager
def complete(text: str, argument: str) -> Iterator[None]:
    """Inside, a text is compiled; UsageError names the argument if it is incomplete."""
    try:
        yield
    except IncompleteError as error:
        raise UsageError(
            f"{error}; nothing was done", argument=argument, given=shown(text)
        ) from error


def mask_of(rows: pa.Table, form: pc.Expression) -> pa.ChunkedArray:
    """For each row, in order: true, false or null. ArrowInvalid if it is not a condition."""
    number = max(rows.column_names, key=len, default="") + "#"  # a name that no column has
    rows = rows.append_column(number, pa.nulls(rows.num_rows))  # some column, to have rows
    mask = evaluated(rows, {"mask": form}).column("mask")
    if not pa.types.is_boolean(mask.type):
        raise pa.ArrowInvalid(f"its values are of the type {mask.type}, not true or false")
    return mask


def evaluated(rows: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    """These expressions for each row, in order."""
    steps = [
        Declaration("table_source", TableSourceNodeOptions(rows)),
        Declaration("project", ProjectNodeOptions(list(columns.values()), list(columns))),
    ]
    return Declaration.from_sequence(steps).to_table(use_threads=False)


@contextmanager
def evaluating(condition: Any, what: str = "the condition") -> Iterator[None]:
    """Inside this block, Arrow evaluates the condition for rows; UsageError if it cannot for some
    value, before anything is committed. [RC8]"""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        told = str(error).partition("\n")[0]
        advice, refused = ADVICE, _REFUSED.search(told)
        if refused is not None:  # the only way in which an expression can fail
            told, advice = refused[1], "With a Spark session, Spark evaluates it."
        raise UsageError(
            f"{what} {shown(condition)} cannot be evaluated: {told}; nothing was done. {advice}"
        ) from error


def shown(condition: Any) -> str:
    """The condition for a message, without the end of a long one."""
    try:
        text = str(condition)
    except (OverflowError, ValueError):  # a day or a text that Python cannot hold
        text = f"a {type(condition).__name__} with a value that Python cannot hold"
    return repr(text if len(text) <= 300 else text[:300] + "…")

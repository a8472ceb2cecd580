"""What planning may take from a condition that Spark evaluates. [RD6]"""

from __future__ import annotations

import logging
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ...filter.predicate import Predicate, Unknown
from ...filter.sql_expression import pruning
from ...format.fields import Schema
from ...rows.clauses import session_of
from ..runtime.registered_options import is_connect
from ..runtime.spark_internals import has_same_meaning, text_of_filter

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
    text, if that means what the Column means, by Spark's own comparison of both. [RD6]

    Never an error: Spark itself reports errors of a condition when it filters the rows. A text may
    mean something else: functions of Python are shown by name, literals may be rounded, and what a
    text means depends on the session's settings. A Connect Column shows literals without quotes.
    """
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
    found = spark.sql(f"SELECT {asked}").collect()[0]
    there = {
        each: (datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat(sep=" ")
        for each, micros in zip(moments, found, strict=True)
    }
    return _LOCAL_MOMENT.sub(
        lambda each: f"TIMESTAMP '{there[each['moment']]}Z'" if each["moment"] else each[0], text
    )


def faithful_text(empty: DataFrame, column: Column) -> str | None:
    """The Column as SQL; None where Spark understands that as something else."""
    filtered = empty.filter(column)
    text = _KEYWORD_CALL.sub(
        lambda found: found["quoted"] or f"`{found['name']}`(", text_of_filter(filtered)
    )
    text = _MEMBER.sub(r".`\1`", text)
    return text if has_same_meaning(filtered, empty.filter(F.expr(text))) else None

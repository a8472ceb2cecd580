"""Parses a condition in SQL, or the text of a Column, into a predicate for pruning, with Spark's
own parser. [RD6]"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ...filter.predicate import Predicate, Unknown
from ..runtime.registered_options import is_connect
from ..runtime.spark_internals import has_same_meaning, java_session, text_of_filter
from .columns import read_expression, translate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOG = logging.getLogger("manifestcommit.spark")
# What asks for quotes in a text: names of functions that are keywords, but not inside quotes.
_KEYWORD_CALL = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`)|\b(?P<name>and|or|in|not)\(""",
    re.DOTALL | re.IGNORECASE,
)


def from_sql(spark: SparkSession, text: str) -> Predicate:
    """The predicate of a condition in SQL, with Spark's meaning; never an error: Spark itself
    reports what is wrong. [RD6]

    All of it is `Unknown` in a Connect session, whose parser is out of reach.
    """
    try:
        parser = java_session(spark).sessionState().sqlParser()
        return translate(parser.parseExpression(text), read_expression)
    except Exception as error:  # any error of private trees: the cost is a file too many
        return Unknown(why=f"a condition in SQL: {type(error).__name__}")


def from_column(empty: DataFrame, column: Column) -> Predicate:
    """The predicate of a Column over the columns of `empty`: that of its own text, if the text
    means what the Column means, by Spark's own comparison of both; else `Unknown`. [RD6]

    Never an error: Spark itself reports errors of a Column when it filters the rows. A text may
    mean something else: functions of Python are shown by name, literals may be rounded, and what a
    text means depends on the session's settings. A Connect Column shows literals without quotes.
    """
    try:
        text = None if is_connect(column) else faithful_text(empty, column)
    except Exception:  # it has no text, or one that cannot be parsed
        text = None
    if text is None:
        LOG.info("no file is skipped by the condition %s: Spark alone evaluates it", column)
        return Unknown(why="a Spark Column without a text of the same meaning")
    return from_sql(empty.sparkSession, text)


def faithful_text(empty: DataFrame, column: Column) -> str | None:
    """The Column as SQL; None where Spark understands that as something else."""
    filtered = empty.filter(column)
    text = _KEYWORD_CALL.sub(
        lambda found: found["quoted"] or f"`{found['name']}`(", text_of_filter(filtered)
    )
    return text if has_same_meaning(filtered, empty.filter(F.expr(text))) else None

"""Parses a condition in SQL into a predicate for pruning, with Spark's own parser. [RD6]

The parser's trees are not a public interface, so a part that does not look as expected becomes
`Unknown`. Not here: what the parts mean (spark.filter.columns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.filter.predicate import Predicate, Unknown
from ..runtime.spark_internals import java_session
from .columns import read_expression, translate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

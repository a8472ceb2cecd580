"""What callers mean by a condition, the same in every call: SQL, a pyarrow expression or a Spark
Column. [RD6] [RD7]

Internal: import from `manifestcommit`. Not here: what a predicate proves (core.filter), what Spark
evaluates (spark.filter).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow.compute as pc

from ..core.filter.arrow_expression import parse_expression
from ..core.filter.predicate import Predicate
from ..core.filter.sql_syntax import NotUnderstoodError
from ..core.schema import arrow_schema
from ..core.table.snapshot import Snapshot
from ..engine.row_changes.conditions import understand as understand_here
from ..errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

Condition: TypeAlias = "str | pc.Expression | Column"


def without_spark(name: str, condition: Any, snapshot: Snapshot) -> Any:
    """SQL as the pyarrow expression that this process evaluates; what only Spark can evaluate, and
    anything else, as it is. UsageError where it is not a condition. [RC8]"""
    if not isinstance(condition, str) or snapshot.schema is None:
        return condition
    try:
        return understand_here(condition, snapshot.schema, name).form
    except NotUnderstoodError:
        return condition


def is_for_spark(condition: Any) -> bool:
    """Whether only Spark can evaluate it: SQL, or a Spark Column."""
    return not (condition is None or isinstance(condition, pc.Expression))


def predicate_of(
    name: str, condition: Any, snapshot: Snapshot, spark: SparkSession | None = None
) -> Predicate | None:
    """What planning may take from the condition; None: all rows. UsageError where it is none over
    this snapshot's columns. [RD6]"""
    if condition is None or snapshot.schema is None:
        return None
    if isinstance(condition, pc.Expression):
        return parse_expression(
            condition, arrow_schema.arrow_schema(snapshot.schema, physical=False, ids=False), name
        )
    check_spark(name, condition)
    from ..spark.dataframe import active_session
    from ..spark.filter.condition import understand

    return understand(spark or active_session(), condition, snapshot.schema, name).predicate


def check_spark(name: str, condition: Any) -> None:
    """UsageError, which names the argument, where a condition needs Spark and there is none."""
    try:
        from ..spark import session as session  # late: pyspark is an extra
    except UsageError as error:
        what = "SQL" if isinstance(condition, str) else "a Spark Column"
        refusal = UsageError(
            f"invalid {name}: {what} is evaluated by Spark, which is not installed; nothing was "
            "done. Give a pyarrow expression, such as pyarrow.compute.field('flight') == 1545, "
            "or: pip install 'manifestcommit[spark]'"
        )
        refusal.argument = name
        raise refusal from error

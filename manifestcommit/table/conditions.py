"""What callers mean by a condition, the same in every call: SQL, a pyarrow expression or a Spark
Column. [RD6] [RD7]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow.compute as pc

from ..errors import UsageError
from ..filter.arrow_expression import parse_expression
from ..filter.predicate import Predicate
from ..filter.sql_syntax import NotUnderstoodError
from ..format import arrow_schema
from ..format.snapshot import Snapshot
from ..rows.conditions import evaluating, mask_of, needs_spark, running_session, session_of, shown
from ..rows.conditions import understand as understand_here
from ..version import install

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

Condition: TypeAlias = "str | pc.Expression | Column"

# A setting of a session -> the sign in a text that it gives another meaning, and what to write.
_OTHER_MEANINGS = {
    "spark.sql.ansi.doubleQuotedIdentifiers": ('"', "`…` for names and '…' for texts"),
    "spark.sql.parser.escapedStringLiterals": ("\\", "a pyarrow expression"),
}
_HIDDEN = {
    '"': re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/", re.DOTALL),
    "\\": re.compile(r"`(?:[^`]|``)*`"),
}


def check_meaning(name: str, texts: Iterable[Any], spark: SparkSession | None = None) -> None:
    """UsageError, which names the argument, where a setting of the session, by default the active
    one, gives SQL another meaning than this process does. Anything but texts passes. [RC8]"""
    ctx = spark if spark is not None else running_session()
    if ctx is None:
        return
    for text in texts:
        for setting, (sign, instead) in _OTHER_MEANINGS.items():
            if not isinstance(text, str) or sign not in _HIDDEN[sign].sub("", text):
                continue
            if str(ctx.conf.get(setting, "false")).lower() == "true":
                raise UsageError(
                    f"with {setting}=true Spark reads {sign} in it "
                    f"otherwise than this process; nothing was done. Give {instead}",
                    argument=name,
                    given=shown(text),
                )


def without_spark(
    name: str,
    condition: Any,
    snapshot: Snapshot,
    spark: SparkSession | None = None,
    *,
    now_us: int | None = None,
) -> tuple[Any, Predicate | None]:
    """The condition and what planning may take from it, where this process evaluates it: SQL as a
    pyarrow expression. What only Spark can evaluate, as it is and without a predicate, where a
    session is active. UsageError where it is not a condition, or none is. now_us: for a read, which
    evaluates it once. [RC8]"""
    if not isinstance(condition, str) or snapshot.schema is None:
        is_arrow = isinstance(condition, pc.Expression)
        return condition, predicate_of(name, condition, snapshot) if is_arrow else None
    check_meaning(name, [condition], spark)
    try:
        found = understand_here(
            condition, snapshot.schema, name, session_of(spark, now_us, falls_back=True)
        )
    except NotUnderstoodError as error:
        if spark is None and running_session() is None:
            raise needs_spark(condition, name, error) from error
        return condition, None
    return found.form, found.predicate


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
        columns = arrow_schema.arrow_schema(snapshot.schema, physical=False, ids=False)
        predicate = parse_expression(condition, columns, name)
        with evaluating(condition, f"{name}:"):  # its types are checked before any row is read
            mask_of(columns.empty_table(), condition)
        return predicate
    check_spark(name, condition)
    check_meaning(name, [condition], spark)
    from ..spark.conditions import understand
    from ..spark.dataframe import active_session

    return understand(spark or active_session(), condition, snapshot.schema, name).predicate


def check_spark(name: str, condition: Any) -> None:
    """UsageError, which names the argument, where a condition needs Spark and there is none."""
    try:
        from .. import spark as spark  # late: pyspark is an extra
    except UsageError as error:
        what = "SQL" if isinstance(condition, str) else "a Spark Column"
        raise UsageError(
            f"{what} is evaluated by Spark, which is not installed; nothing was "
            "done. Give a pyarrow expression, such as pyarrow.compute.field('flight') == 1545, "
            f"or: {install('spark')}",
            argument=name,
        ) from error

"""Finds the table versions that a DataFrame reads, from its plan: an overwrite with its rows
conflicts with all commits since. [CF17] [SP41]

A DataFrame of `read_committed` has a unique alias in the plan, which costs nothing and which no
query needs to name; the columns of `format("manifestcommit")` carry the mark as metadata. Rows that
went through Python, an RDD or a checkpoint lose it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...format.fields import MARK
from ..runtime.registered_options import is_connect
from ..runtime.spark_internals import is_stopped, java_frame
from .scan import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ALIAS = f"{MARK}:"


def marked(df: DataFrame, mark: str) -> DataFrame:
    """The same rows, with the mark in their plan, and safe from INSERT. [SP41] [SP42]

    Spark inserts into a view whose plan is only a file source: the rows would go into a folder that
    no longer exists.
    """
    return df.select(*(quoted(name) for name in df.columns)).alias(f"{_ALIAS}{mark}")


def marks_of(df: DataFrame) -> list[str]:
    """The marks of all that the DataFrame reads, subqueries and views too. Starts no job."""
    if is_connect(df):
        return [*_connect_marks(df), *column_marks(df.schema)]
    found: list[str] = []
    waiting = [java_frame(df).queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        name = node.getClass().getSimpleName()
        if name == "SubqueryAlias":
            alias = node.identifier().name()
            found += [alias.removeprefix(_ALIAS)] if alias.startswith(_ALIAS) else []
        elif name == "DataSourceV2Relation":
            found += _field_marks(json.loads(node.schema().json())["fields"])
        for more in (node.children(), node.innerChildren(), node.subqueries()):
            waiting += [more.apply(index) for index in range(more.size())]
    return found


def column_marks(struct: StructType) -> list[str]:
    """The marks that columns carry: those of a query's result that came through it unchanged."""
    return _field_marks(struct.jsonValue()["fields"])


def with_marks(struct: StructType, mark: str) -> StructType:
    """The columns with the mark in their metadata, all that Spark shows a query's source."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, {**field.metadata, MARK: mark})
            for field in struct
        ]
    )


def check_running(spark: SparkSession) -> None:
    """UsageError if the session was stopped, also a DataFrame's: Spark's errors do not name it."""
    if not is_connect(spark) and is_stopped(spark.sparkContext):
        raise UsageError(
            "this Spark session was stopped, so that it reads nothing any more, and rows of "
            "its DataFrames can no longer be computed; "
            "nothing was done. Start a new session, and create the DataFrame again in it."
        )


def _field_marks(fields: Iterable[dict[str, Any]]) -> list[str]:
    marks = ((field.get("metadata") or {}).get(MARK) for field in fields)
    return list(dict.fromkeys(mark for mark in marks if isinstance(mark, str)))


def _connect_marks(df: Any) -> Iterator[str]:
    """The same for a Connect session, whose plan is a message: its aliases."""
    waiting = [df._plan.to_proto(df.sparkSession.client)]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            if field.type != field.TYPE_MESSAGE:
                if field.name == "alias" and isinstance(value, str) and value.startswith(_ALIAS):
                    yield value.removeprefix(_ALIAS)
            elif isinstance(value, str | bytes) or not hasattr(value, "ListFields"):
                waiting += [
                    part
                    for part in (value.values() if hasattr(value, "values") else value)
                    if hasattr(part, "ListFields")
                ]
            else:
                waiting.append(value)

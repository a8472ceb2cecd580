"""Rows of a query as rows of a table: which column is which, and what types values get. [SP48]"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.schema.evolution import find_column, fit
from ..core.schema.fields import Field, FieldType, Schema, decimal_parts, is_primitive, type_text
from ..core.schema.spark_json import from_spark
from ..errors import SchemaMismatchError
from ..spark.read.scan import quoted
from .queries import parse_expression
from .scanner import Scanner, refusal
from .statements import Insert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INSTEAD = "mc.write(df, path, mode=…, overwrite=…), which takes columns by their names"
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
# The names of types in Spark's SQL, where they are others than in a schema.
_IN_SQL = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def rows_to_insert(df: DataFrame, statement: Insert, schema: Schema) -> DataFrame:
    """The query's rows with the table's columns. By position, as SQL has it, or BY NAME. UsageError
    where there are too few columns or too many."""
    values = [(find_column(schema, name), text) for name, text in statement.partition]
    fixed = {field.name for field, _ in values}
    if statement.by_name:
        names = [find_column(schema, name).name for name in df.columns]
    else:
        given = [find_column(schema, name).name for name in statement.columns]
        names = given or [field.name for field in schema.fields if field.name not in fixed]
    if len(set(names)) < len(names) or set(names) & fixed:
        raise refusal("a column is named twice", _INSTEAD)
    if len(names) != len(df.columns):
        raise refusal(
            f"the query has {len(df.columns)} columns, and the table takes {len(names)}: "
            f"{', '.join(names)}",
            _INSTEAD,
        )
    df = df.toDF(*names)
    given_fields = {field.name: field for field in from_spark(df.schema.jsonValue()).fields}
    expressions = [_fitted(find_column(schema, name), given_fields[name]) for name in names]
    for field, text in values:
        _value(field, text)  # a literal and nothing else
        expressions.append(f"CAST({text} AS {sql_type(field)}) AS {quoted(field.name)}")
    if expressions == [quoted(name) for name in names]:
        return df
    return df.selectExpr(*expressions)


def replaced_partitions(statement: Insert, schema: Schema, dynamic: bool) -> Any:
    """What INSERT OVERWRITE replaces, as `mc.write` has it. dynamic: as the session says."""
    if statement.partition:
        fields = ((find_column(schema, name), text) for name, text in statement.partition)
        return {field.name: _value(field, text) for field, text in fields}
    return "dynamic" if dynamic else None


def check_partition(statement: Insert, schema: Schema, partition_by: Sequence[int]) -> None:
    """UsageError unless PARTITION names partition columns, each once."""
    columns = {field.name for field in schema.fields if field.id in partition_by}
    named = [find_column(schema, name).name for name, _ in statement.partition]
    if not set(named) <= columns or len(set(named)) < len(named):
        known = ", ".join(sorted(columns)) or "none"
        raise refusal(
            f"PARTITION names columns that partition the table, each once: {known}", _INSTEAD
        )


def sql_type(field: Field) -> str:
    """The column's type as Spark's SQL has it."""
    assert isinstance(field.type, str)
    return _IN_SQL.get(field.type, field.type)


def column_type(spark: SparkSession, text: str, instead: str) -> FieldType:
    """A type of Spark's SQL as a column's type. UsageError for any other text."""
    from sqlglot import exp

    cast = f"CAST(NULL AS {text})"
    if not isinstance(parse_expression(cast, instead), exp.Cast):
        raise refusal(f"{text!r} is no type", instead)
    return from_spark(spark.sql(f"SELECT {cast} AS made").schema.jsonValue()).fields[0].type


def _fitted(column: Field, given: Field) -> str:
    """The given column as an expression with a type that the table takes: as it is, or a number or
    null that becomes one of its type, by a cast that loses nothing, or fails."""
    name = quoted(given.name)
    if given.type == "void" and is_primitive(column.type):
        return f"CAST({name} AS {sql_type(column)}) AS {name}"
    if not (_is_number(column.type) and _is_number(given.type)):
        return name
    try:
        fit(Schema(fields=(column,)), Schema(fields=(given,)), merge=False)
    except SchemaMismatchError:
        there = f"try_cast({name} AS {sql_type(column)})"
        back = f"try_cast({there} AS {sql_type(given)})"
        text = (
            (
                f"a value of the column {column.name} does not fit its type "
                f"{type_text(column.type)} without loss; nothing was committed"
            )
            .replace("\\", "\\\\")
            .replace("'", "\\'")
        )
        return f"IF({name} <=> {back}, {there}, raise_error('{text}')) AS {name}"
    return name


def _is_number(kind: Any) -> bool:
    return isinstance(kind, str) and (kind in _NUMBERS or decimal_parts(kind) is not None)


def _value(field: Field, text: str) -> Any:
    """A literal of a PARTITION as a value of Python."""
    scanner = Scanner(text)
    scanner.instead = _INSTEAD
    found: Any = None
    if scanner.take("NULL"):
        pass
    elif scanner.next_word() in ("TRUE", "FALSE"):
        found = scanner.take("TRUE") or not scanner.take("FALSE")
    else:
        scanner.take("DATE")
        found = scanner.literal()[1]
    scanner.expect_end()
    make: Any = {"string": str, "boolean": _same, "date": dt.date.fromisoformat}.get(
        str(field.type), int if field.type in _NUMBERS[:4] else None
    )
    try:
        if make is None:
            raise ValueError(f"PARTITION takes no column of the type {type_text(field.type)}")
        return None if found is None else make(found)
    except (TypeError, ValueError) as error:
        raise refusal(f"{field.name} = {text}: {error}", _INSTEAD) from None


def _same(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError("it is neither true nor false")
    return value


__all__ = ["check_partition", "column_type", "replaced_partitions", "rows_to_insert", "sql_type"]

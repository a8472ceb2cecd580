"""Rows of a query as rows of a table: which column is which, and what types values get. [SP48]"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import SchemaMismatchError, UsageError
from ..format.evolution import find_column, fit
from ..format.fields import (
    FLOATS,
    INTEGERS,
    PRIMITIVES,
    Field,
    Schema,
    decimal_parts,
    is_primitive,
    type_text,
)
from ..format.spark_json import from_spark
from ..format.values import integer_range
from ..spark.read.scan import quoted
from .scanner import Scanner, refusal
from .statements import Insert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INSTEAD = "mc.write(df, path, mode=…, overwrite=…), which takes columns by their names"


def rows_to_insert(df: DataFrame, statement: Insert, schema: Schema) -> DataFrame:
    """The query's rows with the table's columns. By position, as SQL has it, or BY NAME. UsageError
    where there are too few columns or too many, unless they may change the table."""
    values = [(find_column(schema, name), text) for name, text in statement.partition]
    fixed = {field.name for field, _ in values}
    if statement.evolves:  # what the table lacks becomes a column of it
        return df
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
        literal = _literal(_value(field, text))
        expressions.append(f"CAST({literal} AS {sql_type(field)}) AS {quoted(field.name)}")
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
    return PRIMITIVES[field.type].sql.lower() if field.type in INTEGERS else field.type


def _fitted(column: Field, given: Field) -> str:
    """The given column as an expression with a type that the table takes: as it is, or a number or
    null that becomes one of its type, by a cast that loses nothing, or fails."""
    name = quoted(given.name)
    if given.type == "void" and is_primitive(column.type):
        return f"CAST({name} AS {sql_type(column)}) AS {name}"
    if not (_is_number(column.type) and _is_number(given.type)):
        return name
    exact = ""
    try:
        fit(Schema(fields=(column,)), Schema(fields=(given,)), merge=False, converted=False)
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
        if column.type in FLOATS or given.type in FLOATS:
            value = there if column.type in FLOATS else name
            ranges = filter(None, map(integer_range, (column.type, given.type)))
            exact = "".join(
                f" AND coalesce(CAST({value} AS double) < {high + 1}D, true)" for _, high in ranges
            )
        return f"IF({name} <=> {back}{exact}, {there}, raise_error('{text}')) AS {name}"
    return name


def _is_number(kind: Any) -> bool:
    return isinstance(kind, str) and (
        kind in FLOATS or integer_range(kind) is not None or decimal_parts(kind) is not None
    )


def _value(field: Field, text: str) -> Any:
    """A literal of a PARTITION as a value of Python: of the column's type, and in its range."""
    scanner = Scanner(text)
    scanner.instead = _INSTEAD
    is_date, word = scanner.take("DATE"), scanner.next_word()
    if word in ("NULL", "TRUE", "FALSE") and not is_date and scanner.take(word):
        kind, found = word, ""
    else:
        sign = "-" if scanner.take("-") else ""
        kind, found = scanner.literal()
        kind, found = "DATE" if is_date else sign + kind, sign + found
    scanner.expect_end()
    if kind == "NULL":
        return None
    if kind == "STRING" and field.type == "string":
        return found
    if kind in ("TRUE", "FALSE") and field.type == "boolean":
        return kind == "TRUE"
    if kind.endswith(("STRING", "NUMBER")) and (limits := integer_range(field.type)) is not None:
        return _whole(field, text, found, limits)
    if kind in ("DATE", "STRING") and field.type == "date":
        return _date(field, text, found)
    raise _unfit(field, text)


def _whole(field: Field, text: str, digits: str, limits: tuple[int, int]) -> int:
    low, high = limits
    if not re.fullmatch(r"-?[0-9]{1,19}", digits) or not low <= int(digits) <= high:
        raise _unfit(field, text)
    return int(digits)


def _date(field: Field, text: str, date: str) -> dt.date:
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date):
        with contextlib.suppress(ValueError):
            return dt.date.fromisoformat(date)
    raise _unfit(field, text)


def _unfit(field: Field, text: str) -> UsageError:
    return refusal(
        f"{field.name} = {text}: PARTITION takes a literal of the column's type, "
        f"{type_text(field.type)}, in its range: 'text', 7, DATE '2013-01-31', TRUE or NULL",
        _INSTEAD,
    )


def _literal(value: Any) -> str:
    """The value in Spark's SQL, whatever the session says of casts and of texts."""
    if isinstance(value, str):
        return f"decode(X'{value.encode().hex()}', 'UTF-8')"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return "NULL" if value is None else str(value)


__all__ = ["check_partition", "replaced_partitions", "rows_to_insert", "sql_type"]

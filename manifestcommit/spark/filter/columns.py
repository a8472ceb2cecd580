"""A pyarrow filter as a Column of Spark's. [RD7]"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from ...errors import UsageError
from ...filter.predicate import (
    And,
    ColumnPath,
    Compare,
    Constant,
    IsIn,
    IsNan,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from ...format.fields import Field, Schema, StructType, decimal_parts, show_path
from ...format.spark_json import CHAR_VARCHAR, has_collation

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_MAX_DIGITS = 38  # of the type to which Spark brings two decimals that it compares
_MAX_LONG = 2**63 - 1


def to_column(predicate: Predicate, schema: Schema) -> Column:
    """A Column that keeps exactly the rows that pyarrow keeps for the expression of the predicate,
    in Spark's order of floats. [RD7]

    schema: the table's, for names and for the types on which the two differ: -0.0 in lists,
    collations. UsageError if a part was
    not understood, or Spark would cast to other rows.
    """
    match predicate:
        case And(args=args) | Or(args=args):
            every = isinstance(predicate, And)
            return _balanced([to_column(arg, schema) for arg in args], every)
        case Not(arg=arg):
            return ~to_column(arg, schema)
        case Constant(value=value):
            return F.lit(value).cast("boolean")
        case Unknown(why=why):
            raise UsageError(
                f"the condition cannot be given to Spark as a pyarrow expression because of {why}; "
                "nothing was read. Give a Spark Column instead."
            )
        case IsNull(column=path):
            return _column(path).isNull()
        case _:
            return _leaf(predicate, _field(predicate.column, schema))


def _balanced(terms: list[Column], every: bool) -> Column:
    """All the terms combined; a tree of thousands stays shallow enough for the JVM's stack."""
    if not terms:
        return F.lit(every)
    join = and_ if every else or_
    while len(terms) > 1:
        pairs = [join(left, right) for left, right in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0]


def _column(path: ColumnPath) -> Column:
    return F.col(".".join(f"`{name.replace('`', '``')}`" for name in path))


def _field(path: ColumnPath, schema: Schema) -> Field:
    fields, found = schema.fields, None
    for name in path:
        found = next((field for field in fields if field.name == name), None)
        fields = (
            found.type.fields if found is not None and isinstance(found.type, StructType) else ()
        )
    if found is None:
        raise UsageError(
            f"the condition names the column {show_path(path)}, which the table does not have."
        )
    return found


def _leaf(node: Compare | IsIn | IsNan | StartsWith, field: Field) -> Column:
    column = _column(node.column)
    if has_collation(field):
        column = F.collate(column, "UTF8_BINARY")
    elif field.metadata.get(CHAR_VARCHAR, "").startswith("char("):
        column = F.concat(column, F.lit(""))  # Spark pads what is compared with a bare char column
    match node:
        case IsNan():
            # pyarrow: null for null, Spark: false
            return F.when(column.isNotNull(), F.isnan(column))
        case StartsWith(prefix=prefix):
            return column.startswith(prefix)
        case IsIn(values=values):
            return _is_in(column, values, field, node.column)
        case Compare(op=op, value=value):
            return _compare(column, op, value, field, node.column)


def _compare(column: Column, op: Op, value: Any, field: Field, path: ColumnPath) -> Column:
    compared: Column = _OPERATORS[op](column, _literal(value, field, path))
    return compared


_OPERATORS: dict[Op, Callable[[Any, Any], Any]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


def _is_in(column: Column, values: Sequence[Any], field: Field, path: ColumnPath) -> Column:
    """pyarrow's is_in: false for null, and by their texts it tells 0.0 from -0.0."""
    zeros = {str(value) for value in values if isinstance(value, float) and value == 0}
    others = [
        _literal(value, field, path)
        for value in values
        if not (isinstance(value, float) and value == 0)
    ]
    found = [column.isin(*others)] if others else []
    found += [
        (column == F.lit(0.0)) & (column.cast("string") == F.lit(zero)) for zero in sorted(zeros)
    ]
    return F.coalesce(_balanced(found, False), F.lit(False))


def _literal(value: Any, field: Field, path: ColumnPath) -> Column:
    """The value as a Spark literal; UsageError if a comparison could round it or the column."""
    decimal = decimal_parts(field.type) if isinstance(field.type, str) else None
    if isinstance(value, float) and decimal:
        raise UsageError(
            f"the condition compares the decimal column {show_path(path)} with the float "
            f"{value!r}, which engines round differently; nothing was read. Give a Decimal instead."
        )
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and (decimal or abs(value) > _MAX_LONG)
    ):
        value = Decimal(value)
    if isinstance(value, Decimal):
        return F.lit(_exact(value, decimal or (20, 0), path))
    if isinstance(value, datetime):
        micros = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND  # pyarrow's are in UTC
        if value.tzinfo is not None:
            return F.timestamp_micros(F.lit(micros))
        return F.expr(f"TIMESTAMP_NTZ'{value.isoformat(sep=' ')}'")
    if isinstance(value, date):
        return F.date_from_unix_date(F.lit((value - _EPOCH.date()).days))
    return F.lit(value)


def _exact(value: Decimal, parts: tuple[int, int], path: ColumnPath) -> Decimal:
    """The decimal, if Spark can cast it and the column to one type without dropping digits."""
    precision, scale = parts
    digits, exponent = len(value.as_tuple().digits), int(value.as_tuple().exponent)
    if max(precision - scale, digits + exponent) + max(scale, -exponent) > _MAX_DIGITS:
        raise UsageError(
            f"the condition compares the column {show_path(path)} with {value}: together they need "
            f"more than {_MAX_DIGITS} digits, "
            "and Spark would round; nothing was read. Give a Spark Column instead."
        )
    return value

"""Parses a condition in SQL into a predicate for pruning, with Spark's own parser. [RD6]

The parser's trees are not a public interface, so a part that does not look as expected becomes
`Unknown`. Not here: what the parts mean (spark.filter.columns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.filter.predicate import Predicate, Unknown
from ..runtime.spark_internals import java_session
from .columns import Attribute, Function, Node, Opaque, Value, internal_value, translate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPERATORS = {
    "And": "and",
    "Or": "or",
    "Not": "not",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
    "IsNull": "isnull",
    "IsNotNull": "isnotnull",
}
# Type names in literals of SQL -> the class with that name in Python.
_KINDS = {
    "void": "NullType",
    "boolean": "BooleanType",
    "byte": "ByteType",
    "tinyint": "ByteType",
    "short": "ShortType",
    "smallint": "ShortType",
    "integer": "IntegerType",
    "int": "IntegerType",
    "long": "LongType",
    "bigint": "LongType",
    "double": "DoubleType",
    "string": "StringType",
    "binary": "BinaryType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "timestamp_ntz": "TimestampNTZType",
}


def from_sql(spark: SparkSession, text: str) -> Predicate:
    """The predicate of a condition in SQL, with Spark's meaning; never an error: Spark itself
    reports what is wrong. [RD6]

    All of it is `Unknown` in a Connect session, whose parser is out of reach.
    """
    try:
        parser = java_session(spark).sessionState().sqlParser()
        return translate(parser.parseExpression(text), _read)
    except Exception as error:  # any error of private trees: the cost is a file too many
        return Unknown(why=f"a condition in SQL: {type(error).__name__}")


def _read(node: Any) -> Node:
    kind = node.getClass().getSimpleName()
    match kind:
        case "UnresolvedAttribute":
            return Attribute(tuple(_items(node.nameParts())))
        case "Literal":
            return _literal(node)
        case "Like" if node.escapeChar() == "\\":
            return Function("like", _items(node.children()))
        case "UnresolvedFunction" if not node.isDistinct() and node.filter().isEmpty():
            return Function(".".join(_items(node.nameParts())).lower(), _items(node.children()))
        case _ if kind in _OPERATORS:
            return Function(_OPERATORS[kind], _items(node.children()))
        case _:
            return Opaque(kind)


def _literal(node: Any) -> Node:
    kind, value = node.dataType().typeName(), node.value()
    if value is None:
        return Value(None)
    if kind.startswith("decimal("):
        return Value(value.toJavaBigDecimal())
    if kind == "string":  # without a collation of its own
        return Value(value.toString())
    return internal_value(value, _KINDS.get(kind, kind))


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.length())]

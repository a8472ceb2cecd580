"""Converts between Spark's expressions and predicates: what Spark's parser makes of a text into
what pruning can use, a pyarrow filter into a Column. [RD6] [RD7]

The parser's trees are no public interface, so a part that does not look as expected becomes
`Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, TypeAlias

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

_COMPARISONS: dict[str, Op] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_MIRRORED: dict[Op, Op] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CATALYST = {
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
_SQL_KINDS = {
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
_MAX_DEPTH = 100  # of nested functions, except one long chain of `&` or `|`
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_MAX_DIGITS = 38  # of the type to which Spark brings two decimals that it compares
_MAX_LONG = 2**63 - 1


def translate(root: Any, read: Callable[[Any], Node]) -> Predicate:
    """The predicate of a tree of Spark's; read: decodes one node."""
    return _Translation(read).boolean(root, 0)


# --- One node -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attribute:
    path: ColumnPath


@dataclass(frozen=True, slots=True)
class Value:
    value: Any


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    args: Sequence[Any]  # nodes not yet read


@dataclass(frozen=True, slots=True)
class Opaque:
    what: str


Node: TypeAlias = Attribute | Value | Function | Opaque


def internal_value(value: Any, kind: str) -> Node:
    """A literal whose dates and times are Spark's internal numbers; kind: the name of its type's
    class."""
    if value is None or kind in (
        "BooleanType",
        "ByteType",
        "ShortType",
        "IntegerType",
        "LongType",
        "DoubleType",
        "DecimalType",
    ):
        return Value(value)
    if kind == "StringType" or kind == "BinaryType":
        return Value(value if isinstance(value, str) else bytes(value))
    if kind == "DateType":
        return Value(_EPOCH.date() + timedelta(days=value))
    if kind == "DayTimeIntervalType":
        return Value(timedelta(microseconds=value))
    if kind in ("TimestampType", "TimestampNTZType"):
        return Value(
            _EPOCH.replace(tzinfo=UTC if kind == "TimestampType" else None)
            + timedelta(microseconds=value)
        )
    return Opaque(kind)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.length())]


def read_expression(node: Any) -> Node:
    """One node of an expression as Spark's parser makes them."""
    kind = node.getClass().getSimpleName()
    match kind:
        case "UnresolvedAttribute":
            return Attribute(tuple(_items(node.nameParts())))
        case "Literal":
            return _sql_literal(node)
        case "Like" if node.escapeChar() == "\\":
            return Function("like", _items(node.children()))
        case "UnresolvedFunction" if not node.isDistinct() and node.filter().isEmpty():
            return Function(".".join(_items(node.nameParts())).lower(), _items(node.children()))
        case "UnresolvedExtractValue":
            return _member(read_expression(node.child()), read_expression(node.extraction()))
        case _ if kind in _CATALYST:
            return Function(_CATALYST[kind], _items(node.children()))
        case _:
            return Opaque(kind)


def _sql_literal(node: Any) -> Node:
    kind, value = node.dataType().typeName(), node.value()
    if value is None:
        return Value(None)
    if kind.startswith("decimal("):
        return Value(value.toJavaBigDecimal())
    if kind == "string":  # without a collation of its own
        return Value(value.toString())
    return internal_value(value, _SQL_KINDS.get(kind, kind))


def _member(child: Node, key: Node) -> Node:
    if isinstance(child, Attribute) and isinstance(key, Value) and isinstance(key.value, str):
        return Attribute((*child.path, key.value))
    return Opaque("a member of something")


# --- Spark's meaning ------------------------------------------------------------------------------


class _Translation:
    """Translates a tree of columns into a predicate."""

    def __init__(self, read: Callable[[Any], Node]) -> None:
        self._read = read

    def boolean(self, raw: Any, depth: int) -> Predicate:
        node = self._read(raw) if depth <= _MAX_DEPTH else Opaque("functions nested too deeply")
        match node:
            case Value(value=None | bool() as value):
                return Constant(value=value)
            case Attribute(path=path):
                return Compare(op="=", column=path, value=True)
            case Function(name="and" | "or" as name, args=args):
                terms = tuple(self.boolean(term, depth + 1) for term in self._chain(name, args))
                return And(args=terms) if name == "and" else Or(args=terms)
            case Function(name="!" | "not", args=[arg]):
                return Not(arg=self.boolean(arg, depth + 1))
            case Function(name=name, args=args):
                return self._test(name, [self._read(arg) for arg in args])
            case Opaque(what=what):
                return Unknown(why=what)
        return Unknown(why="a part that is neither true nor false")

    def _chain(self, name: str, args: Sequence[Any]) -> list[Any]:
        """The terms of `a & b & c & ...`, which are nested; thousands of them must not deepen the
        recursion."""
        terms: list[Any] = []
        waiting = list(reversed(args))
        while waiting:
            raw = waiting.pop()
            node = self._read(raw)
            if isinstance(node, Function) and node.name == name:
                waiting += reversed(node.args)
            else:
                terms.append(raw)
        return terms

    def _test(self, name: str, args: Sequence[Node]) -> Predicate:
        match name, args:
            case _, [Value(value=value), Attribute(path=path)] if name in _COMPARISONS:
                return Compare(op=_MIRRORED[_COMPARISONS[name]], column=path, value=value)
            case _, [Attribute(path=path), Value(value=value)] if name in _COMPARISONS:
                return Compare(op=_COMPARISONS[name], column=path, value=value)
            case "<=>" | "equal_null", [Attribute(path=path), Value(value=value)] | [
                Value(value=value),
                Attribute(path=path),
            ]:
                null = IsNull(column=path)
                return (
                    null
                    if value is None
                    else And(args=(Not(arg=null), Compare(op="=", column=path, value=value)))
                )
            case "between", [Attribute(path=path), Value(value=low), Value(value=high)]:
                return And(
                    args=(
                        Compare(op=">=", column=path, value=low),
                        Compare(op="<=", column=path, value=high),
                    )
                )
            case "isnull", [Attribute(path=path)]:
                return IsNull(column=path)
            case "isnotnull", [Attribute(path=path)]:
                return Not(arg=IsNull(column=path))
            case "isnan", [Attribute(path=path)]:
                return IsNan(column=path)
            case "startswith", [Attribute(path=path), Value(value=str() as prefix)]:
                return StartsWith(column=path, prefix=prefix)
            case "like", [Attribute(path=path), Value(value=str() as pattern)]:
                return _like(path, pattern)
            case "in", [Attribute(path=path), *members] if all(
                isinstance(member, Value) for member in members
            ):
                values = (member.value for member in members if isinstance(member, Value))
                return IsIn(
                    column=path, values=tuple(value for value in values if value is not None)
                )
        return Unknown(why=f"the function {name}")


def _like(column: ColumnPath, pattern: str) -> Predicate:
    """LIKE: the text before the first wildcard is a prefix."""
    ends = [at for at in map(pattern.find, "%_\\") if at >= 0]
    prefix = pattern[: min(ends)] if ends else pattern
    if not ends:
        return Compare(op="=", column=column, value=pattern)
    starts = StartsWith(column=column, prefix=prefix)
    return (
        starts if pattern == prefix + "%" else And(args=(starts, Unknown(why=f"LIKE {pattern!r}")))
    )


# --- pyarrow's meaning, as a Column ---------------------------------------------------------------


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
    """pyarrow's is_in: false for null, and it tells 0.0 from -0.0, which in Spark only their texts
    do."""
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
    """The value as a Spark literal; UsageError if comparing it with the column could round either
    of them."""
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

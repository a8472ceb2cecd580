"""Converts a predicate to JSON text and back, for options of Spark: decoding it runs no code. [SE2]

Each node is a list: its kind, then its parts. Each literal is a list of its type and a text, so
that it keeps its exact value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast, get_args

from ..errors import UsageError
from .predicate import (
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

# The order matters: a bool is an int, and a datetime is a date.
_LITERALS: tuple[tuple[type, str, Callable[[Any], str], Callable[[str], Any]], ...] = (
    (bool, "bool", str, lambda text: {"True": True, "False": False}[text]),
    (int, "int", hex, lambda text: int(text, 16)),
    (float, "float", float.hex, float.fromhex),
    (str, "str", str, str),
    (bytes, "bytes", bytes.hex, bytes.fromhex),
    (Decimal, "decimal", str, Decimal),
    (datetime, "datetime", datetime.isoformat, datetime.fromisoformat),
    (date, "date", date.isoformat, date.fromisoformat),
    (
        timedelta,
        "timedelta",
        lambda value: hex(value // timedelta(microseconds=1)),
        lambda text: timedelta(microseconds=int(text, 16)),
    ),
)
_PARSERS = {name: parse for _, name, _, parse in _LITERALS}


def spell_predicate(predicate: Predicate) -> str:
    """Encode the predicate as ASCII. A part with a literal of an unknown type becomes `Unknown`,
    which excludes no row."""
    return json.dumps(_spelled(predicate))


def parse_predicate(text: str) -> Predicate:
    """Decode a text from `spell_predicate`; UsageError for any other text."""
    try:
        return _parsed(json.loads(text))
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise UsageError(
            f"a text that is no predicate: {type(error).__name__}; nothing was read"
        ) from error


def _spelled(node: Predicate) -> list[Any]:
    try:
        match node:
            case And(args=args):
                return ["and", *map(_spelled, args)]
            case Or(args=args):
                return ["or", *map(_spelled, args)]
            case Not(arg=arg):
                return ["not", _spelled(arg)]
            case Compare():
                return ["compare", node.op, list(node.column), _literal(node.value)]
            case IsIn():
                return ["in", list(node.column), *map(_literal, node.values)]
            case IsNull():
                return ["null", list(node.column)]
            case IsNan():
                return ["nan", list(node.column)]
            case StartsWith():
                return ["starts", list(node.column), node.prefix]
            case Constant():
                return ["constant", node.value]
            case Unknown():
                return ["unknown", node.why]
    except _OtherLiteralError as error:
        return ["unknown", f"a literal of type {error}"]


class _OtherLiteralError(Exception):
    """A literal of an unknown type."""


def _literal(value: Any) -> list[str]:
    if value is None:
        return []
    for kind, name, spell, _ in _LITERALS:
        if isinstance(value, kind):
            return [name, spell(value)]
    raise _OtherLiteralError(type(value).__name__)


def _parsed(node: Any) -> Predicate:
    match node:
        case ["and", *args]:
            return And(args=tuple(map(_parsed, args)))
        case ["or", *args]:
            return Or(args=tuple(map(_parsed, args)))
        case ["not", arg]:
            return Not(arg=_parsed(arg))
        case ["compare", str(op), column, value] if op in get_args(Op):
            return Compare(op=cast(Op, op), column=_column(column), value=_value(value))
        case ["in", column, *values]:
            return IsIn(column=_column(column), values=tuple(map(_value, values)))
        case ["null", column]:
            return IsNull(column=_column(column))
        case ["nan", column]:
            return IsNan(column=_column(column))
        case ["starts", column, str(prefix)]:
            return StartsWith(column=_column(column), prefix=prefix)
        case ["constant", True | False | None as value]:
            return Constant(value=value)
        case ["unknown", str(why)]:
            return Unknown(why=why)
        case _:
            raise ValueError("no node")


def _column(parts: Any) -> ColumnPath:
    if not (isinstance(parts, list) and parts and all(isinstance(part, str) for part in parts)):
        raise ValueError("no column")
    return tuple(parts)


def _value(pair: Any) -> Any:
    if pair == []:
        return None
    name, text = pair
    if not isinstance(text, str):
        raise ValueError("no literal")
    return _PARSERS[name](text)

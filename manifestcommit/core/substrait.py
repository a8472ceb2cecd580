"""Predicates from pyarrow expressions. [RD6] [RD7]

pyarrow shows an expression's tree in one public form only: Substrait, a protobuf message. `_fields` reads the little of
protobuf's wire format that it takes, so that no protobuf package is needed; a message that is not known here becomes an
`Unknown` part, never a guess. Pure. Not here: what a predicate proves (core.predicate).
"""

from __future__ import annotations

import difflib
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from manifestcommit.core.predicate import (
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
from manifestcommit.errors import UsageError

_Message: TypeAlias = Mapping[int, Sequence[Any]]  # field number -> its values in order: int, or bytes still encoded

_COMPARISONS: dict[str, Op] = {"equal": "=", "not_equal": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_MIRRORED: dict[Op, Op] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH = datetime(1970, 1, 1)
# From here on a double no longer tells an integer from its neighbours.
_SAFE_DOUBLE = 2**53


def parse_expression(expression: Any, schema: pa.Schema) -> Predicate:
    """The pyarrow expression as a predicate with pyarrow's meaning over tables of this schema. [RD7]

    What cannot be told becomes `Unknown`, never an error, except: UsageError where `expression` is no pyarrow expression, or
    names a column that the schema does not have.
    """
    if not hasattr(expression, "to_substrait"):
        raise UsageError(f"filter has to be a pyarrow expression, not {type(expression).__name__}.")
    text = str(expression)
    reason = ""
    # Arrow brings a comparison's two sides to one type, and Substrait has no form for a column that is cast. With all numbers
    # of a kind as wide as they get only the literal is ever cast; `int_column > 1.5` needs the second, wider try.
    for integers in (pa.int64(), pa.float64()):
        relaxed = pa.schema([(field.name, _relaxed(field.type, integers)) for field in schema])
        try:
            plan = bytes(expression.to_substrait(relaxed, allow_arrow_extensions=True))
        except (pa.ArrowException, ValueError, KeyError, NotImplementedError, ImportError) as error:
            reason = str(error).partition("\n")[0]
            _check_names(reason, schema)
            continue
        try:
            return _Reader(plan, schema, text).predicate()
        except (_UnclearError, RecursionError, ValueError, LookupError, TypeError, struct.error) as error:
            return Unknown(why=f"{text} ({error})")
    return Unknown(why=f"{text} ({reason})")


def _relaxed(kind: pa.DataType, integers: pa.DataType) -> pa.DataType:
    """The widest type of the same meaning that Substrait knows; null where it knows none, so that only is_null works."""
    t = pa.types
    if t.is_integer(kind):
        return integers
    if t.is_floating(kind):
        return pa.float64()
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return _relaxed(kind.value_type, integers)
    if t.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _relaxed(field.type, integers)) for field in kind])
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind) or t.is_binary_view(kind):
        return pa.binary()
    if t.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if t.is_boolean(kind) or t.is_date32(kind) or t.is_decimal128(kind):
        return kind
    return pa.null()


def _check_names(reason: str, schema: pa.Schema) -> None:
    """UsageError if Arrow refused the expression because of a column that is not there."""
    found = re.match(r"No match for (FieldRef\..*?)( in .*)?$", reason)
    if found is None:
        return
    parts = re.findall(r"FieldRef\.Name\((.*?)\)", found[1]) or [found[1].removeprefix("FieldRef.")]
    names = [".".join(path) for path in _paths(schema)]
    name = ".".join(parts)
    folded = {each.lower(): each for each in names}
    near = [folded[each] for each in difflib.get_close_matches(name.lower(), folded, n=3)]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else f" Its columns: {', '.join(names[:20])}."
    raise UsageError(f"filter names the column {name!r}, which the table does not have.{hint}")


def _paths(fields: Any, parent: ColumnPath = ()) -> list[ColumnPath]:
    found: list[ColumnPath] = []
    for field in fields:
        path = (*parent, field.name)
        found.append(path)
        if pa.types.is_struct(field.type):
            found += _paths(field.type, path)
    return found


class _UnclearError(Exception):
    """This part has no certain meaning here; the nearest boolean around it becomes Unknown."""


# --- protobuf ------------------------------------------------------------------------------------------------------------


def _fields(message: bytes) -> _Message:
    """The message's fields by number. Varints come as unsigned ints, everything else as bytes."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: int | bytes
        if tag & 7 == 0:
            value, at = _varint(message, at)
        else:
            if tag & 7 == 2:
                size, at = _varint(message, at)
            elif tag & 7 in (1, 5):
                size = 8 if tag & 7 == 1 else 4
            else:
                raise _UnclearError("a protobuf group")
            value, at = message[at : at + size], at + size
        if at > len(message):
            raise _UnclearError("a truncated message")
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _one(message: _Message, number: int) -> Any:
    values = message.get(number, ())
    if len(values) != 1:
        raise _UnclearError(f"{len(values)} values in field {number}")
    return values[0]


# --- Substrait -----------------------------------------------------------------------------------------------------------
# Field numbers from substrait's algebra.proto, extended_expression.proto and extensions.proto.


class _Reader:
    """One ExtendedExpression message: its functions by anchor, and the walk over its only expression."""

    def __init__(self, plan: bytes, schema: pa.Schema, text: str) -> None:
        outer = _fields(plan)
        self._schema = schema
        self._functions = dict(_functions(outer))
        self._root: bytes = _one(_fields(_one(outer, 3)), 1)
        # Substrait's list of options has no place for what a null in a value set means, so it is taken from the text, where
        # any other way than "a null row is in a list with a null" would show.
        self._null_is_member = set(re.findall(r"null_matching_behavior=(\w+)", text)) == {"MATCH"}

    def predicate(self) -> Predicate:
        return self._boolean(self._root)

    def _boolean(self, expression: bytes) -> Predicate:
        try:
            return self._clear(expression)
        except (_UnclearError, ValueError, LookupError, TypeError, OverflowError, struct.error) as error:
            return Unknown(why=str(error) or type(error).__name__)

    def _clear(self, expression: bytes) -> Predicate:
        message = _fields(expression)
        if 1 in message:
            value = _literal(_one(message, 1))
            if value is None or isinstance(value, bool):
                return Constant(value=value)
        elif 2 in message:
            column, kind = self._column(expression)
            if pa.types.is_boolean(kind):
                return Compare(op="=", column=column, value=True)
        elif 3 in message:
            return self._call(_fields(_one(message, 3)))
        elif 8 in message:
            return self._member(_fields(_one(message, 8)))
        raise _UnclearError(_KINDS.get(next(iter(message), 0), "an expression of a kind that is not known here"))

    def _call(self, call: _Message) -> Predicate:
        name = self._functions.get(call.get(1, (0,))[0], "a function that is not known here")
        args = [_one(_fields(each), 3) for each in call.get(4, ())]
        options = {_one(option, 1): option.get(2) for option in map(_fields, call.get(5, ()))}
        if name in ("and", "or"):
            terms = tuple(map(self._boolean, self._chain(name, args)))
            return And(args=terms) if name == "and" else Or(args=terms)
        if name == "not" and len(args) == 1:
            return Not(arg=self._boolean(args[0]))
        if name in _COMPARISONS and len(args) == 2 and not options:
            return self._compare(_COMPARISONS[name], *args)
        if name in _TESTS and len(args) == 1 and not options:
            return _TESTS[name](self._column(args[0])[0])
        if name == "starts_with" and len(args) == 2 and options == {b"case_sensitivity": [b"CASE_SENSITIVE"]}:
            column, kind = self._column(args[0])
            return StartsWith(column=column, prefix=_text(_fitting(self._value(args[1]), kind)))
        raise _UnclearError(f"the function {name}")

    def _chain(self, name: str, args: Sequence[bytes]) -> list[bytes]:
        """The terms of `a & b & c & ...`, which come nested; thousands of them must not nest our calls."""
        terms: list[bytes] = []
        waiting = list(reversed(args))
        while waiting:
            expression = waiting.pop()
            message = _fields(expression)
            call = _fields(_one(message, 3)) if set(message) == {3} else {}
            if call and self._functions.get(call.get(1, (0,))[0]) == name:
                waiting += [_one(_fields(each), 3) for each in reversed(call.get(4, ()))]
            else:
                terms.append(expression)
        return terms

    def _compare(self, op: Op, left: bytes, right: bytes) -> Predicate:
        if 1 in _fields(left):
            left, right, op = right, left, _MIRRORED[op]
        column, kind = self._column(left)
        return Compare(op=op, column=column, value=_fitting(self._value(right), kind))

    def _member(self, message: _Message) -> Predicate:
        column, kind = self._column(_one(message, 1))
        values = [_fitting(self._value(each), kind) for each in message.get(2, ())]
        member = IsIn(column=column, values=tuple(v for v in values if v is not None))
        if None not in values:
            return member
        null = IsNull(column=column)
        if self._null_is_member:
            return Or(args=(member, null))
        return Or(args=(member, And(args=(null, Unknown(why="is_in with a null among its values and skip_nulls")))))

    def _value(self, expression: bytes) -> Any:
        message = _fields(expression)
        if 1 not in message:
            raise _UnclearError(f"{_KINDS.get(next(iter(message), 0), 'something')} where a literal is expected")
        return _literal(_one(message, 1))

    def _column(self, expression: bytes) -> tuple[ColumnPath, pa.DataType]:
        """A column's path and its type in the caller's schema; references are positions, struct by struct."""
        message = _fields(expression)
        if 2 not in message:
            raise _UnclearError(f"{_KINDS.get(next(iter(message), 0), 'something')} where a column is expected")
        reference = _fields(_one(message, 2))
        if 4 not in reference:
            raise _UnclearError("a reference to something else than a column")
        segment: bytes | None = _one(reference, 1)
        members: Any = self._schema
        path: ColumnPath = ()
        kind = pa.null()
        while segment is not None:
            part = _fields(_one(_fields(segment), 2))
            field = members.field(part.get(1, (0,))[0])
            path, kind = (*path, field.name), field.type
            members = kind
            segment = part[2][0] if 2 in part else None
        return path, kind


_TESTS: dict[str, Callable[[ColumnPath], Predicate]] = {
    "is_null": lambda column: IsNull(column=column),
    "is_not_null": lambda column: Not(arg=IsNull(column=column)),
    "is_nan": lambda column: IsNan(column=column),
}
_KINDS = {1: "a literal", 2: "a column", 3: "a function's result", 6: "if_else", 8: "is_in", 11: "a cast"}


def _functions(outer: _Message) -> list[tuple[int, str]]:
    """The standard functions by anchor; Arrow's own functions get a name that nothing matches."""
    origins = {each.get(1, (0,))[0]: _text(each[2][0]) for each in map(_fields, outer.get(1, ())) if 2 in each}
    found = []
    for declaration in map(_fields, outer.get(2, ())):
        if 3 not in declaration:
            continue
        function = _fields(declaration[3][0])
        name = _text(_one(function, 3)).partition(":")[0]
        origin = origins.get(function.get(1, function.get(4, (0,)))[0], "")
        found.append((function.get(2, (0,))[0], name if "functions_" in origin else f"{name} of Arrow"))
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    raise _UnclearError("a literal that is no text")


def _literal(encoded: bytes) -> Any:
    """The literal's Python value; None for a null of any type."""
    message = _fields(encoded)
    numbers = set(message) - {50, 51}  # whether its type is nullable, and a variation of the type: nothing to the value
    if len(numbers) != 1:
        raise _UnclearError("a literal of an unknown form")
    number = numbers.pop()
    value = _one(message, number)
    if number == 29:
        return None
    if number not in _LITERALS:
        raise _UnclearError("a literal of a type that is not known here")
    return _LITERALS[number](value)


def _decimal(encoded: bytes) -> Decimal:
    message = _fields(encoded)
    unscaled = int.from_bytes(message[1][0], "little", signed=True)
    sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return Decimal((sign, digits, -message.get(3, (0,))[0]))  # exact, whatever the context's precision


_LITERALS: dict[int, Callable[[Any], Any]] = {
    1: bool,
    2: _signed,
    3: _signed,
    5: _signed,
    7: _signed,
    10: lambda raw: struct.unpack("<f", raw)[0],
    11: lambda raw: struct.unpack("<d", raw)[0],
    12: _text,
    13: bytes,
    14: lambda micros: _EPOCH + timedelta(microseconds=_signed(micros)),
    16: lambda days: date(1970, 1, 1) + timedelta(days=_signed(days)),
    24: _decimal,
    27: lambda micros: _EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=_signed(micros)),
}


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """The value as one of the column's own type, or _UnclearError: Arrow would cast one side, by rules of its own."""
    t = pa.types
    if value is None:
        return None
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return _fitting(value, kind.value_type)
    if isinstance(value, bool):
        fits = t.is_boolean(kind)
    elif isinstance(value, int) and t.is_floating(kind):
        if fits := abs(value) < (2**24 if t.is_float32(kind) else 2**11 if t.is_float16(kind) else _SAFE_DOUBLE):
            value = float(value)
    elif isinstance(value, float) and t.is_integer(kind) and value.is_integer():
        if fits := abs(value) < _SAFE_DOUBLE:
            value = int(value)
    elif isinstance(value, int | float):
        fits = t.is_integer(kind) or t.is_floating(kind)
    elif isinstance(value, datetime):
        fits = t.is_timestamp(kind) and (value.tzinfo is None) == (kind.tz is None)
    else:
        tests = {str: _is_text, bytes: _is_bytes, date: t.is_date32, Decimal: t.is_decimal}
        fits = type(value) in tests and tests[type(value)](kind)
    if not fits:
        raise _UnclearError(f"a {type(value).__name__} literal against a column of type {kind}")
    return value


def _is_text(kind: pa.DataType) -> bool:
    return _relaxed(kind, pa.int64()) == pa.string()


def _is_bytes(kind: pa.DataType) -> bool:
    return _relaxed(kind, pa.int64()) == pa.binary()

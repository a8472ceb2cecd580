"""Compiles an expression of Spark's SQL into a pyarrow expression with the same values, so that
it is evaluated without Spark. [RC2]

Where the two languages differ (NaN, nulls in lists, CASE, overflow), the compiled expression says
what Spark says by default, with ANSI rules. What could differ (collations, the session's time zone,
casts of texts) is `NotUnderstoodError`, never a guess. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..schema.arrow_schema import arrow_type
from ..schema.evolution import find_column
from ..schema.fields import MAX_PRECISION, Field, Schema, StructType, decimal_parts, type_text
from ..schema.spark_json import has_own_order
from .predicate import ColumnPath
from .sql_syntax import IncompleteError, NotUnderstoodError, number, parse, terms, written

# names -> the columns that it means and their field; UsageError if there is none
Resolve: TypeAlias = Callable[[tuple[str, ...]], tuple[ColumnPath, Field]]

_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 20}  # digits of the decimal for each
_FLOATS = ("float", "double")
_COMPARED = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
_CALCULATED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_MANY = 32  # members of a list; more are looked up together
_SIGNS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}
_TYPES = {  # sqlglot's names of the types that Spark's words mean
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}


class Typed(NamedTuple):
    """A compiled part. type: as in a schema; "void": a null without a type; literal: whether it is
    one, with this value."""

    expression: pc.Expression
    type: Any
    is_literal: bool = False
    value: Any = None


def compile_condition(text: str, schema: Schema) -> pc.Expression:
    """A condition as a pyarrow expression over the table's columns, true for exactly the rows for
    which Spark's is. [RC2]

    NotUnderstoodError where only Spark can tell; IncompleteError for what is no condition, in Spark
    either; UsageError for a column that does not exist.
    """
    found = compile_value(text, columns_of(schema))
    if found.type not in ("boolean", "void"):
        raise IncompleteError(f"a {type_text(found.type)} is neither true nor false")
    return found.expression if found.type == "boolean" else _null("boolean")


def compile_value(text: str, resolve: Resolve) -> Typed:
    """An expression and its type. [RC2]"""
    try:
        return _Compiler(resolve).typed(parse(text))
    except RecursionError:
        raise NotUnderstoodError(
            "parts nested so deeply are not understood without Spark"
        ) from None


def columns_of(schema: Schema) -> Resolve:
    """The columns of a table and the members of its structs, by their names."""

    def resolve(names: tuple[str, ...]) -> tuple[ColumnPath, Field]:
        field = find_column(schema, names[0])
        path = [field.name]
        for name in names[1:]:
            if not isinstance(field.type, StructType):
                raise NotUnderstoodError(f"{'.'.join(names)!r} is no column of the table")
            field = find_column(Schema(fields=field.type.fields), name)
            path.append(field.name)
        return tuple(path), field

    return resolve


def literal(value: Any) -> Typed:
    """A value of Python as a literal."""
    match value:
        case None:
            return Typed(pc.scalar(pa.scalar(None)), "void", True)
        case bool():
            kind = "boolean"
        case int():
            kind = "integer" if -(2**31) <= value < 2**31 else "long"
        case float():
            kind = "double"
        case Decimal():
            scale = max(0, -int(value.as_tuple().exponent))
            kind = f"decimal({MAX_PRECISION},{scale})"
        case str():
            kind = "string"
        case bytes():
            kind = "binary"
        case datetime():
            kind = "timestamp_ntz" if value.tzinfo is None else "timestamp"
        case date():
            kind = "date"
        case _:
            raise NotUnderstoodError(f"a {type(value).__name__} is not a value of a column")
    return _of(value, kind)


def _of(value: Any, kind: str) -> Typed:
    try:
        return Typed(pc.scalar(pa.scalar(value, arrow_type(kind))), kind, True, value)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise NotUnderstoodError(f"{value!r} is no value of {kind}: {error}") from None


def _null(kind: Any) -> pc.Expression:
    return pc.scalar(pa.scalar(None, arrow_type(kind)))


def balanced(terms: Sequence[pc.Expression], join: Callable[[Any, Any], Any]) -> pc.Expression:
    """All terms joined in a shallow tree: thousands of them must not exhaust the stack."""
    while len(terms) > 1:
        pairs = [join(a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + list(terms[len(pairs) * 2 :])
    return terms[0]


class _Compiler:
    """Compiles sqlglot's tree, class by class of its nodes."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def typed(self, node: Any) -> Typed:
        name = type(node).__name__
        if name in _SIGNS:
            return _compare(_SIGNS[name], *self._both(node))
        if name in _ARITHMETIC:
            return _calculate(_ARITHMETIC[name], *self._both(node))
        if name not in _FORMS:
            raise NotUnderstoodError(f"{written(node)} is not understood without Spark")
        return _FORMS[name](self, node)

    def _literal(self, node: Any) -> Typed:
        return _of(node.this, "string") if node.is_string else _of(*number(node.this))

    def _negative(self, node: Any) -> Typed:
        inner = node.this
        if type(inner).__name__ == "Literal" and not inner.is_string:
            return _of(*number(inner.this, -1))
        return _call("negative", [self.typed(inner)])

    def _terms(self, node: Any) -> Typed:
        join = pc.and_kleene if type(node).__name__ == "And" else pc.or_kleene
        return Typed(balanced([self._boolean(each) for each in terms(node)], join), "boolean")

    def _between(self, node: Any) -> Typed:
        subject, low, high = (self.typed(node.args[key]) for key in ("this", "low", "high"))
        tests = (_compare(">=", subject, low), _compare("<=", subject, high))
        return Typed(pc.and_kleene(*(each.expression for each in tests)), "boolean")

    def _like(self, node: Any) -> Typed:
        found = _text_call("like", [*self._both(node)])
        return _not(found) if node.args.get("negate") else found

    def _typed_literal(self, node: Any) -> Typed:
        if not getattr(node.this, "is_string", False):
            raise NotUnderstoodError(f"{written(node)} is not understood without Spark")
        return _typed_literal(self.typed(node.this), _type_of(node.to))

    def _function(self, node: Any) -> Typed:
        name = node.name.lower()
        if name == "if" and len(node.expressions) == 3:
            return self._case([node.expressions[:2]], node.expressions[2])
        return _call(name, self._all(node.expressions))

    def _both(self, node: Any) -> tuple[Typed, Typed]:
        return self.typed(node.this), self.typed(node.expression)

    def _all(self, nodes: Sequence[Any]) -> list[Typed]:
        return [self.typed(each) for each in nodes]

    def _is(self, node: Any) -> Typed:
        subject, wanted = self.typed(node.this), node.expression
        match type(wanted).__name__:
            case "Null":
                return Typed(subject.expression.is_null(), "boolean")
            case "Boolean":
                return _compare("<=>", subject, _of(wanted.this, "boolean"))
        raise NotUnderstoodError(f"IS {written(wanted)} is not understood without Spark")

    def _boolean(self, node: Any) -> pc.Expression:
        found = self.typed(node)
        if found.type == "void":
            return _null("boolean")
        if found.type != "boolean":
            raise NotUnderstoodError(f"a {type_text(found.type)} is neither true nor false")
        return found.expression

    def _column(self, node: Any) -> Typed:
        names = tuple(part.name for part in node.parts)
        path, field = self._resolve(names)
        if has_own_order(field):
            raise NotUnderstoodError(f"the column {'.'.join(path)!r} has an order of Spark's own")
        column = pc.field(path[0]) if len(path) == 1 else pc.field(path)
        return Typed(column, field.type)

    def _case_of(self, node: Any) -> Typed:
        pairs = [(each.this, each.args["true"]) for each in node.args["ifs"]]
        subject = None if node.this is None else self.typed(node.this)
        return self._case(pairs, node.args.get("default"), subject)

    def _case(
        self, pairs: Sequence[Sequence[Any]], other: Any, subject: Typed | None = None
    ) -> Typed:
        """Pairs of a condition and a value, then the value of all else."""
        conditions = [
            self._boolean(when)
            if subject is None
            else _compare("=", subject, self.typed(when)).expression
            for when, _ in pairs
        ]
        last = literal(None) if other is None else self.typed(other)
        values = _alike([*(self.typed(then) for _, then in pairs), last])
        names = [str(number) for number in range(len(conditions))]
        # a null condition is none that is true
        chosen = pc.case_when(
            pc.make_struct(*conditions, field_names=names), *(each.expression for each in values)
        )
        return Typed(chosen, values[0].type)

    def _in(self, node: Any) -> Typed:
        subject, members = self.typed(node.this), self._all(node.expressions)
        if not members:
            raise NotUnderstoodError("a list without members")
        known = [each for each in members if each.type != "void"]
        values = _members(subject, known) if len(known) > _MANY else None
        if values is None:
            tests = [_compare("=", subject, each).expression for each in members]
            return Typed(balanced(tests, pc.or_kleene), "boolean")
        kind = arrow_type(subject.type)
        found = pc.is_in(subject.expression, pa.array(values, kind))
        # false, but null where the column is: is_in is never null
        first = pc.scalar(pa.scalar(values[0], kind))
        column = subject.expression
        found = found | ((column == first) & (column != first))
        found = found | _null("boolean") if len(known) < len(members) else found
        return Typed(found, "boolean")


# A class of sqlglot's trees -> what makes pyarrow's of it.
_FORMS: dict[str, Callable[[_Compiler, Any], Typed]] = {
    "Paren": lambda compiler, node: compiler.typed(node.this),
    "Literal": _Compiler._literal,
    "Boolean": lambda _, node: _of(node.this, "boolean"),
    "Null": lambda *_: literal(None),
    "Column": _Compiler._column,
    "Dot": _Compiler._column,
    "And": _Compiler._terms,
    "Or": _Compiler._terms,
    "Not": lambda compiler, node: Typed(pc.invert(compiler._boolean(node.this)), "boolean"),
    "Is": _Compiler._is,
    "In": _Compiler._in,
    "Between": _Compiler._between,
    "Like": _Compiler._like,
    "NullSafeEQ": lambda compiler, node: _compare("<=>", *compiler._both(node)),
    "NullSafeNEQ": lambda compiler, node: _not(_compare("<=>", *compiler._both(node))),
    "DPipe": lambda compiler, node: _text_call("concat", [*compiler._both(node)]),
    "Neg": _Compiler._negative,
    "Case": _Compiler._case_of,
    "TryCast": lambda compiler, node: _cast(compiler.typed(node.this), _type_of(node.to)),
    "Cast": _Compiler._typed_literal,
    "Anonymous": _Compiler._function,
}


def _call(name: str, args: list[Typed]) -> Typed:
    match name, args:
        case "negative", [arg] if _is_number(arg.type):
            return arg._replace(expression=pc.negate_checked(arg.expression), is_literal=False)
        case "abs", [arg] if _is_number(arg.type):
            return arg._replace(expression=pc.abs_checked(arg.expression), is_literal=False)
        case "isnull", [arg]:
            return Typed(arg.expression.is_null(), "boolean")
        case "isnotnull", [arg]:
            return Typed(arg.expression.is_valid(), "boolean")
        case "isnan", [arg] if arg.type in _FLOATS:
            is_nan = pc.is_nan(arg.expression)
            return Typed(pc.and_kleene(arg.expression.is_valid(), is_nan), "boolean")
        case (("coalesce" | "ifnull" | "nvl"), [_, _, *_]):
            values = _alike(args)
            made = pc.coalesce(*(each.expression for each in values))
            return Typed(made, values[0].type)
        case "nullif", [left, right]:
            equal = pc.make_struct(_compare("=", left, right).expression, field_names=["0"])
            made = pc.case_when(equal, _null(left.type), left.expression)
            return Typed(made, left.type)
        case (("year" | "month" | "day" | "dayofmonth"), [arg]) if arg.type == "date":
            part = getattr(pc, name.removesuffix("ofmonth"))(arg.expression)
            return Typed(part.cast(pa.int32()), "integer")
    return _text_call(name, args)


def _text_call(name: str, args: list[Typed]) -> Typed:
    if not args or any(each.type != "string" for each in args):
        kinds = ", ".join(type_text(each.type) for each in args)
        raise NotUnderstoodError(f"{name}({kinds}) is not understood without Spark")
    first, *others = (each.expression for each in args)
    match name, args:
        case (("length" | "char_length" | "character_length" | "len"), [_]):
            return Typed(pc.utf8_length(first).cast(pa.int32()), "integer")
        case (("concat"), _):
            return Typed(pc.binary_join_element_wise(first, *others, ""), "string")
        case "trim", [_]:
            return Typed(pc.utf8_trim(first, " "), "string")
        case "like", [_, Typed(is_literal=True, value=pattern)]:
            return Typed(_like(first, pattern), "boolean")
        case "startswith", [_, Typed(is_literal=True, value=prefix)]:
            return Typed(pc.starts_with(first, prefix), "boolean")
        case "endswith", [_, Typed(is_literal=True, value=suffix)]:
            return Typed(pc.ends_with(first, suffix), "boolean")
        case "contains", [_, Typed(is_literal=True, value=part)]:
            return Typed(pc.match_substring(first, part), "boolean")
    raise NotUnderstoodError(f"the function {name} is not understood without Spark")


def _like(column: pc.Expression, pattern: str) -> pc.Expression:
    ends = [at for at in map(pattern.find, "%_\\") if at >= 0]
    if not ends:
        return column == pc.scalar(pattern)
    if not re.fullmatch(r"(?:[^\\]|\\[%_\\])*", pattern, re.DOTALL):
        raise NotUnderstoodError(f"LIKE {pattern!r} is not understood without Spark")
    prefix, whole = pattern[: min(ends)], pc.match_like(column, pattern)
    # the first part says the same again, in a form that skips files
    return pc.and_kleene(pc.starts_with(column, prefix), whole) if prefix else whole


# --- Types ----------------------------------------------------------------------------------------


def _is_number(kind: Any) -> bool:
    return isinstance(kind, str) and (
        kind in _INTEGERS or kind in _FLOATS or decimal_parts(kind) is not None
    )


def _parts(kind: str) -> tuple[int, int]:
    return (_INTEGERS[kind], 0) if kind in _INTEGERS else decimal_parts(kind) or (0, 0)


def _common(one: Any, other: Any) -> str:
    """The type to which Spark casts two types, by ANSI rules."""
    if one == other and isinstance(one, str):
        return one
    if not (_is_number(one) and _is_number(other)):
        raise NotUnderstoodError(
            f"{type_text(one)} and {type_text(other)} together are not understood without Spark"
        )
    if one in _FLOATS or other in _FLOATS:
        return "double"
    if one in _INTEGERS and other in _INTEGERS:
        return str(max((one, other), key=lambda kind: _INTEGERS[kind]))
    (p1, s1), (p2, s2) = _parts(one), _parts(other)
    scale = max(s1, s2)
    digits = max(p1 - s1, p2 - s2) + scale
    if digits > MAX_PRECISION:
        raise NotUnderstoodError(
            f"{one} and {other} together have more than {MAX_PRECISION} digits"
        )
    return f"decimal({digits},{scale})"


def to_type(part: Typed, kind: Any) -> pc.Expression:
    """The part as this type, which is at least as wide, or a narrower one that holds every value;
    the evaluation fails where one does not fit. [RC2]"""
    if part.type == kind:
        return part.expression
    if part.type == "void":
        return _null(kind)
    if not (_is_number(part.type) and _is_number(kind)):
        given = _literal_as(part, kind)
        if given is None:
            raise NotUnderstoodError(
                f"a {type_text(part.type)} does not become a {type_text(kind)} without a cast"
            )
        return given.expression
    return number_as(part.expression, arrow_type(part.type), arrow_type(kind))


def number_as(number: pc.Expression, given: pa.DataType, wanted: pa.DataType) -> pc.Expression:
    """The same number in another type: the nearest float, or exactly."""
    if pa.types.is_decimal(wanted):
        if pa.types.is_integer(given):  # Arrow asks for room for every integer of the type
            number = number.cast(pa.decimal128(20, 0))
        # Arrow's own cast to 128 bits overflows silently where the scale grows
        return number.cast(pa.decimal256(76, wanted.scale)).cast(wanted)
    if not pa.types.is_floating(wanted):
        return number.cast(wanted)
    if pa.types.is_decimal(given):  # Arrow's own cast of a decimal is not the nearest
        number = number.cast(pa.string())
    return number.cast(wanted, safe=False)  # a long may have no exact double


def _alike(parts: Sequence[Typed]) -> list[Typed]:
    """All parts as their common type."""
    kinds = [each.type for each in parts if each.type != "void"]
    if not kinds:
        raise NotUnderstoodError("a value without a type")
    kind = reduce(lambda one, other: one if one == other else _common(one, other), kinds)
    return [Typed(to_type(each, kind), kind) for each in parts]


def _type_of(node: Any) -> str:
    """Spark's type of a type in the tree."""
    name, numbers = node.this.name, [int(each.name) for each in node.expressions]
    if name == "DECIMAL" and len(numbers) < 3:
        precision, scale = [*numbers, *[10, 0][len(numbers) :]]
        if 0 < precision <= MAX_PRECISION and scale <= precision:
            return f"decimal({precision},{scale})"
    if name not in _TYPES or numbers:
        raise NotUnderstoodError(f"the type {written(node)} is not understood without Spark")
    return _TYPES[name]


def _not(found: Typed) -> Typed:
    return Typed(pc.invert(found.expression), "boolean")


def _cast(part: Typed, kind: str) -> Typed:
    if kind == "string" and part.type in _INTEGERS:
        return Typed(part.expression.cast(pa.string()), "string")
    if kind == "date" and part.type == "timestamp_ntz":
        return Typed(part.expression.cast(pa.date32(), safe=False), "date")
    widens = _is_number(part.type) and _is_number(kind) and part.type not in _FLOATS
    if part.type == "void" or widens or (part.type == "float" and kind == "double"):
        return Typed(to_type(part, kind), kind)
    raise NotUnderstoodError(
        f"a cast from {type_text(part.type)} to {kind} is not understood without Spark"
    )


# --- Comparisons and arithmetic -------------------------------------------------------------------


def _literal_as(part: Typed, kind: Any) -> Typed | None:
    """A literal as Spark casts it to a column's type, where only one value can be meant."""
    value = part.value
    if not (part.is_literal and isinstance(value, str) and isinstance(kind, str)):
        return None
    try:
        if kind == "date" and _DAY.fullmatch(value):
            return _of(date.fromisoformat(value), kind)
        if kind in ("timestamp", "timestamp_ntz") and _MOMENT.fullmatch(value):
            moment = datetime.fromisoformat(value)
            if (moment.tzinfo is not None) == (kind == "timestamp"):
                return _of(moment, kind)
        if kind in _INTEGERS and re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII):
            return literal(int(value))
    except ValueError:
        return None
    return None


def _members(subject: Typed, members: Sequence[Typed]) -> list[Any] | None:
    """The members of a long list as values of the column's type, without those that no such value
    equals; None if they are not compared that way."""
    found = [
        each if each.type == subject.type else _literal_as(each, subject.type) or each
        for each in members
    ]
    if not all(each.is_literal for each in found):
        return None
    if subject.type in _INTEGERS and all(each.type in _INTEGERS for each in found):
        bound = 2 ** (arrow_type(subject.type).bit_width - 1)
        fitting = [each.value for each in found if -bound <= each.value < bound]
        return fitting or None
    is_same = subject.type not in _FLOATS and all(each.type == subject.type for each in found)
    return [each.value for each in found] if is_same and _has_order(subject.type) else None


def _typed_literal(part: Typed, kind: str) -> Typed:
    """DATE '…' and its like: what has no zone of its own is a time in the session's zone."""
    found = _literal_as(part, kind)
    if found is None:
        raise NotUnderstoodError(f"{kind.upper()} {part.value!r} is not understood without Spark")
    return found


def _digits(part: Typed) -> tuple[int, int]:
    """The digits and the scale of a number as a decimal; a literal has as many as it shows."""
    if part.is_literal and part.type in _INTEGERS:
        return len(str(abs(part.value))), 0
    return _parts(part.type)


def _as_decimal(part: Typed, kind: str) -> pc.Expression:
    if part.is_literal:
        return _of(Decimal(part.value), kind).expression
    return part.expression.cast(arrow_type(kind))


def _compare(sign: str, left: Typed, right: Typed) -> Typed:
    if left.is_literal and not right.is_literal:  # pruning expects the column first
        left, right, sign = right, left, _MIRRORED[sign]
    if left.type == "void" or right.type == "void":
        other = right if left.type == "void" else left
        is_null = other.expression.is_null() if sign == "<=>" else _null("boolean")
        return Typed(is_null, "boolean")
    a, b, kind = _comparable(left, right)
    if sign == "<=>":
        both = pc.and_kleene(a.is_null(), b.is_null())
        same = pc.and_kleene(a.is_valid(), b.is_valid())
        return Typed(both | (same & _compared("=", a, b, kind, right)), "boolean")
    return Typed(_compared(sign, a, b, kind, right), "boolean")


def _comparable(left: Typed, right: Typed) -> tuple[pc.Expression, pc.Expression, Any]:
    """Both sides in types that Arrow compares exactly. A column beside a literal stays bare, so
    that files are skipped by it."""
    if right.is_literal and not left.is_literal:
        given = right if right.type == left.type else _literal_as(right, left.type) or right
        if _is_number(left.type) and _is_number(given.type):
            return _beside_number(left, given)
        right = given
    kind = _common(left.type, right.type)
    if not _has_order(kind):
        raise NotUnderstoodError(f"{type_text(kind)}s are not compared without Spark")
    return to_type(left, kind), to_type(right, kind), kind


def _beside_number(left: Typed, right: Typed) -> tuple[pc.Expression, pc.Expression, Any]:
    value = right.value
    if left.type in _FLOATS or right.type in _FLOATS:
        column = left.expression
        if left.type != "double":
            column = to_type(left, "double")
        return column, pc.scalar(pa.scalar(float(value), pa.float64())), "double"
    _common(left.type, right.type)  # no more than MAX_PRECISION digits
    if left.type in _INTEGERS and value == int(value):
        value = int(value)
        if -(2**63) <= value < 2**63:
            held = pa.int64() if abs(value) >= 2**7 else arrow_type(left.type)
            return left.expression, pc.scalar(pa.scalar(value, held)), left.type
    return left.expression, pc.scalar(Decimal(value)), "decimal"


def _has_order(kind: str) -> bool:
    return kind in ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz") or (
        _is_number(kind)
    )


def _compared(
    sign: str, a: pc.Expression, b: pc.Expression, kind: Any, right: Typed
) -> pc.Expression:
    """The comparison; Spark's NaN equals itself and is above every other number."""
    if sign == "!=":
        if kind not in _FLOATS or _is_plain(right):
            return a != b
        return pc.invert(_compared("=", a, b, kind, right))
    if sign == ">=":
        if kind not in _FLOATS:
            return pc.greater_equal(a, b)
        if _is_plain(right):
            return pc.or_kleene(pc.greater_equal(a, b), pc.is_nan(a))
        return pc.invert(_compared("<", a, b, kind, right))
    plain = _COMPARED[sign](a, b)
    if kind not in _FLOATS:
        return plain
    if _is_plain(right):
        return pc.or_kleene(plain, pc.is_nan(a)) if sign == ">" else plain
    nan_a, nan_b = pc.is_nan(a), pc.is_nan(b)
    match sign:
        case "=":
            also = nan_a & nan_b
        case "<":
            also = pc.invert(nan_a) & nan_b
        case ">":
            also = nan_a & pc.invert(nan_b)
        case _:
            also = nan_b
    return pc.or_kleene(plain, also)


def _is_plain(part: Typed) -> bool:
    """A literal other than NaN."""
    return part.is_literal and not math.isnan(part.value)


def _calculate(sign: str, left: Typed, right: Typed) -> Typed:
    void = next((each for each in (left, right) if each.type == "void"), None)
    if void is not None:
        other = right if void is left else left
        left = right = Typed(_null(other.type), other.type)
    kind = _common(left.type, right.type)
    if not _is_number(kind):
        raise NotUnderstoodError(f"{type_text(kind)} {sign} … is not understood without Spark")
    is_decimal = decimal_parts(kind) is not None
    if sign == "/":
        if is_decimal:
            raise NotUnderstoodError("a division of decimals is not understood without Spark")
        a, b = to_type(left, "double"), to_type(right, "double")
        return Typed(pc.divide_checked(a, b), "double")
    if not is_decimal:
        return Typed(_CALCULATED[sign](to_type(left, kind), to_type(right, kind)), kind)
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    digits, scale = (p1 + p2 + 1, s1 + s2)
    if sign != "*":
        scale = max(s1, s2)
        digits = max(p1 - s1, p2 - s2) + scale + 1
    if digits > MAX_PRECISION:
        raise NotUnderstoodError(
            f"{left.type} {sign} {right.type} has more than {MAX_PRECISION} digits"
        )
    a, b = (
        _as_decimal(each, f"decimal({p},{s})") for each, p, s in ((left, p1, s1), (right, p2, s2))
    )
    return Typed(_CALCULATED[sign](a, b), f"decimal({digits},{scale})")

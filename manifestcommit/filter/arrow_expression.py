"""Translates pyarrow expressions into predicates, and into expressions for which NaN has the order
that it has in Spark. [RD6] [RD7]

pyarrow shows an expression's tree in two forms. Substrait is the documented one, but Arrow's
encoder doubles the message with every nested call (14 terms joined by `|` take 3 MB, 24 take
gigabytes), loses the meaning of a null in a value set, and refuses comparisons that Arrow can do
(`int_column > 1.5`). So this module reads the other: the pickled form, an Arrow IPC file whose
schema metadata spell the tree in prefix order. Any part that it does not know becomes `Unknown`,
never a guess. Pure.
"""

from __future__ import annotations

import difflib
import functools
import math
import struct
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from manifestcommit.errors import UsageError
from manifestcommit.filter.predicate import (
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
from manifestcommit.format.values import is_binary, is_number, is_text, python_value

_COMPARISONS: dict[str, Op] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_MIRRORED: dict[Op, Op] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MAX_DEPTH = 100  # of nested calls, except one long chain of `&` or `|`
_MAX_TEXT = 300
_ODD = (pa.ArrowException, struct.error, ValueError, LookupError, TypeError, AttributeError)
_UNREADABLE = (*_ODD, NotImplementedError)


def parse_expression(
    expression: Any, schema: pa.Schema, argument: str = "the condition"
) -> Predicate:
    """Parse a pyarrow expression into a predicate, for either order of NaN, over tables of this
    schema. A part that cannot be translated becomes `Unknown`; UsageError only for what is no
    pyarrow expression, or names a column that the schema does not have. [RD7]"""
    if not isinstance(expression, pc.Expression):
        raise UsageError(
            f"{argument} has to be a pyarrow expression, such as pyarrow.compute.field('day') == "
            "'2013-01-02', or a Spark Column, such as "
            f"pyspark.sql.functions.expr(\"day = '2013-01-02'\"), not {type(expression).__name__}."
        )
    try:
        tree, _ = _parsed(expression)
    except _UNREADABLE as error:
        text = expression_text(expression)
        shown = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
        return Unknown(why=f"{shown} ({str(error).partition(chr(10))[0]})")
    _check_names(tree, schema, argument)
    return _Translation(schema).boolean(tree, 0)


def columns_in(expression: Any) -> frozenset[ColumnPath] | None:
    """Every column that a pyarrow expression names; None if its form is unknown."""
    try:
        nodes = _nodes(_parsed(expression)[0])
        return frozenset(node.path for node in nodes if isinstance(node, _Column))
    except _UNREADABLE:
        return None


def spark_order(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """The same condition with Spark's order of floats: NaN equals itself and is above every other
    number. An expression of an unknown form stays as it is. [RD7]"""
    try:
        tree, held = _parsed(expression)
        if not any(_is_float(node, schema) for node in _nodes(tree)):
            return expression
        return _expression(_ordered(tree, schema), held)
    except (*_UNREADABLE, RecursionError):
        return expression


def split_terms(
    expression: pc.Expression, apart: Container[str]
) -> tuple[pc.Expression | None, pc.Expression | None]:
    """Split `a & b & ...` into terms that name none of these columns, and others; or None."""
    try:
        tree, held = _parsed(expression)
        kept: tuple[list[_Node], list[_Node]] = ([], [])
        is_and = isinstance(tree, _Call) and tree.name == "and_kleene"
        for term in _chain(tree) if is_and and isinstance(tree, _Call) else [tree]:
            names = (node.path[0] for node in _nodes(term) if isinstance(node, _Column))
            kept[any(name in apart for name in names)].append(term)
        free, rest = (
            _expression(_joined("and_kleene", terms), held) if terms else None for terms in kept
        )
        return free, rest
    except (*_UNREADABLE, RecursionError):
        return None, expression


def expression_text(expression: pc.Expression) -> str:
    """The expression's own text, where it has one: it has none with a text that is not UTF-8."""
    try:
        return str(expression)
    except UnicodeDecodeError:
        return "an expression with a text that is not UTF-8"


def spell(expression: pc.Expression) -> str:
    """The expression as text, equal for equal ones. Its own text omits parts of long lists."""
    try:
        return _spelled(_parsed(expression)[0])
    except _UNREADABLE:
        return expression_text(expression)


def _spelled(node: _Node) -> str:
    match node:
        case _Column(path=path):
            return repr(path)
        case _Literal(scalar=scalar):
            return f"{scalar.type} {python_value(scalar)!r}"
        case _Call(name=name, args=args, options=options):
            given = [
                f"{option}={options[option].type} {python_value(options[option])!r}"
                for option in sorted(options)
            ]
            return f"{name}({', '.join([*map(_spelled, args), *given])})"


# --- The pickled form -----------------------------------------------------------------------------


class _Column(NamedTuple):
    path: ColumnPath


class _Literal(NamedTuple):
    scalar: pa.Scalar
    place: int  # the pickled form's column with the value


class _Call(NamedTuple):
    name: str
    args: list[_Node]
    options: Mapping[str, Any] = {}
    place: int | None = None  # the pickled form's column with the options


_Node: TypeAlias = _Column | _Literal | _Call


def _parsed(expression: Any) -> tuple[_Node, pa.RecordBatch]:
    """The expression's tree, and the values in it. ValueError and the like for an unknown form."""
    (pickled,) = expression.__reduce__()[1]
    reader = pa.ipc.open_file(pickled)
    values = reader.get_batch(0)
    tokens = iter(_metadata(reader.schema.serialize().to_pybytes()))
    whole = _Call("", [])
    open_calls = [whole]
    for key, text in tokens:
        inner = open_calls[-1]
        if key == "call":
            call = _Call(text, [])
            inner.args.append(call)
            open_calls.append(call)
        elif key == "end" and text == inner.name and len(open_calls) > 1:
            open_calls.pop()
        elif key == "options":
            open_calls[-1] = _with_options(open_calls, values, int(text))
        elif key == "literal":
            inner.args.append(_Literal(values.column(int(text))[0], int(text)))
        elif key == "field_ref":
            inner.args.append(_Column((text,)))
        elif key == "nested_field_ref":
            steps = [next(tokens) for _ in range(int(text))]
            if any(step != "field_ref" for step, _ in steps):
                raise ValueError("a nested column of an unknown form")
            inner.args.append(_Column(tuple(name for _, name in steps)))
        else:
            raise ValueError(f"an expression with {key!r} in a place that is not known here")
    if len(open_calls) != 1 or len(whole.args) != 1:
        raise ValueError("an expression of an unknown form")
    return whole.args[0], values


def _with_options(open_calls: Sequence[_Call], values: pa.RecordBatch, place: int) -> _Call:
    """Set the options of the innermost call, also in its parent's arguments."""
    options = values.column(place)[0]
    given = {name: options[name] for name in options}
    call = open_calls[-1]._replace(options=given, place=place)
    open_calls[-2].args[-1] = call
    return call


def _expression(tree: _Node, values: pa.RecordBatch) -> pc.Expression:
    """The expression with this tree: the way back of `_parsed`."""
    marks = pa.KeyValueMetadata(list(_marks(tree)))  # a dict would lose repeated keys
    values = values.replace_schema_metadata(marks)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, values.schema) as writer:
        writer.write_batch(values)
    return pc.Expression._deserialize(sink.getvalue())


def _marks(node: _Node) -> Iterator[tuple[str, str]]:
    match node:
        case _Column(path=path):
            if len(path) > 1:
                yield "nested_field_ref", str(len(path))
            yield from (("field_ref", name) for name in path)
        case _Literal(place=place):
            yield "literal", str(place)
        case _Call(name="and_kleene" | "or_kleene" as name):
            terms = _chain(node)
            yield from [("call", name)] * (len(terms) - 1)
            for number, term in enumerate(terms):
                yield from _marks(term)
                if number:
                    yield "end", name
        case _Call(name=name, args=args, place=place):
            yield "call", name
            for arg in args:
                yield from _marks(arg)
            if place is not None:
                yield "options", str(place)
            yield "end", name


def _metadata(message: bytes) -> list[tuple[str, str]]:
    """The key-value pairs of an encapsulated Arrow schema message, in order: pyarrow's dict would
    lose repeated keys. A flatbuffer (Arrow's format/Message.fbs and Schema.fbs); struct.error if it
    is truncated."""
    flat = message[8:]  # after the continuation mark and the size

    def read(form: str, at: int) -> int:
        return int(struct.unpack_from(form, flat, at)[0])

    def slot(table: int, number: int) -> int:
        """What a flatbuffer table's field refers to."""
        fields, place = table - read("<i", table), 4 + 2 * number
        offset = read("<H", fields + place) if place < read("<H", fields) else 0
        if not offset:
            raise LookupError("an expression without its tree")
        return table + offset + read("<I", table + offset)

    def text(at: int) -> str:
        return flat[at + 4 : at + 4 + read("<I", at)].decode()

    vector = slot(slot(read("<I", 0), 2), 2)
    places = [vector + 4 + 4 * index for index in range(read("<I", vector))]
    pairs = [at + read("<I", at) for at in places]
    return [(text(slot(pair, 0)), text(slot(pair, 1))) for pair in pairs]


# --- Names ----------------------------------------------------------------------------------------


def _check_names(tree: _Node, schema: pa.Schema, argument: str) -> None:
    """UsageError if the tree names no column, even in a part that is not translated."""
    for node in _nodes(tree):
        if isinstance(node, _Column) and _type_at(node.path, schema) is None:
            names = [".".join(path) for path in _paths(schema)]
            raise UsageError(f"{argument} {_no_column('.'.join(node.path), names)}")


def _nodes(tree: _Node) -> Iterator[_Node]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _Call):
            waiting += node.args


def _no_column(name: str, names: Sequence[str]) -> str:
    folded = {known.lower(): known for known in names}
    near = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3)]
    if near:
        hint = f"Did you mean {' or '.join(map(repr, near))}?"
    else:
        hint = f"Its columns: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."
    return f"names the column {name!r}, which the table does not have. {hint}"


def _paths(fields: Any, parent: ColumnPath = ()) -> list[ColumnPath]:
    paths: list[ColumnPath] = []
    for field in fields:
        path = (*parent, field.name)
        paths.append(path)
        if pa.types.is_struct(field.type):
            paths += _paths(field.type, path)
    return paths


def _type_at(path: ColumnPath, schema: pa.Schema) -> pa.DataType | None:
    """The type of the column, if encoded that of its values; None if there is none."""
    members: Any = schema
    for name in path:
        matching = [field for field in members if field.name == name]
        if len(matching) != 1:
            return None
        kind = matching[0].type
        members = kind if pa.types.is_struct(kind) else ()
    is_encoded = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return kind.value_type if is_encoded else kind


# --- Meaning --------------------------------------------------------------------------------------


class _UnclearError(ValueError):
    """A part without a certain meaning: the nearest boolean around it becomes Unknown."""


class _Translation:
    """Translates a tree into a predicate, over tables of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def boolean(self, node: _Node, depth: int) -> Predicate:
        """Translate a node that must be true, false or null."""
        try:
            if depth > _MAX_DEPTH:
                raise _UnclearError("calls nested too deeply")
            return self._boolean(node, depth)
        except (pa.ArrowException, ValueError, TypeError, LookupError, OverflowError) as error:
            return Unknown(why=str(error) or type(error).__name__)

    def _boolean(self, node: _Node, depth: int) -> Predicate:
        match node:
            case _Literal(scalar=scalar):
                if pa.types.is_boolean(scalar.type) or not scalar.is_valid:
                    return Constant(value=scalar.as_py())
            case _Column(path=path):
                if pa.types.is_boolean(_type_at(path, self._schema)):
                    return Compare(op="=", column=path, value=True)
            case _Call(name="and_kleene" | "or_kleene" as name):
                terms = tuple(self.boolean(term, depth + 1) for term in _chain(node))
                return And(args=terms) if name == "and_kleene" else Or(args=terms)
            case _Call(name="invert", args=[arg]):
                return Not(arg=self.boolean(arg, depth + 1))
            case _Call(name=name, args=[left, right], options=options) if (
                name in _COMPARISONS and not options
            ):
                return self._compare(_COMPARISONS[name], left, right)
            case _Call(name=name, args=[_Column() as column], options=options) if name in _TESTS:
                return _TESTS[name](column.path, _type_at(column.path, self._schema), options)
            case _Call(name=name):
                raise _UnclearError(f"the function {name}")
        raise _UnclearError("a part that is neither true nor false")

    def _compare(self, op: Op, left: _Node, right: _Node) -> Predicate:
        if isinstance(left, _Literal):
            left, right, op = right, left, _MIRRORED[op]
        if not (isinstance(left, _Column) and isinstance(right, _Literal)):
            raise _UnclearError("a comparison of something else than a column with a literal")
        kind = _type_at(left.path, self._schema)
        return Compare(op=op, column=left.path, value=_fitting(right.scalar, kind))


def _chain(call: _Call) -> list[_Node]:
    """The terms of `a & b & c & ...`, nested: thousands must not deepen the recursion."""
    terms: list[_Node] = []
    waiting = list(reversed(call.args))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _Call) and node.name == call.name:
            waiting += reversed(node.args)
        else:
            terms.append(node)
    return terms


def _is_null(column: ColumnPath, kind: pa.DataType, options: Mapping[str, Any]) -> Predicate:
    null = IsNull(column=column)
    if not options["nan_is_null"].as_py() or not pa.types.is_floating(kind):
        return null
    # This part is never null, so `is_nan`, which is null for null rows, can be combined with it.
    return Or(args=(null, IsNan(column=column)))


def _is_in(column: ColumnPath, kind: pa.DataType, options: Mapping[str, Any]) -> Predicate:
    nulls = options["null_matching_behavior"].as_py()
    # 0: a null row matches a null in the set; 1: it never matches; other values give null
    if nulls not in (0, 1):
        raise _UnclearError("the function is_in with a rule for nulls that is not known here")
    scalars = options["value_set"].values
    values = [_member(scalar, kind) for scalar in scalars if scalar.is_valid]
    member = IsIn(column=column, values=tuple(value for value in values if value is not None))
    return Or(args=(member, IsNull(column=column))) if nulls == 0 and scalars.null_count else member


def _starts_with(column: ColumnPath, kind: pa.DataType, options: Mapping[str, Any]) -> Predicate:
    if options["ignore_case"].as_py():
        raise _UnclearError("the function starts_with without regard to case")
    return StartsWith(column=column, prefix=_fitting(options["pattern"], kind))


def _is_nan(column: ColumnPath, kind: pa.DataType, options: Mapping[str, Any]) -> Predicate:
    if not pa.types.is_floating(kind):
        raise _UnclearError(f"the function is_nan on a column of type {kind}")
    return IsNan(column=column)


_TESTS: dict[str, Callable[[ColumnPath, Any, Mapping[str, Any]], Predicate]] = {
    "is_null": _is_null,
    "is_valid": lambda column, _kind, _options: Not(arg=IsNull(column=column)),
    "is_nan": _is_nan,
    "is_in": _is_in,
    "starts_with": _starts_with,
}


# --- Spark's order of floats ----------------------------------------------------------------------

_LESS = {"less": "greater", "less_equal": "greater_equal"}
_OF_FLOATS = frozenset(
    f"{name}{suffix}"
    for name in ("add", "subtract", "multiply", "divide", "power", "negate", "abs", "sqrt")
    for suffix in ("", "_checked")
) | {"coalesce", "min_element_wise", "max_element_wise"}


def _ordered(node: _Node, schema: pa.Schema) -> _Node:
    """The tree, with each comparison of floats by Spark's order."""
    if not isinstance(node, _Call):
        return node
    if node.name in ("and_kleene", "or_kleene"):
        return _joined(node.name, [_ordered(term, schema) for term in _chain(node)])
    node = node._replace(args=[_ordered(arg, schema) for arg in node.args])
    if node.name not in _COMPARISONS or len(node.args) != 2:
        return node
    if node.name in _LESS:
        node = node._replace(name=_LESS[node.name], args=node.args[::-1])
    left, right = node.args
    nan, other_nan = _when_nan(left, schema), _when_nan(right, schema)
    if nan is None and other_nan is None:
        return node
    match node.name:
        case "equal" | "not_equal":
            if nan is None or other_nan is None:
                return node
            equal = node._replace(name="equal")
            same = _joined("or_kleene", [equal, _joined("and_kleene", [nan, other_nan])])
            return same if node.name == "equal" else _Call("invert", [same])
        case _ if nan is None:
            return node
        case "greater" if other_nan is not None:
            nan = _joined("and_kleene", [nan, _Call("invert", [other_nan])])
        case _ if not isinstance(right, _Literal):  # the comparison with null is null
            nan = _joined("and_kleene", [nan, _Call("is_valid", [right])])
    return _joined("or_kleene", [node, nan])


def _when_nan(node: _Node, schema: pa.Schema) -> _Node | None:
    """True where the value is NaN; None where it never is."""
    if isinstance(node, _Literal):
        value = node.scalar.as_py() if pa.types.is_floating(node.scalar.type) else None
        return _Call("is_nan", [node]) if value is not None and math.isnan(value) else None
    return _Call("is_nan", [node]) if _is_float(node, schema) else None


def _is_float(node: _Node, schema: pa.Schema) -> bool:
    match node:
        case _Column(path=path):
            kind = _type_at(path, schema)
        case _Literal(scalar=scalar):
            kind = scalar.type
        case _Call(name="cast", options=options):
            kind = options["to_type"].type
        case _Call(name=name, args=args):
            return name in _OF_FLOATS and any(_is_float(arg, schema) for arg in args)
    return kind is not None and bool(pa.types.is_floating(kind))


def _joined(name: str, terms: Sequence[_Node]) -> _Node:
    return functools.reduce(lambda left, right: _Call(name, [left, right]), terms)


# --- Literals -------------------------------------------------------------------------------------


def _fitting(scalar: pa.Scalar, kind: pa.DataType) -> Any:
    """The value that Arrow compares a column of this type with: a number keeps its type unless the
    column's holds it. _UnclearError if Arrow casts by rules of its own."""
    t, given = pa.types, scalar.type
    if not scalar.is_valid:
        return None
    if t.is_dictionary(given):
        return _fitting(pa.array([scalar.as_py()])[0], kind)
    if is_number(given) and is_number(kind):
        return _number(scalar, kind)
    if any(same(given) and same(kind) for same in (t.is_boolean, is_text, is_binary)):
        return scalar.as_py()
    if all(t.is_date32(each) or t.is_timestamp(each) for each in (given, kind)):
        return _moment(scalar, kind)
    if t.is_duration(given) and t.is_duration(kind):
        return timedelta(microseconds=scalar.cast(pa.duration("us")).value)
    raise _UnclearError(f"a literal of type {given} against a column of type {kind}")


def _number(scalar: pa.Scalar, kind: pa.DataType) -> int | float | Decimal:
    t, value = pa.types, scalar.as_py()
    value = float(value) if t.is_float16(scalar.type) else value
    if t.is_floating(kind) and not isinstance(value, float):
        # Arrow's own cast: it refuses an integer without an exact float, and rounds decimals as
        # Arrow does.
        return float(scalar.cast(pa.float64() if t.is_decimal(scalar.type) else kind).as_py())
    is_whole = t.is_integer(kind) and math.isfinite(value) and value == int(value)
    if is_whole and isinstance(value, float) and abs(value) >= 2**53:
        raise _UnclearError("a float literal so large that it is equal to several integers")
    return int(value) if is_whole else value


def _member(scalar: pa.Scalar, kind: pa.DataType) -> Any:
    """Like `_fitting`, for a member of a value set, which Arrow rounds; None: no row equals it."""
    value = _fitting(scalar, kind)
    if isinstance(value, float) and pa.types.is_floating(kind):
        return float(pa.scalar(value, pa.float64()).cast(kind, safe=False).as_py())
    if pa.types.is_integer(kind):
        return value if isinstance(value, int) else None
    if pa.types.is_decimal(kind) and not isinstance(value, Decimal):
        raise _UnclearError(f"a literal of type {scalar.type} in a set for a column of type {kind}")
    return value


def _moment(scalar: pa.Scalar, kind: pa.DataType) -> date | datetime:
    """A day or a time as one of the column's, where both are of one zone and it stays the same."""
    t, zone = pa.types, getattr(kind, "tz", None)
    is_one = t.is_date32(scalar.type) or (scalar.type.tz is None) == (zone is None)
    made = scalar.cast(kind if t.is_date32(kind) else pa.timestamp("us", zone))
    if not is_one or made.cast(scalar.type) != scalar:
        raise _UnclearError(f"a literal of type {scalar.type} against a column of type {kind}")
    if t.is_date32(kind):
        day: date = made.as_py()
        return day
    moment = datetime(1970, 1, 1) + timedelta(microseconds=made.value)
    return moment if zone is None else moment.replace(tzinfo=UTC)

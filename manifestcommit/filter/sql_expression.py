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
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..format.evolution import find_column
from ..format.fields import (
    DAY_US,
    EXACT,
    FLOATS,
    INTEGERS,
    MAX_PRECISION,
    MOMENTS,
    Field,
    Schema,
    StructType,
    decimal_parts,
    has_own_order,
    is_number,
    type_text,
)
from ..format.values import arrow_schema, arrow_type
from .arrow_expression import parse_expression
from .predicate import And, ColumnPath, Or, Predicate, Unknown
from .sql_syntax import (
    IncompleteError,
    NotUnderstoodError,
    conjuncts,
    number,
    only_spark,
    parse,
    terms,
    too_deep,
    with_operators,
    written,
)

# names -> the columns that it means and their field; UsageError if there is none
Resolve: TypeAlias = Callable[[tuple[str, ...]], tuple[ColumnPath, Field]]

_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 20}  # digits of the decimal for each
_COMPARED = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_GAPS = ("interval of days", "interval of hours")
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
_CALCULATED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-](0\d|1[0-7]):[0-5]\d)?)?", re.ASCII
)
_TIMES = {"date": 0, "timestamp_ntz": 1, "timestamp": 2}  # the later is what Spark makes of two
_CLOCK = ("current_date", "current_timestamp", "now")
# Characters whose case Spark changes otherwise than Arrow, or that newer versions of Unicode have.
_NEW = (
    "\u1c80-\u1c8f\ua7c0-\ua7ff\uab30-\uab6f\U00010d40-\U00010d8f"
    "\U00016e80-\U00016eff\U0001df00-\U0001dfff"
)
_ODD_CASE = {
    "lower": f"[\u0130\u03a3{_NEW}]",
    "upper": "[\u00df\u0149\u019b\u01f0\u0264\u0277\u027c\u0390\u03b0\u0587\u1e96-\u1e9a"
    f"\u1f50-\u1fff\ufb00-\ufb17{_NEW}]",
}
_DOUBTFUL = {"lower", "lcase", "upper", "ucase", "ilike", "to_date"}  # fail for some texts
_UNITS = {"day": 86_400, "week": 7 * 86_400, "hour": 3_600, "minute": 60, "second": 1}
_FAR = 10_000_000  # days from 1970 on either side: about 27,000 years, which Arrow's calendar knows
_MANY = 32  # members of a list; more are looked up together
_SIGNS = {
    "EQ": "=",
    "NEQ": "!=",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "NullSafeEQ": "<=>",
}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
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
    one, with this value; is_utc: where the session's time zone is UTC."""

    expression: pc.Expression
    type: Any
    is_literal: bool = False
    value: Any = None
    is_utc: bool = False


class Session(NamedTuple):
    """What an expression takes from where it is evaluated. is_utc: the session's time zone is UTC;
    now: the time, None where the result must not depend on it; has_spark: what this process would
    refuse for some rows is left to Spark."""

    is_utc: bool = False
    now: datetime | None = None
    has_spark: bool = False


_ANYWHERE = Session()


def compile_condition(text: str, schema: Schema, session: Session = _ANYWHERE) -> pc.Expression:
    """A condition as a pyarrow expression, true for exactly the rows for which Spark's is.
    NotUnderstoodError where only Spark can tell; IncompleteError for what is no condition, in Spark
    either; UsageError for a column that does not exist. [RC2]"""
    return truth_of(compile_value(text, columns_of(schema), session))


def truth_of(found: Typed, error: type[UsageError] = IncompleteError) -> pc.Expression:
    """A value as a condition; the error where it is neither true nor false."""
    if found.type not in ("boolean", "void"):
        raise error(f"{type_text(found.type)} values are neither true nor false")
    return found.expression if found.type == "boolean" else _null("boolean")


def compile_value(text: str, resolve: Resolve, session: Session = _ANYWHERE) -> Typed:
    """An expression and its type. [RC2]"""
    try:
        found = _Compiler(resolve, session).typed(parse(text))
    except RecursionError:
        raise too_deep() from None
    if found.type in _GAPS:
        raise only_spark("an interval alone")
    return found


def pruning(text: str, schema: Schema, session: Session) -> Predicate:
    """What planning takes from a condition; `Unknown` for terms of Spark's alone. [RD6]"""
    compiler = _Compiler(columns_of(schema), session)
    columns = arrow_schema(schema, physical=False, ids=False)

    def of(node: Any) -> Predicate:
        node = node.unnest()
        if type(node).__name__ in ("And", "Or"):
            args = tuple(of(each) for each in terms(node))
            return And(args=args) if type(node).__name__ == "And" else Or(args=args)
        try:
            return parse_expression(compiler.boolean(node), columns, "the condition")
        except UsageError as error:
            return Unknown(why=str(error))

    try:
        return of(with_operators(parse(text)))
    except UsageError as error:
        some = conjuncts(text)
        if len(some) == 1:
            return Unknown(why=str(error))
        return And(args=tuple(pruning(each, schema, session) for each in some))
    except RecursionError:
        return Unknown(why="parts nested so deeply")


def columns_of(schema: Schema, of: str = "The table") -> Resolve:
    """The columns of a table and the members of its structs, by their names."""

    def resolve(names: tuple[str, ...]) -> tuple[ColumnPath, Field]:
        field = find_column(schema, names[0], of, in_sql=len(names) == 1)
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

    def __init__(self, resolve: Resolve, session: Session) -> None:
        self._resolve, self._session = resolve, session

    def typed(self, node: Any) -> Typed:
        form = _FORMS.get(type(node).__name__)
        if form is None:
            raise only_spark(written(node))
        return form(self, node)._replace(is_utc=self._session.is_utc)

    def _comparison(self, node: Any) -> Typed:
        return _compare(_SIGNS[type(node).__name__], *self._both(node))

    def _arithmetic(self, node: Any) -> Typed:
        return _calculate(_ARITHMETIC[type(node).__name__], *self._both(node))

    def _literal(self, node: Any) -> Typed:
        return _of(node.this, "string") if node.is_string else _of(*number(node.this))

    def _negative(self, node: Any) -> Typed:
        inner = node.this
        if type(inner).__name__ == "Literal" and not inner.is_string:
            return _of(*number(inner.this, -1))
        return self._call("negative", [self.typed(inner)])

    def _terms(self, node: Any) -> Typed:
        join = pc.and_kleene if type(node).__name__ == "And" else pc.or_kleene
        return Typed(balanced([self.boolean(each) for each in terms(node)], join), "boolean")

    def _between(self, node: Any) -> Typed:
        subject, low, high = (self.typed(node.args[key]) for key in ("this", "low", "high"))
        tests = (_compare(">=", subject, low), _compare("<=", subject, high))
        return Typed(pc.and_kleene(*(each.expression for each in tests)), "boolean")

    def _like(self, node: Any) -> Typed:
        found = self._call(type(node).__name__.lower(), [*self._both(node)])
        return _not(found) if node.args.get("negate") else found

    def _cast(self, node: Any) -> Typed:
        kind = _type_of(node.to)
        part = self.typed(node.this)
        return self._call("to_date", [part]) if kind == "date" else _cast(part, kind)

    def _typed_literal(self, node: Any) -> Typed:
        """DATE '…' and its like: what has no zone of its own is a time in the session's zone."""
        found = None
        if getattr(node.this, "is_string", False):
            found = _literal_as(self.typed(node.this), _type_of(node.to))
        if found is None:
            raise only_spark(written(node))
        return found

    def _function(self, node: Any) -> Typed:
        name = node.name.lower()
        if name == "if" and len(node.expressions) == 3:
            return self._case([node.expressions[:2]], node.expressions[2])
        return self._call(name, self._all(node.expressions))

    def _call(self, name: str, args: list[Typed]) -> Typed:
        if name in _CLOCK and not args:
            return _time(name, self._session)
        if self._session.has_spark and name in _DOUBTFUL and args[:1] and args[0].type == "string":
            raise only_spark(f"{name} of some texts")
        if name not in _FUNCTIONS:
            raise only_spark(f"the function {name}")
        found = _FUNCTIONS[name](args)
        if found is None:
            kinds = ", ".join(type_text(each.type) for each in args)
            raise only_spark(f"{name}({kinds})")
        return found

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
        raise only_spark(f"IS {written(wanted)}")

    def boolean(self, node: Any) -> pc.Expression:
        return truth_of(self.typed(node), NotUnderstoodError)

    def _column(self, node: Any) -> Typed:
        names = tuple(part.name for part in node.parts)
        try:
            path, field = self._resolve(names)
        except UsageError:
            if len(names) == 1 and names[0].lower() in _CLOCK[:2] and not node.this.quoted:
                return _time(names[0].lower(), self._session)
            raise
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
        if subject is None and any(type(when.unnest()).__name__ == "Null" for when, _ in pairs):
            raise only_spark("WHEN NULL")
        conditions = [
            self.boolean(when)
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
        found = [_literal_as(each, subject.type) or each for each in known]
        values = _members(subject, found) if len(known) > _MANY else None
        if values is None:
            subject, members = _alike_in_list(subject, members, found)
            tests = [_compare("=", subject, each).expression for each in members]
            return Typed(balanced(tests, pc.or_kleene), "boolean")
        kind = arrow_type(subject.type)
        among = pc.is_in(subject.expression, pa.array(values, kind))
        # false, but null where the column is: is_in is never null
        first = pc.scalar(pa.scalar(values[0], kind))
        column = subject.expression
        among = among | ((column == first) & (column != first))
        among = among | _null("boolean") if len(known) < len(members) else among
        return Typed(among, "boolean")


# A class of sqlglot's trees -> what makes pyarrow's of it.
_FORMS: dict[str, Callable[[_Compiler, Any], Typed]] = {
    **dict.fromkeys(_SIGNS, _Compiler._comparison),
    **dict.fromkeys(_ARITHMETIC, _Compiler._arithmetic),
    "Paren": lambda compiler, node: compiler.typed(node.this),
    "Literal": _Compiler._literal,
    "Boolean": lambda _, node: _of(node.this, "boolean"),
    "Null": lambda *_: literal(None),
    "Column": _Compiler._column,
    "Dot": _Compiler._column,
    "And": _Compiler._terms,
    "Or": _Compiler._terms,
    "Not": lambda compiler, node: Typed(pc.invert(compiler.boolean(node.this)), "boolean"),
    "Is": _Compiler._is,
    "In": _Compiler._in,
    "Between": _Compiler._between,
    "Like": _Compiler._like,
    "ILike": _Compiler._like,
    "Interval": lambda _, node: _interval(node),
    "NullSafeNEQ": lambda compiler, node: _not(_compare("<=>", *compiler._both(node))),
    "DPipe": lambda compiler, node: compiler._call("concat", [*compiler._both(node)]),
    "Neg": _Compiler._negative,
    "Case": _Compiler._case_of,
    "TryCast": _Compiler._cast,
    "Cast": _Compiler._typed_literal,
    "Anonymous": _Compiler._function,
}


# --- Functions ------------------------------------------------------------------------------------


def _refused(value: pc.Expression, is_odd: pc.Expression, what: str) -> pc.Expression:
    """The value, whose evaluation fails where a row is odd: Arrow has no other way to fail."""
    odd = pc.coalesce(is_odd, pc.scalar(False))
    why = pc.if_else(odd, f"{what} is not done without Spark", "0")
    return pc.if_else(why.cast(pa.int8()) == pc.scalar(pa.scalar(0, pa.int8())), value, value)


def _zone(what: str) -> NotUnderstoodError:
    return NotUnderstoodError(
        f"{what} depends on the session's time zone, which is known here only where it is UTC: "
        "write times with a zone, as in TIMESTAMP '2013-01-01 00:00:00Z', or set the zone to UTC"
    )


def _time(name: str, session: Session) -> Typed:
    if session.now is None:
        raise NotUnderstoodError(
            f"{name} is the time of the evaluation, which may be evaluated again: give the time"
        )
    if name != "current_date":
        return _of(session.now, "timestamp")
    if not session.is_utc:
        raise _zone(name)
    return _of(session.now.astimezone(UTC).date(), "date")


def _interval(node: Any) -> Typed:
    """INTERVAL 1 DAY, with weeks, hours, minutes and seconds: days keep a date a date."""
    unit = node.args["unit"].name.lower().removesuffix("s") if node.args.get("unit") else ""
    if unit not in _UNITS or not re.fullmatch(r"[+-]?\d{1,9}", node.this.name, re.ASCII):
        raise only_spark(written(node))
    seconds = _UNITS[unit] * int(node.this.name)
    if abs(seconds) > 9 * 10**12:
        raise NotUnderstoodError(f"{written(node)} is longer than any interval")
    gap = timedelta(seconds=seconds)
    kind = _GAPS[unit in ("hour", "minute", "second")]
    return Typed(pc.scalar(pa.scalar(gap, pa.duration("us"))), kind, True, gap)


def _moved(part: Typed, gap: timedelta, kind: str) -> Typed:
    """A day or a time, later by this."""
    if part.type == "date" and kind == _GAPS[0]:
        days = pc.scalar(pa.scalar(gap.days, pa.int32()))
        moved = pc.add_checked(part.expression.cast(pa.int32()), days)
        return Typed(moved.cast(pa.date32()), "date")
    if part.type != "timestamp_ntz" and not part.is_utc and abs(gap) >= timedelta(days=1):
        raise _zone(f"a {part.type} and an interval of days")
    made = "timestamp" if part.type == "date" else part.type
    length = pc.scalar(pa.scalar(gap, pa.duration("us")))
    return Typed(pc.add_checked(to_type(part, made), length), made)


def _remainder(left: Typed, right: Typed, kind: str) -> Typed:
    """% of whole numbers has the sign of the left one; by -1 it is 0, where Arrow overflows."""
    if kind not in _INTEGERS:
        raise only_spark(f"{kind} % …")
    a, b, held = to_type(left, kind), to_type(right, kind), arrow_type(kind)
    one, minus = (pc.scalar(pa.scalar(value, held)) for value in (1, -1))
    b = pc.if_else(b == minus, one, b)
    return Typed(pc.subtract(a, pc.multiply(pc.divide_checked(a, b), b)), kind)


_Call: TypeAlias = Callable[[list[Typed]], Typed | None]


def _one(accepts: Callable[[Any], bool], function: Callable[[Typed], Typed | None]) -> _Call:
    """A function of one argument, of the types that it accepts."""

    def call(args: list[Typed]) -> Typed | None:
        return function(args[0]) if len(args) == 1 and accepts(args[0].type) else None

    return call


def _number_call(function: Callable[[Any], Any]) -> _Call:
    return _one(is_number, lambda arg: Typed(function(arg.expression), arg.type))


def _whole_number(function: Callable[[Any], Any]) -> _Call:
    """floor and ceil."""

    def call(arg: Typed) -> Typed:
        if arg.type in _INTEGERS:
            return Typed(to_type(arg, "long"), "long")
        if arg.type in FLOATS:
            found = function(to_type(arg, "double"))
            found = pc.if_else(pc.is_nan(found), pc.scalar(0.0), found)
            return Typed(found.cast(pa.int64()), "long")
        digits, scale = _parts(arg.type)
        wide = arg.expression.cast(pa.decimal256(76, scale))
        kind = f"decimal({digits - scale + (scale > 0)},0)"
        return Typed(function(wide).cast(arrow_type(kind)), kind)

    return _one(is_number, call)


def _round(args: list[Typed]) -> Typed | None:
    """Half up, away from zero. A float with digits after the point is rounded by its shortest
    decimal text, which differs between versions of Java."""
    arg, *others = args or [literal(None)]
    to = others[0].value if others else 0
    if len(others) > 1 or not is_number(arg.type) or type(to) is not int or to < 0:
        return None
    if arg.type in _INTEGERS:
        return Typed(arg.expression, arg.type)
    if arg.type in FLOATS:
        if to:
            return None
        rounded = pc.round(arg.expression, 0, round_mode="half_towards_infinity")
        return Typed(pc.add(rounded, pc.scalar(pa.scalar(0.0, arrow_type(arg.type)))), arg.type)
    digits, scale = _parts(arg.type)
    left = min(to, scale)
    kind = f"decimal({digits - scale + 1 + left},{left})"
    if digits - scale + 1 + left > MAX_PRECISION:
        return None
    wide = arg.expression.cast(pa.decimal256(76, scale))
    rounded = pc.round(wide, left, round_mode="half_towards_infinity")
    return Typed(rounded.cast(arrow_type(kind)), kind)


def _isnan(arg: Typed) -> Typed:
    return Typed(pc.and_kleene(arg.expression.is_valid(), pc.is_nan(arg.expression)), "boolean")


def _coalesce(args: list[Typed]) -> Typed | None:
    if len(args) < 2:
        return None
    values = _alike(args)
    return Typed(pc.coalesce(*(each.expression for each in values)), values[0].type)


def _nullif(args: list[Typed]) -> Typed | None:
    if len(args) != 2:
        return None
    left, right = args
    equal = pc.make_struct(_compare("=", left, right).expression, field_names=["0"])
    return Typed(pc.case_when(equal, _null(left.type), left.expression), left.type)


def _part_of_time(name: str) -> _Call:
    """year … second: of a time with a zone, in the session's."""

    def call(arg: Typed) -> Typed | None:
        if arg.type == "date" and name in ("hour", "minute", "second"):
            return None
        if arg.type == "timestamp" and not arg.is_utc:
            raise _zone(f"{name}({arg.type})")
        found = getattr(pc, name)(arg.expression).cast(pa.int32())
        return Typed(_near(arg, found, name), "integer")

    return _one(_TIMES.__contains__, call)


def _near(arg: Typed, value: pc.Expression, what: str) -> pc.Expression:
    """The value, where Arrow's calendar knows the year."""
    far = _FAR if arg.type == "date" else _FAR * DAY_US
    held, number = arrow_type(arg.type), pa.int32() if arg.type == "date" else pa.int64()
    low, high = (pc.scalar(pa.scalar(each, number).cast(held)) for each in (-far, far))
    odd = pc.or_kleene(arg.expression < low, arg.expression > high)
    return _refused(value, odd, f"{what} of such a year")


def _date_trunc(args: list[Typed]) -> Typed | None:
    names = {"yyyy": "year", "yy": "year", "mm": "month", "mon": "month", "dd": "day"}
    units = {"year", "quarter", "month", "week", "day", "hour", "minute", "second"}
    units |= {"millisecond", "microsecond"}
    if len(args) != 2 or not isinstance(args[0].value, str) or args[1].type not in _TIMES:
        return None
    unit, time = args[0].value.lower(), args[1]
    unit = names.get(unit, unit)
    if unit not in units:
        return None
    if not time.is_utc:
        raise _zone("date_trunc")
    time = time._replace(expression=to_type(time, "timestamp"), type="timestamp")
    found = pc.floor_temporal(time.expression, unit=unit)
    return Typed(_near(time, found, "date_trunc"), time.type)


def _to_date(arg: Typed) -> Typed | None:
    """A text as yyyy-mm-dd: of any other the evaluation fails."""
    if arg.type == "timestamp" and not arg.is_utc:
        raise _zone("a timestamp as a date")
    if arg.is_literal and arg.type == "string":
        return _literal_as(arg, "date")
    return Typed(arg.expression.cast(pa.date32(), safe=arg.type == "string"), "date")


def _texts(*kinds: type, needed: int | None = None) -> Callable[[Any], _Call]:
    """A function of a text and literals of these types, of which so many are needed, or all."""
    least = len(kinds) if needed is None else needed

    def made(function: Any) -> _Call:
        def call(args: list[Typed]) -> Typed | None:
            given = [type(arg.value) for arg in args[1:]]
            is_right = len(given) >= least and tuple(given) == kinds[: len(given)]
            if not args or args[0].type != "string" or not is_right:
                return None
            found = function(args[0].expression, *(arg.value for arg in args[1:]))
            return found if isinstance(found, Typed | None) else Typed(found, "string")

        return call

    return made


def _boolean(function: Callable[..., Any]) -> Callable[..., Typed]:
    return lambda *args: Typed(function(*args), "boolean")


def _cased(name: str, change: Callable[[Any], Any]) -> _Call:
    def call(text: pc.Expression) -> pc.Expression:
        odd = pc.match_substring_regex(text, _ODD_CASE[name])
        return _refused(change(text), odd, f"{name} of a letter such as ß or İ")

    return _texts()(call)


def _ilike(text: pc.Expression, pattern: str) -> Typed:
    if pc.match_substring_regex(pa.scalar(pattern), _ODD_CASE["lower"]).as_py():
        raise only_spark(f"ILIKE {pattern!r}")
    lower = _FUNCTIONS["lower"]([Typed(text, "string")])
    assert lower is not None
    return Typed(_like(lower.expression, pc.utf8_lower(pa.scalar(pattern)).as_py()), "boolean")


def _concat(args: list[Typed]) -> Typed | None:
    if not args or not all(each.type in ("string", "void", *_INTEGERS) for each in args):
        return None
    texts = (each.expression.cast(pa.string()) for each in args)
    return Typed(pc.binary_join_element_wise(*texts, ""), "string")


def _substring(text: pc.Expression, start: int, length: int | None = None) -> Any:
    """From a place, the first is 1, or so many before the end; as many characters, or all."""
    if not all(-(2**31) <= each < 2**31 for each in (start, length or 0)):
        return None
    first = start - 1 if start > 0 else start
    if length is None:
        return pc.utf8_slice_codeunits(text, first, None)
    if length <= 0:
        return pc.utf8_slice_codeunits(text, 0, 0)
    stop = first + length
    return pc.utf8_slice_codeunits(text, first, None if first < 0 <= stop else stop)


def _replace(text: pc.Expression, old: str, new: str = "") -> pc.Expression:
    return pc.replace_substring(text, old, new) if old else text


def _length(text: pc.Expression) -> Typed:
    return Typed(pc.utf8_length(text).cast(pa.int32()), "integer")


def _like(column: pc.Expression, pattern: str) -> pc.Expression:
    ends = [at for at in map(pattern.find, "%_\\") if at >= 0]
    if not ends:
        return column == pc.scalar(pattern)
    if not re.fullmatch(r"(?:[^\\]|\\[%_\\])*", pattern, re.DOTALL):
        raise only_spark(f"LIKE {pattern!r}")
    prefix = pattern[: min(ends)]
    if pattern == f"{prefix}%":
        return pc.starts_with(column, prefix)
    whole = pc.match_like(column, pattern)
    # the first part says the same again, in a form that skips files
    return pc.and_kleene(pc.starts_with(column, prefix), whole) if prefix else whole


# Spark's name of a function -> its result for these arguments, None where they are not understood.
_FUNCTIONS: dict[str, _Call] = {
    "negative": _number_call(pc.negate_checked),
    "abs": _number_call(pc.abs_checked),
    "round": _round,
    "floor": _whole_number(pc.floor),
    **dict.fromkeys(("ceil", "ceiling"), _whole_number(pc.ceil)),
    "mod": lambda args: _calculate("%", *args) if len(args) == 2 else None,
    "isnan": _one(FLOATS.__contains__, _isnan),
    "isnull": _one(lambda _: True, lambda arg: Typed(arg.expression.is_null(), "boolean")),
    "isnotnull": _one(lambda _: True, lambda arg: Typed(arg.expression.is_valid(), "boolean")),
    "coalesce": _coalesce,
    **dict.fromkeys(("ifnull", "nvl"), lambda args: _coalesce(args) if len(args) == 2 else None),
    "nullif": _nullif,
    **{name: _part_of_time(name) for name in ("year", "quarter", "month", "day")},
    **{name: _part_of_time(name) for name in ("hour", "minute", "second")},
    "dayofmonth": _part_of_time("day"),
    "date_trunc": _date_trunc,
    "to_date": _one({*_TIMES, "string"}.__contains__, _to_date),
    **dict.fromkeys(("lower", "lcase"), _cased("lower", pc.utf8_lower)),
    **dict.fromkeys(("upper", "ucase"), _cased("upper", pc.utf8_upper)),
    "trim": _texts()(lambda text: pc.utf8_trim(text, " ")),
    "ltrim": _texts()(lambda text: pc.utf8_ltrim(text, " ")),
    "rtrim": _texts()(lambda text: pc.utf8_rtrim(text, " ")),
    **dict.fromkeys(("length", "char_length", "character_length", "len"), _texts()(_length)),
    **dict.fromkeys(("substring", "substr"), _texts(int, int, needed=1)(_substring)),
    "replace": _texts(str, str, needed=1)(_replace),
    "concat": _concat,
    "like": _texts(str)(_boolean(_like)),
    "ilike": _texts(str)(_ilike),
    "startswith": _texts(str)(_boolean(pc.starts_with)),
    "endswith": _texts(str)(_boolean(pc.ends_with)),
    "contains": _texts(str)(_boolean(pc.match_substring)),
}


# --- Types ----------------------------------------------------------------------------------------


def _parts(kind: str) -> tuple[int, int]:
    return (_INTEGERS[kind], 0) if kind in _INTEGERS else decimal_parts(kind) or (0, 0)


def _common(one: Any, other: Any, is_utc: bool = False) -> str:
    """The type to which Spark casts two types, by ANSI rules."""
    if one == other and isinstance(one, str):
        return one
    if one in _TIMES and other in _TIMES:
        kind = max(one, other, key=lambda each: _TIMES[each])
        if kind == "timestamp" and not is_utc:
            raise _zone(f"a {one} beside a {other}")
        return str(kind)
    if not (is_number(one) and is_number(other)):
        raise NotUnderstoodError(
            f"a {type_text(one)} beside a {type_text(other)} is not understood without Spark "
            "(CAST(… AS …) makes them one type)"
        )
    if one in FLOATS or other in FLOATS:
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
    """The part as this type; the evaluation fails where a value does not fit. [RC2]"""
    if part.type == kind:
        return part.expression
    if part.type == "void":
        return _null(kind)
    if not (is_number(part.type) and is_number(kind)):
        given = _literal_as(part, kind)
        if given is None and _TIMES.get(part.type, 9) < _TIMES.get(kind, 0):
            _common(part.type, kind, part.is_utc)
            return part.expression.cast(arrow_type(kind))
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
    made = number.cast(wanted, safe=False)  # a long may have no exact double
    # Arrow would cast the bounds in a file's statistics, too, and fail where one has no exact float
    return made if pa.types.is_floating(given) else pc.coalesce(made)


def _alike(parts: Sequence[Typed]) -> list[Typed]:
    """All parts as their common type."""
    kinds = [each.type for each in parts if each.type != "void"]
    if not kinds:
        raise NotUnderstoodError("a value without a type")
    if any(kind in _GAPS for kind in kinds):
        raise only_spark("a choice of intervals")
    is_utc = any(each.is_utc for each in parts)
    kind = reduce(lambda one, other: one if one == other else _common(one, other, is_utc), kinds)
    return [Typed(to_type(each, kind), kind) for each in parts]


def _type_of(node: Any) -> str:
    """Spark's type of a type in the tree."""
    name, numbers = node.this.name, [int(each.name) for each in node.expressions]
    if name == "DECIMAL" and len(numbers) < 3:
        precision, scale = [*numbers, *[10, 0][len(numbers) :]]
        if 0 < precision <= MAX_PRECISION and scale <= precision:
            return f"decimal({precision},{scale})"
    if name not in _TYPES or numbers:
        raise only_spark(f"the type {written(node)}")
    return _TYPES[name]


def _not(found: Typed) -> Typed:
    return Typed(pc.invert(found.expression), "boolean")


def _cast(part: Typed, kind: str) -> Typed:
    if kind == "string" and part.type in _INTEGERS:
        return Typed(part.expression.cast(pa.string()), "string")
    widens = is_number(part.type) and is_number(kind) and part.type not in FLOATS
    if part.type == "void" or widens or (part.type == "float" and kind == "double"):
        return Typed(to_type(part, kind), kind)
    raise only_spark(f"a cast from {type_text(part.type)} to {kind}")


# --- Comparisons and arithmetic -------------------------------------------------------------------


def _literal_as(part: Typed, kind: Any) -> Typed | None:
    """A literal as Spark casts it to a column's type, where only one value can be meant."""
    value = part.value
    if not (part.is_literal and isinstance(kind, str)):
        return None
    try:
        if kind in MOMENTS:
            return _moment(value, kind, part.is_utc)
        if kind == "date" and isinstance(value, str) and _DAY.fullmatch(value):
            return _of(date.fromisoformat(value), kind)
    except ValueError as error:
        if isinstance(error, NotUnderstoodError):
            raise
        return None
    is_whole = isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII)
    return literal(int(value)) if is_whole and kind in _INTEGERS else None


def _moment(value: Any, kind: str, is_utc: bool) -> Typed | None:
    """A text, a day or a time as a time of this type."""
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        value = datetime.fromisoformat(value)
        if value.tzinfo is not None and kind == "timestamp_ntz":
            return None
    if not isinstance(value, date):
        return None
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if kind == "timestamp" and value.tzinfo is None:
        if not is_utc:
            raise _zone(f"{str(value)!r}")
        value = value.replace(tzinfo=UTC)
    return _of(value, kind) if (value.tzinfo is None) == (kind == "timestamp_ntz") else None


def _alike_in_list(
    subject: Typed, members: list[Typed], known: Sequence[Typed]
) -> tuple[Typed, list[Typed]]:
    """A list of several types and its subject: Spark compares all as one type, which differs from
    pairs where that is a float and the subject is not. NotUnderstoodError where there is none."""
    kinds = {each.type for each in known if isinstance(each.type, str)}
    if len(kinds) > 1:
        kind = reduce(partial(_common, is_utc=subject.is_utc), [subject.type, *kinds])
        if kind in FLOATS and subject.type not in FLOATS:
            first, *rest = _alike([subject, *members])
            return first, rest
    return subject, members


def _members(subject: Typed, found: Sequence[Typed]) -> list[Any] | None:
    """A long list's members as values of the column; None: they are not compared that way."""
    if not all(each.is_literal for each in found):
        return None
    if subject.type in _INTEGERS and all(each.type in _INTEGERS for each in found):
        bound = 2 ** (arrow_type(subject.type).bit_width - 1)
        return [each.value for each in found if -bound <= each.value < bound] or None
    is_same = subject.type not in FLOATS and all(each.type == subject.type for each in found)
    return [each.value for each in found] if is_same and _has_order(subject.type) else None


def _digits(part: Typed) -> tuple[int, int]:
    """The digits and the scale of a number as a decimal; a literal has as many as it shows."""
    if part.is_literal and part.type in _INTEGERS:
        return len(str(abs(part.value))), 0
    return _parts(part.type)


def _compare(sign: str, left: Typed, right: Typed) -> Typed:
    if left.is_literal and not right.is_literal:  # pruning expects the column first
        left, right, sign = right, left, _MIRRORED[sign]
    if left.type == "void" or right.type == "void":
        other = right if left.type == "void" else left
        is_null = other.expression.is_null() if sign == "<=>" else _null("boolean")
        return Typed(is_null, "boolean")
    a, b, kind = _comparable(left, right)
    if sign == "<=>":
        equal = _compared("=", a, b, kind, right)
        if right.is_literal:
            return Typed(a.is_valid() & equal, "boolean")
        both = pc.and_kleene(a.is_null(), b.is_null())
        same = pc.and_kleene(a.is_valid(), b.is_valid())
        return Typed(both | (same & equal), "boolean")
    return Typed(_compared(sign, a, b, kind, right), "boolean")


def _comparable(left: Typed, right: Typed) -> tuple[pc.Expression, pc.Expression, Any]:
    """Both sides as Arrow compares exactly. A column beside a literal stays, to skip files."""
    if right.is_literal and not left.is_literal:
        given = right if right.type == left.type else _literal_as(right, left.type) or right
        if is_number(left.type) and is_number(given.type):
            return _beside_number(left, given)
        right = given
    kind = _common(left.type, right.type, left.is_utc)
    if not _has_order(kind):
        raise NotUnderstoodError(f"{type_text(kind)}s are not compared without Spark")
    return to_type(left, kind), to_type(right, kind), kind


def _beside_number(left: Typed, right: Typed) -> tuple[pc.Expression, pc.Expression, Any]:
    value = right.value
    # nearer to zero than `most`, the column's values as doubles compare as they do themselves
    most = 2**53 if left.type == "long" else 2**63
    is_small = right.type == "double" and left.type in INTEGERS and abs(value) < most
    if is_small and value.is_integer():
        value = int(value)
        right = literal(value)
    if left.type in FLOATS or right.type in FLOATS:
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
    return kind in EXACT.difference(_INTEGERS) or (is_number(kind))


def _compared(
    sign: str, a: pc.Expression, b: pc.Expression, kind: Any, right: Typed
) -> pc.Expression:
    """The comparison; Spark's NaN equals itself and is above every other number."""
    if kind not in FLOATS:
        return _COMPARED[sign](a, b)
    if sign in ("!=", ">="):
        return pc.invert(_compared("=" if sign == "!=" else "<", a, b, kind, right))
    plain = _COMPARED[sign](a, b)
    if _is_plain(right):
        return pc.or_kleene(plain, pc.is_nan(a)) if sign == ">" else plain
    nan_a, nan_b = pc.is_nan(a), pc.is_nan(b)
    less, greater = pc.invert(nan_a) & nan_b, nan_a & pc.invert(nan_b)
    also = {"=": nan_a & nan_b, "<": less, ">": greater, "<=": nan_b}
    return pc.or_kleene(plain, also[sign])


def _is_plain(part: Typed) -> bool:
    """A literal other than NaN."""
    return part.is_literal and not math.isnan(part.value)


def _calculate(sign: str, left: Typed, right: Typed) -> Typed:
    if sign in "+-" and right.type in _GAPS and left.type in _TIMES:
        return _moved(left, right.value if sign == "+" else -right.value, right.type)
    if sign == "+" and left.type in _GAPS and right.type in _TIMES:
        return _moved(right, left.value, left.type)
    if left.type in _GAPS or right.type in _GAPS:
        raise only_spark(f"{left.type} {sign} {right.type}")
    void = next((each for each in (left, right) if each.type == "void"), None)
    if void is not None:
        other = right if void is left else left
        left = right = Typed(_null(other.type), other.type)
    kind = _common(left.type, right.type)
    if not is_number(kind):
        raise only_spark(f"{type_text(kind)} {sign} …")
    is_decimal = decimal_parts(kind) is not None
    if sign == "/":
        if is_decimal:
            raise only_spark("a division of decimals")
        a, b = to_type(left, "double"), to_type(right, "double")
        return Typed(pc.divide_checked(a, b), "double")
    if sign == "%":
        return _remainder(left, right, kind)
    if not is_decimal:
        made = _CALCULATED[sign](to_type(left, kind), to_type(right, kind))
        # Arrow reorders chains of + and of *, which rounds otherwise; less zero, it is no chain
        zero = pc.scalar(pa.scalar(0, arrow_type(kind)))
        return Typed(pc.subtract(made, zero) if sign in "+*" else made, kind)
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
        _of(Decimal(each.value), f"decimal({p},{s})").expression
        if each.is_literal
        else each.expression.cast(arrow_type(f"decimal({p},{s})"))
        for each, p, s in ((left, p1, s1), (right, p2, s2))
    )
    return Typed(_CALCULATED[sign](a, b), f"decimal({digits},{scale})")

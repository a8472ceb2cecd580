"""Predicates on rows, and file pruning by bounds: `may_match` decides which files a reader must
open. [RD6]

A predicate is true, false or null for a row. `may_match` asks, for many files at once, whether any
row can make it true, by Arrow's or by Spark's rules. They differ: in Arrow, comparisons with NaN
are false; in Spark, NaN equals NaN and is the greatest value; each casts a literal of another type
by rules of its own. A file is kept wherever either engine could return true. Pure.

There is no third vector for null: And, Or and Not turn a null into something else only if every
value in its place would do the same, so a null never makes a whole true that neither true nor false
in its place makes true. Operators that test for null take a column, never a predicate.

`partitions_of` has the partitions that a change reads which selects rows by one [CF16].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from functools import partial, reduce
from itertools import accumulate
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..format.entries import ColumnStats, Entry
from ..format.evolution import find_column
from ..format.fields import (
    INTEGERS,
    MAX_FIELD_ID,
    WIDE,
    Field,
    FieldType,
    Schema,
    WireValue,
    has_own_order,
    is_exact,
    is_ordered,
    type_text,
)
from ..format.partitioning import PartitionPattern, dedupe
from ..format.transforms import partition_fields
from ..format.values import after_prefix, arrow_type, decode, from_array

ColumnPath: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Op: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_Number: TypeAlias = int | float | Decimal
_LONG_DIGITS = 20  # digits of the decimal that an engine makes of a long
# the least and the greatest value; None: unknown; False: no value at all
_Ends = tuple[Any, Any] | None | bool


class And(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All arguments are true (Kleene logic). No arguments: true."""

    args: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Any argument is true (Kleene logic). No arguments: false."""

    args: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The negation; null stays null."""

    arg: Predicate


class Compare(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Compares the column with a value: null if either is. A bare boolean is `= True`."""

    op: Op
    column: ColumnPath
    value: Any


class IsIn(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The column equals one of the values, none None. A null is false in Arrow, null in Spark."""

    column: ColumnPath
    values: tuple[Any, ...]


class IsNull(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The column, or a struct around it, is null. NaN is not null."""

    column: ColumnPath


class IsNan(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The column is NaN. A null row gives null in Arrow, false in Spark."""

    column: ColumnPath


class StartsWith(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The string column starts with the prefix, compared by code points. A null row gives null."""

    column: ColumnPath
    prefix: str


class Constant(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """True, False or null (None) for every row."""

    value: bool | None


class Unknown(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A part not understood: true, false or null for any row. why: describes it, for messages."""

    why: str


_OfColumn: TypeAlias = Compare | IsIn | IsNull | IsNan | StartsWith
Predicate: TypeAlias = And | Or | Not | _OfColumn | Constant | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBounds:
    """The statistics of one column in N files. Every array has N values, and a null means unknown.
    min, max: typed like the column, around every value that is neither null nor NaN. nulls: rows in
    which the column, or a struct around it, is null. nans: rows with NaN; None: it has none."""

    min: pa.Array
    max: pa.Array
    nulls: pa.Array
    nans: pa.Array | None = None


class ColumnSource(Protocol):
    """The statistics of N files, by column, so that only the filter's are loaded."""

    @property
    def rows(self) -> pa.Array:
        """The number of rows in each file, int64; null: unknown."""
        ...

    def bounds(self, column: ColumnPath) -> ColumnBounds | None:
        """The column's bounds; None if unknown: no such leaf, an array or map, another order."""
        ...


def _leaves(predicate: Predicate) -> Iterator[Predicate]:
    """The predicates of which it is made by And, Or and Not."""
    match predicate:
        case And(args=args) | Or(args=args):
            for arg in args:
                yield from _leaves(arg)
        case Not(arg=arg):
            yield from _leaves(arg)
        case _:
            yield predicate


def columns_of(predicate: Predicate) -> frozenset[ColumnPath]:
    """Every column that the predicate names: the only ones that `may_match` asks for."""
    return frozenset(leaf.column for leaf in _leaves(predicate) if isinstance(leaf, _OfColumn))


def is_understood(predicate: Predicate) -> bool:
    """Whether no part of it is `Unknown`."""
    return not any(isinstance(leaf, Unknown) for leaf in _leaves(predicate))


def may_match(predicate: Predicate, source: ColumnSource) -> pa.BooleanArray:
    """Return a mask without nulls: true for every file that may hold a row for which the predicate
    is true, by Arrow's or Spark's rules. False is a proof. [RD6]"""
    rows = source.rows
    has_rows = _possible(pc.greater(rows, 0))
    return pc.and_(_outcomes(predicate, _Files(source, rows)).true, has_rows)


def _possible(fact: pa.BooleanArray) -> pa.BooleanArray:
    return pc.fill_null(fact, True)


class _Outcomes(NamedTuple):
    """For each file: whether some row may give true, and whether some row may give false."""

    true: pa.BooleanArray
    false: pa.BooleanArray


class _Facts(NamedTuple):
    """One column in every file, with every unknown replaced by "possible"."""

    type: pa.DataType
    lower: pa.Array
    upper: pa.Array
    has_null: pa.BooleanArray
    has_value: pa.BooleanArray
    has_nan: pa.BooleanArray
    # the file may have values, of any type, that are neither null nor NaN
    has_number: pa.BooleanArray


class _Files:
    """The source, with the facts of each column computed once."""

    def __init__(self, source: ColumnSource, rows: pa.Array) -> None:
        self._source = source
        self._known: dict[ColumnPath, _Facts | None] = {}
        self.rows = rows

    def all(self, value: bool) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(value), len(self.rows))

    def facts(self, column: ColumnPath) -> _Facts | None:
        if column not in self._known:
            bounds = self._source.bounds(column)
            self._known[column] = None if bounds is None else self._read(bounds)
        return self._known[column]

    def _read(self, bounds: ColumnBounds) -> _Facts:
        kind = bounds.min.type
        has_value = _possible(pc.less(bounds.nulls, self.rows))
        has_nan, has_number = self.all(False), has_value
        if pa.types.is_floating(kind) and bounds.nans is not None:
            has_nan = pc.and_(has_value, _possible(pc.greater(bounds.nans, 0)))
            not_numbers = pc.add(bounds.nulls, bounds.nans)
            has_number = pc.and_(has_value, _possible(pc.less(not_numbers, self.rows)))
        has_null = _possible(pc.greater(bounds.nulls, 0))
        lower, upper = (_comparable(each, _plain(kind)) for each in (bounds.min, bounds.max))
        return _Facts(kind, lower, upper, has_null, has_value, has_nan, has_number)


def _outcomes(node: Predicate, files: _Files) -> _Outcomes:
    match node:
        case And(args=args):
            parts = [_outcomes(arg, files) for arg in args]
            true = reduce(pc.and_, (part.true for part in parts), files.all(True))
            return _Outcomes(true, reduce(pc.or_, (part.false for part in parts), files.all(False)))
        case Or(args=args):
            parts = [_outcomes(arg, files) for arg in args]
            true = reduce(pc.or_, (part.true for part in parts), files.all(False))
            return _Outcomes(true, reduce(pc.and_, (part.false for part in parts), files.all(True)))
        case Not(arg=arg):
            inner = _outcomes(arg, files)
            return _Outcomes(inner.false, inner.true)
        case Constant(value=value):
            return _Outcomes(files.all(value is True), files.all(value is False))
    facts = None if isinstance(node, Unknown) else files.facts(node.column)
    if facts is None or isinstance(node, Unknown):
        return _Outcomes(files.all(True), files.all(True))
    return _leaf(node, facts, files)


def _leaf(node: _OfColumn, facts: _Facts, files: _Files) -> _Outcomes:
    match node:
        case IsNull():
            return _Outcomes(facts.has_null, facts.has_value)
        case IsNan():
            if pa.types.is_floating(facts.type):
                return _Outcomes(facts.has_nan, pc.or_(facts.has_number, facts.has_null))
            return _Outcomes(facts.has_value, files.all(True))  # Spark would cast first
        case StartsWith(prefix=prefix):
            return _starts_with(prefix, facts)
        case IsIn(values=values):
            return _is_in(values, facts, files)
        case Compare(value=None):
            return _Outcomes(files.all(False), files.all(False))
        case Compare(op=op, value=value):
            return _compare(op, value, facts)


def _compare(op: Op, value: Any, facts: _Facts) -> _Outcomes:
    span = _span(value, facts.type)
    if span is None:
        return _Outcomes(facts.has_value, facts.has_value)
    (low, high), lower, upper = span, facts.lower, facts.upper
    match op:
        case "=" | "!=":
            near = pc.and_kleene(pc.less_equal(lower, high), pc.greater_equal(upper, low))
            only = pc.and_kleene(pc.greater_equal(lower, low), pc.less_equal(upper, high))
            true = _possible(near)
            # no row differs where the bounds allow this one value only
            false = pc.invert(pc.fill_null(only, False)) if low == high else facts.has_number
        case "<" | ">=":
            true, false = _possible(pc.less(lower, high)), _possible(pc.greater_equal(upper, low))
        case "<=" | ">":
            true, false = _possible(pc.less_equal(lower, high)), _possible(pc.greater(upper, low))
    true, false = pc.and_(true, facts.has_number), pc.and_(false, facts.has_number)
    if op in ("!=", ">=", ">"):
        true, false = false, true
    # For a NaN row, `=`, `<`, `<=` are false and `!=` is true in both engines; `>`, `>=` are false
    # in Arrow and true in Spark.
    if op in ("!=", ">", ">="):
        true = pc.or_(true, facts.has_nan)
    if op != "!=":
        false = pc.or_(false, facts.has_nan)
    return _Outcomes(true, false)


def _is_in(values: Sequence[Any], facts: _Facts, files: _Files) -> _Outcomes:
    numbers = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
    ranges = _ranges(numbers, facts.type)
    # An engine first casts values of several types to one, and the cast may change a value's
    # meaning.
    if ranges is None or len({type(v) for v in values}) > 1 or not _one_decimal(values, facts.type):
        return _Outcomes(facts.has_value, files.all(True))
    true = pc.and_(_near_any(ranges, facts), facts.has_number)
    if len(numbers) < len(values):
        true = pc.or_(true, facts.has_nan)
    lower, upper = facts.lower, facts.upper
    exact = pa.array([low for low, high in ranges if low == high], lower.type)
    surely = pc.and_(pc.equal(lower, upper), pc.is_in(lower, exact))
    false = pc.or_(pc.or_(facts.has_null, facts.has_nan), pc.invert(pc.fill_null(surely, False)))
    return _Outcomes(true, false)


def _ranges(values: Sequence[Any], kind: pa.DataType) -> list[tuple[Any, Any]] | None:
    """The span of each value, as `_span` has it, in order; None if one is uncertain."""
    plain = _plain(kind)
    # in a list, Arrow tells 0.0 from -0.0: no file surely holds one
    zero = (-math.ulp(0.0), math.ulp(0.0)) if pa.types.is_floating(kind) else None
    ends = [zero if zero and value == 0 else ends_of(value, kind) for value in values]
    if plain is None or None in ends:
        return None
    try:
        lows, highs = (pa.array([each[at] for each in ends if each], plain) for at in (0, 1))
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return sorted(zip(lows.to_pylist(), highs.to_pylist(), strict=True))


def _near_any(ranges: Sequence[tuple[Any, Any]], facts: _Facts) -> pa.BooleanArray:
    """Files within whose bounds, as far as they are known, one of these values may be."""
    lows = pa.array([low for low, _ in ranges], facts.lower.type)
    highest = pa.array([None, *accumulate((high for _, high in ranges), max)], facts.lower.type)
    below = pc.if_else(facts.upper.is_null(), len(ranges), _count_up_to(lows, facts.upper))
    reached = _possible(pc.greater_equal(highest.take(below), facts.lower))
    return pc.and_(pc.greater(below, 0), reached)


def _count_up_to(ordered: pa.Array, values: pa.Array) -> pa.Array:
    """For each value, how many of these, which are in order, are not above it: by halves."""
    step = 1 << len(ordered).bit_length()
    padded = pa.concat_arrays([ordered, pa.nulls(step - len(ordered), ordered.type)])
    count = pa.repeat(pa.scalar(0, pa.int64()), len(values))
    while step := step // 2:
        is_above = pc.less_equal(padded.take(pc.add(count, step - 1)), values)
        count = pc.if_else(pc.fill_null(is_above, False), pc.add(count, step), count)
    return count


def _starts_with(prefix: str, facts: _Facts) -> _Outcomes:
    span = _span(prefix, facts.type)
    if span is None or not pa.types.is_string(facts.type):
        return _Outcomes(facts.has_value, facts.has_value)
    lower, upper = facts.lower, facts.upper
    true, inside = pc.greater_equal(upper, span[0]), pc.greater_equal(lower, span[0])
    end = after_prefix(prefix)
    if end is not None:
        true = pc.and_kleene(true, pc.less(lower, end))
        inside = pc.and_kleene(inside, pc.less(upper, end))
    false = pc.invert(pc.fill_null(inside, False))
    return _Outcomes(pc.and_(_possible(true), facts.has_value), pc.and_(false, facts.has_value))


def _plain(kind: pa.DataType) -> pa.DataType | None:
    """The type in which bounds of this type are compared; None: they are not compared at all."""
    t = pa.types
    if t.is_boolean(kind) or t.is_signed_integer(kind) or t.is_date32(kind):
        return pa.int64()
    if (t.is_timestamp(kind) or t.is_duration(kind)) and kind.unit == "us":
        return pa.int64()
    if t.is_floating(kind):
        return pa.float64()
    if t.is_decimal128(kind):
        return pa.decimal128(38, kind.scale)
    return kind if kind in (pa.string(), pa.binary()) else None


def _comparable(bounds: pa.Array, plain: pa.DataType | None) -> pa.Array:
    if plain is None:
        return bounds
    if pa.types.is_date32(bounds.type):
        bounds = bounds.cast(pa.int32())
    bounds = bounds.cast(plain)
    return pc.if_else(pc.is_nan(bounds), None, bounds) if pa.types.is_floating(plain) else bounds


def _span(value: Any, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """A range, in the plain type, that holds the literal under every engine's cast, or None."""
    plain = _plain(kind)
    ends = None if plain is None else ends_of(value, kind)
    if ends is None:
        return None
    try:
        return pa.scalar(ends[0], plain), pa.scalar(ends[1], plain)
    # out of the type's range, or a text that is not valid Unicode
    except (pa.ArrowException, ValueError, OverflowError):
        return None


def ends_of(value: Any, kind: pa.DataType) -> tuple[Any, Any] | None:
    t = pa.types
    if t.is_boolean(kind):
        return (int(value), int(value)) if isinstance(value, bool) else None
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if isinstance(value, Decimal):
            is_finite = value.is_finite()
        else:
            is_finite = isinstance(value, int) or math.isfinite(value)
        if not is_finite:
            is_end = t.is_floating(kind) and value in (math.inf, -math.inf)
            return (value, value) if is_end else None
        if t.is_integer(kind):
            return _integer_ends(value)
        if t.is_floating(kind):
            return (value, value) if isinstance(value, float) else None
        return _decimal_ends(value, kind) if t.is_decimal(kind) else None
    if t.is_date32(kind) or t.is_timestamp(kind):
        return _time_ends(value, kind)
    if t.is_duration(kind):
        return (value // _MICROSECOND,) * 2 if isinstance(value, timedelta) else None
    if t.is_binary(kind):
        return (bytes(value),) * 2 if isinstance(value, bytes | bytearray) else None
    return (value, value) if t.is_string(kind) and isinstance(value, str) else None


def _integer_ends(value: _Number) -> tuple[int, int] | None:
    # Both sides become doubles, or decimals of at most 38 digits. Larger values could be rounded on
    # either side.
    if isinstance(value, float) and abs(value) >= 2**53:
        return None
    if isinstance(value, Decimal) and not _fits(value, _LONG_DIGITS, 0):
        return None
    return math.floor(value), math.ceil(value)


def _decimal_ends(value: _Number, kind: pa.DataType) -> tuple[Decimal, Decimal] | None:
    low, high = (value, value) if isinstance(value, int | Decimal) else _around(value)
    whole = max(kind.precision - kind.scale, _LONG_DIGITS if isinstance(value, int) else 0)
    if not isinstance(value, float) and not _fits(Decimal(value), whole, kind.scale):
        return None
    step = Decimal(1).scaleb(-kind.scale)
    try:
        floor = Decimal(low).quantize(step, rounding=ROUND_FLOOR, context=WIDE)
        return floor, Decimal(high).quantize(step, rounding=ROUND_CEILING, context=WIDE)
    except InvalidOperation:
        return None


def _fits(value: Decimal, whole: int, scale: int) -> bool:
    """Whether an engine can bring the literal and such decimals to 38 digits unrounded."""
    digits, exponent = len(value.as_tuple().digits), int(value.as_tuple().exponent)
    return max(whole, digits + exponent) + max(scale, -exponent) <= 38


def _one_decimal(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether the list's decimals and the column's type fit one of 38 digits, as engines cast."""
    decimals = [v for v in values if isinstance(v, Decimal)]
    if not decimals or not all(v.is_finite() for v in decimals):
        return not decimals
    whole, scale = _LONG_DIGITS, 0
    if pa.types.is_decimal(kind):
        whole, scale = kind.precision - kind.scale, kind.scale
    whole = max(whole, *(v.adjusted() + 1 for v in decimals))
    scale = max(scale, *(-int(v.as_tuple().exponent) for v in decimals))
    return all(_fits(v, whole, scale) for v in decimals)


def _around(value: float) -> tuple[float, float]:
    """A range wide enough for the engines' different roundings between decimals and floats."""
    return value - abs(value) * 1e-6, value + abs(value) * 1e-6


def _time_ends(value: Any, kind: pa.DataType) -> tuple[int, int] | None:
    """Of a day for days, of a time with or without a zone for such times: between others engines
    cast in a session's time zone, or as text."""
    if pa.types.is_date32(kind):
        is_day = isinstance(value, date) and not isinstance(value, datetime)
        return (value.toordinal() - _EPOCH.toordinal(),) * 2 if is_day else None
    if not isinstance(value, datetime) or (value.tzinfo is None) != (kind.tz is None):
        return None
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return ((plain - _EPOCH) // _MICROSECOND,) * 2


# --- The partitions that a condition reads ---

# more alternatives than this are recorded as "the whole table", to keep work and record small
MAX_PATTERNS = 1_000
_EVERYTHING: tuple[PartitionPattern, ...] = ({},)


def partitions_of(
    predicate: Predicate, schema: Schema, partition_by: Sequence[int]
) -> tuple[PartitionPattern, ...]:
    """Patterns that cover every partition in which a row can make the predicate true: by equality,
    membership and null tests of partition columns, and of transforms where `filter.transforms`
    added these; `{}`, the whole table, if these say nothing. [CF16]"""
    columns = {
        virtual_name(field.id) if field.id > MAX_FIELD_ID else field.name: field
        for field in partition_fields(schema, partition_by)
    }
    return _patterns(predicate, columns)


def virtual_name(transform_id: int) -> str:
    """The name of a transform as a column of predicates, which no column of a table can have."""
    return f"\0{transform_id}"


def virtual_fields(schema: Schema, partition_by: Sequence[int]) -> dict[ColumnPath, Field]:
    """The transforms that partition the table, as columns of predicates."""
    fields = partition_fields(schema, [id for id in partition_by if id > MAX_FIELD_ID])
    return {(virtual_name(field.id),): field for field in fields}


def _patterns(node: Predicate, columns: dict[str, Field]) -> tuple[PartitionPattern, ...]:
    match node:
        case Constant(value=value):
            return _EVERYTHING if value else ()
        case And(args=args):
            whole = _EVERYTHING
            for arg in args:
                whole = _both(whole, _patterns(arg, columns))
            return whole
        case Or(args=args):
            patterns = dedupe(touch for arg in args for touch in _patterns(arg, columns))
            return _EVERYTHING if {} in patterns or len(patterns) > MAX_PATTERNS else patterns
        case Compare(op="=", column=(name,), value=value) if name in columns:
            return _equal(columns[name], (value,))
        case IsIn(column=(name,), values=values) if name in columns and len(values) <= MAX_PATTERNS:
            return _equal(columns[name], values)
        case IsNull(column=(name,)) if name in columns:
            return ({columns[name].id: None},)
        case _:
            return _EVERYTHING


def _both(
    one: tuple[PartitionPattern, ...], other: tuple[PartitionPattern, ...]
) -> tuple[PartitionPattern, ...]:
    """The intersection; of too many pairs, the narrower side alone, which holds it."""
    if len(one) * len(other) > MAX_PATTERNS:
        return min(one, other, key=len)
    return dedupe(
        {**left, **right}
        for left in one
        for right in other
        if all(right.get(field_id, left[field_id]) == left[field_id] for field_id in left)
    )


def _equal(field: Field, values: Sequence[Any]) -> tuple[PartitionPattern, ...]:
    """The partitions whose value is one of these; everything, if an engine would cast first."""
    known = [value for value in values if value is not None]
    # An engine first casts values of several types to one.
    if has_own_order(field) or len({type(value) for value in known}) > 1:
        return _EVERYTHING
    wires = [_wire(value, field) for value in known]
    return _EVERYTHING if None in wires else dedupe({field.id: wire} for wire in wires)


def _wire(value: Any, field: Field) -> WireValue:
    """The value as entries hold it; None if it is not certainly a value of the column's type."""
    ends = ends_of(value, arrow_type(field.type))
    if ends is None or ends[0] != ends[1]:
        return None
    try:
        return from_array(array_of(ends[0], field.type), field.type)[0]
    except (pa.ArrowException, ValueError, OverflowError):  # out of the range, or no Unicode
        return None


def array_of(plain: Any, type: FieldType) -> pa.Array:
    """A value, as bounds are compared, in the type of its column."""
    kind = arrow_type(type)
    if pa.types.is_decimal(kind):
        return pa.array([WIDE.plus(plain)], kind)
    if pa.types.is_date32(kind):
        return pa.array([plain], pa.int32()).cast(kind)
    return pa.array([plain], _plain(kind)).cast(kind)


# The key columns of a merge (upsert), and where a table may hold a row with one of the source's
# keys. [RC3]

MAX_FILES = 64  # with more files, their common bounds count


On = Sequence[str] | str | Mapping[str, str]


class MergeKeys(NamedTuple):
    """The columns of the table, and the source's `names`, that a merge compares. [RC3]"""

    fields: tuple[Field, ...]
    names: tuple[str, ...]
    null_safe: frozenset[int] = frozenset()

    @property
    def is_null_safe(self) -> list[bool]:
        """The same, for each column."""
        return [field.id in self.null_safe for field in self.fields]


def names_of(on: On) -> tuple[list[str], list[str]]:
    """The names of the columns in the table, and in the source."""
    if isinstance(on, str):
        return [on], [on]
    return list(on), list(on.values()) if isinstance(on, Mapping) else list(on)


def merge_keys(schema: Schema, on: On, null_safe: bool | Sequence[str] = False) -> MergeKeys:
    """The columns of these names. null_safe: all, or those of the table that are named. [RC3]"""
    given, names = names_of(on)
    fields = key_columns(schema, given)
    safe = given if null_safe is True else null_safe or ()
    ids = frozenset(find_column(schema, name).id for name in safe)
    if not ids <= {field.id for field in fields}:
        raise UsageError(f"null_safe is a flag, or names columns of the key, not {null_safe!r}")
    if len({name.lower() for name in names}) < len(names):
        raise UsageError(f"on names a column of the source twice: {names!r}")
    return MergeKeys(fields, tuple(names), ids)


def key_columns(schema: Schema, names: Sequence[str] | str) -> tuple[Field, ...]:
    """Check the columns of a merge's key; UsageError if equal is not equal as stored. [RC3]"""
    given = [names] if isinstance(names, str) else list(names)
    fields = tuple(find_column(schema, name) for name in given)
    if not fields or len({field.id for field in fields}) < len(fields):
        raise UsageError(f"on names one or more columns, each once, not {given!r}")
    for field in fields:
        if not is_ordered(field):
            why = "is collated or padded, so that different values may be equal"
            if not is_exact(field.type):
                why = f"has the type {type_text(field.type)}, by which rows cannot be distinguished"
            raise UsageError(f"on: the column {field.name!r} {why}")
    return fields


def may_hold(keys: MergeKeys, files: Sequence[Entry], partition_by: Sequence[int]) -> Predicate:
    """A predicate that is true of every row with the key of a row in these files, by their bounds
    and their partitions, `partition_by`. A null equals nothing, or a null. [RC3]"""
    fields = keys.fields
    spans = [[_key_span(field, entry, partition_by) for field in fields] for entry in files]
    if len(spans) > MAX_FILES:
        spans = [[_around_all(of_field) for of_field in zip(*spans, strict=True)]]
    return Or(args=tuple(And(args=tuple(map(partial(_between, keys), fields, s))) for s in spans))


def partitions_of_keys(
    keys: MergeKeys, files: Sequence[Entry], partition_by: Sequence[int], table_by: Sequence[int]
) -> tuple[PartitionPattern, ...]:
    """The partitions that may hold a key of these files. table_by: the table's. [CF16]"""
    ids = {field.id for field in keys.fields}
    told = [each for each in table_by if each & MAX_FIELD_ID in ids and each in partition_by]
    partitions = (entry.partition for entry in files if entry.rows)
    known = [dict(zip(partition_by, partition, strict=True)) for partition in partitions]
    rows = [{field_id: each[field_id] for field_id in told} for each in known]
    nulls = [each for each in told if each & MAX_FIELD_ID not in keys.null_safe]  # equal nothing
    return dedupe(row for row in rows if all(row[id] is not None for id in nulls))


class _KeySpan(NamedTuple):
    """Where the values of a key column are, and whether nulls may be among them."""

    ends: _Ends
    may_be_null: bool


def _key_span(field: Field, entry: Entry, partition_by: Sequence[int]) -> _KeySpan:
    if field.id in partition_by:
        wire = entry.partition[list(partition_by).index(field.id)]
        return _KeySpan(False if wire is None else _decoded(field, wire, wire), wire is None)
    stats = entry.columns.get(field.id, ColumnStats())
    ends: _Ends = None if stats.nulls != entry.rows else False
    if stats.min is not None and stats.max is not None:
        ends = _decoded(field, stats.min, stats.max)
    return _KeySpan(ends, stats.nulls != 0)


def _decoded(field: Field, low: Any, high: Any) -> _Ends:
    least, greatest = decode(low, field.type), decode(high, field.type)
    # A value that Python cannot hold (years beyond 9999) is given as a number.
    is_held = type(least) is type(greatest) and (
        not isinstance(least, int) or field.type in ("boolean", *INTEGERS)
    )
    return (least, greatest) if is_held else None


def _around_all(spans: Sequence[_KeySpan]) -> _KeySpan:
    may_be_null = any(span.may_be_null for span in spans)
    known = [span.ends for span in spans if span.ends is not False]
    if not known:
        return _KeySpan(False, may_be_null)
    pairs = [ends for ends in known if isinstance(ends, tuple)]
    if len(pairs) < len(known) or len({type(low) for low, _ in pairs}) > 1:
        return _KeySpan(None, may_be_null)
    return _KeySpan((min(low for low, _ in pairs), max(high for _, high in pairs)), may_be_null)


def _between(keys: MergeKeys, field: Field, span: _KeySpan) -> Predicate:
    column, ends = (field.name,), span.ends
    or_null = span.may_be_null and field.id in keys.null_safe
    held: Predicate = Constant(value=ends is None)
    if isinstance(ends, tuple):
        low = Compare(op=">=", column=column, value=ends[0])
        held = And(args=(low, Compare(op="<=", column=column, value=ends[1])))
    return Or(args=(held, IsNull(column=column))) if or_null else held

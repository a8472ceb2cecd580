"""What may be skipped: never a file with a row that matches in Arrow or in Spark, and always the plain cases. [RD6]

Files are drawn row by row, their bounds computed as the writer does, and every row judged one by one by an evaluator that has
nothing in common with `may_match`.
"""

import math
import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.kit.sizes import rounds

from manifestcommit.filter.predicate import (
    And,
    ColumnBounds,
    Compare,
    Constant,
    IsIn,
    IsNan,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    columns_of,
    may_match,
)

# --- Rows ---------------------------------------------------------------------------------------------------------------
DAY = date(2024, 2, 29)
MOMENT = datetime(2024, 2, 29, 12, 30, 0, 1)
NAN, INF = math.nan, math.inf
F32 = [struct.unpack("f", struct.pack("f", v))[0] for v in (0.1, 16777216.0, -2.5, 3.4e38, 1e-45)]

TYPES: dict[str, pa.DataType] = {
    "long": pa.int64(), "byte": pa.int8(), "double": pa.float64(), "float": pa.float32(), "string": pa.string(), "binary": pa.binary(),
    "decimal": pa.decimal128(10, 2), "wide": pa.decimal128(38, 20), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "ntz": pa.timestamp("us"), "boolean": pa.bool_(), "interval": pa.duration("us"),
}  # fmt: skip
TEXTS = [
    "", "a", "ab", "abc", "abcd", "aé", "a\U0010ffff", "ab\U0010ffff\U0010ffff", "\ud7ff", "\ue000x", "漢字かな交じり", "\x00", "b%_", "5",
]  # fmt: skip
MOMENTS = [MOMENT, datetime(2024, 2, 29), datetime(2024, 3, 1), datetime(1, 1, 1), datetime(9999, 12, 31, 23), datetime(1969, 12, 31, 23)]
VALUES: dict[str, list[Any]] = {
    "long": [-(2**63), -1, 0, 1, 2, 5, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1],
    "byte": [-128, -1, 0, 1, 2, 5, 127],
    "double": [0.0, -0.0, 1.0, 1.5, -2.5, 0.1, NAN, INF, -INF, 2.0**53, 5e-324, 1e300],
    "float": [0.0, -0.0, 1.0, 1.5, NAN, INF, -INF, *F32],
    "string": TEXTS,
    "binary": [b"", b"a", b"ab", b"\xff", b"\x00\xff"],
    "decimal": [Decimal(t) for t in ("0.00", "1.50", "1.51", "-99999999.99", "99999999.99", "5.00")],
    "wide": [Decimal(t) for t in ("0", "1.5", "0.00000000000000000001", "999999999999999999.99999999999999999999")],
    "date": [DAY, DAY + timedelta(days=1), DAY - timedelta(days=1), date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [m.replace(tzinfo=UTC) for m in MOMENTS],
    "ntz": MOMENTS,
    "boolean": [True, False],
    "interval": [timedelta(0), timedelta(days=-1), timedelta(microseconds=1), timedelta(days=400)],
}
# What users compare with, whatever the column's type.
NUMBERS = [0, 1, 5, -129, 2**24 + 1, 2**53, 2**53 + 1, 2**63, 10**30, 0.0, -0.0, 1.5, 0.1, F32[0], NAN, INF, -INF, 2.0**53, 1e300]
DECIMALS = [Decimal(t) for t in ("1.5", "1.505", "5", "1E-30", "5.0000000000000001", "123456789012345678901234567890.12345678")]
TIMES = [
    DAY, *MOMENTS, MOMENT.replace(tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC), "2024-02-29", "2024-02-29 12:30:00.000001", "2024-2-9",
]  # fmt: skip
LITERALS: dict[str, list[Any]] = {
    **{kind: [*NUMBERS, *DECIMALS, True, "5"] for kind in ("long", "byte", "double", "float", "decimal", "wide")},
    "string": [*TEXTS, 5, 1.5, True, DAY], "binary": VALUES["binary"], "date": TIMES, "timestamp": TIMES, "ntz": TIMES,
    "boolean": [True, False, 1], "interval": VALUES["interval"],
}  # fmt: skip


OPERATORS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """The rows of one file, column by column, and what its bounds were made to forget."""

    columns: Mapping[str, list[Any]]
    rows: int
    forgets: frozenset[str] = frozenset()
    cut: int = 64


def cut_min(value: Any, size: int) -> Any:
    return value[:size] if isinstance(value, str | bytes) else value


def cut_max(value: Any, size: int) -> Any:
    """A prefix rounded up: the upper bound that a writer keeps of a long text; None where there is none."""
    if not isinstance(value, str | bytes) or len(value) <= size:
        return value
    numbers = [ord(c) for c in value[:size]] if isinstance(value, str) else list(value[:size])
    while numbers and numbers[-1] == (0x10FFFF if isinstance(value, str) else 255):
        numbers.pop()
    if not numbers:
        return None
    numbers[-1] = 0xE000 if isinstance(value, str) and numbers[-1] == 0xD7FF else numbers[-1] + 1  # surrogates are no text
    return "".join(map(chr, numbers)) if isinstance(value, str) else bytes(numbers)


def stats(file: File, column: str) -> tuple[Any, Any, int | None, int | None]:
    """min, max, nulls, nans of one column, as our writer counts them."""
    values = [v for v in file.columns[column] if v is not None]
    nans = sum(isinstance(v, float) and math.isnan(v) for v in values)
    plain = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
    low = None if "min" in file.forgets or not plain else cut_min(min(plain), file.cut)
    high = None if "max" in file.forgets or not plain else cut_max(max(plain), file.cut)
    return low, high, None if "nulls" in file.forgets else file.rows - len(values), None if "nans" in file.forgets else nans


class Files:
    """A ColumnSource over drawn files that notes which columns it was asked for."""

    def __init__(self, files: Sequence[File]) -> None:
        self._files = files
        self.asked: list[tuple[str, ...]] = []

    @property
    def rows(self) -> pa.Array:
        return pa.array([None if "rows" in f.forgets else f.rows for f in self._files], pa.int64())

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        self.asked.append(column)
        if column[0] not in TYPES:
            return None
        low, high, nulls, nans = zip(*(stats(f, column[0]) for f in self._files), strict=True)
        kind = TYPES[column[0]]
        return ColumnBounds(
            min=pa.array(low, kind), max=pa.array(high, kind), nulls=pa.array(nulls, pa.int64()), nans=pa.array(nans, pa.int64())
        )


@st.composite
def files(draw: st.DrawFn, names: Sequence[str]) -> list[File]:
    """Some files with these columns."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.integers(0, 4))
        columns = {k: draw(st.lists(st.sampled_from([*VALUES[k], None]), min_size=rows, max_size=rows)) for k in names}
        forgets = frozenset(draw(st.sets(st.sampled_from(["min", "max", "nulls", "nans", "rows"]), max_size=2)))
        found.append(File(columns=columns, rows=rows, forgets=forgets, cut=draw(st.integers(1, 4))))
    return found


# --- Predicates, and the truth about a row ----------------------------------------------------------------------------------
@st.composite
def leaves(draw: st.DrawFn, names: Sequence[str]) -> Predicate:
    column = draw(st.sampled_from(names))
    kinds = ["compare", "compare", "compare", "in", "null", "constant", "unknown"]
    kinds += ["nan"] * (column in ("float", "double")) + ["starts"] * (column == "string")
    kind = draw(st.sampled_from(kinds))
    literals = st.sampled_from([*LITERALS[column], *VALUES[column]])
    match kind:
        case "compare":
            op = draw(st.sampled_from(list(OPERATORS)))
            return Compare(op=op, column=(column,), value=draw(literals | st.none()))
        case "in":
            values = draw(st.lists(literals, max_size=4))
            same = [v for v in values if type(v) is type(values[0])]
            return IsIn(column=(column,), values=tuple(same))
        case "null":
            return IsNull(column=(column,))
        case "nan":
            return IsNan(column=(column,))
        case "starts":
            return StartsWith(column=(column,), prefix=draw(st.sampled_from(TEXTS)))
        case "constant":
            return Constant(value=draw(st.sampled_from([True, False, None])))
        case _:
            return Unknown(why="drawn")


def predicates(names: Sequence[str]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        leaves(names),
        lambda inner: st.one_of(
            st.builds(lambda args: And(args=tuple(args)), st.lists(inner, max_size=3)),
            st.builds(lambda args: Or(args=tuple(args)), st.lists(inner, max_size=3)),
            st.builds(lambda arg: Not(arg=arg), inner),
        ),
        max_leaves=6,
    )


class Truth:
    """The row-by-row meaning of a predicate in one engine, by Python's own comparisons.

    zone: the session's offset from UTC, for dates and texts against times; unknown: what an Unknown part gives.
    """

    def __init__(self, *, spark: bool, zone: timedelta = timedelta(0), unknown: bool | None = None) -> None:
        self._spark, self._zone, self._unknown = spark, zone, unknown

    def __call__(self, node: Predicate, row: Mapping[str, Any]) -> bool | None:
        match node:
            case And(args=args):
                found = [self(arg, row) for arg in args]
                return False if False in found else None if None in found else True
            case Or(args=args):
                found = [self(arg, row) for arg in args]
                return True if True in found else None if None in found else False
            case Not(arg=arg):
                inner = self(arg, row)
                return None if inner is None else not inner
            case Constant(value=value):
                return value
            case Unknown():
                return self._unknown
        value = row[node.column[0]]
        match node:
            case IsNull():
                return value is None
            case IsNan():
                return (False if self._spark else None) if value is None else math.isnan(value)
            case StartsWith(prefix=prefix):
                return None if value is None else value.startswith(prefix)
            case IsIn(values=values):
                return self._is_in(value, values)
            case Compare(op=op, value=literal):
                return self._compare(op, value, literal)

    def _is_in(self, value: Any, values: Sequence[Any]) -> bool | None:
        if value is None:
            return None if self._spark and values else False
        if self._spark:
            return any(self._compare("=", value, each) for each in values)
        found = [_same(value, each) for each in values]
        return None if None in found else True in found

    def _compare(self, op: str, value: Any, literal: Any) -> bool | None:
        pair = None if value is None or literal is None else self._coerced(value, literal)
        if pair is None:
            return None
        left, right = pair
        if isinstance(left, float) and self._spark:
            left, right = ((math.isnan(v), 0.0 if math.isnan(v) else v) for v in (left, right))  # NaN: the greatest
        return bool(OPERATORS[op](left, right))

    def _coerced(self, value: Any, literal: Any) -> tuple[Any, Any] | None:
        """Both sides in one type, as the engine would bring them there; None where it would give null or an error."""
        numbers = [isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in (value, literal)]
        if all(numbers):
            return (float(value), float(literal)) if isinstance(value, float) or isinstance(literal, float) else (value, literal)
        if type(value) is type(literal) and not isinstance(value, datetime):
            return value, literal
        if not self._spark and not isinstance(value, date):
            return None
        if isinstance(value, str) and numbers[1]:
            return (float(value), float(literal)) if value.strip().isdigit() else None
        if isinstance(literal, str) and numbers[0]:
            return float(value), float(literal)
        if isinstance(value, date) and isinstance(literal, date | str):
            return self._times(value, literal)
        return None

    def _times(self, value: date, literal: date | str) -> tuple[Any, Any] | None:
        if isinstance(literal, str):
            year, month, rest = literal.split("-")
            literal = datetime.fromisoformat(f"{year}-{month:0>2}-{rest:0>2}" if len(rest) < 3 else literal)
            if not isinstance(value, datetime):
                literal = literal.date()
        if isinstance(value, datetime) or isinstance(literal, datetime):
            aware = any(isinstance(v, datetime) and v.tzinfo is not None for v in (value, literal))
            return self._instant(value, aware), self._instant(literal, aware)
        return value, literal

    def _instant(self, value: date, aware: bool) -> timedelta:
        """Since 1970, in UTC if either side has a zone. A timedelta: datetimes would run over at the ends of the calendar."""
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        since = moment.replace(tzinfo=None) - datetime(1970, 1, 1)
        return since - self._zone if aware and moment.tzinfo is None else since


def _same(value: Any, literal: Any) -> bool | None:
    """Arrow's membership: NaN is NaN, and 0.0 is not -0.0. None: no expression gives such a pair."""
    if isinstance(value, float) and isinstance(literal, float):
        return (math.isnan(value) and math.isnan(literal)) or (value == literal and math.copysign(1, value) == math.copysign(1, literal))
    return None if isinstance(literal, str) and not isinstance(value, str) else bool(value == literal)


def rows_of(file: File) -> list[dict[str, Any]]:
    return [{column: values[at] for column, values in file.columns.items()} for at in range(file.rows)]


def kept(predicate: Predicate, files: Sequence[File]) -> list[bool]:
    mask = may_match(predicate, Files(files))
    assert mask.type == pa.bool_() and mask.null_count == 0 and len(mask) == len(files)
    return list(mask.to_pylist())


# --- Never a row lost -------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
@settings(max_examples=rounds(40, 2_000))
@given(st.data(), st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=2, unique=True), st.sampled_from([True, False, None]))
def test_no_file_with_a_matching_row_is_ever_skipped(data: st.DataObject, names: list[str], unknown: bool | None) -> None:
    """A skipped file with a matching row is rows silently missing from a read, whichever engine reads. [RD6]"""
    drawn, predicate, hours = data.draw(files(names)), data.draw(predicates(names)), data.draw(st.integers(-18, 18))
    engines = [Truth(spark=False, unknown=unknown), Truth(spark=True, zone=timedelta(hours=hours), unknown=unknown)]
    mask = kept(predicate, drawn)
    event(f"skipped some: {not all(mask)}")
    for file, is_kept in zip(drawn, mask, strict=True):
        matches = [row for row in rows_of(file) if any(truth(predicate, row) is True for truth in engines)]
        assert is_kept or not matches, (predicate, matches)


@settings(max_examples=rounds(30, 2_000))
@given(st.sampled_from(list(TYPES)), st.data())
def test_no_single_comparison_skips_a_matching_row(column: str, data: st.DataObject) -> None:
    """As above, aimed at one leaf or its negation over one column with few values, where most mistakes would show. [RD6]"""
    values = data.draw(st.lists(st.sampled_from([*VALUES[column], None]), min_size=1, max_size=2))
    file = File(columns={column: values}, rows=len(values), cut=data.draw(st.integers(1, 4)))
    literals = st.sampled_from([*LITERALS[column], *VALUES[column]])
    leaf: Predicate
    if data.draw(st.booleans()):
        leaf = Compare(op=data.draw(st.sampled_from(list(OPERATORS))), column=(column,), value=data.draw(literals))
    else:
        leaf = IsIn(column=(column,), values=(data.draw(literals),))
    for predicate in (leaf, Not(arg=leaf)):
        (is_kept,) = kept(predicate, [file])
        for hours in (-18, 0, 14):
            for truth in (Truth(spark=False), Truth(spark=True, zone=timedelta(hours=hours))):
                assert is_kept or not any(truth(predicate, row) is True for row in rows_of(file))


# --- And the plain cases are skipped ----------------------------------------------------------------------------------------
def one(column: str, *values: Any, **known: Any) -> File:
    return File(columns={column: list(values)}, rows=len(values), **known)


AWARE = MOMENT.replace(tzinfo=UTC)
SKIPPED = [
    (Compare(op="=", column=("long",), value=7), one("long", 1, 5)),
    (Compare(op="!=", column=("long",), value=5), one("long", 5, 5, None)),
    (Compare(op="<", column=("long",), value=1), one("long", 1, 5)),
    (Compare(op=">=", column=("byte",), value=500), one("byte", 1, 127)),
    (Compare(op="=", column=("long",), value=None), one("long", 1)),
    (Compare(op="=", column=("long",), value=1), one("long", None, None)),
    (Not(arg=Compare(op="=", column=("long",), value=1)), one("long", None, None)),
    (Compare(op="=", column=("double",), value=7.0), one("double", 1.0, NAN)),  # a NaN equals no number
    (Compare(op="<", column=("double",), value=1.0), one("double", 1.0, NAN)),
    (Compare(op="=", column=("string",), value="abe"), one("string", "abca", "abcz", cut=3)),
    (Compare(op=">", column=("string",), value="abe"), one("string", "aaaa", "abcz", cut=3)),
    (StartsWith(column=("string",), prefix="b"), one("string", "abc", "azz")),
    (StartsWith(column=("string",), prefix="a\U0010ffff"), one("string", "a", "ab")),
    (Not(arg=StartsWith(column=("string",), prefix="ab")), one("string", "abca", "abcz", cut=3)),
    (Compare(op="=", column=("decimal",), value=Decimal("1.505")), one("decimal", Decimal("1.52"))),
    (Compare(op=">", column=("decimal",), value=2.5), one("decimal", Decimal("1.50"))),
    (Compare(op="=", column=("date",), value=DAY), one("date", DAY + timedelta(days=1))),
    (Compare(op="<", column=("timestamp",), value=AWARE), one("timestamp", AWARE)),
    (Compare(op="!=", column=("ntz",), value=MOMENT), one("ntz", MOMENT)),
    (Compare(op="=", column=("boolean",), value=True), one("boolean", False, None)),
    (Compare(op=">", column=("interval",), value=timedelta(1)), one("interval", timedelta(hours=1))),
    (IsIn(column=("long",), values=(2, 9)), one("long", 4, 5)),
    (Not(arg=IsIn(column=("string",), values=("a", "b"))), one("string", "a", "a")),
    (IsIn(column=("double",), values=(NAN,)), one("double", 1.0)),
    (IsIn(column=("long",), values=()), one("long", 1)),
    (IsNull(column=("string",)), one("string", "a")),
    (Not(arg=IsNull(column=("string",))), one("string", None)),
    (IsNan(column=("double",)), one("double", 1.0, None)),
    (Not(arg=IsNan(column=("double",))), one("double", NAN)),
    (And(args=(Unknown(why="?"), Compare(op="=", column=("long",), value=9))), one("long", 1)),
    (Or(args=(Constant(value=None), Compare(op="=", column=("long",), value=9))), one("long", 1)),
    (Constant(value=True), one("long")),  # no rows
    (Unknown(why="?"), one("long")),
]


@pytest.mark.parametrize(("predicate", "file"), SKIPPED, ids=lambda case: str(case)[:60] if not isinstance(case, File) else "")
def test_a_file_that_clearly_holds_no_match_is_skipped(predicate: Predicate, file: File) -> None:
    assert kept(predicate, [file]) == [False]


KEPT_IN_DOUBT = [
    (Compare(op="=", column=("string",), value=5), one("string", "05")),  # Spark casts the text
    (Compare(op="=", column=("long",), value="7"), one("long", 1)),
    (Compare(op=">", column=("double",), value=5.0), one("double", 1.0, NAN)),  # Spark: NaN is the greatest
    (Compare(op=">", column=("double",), value=5.0), one("double", 1.0, forgets=frozenset({"nans"}))),
    (Compare(op="=", column=("double",), value=NAN), one("double", 1.0)),  # Spark: equal to itself
    (Not(arg=Compare(op="=", column=("double",), value=1.0)), one("double", 1.0, NAN)),
    (Not(arg=Compare(op="<", column=("double",), value=5.0)), one("double", 1.0, NAN)),
    (Compare(op="!=", column=("double",), value=1.0), one("double", 1.0, NAN)),
    (IsIn(column=("double",), values=(NAN, 7.0)), one("double", 1.0, NAN)),
    (Not(arg=IsIn(column=("double",), values=(1.0,))), one("double", 1.0, NAN)),
    (Compare(op="=", column=("timestamp",), value="2024-02-29 12:30:00"), one("timestamp", AWARE)),  # in whose zone?
    (Compare(op=">=", column=("timestamp",), value=date(2024, 2, 29)), one("timestamp", AWARE)),
    (Compare(op="=", column=("date",), value="2024-2-9"), one("date", DAY)),
    (Compare(op="<=", column=("date",), value=datetime(2024, 2, 29)), one("date", DAY)),
    (Compare(op="!=", column=("string",), value="abc"), one("string", "abc", "abcd", cut=3)),  # a cut bound is not the value
    (Not(arg=IsIn(column=("double",), values=(0.0,))), one("double", -0.0)),  # Arrow tells them apart
    (Not(arg=IsIn(column=("long",), values=(1,))), one("long", 1, None)),  # Arrow: a null is not in the list
    (IsIn(column=("long",), values=(7, 7.5)), one("long", 1)),
    (Compare(op="=", column=("long",), value=2.0**53), one("long", 2**53 + 1)),  # equal as doubles
    (Compare(op="<", column=("long",), value=1.5), one("long", 1)),
    (Compare(op=">", column=("long",), value=Decimal("-1.5")), one("long", -1)),
    (Compare(op="<", column=("decimal",), value=Decimal("1.505")), one("decimal", Decimal("1.50"))),
    (Compare(op="=", column=("double",), value=Decimal("0.1")), one("double", math.nextafter(0.1, 1))),  # rounded by whom?
    (Not(arg=IsNan(column=("double",))), one("double", NAN, None)),  # Spark: a null is not NaN
    (Compare(op="=", column=("nowhere",), value=1), one("long", 1)),
    (IsNull(column=("long",)), one("long", 1, forgets=frozenset({"nulls"}))),
    (Compare(op="=", column=("long",), value=9), one("long", 1, forgets=frozenset({"max"}))),
    (Constant(value=True), one("long", 1, forgets=frozenset({"rows"}))),
]


@pytest.mark.parametrize(("predicate", "file"), KEPT_IN_DOUBT, ids=lambda case: str(case)[:60] if not isinstance(case, File) else "")
def test_a_file_is_kept_where_an_engine_might_see_a_match(predicate: Predicate, file: File) -> None:
    """[RD6]"""
    assert kept(predicate, [file]) == [True]


def test_long_lists_skip_as_exactly_as_short_ones() -> None:
    """Thousands of keys, as an incremental merge asks for, skip the files between any two of them. [RD6]"""
    values = tuple(range(0, 10_000, 2))
    drawn = [one("long", 3, 3), one("long", -5, -1), one("long", values[-1], 10**6), one("long", 10**6, 10**7)]
    assert kept(IsIn(column=("long",), values=values), drawn) == [False, False, True, False]
    assert kept(IsIn(column=("long",), values=(float("nan"),)), drawn) == kept(IsIn(column=("long",), values=()), drawn) == [False] * 4
    assert kept(Not(arg=IsIn(column=("long",), values=values)), drawn)[0]


def test_only_the_columns_of_the_predicate_are_asked_for_and_each_once() -> None:
    """A manifest has bounds of 32 columns; fetching them all would cost what planning saves."""
    leaf = Compare(op="=", column=("long",), value=1)
    predicate = And(args=(leaf, Or(args=(Not(arg=leaf), IsNull(column=("n", "x")), Constant(value=True), Unknown(why="?")))))
    source = Files([one("long", 1)])
    may_match(predicate, source)
    assert sorted(source.asked) == [("long",), ("n", "x")] == sorted(columns_of(predicate))

"""Values of every type where readers differ, files of them with their bounds, and an evaluator of predicates that judges row by row."""

import math
import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

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
)

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

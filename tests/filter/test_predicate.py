"""What may be skipped: never a file with a row that matches in Arrow or in Spark, and always the plain cases. [RD6]

Files are drawn row by row, their bounds computed as the writer does, and every row judged one by one by an evaluator that has
nothing in common with `may_match`.
"""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.kit.filter_values import DAY, LITERALS, MOMENT, NAN, OPERATORS, TEXTS, TYPES, VALUES, File, Files, Truth, files, rows_of
from tests.kit.sizes import rounds

from manifestcommit.filter.predicate import (
    And,
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

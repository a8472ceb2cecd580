"""pyarrow expressions as predicates: with pyarrow's own meaning, or openly not understood. [RD6] [RD7]"""

import functools
import math
import operator
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.kit.filter_values import F32, LITERALS, TEXTS, TYPES, VALUES, File, Files, Truth, rows_of
from tests.kit.filter_values import files as files
from tests.kit.sizes import rounds

from manifestcommit.errors import UsageError
from manifestcommit.filter.arrow_expression import parse_expression
from manifestcommit.filter.predicate import And, Compare, Constant, IsIn, IsNan, IsNull, Not, Or, Predicate, StartsWith, Unknown, may_match

F = pc.field
SCHEMA = pa.schema(
    [
        *TYPES.items(), ("n", pa.struct([("x", pa.int32()), ("y.z", pa.struct([("a`b", pa.string()), ("call", pa.float32())]))])),
        ("list", pa.list_(pa.int64())), ("map", pa.map_(pa.string(), pa.int64())), ("dict", pa.dictionary(pa.int8(), pa.string())),
        ("end", pa.bool_()),
    ]
)  # fmt: skip
MISSING_NOTHING = [
    (F("long") == 5, Compare(op="=", column=("long",), value=5)),
    (pc.scalar(5) < F("long"), Compare(op=">", column=("long",), value=5)),
    (F("long") == 1.5, Compare(op="=", column=("long",), value=1.5)),
    (F("long") == 5.0, Compare(op="=", column=("long",), value=5)),
    (F("byte") <= 500, Compare(op="<=", column=("byte",), value=500)),
    (F("float") > 0.1, Compare(op=">", column=("float",), value=0.1)),
    (F("string") != "é", Compare(op="!=", column=("string",), value="é")),
    (F("dict") == "x", Compare(op="=", column=("dict",), value="x")),
    (F("binary") == b"\xff", Compare(op="=", column=("binary",), value=b"\xff")),
    (F("decimal") == Decimal("1.50"), Compare(op="=", column=("decimal",), value=Decimal("1.50"))),
    (F("date") >= date(2024, 2, 29), Compare(op=">=", column=("date",), value=date(2024, 2, 29))),
    (F("date") >= datetime(2024, 2, 29), Compare(op=">=", column=("date",), value=date(2024, 2, 29))),
    (F("ntz") < datetime(2024, 2, 29, 1), Compare(op="<", column=("ntz",), value=datetime(2024, 2, 29, 1))),
    (F("ntz") < pa.scalar(5, pa.timestamp("s")), Compare(op="<", column=("ntz",), value=datetime(1970, 1, 1, 0, 0, 5))),
    (F("timestamp") < datetime(2024, 1, 1, tzinfo=UTC), Compare(op="<", column=("timestamp",), value=datetime(2024, 1, 1, tzinfo=UTC))),
    (F("timestamp") < date(2024, 1, 1), Compare(op="<", column=("timestamp",), value=datetime(2024, 1, 1, tzinfo=UTC))),
    (F("boolean"), Compare(op="=", column=("boolean",), value=True)),
    (~F("end"), Not(arg=Compare(op="=", column=("end",), value=True))),
    (F("long") == pa.scalar(None, pa.int64()), Compare(op="=", column=("long",), value=None)),
    (F("n", "x") == 1, Compare(op="=", column=("n", "x"), value=1)),
    (F("n", "y.z", "a`b") == "q", Compare(op="=", column=("n", "y.z", "a`b"), value="q")),
    (F("n", "y.z", "call").is_nan(), IsNan(column=("n", "y.z", "call"))),
    (F("map").is_null(), IsNull(column=("map",))),
    (F("list").is_valid(), Not(arg=IsNull(column=("list",)))),
    (F("double").is_null(nan_is_null=True), Or(args=(IsNull(column=("double",)), IsNan(column=("double",))))),
    (F("double").is_null(), IsNull(column=("double",))),
    (F("long").is_null(nan_is_null=True), IsNull(column=("long",))),
    (F("long").isin([1, 2]), IsIn(column=("long",), values=(1, 2))),
    (F("long").isin([1.0, 2.5]), IsIn(column=("long",), values=(1,))),
    (F("float").isin([0.1]), IsIn(column=("float",), values=(F32[0],))),  # Arrow brings the set to the column's type
    (F("string").isin([]), IsIn(column=("string",), values=())),
    (F("string").isin(["a", None]), Or(args=(IsIn(column=("string",), values=("a",)), IsNull(column=("string",))))),
    (pc.is_in(F("string"), options=pc.SetLookupOptions(pa.array(["a", None]), skip_nulls=True)), IsIn(column=("string",), values=("a",))),
    (pc.starts_with(F("string"), "ab"), StartsWith(column=("string",), prefix="ab")),
    (pc.scalar(True), Constant(value=True)),
    (pc.scalar(pa.scalar(None, pa.bool_())), Constant(value=None)),
]


@pytest.mark.parametrize(("expression", "predicate"), MISSING_NOTHING, ids=lambda case: str(case)[:50])
def test_an_expression_becomes_the_predicate_that_it_reads_like(expression: pc.Expression, predicate: Predicate) -> None:
    """[RD7]"""
    assert parse_expression(expression, SCHEMA) == predicate


NOT_UNDERSTOOD = [
    F("long").cast(pa.string()) == "1", F("long") + 1 > 5, F("long") == F("byte"), pc.if_else(F("boolean"), True, False),
    pc.xor(F("boolean"), True), pc.starts_with(F("string"), "ab", ignore_case=True), pc.match_substring(F("string"), "ab"),
    (F("long") > 5).is_null(), F("long").isin([True]), F("string").isin([b"a"]), F("string") == b"a", F("date") == datetime(2024, 2, 29, 1),
    F("date").isin([datetime(2024, 2, 29, 1)]), F("timestamp") > datetime(2024, 1, 1),
    F("timestamp") > pa.scalar(1001, pa.timestamp("ns", "UTC")), F("timestamp") > "2024-01-01", F("double") == 2**53 + 1,
    F("long") == 2.0**60, F("long").is_nan(), pc.list_element(F("list"), 0) == 1, F("long"), pc.scalar(5), F(0) == 1,
]  # fmt: skip


@pytest.mark.parametrize("expression", NOT_UNDERSTOOD, ids=lambda case: str(case)[:50])
def test_what_is_not_understood_is_unknown_and_says_why(expression: pc.Expression) -> None:
    """Such a part may match anything, so that no file is skipped for it. [RD6]"""
    found = parse_expression(expression, SCHEMA)
    assert isinstance(found, Unknown) and found.why
    assert may_match(Not(arg=found), Files([File(columns={"long": [1]}, rows=1)])).to_pylist() == [True]


def test_a_part_that_is_not_understood_spoils_only_itself() -> None:
    """`day = x and f(other)` still reads one day's files only. [RD6]"""
    found = parse_expression((F("long") == 7) & (F("double") + 1 > 5), SCHEMA)
    assert isinstance(found, And) and found.args[0] == Compare(op="=", column=("long",), value=7)
    assert may_match(found, Files([File(columns={"long": [1]}, rows=1)])).to_pylist() == [False]


@pytest.mark.parametrize(
    ("expression", "named", "near"),
    [
        (F("logn") == 1, "'logn'", "'long'"), (F("LONG") == 1, "'LONG'", "'long'"), (F("n", "q") == 1, "'n.q'", ""),
        (F("long", "x") == 1, "'long.x'", ""), ((F("long") == 1) | (F("nowhere").cast(pa.string()) == "x"), "'nowhere'", "long"),
    ],
)  # fmt: skip
def test_a_column_that_is_not_there_is_an_error_that_names_it(expression: pc.Expression, named: str, near: str) -> None:
    """A mistyped column must not become a full scan, nor an empty result."""
    with pytest.raises(UsageError, check=lambda error: named in str(error) and near in str(error)):
        parse_expression(expression, SCHEMA)


@pytest.mark.parametrize("filter", ["day = 1", True, None, [("day", "=", 1)]])
def test_what_is_no_expression_is_an_error(filter: Any) -> None:
    with pytest.raises(UsageError, match="pyarrow expression"):
        parse_expression(filter, SCHEMA)


@pytest.mark.thorough
def test_thousands_of_terms_cost_thousands_of_steps() -> None:
    """Filters are put together by programs: one term per hour of a year must neither hang nor overflow. [RD6]"""
    terms = [F("long") == number for number in range(8_760)]
    for join, kind in ((operator.or_, Or), (operator.and_, And)):
        found = parse_expression(functools.reduce(join, terms), SCHEMA)
        assert isinstance(found, kind) and len(found.args) == len(terms)


def test_absurd_nesting_is_unknown_in_its_depths() -> None:
    nested = functools.reduce(lambda inner, number: ~(inner & (F("long") == number)), range(3_000), F("boolean"))
    assert may_match(parse_expression(nested, SCHEMA), Files([File(columns={"long": [1]}, rows=1)])).to_pylist() == [True]


# --- Against pyarrow itself ---------------------------------------------------------------------------------------------------
OPERATORS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@st.composite
def leaves(draw: st.DrawFn, names: Sequence[str]) -> pc.Expression:
    column = draw(st.sampled_from(names))
    literals = st.sampled_from([*LITERALS[column], *VALUES[column], None])
    kinds = ["compare", "compare", "mirrored", "in", "null", "valid"]
    kinds += ["nan", "nan_null"] * (column in ("float", "double")) + ["starts"] * (column == "string")
    match draw(st.sampled_from(kinds)):
        case "compare":
            return draw(st.sampled_from(OPERATORS))(F(column), draw(literals))
        case "mirrored":
            return draw(st.sampled_from(OPERATORS))(pc.scalar(draw(literals)), F(column))
        case "in":
            values = draw(st.lists(literals, max_size=3))
            kind = next((type(v) for v in values if v is not None), None)
            array = pa.array([v for v in values if v is None or (type(v) is kind and (kind is not int or abs(v) < 2**63))])
            return pc.is_in(F(column), options=pc.SetLookupOptions(array, skip_nulls=draw(st.booleans())))
        case "null":
            return F(column).is_null()
        case "valid":
            return F(column).is_valid()
        case "nan":
            return F(column).is_nan()
        case "nan_null":
            return F(column).is_null(nan_is_null=True)
    return pc.starts_with(F(column), draw(st.sampled_from(TEXTS)))


def expressions(names: Sequence[str]) -> st.SearchStrategy[pc.Expression]:
    return st.recursive(
        leaves(names),
        lambda inner: st.one_of(
            st.builds(operator.and_, inner, inner), st.builds(operator.or_, inner, inner), st.builds(operator.invert, inner)
        ),
        max_leaves=5,
    )


@pytest.mark.thorough
@settings(max_examples=rounds(30, 2_000))
@given(st.data(), st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=2, unique=True))
def test_no_file_with_a_row_that_pyarrow_keeps_is_skipped_and_the_meaning_is_pyarrows(data: st.DataObject, names: list[str]) -> None:
    """pyarrow's own filter is the judge: of the files kept, and of every row wherever all was understood. [RD6] [RD7]"""
    drawn = data.draw(files(names))
    try:
        expression = data.draw(expressions(names))
    except (pa.ArrowException, OverflowError):  # a literal that Arrow itself has no type for
        return
    predicate = parse_expression(expression, pa.schema([(name, TYPES[name]) for name in names]))
    mask = may_match(predicate, Files(drawn)).to_pylist()
    for file, is_kept in zip(drawn, mask, strict=True):
        table = pa.table({name: pa.array(file.columns[name], TYPES[name]) for name in names})
        table = table.append_column("row", pa.array(range(file.rows), pa.int64()))
        try:
            matches = table.filter(expression).column("row").to_pylist()
        except (pa.ArrowException, NotImplementedError):  # Arrow will not compare these
            event("refused by Arrow")
            continue
        assert is_kept or not matches
        event(f"kept: {is_kept}")
        if not _unknowns(predicate):
            truth = Truth(spark=False)
            assert [at for at, row in enumerate(rows_of(file)) if truth(predicate, row) is True] == matches, predicate


def _unknowns(predicate: Predicate) -> bool:
    match predicate:
        case And(args=args) | Or(args=args):
            return any(map(_unknowns, args))
        case Not(arg=arg):
            return _unknowns(arg)
        case Compare(value=float() as value):
            return isinstance(predicate, Unknown) or (predicate.column[0] in ("decimal", "wide") and not math.isnan(value))
    return isinstance(predicate, Unknown)

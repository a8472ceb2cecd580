"""Which partitions a condition has read: never fewer than those in which it can be true. [CF16]"""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.filter.predicate import (
    MAX_PATTERNS,
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
    partitions_of,
)
from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.partitioning import Matcher

SCHEMA = Schema(
    fields=(
        Field(id=1, name="day", type="date"), Field(id=2, name="hour", type="integer"), Field(id=3, name="x", type="long"),
        Field(id=4, name="text", type="string"), Field(id=5, name="sum", type="decimal(5,2)"), Field(id=6, name="at", type="timestamp"),
        Field(id=7, name="local", type="timestamp_ntz"), Field(id=8, name="flag", type="boolean"),
        Field(id=9, name="code", type="string", metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}),
    )
)  # fmt: skip
DAY = dt.date(2013, 1, 1)
NOON = dt.datetime(2013, 1, 1, 12)


def eq(name: str, value: Any) -> Compare:
    return Compare(op="=", column=(name,), value=value)


@pytest.mark.parametrize(
    ("predicate", "read"),
    [
        (eq("day", DAY), ({1: "2013-01-01"},)),
        (eq("day", "2013-01-01"), ({},)),
        (eq("day", "2013-1-1"), ({},)),
        (eq("day", "2013-02-30"), ({},)),
        (eq("day", NOON), ({},)),
        (eq("hour", 3), ({2: 3},)),
        (eq("hour", 3.0), ({2: 3},)),
        (eq("hour", "3"), ({},)),
        (eq("hour", True), ({},)),
        (eq("hour", 2**40), ({},)),
        (eq("text", "a b%+=#'é"), ({4: "a b%+=#'é"},)),
        (eq("text", ""), ({4: ""},)),
        (eq("text", 3), ({},)),
        (eq("sum", Decimal("1.2")), ({5: "1.20"},)),
        (eq("sum", Decimal("1.234")), ({},)),
        (eq("at", NOON.replace(tzinfo=dt.UTC)), ({6: 1357041600000000},)),
        (eq("at", NOON), ({},)),
        (eq("local", NOON), ({7: 1357041600000000},)),
        (eq("flag", True), ({8: True},)),
        (eq("flag", 1), ({},)),
        (eq("code", "a"), ({},)),  # Spark pads it before it compares
        (eq("x", 3), ({},)),
        (eq("day", None), ()),
        (IsNull(column=("day",)), ({1: None},)),
        (IsNull(column=("x",)), ({},)),
        (IsIn(column=("hour",), values=(1, 2, 2)), ({2: 1}, {2: 2})),
        (IsIn(column=("hour",), values=(1, "2")), ({},)),
        (And(args=(eq("day", DAY), eq("x", 3))), ({1: "2013-01-01"},)),
        (And(args=(eq("day", DAY), Unknown(why="a function"), eq("hour", 3))), ({1: "2013-01-01", 2: 3},)),
        (And(args=(eq("hour", 4), eq("hour", 3))), ()),
        (Or(args=(eq("day", DAY), eq("hour", 3))), ({1: "2013-01-01"}, {2: 3})),
        (Or(args=(eq("day", DAY), eq("x", 3))), ({},)),
        (Not(arg=eq("hour", 3)), ({},)),
        (Compare(op="<", column=("hour",), value=3), ({},)),
        (Compare(op="=", column=("day", "hour"), value=3), ({},)),
        (Constant(value=True), ({},)),
        (Constant(value=None), ()),
        (And(args=()), ({},)),
        (Or(args=()), ()),
    ],
)
def test_what_a_condition_has_read(predicate: Predicate, read: tuple[Any, ...]) -> None:
    assert partitions_of(predicate, SCHEMA, (1, 2, 4, 5, 6, 7, 8, 9)) == read


def test_a_condition_on_a_column_that_does_not_partition_has_read_everything() -> None:
    assert partitions_of(eq("hour", 3), SCHEMA, (1,)) == partitions_of(eq("hour", 3), SCHEMA, ()) == ({},)


def test_the_record_stays_small() -> None:
    """As the whole table where a list is too long, as one column's alternatives where all pairs would be."""
    many = IsIn(column=("hour",), values=tuple(range(MAX_PATTERNS + 1)))
    assert partitions_of(many, SCHEMA, (1, 2)) == ({},)
    some = IsIn(column=("hour",), values=tuple(range(MAX_PATTERNS)))
    assert partitions_of(And(args=(some, eq("day", DAY))), SCHEMA, (1, 2))[0] == {1: "2013-01-01", 2: 0}
    days = IsIn(column=("day",), values=(DAY, DAY + dt.timedelta(days=1)))
    assert partitions_of(And(args=(some, days)), SCHEMA, (1, 2)) == ({1: "2013-01-01"}, {1: "2013-01-02"})
    assert partitions_of(Or(args=(some, days)), SCHEMA, (1, 2)) == ({},)


LEAVES = st.one_of(
    st.builds(lambda v: eq("day", v), st.sampled_from([DAY, "2013-01-02", None])),
    st.builds(lambda op, v: Compare(op=op, column=("hour",), value=v), st.sampled_from(["=", "!=", "<", ">="]), st.sampled_from([1, 2])),
    st.builds(lambda v: IsIn(column=("hour",), values=v), st.sampled_from([(1,), (1, 2), ()])),
    st.builds(lambda c: IsNull(column=(c,)), st.sampled_from(["day", "hour"])),
    st.builds(lambda v: eq("x", v), st.sampled_from([1, None])),
    st.sampled_from([Constant(value=True), Constant(value=False), Constant(value=None), Unknown(why="?")]),
    st.sampled_from([StartsWith(column=("day",), prefix="2"), IsNan(column=("x",))]),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a: And(args=tuple(a)), st.lists(inner, max_size=3)),
        st.builds(lambda a: Or(args=tuple(a)), st.lists(inner, max_size=3)),
        st.builds(lambda a: Not(arg=a), inner),
    ),
    max_leaves=8,
)
WORLD = [(day, hour) for day in ("2013-01-01", "2013-01-02", None) for hour in (1, 2, None)]


def outcomes(node: Predicate, day: str | None, hour: int | None) -> set[bool | None]:
    """Every outcome that a row of the partition can have; columns that do not partition may hold anything."""
    match node:
        case And(args=args) | Or(args=args):
            found: set[bool | None] = {isinstance(node, And)}
            for arg in args:
                found = {joined(isinstance(node, And), a, b) for a in found for b in outcomes(arg, day, hour)}
            return found
        case Not(arg=arg):
            return {None if each is None else not each for each in outcomes(arg, day, hour)}
        case Constant(value=value):
            return {value}
        case IsNull(column=(name,)) if name != "x":
            return {(day if name == "day" else hour) is None}
        case Compare(op=op, column=("hour",), value=value):
            return {None if hour is None else {"=": hour == value, "!=": hour != value, "<": hour < value, ">=": hour >= value}[op]}
        case Compare(column=("day",), value=value):
            return {None if day is None or value is None else day == str(value)}
        case Compare(value=None):
            return {None}
        case IsIn(values=values):
            return {None if hour is None else hour in values}
    return {True, False, None}


def joined(every: bool, a: bool | None, b: bool | None) -> bool | None:
    if (not every) in (a, b):
        return not every
    return None if None in (a, b) else every


@given(TREES)
def test_no_partition_in_which_a_row_could_match_is_left_out(tree: Predicate) -> None:
    """What is left out here, another job may write into unseen: its rows would outlive the deletion."""
    matcher = Matcher(partitions_of(tree, SCHEMA, (1, 2)))
    for day, hour in WORLD:
        if True in outcomes(tree, day, hour):
            assert matcher.holds({1: day, 2: hour}), (day, hour)

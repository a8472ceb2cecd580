"""A filter on its way into Spark's tasks is a text of which nothing is executed. [SE2]"""

from __future__ import annotations

import base64
import json
import os
import pickle
from datetime import UTC, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

import manifestcommit as mc
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
    parse_predicate,
    spell_predicate,
)
from manifestcommit.format.fields import Field, Schema

LITERALS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(st.characters(), max_size=5),
    st.binary(max_size=5),
    st.decimals(allow_nan=False),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-9, minutes=-30))])).map(lambda each: each.replace(fold=0)),
    st.timedeltas(),
)
COLUMNS = st.lists(st.text(st.characters(), max_size=4), min_size=1, max_size=3).map(tuple)
LEAVES: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(Compare, op=st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), column=COLUMNS, value=LITERALS),
    st.builds(IsIn, column=COLUMNS, values=st.lists(LITERALS, max_size=3).map(tuple)),
    st.builds(IsNull, column=COLUMNS),
    st.builds(IsNan, column=COLUMNS),
    st.builds(StartsWith, column=COLUMNS, prefix=st.text(max_size=3)),
    st.builds(Constant, value=st.sampled_from([True, False, None])),
    st.builds(Unknown, why=st.text(max_size=3)),
)
PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(And, args=st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, args=st.lists(inner, max_size=3).map(tuple)),
        st.builds(Not, arg=inner),
    ),
    max_leaves=5,
)


@given(PREDICATES)
@example(Compare(op="=", column=("\ud800 %'\"",), value="\ud800\0"))
@example(Compare(op="=", column=("f",), value=float("-inf")))
@example(Compare(op="=", column=("f",), value=-0.0))
def test_a_predicate_comes_back_as_it_was(predicate: Predicate) -> None:
    """Each literal with its type: True is not 1, and a day is not its midnight. [SE2]"""
    found = parse_predicate(spell_predicate(predicate))
    assert found == predicate and repr(found) == repr(predicate)


def test_what_is_not_a_number_comes_back_as_such() -> None:
    """[SE2]"""
    for value in (float("nan"), Decimal("NaN")):
        assert repr(parse_predicate(spell_predicate(Compare(op="=", column=("f",), value=value))).value) == repr(value)  # type: ignore[union-attr]


def test_a_literal_of_another_type_excludes_no_row() -> None:
    """[SE2] [RD6]"""
    other: Predicate = Not(arg=Or(args=(Compare(op="=", column=("a",), value=object()), Constant(value=True))))
    assert isinstance(parse_predicate(spell_predicate(other)), Unknown)


def compare(op: Any = "=", column: Any = ("a",), value: Any = 1) -> dict[str, Any]:
    return {"type": "Compare", "op": op, "column": column, "value": value}


HOSTILE_NODES: list[Any] = [
    None, 1, "and", {}, [], {"type": "eval", "args": []}, {"type": "And", "args": [1]}, {"type": "Not"}, {"type": "Constant", "value": 1},
    {"type": "Constant", "value": "True"}, compare(op="in"), compare(column="a"), compare(column=[]), compare(column=[1]),
    compare(value={"bytes": 1}), compare(value={"date": "x"}), compare(value={"Decimal": "x"}), compare(value={"timedelta": str(2**90)}),
    {"type": "IsIn", "column": ["a"], "values": 1}, {"type": "StartsWith", "column": ["a"], "prefix": 1}, {"type": "Unknown", "why": None},
    {"type": "IsNull"},
]  # fmt: skip


@pytest.mark.parametrize("node", HOSTILE_NODES, ids=str)
def test_a_text_that_is_no_predicate_is_an_error_of_ours(node: Any) -> None:
    """[SE2]"""
    for text in (json.dumps(node), json.dumps({"type": "Not", "arg": node})):
        with pytest.raises(mc.errors.UsageError, match="no predicate"):
            parse_predicate(text)


@pytest.mark.parametrize("text", ["", "{", "\0", '{"type":"Not","arg":' * 100_000 + "1", '["int"', "\ud800"])
def test_what_is_no_json_is_an_error_of_ours(text: str) -> None:
    """[SE2]"""
    with pytest.raises(mc.errors.UsageError, match="no predicate"):
        parse_predicate(text)


# --- the option ---------------------------------------------------------------------------------------------------------
class Executed:
    """Makes a folder where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def packed(**members: Any) -> str:
    plan = {"url": "file:///nowhere", "files": [], "schema": Schema(fields=(Field(id=1, name="a", type="long"),)), "columns": None}
    return base64.b64encode(zstandard.ZstdCompressor().compress(msgspec.json.encode(plan | members))).decode()


def test_an_option_of_the_reader_executes_nothing(tmp_path: Path) -> None:
    """Whoever may set an option, such as a user of a notebook server, could run code as the one who reads. [SE2]"""
    from manifestcommit.spark.scan import PlannedRead

    marker = tmp_path / "executed"
    bomb = pickle.dumps(Executed(str(marker)))
    predicate = Compare(op="=", column=("a",), value=1)
    good = PlannedRead({"plan": packed(predicate=spell_predicate(predicate))})
    assert good.reader(good.schema()) is not None, "a plan as this test makes them is one"
    for option in (
        packed(predicate=bomb),
        packed(predicate=base64.b64encode(bomb).decode()),
        packed(predicate=bomb.decode("latin-1")),
        base64.b64encode(bomb).decode(),
        base64.b64encode(zstandard.ZstdCompressor().compress(bomb)).decode(),
        packed(url=5),
        "",
        "\ud800",
    ):
        source = PlannedRead({"plan": option})
        with pytest.raises(mc.errors.UsageError):
            source.reader(source.schema())
    with pytest.raises(mc.errors.UsageError, match="read_committed"):
        PlannedRead({}).schema()
    assert not marker.exists()

"""Literals of PARTITION, and types of columns. No Spark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from manifestcommit.errors import UsageError
from manifestcommit.format.fields import Field, Schema
from manifestcommit.spark_sql.execution import replaced_partitions
from manifestcommit.spark_sql.statements import Insert

HOSTILE = "a b%20c+d=e#f`é漢{x}--;\\"


def value_of(kind: Any, text: str) -> Any:
    """What INSERT OVERWRITE … PARTITION (`a b` = text) replaces in a column of this type."""
    statement = Insert(target=("t",), query="select 1", overwrite=True, partition=(("a b", text),))
    return replaced_partitions(statement, Schema(fields=(Field(id=1, name="a b", type=kind),)), dynamic=False)["a b"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", "'007'", "007"),
        ("string", f"'{HOSTILE[:-1]}'", HOSTILE[:-1]),
        ("string", '"it\'s"', "it's"),
        ("string", "''", ""),
        ("string", "null", None),
        ("byte", "-128", -128),
        ("short", "'32767'", 32767),
        ("integer", "007", 7),
        ("integer", "- 2147483648", -2147483648),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("date", "'2013-01-31'", dt.date(2013, 1, 31)),
        ("date", "DATE '2013-01-31'", dt.date(2013, 1, 31)),
        ("boolean", "True", True),
        ("boolean", "FALSE", False),
        ("boolean", "NULL", None),
    ],
)
def test_a_literal_is_a_value_of_its_column(kind: str, text: str, expected: Any) -> None:
    """[SP48]"""
    found = value_of(kind, text)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("string", "007"),
        ("string", "TRUE"),
        ("string", "DATE '2013-01-31'"),
        ("string", "-'a'"),
        ("string", "'a' 'b'"),
        ("string", f"'{HOSTILE}'"),
        ("byte", "128"),
        ("byte", "-129"),
        ("short", "32768"),
        ("integer", "99999999999"),
        ("integer", "-2147483649"),
        ("integer", "'1_000'"),
        ("integer", "1_000"),
        ("integer", "' 1'"),
        ("integer", "'١'"),
        ("integer", "'--1'"),
        ("integer", "1.0"),
        ("integer", "1L"),
        ("integer", "TRUE"),
        ("long", "9223372036854775808"),
        ("long", "'99999999999999999999'"),
        ("date", "'20240105'"),
        ("date", "20240105"),
        ("date", "'2024-W01-1'"),
        ("date", "'2024-1-5'"),
        ("date", "'2024-02-30'"),
        ("date", "DATE 'today'"),
        ("date", "DATE NULL"),
        ("boolean", "1"),
        ("boolean", "'true'"),
        ("double", "1.5"),
        ("decimal(3,1)", "1.5"),
    ],
)
def test_a_literal_that_does_not_fit_is_refused(kind: str, text: str) -> None:
    """[SP48] [SP49] Whatever Spark or Python would make of it."""
    with pytest.raises(UsageError, match="nothing was done"):
        value_of(kind, text)

"""Errors of a wrong call name the public class, the argument as it was given, and nothing private."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import manifestcommit as mc

ROWS = pa.table({"flight": [1545]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    mc.write(ROWS, tmp_path / "t")
    return str(tmp_path / "t")


def test_an_unknown_name_of_the_package_has_pythons_own_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'manifestcommit' has no attribute 'never_was'$"):
        mc.never_was  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("called", "told"),
    [
        (lambda table: table.read("x"), r"^Table\.read\(\)"),
        (lambda table: table.delete(), r"^Table\.delete\(\): missing .*'where'"),
        (lambda table: table.watermarks(1), r"^Table\.watermarks\(\)"),
        (lambda table: table.jobs(1), r"^Table\.jobs\(\)"),
        (lambda table: mc.Table(), r"^Table\(\): missing .*'path'"),
    ],
)
def test_a_wrong_call_names_the_public_class(path: str, called: Callable[[mc.Table], object], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        called(mc.Table(path))


@pytest.mark.parametrize("called", [lambda t, c: t.to_arrow(filter=c), lambda t, c: t.files(c)], ids=["to_arrow", "files"])
def test_an_unknown_column_is_said_with_the_arguments_name(path: str, called: Callable[[mc.Table, pc.Expression], object]) -> None:
    with pytest.raises(mc.errors.UsageError, match=r"^filter names the column 'nope', which the table does not have"):
        called(mc.Table(path), pc.field("nope") > 1)

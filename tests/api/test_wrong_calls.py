"""Errors of a wrong call name the public class, the argument as it was given, and nothing private."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import manifestcommit as mc

REPO = Path(__file__).resolve().parents[2]
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


@pytest.mark.thorough
def test_simulated_clocks_are_not_logged() -> None:
    """The theme sets clocks hours apart, of which the library would warn."""
    command = [sys.executable, "-m", "tests.simulator", "--seeds", "0:30"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0 and "no violation" in done.stdout and done.stderr == ""

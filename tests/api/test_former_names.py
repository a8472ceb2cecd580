"""Names that were in use before: the error of an old one says the new one, in Python, in Spark's options and on the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.former_names import FORMER

REPO = Path(__file__).resolve().parents[2]
ROWS = pa.table({"flight": [1545]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    mc.write(ROWS, tmp_path / "t")
    return str(tmp_path / "t")


def job_of(path: str) -> mc.Job:
    job = mc.begin(path)
    job.abort()
    return job


MADE: dict[str, Callable[[str], object]] = {
    "manifestcommit": lambda _: mc,
    "Table": mc.Table,
    "Job": job_of,
    "Outcome": lambda path: mc.write(ROWS, path),
}


@pytest.mark.parametrize(("where", "old"), [(where, old) for where in MADE for old in FORMER[where]])
def test_an_old_attribute_names_the_new_one(path: str, where: str, old: str) -> None:
    owner, new = MADE[where](path), FORMER[where][old]
    with pytest.raises(AttributeError, match=f"no attribute '{old}'; {old} is now {new}$"):
        getattr(owner, old)
    assert hasattr(owner, new) and not hasattr(owner, old)


@pytest.mark.parametrize("where", MADE)
def test_a_name_that_never_was_has_pythons_own_error(path: str, where: str) -> None:
    owner = MADE[where](path)
    with pytest.raises(AttributeError, match=r"has no attribute 'never_was'$"):
        owner.never_was  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("called", [mc.gc, mc.write, mc.begin, mc.create_table], ids=lambda called: called.__name__)
def test_an_old_argument_names_the_new_one(path: str, called: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"\(\): .*; df_path is now path$"):
        called(df_path=path)


COMMANDS = [
    *(([old, "."], f"; {old} is now {new}") for old, new in FORMER["command"].items()),
    (["tag", ".", "x", "--delete"], "; --delete is now the command untag"),
    (["compact", ".", "--manifests"], "; --manifests is now --only-manifests"),
]


@pytest.mark.parametrize(("arguments", "told"), COMMANDS, ids=lambda each: each if isinstance(each, str) else " ".join(each))
def test_an_old_command_names_the_new_one(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and capsys.readouterr().err.rstrip().endswith(told)


def test_every_new_command_and_option_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for new in FORMER["command"].values():
        with pytest.raises(SystemExit) as ended:
            main([new, "--help"])
        assert ended.value.code == 0
    with pytest.raises(SystemExit):
        main(["compact", "--help"])
    assert "--only-manifests" in capsys.readouterr().out


def test_every_new_option_of_spark_is_one() -> None:
    from manifestcommit.spark.datasource import source

    assert {*FORMER["Spark option"].values()} <= {*source.READ_OPTIONS}
    assert not {*FORMER["Spark option"]} & {*source.READ_OPTIONS, *source.WRITE_OPTIONS}


# --- errors of a wrong call --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "told"),
    [
        (lambda table: table.read("x"), r"^Table\.read\(\)"),
        (lambda table: table.delete(), r"^Table\.delete\(\): missing .*'where'"),
        (lambda table: table.watermarks(1), r"^Table\.watermarks\(\)"),
        (lambda table: table.drop_removed(1), r"^Table\.drop_removed\(\)"),
        (lambda table: table.jobs(1), r"^Table\.jobs\(\)"),
        (lambda table: mc.Table(), r"^Table\(\): missing .*'path'"),
    ],
)
def test_a_wrong_call_names_the_public_class(path: str, called: Callable[[mc.Table], object], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        called(mc.Table(path))


@pytest.mark.parametrize("called", [lambda t, c: t.to_arrow(filter=c), lambda t, c: t.files(c)], ids=["to_arrow", "files"])
def test_an_unknown_column_is_said_with_the_arguments_name(path: str, called: Callable[[mc.Table, pc.Expression], object]) -> None:
    with pytest.raises(mc.UsageError, match=r"^filter names the column 'nope', which the table does not have"):
        called(mc.Table(path), pc.field("nope") > 1)


def test_simulated_clocks_are_not_logged() -> None:
    """The theme sets clocks hours apart, of which the library would warn."""
    command = [sys.executable, "-m", "manifestcommit.testing", "simulate", "--seeds", "0:30"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0 and "no violation" in done.stdout and done.stderr == ""

"""Every command on a terminal, as it was when someone last looked at it. `python -m tests.cli.golden_outputs` rewrites the files."""

import pytest
from tests.cli.golden_outputs import CASES, FOLDER, PLAIN, WIDTH, document

from manifestcommit.cli.main import make_parser
from manifestcommit.terminal import text_width

COMMANDS = make_parser().commands


@pytest.mark.parametrize("name", [*CASES, "several-tables", *PLAIN])
def test_a_command_shows_what_it_did(name: str) -> None:
    assert document(name) == (FOLDER / f"{name}.txt").read_text("utf-8"), "python -m tests.cli.golden_outputs; then look at the difference"


def test_every_command_has_a_file() -> None:
    assert {*CASES, *PLAIN} == set(COMMANDS.parsers) == {path.stem for path in FOLDER.glob("*.txt")} - {"several-tables"}


@pytest.mark.parametrize("name", [*CASES, "several-tables"])
def test_tables_fit_and_nothing_hostile_is_sent(name: str) -> None:
    """Lines of tables, that is: sentences are left to the terminal. [LY1]"""
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    assert all(each.isprintable() or each == "\n" for each in text)
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if set(line) == {"─"}:
            names = lines[at - 1].removeprefix("Continue? [y/N] ")  # whose line the answer ends on a real terminal
            assert text_width(line) <= WIDTH and text_width(names) <= WIDTH

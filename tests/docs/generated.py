"""The parts of pages that are made from the code when the site is built: the command line, from the parser's help."""

import argparse
import os
import re
from collections.abc import Callable, Mapping
from unittest import mock

from manifestcommit.cli.main import EXAMPLES, make_parser

WIDTH = "86"  # of a block of code on the site, without scrolling


def command_line() -> str:
    """Tables of all commands by group, then each command's help as argparse prints it."""
    commands = make_parser().commands
    tables = [
        "\n".join([f"| {group} | |", "|---|---|", *(f"| [`{name}`](#{name}) | {what} |" for name, what in members.items())])
        for group, members in commands.groups.items()
    ]
    examples = f"```text\n{EXAMPLES}\n```"
    with mock.patch.dict(os.environ, {"COLUMNS": WIDTH}):
        parts = [f"## {name}\n\n{_help(command)}" for name, command in commands.parsers.items()]
    return "\n\n".join([*tables, examples, *parts])


def _help(parser: argparse.ArgumentParser) -> str:
    return "```text\n" + re.sub(r"\x1b\[[0-9;]*m", "", parser.format_help()).rstrip() + "\n```"


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """The text of a page with these tables, each in place of the only one whose first line begins in the same way."""
    for head, table in tables.items():
        found = re.findall(rf"^{re.escape(head)}.*\n(?:\|.*\n)+", text, re.MULTILINE)
        assert len(found) == 1, f"{len(found)} tables begin with {head!r}"
        text = text.replace(found[0], table)
    return text


PAGES: Mapping[str, Callable[[], str]] = {"command_line": command_line}

"""The parts of pages that are made from the code when the site is built: the command line, from the parser's help."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping
from unittest import mock

from manifestcommit.cli.parser import make_parser

WIDTH = "86"  # of a block of code on the site, without scrolling


def command_line() -> str:
    """A table of all commands, then each command's help as argparse prints it."""
    parser = make_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    table = ["| command | |", "|---|---|"]
    table += [f"| [`{choice.dest}`](#{choice.dest}) | {choice.help} |" for choice in commands._choices_actions]
    examples = f"```text\n{(parser.epilog or '').strip()}\n```"
    with mock.patch.dict(os.environ, {"COLUMNS": WIDTH}):
        parts = [f"## {name}\n\n{_help(command)}" for name, command in commands.choices.items()]
    return "\n\n".join(["\n".join(table), examples, *parts])


def _help(parser: argparse.ArgumentParser) -> str:
    return "```text\n" + re.sub(r"\x1b\[[0-9;]*m", "", parser.format_help()).rstrip() + "\n```"


PAGES: Mapping[str, Callable[[], str]] = {"command_line": command_line}

"""The parts of pages that are made from the code when the site is built: the command line's help, errors, properties."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping

from manifestcommit.cli.main import _parser


def command_line() -> str:
    """Every command's help, as argparse prints it."""
    os.environ["COLUMNS"] = "100"
    parser = _parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    parts = [_help(parser)]
    for name, command in commands.choices.items():
        parts.append(f"## {name}\n\n{command.description}\n\n{_help(command)}")
    return "\n\n".join(parts)


def _help(parser: argparse.ArgumentParser) -> str:
    return "```text\n" + re.sub(r"\x1b\[[0-9;]*m", "", parser.format_help()).rstrip() + "\n```"


PAGES: Mapping[str, Callable[[], str]] = {"command_line": command_line}

"""What all commands share: the path, the store's options, and which version is meant.

Not here: the commands themselves (cli.queries, cli.jobs and their neighbours).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..table import Table

Run = Callable[[argparse.Namespace], int]


def add_command(commands: Any, name: str, run: Run, what: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    command.add_argument("path", metavar="PATH", help="the table's root: a local path or a URL")
    command.add_argument("--json", action="store_true", help="one JSON document on standard output")
    command.add_argument(
        "--storage-options",
        metavar="FILE",
        help="a JSON file with the store's options: endpoint, secrets and so on",
    )
    # the list to which the command's own are added
    command.set_defaults(run=run, open_table=table_of, actions=command._actions)
    return command


def add_choice(command: argparse.ArgumentParser) -> None:
    choice = command.add_mutually_exclusive_group()
    choice.add_argument(
        "--version", type=positive, metavar="N", help="this version instead of the newest"
    )
    choice.add_argument(
        "--as-of",
        metavar="TIME",
        help="the version that was newest then, such as 2013-01-31T12:00:00Z",
    )
    choice.add_argument("--tag", metavar="NAME", help="the version with this tag")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on, not {text!r}")
    return int(text)


def table_of(options: argparse.Namespace) -> Table:
    from ..table import Table  # late: `--version` and `--help` need no pyarrow

    return Table(options.path, storage_options_of(options.storage_options))


def storage_options_of(file: str | None) -> dict[str, Any] | None:
    """What the file holds. Neither its content nor its name is ever repeated: who mistook the
    option may have written a secret there."""
    if file is None:
        return None
    try:
        with open(file, "rb") as stream:
            given = json.load(stream)
    except OSError as error:
        raise UsageError(
            "invalid --storage-options: expected the name of a JSON file, which cannot be read: "
            f"{error.strerror}"
        ) from None
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or no name of a file at all
        given = None
    if not isinstance(given, dict):
        raise UsageError(
            "invalid --storage-options: expected the name of a file with one JSON object, such as "
            '{"endpoint_url": …}'
        )
    return given


def chosen(options: argparse.Namespace) -> dict[str, Any]:
    return {"version": options.version, "as_of": options.as_of, "tag": options.tag}

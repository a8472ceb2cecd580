"""What all commands share: how one is added, the path, the store's options, the version."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .exit_codes import answers_no

if TYPE_CHECKING:
    from ..log.table_context import TableContext
    from ..table import Table

Run = Callable[[argparse.Namespace], int]
FORMATS = ("table", "json", "jsonl", "csv")


class Commands:
    """The verbs by group, as the help shows them."""

    def __init__(self, parsers: Any) -> None:
        self._parsers = parsers
        self.parsers: dict[str, argparse.ArgumentParser] = {}
        self.groups: dict[str, dict[str, str]] = {}
        self.group = ""

    def begin(self, group: str) -> None:
        """What is added next belongs to this group."""
        self.group = group

    def add_plain(
        self, name: str, run: Run, what: str, examples: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """A command that is about no table."""
        shown = "".join(f"\n  manifestcommit {each}" for each in examples)
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            help=what,  # for completion; the help itself shows groups
            prog=f"manifestcommit {name}",
            description=f"{what[0].upper()}{what[1:]}.",
            epilog=f"examples:{shown}" if shown else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(
            run=run, command=name, parser=parser, commands=self, actions=parser._actions
        )
        self.parsers[name] = parser
        self.groups.setdefault(self.group, {})[name] = what
        return parser

    def add(
        self, name: str, run: Run, what: str, examples: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """A command about one table."""
        if no := answers_no(name):
            what = f"{what}; exit status 1 {no}"
        command = self.add_plain(name, run, what, examples)
        command.add_argument("path", metavar="PATH", help="the table path: a local path or a URL")
        common = command.add_argument_group("options of every command")
        common.add_argument(
            "--format",
            choices=FORMATS,
            default="table",
            help="table: for people; json: one document; jsonl: one line a row; csv",
        )
        common.add_argument(
            "--json",
            action="store_const",
            dest="format",
            const="json",
            help="one JSON document on standard output, as --format json",
        )
        common.add_argument("--bytes", action="store_true", help="exact sizes, such as 1,048,576")
        common.add_argument(
            "--storage-options",
            metavar="FILE",
            help="a JSON file with the store's options: endpoint, secrets and so on",
        )
        return command


def add_choice(command: argparse.ArgumentParser) -> None:
    """Options that choose one version."""
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


def add_alone(command: argparse.ArgumentParser) -> None:
    """Let a command undo a joint commit in its table only. [MT14]"""
    command.add_argument(
        "--alone",
        action="store_true",
        help="undo also what was committed in several tables by one commit, here only",
    )


def add_note(command: argparse.ArgumentParser) -> None:
    """What a command that commits takes for the commit's record; `note_of` returns it."""
    command.add_argument("--message", metavar="TEXT", help="what for; recorded in the history")
    command.add_argument(
        "--metadata",
        action="append",
        type=_pair,
        metavar="NAME=VALUE",
        help="recorded in the history, such as git=4d6b4d9; may be given again; no secrets",
    )


def note_of(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments `message` and `metadata` of the call."""
    pairs = options.metadata or []
    if len(dict(pairs)) < len(pairs):
        raise UsageError("a name is given twice; nothing was done", argument="--metadata")
    return {"message": options.message, "metadata": dict(pairs) or None}


def check_note(options: argparse.Namespace) -> None:
    """Refuse a note that cannot be recorded before the command runs: one that has to be confirmed
    repeats what was typed. [SE5]"""
    if "metadata" not in options or not (options.metadata or options.message is not None):
        return
    from ..runtime import validation  # late: `--help` needs no pyarrow

    note = note_of(options)
    if note["message"] is not None:
        validation.message("message", note["message"])
    validation.metadata("metadata", note["metadata"] or {})


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError("expected NAME=VALUE")  # not repeated: it may be a secret
    return name, value


def positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on, not {text!r}")
    return int(text)


def table_of(options: argparse.Namespace, path: str | None = None) -> Table:
    """The table of a command. path: of another one that the command is about, too."""
    from ..table import Table  # late: `--version` and `--help` need no pyarrow

    chosen = options.path if path is None else path
    return Table(chosen, storage_options_of(options.storage_options))


def context_of(options: argparse.Namespace, path: str | None = None) -> TableContext:
    """For what only the engine does: plans of changes."""
    from ..log.table_context import TableContext
    from ..store import open_store

    chosen = options.path if path is None else path
    return TableContext(open_store(chosen, storage_options_of(options.storage_options)))


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
            f"expected the name of a JSON file, which cannot be read: {error.strerror}",
            argument="--storage-options",
        ) from None
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or no name of a file at all
        given = None
    if not isinstance(given, dict):
        raise UsageError(
            'expected the name of a file with one JSON object, such as {"endpoint_url": …}',
            argument="--storage-options",
        )
    return given


def chosen(options: argparse.Namespace) -> Mapping[str, Any]:
    return {"version": options.version, "as_of": options.as_of, "tag": options.tag}

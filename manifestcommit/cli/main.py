"""The `manifestcommit` command: a table for people, or one JSON document on standard output with
--json. Prose and progress go to standard error.
"""

from __future__ import annotations

import argparse
import difflib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import NoReturn

from ..display import visible
from ..errors import ManifestCommitError
from ..version import __version__
from . import change_table, erase, inspect_table, jobs, lake, load_table, maintain_table, upkeep
from . import options as shared
from .options import DONE, INTERRUPTED, USAGE, Commands, EndedError, Options, command

_GROUPS = {
    "inspect": (inspect_table,),
    "load": (load_table,),
    "jobs": (jobs,),
    "change": (change_table, erase),
    "maintain": (upkeep, maintain_table),
    "lake": (lake,),
    "help": (sys.modules[__name__],),
}
EXAMPLES = """examples:
  manifestcommit history /lake/flights               what was committed, newest first
  manifestcommit head /lake/flights -n 5             a few rows
  manifestcommit files /lake/flights --version 3     which files version 3 lists
  manifestcommit load /lake/orders /landing/orders   files that landed, each once
  manifestcommit rollback /lake/flights 3 --reason 'wrong rates' --dry-run
                                                     what a rollback would do
  manifestcommit doctor s3://bucket/lake             whether commits are safe there
  manifestcommit help gc                             all about one command

Changes that only gc could make final are asked about: --dry-run says what they would do,
--yes confirms them in scripts.
Secrets come from the environment or from the file of --storage-options, never from an argument."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments, and what may have been meant, without repeating
    escapes or credentials that are in them."""

    commands: Commands | None = None

    def format_help(self) -> str:
        self.description = textwrap.fill(" ".join((self.description or "").split()), _room())
        if self.commands is not None:
            self.epilog = "\n\n".join([_grouped(self.commands), EXAMPLES, exit_codes()])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        text = re.sub(r"://[^@'\s]*@", "://...@", message)
        choice = re.search(r"invalid choice: '([^']*)'", message)
        if choice and "COMMAND" in message and self.commands is not None:
            shown = re.sub(r"://[^@]*@", "://...@", choice[1])
            text = f"there is no command '{shown}'"
            text += meant(choice[1], self.commands.parsers)
        end = "" if text.endswith("?") else "."
        self.exit(USAGE, f"{self.prog}: error: {visible(text)}{end} See {self.prog} --help.\n")

    def unknown(self, arguments: Iterable[str]) -> NoReturn:
        """Arguments that no option or position takes."""
        given = list(arguments)
        known = [name for action in self._actions for name in action.option_strings]
        text = f"unrecognized arguments: {' '.join(given)}"
        for each in given:
            name = each.partition("=")[0]
            text += meant(name, known) if name.startswith("--") else ""
        self.error(text)


def meant(word: str, known: Iterable[str]) -> str:
    """What an error adds where a word is close to one that there is."""
    near = difflib.get_close_matches(word, list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def make_parser() -> Parser:
    parser = Parser(
        prog="manifestcommit",
        usage="manifestcommit [-h] [--version] COMMAND PATH [options]",
        description=(
            "Look into tables that manifestcommit publishes, finish what jobs have left, set "
            "back, delete rows, compact, clean up."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"manifestcommit {__version__}")
    made = parser.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    parser.commands = commands = Commands(made)
    for group, modules in _GROUPS.items():
        for declared in (each for module in modules for each in shared.DECLARED[module.__name__]):
            commands.add(group, declared)
    return parser


def exit_codes() -> str:
    lines = [f"  {code:<4} {meaning}" for code, meaning in shared.MEANINGS.items()]
    return "\n".join(["exit status:", *lines])


def _room() -> int:
    return max(shutil.get_terminal_size().columns - 2, 40)


def _grouped(commands: Commands) -> str:
    """The commands by group, as wide as the terminal."""
    longest = max(map(len, commands.parsers)) + 2
    parts = []
    for group, members in commands.groups.items():
        lines = [f"{group}:"]
        for name, what in members.items():
            first, rest = f"  {name:<{longest}}", " " * (longest + 2)
            lines += textwrap.wrap(what, _room(), initial_indent=first, subsequent_indent=rest)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


@command(
    """
    help: all about one command, or all commands
    [COMMAND]  default: all commands
    $ help gc
    """,
    about_table=False,
)
def _help(options: Options) -> None:
    if options.verb is None:
        options.top.print_help()
    elif options.verb in options.commands.parsers:
        options.commands.parsers[options.verb].print_help()
    else:
        options.top.parse_args([options.verb])  # says that there is none, and what may be meant


def main(arguments: Sequence[str] | None = None) -> int:
    """shared.Run one command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal without unicode is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    parser = make_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.unknown(unknown)
    options.top = parser
    if getattr(options, "json", False):
        options.format = "json"
    try:
        shared.check_reason(options)
        try:
            status: int = options.run(options) or DONE
        except EndedError as ended:
            status = ended.status
        sys.stdout.flush()  # a closed pipe shows here, not when the interpreter ends
        return status
    except ManifestCommitError as error:
        print(f"manifestcommit: {visible(shared.as_typed(error, options))}", file=sys.stderr)
        return shared.exit_code(type(error))
    except KeyboardInterrupt as error:
        lines = ["manifestcommit: interrupted", *getattr(error, "__notes__", ())]
        print("\n".join(lines), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


if __name__ == "__main__":
    sys.exit(main())

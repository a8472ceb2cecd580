"""`manifestcommit help` and `completion`: both are made from the parser."""

from __future__ import annotations

import argparse

from ..errors import UsageError
from ..version import install
from .options import Commands

_SHELLS = ("bash", "zsh")


def add_commands(commands: Commands) -> None:
    """Register the commands."""
    shown = commands.add_plain("help", _help, "all about one command, or all commands", ["help gc"])
    shown.add_argument("verb", metavar="COMMAND", nargs="?", help="default: all commands")
    completion = commands.add_plain(
        "completion",
        _completion,
        "print a script by which a shell completes commands, options and files",
        [
            "completion bash > ~/.local/share/bash-completion/completions/manifestcommit",
            "completion zsh > ~/.zfunc/_manifestcommit",
        ],
    )
    completion.add_argument("shell", choices=_SHELLS, help="bash, or zsh")


def _help(options: argparse.Namespace) -> int:
    if options.verb is None:
        options.top.print_help()
    elif options.verb in options.commands.parsers:
        options.commands.parsers[options.verb].print_help()
    else:
        options.top.parse_args([options.verb])  # says that there is none, and what may be meant
    return 0


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab  # late: it is an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"completion needs shtab, which is not installed: {install('completion')}"
        ) from error
    for action in options.top._actions:
        if action.metavar == "COMMAND":
            action.help = "the command"  # the help shows groups instead, which hides it from shtab
    for parser in options.commands.parsers.values():
        for action in parser._actions:
            if action.metavar == "PATH" or action.dest in ("storage_options", "ends", "output"):
                action.complete = shtab.FILE
    print(shtab.complete(options.top, shell=options.shell))
    return 0

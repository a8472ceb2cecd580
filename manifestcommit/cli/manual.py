"""`manifestcommit help`, `man` and `completion`: what can be read about the command, and what
shells complete. All of it is made from the parser.

Not here: the help of a command itself (cli.parser).
"""

from __future__ import annotations

import argparse
import re

from ..errors import UsageError
from ..version import __version__
from .exit_codes import MEANINGS
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
    commands.add_plain(
        "man",
        _man,
        "print the manual page",
        ["man > ~/.local/share/man/man1/manifestcommit.1", "man | man -l -"],
    )


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
            "completion needs shtab, which is not installed: pip install "
            "'manifestcommit[completion]'"
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


def _man(options: argparse.Namespace) -> int:
    top, commands = options.top, options.commands
    lines = [
        f'.TH MANIFESTCOMMIT 1 "" "manifestcommit {_roff(__version__)}" "User Commands"',
        ".SH NAME",
        "manifestcommit \\- look into tables of Parquet files, and change them safely",
        ".SH SYNOPSIS",
        ".B manifestcommit",
        "COMMAND PATH [OPTIONS]",
        ".SH DESCRIPTION",
        _roff(top.description),
        "Changes that only gc could make final are asked about:",
        "\\-\\-dry\\-run says what they would do, \\-\\-yes confirms them in scripts.",
    ]
    for group, names in commands.groups.items():
        lines.append(f".SH {group.upper()} COMMANDS")
        for name in names:
            lines += _of_command(name, commands.parsers[name])
    lines.append(".SH EXIT STATUS")
    for code, meaning in MEANINGS.items():
        lines += [".TP", f".B {code}", _roff(meaning)]
    lines += [".SH ENVIRONMENT", ".TP", ".B NO_COLOR", "no colour, if it is set"]
    print("\n".join(lines))
    return 0


def _of_command(name: str, parser: argparse.ArgumentParser) -> list[str]:
    usage = re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage: "))
    lines = [f".SS {_roff(name)}", _roff(usage), ".PP", _roff(parser.description or "")]
    for action in parser._actions:
        if action.help in (None, argparse.SUPPRESS):
            continue
        value = "" if action.nargs == 0 or not action.option_strings else f" {_value(action)}"
        names = ", ".join(action.option_strings) or _value(action)
        lines += [".TP", f".B {_roff(names + value)}", _roff(action.help or "")]
    if parser.epilog:
        lines += [".PP", ".nf", *map(_roff, parser.epilog.splitlines()), ".fi"]
    return lines


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest)


def _roff(text: str) -> str:
    """The text as it is: neither a request nor an escape of roff."""
    escaped = text.strip("\n").replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped

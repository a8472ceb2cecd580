"""What all commands share: how one is declared, the path, the store's options, the version; and the
exit codes, one table for the code, the help and the page.
"""

from __future__ import annotations

import argparse
import json
import keyword
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from .. import errors
from ..errors import ManifestCommitError, UsageError, invalid

if TYPE_CHECKING:
    from ..table import Table

DONE, NO, USAGE, UNANSWERED, INTERRUPTED = 0, 1, 2, 3, 130

MEANINGS: Mapping[int, str] = {
    DONE: "done",
    NO: "the answer is no: a conflict, damage, a refused confirmation",
    USAGE: "wrong usage, or a change that nobody confirmed; nothing was changed",
    UNANSWERED: "it could not be answered: no such table or version, or the store failed",
    INTERRUPTED: "interrupted",
}
# Errors by which the answer is no.
_NO = (
    *(errors.CommitConflictError, errors.CheckFailedError, errors.ConstraintError),
    *(errors.JobAbortedError, errors.JobFencedError, errors.KeyReusedError),
    *(errors.UnsafeStoreError, errors.WatermarkError),
)


def exit_code(error: type[ManifestCommitError]) -> int:
    if issubclass(error, UsageError):
        return USAGE
    return NO if issubclass(error, _NO) else UNANSWERED


Options: TypeAlias = argparse.Namespace
Run = Callable[[Options], int | None]  # the exit status, if it may be another than 0


class EndedError(Exception):
    """Ends a command where it is, with this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


# What several commands take, by the word for it.
SHARED = {
    "@common": """
        options of every command:
        --format table|json|jsonl|csv  table: for people; json: one document; jsonl: one line a row;
            csv
        --json  one JSON document on standard output, as --format json
        --bytes  exact sizes, such as 1,048,576
        --storage-options FILE  a JSON file with the store's options: endpoint, secrets and so on
    """,
    "@choice": """
        | --version N  this version instead of the newest
        | --as-of TIME  the version that was newest then, such as 2013-01-31T12:00:00Z
        | --tag NAME  the version with this tag
    """,
    "@alone": """
        --alone  undo also what was committed in several tables by one commit, here only
    """,
    "@dry-run": """
        --dry-run  say what it would do, in numbers, and change nothing
    """,
    "@yes": """
        -y, --yes  go ahead without a question, as scripts do
    """,
    "@note": """
        --message TEXT  what for; recorded in the history
        --metadata NAME=VALUE*  recorded in the history, such as git=4d6b4d9; may be given again;
            no secrets
    """,
}
_PATH = "PATH  the table path: a local path or a URL"
_DESTINATIONS = {
    "JOB": "job_id",
    "NEW": "new_name",
    "TEXT": "comment",
    "COMMAND": "verb",
    "START": "start_version",
    "END": "end_version",
}


# An argument in a text of the library; what is in quotes is the user's.
_GIVEN = re.compile(
    r"""(?<!\w)(['"]).*?\1(?!\w)|(?<![^\s(])(?P<name>[a-z_]+)=(?P<value>True|\d+)\b"""
)


class Declared(msgspec.Struct, frozen=True):
    """A command as its function declares it."""

    run: Run
    text: str
    types: Mapping[str, Any]
    defaults: Mapping[str, Any]
    about_table: bool


DECLARED: dict[str, list[Declared]] = {}  # by module


def command(
    *texts: str, types: Mapping[str, Any] | None = None, about_table: bool = True, **defaults: Any
) -> Callable[[Run], Run]:
    """Declare commands by their help, which is also what their arguments are made from. texts:
    `name: what it does`; a line for each argument, two spaces before what is said of it; `$` before
    an example; an empty line, and what the help ends with. `NAME` has to be there, `[NAME]` need
    not, `NAME*` may be several. `--name VALUE!` has to be there, `VALUE*` may be given again, `a|b`
    is one of these, and without a value it is a flag. Of successive lines with `|` one may be
    given, of those with `!` one has to be. `title:` begins a group, `@word` is what others take,
    too. types: of values, by destination; by default a text, and a number from 1 on for N and
    versions."""

    def declare(run: Run) -> Run:
        DECLARED.setdefault(run.__module__, []).extend(
            Declared(run, textwrap.dedent(text), types or {}, defaults, about_table)
            for text in texts
        )
        return run

    return declare


class Commands:
    def __init__(self, parsers: Any) -> None:
        self._parsers = parsers
        self.parsers: dict[str, argparse.ArgumentParser] = {}
        self.groups: dict[str, dict[str, str]] = {}

    def add(self, group: str, declared: Declared) -> None:
        """Make the parser of a command."""
        text, _, end = declared.text.strip("\n").partition("\n\n")
        lines = [" ".join(each.split("\n")) for each in re.split(r"\n(?! )", text)]
        name, what = re.sub(" +", " ", lines[0]).split(": ", 1)
        examples = [f"\n  manifestcommit {each[2:]}" for each in lines if each.startswith("$ ")]
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            prog=f"manifestcommit {name}",
            description=f"{what[0].upper()}{what[1:]}.",
            epilog=end or "".join(["examples:" * bool(examples), *examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        arguments = _spelled_out(each for each in lines[1:] if not each.startswith("$ "))
        if declared.about_table:
            is_there = arguments and arguments[0].startswith("PATH")
            path = arguments.pop(0) if is_there else _PATH
            _add_arguments(parser, [path], declared.types)
            _add_arguments(parser, _spelled_out(["@common"]), {})
            parser.set_defaults(format="table")
        _add_arguments(parser, arguments, declared.types)
        known = {"commands": self, "actions": parser._actions, **declared.defaults}
        parser.set_defaults(run=declared.run, command=name, parser=parser, **known)
        self.parsers[name] = parser
        self.groups.setdefault(group, {})[name] = what


def _spelled_out(lines: Iterable[str]) -> list[str]:
    """The lines, with what a word is for in its place."""
    found: list[str] = []
    for line in lines:
        text = textwrap.dedent(SHARED.get(line, line)).strip("\n")
        found += [" ".join(each.split("\n")) for each in re.split(r"\n(?! )", text)]
    return found


def _add_arguments(parser: Any, lines: Sequence[str], types: Mapping[str, Any]) -> None:
    group, before, chosen = parser, "", parser
    for line in lines:
        if line.endswith(":") and "  " not in line:
            group = parser.add_argument_group(line[:-1])
            continue
        mark = line[:1] if line[:2] in ("| ", "! ") else ""
        if mark and mark != before:
            chosen = group.add_mutually_exclusive_group(required=mark == "!")
        before = mark
        declared, _, what = line.removeprefix(f"{mark} ").partition("  ")
        _add_argument(chosen if mark else group, declared, re.sub(" +", " ", what), types)


def _add_argument(group: Any, declared: str, what: str, types: Mapping[str, Any]) -> None:
    names = re.findall(r"(?:^|(?<=, ))--?[\w-]+", declared)
    value = re.sub(r"^(--?[\w-]+(, )?)+ ?", "", declared)
    options: dict[str, Any] = {"help": what or None}
    metavar = value.rstrip("*!") if names else value.rstrip("*!").strip("[]")
    last = names[-1].lstrip("-").replace("-", "_") if names else metavar.lower()
    dest = last if names else _DESTINATIONS.get(metavar, last)
    dest += "_" * keyword.iskeyword(dest)
    if names and not value:
        group.add_argument(*names, action="store_true", dest=dest, **options)
        return
    if re.fullmatch(r"[a-z]+(\|[a-z]+)+", metavar):
        options["choices"] = tuple(metavar.split("|"))
    else:
        options["metavar"] = metavar
    by_default = positive if metavar in ("N", "END") or dest == "version" else None
    options["type"] = pair if dest == "metadata" else types.get(dest, by_default)
    if names:
        options |= {"dest": dest, "required": value.endswith("!")}
        options |= {"action": "append"} if value.endswith("*") else {}
        group.add_argument(*names, **options)
    else:
        count = "?" if value.startswith("[") else "+" if value.endswith("*") else None
        group.add_argument(dest, nargs=count, **options)


def note_of(options: Options) -> dict[str, Any]:
    """The arguments `message` and `metadata` of the call."""
    pairs = options.metadata or []
    if len(dict(pairs)) < len(pairs):
        raise UsageError("a name is given twice; nothing was done", argument="--metadata")
    return {"message": options.message, "metadata": dict(pairs) or None}


def check_reason(options: Options) -> None:
    """Refuse a reason that cannot be recorded before the command asks."""
    if getattr(options, "reason", None) is not None:
        from ..runtime.validation import RULES  # late: `--help` needs no pyarrow

        RULES["reason"]("reason", options.reason)


def as_typed(said: str | ManifestCommitError, options: Options) -> str:
    """What the library says, with its arguments as they are typed here: `--as-of`, not `as_of`;
    JOB, not `job_id`; `--restart`, not `restart=True`. Paths, and what is in quotes, stay. [SE3]"""
    names = {each.dest: [str(each.metavar), *each.option_strings][-1] for each in options.actions}
    text = str(said)
    if isinstance(said, UsageError) and said.argument is not None:
        text = invalid(said, names.get(said.argument, said.argument))

    def typed(match: re.Match[str]) -> str:
        name, value = names.get(match["name"], ""), match["value"]
        if not name.startswith("-"):
            return match[0]
        return name if value == "True" else f"{name} {value}"

    return _GIVEN.sub(typed, text)


def pair(text: str) -> tuple[str, str]:
    """A name and a value, NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError("expected NAME=VALUE")  # not repeated: it may be a secret
    return name, value


def number(what: str, least: int, most: float = math.inf) -> Callable[[str], int]:
    """A whole number between these bounds."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{what}, not {text!r}")
        return int(text)

    return parse


positive = number("a number from 1 on", 1)


def table_of(options: Options, path: str | None = None) -> Table:
    """The table of a command, with its note. path: of another one that it is about, too."""
    from ..table import Table  # late: `--version` and `--help` need no pyarrow

    chosen = options.path if path is None else path
    table = Table(chosen, storage_options_of(options.storage_options))
    return table.noting(**note_of(options)) if "metadata" in options else table


def storage_options_of(file: str | None, name: str = "storage_options") -> dict[str, Any] | None:
    """What the option's file holds. Neither its content nor its name is ever repeated: who mistook
    the option may have written a secret there."""
    return json_object(file, name, '{"endpoint_url": …}')


def text_in(file: str, name: str) -> str:
    """The text in a file, without blanks around it. What is wrong says neither its content nor its
    name, which who mistook the option may have meant as a secret. [SE1]"""
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        text = f"expected the name of a file, which cannot be read: {reason}"
        raise UsageError(text, argument=name) from None


def json_object(
    file: str | None, name: str, example: str, given: str | None = None
) -> dict[str, Any] | None:
    """The object in a JSON file. UsageError, which repeats no more than `given`, for any other."""
    if file is None:
        return None
    expected = f"expected the name of a file with one JSON object, such as {example}"
    try:
        with open(file, "rb") as stream:
            found = json.load(stream)
    except OSError as error:
        text = f"{expected}; it cannot be read: {error.strerror}"
        raise UsageError(text, argument=name, given=given) from None
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or no name of a file at all
        found = None
    if not isinstance(found, dict):
        raise UsageError(expected, argument=name, given=given)
    return found


def chosen(options: Options) -> Mapping[str, Any]:
    return {"version": options.version, "as_of": options.as_of, "tag": options.tag}

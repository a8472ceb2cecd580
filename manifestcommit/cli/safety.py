"""Changes that only gc could make final are asked about first: --dry-run, --yes, and a question on
a terminal. [SE4]
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from ..display import visible
from ..terminal.screen import is_terminal
from .exit_codes import DONE, NO, USAGE
from .output import lines_of, written


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a change would do.

    Attributes:
        version: the table's newest version, from which this follows.
        what: the change in one line.
        document: its numbers.
    """

    version: int
    what: str
    document: dict[str, Any]


def decided(
    options: argparse.Namespace,
    plan: Callable[[], Plan | None],
    newest: Callable[[], int],
    *,
    is_costly: bool = False,
) -> int | None:
    """None: go ahead. Otherwise the exit code: it was a dry run, or it is not wanted. [SE4]

    plan: reads what the change would do now; None: nothing that is worth a question. newest: the
    newest version: where that has moved while someone was thinking, the question is put again.
    is_costly: plan only for someone who can be asked.
    """
    if options.dry_run:
        return _shown(options, plan())
    if options.yes:
        return None
    can_ask = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    if not can_ask and is_costly:
        newest()  # that there is no such table comes first
        return _refused(options)
    while (found := plan()) is not None:
        print("\n".join([visible(found.what) + ":", *_lines(options, found)]), file=sys.stderr)
        if not can_ask:
            return _refused(options)
        if not _confirmed():
            return NO
        if newest() == found.version:
            return None
        print("\nthe table has changed meanwhile; as of now it is", file=sys.stderr)
    return None


def _confirmed() -> bool:
    """Ask; only yes is yes."""
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed", file=sys.stderr)
    return False


def _refused(options: argparse.Namespace) -> int:
    """Without a terminal there is nobody to ask: say what to type."""
    print(
        f"manifestcommit: {options.command} has to be confirmed, and there is no terminal to ask "
        "on; nothing was changed. See what it would do with --dry-run, or confirm it:\n"
        f"  {_typed(options, '--yes')}",
        file=sys.stderr,
    )
    return USAGE


def _typed(options: argparse.Namespace, *more: str) -> str:
    """The command as it was typed, for a shell, with more options."""
    words = ["manifestcommit", *options.typed]
    if "--" in words:
        at = words.index("--")
        words[at:at] = more
    else:
        words += more
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    word = re.sub(r"://[^@'\s]*@", "://...@", word)
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{visible(escaped)}'"  # bash and zsh read the escapes


def _shown(options: argparse.Namespace, found: Plan | None) -> int:
    if found is None:
        if not written(options, {"dry_run": True}):
            print("there is nothing to do; nothing was changed")
    elif not written(options, {"dry_run": True, "version": found.version, **found.document}):
        print("\n".join([f"would {visible(found.what)}:", *_lines(options, found)]))
        print("nothing was changed", file=sys.stderr)
    return DONE


def _lines(options: argparse.Namespace, found: Plan) -> list[str]:
    return [f"  {visible(each)}" for each in lines_of(options, found.document)]

"""The `manifestcommit` command: a table for people, or one JSON document on standard output with
--json.

Exit status: 0 done; 1 the answer is no; 2 usage; 3 it could not be answered. Prose and progress go
to standard error. Not here: anything that Python callers cannot do as well (table).
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..errors import (
    CommitConflictError,
    JobAbortedError,
    JobFencedError,
    KeyReusedError,
    ManifestCommitError,
    UnsafeStoreError,
    UsageError,
    WatermarkError,
)
from ..former_names import hint
from ..terminal.render import visible
from ..version import __version__
from . import jobs, queries
from .adopt import add_commands as add_adopt
from .compact import add_commands as add_compact
from .gc import add_commands as add_gc
from .history import add_commands as add_history
from .options import Run, add_command
from .report import add_commands as add_report
from .rows import add_commands as add_rows
from .verify import add_commands as add_verify

_EPILOG = """examples:
  manifestcommit history /lake/flights                 what was committed, newest first
  manifestcommit files /lake/flights --version 3       which files version 3 lists
  manifestcommit changes /lake/flights 3 5             files added and removed from version 3 to 5
  manifestcommit watermarks /lake/flights --json       how far every source has been read
  manifestcommit doctor s3://bucket/lake               whether commits are safe there

Secrets come from the environment or from the file of --storage-options, never from an argument.
exit status: 0 done, 1 the answer is no, 2 usage, 3 it could not be answered"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal without unicode is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    options = parser.parse_args(arguments)
    run: Run = options.run
    try:
        status = run(options)
        sys.stdout.flush()  # a closed pipe shows here, not when the interpreter ends
        return status
    except UsageError as error:
        print(f"manifestcommit: {visible(_as_typed(error, options))}", file=sys.stderr)
        return 2
    except (
        CommitConflictError,
        JobAbortedError,
        JobFencedError,
        KeyReusedError,
        UnsafeStoreError,
        WatermarkError,
    ) as error:
        print(f"manifestcommit: {visible(str(error))}", file=sys.stderr)
        return 1
    except ManifestCommitError as error:
        print(f"manifestcommit: {visible(str(error))}", file=sys.stderr)
        return 3
    except KeyboardInterrupt as error:
        print(
            "\n".join(["manifestcommit: interrupted", *getattr(error, "__notes__", ())]),
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _as_typed(error: UsageError, options: argparse.Namespace) -> str:
    """The message with the argument's name as it is typed here: `--as-of`, not `as_of`; JOB, not
    `job_id`. [SE3]"""
    name = error.argument
    if name is None:
        return str(error)
    action = next((each for each in options.actions if each.dest == name), None)
    spelled = (
        name
        if action is None
        else action.option_strings[-1]
        if action.option_strings
        else str(action.metavar)
    )
    return str(error).replace(f"invalid {name} ", f"invalid {spelled} ", 1)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments without repeating escapes or credentials that are in
    them."""

    def error(self, message: str) -> NoReturn:
        text = re.sub(r"://[^@'\s]*@", "://...@", message)
        choice = re.search(r"invalid choice: '([\w-]+)'", message)
        unknown = re.search(r"unrecognized arguments: (.*)", message)
        text += hint("command", choice[1]) if choice and "COMMAND" in message else ""
        text += "".join(hint("option", each) for each in unknown[1].split()) if unknown else ""
        super().error(visible(text))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="manifestcommit",
        description=(
            "Look into tables that manifestcommit publishes, finish what jobs have left, set "
            "back, delete rows, compact, clean up."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"manifestcommit {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    queries.add_commands(commands)
    jobs.add_commands(commands)
    jobs.add_rewind(commands)
    for add_more in (add_adopt, add_history, add_rows, add_compact, add_gc):
        add_more(commands, add_command)

    queries.add_checks(commands)
    add_verify(commands, add_command)
    add_report(commands, add_command)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The `manifestcommit` command: a table for people, or one JSON document on standard output with
--json.

Its exit codes are in cli.exit_codes. Prose and progress go to standard error.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from ..display import visible
from ..errors import ManifestCommitError, UsageError
from .exit_codes import DONE, INTERRUPTED, exit_code
from .options import Run, check_note
from .parser import make_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal without unicode is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    typed = list(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser()
    options, unknown = parser.parse_known_args(typed)
    if unknown:
        options.parser.unknown(unknown)
    options.typed, options.top = typed, parser
    run: Run = options.run
    try:
        check_note(options)
        status = run(options)
        sys.stdout.flush()  # a closed pipe shows here, not when the interpreter ends
        return status
    except ManifestCommitError as error:
        text = _as_typed(error, options) if isinstance(error, UsageError) else str(error)
        print(f"manifestcommit: {visible(text)}", file=sys.stderr)
        return exit_code(type(error))
    except KeyboardInterrupt as error:
        print(
            "\n".join(["manifestcommit: interrupted", *getattr(error, "__notes__", ())]),
            file=sys.stderr,
        )
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


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


if __name__ == "__main__":
    sys.exit(main())

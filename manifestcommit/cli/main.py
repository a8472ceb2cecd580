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
from ..errors import ManifestCommitError, UsageError, invalid
from .exit_codes import DONE, INTERRUPTED, exit_code
from .options import Run, check_note, with_options
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
        text = with_options(str(error), options)
        if isinstance(error, UsageError) and error.argument is not None:
            text = invalid(error, _as_typed(error.argument, options))
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


def _as_typed(argument: str, options: argparse.Namespace) -> str:
    """An argument's name as it is typed here: `--as-of`, not `as_of`; JOB, not `job_id`. [SE3]"""
    for action in options.actions:
        if action.dest == argument:
            return action.option_strings[-1] if action.option_strings else str(action.metavar)
    return argument


if __name__ == "__main__":
    sys.exit(main())

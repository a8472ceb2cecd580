"""Spark on the command line: that a session starts is said, and what Spark itself says is not shown
unless -v is given.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator

from ..errors import ManifestCommitError

_LOG = logging.getLogger("manifestcommit.spark")
_STARTS = "active_session"  # the function that starts one warns before it does


@contextlib.contextmanager
def quiet_spark(options: argparse.Namespace) -> Iterator[None]:
    """A session may start inside. What its JVM, and the JVM's workers, write to standard error for
    as long as they run is kept for an error that is not the library's own."""
    _LOG.addFilter(_said)
    try:
        if options.verbose:
            yield
            return
        with tempfile.TemporaryFile() as kept, _stderr_of_processes(kept.fileno()):
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", module="pyspark")
                    yield
            except ManifestCommitError:
                raise
            except Exception:
                kept.seek(0)
                print(kept.read().decode("utf-8", "replace"), end="", file=sys.stderr)
                raise
    finally:
        _LOG.removeFilter(_said)


def _said(record: logging.LogRecord) -> bool:
    """Say in one line that a session starts, in place of the warning for programs."""
    if record.funcName != _STARTS:
        return True
    what = "connecting to Spark" if "SPARK_REMOTE" in os.environ else "starting a Spark session"
    print(f"manifestcommit: {what}, which takes seconds", file=sys.stderr, flush=True)
    return False


@contextlib.contextmanager
def _stderr_of_processes(file: int) -> Iterator[None]:
    """Processes that are started inside write their errors into this file; this one does not."""
    mine = sys.stderr
    mine.flush()
    encoding, errors = mine.encoding, mine.errors
    is_real = mine is sys.__stderr__
    before = os.dup(2)
    try:
        os.dup2(file, 2)
        if is_real:
            sys.stderr = os.fdopen(os.dup(before), "w", encoding=encoding, errors=errors)
        yield
    finally:
        if sys.stderr is not mine:
            sys.stderr.close()
            sys.stderr = mine
        os.dup2(before, 2)
        os.close(before)

"""Starts Spark for one command: says so, and keeps Spark's own messages off the screen unless -v.

Not here: sessions of programs (spark.dataframe).
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from ..table import Table

_LOG = logging.getLogger("manifestcommit.spark")


def start_spark(options: argparse.Namespace, table: Table, **conditions: str | None) -> None:
    """A session is active afterwards. UsageError where Spark is not installed; a wrong path or an
    empty condition is reported before.

    What the JVM and its workers write to standard error, as long as they run, is kept for the case
    that the start fails.
    """
    from ..engine.runtime.validation import condition  # late, as pyarrow is

    for name, value in conditions.items():
        if value is not None:
            condition(name, value)
    table.snapshot()
    # late: pyspark is an extra
    from ..spark.dataframe import active_session, has_active_session

    if has_active_session():
        return
    remote = os.environ.get("SPARK_REMOTE")
    what = "connecting to Spark" if remote else "starting a Spark session, which takes seconds"
    print(f"manifestcommit: {what}", file=sys.stderr, flush=True)
    level = _LOG.level
    if not options.verbose:
        _LOG.setLevel(logging.ERROR)  # that no session was active is known here
    try:
        with tempfile.TemporaryFile() as kept:
            try:
                with contextlib.nullcontext() if options.verbose else _stderr_into(kept):
                    active_session()
            except Exception:
                kept.seek(0)
                print(kept.read().decode("utf-8", "replace"), end="", file=sys.stderr)
                raise
    finally:
        _LOG.setLevel(level)


@contextlib.contextmanager
def _stderr_into(file: IO[bytes]) -> Iterator[None]:
    """Processes that are started inside write their errors into this file."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)

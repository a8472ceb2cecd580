"""`manifestcommit maintain`: what is due for each table, or what was done."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from ..terminal import Steps, print_table
from .options import DONE, NO, Options, command, note_of, storage_options_of
from .output import size_cell, written

if TYPE_CHECKING:
    import pyarrow as pa


@command(
    """
    maintain: do for each table what is due: exports, compaction, manifests, verification and gc;
      exit status 1 if a step failed, or a table is damaged
    PATH*  a table path, or a prefix: all tables below it
    --max-time TIME  begin no step after this time (default: no limit)
    --max-bytes SIZE  compaction rewrites no more in all tables together (default: 64GiB)
    --every TIME  do it again and again, this long after the end of each time; it may be killed
    --dry-run  change nothing; say what is due, and why
    @note
    $ maintain /lake/flights /lake/orders --dry-run
    $ maintain s3://lake/flights --max-time 30m --max-bytes 10GB
    $ maintain s3://lake --every 1h
    """
)
def _maintain(options: Options) -> int:
    from ..runtime.validation import parse_age  # late: `--help` needs no pyarrow
    from ..upkeep import maintain

    wait_s = None if options.every is None else parse_age(options.every, "every")
    while True:
        with Steps() as steps:
            found = maintain(
                options.path,
                max_time=options.max_time,
                dry_run=options.dry_run,
                progress=steps,
                storage_options=storage_options_of(options.storage_options),
                **({} if options.max_bytes is None else {"max_bytes": options.max_bytes}),
                **note_of(options),
            )
        status = print_upkeep(options, found)
        if wait_s is None:
            return status
        sys.stdout.flush()
        time.sleep(wait_s)


def print_upkeep(options: Options, found: pa.Table) -> int:
    """What is due or was done, step by step; 1 if one failed."""
    rows = found.to_pylist()
    if not written(options, rows):
        shown = []
        for each in rows:
            size = size_cell(options, each["bytes"]) if each["bytes"] else ""
            which = [each[name] for name in ("table", "step", "state")]
            shown.append((*which, size, each["result"] or each["reason"]))
        print_table(("table", "step", "state", "size", "why"), shown)
        done = Counter(each["state"] for each in rows)
        print(", ".join(f"{number} {state}" for state, number in done.items()), file=sys.stderr)
    return NO if any(each["state"] == "failed" for each in rows) else DONE

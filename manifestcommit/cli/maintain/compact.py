"""`manifestcommit compact`: what would be rewritten, group by group with its reason, or what was.
[GC11] [GC16]
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import msgspec

from ...terminal.progress import Steps
from ...terminal.render import counted, visible
from ...terminal.screen import print_table
from ..options import Commands, add_note, note_of, table_of
from ..output import size_cell, size_text, written
from ..spark_session import quiet_spark

if TYPE_CHECKING:
    import pyarrow as pa

    from ...engine.maintenance.compaction import Compaction


def add_commands(commands: Commands) -> None:
    """Register `compact`."""
    compact = commands.add(
        "compact",
        _compact,
        "rewrite small files together, and merge small manifests; no row changes",
        [
            "compact /lake/flights --dry-run",
            "compact /lake/flights --where \"day >= '2013-12-01'\"",
        ],
    )
    compact.add_argument(
        "--target-file-size",
        metavar="SIZE",
        help="such as 128MB (default: the table's own, 512MiB)",
    )
    compact.add_argument(
        "--where",
        metavar="SQL",
        help="only partitions for which this is true, such as \"day >= '2013-01-01'\"",
    )
    compact.add_argument(
        "--sort-by",
        action="append",
        metavar="COLUMN",
        help="sort the rows of each new file; may be given again",
    )
    compact.add_argument(
        "--max-bytes", metavar="SIZE", help="rewrite no more than this in one run (default: 64GiB)"
    )
    compact.add_argument(
        "--only-manifests",
        action="store_true",
        help="merge manifests only; no data file is read, and no Spark is needed",
    )
    compact.add_argument(
        "--dry-run",
        action="store_true",
        help="change nothing; list the groups that would become one file each",
    )
    add_note(compact)


def print_plan(options: argparse.Namespace, plan: pa.Table) -> int:
    """What would be rewritten, and what would be left for the next run."""
    if written(options, plan.to_pylist()):
        return 0
    names = ("action", "files", "rows", "bytes", "partition", "reason")
    rows = plan.select(names).to_pylist()
    shown = [tuple({**row, "bytes": size_cell(options, row["bytes"])}.values()) for row in rows]
    print_table(["size" if name == "bytes" else name for name in names], shown)
    done = [row for row in rows if row["action"] == "rewrite"]
    files, size = sum(row["files"] for row in done), sum(row["bytes"] for row in done)
    what = f"{counted(files, 'file')}, {size_text(options, size)}"
    print(f"{what} would become {counted(len(done), 'file')}; nothing was changed", file=sys.stderr)
    return 0


def print_report(options: argparse.Namespace, report: Compaction) -> int:
    """What was rewritten, what others were faster at, and what is left."""
    if written(options, msgspec.to_builtins(report)):
        return 0
    if report.version is None:
        found = report.lost or report.left_groups or report.left_manifests
        print(
            "nothing was committed"
            if found
            else (
                "nothing was committed: no small files or manifests that could become fewer "
                "were found"
            )
        )
    else:
        rows = [
            ("files", report.files_before, report.files_after),
            (
                "size",
                size_cell(options, report.bytes_before),
                size_cell(options, report.bytes_after),
            ),
            ("manifests", report.manifests_before, report.manifests_after),
        ]
        print_table(("", "before", "after"), rows)
        groups, rewritten, commits = (
            counted(report.groups, "group"),
            counted(report.rows, "row"),
            counted(report.commits, "commit"),
        )
        print(f"\nversion {report.version}: {groups} with {rewritten} in {commits}")
    for each in report.lost:
        what = f"{counted(each.files, 'file')} of {visible(each.partition)}"
        print(f"left as it was: {what}: {visible(each.why)} ({each.rule})", file=sys.stderr)
    if report.left_groups or report.left_manifests:
        groups, size = counted(report.left_groups, "group"), size_text(options, report.left_bytes)
        print(
            (
                f"left for the next run: {groups}, {size}; "
                f"{counted(report.left_manifests, 'manifest')}"
            ),
            file=sys.stderr,
        )
    return 0


def _compact(options: argparse.Namespace) -> int:
    table = table_of(options)
    which = {
        "target_file_size": options.target_file_size,
        "where": options.where,
        "only_manifests": options.only_manifests,
        **({} if options.max_bytes is None else {"max_bytes": options.max_bytes}),
    }
    table.snapshot()  # a wrong path is reported before Spark starts
    if options.dry_run:
        with quiet_spark(options):
            plan = table.plan_compaction(**which)
        return print_plan(options, plan)
    with quiet_spark(options), Steps() as steps:
        made = table.compact(**which, sort_by=options.sort_by, progress=steps, **note_of(options))
    return print_report(options, made)

"""`manifestcommit gc`: what would go, path by path with its reason, or what has gone, by kind.
[GC5]

Not here: what may go (engine.maintenance.gc).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..terminal.progress import Steps
from ..terminal.render import counted, print_json, print_table, render_table, visible

if TYPE_CHECKING:
    import pyarrow as pa

    from ..engine.maintenance.gc import GcReport

_SHOWN = 10  # foreign files named for people; --json has the first 100, --dry-run all
_EPILOG = """\
Kept: the last --keep-versions, every version that was the newest within --keep-for, tagged
versions, the files that one of these lists, idempotency keys and watermarks. --grace must be
longer than the longest job: jobs that began earlier are fenced (JobFencedError), prepared jobs
after 7 days. Orphan files are removed by the second run, a grace period later. gc may run at any
time, beside any job.

An AGE is a number and a unit: 90m, 24h, 7d, 2w.

  manifestcommit gc PATH --dry-run                 list what would be removed, and why
  manifestcommit gc PATH                           usually once a day
  manifestcommit gc PATH --keep-for 30d            a month of versions to read and to roll back to
  manifestcommit tag PATH NAME --version 7         keep one version, whatever its age
  manifestcommit gc PATH --grace 0s --keep-for 0s  nothing else writes: keep the newest version only
"""
_FIRST = 100  # names of a plan that Spark made: it may have millions


def add_commands(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Register `gc`."""
    gc = command(
        commands,
        "gc",
        _gc,
        (
            "expire old versions, and delete what no readable version lists and no job can "
            "commit any more"
        ),
    )
    gc.epilog, gc.formatter_class = _EPILOG, argparse.RawDescriptionHelpFormatter
    gc.add_argument(
        "--dry-run",
        action="store_true",
        help="write and delete nothing; list what would go, and what is foreign",
    )
    _add_retention(gc)
    gc.add_argument(
        "--foreign",
        action="store_true",
        help=(
            "delete old files, too, that something else wrote and no version lists, but no "
            "hidden ones"
        ),
    )
    gc.add_argument(
        "--spark",
        action="store_true",
        help="list, compare and delete in Spark's tasks, for tables of many million files",
    )


def _add_retention(gc: argparse.ArgumentParser) -> None:
    gc.add_argument(
        "--grace",
        default="24h",
        metavar="AGE",
        help="jobs that began longer ago are fenced (default: 24h)",
    )
    gc.add_argument(
        "--keep-versions",
        type=int,
        default=1,
        metavar="N",
        help="keep the last N versions readable (default: 1)",
    )
    gc.add_argument(
        "--keep-for",
        default="7d",
        metavar="AGE",
        help="keep readable what was the newest version so long ago (default: 7d)",
    )
    gc.add_argument(
        "--keep-keys",
        type=int,
        default=10_000,
        metavar="N",
        help="remember the last N keys at least (default: 10000)",
    )


def print_plan(plan: pa.Table, *, as_json: bool) -> int:
    """What would go, and what would be left though the table does not know it."""
    if as_json:
        return print_json(plan.to_pylist())
    rows = [
        (each["action"], each["bytes"], visible(each["name"]), visible(each["reason"]))
        for each in plan.to_pylist()
    ]
    print_table(("action", "bytes", "name", "reason"), rows)
    gone = [size for action, size, *_ in rows if action == "delete"]
    print(
        (
            f"{counted(len(gone), 'object')}, {counted(sum(gone), 'byte')} would be deleted; "
            "nothing was changed"
        ),
        file=sys.stderr,
    )
    return 0


def print_spark_plan(plan: Any, *, as_json: bool) -> int:
    """How much would go and how much is left, and the first names. plan: a Spark DataFrame."""
    plan.persist()  # else the table would be listed twice
    try:
        rows = plan.groupBy("action").agg({"name": "count", "bytes": "sum"}).collect()
        first = [row.asDict() for row in plan.orderBy("name").limit(_FIRST).collect()]
    finally:
        plan.unpersist()
    found = {
        row["action"]: {"count": row["count(name)"], "bytes": row["sum(bytes)"]} for row in rows
    }
    tallies = {
        action: found.get(action, {"count": 0, "bytes": 0}) for action in ("delete", "leave")
    }
    if as_json:
        return print_json({**tallies, "first": first})
    shown = [
        (each["action"], each["bytes"], visible(each["name"]), visible(each["reason"]))
        for each in first
    ]
    print_table(("action", "bytes", "name", "reason"), shown)
    gone, left = tallies["delete"], tallies["leave"]
    if gone["count"] + left["count"] > len(first):
        print(
            (
                f"the first {len(first)} of {gone['count'] + left['count']:,}; "
                "mc.plan_gc(…, spark=…) has all"
            ),
            file=sys.stderr,
        )
    print(
        (
            f"{counted(gone['count'], 'object')}, {counted(gone['bytes'], 'byte')} would be "
            "deleted; nothing was changed"
        ),
        file=sys.stderr,
    )
    return 0


def print_report(report: GcReport, *, as_json: bool, foreign: bool) -> int:
    """What was deleted, and what is left. foreign: whether foreign files were to go."""
    if as_json:
        return print_json(msgspec.to_builtins(report))
    rows = [
        (f"deleted: {kind}", tally.count, tally.bytes) for kind, tally in report.deleted.items()
    ]
    rows += [("kept", report.kept.count, report.kept.bytes)]
    rows += [
        (f"left: {name}", each.count, each.bytes)
        for name, each in (("foreign", report.foreign), ("unknown", report.unknown))
        if each.count
    ]
    print(render_table(("", "objects", "bytes"), rows))
    print(
        f"\nversion {report.version}: readable from {report.expired} on; jobs that began "
        f"below version {report.fence} are fenced"
    )
    for name in report.foreign_names[:_SHOWN]:
        print(f"  foreign: {visible(name)}", file=sys.stderr)
    if report.foreign.count:
        which = (
            "hidden ones (_ or .) and young ones are left"
            if foreign
            else "they are left unless --foreign is given"
        )
        print(f"foreign files: {which}; --dry-run lists all of them", file=sys.stderr)
    return 0


def _gc(options: argparse.Namespace) -> int:
    table = options.open_table(options)
    with Steps() as steps:
        made = (table.plan_gc if options.dry_run else table.gc)(
            grace=options.grace,
            keep_versions=options.keep_versions,
            keep_for=options.keep_for,
            keep_keys=options.keep_keys,
            foreign=options.foreign,
            spark=options.spark or None,
            progress=steps,
        )
    if not options.dry_run:
        return print_report(made, as_json=options.json, foreign=options.foreign)
    return (print_spark_plan if options.spark else print_plan)(made, as_json=options.json)

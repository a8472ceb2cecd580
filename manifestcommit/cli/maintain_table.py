"""Commands that look after a table: compaction, garbage collection, adoption, exports."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ..display import age, visible
from ..errors import UsageError
from ..terminal.render import counted
from ..terminal.screen import Steps, print_table
from .options import command, note_of, table_of
from .output import size_cell, size_text, written
from .safety import Plan, decided

if TYPE_CHECKING:
    import pyarrow as pa

    from ..operations.adopt import Adoption
    from ..operations.compaction import Compaction
    from ..operations.gc import GcReport
    from ..table import Table
    from ..table.listing import Listing

# `manifestcommit compact`: what would be rewritten, group by group with its reason, or what was.


def print_compaction_plan(options: argparse.Namespace, plan: pa.Table) -> int:
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


def print_compaction(options: argparse.Namespace, report: Compaction) -> int:
    """What was rewritten, what others were faster at, and what is left."""
    if written(options, msgspec.to_builtins(report)):
        return 0
    if report.version is None:
        found = report.lost or report.left_groups or report.left_manifests
        why = "" if found else ": no small files or manifests that could become fewer were found"
        print(f"nothing was committed{why}")
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
        groups, rewritten = counted(report.groups, "group"), counted(report.rows, "row")
        commits = counted(report.commits, "commit")
        print(f"\nversion {report.version}: {groups} with {rewritten} in {commits}")
    for each in report.lost:
        what = f"{counted(each.files, 'file')} of {visible(each.partition)}"
        print(f"left as it was: {what}: {visible(each.why)} ({each.rule})", file=sys.stderr)
    if report.left_groups or report.left_manifests:
        groups, size = counted(report.left_groups, "group"), size_text(options, report.left_bytes)
        manifests = counted(report.left_manifests, "manifest")
        print(f"left for the next run: {groups}, {size}; {manifests}", file=sys.stderr)
    return 0


@command(
    """
    compact: rewrite small files together, and merge small manifests; no row changes
    --target-file-size SIZE  such as 128MB (default: the table's own, 512MiB)
    --where SQL  only partitions for which this is true, such as "day >= '2013-01-01'"
    --sort-by COLUMN*  sort the rows of each new file; may be given again
    --max-bytes SIZE  rewrite no more than this in one run (default: 64GiB)
    --min-files N  of a new file (default: 2)
    --only-manifests  merge manifests only; no data file is read, and no Spark is needed
    --dry-run  change nothing; list the groups that would become one file each
    @note
    $ compact /lake/flights --dry-run
    $ compact /lake/flights --where "day >= '2013-12-01'"
    """,
    types={"min_files": int},
    min_files=2,
)
def _compact(options: argparse.Namespace) -> int:
    table = table_of(options)
    which = {
        "target_file_size": options.target_file_size,
        "where": options.where,
        "min_files": options.min_files,
        "only_manifests": options.only_manifests,
        **({} if options.max_bytes is None else {"max_bytes": options.max_bytes}),
    }
    if options.dry_run:
        return print_compaction_plan(options, table.plan_compaction(**which))
    with Steps() as steps:
        made = table.compact(**which, sort_by=options.sort_by, progress=steps, **note_of(options))
    return print_compaction(options, made)


# `manifestcommit gc`: what would go, path by path with its reason, or what has gone, by kind.

_SHOWN = 10  # foreign files named for people; --json has the first 100, --dry-run all
_RETENTION = ("grace", "keep_versions", "keep_for", "keep_keys", "keep_keys_for")


def print_gc_plan(options: argparse.Namespace, plan: Listing) -> int:
    """What would go, and what would be left though the table does not know it."""
    rows = plan.to_pylist()
    if not written(options, rows):
        _print_rows(options, rows)
        gone = [each["bytes"] for each in rows if each["action"] == "delete"]
        _print_total(options, len(gone), sum(gone))
    return 0


def _print_rows(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    shown = [
        (each["action"], size_cell(options, each["bytes"]), each["name"], each["reason"])
        for each in rows
    ]
    print_table(("action", "size", "name", "reason"), shown)


def _print_total(options: argparse.Namespace, count: int, total: int) -> None:
    what = f"{counted(count, 'object')}, {size_text(options, total)}"
    print(f"{what} would be deleted; nothing was changed", file=sys.stderr)


def print_gc_report(options: argparse.Namespace, report: GcReport) -> int:
    """What was deleted, and what is left."""
    if written(options, msgspec.to_builtins(report)):
        return 0
    tallies = [(f"deleted: {kind}", tally) for kind, tally in report.deleted.items()]
    tallies += [("kept", report.kept)]
    tallies += [
        (f"left: {name}", each)
        for name, each in (("foreign", report.foreign), ("unknown", report.unknown))
        if each.count
    ]
    rows = [(what, each.count, size_cell(options, each.bytes)) for what, each in tallies]
    print_table(("", "objects", "size"), rows)
    print(
        f"\nversion {report.version}: readable from {report.expired} on; jobs that began "
        f"below version {report.fence} are fenced"
    )
    if report.keys_age_s is not None:
        print(
            f"forgot {counted(report.keys_forgotten, 'key')}, {age(report.keys_age_s)} old or "
            "older: a rerun of one of these would append its rows again"
        )
    for name in report.foreign_names[:_SHOWN]:
        print(f"  foreign: {visible(name)}", file=sys.stderr)
    if report.foreign.count:
        which = (
            "hidden ones (_ or .) and young ones are left"
            if options.foreign
            else "they are left unless --foreign is given"
        )
        print(f"foreign files: {which}; --dry-run lists all of them", file=sys.stderr)
    for root in report.unsettled[:_SHOWN]:
        print(
            f"{visible(root)} asks this table what became of its newest version: settle it before "
            "this table is removed",
            file=sys.stderr,
        )
    return 0


@command(
    """
    gc: expire old versions, and delete what no readable version lists and no job can commit any
      more
    --dry-run  write and delete nothing; list what would go, and what is foreign
    @yes
    --grace AGE  jobs that began longer ago are fenced (default: gc.grace, or 24h)
    --keep-versions N  keep the last N versions readable (default: gc.keep-versions, or 1)
    --keep-for AGE  keep readable what was newest so long ago (default: gc.keep-for, or 7d)
    --keep-keys N  remember the last N keys at least (default: gc.keep-keys, or 10000)
    --keep-keys-for AGE  remember younger keys, too (default: gc.keep-keys-for, or 0s)
    @note
    --foreign  delete old files, too, that something else wrote and no version lists, but no
        hidden ones

    Kept: the last --keep-versions, every version that was the newest within --keep-for, tagged
    versions, the files that one of these lists, idempotency keys and watermarks. --grace must be
    longer than the longest job: jobs that began earlier are fenced (JobFencedError), prepared
    jobs after 7 days. Orphan files are removed by the second run, a grace period later. gc may
    run at any time, beside any job.

    With --foreign, or where it is to keep less than by default, gc asks first; a daily run does
    not.

    An AGE is a number and a unit: 90m, 24h, 7d, 2w.

      manifestcommit gc PATH --dry-run                 list what would be removed, and why
      manifestcommit gc PATH                           usually once a day
      manifestcommit gc PATH --keep-for 30d            a month of versions to read, to roll back to
      manifestcommit tag PATH NAME --version 7         keep one version, whatever its age
      manifestcommit gc PATH --grace 0s --keep-for 0s  nothing else writes: keep the newest version
    """,
    types={"keep_versions": int, "keep_keys": int},
)
def _gc(options: argparse.Namespace) -> int:
    table = table_of(options)
    if options.dry_run:
        return print_gc_plan(options, _called(options, table.plan_gc))
    if _keeps_less(options, table):
        status = decided(options, lambda: _plan(options, table), lambda: table.version)
        if status is not None:
            return status
    return print_gc_report(options, _called(options, table.gc, **note_of(options)))


def _called(options: argparse.Namespace, call: Any, **note: Any) -> Any:
    with Steps() as steps:
        return call(**_kept(options), foreign=options.foreign, progress=steps, **note)


def _kept(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in _RETENTION}


def _keeps_less(options: argparse.Namespace, table: Table) -> bool:
    """Whether it deletes what a daily run keeps."""
    given = _kept(options)
    if options.foreign or not any(value is not None for value in given.values()):
        return bool(options.foreign)
    from ..operations.upkeep_properties import retention_of  # late: `--help` needs no pyarrow

    snapshot = table.snapshot()
    try:
        asked = retention_of(snapshot, given)
    except UsageError:  # gc itself says so
        return False
    kept = retention_of(snapshot)
    return (
        asked.grace_s < kept.grace_s
        or asked.keep_for_s < kept.keep_for_s
        or asked.keep_keys < kept.keep_keys
    )


def _kind(reason: str) -> str:
    """The reason without the job and the versions, which differ from object to object."""
    return re.sub(r"\d+", "…", reason.partition("; job ")[0])


def _plan(options: argparse.Namespace, table: Table) -> Plan:
    version = table.version
    found = _called(options, table.plan_gc)
    rows = [each for each in found.to_pylist() if each["action"] == "delete"]
    count, total = len(rows), sum(each["bytes"] for each in rows)
    reasons = Counter(_kind(each["reason"]) for each in rows)
    from ..operations import upkeep_properties as kept  # late: `--help` needs no pyarrow

    asked = kept.retention_of(table.snapshot(), _kept(options))
    return Plan(
        version=version,
        what=f"delete for good what {options.path} no longer needs",
        effects=[
            f"deleted: {counted(count, 'object')}, {size_text(options, total)}",
            *(f"  {number:,}: {reason}" for reason, number in reasons.most_common(10)),
            f"kept: {kept.retention_text(asked)}",
        ],
        document={"version": version, "objects": count, "bytes": total},
    )


# The command that makes a table of a folder of Parquet files: `adopt`.


@command(
    """
    adopt: make a table of a folder of Parquet files, where they are, in one commit
    --partition-by A,B  the columns that partition it; default: those of its name=value folders;
        '' for none
    --from FORMAT  iceberg, delta, or an Iceberg document: what that table has; default: all files
    --rewrite  write the rows of files with nanoseconds or other column names into new files
    @note
    $ adopt /lake/old --partition-by day
    $ adopt /lake/old --from delta
    """
)
def _adopt(options: argparse.Namespace) -> int:
    given = options.partition_by
    names = None if given is None else [name.strip() for name in given.split(",") if name.strip()]
    found: Adoption = table_of(options).adopt(
        partition_by=names, from_=options.from_, rewrite=options.rewrite, **note_of(options)
    )
    if written(options, msgspec.to_builtins(found)):
        return 0
    if found.already_adopted:
        print(f"adopted before, at version {found.version}: there is nothing to do")
        return 0
    parts = (
        f", partitioned by {', '.join(map(visible, found.partition_by))}"
        if found.partition_by
        else ""
    )
    what = (
        f"{counted(found.files, 'file')}, {counted(found.rows, 'row')}, "
        f"{size_text(options, found.bytes)}"
    )
    print(f"version {found.version}: {what}{parts}")
    if found.rewritten_files:
        print(f"rewritten: {counted(found.rewritten_files, 'file')}", file=sys.stderr)
    if found.skipped_files:
        print(f"skipped: {counted(found.skipped_files, 'file')}", file=sys.stderr)
        print_table(
            ("name", "reason"),
            [(each.name, each.reason) for each in found.skipped],
            file=sys.stderr,
        )
        if found.skipped_files > len(found.skipped):
            print(f"… and {found.skipped_files - len(found.skipped):,} more", file=sys.stderr)
    return 0


# Commands that show a table to other engines: `export`, `create-table-sql`.

_FORMATS = ("iceberg", "delta", "spark-catalog")


@command(
    """
    export: show a version to other engines, without a copy of data
    --to FORMATS!  iceberg, delta, spark-catalog, or several, split by commas
    --version N  this version, unless a later one is exported already (default: the newest)
    $ export /lake/flights --to iceberg,delta
    $ export /lake/flights --to delta --version 3
    $ export /lake/flights --to spark-catalog
    """
)
def _export(options: argparse.Namespace) -> int:
    names = options.to.split(",")
    if not set(names) <= set(_FORMATS):
        raise UsageError(
            f"expected {', '.join(_FORMATS)}, or several, split by commas, such as iceberg,delta",
            argument="--to",
            given=repr(options.to),
        )
    table = table_of(options)
    made = [table.export(name, version=options.version) for name in names]
    if not written(options, [msgspec.to_builtins(each) for each in made]):
        rows = [(each.format, str(each.version), visible(each.location)) for each in made]
        print_table(("format", "version", "location"), rows)
    return 0


@command(
    """
    create-table-sql: export to Spark's catalog, and print the statement that gives the export a
      name in it
    NAME  the name in Spark's catalog
    $ create-table-sql /lake/flights lake.flights
    """
)
def _create_table_sql(options: argparse.Namespace) -> int:
    statement = table_of(options).create_table_sql(options.name)
    if not written(options, {"statement": statement}):
        print(f"{statement};")
    return 0

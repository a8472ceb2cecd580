"""Commands that look after a table: compaction, garbage collection, adoption, exports, checks."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ..display import counted, visible
from ..errors import UsageError
from ..terminal import Steps, print_table
from .inspect_table import names_in
from .options import DONE, NO, UNANSWERED, Options, command, table_of
from .output import Plan, confirm, show, size_cell, size_text, written

if TYPE_CHECKING:
    import pyarrow as pa

    from ..operations.gc import GcReport
    from ..table import Table


def _print_plan(options: Options, plan: pa.Table) -> None:
    """What would be rewritten, and what would be left for the next run."""
    rows = plan.to_pylist()
    done = [row for row in rows if row["action"] == "rewrite"]
    files, size = sum(row["files"] for row in done), sum(row["bytes"] for row in done)
    what = f"{counted(files, 'file')}, {size_text(options, size)}"
    more = f"{what} would become {counted(len(done), 'file')}; nothing was changed"
    show(options, rows, more=more)


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
def _compact(options: Options) -> None:
    table = table_of(options)
    names = ("target_file_size", "where", "sort_by", "min_files", "only_manifests", "max_bytes")
    which = {name: getattr(options, name) for name in names}
    if options.max_bytes is None:
        del which["max_bytes"]  # as it is by default
    if options.dry_run:
        _print_plan(options, table.plan_compaction(**which))
        return
    with Steps() as steps:
        made = table.compact(**which, progress=steps)
    more = ""
    if not (made.version or made.lost_groups or made.left_groups):
        more = "nothing was committed: no small files or manifests that could become fewer were "
        more += "found (those written with watermarks and those without stay apart)"
    show(options, msgspec.to_builtins(made), more=more)


_RETENTION = ("grace", "keep_versions", "keep_for", "keep_keys", "keep_keys_for")


def _print_gc_plan(options: Options, plan: pa.Table) -> None:
    """What would go, and what would be left though the table does not know it."""
    rows = plan.to_pylist()
    gone = [each["bytes"] for each in rows if each["action"] == "delete"]
    what = f"{counted(len(gone), 'object')}, {size_text(options, sum(gone))}"
    show(options, rows, more=f"{what} would be deleted; nothing was changed")


def _print_report(options: Options, report: GcReport) -> None:
    """What was deleted, and what is left."""
    document = msgspec.to_builtins(report)
    if options.format != "table":
        show(options, document)
        return
    left = {"foreign": report.foreign, "unknown": report.unknown}
    tallies = [(f"deleted: {kind}", tally) for kind, tally in report.deleted.items()]
    tallies += [("kept", report.kept)]
    tallies += [(f"left: {name}", each) for name, each in left.items() if each.count]
    rows = [(what, each.count, size_cell(options, each.bytes)) for what, each in tallies]
    print_table(("", "objects", "size"), rows)
    print()
    show(options, {n: v for n, v in document.items() if not isinstance(v, dict)})
    if report.foreign.count and not options.foreign:
        print("foreign files are left unless --foreign is given", file=sys.stderr)


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
def _gc(options: Options) -> None:
    table = table_of(options)
    if options.dry_run:
        _print_gc_plan(options, _called(options, table.plan_gc))
        return
    if _keeps_less(options, table):
        confirm(options, lambda: _plan(options, table), table)
    _print_report(options, _called(options, table.gc))


def _called(options: Options, call: Any) -> Any:
    with Steps() as steps:
        return call(**_kept(options), foreign=options.foreign, progress=steps)


def _kept(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in _RETENTION}


def _keeps_less(options: Options, table: Table) -> bool:
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
    names = ("grace_s", "keep_versions", "keep_for_s", "keep_keys", "keep_keys_for_s")
    return any(getattr(asked, name) < getattr(kept, name) for name in names)


def _kind(reason: str) -> str:
    """The reason without the job and the versions, which differ from object to object."""
    return re.sub(r"\d+", "…", reason.partition("; job ")[0])


def _plan(options: Options, table: Table) -> Plan:
    version = table.version
    found = _called(options, table.plan_gc)
    rows = [each for each in found.to_pylist() if each["action"] == "delete"]
    reasons = Counter(_kind(each["reason"]) for each in rows)
    from ..operations import upkeep_properties as kept  # late: `--help` needs no pyarrow

    document = {
        "objects": len(rows),
        "bytes": sum(each["bytes"] for each in rows),
        "reasons": "; ".join(f"{n:,}: {reason}" for reason, n in reasons.most_common(10)),
        "kept": kept.retention_text(kept.retention_of(table.snapshot(), _kept(options))),
    }
    return Plan(version, f"delete for good what {options.path} no longer needs", document)


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
def _adopt(options: Options) -> None:
    names = names_in(options.partition_by)
    found = table_of(options).adopt(
        partition_by=names, from_=options.from_, rewrite=options.rewrite
    )
    more = "it was adopted before: there is nothing to do" if found.already_adopted else ""
    show(options, msgspec.to_builtins(found), more=more)


@command(
    """
    export: show the newest version to other engines, without a copy of data
    --to FORMATS!  iceberg, delta, spark-catalog, or several, split by commas
    $ export /lake/flights --to iceberg,delta
    $ export /lake/flights --to spark-catalog
    """
)
def _export(options: Options) -> None:
    table = table_of(options)
    made = [table.export(name) for name in options.to.split(",")]
    show(options, [msgspec.to_builtins(each) for each in made])


@command(
    """
    create-table-sql: export to Spark's catalog, and print the statement that gives the export a
      name in it
    NAME  the name in Spark's catalog
    $ create-table-sql /lake/flights lake.flights
    """
)
def _create_table_sql(options: Options) -> None:
    statement = table_of(options).create_table_sql(options.name)
    if not written(options, {"statement": statement}):
        print(f"{statement};")


@command(
    """
    verify: whether everything that a table lists is there and whole; exit status 1 if not
    --deep  read every data file: digest, footer, rows, partition, statistics
    $ verify /lake/flights --deep
    """
)
def _verify(options: Options) -> int:
    with Steps() as steps:
        report = table_of(options).verify(deep=options.deep, progress=steps)
    document = {**msgspec.to_builtins(report), "is_sound": report.is_sound}
    damage = f"damaged, {counted(report.damages, 'finding')}"
    _print_findings(options, document, report.url, f" is {'whole' if report.is_sound else damage}")
    return DONE if report.is_sound else NO


def _print_findings(options: Options, document: dict[str, Any], url: str, verdict: str) -> None:
    is_table = options.format == "table"
    show(options, document, None if is_table else document["findings"])
    if is_table:
        print(f"\n{visible(url)}{verdict}")


_VERDICTS = {
    "safe": "safe for commits, as far as probes can show.",
    "unsafe": "NOT safe for commits. Use another store.",
    "unknown": "it could not be found out whether it is safe for commits. Try again.",
}


@command(
    """
    doctor: whether a store keeps what commits rely on; writes probes, and removes them; exit
      status 1 if not
    $ doctor s3://bucket/lake
    """
)
def _doctor(options: Options) -> int:
    with Steps() as steps:
        report = table_of(options).doctor(progress=steps)
    verdict = f": {_VERDICTS[report.verdict]}"
    _print_findings(options, msgspec.to_builtins(report), report.store, verdict)
    return {"safe": DONE, "unsafe": NO}.get(report.verdict, UNANSWERED)

"""`manifestcommit doctor` and `counts`: whether a store is safe for commits, and whether all counts
of a table match. [ST12] [OB2]

Not here: the probes (store.probes.doctor), the counting (engine.inspection.count_audit).
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from ...terminal.progress import Steps
from ...terminal.render import counted, visible
from ...terminal.screen import print_table
from ..options import Commands, table_of
from ..output import written

_SHOWN = 1000  # differences in the table for people; --json has all
_VERDICTS = {
    "safe": "safe for commits, as far as probes can show.",
    "unsafe": "NOT safe for commits. Use another store; on Ceph, a bucket without versioning.",
    "unknown": "it could not be found out whether it is safe for commits. Try again.",
}


def add_commands(commands: Commands) -> None:
    """Register the commands."""
    commands.add(
        "counts",
        _counts,
        "whether all counts match: read, written, committed, listed",
        ["counts /lake/flights"],
    )
    commands.add(
        "doctor",
        _doctor,
        "whether a store keeps what commits rely on; writes probes, and removes them",
        ["doctor s3://bucket/lake"],
    )


def _counts(options: argparse.Namespace) -> int:
    with Steps() as steps:
        report = table_of(options).counts(progress=steps)
    document = {**msgspec.to_builtins(report), "all_match": report.all_match}
    if written(options, document, document["mismatches"]):
        pass
    elif report.all_match:
        size = f"{counted(report.files, 'file')}, {counted(report.rows, 'row')}"
        print(f"all counts match: versions {report.first} to {report.last}, {size}")
        print(
            f"{report.recorded:,} of {report.commits:,} commits say what they read", file=sys.stderr
        )
    else:
        rows = [
            (str(each.version), each.what, each.expected, each.found)
            for each in report.mismatches[:_SHOWN]
        ]
        print_table(("version", "what", "expected", "found"), rows)
        count = len(report.mismatches)
        print(
            f"\n{counted(count, 'count')} of {visible(report.url)} "
            f"{'does' if count == 1 else 'do'} not match"
        )
    return 0 if report.all_match else 1


def _doctor(options: argparse.Namespace) -> int:
    with Steps() as steps:
        report = table_of(options).doctor(progress=steps)
    document = msgspec.to_builtins(report)
    if not written(options, document, document["findings"]):
        print_table(
            ("check", "result", ""),
            [(each.check, each.result, each.detail) for each in report.findings],
        )
        if report.latencies:
            rows = [
                (each.call, f"{each.median_ms:,.1f}", f"{each.worst_ms:,.1f}")
                for each in report.latencies
            ]
            print()
            print_table(("request", "median ms", "worst ms"), rows)
        print(f"\n{visible(report.store)}: {_VERDICTS[report.verdict]}")
    return {"safe": 0, "unsafe": 1}.get(report.verdict, 3)

"""Commands that check a table and its store; the exit code is the answer."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import msgspec

from ..display import age, visible
from ..terminal.render import counted
from ..terminal.screen import Steps, print_table
from .options import command, table_of
from .output import written

if TYPE_CHECKING:
    from ..operations.verify import VerifyReport

# `manifestcommit verify`: whether a table is whole, and what to do where it is not.

_SHOWN = 1000  # findings in the table for people; --json has all


def print_report(options: argparse.Namespace, report: VerifyReport) -> int:
    """What was found; 1 if something is damaged."""
    document = {**msgspec.to_builtins(report), "is_sound": report.is_sound}
    if written(options, document, document["findings"]):
        return 0 if report.is_sound else 1
    if report.findings:
        rows = [
            (each.severity, each.kind.replace("_", " "), each.object, each.problem)
            for each in report.findings[:_SHOWN]
        ]
        print_table(("severity", "what", "object", "problem"), rows)
        print()
        shown = {each.kind: each.remedy for each in report.findings}
        print_table(
            ("what", "remedy"),
            [(kind.replace("_", " "), remedy) for kind, remedy in shown.items()],
        )
        print()
    how = "read and compared" if report.deep else "there with their lengths"
    objects = (
        "1 manifest or run" if report.manifests == 1 else f"{report.manifests:,} manifests and runs"
    )
    looked = (
        f"versions {report.first} to {report.last}, {objects}, {counted(report.files, 'file')} "
        f"{how}"
    )
    if report.is_sound:
        print(f"{visible(report.url)} is whole: {looked}")
        if report.data_age_s is not None:
            print(f"its data is {age(report.data_age_s)} old")
    else:
        print(f"{visible(report.url)} is damaged, {counted(report.damages, 'finding')}: {looked}")
        if report.damages > _SHOWN:
            print(f"the first {_SHOWN:,} are shown; --json has up to 10,000", file=sys.stderr)
    return 0 if report.is_sound else 1


@command(
    """
    verify: whether everything that a table lists is there and whole; exit status 1 if not
    --deep  read every data file: digest, footer, rows, partition, statistics
    $ verify /lake/flights --deep
    """
)
def _verify(options: argparse.Namespace) -> int:
    with Steps() as steps:
        report = table_of(options).verify(deep=options.deep, progress=steps)
    return print_report(options, report)


# `manifestcommit doctor`: whether a store is safe for commits.

_VERDICTS = {
    "safe": "safe for commits, as far as probes can show.",
    "unsafe": "NOT safe for commits. Use another store; on Ceph, a bucket without versioning.",
    "unknown": "it could not be found out whether it is safe for commits. Try again.",
}


@command(
    """
    doctor: whether a store keeps what commits rely on; writes probes, and removes them; exit
      status 1 if not
    $ doctor s3://bucket/lake
    """
)
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

"""`manifestcommit doctor`: whether a store is safe for commits. [ST12]"""

from __future__ import annotations

import argparse

import msgspec

from ...terminal.progress import Steps
from ...terminal.render import visible
from ...terminal.screen import print_table
from ..options import Commands, table_of
from ..output import written

_VERDICTS = {
    "safe": "safe for commits, as far as probes can show.",
    "unsafe": "NOT safe for commits. Use another store; on Ceph, a bucket without versioning.",
    "unknown": "it could not be found out whether it is safe for commits. Try again.",
}


def add_commands(commands: Commands) -> None:
    """Register `doctor`."""
    commands.add(
        "doctor",
        _doctor,
        "whether a store keeps what commits rely on; writes probes, and removes them",
        ["doctor s3://bucket/lake"],
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

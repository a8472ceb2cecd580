"""Commands that check a table and its store; the exit code is the answer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import msgspec

from ..display import counted, visible
from ..terminal import Steps
from .options import DONE, NO, command, table_of
from .output import show

if TYPE_CHECKING:
    from ..operations.verify import VerifyReport

# `manifestcommit verify`: whether a table is whole, and what to do where it is not.


def _print_report(options: argparse.Namespace, report: VerifyReport) -> int:
    """What was found; 1 if something is damaged."""
    document = {**msgspec.to_builtins(report), "is_sound": report.is_sound}
    rows = None if options.format == "table" else document["findings"]
    show(options, document, rows)
    if options.format == "table":
        damage = f"damaged, {counted(report.damages, 'finding')}"
        print(f"\n{visible(report.url)} is {'whole' if report.is_sound else damage}")
    return DONE if report.is_sound else NO


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
    return _print_report(options, report)


# `manifestcommit doctor`: whether a store is safe for commits.

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
def _doctor(options: argparse.Namespace) -> int:
    with Steps() as steps:
        report = table_of(options).doctor(progress=steps)
    document = msgspec.to_builtins(report)
    show(options, document, None if options.format == "table" else document["findings"])
    if options.format == "table":
        print(f"\n{visible(report.store)}: {_VERDICTS[report.verdict]}")
    return {"safe": 0, "unsafe": 1}.get(report.verdict, 3)

"""`manifestcommit settle`: a table that no longer depends on the one that decided its newest
version. [MT10]
"""

from __future__ import annotations

import argparse

from ..options import Commands, table_of
from ..output import written


def add_commands(commands: Commands) -> None:
    """Register `settle`."""
    settle = commands.add(
        "settle",
        _settle,
        "make a table independent of the one that decided its newest version",
        ["settle /lake/rejects", "settle /lake/rejects --outcome aborted --reason 'disk lost'"],
    )
    settle.add_argument(
        "--outcome",
        choices=("committed", "aborted"),
        help="what became of it, where the table that decides is lost; with --reason",
    )
    settle.add_argument("--reason", metavar="TEXT", help="how you know; recorded in the history")


def _settle(options: argparse.Namespace) -> int:
    outcome = table_of(options).settle(options.outcome, reason=options.reason)
    if written(options, {"version": outcome.version, "kind": outcome.kind}):
        return 0
    if outcome.kind == "unchanged":
        print(f"version {outcome.version} depends on no other table: nothing to settle")
    else:
        print(f"version {outcome.version}: settled")
    return 0

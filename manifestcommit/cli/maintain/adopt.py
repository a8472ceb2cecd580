"""The command that makes a table of a folder of Parquet files: `adopt`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import msgspec

from ...terminal.render import counted, visible
from ...terminal.screen import print_table
from ..options import Commands, add_note, note_of, table_of
from ..output import size_text, written

if TYPE_CHECKING:
    from ...engine.maintenance.adopt import Adoption


def add_commands(commands: Commands) -> None:
    """Register `adopt`."""
    parser = commands.add(
        "adopt",
        _adopt,
        "make a table of a folder of Parquet files, where they are, in one commit",
        ["adopt /lake/old --partition-by day", "adopt /lake/old --from delta"],
    )
    parser.add_argument(
        "--partition-by",
        metavar="A,B",
        help="the columns that partition it; default: those of its name=value folders; '' for none",
    )
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="FORMAT",
        help="iceberg, delta, or an Iceberg document: what that table has; default: all files",
    )
    add_note(parser)


def _adopt(options: argparse.Namespace) -> int:
    given = options.partition_by
    names = None if given is None else [name.strip() for name in given.split(",") if name.strip()]
    found: Adoption = table_of(options).adopt(
        partition_by=names, from_=options.from_, **note_of(options)
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

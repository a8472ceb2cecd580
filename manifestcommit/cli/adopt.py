"""Commands between this format and others: `adopt` makes a table of a folder of Parquet files,
`export` shows a table to other engines.

Not here: arguments that every command has, exit statuses of errors (cli), what adopting and
exporting are (engine.maintenance.adopt, interop).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import UsageError
from ..terminal.render import counted, print_json, render_table, visible

if TYPE_CHECKING:
    from ..engine.maintenance.adopt import Adoption

_FORMATS = ("iceberg", "delta")


def add_commands(commands: Any, command: Any) -> None:
    """Add `adopt` and `export`."""
    parser = command(
        commands,
        "adopt",
        _adopt,
        "make a table of a folder of Parquet files, where they are, in one commit",
    )
    parser.add_argument(
        "--partition-by",
        metavar="A,B",
        help="the columns that partition it; default: those of its name=value folders; '' for none",
    )
    parser = command(
        commands,
        "export",
        _export,
        "show the newest version to other engines, as an Iceberg or Delta table; copies no data",
    )
    parser.add_argument(
        "--format",
        required=True,
        metavar="FORMATS",
        help="iceberg, delta, or both, split by commas",
    )


def _export(options: argparse.Namespace) -> int:
    names = options.format.split(",")
    if not set(names) <= set(_FORMATS):
        raise UsageError(
            f"invalid --format {options.format!r}: expected {' or '.join(_FORMATS)}, or both, "
            "split by commas, such as iceberg,delta"
        )
    table = options.open_table(options)
    made = [table.export(name) for name in names]
    if options.json:
        return print_json([msgspec.to_builtins(each) for each in made])
    rows = [(each.format, str(each.version), visible(each.location)) for each in made]
    print(render_table(("format", "version", "location"), rows))
    return 0


def _adopt(options: argparse.Namespace) -> int:
    given = options.partition_by
    names = None if given is None else [name.strip() for name in given.split(",") if name.strip()]
    found: Adoption = options.open_table(options).adopt(partition_by=names)
    if options.json:
        return print_json(msgspec.to_builtins(found))
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
        f"{counted(found.bytes, 'byte')}"
    )
    print(f"version {found.version}: {what}{parts}")
    if found.skipped_files:
        print(f"skipped: {counted(found.skipped_files, 'file')}", file=sys.stderr)
        print(
            render_table(
                ("name", "reason"), [(visible(each.name), each.reason) for each in found.skipped]
            ),
            file=sys.stderr,
        )
        if found.skipped_files > len(found.skipped):
            print(f"… and {found.skipped_files - len(found.skipped):,} more", file=sys.stderr)
    return 0

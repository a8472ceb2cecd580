"""The command that shows a table to other engines: `export`.

Not here: what an export is (interop), arguments that every command has (cli.options).
"""

from __future__ import annotations

import argparse

import msgspec

from ...errors import UsageError
from ...terminal.render import visible
from ...terminal.screen import print_table
from ..options import Commands, positive, table_of
from ..output import written

_FORMATS = ("iceberg", "delta")


def add_commands(commands: Commands) -> None:
    """Register `export`."""
    parser = commands.add(
        "export",
        _export,
        "show a version to other engines, as an Iceberg or Delta table; copies no data",
        [
            "export /lake/flights --to iceberg,delta",
            "export /lake/flights --to delta --version 3",
        ],
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="FORMATS",
        help="iceberg, delta, or both, split by commas",
    )
    parser.add_argument(
        "--version",
        type=positive,
        metavar="N",
        help="this version, unless a later one is exported already (default: the newest)",
    )


def _export(options: argparse.Namespace) -> int:
    names = options.to.split(",")
    if not set(names) <= set(_FORMATS):
        raise UsageError(
            f"invalid --to {options.to!r}: expected {' or '.join(_FORMATS)}, or both, split by "
            "commas, such as iceberg,delta"
        )
    table = table_of(options)
    made = [table.export(name, version=options.version) for name in names]
    if not written(options, [msgspec.to_builtins(each) for each in made]):
        rows = [(each.format, str(each.version), visible(each.location)) for each in made]
        print_table(("format", "version", "location"), rows)
    return 0

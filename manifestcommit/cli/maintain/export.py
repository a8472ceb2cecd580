"""Commands that show a table to other engines: `export`, `create-table-sql`."""

from __future__ import annotations

import argparse

import msgspec

from ...errors import UsageError
from ...terminal.render import visible
from ...terminal.screen import print_table
from ..options import Commands, positive, table_of
from ..output import written

_FORMATS = ("iceberg", "delta", "spark-catalog")


def add_commands(commands: Commands) -> None:
    """Register `export` and `create-table-sql`."""
    parser = commands.add(
        "export",
        _export,
        "show a version to other engines, without a copy of data",
        [
            "export /lake/flights --to iceberg,delta",
            "export /lake/flights --to delta --version 3",
            "export /lake/flights --to spark-catalog",
        ],
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="FORMATS",
        help="iceberg, delta, spark-catalog, or several, split by commas",
    )
    parser.add_argument(
        "--version",
        type=positive,
        metavar="N",
        help="this version, unless a later one is exported already (default: the newest)",
    )
    parser = commands.add(
        "create-table-sql",
        _create_table_sql,
        "export to Spark's catalog, and print the statement that gives the export a name in it",
        ["create-table-sql /lake/flights lake.flights"],
    )
    parser.add_argument("name", metavar="NAME", help="the name in Spark's catalog")


def _export(options: argparse.Namespace) -> int:
    names = options.to.split(",")
    if not set(names) <= set(_FORMATS):
        raise UsageError(
            f"invalid --to {options.to!r}: expected {', '.join(_FORMATS)}, or several, split by "
            "commas, such as iceberg,delta"
        )
    table = table_of(options)
    made = [table.export(name, version=options.version) for name in names]
    if not written(options, [msgspec.to_builtins(each) for each in made]):
        rows = [(each.format, str(each.version), visible(each.location)) for each in made]
        print_table(("format", "version", "location"), rows)
    return 0


def _create_table_sql(options: argparse.Namespace) -> int:
    statement = table_of(options).create_table_sql(options.name)
    if not written(options, {"statement": statement}):
        print(f"{statement};")
    return 0

"""`manifestcommit add-column` and its neighbours, and `properties`. [SC5] [SC6] [SC9] [CM9]"""

from __future__ import annotations

import argparse
from typing import Any

from ...core.schema.fields import type_text
from ...errors import UsageError
from ...terminal.render import counted, visible
from ...terminal.screen import print_table
from ..options import Commands, add_note, note_of, table_of
from ..output import size_text, written
from ..safety import Plan, add_safety, decided


def add_commands(commands: Commands) -> None:
    """Register the commands."""
    add = commands.add(
        "add-column",
        _add,
        "add a column, which is null in every row that is there",
        ["add-column /lake/flights gate string"],
    )
    add.add_argument("name", metavar="NAME")
    add.add_argument("type", metavar="TYPE", help="a type of Spark or SQL, such as 'bigint'")

    rename = commands.add(
        "rename-column",
        _rename,
        "rename a column; its values stay, in old files and new ones",
        ["rename-column /lake/flights delay arrival_delay"],
    )
    rename.add_argument("name", metavar="NAME", help="the column's name now")
    rename.add_argument("new_name", metavar="NEW", help="its name then")

    for each in (add, rename, *_add_in_place(commands), *_add_last(commands)):
        add_note(each)


def _add_in_place(commands: Commands) -> list[argparse.ArgumentParser]:
    """The commands that change what a column says of itself."""
    widen = commands.add(
        "widen-column",
        _widen,
        "widen a column's type, such as integer to long; no file is rewritten",
        ["widen-column /lake/flights flight long"],
    )
    widen.add_argument("name", metavar="NAME")
    widen.add_argument("type", metavar="TYPE", help="the wider type, as for add-column")

    comment = commands.add(
        "comment-column",
        _comment,
        "set a column's comment, which `schema` shows; without a text, remove it",
        ["comment-column /lake/flights delay 'minutes, at arrival'"],
    )
    comment.add_argument("name", metavar="NAME")
    comment.add_argument("comment", metavar="TEXT", nargs="?", help="by default none")

    return [widen, comment]


def _add_last(commands: Commands) -> list[argparse.ArgumentParser]:
    drop = commands.add(
        "drop-column",
        _drop,
        "drop a column; a later column of the same name does not show its values",
        ["drop-column /lake/flights gate --dry-run"],
    )
    drop.add_argument("name", metavar="NAME")
    add_safety(drop)

    properties = commands.add(
        "properties",
        _properties,
        "the table's properties; --set and --unset change them in one commit",
        ["properties /lake/flights --set owner='air traffic'"],
    )
    properties.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="may be given again"
    )
    properties.add_argument(
        "--unset", action="append", default=[], metavar="NAME", help="may be given again"
    )
    return [drop, properties]


def _add(options: argparse.Namespace) -> int:
    outcome = table_of(options).add_column(options.name, options.type, **note_of(options))
    return _altered(options, outcome, f"column {options.name!r} is there")


def _rename(options: argparse.Namespace) -> int:
    outcome = table_of(options).rename_column(options.name, options.new_name, **note_of(options))
    return _altered(options, outcome, f"column {options.name!r} is now {options.new_name!r}")


def _widen(options: argparse.Namespace) -> int:
    outcome = table_of(options).widen_column(options.name, options.type, **note_of(options))
    return _altered(options, outcome, f"column {options.name!r} is {options.type} now")


def _comment(options: argparse.Namespace) -> int:
    comment = options.comment or None
    outcome = table_of(options).comment_column(options.name, comment, **note_of(options))
    said = "has no comment now" if comment is None else f"has the comment {comment!r}"
    return _altered(options, outcome, f"column {options.name!r} {said}")


def _altered(options: argparse.Namespace, outcome: Any, said: str) -> int:
    document = {"version": outcome.version, "already_committed": outcome.already_committed}
    if not written(options, document):
        print(f"version {outcome.version}: {visible(said)}")
    return 0


def _plan_drop(options: argparse.Namespace) -> Plan:
    from ...core.schema.evolution import drop_column, find_column

    snapshot = table_of(options).snapshot()
    if snapshot.schema is None:
        raise UsageError(f"{options.path} has no columns yet")
    drop_column(snapshot.schema, options.name, partition_by=snapshot.partition_by)  # or raises
    column, totals = find_column(snapshot.schema, options.name), snapshot.totals
    kind = type_text(column.type)
    return Plan(
        version=snapshot.version,
        what=f"drop the column {column.name!r} ({kind})",
        effects=[
            f"its values can no longer be read: {counted(totals.files, 'file')}, "
            f"{counted(totals.rows, 'row')}, {size_text(options, totals.bytes)}",
            f"left: {counted(len(snapshot.schema.fields) - 1, 'column')}",
            "a rollback brings it back, as long as gc keeps an older version",
        ],
        document={
            "version": snapshot.version,
            "column": column.name,
            "type": kind,
            "files": totals.files,
            "rows": totals.rows,
            "bytes": totals.bytes,
        },
    )


def _drop(options: argparse.Namespace) -> int:
    table = table_of(options)
    status = decided(options, lambda: _plan_drop(options), lambda: table.version)
    if status is not None:
        return status
    outcome = table.drop_column(options.name, **note_of(options))
    return _altered(options, outcome, f"column {options.name!r} is dropped")


def _properties(options: argparse.Namespace) -> int:
    table = table_of(options)
    changes: dict[str, str | None] = dict.fromkeys(options.unset)
    for each in options.set:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UsageError(f"invalid --set {each!r}: expected a name and a value, NAME=VALUE")
        changes[name] = value
    if not changes and (options.message is not None or options.metadata):
        raise UsageError("--message and --metadata go with --set or --unset; nothing was done")
    if changes:
        table.set_properties(changes, **note_of(options))
    found = dict(sorted(table.snapshot().properties.items()))
    rows = [{"name": name, "value": value} for name, value in found.items()]
    if not written(options, found, rows):
        print_table(("property", "value"), list(found.items()), "no property is set")
    return 0

"""`manifestcommit delete`: rows out of a table by a condition in SQL. [RC2] [RC8]"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...terminal.render import counted
from ..options import Commands, add_note, note_of, table_of
from ..output import written
from ..safety import Plan, add_safety, decided
from ..spark_session import quiet_spark

if TYPE_CHECKING:
    from ...engine.operations.row_change import RowOutcome
    from ...table import Table

_FIGURES = ("rows_deleted", "rows_rewritten", "files_removed", "files_rewritten")


def add_commands(commands: Commands) -> None:
    """Register `delete`."""
    made = commands.add(
        "delete",
        _delete,
        "delete the rows that match a condition, in one commit; older versions keep them until gc",
        ["delete /lake/flights --where 'flight = 1545' --dry-run"],
    )
    made.add_argument(
        "--where",
        required=True,
        metavar="SQL",
        help="""such as "flight = 1545 AND day < '2013-01-02'"; null is no match""",
    )
    made.add_argument(
        "--key", metavar="KEY", help="a name for this work: a rerun with the same key does nothing"
    )
    made.add_argument("--reason", metavar="TEXT", help="recorded in the history")
    add_safety(made, dry_run="count what would go, and change nothing")
    add_note(made)


def print_outcome(options: argparse.Namespace, outcome: RowOutcome) -> int:
    """What was deleted, or would be."""
    document = {
        "kind": outcome.kind,
        "version": outcome.version,
        "job": outcome.job_id,
        **{name: getattr(outcome, name) for name in _FIGURES},
    }
    if written(options, document):
        return 0
    if outcome.already_committed:
        print(f"done before, at version {outcome.version}")
        return 0
    what = _what(outcome)
    print(
        {
            "unchanged": f"no row of version {outcome.version} matches; nothing was committed",
            "planned": f"would delete {what}; nothing was changed",
        }.get(outcome.kind, f"deleted {what}; committed at version {outcome.version}")
    )
    return 0


def _what(outcome: RowOutcome) -> str:
    deleted, kept, removed, rewritten = (getattr(outcome, name) for name in _FIGURES)
    what = f"{counted(deleted, 'row')}: {counted(removed, 'file')} removed, {rewritten:,} rewritten"
    if kept:
        what += f" with the {counted(kept, 'row')} that {'stays' if kept == 1 else 'stay'}"
    return what


def _plan(options: argparse.Namespace, table: Table) -> Plan | None:
    found = _run(options, table, dry_run=True)
    if found.kind != "planned" or found.version is None:  # nothing matches, or it is done
        return None
    return Plan(
        version=found.version,
        what=f"delete rows from {options.path}",
        effects=[_what(found), "older versions keep these rows until gc expires them"],
        document={},
    )


def _run(options: argparse.Namespace, table: Table, *, dry_run: bool) -> RowOutcome:
    return table.delete(
        options.where,
        key=options.key,
        reason=options.reason,
        dry_run=dry_run,
        **note_of(options),
    )


def _delete(options: argparse.Namespace) -> int:
    table = table_of(options)
    table.snapshot()  # a wrong path is reported before Spark starts
    with quiet_spark(options):
        if options.dry_run:
            return print_outcome(options, _run(options, table, dry_run=True))
        status = decided(
            options, lambda: _plan(options, table), lambda: table.version, is_costly=True
        )
        if status is None:
            status = print_outcome(options, _run(options, table, dry_run=False))
    return status

"""`manifestcommit delete`: rows out of a table by a condition in SQL. [RC2] [RC8]

Not here: who evaluates the condition (engine.row_changes.executor), the merge, whose source is a
program's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..terminal.render import counted, print_json

if TYPE_CHECKING:
    from ..engine.operations.row_change import RowOutcome

_FIGURES = ("rows_deleted", "rows_rewritten", "files_removed", "files_rewritten")


def add_commands(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    made = command(
        commands,
        "delete",
        _delete,
        "delete the rows that match a condition, in one commit; older versions keep them until gc",
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
    made.add_argument(
        "--dry-run", action="store_true", help="count what would go, and change nothing"
    )


def print_outcome(outcome: RowOutcome, *, as_json: bool) -> int:
    """What was deleted, or would be."""
    if as_json:
        told = {name: getattr(outcome, name) for name in _FIGURES}
        return print_json(
            {"kind": outcome.kind, "version": outcome.version, "job": outcome.job_id, **told}
        )
    if outcome.already_committed:
        print(f"done before, at version {outcome.version}")
        return 0
    deleted, kept, removed, rewritten = (getattr(outcome, name) for name in _FIGURES)
    what = f"{counted(deleted, 'row')}: {counted(removed, 'file')} removed, {rewritten:,} rewritten"
    if kept:
        what += f" with the {counted(kept, 'row')} that {'stays' if kept == 1 else 'stay'}"
    print(
        {
            "unchanged": f"no row of version {outcome.version} matches; nothing was committed",
            "planned": f"would delete {what}; nothing was changed",
        }.get(outcome.kind, f"deleted {what}; committed at version {outcome.version}")
    )
    return 0


def _delete(options: argparse.Namespace) -> int:
    table = options.open_table(options)
    table.snapshot()  # a wrong path is reported before Spark starts
    outcome = table.delete(
        options.where, key=options.key, reason=options.reason, dry_run=options.dry_run
    )
    return print_outcome(outcome, as_json=options.json)

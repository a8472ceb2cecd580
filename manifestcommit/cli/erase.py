"""`manifestcommit erase` and `holders`: rows that are to be gone for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..terminal import Steps
from .options import DONE, NO, Options, as_typed, command, table_of
from .output import Plan, confirm, show, written

if TYPE_CHECKING:
    from ..table import Table
    from ..table.erasing import Erasure

_GIVEN = ("where", "reason", "drop_tags", "abort_jobs", "grace", "foreign")


@command(
    """
    erase: delete rows for good, and all that holds them or tells of them; exit status 1 as long as
      something does, so that it is called again
    --where SQL!  such as "person = 'Ada'"; the newest version's columns
    --reason TEXT!  the same in each call; recorded in the history, so do not name the person in it
    --drop-tags  delete the tags of versions that tell of such rows
    --abort-jobs  abort undecided jobs with such rows
    --followers PATH*  a table that has to follow this one first; may be given again
    --clones PATH*  a clone that must not hold such rows, either; may be given again
    --grace AGE  as for gc (default: gc.grace, or 24h)
    --foreign  as for gc: files that something else wrote, too
    --dry-run  say what holds such rows, and change nothing
    @yes
    @note
    $ erase /lake/passengers --where "person = 'Ada'" --reason 'request 17' --dry-run
    """
)
def _erase(options: Options) -> int:
    table = table_of(options)
    if not options.dry_run:
        confirm(options, lambda: _plan(options, table), table)
    return _print(options, _called(options, table, dry_run=options.dry_run))


def _called(options: Options, table: Table, *, dry_run: bool) -> Erasure:
    given: dict[str, Any] = {name: getattr(options, name) for name in _GIVEN}
    given |= {name: getattr(options, name) or [] for name in ("followers", "clones")}
    with Steps() as steps:
        found = table.erase(**given, progress=steps, dry_run=dry_run)
    told = tuple(as_typed(each, options) for each in found.waiting)
    return msgspec.structs.replace(found, waiting=told)


def _plan(options: Options, table: Table) -> Plan | None:
    version = table.version
    found = _called(options, table, dry_run=True)
    if found.state == "done":
        return None
    what = f"erase rows of {options.path}, and all versions that tell of them"
    return Plan(version, what, {"rows": found.rows, "held by": "; ".join(found.waiting)})


def _print(options: Options, found: Erasure) -> int:
    more = {"open": "call it again", "planned": "nothing was changed"}
    document = msgspec.to_builtins(found)
    if not written(options, document):
        rows = [{"still": text} for text in found.waiting]
        show(options, {**document, "waiting": rows}, more=more.get(found.state, ""))
    return NO if found.state == "open" else DONE


@command(
    """
    holders: every object that holds rows that match a condition, or may; exit status 1 if one does
    --where SQL!  such as "person = 'Ada'"; the newest version's columns
    $ holders /lake/passengers --where "person = 'Ada'"
    """
)
def _holders(options: Options) -> int:
    rows = table_of(options).holders(options.where).to_pylist()
    show(options, rows, nothing="nothing holds such rows")
    return NO if rows else DONE

"""`manifestcommit rewind`: setting a source's watermark back. [WM5]"""

from __future__ import annotations

import argparse
import sys

from ...errors import UsageError
from ...terminal.render import counted, visible, were
from ..options import Commands, add_alone, add_note, context_of, note_of, table_of
from ..output import written
from ..safety import Plan, add_safety, decided


def add_commands(commands: Commands) -> None:
    """Register `rewind`."""
    rewind = commands.add(
        "rewind",
        _rewind,
        "set a source's watermark back, and drop the keys whose work that undoes",
        ["rewind /lake/flights faa --to 27004 --reason 'day 2 again'"],
    )
    rewind.add_argument("source", metavar="SOURCE", help="as `manifestcommit watermarks` shows it")
    target = rewind.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to", metavar="POSITION", help="a number, or a text that was the watermark once"
    )
    target.add_argument(
        "--forget", action="store_true", help="as if the source had never been read"
    )
    rewind.add_argument("--reason", required=True, metavar="TEXT", help="recorded in the history")
    rewind.add_argument(
        "--keep-keys",
        action="store_true",
        help="drop no key, where the history that shows which is expired",
    )
    add_alone(rewind)
    add_safety(rewind)
    add_note(rewind)


def _plan(options: argparse.Namespace, to: int | str | None) -> Plan:
    from ...argument_checks import REASON  # late: `--help` needs no pyarrow
    from ...engine.operations.rewind import plan_rewind
    from ...engine.operations.rollback import check_alone

    REASON("reason", options.reason)
    head, back = plan_rewind(
        context_of(options),
        options.source,
        to,
        reason=options.reason,
        keep_keys=options.keep_keys,
        alone=options.alone,
    )
    check_alone(options.path, head, back)
    keys = sorted(back.keys)
    again = (
        f": {counted(back.have - to, 'position')} to read again"
        if isinstance(back.have, int) and isinstance(to, int)
        else ""
    )
    where = "as if it had never been read" if to is None else f"at {to!r}"
    return Plan(
        version=head.version,
        what=f"set source {options.source!r} back",
        effects=[
            f"now at {back.have!r}; then {where}{again}",
            f"dropped: {counted(len(keys), 'key')}"
            + (f": {', '.join(map(repr, keys[:5]))}" + ", …" * (len(keys) > 5) if keys else ""),
            "rows that were read after that position stay: 0 files change",
        ],
        document={
            "version": head.version,
            "source": options.source,
            "from": back.have,
            "to": to,
            "dropped_keys": keys,
        },
    )


def _rewind(options: argparse.Namespace) -> int:
    table = table_of(options)
    # What a watermark is decides how the argument is meant: "5" may be a text.
    whole = isinstance(table.watermarks().get(options.source), int)
    try:
        to = None if options.forget else int(options.to) if whole else options.to
    except ValueError:
        raise UsageError(
            f"invalid --to {options.to!r}: source {options.source!r} has numbers as positions"
        ) from None
    status = decided(options, lambda: _plan(options, to), lambda: table.version)
    if status is not None:
        return status
    outcome = table.rewind(
        options.source,
        to,
        reason=options.reason,
        keep_keys=options.keep_keys,
        alone=options.alone,
        **note_of(options),
    )
    document = {
        "version": outcome.version,
        "source": options.source,
        "to": to,
        "dropped_keys": outcome.dropped_keys,
    }
    if written(options, document):
        return 0
    state = "is forgotten" if to is None else f"is at {to!r}"
    print(
        f"version {outcome.version}: source {options.source!r} {state}; "
        f"{were(len(outcome.dropped_keys), 'key')} dropped"
    )
    for key in outcome.dropped_keys:
        print(f"  {visible(key)}")
    print(
        "rows read after that position stay in the table until they are overwritten or deleted",
        file=sys.stderr,
    )
    return 0

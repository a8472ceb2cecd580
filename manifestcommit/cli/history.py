"""`manifestcommit rollback`, `tag` and `untag`: going back to a version, and names that keep
versions readable. [CF13] [GC10]

Not here: what they do (engine.operations.rollback, engine.operations.tags).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from ..terminal.render import counted, print_json, visible, were


def add_commands(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to the parser."""
    back = command(
        commands,
        "rollback",
        _rollback,
        "make the table what it was at an earlier version, in a commit of its own",
    )
    target = back.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "version", type=_version, metavar="VERSION", nargs="?", help="any readable version"
    )
    target.add_argument("--tag", metavar="NAME", help="the version with this tag")
    back.add_argument("--reason", required=True, metavar="TEXT", help="recorded in the history")

    tag = command(
        commands,
        "tag",
        _tag,
        "give a version a name, under which it stays readable; a tag of that name moves",
    )
    tag.add_argument("name", metavar="NAME")
    tag.add_argument(
        "--version", type=_version, metavar="N", help="this version instead of the newest"
    )
    tag.add_argument(
        "--keep-for",
        metavar="AGE",
        help="such as 30d or 24h: then gc may take it; default: until it is deleted",
    )

    untag = command(
        commands, "untag", _untag, "delete a tag; its version is kept no longer than others are"
    )
    untag.add_argument("name", metavar="NAME")


def _version(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a version is a number from 1 on, not {text!r}")
    return int(text)


def _rollback(options: argparse.Namespace) -> int:
    table = options.open_table(options)
    outcome = table.rollback(options.version, tag=options.tag, reason=options.reason)
    done = next(
        each for each in table.snapshot(outcome.version).commits if each.job == outcome.job_id
    )
    said = done.summary
    if options.json:
        names = ("files", "rows", "bytes", "removed_files", "removed_rows", "removed_bytes")
        counts = {name: getattr(said, name) for name in names}
        return print_json(
            {
                "version": outcome.version,
                "restored": done.restored,
                **counts,
                "dropped_keys": outcome.dropped_keys,
            }
        )
    print(f"version {outcome.version}: the table is what it was at version {done.restored}")
    print(
        f"  no longer in it: {counted(said.removed_files, 'file')} with "
        f"{counted(said.removed_rows, 'row')}"
    )
    print(f"  back in it: {counted(said.files, 'file')} with {counted(said.rows, 'row')}")
    again = ": that work can be done again" if outcome.dropped_keys else ""
    print(f"  {were(len(outcome.dropped_keys), 'key')} dropped{again}")
    for key in outcome.dropped_keys:
        print(f"    {visible(key)}")
    print(
        "nothing was deleted; a rollback to the version before this one undoes it", file=sys.stderr
    )
    return 0


def _tag(options: argparse.Namespace) -> int:
    from ..engine.metadata.time_travel import to_datetime  # late: `--version` needs no pyarrow

    table = options.open_table(options)
    outcome = table.tag(options.name, options.version, keep_for=options.keep_for)
    made = table.snapshot(outcome.version).tags[options.name]
    until = None if made.until is None else to_datetime(made.until).isoformat(timespec="seconds")
    if options.json:
        return print_json(
            {
                "version": outcome.version,
                "tag": options.name,
                "tagged": made.version,
                "until": until,
            }
        )
    print(
        f"version {outcome.version}: version {made.version} is tagged {visible(options.name)!r}"
        + (f" until {until}" if until else "")
    )
    return 0


def _untag(options: argparse.Namespace) -> int:
    outcome = options.open_table(options).untag(options.name)
    if options.json:
        return print_json(
            {"version": outcome.version, "tag": options.name, "tagged": None, "until": None}
        )
    print(f"version {outcome.version}: the tag {visible(options.name)!r} is gone")
    return 0

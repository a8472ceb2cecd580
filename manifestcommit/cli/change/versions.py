"""`manifestcommit rollback`, `tag` and `untag`: going back to a version, and names that keep
versions readable. [CF13] [GC10]

Not here: what they do (engine.operations.rollback, engine.operations.tags).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from ...terminal.render import counted, visible, were
from ..options import Commands, add_alone, add_note, context_of, note_of, positive, table_of
from ..output import size_text, written
from ..safety import Plan, add_safety, decided


def add_commands(commands: Commands) -> None:
    """Register the commands."""
    back = commands.add(
        "rollback",
        _rollback,
        "make the table what it was at an earlier version, in a commit of its own",
        ["rollback /lake/flights 3 --reason 'wrong rates' --dry-run"],
    )
    target = back.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "version", type=positive, metavar="VERSION", nargs="?", help="any readable version"
    )
    target.add_argument("--tag", metavar="NAME", help="the version with this tag")
    back.add_argument("--reason", required=True, metavar="TEXT", help="recorded in the history")
    add_alone(back)
    add_safety(back)

    tag = commands.add(
        "tag",
        _tag,
        "give a version a name, under which it stays readable; a tag of that name moves",
        ["tag /lake/flights 2013-q1 --version 7 --keep-for 400d"],
    )
    tag.add_argument("name", metavar="NAME")
    tag.add_argument(
        "--version", type=positive, metavar="N", help="this version instead of the newest"
    )
    tag.add_argument(
        "--keep-for",
        metavar="AGE",
        help="such as 30d or 24h: then gc may take it; default: until it is deleted",
    )

    untag = commands.add(
        "untag",
        _untag,
        "delete a tag; its version is kept no longer than others are",
        ["untag /lake/flights 2013-q1"],
    )
    untag.add_argument("name", metavar="NAME")
    add_safety(untag)

    for each in (back, tag, untag):
        add_note(each)


def _plan_rollback(options: argparse.Namespace) -> Plan:
    from ...argument_checks import REASON  # late: `--help` needs no pyarrow
    from ...engine.operations.rollback import check_alone, plan_rollback

    REASON("reason", options.reason)
    head, back = plan_rollback(
        context_of(options),
        options.version,
        tag=options.tag,
        reason=options.reason,
        alone=options.alone,
    )
    check_alone(options.path, head, back)
    target, keys = back.target.version, sorted(back.dropped)
    undone = head.version - target
    before, after = head.snapshot.watermarks, back.target.watermarks
    moved = sorted(name for name in before | after if before.get(name) != after.get(name))
    taken, given = (
        f"{counted(each.files, 'file')} with {counted(each.rows, 'row')}, "
        f"{size_text(options, each.bytes)}"
        for each in (back.taken, back.given)
    )
    return Plan(
        version=head.version,
        what=f"roll {options.path} back from version {head.version} to version {target}",
        effects=[
            f"undone: {counted(undone, 'version')}",
            f"no longer in the table: {taken}",
            f"back in the table: {given}",
            f"dropped: {_named(keys, 'key')}",
            f"moved: {_moved(before, after, moved)}",
        ],
        document={
            "version": head.version,
            "restored": target,
            "versions": undone,
            "files": back.given.files,
            "rows": back.given.rows,
            "bytes": back.given.bytes,
            "removed_files": back.taken.files,
            "removed_rows": back.taken.rows,
            "removed_bytes": back.taken.bytes,
            "dropped_keys": keys,
            "watermarks": moved,
        },
    )


def _moved(before: Mapping[str, Any], after: Mapping[str, Any], names: list[str]) -> str:
    """How many watermarks move, and from where to where the first of them do: forward, too, where a
    rewind is undone."""
    shown = [
        f"{name!r} from {_or(before.get(name), 'unknown')} to {_or(after.get(name), 'its origin')}"
        for name in names[:5]
    ]
    rest = ["…"] * (len(names) > 5)
    return counted(len(names), "watermark") + (f": {', '.join([*shown, *rest])}" if shown else "")


def _or(position: Any, other: str) -> str:
    return other if position is None else repr(position)


def _named(names: list[str], noun: str) -> str:
    """How many there are, and the first of them."""
    shown = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
    return counted(len(names), noun) + (f": {shown}" if shown else "")


def _rollback(options: argparse.Namespace) -> int:
    table = table_of(options)
    status = decided(options, lambda: _plan_rollback(options), lambda: table.version)
    if status is not None:
        return status
    outcome = table.rollback(
        options.version,
        tag=options.tag,
        reason=options.reason,
        alone=options.alone,
        **note_of(options),
    )
    done = next(
        each for each in table.snapshot(outcome.version).commits if each.job == outcome.job_id
    )
    said = done.summary
    names = ("files", "rows", "bytes", "removed_files", "removed_rows", "removed_bytes")
    document = {
        "version": outcome.version,
        "restored": done.restored,
        **{name: getattr(said, name) for name in names},
        "dropped_keys": outcome.dropped_keys,
    }
    if written(options, document):
        return 0
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
    from ...engine.metadata.time_travel import to_datetime  # late: `--version` needs no pyarrow

    table = table_of(options)
    outcome = table.tag(
        options.name, options.version, keep_for=options.keep_for, **note_of(options)
    )
    made = table.snapshot(outcome.version).tags[options.name]
    until = None if made.until is None else to_datetime(made.until).isoformat(timespec="seconds")
    document = {
        "version": outcome.version,
        "tag": options.name,
        "tagged": made.version,
        "until": until,
    }
    if not written(options, document):
        print(
            f"version {outcome.version}: version {made.version} is tagged {visible(options.name)!r}"
            + (f" until {until}" if until else "")
        )
    return 0


def _plan_untag(options: argparse.Namespace) -> Plan | None:
    from ...engine.metadata.time_travel import to_datetime

    table = table_of(options)
    head = table.snapshot()
    tag = head.tags.get(options.name)
    if tag is None:
        table.snapshot(tag=options.name)  # raises: there is none
        return None
    only = table.changes(tag.version)["removed"]
    rows, size = (sum(only.column(name).to_pylist()) for name in ("rows", "bytes"))
    others = sorted(
        name
        for name, each in head.tags.items()
        if each.version == tag.version and name != options.name
    )
    until = "until it is deleted" if tag.until is None else f"until {to_datetime(tag.until)}"
    return Plan(
        version=head.version,
        what=f"delete the tag {options.name!r} of version {tag.version}",
        effects=[
            f"so far gc keeps that version {until}",
            f"then gc may take: {counted(only.num_rows, 'file')} with {counted(rows, 'row')}, "
            f"{size_text(options, size)}, that the newest version does not list",
            f"other tags of the version: {', '.join(others) or 'none'}",
        ],
        document={
            "version": head.version,
            "tag": options.name,
            "tagged": tag.version,
            "files": only.num_rows,
            "rows": rows,
            "bytes": size,
            "other_tags": others,
        },
    )


def _untag(options: argparse.Namespace) -> int:
    table = table_of(options)
    status = decided(options, lambda: _plan_untag(options), lambda: table.version)
    if status is not None:
        return status
    outcome = table.untag(options.name, **note_of(options))
    document = {"version": outcome.version, "tag": options.name, "tagged": None, "until": None}
    if not written(options, document):
        print(f"version {outcome.version}: the tag {visible(options.name)!r} is gone")
    return 0

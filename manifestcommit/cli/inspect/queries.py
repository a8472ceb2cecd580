"""Commands that show what was committed: history, describe, watermarks, changes, lineage."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from ...errors import UsageError
from ...terminal.notebook import cut
from ...terminal.render import counted, plain_text, print_json
from ...terminal.screen import print_table
from ..options import Commands, add_choice, chosen, positive, table_of
from ..output import size_text, written
from .contents import cell, names_in, print_columns, print_files, rows_of

_SHOWN = 100  # changes of rows that people see, unless they say otherwise

# What a commit's record says of who made it, and what for.
_SAID = ("author", "reason", "message", "metadata")


def add_commands(commands: Commands) -> None:
    """Register the commands."""
    history = commands.add(
        "history",
        _history,
        "the commits, newest first, back to the oldest readable version",
        ["history /lake/flights -n 5", "history /lake/flights --format csv"],
    )
    history.add_argument(
        "-n", "--limit", type=positive, metavar="N", help="only the newest N commits"
    )

    describe = commands.add(
        "describe",
        _describe,
        "one version: schema, partitioning, totals, commits, properties, tags",
        ["describe /lake/flights --as-of 2013-01-31T12:00:00Z"],
    )
    add_choice(describe)

    watermarks = commands.add(
        "watermarks",
        _watermarks,
        "how far every source has been read",
        ["watermarks /lake/flights --json"],
    )
    add_choice(watermarks)

    _add_changes(commands)
    lineage = commands.add(
        "lineage",
        _lineage,
        "which version and files hold a position of a source",
        ["lineage /lake/flights faa 27004"],
    )
    lineage.add_argument("source", metavar="SOURCE")
    lineage.add_argument("position", metavar="POSITION")


def _add_changes(commands: Commands) -> None:
    changes = commands.add(
        "changes",
        _changes,
        "the files added and removed after version START, up to version END, or the rows",
        ["changes /lake/flights 3 5", "changes /lake/flights 3 --rows --on id --format jsonl"],
    )
    changes.add_argument("start_version", type=_version, metavar="START")
    changes.add_argument(
        "end_version", type=positive, metavar="END", nargs="?", help="default: the newest version"
    )

    rows = changes.add_argument_group("rows instead of files")
    rows.add_argument(
        "--rows",
        action="store_true",
        help="the rows inserted, deleted and updated, version by version; START may be 0",
    )
    rows.add_argument("--on", metavar="A,B", help="the columns of a key, by which rows are updated")
    rows.add_argument("--columns", metavar="A,B", help="compare and show only these columns")
    rows.add_argument(
        "-n",
        "--limit",
        type=positive,
        metavar="N",
        help=f"only the first N (default: {_SHOWN} for people, all for programs; --format jsonl "
        "prints them as they are found)",
    )


def _version(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _history(options: argparse.Namespace) -> int:
    from ...engine.inspection.describe import partners_text
    from ..job_ids import short  # late: `--help` needs no pyarrow

    table = table_of(options)
    rows = table.history(options.limit)
    if written(options, rows):
        return 0
    joint = ["together with"] if any(map(itemgetter("joint"), rows)) else []
    more = [name for name in _SAID if any(map(itemgetter(name), rows))]
    print_table(
        (
            "version",
            "committed at (UTC)",
            "operation",
            "key",
            "+files",
            "-files",
            "+rows",
            "total rows",
            "job",
            *joint,
            *more,
        ),
        [
            (
                row["version"],
                f"{row['committed_at']:%Y-%m-%d %H:%M:%S}",
                row["operation"]
                if row["restored"] is None
                else f"{row['operation']} to {row['restored']}",
                row["key"] or "",
                row["summary"].get("files", 0),
                row["summary"].get("removed_files", 0),
                row["summary"].get("rows", 0),
                row["totals"].get("rows", 0),
                short(row["job"]),
                *[partners_text(row["joint"], table.url) for _ in joint],
                *[_said(row, name) for name in more],
            )
            for row in rows
        ],
        spare=("metadata", "-files", "job", "author", "total rows", "+files"),
    )
    return 0


def _said(row: dict[str, Any], name: str) -> str:
    """What a commit's record says of it, short enough for a line."""
    from ...engine.inspection.describe import author_text  # late: `--help` needs no pyarrow

    text = author_text(row[name]) if name == "author" else plain_text(row[name] or "")
    return cut(text)


def _describe(options: argparse.Namespace) -> int:
    from ...engine.inspection.describe import partners_text
    from ..job_ids import short

    document = table_of(options).describe(**chosen(options))
    if written(options, document):
        return 0
    columns, commits, joint = (document.pop(name) for name in ("columns", "commits", "joint"))
    if joint is not None:
        document["together with"] = partners_text(joint, document["url"])
    simple = [
        ("size", size_text(options, value))
        if name == "bytes"
        else (name, f"{value:,}" if name in ("files", "rows", "sources") else plain_text(value))
        for name, value in document.items()
    ]
    print_table(("", ""), simple, header=False)
    print("\ncolumns")
    print_columns(columns)
    print("\ncommits")
    more = [name for name in _SAID if any(map(itemgetter(name), commits))]
    rows = [
        (
            c["operation"],
            c["key"] or "",
            short(c["job"]),
            "; ".join(c["touched"][:4]) + (" …" if len(c["touched"]) > 4 else ""),
            *[_said(c, name) for name in more],
        )
        for c in commits
    ]
    names = ("operation", "key", "job", "touched", *more)
    print_table(names, rows, spare=("metadata", "author", "job"))
    return 0


def _watermarks(options: argparse.Namespace) -> int:
    snapshot = table_of(options).snapshot(**chosen(options))
    marks = {
        source: {"position": position, "origin": snapshot.origins.get(source)}
        for source, position in sorted(snapshot.watermarks.items())
    }
    if written(options, marks, [{"source": source, **each} for source, each in marks.items()]):
        return 0
    rows = [
        (source, plain_text(each["origin"]), plain_text(each["position"]))
        for source, each in marks.items()
    ]
    print_table(("source", "origin", "position"), rows, "no source has a watermark")
    return 0


def _row_changes(options: argparse.Namespace) -> int:
    reader = table_of(options).read_changes(
        options.start_version,
        options.end_version,
        on=names_in(options.on),
        columns=names_in(options.columns),
    )
    most = options.limit or (_SHOWN if options.format == "table" else None)
    # one more than is shown tells whether there are more
    found = islice((row for batch in reader for row in rows_of(batch)), most and most + 1)
    if options.format == "jsonl":
        for row in islice(found, most):
            print_json(row, indent=None)
        return 0
    rows = list(found)
    if not written(options, rows[:most]):
        cells = [tuple(map(cell, row.values())) for row in rows[:most]]
        print_table(reader.schema.names, cells, "no row changed")
        if most is not None and len(rows) > most:
            print(f"and more; -n shows more than the first {most}", file=sys.stderr)
    return 0


def _changes(options: argparse.Namespace) -> int:
    if options.rows:
        return _row_changes(options)
    for name in ("on", "columns", "limit"):
        if getattr(options, name) is not None:
            raise UsageError(f"invalid --{name}: it is about rows; give --rows, too")
    if not options.start_version:
        raise UsageError("invalid START 0: expected a version from 1 on; with --rows 0 is one")
    changes = table_of(options).changes(options.start_version, options.end_version)
    document = {name: rows_of(table) for name, table in changes.items()}
    lines = [{"change": name, **row} for name, rows in document.items() for row in rows]
    if written(options, document, lines):
        return 0
    for name, table in changes.items():
        print(
            f"{name}: {counted(table.num_rows, 'file')}, "
            f"{counted(sum(table.column('rows').to_pylist()), 'row')}"
        )
        print_files(options, table, bounds=False)
    return 0


def _lineage(options: argparse.Namespace) -> int:
    try:
        position = int(options.position)
    except ValueError:
        position = options.position  # the library says why not
    found = table_of(options).lineage(options.source, position)
    document = msgspec.to_builtins(found)
    if written(options, document, document["files"] if document else []):
        pass
    elif found is None:
        print(f"no version holds position {options.position} of {options.source!r}")
    else:
        print(
            f"version {found.version}"
            + ("" if found.exact else "; its files do not say what they hold: any of them may")
        )
        known = {name: getattr(found, name) for name in _SAID if getattr(found, name, None)}
        if known:
            print_table(list(known), [[_said(known, name) for name in known]])
        files = [
            (each.version, plain_text(each.start), plain_text(each.end), each.path)
            for each in found.files
        ]
        print_table(("version", "start", "end", "path"), files, "no live file came with it")
    return 0 if found is not None else 1

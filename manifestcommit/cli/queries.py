"""Commands that look into a table: history, describe, files, watermarks, changes, lineage, metrics,
counts, doctor.

Not here: what they print, as Python callers get it (table).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ..terminal.progress import Steps
from ..terminal.render import (
    counted,
    plain_text,
    print_json,
    print_table,
    quoted,
    render_table,
    visible,
)
from .metrics import print_counts, print_figures, read_ends
from .options import add_choice, add_command, chosen, positive, table_of

if TYPE_CHECKING:
    import pyarrow as pa

_VERDICTS = {
    "safe": "safe for commits, as far as probes can show.",
    "unsafe": "NOT safe for commits. Use another store; on Ceph, a bucket without versioning.",
    "unknown": "it could not be found out whether it is safe for commits. Try again.",
}
# the rest are names, positions and values: written as they are
_COUNTS = ("files", "rows", "bytes", "sources")


def add_commands(commands: Any) -> None:
    """Register what shows a table's content."""
    history = add_command(
        commands,
        "history",
        _history,
        "the commits, newest first, back to the oldest readable version",
    )
    history.add_argument(
        "-n", "--limit", type=positive, metavar="N", help="only the newest N commits"
    )

    describe = add_command(
        commands,
        "describe",
        _describe,
        "one version: schema, partitioning, totals, commits, properties, tags",
    )
    add_choice(describe)

    files = add_command(
        commands,
        "files",
        _files,
        "the files that a version lists, with partition values, rows and bytes",
    )
    add_choice(files)
    files.add_argument(
        "--bounds",
        action="store_true",
        help="with nulls, minima and maxima per column (always there with --json)",
    )

    watermarks = add_command(
        commands, "watermarks", _watermarks, "how far every source has been read"
    )
    add_choice(watermarks)

    changes = add_command(
        commands,
        "changes",
        _changes,
        "the files added and removed after version START, up to version END",
    )
    changes.add_argument("start_version", type=positive, metavar="START")
    changes.add_argument(
        "end_version", type=positive, metavar="END", nargs="?", help="default: the newest version"
    )


def add_checks(commands: Any) -> None:
    """Register what measures and checks a table and its store."""
    lineage = add_command(
        commands,
        "lineage",
        _lineage,
        "which version and files hold a position of a source; exit status 1 if none does",
    )
    lineage.add_argument("source", metavar="SOURCE")
    lineage.add_argument("position", metavar="POSITION")

    metrics = add_command(
        commands, "metrics", _metrics, "size, age, waiting jobs, watermarks and lag, for monitoring"
    )
    metrics.add_argument(
        "--ends",
        metavar="FILE",
        help='a JSON file with the ends of sources, such as {"topic:0": 12345}, for the lag',
    )

    add_command(
        commands,
        "counts",
        _counts,
        "whether all counts match: read, written, committed, listed; exit status 1 if not",
    )

    add_command(
        commands,
        "doctor",
        _doctor,
        (
            "whether a store keeps what commits rely on; writes probes, and removes them; "
            "exit status 1 if not"
        ),
    )


def _history(options: argparse.Namespace) -> int:
    rows = table_of(options).history(options.limit)
    if options.json:
        return print_json(rows)
    why = any(row["reason"] for row in rows)
    print(
        render_table(
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
                *["reason"] * why,
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
                    row["job"],
                    *[row["reason"] or ""] * why,
                )
                for row in rows
            ],
        )
    )
    return 0


def _describe(options: argparse.Namespace) -> int:
    document = table_of(options).describe(**chosen(options))
    if options.json:
        return print_json(document)
    columns = document.pop("columns")
    commits = document.pop("commits")
    simple = [
        (name, f"{value:,}" if name in _COUNTS else plain_text(value))
        for name, value in document.items()
    ]
    print(render_table(("", ""), simple, header=False))
    print("\ncolumns")
    print(
        render_table(
            ("id", "name", "type", "nullable"),
            [(str(c["id"]), c["name"], c["type"], plain_text(c["nullable"])) for c in columns],
        )
    )
    print("\ncommits")
    rows = [
        (
            c["operation"],
            c["key"] or "",
            c["job"],
            "; ".join(c["touched"][:4]) + (" …" if len(c["touched"]) > 4 else ""),
        )
        for c in commits
    ]
    print(render_table(("operation", "key", "job", "touched"), rows))
    return 0


def _files(options: argparse.Namespace) -> int:
    table = table_of(options).files(**chosen(options)).sort_by("path")
    if options.json:
        return print_json(table.to_pylist())
    _print_files(table, bounds=options.bounds)
    rows, size = (sum(table.column(name).to_pylist()) for name in ("rows", "bytes"))
    print(
        f"{counted(table.num_rows, 'file')}, {counted(rows, 'row')}, {counted(size, 'byte')}",
        file=sys.stderr,
    )
    return 0


def _watermarks(options: argparse.Namespace) -> int:
    snapshot = table_of(options).snapshot(**chosen(options))
    marks = {
        source: (snapshot.origins.get(source), position)
        for source, position in sorted(snapshot.watermarks.items())
    }
    if options.json:
        return print_json(
            {
                source: {"position": position, "origin": origin}
                for source, (origin, position) in marks.items()
            }
        )
    rows = [
        (source, plain_text(origin), plain_text(position))
        for source, (origin, position) in marks.items()
    ]
    print_table(("source", "origin", "position"), rows, "no source has a watermark")
    return 0


def _changes(options: argparse.Namespace) -> int:
    changes = table_of(options).changes(options.start_version, options.end_version)
    if options.json:
        return print_json({name: table.to_pylist() for name, table in changes.items()})
    for name, table in changes.items():
        print(
            f"{name}: {counted(table.num_rows, 'file')}, "
            f"{counted(sum(table.column('rows').to_pylist()), 'row')}"
        )
        _print_files(table, bounds=False)
    return 0


def _lineage(options: argparse.Namespace) -> int:
    try:
        position = int(options.position)
    except ValueError:
        position = options.position  # the library says why not
    found = table_of(options).lineage(options.source, position)
    if options.json:
        print_json(msgspec.to_builtins(found))
    elif found is None:
        print(f"no version holds position {options.position} of {options.source!r}")
    else:
        print(
            f"version {found.version}"
            + ("" if found.exact else "; its files do not say what they hold: any of them may")
        )
        files = [
            (each.version, plain_text(each.start), plain_text(each.end), each.path)
            for each in found.files
        ]
        print_table(("version", "start", "end", "path"), files, "no live file came with it")
    return 0 if found is not None else 1


def _metrics(options: argparse.Namespace) -> int:
    return print_figures(table_of(options).metrics(read_ends(options.ends)), as_json=options.json)


def _counts(options: argparse.Namespace) -> int:
    with Steps() as steps:
        report = table_of(options).counts(progress=steps)
    return print_counts(report, as_json=options.json)


def _doctor(options: argparse.Namespace) -> int:
    with Steps() as steps:
        report = table_of(options).doctor(progress=steps)
    if options.json:
        print_json(msgspec.to_builtins(report))
    else:
        print(
            render_table(
                ("check", "result", ""),
                [(each.check, each.result, each.detail) for each in report.findings],
            )
        )
        if report.latencies:
            rows = [
                (each.call, f"{each.median_ms:,.1f}", f"{each.worst_ms:,.1f}")
                for each in report.latencies
            ]
            print("\n" + render_table(("request", "median ms", "worst ms"), rows))
        print(f"\n{visible(report.store)}: {_VERDICTS[report.verdict]}")
    return {"safe": 0, "unsafe": 1}.get(report.verdict, 3)


def _print_files(table: pa.Table, *, bounds: bool) -> None:
    hidden = {"digest", "job", "bounds", "path"} if not bounds else {"digest", "job", "path"}
    # last: it is the longest by far
    names = [name for name in table.column_names if name not in hidden] + ["path"]
    rows = [
        tuple(value if name in _COUNTS else quoted(value) for name, value in row.items())
        for row in table.select(names).to_pylist()
    ]
    print_table(names, rows)

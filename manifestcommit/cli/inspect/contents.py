"""Commands that show what a version holds: schema, partitions, files, and the first rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...terminal.render import counted, plain_text, quoted
from ...terminal.screen import print_table
from ..options import Commands, add_choice, chosen, positive, table_of
from ..output import size_cell, size_text, written
from ..spark_session import quiet_spark

if TYPE_CHECKING:
    import pyarrow as pa

# the rest are names, positions and values: written as they are
_COUNTS = ("files", "rows", "added_version")
_HIDDEN = ("digest", "job", "path")
_CELL = 60  # characters of a value of `head`


def add_commands(commands: Commands) -> None:
    """Register the commands."""
    schema = commands.add(
        "schema", _schema, "the columns: id, name, type, nullable", ["schema /lake/flights"]
    )
    add_choice(schema)

    partitions = commands.add(
        "partitions",
        _partitions,
        "the partitions that have files, with their files, rows and size",
        ["partitions /lake/flights --format csv"],
    )
    add_choice(partitions)

    head = commands.add(
        "head",
        _head,
        "the first rows that are found; no order is guaranteed",
        ["head /lake/flights -n 5", "head /lake/flights --columns day,flight --format csv"],
    )
    add_choice(head)
    head.add_argument(
        "-n", "--limit", type=positive, default=10, metavar="N", help="so many (default: 10)"
    )
    head.add_argument("--columns", metavar="A,B", help="only these columns (default: all)")
    _add_files(commands)


def _add_files(commands: Commands) -> None:
    files = commands.add(
        "files",
        _files,
        "the files that a version lists, with partition values, rows and size",
        [
            "files /lake/flights --version 3",
            "files /lake/flights --partition day=2013-01-01 --smaller 16MiB",
        ],
    )
    add_choice(files)
    files.add_argument(
        "--bounds",
        action="store_true",
        help="with nulls, minima and maxima per column (always there with --json)",
    )
    which = files.add_argument_group("which files")
    which.add_argument(
        "--partition",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="of this partition, its value as it is shown; may be given again",
    )
    which.add_argument(
        "--filter",
        metavar="SQL",
        help="that may hold a row for which this is true; Spark reads the SQL",
    )
    which.add_argument("--since", type=positive, metavar="N", help="added by version N or later")
    which.add_argument("--job", metavar="JOB", help="written by this job; a short id will do")
    which.add_argument("--smaller", metavar="SIZE", help="smaller than this, such as 16MiB")
    which.add_argument("--larger", metavar="SIZE", help="larger than this, such as 1GiB")
    which.add_argument("-n", "--limit", type=positive, metavar="N", help="only the first N paths")


def _schema(options: argparse.Namespace) -> int:
    columns = table_of(options).describe(**chosen(options))["columns"]
    if not written(options, columns):
        print_columns(columns)
    return 0


def print_columns(columns: list[dict[str, object]]) -> None:
    """The columns of a table, as `describe` has them."""
    said = any(column["comment"] is not None for column in columns)
    names = ("id", "name", "type", "nullable", *(["comment"] if said else []))
    print_table(
        names,
        [
            ["" if each[name] is None else plain_text(each[name]) for name in names]
            for each in columns
        ],
        "the table has no columns yet",
    )


def _partitions(options: argparse.Namespace) -> int:
    found = table_of(options).partitions(**chosen(options))
    values = [name for name in found.column_names if name not in ("files", "rows", "bytes")]
    found = found.sort_by([(name, "ascending") for name in values]) if values else found
    if not written(options, rows_of(found)):
        print_rows(options, found, found.column_names)
    return 0


def _head(options: argparse.Namespace) -> int:
    names = names_in(options.columns)
    dataset = table_of(options).dataset(**chosen(options))
    if unknown := set(names or ()) - set(dataset.schema.names):
        raise UsageError(
            f"invalid --columns {options.columns!r}: the table has no column {min(unknown)!r}"
        )
    found = dataset.head(options.limit, columns=names)
    rows = rows_of(found)
    if not written(options, rows):
        cells = [tuple(cell(value) for value in row.values()) for row in rows]
        print_table(found.column_names, cells, "the version has no rows")
    return 0


def names_in(given: str | None) -> list[str] | None:
    """The names in a list such as A,B; None: no list is given."""
    return None if given is None else [each.strip() for each in given.split(",") if each.strip()]


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows as values of Python; days that Python cannot hold are numbers."""
    from ...core.schema.values import python_rows  # late: it loads pyarrow

    return python_rows(table)


def cell(value: Any) -> str:
    """A value of the table's own in a table for people."""
    text = quoted(value) if isinstance(value, str) or value is None else plain_text(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _files(options: argparse.Namespace) -> int:
    table = table_of(options)
    table.snapshot(**chosen(options))  # a wrong path is reported before Spark starts
    with quiet_spark(options):
        found = table.files(options.filter, **chosen(options)).sort_by("path")
    found = _filtered(options, found)
    if written(options, rows_of(found)):
        return 0
    print_files(options, found, bounds=options.bounds)
    rows, size = (sum(found.column(name).to_pylist()) for name in ("rows", "bytes"))
    print(
        f"{counted(found.num_rows, 'file')}, {counted(rows, 'row')}, {size_text(options, size)}",
        file=sys.stderr,
    )
    return 0


def _filtered(options: argparse.Namespace, found: pa.Table) -> pa.Table:
    import pyarrow as pa

    from ...engine.runtime.validation import size as byte_count
    from ..job_ids import chosen as one_of

    limits = {
        name: byte_count(name, value)
        for name in ("smaller", "larger")
        if (value := getattr(options, name)) is not None
    }
    wanted = dict(_partition_value(each, found) for each in options.partition)
    job = None
    if options.job is not None:
        job = one_of(set(found.column("job").to_pylist()), options.job.rpartition("-")[2], "--job")

    def is_wanted(row: Mapping[str, Any]) -> bool:
        return (
            all(plain_text(row[name]) == value for name, value in wanted.items())
            and (options.since is None or row["added_version"] >= options.since)
            and (job is None or row["job"] == job)
            and row["bytes"] < limits.get("smaller", row["bytes"] + 1)
            and row["bytes"] > limits.get("larger", -1)
        )

    if wanted or job or limits or options.since is not None:
        names = [*wanted, "added_version", "job", "bytes"]
        keep = [is_wanted(row) for row in rows_of(found.select(list(dict.fromkeys(names))))]
        found = found.filter(pa.array(keep, pa.bool_()))
    return found if options.limit is None else found.slice(0, options.limit)


def _partition_value(given: str, found: pa.Table) -> tuple[str, str]:
    """The partition column that is meant, and its value as `files` shows it."""
    known = found.column_names
    columns = known[known.index("path") + 1 : known.index("rows")]
    for name in sorted(columns, key=len, reverse=True):
        if given.startswith(f"{name}="):
            return name, given[len(name) + 1 :]
    raise UsageError(
        f"invalid --partition {given!r}: expected COLUMN=VALUE, where the table is partitioned by "
        f"{', '.join(columns) or 'nothing'}"
    )


def print_files(options: argparse.Namespace, table: pa.Table, *, bounds: bool) -> None:
    """Files as a table for people."""
    hidden = {*_HIDDEN, *(() if bounds else ("bounds",))}
    # last: it is the longest by far
    print_rows(options, table, [n for n in table.column_names if n not in hidden] + ["path"])


def print_rows(options: argparse.Namespace, table: pa.Table, names: list[str]) -> None:
    """Rows of the library's own, with counts and sizes among values of the user's."""
    rows = [
        tuple(
            size_cell(options, value)
            if name == "bytes"
            else value
            if name in _COUNTS
            else quoted(value)
            for name, value in row.items()
        )
        for row in rows_of(table.select(names))
    ]
    heads = {"bytes": "size", "added_version": "added"}
    print_table([heads.get(name, name) for name in names], rows, spare=("added",))

"""Commands that show a table and change nothing."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..display import counted
from ..errors import UsageError
from ..terminal import plain_text, print_json, print_table, quoted
from .options import DONE, NO, Options, chosen, command, json_object, positive, table_of
from .output import show, size_cell, size_text, written

if TYPE_CHECKING:
    import pyarrow as pa

# the rest are names, positions and values: written as they are
_COUNTS = ("files", "rows", "added_version")
_HIDDEN = ("digest", "job", "path")
_CELL = 60  # characters of a value of `head`


@command(
    """
    schema: the columns: id, name, type, nullable
    @choice
    $ schema /lake/flights
    """
)
def _schema(options: Options) -> None:
    columns = table_of(options).describe(**chosen(options))["columns"]
    show(options, columns, nothing="the table has no columns yet")


@command(
    """
    partitions: the partitions that have files, with their files, rows and size
    @choice
    $ partitions /lake/flights --format csv
    """
)
def _partitions(options: Options) -> None:
    found = table_of(options).partitions(**chosen(options))
    values = [name for name in found.column_names if name not in ("files", "rows", "bytes")]
    found = found.sort_by([(name, "ascending") for name in values]) if values else found
    if not written(options, rows_of(found)):
        print_rows(options, found, found.column_names)


@command(
    """
    head: the first rows that are found; no order is guaranteed
    @choice
    -n, --limit N  so many (default: 10)
    --columns A,B  only these columns (default: all)
    $ head /lake/flights -n 5
    $ head /lake/flights --columns day,flight --format csv
    """,
    limit=10,
)
def _head(options: Options) -> None:
    names = names_in(options.columns)
    dataset = table_of(options).dataset(**chosen(options))
    if unknown := set(names or ()) - set(dataset.schema.names):
        why = f"the table has no column {min(unknown)!r}"
        raise UsageError(why, argument="--columns", given=repr(options.columns))
    found = dataset.head(options.limit, columns=names)
    rows = rows_of(found)
    if not written(options, rows):
        cells = [tuple(cell(value) for value in row.values()) for row in rows]
        print_table(found.column_names, cells, "the version has no rows")


def names_in(given: str | None) -> list[str] | None:
    """The names in a list such as A,B; None: no list is given."""
    return None if given is None else [each.strip() for each in given.split(",") if each.strip()]


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows as values of Python; days that Python cannot hold are numbers."""
    from ..format.values import python_rows  # late: it loads pyarrow

    return python_rows(table)


def cell(value: Any) -> str:
    """A value of the table's own in a table for people."""
    text = quoted(value) if isinstance(value, str) or value is None else plain_text(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


@command(
    """
    files: the files that a version lists, with partition values, rows and size
    @choice
    --bounds  with nulls, minima and maxima per column (always there with --json)
    --filter SQL  only those that may hold a row for which this is true
    $ files /lake/flights --version 3
    $ files /lake/flights --filter "day = '2013-01-01'" --format csv
    """
)
def _files(options: Options) -> None:
    found = table_of(options).files(options.filter, **chosen(options)).sort_by("path")
    if written(options, rows_of(found)):
        return
    print_files(options, found, bounds=options.bounds)
    size = size_text(options, sum(found.column("bytes").to_pylist()))
    print(f"{_counts(found)}, {size}", file=sys.stderr)


def _counts(files: pa.Table) -> str:
    rows = sum(files.column("rows").to_pylist())
    return f"{counted(files.num_rows, 'file')}, {counted(rows, 'row')}"


def print_files(options: Options, table: pa.Table, *, bounds: bool) -> None:
    """Files as a table for people."""
    hidden = {*_HIDDEN, *(() if bounds else ("bounds",))}
    # last: it is the longest by far
    print_rows(options, table, [n for n in table.column_names if n not in hidden] + ["path"])


def print_rows(options: Options, table: pa.Table, names: list[str]) -> None:
    """Rows of the library's own, with counts and sizes among values of the user's."""

    def shown(name: str, value: Any) -> Any:
        if name == "bytes":
            return size_cell(options, value)
        return value if name in _COUNTS else quoted(value)

    rows = [[shown(*each) for each in row.items()] for row in rows_of(table.select(names))]
    heads = {"bytes": "size", "added_version": "added"}
    print_table([heads.get(name, name) for name in names], rows, spare=("added",))


_SHOWN = 100  # changes of rows that people see, unless they say otherwise


def _version(text: str) -> int:
    return 0 if text == "0" else positive(text)


@command(
    """
    history: the commits, newest first, back to the oldest readable version
    -n, --limit N  only the newest N commits
    $ history /lake/flights -n 5
    $ history /lake/flights --format csv
    """
)
def _history(options: Options) -> None:
    from ..table.history import History  # late: `--help` needs no pyarrow

    rows = table_of(options).history(options.limit)
    assert isinstance(rows, History)
    if not written(options, rows):
        cells = [[rows.value(row, name) for name in rows.columns] for row in rows]
        print_table(rows.columns, cells, spare=rows.narrow)


@command(
    """
    describe: one version: schema, partitioning, totals, commits, properties, tags
    @choice
    $ describe /lake/flights --as-of 2013-01-31T12:00:00Z
    """
)
def _describe(options: Options) -> None:
    show(options, table_of(options).describe(**chosen(options)))


@command(
    """
    watermarks: how far every source has been read
    @choice
    $ watermarks /lake/flights --json
    """
)
def _watermarks(options: Options) -> None:
    snapshot = table_of(options).snapshot(**chosen(options))
    marks = {
        source: {"position": position, "origin": snapshot.origins.get(source)}
        for source, position in sorted(snapshot.watermarks.items())
    }
    rows = [{"source": source, **each} for source, each in marks.items()]
    show(options, marks, rows, nothing="no source has a watermark")


def _row_changes(options: Options) -> None:
    table, start, end = table_of(options), options.start_version, options.end_version
    on, columns = names_in(options.on), names_in(options.columns)
    reader = table.changed_rows(start, end, on=on, columns=columns)
    most = options.limit or (_SHOWN if options.format == "table" else None)
    # one more than is shown tells whether there are more
    found = islice((row for batch in reader for row in rows_of(batch)), most and most + 1)
    if options.format == "jsonl":
        for row in islice(found, most):
            print_json(row, indent=None)
        return
    rows = list(found)
    if not written(options, rows[:most]):
        cells = [tuple(map(cell, row.values())) for row in rows[:most]]
        print_table(reader.schema.names, cells, "no row changed")
        if most is not None and len(rows) > most:
            print(f"and more; -n shows more than the first {most}", file=sys.stderr)


@command(
    """
    changes: the files added and removed after version START, up to version END, or the rows
    START
    [END]  default: the newest version
    rows instead of files:
    --rows  the rows inserted, deleted and updated, version by version; START may be 0
    --on A,B  the columns of a key, by which rows are updated
    --columns A,B  compare and show only these columns
    -n, --limit N  only the first N (default: 100 for people, all for programs; --format jsonl
        prints them as they are found)
    $ changes /lake/flights 3 5
    $ changes /lake/flights 3 --rows --on id --format jsonl
    """,
    types={"start_version": _version},
)
def _changes(options: Options) -> None:
    if options.rows:
        _row_changes(options)
        return
    for name in ("on", "columns", "limit"):
        if getattr(options, name) is not None:
            raise UsageError("it is about rows; give --rows, too", argument=f"--{name}")
    if not options.start_version:
        expected = "expected a version from 1 on; with --rows 0 is one"
        raise UsageError(expected, argument="START", given="0")
    changes = table_of(options).changed_files(options.start_version, options.end_version)
    document = {name: rows_of(table) for name, table in changes.items()}
    lines = [{"change": name, **row} for name, rows in document.items() for row in rows]
    if written(options, document, lines):
        return
    for name, table in changes.items():
        print(f"{name}: {_counts(table)}")
        print_files(options, table, bounds=False)


@command(
    """
    lineage: which version and files hold a position of a source; exit status 1 if none does
    SOURCE
    POSITION
    $ lineage /lake/flights faa 27004
    """
)
def _lineage(options: Options) -> int:
    try:
        position = int(options.position)
    except ValueError:
        position = options.position  # the library says why not
    found = table_of(options).lineage(options.source, position)
    document = msgspec.to_builtins(found)
    if options.format != "table":
        show(options, document, document["files"] if document else [])
    elif found is None:
        print(f"no version holds position {options.position} of {options.source!r}")
    else:
        any_of = "its files do not say what they hold: any of them may"
        show(options, document, more="" if found.exact else any_of)
    return DONE if found is not None else NO


def _ends(options: Options) -> dict[str, Any] | None:
    example = '{"topic:0": 12345}'
    return json_object(options.ends, "--ends", example, given=repr(options.ends))


@command(
    """
    metrics: size, age, waiting jobs, watermarks and lag, for monitoring
    --ends FILE  a JSON file with the ends of sources, such as {"topic:0": 12345}, for the lag
    $ metrics /lake/flights --ends ends.json --json
    """
)
def _metrics(options: Options) -> None:
    show(options, msgspec.to_builtins(table_of(options).metrics(_ends(options))))


@command(
    """
    report: pictures of a table as one HTML page, without script and network; changes nothing
    -o, --output FILE  the page's file (default: standard output)
    --last N  read the newest N versions, one request each (default: 200)
    --gc  with what gc would delete: lists the whole store
    --ends FILE  a JSON file with the ends of sources, such as {"topic:0": 12345}, for the lag
    --open  show the file in a browser
    $ report /lake/flights -o report.html --open
    """,
    last=200,
)
def _report(options: Options) -> None:
    file: str | None = options.output
    if file is None and (options.open or options.format != "table"):
        what = "open" if options.open else options.format
        raise UsageError(f"--{what} needs --output FILE")
    if file is None and sys.stdout.isatty():
        raise UsageError("a terminal shows no page: give --output FILE, or redirect the output")
    made = table_of(options).report(file, last=options.last, gc=options.gc, ends=_ends(options))
    if file is None:
        sys.stdout.write(made.html)
        return
    size = len(made.html.encode())
    if options.open:
        import webbrowser  # late: most runs do without

        webbrowser.open(Path(file).absolute().as_uri())
    if not written(options, {"file": file, "version": made.version, "bytes": size}):
        print(f"version {made.version:,}: {size_text(options, size)} in {file}", file=sys.stderr)

"""Results in every format: for programs as JSON, JSON lines or CSV, for people as tables of the
same members. Changes that only gc could make final are asked about first: --dry-run, --yes, and a
question on a terminal. [SE4]
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..display import age, cut, visible
from ..terminal import is_terminal, plain_text, print_csv, print_json, print_table, short_size, size
from .options import DONE, NO, USAGE, EndedError, Options

if TYPE_CHECKING:
    from ..table import Table

Rows: TypeAlias = Sequence[Mapping[str, Any]]
_CELL = 60  # characters of a list
# Members that are numbers to copy, and those that a narrow terminal does without.
_NAMES = ("position", "origin", "start", "end", "id")
_SPARE = ("metadata", "author", "job", "added", "since", "removed bytes", "removed rows")


def written(options: Options, value: Any, rows: Rows | None = None) -> bool:
    """Print a result in the chosen format; False where that is a table, which the caller prints.
    value: the JSON document. rows: what jsonl and csv have a line for; by default the document's
    own rows, or itself as one row."""
    if options.format == "table":
        return False
    if options.format == "json":
        print_json(value)
        return True
    lines = list(rows) if rows is not None else value if isinstance(value, list) else [value]
    if options.format == "csv":
        print_csv(lines)
    else:
        for line in lines:
            print_json(line, indent=None)
    return True


def show(
    options: Options,
    value: Mapping[str, Any] | Rows,
    rows: Rows | None = None,
    *,
    nothing: str = "",
    more: str = "",
) -> None:
    """Print a result in the chosen format: for people rows as a table, and of a document its
    members, then its rows. What is empty is left out. nothing: instead of a table without rows.
    more: a sentence for people, on standard error."""
    if written(options, value, rows):
        return
    if rows is not None or not isinstance(value, Mapping):
        _print_rows(options, value if rows is None else rows, nothing)  # type: ignore[arg-type]  # a list
    else:
        _print_document(options, value)
    if more:
        print(more, file=sys.stderr)


def _print_document(options: Options, document: Mapping[str, Any]) -> None:
    known = {name: value for name, value in document.items() if not _is_empty(value)}
    below = {name: value for name, value in known.items() if _are_rows(value)}
    single = [(name, value) for name, value in known.items() if name not in below]
    cells = [(_title(name), _cell(options, name, value)) for name, value in single]
    print_table(("", ""), cells, header=False)
    for name, rows in below.items():
        print(f"\n{_title(name)}")
        _print_rows(options, rows)


def _print_rows(options: Options, rows: Rows, nothing: str = "") -> None:
    there = dict.fromkeys(name for row in rows for name in row if not _is_empty(row[name]))
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name in there]
    names = [name for name in names if name != "summary"]
    cells = [[_cell(options, name, row.get(name)) for name in names] for row in rows]
    print_table(list(map(_title, names)), cells, nothing, spare=_SPARE)


def _title(name: str) -> str:
    known = {"bytes": "size", "size_bytes": "size", "added_version": "added", "job_id": "job"}
    known |= dict.fromkeys(("joint", "together"), "together with")
    return known.get(name, name.removesuffix("_s").replace("_", " "))


def _cell(options: Options, name: str, value: Any) -> Any:
    """A member as people read it: sizes and ages in their units, numbers with their thousands."""
    from ..operations.describe import author_text, partners_text  # late: `--help` needs no pyarrow
    from ..table.history import short_job

    if name in ("job", "job_id") and value is not None:
        return short_job(value)
    if name in ("author", "joint") and value:
        return author_text(value) if name == "author" else partners_text(value)
    if name.endswith("_s") and not isinstance(value, Mapping):
        return _age(value)
    if name.endswith("_s"):
        return plain_text({each: _age(s) for each, s in value.items()})
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if name in _NAMES or isinstance(value, bool):
        return plain_text(value)
    if isinstance(value, int):
        return size_cell(options, value) if "bytes" in name else value
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list | tuple):
        text = ", ".join(map(plain_text, value))
        return text if len(text) <= _CELL else f"{len(value):,}: {cut(text, _CELL)}"
    return "" if value is None else cut(plain_text(value), 10 * _CELL)


def _age(seconds: float | None) -> str:
    return "" if seconds is None else age(seconds)


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or value == [] or value == {} or value == ()


def _are_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, Mapping) for each in value)


def lines_of(options: Options, document: Mapping[str, Any]) -> list[str]:
    """The members of a document, a line each; rows below their names."""
    lines = []
    for name, value in document.items():
        if _are_rows(value) and value:
            for row in value:
                head, *rest = lines_of(options, row)
                lines += [head, *(f"  {each}" for each in rest)]
        else:
            cell = _cell(options, "" if name.startswith("job") else name, value)
            shown = "none" if _is_empty(value) else f"{cell:,}" if isinstance(cell, int) else cell
            lines.append(f"{_title(name)}: {shown}")
    return lines


def size_cell(options: Options, count: int) -> int | str:
    return count if options.bytes else short_size(count)


def size_text(options: Options, count: int) -> str:
    return size(count, exact=options.bytes)


class Plan(NamedTuple):
    """What a change would do: `what`, in one line, in numbers. version: the newest, from which this
    follows."""

    version: int
    what: str
    document: dict[str, Any]


def confirm(options: Options, plan: Callable[[], Plan | None], *tables: Table) -> None:
    """Go on where the change is wanted; EndedError: it was a dry run, or it is not. [SE4] plan:
    reads what the change would do now; None: nothing that is worth a question. tables: where the
    newest version of one has moved while someone was thinking, the question is put again."""
    if options.dry_run:
        raise EndedError(_shown(options, plan()))
    if options.yes:
        return
    can_ask = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    while (found := plan()) is not None:
        print("\n".join([visible(found.what) + ":", *_lines(options, found)]), file=sys.stderr)
        if not can_ask:
            raise EndedError(_refused(options))
        if not _confirmed():
            raise EndedError(NO)
        if sum(table.version for table in tables) == found.version:
            return
        print("\nthe table has changed meanwhile; as of now it is", file=sys.stderr)


def _confirmed() -> bool:
    """Ask; only yes is yes."""
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed", file=sys.stderr)
    return False


def _refused(options: Options) -> int:
    """Without a terminal there is nobody to ask."""
    print(
        f"manifestcommit: {options.command} has to be confirmed, and there is no terminal to ask "
        "on; nothing was changed. See what it would do with --dry-run, or confirm it with --yes",
        file=sys.stderr,
    )
    return USAGE


def _shown(options: Options, found: Plan | None) -> int:
    if found is None:
        if not written(options, {"dry_run": True}):
            print("there is nothing to do; nothing was changed")
    elif not written(options, {"dry_run": True, "version": found.version, **found.document}):
        print("\n".join([f"would {visible(found.what)}:", *_lines(options, found)]))
        print("nothing was changed", file=sys.stderr)
    return DONE


def _lines(options: Options, found: Plan) -> list[str]:
    return [f"  {visible(each)}" for each in lines_of(options, found.document)]

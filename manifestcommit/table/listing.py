"""What describes a table, row by row: files and partitions, and commits, which print as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import islice
from typing import Any

import pyarrow as pa

from ..display import cut, html_table
from ..errors import UsageError
from ..format.values import python_rows
from ..operations.describe import author_text, partners_text
from ..terminal import plain_text, render_table

ROWS = 20  # of a table that is shown
_CELLS = {"path": 48}  # characters; of any other cell, 24
_TO_VALUES = ("to_pandas", "to_pylist", "to_pydict")  # methods that can fail for a value


class Listing:
    """Describes files, partitions or changes, one in a row: a `pyarrow.Table` that prints well.

    It has all members of `pyarrow.Table`, such as `column`, `filter` and `to_pandas`, and other
    libraries take it as they take one, by Arrow's stream interface. What asks for the class
    itself gets it from `to_arrow()`.

    Args:
        table: the rows.

    Raises:
        UsageError: `table` is no `pyarrow.Table`.

    Example:
        files = mc.Table("file:///lake/flights").files()
        print(files)  # the first 20 rows
        total = sum(files.column("bytes").to_pylist())

    Spec: RD6.
    """

    __slots__ = ("_table",)

    def __init__(self, table: pa.Table) -> None:
        if not isinstance(table, pa.Table):
            raise UsageError(f"table: expected a pyarrow.Table, got {type(table).__name__}")
        self._table = table

    def to_arrow(self) -> pa.Table:
        """Return the same rows as a `pyarrow.Table`.

        Returns:
            The table itself, without a copy.
        """
        return self._table

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also while a copy is made, which has no table yet
            raise AttributeError(f"Listing has no attribute {name!r}")
        found = getattr(self._table, name)
        return _with_our_error(found) if name in _TO_VALUES else found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n for n in dir(self._table) if n[0] != "_")})

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, key: int | str | slice) -> Any:
        return self._table[key]

    def __eq__(self, other: object) -> bool:
        mine, theirs = self._table, getattr(other, "_table", other)
        return isinstance(theirs, pa.Table) and bool(mine.equals(theirs))

    __hash__ = None  # type: ignore[assignment]  # as pyarrow's tables

    def __reduce__(self) -> tuple[Callable[[pa.Table], Listing], tuple[pa.Table]]:
        return Listing, (self._table,)

    def __repr__(self) -> str:
        names = self._names()
        if not len(self):
            return f"no rows; columns {', '.join(names)}"
        return text_table(names, self._shown(short=True), len(self))

    def _repr_html_(self) -> str:
        return html_table(self._names(), self._shown(short=False), len(self) - ROWS)

    def _names(self) -> list[str]:
        """The columns that fit into a cell."""
        return [field.name for field in self._table.schema if not pa.types.is_nested(field.type)]

    def _shown(self, *, short: bool) -> Iterator[list[Any]]:
        names = self._names()
        for row in python_rows(self._table.select(names).slice(0, ROWS)):
            cells = ("" if row[name] is None else row[name] for name in names)
            yield [
                cut(cell, _CELLS.get(name, 24)) if short else cell
                for name, cell in zip(names, cells, strict=True)
            ]


def _with_our_error(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, with an error of ours for a value that Python or pandas cannot hold."""

    @wraps(method)
    def called(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise UsageError(
                f"{method.__name__}: a value of this listing cannot be held: {error}. Use "
                "to_arrow(), and for days before the year 1 or after 9999 "
                "to_pandas(date_as_object=False), or the days as numbers: "
                "column(name).cast('int32')."
            ) from error

    return called


class History(list[dict[str, Any]]):
    """Commits, newest first, with a column for whatever is known of any of them: a list that prints
    as a table, the first rows and how many more there are. url: the table's, by which tables that
    committed with it are named."""

    url = ""
    # columns that a narrow page does without, the first one first
    narrow = ("metadata", "-files", "job", "author", "total rows", "+files")

    def __repr__(self) -> str:
        names = [name for name in self.columns if name not in self.narrow[:3]]
        rows = [[cut(value, 24) for value in row] for row in self._shown(names)]
        return text_table(names, rows, len(self)) if self else "[]"

    def _repr_html_(self) -> str:
        return html_table(self.columns, self._shown(self.columns), len(self) - ROWS)

    def _shown(self, names: Sequence[str]) -> Iterator[list[Any]]:
        for row in islice(self, ROWS):
            yield [self.value(row, name) for name in names]

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns that are shown."""
        commits = [row for row in self if isinstance(row, Mapping)]
        known = [shown for name, shown in _KNOWN.items() if any(row.get(name) for row in commits)]
        return (
            *("version", "committed at (UTC)", "operation", "key", "+files", "-files", "+rows"),
            *("total rows", "job", *known),
        )

    def value(self, row: Mapping[str, Any], name: str) -> Any:
        """The content of a cell."""
        if name in _COUNTS:
            part, count = _COUNTS[name]
            return (row.get(part) or {}).get(count, 0)
        if name == "committed at (UTC)":
            return f"{row['committed_at']:%Y-%m-%d %H:%M:%S}" if "committed_at" in row else ""
        if name == "operation" and row.get("restored") is not None:
            return f"{row[name]} to {row['restored']}"
        if name == "job":
            return short_job(row.get(name) or "")
        if name == "together with":
            return partners_text(row.get("joint"), self.url)
        if name in SAID:
            return said(row, name)
        value = row.get(name) if isinstance(row, Mapping) else row
        return "" if value is None else value


_COUNTS = {
    "+files": ("summary", "files"),
    "-files": ("summary", "removed_files"),
    "+rows": ("summary", "rows"),
    "total rows": ("totals", "rows"),
}
# What a commit's record says of who made it, and what for.
SAID = ("author", "reason", "message", "metadata")
_KNOWN = {"joint": "together with"} | {name: name for name in SAID}


def said(row: Mapping[str, Any], name: str) -> str:
    """What a commit's record says of it, short enough for a line."""
    value: Any = row.get(name) or ""
    return cut(author_text(value) if name == "author" and value else plain_text(value))


def short_job(job: str) -> str:
    """A job id as tables for people show it: 8 digits of its random part."""
    return job.rpartition("-")[2][:8]


def text_table(names: Sequence[str], rows: Iterable[Sequence[str]], count: int) -> str:
    """The first rows of a table below their names, and how many more of `count` there are."""
    rest = f"\n… and {count - ROWS:,} more" if count > ROWS else ""
    return render_table(names, list(rows)) + rest

"""What describes a table, row by row: files and partitions, and commits, which print as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from ..display import cut, html_table
from ..errors import UsageError
from ..format.values import python_rows
from ..operations.describe import author_text, partners_text
from ..terminal.render import render_table

ROWS = 20  # of a table that is shown
_CELLS = {"path": 48}  # characters; of any other cell, 24


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
        return getattr(self._table, name)

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


class Rows(list[dict[str, Any]]):
    """A list of dicts that prints as a table: the first rows, and how many more there are."""

    columns: Sequence[str] = ()

    def __repr__(self) -> str:
        rows = [[cut(value, 24) for value in row] for row in self._shown()]
        return text_table(self.columns, rows, len(self)) if self else "[]"

    def _repr_html_(self) -> str:
        return html_table(self.columns, self._shown(), len(self) - ROWS)

    def _shown(self) -> Iterator[list[Any]]:
        for row in islice(self, ROWS):
            yield [self._value(row, name) for name in self.columns]

    def _value(self, row: Mapping[str, Any], name: str) -> Any:
        value = row.get(name) if isinstance(row, Mapping) else row
        return "" if value is None else value


class History(Rows):
    """Commits, newest first."""

    @property
    def columns(self) -> Sequence[str]:  # type: ignore[override]  # read only, too
        """Those of every table, and one more where a commit was one of several tables."""
        is_joint = any(isinstance(row, Mapping) and row.get("joint") for row in self)
        return (
            *("version", "committed_at", "operation", "key", *["together with"] * is_joint),
            *("+files", "+rows", "rows", "author", "message"),
        )

    def _value(self, row: Mapping[str, Any], name: str) -> Any:
        if name in ("+files", "+rows"):
            return (row.get("summary") or {}).get(name[1:], "")
        if name == "rows":
            return (row.get("totals") or {}).get("rows", "")
        if name == "committed_at":
            return f"{row[name]:%Y-%m-%d %H:%M:%S}" if name in row else ""
        if name == "author":
            return author_text(row.get(name) or {})
        if name == "together with":
            return partners_text(row.get("joint"))
        if name == "message":
            return ": ".join(text for text in (row.get("reason"), row.get(name)) if text)
        return super()._value(row, name)


def text_table(names: Sequence[str], rows: Iterable[Sequence[str]], count: int) -> str:
    """The first rows of a table below their names, and how many more of `count` there are."""
    rest = f"\n… and {count - ROWS:,} more" if count > ROWS else ""
    return render_table(names, list(rows)) + rest

"""Commits of a table, which print as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ..display import cut
from ..operations.describe import author_text, partners_text
from ..terminal import plain_text, render_table

ROWS = 20  # of a table that is shown


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
        rest = f"\n… and {len(self) - ROWS:,} more" if len(self) > ROWS else ""
        return render_table(names, rows) + rest if self else "[]"

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

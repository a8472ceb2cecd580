"""Whether a table may begin at a root: not in a folder of plain files, not inside or around another table. [LY6]"""

from __future__ import annotations

from ..core import format
from ..errors import NotATableError
from ..store import Store, open_store


def check_free_root(store: Store) -> None:
    """NotATableError unless a new table may begin here. One list per level of the URL, one below it. [LY6]"""
    for info in store.list(""):
        if (inner := _table_around(store, info.name)) is not None:
            raise NotATableError(f"{store.url} has a table inside it, at {inner!r}; tables do not nest. Choose a path beside it.")
        if not _is_hidden(info.name):
            raise NotATableError(
                f"{store.url} holds files already (the first is {info.name!r}) but no table. Writing here would mix the two, "
                "so nothing was written. Write to a new path, or make a table of these files with adopt."
            )
    for above in _levels_above(store.url):
        if next(iter(open_store(above).list(format.VERSIONS)), None) is not None:
            raise NotATableError(f"{store.url} lies inside the table at {above}; tables do not nest. Choose a path outside of it.")


def _table_around(store: Store, name: str) -> str | None:
    """The folder above the object that is a table's root, if one is."""
    parts = name.split("/")[:-1]
    roots = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((root for root in roots if next(iter(store.list(f"{root}/{format.VERSIONS}")), None) is not None), None)


def _is_hidden(name: str) -> bool:
    """Names that every reader of a folder skips, such as _SUCCESS or .DS_Store."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def _levels_above(url: str) -> list[str]:
    scheme, _, path = url.partition("://")
    parts = path.rstrip("/").split("/")
    lowest = 2 if scheme == "file" else 1
    return [f"{scheme}://{'/'.join(parts[:count])}" for count in range(len(parts) - 1, lowest - 1, -1)]

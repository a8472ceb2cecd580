"""Whether a table may begin at a root: not in a folder of plain files, not inside or around another table. [LY6]"""

from __future__ import annotations

from ..core import format
from ..errors import NotATableError, TableNotFoundError
from ..store import Store, open_store
from .head import Head
from .session import Session


def open_or_free(session: Session) -> Head | None:
    """The head; None where there is no table and one may begin. NotATableError where neither. [LY6] [CM13]"""
    try:
        return session.open()
    except TableNotFoundError:
        pass
    try:
        check_free_root(session.store)
    except NotATableError:
        try:  # another writer may have made it a table while this one looked around
            return session.open()
        except TableNotFoundError:
            pass
        raise
    return None


def check_free_root(store: Store) -> None:
    """NotATableError unless a new table may begin here. One list below the root, one per level above it. [LY6]"""
    for info in store.list(""):
        inner, marker, _ = info.name.partition(f"/{format.VERSIONS}")
        if not marker and _is_hidden(info.name):
            continue
        around = inner if marker else _table_around(store, info.name)
        if around is not None:
            raise NotATableError(f"{store.url} has a table inside it, at {around!r}; tables do not nest. Choose a path beside it.")
        raise NotATableError(
            f"{store.url} holds files already (the first is {info.name!r}) but no table. Writing here would mix the two, so nothing was "
            "written. Write to a new path, or write the rows of these files through a job there; a later release can adopt them in place."
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

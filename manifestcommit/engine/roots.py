"""Whether a table may begin at a root: not in a folder of plain files, not inside or around another table. [LY6]"""

from __future__ import annotations

import contextlib

from ..core import format
from ..errors import NotATableError, StoreDeniedError, TableNotFoundError
from ..store import Store
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
            "written. Write to a new path, or make a table of these files, where they are: manifestcommit.adopt, or `manifestcommit adopt`."
        )
    check_not_inside(store)


def check_not_inside(store: Store) -> None:
    """NotATableError where a folder above is a table. One list per level. [LY6]"""
    above = store.above()
    while above is not None:
        with contextlib.suppress(StoreDeniedError):  # whoever may only see the root itself can not be told more
            if next(iter(above.list(format.VERSIONS)), None) is not None:
                raise NotATableError(f"{store.url} lies inside the table at {above.url}; tables do not nest. Choose a path outside of it.")
        above = above.above()


def _table_around(store: Store, name: str) -> str | None:
    """The folder above the object that is a table's root, if one is."""
    parts = name.split("/")[:-1]
    roots = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((root for root in roots if next(iter(store.list(f"{root}/{format.VERSIONS}")), None) is not None), None)


def _is_hidden(name: str) -> bool:
    """Names that every reader of a folder skips, such as _SUCCESS or .DS_Store."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))

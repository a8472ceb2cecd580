"""Decides whether a table may be created at a path: not in a folder of plain files, not inside or
around another table. [LY6]"""

from __future__ import annotations

import contextlib
from itertools import islice

from ...core.table import object_names
from ...errors import NotATableError, StoreDeniedError, TableNotFoundError
from ...store import ObjectInfo, Store
from .other_formats import OtherFormat, format_at, format_of
from .table_context import TableContext
from .version_chain import Head

_LOOKED_AT = 1000  # names to examine for a better error message


def open_or_free(session: TableContext) -> Head | None:
    """Open the table; None if there is none and one may be created. NotATableError if neither.
    [LY6] [CM13]"""
    try:
        return session.open()
    except TableNotFoundError:
        pass
    try:
        check_free_root(session.store)
    except NotATableError:
        try:  # another writer may have created the table in the meantime
            return session.open()
        except TableNotFoundError:
            pass
        raise
    return None


def check_free_root(store: Store) -> None:
    """NotATableError unless a new table may be created here. One list request below the path, one
    per parent folder. [LY6]"""
    for info in store.list(""):
        inner, _, rest = info.name.partition(f"/{object_names.VERSIONS}")
        if (other := format_of(info.name)) is not None:
            raise _of_another_format(store, other)
        is_version = (
            bool(rest) and object_names.parse_version(object_names.VERSIONS + rest) is not None
        )
        if not is_version and _is_hidden(info.name):
            continue
        around = inner if is_version else _table_around(store, info.name)
        if around is not None:
            raise NotATableError(
                f"{store.url} has a table inside it, at {around!r}; tables do not nest. "
                "Choose a path beside it."
            )
        if (other := format_at(store)) is not None:
            raise _of_another_format(store, other)
        remedy = "Write to a new path"
        if _holds_parquet(store, info):
            remedy += (
                ", or make a table of these files, where they are: Table.adopt, or "
                "`manifestcommit adopt`"
            )
        else:
            remedy += "; adopting takes a folder of Parquet files, and this is another folder"
        raise NotATableError(
            f"{store.url} holds files already (the first is {info.name!r}) but no table. Writing "
            f"here would mix the two, so nothing was written. {remedy}."
        )
    check_not_inside(store)


def _of_another_format(store: Store, other: OtherFormat) -> NotATableError:
    return NotATableError(
        f"{other.said_of(store)}, as its log in {other.log} shows. Writing here would mix the two, "
        "so nothing was written. Write to a new path; to bring its rows along, read it with a "
        f"reader of {other.name} and write them there."
    )


def _holds_parquet(store: Store, first: ObjectInfo) -> bool:
    """Whether one of the first files has a Parquet name, or the very first one is Parquet by
    content, as Hive's files without a suffix are."""
    if any(info.name.endswith(".parquet") for info in islice(store.list(""), _LOOKED_AT)):
        return True
    try:
        return store.get(first.name, 0, 4) in (b"PAR1", b"PARE")
    except FileNotFoundError:
        return False


def check_not_inside(store: Store) -> None:
    """NotATableError if a parent folder is a table. One list request per level. [LY6]"""
    above = store.parent()
    while above is not None:
        # without permission to list the parents, they cannot be checked
        with contextlib.suppress(StoreDeniedError):
            if _holds_versions(above, ""):
                raise NotATableError(
                    f"{store.url} lies inside the table at {above.url}; tables do not nest. "
                    "Choose a path outside of it."
                )
        above = above.parent()


def _table_around(store: Store, name: str) -> str | None:
    """The folder above the object that is a table; None: there is none."""
    parts = name.split("/")[:-1]
    roots = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((root for root in roots if _holds_versions(store, f"{root}/")), None)


def _holds_versions(store: Store, folder: str) -> bool:
    """Whether a table exists there. Intents, and the marker of a table that was never created, do
    not count. One list request. [LY9]"""
    return any(
        object_names.parse_version(info.name.removeprefix(folder))
        for info in store.list(folder + object_names.VERSIONS)
    )


def _is_hidden(name: str) -> bool:
    """Names that every reader of a folder skips, such as _SUCCESS or .DS_Store."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))

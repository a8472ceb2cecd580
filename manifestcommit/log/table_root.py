"""Decides whether a table may be created at a path: not in a folder of plain files, not inside or
around another table. [LY6]"""

from __future__ import annotations

import contextlib
import re
from itertools import islice

import msgspec

from ..errors import (
    CorruptMetadataError,
    NotATableError,
    StoreDeniedError,
    StoreError,
    TableNotFoundError,
)
from ..format import object_names
from ..store import ObjectInfo, Store
from .table_context import TableContext
from .version_chain import Head, VersionListing, list_above, misplaced, open_object, read_object

# Detects that the table path was deleted while a job ran, and that another table may have been
# created there.


def check_same_root(ctx: TableContext, base: Head, mine: Head, above: VersionListing) -> None:
    """Check that what a job created belongs to its own table, and not to another one that was
    created at the same path. above: a listing made since. [CM5] [LY10]

    If only the table's own marker exists, that is enough. Otherwise the base version must be
    unchanged, unless it may have expired since.
    """
    if above.tables == {mine.snapshot.table_id}:
        return
    wrong = misplaced(ctx.store.url, mine.snapshot, above.tables)
    stored = read_object(ctx.store, base.version)
    if stored is None and (wrong is not None or above.versions[-1] <= mine.version):
        raise removed(ctx, base, mine)
    if stored is not None and stored.digest != base.digest:
        raise removed(ctx, base, mine)
    if wrong is not None:
        raise wrong


def is_removed(ctx: TableContext, base: Head) -> bool:
    """Whether both the marker of the base version's table and the base version itself are gone, so
    that a problem concerns another table. [LY14]"""
    if misplaced(ctx.store.url, base.snapshot, list_above(ctx.store, base.version).tables) is None:
        return False
    stored = read_object(ctx.store, base.version)
    return stored is None or stored.digest != base.digest


def removed(ctx: TableContext, base: Head, mine: Head | None) -> Exception:
    """Raise the error of a removed table, but only if the table is removed: a wrong listing must
    not lead anyone to delete a table in use. [CM5]

    mine: what this job has created, if anything. The error names it only if it exists and is not a
    version of another table.
    """
    url = ctx.store.url
    stored = read_object(ctx.store, base.version)
    if stored is not None and stored.digest == base.digest:
        return StoreError(
            f"{url}: the store's list does not show version {base.version}, which is there"
        )
    left = read_object(ctx.store, mine.version) if mine is not None else None
    if mine is None or left is None or left.digest != mine.digest:
        return TableNotFoundError(
            f"the table at {url} was removed while this job committed; nothing of it counts. "
            "Run it again."
        )
    name = object_names.version_name(mine.version)
    what = (
        "the table that is there now skips it. Leave it there, and run the job again."
        if _is_skipped(ctx.store, mine)
        else "as long as it is, no table can be created there. Delete that object by hand while no "
        "other job runs, and run the job again."
    )
    return TableNotFoundError(
        f"the table at {url} was removed while this job committed. Nothing of the job counts; "
        f"{name}, which it created, is there, and {what}"
    )


def _is_skipped(store: Store, mine: Head) -> bool:
    """Whether another table is there, whose readers and writers skip this object. [LY15]"""
    try:
        return open_object(store).snapshot.table_id != mine.snapshot.table_id
    except (CorruptMetadataError, TableNotFoundError):
        return False


# Recognizes tables of other formats by the names of their logs: their folders hold files that are
# no longer live.

_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
_HUDI_PARTITION = ".hoodie_partition_metadata"  # in each folder of its files
_ADOPTED = {"Delta Lake": "delta", "Iceberg": "iceberg"}
_ICEBERG = re.compile(r"(?:(.*)/)?metadata/[^/]*\.metadata\.json(?:\.gz)?")


class OtherFormat(msgspec.Struct, frozen=True, kw_only=True):
    """inner: the folder of that table, relative to the table path; name: of the format; log: the
    folder that identifies it."""

    inner: str
    name: str
    log: str

    def said_of(self, store: Store) -> str:
        """Describe where it is, and its format."""
        return f"{f'{store.url}/{self.inner}'.rstrip('/')} is a table of {self.name}"

    def remedy(self, store: Store) -> str:
        """What to do instead of adopting its folder as plain files."""
        if self.name not in _ADOPTED:
            return "Read it with its own reader, and write the rows to a new table."
        where = f"{store.url}/{self.inner}".rstrip("/")
        return (
            f"Adopt the table itself: manifestcommit.Table({where!r}).adopt(from_="
            f"{_ADOPTED[self.name]!r}), or read it with its own reader, and write the rows to a "
            "new table."
        )


def format_of(name: str) -> OtherFormat | None:
    """The format whose log has an object of this name; None: no format."""
    parts = name.split("/")
    if parts[-1] == _HUDI_PARTITION:
        return OtherFormat(inner="/".join(parts[:-1]), name="Hudi", log=_HUDI_PARTITION)
    for at, part in enumerate(parts[:-1]):
        if part in _LOGS:
            return OtherFormat(inner="/".join(parts[:at]), name=_LOGS[part], log=part)
    match = _ICEBERG.fullmatch(name)
    return (
        None if match is None else OtherFormat(inner=match[1] or "", name="Iceberg", log="metadata")
    )


def format_at(store: Store) -> OtherFormat | None:
    """The format of the table at this path; None: there is none. One list request for each
    format."""
    names = (info.name for log in (*_LOGS, "metadata") for info in store.list(f"{log}/"))
    return next(filter(None, map(format_of, names)), None)


_LOOKED_AT = 1000  # names to examine for a better error message


def open_or_free(ctx: TableContext) -> Head | None:
    """Open the table; None if there is none and one may be created. NotATableError if neither.
    [LY6] [CM13]"""
    try:
        return ctx.open()
    except TableNotFoundError:
        pass
    try:
        check_free_root(ctx.store)
    except NotATableError:
        try:  # another writer may have created the table in the meantime
            return ctx.open()
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

"""`lake`: tables below a prefix, found by their markers, and named by their folders. [LK1]-[LK4]"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ..errors import TableNotFoundError, UsageError
from ..format import object_names
from ..format.object_names import COMPANIONS
from ..job import Path
from ..runtime.environment import map_concurrently
from ..runtime.validation import RULES, checked, optional, text
from ..store import ObjectInfo, Store, open_store
from ..store.base import split_url
from ..table import Table
from ..table.functions import create_table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_AT_ONCE = 32  # list requests of a search
_ASKED_S = 60  # how long the id of a table that was found is taken for the one that it has
_NONE: Mapping[tuple[str, ...], str] = {}
_MOST_PART = 255  # bytes of a part of a name, as file systems have it
_NAME = text("the name of a table in the lake, its folders joined by dots", "'sales.orders'")
_NAMESPACE = text("folders of the lake, joined by dots", "'sales'")


class FoundTable(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that has a marker. path: its folders, below the lake; table_id: by its marker."""

    path: tuple[str, ...]
    table_id: str

    @property
    def name(self) -> str | None:
        """Its name; None: a folder cannot be part of a name."""
        return None if any(map(objection, self.path)) else ".".join(self.path)


class Lake:
    """All tables below a prefix, by name: the table in `sales/orders/` is `sales.orders`.

    There is no registry. Whatever makes a table below the prefix adds it, and a lake is nothing
    that has to be created, locked or repaired.

    Example:
        lake = mc.lake("s3://bucket/lake")
        print(lake.tables())
        lake.table("sales.orders").to_arrow()

    Spec: LK1, LK2.
    """

    def __init__(self, store: Store, options: Mapping[str, Any] | None) -> None:
        self._store, self._options = store, options
        self._asked: dict[tuple[str, ...], tuple[str, float]] = {}  # ids, and when they were read

    @property
    def url(self) -> str:
        """Return the canonical URL of the prefix."""
        return self._store.url

    def __repr__(self) -> str:
        return f"lake({self.url!r})"

    @checked(namespace=optional(_NAMESPACE))
    def tables(self, namespace: str | None = None) -> pa.Table:
        """Find the tables, with one list request for each and two for each other folder.

        Behind a network, a table that this object found less than a minute ago costs none: one that
        is new, or whose folder is gone, is noticed at once, and one that another process dropped
        and created again keeps its former id in the list for that long.

        Folders whose names begin with `_` or `.` or contain `=`, as those of partitions do, are
        not searched, nor what is inside of a table.

        Args:
            namespace: only tables in these folders or below; by default all.

        Returns:
            A row for each table, ordered by path: its `name`, `url` and `table_id`. The name is
            null where a folder cannot be part of one; `Table` opens it by its URL.

        Raises:
            UsageError: the namespace is no name or inside of a table, or the prefix is a table or a
                file.
            StoreError: the store failed.

        Spec: LK1, LK2.
        """
        within = () if namespace is None else parts_of(namespace, "namespace")
        scheme, place = split_url(self.url)
        if scheme == "file" and os.path.isfile(place):
            raise UsageError(f"{self.url} is a file, and a lake is a folder of tables")
        found = sorted(self._find(within), key=lambda each: each.path)
        columns = {
            "name": [each.name for each in found],
            "url": [self._url(each.path) for each in found],
            "table_id": [each.table_id for each in found],
        }
        return pa.table(columns, pa.schema([(name, pa.string()) for name in columns]))

    @checked(name=_NAME)
    def table(self, name: str) -> Table:
        """Return the table of a name; nothing is read before a method of it is called.

        Args:
            name: its folders below the lake, joined by dots, such as `sales.orders`.

        Returns:
            The table; whether it exists, its first method says.

        Raises:
            UsageError: this can be no name of a table.

        Spec: LK2.
        """
        return Table(self._url(parts_of(name)), self._options)

    @checked(name=_NAME, properties=optional(RULES["properties"]))
    def create(
        self,
        name: str,
        schema: pa.Schema | StructType,
        *,
        partition_by: list[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create an empty table, as `create_table` does at its path.

        Args:
            name: its folders below the lake, joined by dots, such as `sales.orders`.
            schema: its columns: a pyarrow schema or a Spark StructType.
            partition_by: the columns that partition it, or transforms such as "day(ts)", in this
                order; by default none.
            properties: name -> value, as for `Table.set_properties`; by default none.
            exist_ok: as for `create_table`; by default False.

        Returns:
            The table.

        Raises:
            UsageError: this can be no name of a table.
            SchemaMismatchError: the table that is there has other columns or another partitioning.
            NotATableError: the folder is inside of a table, or holds files but no table.

        Spec: LK2, CM13.
        """
        return create_table(
            self._url(parts_of(name)),
            schema,
            partition_by=partition_by,
            properties=properties,
            exist_ok=exist_ok,
            storage_options=self._options,
        )

    @checked(name=_NAME, new_name=_NAME)
    def rename(self, name: str, new_name: str) -> None:
        """Rename a table: always refused, and the error says what to do instead.

        A name is a path, and object stores cannot rename a folder.

        Args:
            name: of the table.
            new_name: the name that it should have.

        Raises:
            UsageError: always.

        Spec: LK3.
        """
        old, new = (self._url(parts_of(each)) for each in (name, new_name))
        raise UsageError(
            f"{name!r} cannot be renamed to {new_name!r}: the name is the path of its objects, "
            "which no store moves at once, and a copy would lack its history and its jobs. Write "
            f"its rows to the new table (mc.write(mc.Table({old!r}).to_arrow(), {new!r}, key=…)), "
            f"let its readers and writers follow, and drop {name!r}"
        )

    @checked(name=_NAME)
    def drop(self, name: str) -> int:
        """Delete a table, its history and its files, for good: nothing brings them back.

        The tables beside it that its loads and writes made go with it: `<path>.files` and
        `<path>.refused`. Without the table, they would keep a new one from loading what is theirs.

        Its marker goes first: from then on it is in no list, cannot be read, and no job of it can
        commit. A drop that was interrupted may be repeated. Stop its writers first: what they
        write later stays as orphan files. Create no table of that name before this call has
        returned. Where it took part in commits of several tables, make the others independent of it
        first, by `Table.settle`.

        Args:
            name: the table's name. All objects below its folder and those beside it are deleted.

        Returns:
            How many objects were deleted.

        Raises:
            TableNotFoundError: there is no table of this name.
            UsageError: this can be no name of a table.
            StoreError: the store failed; repeat the call.

        Spec: LK4.
        """
        url = self._url(parts_of(name))
        self._asked.pop(parts_of(name), None)
        table, *others = [open_store(url + each, self._options) for each in ("", *COMPANIONS)]
        if not _has_table(table):
            raise TableNotFoundError(f"there is no table {name!r} in {self.url}")
        stores = [*filter(_has_table, others), table]
        count = sum(_delete(store, store.list(object_names.MARKERS)) for store in reversed(stores))
        return count + sum(map(_delete_rest, stores))

    def _find(self, within: tuple[str, ...]) -> list[FoundTable]:
        if not self._store.is_remote:  # a list there is cheap
            return find_tables(self._store, within)
        now_s = time.monotonic()
        known = {path: id for path, (id, at_s) in self._asked.items() if now_s - at_s < _ASKED_S}
        found = find_tables(self._store, within, known)
        new = {each.path: (each.table_id, now_s) for each in found if each.path not in known}
        self._asked.update(new)
        return found

    def _url(self, path: Sequence[str]) -> str:
        return "/".join([self.url.rstrip("/"), *path])


def _has_table(store: Store) -> bool:
    """Whether the marker or a version of a table is there."""
    return any(
        object_names.parse_marker(info.name) is not None or object_names.parse_version(info.name)
        for info in store.list(object_names.VERSIONS)
    )


def _delete(store: Store, found: Iterable[ObjectInfo]) -> int:
    names = [info.name for info in found]
    store.delete(names)
    return len(names)


def _delete_rest(store: Store) -> int:
    """Delete what is there besides the marker; how many objects it was."""
    found = sorted((info.name for info in store.list("")), key=_is_last)
    last = next((at for at, each in enumerate(found) if _is_last(each)[0]), len(found))
    store.delete(found[:last])
    # as long as a version is there, no other table can be: another call was faster
    if not marker_at(store):
        store.delete(found[last:])
    return len(found)


def _is_last(name: str) -> tuple[bool, str]:
    """Versions after all else: with one left, no table is made here, and a drop can go on. [LK4]"""
    return name.startswith(object_names.VERSIONS), name


@checked()
def lake(path: Path, storage_options: Mapping[str, Any] | None = None) -> Lake:
    """Open all tables below a prefix, by name; nothing is read before a method is called.

    Args:
        path: the prefix: a local path, or a URL such as `s3://bucket/lake`.
        storage_options: what reaches the object store, as for s3fs, adlfs or gcsfs; by default
            the environment.

    Returns:
        The lake.

    Raises:
        UsageError: `path` is no path or URL of a store that is supported.

    Spec: LK1.
    """
    return Lake(open_store(path, storage_options), storage_options)


def objection(part: str) -> str:
    """Why a folder's name cannot be part of a table's name; empty: it can. [LK2]"""
    if not part or part != part.strip():
        return "is empty, or begins or ends with a space"
    if part.startswith("_") or "=" in part:
        return "begins with an underscore or has an equals sign, as folders inside of tables do"
    if not part.isprintable() or any(mark in part for mark in "./\\"):
        return "has a dot, a slash, a backslash or a character that cannot be printed"
    if len(part.encode()) > _MOST_PART:
        return f"has more than {_MOST_PART} bytes"
    return ""


def parts_of(name: str, argument: str = "name") -> tuple[str, ...]:
    """The folders of a name. [LK2]"""
    parts = tuple(name.split("."))
    for part in parts:
        if why := objection(part):
            raise UsageError(
                f"{part!r} {why}. A name is folders below the lake, "
                "joined by dots, such as 'sales.orders'; any other table is opened by its URL",
                argument=argument,
                given=repr(name),
            )
    return parts


def check_there(url: str) -> None:
    """UsageError where a local lake is not there: an empty list would hide a wrong path. [LK1]"""
    scheme, place = split_url(url)
    if scheme == "file" and not os.path.exists(place):
        raise UsageError(f"there is no folder {url}")


def find_tables(
    store: Store, within: tuple[str, ...] = (), known: Mapping[tuple[str, ...], str] = _NONE
) -> list[FoundTable]:
    """The tables in or below these folders: a list request for each table, two for each other
    folder; 32 at the same time. known: the ids of some, which are not asked for. [LK1]"""
    found, level, above = list[FoundTable](), [within], [within[:end] for end in range(len(within))]
    if any(map_concurrently(store, lambda path: _marker(store, path), above)):
        raise UsageError(
            f"it lies inside of a table in {store.url}",
            argument="namespace",
            given=repr(".".join(within)),
        )
    while level:
        asked = [path for path in level if path not in known]
        told = map_concurrently(store, lambda path: _marker(store, path), asked, limit=_AT_ONCE)
        ids = {**known, **dict(zip(asked, told, strict=True))}
        markers = [ids[path] for path in level]
        found += [
            FoundTable(path=path, table_id=marker)
            for path, marker in zip(level, markers, strict=True)
            if marker
        ]
        rest = [path for path, marker in zip(level, markers, strict=True) if not marker]
        below = map_concurrently(
            store, lambda path: store.folders(_prefix(path)), rest, limit=_AT_ONCE
        )
        level = [
            (*path, name)
            for path, names in zip(rest, below, strict=True)
            for name in names
            if not (name.startswith(("_", ".")) or "=" in name)
        ]
    if any(not each.path for each in found):
        raise UsageError(
            f"{store.url} is a table, and a lake is a folder of tables: give the folder above it"
        )
    return found


def marker_at(store: Store) -> str:
    """The id of the table at this path, by its marker; empty: there is none. [LY14]"""
    return _marker(store, ())


def _marker(store: Store, path: Sequence[str]) -> str:
    prefix = _prefix(path)
    names = (info.name[len(prefix) :] for info in store.list(prefix + object_names.MARKERS))
    return next(filter(None, map(object_names.parse_marker, names)), None) or ""


def _prefix(path: Sequence[str]) -> str:
    return "".join(f"{part}/" for part in path)

"""What is served of a lake's tables, and `publish_catalog`: the same as plain objects. [LK5] [LK6]
[LK10]
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..errors import CorruptMetadataError, NotATableError, TableNotFoundError, UsageError
from ..export import iceberg_export
from ..export.iceberg_export import metadata_name, read_document
from ..job import Path
from ..log.table_context import TableContext, open_or_free
from ..runtime.environment import map_concurrently
from ..runtime.validation import checked, root
from ..store import StorageOptions, Store, open_store
from ..store.base import split_url
from .clone import other_options
from .lake import FoundTable, check_there, find_tables

# Of the tables at the lake's root: Iceberg has no table outside of a namespace.
ROOT = "default"
NAMESPACES = "v1/namespaces"
_OWNER = "v1/lake"  # has the URL of the lake that is published there
_MOST_BYTES = 256 << 20
_AT_ONCE = 16  # tables that are published
OFFERED = ("", "/{namespace}", "/{namespace}/tables", "/{namespace}/tables/{table}")
_ROWS = pa.schema([("name", pa.string()), ("version", pa.int64()), ("problem", pa.string())])
Tables = dict[tuple[str, ...], dict[str, FoundTable]]  # by their namespaces and names


def newest_export(store: Store) -> int:
    """The newest exported version; TableNotFoundError: there is none. One request. [LK5]"""
    version = iceberg_export.exported_version(store)
    if version is None:
        raise TableNotFoundError(
            f"the table at {store.url} is there and has no Iceberg export: run "
            f"`manifestcommit export {store.url} --to iceberg` once, or set its property "
            "export.formats=iceberg, by which each commit exports it",
        )
    return version


def load(store: Store, table_id: str, version: int) -> bytes:
    """An exported document, as clients take it: the store's bytes. One request. [LK5]"""
    name = metadata_name(version)
    try:
        data = store.get(name, 0, _MOST_BYTES)
        if read_document(data).table_id != table_id:
            raise ValueError("it is of a table that was removed from this path")
    except (FileNotFoundError, ValueError) as error:
        raise CorruptMetadataError(
            f"the export of {store.url} cannot be read ({error}): "
            "`manifestcommit export` writes it again",
            object_name=name,
        ) from None
    location = json.dumps(f"{iceberg_export.data_url(store)}/{name}")
    return b'{"metadata-location":%b,"metadata":%b,"config":{}}' % (location.encode(), data)


def by_namespace(found: Sequence[FoundTable]) -> Tables:
    """The tables that can have a name in a catalog. [LK6]"""
    tables: Tables = {}
    for each in found:
        if each.name is not None:
            tables.setdefault(each.path[:-1] or (ROOT,), {})[each.path[-1]] = each
    return tables


def identifiers(namespace: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Tables as a catalog lists them."""
    return [{"namespace": list(namespace), "name": name} for name in names]


def config(kinds: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What a catalog offers. kinds: method -> paths, below the namespaces."""
    offered = [
        f"{kind} /v1/{{prefix}}/namespaces{path}" for kind, paths in kinds.items() for path in paths
    ]
    return {"defaults": {}, "overrides": {}, "endpoints": offered}


@checked(to=root, to_options=other_options)
def publish_catalog(
    path: Path,
    to: Path,
    *,
    storage_options: Mapping[str, Any] | None = None,
    to_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Write the names of a lake's tables as objects that are an Iceberg REST catalog to engines.

    Engines find tables by name with GET alone, and nobody runs a server. What is published of a
    table is its newest Iceberg export, as of this call: call it after the commits that readers are
    to see, and more often than gc expires versions. It may be killed and repeated; of two at once,
    the last one decides what is listed. Each object is replaced as a whole and names one version; a
    table is listed once it can be loaded, and loses its object after it is listed no more.

    All who may read the objects see the names, columns and sizes of all tables; none has a
    credential. Clients do not sign these requests.

    Args:
        path: the lake, with one level of folders at most: `sales.orders`, not `sales.eu.orders`.
        to: an empty place in an object store, or where this lake was published before. Clients get
            the URL by which it is read over HTTP.
        storage_options: what reaches the object store of the lake; by default the environment.
        to_options: likewise of `to`; by default `storage_options`.

    Returns:
        A row for each table, ordered by path: its `name`, the `version` that is published, and the
        `problem` for which none is, such as that the table has no export.

    Raises:
        UsageError: there is no folder, or no table and none was published before; or GET alone
            cannot distinguish them, being in folders of folders, or two of one name; or `to` is on
            a disk, is a table, or has the catalog of another lake. Nothing was written.
        NotATableError: at `to` is something else. Nothing was written.
        ManifestCommitError: a store failed; repeat the call. What concerns one table is its
            `problem`.

    Example:
        `mc.publish_catalog("s3://lake", "s3://names/lake")`

    Spec: LK5, LK6, LK10.
    """
    given = storage_options if to_options is None else to_options
    lake, place = open_store(path, storage_options), open_store(to, given)
    check_there(lake.url)
    found = sorted(find_tables(lake), key=lambda each: each.path)
    _check_names(lake, place, found)
    _claim(lake, place, found)
    before = {info.name for info in place.list(f"{NAMESPACES}/")}
    options, far = StorageOptions(storage_options), place if place.is_remote else lake

    def publish(each: FoundTable) -> dict[str, Any]:
        row = {"name": each.name or "/".join(each.path), "version": None, "problem": None}
        try:
            if each.name is None:
                raise NotATableError("its folder cannot be a name")
            at = open_store("/".join([lake.url, *each.path]), options)
            version = newest_export(at)
            place.put(_name_of(each), load(at, each.table_id, version))
        except (TableNotFoundError, NotATableError, CorruptMetadataError) as error:
            return row | {"problem": str(error)}
        return row | {"version": version}

    rows = map_concurrently(far, publish, found, limit=_AT_ONCE)
    shown = [each for each, row in zip(found, rows, strict=True) if row["problem"] is None]
    listed = _lists(shown)
    for name, document in listed.items():
        place.put(name, json.dumps(document, separators=(",", ":")).encode())
    place.delete(sorted(before - listed.keys() - set(map(_name_of, shown))))
    return pa.Table.from_pylist(rows, _ROWS)


def _check_names(lake: Store, place: Store, found: Sequence[FoundTable]) -> None:
    """UsageError where GET alone could not distinguish names. [LK10]"""
    if split_url(place.url)[0] == "file":
        raise UsageError(
            f"a folder cannot be a file as well, as {NAMESPACES} has to be: publish to an object "
            "store, or run `manifestcommit serve`",
            argument="to",
            given=repr(place.url),
        )
    for namespace, tables in by_namespace(found).items():
        if len(namespace) > 1:
            inner = next(iter(tables.values()))
            raise UsageError(
                f"{inner.name} of {lake.url} is in a folder of a folder, and plain objects cannot "
                "say which namespace is in which; nothing was published. Publish "
                f"{lake.url}/{inner.path[0]} by a call of its own, or run `manifestcommit serve`"
            )
    names = Counter(_name_of(each) for each in found if each.name is not None)
    if twice := [name.rpartition("/")[2] for name, count in names.items() if count > 1]:
        raise UsageError(
            f"two tables are {ROOT}.{twice[0]} in {lake.url}, one of them in the folder {ROOT}; "
            "nothing was published. Name one of the folders otherwise"
        )


def _claim(lake: Store, place: Store, found: Sequence[FoundTable]) -> None:
    """One place is one lake's: another's call would remove what this one has written. [LK10]"""
    url = lake.url.encode()
    if (owner := _owner(place, url)) is None:
        try:
            is_table = open_or_free(TableContext(place)) is not None
        except NotATableError:  # unless another call has claimed it since, and written already
            if (owner := _owner(place, url)) is None:
                raise
        else:
            if is_table:
                raise UsageError(f"{place.url} is a table; nothing was published")
            if not found:
                raise UsageError(f"there is no table in {lake.url}; nothing was published")
            owner = url if place.put_if_absent(_OWNER, url) else _owner(place, url)
    if owner != url:
        raise UsageError(
            f"{place.url} has the catalog of another lake; nothing was published. Choose another "
            "place, or delete what is there"
        )


def _owner(place: Store, url: bytes) -> bytes | None:
    """As much of it as tells whether it is this URL; None: nobody has claimed the place."""
    try:
        return place.get(_OWNER, 0, len(url) + 1)
    except FileNotFoundError:
        return None


def _name_of(table: FoundTable) -> str:
    *folders, name = table.path
    return f"{NAMESPACES}/{(folders or [ROOT])[0]}/tables/{name}"


def _lists(shown: Sequence[FoundTable]) -> dict[str, Any]:
    """The other objects, in the order in which they are written: what is listed is there."""
    made: dict[str, Any] = {}
    tables = by_namespace(shown)
    for namespace, members in tables.items():
        place = f"{NAMESPACES}/{namespace[0]}"
        made[f"{place}/tables"] = {"identifiers": identifiers(namespace, [*members])}
        made[place] = {"namespace": list(namespace), "properties": {}}
    made[NAMESPACES] = {"namespaces": list(map(list, tables))}
    made["v1/config"] = config({"GET": OFFERED})
    return made

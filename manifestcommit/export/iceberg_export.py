"""Puts Iceberg metadata of a table's newest version beside its data files. [EX1]-[EX6]

Manifests, then the list, then the document by put-if-absent, then the hint: whatever stops it, a
reader finds the document before, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SnapshotExpiredError, UnsupportedTypeError, UsageError
from ..format.entries import ManifestRef
from ..format.fields import Schema
from ..format.snapshot import Snapshot, columns_of
from ..log.exports import is_export
from ..log.table_context import TableContext
from ..log.version_chain import Head, raise_if_expired, read_version
from ..protocol.conflict import is_readable
from ..runtime.environment import STARTS
from ..store import ObjectInfo, Store
from . import file_columns
from .iceberg_manifests import ManifestFile, list_bytes, manifest_bytes, manifest_file, read_list
from .iceberg_metadata import (
    DIGITS,
    FOLDER,
    HINT,
    Document,
    chosen_versions,
    document_bytes,
    key_of_manifest,
    list_name,
    manifest_name,
    metadata_name,
    read_document,
    version_of_document,
    version_of_list,
)
from .iceberg_schema import check_schema, schema_json, spec_json
from .shared_objects import entries_since, not_ours, put_shared

LOG = logging.getLogger("manifestcommit.jobs")
_LAYOUT = "2"  # of manifests: another one gives them other names
_MOST_BYTES = 256 << 20


def check(ctx: TableContext, schema: Schema | None) -> None:
    """UsageError or UnsupportedTypeError if Iceberg cannot express this. [EX9]"""
    url = data_url(ctx.store)
    if marks := sorted(set("#%?") & set(url)):
        raise UsageError(
            f"the table's path {url} has {' and '.join(map(repr, marks))}, which readers of "
            "Iceberg take for something else: the table cannot be exported to it there"
        )
    if schema is not None:
        check_schema(schema)


def check_files(ctx: TableContext, entries: pa.Table, snapshot: Snapshot) -> None:
    """UsageError if one of these files cannot be read through Iceberg. [EX6] [EX9]"""
    file_columns.check_ids(ctx, entries, snapshot.schema or Schema(fields=()))


def check_owner(ctx: TableContext, snapshot: Snapshot) -> None:
    """UsageError if the newest document is another table's. Two requests. [EX9]"""
    version = exported_version(ctx.store)
    if version is not None:
        _check_ours(ctx.store, _document(ctx.store, version), snapshot)


def _check_ours(store: Store, document: Document | None, snapshot: Snapshot) -> None:
    if document is not None and document.table_id != snapshot.table_id:
        raise not_ours(store, FOLDER)


def location(store: Store) -> str:
    """What readers of Iceberg are given."""
    return f"{data_url(store)}/{FOLDER.partition('/')[0]}"


def data_url(store: Store) -> str:
    """The root as Iceberg's paths begin, a local one with its scheme."""
    return f"file://{store.url}" if store.url.startswith("/") else store.url


def exported_version(store: Store, _: int = 0) -> int | None:
    """The version that the hint names; None: there is no hint. One request."""
    try:
        text = store.get(HINT, 0, 32)
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() and int(text) > 0 else None


def export(ctx: TableContext, head: Head) -> int:
    """Export this version, unless a later one is; returns the newest exported one. [EX1] [EX2]"""
    store, snapshot = ctx.store, head.snapshot
    before = exported_version(store)
    document = _document(store, before) if before is not None else None
    _check_ours(store, document, snapshot)
    if before is not None and document is not None and before >= head.version:
        return before
    check(ctx, snapshot.schema)
    manifests = _Manifests(ctx, head, newest_checked=before or 0 if document else 0)
    if document is None:
        document = Document()
    elif before in document.entries:
        manifests.know(document.entries[before]["manifest-list"])
    manifests.check_head()
    for version in chosen_versions(snapshot):
        if version in document.entries or not is_readable(snapshot, version):
            continue
        try:
            old = read_version(store, head, version).snapshot
            check(ctx, old.schema)
            document.add(old, manifests.put_list(old))
        except (SnapshotExpiredError, UsageError, UnsupportedTypeError):
            if version == head.version:
                raise  # of older versions, what can be expressed and is still readable
    data = document_bytes(document, snapshot, data_url(store))
    put_shared(ctx, metadata_name(head.version), data)
    return _put_hint(store, head.version)


def _put_hint(store: Store, version: int) -> int:
    """Name this version in the hint, then any later exported one; returns the newest. [EX2]"""
    for _ in range(STARTS):
        store.put(HINT, str(version).encode())
        later = _newest_document(store, version + 1)
        if later is None:
            break
        version = later
    return version


def _newest_document(store: Store, least: int) -> int | None:
    """The newest version from `least` on that has a document. A list, and one request for each."""
    listed = store.list(f"{FOLDER}snap-", start_from=list_name(least, ""))
    found = {version for info in listed if (version := version_of_list(info.name)) is not None}
    return next((each for each in sorted(found, reverse=True) if _has_document(store, each)), None)


def _has_document(store: Store, version: int) -> bool:
    try:
        return bool(store.get(metadata_name(version), 0, 1))
    except FileNotFoundError:
        return False


def _document(store: Store, version: int) -> Document | None:
    """The document of a version; None: it is gone or damaged, so that the export starts over."""
    try:
        return read_document(store.get(metadata_name(version), 0, _MOST_BYTES))
    except (FileNotFoundError, ValueError):
        return None


def before_deletion(ctx: TableContext, head: Head) -> None:
    """Nothing is to be done before gc deletes files: the newest document says which are needed."""


def unreached(
    ctx: TableContext, decided: Snapshot, cut_s: float, is_dead: Callable[[int], bool]
) -> Iterator[tuple[ObjectInfo, str]]:
    """Objects that no document needs which was the newest one since `cut_s`; all of them, where
    that one's version is dead. Where such a document or a list of it cannot be read, or is another
    table's, none. [EX4]"""
    listed = [info for info in ctx.store.list(FOLDER) if is_export(info.name)]
    documents = sorted(
        (version, info) for info in listed if (version := version_of_document(info.name))
    )
    later = [info.modified for _, info in documents[1:]] + [math.inf]
    kept = [
        version
        for (version, _), next_s in zip(documents, later, strict=False)  # no document: nothing
        if not 0 < next_s <= cut_s
    ]
    needed, reason = {HINT, *map(metadata_name, kept)}, "no exported version needs it"
    try:
        needed |= _listed_by(ctx, decided, kept)
        if documents and documents[-1][1].modified <= cut_s and is_dead(documents[-1][0]):
            needed, reason = set(), f"version {documents[-1][0]}, which it shows, is expired"
    except (FileNotFoundError, ValueError) as error:
        LOG.warning("%r: nothing of its Iceberg export is removed: %s", ctx.store.url, error)
        return
    for info in sorted(listed, key=lambda info: info.name.endswith(".avro")):
        if info.name not in needed and 0 < info.modified <= cut_s:
            yield info, f"of the Iceberg export: {reason}"


def _listed_by(ctx: TableContext, decided: Snapshot, versions: Iterable[int]) -> set[str]:
    """The manifest lists of these documents, and their manifests. One request for each."""
    root, lists, found = f"{data_url(ctx.store)}/", set[str](), set[str]()
    for version in versions:
        document = read_document(ctx.store.get(metadata_name(version), 0, _MOST_BYTES))
        if document.table_id != decided.table_id:
            raise ValueError("it is of another table")
        lists |= {entry["manifest-list"] for entry in document.entries.values()}
    for each in sorted(lists):
        name = each.removeprefix(root)
        files = read_list(ctx.store.get(name, 0, _MOST_BYTES))
        found |= {name, *(file.path.removeprefix(root) for file in files)}
    return found


class _Manifests:
    """Puts the lists of versions, and those of their manifests that are not exported yet."""

    def __init__(self, ctx: TableContext, head: Head, newest_checked: int) -> None:
        self._head = head
        self._ctx, self._url = ctx, data_url(ctx.store)
        self._newest_checked = newest_checked
        self._known: dict[str, ManifestFile] = {}
        self._checked: set[str | None] = set()  # manifests of the head, by their keys

    def know(self, manifest_list: str) -> None:
        """Use the manifests of a list again; one that is gone or damaged is skipped."""
        name = manifest_list.removeprefix(f"{self._url}/")
        with contextlib.suppress(FileNotFoundError, ValueError):
            listed = read_list(self._ctx.store.get(name, 0, _MOST_BYTES))
            self._known = {key_of_manifest(file.path): file for file in listed}

    def check_head(self) -> None:
        """UsageError if Iceberg cannot read a file of the newest version; puts nothing. [EX9]"""
        snapshot = self._head.snapshot
        if snapshot.schema is None:
            return
        for key, entries in self._entries(snapshot):
            if entries is not None and entries.num_rows:
                self._check(entries, snapshot)
                self._checked.add(key)

    def put_list(self, snapshot: Snapshot) -> str:
        """Put the list of a version, and return where it is."""
        files = []
        if snapshot.schema is not None:
            files = [file for file in self._files(snapshot) if file is not None]
        data = list_bytes(files, snapshot.version)
        name = list_name(snapshot.version, _digest(data))
        put_shared(self._ctx, name, data)
        return f"{self._url}/{name}"

    def _files(self, snapshot: Snapshot) -> Iterator[ManifestFile | None]:
        for key, entries in self._entries(snapshot):
            made = None if entries is None else self._put(key, entries, snapshot)
            yield made if key is None else self._known.get(key)

    def _entries(self, snapshot: Snapshot) -> Iterator[tuple[str | None, pa.Table | None]]:
        """The entries of each manifest with its key, the snapshot's last; None: it is known."""
        ctx = self._ctx
        with raise_if_expired(ctx.store, snapshot.version):
            removed = ctx.manifests.removed(snapshot) if snapshot.manifests else {}
            for ref in snapshot.manifests:
                # read once: a table's manifests together may be more than memory holds
                gone = removed.get(ref.path, 0)
                key = _key(ref, gone, snapshot)
                yield (
                    key,
                    None
                    if key in self._known
                    else ctx.manifests.live(ref, snapshot, gone, keep=False),
                )
            yield None, ctx.manifests.inlined(snapshot)

    def _put(self, key: str | None, entries: pa.Table, snapshot: Snapshot) -> ManifestFile | None:
        """Put a manifest of these entries; None: there are none."""
        if not entries.num_rows:
            return None
        schema, partition_by = columns_of(snapshot), snapshot.partition_by
        if key not in self._checked or (key is None and snapshot.version != self._head.version):
            self._check(entries, snapshot)
        data = manifest_bytes(entries, schema, partition_by, self._url)
        name = manifest_name(key or _digest(data), snapshot.version)
        length = put_shared(self._ctx, name, data)
        path = f"{self._url}/{name}"
        made = manifest_file(path, length, entries, schema, partition_by)
        if key is not None:
            self._known[key] = made
        return made

    def _check(self, entries: pa.Table, snapshot: Snapshot) -> None:
        """Check files that were added, or that a rollback brought back, since the last export."""
        is_fresh = pc.greater(entries.column("added"), self._newest_checked)
        schema, older = snapshot.schema, entries.filter(pc.invert(is_fresh))
        assert schema is not None
        doubtful = file_columns.of_others(older)
        if doubtful.num_rows:
            back = entries_since(self._ctx, self._head, self._newest_checked, snapshot, doubtful)
            check_files(self._ctx, back, snapshot)
        check_files(self._ctx, entries.filter(is_fresh), snapshot)


def _key(ref: ManifestRef, removed: int, snapshot: Snapshot) -> str:
    """What the name of a manifest's export follows from: all that its bytes follow from. [EX5]"""
    schema = columns_of(snapshot)
    columns, spec = schema_json(schema), spec_json(schema, snapshot.partition_by)
    parts = (_LAYOUT, ref.path, ref.digest, ref.added, removed, columns, spec)
    return _digest(repr(parts).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]

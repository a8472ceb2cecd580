"""Puts Iceberg metadata of a table's newest version beside its data files. [EX1]-[EX6]

Manifests, then the list, then the document by put-if-absent, then the hint: whatever stops it, a
reader finds the document before, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SnapshotExpiredError, UnsupportedTypeError, UsageError
from ..format.entries import ManifestRef
from ..format.fields import Schema, walk
from ..format.snapshot import REPLACE, Snapshot, columns_of
from ..log.table_context import TableContext, is_export
from ..log.version_chain import Head, raise_if_expired, read_version
from ..protocol.conflict import is_readable
from ..store import ObjectInfo, Store
from . import file_columns
from .file_columns import entries_since, json_text, not_ours, put_shared
from .iceberg_manifests import (
    FIRST_PARTITION_ID,
    ManifestFile,
    check_schema,
    list_bytes,
    manifest_bytes,
    manifest_file,
    name_mapping,
    physical_names,
    read_list,
    schema_json,
    spec_json,
)

LOG = logging.getLogger("manifestcommit.jobs")

FOLDER = "_iceberg/metadata/"
HINT = f"{FOLDER}version-hint.text"
DIGITS = 40  # of a digest in a name
MAX_SNAPSHOTS = 20  # newest versions that a document has, beside tagged ones
_MAX_TEXT = 2000  # characters of the watermarks in a summary
_NAMESPACE = uuid.UUID("6f3d2c0e-6a53-4d8e-9c39-0f1c9a1f5b77")
_PHYSICAL = "manifestcommit.physical-names"
_TABLE_ID = "manifestcommit.table-id"
_OPERATIONS = {"append": "append", "adopt": "append", REPLACE: "replace", "delete": "delete"}


def metadata_name(version: int) -> str:
    return f"{FOLDER}v{version}.metadata.json"


def list_name(version: int, digest: str) -> str:
    """The name of the manifest list of this version with these bytes."""
    return f"{FOLDER}snap-{version:020d}-{digest}.avro"


def manifest_name(key: str, version: int) -> str:
    """The name of a manifest. key: what its bytes follow from; version: the one that listed it
    first, so that a name which gc may delete is not taken again. [EX4]"""
    return f"{FOLDER}m-{key}-{version:016x}.avro"


def key_of_manifest(path: str) -> str:
    return path.rpartition("/m-")[2].partition("-")[0]


def version_of_document(name: str) -> int | None:
    """The version in the name of a document; None for any other name."""
    digits = name.removeprefix(f"{FOLDER}v").removesuffix(".metadata.json")
    is_number = digits.isascii() and digits.isdecimal()
    return int(digits) if is_number and name == metadata_name(int(digits)) else None


def chosen_versions(head: Snapshot) -> list[int]:
    """The versions of the head's document: the newest readable, and tagged ones. [EX4]"""
    newest = range(max(head.expired, head.version - MAX_SNAPSHOTS + 1), head.version + 1)
    return sorted({*newest, *(tag.version for tag in head.tags.values())} - {*head.void})


class Document(msgspec.Struct, kw_only=True):
    """What one document carries on to the next. entries: version to its entry; schemas, specs: by
    their ids; physical: id of a schema to the names in files that differ from its names; table_id:
    of the table that it is of."""

    entries: dict[int, dict[str, Any]] = {}
    schemas: dict[int, dict[str, Any]] = {}
    specs: dict[int, dict[str, Any]] = {}
    physical: dict[int, dict[str, str]] = {}
    last_column: int = 0
    table_id: str = ""

    def add(self, snapshot: Snapshot, manifest_list: str) -> None:
        """Add a version. manifest_list: where its list of manifests is."""
        schema = columns_of(snapshot)
        columns, spec = schema_json(schema), spec_json(schema, snapshot.partition_by)
        self.schemas[columns["schema-id"]] = columns
        self.specs[spec["spec-id"]] = spec
        self.physical[columns["schema-id"]] = physical_names(schema)
        self.last_column = max([self.last_column, *(each.id for _, each in walk(schema.fields))])
        entry: dict[str, Any] = {
            "snapshot-id": snapshot.version,
            "sequence-number": snapshot.version,
            "timestamp-ms": snapshot.committed_at // 1000,
            "manifest-list": manifest_list,
            "summary": _summary(snapshot),
            "schema-id": columns["schema-id"],
        }
        if snapshot.version > 1:
            entry["parent-snapshot-id"] = snapshot.version - 1
        self.entries[snapshot.version] = entry

    def restrict(self, versions: Collection[int], head: int) -> dict[str, Any]:
        """Drop other versions, and those in which a name in files means another column than in a
        later one; returns the name mapping. [EX6]"""
        mapping: dict[str, dict[str, Any]] = {}
        for version in sorted(self.entries, reverse=True):
            number = self.entries[version]["schema-id"]
            own = name_mapping(self.schemas[number], self.physical.get(number, {}))
            agree = all(
                mapping.get(name, field)["field-id"] == field["field-id"]
                for name, field in own.items()
            )
            if version > head or version not in versions or not agree:
                del self.entries[version]
            else:
                mapping = own | mapping
        used = {entry["schema-id"] for entry in self.entries.values()}
        self.schemas = {number: each for number, each in self.schemas.items() if number in used}
        self.physical = {number: each for number, each in self.physical.items() if number in used}
        return mapping


def read_document(data: bytes) -> Document:
    """What a document of this library carries on; ValueError if it is damaged."""
    try:
        found = json.loads(data)
        physical = json.loads(found["properties"][_PHYSICAL])
        made = Document(
            entries={entry["snapshot-id"]: entry for entry in found["snapshots"]},
            schemas={schema["schema-id"]: schema for schema in found["schemas"]},
            specs={spec["spec-id"]: spec for spec in found["partition-specs"]},
            physical={int(number): each for number, each in physical.items()},
            last_column=found["last-column-id"],
            table_id=found["properties"][_TABLE_ID],
        )
        made = msgspec.convert(msgspec.to_builtins(made), Document)
        for entry in made.entries.values():
            number = entry["schema-id"]
            name_mapping(made.schemas[number], made.physical.get(number, {}))
            if not isinstance(entry["manifest-list"], str) or not entry["timestamp-ms"] >= 0:
                raise ValueError("a version is not described as it should be")
        [len(spec["fields"]) for spec in made.specs.values()]
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(f"it is no table metadata of this library: {error!r}") from None
    return made


def document_bytes(document: Document, head: Snapshot, url: str) -> bytes:
    """The document of the head, which is the last version in it. [EX5]"""
    mapping = document.restrict(chosen_versions(head), head.version)
    current, entries = document.entries[head.version], document.entries
    spec = spec_json(head.schema, head.partition_by)
    tags = {name: tag.version for name, tag in sorted(head.tags.items()) if tag.version in entries}
    made = {
        "format-version": 2,
        "table-uuid": str(uuid.uuid5(_NAMESPACE, head.table_id)),
        "location": f"{url}/{FOLDER.partition('/')[0]}",
        "last-sequence-number": head.version,
        "last-updated-ms": head.committed_at // 1000,
        "last-column-id": document.last_column,
        "schemas": [document.schemas[number] for number in sorted(document.schemas)],
        "current-schema-id": current["schema-id"],
        "partition-specs": [document.specs[number] for number in sorted(document.specs)],
        "default-spec-id": spec["spec-id"],
        "last-partition-id": FIRST_PARTITION_ID
        - 1
        + max(len(each["fields"]) for each in document.specs.values()),
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {
            "gc.enabled": "false",
            "schema.name-mapping.default": json_text(list(mapping.values())),
            _TABLE_ID: head.table_id,
            _PHYSICAL: json_text({str(number): each for number, each in document.physical.items()}),
        },
        "current-snapshot-id": head.version,
        "refs": {
            **{name: {"snapshot-id": at, "type": "tag"} for name, at in tags.items()},
            "main": {"snapshot-id": head.version, "type": "branch"},
        },
        "snapshots": [entries[version] for version in sorted(entries)],
        "snapshot-log": [
            {"snapshot-id": version, "timestamp-ms": entries[version]["timestamp-ms"]}
            for version in sorted(entries)
        ],
        "metadata-log": [],
    }
    return json_text(made).encode()


def _summary(snapshot: Snapshot) -> dict[str, str]:
    """What a version did, with its idempotency keys and watermarks. [EX7]"""
    commits = snapshot.commits
    operations = {_OPERATIONS.get(commit.operation, "overwrite") for commit in commits}
    removed = any(commit.summary.removed_files for commit in commits)
    if operations == {"append"} and removed:
        operations = {"overwrite"}
    changes = {
        "added-data-files": sum(commit.summary.files for commit in commits),
        "added-records": sum(commit.summary.rows for commit in commits),
        "deleted-data-files": sum(commit.summary.removed_files for commit in commits),
        "deleted-records": sum(commit.summary.removed_rows for commit in commits),
    }
    totals = {
        "total-data-files": snapshot.totals.files,
        "total-records": snapshot.totals.rows,
        "total-files-size": snapshot.totals.bytes,
    }
    summary = {
        "operation": operations.pop() if len(operations) == 1 else "overwrite",
        **{name: str(count) for name, count in changes.items() if count},
        **{name: str(count) for name, count in totals.items()},
        "manifestcommit.operations": ",".join(commit.operation for commit in commits),
    }
    keys = [commit.key for commit in commits if commit.key is not None]
    for name, value in (("keys", keys), ("watermarks", snapshot.watermarks)):
        if value and len(text := json_text(value)) <= _MAX_TEXT:
            summary[f"manifestcommit.{name}"] = text
    return summary


_LAYOUT = "2"  # of manifests: another one gives them other names
_MOST_BYTES = 256 << 20


def check(ctx: TableContext, schema: Schema) -> None:
    """UsageError or UnsupportedTypeError if Iceberg cannot express this. [EX9]"""
    url = data_url(ctx.store)
    if marks := sorted(set("#%?") & set(url)):
        raise UsageError(
            f"the table's path {url} has {' and '.join(map(repr, marks))}, which readers of "
            "Iceberg take for something else: the table cannot be exported to it there"
        )
    check_schema(schema)


def check_files(ctx: TableContext, entries: pa.Table, snapshot: Snapshot) -> None:
    """UsageError if one of these files cannot be read through Iceberg. [EX6] [EX9]"""
    file_columns.check_ids(ctx, entries, snapshot.schema)


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
    store.put(HINT, str(head.version).encode())
    return head.version


def _document(store: Store, version: int) -> Document | None:
    """The document of a version; None: it is gone or damaged, so that the export starts over."""
    try:
        return read_document(store.get(metadata_name(version), 0, _MOST_BYTES))
    except (FileNotFoundError, ValueError):
        return None


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
        for key, entries in self._entries(snapshot):
            if entries is not None and entries.num_rows:
                self._check(entries, snapshot)
                self._checked.add(key)

    def put_list(self, snapshot: Snapshot) -> str:
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
        doubtful = file_columns.of_others(entries.filter(pc.invert(is_fresh)))
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

"""Iceberg's table metadata: one JSON document for each exported version. [EX1] [EX5]

Pure. The document's snapshot ids and sequence numbers are versions.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from typing import Any

import msgspec

from ..format.fields import Schema
from ..format.snapshot import REPLACE, Snapshot, columns_of
from .iceberg_schema import (
    FIRST_PARTITION_ID,
    highest_id,
    name_mapping,
    physical_names,
    schema_json,
    spec_json,
)

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
    """The name of the document of this version."""
    return f"{FOLDER}v{version}.metadata.json"


def list_name(version: int, digest: str) -> str:
    """The name of the manifest list of this version with these bytes."""
    return f"{FOLDER}snap-{version:020d}-{digest}.avro"


def manifest_name(key: str, version: int) -> str:
    """The name of a manifest. key: what its bytes follow from; version: the one that listed it
    first, so that a name which gc may delete is not taken again. [EX4]"""
    return f"{FOLDER}m-{key}-{version:016x}.avro"


def key_of_manifest(path: str) -> str:
    """The key in a manifest's name."""
    return path.rpartition("/m-")[2].partition("-")[0]


def version_of_document(name: str) -> int | None:
    """The version in the name of a document; None for any other name."""
    digits = name.removeprefix(f"{FOLDER}v").removesuffix(".metadata.json")
    is_number = digits.isascii() and digits.isdecimal()
    return int(digits) if is_number and name == metadata_name(int(digits)) else None


def version_of_list(name: str) -> int | None:
    """The version in the name of a manifest list; None for any other name."""
    start, _, rest = name.removeprefix(FOLDER).partition("-")
    digits = rest.partition("-")[0]
    is_list = start == "snap" and len(digits) == 20 and digits.isascii() and digits.isdecimal()
    return int(digits) if is_list else None


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
        self.last_column = highest_id(self.schemas.values(), self.last_column)
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
        highest_id(made.schemas.values())
        [len(spec["fields"]) for spec in made.specs.values()]
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(f"it is no table metadata of this library: {error!r}") from None
    return made


def document_bytes(document: Document, head: Snapshot, url: str) -> bytes:
    """The document of the head, which is the last version in it. [EX5]"""
    mapping = document.restrict(chosen_versions(head), head.version)
    current, entries = document.entries[head.version], document.entries
    spec = spec_json(head.schema or Schema(fields=()), head.partition_by)
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
            "schema.name-mapping.default": _text(list(mapping.values())),
            _TABLE_ID: head.table_id,
            _PHYSICAL: _text({str(number): each for number, each in document.physical.items()}),
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
    return _text(made).encode()


def _text(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


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
        if value and len(text := _text(value)) <= _MAX_TEXT:
            summary[f"manifestcommit.{name}"] = text
    return summary

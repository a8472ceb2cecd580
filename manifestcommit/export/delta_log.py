"""Actions and checkpoints of a Delta log. [EX3] [EX5]

Pure. A version of the log is a version of the table. The log is not partitioned: data files hold
their partition columns, and Delta takes a partition value that is an empty string for null.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import UnsupportedTypeError
from ..format.fields import (
    EXACT,
    FLOATS,
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    decimal_parts,
    show_path,
    type_text,
    walk,
)
from ..format.snapshot import REPLACE, Snapshot
from ..log.table_context import gate
from .delta_files import ADD, TEXTS, adds, paths

FOLDER = "_delta_log/"
LAST_CHECKPOINT = f"{FOLDER}_last_checkpoint"
# Writers that do not know this feature refuse to write: the log follows the table. [EX3]
WRITER_FEATURE = "manifestcommit"
_NAMESPACE = uuid.UUID("0d4c6c8e-5b4c-4e0b-9a55-6a1fd1f0b1ce")
_TYPES = EXACT.union(FLOATS)
_MAPPED = "columnMapping"
_NTZ = "timestampNtz"
_TABLE_ID = "manifestcommit.table-id"
_TABLE = re.compile(rb'\{"commitInfo":\{"manifestcommit\.table-id":"([0-9A-Za-z-]{1,100})",')
_GROUP_ROWS = 50_000  # of a checkpoint


def commit_name(version: int) -> str:
    """The name of the actions of a version."""
    return f"{FOLDER}{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """The name of the checkpoint of a version."""
    return f"{FOLDER}{version:020d}.checkpoint.parquet"


def version_of(name: str) -> int | None:
    """The version of a commit or a checkpoint; None for any other name."""
    digits = name.removeprefix(FOLDER)[:20]
    if not (digits.isascii() and digits.isdecimal()):
        return None
    version = int(digits)
    return version if name in (commit_name(version), checkpoint_name(version)) else None


def metadata_id(table_id: str) -> str:
    """The id that a log has in its metadata."""
    return str(uuid.uuid5(_NAMESPACE, table_id))


def table_in(start: bytes) -> str | None:
    """The id of the table whose commit begins with these bytes; None: it is not one of ours."""
    found = _TABLE.match(start)
    return None if found is None else found[1].decode()


def check_schema(schema: Schema) -> None:
    """UnsupportedTypeError if Delta cannot express a column. [EX9]"""
    for path, field in walk(schema.fields):
        kind = field.type
        if isinstance(kind, str) and kind not in _TYPES and decimal_parts(kind) is None:
            raise UnsupportedTypeError(
                f"column {show_path(path)} has the type {type_text(kind)}, which a Delta log "
                "cannot hold for every reader: the table cannot be exported to it as long as the "
                "column is there"
            )


def head_actions(snapshot: Snapshot) -> list[dict[str, Any]]:
    """What a version says of the table itself: protocol and metadata."""
    schema = snapshot.schema or Schema(fields=())
    mapped = any(field.physical is not None for field in schema.fields)
    kinds = {field.type for _, field in walk(schema.fields) if isinstance(field.type, str)}
    features = [_MAPPED] * mapped + [_NTZ] * ("timestamp_ntz" in kinds)
    checks = {}
    if snapshot.constraints:
        texts = gate().texts_of(snapshot)
        checks = {f"delta.constraints.{name.lower()}": text for name, text in texts.items()}
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7}
    if features:
        protocol |= {"minReaderVersion": 3, "readerFeatures": features}
    configuration = checks
    if mapped:
        highest = max(field.id for _, field in walk(schema.fields))
        configuration = {
            **checks,
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": str(highest),
        }
    written = ["checkConstraints"] if checks else []
    columns = {
        "type": "struct",
        "fields": [_field(field, is_mapped=mapped) for field in schema.fields],
    }
    metadata = {
        "id": metadata_id(snapshot.table_id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _text(columns),
        "partitionColumns": [],
        "configuration": configuration,
    }
    return [
        {"protocol": protocol | {"writerFeatures": [*features, *written, WRITER_FEATURE]}},
        {"metaData": metadata},
    ]


def commit_bytes(before: Snapshot, after: Snapshot, removed: pa.Table, added: pa.Table) -> bytes:
    """The actions that lead from one version to the next. removed, added: entries. [EX5]"""
    milliseconds = after.committed_at // 1000
    changes = any(commit.operation != REPLACE for commit in after.commits)
    operations = ",".join(commit.operation for commit in after.commits)
    info: dict[str, Any] = {
        _TABLE_ID: after.table_id,  # first: see `table_in`
        "timestamp": milliseconds,
        "operation": operations,
        "operationParameters": {},
        "engineInfo": "manifestcommit",
    }
    keys = [commit.key for commit in after.commits if commit.key is not None]
    info |= {"manifestcommit.keys": keys} if keys else {}
    if after.watermarks != before.watermarks:
        info["manifestcommit.watermarks"] = after.watermarks
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    heads = zip(head_actions(before), head_actions(after), strict=True)
    actions += [new for old, new in heads if new != old]
    actions += [
        {"remove": {"path": path, "deletionTimestamp": milliseconds, "dataChange": changes}}
        for path in paths(removed.column("path")).to_pylist()
    ]
    files = adds(added, after.schema or Schema(fields=()), milliseconds, changes=changes)
    actions += [{"add": action | {"partitionValues": {}}} for action in files.to_pylist()]
    return b"".join(_text(action).encode() + b"\n" for action in actions)


class Checkpoint:
    """A checkpoint, file by file: the whole state of one version."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._sink = io.BytesIO()
        self._writer = pq.ParquetWriter(self._sink, _CHECKPOINT, compression="zstd")
        heads = head_actions(snapshot)
        self.actions = len(heads)
        self._writer.write_table(pa.Table.from_pylist(heads, schema=_CHECKPOINT))

    def add(self, entries: pa.Table) -> None:
        """Add these files, entries as a manifest's table."""
        schema = self._snapshot.schema or Schema(fields=())
        committed_ms = self._snapshot.committed_at // 1000
        for start in range(0, entries.num_rows, _GROUP_ROWS):
            some = entries.slice(start, _GROUP_ROWS)
            files = adds(some, schema, committed_ms, changes=False)
            columns = [
                files if field.name == "add" else pa.nulls(len(files), field.type)
                for field in _CHECKPOINT
            ]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=_CHECKPOINT))
            self.actions += len(files)

    def close(self) -> bytes:
        """The checkpoint's bytes."""
        self._writer.close()
        return self._sink.getvalue()


def last_checkpoint_bytes(version: int, actions: int) -> bytes:
    """The object that names the newest checkpoint."""
    return _text({"version": version, "size": actions}).encode()


def _text(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _field(field: Field, *, is_mapped: bool) -> dict[str, Any]:
    metadata = (
        {"delta.columnMapping.id": field.id, "delta.columnMapping.physicalName": field.file_name}
        if is_mapped
        else {}
    )
    return {
        "name": field.name,
        "type": _type(field.type, is_mapped=is_mapped),
        "nullable": True,
        "metadata": metadata,
    }


def _type(kind: FieldType, *, is_mapped: bool) -> Any:
    match kind:
        case StructType():
            fields = [_field(member, is_mapped=is_mapped) for member in kind.fields]
            return {"type": "struct", "fields": fields}
        case ArrayType():
            element = _type(kind.element.type, is_mapped=is_mapped)
            return {"type": "array", "elementType": element, "containsNull": True}
        case MapType():
            return {
                "type": "map",
                "keyType": _type(kind.key.type, is_mapped=is_mapped),
                "valueType": _type(kind.value.type, is_mapped=is_mapped),
                "valueContainsNull": True,
            }
        case _:
            return kind


_CHECKPOINT = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        ("add", ADD),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)

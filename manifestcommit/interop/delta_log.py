"""Actions and checkpoints of a Delta log. [EX3] [EX5]

Pure. A version of the log is a version of the table. The log is not partitioned: data files hold
their partition columns, and Delta takes a partition value that is an empty string for null. Not
here: where objects are put (interop.delta_export).
"""

from __future__ import annotations

import io
import json
import math
import uuid
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.schema import values
from ..core.schema.evolution import Leaf, leaves
from ..core.schema.fields import (
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
from ..core.table.entries import ColumnStats, Entry
from ..core.table.snapshot import REPLACE, Snapshot
from ..errors import UnsupportedTypeError

FOLDER = "_delta_log/"
LAST_CHECKPOINT = f"{FOLDER}_last_checkpoint"
# Writers that do not know this feature refuse to write: the log follows the table. [EX3]
WRITER_FEATURE = "manifestcommit"
_NAMESPACE = uuid.UUID("0d4c6c8e-5b4c-4e0b-9a55-6a1fd1f0b1ce")
_TYPES = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"}
    | {"date", "timestamp", "timestamp_ntz"}
)
_MAPPED = "columnMapping"
_NTZ = "timestampNtz"
_STATS = ("minValues", "maxValues", "nullCount")
_EXACT_DIGITS = 15  # of a decimal that readers keep who parse JSON numbers as floats


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
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7}
    if features:
        protocol |= {"minReaderVersion": 3, "readerFeatures": features}
    configuration = {}
    if mapped:
        highest = max(field.id for _, field in walk(schema.fields))
        configuration = {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": str(highest),
        }
    columns = {
        "type": "struct",
        "fields": [_field(field, is_mapped=mapped) for field in schema.fields],
    }
    metadata = {
        "id": str(uuid.uuid5(_NAMESPACE, snapshot.table_id)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _text(columns),
        "partitionColumns": [],
        "configuration": configuration,
    }
    return [
        {"protocol": protocol | {"writerFeatures": [*features, WRITER_FEATURE]}},
        {"metaData": metadata},
    ]


def commit_bytes(
    before: Snapshot, after: Snapshot, removed: Iterable[str], added: Iterable[Entry]
) -> bytes:
    """The actions that lead from one version to the next. [EX5]"""
    milliseconds = after.committed_at // 1000
    changes = any(commit.operation != REPLACE for commit in after.commits)
    operations = ",".join(commit.operation for commit in after.commits)
    info: dict[str, Any] = {
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
    actions += [
        new
        for old, new in zip(head_actions(before), head_actions(after), strict=True)
        if new != old
    ]
    actions += [
        {"remove": {"path": _path(path), "deletionTimestamp": milliseconds, "dataChange": changes}}
        for path in removed
    ]
    actions += [{"add": action} for action in adds(after, added, changes=changes)]
    return b"".join(_text(action).encode() + b"\n" for action in actions)


def adds(
    snapshot: Snapshot, entries: Iterable[Entry], *, changes: bool
) -> Iterator[dict[str, Any]]:
    """The action that adds each of these files."""
    known = leaves(snapshot.schema or Schema(fields=()))
    for entry in entries:
        yield {
            "path": _path(entry.path),
            "partitionValues": {},
            "size": entry.bytes,
            "modificationTime": snapshot.committed_at // 1000,
            "dataChange": changes,
            "stats": _text(_stats(entry, known)),
        }


class Checkpoint:
    """A checkpoint, file by file: the whole state of one version."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._sink = io.BytesIO()
        self._writer = pq.ParquetWriter(self._sink, _CHECKPOINT, compression="zstd")
        protocol, metadata = head_actions(snapshot)
        self.actions = 2
        self._write([protocol, metadata])

    def add(self, entries: Iterable[Entry]) -> None:
        """Add these files, as one row group."""
        made = [{"add": action} for action in adds(self._snapshot, entries, changes=False)]
        self.actions += len(made)
        self._write(made)

    def close(self) -> bytes:
        """The checkpoint's bytes."""
        self._writer.close()
        return self._sink.getvalue()

    def _write(self, actions: list[dict[str, Any]]) -> None:
        if actions:
            self._writer.write_table(pa.Table.from_pylist(actions, schema=_CHECKPOINT))


def last_checkpoint_bytes(version: int, actions: int) -> bytes:
    """The object that names the newest checkpoint."""
    return _text({"version": version, "size": actions}).encode()


def _text(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _path(path: str) -> str:
    return quote(path, safe="/=")


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


def _stats(entry: Entry, known: Iterable[Leaf]) -> dict[str, Any]:
    """What Delta's readers may know of a file: nothing that they could take for more than it
    is. [EX8]"""
    stats: dict[str, Any] = {"numRecords": entry.rows}
    for leaf in known:
        column = entry.columns.get(leaf.id)
        if column is None:
            continue
        lower, upper = _bounds(column, leaf.type)
        for name, value in (
            ("minValues", lower),
            ("maxValues", upper),
            ("nullCount", column.nulls),
        ):
            if value is not None:
                place = stats.setdefault(name, {})
                for part in leaf.path[:-1]:
                    place = place.setdefault(part, {})
                place[leaf.path[-1]] = value
    return stats


def _bounds(column: ColumnStats, kind: FieldType) -> tuple[Any, Any]:
    """The bounds as JSON, those that are exact: some readers answer `max(…)` from them."""
    lower = None if column.min_cut else column.min
    upper = None if column.max_cut else column.max
    if kind in ("boolean", "binary"):
        return None, None
    if kind in ("float", "double"):
        finite = [
            bound if isinstance(bound, float | int) and math.isfinite(bound) else None
            for bound in (lower, upper)
        ]
        no_nans = column.nans == 0  # Delta orders NaN above every number
        low = -0.0 if finite[0] == 0 else finite[0]
        high = 0.0 if finite[1] == 0 else finite[1]
        return low, high if no_nans else None
    return _bound(lower, kind), _bound(upper, kind)


def _bound(bound: Any, kind: FieldType) -> Any:
    if bound is None:
        return None
    if isinstance(kind, str) and (parts := decimal_parts(kind)) is not None:
        return float(bound) if parts[0] <= _EXACT_DIGITS else None
    if kind == "date":
        return None if bound.startswith("@") else bound
    if kind in ("timestamp", "timestamp_ntz"):
        moment = values.decode(bound, kind)
        if isinstance(moment, int):
            return None  # beyond the years that texts have
        text = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if kind == "timestamp" else text
    return bound


_TEXTS = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
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
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
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

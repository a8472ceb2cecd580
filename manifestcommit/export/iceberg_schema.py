"""A table's columns and partitioning as Iceberg v2 has them. [EX6] [EX9]

Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import UnsupportedTypeError, UsageError
from ..format.fields import (
    MAX_FIELD_ID,
    PRIMITIVES,
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
from ..format.transforms import partition_fields as fields_of
from ..format.transforms import transform_of

RESERVED_IDS = 2_147_483_447  # Iceberg's own columns have the ids from here on
FIRST_PARTITION_ID = 1000
_TYPES = {name: each.iceberg for name, each in PRIMITIVES.items() if each.iceberg}


def check_schema(schema: Schema) -> None:
    """UnsupportedTypeError or UsageError if Iceberg v2 cannot express a column. [EX9]"""
    for path, field in walk(schema.fields):
        kind = field.type
        if isinstance(kind, str) and kind not in _TYPES and decimal_parts(kind) is None:
            raise UnsupportedTypeError(
                f"column {show_path(path)} has the type {type_text(kind)}, which Iceberg v2 does "
                "not have: the table cannot be exported to it as long as the column is there"
            )
        if field.id >= RESERVED_IDS:
            raise UsageError(
                f"column {show_path(path)} has the field id {field.id}, which Iceberg reserves "
                f"({RESERVED_IDS} and above): the table cannot be exported to it"
            )


def type_json(kind: FieldType) -> Any:
    """Iceberg's JSON of a type."""
    match kind:
        case StructType():
            return {"type": "struct", "fields": [_field_json(member) for member in kind.fields]}
        case ArrayType():
            return {
                "type": "list",
                "element-id": kind.element.id,
                "element-required": False,
                "element": type_json(kind.element.type),
            }
        case MapType():
            return {
                "type": "map",
                "key-id": kind.key.id,
                "key": type_json(kind.key.type),
                "value-id": kind.value.id,
                "value-required": False,
                "value": type_json(kind.value.type),
            }
        case _:
            parts = decimal_parts(kind)
            return f"decimal({parts[0]}, {parts[1]})" if parts else _TYPES[kind]


def _field_json(field: Field) -> dict[str, Any]:
    return {
        "id": field.id,
        "name": field.name,
        "required": False,
        "type": type_json(field.type),
    }


def schema_json(schema: Schema) -> dict[str, Any]:
    """Iceberg's JSON of the columns. Its id follows from the columns alone. [EX5] [CK8]"""
    fields = [_field_json(each) | {"required": not each.nullable} for each in schema.fields]
    return {"type": "struct", "schema-id": number_of(fields), "fields": fields}


def number_of(document: Any) -> int:
    """A positive number of 31 bits that follows from a JSON document. [EX5]"""
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFF_FFFF


def partition_fields(schema: Schema, partition_by: Sequence[int]) -> list[dict[str, Any]]:
    """The fields of a partition spec: identities of the partition columns, and transforms."""
    taken = {field.name for field in schema.fields}
    found = []
    for at, field in enumerate(fields_of(schema, partition_by)):
        transform, name = transform_of(field.id), field.name
        while transform is not None and name in taken:  # Iceberg wants one name for one thing
            name += "_"
        taken.add(name)
        found.append(
            {
                "name": name,
                "transform": "identity" if transform is None else transform.iceberg,
                "source-id": field.id & MAX_FIELD_ID,
                "field-id": FIRST_PARTITION_ID + at,
            }
        )
    return found


def spec_json(schema: Schema, partition_by: Sequence[int]) -> dict[str, Any]:
    """A partition spec. Its id follows from the columns' ids; that of no column is 0."""
    number = number_of(list(partition_by)) if partition_by else 0
    return {"spec-id": number, "fields": partition_fields(schema, partition_by)}


def physical_names(schema: Schema) -> dict[str, str]:
    """Id (as text) to name in files, of the columns that were renamed or added again."""
    return {
        str(field.id): field.file_name for field in schema.fields if field.file_name != field.name
    }


def name_mapping(columns: Mapping[str, Any], physical: Mapping[str, str]) -> dict[str, Any]:
    """Name in files to Iceberg's mapped field, for files without ids. columns: Iceberg's JSON of
    the columns; physical: as `physical_names` has it. [EX6]"""
    found = {}
    for field in columns["fields"]:
        name = physical.get(str(field["id"]), field["name"])
        found[name] = _mapped(field["id"], name, field["type"])
    return found


def _mapped(field_id: int, name: str, kind: Any) -> dict[str, Any]:
    mapped: dict[str, Any] = {"field-id": field_id, "names": [name]}
    if isinstance(kind, str):
        return mapped
    if kind["type"] == "struct":
        members = [(each["id"], each["name"], each["type"]) for each in kind["fields"]]
    elif kind["type"] == "list":
        members = [(kind["element-id"], "element", kind["element"])]
    else:
        members = [(kind["key-id"], "key", kind["key"]), (kind["value-id"], "value", kind["value"])]
    return mapped | {"fields": [_mapped(*member) for member in members]}


def highest_id(schemas: Iterable[Mapping[str, Any]], least: int = 0) -> int:
    """The highest field id of these schemas' JSON, nested members included."""

    def ids(kind: Any) -> Iterable[int]:
        if isinstance(kind, dict):
            yield from (
                kind[name] for name in ("id", "element-id", "key-id", "value-id") if name in kind
            )
            for name in ("type", "element", "key", "value"):
                yield from ids(kind.get(name))
            for member in kind.get("fields", ()):
                yield from ids(member)

    return max([least, *(number for schema in schemas for number in ids(schema))])

"""Converts between table schemas and Arrow schemas: of a table, of its data files, and of incoming
data. [SC1] [SC2]

Pure. In data files every column is nullable, timestamps are UTC microseconds, an interval is a
duration in microseconds (in Parquet a plain int64, which Spark restores by the footer, and Arrow
readers by Arrow's own schema), a variant is the struct that Spark uses, and void is a column of
nulls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from manifestcommit.core.schema.fields import (
    INTERVALS,
    MAX_PRECISION,
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    check_schema,
    decimal_parts,
    show_path,
    unique_ids,
)
from manifestcommit.core.schema.read_mark import arrow_metadata, mark_of
from manifestcommit.core.schema.spark_json import kept_metadata, to_spark
from manifestcommit.errors import UnsupportedTypeError

FIELD_ID = b"PARQUET:field_id"
SPARK_METADATA = b"SPARK::metadata::json"
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
SPARK_VERSION = b"org.apache.spark.version"

# The members of a variant, in Spark's order. Both are present wherever the variant is not null.
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary()),
        pa.field("metadata", pa.binary(), metadata={b"variant": b"true"}),
    ]
)

_PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": VARIANT,
    **dict.fromkeys(INTERVALS, pa.duration("us")),
}

# Arrow types whose values a column's type holds unchanged. `conform` must take each.
_FROM_ARROW: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
    **{pa.duration(unit): "interval day to second" for unit in ("s", "ms", "us", "ns")},
}

# Extension types that only annotate values which their storage type holds unchanged.
_EXTENSIONS = {"arrow.json": "string", "arrow.uuid": "binary", "arrow.bool8": "boolean"}


def arrow_type(type: FieldType) -> pa.DataType:
    """The Arrow type of a column in data files: nullable throughout, with the field ids of nested
    members. [SC1] [SC2]"""
    return _arrow_type(type, physical=True, ids=True, relaxed=True)


def marked_schemas(
    schema: Schema | None, table_id: str, url: str, version: int
) -> tuple[pa.Schema, pa.Schema]:
    """The columns as users see them, and as files have them; rows in either carry the mark of the
    version that they are read from. [CF17]"""
    mark = arrow_metadata(mark_of(table_id, url, version))
    logical, physical = (
        arrow_schema(schema or Schema(fields=()), physical=is_physical, ids=False)
        for is_physical in (False, True)
    )
    return logical.with_metadata(mark), physical.with_metadata(mark)


def arrow_schema(
    schema: Schema, *, physical: bool, ids: bool = True, relaxed: bool = True
) -> pa.Schema:
    """The columns in the table's order, each with its field id. With `physical`, it is exactly the
    schema of data files. [SC1] [SC2]

    physical: use the names in files, not those that users see; ids: attach `PARQUET:field_id`;
    relaxed: make everything nullable, as in files, otherwise keep the table's nullability.
    """
    return pa.schema(
        [
            _arrow_field(field, physical=physical, ids=ids, relaxed=relaxed)
            for field in schema.fields
        ]
    )


def from_arrow(schema: pa.Schema, new_id: Callable[[], int]) -> Schema:
    """The table schema that holds every value of an Arrow schema, each field with an id from
    `new_id`. [SC1] [SC2]

    Dictionary, large, view, fixed-size and run-end encoded types become plain ones, unsigned
    integers the next wider type. UnsupportedTypeError for time of day, month intervals, unions,
    unknown extensions, and all else that no table type holds.
    """
    draw = unique_ids(new_id)
    result = Schema(fields=tuple(_from_field(field, draw, ()) for field in schema))
    check_schema(result)
    return result


def footer_metadata(schema: Schema) -> dict[bytes, bytes]:
    """The key-value metadata from which Spark restores every type of a data file. [SC2]

    The version tells Spark that dates and timestamps are Gregorian and must not be rebased.
    """
    return {
        SPARK_SCHEMA: json.dumps(
            to_spark(schema, physical=True, relaxed=True), separators=(",", ":")
        ).encode(),
        SPARK_VERSION: b"4.0.0",
    }


def plain_type(type: pa.DataType) -> pa.DataType:
    """The type of the values of an encoded array, without dictionary, run-end and harmless
    extension types."""
    while True:
        if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
            type = type.value_type
        elif isinstance(type, pa.BaseExtensionType) and type.extension_name in _EXTENSIONS:
            type = pa.bool_() if type.extension_name == "arrow.bool8" else type.storage_type
        else:
            return type


def is_list(type: pa.DataType) -> bool:
    """True for all list types of Arrow, but not for maps."""
    types = pa.types
    return bool(
        types.is_list(type)
        or types.is_large_list(type)
        or types.is_fixed_size_list(type)
        or types.is_list_view(type)
        or types.is_large_list_view(type)
    )


def is_variant(type: pa.DataType) -> bool:
    """True for the struct that Spark uses for a variant in Arrow: its member `metadata` is
    marked."""
    if (
        not pa.types.is_struct(type)
        or type.get_field_index("value") < 0
        or type.get_field_index("metadata") < 0
    ):
        return False
    return bool((type.field("metadata").metadata or {}).get(b"variant") == b"true")


def _arrow_field(field: Field, *, physical: bool, ids: bool, relaxed: bool) -> pa.Field:
    return pa.field(
        field.file_name if physical else field.name,
        _arrow_type(field.type, physical=physical, ids=ids, relaxed=relaxed),
        # Arrow has no null column that is not nullable
        nullable=relaxed or field.nullable or field.type == "void",
        metadata={FIELD_ID: b"%d" % field.id} if ids else None,
    )


def _arrow_type(type: FieldType, *, physical: bool, ids: bool, relaxed: bool) -> pa.DataType:
    def member(field: Field) -> pa.Field:
        return _arrow_field(field, physical=physical, ids=ids, relaxed=relaxed)

    match type:
        case StructType():
            return pa.struct([member(field) for field in type.fields])
        case ArrayType():
            return pa.list_(member(type.element))
        case MapType():
            return pa.map_(member(type.key).with_nullable(False), member(type.value))
    if (plain := _PRIMITIVES.get(type)) is not None:
        return plain
    if (parts := decimal_parts(type)) is not None:
        return pa.decimal128(*parts)
    raise UnsupportedTypeError(f"The type {type!r} is unknown to this release.")


def _from_field(
    field: pa.Field, new_id: Callable[[], int], parent: tuple[str, ...], name: str | None = None
) -> Field:
    name = field.name if name is None else name
    id = new_id()
    type = _from_type(field.type, new_id, (*parent, name))
    return Field(
        id=id,
        name=name,
        type=type,
        nullable=field.nullable,
        metadata=_spark_metadata(field.metadata),
    )


def _from_type(type: pa.DataType, new_id: Callable[[], int], path: tuple[str, ...]) -> FieldType:
    type = plain_type(type)
    if is_variant(type):
        return "variant"
    if pa.types.is_struct(type):
        return StructType(
            fields=tuple(_from_field(type.field(i), new_id, path) for i in range(type.num_fields))
        )
    if is_list(type):
        return ArrayType(element=_from_field(type.value_field, new_id, path, "element"))
    if pa.types.is_map(type):
        key = _from_field(type.key_field.with_nullable(False), new_id, path, "key")
        return MapType(key=key, value=_from_field(type.item_field, new_id, path, "value"))
    if (name := _FROM_ARROW.get(type)) is not None:
        return name
    if pa.types.is_decimal(type) and 0 <= type.scale <= type.precision <= MAX_PRECISION:
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "timestamp" if _has_zone(type, path) else "timestamp_ntz"
    if pa.types.is_fixed_size_binary(type):
        return "binary"
    raise UnsupportedTypeError(
        f"Column {show_path(path)} has the Arrow type {type}, which cannot be stored so that every "
        "reader gets it back. Cast it to a supported type or drop it before writing."
    )


def _has_zone(type: pa.DataType, path: tuple[str, ...]) -> bool:
    """Whether a timestamp has a time zone; a damaged schema may name one that is not text."""
    try:
        return type.tz is not None
    except UnicodeDecodeError:
        raise UnsupportedTypeError(
            f"Column {show_path(path)} is a timestamp whose time zone is not UTF-8. Write it again "
            "with the name of a time zone, such as UTC."
        ) from None


def _spark_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Spark's metadata of a field; anything but a JSON object is not Spark's."""
    try:
        attached = json.loads((metadata or {}).get(SPARK_METADATA, b"{}"))
    except ValueError:
        return {}
    return kept_metadata(attached) if isinstance(attached, dict) else {}

"""Iceberg's schema of a table, its manifests and their lists. [EX5] [EX6]"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..format.fields import (
    FLOATS,
    MAX_FIELD_ID,
    PRIMITIVES,
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    decimal_parts,
    leaves,
    show_path,
    walk,
)
from ..format.transforms import partition_fields as fields_of
from ..format.transforms import transform_of
from ..format.values import arrow_type
from . import avro
from .file_columns import check_types

RESERVED_IDS = 2_147_483_447  # Iceberg's own columns have the ids from here on
FIRST_PARTITION_ID = 1000
_TYPES = {name: each.iceberg for name, each in PRIMITIVES.items() if each.iceberg}


def check_schema(schema: Schema) -> None:
    """UnsupportedTypeError or UsageError if Iceberg v2 cannot express a column. [EX9]"""
    check_types(schema, _TYPES, "Iceberg v2 does not have")
    names = set[str]()
    for path, field in walk(schema.fields):
        name = show_path(path)
        if name.lower() in names:
            raise UsageError(
                f"two columns or members are {name}, since a name has a dot: Iceberg, whose "
                "readers know a member by its path, cannot distinguish them. The table cannot be "
                "exported to it until one of them is renamed"
            )
        names.add(name.lower())
        if field.id >= RESERVED_IDS:
            raise UsageError(
                f"column {name} has the field id {field.id}, which Iceberg reserves "
                f"({RESERVED_IDS} and above): the table cannot be exported to it"
            )


def type_json(kind: FieldType) -> Any:
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
    return {"id": field.id, "name": field.name, "required": False, "type": type_json(field.type)}


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


_NO_NAME = re.compile("^[0-9]|[^A-Za-z0-9_]")  # what no name in Avro may have
_AVRO_TYPES: dict[str, Any] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "timestamp_ntz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
}


class PartitionBounds(NamedTuple):
    """The values of one partition column in a manifest, the bounds as Iceberg's bytes."""

    has_null: bool
    lower: bytes | None
    upper: bytes | None


class ManifestFile(NamedTuple):
    """One line of a manifest list. newest, oldest: the versions that added its entries."""

    path: str
    length: int
    spec_id: int
    newest: int
    oldest: int
    files: int
    rows: int
    partitions: tuple[PartitionBounds, ...]


def manifest_bytes(
    entries: pa.Table, schema: Schema, partition_by: Sequence[int], location: str
) -> bytes:
    """The entries as a manifest. entries: a manifest's table in the schema's types, each with its
    version; location: what goes before each path."""
    rows = entries.num_rows
    version = avro.longs(entries.column("added").combine_chunks())
    known = avro.joined([avro.constant(b"\x02", rows), version])
    spec = spec_json(schema, partition_by)
    columns = schema_json(schema)
    return avro.container(
        _entry_schema(schema, partition_by),
        # status 0: existing
        [
            avro.constant(b"\x00", rows),
            known,
            known,
            known,
            *_data_file(entries, schema, partition_by, location),
        ],
        {
            "schema": json.dumps(columns, separators=(",", ":")),
            "schema-id": str(columns["schema-id"]),
            "partition-spec": json.dumps(spec["fields"], separators=(",", ":")),
            "partition-spec-id": str(spec["spec-id"]),
            "format-version": "2",
            "content": "data",
        },
    )


def manifest_file(
    path: str, length: int, entries: pa.Table, schema: Schema, partition_by: Sequence[int]
) -> ManifestFile:
    """The line of a manifest list for a manifest of these entries."""
    versions = pc.min_max(entries.column("added"))
    return ManifestFile(
        path=path,
        length=length,
        spec_id=spec_json(schema, partition_by)["spec-id"],
        newest=versions["max"].as_py(),
        oldest=versions["min"].as_py(),
        files=entries.num_rows,
        rows=pc.sum(entries.column("rows")).as_py(),
        partitions=tuple(_partition_bounds(entries, schema, partition_by)),
    )


def _partition_bounds(
    entries: pa.Table, schema: Schema, partition_by: Sequence[int]
) -> Iterator[PartitionBounds]:
    for field in fields_of(schema, partition_by):
        column = entries.column(f"partition.{field.id}")
        ends = pc.min_max(column)
        lower, upper = (
            single_values(pa.array([ends[end]], column.type), field.type)[0].as_py()
            if ends[end].is_valid
            else None
            for end in ("min", "max")
        )
        yield PartitionBounds(column.null_count > 0, lower, upper)


def list_bytes(files: Sequence[ManifestFile], version: int) -> bytes:
    def numbers(name: str) -> pa.Array:
        return avro.longs([getattr(file, name) for file in files])

    none = avro.constant(b"\x00", len(files))
    columns = [
        avro.texts(pa.array([file.path for file in files], pa.string())),
        numbers("length"),
        numbers("spec_id"),
        none,  # content: data
        *map(numbers, ("newest", "oldest", "newest")),
        none,  # added
        numbers("files"),
        none,  # deleted
        none,
        numbers("rows"),
        none,
        avro.of_values([_summaries(file.partitions) for file in files]),
    ]
    metadata = {"format-version": "2", "snapshot-id": str(version), "sequence-number": str(version)}
    return avro.container(_LIST, columns, metadata)


def read_list(data: bytes) -> list[ManifestFile]:
    """The manifests of a list that `list_bytes` has made; ValueError if it is damaged."""
    try:
        return [
            ManifestFile(
                path=row["manifest_path"],
                length=row["manifest_length"],
                spec_id=row["partition_spec_id"],
                newest=row["sequence_number"],
                oldest=row["min_sequence_number"],
                files=row["existing_files_count"],
                rows=row["existing_rows_count"],
                partitions=tuple(
                    PartitionBounds(each["contains_null"], each["lower_bound"], each["upper_bound"])
                    for each in row["partitions"]
                ),
            )
            for row in avro.read_rows(data)
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is no list of manifests: {error}") from None


def single_values(array: pa.Array, kind: FieldType) -> pa.Array:
    """Each value as Iceberg's bytes of a single value; what null becomes means nothing."""
    if kind in ("string", "binary"):
        return avro.plain(array)
    if isinstance(kind, str) and decimal_parts(kind) is not None:
        return avro.of_values([_unscaled(value) for value in array.to_pylist()])
    return avro.fixed(_numbers(array, kind))


def _numbers(array: pa.Array, kind: FieldType) -> Any:
    if kind in FLOATS:
        return _filled(array.cast(arrow_type(kind)))
    if kind == "boolean":
        return _filled(array.cast(pa.uint8()))
    small = kind in ("byte", "short", "integer", "date")
    return _filled(array.cast(pa.int32() if small else pa.int64()))


def _filled(numbers: pa.Array) -> Any:
    return pc.fill_null(numbers, 0)


def _unscaled(value: Decimal | None) -> bytes:
    """A decimal's unscaled value, big-endian in as few bytes as hold it."""
    sign, digits, _ = (value or Decimal(0)).as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _data_file(
    entries: pa.Table, schema: Schema, partition_by: Sequence[int], location: str
) -> list[pa.Array]:
    rows = entries.num_rows
    paths = pc.binary_join_element_wise(location, entries.column("path"), "/")
    return [
        avro.constant(b"\x00", rows),  # content: data
        avro.texts(paths),
        avro.constant(b"\x0ePARQUET", rows),
        *_partition_values(entries, schema, partition_by),
        avro.longs(entries.column("rows").combine_chunks()),
        avro.longs(entries.column("bytes").combine_chunks()),
        *_statistics(entries, schema),
    ]


def _partition_values(
    entries: pa.Table, schema: Schema, partition_by: Sequence[int]
) -> Iterator[pa.Array]:
    for field in fields_of(schema, partition_by):
        column, kind = entries.column(f"partition.{field.id}").combine_chunks(), field.type
        known = column.is_valid()
        if kind in ("string", "binary"):
            values = avro.texts(column)
        elif isinstance(kind, str) and (parts := decimal_parts(kind)) is not None:
            width = _decimal_width(parts[0])
            values = avro.of_values([_extended(value, width) for value in column.to_pylist()])
        else:
            numbers = _numbers(column, kind)
            values = avro.fixed(numbers) if kind == "boolean" else avro.longs(numbers)
        yield avro.optional(known, values)


def _extended(value: Decimal | None, width: int) -> bytes:
    return int.from_bytes(_unscaled(value), "big", signed=True).to_bytes(width, "big", signed=True)


def _decimal_width(precision: int) -> int:
    """The bytes that hold any unscaled value of this many digits."""
    return (int(10**precision).bit_length() + 8) // 8


def _statistics(entries: pa.Table, schema: Schema) -> Iterator[pa.Array]:
    """The maps from field id to counts and bounds, for each kind of statistics."""
    counts, nulls, nans, lows, highs = (list[tuple[int, Any, pa.Array]]() for _ in range(5))
    rows = entries.column("rows").combine_chunks()
    rows_pieces = avro.longs(rows)
    for leaf in leaves(schema):
        if f"min.{leaf.id}" not in entries.column_names:
            continue
        column = {
            name: entries.column(f"{name}.{leaf.id}").combine_chunks()
            for name in ("nulls", "nans", "min", "max")
        }
        known = {name: array.is_valid() for name, array in column.items()}
        number = {name: _filled(column[name]) for name in ("nulls", "nans")}
        counts.append((leaf.id, known["nulls"], rows_pieces))
        nulls.append((leaf.id, known["nulls"], avro.longs(number["nulls"])))
        low, high = column["min"], column["max"]
        if leaf.type in FLOATS:
            # Daft leaves out a file whose count of NaN is that of its rows, for any filter
            some = pc.and_(known["nans"], pc.less(number["nans"], rows))
            nans.append((leaf.id, some, avro.longs(number["nans"])))
            # some engines order NaN above every number, and prune by the upper bound alone
            without = pc.and_(known["nans"], pc.equal(number["nans"], 0))
            known["max"] = pc.and_(known["max"], without)
            low, high = (_signed_zeros(array, zero) for array, zero in ((low, -0.0), (high, 0.0)))
        lows.append((leaf.id, known["min"], avro.sized(single_values(low, leaf.type))))
        highs.append((leaf.id, known["max"], avro.sized(single_values(high, leaf.type))))
    for columns in (counts, nulls, nans, lows, highs):
        yield _map(columns, entries.num_rows)


def _signed_zeros(array: pa.Array, zero: float) -> pa.Array:
    """The bounds with zeros of this sign: 0.0 and -0.0 are equal, and ordered in some engines."""
    return pc.if_else(pc.equal(array, 0.0), pa.scalar(zero, array.type), array)


def _map(columns: Sequence[tuple[int, Any, pa.Array]], rows: int) -> pa.Array:
    """A union of null and a map, as an array of key and value, of what is known in each row."""
    items = [
        avro.where(known, pieces)
        for field_id, known, values in columns
        for pieces in (avro.constant(avro.long_bytes(field_id), rows), values)
    ]
    none = pa.repeat(pa.scalar(0, pa.int64()), rows)
    count = reduce(pc.add, (known.cast(pa.int64()) for _, known, _ in columns), none)
    head = avro.where(pc.greater(count, 0), avro.longs(count))
    return avro.joined([avro.constant(b"\x02", rows), head, *items, avro.constant(b"\x00", rows)])


def _summaries(partitions: Sequence[PartitionBounds]) -> bytes:
    """A union of null and the list of partition summaries, in Avro."""
    written = [b"\x02"]
    if partitions:
        written.append(avro.long_bytes(len(partitions)))
    for bounds in partitions:
        written.append(b"\x01" if bounds.has_null else b"\x00")
        for bound in (bounds.lower, bounds.upper):
            written.append(
                b"\x00" if bound is None else b"\x02" + avro.long_bytes(len(bound)) + bound
            )
    return b"".join([*written, b"\x00"])


def _field(field_id: int, name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": field_id, **more}


def _maybe(field_id: int, name: str, kind: Any) -> dict[str, Any]:
    return _field(field_id, name, ["null", kind], default=None)


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields]}


def _map_type(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    item = _record(
        f"k{key_id}_v{value_id}", _field(key_id, "key", "int"), _field(value_id, "value", value)
    )
    return {"type": "array", "logicalType": "map", "items": item}


def _entry_schema(schema: Schema, partition_by: Sequence[int]) -> dict[str, Any]:
    fields = fields_of(schema, partition_by)
    names = _partition_names(schema, partition_by)
    partition = _record(
        "r102",
        *(
            _maybe(FIRST_PARTITION_ID + at, name, _partition_type(field.type, at))
            for at, (name, field) in enumerate(zip(names, fields, strict=True))
        ),
    )
    data_file = _record(
        "r2",
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", partition),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _maybe(109, "value_counts", _map_type(119, 120, "long")),
        _maybe(110, "null_value_counts", _map_type(121, 122, "long")),
        _maybe(137, "nan_value_counts", _map_type(138, 139, "long")),
        _maybe(125, "lower_bounds", _map_type(126, 127, "bytes")),
        _maybe(128, "upper_bounds", _map_type(129, 130, "bytes")),
    )
    return _record(
        "manifest_entry",
        _field(0, "status", "int"),
        _maybe(1, "snapshot_id", "long"),
        _maybe(3, "sequence_number", "long"),
        _maybe(4, "file_sequence_number", "long"),
        _field(2, "data_file", data_file),
    )


def _partition_names(schema: Schema, partition_by: Sequence[int]) -> list[str]:
    """The names of partition columns as Avro can have them: some readers find columns by name."""
    said = [field["name"] for field in partition_fields(schema, partition_by)]
    names = [_NO_NAME.sub(_escaped, name) for name in said]
    if len(set(names)) < len(names):
        return [f"p{at}" for at in range(len(names))]
    return names


def _escaped(found: re.Match[str]) -> str:
    return f"_{found[0]}" if found[0].isdecimal() and found[0].isascii() else f"_x{ord(found[0]):X}"


def _partition_type(kind: FieldType, at: int) -> Any:
    assert isinstance(kind, str)  # nothing nested partitions a table
    if (parts := decimal_parts(kind)) is None:
        return _AVRO_TYPES[kind]
    return {
        "type": "fixed",
        "name": f"decimal_{at}",
        "size": _decimal_width(parts[0]),
        "logicalType": "decimal",
        "precision": parts[0],
        "scale": parts[1],
    }


_SUMMARY = _record(
    "r508",
    _field(509, "contains_null", "boolean"),
    _maybe(510, "lower_bound", "bytes"),
    _maybe(511, "upper_bound", "bytes"),
)
_LIST = _record(
    "manifest_file",
    _field(500, "manifest_path", "string"),
    _field(501, "manifest_length", "long"),
    _field(502, "partition_spec_id", "int"),
    _field(517, "content", "int"),
    _field(515, "sequence_number", "long"),
    _field(516, "min_sequence_number", "long"),
    _field(503, "added_snapshot_id", "long"),
    _field(504, "added_files_count", "int"),
    _field(505, "existing_files_count", "int"),
    _field(506, "deleted_files_count", "int"),
    _field(512, "added_rows_count", "long"),
    _field(513, "existing_rows_count", "long"),
    _field(514, "deleted_rows_count", "long"),
    _maybe(507, "partitions", {"type": "array", "items": _SUMMARY, "element-id": 508}),
)

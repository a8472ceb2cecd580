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
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SnapshotExpiredError, UnsupportedTypeError, UsageError
from ..format.entries import ManifestRef
from ..format.fields import (
    FLOATS,
    MAX_FIELD_ID,
    PRIMITIVES,
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    Shape,
    StructType,
    decimal_parts,
    leaves,
    show_path,
    walk,
)
from ..format.snapshot import REPLACE, Snapshot, columns_of
from ..format.transforms import partition_fields, transform_of
from ..format.values import arrow_type
from ..log.table_context import TableContext, is_export
from ..log.version_chain import Head, raise_if_expired, read_version
from ..protocol.conflict import is_readable
from ..store import ObjectInfo, Store
from . import avro, file_columns
from .file_columns import check_ours, check_types, entries_since, json_text, put_shared

LOG = logging.getLogger("manifestcommit.jobs")

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
        case ArrayType(element=each):
            return {
                "type": "list",
                "element-id": each.id,
                "element-required": False,
                "element": type_json(each.type),
            }
        case MapType(key=key, value=value):
            return {
                "type": "map",
                "key-id": key.id,
                "key": type_json(key.type),
                "value-id": value.id,
                "value-required": False,
                "value": type_json(value.type),
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


def spec_json(of: Shape) -> dict[str, Any]:
    """A partition spec: identities of the partition columns, and transforms. Its id follows from
    the columns' ids; that of no column is 0."""
    taken, found = {field.name for field in of.schema.fields}, []
    for at, field in enumerate(_fields_of(of)):
        transform, name = transform_of(field.id), field.name
        while transform is not None and name in taken:  # Iceberg wants one name for one thing
            name += "_"
        taken.add(name)
        kind = "identity" if transform is None else transform.iceberg
        found.append(
            {
                "name": name,
                "transform": kind,
                "source-id": field.id & MAX_FIELD_ID,
                "field-id": FIRST_PARTITION_ID + at,
            }
        )
    number = number_of(list(of.partition_by)) if of.partition_by else 0
    return {"spec-id": number, "fields": found}


def _fields_of(of: Shape) -> list[Field]:
    return list(partition_fields(of.schema, of.partition_by))


def physical_names(schema: Schema) -> dict[str, str]:
    """Id (as text) to name in files, of the columns that were renamed or added again."""
    return {str(each.id): each.file_name for each in schema.fields if each.file_name != each.name}


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
_MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
_AVRO_TYPES: dict[str, Any] = {  # of Iceberg's, those that are called otherwise
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamptz": {**_MOMENT, "adjust-to-utc": True},
    "timestamp": {**_MOMENT, "adjust-to-utc": False},
}


def manifest_bytes(entries: pa.Table, snapshot: Snapshot, location: str) -> bytes:
    """The entries as a manifest. entries: a manifest's table in the schema's types, each with its
    version; location: what goes before each path."""
    rows, spec, columns = entries.num_rows, spec_json(snapshot), schema_json(columns_of(snapshot))
    version = avro.longs(entries.column("added").combine_chunks())
    known = avro.joined([avro.constant(b"\x02", rows), version])
    status = avro.constant(b"\x00", rows)  # existing
    metadata = {
        "schema": json.dumps(columns, separators=(",", ":")),
        "schema-id": str(columns["schema-id"]),
        "partition-spec": json.dumps(spec["fields"], separators=(",", ":")),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": "2",
        "content": "data",
    }
    pieces = [status, known, known, known, *_data_file(entries, snapshot, location)]
    return avro.container(_entry_schema(snapshot), pieces, metadata)


def list_row(path: str, length: int, entries: pa.Table, of: Shape) -> dict[str, Any]:
    """What a list of manifests has of a manifest of these entries: none is of added files."""
    ends, rows = pc.min_max(entries.column("added")), pc.sum(entries.column("rows")).as_py()
    newest, oldest = ends["max"].as_py(), ends["min"].as_py()
    counts = (0, entries.num_rows, 0, 0, rows, 0)
    bounds = [_partition_bounds(entries, field) for field in _fields_of(of)]
    row = (path, length, spec_json(of)["spec-id"], 0, newest, oldest, newest, *counts, bounds)
    return dict(zip((each["name"] for each in _LIST["fields"]), row, strict=True))


def _partition_bounds(entries: pa.Table, field: Field) -> dict[str, Any]:
    column = entries.column(f"partition.{field.id}")
    ends = [end if end.is_valid else None for end in pc.min_max(column).values()]
    low, high = (
        None if end is None else single_values(pa.array([end], column.type), field.type)[0].as_py()
        for end in ends
    )
    return {"contains_null": column.null_count > 0, "lower_bound": low, "upper_bound": high}


def list_bytes(rows: Sequence[dict[str, Any]], version: int) -> bytes:
    metadata = {"format-version": "2", "snapshot-id": str(version), "sequence-number": str(version)}
    pieces = avro.of_values([avro.value_bytes(_LIST, row) for row in rows])
    return avro.container(_LIST, [pieces], metadata)


def read_list(data: bytes) -> list[dict[str, Any]]:
    """The rows of a list that `list_bytes` has made; ValueError if it is damaged."""
    return avro.read_rows(data, _LIST)


def single_values(array: pa.Array, kind: FieldType) -> pa.Array:
    """Each value as Iceberg's bytes of a single value; what null becomes means nothing."""
    if kind in ("string", "binary"):
        return avro.plain(array)
    if isinstance(kind, str) and decimal_parts(kind) is not None:
        return avro.of_values([_shortest(_unscaled(value)) for value in array.to_pylist()])
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


def _unscaled(value: Decimal | None) -> int:
    sign, digits, _ = (value or Decimal(0)).as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _shortest(number: int) -> bytes:
    """Big-endian in as few bytes as hold it."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _data_file(entries: pa.Table, of: Shape, location: str) -> list[pa.Array]:
    rows = entries.num_rows
    paths = pc.binary_join_element_wise(location, entries.column("path"), "/")
    return [
        avro.constant(b"\x00", rows),  # content: data
        avro.texts(paths),
        avro.constant(b"\x0ePARQUET", rows),
        *_partition_values(entries, of),
        avro.longs(entries.column("rows").combine_chunks()),
        avro.longs(entries.column("bytes").combine_chunks()),
        *_statistics(entries, of.schema),
    ]


def _partition_values(entries: pa.Table, of: Shape) -> Iterator[pa.Array]:
    for field in _fields_of(of):
        column, kind = entries.column(f"partition.{field.id}").combine_chunks(), field.type
        known = column.is_valid()
        if kind in ("string", "binary"):
            values = avro.texts(column)
        elif isinstance(kind, str) and (parts := decimal_parts(kind)) is not None:
            width = _decimal_width(parts[0])
            numbers = map(_unscaled, column.to_pylist())
            values = avro.of_values([each.to_bytes(width, "big", signed=True) for each in numbers])
        else:
            numbers = _numbers(column, kind)
            values = avro.fixed(numbers) if kind == "boolean" else avro.longs(numbers)
        yield avro.optional(known, values)


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


def _field(field_id: int, name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": field_id, **more}


def _fields(text: str) -> list[dict[str, Any]]:
    """Fields, each by its id, name and type."""
    return [_field(int(id), name, kind) for id, name, kind in map(str.split, text.split(","))]


def _maybe(field_id: int, name: str, kind: Any) -> dict[str, Any]:
    return _field(field_id, name, ["null", kind], default=None)


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields]}


def _counts(field_id: int, name: str, key_id: int, value: str) -> dict[str, Any]:
    """A map from the id of a column; the value's own id is that behind the key's."""
    inside = _fields(f"{key_id} key int, {key_id + 1} value {value}")
    item = _record(f"k{key_id}_v{key_id + 1}", *inside)
    return _maybe(field_id, name, {"type": "array", "logicalType": "map", "items": item})


def _entry_schema(of: Shape) -> dict[str, Any]:
    partition = [
        _maybe(FIRST_PARTITION_ID + at, name, _partition_type(field.type, at))
        for at, (name, field) in enumerate(zip(_partition_names(of), _fields_of(of), strict=True))
    ]
    data_file = _record(
        "r2",
        *_fields("134 content int, 100 file_path string, 101 file_format string"),
        _field(102, "partition", _record("r102", *partition)),
        *_fields("103 record_count long, 104 file_size_in_bytes long"),
        _counts(109, "value_counts", 119, "long"),
        _counts(110, "null_value_counts", 121, "long"),
        _counts(137, "nan_value_counts", 138, "long"),
        _counts(125, "lower_bounds", 126, "bytes"),
        _counts(128, "upper_bounds", 129, "bytes"),
    )
    return _record(
        "manifest_entry",
        _field(0, "status", "int"),
        _maybe(1, "snapshot_id", "long"),
        _maybe(3, "sequence_number", "long"),
        _maybe(4, "file_sequence_number", "long"),
        _field(2, "data_file", data_file),
    )


def _partition_names(of: Shape) -> list[str]:
    """The names of partition columns as Avro can have them: some readers find columns by name."""
    names = [_NO_NAME.sub(_escaped, field["name"]) for field in spec_json(of)["fields"]]
    if len(set(names)) < len(names):
        return [f"p{at}" for at in range(len(names))]
    return names


def _escaped(found: re.Match[str]) -> str:
    return f"_{found[0]}" if found[0].isdecimal() and found[0].isascii() else f"_x{ord(found[0]):X}"


def _partition_type(kind: FieldType, at: int) -> Any:
    assert isinstance(kind, str)  # nothing nested partitions a table
    if (parts := decimal_parts(kind)) is None:
        return _AVRO_TYPES.get(_TYPES[kind], _TYPES[kind])
    size = {"size": _decimal_width(parts[0]), "precision": parts[0], "scale": parts[1]}
    return {"type": "fixed", "name": f"decimal_{at}", "logicalType": "decimal", **size}


_SUMMARY = _record(
    "r508",
    _field(509, "contains_null", "boolean"),
    _maybe(510, "lower_bound", "bytes"),
    _maybe(511, "upper_bound", "bytes"),
)
_LIST = _record(
    "manifest_file",
    *_fields(
        "500 manifest_path string, 501 manifest_length long, 502 partition_spec_id int,"
        "517 content int, 515 sequence_number long, 516 min_sequence_number long,"
        "503 added_snapshot_id long, 504 added_files_count int, 505 existing_files_count int,"
        "506 deleted_files_count int, 512 added_rows_count long, 513 existing_rows_count long,"
        "514 deleted_rows_count long"
    ),
    _maybe(507, "partitions", {"type": "array", "items": _SUMMARY, "element-id": 508}),
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
    return f"{FOLDER}v{version}.metadata.json"


def manifest_name(key: str, version: int) -> str:
    """The name of a manifest. key: what its bytes follow from; version: the one that listed it
    first, so that a name which gc may delete is not taken again. [EX4]"""
    return f"{FOLDER}m-{key}-{version:016x}.avro"


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
        columns, spec = schema_json(schema), spec_json(snapshot)
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
    tags = {name: tag.version for name, tag in sorted(head.tags.items()) if tag.version in entries}
    most = max(len(each["fields"]) for each in document.specs.values())
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
        "default-spec-id": spec_json(head)["spec-id"],
        "last-partition-id": FIRST_PARTITION_ID + most - 1,
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
        check_ours(ctx.store, FOLDER, _document(ctx.store, version), snapshot)


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
    check_ours(store, FOLDER, document, snapshot)
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
        rows = read_list(ctx.store.get(name, 0, _MOST_BYTES))
        found |= {name, *(row["manifest_path"].removeprefix(root) for row in rows)}
    return found


class _Manifests:
    """Puts the lists of versions, and those of their manifests that are not exported yet."""

    def __init__(self, ctx: TableContext, head: Head, newest_checked: int) -> None:
        self._head = head
        self._ctx, self._url = ctx, data_url(ctx.store)
        self._newest_checked = newest_checked
        self._known: dict[str | None, dict[str, Any]] = {}  # rows of lists, by their keys
        self._checked: set[str | None] = set()  # manifests of the head, by their keys

    def know(self, manifest_list: str) -> None:
        """Use the manifests of a list again; one that is gone or damaged is skipped."""
        name = manifest_list.removeprefix(f"{self._url}/")
        with contextlib.suppress(FileNotFoundError, ValueError):
            for row in read_list(self._ctx.store.get(name, 0, _MOST_BYTES)):
                self._known[row["manifest_path"].rpartition("/m-")[2].partition("-")[0]] = row

    def check_head(self) -> None:
        """UsageError if Iceberg cannot read a file of the newest version; puts nothing. [EX9]"""
        snapshot = self._head.snapshot
        for key, entries in self._entries(snapshot):
            if entries is not None and entries.num_rows:
                self._check(entries, snapshot)
                self._checked.add(key)

    def put_list(self, snapshot: Snapshot) -> str:
        made = (self._put(key, entries, snapshot) for key, entries in self._entries(snapshot))
        data = list_bytes([row for row in made if row is not None], snapshot.version)
        name = f"{FOLDER}snap-{snapshot.version:020d}-{_digest(data)}.avro"
        put_shared(self._ctx, name, data)
        return f"{self._url}/{name}"

    def _entries(self, snapshot: Snapshot) -> Iterator[tuple[str | None, pa.Table | None]]:
        """The entries of each manifest with its key, the snapshot's last; None: it is known."""
        ctx = self._ctx
        with raise_if_expired(ctx.store, snapshot.version):
            removed = ctx.manifests.removed(snapshot) if snapshot.manifests else {}
            for ref in snapshot.manifests:
                gone = removed.get(ref.path, 0)
                if (key := _key(ref, gone, snapshot)) in self._known:
                    yield key, None
                else:  # read once: a table's manifests together may be more than memory holds
                    yield key, ctx.manifests.live(ref, snapshot, gone, keep=False)
            yield None, ctx.manifests.inlined(snapshot)

    def _put(
        self, key: str | None, entries: pa.Table | None, snapshot: Snapshot
    ) -> dict[str, Any] | None:
        """Put a manifest of these entries, unless it is known; None: there are none."""
        if entries is None:
            return self._known[key]
        if not entries.num_rows:
            return None
        if key not in self._checked or (key is None and snapshot.version != self._head.version):
            self._check(entries, snapshot)
        data = manifest_bytes(entries, snapshot, self._url)
        name = manifest_name(key or _digest(data), snapshot.version)
        length = put_shared(self._ctx, name, data)
        made = list_row(f"{self._url}/{name}", length, entries, snapshot)
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
    columns, spec = schema_json(columns_of(snapshot)), spec_json(snapshot)
    parts = (_LAYOUT, ref.path, ref.digest, ref.added, removed, columns, spec)
    return _digest(repr(parts).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]

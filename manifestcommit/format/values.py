"""Converts a table's types, columns and single values: to and from Arrow, in data files and in
incoming data, and single values to and from JSON. [SC1] [SC2] [SC7] Pure. In data files every
column is nullable, timestamps are UTC microseconds, an interval is a duration in microseconds (in
Parquet a plain int64, which Spark restores by the footer, and Arrow readers by Arrow's own schema),
a variant is the struct that Spark uses, and void is a column of nulls. A wire value is a bool, an
int, a float, a str or None (null or unknown); the column's type determines which."""

from __future__ import annotations

import base64
import itertools
import json
import math
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SchemaMismatchError, UnsupportedTypeError, UsageError
from .fields import (
    DAY_US,
    INTEGERS,
    INTERVALS,
    MAX_PRECISION,
    MOMENTS,
    WIDE,
    ArrayType,
    Field,
    FieldType,
    MapType,
    Path,
    Schema,
    StructType,
    WireValue,
    arrow_metadata,
    assign_new_ids,
    check_schema,
    decimal_parts,
    is_unicode,
    kept_metadata,
    mark_of,
    match_all,
    members,
    show_path,
    shown,
    to_spark,
    type_text,
)

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

# Arrow types whose values a column's type holds unchanged. `Conformer` must take each.
_FROM_ARROW: dict[pa.DataType, str] = {
    **{kind: name for name, kind in _PRIMITIVES.items()},
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    **dict.fromkeys((pa.large_string(), pa.string_view()), "string"),
    **dict.fromkeys((pa.large_binary(), pa.binary_view()), "binary"),
    pa.date64(): "date",
    **dict.fromkeys(map(pa.duration, ("s", "ms", "us", "ns")), "interval day to second"),
}

# Extension types that only annotate values which their storage type holds unchanged.
_EXTENSIONS = {"arrow.json": "string", "arrow.uuid": "binary", "arrow.bool8": "boolean"}
_NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def marked_schemas(
    schema: Schema, table_id: str, url: str, version: int
) -> tuple[pa.Schema, pa.Schema]:
    """The columns as users see them and as files have them, with the mark of the version. [CF17]"""
    mark = arrow_metadata(mark_of(table_id, url, version))
    logical, physical = (
        arrow_schema(schema, physical=is_physical, ids=False) for is_physical in (False, True)
    )
    return logical.with_metadata(mark), physical.with_metadata(mark)


def arrow_schema(schema: Schema, *, physical: bool, ids: bool = True) -> pa.Schema:
    """The table's columns, nullable. physical: exactly the schema of data files. [SC1] [SC2]"""
    return pa.schema([_arrow_field(field, physical=physical, ids=ids) for field in schema.fields])


def from_arrow(schema: pa.Schema, new_id: Callable[[], int] | None = None) -> Schema:
    """The table schema that holds every value of an Arrow schema, each field with an id from
    `new_id`, by default with the next number from 1 on: encoded and view types become plain ones,
    unsigned integers the next wider type. UnsupportedTypeError for what no table type holds. [SC1]
    [SC2]"""
    draw = itertools.count(1).__next__ if new_id is None else new_id
    try:
        result = assign_new_ids(Schema(fields=tuple(map(_from_field, schema))), draw)
    except UnicodeDecodeError as error:  # of a header in another encoding, or a damaged schema
        raise SchemaMismatchError(f"A name or zone is not UTF-8: {shown(error.object)}.") from None
    check_schema(result)
    return result


def footer_metadata(schema: Schema) -> dict[bytes, bytes]:
    """The metadata from which Spark restores every type of a file; dates are Gregorian. [SC2]"""
    return {
        SPARK_SCHEMA: json.dumps(to_spark(schema, physical=True), separators=(",", ":")).encode(),
        SPARK_VERSION: b"4.0.0",
    }


def plain_type(type: pa.DataType) -> pa.DataType:
    """The type of an encoded array's values: no dictionary, run-end or harmless extension."""
    while True:
        if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
            type = type.value_type
        elif isinstance(type, pa.BaseExtensionType) and type.extension_name in _EXTENSIONS:
            type = pa.bool_() if type.extension_name == "arrow.bool8" else type.storage_type
        else:
            return type


def is_list(type: pa.DataType) -> bool:
    """True for all list types of Arrow, but not for maps."""
    plain = pa.ListType | pa.LargeListType | pa.FixedSizeListType
    return isinstance(type, plain | pa.ListViewType | pa.LargeListViewType)


def inner_fields(type: pa.DataType) -> list[pa.Field]:
    """The members of a struct, key and value of a map, the elements of a list; else none."""
    if pa.types.is_map(type):
        return [type.key_field, type.item_field]
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return [type.value_field]
    return list(type) if pa.types.is_struct(type) else []


def field_id(field: pa.Field) -> int | None:
    """The id that a column of a file, or a member, has there."""
    text: Any = (field.metadata or {}).get(FIELD_ID, b"")
    return int(text) if text.isdigit() else None


def is_variant(type: pa.DataType) -> bool:
    """True for Spark's struct for a variant in Arrow: its member `metadata` is marked."""
    if not pa.types.is_struct(type) or -1 in map(type.get_field_index, ("value", "metadata")):
        return False
    return bool((type.field("metadata").metadata or {}).get(b"variant") == b"true")


def _arrow_field(field: Field, *, physical: bool, ids: bool) -> pa.Field:
    return pa.field(
        (physical and field.physical) or field.name,
        arrow_type(field.type, physical=physical, ids=ids),
        metadata={FIELD_ID: b"%d" % field.id} if ids else None,
    )


def arrow_type(type: FieldType, *, physical: bool = True, ids: bool = True) -> pa.DataType:
    """The Arrow type of a column, as in data files unless said otherwise: nullable. [SC1] [SC2]"""

    def member(field: Field) -> pa.Field:
        return _arrow_field(field, physical=physical, ids=ids)

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


def _from_field(field: pa.Field) -> Field:
    type, metadata = _from_type(field.type), _spark_metadata(field.metadata)
    return Field(id=1, name=field.name, type=type, nullable=field.nullable, metadata=metadata)


def _from_type(type: pa.DataType) -> FieldType:
    """The type; one that no table holds by its name, which `check_schema` refuses."""
    type = plain_type(type)
    if is_variant(type):
        return "variant"
    if pa.types.is_struct(type):
        return StructType(fields=tuple(map(_from_field, type)))
    if is_list(type):
        return ArrayType(element=_from_field(type.value_field.with_name("element")))
    if pa.types.is_map(type):
        key = type.key_field.with_nullable(False).with_name("key")
        return MapType(key=_from_field(key), value=_from_field(type.item_field.with_name("value")))
    if (name := _FROM_ARROW.get(type)) is not None:
        return name
    if pa.types.is_decimal(type) and 0 <= type.scale <= type.precision <= MAX_PRECISION:
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "timestamp_ntz" if type.tz is None else "timestamp"
    return "binary" if pa.types.is_fixed_size_binary(type) else str(type)


def _spark_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Spark's metadata of a field; anything but a JSON object is not Spark's."""
    if not metadata:
        return {}
    try:
        attached = json.loads(metadata.get(SPARK_METADATA, b"{}"))
    except ValueError:
        return {}
    return kept_metadata(attached) if isinstance(attached, dict) else {}


# Converts a batch to the exact schema of data files, or refuses it.

ADVICE = " Cast the column before writing."

_WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
# from here on a float does not hold every whole number
_MOST_EXACT = {pa.float32(): 2**24, pa.float64(): 2**53}
_UNIT_MICROS = {"day": DAY_US, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1}


def converted(array: pa.Array, field: Field) -> pa.Array:
    """The values of a column, unchanged in the form of data files, or SchemaMismatchError. [SC3]"""
    return _converted(array, field.type, arrow_type(field.type), (field.name,))


class Conformer:
    """Converts batches, with user-visible names, to the form of data files, `target`. Columns are
    matched by name, once for a schema; missing nullable ones become null. Nothing is rounded or
    truncated, and what matches already is not copied. [SC3]"""

    def __init__(self, schema: Schema) -> None:
        self.target = arrow_schema(schema, physical=True)
        self._fields, self._types = schema.fields, self.target.types
        self._last: tuple[pa.Schema | None, list[int | None]] = None, []  # and the columns' places

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch to the form of data files; SchemaMismatchError names the column. [SC3]"""
        if self._last[0] != batch.schema:
            self._last = batch.schema, match_all(batch.schema.names, self._fields, ())
        columns = batch.columns
        arrays = [
            pa.nulls(batch.num_rows, type)
            if at is None
            else _member(columns[at], field, type, (field.name,), 0)
            for field, type, at in zip(self._fields, self._types, self._last[1], strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)


def _member(
    array: pa.Array, field: Field, target: pa.DataType, path: Path, parent_nulls: int
) -> pa.Array:
    """The converted array of a field; null where its parent is, in `parent_nulls` rows."""
    result = _converted(array, field.type, target, path)
    nulls = 0 if field.nullable else result.null_count - parent_nulls
    if nulls:
        raise SchemaMismatchError(
            f"Column {show_path(path)} may not be null, but {nulls} of {len(result)} values in a "
            "batch are null. Fill or drop them, or make the column nullable."
        )
    return result


def _converted(array: pa.Array, type: FieldType, target: pa.DataType, path: Path) -> pa.Array:
    array = _decoded(array)
    if pa.types.is_null(array.type) and array.type != target:
        return pa.nulls(len(array), target)
    if isinstance(type, str):
        if type in INTERVALS:
            return _interval(array, type, target, path)
        result = array if array.type == target else _primitive(array, type, target, path)
        if type == "string" and not _is_valid(result):
            raise SchemaMismatchError(
                f"Column {show_path(path)} has a text that is not UTF-8: other engines cannot read "
                "it. Decode it with its own encoding, or store the bytes in a binary column."
            )
        return result
    if array.type == target and not has_required(type) and _is_valid(array):
        return array
    match type:
        case StructType() if pa.types.is_struct(array.type) and not is_variant(array.type):
            return _struct(array, type, target, path)
        case ArrayType() if is_list(array.type):
            plain, inside = _plain_list(array), [target.value_type]
        case MapType() if pa.types.is_map(array.type):
            plain, inside = array, [target.key_type, target.item_type]
        case _:
            raise _refusal(array.type, type, path)

    def fit(field: Field, kind: pa.DataType, values: pa.Array) -> pa.Array:
        return _member(values, field, kind, (*path, field.name), 0)

    pairs = zip(members(type), inside, strict=True)
    return refit(_without_hidden(plain), target, *(partial(fit, *pair) for pair in pairs))


def _is_valid(array: pa.Array) -> bool:
    """Whether every text is UTF-8, also those that a nested array hides: Arrow trusts its maker."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decoded(array: pa.Array) -> pa.Array:
    """The array without dictionary, run-end or harmless extension encoding."""
    while True:
        if isinstance(array, pa.DictionaryArray):
            values = _decoded(array.dictionary)
            if (plain := _WITHOUT_VIEWS.get(values.type)) is not None:
                values = values.cast(plain)  # Arrow takes nothing by index from an array of views
            array = values.take(array.indices)
        elif isinstance(array, pa.RunEndEncodedArray):
            array = pc.run_end_decode(array)
        elif isinstance(array, pa.ExtensionArray) and array.type.extension_name in _EXTENSIONS:
            is_flag = array.type.extension_name == "arrow.bool8"
            array = array.storage.cast(pa.bool_()) if is_flag else array.storage
        else:
            return array


def has_required(type: FieldType) -> bool:
    """True if something inside may not be null, but for keys of maps, which never are in Arrow."""
    keys = (type.key,) if isinstance(type, MapType) else ()
    return any(
        (not inner.nullable and inner not in keys) or has_required(inner.type)
        for inner in members(type)
    )


def _primitive(array: pa.Array, type: str, target: pa.DataType, path: Path) -> pa.Array:
    if type == "variant":
        return _variant(array, target, path)
    if type == "void" and array.null_count == len(array):
        return pa.nulls(len(array))
    are_numbers = is_number(array.type) and is_number(target)
    if not are_numbers and not _is_same_kind(array.type, type):
        raise _refusal(array.type, type, path)
    try:
        return exactly(array, target) if are_numbers else array.cast(target)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"Column {show_path(path)}: a value of the type {array.type} does not fit the column's "
            f"type {type_text(type)} without loss ({error}).{ADVICE}"
        ) from error


def is_number(type: pa.DataType) -> bool:
    """True for whole numbers, floats and decimals."""
    types = pa.types
    return bool(types.is_integer(type) or types.is_floating(type) or types.is_decimal(type))


def exactly(numbers: pa.Array, target: pa.DataType) -> pa.Array:
    """The same numbers in another numeric type; ArrowInvalid where one would change. A float is the
    same number as the decimal with its shortest digits, 0.1 as 0.10. [SC3]"""
    types = pa.types
    if types.is_float16(numbers.type) and numbers.type != target:
        numbers = numbers.cast(pa.float32())
    source = numbers.type
    if types.is_decimal(target):
        if types.is_floating(source):
            numbers = numbers.cast(pa.string())
        elif types.is_integer(source):
            numbers = numbers.cast(pa.decimal128(20, 0))
        # Arrow's own cast to 128 bits overflows silently where the scale grows
        return numbers.cast(pa.decimal256(76, target.scale)).cast(target)
    if types.is_floating(target) and not types.is_integer(source):
        if types.is_decimal(source):  # Arrow's own cast of a decimal is not the nearest
            made = numbers.cast(pa.string()).cast(target)
            is_same = pc.equal(exactly(made, source), numbers)
        else:
            made = numbers.cast(target, safe=False)
            both = (numbers.cast(pa.float64()), made.cast(pa.float64()))
            is_same = pc.or_(pc.equal(*both), pc.is_nan(both[0]))
        changed = numbers.filter(pc.invert(is_same))
        if len(changed):
            raise pa.ArrowInvalid(f"{changed[0].as_py()} has more digits than a {target} holds")
        return made
    if types.is_integer(target) and types.is_floating(source):
        bound = pa.scalar(float(_MOST_EXACT[source]), source)
        rounded = numbers.filter(pc.greater_equal(pc.abs(numbers), bound))
        if len(rounded):
            raise pa.ArrowInvalid(
                f"{rounded[0].as_py()} may have been rounded when it became a {source}"
            )
    return numbers.cast(target)


def is_text(type: pa.DataType) -> bool:
    """True for all types of text of Arrow."""
    return type in (pa.string(), pa.large_string(), pa.string_view())


def is_binary(type: pa.DataType) -> bool:
    """True for all types of bytes of Arrow."""
    plain = (pa.binary(), pa.large_binary(), pa.binary_view())
    return type in plain or bool(pa.types.is_fixed_size_binary(type))


def _is_same_kind(source: pa.DataType, type: str) -> bool:
    """True if a checked cast keeps every value. Numbers are `exactly`'s."""
    if type in MOMENTS and pa.types.is_timestamp(source):
        return (source.tz is None) == (type == "timestamp_ntz")
    kinds = {"string": is_text, "binary": is_binary, "date": pa.types.is_date}
    return type in kinds and bool(kinds[type](source))


def _interval(array: pa.Array, type: str, target: pa.DataType, path: Path) -> pa.Array:
    if not pa.types.is_duration(array.type):
        raise _refusal(array.type, type, path)
    try:
        result = array.cast(target)
    except pa.ArrowException as error:
        raise _refusal(array.type, type, path, f" ({error})") from error
    name = type.split()[-1]
    unit, micros = _UNIT_MICROS[name], result.cast(pa.int64())
    if pc.any(pc.not_equal(pc.multiply(pc.divide(micros, unit), unit), micros)).as_py():
        raise _refusal(array.type, type, path, f" (a value is no whole number of {name}s)")
    return result


def _variant(array: pa.Array, target: pa.DataType, path: Path) -> pa.Array:
    if not is_variant(array.type) and not is_plain_variant(array.type):
        raise _refusal(array.type, "variant", path)
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    parts = [
        _primitive(children[name], "binary", pa.binary(), (*path, name))
        for name in ("value", "metadata")
    ]
    if any(part.null_count > array.null_count for part in parts):
        raise SchemaMismatchError(
            f"Column {show_path(path)}: a variant has a value and metadata; one of them is missing."
        )
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=_mask(array))


def is_plain_variant(type: pa.DataType) -> bool:
    """True for an unmarked struct of a variant's two members, as Arrow tools read our files."""
    return (
        pa.types.is_struct(type)
        and sorted(field.name for field in type) == ["metadata", "value"]
        and all(is_binary(field.type) for field in type)
    )


def _struct(array: pa.StructArray, type: StructType, target: pa.DataType, path: Path) -> pa.Array:
    positions = match_all([field.name for field in array.type], type.fields, path)
    # flatten() applies the struct's nulls to its members: a value below a null is not checked
    columns = array.flatten()
    children = [
        pa.nulls(len(array), inside.type)
        if at is None
        else _member(columns[at], field, inside.type, (*path, field.name), array.null_count)
        for field, inside, at in zip(type.fields, target, positions, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))


def _plain_list(array: pa.Array) -> pa.Array:
    """A list of any kind as one of the usual kind: Arrow's cast of a view has wrong offsets."""
    if pa.types.is_list(array.type):
        return array
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends]).buffers()[1]
    # without a validity buffer: pyarrow before 26 takes one for nulls
    plain = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, offsets])
    return pa.ListArray.from_arrays(plain, array.flatten(), mask=_mask(array))


def _without_hidden(array: pa.Array) -> pa.Array:
    """The same lists or maps, none of which has values where it is null: these are not checked."""
    if array.null_count:
        lengths = pc.subtract(array.offsets.slice(1), array.offsets.slice(0, len(array)))
        if pc.sum(lengths.filter(array.is_null())).as_py():
            return array.take(pa.array(range(len(array)), pa.int64()))
    return array


def refit(array: pa.Array, target: pa.DataType, *fits: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """A list or a map as `target`, made of its parts: the values, or the keys and the values."""
    if len(array) == 0:
        return pa.array([], target)
    offsets, is_of_pairs = array.offsets, pa.types.is_map(target)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first or offsets.offset:
        offsets = pc.subtract(offsets, pa.scalar(first, offsets.type))
    parts = (array.keys, array.items) if is_of_pairs else (array.values,)
    made = [fit(part.slice(first, last - first)) for fit, part in zip(fits, parts, strict=True)]
    made_of = (pa.MapArray if is_of_pairs else pa.ListArray).from_arrays
    return made_of(offsets.cast(pa.int32()), *made, type=target, mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _refusal(
    source: pa.DataType, type: FieldType, path: Path, detail: str = ""
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {show_path(path)} has the type {type_text(type)}; values of the Arrow type "
        f"{source} cannot be stored in it without a change{detail}.{ADVICE}"
    )


def group_numbers(columns: Iterable[pa.ChunkedArray], rows: int) -> pa.Array:
    """For each row the number of its group, from 0: equal rows, null and null too, are one."""
    groups = None
    for column in columns:
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        if groups is not None:
            code = pc.multiply(groups.cast(pa.int64()), len(coded.dictionary))
            coded = pc.add(code, coded.indices.cast(pa.int64())).dictionary_encode()
        groups = coded.indices
    return pa.repeat(pa.scalar(0, pa.int32()), rows) if groups is None else groups


# Single values: of partitions, and bounds of columns. [SC7]

_EPOCH = datetime(1970, 1, 1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DATE_RANGE = range(
    date.min.toordinal() - _EPOCH_ORDINAL, date.max.toordinal() - _EPOCH_ORDINAL + 1
)
_MICROSECOND = timedelta(microseconds=1)
_BITS = dict(zip(INTEGERS, (8, 16, 32, 64), strict=True))
# How JSON spells the types that Arrow converts from it directly.
_KINDS: dict[str, type[bool] | type[int] | type[str]] = {
    "boolean": bool,
    "string": str,
    **dict.fromkeys((*INTEGERS, *MOMENTS, "interval"), int),
}


def encode(value: Any, type: FieldType) -> WireValue:
    """The wire value of a Python value; UsageError if the type cannot hold exactly that value. A
    date or time that Python cannot hold (years outside 1..9999) may be an int: days or microseconds
    since 1970. A float column rounds to its own precision, as writing the value would. [SC7]"""
    if value is None:
        return None
    value = _unboxed(value)
    wire = _encode(value, type) if isinstance(type, str) else None
    if wire is None:
        raise _no_value(value, type)
    return wire


def decode(wire: WireValue, type: FieldType) -> Any:
    """The Python value of a wire value; UsageError (a ValueError) if the type has no such one.
    timestamp: aware, in UTC; timestamp_ntz: naive; interval: timedelta. Dates and times outside the
    years 1..9999 are ints: days or microseconds since 1970. [SC7]"""
    if wire is None:
        return None
    try:
        return _decode(wire, type)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(
            f"{shown(wire)} is no stored value of the type {type_text(type)}."
        ) from error


def to_array(wires: Sequence[WireValue], type: FieldType) -> pa.Array:
    """The wire values as an Arrow array of the column's type in data files. [SC7]"""
    target = arrow_type(type)
    name = type if isinstance(type, str) else ""
    kind = _KINDS.get("interval" if name in INTERVALS else name)
    try:
        if kind is not None:
            if not {wire.__class__ for wire in wires} <= {kind, None.__class__}:
                raise ValueError(f"not all are {kind.__name__}")
            return pa.array(wires, pa.int64() if kind is int else target).cast(target)
        if name == "date":
            days = [None if wire is None else _days(wire) for wire in wires]
            return pa.array(days, pa.int32()).cast(target)
        return pa.array([decode(wire, type) for wire in wires], target)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"A stored value is not of the type {type_text(type)}: {error}") from error


def from_array(array: pa.Array | pa.ChunkedArray, type: FieldType) -> list[WireValue]:
    """The wire values of an Arrow array of this column type. [SC7]"""
    if not isinstance(type, str) or type == "variant":
        raise _no_value("a nested value", type)
    if array.type != arrow_type(type):
        array = array.cast(arrow_type(type))
    if type in MOMENTS or type in INTERVALS:
        return list(array.cast(pa.int64()).to_pylist())
    if type == "date":
        every = array.cast(pa.int32()).to_pylist()
        return [None if days is None else _date_text(days) for days in every]
    plain = array.to_pylist()
    if type in _BITS or type in ("boolean", "string", "void"):
        return list(plain)
    return [encode(value, type) for value in plain]


def python_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as values of Python. A day or moment outside the years 1..9999, which Python cannot
    hold, is an int, as in `decode`; inside of nested values it is text."""
    try:
        return list(table.to_pylist())
    except (OverflowError, ValueError):
        columns = [[python_value(scalar) for scalar in column] for column in table.columns]
        names = table.schema.names
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def python_value(scalar: pa.Scalar) -> Any:
    """A value of Python; what Python cannot hold as its number or bytes, a nested one as text."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if is_text(scalar.type):
            return scalar.as_buffer().to_pybytes()
        number = getattr(scalar, "value", None)
        return number if isinstance(number, int) else str(pa.array([scalar], scalar.type))


def integer_range(type: FieldType) -> tuple[int, int] | None:
    """The smallest and largest value of an integer type; None for any other type."""
    bits = _BITS.get(type) if isinstance(type, str) else None
    return None if bits is None else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _unboxed(value: Any) -> Any:
    """A numpy scalar as a Python value; not datetime64, whose item() may be a number."""
    kind = type(value)
    is_boxed = kind.__module__ == "numpy" and kind.__name__ not in ("datetime64", "timedelta64")
    return value.item() if is_boxed and hasattr(value, "item") else value


def _encode(value: Any, type: str) -> WireValue:
    if (type == "boolean") != isinstance(value, bool):
        return None  # for Python a bool is an int
    if type == "boolean":
        return bool(value)
    if type in _BITS:
        return value if isinstance(value, int) and _fits(value, _BITS[type]) else None
    if type == "string":
        return value if isinstance(value, str) and is_unicode(value) else None
    if (parts := decimal_parts(type)) is not None:
        return _decimal_text(value, *parts)
    encoder = _ENCODERS.get("interval" if type in INTERVALS else type)
    return None if encoder is None else encoder(value)


def _decode(wire: bool | int | float | str, type: FieldType) -> Any:
    if type == "float" or type == "double":
        return _float(wire)
    if type == "binary":
        return base64.b64decode(_of(str, wire), validate=True)
    if type == "date":
        days = _days(wire)
        return date.fromordinal(days + _EPOCH_ORDINAL) if days in _DATE_RANGE else days
    if type in MOMENTS:
        moment = _moment(_of(int, wire))
        if type == "timestamp" and isinstance(moment, datetime):
            return moment.replace(tzinfo=UTC)
        return moment
    if type in INTERVALS:
        return timedelta(microseconds=_of(int, wire))
    if (parts := decimal_parts(type)) is not None:
        text = _decimal_text(Decimal(_of(str, wire)), *parts)
        if text is None:
            raise ValueError(wire)
        return Decimal(text)
    if not isinstance(type, str) or _encode(wire, type) is None:
        raise ValueError(wire)
    return wire


def order_key(wire: WireValue, type: FieldType) -> Any:
    """A key that sorts one type's wire values as the column's are; null has none. [SC7]"""
    if type in ("float", "double", "binary"):  # floats may be infinite, bytes are compared as such
        return decode(wire, type)
    if type == "date":
        return _days(wire)
    return Decimal(str(wire)) if decimal_parts(type) is not None else wire


def after_prefix(prefix: str) -> str | None:
    """The smallest text above every text with this prefix; None if there is none."""
    for at in reversed(range(len(prefix))):
        code = ord(prefix[at])
        if code < sys.maxunicode:
            # skip the surrogates, which are not text
            return prefix[:at] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None


def _of(kind: type[Any] | tuple[type[Any], ...], wire: Any) -> Any:
    if not isinstance(wire, kind) or isinstance(wire, bool):
        raise ValueError(wire)
    return wire


def _fits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _float_wire(value: Any, is_single: bool = False) -> WireValue:
    if not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
        if isinstance(value, int) and int(number) != value:
            return None
        number = struct.unpack("<f", struct.pack("<f", number))[0] if is_single else number
    except OverflowError:
        return None
    return number if math.isfinite(number) else _NO_NUMBERS[str(number)]


def _float(wire: Any) -> float:
    if wire in _NO_NUMBERS.values():
        return float(wire)
    return float(_of((int, float), wire))


def _decimal_text(value: Any, precision: int, scale: int) -> str | None:
    """The number in plain notation with `scale` digits; None if that needs rounding."""
    if not isinstance(value, (int, Decimal)):
        return None
    try:
        number = Decimal(value).quantize(Decimal(1).scaleb(-scale), context=WIDE)
    except InvalidOperation:  # NaN, infinity, or far more digits than any column holds
        return None
    size = number.copy_abs()  # abs() would round to the default context
    if number != value or size >= Decimal(10) ** (precision - scale):
        return None
    return format(size if number == 0 else number, "f")


def _binary_wire(value: Any) -> str | None:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return None
    return base64.b64encode(bytes(value)).decode("ascii")


def _date_wire(value: Any) -> str | None:
    # for Python a datetime is a date, but as a day it would lose its time
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return _date_text(value) if isinstance(value, int) and _fits(value, 32) else None


def _date_text(days: int) -> str:
    day = days + _EPOCH_ORDINAL
    return date.fromordinal(day).isoformat() if days in _DATE_RANGE else f"@{days}"


def _days(wire: Any) -> int:
    text = _of(str, wire)
    if text.startswith("@"):
        days = int(text[1:])
    else:
        days = date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    if not _fits(days, 32) or _date_text(days) != text:
        raise ValueError(f"{shown(wire)} is no date")
    return days


def _moment(micros: int) -> datetime | int:
    if not _fits(micros, 64):
        raise ValueError(micros)
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros


def _moment_wire(value: Any, has_zone: bool) -> int | None:
    if not isinstance(value, datetime):
        return _interval_wire(value)
    if (value.utcoffset() is not None) != has_zone:
        return None
    plain = value.astimezone(UTC) if has_zone else value
    return _whole_micros(value, plain.replace(tzinfo=None) - _EPOCH)


def _interval_wire(value: Any) -> int | None:
    micros = _whole_micros(value, value) if isinstance(value, timedelta) else value
    return micros if isinstance(micros, int) and _fits(micros, 64) else None


def _whole_micros(value: Any, span: timedelta) -> int | None:
    """The span in microseconds; None if a pandas value has nanoseconds beyond them."""
    beyond = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    return None if beyond else span // _MICROSECOND


_ENCODERS: dict[str, Callable[[Any], WireValue]] = {
    "float": partial(_float_wire, is_single=True),
    "double": _float_wire,
    "binary": _binary_wire,
    "date": _date_wire,
    "timestamp": partial(_moment_wire, has_zone=True),
    "timestamp_ntz": partial(_moment_wire, has_zone=False),
    "interval": _interval_wire,
}


def _no_value(value: Any, type: FieldType) -> UsageError:
    advice = ""
    if isinstance(value, datetime) and type == "timestamp" and value.tzinfo is None:
        advice = " Give it a time zone, for example tzinfo=datetime.UTC."
    if isinstance(value, datetime) and type == "timestamp_ntz" and value.tzinfo is not None:
        advice = " The column has no time zone; give a naive datetime."
    return UsageError(
        f"{shown(value)} is no value that a column of the type {type_text(type)} holds "
        f"exactly.{advice}"
    )

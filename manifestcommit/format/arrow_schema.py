"""Converts between table schemas and Arrow schemas: of a table, of its data files, and of incoming
data. [SC1] [SC2]

Pure. In data files every column is nullable, timestamps are UTC microseconds, an interval is a
duration in microseconds (in Parquet a plain int64, which Spark restores by the footer, and Arrow
readers by Arrow's own schema), a variant is the struct that Spark uses, and void is a column of
nulls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SchemaMismatchError, UnsupportedTypeError
from .fields import (
    DAY_US,
    INTERVALS,
    MAX_PRECISION,
    MOMENTS,
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    arrow_metadata,
    check_schema,
    decimal_parts,
    mark_of,
    match_names,
    members,
    show_path,
    type_text,
    unique_ids,
)
from .spark_json import kept_metadata, to_spark

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
    """The Arrow type of a column in data files: nullable, with field ids. [SC1] [SC2]"""
    return _arrow_type(type, physical=True, ids=True)


def marked_schemas(
    schema: Schema, table_id: str, url: str, version: int
) -> tuple[pa.Schema, pa.Schema]:
    """The columns as users see them, and as files have them; rows in either carry the mark of the
    version that they are read from. [CF17]"""
    mark = arrow_metadata(mark_of(table_id, url, version))
    logical, physical = (
        arrow_schema(schema, physical=is_physical, ids=False) for is_physical in (False, True)
    )
    return logical.with_metadata(mark), physical.with_metadata(mark)


def arrow_schema(schema: Schema, *, physical: bool, ids: bool = True) -> pa.Schema:
    """The columns in the table's order, all nullable, each with its field id. With `physical`, it
    is exactly the schema of data files. [SC1] [SC2]

    physical: use the names in files, not those that users see; ids: attach `PARQUET:field_id`.
    """
    return pa.schema([_arrow_field(field, physical=physical, ids=ids) for field in schema.fields])


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
    types = pa.types
    return bool(
        types.is_list(type)
        or types.is_large_list(type)
        or types.is_fixed_size_list(type)
        or types.is_list_view(type)
        or types.is_large_list_view(type)
    )


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
    if (
        not pa.types.is_struct(type)
        or type.get_field_index("value") < 0
        or type.get_field_index("metadata") < 0
    ):
        return False
    return bool((type.field("metadata").metadata or {}).get(b"variant") == b"true")


def _arrow_field(field: Field, *, physical: bool, ids: bool) -> pa.Field:
    return pa.field(
        field.file_name if physical else field.name,
        _arrow_type(field.type, physical=physical, ids=ids),
        metadata={FIELD_ID: b"%d" % field.id} if ids else None,
    )


def _arrow_type(type: FieldType, *, physical: bool, ids: bool) -> pa.DataType:
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


# Converts a batch to the exact schema of data files, or refuses it.

ADVICE = " Cast the column before writing."

Path = tuple[str, ...]

_WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
# from here on a float does not hold every whole number
_MOST_EXACT = {pa.float32(): 2**24, pa.float64(): 2**53}
_UNIT_MICROS = {"day": DAY_US, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1}


def converted(array: pa.Array, field: Field) -> pa.Array:
    """The values of one nullable column, of whatever Arrow type, in the form of data files;
    SchemaMismatchError where one would change. [SC3]"""
    return _converted(array, field.type, arrow_type(field.type), (field.name,))


class Conformer:
    """Converts batches, with user-visible names, to the form of data files; what depends on schemas
    alone is done once. [SC3]

    Columns are matched by name and put in the table's order; missing nullable ones become null.
    Casts are checked: nothing is rounded or truncated. A batch that matches already is not copied.
    """

    def __init__(self, schema: Schema) -> None:
        self._fields = schema.fields
        self._target = arrow_schema(schema, physical=True)
        self._types = self._target.types
        self._seen: pa.Schema | None = None
        self._found: list[int | None] = []

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch to the form of data files; SchemaMismatchError names the column. [SC3]"""
        if self._seen is None or not batch.schema.equals(self._seen):
            self._found = _positions(batch.schema.names, self._fields, ())
            self._seen = batch.schema
        columns = batch.columns
        arrays = [
            pa.nulls(batch.num_rows, type)
            if at is None
            else _member(columns[at], field, type, (field.name,), 0)
            for field, type, at in zip(self._fields, self._types, self._found, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)


def _positions(names: Sequence[str], fields: tuple[Field, ...], parent: Path) -> list[int | None]:
    """For each field, the position of the incoming column; None if it is missing and nullable."""
    positions, extra = match_names(names, fields, parent)
    if extra:
        shown = ", ".join(show_path((*parent, names[at])) for at in extra[:10])
        raise SchemaMismatchError(
            f"The data has columns that the table does not have: {shown}. Drop them, or add "
            "them to the table (merge_schema=True)."
        )
    missing = next(
        (
            field
            for field, at in zip(fields, positions, strict=True)
            if at is None and not field.nullable
        ),
        None,
    )
    if missing is not None:
        path = show_path((*parent, missing.name))
        raise SchemaMismatchError(
            f"Column {path} is missing from the data and may not be null. Provide it."
        )
    return positions


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
    if array.type == target and not _has_required(type) and _is_valid(array):
        return array
    match type:
        case StructType() if pa.types.is_struct(array.type) and not is_variant(array.type):
            return _struct(array, type, target, path)
        case ArrayType() if is_list(array.type):
            return _list(array, type, target, path)
        case MapType() if pa.types.is_map(array.type):
            return _map(array, type, target, path)
        case _:
            raise _refusal(array.type, type, path)


def _is_valid(array: pa.Array) -> bool:
    """Whether every text is UTF-8: Arrow trusts the maker of the array. Values that a nested array
    hides count too, so that the answer no is not final for one."""
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
        elif isinstance(array, pa.ExtensionArray) and array.type.extension_name in (
            "arrow.json",
            "arrow.uuid",
        ):
            array = array.storage
        elif isinstance(array, pa.ExtensionArray) and array.type.extension_name == "arrow.bool8":
            array = array.storage.cast(pa.bool_())
        else:
            return array


def _has_required(type: FieldType) -> bool:
    return any(not member.nullable or _has_required(member.type) for member in members(type))


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


def _is_same_kind(source: pa.DataType, type: str) -> bool:
    """True if a checked cast keeps every value that the target can hold. Whether it can hold a
    value is the cast's check. Numbers are `exactly`'s."""
    types = pa.types
    if type == "string":
        return bool(
            types.is_string(source) or types.is_large_string(source) or types.is_string_view(source)
        )
    if type == "binary":
        views = (
            types.is_large_binary(source)
            or types.is_binary_view(source)
            or types.is_fixed_size_binary(source)
        )
        return bool(types.is_binary(source) or views)
    if type == "date":
        return bool(types.is_date(source))
    if type in MOMENTS:
        return bool(types.is_timestamp(source) and (source.tz is None) == (type == "timestamp_ntz"))
    return False


def _interval(array: pa.Array, type: str, target: pa.DataType, path: Path) -> pa.Array:
    if not pa.types.is_duration(array.type):
        raise _refusal(array.type, type, path)
    result = array
    if array.type != target:
        try:
            result = array.cast(target)
        except pa.ArrowException as error:
            raise _refusal(array.type, type, path, f" ({error})") from error
    unit = _UNIT_MICROS[type.split()[-1]]
    if unit > 1:
        micros = result.cast(pa.int64())
        if pc.any(pc.not_equal(pc.multiply(pc.divide(micros, unit), unit), micros)).as_py():
            raise _refusal(
                array.type, type, path, f" (a value is no whole number of {type.split()[-1]}s)"
            )
    return result


def _variant(array: pa.Array, target: pa.DataType, path: Path) -> pa.Array:
    if not is_variant(array.type) and not _is_plain_variant(array.type):
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


def _is_plain_variant(type: pa.DataType) -> bool:
    """True for an unmarked struct of a variant's two members, as Arrow tools read our files."""
    return (
        pa.types.is_struct(type)
        and sorted(field.name for field in type) == ["metadata", "value"]
        and all(_is_same_kind(field.type, "binary") for field in type)
    )


def _struct(array: pa.StructArray, type: StructType, target: pa.DataType, path: Path) -> pa.Array:
    positions = _positions([field.name for field in array.type], type.fields, path)
    # flatten() applies the struct's nulls to its members: a value below a null is not checked
    columns = array.flatten()
    children = [
        pa.nulls(len(array), inside.type)
        if at is None
        else _member(columns[at], field, inside.type, (*path, field.name), array.null_count)
        for field, inside, at in zip(type.fields, target, positions, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))


def _list(array: pa.Array, type: ArrayType, target: pa.DataType, path: Path) -> pa.Array:
    offsets, values = _list_parts(array)
    values = _member(values, type.element, target.value_type, (*path, "element"), 0)
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=_mask(array))


def _list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets from 0, and exactly the values between: none hidden by a slice or null list."""
    values = array.flatten()
    if (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)) and len(array):
        offsets = array.offsets
        first = offsets[0].as_py()
        if offsets[-1].as_py() - first == len(values):
            return _from_zero(offsets, first), values
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends]).buffers()[1]
    # without a validity buffer: pyarrow before 26 takes one for nulls
    return pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, offsets]), values


def _map(array: pa.MapArray, type: MapType, target: pa.DataType, path: Path) -> pa.Array:
    if len(array) == 0:
        return pa.array([], target)
    offsets = array.offsets
    if array.null_count:
        lengths = pc.subtract(offsets.slice(1), offsets.slice(0, len(array)))
        if pc.sum(lengths.filter(array.is_null())).as_py():  # entries are hidden below null maps
            array = array.take(pa.array(range(len(array)), pa.int64()))
            offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    parts = [
        _member(values.slice(first, last - first), field, inside, (*path, field.name), 0)
        for values, field, inside in (
            (array.keys, type.key, target.key_type),
            (array.items, type.value, target.item_type),
        )
    ]
    return pa.MapArray.from_arrays(
        _from_zero(offsets, first), *parts, type=target, mask=_mask(array)
    )


def _from_zero(offsets: pa.Array, first: int) -> pa.Array:
    if first or offsets.offset:
        offsets = pc.subtract(offsets, pa.scalar(first, offsets.type))
    return offsets.cast(pa.int32())


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _refusal(
    source: pa.DataType, type: FieldType, path: Path, detail: str = ""
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {show_path(path)} has the type {type_text(type)}; values of the Arrow type "
        f"{source} cannot be stored in it without a change{detail}.{ADVICE}"
    )


def group_numbers(columns: Iterable[pa.ChunkedArray], rows: int) -> pa.DictionaryArray:
    """For each row a number; rows have the same one where they are equal in all these columns, null
    and null too. Its indices count the groups from 0."""
    code = pa.repeat(pa.scalar(0, pa.int64()), rows)
    groups = code.dictionary_encode()
    for column in columns:
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        code = pc.add(pc.multiply(code, len(coded.dictionary)), coded.indices.cast(pa.int64()))
        groups = code.dictionary_encode()
        code = groups.indices.cast(pa.int64())
    return groups

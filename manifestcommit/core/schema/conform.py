"""Converts a batch to the exact schema of data files, or refuses it. [SC3]

Pure. Arrays that already match are passed on without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manifestcommit.core.schema.arrow_schema import (
    arrow_schema,
    arrow_type,
    is_list,
    is_variant,
)
from manifestcommit.core.schema.fields import (
    INTERVALS,
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    match_names,
    members,
    show_path,
    type_text,
)
from manifestcommit.errors import SchemaMismatchError

ADVICE = " Cast the column before writing."

Path = tuple[str, ...]

_INTEGERS = ("byte", "short", "integer", "long")
_WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
# from here on a float does not hold every whole number
_MOST_EXACT = {pa.float32(): 2**24, pa.float64(): 2**53}
_UNIT_MICROS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1}


def conform(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Convert a batch, with user-visible names, to the form of data files; SchemaMismatchError
    names the column that does not fit. [SC3]

    Columns are matched by name and put in the table's order; missing nullable ones become null.
    Casts are checked: nothing is rounded or truncated. A batch that matches already is not copied.
    For many batches use a Conformer, which plans only once.
    """
    return Conformer(schema).conform(batch)


def converted(array: pa.Array, field: Field) -> pa.Array:
    """The values of one nullable column, of whatever Arrow type, in the form of data files;
    SchemaMismatchError where one would change. [SC3]"""
    return _converted(array, field.type, arrow_type(field.type), (field.name,))


class Conformer:
    """`conform` for many batches of one table: whatever depends on the schemas alone is computed
    once. [SC3]"""

    def __init__(self, schema: Schema) -> None:
        self._fields = schema.fields
        self._target = arrow_schema(schema, physical=True)
        self._types = self._target.types
        self._seen: pa.Schema | None = None
        self._found: list[int | None] = []

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch to the form of data files, value for value; SchemaMismatchError names the
        column that does not fit. [SC3]"""
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
    """The converted array of a field. Where its parent is null, in `parent_nulls` rows, the member
    is null too."""
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
    """Whether every text is UTF-8: Arrow trusts whoever made the array. Values that a nested array
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
    if type in ("timestamp", "timestamp_ntz"):
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
    """True for an unmarked struct with exactly a variant's two members, which is how Arrow tools
    read this package's own files."""
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
    """Offsets from 0, and exactly the values between them, without values hidden by a slice or
    below a null list."""
    values = array.flatten()
    if (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)) and len(array):
        offsets = array.offsets
        first = offsets[0].as_py()
        if offsets[-1].as_py() - first == len(values):
            return _from_zero(offsets, first), values
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    # through numpy, without a validity buffer: pyarrow before 26 takes one for nulls
    offsets = np.zeros(len(array) + 1, np.int32)
    offsets[1:] = pc.cumulative_sum(lengths).cast(pa.int32()).to_numpy()
    return pa.array(offsets), values


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

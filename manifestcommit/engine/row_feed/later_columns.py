"""Rows of one version as the columns of another: by their ids, whatever their names are. [CH6]"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...core.schema.arrow_schema import arrow_schema
from ...core.schema.fields import ArrayType, Field, FieldType, MapType, Schema, StructType


def as_columns(
    rows: pa.RecordBatch, there: Mapping[int, Field], columns: Sequence[Field]
) -> pa.RecordBatch:
    """The rows in these columns. there: the columns that they have, by id; one that they lack is
    null, and so is a member."""
    schema = arrow_schema(Schema(fields=tuple(columns)), physical=False, ids=False)
    arrays = [
        _as_type(rows.column(there[field.id].name), there[field.id].type, field.type, target.type)
        if field.id in there
        else pa.nulls(rows.num_rows, target.type)
        for field, target in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_type(array: pa.Array, have: FieldType, want: FieldType, target: pa.DataType) -> pa.Array:
    if have == want and array.type.equals(target):
        return array
    match have, want:
        case StructType(fields=old), StructType(fields=new):
            there = {field.id: (at, field) for at, field in enumerate(old)}
            members = []
            for field, to in zip(new, target, strict=True):
                at, was = there.get(field.id, (0, None))
                members.append(
                    pa.nulls(len(array), to.type)
                    if was is None
                    else _as_type(array.field(at), was.type, field.type, to.type)
                )
            return pa.StructArray.from_arrays(members, fields=list(target), mask=array.is_null())
        case ArrayType(element=old_element), ArrayType(element=new_element):
            offsets, part = _offsets(array)
            values = _as_type(
                part(array.values), old_element.type, new_element.type, target.value_type
            )
            return pa.ListArray.from_arrays(offsets, values, type=target)
        case ((MapType() as old_map), (MapType() as new_map)):
            offsets, part = _offsets(array)
            keys = _as_type(part(array.keys), old_map.key.type, new_map.key.type, target.key_type)
            items = _as_type(
                part(array.items), old_map.value.type, new_map.value.type, target.item_type
            )
            return pa.MapArray.from_arrays(offsets, keys, items, type=target)
        case _:
            return array.cast(target)


def _offsets(array: pa.Array) -> tuple[pa.Array, Callable[[pa.Array], pa.Array]]:
    """Offsets from zero, null if an array is null; and what cuts out the values that they cover."""
    raw = array.offsets
    first, last = raw[0].as_py(), raw[-1].as_py()
    shifted = pc.subtract(raw, pa.scalar(first, pa.int32()))
    missing = pa.concat_arrays([array.is_null(), pa.array([False])])
    shifted = pc.if_else(missing, pa.scalar(None, pa.int32()), shifted)
    return shifted, lambda values: values.slice(first, last - first)

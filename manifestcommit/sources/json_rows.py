"""Objects of texts in JSON, or of a callable, as rows of columns with types. [LD9]"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ..runtime.validation import wrong

_NULL = type(None)
_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)


def arrow_schema(name: str, value: Any) -> Any:
    """An argument that is a schema of pyarrow."""
    if not isinstance(value, pa.Schema):
        raise wrong(name, value, "a pyarrow schema", "pyarrow.schema([('id', 'int64')])")
    return value


def rows_of(
    values: Sequence[bytes | None],
    decode: Callable[[bytes], Mapping[str, Any]] | None,
    expected: pa.Schema | None,
) -> tuple[pa.Table, dict[int, str]]:
    """The values as rows, and place -> why, of those that are none.

    decode: None: they are JSON. expected: the columns that are known; members beside them become
    columns of inferred types, behind. A value that is missing is a row of nulls.
    """
    broken: dict[int, str] = {}
    objects: list[Mapping[str, Any]] = []
    places: list[int] = []
    for place, value in enumerate(values):
        try:
            found = {} if value is None else (decode or msgspec.json.decode)(value)
            if type(found) is not dict and not isinstance(found, Mapping):
                raise TypeError(f"expected an object, not {type(found).__name__}")
        except Exception as error:  # of whatever callable
            broken[place] = _said(error)
        else:
            objects.append(found)
            places.append(place)
    try:
        return _table(objects, expected), broken
    except _UNFIT:
        fit, unfit = _apart(objects, expected)
        broken |= {places[each]: why for each, why in unfit.items()}
        return _table([objects[each] for each in fit], expected), broken


def _apart(
    objects: Sequence[Mapping[str, Any]], expected: pa.Schema | None
) -> tuple[list[int], dict[int, str]]:
    """Which objects fit the columns, and why the others do not. Without columns that are known the
    first object says what they are."""
    fit: list[int] = []
    unfit: dict[int, str] = {}
    for place, each in enumerate(objects):
        try:
            alone = _table([each], expected)
        except _UNFIT as error:
            unfit[place] = _said(error)
            continue
        fit.append(place)
        if expected is None:
            expected = alone.schema
        else:
            new = [field for field in alone.schema if field.name not in expected.names]
            expected = pa.schema([*expected, *new])
    return fit, unfit


def _table(objects: Sequence[Mapping[str, Any]], expected: pa.Schema | None) -> pa.Table:
    types: dict[str, pa.DataType | None] = dict.fromkeys(name for each in objects for name in each)
    if expected is not None:
        types = {field.name: field.type for field in expected} | {
            name: None for name in types if name not in expected.names
        }
    columns = {
        name: _column(name, [each.get(name) for each in objects], kind)
        for name, kind in types.items()
    }
    if not columns:
        if objects:
            raise ValueError("the object has no members, and no columns are known")
        return pa.table({})
    return pa.table(columns)


def _column(name: str, values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """A text may be the value of a column of any type, as JSON has no moments and no decimals."""
    try:
        if kind is not None and not _is_kept(set(map(type, values)), kind):
            for value in values:
                _check_kept(value, kind)
        try:
            found = pa.array(values, kind)
        except (pa.ArrowException, TypeError):
            if kind is None or not all(value is None or isinstance(value, str) for value in values):
                raise
            found = pa.array(values, pa.string()).cast(kind)
    except _UNFIT as error:
        raise ValueError(f"{name!r}: {_said(error)}") from None
    # a column without a value has no type that later rows could fit
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found


def _is_kept(given: set[type], kind: pa.DataType) -> bool:
    """Whether no value of these types can be changed by this one of Arrow."""
    types = pa.types
    if types.is_nested(kind) or types.is_temporal(kind):
        return given <= {str, _NULL}
    return not types.is_integer(kind) or given <= {int, str, _NULL}


def _check_kept(value: Any, kind: pa.DataType) -> None:
    """ValueError for what pyarrow would silently change: it cuts what is behind the point, takes
    whole numbers for moments, and ignores members that a struct's type does not have."""
    if value is None or isinstance(value, str):
        return
    if pa.types.is_integer(kind):
        if isinstance(value, float | bool):
            raise ValueError(f"{value!r} is no whole number")
    elif pa.types.is_temporal(kind):
        if isinstance(value, int | float):
            raise ValueError(f"the number {value!r} says no unit, and is not taken for {kind}")
    elif pa.types.is_struct(kind) and isinstance(value, Mapping):
        fields = {field.name: field.type for field in kind}
        for name, member in value.items():
            if name not in fields:
                raise ValueError(f"the member {name!r} is not in {kind}")
            _check_kept(member, fields[name])
    elif pa.types.is_list(kind) and isinstance(value, list):
        for each in value:
            _check_kept(each, kind.value_type)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

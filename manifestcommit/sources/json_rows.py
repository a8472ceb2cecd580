"""Objects of texts in JSON, or of a callable, as rows of columns with types. [LD9]

No value is changed to fit a column: what pyarrow would cut or ignore is no row.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from numbers import Integral, Real
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from ..errors import SourceError
from ..runtime.validation import fits

_NULL = type(None)
_UNFIT = (pa.ArrowException, ArithmeticError, TypeError, ValueError)
_INTEGER, _FLOAT = pa.types.is_integer, pa.types.is_floating


arrow_schema = fits(
    lambda value: isinstance(value, pa.Schema),
    "a pyarrow schema",
    "pyarrow.schema([('id', 'int64')])",
)


def rows_of(
    values: Sequence[bytes | None],
    decode: Callable[[bytes], Mapping[str, Any]] | None,
    expected: pa.Schema | None,
) -> tuple[pa.Table, dict[int, str]]:
    """The values as rows, and place -> why, of those that are none.

    decode: None: they are JSON. expected: the columns that are known; members beside them become
    columns of inferred types, behind, once one has a value. A value that is missing is a row of
    nulls. Without any column the table has no rows.
    """
    if decode is None and expected is not None:
        # whatever is wrong, or new, is found below
        with contextlib.suppress(Exception):
            return _alike(values, expected), {}
    broken: dict[int, str] = {}
    objects: list[Mapping[str, Any]] = []
    places: list[int] = []
    for place, value in enumerate(values):
        try:
            objects.append(_object(value, decode))
        except Exception as error:  # of whatever callable
            broken[place] = reason_of(error)
        else:
            places.append(place)
    schema = _types(objects, expected)
    try:
        return _table(objects, schema), broken
    except _UNFIT:
        unfit = _unfit(objects, 0, schema)
        broken |= {places[each]: why for each, why in unfit.items()}
        kept = [each for place, each in enumerate(objects) if place not in unfit]
        return _table(kept, schema), broken


def _alike(values: Sequence[bytes | None], schema: pa.Schema) -> pa.Table:
    """Objects in JSON that have no members but the columns: they need no dictionaries."""
    decode = _decoder(tuple(schema.names)).decode
    objects = [decode(value) for value in values]  # type: ignore[arg-type]  # None: refused
    columns = [
        _column(each.name, list(map(attrgetter(f"m{place}"), objects)), each.type)
        for place, each in enumerate(schema)
    ]
    return pa.table(dict(zip(schema.names, columns, strict=True)))


@functools.lru_cache(maxsize=16)
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    members = [f"m{place}" for place in range(len(names))]
    kind = msgspec.defstruct(
        "_Members",
        [(member, Any, None) for member in members],
        rename=dict(zip(members, names, strict=True)),
        forbid_unknown_fields=True,
        gc=False,
    )
    return msgspec.json.Decoder(kind)


def _object(
    value: bytes | None, decode: Callable[[bytes], Mapping[str, Any]] | None
) -> Mapping[str, Any]:
    if value is None:
        return {}
    found = msgspec.json.decode(value) if decode is None else decode(value)
    if type(found) is dict:
        return found
    if not isinstance(found, Mapping):
        raise TypeError(f"expected an object, not {type(found).__name__}")
    return dict(found)


def _types(objects: Sequence[Mapping[str, Any]], expected: pa.Schema | None) -> pa.Schema:
    """The columns: those that are known, and the others by what most of their values are."""
    known = [] if expected is None else list(expected)
    names = dict.fromkeys(chain.from_iterable(objects))
    for field in known:
        names.pop(field.name, None)
    for name in names:
        values = [value for each in objects if (value := each.get(name)) is not None]
        if not values:
            continue  # a column without a value has no type yet
        kind = _inferred(values)
        if kind is None:
            classes = Counter(map(_class, values))
            most = classes.most_common(1)[0][0]
            kind = _inferred([each for each in values if _class(each) is most])
        if kind is None:
            continue
        if has_null(kind):
            raise SourceError(
                f"the type of the column {name!r} cannot be inferred: the first records have "
                "only empty lists or nulls in it. Nothing of this chunk was committed. Give "
                "schema= with its type."
            )
        known.append(pa.field(name, kind))
    return pa.schema(known)


def _class(value: Any) -> type:
    """The class of a value; whole numbers are among the others."""
    return float if type(value) is int else type(value)


def _inferred(values: Sequence[Any]) -> pa.DataType | None:
    try:
        return pa.array(values).type
    except _UNFIT:
        return None


def has_null(kind: pa.DataType) -> bool:
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return bool(pa.types.is_null(kind)) or any(map(has_null, inner))


def _unfit(objects: Sequence[Mapping[str, Any]], start: int, schema: pa.Schema) -> dict[int, str]:
    """Place -> why, of the objects that do not fit the columns, by halves."""
    try:
        _table(objects, schema)
    except _UNFIT as error:
        if len(objects) == 1:
            return {start: reason_of(error)}
        half = len(objects) // 2
        first = _unfit(objects[:half], start, schema)
        return first | _unfit(objects[half:], start + half, schema)
    return {}


def _table(objects: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    names = set(schema.names)
    for each in objects:
        if not names.issuperset(each):
            extra = [name for name in each if name not in names and each[name] is not None]
            if extra:
                raise ValueError(f"{extra[0]!r}: its values have no common type")
    columns = [
        _column(each.name, [one.get(each.name) for one in objects], each.type) for each in schema
    ]
    return pa.table(dict(zip(schema.names, columns, strict=True)))


def _column(name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    """Texts may be the values of moments, days and decimals, which JSON does not have."""
    given = set(map(type, values)) - {_NULL}
    try:
        if not _is_plain(given, kind):
            for value in values:
                _check_kept(value, kind)
        if given == {str} and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
            return pa.array(values, pa.string()).cast(kind)
        found = pa.array(values, kind)
        if pa.types.is_temporal(kind) and found.to_pylist() != values:
            raise ValueError(f"a moment does not fit {kind} without being changed")
    except _UNFIT as error:
        raise ValueError(f"{name!r}: {reason_of(error)}") from None
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_plain(given: set[type], kind: pa.DataType) -> bool:
    """Whether no value of these types can be changed by this one of Arrow."""
    if _INTEGER(kind):
        return given <= {int}
    if _FLOAT(kind):
        return given <= {float}
    if _is_text(kind):
        return given <= {str}
    return not given


def _check_kept(value: Any, kind: pa.DataType) -> None:
    """ValueError for what pyarrow would silently change or ignore."""
    if value is None:
        return
    types = pa.types
    if _INTEGER(kind):
        fits = isinstance(value, Integral) and not isinstance(value, bool)
    elif _FLOAT(kind):
        fits = isinstance(value, Real) and not isinstance(value, bool)
        fits = fits and (not isinstance(value, Integral) or float(value) == value)
    elif types.is_boolean(kind):
        fits = isinstance(value, bool)
    elif _is_text(kind):
        fits = isinstance(value, str)
    elif types.is_binary(kind) or types.is_large_binary(kind):
        fits = isinstance(value, bytes | str)
    elif types.is_temporal(kind):
        fits = not isinstance(value, Real)  # it does not say its unit
    elif types.is_decimal(kind):
        fits = isinstance(value, Decimal | Integral | str) and not isinstance(value, bool)
    elif types.is_nested(kind):
        fits = _check_members(value, kind)
    else:
        fits = True
    if not fits:
        raise ValueError(f"{value!r} is not taken for {kind}")


def _check_members(value: Any, kind: pa.DataType) -> bool:
    """Whether the value is of this nested type; each of its members is checked."""
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        fields = {field.name: field.type for field in kind}
        for name, member in value.items():
            if name not in fields:
                raise ValueError(f"the member {name!r} is not in {kind}")
            _check_kept(member, fields[name])
        return True
    if pa.types.is_map(kind) and isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else value:
            _check_kept(key, kind.key_type)
            _check_kept(item, kind.item_type)
        return True
    if isinstance(value, list | tuple) and not pa.types.is_struct(kind):
        for each in value:
            _check_kept(each, kind.value_type)
        return True
    return False


def reason_of(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

"""Which partitions a condition can be true in: what a change that selects rows has read. [CF16]

Pure. Always a superset: what is not understood stands for the whole table. Not here: which files it can be true in (core.predicate).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from ..errors import UsageError
from .manifest import WireValue
from .predicate import And, Compare, Constant, IsIn, IsNull, Or, Predicate
from .schema import Field, Schema, decimal_parts
from .spark_types import has_own_order
from .touch import Touch, once
from .values import encode

MAX_PATTERNS = 1_000  # more alternatives than this are read as "the whole table": work and record stay small
_EVERYTHING: tuple[Touch, ...] = ({},)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def partitions_of(predicate: Predicate, schema: Schema, partition_by: Sequence[int]) -> tuple[Touch, ...]:
    """Patterns that cover every partition in which a row can make the predicate true; none: it is true of no row. [CF16]

    Told from equality, membership and null tests of partition columns; `{}`, the whole table, where those do not tell.
    """
    by_id = {field.id: field for field in schema.fields}
    return _patterns(predicate, {by_id[each].name: by_id[each] for each in partition_by})


def _patterns(node: Predicate, columns: dict[str, Field]) -> tuple[Touch, ...]:
    match node:
        case Constant(value=value):
            return _EVERYTHING if value else ()
        case And(args=args):
            whole = _EVERYTHING
            for arg in args:
                whole = _both(whole, _patterns(arg, columns))
            return whole
        case Or(args=args):
            found = once(touch for arg in args for touch in _patterns(arg, columns))
            return _EVERYTHING if {} in found or len(found) > MAX_PATTERNS else found
        case Compare(op="=", column=(name,), value=value) if name in columns:
            return _equal(columns[name], (value,))
        case IsIn(column=(name,), values=values) if name in columns and len(values) <= MAX_PATTERNS:
            return _equal(columns[name], values)
        case IsNull(column=(name,)) if name in columns:
            return ({columns[name].id: None},)
        case _:
            return _EVERYTHING


def _both(one: tuple[Touch, ...], other: tuple[Touch, ...]) -> tuple[Touch, ...]:
    """What lies in both; the narrower alone where all pairs would be too many, which is more than lies in both."""
    if len(one) * len(other) > MAX_PATTERNS:
        return min(one, other, key=len)
    return once({**left, **right} for left in one for right in other if all(right.get(each, left[each]) == left[each] for each in left))


def _equal(field: Field, values: Sequence[Any]) -> tuple[Touch, ...]:
    """The partitions whose value is one of these; everything, where an engine would cast before it compares."""
    wires = [_wire(value, field) for value in values if value is not None]
    if any(wire is None for wire in wires):
        return _EVERYTHING
    return once({field.id: wire} for wire in wires)


def _wire(value: Any, field: Field) -> WireValue:
    """The value as entries hold it; None where it is not surely one of the column's type."""
    if has_own_order(field):
        return None
    if field.type == "date" and isinstance(value, str) and _DAY.fullmatch(value):
        try:  # as every engine reads such a text beside a date
            value = date.fromisoformat(value)
        except ValueError:
            return None
    kind = "decimal" if isinstance(field.type, str) and decimal_parts(field.type) else field.type
    if type(value) is not _PYTHON.get(str(kind)):
        return None
    if isinstance(value, datetime) and (value.tzinfo is None) != (field.type == "timestamp_ntz"):
        return None
    try:
        return encode(value, field.type)
    except UsageError:  # no value of the column can equal it, but how an engine compares the two is its own affair
        return None


_PYTHON: dict[str, type] = {
    "boolean": bool,
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    "string": str,
    "date": date,
    "timestamp": datetime,
    "timestamp_ntz": datetime,
    "decimal": Decimal,
}

"""The partitions in which a condition can be true: the read set of a change that selects rows.
[CF16]

Pure. The result is always a superset: a part that is not understood counts as the whole table. Not
here: pruning of files (filter.predicate).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from ..errors import UsageError
from ..format.fields import INTEGERS, MOMENTS, Field, Schema, WireValue, decimal_parts
from ..format.partitioning import PartitionPattern, dedupe
from ..format.spark_json import has_own_order
from ..format.values import encode
from .predicate import And, Compare, Constant, IsIn, IsNull, Or, Predicate

# more alternatives than this are recorded as "the whole table", to keep work and record small
MAX_PATTERNS = 1_000
_EVERYTHING: tuple[PartitionPattern, ...] = ({},)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def partitions_of(
    predicate: Predicate, schema: Schema, partition_by: Sequence[int]
) -> tuple[PartitionPattern, ...]:
    """Patterns that cover every partition in which a row can make the predicate true; no pattern:
    no row can. [CF16]

    They follow from equality, membership and null tests of partition columns; `{}`, the whole
    table, if these say nothing.
    """
    by_id = {field.id: field for field in schema.fields}
    return _patterns(
        predicate, {by_id[field_id].name: by_id[field_id] for field_id in partition_by}
    )


def _patterns(node: Predicate, columns: dict[str, Field]) -> tuple[PartitionPattern, ...]:
    match node:
        case Constant(value=value):
            return _EVERYTHING if value else ()
        case And(args=args):
            whole = _EVERYTHING
            for arg in args:
                whole = _both(whole, _patterns(arg, columns))
            return whole
        case Or(args=args):
            patterns = dedupe(touch for arg in args for touch in _patterns(arg, columns))
            return _EVERYTHING if {} in patterns or len(patterns) > MAX_PATTERNS else patterns
        case Compare(op="=", column=(name,), value=value) if name in columns:
            return _equal(columns[name], (value,))
        case IsIn(column=(name,), values=values) if name in columns and len(values) <= MAX_PATTERNS:
            return _equal(columns[name], values)
        case IsNull(column=(name,)) if name in columns:
            return ({columns[name].id: None},)
        case _:
            return _EVERYTHING


def _both(
    one: tuple[PartitionPattern, ...], other: tuple[PartitionPattern, ...]
) -> tuple[PartitionPattern, ...]:
    """The intersection; if there would be too many pairs, the narrower side alone, which is a
    superset of it."""
    if len(one) * len(other) > MAX_PATTERNS:
        return min(one, other, key=len)
    return dedupe(
        {**left, **right}
        for left in one
        for right in other
        if all(right.get(field_id, left[field_id]) == left[field_id] for field_id in left)
    )


def _equal(field: Field, values: Sequence[Any]) -> tuple[PartitionPattern, ...]:
    """The partitions whose value is one of these; everything, if an engine would cast before it
    compares."""
    wires = [_wire(value, field) for value in values if value is not None]
    if any(wire is None for wire in wires):
        return _EVERYTHING
    return dedupe({field.id: wire} for wire in wires)


def _wire(value: Any, field: Field) -> WireValue:
    """The value as entries hold it; None if it is not certainly a value of the column's type."""
    if has_own_order(field):
        return None
    if field.type == "date" and isinstance(value, str) and _DAY.fullmatch(value):
        try:  # every engine reads such a text beside a date in this way
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
    # no value of the column can equal it, but engines differ in how they compare the two
    except UsageError:
        return None


_PYTHON: dict[str, type] = {
    "boolean": bool,
    **dict.fromkeys(INTEGERS, int),
    "string": str,
    "date": date,
    **dict.fromkeys(MOMENTS, datetime),
    "decimal": Decimal,
}

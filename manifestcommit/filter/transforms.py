"""What a condition on a column says of the transforms of it that partition the table, so that
whole partitions are skipped, and conflicts are judged on the transform's values. [PT7]

Pure. A transform is a column of its own here, with a path that no column of a table can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from ..errors import UsageError
from ..format.fields import Field, Schema, has_own_order
from ..format.partitioning import PartitionPattern
from ..format.transforms import Transform, apply, transform_of
from ..format.values import arrow_type
from .predicate import (
    And,
    ColumnPath,
    Compare,
    IsIn,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    array_of,
    ends_of,
    partitions_of,
    virtual_name,
)

MAX_MEMBERS = 256  # values of an IsIn of which transforms are made one by one
_OPPOSITE: dict[Op, Op] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def with_transforms(predicate: Predicate, schema: Schema, partition_by: Sequence[int]) -> Predicate:
    """A predicate that is true of the same rows and says of the transforms of its columns what
    follows from it. [PT7]

    Each condition on a column gets, by "and", what each row for which it is true must have as its
    transform's value. So the whole is true, false or null where it was, under "not" as well.
    """
    transforms: dict[str, list[Transform]] = {}
    by_id = {field.id: field for field in schema.fields}
    for id in partition_by:
        if (transform := transform_of(id)) is not None:
            source = by_id[transform.source]
            if not has_own_order(source):
                transforms.setdefault(source.name, []).append(transform)
    if not transforms:
        return predicate
    fields = {field.name: field for field in schema.fields}
    return _expanded(predicate, lambda leaf: _projections(leaf, fields, transforms))


def _expanded(node: Predicate, more: Callable[[Any], list[Predicate]]) -> Predicate:
    match node:
        case And(args=args) | Or(args=args):
            inner = tuple(_expanded(arg, more) for arg in args)
            return msgspec.structs.replace(node, args=inner)
        case Not(arg=Compare() as inner_leaf):
            other = msgspec.structs.replace(inner_leaf, op=_OPPOSITE[inner_leaf.op])
            return And(args=(node, *more(other)))
        case Not(arg=IsNull() as inner_leaf):
            return And(args=(node, *(Not(arg=each) for each in more(inner_leaf))))
        case Not(arg=arg):
            return Not(arg=_expanded(arg, more))
        case Compare() | IsIn() | IsNull() | StartsWith():
            projected = more(node)
            return And(args=(node, *projected)) if projected else node
        case _:
            return node


def partitions_read(
    predicate: Predicate, schema: Schema, partition_by: Sequence[int]
) -> tuple[PartitionPattern, ...]:
    """As `partitions_of`, with what follows for transforms: `ts >= … AND ts < …` of a week are the
    partitions of seven days. [CF16] [PT7]"""
    expanded = with_transforms(predicate, schema, partition_by)
    return partitions_of(_with_short_ranges(expanded), schema, partition_by)


def _with_short_ranges(node: Predicate) -> Predicate:
    match node:
        case And(args=args):
            return And(args=(*map(_with_short_ranges, args), *_short_ranges(args)))
        case Or(args=args):
            return Or(args=tuple(map(_with_short_ranges, args)))
        case _:
            return node


def _short_ranges(args: Sequence[Predicate]) -> list[Predicate]:
    """Where two ends leave few values of a transform, these values: such as the days of a week."""
    ends: dict[ColumnPath, dict[str, list[Any]]] = {}
    for leaf in _joined(args):
        if isinstance(leaf, Compare) and leaf.column[0].startswith("\0"):
            ends.setdefault(leaf.column, {}).setdefault(leaf.op, []).append(leaf.value)
    found: list[Predicate] = []
    for column, said in ends.items():
        if ">=" not in said or "<=" not in said:
            continue
        values = _between(max(said[">="]), min(said["<="]), transform_of(int(column[0][1:])))
        if values is not None:
            found.append(IsIn(column=column, values=values))
    return found


def _joined(args: Sequence[Predicate]) -> Iterator[Predicate]:
    """Each predicate that must be true, inside of nested ones, too."""
    for arg in args:
        if isinstance(arg, And):
            yield from _joined(arg.args)
        else:
            yield arg


def _between(low: Any, high: Any, transform: Transform | None) -> tuple[Any, ...] | None:
    """The values of the transform from one to another; None: too many, or they cannot be named."""
    step = transform.width if transform and transform.function == "truncate" else 1
    if isinstance(low, date) and isinstance(high, date):
        days = range((high - low).days + 1)
        return tuple(low + timedelta(days=n) for n in days) if len(days) <= MAX_MEMBERS else None
    if isinstance(low, int) and isinstance(high, int):
        values = range(low, high + 1, step)
        return tuple(values) if len(values) <= MAX_MEMBERS else None
    return None


def _projections(
    leaf: Compare | IsIn | IsNull | StartsWith,
    fields: dict[str, Field],
    transforms: dict[str, list[Transform]],
) -> list[Predicate]:
    if len(leaf.column) != 1 or leaf.column[0] not in transforms:
        return []
    field = fields[leaf.column[0]]
    found = (_projected(leaf, field, each) for each in transforms[field.name])
    return [each for each in found if each is not None]


def _path(id: int) -> ColumnPath:
    return (virtual_name(id),)


def _projected(
    leaf: Compare | IsIn | IsNull | StartsWith, field: Field, transform: Transform
) -> Predicate | None:
    column = _path(transform.id)
    match leaf:
        case IsNull():
            return IsNull(column=column)
        case StartsWith(prefix=prefix) if transform.function == "truncate":
            return StartsWith(column=column, prefix=prefix[: transform.width])
        case IsIn(values=members) if 0 < len(members) <= MAX_MEMBERS:
            parts = [_compared("=", value, field, transform) for value in members]
            known = tuple(dict.fromkeys(part for part in parts if part is not None))
            return None if None in parts else Or(args=known)
        case Compare(op=op, value=value) if op != "!=" and value is not None:
            return _compared(op, value, field, transform)
        case _:
            return None


def _compared(op: Op, value: Any, field: Field, transform: Transform) -> Predicate | None:
    """What a comparison says of the transform; None: nothing that is certain."""
    kind = arrow_type(field.type)
    ends = ends_of(value, kind)
    if ends is None:
        return None
    low, high = ends
    step = _step(kind)
    if transform.function == "bucket":
        if op != "=" or low != high:
            return None
        return _is("=", transform, field, low)
    if op in ("<", "<="):
        return _is("<=", transform, field, high - step if op == "<" and step else high)
    if op in (">", ">="):
        return _is(">=", transform, field, low + step if op == ">" and step else low)
    first, last = _is(">=", transform, field, low), _is("<=", transform, field, high)
    if low == high:
        return _is("=", transform, field, low)
    return None if first is None or last is None else And(args=(first, last))


def _step(kind: pa.DataType) -> Any:
    """The distance of two values that nothing is between; None: there is none."""
    if pa.types.is_decimal(kind):
        return Decimal(1).scaleb(-kind.scale)
    return 1 if not pa.types.is_string(kind) and not pa.types.is_binary(kind) else None


def _is(op: Op, transform: Transform, field: Field, plain: Any) -> Predicate | None:
    """A comparison with the transform of a value of the column, as bounds are compared."""
    try:
        value = apply(transform, field, array_of(plain, field.type))[0].as_py()
    except (UsageError, pa.ArrowException, ValueError, OverflowError):
        return None  # no value of the column, or one that no row can have
    if not isinstance(value, int | str | bytes | Decimal | date):
        return None
    return Compare(op=op, column=_path(transform.id), value=value)

"""The key columns of a merge (upsert), and where a table may hold a row with one of the source's
keys. [RC3]

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import UsageError
from ..schema.evolution import find_column
from ..schema.fields import Field, Schema, decimal_parts, type_text
from ..schema.partitioning import PartitionPattern, dedupe
from ..schema.spark_json import has_own_order
from ..schema.values import decode
from ..table.entries import Entry
from .predicate import And, Compare, Constant, Or, Predicate

MAX_FILES = 64  # with more files, their common bounds count
_KEY_TYPES = {
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
}


def key_columns(schema: Schema, names: Sequence[str] | str) -> tuple[Field, ...]:
    """Check the columns that a merge matches by; UsageError if equality of a column differs from
    equality of its stored values. [RC3]"""
    given = [names] if isinstance(names, str) else list(names)
    fields = tuple(find_column(schema, name) for name in given)
    if not fields or len({field.id for field in fields}) < len(fields):
        raise UsageError(f"on names one or more columns, each once, not {given!r}")
    for field in fields:
        if not isinstance(field.type, str) or not (
            field.type in _KEY_TYPES or decimal_parts(field.type)
        ):
            raise UsageError(
                f"on: the column {field.name!r} has the type {type_text(field.type)}, by "
                "which rows cannot be distinguished"
            )
        if has_own_order(field):
            raise UsageError(
                f"on: the column {field.name!r} is collated or padded, so that different "
                "values may be equal"
            )
    return fields


def may_hold(
    keys: Sequence[Field], files: Sequence[Entry], partition_by: Sequence[int]
) -> Predicate:
    """A predicate that is true of every row with the key of a row in these files, by their bounds
    and partitions. [RC3]

    partition_by: of the files, not of the table. A null equals nothing.
    """
    spans = [[_span(field, entry, partition_by) for field in keys] for entry in files]
    if len(spans) > MAX_FILES:
        spans = [[_around([bounds[index] for bounds in spans]) for index in range(len(keys))]]
    return Or(
        args=tuple(
            And(args=tuple(_between(f, span) for f, span in zip(keys, bounds, strict=True)))
            for bounds in spans
        )
    )


def partitions_of_keys(
    keys: Sequence[Field],
    files: Sequence[Entry],
    partition_by: Sequence[int],
    table_by: Sequence[int],
) -> tuple[PartitionPattern, ...]:
    """The table's partitions that may hold a row with the key of a row in these files. table_by:
    the table's partitioning. [CF16]"""
    told = [field.id for field in keys if field.id in table_by and field.id in partition_by]
    rows = [
        {field_id: entry.partition[list(partition_by).index(field_id)] for field_id in told}
        for entry in files
        if entry.rows
    ]
    return dedupe(row for row in rows if None not in row.values())


# the least and the greatest value; None: unknown; False: no value at all
_Span = tuple[Any, Any] | None | bool


def _span(field: Field, entry: Entry, partition_by: Sequence[int]) -> _Span:
    if field.id in partition_by:
        wire = entry.partition[list(partition_by).index(field.id)]
        return False if wire is None else _decoded(field, wire, wire)
    stats = entry.columns.get(field.id)
    if stats is None or stats.min is None or stats.max is None:
        return False if stats is not None and stats.nulls == entry.rows else None
    return _decoded(field, stats.min, stats.max)


def _decoded(field: Field, low: Any, high: Any) -> _Span:
    least, greatest = decode(low, field.type), decode(high, field.type)
    # A value that Python cannot hold (years beyond 9999) is given as a number.
    return (
        (least, greatest)
        if type(least) is type(greatest) and (not isinstance(least, int) or field.type in _WHOLE)
        else None
    )


_WHOLE = {"boolean", "byte", "short", "integer", "long"}


def _around(spans: Sequence[_Span]) -> _Span:
    known = [span for span in spans if span is not False]
    if not known:
        return False
    pairs = [span for span in known if isinstance(span, tuple)]
    if len(pairs) < len(known) or len({type(low) for low, _ in pairs}) > 1:
        return None
    return min(low for low, _ in pairs), max(high for _, high in pairs)


def _between(field: Field, span: _Span) -> Predicate:
    if not isinstance(span, tuple):
        return Constant(value=span is None)
    column = (field.name,)
    return And(
        args=(
            Compare(op=">=", column=column, value=span[0]),
            Compare(op="<=", column=column, value=span[1]),
        )
    )

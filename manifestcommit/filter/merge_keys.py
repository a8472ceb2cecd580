"""The key columns of a merge (upsert), and where a table may hold a row with one of the source's
keys. [RC3]

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UsageError
from ..format.entries import Entry
from ..format.evolution import find_column
from ..format.fields import EXACT, INTEGERS, MAX_FIELD_ID, Field, Schema, decimal_parts, type_text
from ..format.partitioning import PartitionPattern, dedupe
from ..format.spark_json import has_own_order
from ..format.values import decode
from .predicate import And, Compare, Constant, IsNull, Or, Predicate

MAX_FILES = 64  # with more files, their common bounds count


On = Sequence[str] | str | Mapping[str, str]


class MergeKeys(NamedTuple):
    """The columns that a merge compares. fields: of the table; names: of the source; null_safe:
    the ids of those of which a null is equal to a null. [RC3]"""

    fields: tuple[Field, ...]
    names: tuple[str, ...]
    null_safe: frozenset[int] = frozenset()

    @property
    def is_null_safe(self) -> list[bool]:
        """The same, for each column."""
        return [field.id in self.null_safe for field in self.fields]


def names_of(on: On) -> tuple[list[str], list[str]]:
    """The names of the columns in the table, and in the source."""
    if isinstance(on, str):
        return [on], [on]
    return list(on), list(on.values()) if isinstance(on, Mapping) else list(on)


def merge_keys(schema: Schema, on: On, null_safe: bool | Sequence[str] = False) -> MergeKeys:
    """The columns of these names. null_safe: all, or those of the table that are named. [RC3]"""
    given, names = names_of(on)
    fields = key_columns(schema, given)
    safe = given if null_safe is True else null_safe or ()
    ids = frozenset(find_column(schema, name).id for name in safe)
    if not ids <= {field.id for field in fields}:
        raise UsageError(f"null_safe is a flag, or names columns of the key, not {null_safe!r}")
    if len({name.lower() for name in names}) < len(names):
        raise UsageError(f"on names a column of the source twice: {names!r}")
    return MergeKeys(fields, tuple(names), ids)


def key_columns(schema: Schema, names: Sequence[str] | str) -> tuple[Field, ...]:
    """Check the columns of a merge's key; UsageError if equal is not equal as stored. [RC3]"""
    given = [names] if isinstance(names, str) else list(names)
    fields = tuple(find_column(schema, name) for name in given)
    if not fields or len({field.id for field in fields}) < len(fields):
        raise UsageError(f"on names one or more columns, each once, not {given!r}")
    for field in fields:
        if not _is_kind(field):
            raise UsageError(
                f"on: the column {field.name!r} has the type {type_text(field.type)}, by "
                "which rows cannot be distinguished"
            )
        if not is_ordered(field):
            raise UsageError(
                f"on: the column {field.name!r} is collated or padded, so that different "
                "values may be equal"
            )
    return fields


def _is_kind(field: Field) -> bool:
    is_one = isinstance(field.type, str)
    return is_one and (field.type in EXACT or decimal_parts(str(field.type)) is not None)


def is_ordered(field: Field) -> bool:
    """Whether values of the column are equal, less or greater as their stored values are."""
    return _is_kind(field) and not has_own_order(field)


def may_hold(keys: MergeKeys, files: Sequence[Entry], partition_by: Sequence[int]) -> Predicate:
    """A predicate that is true of every row with the key of a row in these files, by their bounds
    and partitions. [RC3]

    partition_by: of the files, not of the table. A null equals nothing, or a null.
    """
    fields = keys.fields
    spans = [[_span(field, entry, partition_by) for field in fields] for entry in files]
    nulls = [
        [f.id in keys.null_safe and _may_be_null(f, entry, partition_by) for f in fields]
        for entry in files
    ]
    if len(spans) > MAX_FILES:
        spans = [[_around([bounds[index] for bounds in spans]) for index in range(len(fields))]]
        nulls = [[any(each) for each in zip(*nulls, strict=True)]]
    return Or(
        args=tuple(
            And(args=tuple(map(_between, fields, *bounds)))
            for bounds in zip(spans, nulls, strict=True)
        )
    )


def partitions_of_keys(
    keys: MergeKeys,
    files: Sequence[Entry],
    partition_by: Sequence[int],
    table_by: Sequence[int],
) -> tuple[PartitionPattern, ...]:
    """The partitions that may hold a key of these files. table_by: the table's. [CF16]"""
    ids = {field.id for field in keys.fields}
    told = [each for each in table_by if each & MAX_FIELD_ID in ids and each in partition_by]
    rows = [
        {field_id: entry.partition[list(partition_by).index(field_id)] for field_id in told}
        for entry in files
        if entry.rows
    ]
    return dedupe(
        row
        for row in rows
        if all(v is not None or id & MAX_FIELD_ID in keys.null_safe for id, v in row.items())
    )


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


def _may_be_null(field: Field, entry: Entry, partition_by: Sequence[int]) -> bool:
    if field.id in partition_by:
        return entry.partition[list(partition_by).index(field.id)] is None
    stats = entry.columns.get(field.id)
    return stats is None or stats.nulls != 0


def _decoded(field: Field, low: Any, high: Any) -> _Span:
    least, greatest = decode(low, field.type), decode(high, field.type)
    # A value that Python cannot hold (years beyond 9999) is given as a number.
    return (
        (least, greatest)
        if type(least) is type(greatest) and (not isinstance(least, int) or field.type in _WHOLE)
        else None
    )


_WHOLE = {"boolean", *INTEGERS}


def _around(spans: Sequence[_Span]) -> _Span:
    known = [span for span in spans if span is not False]
    if not known:
        return False
    pairs = [span for span in known if isinstance(span, tuple)]
    if len(pairs) < len(known) or len({type(low) for low, _ in pairs}) > 1:
        return None
    return min(low for low, _ in pairs), max(high for _, high in pairs)


def _between(field: Field, span: _Span, or_null: bool) -> Predicate:
    column = (field.name,)
    held: Predicate = Constant(value=span is None)
    if isinstance(span, tuple):
        held = And(
            args=(
                Compare(op=">=", column=column, value=span[0]),
                Compare(op="<=", column=column, value=span[1]),
            )
        )
    return Or(args=(held, IsNull(column=column))) if or_null else held

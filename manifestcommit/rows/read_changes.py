"""The rows that were inserted, deleted and updated from one version to another, as Arrow's batches.
[CH1]-[CH6]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import DataFileMissingError, UsageError
from ..filter.merge_keys import key_columns
from ..format.arrow_schema import arrow_schema
from ..format.evolution import find_column
from ..format.fields import (
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    arrow_metadata,
    mark_of,
)
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..log.version_chain import open_head
from ..protocol.change_feed import CHANGE_COLUMNS, DELETE, INSERT, ChangeType, check_change_columns
from .bag_difference import bag_difference
from .rewrite import scan
from .version_changes import (
    Files,
    VersionChange,
    check_all_readable,
    check_columns,
    open_range,
    version_changes,
)

# Rows of one version as the columns of another: by their ids, whatever their names are.


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


Batches = Iterator[pa.RecordBatch]
_TYPES = (pa.string(), pa.int64(), pa.timestamp("us", "UTC"))


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that are to be read. end: the version whose columns they have; columns: those that
    are compared and shown; on: those of the key."""

    start: int
    end: Snapshot
    columns: tuple[Field, ...]
    on: tuple[str, ...]
    versions: tuple[VersionChange, ...]


def plan_changes(
    ctx: TableContext,
    start: int,
    end: int | None,
    *,
    on: Sequence[str] | str | None,
    columns: Sequence[str] | str | None,
) -> Plan:
    """What is to be read, or the error that says why not; no data file was opened. [CH1] [CH6]"""
    head, newest = open_range(ctx, start, end)
    last = newest.snapshot
    shown, keys = chosen_columns(last.schema or Schema(fields=()), on, columns)
    versions = version_changes(ctx, head, newest, start, shown)
    if not shown and versions:
        raise UsageError(
            f"version {last.version} of {ctx.store.url} has no columns; nothing was read. Read "
            "the changes up to another version"
        )
    check_columns(ctx.store.url, shown, last.version, versions)
    return Plan(start=start, end=last, columns=shown, on=keys, versions=tuple(versions))


def chosen_columns(
    schema: Schema, on: Sequence[str] | str | None, columns: Sequence[str] | str | None
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """The columns to compare and to show, and the names of the key's columns. [CH2] [CH4]"""
    names = [columns] if isinstance(columns, str) else columns
    if names is not None and (not names or len({*names}) < len(names)):
        raise UsageError(
            f"columns: expected names of columns, each once, got {list(names)}; nothing was read. "
            "Leave columns out for all of them"
        )
    shown = tuple(schema.fields if names is None else [find_column(schema, name) for name in names])
    check_change_columns(shown)
    keys = () if on is None else key_columns(schema, on)
    for key in keys:
        if all(column.id != key.id for column in shown):
            raise UsageError(
                f"on: the column {key.name!r} is not among the columns that are read; nothing was "
                "read. Name it in columns, too"
            )
    return shown, tuple(key.name for key in keys)


def read_changes(ctx: TableContext, plan: Plan) -> pa.RecordBatchReader:
    """The rows, version by version, and within a version in no particular order. [CH2]"""
    mark = arrow_metadata(mark_of(plan.end.table_id, ctx.store.url, plan.end.version))
    schema = changes_schema(plan.columns).with_metadata(mark)
    return pa.RecordBatchReader.from_batches(schema, _rows(ctx, plan, schema))


def _rows(ctx: TableContext, plan: Plan, schema: pa.Schema) -> Batches:
    try:
        for each in plan.versions:
            for batch in rows_of_change(ctx, each, plan.columns, plan.on):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except DataFileMissingError:
        head = open_head(ctx.store).snapshot
        check_all_readable(ctx.store.url, head, plan.start, plan.end.version)
        raise


def changes_schema(columns: Sequence[Field]) -> pa.Schema:
    """These columns of a table, and behind them those that only changed rows have. [CH2]"""
    shown = arrow_schema(Schema(fields=tuple(columns)), physical=False, ids=False)
    for name, kind in zip(CHANGE_COLUMNS, _TYPES, strict=True):
        shown = shown.append(pa.field(name, kind))
    return shown


def rows_of_change(
    ctx: TableContext, change: VersionChange, columns: Sequence[Field], on: Sequence[str]
) -> Batches:
    """The changed rows of one version, or of a part of it that is read by itself. [CH3] [CH4]"""
    removed, added = (
        _rows_of(ctx, files, columns) if files.entries.num_rows else None
        for files in (change.removed, change.added)
    )
    differing: Iterator[tuple[ChangeType, pa.RecordBatch]]
    if removed is None or added is None:  # all of them differ
        kind, rows = (INSERT, added) if removed is None else (DELETE, removed)
        differing = ((kind, batch) for batch in rows or ())
    else:
        differing = bag_difference(removed, added, on)
    schema = changes_schema(columns)
    for kind, batch in differing:
        if batch.num_rows:
            values = zip((kind, change.version, change.committed_at), _TYPES, strict=True)
            more = [pa.repeat(pa.scalar(value, type), batch.num_rows) for value, type in values]
            yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema)


def _rows_of(ctx: TableContext, files: Files, columns: Sequence[Field]) -> Batches:
    """The rows of files as the version that lists them has them, in these columns. [CH6]"""
    there = {field.id: field for field in (files.snapshot.schema or Schema(fields=())).fields}
    names = [there[field.id].name for field in columns if field.id in there]
    rows = scan(ctx, files.snapshot, files.entries, names)
    return (as_columns(batch, there, columns) for batch in rows)

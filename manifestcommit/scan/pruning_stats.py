"""The statistics that a filter is evaluated on, column by column: of entries, of row groups of a
manifest, and of whole manifests. [RD6] [RD12]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ..files.footer_stats import group_stats, tracked_leaves
from ..filter.predicate import ColumnBounds, Predicate, columns_of, may_match
from ..format import values
from ..format.arrow_schema import arrow_type
from ..format.entries import ManifestRef
from ..format.fields import FLOATS, Field, Schema, StructType, WireValue
from ..format.snapshot import Snapshot
from ..format.spark_json import has_own_order


class EntrySource:
    """The statistics of the entries of a table, for each column that a predicate names."""

    def __init__(
        self, table: pa.Table, schema: Schema, partition_by: Sequence[int], predicate: Predicate
    ) -> None:
        self._table = table.select([n for n in table.column_names if "." in n or n == "rows"])
        self._leaves = _comparable_fields(schema)
        self._partition_by = partition_by
        self._named = columns_of(predicate)

    @property
    def rows(self) -> pa.Array:
        return whole(self._table.column("rows"))

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._leaves.get(column)
        if field is None or column not in self._named:
            return None
        if field.id in self._partition_by:
            value = whole(self._table.column(f"partition.{field.id}"))
            nulls = pc.if_else(value.is_null(), self.rows, 0)
            return ColumnBounds(min=value, max=value, nulls=nulls, nans=_zeros(len(value)))
        if f"min.{field.id}" not in self._table.column_names:
            return None
        low, high, nulls, nans = (
            whole(self._table.column(f"{name}.{field.id}"))
            for name in ("min", "max", "nulls", "nans")
        )
        return ColumnBounds(
            min=low,
            max=high,
            nulls=nulls,
            nans=nans if field.type in FLOATS else _zeros(len(low)),
        )


class Footer(Protocol):
    """The footer of a manifest: Parquet's metadata, the Arrow schema of its columns, and the number
    of each column by name."""

    @property
    def metadata(self) -> Any: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def positions(self) -> Mapping[str, int]: ...


class RowGroupSource:
    """The statistics of the entries in each row group, from the footers of one or more manifests,
    in order. [RD12]

    An entry that does not know a bound has null there, and the statistics of a row group skip
    nulls: if there is one, the bound of the row group is unknown. It is also unknown if a manifest
    does not have the column.
    """

    def __init__(
        self, footers: Sequence[Footer], schema: Schema, partition_by: Sequence[int]
    ) -> None:
        self._footers = [
            (
                footer,
                [footer.metadata.row_group(at) for at in range(footer.metadata.num_row_groups)],
            )
            for footer in footers
        ]
        self._leaves = _comparable_fields(schema)
        self._partition_by = partition_by

    @property
    def rows(self) -> pa.Array:
        """The number of entries, which serves as the number of their rows, as long as one of them
        has any."""
        none = [
            stats is not None and stats.has_min_max and stats.max == 0
            for stats in self._statistics("rows")
        ]
        entries = (group.num_rows for _, groups in self._footers for group in groups)
        return pa.array(
            [0 if empty else count for empty, count in zip(none, entries, strict=True)], pa.int64()
        )

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._leaves.get(column)
        if field is None:
            return None
        if field.id in self._partition_by:
            name = f"partition.{field.id}"
            nulls = [
                stats.null_count if stats is not None and stats.has_null_count else None
                for stats in self._statistics(name)
            ]
            low, high = (
                self._ends(name, field, "min", with_nulls=True),
                self._ends(name, field, "max", with_nulls=True),
            )
            return ColumnBounds(
                min=low, max=high, nulls=pa.array(nulls, pa.int64()), nans=_zeros(len(low))
            )
        low = self._ends(f"min.{field.id}", field, "min", with_nulls=False)
        high = self._ends(f"max.{field.id}", field, "max", with_nulls=False)
        nans = self._no_rows(f"nans.{field.id}") if field.type in FLOATS else _zeros(len(low))
        return ColumnBounds(min=low, max=high, nulls=self._no_rows(f"nulls.{field.id}"), nans=nans)

    def _statistics(self, name: str) -> Iterator[Any]:
        for footer, groups in self._footers:
            at = footer.positions.get(name)
            yield from (None if at is None else group.column(at).statistics for group in groups)

    def _ends(
        self, name: str, field: Field, end: Literal["min", "max"], *, with_nulls: bool
    ) -> pa.Array:
        """The least or greatest value of each row group in the column's type; null: unknown."""
        kind = arrow_type(field.type)
        told = (
            stats if _tells(stats, with_nulls=with_nulls) else None
            for stats in self._statistics(name)
        )
        stored = (_stored(footer.schema, name) for footer, groups in self._footers for _ in groups)
        # one run, unless the column was widened between two manifests
        runs = groupby(zip(stored, told, strict=True), key=itemgetter(0))
        return pa.concat_arrays(
            [_typed([stats for _, stats in run], end, as_stored, kind) for as_stored, run in runs]
        )

    def _no_rows(self, name: str) -> pa.Array:
        """0 if every entry counts none, otherwise unknown."""
        none = [
            _tells(stats, with_nulls=False) and stats.max == 0 for stats in self._statistics(name)
        ]
        return pa.array([0 if is_empty else None for is_empty in none], pa.int64())


class ManifestSource:
    """The statistics in the references, for each partition column: the bounds of all entries of a
    manifest."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._references = snapshot.manifests
        self._partition_by = snapshot.partition_by
        self._leaves = _comparable_fields(snapshot.schema or Schema(fields=()))

    @property
    def rows(self) -> pa.Array:
        return pa.array([ref.rows for ref in self._references], pa.int64())

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._leaves.get(column)
        if field is None or field.id not in self._partition_by:
            return None
        index = self._partition_by.index(field.id)
        low = values.to_array([_at(ref.lower, index) for ref in self._references], field.type)
        high = values.to_array([_at(ref.upper, index) for ref in self._references], field.type)
        nulls = pa.array([self._nulls(ref, index) for ref in self._references], pa.int64())
        return ColumnBounds(min=low, max=high, nulls=nulls, nans=_zeros(len(low)))

    def _nulls(self, ref: ManifestRef, index: int) -> int | None:
        return 0 if index < len(ref.nulls) and not ref.nulls[index] else None


def leaf_fields(schema: Schema) -> dict[tuple[str, ...], Field]:
    """Every primitive column that is reached through structs only, by its path of user-visible
    names."""
    columns: dict[tuple[str, ...], Field] = {}

    def walk(fields: Sequence[Field], above: tuple[str, ...]) -> None:
        for field in fields:
            if isinstance(field.type, StructType):
                walk(field.type.fields, (*above, field.name))
            elif isinstance(field.type, str):
                columns[(*above, field.name)] = field

    walk(schema.fields, ())
    return columns


def _comparable_fields(schema: Schema) -> dict[tuple[str, ...], Field]:
    """Of these columns those whose values engines compare as they are stored: bounds say nothing
    of the others. [RD6]"""
    return {path: field for path, field in leaf_fields(schema).items() if not has_own_order(field)}


def columns_for(
    predicate: Predicate, schema: Schema, partition_by: Sequence[int]
) -> frozenset[str]:
    """The columns of a manifest that decide whether an entry may match; some manifests may lack
    some of them. [RD12]"""
    known = leaf_fields(schema)
    ids = [known[path].id for path in columns_of(predicate) if path in known]
    named = {f"partition.{field_id}" for field_id in ids if field_id in partition_by}
    named |= {
        f"{name}.{field_id}"
        for field_id in ids
        if field_id not in partition_by
        for name in ("min", "max", "nulls", "nans")
    }
    return frozenset({"rows", *named})


def whole(column: pa.ChunkedArray) -> pa.Array:
    """The column as one chunk."""
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _tells(statistics: Any, *, with_nulls: bool) -> bool:
    """Whether these statistics bound all values, and, if nulls count, there are none."""
    if statistics is None or not statistics.has_min_max:
        return False
    return with_nulls or bool(statistics.has_null_count and statistics.null_count == 0)


def _stored(schema: pa.Schema, name: str) -> pa.DataType | None:
    at = schema.get_field_index(name)
    return None if at < 0 else schema.field(at).type


def _typed(
    told: Sequence[Any], end: Literal["min", "max"], stored: pa.DataType | None, kind: pa.DataType
) -> pa.Array:
    """One end of statistics, all from columns stored in one type, in the column's present type."""
    if stored is None:
        return pa.nulls(len(told), kind)
    try:
        if pa.types.is_temporal(stored):  # Python cannot represent all of these times
            raw = [getattr(stats, f"{end}_raw", None) for stats in told]
            return (
                pa.array(raw, pa.int32() if stored.bit_width == 32 else pa.int64())
                .view(stored)
                .cast(kind)
            )
        return pa.array([getattr(stats, end, None) for stats in told], stored).cast(kind)
    # out of the column's range: reading it will raise the error
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(len(told), kind)


def _zeros(length: int) -> pa.Array:
    return pa.repeat(pa.scalar(0, pa.int64()), length)


def _at(items: Sequence[WireValue], index: int) -> WireValue:
    return items[index] if index < len(items) else None


# Prunes row groups: which ones of a data file a reader must decode, by the statistics in its
# footer.


def matching_groups(
    metadata: Any, file_schema: pa.Schema, schema: Schema, predicate: Predicate | None
) -> Sequence[int]:
    """The numbers of the row groups that may hold a row for which the predicate is true; all,
    without a predicate. [RD13]

    metadata, file_schema: of the Parquet file; schema: the table's, whose names the predicate uses.
    """
    if predicate is None:
        return range(metadata.num_row_groups)
    kept: list[int] = pc.indices_nonzero(
        may_match(predicate, _Groups(metadata, file_schema, schema))
    ).to_pylist()
    return kept


class _Groups:
    """The statistics of each row group of a data file. Footers do not count NaN: any row group may
    have some."""

    def __init__(self, metadata: Any, file_schema: pa.Schema, schema: Schema) -> None:
        self._metadata = metadata
        self._named = _comparable_fields(schema)
        self._tracked = {leaf.id: leaf for leaf in tracked_leaves(schema, file_schema, sys.maxsize)}

    @property
    def rows(self) -> pa.Array:
        groups = (self._metadata.row_group(index) for index in range(self._metadata.num_row_groups))
        return pa.array([group.num_rows for group in groups], pa.int64())

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._named.get(column)
        leaf = None if field is None else self._tracked.get(field.id)
        if field is None or leaf is None:
            return None
        known = group_stats(self._metadata, leaf)
        low, high = (
            values.to_array(ends, field.type)
            for ends in ([stats.min for stats in known], [stats.max for stats in known])
        )
        nans = (
            pa.nulls(len(known), pa.int64())
            if pa.types.is_floating(low.type)
            else pa.repeat(pa.scalar(0, pa.int64()), len(known))
        )
        return ColumnBounds(
            min=low,
            max=high,
            nulls=pa.array([stats.nulls for stats in known], pa.int64()),
            nans=nans,
        )

"""Derives an entry's bounds from the statistics in a Parquet footer. [OB7]

A bound is kept only if
it is certainly true: a statistic that is missing, odd or not representable is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..format import values
from ..format.entries import ColumnStats
from ..format.fields import COLLATIONS, DAY_US, FLOATS, Leaf, Path, Schema, leaves
from ..format.values import plain_type

BOUND_LENGTH = 64  # code points of a text bound, bytes of a binary one

UNORDERED = frozenset({"void", "variant"})
# Programs, as footers name them, that order decimals by value.
_ORDERING = frozenset({"parquet-cpp-arrow", "parquet-rs", "DuckDB", "Polars"})
_ORDERING_PARQUET_MR = (1, 10)
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def tracked_leaves(schema: Schema, columns: Sequence[ParquetColumn], limit: int) -> list[Leaf]:
    """The table's first `limit` leaves below structs only, if a file has them. columns: of the
    file. [OB7]"""
    by_path = {column.path: column for column in columns if column.is_single}
    return [
        msgspec.structs.replace(
            leaf,
            position=column.position,
            stored=column.type,
            bounded=leaf.type not in UNORDERED and not leaf.metadata.get(COLLATIONS),
        )
        for leaf in leaves(schema)[: max(limit, 0)]
        if (column := by_path.get(leaf.path)) is not None
    ]


class ParquetColumn(NamedTuple):
    """A leaf of a Parquet file. position: its number there; path: names from the top, `element`,
    `key` and `value` inside arrays and maps; name: as pyarrow writes it; is_single: whether it has
    one value per row, because it is reached through structs only."""

    position: int
    path: Path
    name: str
    type: Any
    is_single: bool


def parquet_columns(file_schema: pa.Schema) -> list[ParquetColumn]:
    """Every leaf, in Parquet's order."""
    found: list[tuple[Path, str, pa.DataType, bool]] = []
    for field in file_schema:
        found += _columns_below((field.name,), field.name, field.type, True)
    return [ParquetColumn(at, *leaf) for at, leaf in enumerate(found)]


def _columns_below(
    path: Path, name: str, type: pa.DataType, is_single: bool
) -> Iterator[tuple[Path, str, pa.DataType, bool]]:
    if not pa.types.is_primitive(type):
        type = plain_type(type.storage_type if isinstance(type, pa.BaseExtensionType) else type)
    if not pa.types.is_nested(type):
        yield path, name, type, is_single
    elif pa.types.is_struct(type):
        for child in type:
            below = (*path, child.name), f"{name}.{child.name}"
            yield from _columns_below(*below, child.type, is_single)
    elif pa.types.is_map(type):
        for part, inside in (("key", type.key_type), ("value", type.item_type)):
            yield from _columns_below((*path, part), f"{name}.key_value.{part}", inside, False)
    else:
        below = (*path, "element"), f"{name}.list.element"
        yield from _columns_below(*below, type.value_type, False)


class FloatStats(NamedTuple):
    """Statistics of a float leaf in a row group: Parquet's own omit NaN, and readers trust them."""

    nulls: int
    nans: int
    min: float | None
    max: float | None


def float_stats(table: pa.Table, leaves: Sequence[Leaf]) -> dict[int, FloatStats]:
    """The statistics of every float or double leaf of these rows. [OB7]"""
    stats = {}
    for leaf in leaves:
        if leaf.type in FLOATS:
            column = table.column(leaf.path[0])
            if len(leaf.path) > 1:
                column = pc.struct_field(column, list(leaf.path[1:]))
            is_nan = pc.is_nan(column)
            nans = pc.sum(is_nan, min_count=0).as_py()
            ends = pc.min_max(pc.if_else(is_nan, None, column) if nans else column).values()
            stats[leaf.id] = FloatStats(column.null_count, nans, *(end.as_py() for end in ends))
    return stats


def column_stats(
    metadata: Any, leaves: Sequence[Leaf], floats: Sequence[Mapping[int, FloatStats]] | None
) -> dict[int, ColumnStats]:
    """Reliable statistics of a file from its row groups; floats: those of its float leaves per row
    group, None: not counted. [OB7]"""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    stats = {}
    for leaf in leaves:
        if floats is not None and leaf.type in FLOATS:
            counts = [group[leaf.id] for group in floats]
            nulls, nans = sum(each.nulls for each in counts), sum(each.nans for each in counts)
            kept = ColumnStats(nulls=nulls, nans=nans)
            bounds = [end for each in counts for end in (each.min, each.max) if end is not None]
        else:
            chunks = [group.column(leaf.position) for group in groups]
            kept, bounds = _leaf_stats(chunks, leaf, metadata.created_by)
        if bounds:
            kept = _with_bounds(kept, min(bounds), max(bounds), leaf.type)
        if kept != ColumnStats():
            stats[leaf.id] = kept
    return stats


def _leaf_stats(
    chunks: Sequence[Any], leaf: Leaf, created_by: str | None
) -> tuple[ColumnStats, list[Any]]:
    """The number of nulls, and the least and greatest value of each row group, if all are known."""
    group_statistics = [chunk.statistics for chunk in chunks]
    nulls = [s.null_count if s is not None and s.has_null_count else None for s in group_statistics]
    kept = ColumnStats(nulls=None if None in nulls else sum(n for n in nulls if n is not None))
    bounds: list[Any] = []
    if not leaf.bounded:
        return kept, bounds
    for chunk, statistics, null_count in zip(chunks, group_statistics, nulls, strict=True):
        if null_count is not None and null_count == chunk.num_values:
            continue  # this row group has no value for a bound to cover
        if statistics is None or not statistics.has_min_max:
            return kept, []
        if not are_ordered(chunk.physical_type, leaf.stored, created_by):
            return kept, []
        low, high = _comparable(statistics.min_raw, leaf), _comparable(statistics.max_raw, leaf)
        if low is None or high is None or low > high:
            return kept, []
        bounds += (low, high)
    return kept, bounds


def are_ordered(physical: str, stored: pa.DataType, created_by: str | None) -> bool:
    """Whether a writer takes the least and greatest value of a column in the order of its values.
    Old ones compare INT96, and decimals that are stored as bytes, byte by byte. pyarrow itself
    shows no such statistics of texts and unsigned numbers. [OB7]"""
    if physical == "INT96":
        return False
    if not pa.types.is_decimal(stored) or physical not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return True
    program = (created_by or "").partition(" version ")
    if program[0] != "parquet-mr":
        return program[0] in _ORDERING
    release = re.match(r"(\d+)\.(\d+)\.", program[2])
    return release is not None and (int(release[1]), int(release[2])) >= _ORDERING_PARQUET_MR


def _comparable(raw: Any, leaf: Leaf) -> Any:
    """A stored statistic as bytes, bool, int, float or Decimal; None if it is unusable."""
    stored, type = leaf.stored, leaf.type
    if pa.types.is_decimal(stored):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -stored.scale))
    if pa.types.is_timestamp(stored):
        return raw * _MICROSECONDS[stored.unit] if stored.unit in _MICROSECONDS else None
    if pa.types.is_date32(stored):
        return raw * DAY_US if type == "timestamp_ntz" else raw
    if pa.types.is_floating(stored):
        return raw if isinstance(raw, float) and not math.isnan(raw) else None
    if pa.types.is_integer(stored):
        # Parquet stores large unsigned numbers as negative ones.
        if pa.types.is_uint32(stored) or pa.types.is_uint64(stored):
            return None
        return float(raw) if type == "double" else raw
    return raw if isinstance(raw, bool | int | bytes) else None


def _with_bounds(kept: ColumnStats, low: Any, high: Any, type: str) -> ColumnStats:
    try:
        if type == "string":
            return _with_cut_bounds(kept, low.decode("utf-8"), high.decode("utf-8"), type)
        if type == "binary":
            return _with_cut_bounds(kept, low, high, type)
        if isinstance(low, float):
            # Parquet may record 0.0 where the rows hold -0.0, and vice versa.
            low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
        least, most = values.encode(low, type), values.encode(high, type)
        return msgspec.structs.replace(kept, min=least, max=most)
    except (UsageError, UnicodeDecodeError):
        return kept  # another writer recorded statistics that are not values of the column's type


def _with_cut_bounds(kept: ColumnStats, low: Any, high: Any, type: str) -> ColumnStats:
    """Texts, or bytes, no longer than bounds are: a cut upper one is rounded up."""
    is_cut, least, most = len(high) > BOUND_LENGTH, low[:BOUND_LENGTH], high[:BOUND_LENGTH]
    if is_cut:
        most = values.after_prefix(most) if type == "string" else _rounded_up_bytes(most)
    if type == "binary":
        least, most = values.encode(least, type), values.encode(most, type)
    cuts = {"min_cut": len(low) > BOUND_LENGTH, "max_cut": is_cut and most is not None}
    return msgspec.structs.replace(kept, min=least, max=most, **cuts)


def _rounded_up_bytes(prefix: bytes) -> bytes | None:
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None

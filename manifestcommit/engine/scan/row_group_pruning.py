"""Prunes row groups: which ones of a data file a reader must decode, by the statistics in its
footer. [RD13]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.filter.predicate import ColumnBounds, Predicate, may_match
from ...core.schema import values
from ...core.schema.fields import Schema
from ...core.schema.spark_json import has_own_order
from ..datafile.footer_stats import group_stats, tracked_leaves
from .pruning_stats import leaf_fields


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
        self._named = leaf_fields(schema)
        self._tracked = {leaf.id: leaf for leaf in tracked_leaves(schema, file_schema, sys.maxsize)}

    @property
    def rows(self) -> pa.Array:
        groups = (self._metadata.row_group(index) for index in range(self._metadata.num_row_groups))
        return pa.array([group.num_rows for group in groups], pa.int64())

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._named.get(column)
        leaf = None if field is None else self._tracked.get(field.id)
        if field is None or leaf is None or has_own_order(field):
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

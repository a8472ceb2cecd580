"""Which row groups of a data file a reader must decode: those that its footer does not prove to hold no matching row. [RD13]

Not here: what statistics of a footer are worth (engine.footer), which files must be opened at all (engine.plan).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core import values
from ..core.predicate import ColumnBounds, Predicate, may_match
from ..core.schema import Schema
from ..core.spark_types import has_own_order
from .footer import group_stats, tracked_leaves
from .sources import leaf_fields


def matching_groups(metadata: Any, file_schema: pa.Schema, schema: Schema, predicate: Predicate | None) -> Sequence[int]:
    """The numbers of the row groups that may hold a row for which the predicate is true; all without one. [RD13]

    metadata, file_schema: of the Parquet file; schema: the table's, whose names the predicate has.
    """
    if predicate is None:
        return range(metadata.num_row_groups)
    found: list[int] = pc.indices_nonzero(may_match(predicate, _Groups(metadata, file_schema, schema))).to_pylist()
    return found


class _Groups:
    """What a data file's footer says of each of its row groups. Nobody counts NaN there: there may be some in each of them."""

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
        low, high = (values.to_array(ends, field.type) for ends in ([each.min for each in known], [each.max for each in known]))
        nans = pa.nulls(len(known), pa.int64()) if pa.types.is_floating(low.type) else pa.repeat(pa.scalar(0, pa.int64()), len(known))
        return ColumnBounds(min=low, max=high, nulls=pa.array([each.nulls for each in known], pa.int64()), nans=nans)

"""Chooses the columns of a file that get a dictionary.

A writer drops a dictionary that outgrows its page in the middle of a row group. By then it has
hashed every value, and what it has written is larger than the plain values are once compressed. Not
here: writing (engine.datafile.writer).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .footer_stats import parquet_paths

SAMPLE_ROWS = 20_000
# Of 20,000 rows drawn from 200,000 or more distinct values, fewer than 5 in 100 repeat a value; a
# dictionary of that size is too large.
_MOST_DISTINCT = 0.95


def dictionary_columns(group: pa.Table) -> list[str]:
    """The Parquet columns that get a dictionary, for files like this row group: all but those with
    hardly a repeated value.

    It samples 20,000 rows from the whole group. A smaller group is not representative, and all its
    columns get one.
    """
    paths = parquet_paths(group.schema)
    if group.num_rows < SAMPLE_ROWS:
        return [leaf for leaves in paths.values() for leaf in leaves]
    rows = pa.array(np.arange(0, group.num_rows, group.num_rows // SAMPLE_ROWS))
    return [
        path
        for name, inside in paths.items()
        if not _is_distinct(group.column(name), rows)
        for path in inside
    ]


def _is_distinct(column: pa.ChunkedArray, rows: pa.Array) -> bool:
    """Whether hardly a value of the column repeats; nested columns are not examined."""
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return False
    sample = column.take(rows)
    return bool(
        pc.count_distinct(sample, mode="only_valid").as_py()
        > _MOST_DISTINCT * max(1, len(sample) - sample.null_count)
    )

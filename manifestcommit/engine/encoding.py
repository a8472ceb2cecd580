"""Which columns of a file are worth a dictionary.

A dictionary that outgrows its page is given up in the middle of a row group: until then every value was hashed, and what was written by
then is larger than the plain values are once they are compressed. Not here: writing (engine.files).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from .footer import parquet_paths

SAMPLE_ROWS = 20_000
# Of 20,000 rows drawn from 200,000 or more different values, fewer than 5 in 100 are there twice; a dictionary of so many is too large.
_MOST_DISTINCT = 0.95


def dictionary_columns(group: pa.Table) -> list[str]:
    """The Parquet columns of files like this row group that shall have a dictionary: not those with hardly a value twice.

    Looks at 20,000 rows from all over the group; a smaller one does not tell, and all columns have one.
    """
    paths = parquet_paths(group.schema)
    if group.num_rows < SAMPLE_ROWS:
        return [path for each in paths.values() for path in each]
    rows = pa.array(range(0, group.num_rows, group.num_rows // SAMPLE_ROWS), pa.int64())
    return [path for name, inside in paths.items() if not _is_distinct(group.column(name), rows) for path in inside]


def _is_distinct(column: pa.ChunkedArray, rows: pa.Array) -> bool:
    """Whether hardly a value of the column is there twice; of nested columns nobody knows."""
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return False
    sample = column.take(rows)
    return bool(pc.count_distinct(sample, mode="only_valid").as_py() > _MOST_DISTINCT * max(1, len(sample) - sample.null_count))

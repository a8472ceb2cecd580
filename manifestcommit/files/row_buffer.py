"""Buffers rows within a budget, splits them by partition, and cuts them into row groups.

Nothing in this module looks at single rows
in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SchemaMismatchError, UsageError
from ..format import values
from ..format.fields import FieldType, WireValue

# Reads rows from any object that holds Arrow data, without Spark: one schema and a stream of
# batches.

_ACCEPTED = (
    "a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas (2.2 or "
    "later) or polars DataFrame, a DuckDB "
    "relation, or anything else with __arrow_c_stream__ that yields columns"
)


def record_batches(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of `data`, read once and in order; UsageError names the
    accepted types. [SC3]

    Named levels of a pandas index become columns, an unnamed index is dropped. The iterator passes
    on errors of the source unchanged.
    """
    reader = _reader(data)
    schema = reader.schema
    if b"pandas" in (schema.metadata or {}):
        schema = schema.with_metadata(
            {key: value for key, value in schema.metadata.items() if key != b"pandas"} or None
        )
    return schema, iter(reader)


def _reader(data: Any) -> pa.RecordBatchReader:
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    if type(data).__module__.startswith("polars") and hasattr(data, "collect"):
        raise UsageError(f"data is a {kind}, which holds no rows yet: call .collect() on it first.")
    if type(data).__qualname__ == "DuckDBPyConnection":  # the type that its execute() returns
        raise UsageError(
            f"data is a {kind}, which is no rows by itself: give the relation that its "
            ".sql(…) returns."
        )
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data
    # detected without an import
    if any(base.__module__.startswith("pyarrow._dataset") for base in type(data).__mro__):
        scanner = data.scanner() if hasattr(data, "scanner") else data
        return scanner.to_reader()
    is_pandas = type(data).__module__.startswith("pandas") and hasattr(data, "reset_index")
    is_pandas = is_pandas and hasattr(data, "columns")
    if is_pandas:
        data = _without_index(data)
    if not hasattr(data, "__arrow_c_stream__") or (kind.startswith("pandas") and not is_pandas):
        raise UsageError(f"data is a {kind}. Accepted: {_ACCEPTED}.")
    _check_names(data)
    try:
        if is_pandas:  # as its stream does, whose names end at a NUL
            return pa.Table.from_pandas(data).to_reader()
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(
            f"data is a {kind}, whose Arrow stream could not be opened: {error}. Accepted: "
            f"{_ACCEPTED}."
        ) from error


def _check_names(data: Any) -> None:
    """SchemaMismatchError for a NUL in a name: Arrow's C interface would cut the name there."""
    names = [name for name in getattr(data, "columns", ()) if isinstance(name, str)]
    kinds = list(getattr(data, "dtypes", ()))
    while kinds:  # of Polars, nested
        kind = kinds.pop()
        for member in getattr(kind, "fields", None) or ():
            names.append(getattr(member, "name", ""))
            kinds.append(getattr(member, "dtype", None))
        if (inner := getattr(kind, "inner", None)) is not None:
            kinds.append(inner)
    for name in names:
        if "\0" in name:
            raise SchemaMismatchError(
                f"The column name {name!r} has the character NUL, at which other programs end a "
                "name. Rename the column."
            )


def _without_index(frame: Any) -> Any:
    """The frame with the named levels of its index as columns. pandas itself would also write
    unnamed levels, and would omit a named range."""
    named = [name for name in frame.index.names if name is not None]
    try:
        return (frame.reset_index(level=named) if named else frame).reset_index(drop=True)
    except ValueError as error:
        raise UsageError(
            f"data has an index that cannot become columns: {error}. Rename or reset the "
            "index first."
        ) from error


# The size of a row group: large enough for encoders and readers to be efficient, small enough for a
# task's memory.
ROW_GROUP_BYTES = 64 * 1024 * 1024
ROW_GROUP_ROWS = 1_000_000
# Bytes that wait for more rows of their partition. While a full buffer is sorted, it exists twice
# for a moment.
BUFFER_BYTES = 128 * 1024 * 1024
# Many small batches take more memory than their sizes say: more than this many are joined.
_MAX_BATCHES = 1024
_MAX_JOINED_APART = 64
_INT32_MAX = 2**31 - 1

Partition: TypeAlias = tuple[WireValue, ...]


class PartitionSource(NamedTuple):
    """What a partition column is made of: the name of a column of the batches, the type of the
    partition's values, and the function that makes them of that column's."""

    name: str
    type: FieldType
    values: Callable[[Any], Any] = lambda column: column


class _Run(NamedTuple):
    """Adjacent rows of one partition in a sorted table."""

    partition: Partition
    start: int
    rows: int


class _Waiting:
    """Batches in the order of their arrival."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.bytes = 0
        self.rows = 0

    def append(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.bytes += batch.nbytes
        self.rows += batch.num_rows

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)

    def join(self) -> None:
        """Copy all batches into one."""
        self.batches = self.table().combine_chunks().to_batches()


class RowBuffer:
    """Buffers rows in the order of their arrival until a row group of their partition is full or
    the budget is spent. No row is lost or duplicated. [DF3]

    Batches with rows of a single partition wait per partition. From the first mixed batch on, all
    rows wait in one line and are sorted when the budget is spent: thousands of partitions in random
    order cost one sort per buffer, not a slice per batch and partition, and no slice keeps the
    memory of released rows.
    """

    def __init__(
        self,
        partition_columns: tuple[PartitionSource, ...],
        *,
        row_group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        """partition_columns: in the order of the table's partition_by."""
        self._columns = partition_columns
        self._row_group_bytes = row_group_bytes
        self._apart: dict[Partition, _Waiting] = {}
        self._line: _Waiting | None = None  # while it is set, no rows wait per partition
        self._batches = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.Table]]:
        """Add rows; yield the row groups that are due, in the order of arrival. Exhaust it."""
        partition = self._only_partition(batch)
        self._append(partition, batch)
        if partition is not None and self._line is None:
            waiting = self._apart[partition]
            if waiting.bytes >= self._row_group_bytes or waiting.rows >= ROW_GROUP_ROWS:
                yield partition, self._take(partition)
        if self.bytes >= BUFFER_BYTES:
            yield from self._release(BUFFER_BYTES // 2, frozenset())
        elif self._batches > _MAX_BATCHES:
            self._join()

    def drain(
        self, first: Container[Partition] = frozenset()
    ) -> Iterator[tuple[Partition, pa.Table]]:
        """Yield all waiting rows, each partition once, those in `first` before the others."""
        yield from self._release(0, first)

    def _append(self, partition: Partition | None, batch: pa.RecordBatch) -> None:
        if partition is None and self._line is None:
            self._line_up()
        waiting = self._line
        if waiting is None:
            assert partition is not None
            waiting = self._apart.setdefault(partition, _Waiting())
        before = waiting.bytes
        waiting.append(batch)
        self.bytes += waiting.bytes - before
        self._batches += 1

    def _line_up(self) -> None:
        """Move all partitions into one line, in which the rows of each keep their order."""
        self._line = _Waiting()
        for waiting in self._apart.values():
            for batch in waiting.batches:
                self._line.append(batch)
        self._apart = {}

    def _join(self) -> None:
        if self._line is None and len(self._apart) > _MAX_JOINED_APART:
            self._line_up()
        joined = list(self._apart.values()) if self._line is None else [self._line]
        for waiting in joined:
            waiting.join()
        self._batches = sum(len(waiting.batches) for waiting in joined)

    def _release(
        self, keep: int, first: Container[Partition]
    ) -> Iterator[tuple[Partition, pa.Table]]:
        """Yield the largest partitions until at most `keep` bytes wait."""
        if self._line is not None:
            yield from self._release_line(keep, first)
            return
        for partition in sorted(self._apart, key=lambda p: (p not in first, -self._apart[p].bytes)):
            if keep and self.bytes <= keep:
                break
            yield partition, self._take(partition)

    def _release_line(
        self, keep: int, first: Container[Partition]
    ) -> Iterator[tuple[Partition, pa.Table]]:
        table, runs = self._sorted()
        row_bytes = table.nbytes / table.num_rows
        runs.sort(key=lambda run: (run.partition not in first, -run.rows))
        waiting = float(table.nbytes)
        released = 0
        for run in runs:
            if keep and waiting <= keep:
                break
            yield run.partition, table.slice(run.start, run.rows)
            waiting -= run.rows * row_bytes
            released += 1
        if kept := runs[released:]:
            # A copy: slices would keep the memory of the released rows.
            rest = pa.concat_tables(
                [table.slice(run.start, run.rows) for run in kept]
            ).combine_chunks()
            for batch in rest.to_batches():
                self._append(kept[0].partition if len(kept) == 1 else None, batch)

    def _take(self, partition: Partition) -> pa.Table:
        waiting = self._apart.pop(partition)
        self.bytes -= waiting.bytes
        self._batches -= len(waiting.batches)
        return waiting.table()

    def _only_partition(self, batch: pa.RecordBatch) -> Partition | None:
        """The partition of all rows; None if there are several."""
        partition: list[WireValue] = []
        for name, type, values_of in self._columns:
            column = values_of(batch.column(name))
            if (
                column[0] != column[-1]
                or len(column.dictionary_encode(null_encoding="encode").dictionary) > 1
            ):
                return None
            partition += values.from_array(column.slice(0, 1), type)
        return tuple(partition)

    def _sorted(self) -> tuple[pa.Table, list[_Run]]:
        """Empty the buffer: return its rows, stably sorted by partition, and where each begins."""
        assert self._line is not None
        table = self._line.table().combine_chunks()
        self._line, self.bytes, self._batches = None, 0, 0
        codes = self._codes(table)
        order = pc.sort_indices(codes)
        ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
        starts = [0, *ends[:-1]]
        firsts = order.take(pa.array(starts, pa.int64()))
        wires = [
            values.from_array(values_of(table.column(name).take(firsts)), type)
            for name, type, values_of in self._columns
        ]
        partitions = zip(*wires, strict=True)
        runs = [
            _Run(*run)
            for run in zip(partitions, starts, map(int.__sub__, ends, starts), strict=True)
        ]
        return table.take(order), runs

    def _codes(self, table: pa.Table) -> pa.Array:
        """A number per row, equal for equal partitions."""
        codes = None
        for name, _, values_of in self._columns:
            whole = values_of(pa.concat_arrays(table.column(name).chunks))
            encoded = whole.dictionary_encode(null_encoding="encode")
            if codes is None:
                codes = encoded.indices
                continue
            pairs = pc.add(
                pc.multiply(codes.cast(pa.int64()), len(encoded.dictionary)),
                encoded.indices.cast(pa.int64()),
            )
            # dense again, so that no product overflows
            codes = pairs.dictionary_encode().indices
        return codes


def row_groups(table: pa.Table, row_group_bytes: int = ROW_GROUP_BYTES) -> Iterator[pa.Table]:
    """Split the table into parts of about one row group each, as even as possible."""
    parts = max(1, round(table.num_rows / ROW_GROUP_ROWS), round(table.nbytes / row_group_bytes))
    size = math.ceil(table.num_rows / parts)
    for start in range(0, table.num_rows, max(size, 1)):
        yield table.slice(start, size)


def bytes_of(batch: pa.RecordBatch) -> int:
    """The bytes of the rows in memory; of the buffers where pyarrow (before 24) has no other."""
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())


def pieces(
    batch: pa.RecordBatch, row_group_bytes: int = ROW_GROUP_BYTES
) -> Iterator[pa.RecordBatch]:
    """Slices of the batch, none larger than a row group, nor is its copy; none if it is empty."""
    rows, size_bytes = batch.num_rows, bytes_of(batch)
    size = (
        ROW_GROUP_ROWS
        if not size_bytes
        else max(1, min(ROW_GROUP_ROWS, rows * row_group_bytes // size_bytes))
    )
    # Arrow cannot cast a large_string that lies beyond 2 GiB in its buffer to string, however short
    # the slice is: copy such slices.
    is_far = batch.get_total_buffer_size() > _INT32_MAX
    for start in range(0, rows, size):
        piece = batch.slice(start, size)
        yield piece.take(pa.array(range(piece.num_rows), pa.int64())) if is_far else piece

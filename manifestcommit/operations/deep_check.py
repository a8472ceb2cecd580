"""Checks that a data file holds what its entry says: digest, footer, rows, partition, statistics.
[RD10] [DF3] [OB7]

It counts the rows themselves: the footer's statistics may be as wrong as the entry.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..files.footer_stats import TrackedLeaf, tracked_leaves
from ..files.foreign_footer import noted_footer
from ..format import codec, evolution, values
from ..format.arrow_schema import arrow_type
from ..format.entries import ColumnStats, Entry
from ..format.fields import Schema, WireValue
from ..protocol.audit import Kind, VerifyFinding, as_text, finding
from ..store import Store

# files up to this size are fetched once; larger ones are streamed, once for the digest and once for
# the rows
_WHOLE_BYTES = 32 << 20
_CHUNK_BYTES = 8 << 20
_BATCH_ROWS = 65_536


def examine_file(
    store: Store, entry: Entry, schema: Schema, partition_by: Sequence[int]
) -> list[VerifyFinding]:
    """The differences between the entry and the file. Raises StoreError if the store fails, never
    because of the file's content. [RD10] [OB7]

    Memory: one file of up to 32 MiB, or one batch of rows of a larger one.
    """
    try:
        with _open(store, entry) as stream:
            if differs := _differs(stream, entry):
                return [finding("file_content_differs", entry.path, differs)]
            stream.seek(0)
            return list(_examine(stream, entry, schema, partition_by))
    except FileNotFoundError:
        return [
            finding(
                "file_missing", entry.path, "it was there when the root was listed, and is gone"
            )
        ]
    # Arrow reports a damaged footer as an OSError
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return [finding("file_unreadable", entry.path, f"it cannot be read as Parquet: {error}")]


def _open(store: Store, entry: Entry) -> Any:
    return (
        pa.BufferReader(store.get(entry.path))
        if entry.bytes <= _WHOLE_BYTES
        else store.open_input(entry.path)
    )


def _differs(stream: Any, entry: Entry) -> str:
    """How the bytes differ from those that were written or added; empty: they do not. [AF3]"""
    if entry.digest is not None:
        actual = _digest(stream)
        is_same = actual == entry.digest
        return "" if is_same else f"its digest is {actual}, that of what was written {entry.digest}"
    if entry.footer is None:
        return "its entry has neither its digest nor that of its footer: add it again"
    try:
        noted_footer(stream, entry.bytes, entry.footer)
    except pa.ArrowInvalid as error:
        return str(error)
    return ""


def _digest(stream: Any) -> str:
    hashed = hashlib.sha256()
    if isinstance(stream, pa.NativeFile):
        hashed.update(stream.read_buffer())  # data in memory is not copied
    else:
        while chunk := stream.read(_CHUNK_BYTES):
            hashed.update(chunk)
    return codec.digest_of(hashed)


def _examine(
    stream: Any, entry: Entry, schema: Schema, partition_by: Sequence[int]
) -> Iterator[VerifyFinding]:
    file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    if file.metadata.num_rows != entry.rows:
        text = f"it has {file.metadata.num_rows:,} rows, its entry says {entry.rows:,}"
        yield finding("file_rows_differ", entry.path, text)
    leaves = {leaf.id: leaf for leaf in tracked_leaves(schema, file.schema_arrow, sys.maxsize)}
    wanted = [leaf for id, leaf in leaves.items() if id in entry.columns or id in partition_by]
    tallies = {leaf.id: _Tally(leaf, id_is_partition=leaf.id in partition_by) for leaf in wanted}
    rows = 0
    names = sorted({leaf.path[0] for leaf in wanted})
    # Several files are decoded at the same time already. A large one may be the last of them, and
    # take long.
    is_large = entry.bytes > _WHOLE_BYTES
    for batch in (
        file.iter_batches(_BATCH_ROWS, columns=names, use_threads=is_large) if names else ()
    ):
        rows += batch.num_rows
        for tally in tallies.values():
            tally.add(batch)
    if names and rows != file.metadata.num_rows:
        yield finding(
            "file_unreadable",
            entry.path,
            f"its footer says {file.metadata.num_rows:,} rows, and {rows:,} can be read",
        )
    for id, value in zip(partition_by, entry.partition, strict=True):
        if id in tallies:
            yield from _check_partition(entry.path, tallies[id], value)
    known = {leaf.id for leaf in evolution.leaves(schema)}
    for id, said in entry.columns.items():
        leaf = leaves.get(id)
        if id not in known:
            continue  # the column was dropped: no reader reads it
        problems = _absent(said, entry.rows) if leaf is None else tallies[id].contradictions(said)
        name = ".".join(leaf.path) if leaf is not None else f"with the field id {id}"
        for problem in problems:
            yield finding("statistics_false", entry.path, f"column {name}: {problem}")


def _check_partition(path: str, tally: _Tally, value: WireValue) -> Iterator[VerifyFinding]:
    kind: Kind = "file_partition_differs"
    others = sorted(as_text(other) for other in tally.values - {value})
    if others:
        yield finding(
            kind,
            path,
            (
                f"column {'.'.join(tally.leaf.path)} holds {', '.join(others[:3])}, its "
                f"entry says {as_text(value)}"
            ),
        )


def _absent(said: ColumnStats, rows: int) -> Iterator[str]:
    """A column that the file does not have is null in every row. [SC4]"""
    if said.nulls is not None and said.nulls != rows:
        yield (
            f"it is not in the file, so that all {rows:,} rows are null; its entry says "
            f"{said.nulls:,}"
        )


class _Tally:
    """The observed statistics of one leaf in a file."""

    def __init__(self, leaf: TrackedLeaf, *, id_is_partition: bool) -> None:
        self.leaf = leaf
        # of a partition column: two at most, which is enough
        self.values: set[WireValue] = set()
        self._is_partition = id_is_partition
        self._nulls = self._nans = 0
        self._low: Any = None
        self._high: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        index = batch.schema.get_field_index(self.leaf.path[0])
        if index < 0:
            raise ValueError(f"it has two columns {self.leaf.path[0]!r}")
        column = batch.column(index)
        if len(self.leaf.path) > 1:
            column = pc.struct_field(column, list(self.leaf.path[1:]))
        self._nulls += column.null_count
        if not self.leaf.bounded:
            return
        wanted = arrow_type(self.leaf.type)
        column = (
            column
            if column.type == wanted
            else column.cast(wanted, safe=not pa.types.is_floating(wanted))
        )
        if self._is_partition and len(self.values) < 2:
            self.values |= set(values.from_array(pc.unique(column), self.leaf.type)[:3])
        if pa.types.is_floating(wanted):
            self._widen_by_floats(column.drop_null().to_numpy())
        else:
            self._widen(column)

    def contradictions(self, said: ColumnStats) -> Iterator[str]:
        """What an entry wrongly says about the leaf. A bound may be wider than the values, but
        never narrower."""
        if said.nulls is not None and said.nulls != self._nulls:
            yield f"it has {self._nulls:,} nulls, its entry says {said.nulls:,}"
        if said.nans is not None and said.nans != self._nans:
            yield f"it has {self._nans:,} NaNs, its entry says {said.nans:,}"
        try:
            if (
                self._low is not None
                and said.min is not None
                and self._low < _ordered(said.min, self.leaf.type)
            ):
                yield f"it holds a value below {as_text(said.min)}, its smallest by its entry"
            if (
                self._high is not None
                and said.max is not None
                and self._high > _ordered(said.max, self.leaf.type)
            ):
                yield f"it holds a value above {as_text(said.max)}, its largest by its entry"
        except (ValueError, TypeError):
            yield (
                f"its bounds {as_text(said.min)} and {as_text(said.max)} are no values of "
                f"the type {self.leaf.type}"
            )

    def _widen(self, column: pa.Array) -> None:
        if pa.types.is_duration(column.type):
            column = column.cast(pa.int64())
        ends = pc.min_max(column)
        if not ends["min"].is_valid:
            return
        type = "long" if pa.types.is_int64(column.type) else self.leaf.type
        wires = values.from_array(pa.array([ends["min"], ends["max"]], column.type), type)
        self._extend(*(_ordered(wire, type) for wire in wires))

    def _widen_by_floats(self, numbers: npt.NDArray[Any]) -> None:
        """NaN bounds nothing. It uses numpy: Arrow takes ten times as long for the bounds of
        floats, as long as for decoding them."""
        if len(numbers) and np.isnan(numbers.min()):  # one NaN is enough for that
            is_nan = np.isnan(numbers)
            self._nans += int(is_nan.sum())
            numbers = numbers[~is_nan]
        if len(numbers):
            self._extend(float(numbers.min()), float(numbers.max()))

    def _extend(self, low: Any, high: Any) -> None:
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)


def _ordered(wire: WireValue, type: str) -> Any:
    """A sort key for values of the type: a float may be infinite, and bytes are compared as
    such."""
    return (
        values.decode(wire, type)
        if type in ("float", "double", "binary")
        else values.order_key(wire, type)
    )

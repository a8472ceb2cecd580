"""Reads data files with pyarrow in Spark's tasks: where its JVM does not reach them, and for
`format("manifestcommit")`. [SP4]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from manifestcommit.files.footer_stats import parquet_columns
from manifestcommit.files.foreign_footer import damaged_file
from manifestcommit.filter.predicate import Predicate
from manifestcommit.format.entries import pack_bins
from manifestcommit.format.fields import Schema
from manifestcommit.format.values import to_array
from manifestcommit.scan.arrow_dataset import Constants, is_damage
from manifestcommit.scan.parallel_decode import DECODED_BYTES, Portion, decode_ahead, read_ahead
from manifestcommit.scan.planning import matching_groups
from manifestcommit.spark.runtime.versions import (
    DataSourceReader,
    InputPartition,
    arrow_schema_of,
)
from manifestcommit.store import StorageOptions, open_store

# How Spark packs files into partitions (spark.sql.files.maxPartitionBytes and openCostInBytes).
_PARTITION_BYTES = 128 << 20
_OPEN_COST_BYTES = 4 << 20
_BATCH_ROWS = 64 * 1024
# if rows are no larger than this, a batch has twice as many: each batch costs some Python
_NARROW_BYTES = 64
# in place of a name in files: a column with the path of each row's file
_NAME = "\0manifestcommit.path"


@dataclass
class FileGroup(InputPartition):
    """The files that one task reads, as (path, size in bytes), and what only their entries hold."""

    files: tuple[tuple[str, int], ...]
    constants: Constants = Constants()  # noqa: RUF009  # frozen


class FilesReader(DataSourceReader):
    """Reads exactly the given files with pyarrow, as columns of `struct` (a selection of the
    table's columns). [SP4]

    Filter pushdown is disabled: Spark would read those files again for other queries of the same
    DataFrame. [SP12]
    """

    def __init__(
        self,
        url: str,
        files: Sequence[tuple[str, int]],
        schema: Schema,
        struct: StructType,
        *,
        constants: Constants = Constants(),  # noqa: B008  # frozen
        predicate: Predicate | None = None,
        name_column: str | None = None,
        storage_options: StorageOptions,
    ) -> None:
        """predicate: true for every wanted row; row groups without such rows may be skipped.
        name_column: a column of `struct` for the path of each row's file, if there is one."""
        names = {field.name: field.file_name for field in schema.fields}
        if name_column is not None:
            names[name_column] = _NAME
        self.url = url
        self.files = tuple(files)
        self.schema = schema
        self.struct = struct
        self.constants = constants
        self.predicate = predicate
        self.storage_options = storage_options
        self.file_names = tuple(names[field.name] for field in struct.fields)

    def __getstate__(self) -> dict[str, Any]:
        # otherwise every task would carry the whole list; each gets its group
        return {**self.__dict__, "files": (), "constants": None}

    def partitions(self) -> Sequence[InputPartition]:
        return [FileGroup(group, self.constants.of(group)) for group in pack(self.files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FileGroup):  # Spark's plan if there are no files at all
            return
        store, constants = open_store(self.url, self.storage_options), partition.constants
        target = arrow_schema_of(self.struct)
        types = {field.file_name: field.type for field in self.schema.fields}

        def choose(file: pq.ParquetFile) -> tuple[Sequence[int], Sequence[str]]:
            present = set(file.schema_arrow.names)
            groups = matching_groups(file.metadata, file.schema_arrow, self.schema, self.predicate)
            return groups, [name for name in self.file_names if name in present]

        def decode(portion: Portion) -> Iterator[pa.RecordBatch]:
            known = dict(
                zip(constants.columns, constants.values.get(portion.path, ()), strict=False)
            )
            filled = {
                name: to_array([value], types[name])[0]
                for name, value in known.items()
                if name in types
            }
            filled[_NAME] = pa.scalar(portion.path)
            try:
                for batch in batches_of(portion):
                    yield fitted(batch, target, self.file_names, filled)
            except (pa.ArrowInvalid, OSError) as error:
                if is_damage(error):
                    raise damaged_file(self.url, portion.path, error) from error
                raise

        portions = read_ahead(
            store,
            partition.files,
            choose,
            all_columns=types.keys() <= set(self.file_names),
            footers=constants.footers,
        )
        yield from decode_ahead(portions, decode)


def pack(files: Sequence[tuple[str, int]]) -> list[tuple[tuple[str, int], ...]]:
    """Group the files into about one task's work each, in their order."""
    costs = ((file, file[1] + _OPEN_COST_BYTES) for file in files)
    return [tuple(group) for group in pack_bins(costs, _PARTITION_BYTES)]


def batches_of(portion: Portion) -> Iterator[pa.RecordBatch]:
    """The rows of a portion, decoded in one step if its size is known to be bounded: that takes
    less CPU than batch by batch. [RD40]"""
    file, groups, columns = portion.file, portion.groups, portion.columns
    rows = batch_rows(file.metadata, groups)
    if decodes_small(file, groups, columns, rows):
        return iter(file.read_row_groups(groups, columns=columns).to_batches(rows))
    return iter(file.iter_batches(batch_size=rows, row_groups=groups, columns=columns))


def decodes_small(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str], one_batch: int
) -> bool:
    """Whether these columns of these row groups make one batch, or at most `DECODED_BYTES` whatever
    the values are.

    A footer does not show the size of texts and arrays: one stored text may be that of all rows.
    """
    rows = sum(file.metadata.row_group(group).num_rows for group in groups)
    if rows <= one_batch:
        return True
    names = set(columns)
    leaves = [leaf for leaf in parquet_columns(file.schema_arrow) if leaf.path[0] in names]
    has_width = all(
        leaf.is_single and (pa.types.is_primitive(leaf.type) or pa.types.is_decimal(leaf.type))
        for leaf in leaves
    )
    return has_width and rows * sum(leaf.type.bit_width + 1 for leaf in leaves) <= 8 * DECODED_BYTES


def batch_rows(metadata: Any, groups: Sequence[int]) -> int:
    """How many rows of these row groups make a batch: a bounded number, more if small."""
    some = [metadata.row_group(group) for group in groups]
    is_narrow = sum(row_group.total_byte_size for row_group in some) <= _NARROW_BYTES * sum(
        row_group.num_rows for row_group in some
    )
    return 2 * _BATCH_ROWS if is_narrow else _BATCH_ROWS


def fitted(
    batch: pa.RecordBatch,
    target: pa.Schema,
    file_names: Sequence[str],
    filled: Mapping[str, pa.Scalar],
) -> pa.RecordBatch:
    """The batch as one of exactly `target`; column i is its column `file_names[i]`, null if it has
    none.

    filled: the value of a column that the file lacks, instead of null. [DF4]
    """
    present = set(batch.schema.names)
    columns = [
        _fit(batch.column(name), field.type)
        if name in present
        else _repeat(filled.get(name), batch.num_rows, field.type)
        for name, field in zip(file_names, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _repeat(value: pa.Scalar | None, rows: int, type: pa.DataType) -> pa.Array:
    return pa.nulls(rows, type) if value is None else pa.repeat(value, rows).cast(type)


def _fit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array as `target`: members by name, missing ones null, no cast that changes a value."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type.equals(target):
        return array
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        names = {array.type.field(i).name: i for i in range(array.type.num_fields)}
        flat = array.flatten()
        members = [
            _fit(flat[names[field.name]], field.type)
            if field.name in names
            else pa.nulls(len(array), field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(members, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target) and pa.types.is_list(array.type):
        return _fit_list(array, target, lambda values: _fit(values, target.value_type))
    if pa.types.is_map(target) and pa.types.is_map(array.type):
        entries = pa.struct([target.key_field, target.item_field])

        def fit_entries(keys: pa.Array, items: pa.Array) -> pa.Array:
            return pa.StructArray.from_arrays(
                [_fit(keys, target.key_type), _fit(items, target.item_type)], fields=list(entries)
            )

        offsets, first, last = _offsets(array)
        values = fit_entries(
            array.keys.slice(first, last - first), array.items.slice(first, last - first)
        )
        return pa.MapArray.from_arrays(offsets, values.field(0), values.field(1), type=target)
    return array.cast(target)


def _fit_list(
    array: pa.Array, target: pa.DataType, fit: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    offsets, first, last = _offsets(array)
    return pa.ListArray.from_arrays(
        offsets, fit(array.values.slice(first, last - first)), type=target
    )


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets from zero, null if the list is null; and the bounds of the values that they cover."""
    raw = array.offsets
    first, last = raw[0].as_py(), raw[-1].as_py()
    shifted = pa.compute.subtract(raw, pa.scalar(first, pa.int32()))
    if array.null_count == 0:
        return shifted, first, last
    missing = pa.concat_arrays([array.is_null(), pa.array([False])])
    return pa.compute.if_else(missing, pa.scalar(None, pa.int32()), shifted), first, last

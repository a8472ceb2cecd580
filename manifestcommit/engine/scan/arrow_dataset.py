"""A snapshot as a pyarrow Dataset, for pyarrow, DuckDB, Polars and pandas. [RD2] [RD7]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from ...core.filter.arrow_expression import spark_order
from ...core.schema.arrow_schema import marked_schemas
from ...core.table.snapshot import Snapshot
from ...store.base import check_files
from ..metadata.table_context import TableContext
from .checked_dataset import CheckedDataset, doubtful_columns, needed_columns


def open_dataset(
    session: TableContext, snapshot: Snapshot, table: pa.Table, data: bytes | None = None
) -> ds.Dataset:
    """Open exactly the rows of these entries, with user-visible column names; a missing file is an
    error, and so is a link. [RD2] [SE2]

    No request is made before rows are read. The footers of untracked files that were added are
    checked before the first scan that may read them. [AF3] A table without such files, floats
    and decimals gets a plain `FileSystemDataset`. pyarrow gets the partition values, so a filter on
    them opens no other file. data: the bytes of the only file, which was checked.
    """
    logical, physical = marked_schemas(
        snapshot.schema, snapshot.table_id, session.store.url, snapshot.version
    )
    if table.num_rows == 0:
        return ds.dataset(logical.empty_table())
    kind = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    if data is not None:
        fragment = kind.make_fragment(
            pa.BufferReader(data), partition_expression=_guarantees(table, snapshot)[0]
        )
        held = ds.FileSystemDataset([fragment], physical, kind, None, pc.scalar(True))
        return held if logical.equals(physical) else RenamedDataset(held, logical, physical)
    paths = table.column("path").to_pylist()
    check_files(session.store, paths, must_exist=True)
    filesystem, base = session.store.filesystem()
    dataset = ds.FileSystemDataset.from_paths(
        [f"{base}/{path}" for path in paths],
        schema=physical,
        format=kind,
        filesystem=filesystem,
        partitions=_guarantees(table, snapshot),
        root_partition=pc.scalar(True),
    )
    others = table.filter(pc.is_null(table.column("digest"))).select(["path", "rows"])
    doubtful = doubtful_columns(physical)
    if others.num_rows or doubtful:
        rows = zip(
            others.column("path").to_pylist(), others.column("rows").to_pylist(), strict=True
        )
        dataset = CheckedDataset(
            dataset,
            session.store.url,
            {f"{base}/{path}": (path, count) for path, count in rows},
            # a partition column has one value in a file: there is nothing that could be left out
            doubtful - set(_partition_names(snapshot)) if others.num_rows else frozenset(),
        )
    return dataset if logical.equals(physical) else RenamedDataset(dataset, logical, physical)


_ADVICE = (
    "the columns of this table were renamed: read its dataset with scanner(), to_table() or "
    "to_batches()"
)


class RenamedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow ships no types
    """A dataset whose columns were renamed after their files were written: it shows the new names
    over the old files. [SC6]

    It supports what pyarrow's own consumers call (DuckDB: scanner; Polars: to_table). Columns that
    neither `columns` nor `filter` names are not read; filters apply after the renaming.
    """

    def __init__(self, dataset: ds.Dataset, logical: pa.Schema, physical: pa.Schema) -> None:
        # Code that bypasses Python for the C++ dataset below this object (Scanner.from_dataset, a
        # join) finds one fragment, which raises an error with the method to call instead. Without
        # any fragment, pyarrow would crash the process.
        parquet, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
        super().__init__([parquet.make_fragment(_ADVICE, nowhere)], logical, parquet, nowhere)
        self._dataset = dataset
        self._logical = logical
        self._names = dict(zip(logical.names, physical.names, strict=True))

    def __reduce__(self) -> Any:
        physical = pa.schema([field.with_name(self._names[field.name]) for field in self._logical])
        return RenamedDataset, (self._dataset, self._logical, physical)

    @property
    def schema(self) -> pa.Schema:
        return self._logical

    @property
    def files(self) -> list[str]:
        files: list[str] = self._dataset.files
        return files

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> ds.Scanner:
        needed = needed_columns(list(self._names), columns, filter)
        if not set(needed) <= self._names.keys():
            needed = list(self._names)  # Arrow names the unknown one
        inner = self._dataset.scanner(
            columns={name: pc.field(self._names[name]) for name in needed}, **options
        )
        if filter is None and (columns is None or needed == columns):
            return inner
        # Batches stay in C++: a Python iterator that is prefetched while the interpreter exits
        # would abort or hang the process.
        if filter is not None:
            filter = spark_order(filter, self._logical)
        return ds.Scanner.from_batches(inner.to_reader(), columns=columns, filter=filter, **options)

    def to_batches(
        self, columns: Any = None, filter: Any = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        yield from self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        return self.scanner(columns, filter, **options).to_table()

    def head(
        self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any
    ) -> pa.Table:
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        if filter is None:
            return int(self._dataset.count_rows(**options))
        return int(self.scanner([], filter, **options).count_rows())

    def take(
        self, indices: Any, columns: Any = None, filter: Any = None, **options: Any
    ) -> pa.Table:
        return self.to_table(columns, filter, **options).take(indices)

    def sort_by(self, sorting: Any, **options: Any) -> ds.Dataset:
        return ds.dataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: ds.Dataset, *args: Any, **options: Any) -> ds.Dataset:
        return ds.dataset(self.to_table().join(right_dataset.to_table(), *args, **options))

    def join_asof(self, right_dataset: ds.Dataset, *args: Any, **options: Any) -> ds.Dataset:
        return ds.dataset(self.to_table().join_asof(right_dataset.to_table(), *args, **options))

    def get_fragments(self, filter: Any = None) -> Any:
        raise NotImplementedError(_ADVICE)  # fragments show a file's own column names

    def filter(self, expression: Any) -> Any:
        raise NotImplementedError(_ADVICE)

    def replace_schema(self, schema: pa.Schema) -> Any:
        raise NotImplementedError(_ADVICE)


def _guarantees(table: pa.Table, snapshot: Snapshot) -> Sequence[ds.Expression]:
    if not snapshot.partition_by:
        return [pc.scalar(True)] * table.num_rows
    expressions = []
    columns = [
        (name, table.column(f"partition.{field_id}"))
        for name, field_id in zip(_partition_names(snapshot), snapshot.partition_by, strict=True)
    ]
    for row in range(table.num_rows):
        parts = [_equals(name, column[row]) for name, column in columns]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole & part
        expressions.append(whole)
    return expressions


def _partition_names(snapshot: Snapshot) -> list[str]:
    """The partition columns, as they are called in files."""
    assert snapshot.schema is not None
    by_id = {field.id: field.file_name for field in snapshot.schema.fields}
    return [by_id[field_id] for field_id in snapshot.partition_by]


def _equals(name: str, value: pa.Scalar) -> ds.Expression:
    return pc.field(name) == value if value.is_valid else pc.field(name).is_null()

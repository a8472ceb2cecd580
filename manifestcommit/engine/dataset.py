"""A snapshot as a pyarrow Dataset, for pyarrow, DuckDB, Polars and pandas. [RD2] [RD7]

Not here: which files (engine.plan).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from ..core import arrow
from ..core.expression import columns_in
from ..core.schema import Schema
from ..core.snapshot import Snapshot
from .session import Session


def open_dataset(session: Session, snapshot: Snapshot, table: pa.Table) -> ds.Dataset:
    """Exactly the rows of these entries under the names that users see; a file that is gone is an error. [RD2]

    No request is made before rows are read. Partition values are told to pyarrow, so that a filter on them opens no other file.
    """
    schema = snapshot.schema or Schema(fields=())
    physical = arrow.arrow_schema(schema, physical=True, ids=False)
    if table.num_rows == 0:
        return ds.dataset(arrow.arrow_schema(schema, physical=False, ids=False).empty_table())
    filesystem, base = session.store.filesystem()
    dataset = ds.FileSystemDataset.from_paths(
        [f"{base}/{path}" for path in table.column("path").to_pylist()],
        schema=physical,
        format=ds.ParquetFileFormat(coerce_int96_timestamp_unit="us"),
        filesystem=filesystem,
        partitions=_guarantees(table, snapshot),
        root_partition=pc.scalar(True),
    )
    logical = arrow.arrow_schema(schema, physical=False, ids=False)
    return dataset if logical.equals(physical) else RenamedDataset(dataset, logical, physical)


_ADVICE = "the columns of this table were renamed: read its dataset with scanner(), to_table() or to_batches()"


class RenamedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow ships no types
    """A dataset whose columns were renamed after their files were written: the new names over the old files. [SC6]

    What pyarrow's own consumers call (DuckDB: scanner; Polars: to_table) works. Columns that neither `columns` nor `filter` names are
    not read; filters are applied after the renaming.
    """

    def __init__(self, dataset: ds.Dataset, logical: pa.Schema, physical: pa.Schema) -> None:
        # Whoever goes past Python to the C++ dataset below this object (Scanner.from_dataset, a join) finds one fragment, whose only
        # content is an error that says what to call. Without any, pyarrow would end the process.
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
        needed = self._needed(columns, filter)
        inner = self._dataset.scanner(columns={name: pc.field(self._names[name]) for name in needed}, **options)
        if filter is None and (columns is None or needed == columns):
            return inner
        # Batches stay in C++: a Python iterator that is read ahead while the interpreter ends would abort or hang the process.
        return ds.Scanner.from_batches(inner.to_reader(), columns=columns, filter=filter, **options)

    def to_batches(self, columns: Any = None, filter: Any = None, **options: Any) -> Iterator[pa.RecordBatch]:
        yield from self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        return self.scanner(columns, filter, **options).to_table()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        if filter is None:
            return int(self._dataset.count_rows(**options))
        return int(self.scanner([], filter, **options).count_rows())

    def take(self, indices: Any, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
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

    def _needed(self, columns: Any, filter: Any) -> list[str]:
        """The columns that such a scan has to read: all of them where that cannot be told."""
        if not isinstance(columns, list) or not set(columns) <= self._names.keys():
            return list(self._names)
        filtered = frozenset() if filter is None else columns_in(filter)
        if filtered is None:
            return list(self._names)
        return list(dict.fromkeys([*columns, *(path[0] for path in filtered if path[0] in self._names)]))


def _guarantees(table: pa.Table, snapshot: Snapshot) -> Sequence[ds.Expression]:
    if not snapshot.partition_by:
        return [pc.scalar(True)] * table.num_rows
    assert snapshot.schema is not None
    by_id = {field.id: field.file_name for field in snapshot.schema.fields}
    expressions = []
    columns = [(by_id[each], table.column(f"partition.{each}")) for each in snapshot.partition_by]
    for row in range(table.num_rows):
        parts = [_equals(name, column[row]) for name, column in columns]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole & part
        expressions.append(whole)
    return expressions


def _equals(name: str, value: pa.Scalar) -> ds.Expression:
    return pc.field(name) == value if value.is_valid else pc.field(name).is_null()

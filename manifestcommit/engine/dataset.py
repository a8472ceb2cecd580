"""A snapshot as a pyarrow Dataset, for pyarrow, DuckDB, Polars and pandas. [RD2] [RD7]

Not here: which files (engine.plan).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..core import arrow
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
        format=ds.ParquetFileFormat(),
        filesystem=filesystem,
        partitions=_guarantees(table, snapshot, physical),
        root_partition=pc.scalar(True),
    )
    logical = arrow.arrow_schema(schema, physical=False, ids=False)
    return dataset if logical.equals(physical) else RenamedDataset(dataset, logical, physical)


class RenamedDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow ships no types
    """A dataset whose columns were renamed after their files were written: the new names over the old files. [SC6]

    What pyarrow's own consumers call (DuckDB: scanner; Polars: to_table) works; filters are applied after the renaming.
    """

    def __init__(self, dataset: ds.Dataset, logical: pa.Schema, physical: pa.Schema) -> None:
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
        renamed = {name: pc.field(physical) for name, physical in self._names.items()}
        inner = self._dataset.scanner(columns=renamed, **options)
        batches = pa.RecordBatchReader.from_batches(self._logical, _conforming(inner, self._logical))
        return ds.Scanner.from_batches(batches, columns=columns, filter=filter, **options)

    def to_batches(self, columns: Any = None, filter: Any = None, **options: Any) -> Iterator[pa.RecordBatch]:
        yield from self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        return self.scanner(columns, filter, **options).to_table()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        return int(self.scanner(None, filter, **options).count_rows())

    def take(self, indices: Any, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        return self.to_table(columns, filter, **options).take(indices)

    def get_fragments(self, filter: Any = None) -> Any:
        raise NotImplementedError("fragments show a file's own column names, not the table's; use scanner(), to_table() or to_batches()")

    def filter(self, expression: Any) -> Any:
        raise NotImplementedError("give the filter to scanner(), to_table() or to_batches()")

    def replace_schema(self, schema: pa.Schema) -> Any:
        raise NotImplementedError("the schema is the table's")


def _conforming(scanner: ds.Scanner, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in scanner.to_batches():
        yield batch if batch.schema.equals(schema) else batch.cast(schema)


def _guarantees(table: pa.Table, snapshot: Snapshot, physical: pa.Schema) -> Sequence[ds.Expression]:
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

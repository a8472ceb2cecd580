"""The same made-up files in the tables of others, by whatever of their calls adds files that are there already. Local disk.

deltalake: a log entry of its own making and a checkpoint for the table, then write transactions of add actions. pyiceberg: fast appends
of data files, a hundred thousand at a time; its catalog is SQLite. Lance: appends of fragments; it keeps no bounds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Protocol

from benchmarks.made_up import COLUMNS, DATA_BYTES, ROWS, SCHEMA

CHUNK = 100_000


def name_of(number: int, day: int) -> str:
    """As writers give them: the same length as ours."""
    return f"day={day}/{number:08d}-{os.urandom(8).hex()}-0-{os.urandom(24).hex()}.parquet"


def bounds_of(number: int) -> dict[str, tuple[Any, Any]]:
    """Smallest and largest value of the five columns."""
    at = 1_700_000_000_000_000 + number * 60_000_000
    return {
        "id": (number * ROWS, (number + 1) * ROWS - 1),
        "price": (float(number % 977), float(number % 977 + 5000)),
        "at": (at, at + 59_000_000),
        "name": (f"a{os.urandom(6).hex()}", f"z{os.urandom(6).hex()}"),
        "code": (number % 1000, number % 1000 + 70_000),
    }


class Peer(Protocol):
    """One table of another system, below a folder."""

    def make(self, files: int, partitions: int) -> None:
        """The table, with so many files."""
        ...

    def commit(self, numbers: range) -> None:
        """Open it, and add files with these numbers in one commit."""
        ...


class Delta:
    """deltalake's transactions."""

    def __init__(self, folder: str) -> None:
        self._url = f"{folder}/delta"

    def make(self, files: int, partitions: int) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(self._url, SCHEMA, partition_by=["day"])
        if files:
            with open(f"{self._url}/_delta_log/{1:020d}.json", "w", encoding="utf-8") as log:
                for number in range(files):
                    day = number * partitions // files
                    action = {
                        "path": name_of(number, day), "partitionValues": {"day": str(day)}, "size": DATA_BYTES, "modificationTime": 0,
                        "dataChange": True, "stats": self._stats(number),
                    }  # fmt: skip
                    log.write(json.dumps({"add": action}) + "\n")
            DeltaTable(self._url).create_checkpoint()

    def commit(self, numbers: range) -> None:
        from deltalake import DeltaTable
        from deltalake.transaction import AddAction

        table = DeltaTable(self._url)
        actions = [AddAction(name_of(n, 7), DATA_BYTES, {"day": "7"}, 0, True, self._stats(n)) for n in numbers]
        table.create_write_transaction(list(actions), "append", table.schema(), ["day"])

    def _stats(self, number: int) -> str:
        bounds = bounds_of(number) | {"at": ("2026-01-01T00:00:00.000Z", "2026-01-01T00:01:00.000Z")}
        low, high = ({name: both[end] for name, both in bounds.items()} for end in (0, 1))
        return json.dumps({"numRecords": ROWS, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(COLUMNS, 0)})


class Iceberg:
    """pyiceberg's fast appends."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def _table(self) -> Any:
        return self._catalog().load_table(("bench", "t"))

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("bench", uri=f"sqlite:///{self._folder}/iceberg.db", warehouse=f"file://{self._folder}/iceberg")

    def make(self, files: int, partitions: int) -> None:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, TimestamptzType

        kinds = [IntegerType(), LongType(), DoubleType(), TimestamptzType(), StringType(), IntegerType()]
        fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(zip(SCHEMA.names, kinds, strict=True), 1)]
        catalog = self._catalog()
        catalog.create_namespace("bench")
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
        catalog.create_table(("bench", "t"), Schema(*fields), partition_spec=spec)
        for start in range(0, files, CHUNK):
            self._append(range(start, min(files, start + CHUNK)), partitions, files)

    def commit(self, numbers: range) -> None:
        self._append(numbers, 1, max(1, len(numbers)))

    def _append(self, numbers: range, partitions: int, files: int) -> None:
        table = self._table()
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for each in self._data_files(numbers, partitions, files, table.spec().spec_id):
                append.append_data_file(each)

    def _data_files(self, numbers: range, partitions: int, files: int, spec_id: int) -> Iterator[Any]:
        from pyiceberg.conversions import to_bytes
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record
        from pyiceberg.types import DoubleType, IntegerType, LongType, StringType

        kinds = {"id": LongType(), "price": DoubleType(), "at": LongType(), "name": StringType(), "code": IntegerType()}
        ids = {name: SCHEMA.names.index(name) + 1 for name in kinds}
        for number in numbers:
            day = number * partitions // files
            bounds = bounds_of(number)
            low, high = ({ids[name]: to_bytes(kind, bounds[name][end]) for name, kind in kinds.items()} for end in (0, 1))
            made = DataFile.from_args(
                content=DataFileContent.DATA, file_path=f"file://{self._folder}/iceberg/t/{name_of(number, day)}",
                file_format=FileFormat.PARQUET, partition=Record(day), record_count=ROWS, file_size_in_bytes=DATA_BYTES,
                column_sizes={}, value_counts=dict.fromkeys(ids.values(), ROWS), null_value_counts=dict.fromkeys(ids.values(), 0),
                nan_value_counts={}, lower_bounds=low, upper_bounds=high, key_metadata=None, split_offsets=None, equality_ids=None,
                sort_order_id=None,
            )  # fmt: skip
            made.spec_id = spec_id
            yield made


class Lance:
    """Lance's appends of fragments."""

    def __init__(self, folder: str) -> None:
        self._url = f"{folder}/lance"

    def make(self, files: int, partitions: int) -> None:
        import lance

        lance.write_dataset(SCHEMA.empty_table(), self._url)
        if files:
            self.commit(range(files))

    def commit(self, numbers: range) -> None:
        import lance

        table = lance.dataset(self._url)
        operation = lance.LanceOperation.Append([self._fragment(number) for number in numbers])
        lance.LanceDataset.commit(self._url, operation, read_version=table.version)

    def _fragment(self, number: int) -> Any:
        import lance

        columns = list(range(len(SCHEMA)))
        file = lance.fragment.DataFile(
            f"{number:08d}-{os.urandom(24).hex()}.lance", columns, columns, file_major_version=2, file_minor_version=0,
            file_size_bytes=DATA_BYTES,
        )  # fmt: skip
        return lance.FragmentMetadata(id=0, files=[file], physical_rows=ROWS)

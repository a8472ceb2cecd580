"""Iceberg tables that pyiceberg writes, without a catalog's database: a commit is a new document in the folder."""

import uuid
from pathlib import Path
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata


class FolderCatalog(NoopCatalog):
    """Puts the next document beside the others, and names it in the hint."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        for each in requirements:
            each.validate(table.metadata)
        updated = update_table_metadata(table.metadata, updates)
        return CommitTableResponse(metadata=updated, metadata_location=_put(table.location(), updated, table.io))


def _put(location: str, metadata: Any, io: Any) -> str:
    number = len(list(Path(location.removeprefix("file://"), "metadata").glob("*.metadata.json")))
    path = f"{location}/metadata/{number:05d}-{uuid.uuid4()}.metadata.json"
    ToOutputFile.table_metadata(metadata, io.new_output(path))
    return path


def ice_table(root: str, schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, **properties: str) -> Table:
    """A table without rows."""
    io = load_file_io({}, root)
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, f"file://{root}", properties)
    return Table(("t",), metadata, _put(f"file://{root}", metadata, io), io, FolderCatalog("folder"))

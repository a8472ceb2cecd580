"""Partition values that a reader must not look for in a file: for adopted files, only their entries
may hold them. [DF4]"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ...core.schema.fields import Schema
from ...core.schema.values import from_array
from ...core.schema.wire import WireValue


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """Values of columns that files lack: partition columns of adopted files, which only their
    entries hold. [DF4]

    columns: names in files; values: path -> wire values, one for each column.
    """

    columns: tuple[str, ...] = ()
    values: dict[str, tuple[WireValue, ...]] = {}

    def of(self, files: Iterable[tuple[str, int]]) -> Constants:
        """The constants of these files only."""
        return Constants(
            columns=self.columns,
            values={path: self.values[path] for path, _ in files if path in self.values},
        )


def constants_in(entries: pa.Table, schema: Schema, partition_by: Sequence[int]) -> Constants:
    """The partition values of every listed file of another program: the columns may be missing from
    it. [DF4]

    entries: as a manifest's table; such files have no digest.
    """
    foreign = entries.filter(pc.is_null(entries.column("digest")))
    if not partition_by or not foreign.num_rows:
        return Constants()
    by_id = {field.id: field for field in schema.fields}
    fields = [by_id[field_id] for field_id in partition_by]
    columns = [from_array(foreign.column(f"partition.{field.id}"), field.type) for field in fields]
    values = dict(zip(foreign.column("path").to_pylist(), zip(*columns, strict=True), strict=True))
    return Constants(columns=tuple(field.file_name for field in fields), values=values)

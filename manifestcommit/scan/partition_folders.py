"""The folders whose names an engine may read partition values from, so that its own filters prune
files. [RD43] [PT2]
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..format.fields import MAX_FIELD_ID, FieldType, Schema, WireValue
from ..format.partitioning import folder
from ..format.spark_json import has_own_order
from ..format.transforms import partition_fields
from ..format.values import from_array

# A timestamp's folder is in UTC and read in the session's time zone; decimals, booleans and
# narrow integers are not worth the doubt.
_TYPES = frozenset({"integer", "long", "string", "date"})


class PartitionFolders(msgspec.Struct, frozen=True, kw_only=True):
    """The partition columns as (name in files, type), outermost first, and each folder's values."""

    columns: tuple[tuple[str, str], ...]
    values: dict[str, tuple[WireValue, ...]]


def may_prune(schema: Schema, partition_by: Sequence[int]) -> bool:
    """Whether an engine may read these columns from folders, as far as their types say. [RD43]"""
    if not partition_by or len(partition_by) == len(schema.fields):
        return False  # Spark needs a column that is not in the path
    if any(id > MAX_FIELD_ID for id in partition_by):
        return False  # what the folders of a transform show is no column
    fields = partition_fields(schema, partition_by)
    return all(field.type in _TYPES and not has_own_order(field) for field in fields)


def folders_in(
    entries: pa.Table, schema: Schema, partition_by: Sequence[int]
) -> PartitionFolders | None:
    """The folders of these entries' files; None if one of them does not show the values that its
    entries hold. [RD43]

    entries: as a manifest's table. Files of other programs are left out: their columns may be
    missing, and their folders were never ours.
    """
    own = entries.filter(pc.is_valid(entries.column("digest")))
    # without its files' rows, Spark may count such a partition (spark.sql.optimizer.metadataOnly)
    if not own.num_rows or pc.any(pc.equal(own.column("rows"), 0)).as_py():
        return None
    return folders_of(own, schema, partition_by)


def folders_of(
    entries: pa.Table, schema: Schema, partition_by: Sequence[int]
) -> PartitionFolders | None:
    """The folders of all of these entries' files, as `folders_in`."""
    if not may_prune(schema, partition_by):
        return None
    ids = tuple(partition_by)
    fields = partition_fields(schema, ids)
    columns = [from_array(entries.column(f"partition.{each.id}"), each.type) for each in fields]
    types = [field.type for field in fields]
    paths = entries.column("path").to_pylist()
    values: dict[str, tuple[WireValue, ...]] = {}
    for path, found in zip(paths, zip(*columns, strict=True), strict=True):
        name = path.rpartition("/")[0]
        if name not in values:
            if folder(schema, ids, found) != f"{name}/" or not all(map(_is_plain, found, types)):
                return None
            values[name] = found
        elif values[name] != found:
            return None
    shown = tuple((field.file_name, str(field.type)) for field in fields)
    return PartitionFolders(columns=shown, values=values)


def _is_plain(value: WireValue, type: FieldType) -> bool:
    """Whether the folder of this value shows no other. Null has the folder of the empty string; a
    date outside the years 1 to 9999 is a number of days; and no comparison with what Spark shows
    tells the text "null" from null."""
    if type == "date":
        return value is None or not str(value).startswith("@")
    return value not in ("", "null")

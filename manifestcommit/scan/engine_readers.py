"""What other engines read by themselves: one version as a relation of DuckDB or a lazy frame of
Polars, and folders whose names show partition values. [RD2] [RD42] [RD43] [PT2]"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..format.fields import (
    MAX_FIELD_ID,
    PRIMITIVES,
    ArrayType,
    FieldType,
    MapType,
    Schema,
    StructType,
    WireValue,
    check_has_columns,
    decimal_parts,
    has_own_order,
    members,
    walk,
)
from ..format.partitioning import folder
from ..format.snapshot import Snapshot
from ..format.transforms import partition_fields
from ..format.values import arrow_schema, from_array
from ..log.table_context import TableContext
from . import planning

if TYPE_CHECKING:
    import duckdb
    import polars

# An engine gets the names of all files with each query: more of them are planned as a dataset.
MOST_FILES = 10_000
# An engine opens each file to learn its partition; a dataset knows the partitions beforehand.
MOST_PARTITIONED_FILES = 1_000
# Older releases of DuckDB do not add a member to a struct, and older ones of Polars no column.
STRUCTS_IN_DUCKDB = (1, 5)
OLDEST_POLARS = (2, 0)
_GLOB = re.compile(r"[*?\[\]{}\\]")  # DuckDB takes such a name for a pattern

# What both engines read as Arrow does, in DuckDB's words; decimals, and what is made of these, too.
_TYPES = {name: each.duckdb for name, each in PRIMITIVES.items() if each.duckdb}


def duckdb_relation(
    ctx: TableContext, snapshot: Snapshot, connection: duckdb.DuckDBPyConnection
) -> duckdb.DuckDBPyRelation:
    """Exactly the rows of the snapshot, with the columns and types that its dataset has. [RD42]"""
    check_has_columns(snapshot.schema, ctx.store.url)  # DuckDB knows no relation without any
    schema = snapshot.schema
    release = _release("duckdb")
    own, others = _split(ctx, snapshot, lambda kind: _duckdb_reads(kind, release))
    paths = own.column("path").to_pylist()
    if any(map(_GLOB.search, paths)) or not _may_open_files(connection):
        paths, others = [], planning.entries_table(ctx, snapshot)
    parts = []
    if paths:
        options = _options(schema, pc.sum(own.column("rows")).as_py())
        files = ", ".join(map(_literal, paths))
        parts.append(connection.sql(f"SELECT * FROM read_parquet([{files}], {options})"))
    if others.num_rows or not paths:
        from .arrow_dataset import open_dataset  # late: pyarrow.dataset loads pandas

        parts.append(connection.from_arrow(open_dataset(ctx, snapshot, others)))
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def polars_frame(ctx: TableContext, snapshot: Snapshot) -> polars.LazyFrame:
    """Exactly the rows of the snapshot, with the columns and types that its dataset has. [RD42]"""
    import polars

    own, others = _split(ctx, snapshot, _polars_reads)
    parts = []
    if own.num_rows:
        # Polars takes columns and the number of rows from the first file: the newest has them all
        own = own.sort_by([("added", "descending"), ("rows", "descending")])
        parts.append(_polars_scan(own.column("path").to_pylist(), snapshot.schema))
    if others.num_rows or not own.num_rows:
        from .arrow_dataset import open_dataset  # late: pyarrow.dataset loads pandas

        parts.append(polars.scan_pyarrow_dataset(open_dataset(ctx, snapshot, others)))
    return parts[0] if len(parts) == 1 else polars.concat(parts)


def _split(
    ctx: TableContext, snapshot: Snapshot, reads: Callable[[FieldType], bool]
) -> tuple[pa.Table, pa.Table]:
    """The entries of the files that an engine's own reader can read, with whole paths, and those of
    all others: it can read what this library wrote, whose files have field ids and the table's
    types, on a file system, in a number that it plans in a moment. [AF3] [DF5]"""
    from pyarrow.fs import LocalFileSystem  # late: only readers need it

    entries = planning.entries_table(ctx, snapshot)
    filesystem, base = ctx.store.filesystem()
    most = MOST_PARTITIONED_FILES if snapshot.partition_by else MOST_FILES
    if (
        not isinstance(filesystem, LocalFileSystem)
        or entries.num_rows > most
        or not all(reads(field.type) for _, field in walk(snapshot.schema.fields))
    ):
        return entries.slice(0, 0), entries
    is_own = pc.is_valid(entries.column("digest"))
    own, others = entries.filter(is_own), entries.filter(pc.invert(is_own))
    paths = own.column("path").to_pylist()
    ctx.store.check_files(paths, must_exist=True)
    whole = pa.array([f"{base}/{path}" for path in paths], pa.string())
    return own.set_column(own.column_names.index("path"), "path", whole), others


def _release(package: str) -> tuple[int, int]:
    import importlib.metadata

    major, minor = importlib.metadata.version(package).split(".")[:2]
    return int(major), int(minor)


def _polars_scan(paths: list[str], schema: Schema) -> polars.LazyFrame:
    """The files with the table's columns and types.

    Polars joins in a bad order where columns are given to it, since it does not look at any file
    then: they are given only where the first file has others. [SC4] [SC5] [SC6]"""
    import polars

    upcast = polars.ScanCastOptions(
        integer_cast="upcast", float_cast="upcast", missing_struct_fields="insert"
    )

    def scan(columns: dict[str, polars.DataType] | None) -> polars.LazyFrame:
        return polars.scan_parquet(
            paths,
            schema=columns,
            glob=False,
            hive_partitioning=False,
            missing_columns="insert",
            extra_columns="ignore",
            cast_options=upcast,
        )

    shown = polars.from_arrow(arrow_schema(schema, physical=False, ids=False).empty_table())
    assert isinstance(shown, polars.DataFrame)
    columns = {field.file_name: shown.schema[field.name] for field in schema.fields}
    frame = scan(None)
    found = frame.collect_schema()
    if any(found.get(name) != kind for name, kind in columns.items()):
        frame, found = scan(columns), polars.Schema(columns)
    if not any(field.physical for field in schema.fields) and found.names() == list(columns):
        return frame
    return frame.select(polars.col(field.file_name).alias(field.name) for field in schema.fields)


def _polars_reads(kind: FieldType) -> bool:
    return _release("polars") >= OLDEST_POLARS and (
        not isinstance(kind, str) or kind in _TYPES or decimal_parts(kind) is not None
    )


def _duckdb_reads(kind: FieldType, release: tuple[int, int]) -> bool:
    if isinstance(kind, StructType):
        return release >= STRUCTS_IN_DUCKDB
    return not isinstance(kind, str) or kind in _TYPES or decimal_parts(kind) is not None


def _may_open_files(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the connection may open files itself: it may have been made without that right."""
    ((allowed,),) = connection.sql("SELECT current_setting('enable_external_access')").fetchall()
    return bool(allowed)


def _options(schema: Schema, rows: int) -> str:
    """How `read_parquet` reads the files: columns by field id, whatever they are called in a file;
    one that a file lacks is null. [SC4] [SC6]

    With columns given, DuckDB expects no rows at all and joins in a bad order, so that the number
    of rows is given, too."""
    named = ((each.id, _literal(each.name), _duckdb_type(each.type)) for each in schema.fields)
    columns = ", ".join(
        f"{id}: {{name: {name}, type: {_literal(kind)}, default_value: NULL}}"
        for id, name, kind in named
    )
    others = f"binary_as_string = false, explicit_cardinality = {rows}"
    return f"schema = MAP {{{columns}}}, {others}"


def _duckdb_type(kind: FieldType) -> str:
    inner = [_duckdb_type(field.type) for field in members(kind)]
    match kind:
        case StructType(fields=fields):
            names = (_identifier(each.name) for each in fields)
            named = map(" ".join, zip(names, inner, strict=True))
            return f"STRUCT({', '.join(named)})"
        case ArrayType():
            return f"{inner[0]}[]"
        case MapType():
            return f"MAP({inner[0]}, {inner[1]})"
        case _:
            return _TYPES.get(kind) or kind.upper()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# A timestamp's folder is in UTC and read in the session's time zone; decimals, booleans and
# narrow integers are not worth the doubt.
_PLAIN_TYPES = frozenset({"integer", "long", "string", "date"})


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
    return all(field.type in _PLAIN_TYPES and not has_own_order(field) for field in fields)


def folders_in(
    entries: pa.Table, schema: Schema, partition_by: Sequence[int]
) -> PartitionFolders | None:
    """The folders of these entries' files; None if one of them does not show the values that its
    entries hold. Files of other programs are left out: their columns may be missing. [RD43]"""
    own = entries.filter(pc.is_valid(entries.column("digest")))
    # without its files' rows, Spark may count such a partition (spark.sql.optimizer.metadataOnly)
    if not own.num_rows or pc.any(pc.equal(own.column("rows"), 0)).as_py():
        return None
    if not may_prune(schema, partition_by):
        return None
    ids = tuple(partition_by)
    fields = partition_fields(schema, ids)
    columns = [from_array(own.column(f"partition.{each.id}"), each.type) for each in fields]
    types = [field.type for field in fields]
    paths = own.column("path").to_pylist()
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

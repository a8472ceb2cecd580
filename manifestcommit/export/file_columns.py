"""What exports share: checks of the columns of data files that other programs wrote, and objects
that several exporters may create at once. Engines find columns by field ids where a file has them:
an adopted file with ids of its own would read as nulls, silently. [EX2] [EX6] [EX9]"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import SnapshotExpiredError, UnsupportedTypeError, UsageError, VersionNotFoundError
from ..files.footer_stats import ParquetColumn, are_ordered, parquet_columns
from ..files.foreign_file import footers_of, open_noted
from ..format.fields import Field, Schema, decimal_parts, members, show_path, type_text, walk
from ..format.snapshot import Snapshot
from ..format.values import field_id, inner_fields, is_list
from ..log.table_context import TableContext
from ..log.version_chain import Head, read_version
from ..runtime.environment import create, map_in_batches
from ..scan.planning import differing_entries
from ..store import Store
from ..store.base import missing_file


def not_ours(store: Store, folder: str) -> UsageError:
    """The error for metadata of the format that this table's exports have not put. [EX9]"""
    return UsageError(
        f"{store.url}/{folder.partition('/')[0]} is of another table or program: an export would "
        "mix the two. Nothing was changed. Move the folder away, or delete it if nobody reads it, "
        "and export again"
    )


def check_ours(store: Store, folder: str, shown: Any, snapshot: Snapshot) -> None:
    """The same error, where what is shown there is of another table. [EX9]"""
    if shown is not None and shown.table_id != snapshot.table_id:
        raise not_ours(store, folder)


def entries_since(
    ctx: TableContext, head: Head, shown: int, snapshot: Snapshot, entries: pa.Table
) -> pa.Table:
    """Those of a version's entries that the exported version `shown` does not have, also files that
    a rollback brought back; all of them where it is not readable any more, or 0."""
    if not shown:
        return entries
    try:
        before = read_version(ctx.store, head, shown).snapshot
        since = differing_entries(ctx, before, snapshot)[1]
    except (SnapshotExpiredError, VersionNotFoundError):
        return entries
    return entries.filter(pc.is_in(entries.column("path"), since.column("path").combine_chunks()))


def check_types(schema: Schema, known: Container[str], lacking: str) -> None:
    """UnsupportedTypeError if a column has a type that is not known, and no decimal. [EX9]"""
    for path, field in walk(schema.fields):
        kind = field.type
        if isinstance(kind, str) and kind not in known and decimal_parts(kind) is None:
            raise UnsupportedTypeError(
                f"column {show_path(path)} has the type {type_text(kind)}, which {lacking}: the "
                "table cannot be exported to it as long as the column is there"
            )


def json_text(document: Any) -> str:
    """JSON without blanks, as every document of an export is written."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def put_shared(ctx: TableContext, name: str, data: bytes) -> int:
    """Create an object, or find the one of another exporter; returns the length that is there."""
    return len(data if create(ctx.store, name, data, ctx.env) else ctx.store.get(name))


_REWRITE = (
    "Nothing was exported. Rewrite the rows once, as by manifestcommit.write(table.to_arrow(), "
    'PATH, mode="overwrite"), and export again: versions before that one are left out'
)


def check_ids(ctx: TableContext, entries: pa.Table, schema: Schema) -> None:
    """UsageError if the field ids in one of these files are not the table's, or a type in it is
    none of Iceberg's for the table's. Files without any id are read by the names in them. One
    request for each file of another program; its columns of INT96 are read. [EX6] [EX9]"""
    for path, columns in _columns_of(ctx, of_others(entries)):
        if misread := next(filter(_is_misread, columns), None):
            raise UsageError(
                f"{ctx.store.url}/{path} has column {misread.name!r} with the type "
                f"{misread.type}, which readers of Iceberg refuse for the table's type. "
                f"{_REWRITE}"
            )
        if not any(_ids(field) for field in columns):
            continue
        wanted = {field.file_name: field for field in schema.fields}
        for column in columns:
            field = wanted.get(column.name)
            if field is not None and not _agrees(column, field):
                raise UsageError(
                    f"{ctx.store.url}/{path} has other field ids than the table, by which "
                    f"readers of Iceberg do not find column {column.name!r}. {_REWRITE}"
                )


def check_partition_columns(
    ctx: TableContext, entries: pa.Table, snapshot: Snapshot, to: str, *, by_spark: bool = False
) -> None:
    """UsageError if one of these files lacks a partition column, which only its entry holds then,
    or holds what readers of Delta read as something else. by_spark: Spark alone is to read them. As
    many requests as for `check_ids`. [EX9]"""
    by = [field for field in snapshot.schema.fields if field.id in snapshot.partition_by]
    if by_spark and not by:
        return
    for path, columns in _columns_of(ctx, of_others(entries), by_spark=by_spark):
        if missing := sorted({field.file_name for field in by} - set(columns.names)):
            raise UsageError(
                f"{ctx.store.url}/{path} does not hold its partition column {missing[0]!r}, "
                f"without which the table cannot be exported to {to}. {_REWRITE}"
            )


def of_others(entries: pa.Table) -> pa.Table:
    """The files that other programs wrote."""
    return entries.filter(pc.is_null(entries.column("digest")))


def _columns_of(
    ctx: TableContext, entries: pa.Table, *, by_spark: bool = False
) -> Iterator[tuple[str, pa.Schema]]:
    """The columns of each file; UsageError for one that readers of Iceberg and Delta misread.
    by_spark: Spark alone is to read it, which reads all."""
    paths = entries.column("path").to_pylist()
    footers = footers_of(entries, ctx.store.url)
    sizes = dict(zip(paths, entries.column("bytes").to_pylist(), strict=True))

    def columns(path: str) -> pa.Schema:
        try:
            with ctx.store.open_input(path) as stream:
                file = open_noted(
                    stream, sizes[path], footers[path], coerce_int96_timestamp_unit="us"
                )
                if not by_spark and (reason := _misread_layout(file)):
                    raise UsageError(f"{ctx.store.url}/{path} {reason}. {_REWRITE}")
                return file.schema_arrow
        except FileNotFoundError:
            raise missing_file(ctx.store.url, path) from None
        except (pa.ArrowException, OSError) as error:
            what = f"{ctx.store.url}/{path} cannot be read as a Parquet file: {error}"
            raise UsageError(what) from error

    yield from zip(paths, map_in_batches(ctx.store, columns, paths), strict=True)


_LEVELS = ("list", "element"), ("list", "item")
# The microseconds that are nanoseconds in 64 bits: the other readers take INT96 for these.
_NANOSECONDS = -(2**63) // 1000 + 1, (2**63 - 1) // 1000


def _misread_layout(file: pq.ParquetFile) -> str | None:
    """What others misread, though pyarrow and Spark do not; None: nothing. INT96 is read."""
    old = set()
    arrow = file.schema_arrow  # pyarrow makes it anew each time
    for found in parquet_columns(arrow):
        leaf = file.schema.column(found.position)
        if leaf.physical_type == "INT96":
            old.add(found.path[0])
        elif _has_false_bounds(file, found):
            return (
                f"has bounds of column {'.'.join(found.path)!r} that parquet-mr before 1.10 "
                "compared as bytes, by which DuckDB and pyarrow leave out rows"
            )
        if not _has_list_levels(arrow, leaf.path.split("."), found.path):
            return (
                f"stores the elements of a list as {leaf.path!r}, in a form of old writers which "
                "DuckDB reads as nulls"
            )
    for batch in file.iter_batches(columns=sorted(old)) if old else ():
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if not all(map(_fits_nanoseconds, _values_below(column))):
                return (
                    f"stores an instant of column {name!r} as INT96 that is before the year 1678 "
                    "or after 2261, for which pyiceberg, delta-rs and Polars read another one"
                )
    return None


def _has_false_bounds(file: pq.ParquetFile, leaf: ParquetColumn) -> bool:
    """Whether a row group has bounds of decimals in the order of their bytes."""
    metadata = file.metadata
    writer, physical = metadata.created_by, file.schema.column(leaf.position).physical_type
    if not (writer or "").startswith("parquet-mr ") or are_ordered(physical, leaf.type, writer):
        return False
    groups = (metadata.row_group(at).column(leaf.position) for at in range(metadata.num_row_groups))
    return any(group.statistics is not None and group.statistics.has_min_max for group in groups)


def _has_list_levels(columns: Any, stored: Sequence[str], path: Sequence[str]) -> bool:
    """Whether every list on the way to a leaf has its two levels, by which readers know it."""
    kind, at = None, 0
    for name in path:
        if kind is None or pa.types.is_struct(kind):
            kind = (columns if kind is None else kind).field(name).type
            at += 1 + name.count(".")
        elif pa.types.is_map(kind):
            kind = kind.key_type if name == "key" else kind.item_type
            at += 2
        else:
            if tuple(stored[at : at + 2]) not in _LEVELS:
                return False
            kind = kind.value_type
            at += 2
    return True


def _values_below(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if pa.types.is_struct(kind):
        for member in column.flatten():
            yield from _values_below(member)
    elif pa.types.is_map(kind) or is_list(kind):
        yield from _values_below(column.flatten() if is_list(kind) else column.items)
        if not is_list(kind):
            yield from _values_below(column.keys)
    else:
        yield column


def _fits_nanoseconds(column: pa.Array) -> bool:
    if not pa.types.is_timestamp(column.type):
        return True
    found = pc.min_max(column.cast(pa.timestamp("us")).cast(pa.int64())).as_py()
    low, high = _NANOSECONDS
    return found["min"] is None or (low <= found["min"] and found["max"] <= high)


def _is_misread(column: pa.Field) -> bool:
    """Whether it is stored as a type that is another one here, such as binary, decimal(20,0)."""
    kind = column.type
    if pa.types.is_uint64(kind) or pa.types.is_fixed_size_binary(kind):
        return not pa.types.is_decimal(kind)
    return any(map(_is_misread, inner_fields(kind)))


def _ids(field: pa.Field) -> list[int]:
    """The field ids of a column and its members, those that it has."""
    found = [] if (id := field_id(field)) is None else [id]
    return found + [number for member in inner_fields(field.type) for number in _ids(member)]


def _agrees(column: pa.Field, field: Field) -> bool:
    """Whether the ids of a column and of its members are the table's."""
    if field_id(column) != field.id:
        return False
    inner = {member.name: member for member in members(field.type)}
    own = inner_fields(column.type)
    if pa.types.is_struct(column.type):
        return all(_agrees(each, inner[each.name]) for each in own if each.name in inner)
    return all(map(_agrees, own, inner.values()))

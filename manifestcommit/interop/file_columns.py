"""The columns of data files that other programs wrote, as far as other engines depend on them.
[EX6] [EX9]

Engines find columns by field ids where a file has them. An adopted file with ids of its own would
read as nulls, silently.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..core.schema.arrow_schema import FIELD_ID
from ..core.schema.fields import Field, Schema, members
from ..engine.metadata.table_context import TableContext
from ..engine.runtime.checked_parquet import open_parquet
from ..engine.runtime.concurrency import map_in_batches
from ..errors import UsageError
from ..store.base import missing_file

_REWRITE = (
    "Nothing was exported. Rewrite the rows once, as by manifestcommit.write(table.to_arrow(), "
    'PATH, mode="overwrite"), and export again: versions before that one are left out'
)


def check_ids(session: TableContext, entries: pa.Table, schema: Schema) -> None:
    """UsageError if the field ids in one of these files are not the table's, or a type in it is
    none of Iceberg's for the table's. Files without any id are read by the names in them. [EX6]
    [EX9]

    One request for each file of another program.
    """
    for path, columns in _columns_of(session, of_others(entries)):
        if misread := next(filter(_is_misread, columns), None):
            raise UsageError(
                f"{session.store.url}/{path} has column {misread.name!r} with the type "
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
                    f"{session.store.url}/{path} has other field ids than the table, by which "
                    f"readers of Iceberg do not find column {column.name!r}. {_REWRITE}"
                )


def check_partition_columns(
    session: TableContext, entries: pa.Table, names: list[str], to: str = "Delta Lake"
) -> None:
    """UsageError if one of these files lacks a partition column, which only its entry holds then.
    One request for each file of another program. [EX9]"""
    if not names:
        return
    for path, columns in _columns_of(session, of_others(entries)):
        missing = sorted(set(names) - set(columns.names))
        if missing:
            raise UsageError(
                f"{session.store.url}/{path} does not hold its partition column {missing[0]!r}, "
                f"without which the table cannot be exported to {to}. {_REWRITE}"
            )


def of_others(entries: pa.Table) -> pa.Table:
    """The files that other programs wrote."""
    return entries.filter(pc.is_null(entries.column("digest")))


def _columns_of(session: TableContext, entries: pa.Table) -> Iterator[tuple[str, pa.Schema]]:
    paths = entries.column("path").to_pylist()

    def columns(path: str) -> pa.Schema:
        try:
            with session.store.open_input(path) as stream:
                return open_parquet(stream).schema_arrow
        except FileNotFoundError:
            raise missing_file(session.store.url, path) from None
        except (pa.ArrowException, OSError) as error:
            raise UsageError(
                f"{session.store.url}/{path} cannot be read as a Parquet file: {error}"
            ) from error

    yield from zip(paths, map_in_batches(session.store, columns, paths), strict=True)


def _is_misread(column: pa.Field) -> bool:
    """Whether a column or member is stored as a type that represents another one in the table, such
    as binary or decimal(20,0)."""
    kind = column.type
    if pa.types.is_uint64(kind) or pa.types.is_fixed_size_binary(kind):
        return not pa.types.is_decimal(kind)
    return any(map(_is_misread, _members(kind)))


def _ids(field: pa.Field) -> list[int]:
    """The field ids of a column and its members, those that it has."""
    found = [] if _id(field) is None else [_id(field) or 0]
    return found + [number for member in _members(field.type) for number in _ids(member)]


def _agrees(column: pa.Field, field: Field) -> bool:
    """Whether the ids of a column and of its members are the table's."""
    if _id(column) != field.id:
        return False
    inner = {member.name: member for member in members(field.type)}
    own = list(_members(column.type))
    if pa.types.is_struct(column.type):
        return all(_agrees(each, inner[each.name]) for each in own if each.name in inner)
    return all(map(_agrees, own, inner.values()))


def _members(kind: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_map(kind):
        yield from (kind.key_field, kind.item_field)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield kind.value_field
    elif pa.types.is_struct(kind):
        yield from kind


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)

"""The columns of another format's table as they are in its data files, under the names by which
this library finds them. [AF4] [SC6]

Formats find a column by its field id, whatever a file calls it. This library finds it by one name
in all files. So the footers decide: a column keeps its id and has the name that the files give it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from ...core.schema.arrow_schema import FIELD_ID
from ...core.schema.fields import Field, Schema, StructType, check_schema, members
from ...engine.datafile.foreign_footer import FooterJudge
from ...engine.metadata.table_context import TableContext
from ...engine.runtime.concurrency import map_in_batches
from ...errors import ManifestCommitError, UsageError
from ...version import install

# Packages that read other formats: imported when they are needed, and their errors.


def deltalake() -> Any:
    """The package that reads Delta; UsageError that says how to install it."""
    with _installed("deltalake", "delta"):
        import deltalake

    return deltalake


def pyiceberg() -> Any:
    """The package that reads Iceberg; UsageError that says how to install it."""
    with _installed("pyiceberg", "iceberg"):
        import pyiceberg.io
        import pyiceberg.manifest
        import pyiceberg.table.metadata
        import pyiceberg.types

    return pyiceberg


@contextmanager
def _installed(name: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"the package {name} is missing, which reads the other format: {install(extra)}"
        ) from error


@contextmanager
def parsed(what: str) -> Iterator[None]:
    """Within, whatever such a package raises for damaged metadata becomes a UsageError, also a
    panic of its Rust code, which is no Exception."""
    try:
        yield
    except ManifestCommitError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UsageError(
            f"{what} cannot be read: {type(error).__name__}: {error}. Nothing was adopted"
        ) from error


# Names -> the id, and the same for the members: how files without ids are read.
NameMapping = Mapping[str, tuple[int, "NameMapping"]]


class Stored(NamedTuple):
    """schema: the columns under their names in files; held: for each file, the ids of the columns
    and members that it has."""

    schema: Schema
    held: tuple[frozenset[int], ...]


def as_stored(
    session: TableContext, fields: Sequence[Field], paths: Sequence[str], mapping: NameMapping
) -> Stored:
    """The schema with the names that the files have for its columns; UsageError if two files call a
    column differently, or one name means two columns. One request for each file. [AF4]

    mapping: for files without field ids; empty: there is none, and such a file is refused.
    """
    wanted = {field.id: field for field in fields}
    names: dict[int, str] = {}
    others: dict[str, str] = {}  # name in files of a column that the table does not have -> file
    seen: dict[bytes, frozenset[int]] = {}  # the columns of a file -> their ids
    held: list[frozenset[int]] = []
    for path, columns in _footers(session, paths):
        if (known := columns.serialize().to_pybytes()) in seen:
            held.append(seen[known])
            continue
        seen[known] = frozenset(_all_ids(columns, mapping))
        held.append(seen[known])
        named = f"{session.store.url}/{path}"
        for column, id, inner in _identified(named, columns, mapping):
            field = wanted.get(id)
            if field is None:
                others.setdefault(column.name, named)
                continue
            if names.setdefault(id, column.name) != column.name:
                raise _refused(
                    f"{named} calls the column {field.name!r} {column.name!r}, and another file "
                    f"{names[id]!r}, since it was renamed between them"
                )
            _check_members(named, column, field, inner)
    stored = tuple(_stored(field, names.get(field.id), names, others) for field in fields)
    taken = {field.file_name for field in stored}
    schema = Schema(fields=stored, retired=tuple(sorted(others.keys() - taken)))
    check_schema(schema)
    return Stored(schema, tuple(held))


def _stored(
    field: Field, name: str | None, names: Mapping[int, str], others: Mapping[str, str]
) -> Field:
    lower = {each.lower(): file for each, file in others.items()}
    if name is None:  # no file has it: any name that none of them has
        used = lower.keys() | {each.lower() for each in names.values()}
        name = field.name if field.name.lower() not in used else f"{field.name}-{field.id}"
    elif (file := lower.get(name.lower())) is not None:
        raise _refused(
            f"{file} has a column {name!r} that was dropped, and other files have a new column "
            "of this name"
        )
    return field if name == field.name else msgspec.structs.replace(field, physical=name)


def _footers(session: TableContext, paths: Sequence[str]) -> Iterator[tuple[str, pa.Schema]]:
    def columns(path: str) -> pa.Schema:
        try:
            with session.store.open_input(path) as stream:
                return judge.open(stream)[0].schema_arrow
        except FileNotFoundError:
            raise UsageError(
                f"{session.store.url}/{path} is listed and is not there. Nothing was adopted"
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise UsageError(
                f"{session.store.url}/{path} cannot be read as a Parquet file: {error}. Nothing "
                "was adopted"
            ) from error

    with FooterJudge() as judge:
        yield from zip(paths, map_in_batches(session.store, columns, paths), strict=True)


def _identified(
    file: str, columns: Iterable[pa.Field], mapping: NameMapping
) -> Iterator[tuple[pa.Field, int, NameMapping | None]]:
    """Columns with their ids, and for files without ids the mapping of their members."""
    listed = list(columns)
    has_ids = any(_id(column) is not None for column in listed)
    for column in listed:
        if has_ids:
            if (id := _id(column)) is None:
                raise _refused(f"{file} has a column {column.name!r} without a field id")
            yield column, id, None
        elif column.name in mapping:
            yield column, *mapping[column.name]
        elif not mapping:
            raise _refused(
                f"{file} has no field ids, and the table has no mapping of names, so that nothing "
                "says which columns these are"
            )
        else:
            yield column, 0, None


def _all_ids(columns: Iterable[pa.Field], mapping: NameMapping) -> Iterator[int]:
    """The ids of columns and of all their members; 0 where none is known."""
    for column in columns:
        id, below = mapping.get(column.name, (0, {}))
        yield _id(column) or id
        yield from _all_ids(_children(column.type), below)


def _check_members(file: str, column: pa.Field, field: Field, mapping: NameMapping | None) -> None:
    """UsageError if a member has another name in the file than in the table, or another id."""
    inner = {member.name: member for member in members(field.type)}
    is_struct = isinstance(field.type, StructType)
    for at, child in enumerate(_children(column.type)):
        member = inner.get(child.name) if is_struct else list(inner.values())[at]
        id, below = _id(child), None
        if mapping is not None:
            id, below = mapping.get(child.name, (0, None))
        by_id = next((each for each in inner.values() if each.id == id), None)
        if id is not None and by_id is not member:
            raise _refused(
                f"{file} has a member {child.name!r} in the column {field.name!r} that the table "
                "calls otherwise or does not have, since it was renamed or dropped and added again"
            )
        if member is not None:
            _check_members(file, child, member, below)


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.value_field]
    return list(kind) if pa.types.is_struct(kind) else []


def _id(field: pa.Field) -> int | None:
    text: Any = (field.metadata or {}).get(FIELD_ID, b"")
    return int(text) if text.isdigit() else None


def _refused(what: str) -> UsageError:
    return UsageError(
        f"{what}: a table here has one name for a column in all files. Nothing was adopted. "
        "Rewrite all files there first, such as by table.overwrite(table.scan().to_arrow()) in "
        "pyiceberg, or by rewrite_data_files with rewrite-all in Spark, and adopt the document of "
        "that snapshot"
    )

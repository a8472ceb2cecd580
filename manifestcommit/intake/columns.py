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

from ..errors import ManifestCommitError, UsageError
from ..files.foreign_footer import FooterJudge
from ..format.arrow_schema import FIELD_ID
from ..format.fields import Field, Schema, StructType, check_schema, members
from ..log.table_context import TableContext
from ..runtime.environment import map_in_batches
from ..version import install

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
    and members that it has; renamed: files that name some of them otherwise."""

    schema: Schema
    held: tuple[frozenset[int], ...]
    renamed: frozenset[str]


def as_stored(
    ctx: TableContext,
    fields: Sequence[Field],
    paths: Sequence[str],
    mapping: NameMapping,
    rewrite: bool,
) -> Stored:
    """The schema with the names that the files have for its columns. UsageError if two files call a
    column differently, or one name means two columns; with `rewrite` the columns have the names of
    the table then, and `renamed` has the files with others. One request for each file. [AF4]

    mapping: for files without field ids; empty: there is none, and such a file is refused.
    """
    try:
        return _Files(ctx, fields, mapping, {}).read(paths)
    except _NamedOtherwiseError:
        if not rewrite:
            raise
    return _Files(ctx, fields, mapping, {each.id: each.name for each in fields}).read(paths)


class _Files:
    """The columns of files, one after another. names: field id -> the name in files, where it is
    known; a file that has another one is not kept as it is then."""

    def __init__(
        self,
        ctx: TableContext,
        fields: Sequence[Field],
        mapping: NameMapping,
        names: dict[int, str],
    ) -> None:
        self._ctx, self._fields, self._mapping = ctx, fields, mapping
        self._wanted = {field.id: field for field in fields}
        self._names, self._rewrites = names, bool(names)
        self._others: dict[str, str] = {}  # names in files of columns that the table lacks -> file

    def read(self, paths: Sequence[str]) -> Stored:
        """What all files together say."""
        seen: dict[bytes, tuple[frozenset[int], bool]] = {}  # the columns of a file -> their ids
        held, renamed = [], []
        for path, columns in _footers(self._ctx, paths):
            if (known := columns.serialize().to_pybytes()) not in seen:
                ids = frozenset(_all_ids(columns, self._mapping))
                seen[known] = ids, self._takes(f"{self._ctx.store.url}/{path}", columns)
            ids, is_kept = seen[known]
            held.append(ids)
            if not is_kept:
                renamed.append(path)
        names, others = self._names, self._others
        stored = tuple(_stored(field, names.get(field.id), names, others) for field in self._fields)
        taken = {field.file_name for field in stored}
        schema = Schema(fields=stored, retired=tuple(sorted(others.keys() - taken)))
        check_schema(schema)
        return Stored(schema, tuple(held), frozenset(renamed))

    def _takes(self, file: str, columns: pa.Schema) -> bool:
        """Whether the file's columns have the names of all others."""
        try:
            self._others |= self._checked(file, columns)
        except _NamedOtherwiseError:
            if not self._rewrites:
                raise
            return False
        return True

    def _checked(self, file: str, columns: pa.Schema) -> dict[str, str]:
        others: dict[str, str] = {}
        for column, id, inner in _identified(file, columns, self._mapping):
            field = self._wanted.get(id)
            if field is None:
                others[column.name] = file
                continue
            if self._names.setdefault(id, column.name) != column.name:
                raise _refused(
                    f"{file} calls the column {field.name!r} {column.name!r}, and another file "
                    f"{self._names[id]!r}, since it was renamed between them"
                )
            _check_members(file, column, field, inner)
        if self._rewrites:
            for field in self._fields:
                _stored(field, self._names[field.id], self._names, others)
        return others


def by_ids(batch: pa.RecordBatch, fields: Sequence[Field], mapping: NameMapping) -> pa.RecordBatch:
    """The columns of the table that rows have, with members, by the table's names. [AF4]"""
    wanted = {field.id: field for field in fields}
    found = {
        wanted[id].name: _renamed(batch.column(column.name), column, wanted[id], inner or {})
        for column, id, inner in _identified("the file", batch.schema, mapping)
        if id in wanted
    }
    return pa.RecordBatch.from_pydict(found)


def _renamed(array: pa.Array, column: pa.Field, field: Field, mapping: NameMapping) -> pa.Array:
    """The array with the names of members that the table has for their ids, without the others."""
    inner = members(field.type)
    children = _children(column.type)
    if not children:
        return array
    if array.offset:
        array = array.take(pa.array(range(len(array))))
    parts = [
        (_id(child) or mapping.get(child.name, (0, {}))[0], child, at)
        for at, child in enumerate(children)
    ]
    if isinstance(field.type, StructType):
        values = array.flatten()
        by_id = {member.id: member for member in inner}
        kept: dict[str, pa.Array] = {member.name: pa.nulls(len(array)) for member in inner}
        kept |= {
            by_id[id].name: _renamed(
                values[at], child, by_id[id], mapping.get(child.name, (0, {}))[1]
            )
            for id, child, at in parts
            if id in by_id
        }
        return pa.StructArray.from_arrays(list(kept.values()), list(kept), mask=array.is_null())
    stored = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    new = [
        _renamed(each, child, member, mapping.get(child.name, (0, {}))[1])
        for each, child, member in zip(stored, children, inner, strict=True)
    ]
    kind = pa.MapArray if pa.types.is_map(array.type) else type(array)
    return kind.from_arrays(array.offsets, *new, mask=array.is_null())


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


def _footers(ctx: TableContext, paths: Sequence[str]) -> Iterator[tuple[str, pa.Schema]]:
    def columns(path: str) -> pa.Schema:
        try:
            with ctx.store.open_input(path) as stream:
                return judge.open(stream)[0].schema_arrow
        except FileNotFoundError:
            raise UsageError(
                f"{ctx.store.url}/{path} is listed and is not there. Nothing was adopted"
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise UsageError(
                f"{ctx.store.url}/{path} cannot be read as a Parquet file: {error}. Nothing "
                "was adopted"
            ) from error

    with FooterJudge() as judge:
        yield from zip(paths, map_in_batches(ctx.store, columns, paths), strict=True)


def _identified(
    file: str, columns: Iterable[pa.Field], mapping: NameMapping
) -> Iterator[tuple[pa.Field, int, NameMapping | None]]:
    """Columns with their ids, and for files without ids the mapping of their members."""
    listed = list(columns)
    has_ids = any(_id(column) is not None for column in listed)
    for column in listed:
        if has_ids:
            if (id := _id(column)) is None:
                raise _without_ids(f"{file} has a column {column.name!r} without a field id")
            yield column, id, None
        elif column.name in mapping:
            yield column, *mapping[column.name]
        elif not mapping:
            raise _without_ids(f"{file} has no field ids, and the table has no mapping of names")
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


def _without_ids(what: str) -> UsageError:
    return UsageError(
        f"{what}: nothing says which columns these are. Nothing was adopted. Rewrite all files "
        "there first, such as by table.overwrite(table.scan().to_arrow()) in pyiceberg, or by "
        "rewrite_data_files with rewrite-all in Spark, and adopt the document of that snapshot"
    )


class _NamedOtherwiseError(UsageError):
    """A file has another name for a column than others."""


def _refused(what: str) -> UsageError:
    return _NamedOtherwiseError(
        f"{what}: a table here has one name for a column in all files. Nothing was adopted. With "
        "adopt(..., rewrite=True) the rows of such files go into new ones"
    )

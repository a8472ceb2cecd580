"""Computes one schema for untracked files: the union of their columns, if every file can be read
with it. [AF2] [SC5]
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pyarrow.parquet as pq

from ...core.schema.arrow_schema import SPARK_SCHEMA
from ...core.schema.evolution import apply_edits, can_widen, fit
from ...core.schema.fields import (
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    members,
    show_path,
    type_text,
    unique_ids,
    walk,
)
from ...errors import SchemaMismatchError
from .foreign_file import own_columns

Path = tuple[str, ...]


class Columns:
    """The columns of each file, with the same id for the same path of names in all files. Safe for
    many threads. [SC1]

    known: the columns that the table has already.
    """

    def __init__(self, new_id: Callable[[], int], known: Schema | None = None) -> None:
        self._lock = threading.Lock()
        self._ids: dict[Path, int] = (
            {path: field.id for path, field in walk(known.fields)} if known else {}
        )
        self._draw = unique_ids(new_id, self._ids.values())
        self._known: dict[tuple[bytes, bytes, str], Schema] = {}

    def of(self, file: pq.ParquetFile) -> Schema:
        """The file's columns; the same object for all files with equal columns."""
        spark = (file.metadata.metadata or {}).get(SPARK_SCHEMA, b"")
        kinds = "".join(file.schema.column(at).physical_type[:4] for at in range(len(file.schema)))
        key = (file.schema_arrow.remove_metadata().serialize().to_pybytes(), spark, kinds)
        with self._lock:
            if key not in self._known:
                own = own_columns(file)
                self._known[key] = Schema(
                    fields=tuple(self._identified(field, ()) for field in own.fields)
                )
            return self._known[key]

    def id_of(self, path: Path) -> int:
        """The id of the column."""
        if path not in self._ids:
            self._ids[path] = self._draw()
        return self._ids[path]

    def _identified(self, field: Field, parent: Path) -> Field:
        path = (*parent, field.name)
        kind: FieldType = field.type
        match kind:
            case StructType():
                kind = StructType(
                    fields=tuple(self._identified(member, path) for member in kind.fields)
                )
            case ArrayType():
                kind = ArrayType(element=self._identified(kind.element, path))
            case MapType():
                kind = MapType(
                    key=self._identified(kind.key, path), value=self._identified(kind.value, path)
                )
        return msgspec.structs.replace(field, id=self.id_of(path), type=kind)


class Union:
    """The columns of all files so far, in the order in which they were first seen. schema: None
    before the first file. [SC5]"""

    def __init__(self, schema: Schema | None = None) -> None:
        self.schema = schema
        self._taken: set[int] = set()
        self._kept: list[Schema] = []  # keeps the object alive, so that no other one gets its id()
        self._origin: dict[Path, str] = {}  # column -> the file that gave it its type

    def take(self, columns: Schema, path: str) -> None:
        """Widen the union by a file's columns; SchemaMismatchError names two files and the column
        if that is impossible."""
        if id(columns) in self._taken:
            return
        self._taken.add(id(columns))
        self._kept.append(columns)
        before = self.schema
        if before is None:
            self.schema = columns
        else:
            self._check(columns, before, path)
            try:
                self.schema = apply_edits(before, fit(before, columns, merge=True, converted=False))
            except SchemaMismatchError as error:
                raise SchemaMismatchError(f"{path!r}: {error} Nothing was adopted.") from error
        there = {} if before is None else {at: field.type for at, field in walk(before.fields)}
        self._origin |= {
            at: path
            for at, field in walk(self.schema.fields)
            if there.get(at) != field.type or at not in self._origin
        }

    def _check(self, columns: Schema, table: Schema, path: str) -> None:
        """If two types differ, one must be the wider: the union has that one, and both files are
        read as it."""
        misread = _misread(columns.fields, table.fields, ())
        if misread is None:
            return
        at, own, other = misread
        where = next(
            (self._origin[at[:n]] for n in range(len(at), 0, -1) if at[:n] in self._origin),
            "the table",
        )
        raise SchemaMismatchError(
            f"column {show_path(at)} is {own} in {path!r} and {other} in {where!r}, and no "
            "column of a table is read from both. Nothing "
            "was adopted: rewrite one of the two files, or write their rows to a new table."
        )


def _misread(
    own: tuple[Field, ...], table: tuple[Field, ...], parent: Path
) -> tuple[Path, str, str] | None:
    """The first column of a file that readers could not read as the table's: its path, its type and
    the table's."""
    by_name = {field.file_name: field for field in table}
    by_lower = {field.name.lower(): field for field in table}
    for field in own:
        path, wanted = (*parent, field.name), by_name.get(field.name)
        if wanted is None:
            if (twin := by_lower.get(field.name.lower())) is not None:
                return (*parent, twin.name), f"spelled {field.name!r}", f"spelled {twin.name!r}"
            continue  # it would be a new column
        one, other = field.type, wanted.type
        if isinstance(one, str) or isinstance(other, str):
            if one != other and not can_widen(one, other) and not can_widen(other, one):
                return path, type_text(one), type_text(other)
        elif type(one) is not type(other):
            return path, type_text(one), type_text(other)
        elif (inner := _misread(members(one), members(other), path)) is not None:
            return inner
    return None

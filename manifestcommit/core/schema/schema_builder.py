"""A schema indexed by field id, so that thousands of edits cost only one rebuild. [SC5] [SC6]"""

from __future__ import annotations

import msgspec

from manifestcommit.core.schema.fields import (
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    members,
)
from manifestcommit.core.schema.spark_json import rename_metadata

_TABLE = 0  # the parent of top-level columns; field ids begin at 1


class SchemaConflict(ValueError):  # noqa: N818 - a result that the commit rules turn into a CommitConflictError, no user's error
    """An edit does not commute with the present schema. [CF8]"""


class Draft:
    """A schema under construction."""

    def __init__(self, schema: Schema) -> None:
        self._base = schema
        self._fields: dict[int, Field] = {}
        # by parent; a dict keeps the order and deletes in one step
        self._members: dict[int, dict[int, None]] = {_TABLE: {}}
        self._parents: dict[int, int] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._retired = list(schema.retired)
        self._retired_lower = {name.lower() for name in schema.retired}
        for field in schema.fields:
            self._take(field, _TABLE)

    def find(self, id: int, column: str) -> Field:
        """The field in its present state; SchemaConflict if it was dropped. The members of its type
        may be out of date."""
        if id not in self._fields:
            raise SchemaConflict(f"the column {column!r} was dropped meanwhile")
        return self._fields[id]

    def put(self, field: Field) -> None:
        """Replace the properties of a field found before; its name and members stay."""
        self._fields[field.id] = field

    def add(self, field: Field, parent: int | None, column: str) -> None:
        """Add a column or a member of a struct; nothing happens if it exists with the same id and
        type."""
        if parent is not None and not isinstance(self.find(parent, column).type, StructType):
            raise SchemaConflict(f"the column {column!r} cannot be added, its parent is no struct")
        home = _TABLE if parent is None else parent
        twin = self._sibling(home, field.name)
        if twin == field.id and self._built(twin) == field:
            return
        if twin is not None:
            raise SchemaConflict(
                f"a column {self._fields[twin].name!r} was added meanwhile; {column!r} "
                "differs from it"
            )
        if home == _TABLE and field.file_name.lower() in self._retired_lower:
            raise SchemaConflict(f"a column {field.file_name!r} was added and dropped meanwhile")
        self._take(field, home)
        self._names[home][field.name.lower()] = field.id

    def rename(self, field: Field, to: str) -> None:
        """Rename the column; its name in files stays."""
        home = self._parents[field.id]
        if self._sibling(home, to) not in (None, field.id):
            raise SchemaConflict(f"another column is called {to!r} meanwhile")
        del self._names[home][field.name.lower()]
        self._names[home][to.lower()] = field.id
        physical = None if to == field.file_name else field.file_name
        metadata = rename_metadata(field.metadata, field.name, to)
        self.put(msgspec.structs.replace(field, name=to, physical=physical, metadata=metadata))

    def drop(self, field: Field) -> None:
        """Drop the column and retire its name in files."""
        home = self._parents[field.id]
        if self._sibling(home, field.name) == field.id:
            del self._names[home][field.name.lower()]
        del self._members[home][field.id]
        self._forget(field.id)
        if home == _TABLE:
            self._retired.append(field.file_name)
            self._retired_lower.add(field.file_name.lower())

    def schema(self) -> Schema:
        """The schema with all changes."""
        fields = tuple(self._built(id) for id in self._members[_TABLE])
        return msgspec.structs.replace(self._base, fields=fields, retired=tuple(self._retired))

    def _take(self, field: Field, parent: int) -> None:
        if field.id in self._fields:
            raise SchemaConflict(
                f"the field id {field.id} of {field.name!r} was given to "
                f"{self._fields[field.id].name!r} meanwhile"
            )
        self._fields[field.id] = field
        self._parents[field.id] = parent
        self._members[parent][field.id] = None
        if not isinstance(field.type, str):
            self._members[field.id] = {}
            for member in members(field.type):
                self._take(member, field.id)

    def _forget(self, id: int) -> None:
        for member in self._members.pop(id, {}):
            self._forget(member)
        del self._fields[id], self._parents[id]
        self._names.pop(id, None)

    def _sibling(self, home: int, name: str) -> int | None:
        if home not in self._names:
            self._names[home] = {self._fields[id].name.lower(): id for id in self._members[home]}
        return self._names[home].get(name.lower())

    def _built(self, id: int) -> Field:
        field = self._fields[id]
        return (
            field
            if isinstance(field.type, str)
            else msgspec.structs.replace(field, type=self._built_type(field.type, id))
        )

    def _built_type(self, type: FieldType, id: int) -> FieldType:
        inside = [self._built(member) for member in self._members[id]]
        match type:
            case StructType():
                return msgspec.structs.replace(type, fields=tuple(inside))
            case ArrayType():
                return msgspec.structs.replace(type, element=inside[0])
            case MapType():
                return msgspec.structs.replace(type, key=inside[0], value=inside[1])
            case _:
                return type

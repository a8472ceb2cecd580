"""Schema evolution: which data fits a table, which edits make it fit, and how edits combine with
concurrent ones. [SC3] [SC5] [SC6] Pure. An edit names its field by id and records the state that it
found there, so it either commutes with the edits committed before it or is a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from ..errors import SchemaMismatchError, UsageError
from .fields import (
    FLOATS,
    INTEGERS,
    INTERVALS,
    MAX_PRECISION,
    MOMENTS,
    ArrayType,
    Closed,
    Field,
    FieldType,
    MapType,
    Path,
    Schema,
    StructType,
    check_schema,
    comment_of,
    decimal_parts,
    match_all,
    match_names,
    members,
    rename_metadata,
    show_path,
    shown,
    type_text,
    unique_ids,
    walk,
    with_comment,
    with_members,
    with_new_ids,
)
from .transforms import source_ids

# A schema indexed by field id, so that thousands of edits cost only one rebuild.

_TABLE = 0  # the parent of top-level columns; field ids begin at 1
_VOID = "void"  # the type of columns and members whose values are all null


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
        self._names: dict[tuple[int, str], int] = {}  # by parent and name in lower case
        self._retired = {name.lower(): name for name in schema.retired}
        for field in schema.fields:
            self._take(field, _TABLE)

    def find(self, id: int, column: str) -> Field:
        """The field as of now; SchemaConflict if dropped. Its type's members may be out of date."""
        if id not in self._fields:
            raise SchemaConflict(f"the column {column!r} was dropped meanwhile")
        return self._fields[id]

    def put(self, field: Field) -> None:
        """Replace the properties of a field found before; its name and members stay."""
        self._fields[field.id] = field

    def add(self, field: Field, parent: int | None, column: str) -> None:
        """Add a column or a member; nothing happens if it exists with the same id and type."""
        if parent is not None and not isinstance(self.find(parent, column).type, StructType):
            raise SchemaConflict(f"the column {column!r} cannot be added, its parent is no struct")
        home = _TABLE if parent is None else parent
        twin = self._names.get((home, field.name.lower()))
        if twin == field.id and self._built(twin) == field:
            return
        if twin is not None:
            raise SchemaConflict(
                f"a column {self._fields[twin].name!r} was added meanwhile; {column!r} "
                "differs from it"
            )
        if home == _TABLE and field.file_name.lower() in self._retired:
            raise SchemaConflict(f"a column {field.file_name!r} was added and dropped meanwhile")
        self._take(field, home)

    def rename(self, field: Field, to: str) -> None:
        """Rename the column, whose name in files stays, or the member."""
        home = self._parents[field.id]
        if self._names.get((home, to.lower())) not in (None, field.id):
            raise SchemaConflict(f"another column is called {to!r} meanwhile")
        del self._names[home, field.name.lower()]
        self._names[home, to.lower()] = field.id
        stays = home == _TABLE and to != field.file_name
        physical = field.file_name if stays else None  # a member is called in files as it is
        metadata = rename_metadata(field.metadata, field.name, to)
        self.put(msgspec.structs.replace(field, name=to, physical=physical, metadata=metadata))

    def drop(self, field: Field) -> None:
        """Drop the column and retire its name in files."""
        home = self._parents[field.id]
        del self._members[home][field.id]
        self._forget(field.id)
        if home == _TABLE:
            self._retired[field.file_name.lower()] = field.file_name

    def schema(self) -> Schema:
        """The schema with all changes."""
        fields = tuple(self._built(id) for id in self._members[_TABLE])
        retired = tuple(self._retired.values())
        return msgspec.structs.replace(self._base, fields=fields, retired=retired)

    def _take(self, field: Field, parent: int) -> None:
        if field.id in self._fields:
            raise SchemaConflict(
                f"the field id {field.id} of {field.name!r} was given to "
                f"{self._fields[field.id].name!r} meanwhile"
            )
        self._fields[field.id], self._parents[field.id] = field, parent
        self._members[parent][field.id] = None
        self._names[parent, field.name.lower()] = field.id
        if not isinstance(field.type, str):
            self._members[field.id] = {}
            for member in members(field.type):
                self._take(member, field.id)

    def _forget(self, id: int) -> None:
        for member in self._members.pop(id, {}):
            self._forget(member)
        self._names.pop((self._parents.pop(id), self._fields.pop(id).name.lower()), None)

    def _built(self, id: int) -> Field:
        field = self._fields[id]
        if isinstance(field.type, str):
            return field
        inside = [self._built(member) for member in self._members[id]]
        return msgspec.structs.replace(field, type=with_members(field.type, inside))


class SchemaEdit(Closed, frozen=True, kw_only=True):
    """One change of a table's schema. [SC5] [SC6]

    id: the field that changes (add: the id of the new one); column: its path, for messages; field:
    add: the whole new field; parent: add: the struct field that receives it, None for the table;
    was, to: widen: type names, rename: column names, comment: the texts, None for none.
    """

    kind: Literal["add", "widen", "rename", "drop", "relax", "comment"]
    id: int
    column: str
    field: Field | None = None
    parent: int | None = None
    was: str | None = None
    to: str | None = None


# The edits of a schema, and the ids of the columns that partition the table.
Editing: TypeAlias = Callable[[Schema, tuple[int, ...]], tuple[SchemaEdit, ...]]


def fit(
    table: Schema, data: Schema, *, merge: bool, converted: bool = True
) -> tuple[SchemaEdit, ...]:
    """Return the edits after which the table holds every value of such data; SchemaMismatchError
    names the column and the remedy where none do, or, without `merge`, where any were needed.
    Columns are matched by name; a missing nullable one reads as null. A nullable column fits a
    non-nullable one, as only the values can tell; with `merge` the table's becomes nullable.
    converted: values are written in the table's types, so that whole numbers in floats fit integers
    and the other way round; False: files are registered as they are. [SC3] [SC5]"""
    edits = tuple(_Fitting(table, merge, converted).columns(table.fields, data.fields, (), None))
    try:
        if edits:
            apply_edits(table, edits)
    except SchemaConflict as conflict:
        raise SchemaMismatchError(
            f"The data's columns cannot be merged into the table: {conflict}."
        ) from conflict
    return edits


def replace(table: Schema, data: Schema) -> tuple[SchemaEdit, ...]:
    """The edits after which the table has the data's columns and no others, for rows that replace
    all of its rows. A column stays itself, and its place, where its name and type are the same or a
    wider type holds both; another one of its name is a new column. [SC10]"""
    positions, extra = match_names([field.name for field in data.fields], table.fields)
    new = {at: data.fields[at] for at in extra}
    edits: list[SchemaEdit] = []
    for field, at in zip(table.fields, positions, strict=True):
        if at is not None:
            pair = msgspec.structs.replace(data.fields[at], name=field.name)
            with suppress(SchemaMismatchError):
                own = Schema(fields=(field,))
                widened = fit(own, Schema(fields=(pair,)), merge=True, converted=False)
                if not any(edit.kind in ("add", "drop") for edit in widened):
                    edits += widened
                    continue
            new[at] = data.fields[at]
        edits.append(SchemaEdit(kind="drop", id=field.id, column=field.name))
    file_names = _file_names(table)
    for _, field in sorted(new.items()):
        fresh = msgspec.structs.replace(field, nullable=True, physical=None)
        edits.append(_addition(fresh, (), None, file_names))
    return tuple(edits)


def apply_edits(schema: Schema, edits: Sequence[SchemaEdit]) -> Schema:
    """The schema after the edits, of which one whose result exists already changes nothing;
    SchemaConflict if one does not commute with the present schema. [CF8]"""
    draft = Draft(schema)
    for edit in edits:
        if edit.kind != "add":
            _APPLY[edit.kind](draft, draft.find(edit.id, edit.column), edit)
        elif edit.field is None:
            raise SchemaConflict(f"the edit that adds {edit.column!r} names no field")
        else:
            draft.add(edit.field, edit.parent, edit.column)
    result = draft.schema()
    try:
        check_schema(result)
    except SchemaMismatchError as error:
        raise SchemaConflict(f"the schema changes contradict each other: {error}") from error
    return result


def can_widen(old: FieldType, new: FieldType) -> bool:
    """True if the new type holds every value of the old one, as which its files can be read: a
    wider integer, double for float, a decimal with more digits before the point. [SC5]"""
    for ordered in (INTEGERS, FLOATS):
        if old in ordered and new in ordered:
            return ordered.index(old) < ordered.index(new)
    (digits, scale), (more, same) = (decimal_parts(each) or (0, 0) for each in (old, new))
    return scale == same and 0 < digits < more


def add_column(
    schema: Schema, name: str, type: FieldType, *, new_id: Callable[[], int]
) -> tuple[SchemaEdit, ...]:
    """The edit that adds a nullable column, with ids that were never used. [SC1] [SC6]"""
    draw = unique_ids(new_id, (field.id for _, field in walk(schema.fields)))
    if there := _at(schema, name):
        raise UsageError(
            f"The table has a column {there[1].name!r} already; column names do not differ in case "
            "only."
        )
    outer, _, own = name.rpartition(".")
    parent, above = _at(schema, outer) or ((), None)
    if "." in name and (above is None or not own or not isinstance(above.type, StructType)):
        what = "no column" if above is None else type_text(above.type)
        raise UsageError(
            f"{shown(name)} is the path of a member, and {shown(outer)} is {what}: only a struct "
            "gets members. A column whose name has a dot comes with data (merge_schema=True)."
        )
    field = with_new_ids(Field(id=1, name=own, type=type), draw)
    check_schema(Schema(fields=(field,)))
    if above is not None:
        return (_addition(field, parent, above.id, frozenset()),)
    return (_addition(field, (), None, _file_names(schema)),)


def _at(schema: Schema, name: str) -> tuple[Path, Field] | None:
    """The column of this name, or else the member of this path, such as `s.b` or `tags.element`, in
    any case; UsageError if it is that of two members, since names may have dots. [SC12]"""
    found = [each for each in walk(schema.fields) if ".".join(each[0]).lower() == name.lower()]
    columns = [each for each in found if len(each[0]) == 1]
    if not columns and len(found) > 1:
        raise UsageError(
            f"{shown(name)} is the path of two members, one of whose names has a dot: "
            f"{found[0][0]} and {found[1][0]}. Rename what is above one of them first."
        )
    return next(iter(columns or found), None)


def _find_member(schema: Schema, name: str) -> tuple[str, Field]:
    """The path of the column or member; UsageError if there is none."""
    path, field = _at(schema, name) or ((), find_column(schema, name))
    return ".".join(path) or field.name, field


def _with_siblings(schema: Schema, name: str) -> tuple[str, Field, tuple[Field, ...]]:
    """The path of a column or a struct's member, and what is beside it. [SC6] [SC12]"""
    path, field = _find_member(schema, name)
    if field in schema.fields:
        return path, field, schema.fields
    above = next(each for _, each in walk(schema.fields) if field in members(each.type))
    if not isinstance(above.type, StructType):
        raise UsageError(
            f"{shown(path)} is what a list or map holds, and has no name of its own: name a "
            "column, or a member of a struct."
        )
    return path, field, above.type.fields


def rename_column(schema: Schema, name: str, to: str) -> tuple[SchemaEdit, ...]:
    """The edit that renames a column or a member; a column's name in files stays. [SC6] [SC12]"""
    path, field, beside = _with_siblings(schema, name)
    if not to:
        raise UsageError(f"The column {name!r} cannot get an empty name.")
    check_schema(Schema(fields=(msgspec.structs.replace(field, name=to, physical=None),)))
    if any(other.name.lower() == to.lower() and other.id != field.id for other in beside):
        what = "The table" if beside is schema.fields else f"The struct of {path!r}"
        raise UsageError(
            f"{what} has a column {to!r} already; column names do not differ in case only."
        )
    if field.name == to:
        return ()
    return (SchemaEdit(kind="rename", id=field.id, column=path, was=field.name, to=to),)


def drop_column(
    schema: Schema, name: str, *, partition_by: tuple[int, ...] = ()
) -> tuple[SchemaEdit, ...]:
    """The edit that drops a column or a member, whose id is never used again. [SC6] [SC12]"""
    path, field, beside = _with_siblings(schema, name)
    if field.id in source_ids(partition_by):
        raise UsageError(
            f"The column {field.name!r} partitions the table and cannot be dropped; partition it "
            "by others first: Table.set_partitioning."
        )
    if len(beside) == 1:
        what = "table's" if beside is schema.fields else "struct's"
        raise UsageError(f"The column {path!r} is the {what} only one and cannot be dropped.")
    return (SchemaEdit(kind="drop", id=field.id, column=path),)


def widen_column(schema: Schema, name: str, to: FieldType) -> tuple[SchemaEdit, ...]:
    """The edits that widen a column's type, also inside lists, maps and structs. Files of the old
    type stay, and are read as the new one, but for `void`, see `replaces_files`. [SC5] [SC11]"""
    path, field = _find_member(schema, name)
    return tuple(_widened(field, to, path))


def _widened(field: Field, to: FieldType, path: str) -> Iterator[SchemaEdit]:
    old = field.type
    if old == to:
        return
    inside, wanted = members(old), members(to)
    if type(old) is type(to) and [each.name for each in inside] == [each.name for each in wanted]:
        if inside:
            for each, wider in zip(inside, wanted, strict=True):
                yield from _widened(each, wider.type, f"{path}.{each.name}")
            return
        if isinstance(old, str) and isinstance(to, str) and (old == _VOID or can_widen(old, to)):
            yield SchemaEdit(kind="widen", id=field.id, column=path, was=old, to=to)
            return
    name = shown(to) if isinstance(to, str) else type_text(to)
    raise UsageError(
        f"The column {path!r} cannot become {name} from {type_text(old)}. A type widens from byte "
        "over short and integer to long, from float to double, from a decimal to one with more "
        "digits before the point, and from void to any that is not nested."
    )


def replaces_files(schema: Schema, edits: Iterable[SchemaEdit]) -> bool:
    """Whether the commit has to replace the files. A column of nulls gets a type: engines do not
    read one in a file as of another type [SC11]; or a member gets a name or goes: files and engines
    know members by their names. [SC12]"""
    columns = {field.id for field in schema.fields}
    given = (edit for edit in edits if edit.kind in ("widen", "rename", "drop"))
    return any(
        edit.was == _VOID if edit.kind == "widen" else edit.id not in columns for edit in given
    )


def comment_column(schema: Schema, name: str, comment: str | None) -> tuple[SchemaEdit, ...]:
    """The edit that sets a column's comment, or removes it. It is kept as Spark keeps it. [SC9]"""
    path, field = _find_member(schema, name)
    was = comment_of(field)
    if was == comment:
        return ()
    return (SchemaEdit(kind="comment", id=field.id, column=path, was=was, to=comment),)


def relax_column(schema: Schema, name: str) -> tuple[SchemaEdit, ...]:
    """The edit that makes a column nullable. [SC5]"""
    field = find_column(schema, name)
    return () if field.nullable else (_relaxed(field, (field.name,)),)


# Columns of the schema that was asked last, by name: a call that names each of thousands would else
# look at all of them each time.
_last_names: tuple[tuple[Field, ...], dict[str, Field]] = ((), {})


def find_column(schema: Schema, name: str, of: str = "The table", *, in_sql: bool = False) -> Field:
    """The column with that name, exactly or else in another case; UsageError if there is none.
    in_sql: it may have been meant as a text."""
    global _last_names
    fields, named = _last_names  # once: another thread may ask about another schema meanwhile
    if fields is not schema.fields:
        named = {field.name.lower(): field for field in reversed(schema.fields)}
        named |= {field.name: field for field in schema.fields}
        _last_names = schema.fields, named
    if (found := named.get(name) or named.get(name.lower())) is not None:
        return found
    if any(".".join(path).lower() == name.lower() for path, _ in walk(schema.fields)):
        raise UsageError(
            f"{shown(name)} is a member of a column, and only a whole column can be named here."
        )
    known = ", ".join(repr(field.name) for field in schema.fields[:20]) or "none"
    hint = f" A text has quotes: {shown(name)}." if in_sql else ""
    raise UsageError(f"{of} has no column {shown(name)}; it has {known}.{hint}")


# --- Does the data fit? ---------------------------------------------------------------------------


class _Fitting:
    """Compares a table's schema and data's; with `merge`, differences are edits. [SC3] [SC5]"""

    def __init__(self, table: Schema, merge: bool, converted: bool) -> None:
        self._merge, self._converted = merge, converted
        self._ids = {field.id for _, field in walk(table.fields)} if merge else set()
        self._table = table

    def columns(
        self, table: tuple[Field, ...], data: tuple[Field, ...], parent: Path, parent_id: int | None
    ) -> Iterator[SchemaEdit]:
        """The edits for the members of one struct, or of the table."""
        names, extra = [field.name for field in data], list[int]()
        if self._merge:
            positions, extra = match_names(names, table, parent)
        else:
            positions = match_all(names, table, parent)
        for field, at in zip(table, positions, strict=True):
            path = (*parent, field.name)
            if at is not None:
                yield from self._column(field, data[at], path)
            elif not field.nullable:
                yield _relaxed(field, path)
        for at in extra:
            taken = frozenset[str]() if parent else _file_names(self._table)
            yield _addition(self._added(data[at]), parent, parent_id, taken)

    def _column(self, table: Field, data: Field, path: Path) -> Iterator[SchemaEdit]:
        if data.type == "void" and table.type != "void":  # all values are null
            if not table.nullable:
                if not self._merge:
                    raise SchemaMismatchError(
                        f"Column {show_path(path)} is null throughout the data and may not be "
                        "null. Provide it, or make the column nullable (merge_schema=True)."
                    )
                yield _relaxed(table, path)
            return
        if data.nullable and not table.nullable and self._merge:
            yield _relaxed(table, path)
        match table.type, data.type:
            case StructType(fields=old), StructType(fields=new):
                yield from self.columns(old, new, path, table.id)
            case ArrayType(element=old_element), ArrayType(element=new_element):
                yield from self._column(old_element, new_element, (*path, "element"))
            case MapType(key=old_key, value=old_value), MapType(key=new_key, value=new_value):
                yield from self._column(old_key, new_key, (*path, "key"))
                yield from self._column(old_value, new_value, (*path, "value"))
            case _:
                taken = self._converted and _converts(table.type, data.type)
                if not (taken or _holds(table.type, data.type)):
                    yield from self._retyped(table, data, path)

    def _retyped(self, table: Field, data: Field, path: Path) -> Iterator[SchemaEdit]:
        """Widen a column; an error if its type cannot be widened, or the table must not change."""
        wider = _wider(table.type, data.type)
        replaceable = table.type == "void" and len(path) == 1
        if not self._merge or (wider is None and not replaceable):
            raise SchemaMismatchError(_remedy(table, data, path, wider, replaceable=replaceable))
        if wider is not None:
            was, column = str(table.type), ".".join(path)
            yield SchemaEdit(kind="widen", id=table.id, column=column, was=was, to=wider)
            return
        # Engines cannot read a file's void column as another type: Spark fails, or returns an empty
        # array. All of its values are null, so a new column in its place is equivalent.
        yield SchemaEdit(kind="drop", id=table.id, column=table.name)
        yield _addition(self._added(data, name=table.name), (), None, _file_names(self._table))

    def _added(self, field: Field, name: str | None = None) -> Field:
        """Add the data's field as a new nullable column: existing rows have no value for it."""
        fresh = field
        if any(member.id in self._ids for _, member in walk((field,))):
            fresh = with_new_ids(field, unique_ids(lambda: field.id, self._ids))
        self._ids |= {member.id for _, member in walk((fresh,))}
        return msgspec.structs.replace(fresh, name=name or field.name, nullable=True, physical=None)


def _relaxed(field: Field, path: Path) -> SchemaEdit:
    return SchemaEdit(kind="relax", id=field.id, column=".".join(path))


def _holds(table: FieldType, data: FieldType) -> bool:
    """True if the table's type takes every value of the data's, or refuses it at the write."""
    if table == data or can_widen(data, table):
        return True
    # Arrow has one duration type; values that are not whole units are refused
    if table in INTERVALS and data in INTERVALS:
        return True
    (have, scale), (need, own) = (decimal_parts(each) or (0, 0) for each in (table, data))
    return need > 0 and own <= scale and need - own <= have - scale


def _converts(table: FieldType, data: FieldType) -> bool:
    """True if values stay the same number: pandas makes integers floats beside a missing one."""
    kinds = (FLOATS, INTEGERS) if table in FLOATS else (INTEGERS, FLOATS)
    return table in kinds[0] and data in kinds[1]


def _wider(table: FieldType, data: FieldType) -> str | None:
    """The type that both the table's and the data's values widen to; None if there is none."""
    if isinstance(data, str) and can_widen(table, data):
        return data
    (have, scale), (need, own) = (decimal_parts(each) or (0, 0) for each in (table, data))
    digits = need - own + scale
    is_wider = have and need and own <= scale and have < digits <= MAX_PRECISION
    return f"decimal({digits},{scale})" if is_wider else None


def _remedy(table: Field, data: Field, path: Path, wider: str | None, *, replaceable: bool) -> str:
    old, new = type_text(table.type), type_text(data.type)
    problem = f"Column {show_path(path)} is {old} in the table and {new} in the data"
    if wider is not None or replaceable:
        alone = f", or widen_column({path[0]!r}, {wider!r})" if wider and len(path) == 1 else ""
        return f"{problem}. Cast the data, or let the table change (merge_schema=True{alone})."
    if {old, new} == {*MOMENTS}:
        return f"{problem}: only one of them has a time zone. Convert the data explicitly."
    if table.type == "void":
        return (
            f"{problem}. Give it a type first, which rewrites the table's files: widen_column("
            f"{'.'.join(path)!r}, …)."
        )
    return (
        f"{problem}. Cast the data to {old}, or drop the column, and the values that it has, and "
        f"add it again as {new} (drop_column, add_column). A write of all rows may change it "
        '(mode="overwrite", replace_schema=True).'
    )


def _file_names(schema: Schema) -> frozenset[str]:
    """The names in files, in lower case, of live and dropped columns: no new one takes these."""
    return frozenset(
        name.lower() for name in (*(field.file_name for field in schema.fields), *schema.retired)
    )


def _addition(
    field: Field, parent: Path, parent_id: int | None, file_names: frozenset[str]
) -> SchemaEdit:
    if field.name.lower() in file_names:
        field = msgspec.structs.replace(field, physical=f"{field.name}-{field.id}")
    column = ".".join((*parent, field.name))
    return SchemaEdit(kind="add", id=field.id, column=column, field=field, parent=parent_id)


# --- Applying edits -------------------------------------------------------------------------------


def _widen(draft: Draft, field: Field, edit: SchemaEdit) -> None:
    if field.type == edit.to:
        return
    widens = edit.to is not None and (edit.was == _VOID or can_widen(field.type, edit.to))
    if field.type != edit.was or edit.to is None or not widens:
        raise SchemaConflict(
            f"the column {edit.column!r} became {type_text(field.type)} meanwhile, not {edit.to}"
        )
    draft.put(msgspec.structs.replace(field, type=edit.to))


def _rename(draft: Draft, field: Field, edit: SchemaEdit) -> None:
    if field.name == edit.to:
        return
    if field.name != edit.was or not edit.to:
        raise SchemaConflict(f"the column {edit.column!r} is called {field.name!r} meanwhile")
    draft.rename(field, edit.to)


def _comment(draft: Draft, field: Field, edit: SchemaEdit) -> None:
    if comment_of(field) == edit.to:
        return
    if comment_of(field) != edit.was:
        raise SchemaConflict(f"the column {edit.column!r} has got another comment meanwhile")
    draft.put(msgspec.structs.replace(field, metadata=with_comment(field.metadata, edit.to)))


_APPLY: dict[str, Callable[[Draft, Field, SchemaEdit], None]] = {
    "widen": _widen,
    "rename": _rename,
    "drop": lambda draft, field, _: draft.drop(field),
    "relax": lambda draft, field, _: draft.put(msgspec.structs.replace(field, nullable=True)),
    "comment": _comment,
}

"""The table's schema: types, field ids, the rules of a valid schema, and its form in Spark's JSON.
[SC1] [SC2] Pure."""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import itertools
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Context
from functools import lru_cache
from numbers import Number
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeGuard, TypeVar

import msgspec

from ..errors import SchemaMismatchError, UnsupportedTypeError, UsageError

_T = TypeVar("_T")
_PLAIN = (str, bytes, Number, dt.date, dt.time, dt.timedelta, list, tuple, type(None))

# Checks of texts that are to be stored, and short forms of values for error messages.


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode the text: lone surrogates cannot be stored. [SC7]"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_text(value: object) -> TypeGuard[str]:
    """Whether it is a non-empty text that can be stored. [SC7]"""
    return isinstance(value, str) and value != "" and is_unicode(value)


# Unlikely in any text that is no credential, as names of values are in `format/snapshot.py`.
_SECRETS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\"private_key\"\s*:")),
    ("a URL with a password", re.compile(r"://[^/\s:@]*:[^/\s@]+@")),
    ("a signed URL", re.compile(r"[?&](?:sig|x-(?:amz|goog)-signature|token)=", re.IGNORECASE)),
    (
        "a password or key",
        re.compile(
            r"(?:secret|passw(?:or)?d|pwd|(?:account|access|api|sharedaccess)_?key)\s*[=:]\s*\S",
            re.IGNORECASE,
        ),
    ),
    ("a bearer token", re.compile(r"\bbearer\s+[a-z0-9+/_=.~-]{16,}", re.IGNORECASE)),
    ("a JSON web token", re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.")),
    (
        "a service's token",
        re.compile(
            r"\b(?:gh[pousr]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}|"
            r"dapi[0-9a-f]{32}|sk_live_\w{16,}|AIza[\w-]{30,})"
        ),
    ),
)


def secret_in(text: str) -> str | None:
    """The kind of credential that it looks like to have. [SE5]"""
    return next((kind for kind, pattern in _SECRETS if pattern.search(text)), None)


def hidden(text: str) -> str:
    """The text for an error, or what it looks like where that is a credential. [SE1]"""
    kind = secret_in(text)
    return text if kind is None else f"({kind})"


def shown(value: object) -> str:
    """A value for an error: short, on one line, never a mapping's content or a credential. [SE1]"""
    if isinstance(value, _PLAIN) or hasattr(type(value), "__fspath__"):
        try:
            return _SHORT.repr(value)
        except ValueError:  # an integer with too many digits to print
            pass
    return f"of type {type(value).__module__}.{type(value).__qualname__}".replace(" builtins.", " ")


class _Short(reprlib.Repr):
    """Texts of up to 30 characters, lists of up to 6 items; else inside a list the type."""

    def repr1(self, x: Any, level: int) -> str:
        text = x.decode("latin-1") if isinstance(x, bytes) else x
        if isinstance(text, str) and secret_in(text):
            x = hidden(text)
        plain = isinstance(x, _PLAIN) or hasattr(type(x), "__fspath__")
        return super().repr1(x, level) if plain else f"<{type(x).__qualname__}>"


_SHORT = _Short()


# The types of values in JSON.

# A partition value or a bound as JSON holds it; `format.values` converts it by the column's
# type.
WireValue: TypeAlias = bool | int | float | str | None
Path: TypeAlias = tuple[str, ...]  # names, from a column down
DAY_US = 86_400_000_000  # microseconds
WIDE = Context(prec=120)  # the default context would round a decimal of more than 28 digits


# The read mark: it records the version at which data was read, so that a write of that data is
# checked against all commits since.

# The key of a mark in the metadata of an Arrow schema and of a Spark column.
MARK = "manifestcommit.read"
_FORM = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-v([1-9][0-9]{0,17})")


def mark_of(table_id: str, url: str, version: int) -> str:
    """The mark of rows read at this version. The URL is a digest, to compare tables."""
    return f"{table_id}-{_place(url)}-v{version}"


def lowest_version(marks: Iterable[str], table_id: str, url: str) -> int | None:
    """This table's lowest version in the marks; None: no mark. Others and copies are ignored."""
    matches = (_FORM.fullmatch(mark) for mark in marks)
    own = (table_id, _place(url))
    return min(
        (int(each[3]) for each in matches if each and each.groups()[:2] == own), default=None
    )


def arrow_metadata(mark: str) -> dict[bytes, bytes]:
    """The mark as metadata of an Arrow schema, which slices, filters and added columns keep."""
    return {MARK.encode(): mark.encode()}


def arrow_marks(metadata: Mapping[bytes, bytes] | None) -> tuple[str, ...]:
    """The mark in the metadata of an Arrow schema, if there is one."""
    mark = (metadata or {}).get(MARK.encode())
    return () if mark is None else (mark.decode("utf-8", "replace"),)


def _place(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]


class Closed(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A part of a metadata object that has no members but those that are named here."""


class Stored(Closed, frozen=True, kw_only=True):
    """A part of a metadata object. extra: unknown members, which a rewrite keeps. [OB12]"""

    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Field(Stored, frozen=True, kw_only=True):
    """One column or nested member. Its id never changes and is never reused. [SC1]

    id: 1 .. 2^31-1, random; name: as users see it; type: a primitive's name or a nested type;
    physical: the name in files if it differs from `name` (a renamed column keeps it); metadata:
    from the engine that declared the column.
    """

    id: int
    name: str
    type: FieldType
    nullable: bool = True
    physical: str | None = None
    metadata: dict[str, Any] = {}

    @property
    def file_name(self) -> str:
        """The column's name in data files."""
        return self.physical or self.name


class StructType(Stored, tag_field="type", tag="struct", frozen=True, kw_only=True):
    """A group of named members."""

    fields: tuple[Field, ...]

    def __hash__(self) -> int:  # types are looked up among others, and dicts have no hash
        return hash(tuple(field.id for field in self.fields))


class ArrayType(Stored, tag_field="type", tag="array", frozen=True, kw_only=True):
    """A list; the field of its elements is called `element`."""

    element: Field

    def __hash__(self) -> int:
        return hash("array")


class MapType(Stored, tag_field="type", tag="map", frozen=True, kw_only=True):
    """A map; its fields are called `key` (never null) and `value`."""

    key: Field
    value: Field

    def __hash__(self) -> int:
        return hash("map")


# A primitive is one of PRIMITIVES, one of INTERVALS or "decimal(p,s)".
FieldType: TypeAlias = str | StructType | ArrayType | MapType


class Primitive(NamedTuple):
    """What Spark, Iceberg and DuckDB call a type; empty: it is not in all their versions."""

    sql: str = ""
    iceberg: str = ""
    duckdb: str = ""


PRIMITIVES: Mapping[str, Primitive] = {
    "boolean": Primitive("BOOLEAN", "boolean", "BOOLEAN"),
    "byte": Primitive("TINYINT", "int", "TINYINT"),
    "short": Primitive("SMALLINT", "int", "SMALLINT"),
    "integer": Primitive("INT", "int", "INTEGER"),
    "long": Primitive("BIGINT", "long", "BIGINT"),
    "float": Primitive("FLOAT", "float", "FLOAT"),
    "double": Primitive("DOUBLE", "double", "DOUBLE"),
    "string": Primitive("STRING", "string", "VARCHAR"),
    "binary": Primitive("BINARY", "binary", "BLOB"),
    "date": Primitive("DATE", "date", "DATE"),
    "timestamp": Primitive("TIMESTAMP_LTZ", "timestamptz", "TIMESTAMP WITH TIME ZONE"),
    "timestamp_ntz": Primitive("TIMESTAMP_NTZ", "timestamp", "TIMESTAMP"),
    "void": Primitive(),
    "variant": Primitive(),
}
INTEGERS = ("byte", "short", "integer", "long")  # each holds the values of those before it
FLOATS = ("float", "double")
MOMENTS = ("timestamp", "timestamp_ntz")
# Of their values and of decimals, equal ones are stored alike.
EXACT = frozenset({"boolean", *INTEGERS, "string", "binary", "date", *MOMENTS})

_UNITS = ("day", "hour", "minute", "second")

# Day-time intervals, with the names of Spark's JSON; all hold whole microseconds.
INTERVALS = frozenset(
    f"interval {first}" if first == last else f"interval {first} to {last}"
    for i, first in enumerate(_UNITS)
    for last in _UNITS[i:]
)

MAX_FIELD_ID = 2**31 - 1
MAX_PRECISION = 38  # digits of a decimal, as in Spark, Iceberg and Delta

_DECIMAL = re.compile(r"decimal\((0|[1-9][0-9]?),(0|[1-9][0-9]?)\)", re.ASCII)


class Schema(Stored, frozen=True, kw_only=True):
    """The ordered columns of a table. retired: names in files of dropped columns, which live files
    may still hold: no new column takes them. [SC6]"""

    fields: tuple[Field, ...]
    retired: tuple[str, ...] = ()


class Shape(Protocol):
    """What has columns and is partitioned: a snapshot, a plan of a write."""

    @property
    def schema(self) -> Schema: ...
    @property
    def partition_by(self) -> tuple[int, ...]: ...


class Partitioned(NamedTuple):
    """The `Shape` of these columns, where nothing else has them."""

    schema: Schema
    partition_by: tuple[int, ...] = ()


NO_COLUMNS = Schema(fields=())  # of a table whose first write has not come yet


def check_has_columns(schema: Schema, url: str) -> None:
    """UsageError if the table at `url` has no columns yet."""
    if not schema.fields:
        raise UsageError(
            f"{url} has no columns yet; nothing was done. Write its first rows with "
            "mc.write(data, path)"
        )


@lru_cache(maxsize=1024)
def decimal_parts(type: FieldType) -> tuple[int, int] | None:
    """(precision, scale) of a "decimal(p,s)"; None if the type is not a valid decimal. [SC2]"""
    match = _DECIMAL.fullmatch(type) if isinstance(type, str) else None
    if match is None:
        return None
    precision, scale = int(match[1]), int(match[2])
    return (precision, scale) if 1 <= precision <= MAX_PRECISION and scale <= precision else None


def is_primitive(type: FieldType) -> bool:
    """True if the type's name is known and it is stored as one value per row. [SC2]"""
    return type in PRIMITIVES or type in INTERVALS or decimal_parts(type) is not None


def is_exact(type: FieldType) -> bool:
    """True if equal values of the type are stored alike, so that they distinguish rows. [PT1]"""
    return type in EXACT or decimal_parts(type) is not None


def is_number(type: FieldType) -> bool:
    """True for whole numbers, floats and decimals."""
    return type in INTEGERS or type in FLOATS or decimal_parts(type) is not None


def type_text(
    type: FieldType, word: Callable[[str], str] = str, name: Callable[[str], str] = str
) -> str:
    """The type as an error message shows it: `array<integer>`. word, name: what a type's word and a
    member's name are elsewhere."""
    if isinstance(type, str):
        return word(type)
    inside = [type_text(each.type, word, name) for each in members(type)]
    if isinstance(type, StructType):
        names = [name(each.name) for each in type.fields]
        inside = list(map("{}: {}".format, names, inside))
    return f"{word(str(type.__struct_config__.tag))}<{', '.join(inside)}>"


_NAMES = {
    **{name: name for name in (*PRIMITIVES, *INTERVALS)},
    "bool": "boolean",
    "tinyint": "byte",
    **dict.fromkeys(("smallint", "int2"), "short"),
    **dict.fromkeys(("int", "int4"), "integer"),
    "bigint": "long",
    **dict.fromkeys(("real", "float4"), "float"),
    **dict.fromkeys(("float8", "double precision"), "double"),
    "text": "string",
    **dict.fromkeys(("bytea", "blob", "varbinary"), "binary"),
    **dict.fromkeys(("timestamp_ltz", "timestamptz", "timestamp with time zone"), "timestamp"),
    "timestamp without time zone": "timestamp_ntz",
    **dict.fromkeys(("decimal", "dec", "numeric"), "decimal"),
}
_MAX_DEPTH = 100  # of nested types
MAX_LEVELS = 40  # of a column: each is up to two of the hundred that pyarrow reads
_NO_LENGTH = ("char", "character", "varchar", "nchar", "nvarchar")
_TYPE_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|'(?:[^'\\]|''|\\.)*'|\S)", re.DOTALL)


def parse_type(text: str) -> FieldType:
    """The type with this name, of Spark or SQL, in any case: `bigint`, `numeric(10,2)`,
    `struct<a: array<int>>`. UsageError, with the argument `type`, for any other text. Nested fields
    have the id 1. [SC2]"""
    parser = _TypeParser(text)
    try:
        type = parser.type()
        parser.expect("")
    except _NoTypeError as error:
        advice = (
            "Give the name of a type of Spark or SQL, such as 'bigint', 'numeric(10,2)', "
            "'array<int>', 'map<string, double>' or 'struct<a: int, b: string>', or a pyarrow type"
        )
        raise UsageError(f"{error}. {advice}", argument="type", given=shown(text)) from error
    return type


class _NoTypeError(ValueError):
    """A text is not the name of a type."""


class _TypeParser:
    def __init__(self, text: str) -> None:
        self._tokens, self._at, self._depth = _TYPE_TOKEN.findall(text), 0, 0

    def type(self) -> FieldType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _NoTypeError("it is nested too deeply")
        type = self._named(self._take().lower())
        self._depth -= 1
        return type

    def _named(self, name: str) -> FieldType:
        nested = self._next() == "<"
        if name == "array" and nested:
            (element,) = self._listed(self.type, "<>", 1)
            return ArrayType(element=Field(id=1, name="element", type=element))
        if name == "map" and nested:
            key, value = self._listed(self.type, "<>", 2)
            key_field = Field(id=1, name="key", type=key, nullable=False)
            return MapType(key=key_field, value=Field(id=1, name="value", type=value))
        if name == "struct" and nested:
            return StructType(fields=tuple(self._listed(self._member, "<>")))
        if name in _NO_LENGTH:
            raise _NoTypeError(f"columns have no {name}, whose length nobody checks; give 'string'")
        while any(f"{known} ".startswith(f"{name} {self._next().lower()} ") for known in _NAMES):
            name += f" {self._take().lower()}"
        if name not in _NAMES:
            raise _NoTypeError(
                f"{shown(name)} is the name of no type" if name else "it ends too early"
            )
        return self._decimal() if _NAMES[name] == "decimal" else _NAMES[name]

    def expect(self, token: str) -> None:
        if (found := self._take()) != token:
            wanted = f"{token!r} is missing" if token else "it goes on after a type"
            raise _NoTypeError(f"{wanted}, at {shown(found)}" if found else wanted)

    def _listed(self, part: Callable[[], _T], around: str, count: int = 0) -> list[_T]:
        """So many parts, or any number, with commas between and these two signs around."""
        self.expect(around[0])
        parts = [part()]
        while len(parts) < count or (not count and self._next() == ","):
            self.expect(",")
            parts.append(part())
        self.expect(around[1])
        return parts

    def _member(self) -> Field:
        name = self._take()
        if not (name.isidentifier() or name.startswith("`")):
            raise _NoTypeError(f"{shown(name)} is no name of a member")
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        if self._next() == ":":
            self.expect(":")
        type, nullable, metadata = self.type(), True, {}
        if self._next().lower() == "not":
            self._take()
            nullable = self._take().lower() != "null"
            if nullable:
                raise _NoTypeError("NOT is followed by NULL")
        if self._next().lower() == "comment":
            self._take()
            comment = self._take()
            if not comment.startswith("'"):
                raise _NoTypeError("COMMENT is followed by a text in quotes")
            metadata = {"comment": comment[1:-1].replace("''", "'")}
        return Field(id=1, name=name, type=type, nullable=nullable, metadata=metadata)

    def _decimal(self) -> str:
        numbers = self._listed(self._take, "()") if self._next() == "(" else ["10"]
        type = f"decimal({','.join([*numbers, '0'][: max(2, len(numbers))])})"
        if decimal_parts(type) is None:
            raise _NoTypeError(
                f"a decimal has 1 to {MAX_PRECISION} digits, of which the second number are after "
                f"the point, not {shown(type)}"
            )
        return type

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        return token


def members(type: FieldType) -> tuple[Field, ...]:
    """The fields directly inside a type; none for a primitive."""
    match type:
        case StructType():
            return type.fields
        case ArrayType():
            return (type.element,)
        case MapType():
            return (type.key, type.value)
        case _:
            return ()


def with_members(type: FieldType, inside: Sequence[Field]) -> FieldType:
    """The type with these fields directly inside it, in the order of `members`."""
    match type:
        case StructType():
            return msgspec.structs.replace(type, fields=tuple(inside))
        case ArrayType():
            return msgspec.structs.replace(type, element=inside[0])
        case MapType():
            return msgspec.structs.replace(type, key=inside[0], value=inside[1])
        case _:
            return type


def walk(fields: tuple[Field, ...], path: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Every field of the tree with its path of names, parents first, in the schema's order."""
    for field in fields:
        here = (*path, field.name)
        yield here, field
        if not isinstance(field.type, str):
            yield from walk(members(field.type), here)


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """A column, or member of structs, of a primitive type; path: its names in files. Of one whose
    statistics are kept, position: its column in the Parquet file; stored: its Arrow type there,
    which may be narrower than the table's; bounded: whether bounds are meaningful for it. [OB7]"""

    id: int
    path: Path
    type: str
    metadata: dict[str, Any] = {}
    position: int = 0
    stored: Any = None
    bounded: bool = False


def leaves(of: Schema | StructType, parent: Path = ()) -> list[Leaf]:
    """The primitive columns and members of structs, in order; none in arrays and maps. [OB7]"""
    found = []
    for field in of.fields:
        path = (*parent, field.file_name)
        if isinstance(field.type, str):
            found.append(Leaf(id=field.id, path=path, type=field.type, metadata=field.metadata))
        elif isinstance(field.type, StructType):
            found += leaves(field.type, path)
    return found


def map_field(field: Field, change: Callable[[Path, Field], Field], parent: Path = ()) -> Field:
    """Apply the change, with the path of names, to what is nested in the field, then to itself."""
    path = (*parent, field.name)
    inside = [map_field(member, change, path) for member in members(field.type)]
    if isinstance(field.type, MapType):
        # a key is never nullable, whatever the change returns
        inside[0] = msgspec.structs.replace(inside[0], nullable=field.type.key.nullable)
    return change(path, msgspec.structs.replace(field, type=with_members(field.type, inside)))


def map_fields(schema: Schema, change: Callable[[Field], Field]) -> Schema:
    """Apply the change to every field, nested ones before their parents."""
    changed = (map_field(field, lambda _, inner: change(inner)) for field in schema.fields)
    return msgspec.structs.replace(schema, fields=tuple(changed))


def relaxed(schema: Schema) -> Schema:
    """The same columns, all nullable, as in every file source of Spark. [SC3]"""
    return map_fields(schema, lambda field: msgspec.structs.replace(field, nullable=True))


def match_names(
    names: Sequence[str], fields: tuple[Field, ...], parent: Path = ()
) -> tuple[list[int | None], list[int]]:
    """For each field, the position in `names` of its column, or None; and the positions that match
    no field. Names match exactly, or in another case if only one column does so;
    SchemaMismatchError if several do. [SC3]"""
    if len(names) == len(fields) and all(
        field.name == name for field, name in zip(fields, names, strict=True)
    ):
        return list(range(len(names))), []
    exact: dict[str, int] = {}
    loose: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if exact.setdefault(name, at) != at:
            raise SchemaMismatchError(
                f"The data has the column {show_path((*parent, name))} twice; rename or drop one."
            )
        loose.setdefault(name.lower(), []).append(at)
    positions: list[int | None] = []
    for field in fields:
        candidates = loose.get(field.name.lower(), [])
        if field.name in exact:
            candidates = [exact[field.name]]
        if len(candidates) > 1:
            both = ", ".join(repr(names[at]) for at in candidates)
            raise SchemaMismatchError(
                f"Column {show_path((*parent, field.name))} could be any of {both}: rename "
                f"the one that is meant to {field.name!r}."
            )
        positions.append(candidates[0] if candidates else None)
    taken = set(positions)
    return positions, [at for at in range(len(names)) if at not in taken]


def match_all(names: Sequence[str], fields: tuple[Field, ...], parent: Path) -> list[int | None]:
    """As `match_names`; SchemaMismatchError where a column matches no field, or none matches one
    that may not be null. [SC3]"""
    positions, extra = match_names(names, fields, parent)
    if extra:
        shown = ", ".join(show_path((*parent, names[at])) for at in extra[:10])
        raise SchemaMismatchError(
            f"The data has columns that the table does not have: {shown}. Drop them, or add "
            "them to the table (merge_schema=True, or add_column)."
        )
    for field, at in zip(fields, positions, strict=True):
        if at is None and not field.nullable:
            raise SchemaMismatchError(
                f"Column {show_path((*parent, field.name))} is missing from the data and may not "
                "be null. Provide it, or make the column nullable (merge_schema=True)."
            )
    return positions


def unique_ids(new_id: Callable[[], int], taken: Iterable[int] = ()) -> Callable[[], int]:
    """A source of ids: `new_id`, or the next free number where that is in `taken` or was drawn
    before: of 10,000 columns, one schema in forty would have two equal random ids. [SC1]"""
    used = set(taken)

    def draw() -> int:
        id = new_id()
        while id in used:
            id = id % MAX_FIELD_ID + 1
        used.add(id)
        return id

    return draw


def assign_new_ids(schema: Schema, new_id: Callable[[], int]) -> Schema:
    """The same columns, with a new id from `new_id` for each field. [SC1]"""
    draw = unique_ids(new_id)
    fields = tuple(with_new_ids(field, draw) for field in schema.fields)
    return msgspec.structs.replace(schema, fields=fields)


def with_new_ids(field: Field, draw: Callable[[], int]) -> Field:
    """The field with another id, which is drawn before those of what is inside. [SC1]"""
    id = draw()
    if isinstance(field.type, str):
        return msgspec.structs.replace(field, id=id)
    inside = [with_new_ids(member, draw) for member in members(field.type)]
    return msgspec.structs.replace(field, id=id, type=with_members(field.type, inside))


def show_path(path: Path) -> str:
    """A column's path for a message: 'a.b'."""
    return "'" + ".".join(path) + "'"


def check_schema(schema: Schema) -> None:
    """Check that every reader can read this schema back; errors name the column. [SC1] [SC2]"""
    if not schema.fields:
        raise SchemaMismatchError("A table has at least one column; this schema has none.")
    ids: dict[int, str] = {}
    _check_names(schema.fields, ())
    for path, field in walk(schema.fields):
        if len(path) > MAX_LEVELS:
            raise UnsupportedTypeError(
                f"Column {path[0]!r} is nested more than {MAX_LEVELS} levels deep, which readers "
                "of Parquet refuse. Store it as a text, such as JSON."
            )
        column, id = show_path(path), field.id
        if not 1 <= id <= MAX_FIELD_ID:
            raise SchemaMismatchError(
                f"Column {column} has the field id {id}; ids are 1 to {MAX_FIELD_ID}."
            )
        if id in ids:
            raise SchemaMismatchError(f"Columns {ids[id]} and {column} share the field id {id}.")
        ids[id] = column
        _check_type(path, field)


def _check_type(path: Path, field: Field) -> None:
    problem, names = "", list[str]()
    match field.type:
        case StructType(fields=fields):
            _check_names(fields, path)
            if not fields:
                problem = "is a struct without members, which Parquet cannot hold. Drop the column "
                problem += "or add a member."
        case ArrayType():
            names = ["element"]
        case MapType(key=key):
            names = ["key", "value"]
            if key.nullable:
                problem = "is a map with nullable keys; keys are never null."
            if key.type == "void":
                problem = "is a map with keys of type void, which has no values."
        case str() if not is_primitive(field.type):
            problem = f"has the type {field.type!r}, which cannot be stored so that every reader "
            problem += "gets it back. Cast it to a supported type or drop it before writing."
    for member, name in zip(members(field.type), names, strict=False):
        if member.name != name or member.physical is not None:
            raise SchemaMismatchError(
                f"Column {show_path(path)}: the member {member.name!r} has to be called {name!r}."
            )
    if problem:
        raise UnsupportedTypeError(f"Column {show_path(path)} {problem}")


def _check_names(fields: tuple[Field, ...], parent: Path) -> None:
    names: dict[str, str] = {}
    files: dict[str, str] = {}
    for field in fields:
        if not field.name or not field.file_name:
            raise SchemaMismatchError(
                f"A column of {show_path(parent) if parent else 'the table'} has an empty name."
            )
        if parent and field.physical is not None:
            raise SchemaMismatchError(
                f"Column {show_path((*parent, field.name))} is a nested member with another name "
                "inside files; only columns have one."
            )
        if not (is_unicode(field.name) and is_unicode(field.file_name)):
            raise SchemaMismatchError(f"The column name {field.name!r} is not valid Unicode.")
        if "\0" in field.name + field.file_name:
            raise SchemaMismatchError(
                f"The column name {field.name!r} has the character NUL, at which other programs "
                "end a name. Rename the column."
            )
        if (twin := names.get(field.name.lower())) is not None:
            raise SchemaMismatchError(
                f"Columns {show_path((*parent, field.name))} and {twin!r} differ only in case or "
                "not at all; engines could not distinguish them. Rename one."
            )
        if (twin := files.get(field.file_name.lower())) is not None:
            raise SchemaMismatchError(
                f"Columns {show_path((*parent, field.name))} and {twin!r} have the same name "
                f"{field.file_name!r} inside data files."
            )
        names[field.name.lower()] = files[field.file_name.lower()] = field.name


# The schema as Spark's JSON (`StructType.jsonValue()`), from which Spark restores it. [SC2]

COLLATIONS = "__COLLATIONS"
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
_COMMENT = "comment"

# Metadata that only Spark's own catalog may use, and the mark that our readers put on a DataFrame.
# A default kept here would fill files that lack the column, where the specification wants null; a
# foreign field id would hide ours.
_DROPPED_METADATA = {
    "CURRENT_DEFAULT",
    "EXISTS_DEFAULT",
    "GENERATION_EXPRESSION",
    "parquet.field.id",
    MARK,
    "__metadata_col",
    "__file_source_metadata_col",
    "__qualified_access_only",
    "__autoGeneratedAlias",
}


def from_spark(struct_json: Mapping[str, Any], new_id: Callable[[], int] | None = None) -> Schema:
    """The schema of a Spark struct, as `StructType.jsonValue()`, each field with an id from
    `new_id`, which counts from 1 where a plan gives new columns their ids; refuses what readers
    could not restore. [SC1] [SC2]"""
    type = _from_type(struct_json)
    if not isinstance(type, StructType):
        raise SchemaMismatchError("A table's schema has to be a struct of columns.")
    schema = assign_new_ids(Schema(fields=type.fields), new_id or itertools.count(1).__next__)
    check_schema(schema)
    return schema


def to_spark(schema: Schema, *, physical: bool) -> dict[str, Any]:
    """The schema as `StructType.jsonValue()`, all nullable. physical: with names in files. [SC2]"""
    return _to_struct(map(_as_in_files, schema.fields) if physical else schema.fields)


def _as_in_files(field: Field) -> Field:
    metadata = rename_metadata(field.metadata, field.name, field.file_name)
    return msgspec.structs.replace(field, name=field.file_name, metadata=metadata)


def kept_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a Spark field's metadata without what only Spark's catalog may use. [SC2]"""
    return {
        key: copy.deepcopy(value) for key, value in metadata.items() if key not in _DROPPED_METADATA
    }


def rename_metadata(metadata: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """A field's metadata after its renaming: Spark's collations name their field. [SC6]"""
    collations = metadata.get(COLLATIONS)
    if old == new or not isinstance(collations, dict):
        return metadata
    renamed = {
        new + path[len(old) :] if path == old or path.startswith(old + ".") else path: collation
        for path, collation in collations.items()
    }
    return {**metadata, COLLATIONS: renamed}


def comment_of(field: Field) -> str | None:
    """A column's comment, as Spark keeps it; None: it has none. [SC9]"""
    comment = field.metadata.get(_COMMENT)
    return comment if isinstance(comment, str) else None


def with_comment(metadata: dict[str, Any], comment: str | None) -> dict[str, Any]:
    """A field's metadata with this comment, or without one. [SC9]"""
    others = {key: value for key, value in metadata.items() if key != _COMMENT}
    return others if comment is None else {**others, _COMMENT: comment}


def has_collation(field: Field) -> bool:
    """True if strings in the column compare otherwise than by their bytes. [OB7]"""
    return bool(field.metadata.get(COLLATIONS))


def has_own_order(field: Field) -> bool:
    """True if engines compare otherwise than stored: collated, or char, which is padded. [RD6]"""
    return has_collation(field) or str(field.metadata.get(CHAR_VARCHAR, "")).startswith("char(")


def is_ordered(field: Field) -> bool:
    """Whether values of the column are equal, less or greater as their stored values are."""
    return is_exact(field.type) and not has_own_order(field)


def _from_field(spark: Mapping[str, Any]) -> Field:
    metadata, type = kept_metadata(spark.get("metadata") or {}), spark["type"]
    if isinstance(type, str) and type.startswith(("char(", "varchar(")):
        metadata.setdefault(CHAR_VARCHAR, type)
    nullable = spark.get("nullable", True)
    return Field(
        id=1, name=spark["name"], type=_from_type(type), nullable=nullable, metadata=metadata
    )


def _from_type(spark: Any) -> FieldType:
    """The type; one that readers could not restore by its name, which `check_schema` refuses."""

    def member(name: str, type: str, nullable: bool) -> Field:
        return Field(id=1, name=name, type=_from_type(spark[type]), nullable=nullable)

    if isinstance(spark, str):
        if spark.startswith(("char(", "varchar(")):
            return "string"
        return "void" if spark == "null" else spark  # its older name, in stored schemas
    match spark.get("type") if isinstance(spark, Mapping) else None:
        case "struct":
            return StructType(fields=tuple(map(_from_field, spark["fields"])))
        case "array":
            return ArrayType(element=member("element", "elementType", spark["containsNull"]))
        case "map":
            key = member("key", "keyType", False)
            return MapType(key=key, value=member("value", "valueType", spark["valueContainsNull"]))
        case kind:
            return str(kind)


def unpadded(schema: Schema) -> Schema:
    """The same columns, char(n) and varchar(n) as strings: Spark pads char on read."""

    def plain(field: Field) -> Field:
        kept = {name: value for name, value in field.metadata.items() if name != CHAR_VARCHAR}
        return msgspec.structs.replace(field, metadata=kept)

    return map_fields(schema, plain)


def _to_struct(fields: Iterable[Field]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _to_type(field.type),
                "nullable": True,
                # a copy: pyspark's StructField.fromJson removes the collations from its argument
                "metadata": copy.deepcopy(field.metadata),
            }
            for field in fields
        ],
    }


def _to_type(type: FieldType) -> Any:
    match type:
        case StructType():
            return _to_struct(type.fields)
        case ArrayType():
            element = _to_type(type.element.type)
            return {"type": "array", "elementType": element, "containsNull": True}
        case MapType():
            key, value = _to_type(type.key.type), _to_type(type.value.type)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case _:
            return type

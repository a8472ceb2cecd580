"""Tables of other formats, as lists of files that `adopt` makes a table of. [AF4] [SC6]

Formats find a column by its field id, whatever a file calls it. This library finds it by one name
in all files. So the footers decide: a column keeps its id and has the name that the files give it.
A Delta log is read by the package deltalake, from a copy: so the table's own store, with its
options, is all that is needed. Iceberg's metadata is parsed by the package pyiceberg, and read
through the table's own store.

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from .errors import ManifestCommitError, NotATableError, UnsupportedTypeError, UsageError
from .export.delta_export import is_of_table
from .files.foreign_file import opened
from .format import fields as schemas
from .format.fields import ArrayType, Field, FieldType, MapType, Schema, StructType, WireValue
from .format.partitioning import check_partition_by
from .format.transforms import FUNCTIONS, MAX_WIDTH, Transform, partition_fields, spelled
from .format.values import arrow_type, field_id, from_array, inner_fields
from .log.table_context import TableContext
from .operations.adopt import ListedFile, ListedTable, Source
from .rows.row_change import as_columns
from .runtime.environment import map_in_batches
from .runtime.validation import wrong
from .store import Store
from .version import install

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
        missing = f"the package {name} is missing, which reads the other format"
        raise UsageError(f"{missing}: {install(extra)}") from error


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
        why = f"{what} cannot be read: {type(error).__name__}: {error}"
        raise UsageError(f"{why}. Nothing was adopted") from error


# Names -> the id, and the same for the members: how files without ids are read.
NameMapping = Mapping[str, tuple[int, "NameMapping"]]


# The columns under their names in files; for each file, the ids of the columns and members that it
# has; files that name some of them otherwise.
Stored = tuple[Schema, list[frozenset[int]], set[str]]


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
    mapping: for files without field ids; empty: there is none, and such a file is refused."""
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
        held, renamed = list[frozenset[int]](), set[str]()
        for path, columns in _footers(self._ctx, paths):
            if (known := columns.serialize().to_pybytes()) not in seen:
                ids = frozenset(_all_ids(columns, self._mapping))
                seen[known] = ids, self._takes(f"{self._ctx.store.url}/{path}", columns)
            ids, is_kept = seen[known]
            held.append(ids)
            if not is_kept:
                renamed.add(path)
        names, others = self._names, self._others
        stored = tuple(_stored(field, names.get(field.id), names, others) for field in self._fields)
        schema = Schema(fields=stored)
        schemas.check_schema(schema)
        return schema, held, renamed

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
    columns = _identified("the file", batch.schema, mapping)
    there = {id: _held(column, id, inner or {}) for column, id, inner in columns}
    return as_columns(batch, there, [field for field in fields if field.id in there])


def _held(column: pa.Field, id: int, mapping: NameMapping) -> Field:
    """A column of a file with the ids that it and its members have."""
    known = [(child, *mapping.get(child.name, (0, {}))) for child in inner_fields(column.type)]
    inner = [_held(child, field_id(child) or named, below) for child, named, below in known]
    kind: FieldType = "binary"  # whatever it is: values are cast to the table's type
    if pa.types.is_struct(column.type):
        kind = StructType(fields=tuple(inner))
    elif inner:
        is_map = pa.types.is_map(column.type)
        kind = MapType(key=inner[0], value=inner[1]) if is_map else ArrayType(element=inner[0])
    return Field(id=id, name=column.name, type=kind)


def _stored(
    field: Field, name: str | None, names: Mapping[int, str], others: Mapping[str, str]
) -> Field:
    lower = {each.lower(): file for each, file in others.items()}
    if name is None:  # no file has it: any name that none of them has
        used = lower.keys() | {each.lower() for each in names.values()}
        name = field.name if field.name.lower() not in used else f"{field.name}-{field.id}"
    elif (file := lower.get(name.lower())) is not None:
        what = f"{file} has a column {name!r} that was dropped"
        raise _refused(f"{what}, and other files have a new column of this name")
    return field if name == field.name else msgspec.structs.replace(field, physical=name)


def _footers(ctx: TableContext, paths: Sequence[str]) -> Iterator[tuple[str, pa.Schema]]:
    def columns(path: str) -> pa.Schema:
        gone = f"{ctx.store.url}/{path} is listed and is not there. Nothing was adopted"
        with opened(ctx.store, path, gone, ". Nothing was adopted") as (file, _, _):
            return file.schema_arrow

    return zip(paths, map_in_batches(ctx.store, columns, paths), strict=True)


def _identified(
    file: str, columns: Iterable[pa.Field], mapping: NameMapping
) -> Iterator[tuple[pa.Field, int, NameMapping | None]]:
    """Columns with their ids, and for files without ids the mapping of their members."""
    listed = list(columns)
    has_ids = any(field_id(column) is not None for column in listed)
    for column in listed:
        if has_ids:
            if (id := field_id(column)) is None:
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
        yield field_id(column) or id
        yield from _all_ids(inner_fields(column.type), below)


def _check_members(file: str, column: pa.Field, field: Field, mapping: NameMapping | None) -> None:
    """UsageError if a member has another name in the file than in the table, or another id."""
    inner = {member.name: member for member in schemas.members(field.type)}
    is_struct = isinstance(field.type, StructType)
    for at, child in enumerate(inner_fields(column.type)):
        member = inner.get(child.name) if is_struct else list(inner.values())[at]
        id, below = field_id(child), None
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


def _left(what: str, first: str = "") -> UsageError:
    """The error for a table that cannot be adopted as it is. first: another remedy."""
    return UsageError(f"{what} Nothing was adopted; {first}write the rows to a new table")


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


_LOG = "_delta_log/"
_VERSION = re.compile(r"_delta_log/(\d{20})\.(?:json|checkpoint\..+)", re.ASCII)
# Features of readers that change nothing of which rows a file has, or of how its columns are found.
_READ = frozenset({"columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_MAPPED = "delta.columnMapping."


def delta_table(ctx: TableContext, known: Schema | None) -> ListedTable:
    """What the newest version has; UsageError for what this library cannot read as it is. [AF4]
    known: the columns of a table whose adoption was not completed; they keep their ids."""
    reader = deltalake()
    with tempfile.TemporaryDirectory(prefix="manifestcommit-") as folder:
        _copy_log(ctx, Path(folder))
        with parsed(f"the Delta log {ctx.store.url}/{_LOG}"):
            table = reader.DeltaTable(folder)
            actions = pa.table(table.get_add_actions(flatten=True))
            struct = json.loads(table.schema().to_json())
            metadata, protocol = table.metadata(), table.protocol()
            version = table.version()
    _check_features(ctx, protocol.reader_features or [], metadata.configuration)
    schema, names = _schema(struct, known, ctx.new_field_id), list(metadata.partition_columns)
    try:
        by = check_partition_by(schema, names)
    except UsageError as error:
        what = f"{ctx.store.url} is partitioned by a column that cannot partition a table here"
        raise _left(f"{what}: {error}") from None
    with parsed(f"the files in the Delta log {ctx.store.url}/{_LOG}"):
        files = _files(ctx, actions, schema, by, names)
    checks, words = _checks(metadata.configuration), _delta_in_words(version)
    return ListedTable(
        schema=schema, partition_by=by, files=files, version=words, constraints=checks
    )


def delta_version(store: Store, table_id: str) -> str | None:
    """The newest version of the log, in words; None: there is no log, or it is an export of this
    table. At most two requests. [AF4]"""
    found = [match for info in store.list(_LOG) if (match := _VERSION.fullmatch(info.name))]
    newest = max((int(match[1]) for match in found), default=None)
    if newest is None or is_of_table(store, newest, table_id):
        return None
    return _delta_in_words(newest)


def _delta_in_words(version: int) -> str:
    return f"version {version} of the Delta table"


def _copy_log(ctx: TableContext, folder: Path) -> None:
    (folder / _LOG).mkdir()
    found = False
    for info in ctx.store.list(_LOG):
        name = info.name.removeprefix(_LOG)
        if name.startswith("_sidecars/") or "/" not in name:
            found = True
            (folder / _LOG / name).parent.mkdir(exist_ok=True)
            (folder / _LOG / name).write_bytes(ctx.store.get(info.name))
    if not found:
        raise NotATableError(f"{ctx.store.url} holds no Delta log: there is no {_LOG}")


def _checks(configuration: Mapping[str, str | None]) -> dict[str, str]:
    """The CHECK constraints. A null result violates one in Delta, and keeps one here. [CK1]"""
    prefix, known = "delta.constraints.", configuration.items()
    found = [(key.removeprefix(prefix), text) for key, text in known if key.startswith(prefix)]
    return {name: f"({text}) IS TRUE" for name, text in found}


def _check_features(
    ctx: TableContext, features: list[str], configuration: Mapping[str, str | None]
) -> None:
    if unknown := sorted(set(features) - _READ):
        what = f"its Delta log requires {', '.join(unknown)}, which a table here cannot express"
        why = "with deletion vectors, for one, files hold rows that are deleted."
        raise _left(f"{ctx.store.url}: {what}: {why}", "drop the feature there first, or ")
    if configuration.get(f"{_MAPPED}mode") == "id":
        what = "its Delta log maps columns by ids, whatever files call them."
        raise _left(f"{ctx.store.url}: {what}")


def _schema(struct: dict[str, Any], known: Schema | None, new_id: Callable[[], int]) -> Schema:
    """The columns, with the ids and the names in files of a column mapping."""
    given = schemas.from_spark(struct, new_id).fields
    for path, each in schemas.walk(given):
        if len(path) > 1 and _physical(each) != each.name:
            raise _left(f"the member {schemas.show_path(path)} has another name in the files.")
    fields = tuple(map(_mapped, given))
    schema = Schema(fields=fields)
    if known is not None and [field.name for field in known.fields] == [f.name for f in fields]:
        return known
    schemas.check_schema(schema)
    return schema


def _mapped(field: Field) -> Field:
    own = {key: value for key, value in field.metadata.items() if not key.startswith("delta.")}
    id, kind, physical = field.metadata.get(f"{_MAPPED}id", field.id), field.type, _physical(field)
    if isinstance(kind, StructType):
        kind = StructType(fields=tuple(map(_mapped, kind.fields)))
    renamed = None if physical == field.name else physical
    return msgspec.structs.replace(field, id=id, type=kind, physical=renamed, metadata=own)


def _physical(field: Field) -> str:
    """The name in files."""
    name: str = field.metadata.get(f"{_MAPPED}physicalName", field.name)
    return name


def _files(
    ctx: TableContext, actions: pa.Table, schema: Schema, by: tuple[int, ...], names: list[str]
) -> tuple[ListedFile, ...]:
    fields = {field.id: field for field in schema.fields}
    columns = []
    for id, name in zip(by, names, strict=True):
        field = fields[id]
        called = (f"partition.{name}", f"partition.{field.file_name}")
        found = next(actions.column(each) for each in called if each in actions.column_names)
        columns.append(from_array(found.combine_chunks(), field.type))
    values = zip(*columns, strict=True) if columns else [()] * actions.num_rows
    made = []
    for path, partition in zip(actions.column("path").to_pylist(), values, strict=True):
        if "://" in path or path.startswith("/"):
            what = f"its Delta log lists {path!r}, which is outside of the table."
            raise _left(f"{ctx.store.url}: {what}")
        made.append(ListedFile(path=unquote(path), partition=tuple(partition)))
    return tuple(made)


_FOLDER = "metadata/"
_HINT = f"{_FOLDER}version-hint.text"
_DOCUMENT = re.compile(r"(?:[^/]+/)*[^/]+\.metadata\.json")
_MOST_BYTES = 256 << 20
# int is integer, which comes after byte and short.
_TYPES = {each.iceberg: name for name, each in schemas.PRIMITIVES.items() if each.iceberg}


def iceberg_table(ctx: TableContext, document: str | None, rewrite: bool) -> ListedTable:
    """What the current snapshot has; UsageError for what this library cannot read as it is. [AF4]
    document: the metadata document, a path or URL below the table; None: the one that the version
    hint names; rewrite: files that name columns otherwise than the table are to be rewritten."""
    store = ctx.store
    name = _hinted(store) if document is None else _inside(store, document)
    with parsed(f"the Iceberg table of the document {store.url}/{name}"):
        metadata = _metadata(store, name)
        files = _live(store, metadata)
        fields = tuple(map(_column, metadata.schema().fields))
        mapping = _mapping(metadata.properties)
    paths = [_inside(store, file.file_path) for file in files]
    schema, held, renamed = as_stored(ctx, fields, paths, mapping, rewrite)
    with parsed(f"the partitions of the document {store.url}/{name}"):
        by = _partition_by(metadata, files, schema)
        for path, file, ids in zip(paths, files, held, strict=True):
            _check_values(f"{store.url}/{path}", metadata, file, schema, ids.union(by))
        chosen = []
        for path, file in zip(paths, files, strict=True):
            of, size = _values(metadata, file, schema, by), file.file_size_in_bytes
            chosen.append(ListedFile(path=path, partition=of, rewrite=path in renamed, bytes=size))
    version = _iceberg_in_words(metadata.current_snapshot_id)
    named = partial(by_ids, fields=fields, mapping=mapping)
    return ListedTable(
        schema=schema, partition_by=by, files=tuple(chosen), version=version, named=named
    )


def iceberg_version(store: Store, document: str | None) -> str | None:
    """The current snapshot, in words; None: there is no document. [AF4]"""
    try:
        name = _hinted(store) if document is None else _inside(store, document)
        text = _text(store, name)
    except (FileNotFoundError, NotATableError):
        return None
    with parsed(f"the document {store.url}/{name}"):
        return _iceberg_in_words(json.loads(text).get("current-snapshot-id"))


def _iceberg_in_words(snapshot_id: int | None) -> str:
    if snapshot_id is None or snapshot_id == -1:
        return "the Iceberg table without a snapshot"
    return f"snapshot {snapshot_id} of the Iceberg table"


def _metadata(store: Store, name: str) -> Any:
    parser = pyiceberg().table.metadata.TableMetadataUtil
    try:
        metadata = parser.parse_raw(_text(store, name))
    except FileNotFoundError:
        raise NotATableError(f"there is no Iceberg document {store.url}/{name}") from None
    if metadata.format_version > 2:
        raise UsageError(
            f"{store.url} is an Iceberg table of version {metadata.format_version} of the format; "
            "versions 1 and 2 can be adopted. Write its rows to a new table"
        )
    return metadata


def _hinted(store: Store) -> str:
    """The document that the hint names, or a later one of a table without a catalog."""
    try:
        text = store.get(_HINT, 0, 32).strip()
    except FileNotFoundError:
        names = [info.name for info in store.list(_FOLDER) if _DOCUMENT.fullmatch(info.name)]
        if not names:
            none = f"there is no {_FOLDER}*.metadata.json"
            raise NotATableError(f"{store.url} holds no Iceberg table: {none}") from None
        raise UsageError(
            f"{store.url} has no {_HINT}: only its catalog knows which document is current. Give "
            f"that document, such as from_={store.url + '/' + max(names)!r}"
        ) from None
    if not text.isdigit():
        raise UsageError(f"{store.url}/{_HINT} holds no version: give the document instead")
    version = int(text)
    while any(info.name == _numbered(version + 1) for info in store.list(_numbered(version + 1))):
        version += 1
    return _numbered(version)


def _numbered(version: int) -> str:
    return f"{_FOLDER}v{version}.metadata.json"


def _text(store: Store, name: str) -> str:
    data = store.get(name, 0, _MOST_BYTES)
    if name.endswith(".gz.metadata.json"):
        data = zlib.decompressobj(31).decompress(data, _MOST_BYTES)
    return data.decode()


def _inside(store: Store, location: str) -> str:
    """The name below the table of what a document names; UsageError if it lies elsewhere."""
    root, given = _plain(store.url), _plain(location)
    if not given.startswith(f"{root}/"):
        why = "only a table whose files all lie below its path can be adopted."
        raise _left(f"{location!r} is outside of {store.url}: {why}")
    return given[len(root) + 1 :]


def _plain(location: str) -> str:
    scheme, separator, rest = location.partition("://")
    if not separator:
        rest = location.removeprefix("file:")
        return f"file://{rest}"
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"


def _live(store: Store, metadata: Any) -> list[Any]:
    """The data files of the current snapshot; UsageError if there are delete files."""
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return []
    files = pyiceberg().manifest
    io = _store_io(store)
    found = []
    try:
        for manifest in snapshot.manifests(io):
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
                if entry.data_file.content != files.DataFileContent.DATA:
                    what = "its current snapshot has delete files, so that data files hold rows"
                    first = "compact it first, as by rewrite_data_files, or "
                    raise _left(f"{store.url}: {what} that are deleted.", first)
                if entry.data_file.file_format != files.FileFormat.PARQUET:
                    raise _left(f"{entry.data_file.file_path} is no Parquet file.")
                found.append(entry.data_file)
    except FileNotFoundError as error:
        gone = f"{store.url}: {error} is listed and not there"
        raise UsageError(f"{gone}. Nothing was adopted") from None
    return found


def _store_io(store: Store) -> Any:
    """The store, as pyiceberg reads files."""
    files = pyiceberg().io

    class Input(files.InputFile):  # type: ignore[misc,name-defined]  # loaded late
        def __len__(self) -> int:
            return len(self._data())

        def exists(self) -> bool:
            return True

        def open(self, seekable: bool = True) -> io.BytesIO:
            return io.BytesIO(self._data())

        def _data(self) -> bytes:
            return store.get(_inside(store, self.location), 0, _MOST_BYTES)

    class StoreIO(files.FileIO):  # type: ignore[misc,name-defined]  # loaded late
        def new_input(self, location: str) -> Input:
            return Input(location)

        def new_output(self, location: str) -> Any:
            raise NotImplementedError

        def delete(self, location: Any) -> None:
            raise NotImplementedError

    return StoreIO()


# --- columns and partitions -----------------------------------------------------------------------


def _field(column: Any) -> Field:
    return Field(id=column.field_id, name=column.name, type=_type(column.field_type, column.name))


def _column(column: Any) -> Field:
    """A column of the table: one that is required is never null. [SC3]"""
    return msgspec.structs.replace(_field(column), nullable=not column.required)


def _type(kind: Any, of: str) -> FieldType:
    types = pyiceberg().types
    if isinstance(kind, types.StructType):
        return StructType(fields=tuple(map(_field, kind.fields)))
    if isinstance(kind, types.ListType):
        element = Field(id=kind.element_id, name="element", type=_type(kind.element_type, of))
        return ArrayType(element=element)
    if isinstance(kind, types.MapType):
        key = Field(id=kind.key_id, name="key", type=_type(kind.key_type, of), nullable=False)
        value = Field(id=kind.value_id, name="value", type=_type(kind.value_type, of))
        return MapType(key=key, value=value)
    if isinstance(kind, types.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if str(kind) not in _TYPES:
        what = f"column {of!r} has the type {kind}, which a table here cannot have"
        without = "Nothing was adopted; write the rows to a new table without it"
        raise UnsupportedTypeError(f"{what}. {without}")
    return _TYPES[str(kind)]


def _mapping(properties: Mapping[str, str]) -> NameMapping:
    """How files without field ids are read."""
    text = properties.get("schema.name-mapping.default")
    try:
        return {} if text is None else _names(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            "the property 'schema.name-mapping.default' is no list of names and field ids, by "
            f"which files without field ids are read: {text[:200] if text else text!r}. Nothing "
            "was adopted; set it right or remove it with a writer of Iceberg"
        ) from error


def _names(mapped: Iterable[Any]) -> NameMapping:
    found: dict[str, tuple[int, NameMapping]] = {}
    for each in mapped:
        known = int(each.get("field-id") or 0), _names(each.get("fields") or ())
        found |= dict.fromkeys(each["names"], known)
    return found


def _partition_by(metadata: Any, files: list[Any], schema: Schema) -> tuple[int, ...]:
    """The partition columns: identities and transforms of all files, as far as columns here can
    have them and their folders different names. [AF4]"""
    ids = {file.spec_id for file in files} or {metadata.default_spec_id}
    specs = [_parts(metadata, spec_id) for spec_id in sorted(ids)]
    by: tuple[int, ...] = ()
    for id in specs[-1]:
        wanted = (*by, id)
        with contextlib.suppress(UsageError, ValueError):
            found = check_partition_by(schema, spelled(schema, wanted))
            by = found if found == wanted and all(id in spec for spec in specs) else by
    return by


def _parts(metadata: Any, spec_id: int) -> dict[int, int]:
    """What partitions the files of a spec, by its id here -> its position in their partitions."""
    found = {}
    for at, field in enumerate(metadata.specs()[spec_id].fields):
        function, _, width = str(field.transform).rstrip("]").partition("[")
        if function == "identity":
            found[field.source_id] = at
        elif function in FUNCTIONS and int(width or 0) <= MAX_WIDTH:
            found[Transform(field.source_id, function, int(width or 0)).id] = at
    return found


def _check_values(
    file_name: str, metadata: Any, file: Any, schema: Schema, there: frozenset[int]
) -> None:
    """UsageError if only the metadata holds a value that a column has in this file. there: the ids
    of columns that are in the file or partition the table. [AF4]"""
    at = _parts(metadata, file.spec_id)
    for path, field in schemas.walk(schema.fields):
        if field.id in at and field.id not in there and file.record_count:
            if file.partition[at[field.id]] is None:
                continue
            shown, kind = schemas.show_path(path), schemas.type_text(field.type)
            raise UsageError(
                f"{file_name} does not hold the column {shown}: its value is only in the Iceberg "
                "metadata, and a table here cannot be partitioned by it: it is a member, of a type "
                f"that does not partition ({kind}), or not in the partitioning of every file. "
                "Nothing was adopted; read the table with a reader of Iceberg, and write its rows "
                "to a new table"
            )


def _values(metadata: Any, file: Any, schema: Schema, by: tuple[int, ...]) -> tuple[WireValue, ...]:
    at = _parts(metadata, file.spec_id)
    fields = partition_fields(schema, by)
    return tuple(_wire(file.partition[at[field.id]], field.type) for field in fields)


def _wire(value: Any, kind: FieldType) -> WireValue:
    """The wire value of one that pyiceberg has read: days and microseconds are numbers there."""
    target = arrow_type(kind)
    stored = target
    if isinstance(value, int) and pa.types.is_date(target):
        stored = pa.int32()
    elif isinstance(value, int) and pa.types.is_timestamp(target):
        stored = pa.int64()
    (wire,) = from_array(pa.array([value], stored).cast(target), kind)
    return wire


def source_of(ctx: TableContext, given: str, rewrite: bool) -> Source:
    """What reads the table of another format at this path. rewrite: files that name columns
    otherwise than the table are to be rewritten. UsageError: no such format."""
    if given == "delta":
        return Source(listed=partial(delta_table, ctx), current=partial(delta_version, ctx.store))
    if given == "iceberg" or given.endswith(".metadata.json"):
        document = None if given == "iceberg" else given
        return Source(
            listed=lambda _: iceberg_table(ctx, document, rewrite),
            current=lambda _: iceberg_version(ctx.store, document),
        )
    raise wrong("from_", given, "'iceberg', 'delta', or the path of an Iceberg document")

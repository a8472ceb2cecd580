"""The files, columns and partitions of an Iceberg table's current snapshot. [AF4]

Metadata is parsed by the package pyiceberg, and read through the table's own store.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from ..errors import NotATableError, UnsupportedTypeError, UsageError
from ..format.arrow_schema import arrow_type
from ..format.fields import (
    PRIMITIVES,
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    WireValue,
    show_path,
    type_text,
    walk,
)
from ..format.partitioning import check_partition_by
from ..format.transforms import FUNCTIONS, MAX_WIDTH, Transform, partition_fields, spelled
from ..format.values import from_array
from ..log.table_context import TableContext
from ..operations.adopt import ListedFile, ListedTable
from ..store import Store
from .columns import NameMapping, as_stored, by_ids, parsed, pyiceberg

_FOLDER = "metadata/"
_HINT = f"{_FOLDER}version-hint.text"
_DOCUMENT = re.compile(r"(?:[^/]+/)*[^/]+\.metadata\.json")
_MOST_BYTES = 256 << 20
# int is integer, which comes after byte and short.
_TYPES = {each.iceberg: name for name, each in PRIMITIVES.items() if each.iceberg}


def listed(ctx: TableContext, document: str | None, rewrite: bool) -> ListedTable:
    """What the current snapshot has; UsageError for what this library cannot read as it is. [AF4]

    document: the metadata document, a path or URL below the table; None: the one that the version
    hint names; rewrite: files that name columns otherwise than the table are to be rewritten.
    """
    store = ctx.store
    name = _hinted(store) if document is None else _inside(store, document)
    with parsed(f"the Iceberg table of the document {store.url}/{name}"):
        metadata = _metadata(store, name)
        files = _live(store, metadata)
        fields = tuple(map(_field, metadata.schema().fields))
        mapping = _mapping(metadata.properties)
    paths = [_inside(store, file.file_path) for file in files]
    schema, held, renamed = as_stored(ctx, fields, paths, mapping, rewrite)
    with parsed(f"the partitions of the document {store.url}/{name}"):
        by = _partition_by(metadata, files, schema)
        for path, file, ids in zip(paths, files, held, strict=True):
            _check_values(f"{store.url}/{path}", metadata, file, schema, ids.union(by))
        chosen = tuple(
            ListedFile(
                path=path,
                partition=_values(metadata, file, schema, by),
                rewrite=path in renamed,
                bytes=file.file_size_in_bytes,
            )
            for path, file in zip(paths, files, strict=True)
        )
    version = _in_words(metadata.current_snapshot_id)
    return ListedTable(
        schema=schema,
        partition_by=by,
        files=chosen,
        version=version,
        named=partial(by_ids, fields=fields, mapping=mapping),
    )


def current_version(store: Store, document: str | None) -> str | None:
    """The current snapshot, in words; None: there is no document. [AF4]"""
    try:
        name = _hinted(store) if document is None else _inside(store, document)
        text = _text(store, name)
    except (FileNotFoundError, NotATableError):
        return None
    with parsed(f"the document {store.url}/{name}"):
        return _in_words(json.loads(text).get("current-snapshot-id"))


def _in_words(snapshot_id: int | None) -> str:
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
            raise NotATableError(
                f"{store.url} holds no Iceberg table: there is no {_FOLDER}*.metadata.json"
            ) from None
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
        raise UsageError(
            f"{location!r} is outside of {store.url}: only a table whose files all lie below its "
            "path can be adopted. Nothing was adopted; write the rows to a new table"
        )
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
                    raise UsageError(
                        f"{store.url}: its current snapshot has delete files, so that data files "
                        "hold rows that are deleted. Nothing was adopted; compact it first, as by "
                        "rewrite_data_files, or write the rows to a new table"
                    )
                if entry.data_file.file_format != files.FileFormat.PARQUET:
                    raise UsageError(
                        f"{entry.data_file.file_path} is no Parquet file. Nothing was adopted; "
                        "write the rows to a new table"
                    )
                found.append(entry.data_file)
    except FileNotFoundError as error:
        raise UsageError(
            f"{store.url}: {error} is listed and not there. Nothing was adopted"
        ) from None
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


def _type(kind: Any, of: str) -> FieldType:
    types = pyiceberg().types
    if isinstance(kind, types.StructType):
        return StructType(fields=tuple(map(_field, kind.fields)))
    if isinstance(kind, types.ListType):
        element = Field(id=kind.element_id, name="element", type=_type(kind.element_type, of))
        return ArrayType(element=element)
    if isinstance(kind, types.MapType):
        key = Field(id=kind.key_id, name="key", type=_type(kind.key_type, of), nullable=False)
        return MapType(
            key=key, value=Field(id=kind.value_id, name="value", type=_type(kind.value_type, of))
        )
    if isinstance(kind, types.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if str(kind) not in _TYPES:
        raise UnsupportedTypeError(
            f"column {of!r} has the type {kind}, which a table here cannot have. Nothing was "
            "adopted; write the rows to a new table without it"
        )
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
    return {
        name: (int(each.get("field-id") or 0), _names(each.get("fields") or ()))
        for each in mapped
        for name in each["names"]
    }


def _partition_by(metadata: Any, files: list[Any], schema: Schema) -> tuple[int, ...]:
    """The partition columns: identities and transforms of all files, as far as columns here can
    have them and their folders different names. [AF4]"""
    specs = [
        _parts(metadata, spec_id)
        for spec_id in sorted({file.spec_id for file in files} or {metadata.default_spec_id})
    ]
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
    for path, field in walk(schema.fields):
        if field.id in at and field.id not in there and file.record_count:
            if file.partition[at[field.id]] is None:
                continue
            raise UsageError(
                f"{file_name} does not hold the column {show_path(path)}: its value is only in "
                "the Iceberg metadata, and a table here cannot be partitioned by it: it is a "
                f"member, of a type that does not partition ({type_text(field.type)}), or not in "
                "the partitioning of every file. Nothing was adopted; read the table with a "
                "reader of Iceberg, and write its rows to a new table"
            )


def _values(metadata: Any, file: Any, schema: Schema, by: tuple[int, ...]) -> tuple[WireValue, ...]:
    at = _parts(metadata, file.spec_id)
    fields = partition_fields(schema, by)
    return tuple(_wire(file.partition[at[field.id]], field.type) for field in fields)


def _wire(value: Any, kind: FieldType) -> WireValue:
    """The wire value of one that pyiceberg has read: days and microseconds are numbers there."""
    target = arrow_type(kind)
    if isinstance(value, int) and not isinstance(value, bool):
        if pa.types.is_date(target):
            array = pa.array([value], pa.int32()).cast(target)
        elif pa.types.is_timestamp(target):
            array = pa.array([value], pa.int64()).cast(target)
        else:
            array = pa.array([value], target)
    else:
        array = pa.array([value], target)
    (wire,) = from_array(array, kind)
    return wire
